"""The daemon dies: sandboxes go on without a network, the next one adopts them, and their logs continue."""
import os
import time

from expect import allowed, refused, worked
from lab import wait_for
from persist import FLOW, TELL, open_flow

ECHO = ["tcp", "ok.test", 7, b"x".hex()]


def busy(b, name):
    """Traffic that never ends; the process."""
    code = ("import socket\nprint('up', flush=True)\nwhile True:\n try:\n  s = socket.create_connection(('ok.test', 7), 2); s.send(b'x'); s.recv(1); s.close()\n"
            " except OSError: pass\n")
    p = b.lab.spawn([b.lab.binary, "exec", name, "/usr/bin/python3", "-c", code], env=b.lab.env())
    p.wait_output(b"up\n")
    return p


def test_killed_under_load_and_adopted(any_boxes):
    b, lab = any_boxes, any_boxes.lab
    for name in ("one", "two", "three"):
        b.up(name, "--compatibility-mode", "codex", "--allow-host", "ok.test:7")
    b.ak("network", "policy", "one", "--allow-host", "other.test:7")
    load = [busy(b, "two"), busy(b, "three")]
    with b.holding("one", FLOW) as (proc, do):
        worked(do([ECHO])[0])
        do([open_flow("long", "ok.test")])
        with b.without_daemon():
            # Everything inside goes on; nothing leaves.
            dead = wait_for(lambda: do([TELL])[0]["ok"]["long"]["dead"])
            assert dead
            lab.clear()
            for row in do([["tcp", "11.1.0.5", 7], ["tcp", "11.66.0.1", 443]]):
                assert "err" in row, row
            for name in ("two", "three"):
                assert "err" in b.probe(name, [["tcp", "11.1.0.5", 7]])[0]
            assert lab.strangers() == [] and lab.arrived("11.1.0.5") == 0
            assert all(p.code is None for p in load)
            before = b.list()["one"]
            b.ak("daemon", "start")
        # The address learned before is still good: no question is needed.
        wait_for(lambda: "ok" in do([ECHO])[0])
        worked(do([["tcp", "other.test", 7, b"x".hex()]])[0])
        refused(do([["tcp", "evil.test", 7, b"x".hex()]])[0])
        assert b.list()["one"]["ip"] == before["ip"]
        assert b.policy("one")["generation"] == 2
    for p in load:
        assert p.code is None
        p.signal(15)
        p.wait(10)
    log = b.netlog("one")
    assert [row["seq"] for row in log] == list(range(1, len(log) + 1))
    allowed(log, event="flow", name="other.test", rule="flags: other.test:7")
    b.ak("audit", "verify")


def test_learned_addresses_are_rebuilt(boxes):
    b, lab = boxes, boxes.lab
    lab.dns.set("ok.test", A="11.1.0.5", ttl=300)
    b.up("x", "--compatibility-mode", "codex", "--allow-host", "ok.test:7")
    with b.holding("x") as (proc, do):
        addr = worked(do([["eval", "out = socket.getaddrinfo('ok.test', 7, socket.AF_INET)[0][4][0]"]])[0])
        b.kill_daemon()
        b.revive()
        lab.clear()
        wait_for(lambda: "ok" in do([["tcp", addr, 7, b"x".hex()]])[0])
        assert lab.dns.log("ok.test") == []


def test_stopped_in_order_and_started_again(boxes):
    b = boxes
    b.up("x", "--compatibility-mode", "codex", "--allow-host", "ok.test:7")
    with b.holding("x") as (proc, do):
        worked(do([ECHO])[0])
        b.ak("daemon", "stop")
        assert not b.runs()
        assert "err" in do([["tcp", "11.1.0.5", 7]])[0]
        b.ak("daemon", "start")
        wait_for(lambda: "ok" in do([ECHO])[0])
    b.ak("audit", "verify")


def test_the_gateway_alone_dies_and_comes_back(boxes):
    b, lab = boxes, boxes.lab
    b.up("x", "--compatibility-mode", "codex", "--allow-host", "ok.test:7")
    with b.holding("x") as (proc, do):
        worked(do([ECHO])[0])
        before = b.status()["gateway"]
        lab.host(["kill", "-9", str(before["pid"])])
        wait_for(lambda: b.status()["gateway"]["state"] == "up" and b.status()["gateway"]["pid"] != before["pid"], 20)
        wait_for(lambda: "ok" in do([ECHO])[0])
    b.ak("audit", "verify")


def test_killed_at_any_moment_of_a_start(boxes):
    """The daemon dies while it starts a sandbox: afterwards the sandbox is either running or stopped, can be started, and nothing is left."""
    b, lab = boxes, boxes.lab
    b.create("x", "--compatibility-mode", "codex", "--allow-host", "ok.test:7")
    b.ak("daemon", "start")
    for step in range(12):
        pid = b.pid()
        p = lab.spawn([lab.binary, "start", "x"], env=lab.env())
        end = time.monotonic() + step * 0.003
        while time.monotonic() < end:
            pass
        lab.host(["kill", "-9", str(pid)])
        p.wait(30)
        b.revive()
        status = wait_for(lambda: b.list()["x"]["status"])
        if status == "stopped":
            b.ak("start", "x")
        wait_for(lambda: "ok" in b.probe("x", [ECHO])[0])
        b.ak("stop", "x")
    b.ak("audit", "verify")


