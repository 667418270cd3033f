"""The daemon of running sandboxes dies: it comes back by itself, once, with what it had; it backs off when it keeps dying; and it stays away when stopped."""
import json
import os
import shutil

import pytest
from expect import refused, worked
from lab import PYTHON, wait_for
from persist import FLOW, TELL, open_flow
from test_persist_exec import Screen

ECHO = ["tcp", "ok.test", 7, b"x".hex()]
CODEX = ("--compatibility-mode", "codex", "--allow-host", "ok.test:7")
KERNEL_TELLS = tuple(int(n) for n in os.uname().release.split(".")[:2]) >= (6, 15)  # how a process ended that is not one's child
PROMISE_MS = 1000  # from the moment a supervisor sees it go until the next one serves

# Everything of a process that the one who started it could have changed, without the numbers that differ from one to the next.
TRAITS = """
import json, os, sys
def traits(pid):
    st = dict(l.rstrip().split(':', 1) for l in open('/proc/%s/status' % pid))
    names = [os.readlink('/proc/%s/fd/%s' % (pid, fd)) for fd in os.listdir('/proc/%s/fd' % pid)]
    return {'environment': sorted(open('/proc/%s/environ' % pid).read().split('\\0')), 'folder': os.readlink('/proc/%s/cwd' % pid),
            'limits': open('/proc/%s/limits' % pid).read(), 'groups': open('/proc/%s/cgroup' % pid).read(),
            'namespaces': sorted(os.readlink('/proc/%s/ns/%s' % (pid, n)) for n in os.listdir('/proc/%s/ns' % pid)),
            'status': [st[k].strip() for k in ('Name', 'Umask', 'Uid', 'Gid', 'Groups', 'SigBlk', 'SigIgn', 'SigCgt', 'CapInh', 'CapPrm', 'CapEff',
                                               'CapBnd', 'CapAmb', 'NoNewPrivs', 'Seccomp')],
            'oom': open('/proc/%s/oom_score_adj' % pid).read(), 'nice': open('/proc/%s/stat' % pid).read().rsplit(')', 1)[1].split()[16],
            'terminal': open('/proc/%s/stat' % pid).read().rsplit(')', 1)[1].split()[4],
            'files': sorted(n.split(':')[0] if n.split(':')[0] in ('socket', 'pipe', 'net', 'user') else n for n in names)}
print(json.dumps(traits(sys.argv[1])))
"""


def restarts(b):
    """The records of its returns, read from the file: no command of ours runs."""
    try:
        with open(b.lab.path("state", "agentkernel", "events.jsonl")) as f:
            rows = [json.loads(line) for line in f if line.endswith("\n")]
    except FileNotFoundError:
        return []
    return [row for row in rows if row["event"] == "daemon_restart"]


def daemons(b):
    """Daemons, without a child that one of them has just forked and that still has its name."""
    rows = [row.split() for row in b.lab.host(["ps", "-C", "ak-daemon", "-o", "pid=,ppid="]).out.splitlines()]
    pids = {pid for pid, _ in rows}
    return [pid for pid, parent in rows if parent not in pids]


def healers(b):
    return b.lab.host(["pgrep", "-x", "ak-heal"]).out.split()


def kill(b, pid):
    assert b.lab.host(["kill", "-9", str(pid)]).code == 0
    wait_for(lambda: b.lab.host(["test", "!", "-d", "/proc/%d" % pid]).code == 0)


def back(b, count=1):
    """Until it has come back COUNT times; the last record."""
    return wait_for(lambda: len(restarts(b)) >= count and restarts(b)[-1], 30)


def up(b, pid):
    """Until a daemon other than PID has its gateway up; its status."""
    def look():
        r = b.lab.ak(["daemon", "status", "--json"])
        now = json.loads(r.out) if r.code == 0 else {}
        return now.get("pid") not in (None, pid) and now["gateway"]["state"] == "up" and now
    return wait_for(look, 30)


