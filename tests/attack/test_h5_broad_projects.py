"""h5, h12: folders that hold much more than a project need two words; sockets in the project and projects with several owners are told."""
import json
import os
import socket

import pytest
from expect import policy_env

CLAUDE = ("--compatibility-mode", "claude")
CODEX = ("--compatibility-mode", "codex")
BROAD = ["/tmp", "/var/tmp", "/run", "/var/run", "/var", "/home"]


@pytest.mark.parametrize("folder", [*BROAD, "/"])
@pytest.mark.parametrize("mode", ["native", "claude", "codex", "gemini"])
def test_h5_a_broad_folder_is_no_project(any_user, mode, folder):
    lab = any_user
    look = ["--", "sh", "-c", "ls %s | head -1; echo ran" % folder]
    r = lab.run(["--compatibility-mode", mode, "--dir", folder, *look])
    assert r.code == 2 and "ran" not in r.out and "--dir" in r.err, r
    if mode != "native":
        r = lab.run(["--compatibility-mode", mode, *look], cwd=folder)
        assert r.code == 2 and "ran" not in r.out, r
    r = lab.run(["--compatibility-mode", mode, "--allow-broad-dir", *look], cwd=folder)
    assert r.code == (0 if mode == "native" else 2), "the flag alone confirms what was never named: %r" % r
    r = lab.ak(["create", "x", "--compatibility-mode", mode, "--dir", folder])
    assert r.code == 2, r


@pytest.mark.parametrize("way", ["/var/tmp/.", "/tmp/../var/tmp", "/proc/self/root/var/tmp", "//var//tmp//", "link"])
def test_h5_other_ways_to_say_it_are_the_same(any_user, way):
    lab = any_user
    if way == "link":
        way = lab.path("home", "link")
        os.symlink("/var/tmp", way)
    r = lab.run([*CLAUDE, "--dir", way, "--", "true"])
    assert r.code == 2 and "--allow-broad-dir" in r.err, r


def test_h5_the_home_needs_both_words(any_user):
    lab = any_user
    home = lab.path("home")
    for args, cwd in ((["--dir", home], None), ([], home), (["--allow-broad-dir"], home)):
        r = lab.run([*CLAUDE, *args, "--", "true"], cwd=cwd)
        assert r.code == 2 and "--allow-broad-dir" in r.err, r
    assert lab.run([*CLAUDE, "--dir", home, "--allow-broad-dir", "--", "true"]).code == 0


@pytest.mark.parametrize("folder", ["/tmp", "/var/tmp"])
def test_h5_confirmed_it_works_and_stays_so(any_boxes, folder):
    b, lab = any_boxes, any_boxes.lab
    if folder == "/tmp":
        # The lab's own folders lie there, and with them agentkernel's own files: that is never a project.
        b.fails("run", *CLAUDE, "--dir", folder, "--allow-broad-dir", "true", code=2, says="agentkernel's own")
        return
    # The shipped policies are our own files too, and the source tree may lie below the folder: a data folder elsewhere.
    data = policy_env(lab, claude={"allow": ["ok.test"]})
    r = lab.run([*CLAUDE, "--dir", folder, "--allow-broad-dir", "--", "pwd"], env=data)
    assert r.code == 0 and r.out.strip() == folder, r
    for words in (["daemon", "start"], ["create", "x", *CLAUDE, "--dir", folder, "--allow-broad-dir"], ["start", "x"], ["stop", "x"], ["start", "x"]):
        r = lab.ak(words, env=data)
        assert r.code == 0, r


def test_h5_the_runtime_folder_is_never_in_a_project(any_user):
    lab = any_user
    for folder in (lab.path("runtime"), lab.path()):
        r = lab.run([*CLAUDE, "--dir", folder, "--allow-broad-dir", "--", "true"])
        assert r.code == 2 and "own" in r.err, r


# ---- sockets in the project ----

