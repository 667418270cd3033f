"""A sandbox whose sandbox.json is damaged, or newer than we are: it is shown as such, hurts no other, is left as it is, and can be discarded."""
import json
import os
import re

import pytest
from expect import refused, worked
from lab import wait_for
from mcp import serving as mcp_serving


def folder(lab, name):
    found = lab.host(["sh", "-c", "find %s /var/lib/agentkernel -path '*/sandboxes/%s' 2>/dev/null" % (lab.path("state"), name)]).out.split()
    assert len(found) == 1, found
    return found[0]


def record(lab, name):
    return os.path.join(folder(lab, name), "sandbox.json")


def read(path):
    with open(path) as f:
        return f.read()


def put(path, text):
    """In place: what was the owner's stays the owner's."""
    with open(path, "w") as f:
        f.write(text)


def newer(text):
    return re.sub(r'"version":\s*1', '"version": 99, "later": true', text)


def damage(path, how):
    if how == "missing":
        os.unlink(path)
    elif how == "a folder":
        os.unlink(path)
        os.mkdir(path)
    elif how == "endless":
        os.truncate(path, 9 << 20)
    else:
        put(path, {"empty": "", "cut": read(path)[:100], "of another kind": "[]", "nothing": "null", "zeros": "\0" * 100, "of another": read(path).replace('"bad"', '"good"'),
                   "newer": newer(read(path))}[how])


HOW = ["empty", "cut", "of another kind", "nothing", "zeros", "of another", "newer", "missing", "a folder", "endless"]


@pytest.mark.parametrize("how", HOW)
def test_a_damaged_one_is_shown_hurts_no_other_and_can_be_discarded(any_boxes, how):
    b, lab = any_boxes, any_boxes.lab
    b.create("good")
    b.create("bad")
    path = record(lab, "bad")
    damage(path, how)
    before = os.stat(path) if os.path.exists(path) else None
    for verb in ("start", "stop", "remove"):
        r = b.fails(verb, "bad", says=path)
        assert ("agentkernel remove --force bad" in r.err) == (verb == "remove"), r
        assert ("newer" in r.err) == (how == "newer"), r
    b.fails("create", "bad", says="already")
    b.ak("start", "good")
    assert b.out("good", "echo", "well") == "well\n"
    r = b.ak("list")
    assert re.search(r"^bad +damaged +- +- +- +- +- +- +-$", r.out, re.M) and re.search(r"^good +running ", r.out, re.M), r
    assert path in r.err, r
    rows = b.list()
    assert rows["good"]["status"] == "running" and rows["bad"]["status"] == "damaged" and rows["bad"]["mode"] is None and path in rows["bad"]["error"], rows
    assert b.ak("list", "-q").out.split() == ["bad", "good"]
    after = os.stat(path) if os.path.exists(path) else None
    assert (before and before.st_mtime_ns) == (after and after.st_mtime_ns), "it was touched"
    b.ak("remove", "--force", "bad")
    assert list(b.list()) == ["good"] and not os.path.exists(os.path.dirname(path))
    b.fails("remove", "--force", "bad", says="no sandbox named 'bad'")
    wait_for(lambda: [n for n in os.listdir(os.path.dirname(os.path.dirname(path))) if "bad" in n] == [])
    b.up("bad")
    assert b.out("bad", "echo", "anew") == "anew\n"
    events = [json.loads(line) for line in b.ak("audit", "--sandbox", "bad", "--json").out.splitlines()]
    assert [row["reason"] for row in events if row["event"] == "sandbox_remove"] == ["its record could not be read"], events


def test_a_newer_one_is_kept_whole(any_boxes):
    b, lab = any_boxes, any_boxes.lab
    b.create("x", "-e", "COLOUR=blue")
    path = record(lab, "x")
    text = read(path)
    put(path, newer(text))
    b.fails("start", "x", says="newer")
    b.ak("daemon", "start")
    b.ak("daemon", "stop")
    assert read(path) == newer(text)
    put(path, text)
    b.ak("start", "x")
    assert b.sh("x", "printf %s $COLOUR") == "blue"


