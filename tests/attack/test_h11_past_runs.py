"""h11: what a past run could write decides nothing of what a later run brings in: neither a program on PATH, nor a link in the home, nor a file of variables."""
import os

import pytest

from homes import Build, Home
from lab import PATH
from test_h_mounts import mkdir, put

CODEX = ("--compatibility-mode", "codex")
CLAUDE = ("--compatibility-mode", "claude")


def make(lab):
    made = Home(lab)
    made.secret = made.program("private/bin/helper", "#!/bin/sh\necho s3cret\n")
    made.program("left/x", "", 0o644)
    made.program("now/x", "", 0o644)
    return made


@pytest.fixture
def home(any_user):
    return make(any_user)


def leave(home, script, folder="left", *options):
    """A run that may write FOLDER, and has ended. Nothing of it is kept."""
    r = home.lab.run([*CODEX, "--dir", home.path(folder), *options, "--", "sh", "-ec", script])
    assert r.code == 0, r


def later(home, *command, path=("left",), options=(), **kw):
    return home.run("--dir", home.path("now"), *options, "--", *command, path=list(path), **kw)


def read_secret(home, tool, **kw):
    """What a later run reads of the secret program when it looks TOOL up."""
    direct = later(home, tool, **kw)
    beside = later(home, "sh", "-c", "cat %s; echo looked" % home.secret, options=("--tool", tool), **kw)
    return direct, beside


def check_closed(home, tool, **kw):
    direct, beside = read_secret(home, tool, **kw)
    assert "s3cret" not in direct.out + direct.err and direct.code != 0, direct
    assert beside.out == "looked\n", beside
    assert "a sandbox could write" in direct.err + beside.err, (direct, beside)


# ---- programs on PATH ----

VECTORS = {
    "script": "echo '#!%(secret)s' > tool; chmod 755 tool",
    "script of env": "cp /bin/true helper2; printf '#!/usr/bin/env helper\\n' > tool; chmod 755 tool; ln -s %(secret)s helper",
    "link": "ln -s %(secret)s tool",
    "link to a link": "mkdir d; ln -s %(secret)s d/y; ln -s d/y tool",
    "linked folder": "mkdir -p bin; rmdir bin; ln -s %(folder)s bin",
}


@pytest.mark.parametrize("vector", sorted(VECTORS))
def test_h11_a_program_that_a_past_run_left_on_path_brings_nothing_in(home, vector):
    leave(home, VECTORS[vector] % dict(secret=home.secret, folder=os.path.dirname(home.secret)))
    tool, path = ("helper", "left/bin") if vector == "linked folder" else ("tool", "left")
    check_closed(home, tool, path=(path,))


def test_h11_a_program_with_libraries_that_a_past_run_left_brings_nothing_in(home):
    """The dynamic linker that it names, and libraries by absolute path."""
    build = Build(home)
    lib = build.make("private/libsecret.so.1", "const char *s = \"s3cret\";", "-shared", "-fPIC", "-Wl,-soname,%s" % home.path("private/libsecret.so.1"))
    build.make("left/made", "int main(void) { return 0; }", "-Wl,--no-as-needed", lib)
    leave(home, "cp made tool")
    r = later(home, "sh", "-c", "cat %s; echo looked" % lib, options=("--tool", "tool"))
    assert r.out == "looked\n" and "a sandbox could write" in r.err, r


def test_h11_scripts_in_node_modules_of_a_past_project(home):
    home.program("left/node_modules/.bin/x", "", 0o644)
    leave(home, "echo '#!%s' > node_modules/.bin/eslint; chmod 755 node_modules/.bin/eslint" % home.secret)
    check_closed(home, "eslint", path=("left/node_modules/.bin",))


def test_h11_a_folder_that_was_mounted_writable(home):
    home.program("left/out/x", "", 0o644)
    leave(home, "echo '#!%s' > /mnt/o/tool; chmod 755 /mnt/o/tool" % home.secret, "now", "--mount", home.path("left/out") + ":/mnt/o:rw")
    check_closed(home, "tool", path=("left/out",))


def test_h11_a_persistent_sandbox_that_was_removed(any_boxes):
    b, home = any_boxes, make(any_boxes.lab)
    b.up("gone", *CODEX, "--dir", home.path("left"))
    b.sh("gone", "echo '#!%s' > tool; chmod 755 tool" % home.secret)
    assert b.lab.ak(["remove", "gone", "--force"]).code == 0
    check_closed(home, "tool")


def test_h11_a_folder_of_a_past_run_that_was_moved(home):
    leave(home, "ln -s %s tool" % home.secret)
    os.rename(home.path("left"), home.path("moved"))
    check_closed(home, "tool", path=("moved",))


def test_h11_a_project_that_was_moved_out_of_the_folder_of_another_run(home):
    home.program("left/p/x", "", 0o644)
    leave(home, "true")
    leave(home, "ln -s %s tool" % home.secret, "left/p")
    os.rename(home.path("left/p"), home.path("moved"))
    check_closed(home, "tool", path=("moved",))


def test_h11_a_folder_in_the_place_of_that_of_a_past_run(home):
    """After a reboot the same folder can have another identity, so its path counts as well."""
    leave(home, "ln -s %s tool" % home.secret)
    os.rename(home.path("left"), home.path("moved"))
    home.program("left/x", "", 0o644)
    home.link("left/tool", home.secret)
    check_closed(home, "tool")