def test_it_comes_back_within_a_second_without_any_command(any_boxes):
    b = any_boxes
    b.up("x", *CODEX)
    before = b.pid()
    with b.holding("x", FLOW) as (proc, do):
        worked(do([ECHO])[0])
        worked(do([open_flow("open", "ok.test")])[0])
        kill(b, before)
        row = back(b)
        assert row["down_ms"] < PROMISE_MS and row["failures"] == 1, row
        assert "by signal 9 (Killed)" in row["reason"] or "without saying why" in row["reason"] and not KERNEL_TELLS, row
        wait_for(lambda: "ok" in do([ECHO])[0])
        refused(do([["tcp", "evil.test", 7, b"x".hex()]])[0])
        assert wait_for(lambda: do([TELL])[0]["ok"]["open"]["dead"])
    assert b.pid() != before and len(daemons(b)) == 1
    with open(b.runtime("daemon.log")) as f:
        assert "connections that sandboxes had open are cut" in f.read()
    b.ak("audit", "verify")
    assert "daemon_restart" in b.ak("audit").out


def test_what_it_had_is_as_it_was(any_boxes):
    b, lab = any_boxes, any_boxes.lab
    lab.dns.set("ok.test", A="11.1.0.5", ttl=300)
    b.up("x", "--compatibility-mode", "codex")
    b.ak("network", "policy", "x", "--allow-host", "ok.test:7", "--for", "1h")
    b.ak("network", "policy", "x", "--allow-host", "other.test:7")
    with b.holding("x") as (proc, do):
        addr = worked(do([["eval", "out = socket.getaddrinfo('ok.test', 7, socket.AF_INET)[0][4][0]"]])[0])
        policy, info = b.policy("x"), b.list()["x"]
        kill(b, b.pid())
        back(b)
        lab.clear()
        wait_for(lambda: "ok" in do([["tcp", addr, 7, b"x".hex()]])[0])
        assert lab.dns.log("ok.test") == []
        worked(do([["tcp", "other.test", 7, b"x".hex()]])[0])
        refused(do([["tcp", "two.test", 7, b"x".hex()]])[0])
    assert b.policy("x") == policy and policy["changes"][0]["until"]
    assert {k: b.list()["x"][k] for k in ("ip", "generation", "status")} == {k: info[k] for k in ("ip", "generation", "status")}


COMMANDS = [["exec", "x", "true"], ["list"], ["list", "--json"], ["network", "log", "x"], ["network", "policy", "x"], ["network", "check", "x", "ok.test:7"]]


def told(r):
    """What it says, besides that its table is empty."""
    return [line for line in r.err.splitlines() if "no network requests" not in line]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_command_brings_it_back_itself(boxes, command):
    """The lock is the test's, so no supervisor can be the one."""
    b = boxes
    b.up("x", *CODEX)
    before = b.pid()
    with b.supervisors_held_back():
        kill(b, before)
        err = told(b.ak(*command))
        assert len(err) == 1 and "was restarted" in err[0], err
        assert b.pid() != before
        assert told(b.ak(*command)) == []
    assert restarts(b) == [] and len(daemons(b)) == 1


def test_attach_brings_it_back_itself(boxes):
    b, lab = boxes, boxes.lab
    b.up("x", *CODEX)
    before = b.pid()
    with b.supervisors_held_back():
        kill(b, before)
        s = Screen(lab, ["attach", "x"])
        s.until(rb"was restarted")
        s.prompt()
        s.type(b"exit 6\n")
        assert s.end().code == 6
    assert b.pid() != before


def test_a_command_inside_finds_its_network(any_boxes):
    b = any_boxes
    b.up("x", *CODEX)
    for time in range(2):  # the third in so short a time is for the back-off
        kill(b, b.pid())
        r = b.exec("x", *b.lab.probe_command([ECHO]))
        assert r.code == 0 and r.err.count("\n") <= 1, r
        worked(json.loads(r.out)[0])


def test_twenty_sandboxes_start_one(boxes):
    b = boxes
    for i in range(20):
        b.create("n%d" % i, *(("--compatibility-mode", "codex") if i % 2 else ("--no-network",)))
    b.ak("start", *("n%d" % i for i in range(20)), timeout=120)
    before = b.pid()
    kill(b, before)
    back(b)
    now = up(b, before)
    assert now["sandboxes"] == {"total": 20, "running": 20}
    assert daemons(b) == [str(now["pid"])] and len(restarts(b)) == 1 and len(healers(b)) <= 1


