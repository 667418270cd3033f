"""create, start, stop, remove, list: what is defined stays, files survive, and every bad input is a clear error with nothing lost."""
import json
import os
import re

import pytest
from expect import worked
from lab import PYTHON


def test_files_variables_limits_and_policy_survive_stop_and_start(any_boxes):
    b = any_boxes
    b.up("work", "--compatibility-mode", "claude", "--allow-host", "ok.test:7", "-e", "COLOUR=blue sky", "--memory", "300M", "--vcpus", "1")
    b.sh("work", "echo one > /tmp/t; echo two > ~/h; echo three > kept; mkdir -p ~/d; ln -s h ~/l")
    before = b.list()["work"]
    b.ak("stop", "work")
    assert b.list()["work"]["status"] == "stopped"
    b.ak("start", "work")
    assert b.sh("work", "cat ~/h ~/l kept; readlink ~/l; printf %s \"$COLOUR\"") == "two\ntwo\nthree\nh\nblue sky"
    after = b.list()["work"]
    for key in ("uuid", "mode", "profile", "memory_mb", "vcpus", "ip", "created_at", "dir"):
        assert before[key] == after[key], key
    got = b.probe("work", [["tcp", "ok.test", 7, b"x".hex()], ["resolve", "evil.test"]])
    worked(got[0])
    assert "err" in got[1]


def test_a_second_spelling_of_each(boxes):
    b = boxes
    for word in ("", "sandbox"):
        head = [word] if word else []
        b.ak(*head, "create", "x")
        b.ak(*head, "start", "x")
        assert b.exec("x", "true").code == 0
        r = b.ak(*head, "list")
        assert re.match(r"NAME +STATUS +BACKEND +MODE +PROFILE +ADDRESS +ALLOWED +DENIED +AGE\n", r.out), r.out
        assert re.search(r"^x +running +ns +native +moderate +100\.64\.\d+\.\d+ +0 +0 +\d+s$", r.out, re.M), r.out
        assert json.loads(b.ak(*head, "list", "--json").out)[0]["status"] == "running"
        b.ak(*head, "stop", "x")
        b.ak(*head, "remove", "x")
        assert b.ak(*head, "list", "-q").out == ""


def test_list_counts_what_was_allowed_and_denied(boxes):
    b = boxes
    b.up("x", "--compatibility-mode", "codex", "--allow-host", "ok.test:7")
    b.probe("x", [["tcp", "ok.test", 7, b"x".hex()], ["resolve", "evil.test"], ["tcp", "11.66.0.1", 443]])
    row = b.list()["x"]
    assert row["allowed"] >= 1 and row["denied"] >= 2, row
    b.ak("stop", "x")
    stopped = b.list()["x"]
    assert stopped["denied"] >= row["denied"]


def test_strict_and_restrictive_hold_in_a_persistent_one(boxes):
    b = boxes
    b.up("strict", "--compatibility-mode", "codex")
    assert b.exec("strict", "sh", "-c", "echo x > /usr/x").code != 0
    assert b.exec("strict", "unshare", "-U", "true").code != 0
    b.up("narrow", "--profile", "restrictive", "--compatibility-mode", "claude")
    row = b.list()["narrow"]
    assert row["network"] is False and row["ip"] is None
    assert b.sh("narrow", "ls /sys/class/net 2>/dev/null || cat /proc/net/dev | tail -n +3 | cut -d: -f1").split() == ["lo"]


BAD_NAMES = ["", "-x", "x-", "_x", "a b", "a/b", "../x", "a.b", "x" * 64, "é", "a\n", "a:b"]


def test_names_at_and_past_the_limits(boxes):
    b = boxes
    for name in BAD_NAMES:
        b.fails("create", "--", name, code=2, says="not a name")
        if name:
            b.fails("start", "--", name, code=2, says="not a name")
            b.fails("remove", "--", name, code=2)
    for name in ("a", "x" * 63, "A-b_9"):
        b.create(name)
    assert sorted(b.list()) == sorted(["a", "x" * 63, "A-b_9"])


def test_wrong_states_are_told_and_change_nothing(boxes):
    b = boxes
    for verb in ("start", "stop", "remove"):
        b.fails(verb, "ghost", says="no sandbox named 'ghost'")
    b.fails("exec", "ghost", "true", code=125, says="no sandbox named 'ghost'")
    b.fails("network", "policy", "ghost", says="ghost")
    b.create("x")
    b.fails("create", "x", says="x")
    b.fails("exec", "x", "true", code=125, says="not running")
    b.fails("cp", "x:/etc/passwd", "p", says="not running")
    b.ak("start", "x")
    b.sh("x", "echo kept > ~/f")
    b.fails("create", "x", "--compatibility-mode", "codex", says="x")
    b.fails("remove", "x", says="--force")
    assert b.sh("x", "cat ~/f") == "kept\n"
    b.ak("remove", "--force", "x")
    assert b.list() == {}