def test_a_supervisor_that_dies_takes_its_sandbox_and_nothing_else(boxes):
    b, lab = boxes, boxes.lab
    b.up("x", "--compatibility-mode", "codex", "--allow-host", "ok.test:7")
    b.up("y", "--compatibility-mode", "codex", "--allow-host", "ok.test:7")
    pids = b.supervisors()
    assert len(pids) == 2, pids
    lab.host(["kill", "-9", pids[0]])
    wait_for(lambda: sorted(row["status"] for row in b.list().values()) == ["running", "stopped"])
    alive = next(n for n, row in b.list().items() if row["status"] == "running")
    dead = next(n for n, row in b.list().items() if row["status"] == "stopped")
    worked(b.probe(alive, [ECHO])[0])
    b.ak("start", dead)
    worked(b.probe(dead, [ECHO])[0])


def test_a_supervisor_that_answers_late_is_adopted_late(any_boxes):
    """A new daemon does not wait for it, and gives its sandbox back its network when it answers."""
    b, lab = any_boxes, any_boxes.lab
    b.up("late", "--compatibility-mode", "codex", "--allow-host", "ok.test:7")
    (supervisor,) = b.supervisors()
    with b.holding("late") as (_, do):
        worked(do([ECHO])[0])
        with b.without_daemon():
            lab.host(["kill", "-STOP", supervisor])
            b.ak("daemon", "start")
            assert b.list()["late"]["status"] == "running"
            lab.clear()
            refused(do([["tcp", "11.1.0.5", 7]])[0])
            assert lab.arrived("11.1.0.5") == 0
        lab.host(["kill", "-CONT", supervisor])
        wait_for(lambda: "ok" in do([ECHO])[0])
    assert "sandbox_stop" not in b.ak("audit", "--sandbox", "late", "--json").out
    b.ak("stop", "late")
    assert b.list()["late"]["status"] == "stopped"


def test_a_late_answer_without_network_does_not_start_a_gateway_of_its_own(boxes):
    """The gateway must join the namespaces of a sandbox that has a network, also if the supervisor of one that has none answers first."""
    b, lab = boxes, boxes.lab
    b.up("plain", "--no-network")
    (plain,) = b.supervisors()
    b.up("late", "--compatibility-mode", "codex", "--allow-host", "ok.test:7")
    (late,) = set(b.supervisors()) - {plain}
    with b.holding("late") as (_, do):
        with b.without_daemon():
            lab.host(["kill", "-STOP", plain, late])
            b.ak("daemon", "start")
            lab.host(["kill", "-CONT", plain])
            b.sh("plain", "true")  # its supervisor answers requests in order
            b.list()
        lab.host(["kill", "-CONT", late])
        wait_for(lambda: "ok" in do([ECHO])[0])


def test_a_sandbox_that_the_new_gateway_cannot_take_gets_its_network_once_it_can(boxes):
    b, lab = boxes, boxes.lab
    b.up("x", "--compatibility-mode", "codex", "--allow-host", "ok.test:7")
    log = lab.path("state", "agentkernel", "sandboxes", "x", "network.jsonl")
    with b.holding("x") as (_, do):
        with b.without_daemon():
            os.rename(log, log + ".away")
            os.mkdir(log)
            b.ak("daemon", "start")
            wait_for(lambda: "x has no network" in open(b.runtime("daemon.log")).read())
            lab.clear()
            assert "err" in do([["tcp", "11.1.0.5", 7]])[0]
            assert lab.arrived("11.1.0.5") == 0
            os.rmdir(log)
            os.rename(log + ".away", log)
        wait_for(lambda: "ok" in do([ECHO])[0])
    assert open(b.runtime("daemon.log")).read().count("x has no network") == 1
    b.ak("audit", "verify")


def test_a_supervisor_that_never_answers_holds_up_only_its_own_sandbox(boxes):
    b, lab = boxes, boxes.lab
    b.up("good", "--compatibility-mode", "codex", "--allow-host", "ok.test:7")
    (good,) = b.supervisors()
    b.up("stuck", "--compatibility-mode", "codex", "--allow-host", "ok.test:7")
    (stuck,) = set(b.supervisors()) - {good}
    with b.without_daemon():
        lab.host(["kill", "-STOP", stuck])
        b.ak("daemon", "start")
    wait_for(lambda: "ok" in b.probe("good", [ECHO])[0])
    b.up("new", "--compatibility-mode", "codex", "--allow-host", "ok.test:7")
    worked(b.probe("new", [ECHO])[0])
    b.ak("remove", "--force", "stuck")
    assert "stuck" not in b.list()
