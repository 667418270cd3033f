"""h8 by way of a name: a command that is only called like an agent does not get the user's sign-in."""
import json
import os

import images
import pytest

from expect import missing
from homes import Home
from lab import PATH
from mcp import serving

READ = "#!/bin/sh\ncat ~/.claude/token; echo wrote 2>/dev/null >~/.claude/token; echo looked\n"


@pytest.fixture
def home(any_user):
    """A user who is signed in to an agent on PATH, and a project with a script of the same name."""
    made = Home(any_user)
    made.program(".local/bin/claude", READ)
    assert made.run("--", "claude", path=[".local/bin"], mode="claude").out == "looked\n"
    with open(token(made), "w") as f:
        f.write("s3cret\n")
    made.own(made.program("p/claude", READ))
    made.own(made.program("p/.venv/bin/claude", READ))
    return made


def token(home):
    return home.lab.path("state", "agentkernel", "agents", "claude", "shared", ".claude", "token")


def untouched(home):
    with open(token(home)) as f:
        return f.read() == "s3cret\n"


def test_the_agent_itself_has_its_sign_in(home):
    r = home.run("--dir", home.path("p"), "--", "claude", path=[".local/bin"], mode="claude")
    assert r.out == "s3cret\nlooked\n" and not untouched(home), r


@pytest.mark.parametrize("mode", ["claude", "codex", "native"])
def test_h8_a_tool_call_never_has_a_sign_in(home, mode):
    project = home.path("p")
    env = {"PATH": "%s:%s" % (home.path(".local/bin"), PATH)}
    with serving(home.lab, "--compatibility-mode", mode, "--dir", project, env=env) as m:
        for command in (project + "/claude", "claude", home.path(".local/bin/claude")):
            said = m.call("sandbox_run", command=[command])
            assert "s3cret" not in json.dumps(said), (command, said)
    assert untouched(home)


@pytest.mark.parametrize("command", ["./claude", "{p}/claude", "{p}/.venv/bin/claude"])
def test_h8_a_path_to_a_script_of_the_project_is_not_the_agent(home, command):
    p = home.path("p")
    r = home.run("--dir", p, "--workdir", p, "--", command.format(p=p), path=[".local/bin"], mode="claude", cwd=p)
    assert r.code == 0 and r.out == "looked\n" and "--agent-state shared gives it" in r.err, r
    assert untouched(home)


def test_h8_a_script_of_the_project_in_front_on_path_is_not_the_agent(home):
    r = home.run("--dir", home.path("p"), "--", "claude", path=["p/.venv/bin", ".local/bin"], mode="claude")
    assert r.out == "looked\n" and untouched(home), r


def test_h8_neither_is_a_link_of_the_project_to_the_agent(home):
    home.link("p/bin/claude", home.path(".local/bin/claude"))
    r = home.run("--dir", home.path("p"), "--", "claude", path=["p/bin", ".local/bin"], mode="claude")
    assert "s3cret" not in r.out and untouched(home), r


def test_h8_neither_is_a_program_that_another_sandbox_may_have_written(home):
    lab = home.lab
    os.makedirs(home.path("q"))
    home.own(home.path("q"))
    assert lab.ak(["create", "other", "--compatibility-mode", "codex", "--dir", home.path("p")]).code == 0
    try:
        r = home.run("--dir", home.path("q"), "--", "claude", path=["p/.venv/bin"], mode="claude")
        assert "s3cret" not in r.out and untouched(home), r
    finally:
        assert lab.ak(["remove", "other"]).code == 0 and lab.ak(["daemon", "stop"]).code == 0


IMAGES = {"program": {}, "entry point": {"Entrypoint": ["/bin/sh", "-c", READ.split("\n", 1)[1]]}, "project on its path": {"Env": ["PATH=.:/bin"]}}


@pytest.mark.parametrize("kind", IMAGES)
def test_h8_what_an_image_calls_by_that_name_is_not_the_agent(home, kind):
    lab, p = home.lab, home.path("p")
    if images.missing_tools():
        missing("not installed: " + images.missing_tools())
    layer = images.base_layer()
    if kind == "program":
        layer.add("bin/claude", READ, mode=0o755)
    folder = images.write_layout(lab.path("tmp", "layout"), [layer.done()], IMAGES[kind])
    assert lab.ak(["image", "import", "--name", "evil", folder + ":latest"]).code == 0
    r = home.run("--dir", p, "--image", "evil", "--", "claude", path=[".local/bin"], mode="claude", cwd=p)
    assert r.out == "looked\n" and "'claude' runs without your sign-in: it is a program of the image" in r.err, r
    assert untouched(home)
    r = home.run("--agent-state", "shared", "--dir", p, "--image", "evil", "--", "claude", path=[".local/bin"], mode="claude", cwd=p)
    assert r.out == "s3cret\nlooked\n", r


def test_the_user_can_give_it(home):
    p = home.path("p")
    r = home.run("--agent-state", "shared", "--dir", p, "--", p + "/claude", path=[".local/bin"], mode="claude")
    assert r.out == "s3cret\nlooked\n", r