@pytest.mark.parametrize("warm", [False, True], ids=["cold", "warm"])
def test_h5_sockets_in_the_project_are_told_in_one_line(any_boxes, warm):
    b, lab = any_boxes, any_boxes.lab
    if warm:
        b.ak("daemon", "start")
        b.ak("daemon", "prewarm", "--mode", "claude", "--count", "3")
    r = lab.run([*CLAUDE, "--", "true"])
    assert r.err == "", r
    held = []
    os.makedirs(lab.path("project", "deep", "er"))
    for name in ("a.sock", "deep/er/b.sock"):
        s = socket.socket(socket.AF_UNIX)
        s.bind(lab.path("project", name))
        held.append(s)
    r = lab.run([*CLAUDE, "--", "true"])
    assert len(r.err.splitlines()) == 1 and "2 sockets" in r.err and "a.sock" in r.err and "deep/er/b.sock" in r.err, r
    r = lab.run([*CLAUDE, "--quiet", "--", "true"])
    assert r.err == "", r
    b.create("x", *CLAUDE)
    r = b.ak("start", "x")
    assert "2 sockets" in r.err, r


def test_h5_a_huge_project_is_not_searched_for_long(any_user):
    lab = any_user
    for i in range(300):
        os.makedirs(lab.path("project", "d%d" % i, "e"))
    for i in range(5000):
        with open(lab.path("project", "f%d" % i), "w"):
            pass
    os.mkdir(lab.path("project", "loop"))
    os.symlink("..", lab.path("project", "loop", "up"))
    r = lab.run([*CLAUDE, "--", "true"])
    assert r.code == 0 and r.err == "", r


# ---- shared projects ----

def test_h12_a_project_shared_by_different_policies_is_told(any_boxes):
    b, lab = any_boxes, any_boxes.lab
    b.up("a", *CODEX)
    b.create("b", *CODEX)
    r = b.ak("start", "b")
    assert "shared" not in r.err, r  # of one policy
    r = b.ak("list")
    assert "shares" not in r.err, r
    b.create("c", "--compatibility-mode", "native", "--dir", lab.path("project"))
    r = b.ak("start", "c")
    assert "shared with" in r.err and "a (codex)" in r.err and "b (codex)" in r.err, r
    r = b.ak("list")
    assert "c shares its project" in r.err and "a, b" in r.err and "a shares its project" in r.err, r
    rows = b.list()
    assert rows["c"]["shared_with"] == ["a", "b"] and rows["a"]["shared_with"] == ["c"], rows
    r = lab.run([*CLAUDE, "--", "true"])
    assert "shared with" in r.err and "c (native)" in r.err, r


def test_h12_folders_in_one_another_are_shared_and_others_are_not(any_boxes):
    b, lab = any_boxes, any_boxes.lab
    for name in ("in", "in-side", "other"):
        os.mkdir(lab.path("project", name))
    b.up("outer", *CODEX)
    b.up("inner", *CLAUDE, "--dir", lab.path("project", "in"))
    b.up("side", *CLAUDE, "--dir", lab.path("project", "in-side"), "--allow-host", "ok.test")
    rows = b.list()
    assert rows["outer"]["shared_with"] == ["inner", "side"], rows
    assert rows["inner"]["shared_with"] == ["outer"] and rows["side"]["shared_with"] == ["outer"], rows
    r = lab.run([*CLAUDE, "--allow-host", "ok.test", "--", "true"], cwd=lab.path("project", "in-side"))
    assert "outer (codex)" in r.err and "side (" not in r.err and "inner" not in r.err, r
    b.ak("stop", "outer")
    r = lab.run([*CLAUDE, "--allow-host", "ok.test", "--", "true"], cwd=lab.path("project", "in-side"))
    assert "shared" not in r.err, r  # it does not run


def test_h12_one_without_a_network_shares_with_one_that_has_one(any_boxes):
    b = any_boxes
    b.up("net", *CLAUDE)
    b.create("none", *CLAUDE, "--no-network")
    r = b.ak("start", "none")
    assert "net (claude)" in r.err, r
    out = json.loads(b.ak("list", "--json").out)
    assert [row.get("shared_with") for row in out] == [["none"], ["net"]], out
