"""g6: SIGKILL of gateway, supervisor or init at any step leaves no network, process, mount, cgroup, namespace or file."""
import glob
import os
import time

import pytest
from expect import CODEX, NATIVE, TRYING, allow, gateway_pid, holding, processes, tries_again, worked
from lab import PYTHON


def no_traffic_any_more(lab, proc=None):
    """No new connection, even if PROC tries; the kernel may still say goodbye for the dead gateway's sockets."""
    lab.clear()
    if proc:
        tries_again(proc)
    return lab.syns("11.66.0.1") == 0 and lab.conns("11.66.0.1") == []


def started(lab, args=NATIVE):
    proc = lab.start([*args, PYTHON, "-c", TRYING])
    proc.wait_output(b"up\n")
    return proc


def test_g6_killing_the_gateway_ends_the_network_and_is_told(any_user):
    lab = any_user
    proc = started(lab)
    lab.host(["kill", "-9", str(gateway_pid(lab, proc))])
    proc.wait_output(b"without a network", stream=2)
    assert no_traffic_any_more(lab, proc)
    proc.signal(15)
    assert proc.wait(10).code != 0
    assert lab.leaks() == ""


@pytest.mark.parametrize("victim", ["supervisor", "init", "command"])
def test_g6_killing_one_ends_all(any_user, victim):
    lab = any_user
    proc = started(lab)
    rows = processes(lab, proc)
    if victim == "supervisor":
        pid = proc.pid
    else:
        want = "1" if victim == "init" else "other"
        pid = next(p for p, row in rows.items() if len(row["nspid"]) > 1 and (row["nspid"][-1] == 1) == (want == "1"))
    lab.host(["kill", "-9", str(pid)])
    r = proc.wait(10)
    assert r.code != 0, r
    if victim == "command":
        assert r.code == 137, r
    assert lab.leaks() == ""
    assert no_traffic_any_more(lab)


def test_g6_killed_while_starting_leaves_nothing(any_user):
    """The supervisor dies at 25 moments between exec and the command's first word."""
    lab = any_user
    reached = 0
    for step in range(25):
        proc = lab.start([*allow("ok.test"), "--", PYTHON, "-c", "import signal; print('up', flush=True); signal.pause()"])
        end = proc.started + step * 0.002
        while time.monotonic() < end:
            pass
        proc.signal(9)
        r = proc.wait(10)
        reached += "up" in r.out
        assert r.code == -9, r
    assert lab.leaks() == ""
    assert lab.run([*CODEX, "true"]).code == 0


def test_g6_killed_while_stopping_leaves_nothing(any_user):
    lab = any_user
    for step in range(12):
        proc = lab.start([*allow("ok.test"), "--", "sh", "-c", "echo up; read x"], stdin="pipe")
        proc.wait_output(b"up\n")
        proc.close_stdin()
        end = time.monotonic() + step * 0.001
        while time.monotonic() < end:
            pass
        proc.signal(9)
        proc.wait(10)
    assert lab.leaks() == ""


def test_g6_gateway_or_init_killed_while_starting(any_user):
    lab = any_user
    for step in range(16):
        proc = lab.start([*allow("ok.test"), "--", PYTHON, "-c", "import signal; print('up', flush=True); signal.pause()"])
        killed = False
        end = time.monotonic() + 5
        while not killed and time.monotonic() < end:
            rows = [p for p in processes(lab, proc) if p != proc.pid]
            if len(rows) > step % 2:
                lab.host(["kill", "-9", str(sorted(rows)[step % 2])])
                killed = True
        # Either it never ran the command, or it goes on without a network and says so.
        proc._pump(time.monotonic() + 10, lambda: proc.code is not None or b"without a network" in proc.output[2] or b"up" in proc.output[1])
        if proc.code is None:
            proc.signal(15)
        assert proc.wait(10).code != 0
    assert lab.leaks() == ""
    assert lab.strangers() == []


def test_g6_a_stopped_gateway_means_no_network(lab):
    with holding(lab, NATIVE) as (proc, do):
        worked(do([["tcp", "11.1.0.6", 7, b"x".hex()]])[0])
        pid = gateway_pid(lab, proc)
        lab.host(["kill", "-STOP", str(pid)])
        lab.clear()
        code = "s = socket.socket(); s.settimeout(0.5); s.connect(('11.1.0.6', 7)); s.send(b'x'); out = s.recv(1).decode()"
        assert "err" in do([["eval", code]])[0]
        assert lab.arrived("11.1.0.6", 7) == 0
        lab.host(["kill", "-CONT", str(pid)])


def test_g6_no_cgroup_stays(lab):
    def mine():
        return {p for p in glob.glob("/sys/fs/cgroup/**/", recursive=True) if "agentkernel" in p or "/ak-" in p or "run-" in p}
    proc = started(lab, ["--memory", "256M", "--pids", "50", *NATIVE])
    name = os.listdir(lab.path("state", "agentkernel", "runs")) if os.path.isdir(lab.path("state", "agentkernel", "runs")) else []
    proc.signal(9)
    proc.wait()
    assert lab.leaks() == ""
    assert not [c for c in mine() if any(n in c for n in name)], mine()