def test_the_new_one_is_like_the_old(any_boxes):
    b = any_boxes
    b.up("x", *CODEX)
    wait_for(lambda: b.list()["x"]["status"] == "running")
    def traits():
        return json.loads(b.lab.host([PYTHON, "-c", TRAITS, str(b.pid())]).out)
    before, pid = traits(), b.pid()
    kill(b, pid)
    up(b, pid)
    after = traits()
    assert {k: (before[k], after[k]) for k in before if before[k] != after[k]} == {}


# ---- when it keeps dying ----

def test_it_backs_off_when_it_keeps_dying_and_tells_why(any_boxes):
    b = any_boxes
    b.up("x", *CODEX)
    for count in range(1, 4):
        kill(b, b.pid())
        # The record of its end says how often that was, and stays when the next one serves.
        life = wait_for(lambda: b.life()["failures"] == count and b.life(), 30)
        assert "by signal 9" in life["reason"] or count == 1 and not KERNEL_TELLS, life
        assert back(b, count)["failures"] == count
        assert b.life()["reason"] == life["reason"]
        up(b, None)
    first, second, third = (row["down_ms"] for row in restarts(b))
    assert first < PROMISE_MS and second >= 450 and third >= 900, restarts(b)


def test_its_last_message_is_a_part_of_the_reason(boxes):
    b = boxes
    b.up("x", *CODEX)
    kill(b, b.status()["gateway"]["pid"])
    up(b, None)
    with open(b.runtime("daemon.log")) as f:
        wait_for(lambda: "the gateway process ended" in f.read())
    kill(b, b.pid())
    assert back(b)["reason"].endswith("; its last message: gateway: the gateway process ended")


@pytest.fixture
def breakable(any_boxes):
    """Sandboxes whose folder a daemon cannot read: it dies at its start."""
    b = any_boxes
    folder = b.lab.path("state", "agentkernel", "sandboxes")
    def broken():
        os.rename(folder, folder + ".away")
        with open(folder, "w"):
            pass
    def mended():
        if os.path.exists(folder + ".away"):
            os.unlink(folder)
            os.rename(folder + ".away", folder)
    yield b, broken, mended
    mended()


def test_one_that_cannot_start_is_told_and_healed_once_it_can(breakable):
    b, broken, mended = breakable
    b.up("x", *CODEX)
    broken()
    kill(b, b.pid())
    life = wait_for(lambda: b.life()["failures"] >= 4 and b.life(), 30)
    assert "before it served" in life["reason"] and "sandboxes" in life["reason"], life
    assert daemons(b) == []
    r = b.lab.ak(["daemon", "status"])
    assert r.code == 1 and "times in a row" in r.err and "sandboxes" in r.err and r.err.count("\n") == 1, r
    mended()
    r = b.exec("x", "true")
    assert r.code == 0 and r.err.count("\n") <= 1, r
    assert r.err == "" or "times in a row" in r.err and "next attempt" in r.err, r
    back(b)
    wait_for(lambda: "ok" in b.probe("x", [ECHO])[0])


def test_a_user_ends_the_attempts(breakable):
    b, broken, mended = breakable
    b.up("x", *CODEX)
    broken()
    kill(b, b.pid())
    wait_for(lambda: b.life()["failures"] >= 3, 30)
    b.ak("daemon", "stop")
    mended()
    wait_for(lambda: healers(b) == [])
    assert daemons(b) == [] and b.life()["state"] == "stopped" and restarts(b) == []
    b.ak("daemon", "start")
    wait_for(lambda: "ok" in b.probe("x", [ECHO])[0])


# ---- when it was stopped ----

