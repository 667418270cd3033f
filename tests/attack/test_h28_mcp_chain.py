"""h28: the chain by which an MCP client alone could read the home: a program that it writes makes the host bring in what the program names."""
import base64
import os

import pytest

from homes import Build, Home
from lab import PATH
from mcp import Mcp


@pytest.fixture
def home(any_user):
    made = Home(any_user)
    made.secret = made.program("private/bin/helper", "#!/bin/sh\necho s3cret\n")
    return made


def crafted(home):
    """An ELF program whose library, by an absolute path, is a file of the home that prints when it is loaded."""
    build = Build(home)
    lib = build.make("private/libsecret.so.1", "#include <stdio.h>\n__attribute__((constructor)) static void f(void) { puts(\"s3cret\"); }",
                     "-shared", "-fPIC", "-Wl,-soname,%s" % home.path("private/libsecret.so.1"))
    path = build.make("made/tool", "int main(void) { return 0; }", "-Wl,--no-as-needed", lib)
    with open(path, "rb") as f:
        return base64.b64encode(f.read()).decode()


def replay(home, kind):
    """What the client hears: it writes a program into the project by one call and runs it by another, in modes with and without the project."""
    lab, tool = home.lab, home.lab.path("project", "tool")
    writes = {
        "script": "printf '#!%s\\n' > tool; chmod 755 tool" % home.secret,
        "link": "ln -s %s tool" % home.secret,
        "library": "cat > tool.b64 <<'END'\n%s\nEND\nbase64 -d tool.b64 > tool; chmod 755 tool" % (crafted(home) if kind == "library" else ""),
    }
    heard = []
    m = Mcp(lab, "--compatibility-mode", "native", "--compatibility-mode", "codex", env={"PATH": PATH, "AK_SABOTAGE_OK": "1"})
    m.open()
    wrote = m.call("sandbox_run", command=["sh", "-ec", writes[kind] + "; ls -l tool"], compatibility_mode="codex")["result"]
    assert os.path.lexists(tool), wrote
    for mode in ("native", "codex"):
        heard.append(m.call("sandbox_run", command=[tool], compatibility_mode=mode)["result"])
    plain = m.good("sandbox_run", command=["/bin/echo", "x"])[0]["stdout"]
    assert m.close().code == 0 and plain == "x\n"
    return str(heard)


@pytest.mark.parametrize("kind", ["script", "link", "library"])
def test_h28_a_program_that_a_client_writes_brings_in_nothing(home, kind):
    assert "s3cret" not in replay(home, kind)