def test_wrong_words_are_usage_errors(boxes):
    b = boxes
    for args in (["create"], ["create", "a", "b"], ["create", "a", "--nonsense"], ["create", "a", "--memory", "many"], ["create", "a", "-e", "=x"],
                 ["create", "a", "--allow-host", "*"], ["create", "a", "--dir", "/"], ["create", "a", "--image", "X Y"],
                 ["create", "a", "--config", "x"], ["start"], ["exec"], ["exec", "a"], ["attach"], ["cp", "a"], ["cp", "a", "b"],
                 ["cp", "a:/x", "b:/x"], ["cp", "a:x", "y"], ["network", "policy"], ["network", "policy", "a", "--for", "10m"],
                 ["network", "proxy", "a", "--policy", "maybe"], ["daemon", "prewarm"], ["daemon", "prewarm", "--mode", "x"], ["list", "x"]):
        b.fails(*args, code=2)
    assert b.list() == {}
    assert not b.runs(), "wrong words started a daemon"


def test_many_at_once_never_lose_one(boxes):
    """Twelve commands for one name, then twelve names: one wins there, all win here, and each has its own address."""
    b, lab = boxes, boxes.lab
    procs = [lab.spawn([lab.binary, "create", "same", "-e", "N=%d" % i], env=lab.env()) for i in range(12)]
    codes = [p.wait().code for p in procs]
    assert sorted(codes) == [0] + [1] * 11, codes
    winner = codes.index(0)
    procs = [lab.spawn([lab.binary, "create", "n%d" % i], env=lab.env()) for i in range(12)]
    assert all(p.wait().code == 0 for p in procs)
    procs = [lab.spawn([lab.binary, "start", "n%d" % i], env=lab.env()) for i in range(12)]
    results = [p.wait(60) for p in procs]
    assert all(r.code == 0 for r in results), results
    rows = b.list()
    assert len({row["ip"] for row in rows.values()}) == 13
    procs = [lab.spawn([lab.binary, "start", "same"], env=lab.env()) for _ in range(4)]
    results = [p.wait(60) for p in procs]
    assert [r.code for r in results] == [0, 0, 0, 0] and sorted("running already" in r.err for r in results) == [False, True, True, True], results
    assert b.sh("same", "printf %s $N") == str(winner)


def test_the_project_is_the_one_of_create(boxes):
    b, lab = boxes, boxes.lab
    os.mkdir(lab.path("project", "sub"))
    if lab.is_root and lab.who == "user":
        os.chown(lab.path("project", "sub"), lab.uid, lab.gid)
    b.create("x", "--compatibility-mode", "codex", "--dir", "sub")
    b.ak("start", "x", cwd="/")
    assert b.sh("x", "pwd; echo in > f").strip() == lab.path("project", "sub")
    with open(lab.path("project", "sub", "f")) as f:
        assert f.read() == "in\n"


def test_a_full_disk_loses_nothing(boxes):
    b, lab = boxes, boxes.lab
    if not lab.is_root:
        pytest.skip("mounts in the lab want its root")
    state = lab.path("state")
    assert lab.host(["mount", "-t", "tmpfs", "-o", "size=256k,mode=777", "none", state]).code == 0
    try:
        b.create("first")
        lab.host(["sh", "-c", "head -c 300k /dev/zero > %s/fill" % state])
        r = lab.ak(["create", "second"])
        assert r.code == 1 and ("space" in r.err.lower()), r
        assert list(b.list()) == ["first"]
        lab.host(["rm", "%s/fill" % state])
        b.create("second")
        assert sorted(b.list()) == ["first", "second"]
        b.ak("remove", "first", "second")
        lab.ak(["daemon", "stop"])
    finally:
        lab.host(["umount", state])


def test_events_tell_the_whole_life(boxes):
    b = boxes
    b.up("x")
    b.out("x", "true")
    b.ak("stop", "x")
    b.ak("remove", "x")
    rows = [json.loads(line) for line in b.ak("audit", "--sandbox", "x", "--json").out.splitlines()]
    events = [row["event"] for row in rows]
    for event in ("sandbox_create", "sandbox_start", "sandbox_exec", "sandbox_stop", "sandbox_remove"):
        assert event in events, events
    b.ak("audit", "verify")


def test_nothing_is_left_of_a_removed_one(boxes):
    b, lab = boxes, boxes.lab
    b.up("x")
    b.sh("x", "mkdir -p ~/deep/er && echo x > ~/deep/er/f && chmod 000 ~/deep")
    b.ak("remove", "--force", "x")
    left = lab.host(["sh", "-c", "find %s %s -name 'x' -o -name 'x.*' -o -name '.x*'" % (lab.path("state"), lab.path("runtime"))]).out
    assert left == "", left
    b.up("x")
    assert b.sh("x", "ls -A ~ | grep -c deep || true").strip() == "0"


def test_an_exec_waits_for_no_daemon(boxes):
    b = boxes
    b.up("x")
    with b.without_daemon():
        r = b.exec("x", PYTHON, "-c", "print('alive')")
        assert r.code == 0 and r.out == "alive\n" and "no network" in r.err and r.err.count("\n") == 1, r
        r = b.lab.ak(["list"])
        assert "running" in r.out and "no daemon" in r.err and r.err.count("\n") == 1, r
