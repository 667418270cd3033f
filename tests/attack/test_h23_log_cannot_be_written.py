"""h23: a sandbox fills the file system that it shares with its log. While no record can be written no new flow is allowed, every connection that reached the far side is on record, and the loss is told."""
import contextlib

import pytest
from expect import allow, denied, holding, refused, worked
from lab import wait_for
from persist import FLOW, TELL, open_flow

FILL = """
import os
def fill(path):
    fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    for size in (65536, 4096, 512, 1):
        try:
            while True: os.write(fd, b'x' * size)
        except OSError: pass
    os.close(fd)
def knock(n, host, port):
    done = 0
    for _ in range(n):
        s = socket.socket(); s.settimeout(3)
        try:
            s.connect((host, port)); s.sendall(b'x'); done += s.recv(1) == b'x'
        except OSError: pass
        s.close()
    return done
"""
ACT = ["eval", "out = knock(60, '11.1.0.5', 7)"]


@contextlib.contextmanager
def small_disk(lab, size="3m"):
    """One file system for the state folder and the project of a sandbox; the project's path."""
    state = lab.path("state")
    assert lab.host(["mount", "-t", "tmpfs", "-o", "size=%s,mode=777" % size, "tmpfs", state]).code == 0
    try:
        project = state + "/project"
        assert lab.host(["sh", "-c", "mkdir -m 777 %s" % project]).code == 0
        yield project
    finally:
        assert lab.host(["umount", state]).code == 0


def every_connection_is_on_record(lab, rows):
    flows = [r for r in rows if r["event"] == "flow" and r["verdict"] == "allow" and r.get("port") == 7]
    arrived = lab.syns("11.1.0.5", 7) + lab.syns("2a00:1::5", 7)  # a client that is refused by one family tries the other
    assert sum(r["count"] for r in flows) == arrived, (len(flows), arrived, [r for r in rows if r["event"] == "loss"])


def act_until_stuck(do, until_told):
    """Connect until nothing works any more, because the log has used up the space that was reserved for it. How many connections that takes depends on the sizes of records and on how
    repeats are summed up."""
    for _ in range(60):
        if worked(do([ACT], timeout=120)[0]) == 0:
            break
    until_told()
    assert worked(do([ACT], timeout=120)[0]) == 0


@pytest.mark.parametrize("who", ["user", "root"])
def test_h23_what_is_done_on_a_full_disk_is_on_record_or_not_done(lab, who):
    if who == "root" and not lab.is_root:
        pytest.skip("the suite runs as an ordinary user")
    with lab.acting_as(who), small_disk(lab) as project:
        with holding(lab, [*allow("ok.test:7"), "--dir", project], FILL + FLOW) as (proc, do):
            worked(do([["tcp", "ok.test", 7, b"x".hex()]])[0])
            worked(do([open_flow("live", "ok.test")])[0])
            worked(do([["eval", "fill('%s/ballast'); out = 1" % project]])[0])
            act_until_stuck(do, lambda: proc.wait_output(b"cannot be written", stream=2))
            before = do([TELL])[0]["ok"]["live"]
            wait_for(lambda: do([TELL])[0]["ok"]["live"]["echoes"] > before["echoes"] + 20)  # what lives goes on
            refused(do([["resolve", "ok.test"]])[0])
            worked(do([["eval", "os.unlink('%s/ballast'); out = 1" % project]])[0])
            wait_for(lambda: "ok" in do([["tcp", "ok.test", 7, b"x".hex()]])[0])
        rows = lab.netlog()
        every_connection_is_on_record(lab, rows)
        denied(rows, ("builtin: log", "log cannot be written"), event="flow", dst="11.1.0.5", port=7)
        denied(rows, ("flags: ok.test:7", "log cannot be written"), event="dns", name="ok.test")
        assert lab.ak(["audit", "verify"]).code == 0


def test_h23_a_persistent_sandbox_is_held_to_the_same(boxes):
    b, lab = boxes, boxes.lab
    with small_disk(lab, "4m") as project:
        try:
            b.up("x", "--compatibility-mode", "codex", "--allow-host", "ok.test:7", "--dir", project)
            with b.holding("x", FILL) as (proc, do):
                worked(do([["tcp", "ok.test", 7, b"x".hex()]])[0])
                worked(do([["eval", "fill('%s/ballast'); out = 1" % project]])[0])
                act_until_stuck(do, lambda: wait_for(lambda: "cannot be written" in open(b.runtime("daemon.log")).read()))
                worked(do([["eval", "os.unlink('%s/ballast'); out = 1" % project]])[0])
                wait_for(lambda: "ok" in do([["tcp", "ok.test", 7, b"x".hex()]])[0])
            b.ak("stop", "x")
            every_connection_is_on_record(lab, b.netlog("x"))
            b.ak("audit", "verify")
        finally:
            b.close()


def test_h23_a_limit_of_the_log_file_holds_new_flows_back(any_user):
    """A quota or a limit of the file's size: the log takes no more for as long as the run lasts."""
    lab = any_user
    steps = [["tcp", "ok.test", 7, b"x".hex()]] + [["resolve", "n%d.evil.test" % i] for i in range(300)] + [["tcp", "11.1.0.5", 7, b"x".hex()], ["resolve", "ok.test"]]
    r = lab.run([*allow("ok.test:7"), "--", *lab.probe_command(steps)], rlimits={"RLIMIT_FSIZE": 65536}, timeout=60)
    got = r.json()
    worked(got[0]), refused(got[-1])
    assert "err" in got[-2] and "cannot be written" in r.err, r
    assert lab.syns("11.1.0.5", 7) + lab.syns("2a00:1::5", 7) == 1
