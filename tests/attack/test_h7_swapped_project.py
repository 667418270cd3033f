"""h7: the project, or a folder above it, is swapped for a link or another folder. What was named at creation is what is mounted, or nothing."""
import os

import pytest

from lab import PYTHON

CODEX = ("--compatibility-mode", "codex")


def put(path, text, lab):
    with open(path, "w") as f:
        f.write(text)
    own(path, lab)


def own(path, lab):
    if lab.is_root and lab.who == "user":
        os.lchown(path, lab.uid, lab.gid)


def mkdir(path, lab):
    os.mkdir(path)
    own(path, lab)
    return path


@pytest.fixture
def world(any_boxes):
    """outer/inner: two nested projects, and a secret folder of the host's that nobody named."""
    lab = any_boxes.lab
    any_boxes.outer = mkdir(lab.path("project", "outer"), lab)
    any_boxes.inner = mkdir(os.path.join(any_boxes.outer, "inner"), lab)
    put(os.path.join(any_boxes.inner, "mine"), "mine", lab)
    any_boxes.secret = mkdir(lab.path("home", "secret"), lab)
    put(os.path.join(any_boxes.secret, "key"), "the host's", lab)
    return any_boxes


def to_link(b):
    os.rename(b.inner, b.inner + ".old")
    os.symlink(b.secret, b.inner)


def to_link_and_back(b):
    os.unlink(b.inner)
    os.rename(b.inner + ".old", b.inner)


def to_other(b):
    os.rename(b.inner, b.inner + ".old")
    mkdir(b.inner, b.lab)
    put(os.path.join(b.inner, "key"), "the host's", b.lab)


def parent_to_link(b):
    """outer becomes a link to a folder that has an `inner` of its own."""
    os.rename(b.secret, os.path.join(b.lab.path("home"), "inner"))
    os.rename(b.outer, b.outer + ".old")
    os.symlink(b.lab.path("home"), b.outer)


def seen(b, name):
    r = b.exec(name, "sh", "-c", "cat key; echo evil > planted; ls")
    return r.out + r.err


SWAPS = [to_link, to_other, parent_to_link]


@pytest.mark.parametrize("swap", SWAPS)
def test_h7_a_project_swapped_between_create_and_start_is_not_mounted(world, swap):
    b = world
    b.create("x", *CODEX, "--dir", b.inner)
    swap(b)
    r = b.lab.ak(["start", "x"])
    assert r.code != 0, seen(b, "x")
    assert b.inner in r.err and "remove" in r.err, r
    for path, _, names in os.walk(b.lab.path("home")):
        assert "planted" not in names, path


@pytest.mark.parametrize("swap", SWAPS)
def test_h7_a_project_swapped_between_stop_and_start_is_not_mounted(world, swap):
    b = world
    b.up("x", *CODEX, "--dir", b.inner)
    assert "mine" in seen(b, "x")
    b.ak("stop", "x")
    swap(b)
    r = b.lab.ak(["start", "x"])
    assert r.code != 0, seen(b, "x")
    assert b.inner in r.err, r


def test_h7_a_project_put_back_is_mounted_again(world):
    b = world
    b.create("x", *CODEX, "--dir", b.inner)
    to_link(b)
    b.fails("start", "x", says="symbolic link")
    to_link_and_back(b)
    b.ak("start", "x")
    assert "mine" in seen(b, "x")


def test_h7_another_folder_is_mounted_when_the_user_accepts_it(world):
    b = world
    b.create("x", *CODEX, "--dir", b.inner)
    to_other(b)
    b.fails("start", "x", says="--accept-dir")
    b.ak("start", "--accept-dir", "x")
    assert "key" in seen(b, "x")
    b.ak("stop", "x")
    b.ak("start", "x")  # it is the sandbox's own from now on


def test_h7_a_link_is_never_accepted(world):
    b = world
    b.create("x", *CODEX, "--dir", b.inner)
    to_link(b)
    b.fails("start", "--accept-dir", "x", says="symbolic link")


def test_h7_one_sandbox_cannot_redirect_the_project_of_another(world):
    """The outer project's sandbox replaces the inner project by a link to the host's secret."""
    b = world
    b.create("x", *CODEX, "--dir", b.inner)
    r = b.lab.run([*CODEX, "--dir", b.outer, "--", "sh", "-c", "mv inner gone && ln -s %s inner" % b.secret])
    assert r.code == 0, r
    r = b.lab.ak(["start", "x"])
    assert r.code != 0 and "symbolic link" in r.err, (r, seen(b, "x"))
    assert os.listdir(b.secret) == ["key"]


SWAPPER = """
import os, sys
inner, secret = sys.argv[1:]
print('up', flush=True)
while True:
    os.rename(inner, inner + '.old'); os.symlink(secret, inner); os.unlink(inner); os.rename(inner + '.old', inner)
"""


@pytest.mark.parametrize("warm", [False, True], ids=["cold", "warm"])
def test_h7_swapping_during_the_start_gains_nothing(world, warm):
    b, lab = world, world.lab
    if warm:
        b.ak("daemon", "start")
        b.ak("daemon", "prewarm", "--mode", "codex", "--count", "4")
    p = lab.spawn([PYTHON, "-c", SWAPPER, b.inner, b.secret], env=lab.env())
    p.wait_output(b"up\n")
    try:
        for _ in range(25):
            r = lab.run([*CODEX, "--dir", b.inner, "--", "sh", "-c", "pwd; cat key 2>&1"])
            assert r.code in (0, 1, 2, 125), r
            # Where --dir itself met the link, the user named its target, and the sandbox says so: it is mounted under its own name.
            assert not (b.inner in r.out and "the host's" in r.out), r
    finally:
        p.signal(9)
        p.wait()


def test_h7_a_link_that_a_sandbox_put_leads_no_project_elsewhere(any_boxes):
    b, lab = any_boxes, any_boxes.lab
    outer, secret = lab.path("project"), lab.path("elsewhere")
    os.makedirs(secret)
    os.makedirs(os.path.join(outer, "sub"))
    if lab.is_root and lab.who == "user":
        for path in (secret, os.path.join(outer, "sub")):
            os.chown(path, lab.uid, lab.gid)
    b.up("outer", "--compatibility-mode", "claude", "--dir", outer)
    b.sh("outer", "rmdir sub && ln -s '%s' sub" % secret)
    link = os.path.join(outer, "sub")
    for args, kw in ((["run", "--compatibility-mode", "claude", "--dir", link, "--", "touch", "made"], {}), (["create", "y", "--dir", link], {}),
                     (["run", "--compatibility-mode", "codex", "--", "touch", "made"], dict(cwd=link, env=dict(PWD=link)))):
        r = lab.ak(args, **kw)
        assert r.code == (125 if args[0] == "run" else 1) and "symbolic link" in r.err, (args, r)
    assert os.listdir(secret) == []


def test_h7_folders_of_keys_are_no_projects(any_user):
    lab = any_user
    os.makedirs(lab.path("home", ".ssh", "deep"))
    for folder in (lab.path("home", ".ssh"), lab.path("home", ".ssh", "deep")):
        r = lab.run(["--compatibility-mode", "codex", "--dir", folder, "--", "touch", "made"])
        assert r.code == 2 and "--allow-broad-dir" in r.err, r