def busy(b, marker):
    """A sandbox in which something runs that no stop by its own ends."""
    b.up("x", "--compatibility-mode", "codex", "--allow-host", "ok.test:7")
    p = b.lab.spawn([b.lab.binary, "exec", "x", "sh", "-c", "trap '' TERM INT HUP; echo up; (setsid %s &); %s" % (marker, marker)], env=b.lab.env())
    p.wait_output(b"up\n")
    wait_for(lambda: b.lab.running(marker))
    return p


def is_gone(b, p, marker):
    wait_for(lambda: not b.lab.running(marker))
    p.wait(10)
    assert b.list() == {}
    b.up("x", "--compatibility-mode", "codex")
    refused(b.probe("x", [["tcp", "ok.test", 7]])[0])


def test_one_that_runs_ends_with_its_removal(any_boxes):
    b, lab = any_boxes, any_boxes.lab
    p = busy(b, "sleep 4741")
    put(record(lab, "x"), "{")
    b.fails("remove", "x", says="remove --force x")
    assert lab.running("sleep 4741") and b.list()["x"]["status"] == "damaged"
    b.ak("remove", "--force", "x")
    is_gone(b, p, "sleep 4741")


def test_one_that_no_daemon_ever_knew_ends_with_its_removal(any_boxes):
    """The daemon that started it is dead, and the next one cannot tell what it was: it stays without a network until it is removed."""
    b, lab = any_boxes, any_boxes.lab
    p = busy(b, "sleep 4742")
    with b.without_daemon():
        put(record(lab, "x"), "{")
        b.ak("daemon", "start")
    assert b.status()["sandboxes"] == {"total": 0, "running": 0}
    assert "err" in b.probe("x", [["tcp", "11.1.0.5", 7]])[0]
    b.fails("remove", "x", says="remove --force x")
    assert lab.running("sleep 4742")
    b.ak("remove", "--force", "x")
    is_gone(b, p, "sleep 4742")


def test_one_whose_supervisor_hangs_is_ended_by_force(boxes):
    b, lab = boxes, boxes.lab
    p = busy(b, "sleep 4743")
    pids = b.supervisors()
    assert len(pids) == 1, pids
    with b.without_daemon():
        put(record(lab, "x"), "{")
        lab.host(["kill", "-STOP", pids[0]])
    b.ak("remove", "--force", "x", timeout=60)
    is_gone(b, p, "sleep 4743")


def test_a_removal_that_fails_leaves_nothing_half_known(boxes):
    """What stood in for the damaged record is not taken for it once it is whole again."""
    with boxes.lab.acting_as("user") as lab:
        b = boxes
        b.create("x", "--compatibility-mode", "codex", "--allow-host", "ok.test:7")
        path = record(lab, "x")
        text, parent = read(path), os.path.dirname(os.path.dirname(path))
        put(path, "{")
        b.ak("daemon", "start")
        os.chmod(parent, 0o500)
        try:
            b.fails("remove", "--force", "x", says="Permission denied")
        finally:
            os.chmod(parent, 0o700)
        assert b.list()["x"]["status"] == "damaged"
        put(path, text)
        b.ak("start", "x")
        got = b.probe("x", [["tcp", "ok.test", 7, b"x".hex()], ["resolve", "evil.test"]])
        worked(got[0]), refused(got[1])
        assert b.list()["x"]["mode"] == "codex"
        b.close()


def test_a_model_does_not_see_it_and_leaves_it_to_the_user(boxes):
    b, lab = boxes, boxes.lab
    b.create("x")
    path = record(lab, "x")
    put(path, "{")
    with mcp_serving(lab) as m:
        assert m.good("sandbox_list")[0]["sandboxes"] == []
        m.bad("sandbox_remove", name="x", force=True)
        m.bad("sandbox_start", name="x")
    assert read(path) == "{"
