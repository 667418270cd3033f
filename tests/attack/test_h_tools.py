"""h4, h5 and h28 by way of programs: what the host brings in for a command is a program and its parts, whatever a crafted program asks for."""
import os
import socket

import pytest

from homes import Build, Home
from lab import PATH
from mcp import Mcp

CODEX = ("--compatibility-mode", "codex")


@pytest.fixture
def home(any_user):
    made = Home(any_user)
    made.program(".ssh/id", "s3cret\n", 0o600)
    made.program("private/s.txt", "s3cret\n", 0o600)
    return made


def needing(home, name, *needs, options=()):
    """A program that names NEEDS, absolute paths, as its libraries."""
    build = Build(home)
    libs = [build.make("made/%d.so" % i, "int f%d(void) { return 1; }" % i, "-shared", "-fPIC", "-Wl,-soname," + path) for i, path in enumerate(needs)]
    return build.make(name, "int main(void) { return 0; }", "-Wl,--no-as-needed", *libs, *options)


def look(home, tool, script, *options, path=("tools",), **kw):
    """Run SCRIPT beside the tool; nothing secret may come out."""
    r = home.run(*options, "--tool", tool, "--", "sh", "-c", script + "; echo looked", path=list(path), **kw)
    assert r.out.endswith("looked\n") and "s3cret" not in r.out, r
    return r


# ---- libraries ----

@pytest.mark.parametrize("mode", ["codex", "claude"])
def test_h4_a_folder_is_no_library(home, mode):
    needing(home, "tools/tool", home.path(), home.path("private"), "/run", "/var")
    look(home, "tool", "cat %s %s; ls /var/lib/dpkg" % (home.path(".ssh/id"), home.path("private/s.txt")), mode=mode)


def test_h4_neither_a_socket_nor_any_other_file_is_a_library(home):
    path, text = home.path("d/s"), home.program("private/liba.so.1", "s3cret\n", 0o644)
    os.makedirs(os.path.dirname(path))
    os.mkfifo(home.path("d/fifo"))
    home.own(home.path("d/fifo"))
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(path)
        os.chmod(path, 0o777)
        needing(home, "tools/tool", path, home.path("d/fifo"), text)
        r = look(home, "tool", "ls %s; cat %s" % (os.path.dirname(path), text))
    assert r.out == "looked\n", r


def test_h4_a_search_path_finds_libraries_only(home):
    home.program("private/libx.so.1", "s3cret\n", 0o644)
    os.mkdir(home.path("private/liby.so.1"))
    home.program("private/liby.so.1/s", "s3cret\n", 0o644)
    needing(home, "tools/tool", "libx.so.1", "liby.so.1", options=("-Wl,-rpath," + home.path("private"),))
    r = look(home, "tool", "cat %s/*; find %s -type f" % (home.path("private"), home.path("private")))
    assert r.out == "looked\n", r


def test_h4_a_library_brings_no_folder_around_it(home):
    """The folder looks like a tool chain; only the program itself would bring it."""
    Build(home).library("private/bin/liba.so.1", "int a(void) { return 1; }")
    home.program("private/pyvenv.cfg", "", 0o644)
    needing(home, "tools/tool", home.path("private/bin/liba.so.1"))
    r = look(home, "tool", "cd %s; cat s.txt; ls bin" % home.path("private"))
    assert r.out == "liba.so.1\nlooked\n", r


# ---- folders around programs ----

def node(home, folder):
    home.program(folder + "/bin/node", "#!/bin/sh\necho node\n")
    home.program(folder + "/include/node/node.h", "", 0o644)
    home.program(folder + "/lib/node_modules/npm/package.json", "npm\n", 0o644)


@pytest.mark.parametrize("secret", ["share/keyrings/login.keyring", "share/other/token", "state/x"])
def test_h4_node_in_a_shared_prefix_comes_without_the_rest(home, secret):
    node(home, ".local")
    home.program(".local/" + secret, "s3cret\n", 0o600)
    r = look(home, "node", "node; cd %s; cat %s lib/node_modules/npm/package.json; ls" % (home.path(".local"), secret), path=[".local/bin"])
    assert r.out == "node\nnpm\nbin\ninclude\nlib\nlooked\n", r


def test_h4_another_tool_chain_in_a_shared_prefix_is_reported(home):
    home.program(".local/bin/tool", "#!/bin/sh\necho ran\n")
    home.program(".local/pyvenv.cfg", "", 0o644)
    home.program(".local/share/token", "s3cret\n", 0o600)
    r = look(home, "tool", "tool; cat %s" % home.path(".local/share/token"), path=[".local/bin"])
    assert r.out == "ran\nlooked\n" and "--mount" in r.err, r