def test_h11_what_makes_a_folder_a_tool_chain_is_not_a_past_runs(home):
    """Java's lib/modules, where only lib was writable: the folder around bin is not mounted for it."""
    home.program("chain/bin/tool", "#!/bin/sh\necho tool\n")
    home.program("chain/lib/x", "", 0o644)
    home.program("chain/private", "s3cret\n", 0o600)
    leave(home, "echo > /mnt/l/modules", "now", "--mount", home.path("chain/lib") + ":/mnt/l:rw")
    r = later(home, "sh", "-c", "tool; cat %s; echo looked" % home.path("chain/private"), options=("--tool", "tool"), path=("chain/bin",))
    assert r.out == "tool\nlooked\n", r


def test_h11_programs_of_the_users_own_are_brought_in(home):
    """Beside the project of a past run, with a link and an interpreter of the user's."""
    leave(home, "touch y")
    home.program("venv/bin/python", "#!/bin/sh\necho mine\n")
    home.program("tools/script", "#!%s\n" % home.path("venv/bin/python"))
    home.link("tools/linked", home.path("tools/script"))
    for tool in ("script", "linked"):
        r = later(home, tool, path=("tools",))
        assert (r.code, r.out) == (0, "mine\n"), r


def test_h11_a_program_of_the_project_itself_still_runs(home):
    leave(home, "printf '#!/bin/sh\\necho ours\\n' > tool; chmod 755 tool")
    r = home.run("--dir", home.path("left"), "--", "tool", path=["left"])
    assert (r.code, r.out) == (0, "ours\n"), r


# ---- links in the home ----

@pytest.fixture
def linked(any_user):
    lab = any_user
    lab.private = mkdir(lab, "home", "private")
    put(lab, lab.private + "/s", "hunter2")
    return lab




def elsewhere(lab):
    """Our folders outside the home, so that the home can be a project."""
    for name in ("s", "c", "r"):
        os.chmod(mkdir(lab, "tmp", name), 0o700)
    return dict(XDG_STATE_HOME=lab.path("tmp", "s"), XDG_CONFIG_HOME=lab.path("tmp", "c"), XDG_RUNTIME_DIR=lab.path("tmp", "r"))


def test_h11_a_link_in_the_home_is_followed_until_a_run_could_write_the_home(linked):
    lab, env = linked, elsewhere(linked)
    home = mkdir(lab, "tmp", "own", "user")
    env["HOME"] = home
    real = mkdir(lab, "tmp", "data", "src")
    put(lab, real + "/f", "mine")
    os.symlink(real, home + "/mine")
    look = ["--", "sh", "-c", "cat /mnt/d /mnt/d/f /mnt/d/s 2>/dev/null; true"]
    assert lab.run(["--mount", home + "/mine:/mnt/d", *look], env=env).out == "mine"
    r = lab.run([*CLAUDE, "--dir", home, "--allow-broad-dir", "--", "sh", "-ec", "ln -s %s src; ln -s %s/s .conf" % (lab.private, lab.private)], env=env)
    assert r.code == 0, r
    for name in ("src", ".conf", "src/s", "mine"):
        r = lab.run(["--mount", home + "/" + name + ":/mnt/d", *look], env=env)
        assert r.code == 125 and "symbolic link" in r.err and "hunter2" not in r.out, (name, r)
    r = lab.run([*CLAUDE, "--dir", home + "/src", "--", "touch", "made"], env=env)
    assert r.code == 125 and os.listdir(lab.private) == ["s"], r
    # The path that the message names is the way out.
    assert lab.run(["--mount", real + ":/mnt/d", *look], env=env).out == "mine"


# ---- files of variables ----

def test_h11_a_file_of_variables_that_a_past_run_could_write_asks_for_none(any_user):
    lab = any_user
    p, other, own = mkdir(lab, "home", "p"), mkdir(lab, "home", "other"), mkdir(lab, "home", "own")
    put(lab, own + "/.env", "SECRET\n")
    assert lab.run([*CLAUDE, "--dir", p, "--", "sh", "-c", "echo SECRET > .env; echo A=1 > fine"]).code == 0
    assert lab.run([*CLAUDE, "--mount", other + ":/mnt/o:rw", "--dir", p, "--", "sh", "-c", "echo SECRET > /mnt/o/.env"]).code == 0
    for file in (p + "/.env", "p/.env", other + "/.env"):
        for mode in ((), CLAUDE):
            r = lab.run([*mode, "--env-file", file, "--", "env"], cwd=lab.path("home") if not mode else own, env={"SECRET": "hunter2"})
            assert r.code == 2 and "hunter2" not in r.out and ("-e SECRET" in r.err or file == "p/.env"), (file, mode, r)
    assert "A=1" in lab.run(["--env-file", p + "/fine", "--", "env"]).out
    r = lab.run(["--env-file", own + "/.env", "--", "env"], env={"SECRET": "hunter2"})
    assert "SECRET=hunter2" in r.out, r


def test_h11_a_project_below_opt_is_no_part_of_the_system(lab):
    """Every sandbox sees /opt, but a project may lie there."""
    if not lab.is_root:
        pytest.skip("mounts in the lab want its root")
    assert lab.host(["mount", "-t", "tmpfs", "-o", "mode=777", "none", "/opt"]).code == 0
    try:
        with lab.acting_as("user"):
            home = make(lab)
            assert lab.run(["-m", "native", "--no-network", "--", "true"]).code == 0
            lab.spawn(["mkdir", "/opt/left"], who="user").wait()
            r = lab.run([*CODEX, "--dir", "/opt/left", "--", "sh", "-ec", "ln -s %s tool" % home.secret])
            assert r.code == 0, r
            r = home.run("--dir", home.path("now"), "--", "tool", path=["/opt/left"])
            assert "s3cret" not in r.out + r.err and r.code != 0 and "a sandbox could write" in r.err, r
    finally:
        lab.host(["umount", "/opt"])