@pytest.mark.parametrize("how", ["stop", "TERM"])
def test_one_that_was_stopped_stays_away(any_boxes, how):
    b, lab = any_boxes, any_boxes.lab
    b.up("x", *CODEX)
    pid = b.pid()
    b.ak("daemon", "stop") if how == "stop" else lab.host(["kill", "-TERM", str(pid)])
    wait_for(lambda: daemons(b) == [])
    # A supervisor looks after its daemon within 16 ms and in the same loop that tells how a command ended: after this one it has looked.
    assert b.exec("x", "sleep", "0.3", options=["--quiet"]).code == 0
    assert daemons(b) == []
    assert healers(b) == [] and b.life()["state"] == "stopped"
    r = b.exec("x", "echo", "alive")
    assert r.code == 0 and r.out == "alive\n" and "daemon start" in r.err and r.err.count("\n") == 1, r
    r = b.ak("list")
    assert "running" in r.out and "daemon start" in r.err, r
    assert "err" in b.probe("x", [["tcp", "11.1.0.5", 7]])[0]
    assert daemons(b) == [] and healers(b) == [] and restarts(b) == []
    b.ak("daemon", "start")
    wait_for(lambda: "ok" in b.probe("x", [ECHO])[0])
    # From here on it is watched again.
    kill(b, b.pid())
    back(b)


# ---- who starts what ----

def test_the_program_that_comes_back_is_the_one_that_ran(any_boxes):
    """A file that was put in the program's place meanwhile, by an upgrade or by a sandbox that may write there, is not what supervisors start."""
    b, lab = any_boxes, any_boxes.lab
    real, copy, mark = lab.binary, lab.path("tmp", "agentkernel"), lab.path("tmp", "mark")
    shutil.copy(real, copy)
    os.chmod(lab.path("tmp"), 0o777)
    try:
        lab.binary = copy
        b.up("x", *CODEX)
        before = b.pid()
        os.unlink(copy)
        with open(copy, "w") as f:
            f.write("#!/bin/sh\ntouch %s\n" % mark)
        os.chmod(copy, 0o755)
        kill(b, before)
        back(b)
        lab.binary = real
        now = up(b, before)
        assert lab.host(["readlink", "/proc/%d/exe" % now["pid"]]).out.strip() == copy + " (deleted)"
        assert not os.path.exists(mark)
        wait_for(lambda: "ok" in b.probe("x", [ECHO])[0])
    finally:
        lab.binary = real
        os.unlink(copy)


def test_a_healer_that_dies_is_replaced(breakable):
    b, broken, mended = breakable
    b.up("x", *CODEX)
    broken()
    kill(b, b.pid())
    failures = wait_for(lambda: b.life()["failures"] >= 2 and b.life()["failures"], 30)
    first = wait_for(lambda: healers(b))[0]
    kill(b, int(first))
    wait_for(lambda: healers(b) not in ([], [first]), 30)
    assert b.life()["failures"] >= failures
    mended()
    back(b)


# What systemd does with agentkernel.socket: holds the socket, and starts a daemon for whoever connects.
MANAGER = """
import os, select, socket, sys
path = sys.argv[1]
os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); s.bind(path); os.chmod(path, 0o600); s.listen(16)
for life in range(2):
    select.select([s], [], [])
    print('asked', flush=True)
    pid = os.fork()
    if pid == 0:
        os.dup2(s.fileno(), 3); os.set_inheritable(3, True)
        os.environ['LISTEN_FDS'] = '1'; os.environ['LISTEN_PID'] = str(os.getpid())
        os.execv(sys.argv[2], [sys.argv[2], 'daemon', 'start', '--foreground'])
    os.waitpid(pid, 0)
"""


def test_a_service_manager_that_holds_the_socket_is_asked(any_boxes):
    b, lab = any_boxes, any_boxes.lab
    path = b.runtime("daemon.sock")
    p = lab.spawn([PYTHON, "-c", MANAGER, path, lab.binary], env=lab.env())
    wait_for(lambda: os.path.exists(path))
    b.up("x", *CODEX)
    before = b.pid()
    with b.holding("x") as (proc, do):
        worked(do([ECHO])[0])
        kill(b, before)
        p.wait_output(b"asked\nasked\n")
        wait_for(lambda: "ok" in do([ECHO])[0])
    assert b.pid() != before and healers(b) == [] and restarts(b) == []
    b.ak("remove", "--force", "x")
    b.ak("daemon", "stop")
    assert p.wait(20).code == 0
    os.unlink(path)