@pytest.mark.parametrize("key", [".gnupg", ".aws", ".config/gh"])
def test_h4_a_tool_chain_around_the_target_of_a_link_to_keys_is_not_mounted(home, key):
    node(home, "vault")
    home.program("vault/keys/k", "s3cret\n", 0o600)
    home.link(key, home.path("vault/keys"))
    look(home, "node", "cat %s" % home.path("vault/keys/k"), path=["vault/bin"])
    # A program among the keys themselves.
    home.program("vault/keys/helper", "#!/bin/sh\necho s3cret\n")
    r = home.run("--", "helper", path=["vault/keys"])
    assert r.code == 127 and "s3cret" not in r.out and "holds keys" in r.err, r


def test_h4_the_home_and_what_contains_it_are_no_tool_chain(home):
    node(home, ".")
    look(home, "node", "cat %s" % home.path("private/s.txt"), path=["bin"])


@pytest.mark.parametrize("which", ["XDG_STATE_HOME", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME"])
def test_h4_our_own_folders_hold_no_programs(home, which):
    """Neither as the command, nor as an interpreter or a library."""
    lab = home.lab
    ours = os.path.join("ours", "agentkernel")
    lib = Build(home).library(ours + "/x/liba.so.1", "int a(void) { return 1; }")
    tool = home.program(ours + "/x/tool", "#!/bin/sh\necho s3cret\n")
    home.program("tools/with-interpreter", "#!%s\n" % tool)
    needing(home, "tools/linked", lib)
    os.chmod(home.path("ours"), 0o700)
    os.chmod(home.path(ours), 0o700)
    path = ":".join([os.path.dirname(tool), home.path("tools"), PATH])
    for command in ([tool], ["tool"], ["with-interpreter"], ["sh", "-c", "cat %s" % tool], ["sh", "-c", "cat %s" % lib]):
        r = lab.run([*CODEX, "--tool", "linked", "--", *command], env={"PATH": path, which: home.path("ours")})
        assert r.code != 0 and r.out == "", (command, r)
        assert command[0] == "sh" or "own folder" in r.err, (command, r)


# ---- MCP ----

def test_h28_a_command_of_a_call_brings_in_no_program_by_its_path(home):
    lab = home.lab
    interp = home.program("private/bin/interp", "#!/bin/sh\ncat %s\n" % home.path("private/s.txt"))
    home.program("private/pyvenv.cfg", "", 0o644)
    deploy = home.program("other/deploy.sh", "#!/bin/sh\necho s3cret\n")
    home.program("tools/mine", "#!/bin/sh\necho mine\n")
    inner = lab.path("project", "inner.sh")
    with open(inner, "w") as f:
        f.write("#!/bin/sh\necho inner\n")
    os.chmod(inner, 0o755)
    os.symlink(deploy, lab.path("project", "link"))
    m = Mcp(lab, *CODEX, env={"PATH": home.path("tools") + ":" + PATH})
    m.open()
    back = lab.path("project") + "/" + os.path.relpath(deploy, lab.path("project"))
    for command in ([interp, "x"], [deploy], [back], ["../" + os.path.relpath(deploy, os.path.dirname(lab.path("project")))], [lab.path("project", "link")]):
        answer = m.call("sandbox_run", command=command)["result"]
        assert "s3cret" not in str(answer), (command, answer)
    assert m.good("sandbox_run", command=["mine"])[0]["stdout"] == "mine\n"
    assert m.good("sandbox_run", command=[inner])[0]["stdout"] == "inner\n"
    assert m.good("sandbox_run", command=["/bin/echo", "x"])[0]["stdout"] == "x\n"
    assert m.close().code == 0


# ---- programs that a run left ----

def test_h11_a_program_that_a_past_run_left_brings_in_no_folder_around_its_interpreter(home):
    lab, left = home.lab, home.path("left")
    interp = home.program("private/bin/interp", "#!/bin/sh\ncat %s\n" % home.path("private/s.txt"))
    home.program("private/pyvenv.cfg", "", 0o644)
    home.program("left/x", "")
    home.program("now/x", "")
    r = lab.run([*CODEX, "--dir", left, "--", "sh", "-c", "echo '#!%s' >tool; chmod 755 tool" % interp])
    assert r.code == 0 and os.path.exists(os.path.join(left, "tool")), r
    r = home.run("--dir", home.path("now"), "--", "tool", path=["left"])
    assert r.code != 0 and "s3cret" not in r.out, r
    r = home.run("--dir", home.path("now"), "--tool", "tool", "--", "cat", home.path("private/s.txt"), path=["left"])
    assert r.code != 0 and "s3cret" not in r.out, r
