"""h26: whatever a command started ends with it when a time limit, a client that leaves or a signal ends it; what it leaves on purpose is told."""
import pytest
from lab import PYTHON, wait_for

# What leaves its session, its parent, its streams and the signals of its group behind.
DETACHED = """
import os, signal, sys
def detach():
    if os.fork(): return
    os.setsid()
    if os.fork(): os._exit(0)
    os.setsid()
    for s in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT): signal.signal(s, signal.SIG_IGN)
    null = os.open('/dev/null', os.O_RDWR)
    for fd in (0, 1, 2): os.dup2(null, fd)
    os.execv('/bin/sleep', ['sleep', '7357'])
for _ in range(3): detach()
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
print('up', flush=True)
while sys.argv[1] == 'stay' and signal.sigwait([signal.SIGINT]): print('int', flush=True)
"""
ALIVE = "cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -o 'sleep 735[7]' | wc -l; true"


def alive(b):
    return int(b.sh("x", ALIVE))


def started(b, options=()):
    p = b.lab.spawn([b.lab.binary, "exec", *options, "x", PYTHON, "-c", DETACHED, "stay"], env=b.lab.env())
    p.wait_output(b"up\n")
    return p


@pytest.mark.parametrize("end", ["timeout", "gone", "interrupted twice"])
def test_h26_what_left_its_session_ends_too(any_boxes, end):
    b = any_boxes
    b.up("x")
    other = b.lab.spawn([b.lab.binary, "exec", "x", "sh", "-c", "echo up; read line; echo $line"], env=b.lab.env(), stdin="pipe")
    other.wait_output(b"up\n")
    p = started(b, ["--timeout", "5s"] if end == "timeout" else [])
    if end != "timeout":
        wait_for(lambda: alive(b) == 3)
    if end == "gone":
        p.signal(9)
    elif end == "interrupted twice":
        p.signal(2)
        p.wait_output(b"int\n")
        p.signal(2)
    assert p.wait().code in {"timeout": (124,), "gone": (-9, 137), "interrupted twice": (130, 1)}[end]
    if end == "timeout":  # it is not told before everything has ended
        assert alive(b) == 0
    wait_for(lambda: alive(b) == 0)
    other.write(b"still\n")
    assert "still" in other.wait().out


def test_h26_what_a_command_leaves_on_purpose_goes_on_and_is_told(any_boxes):
    b = any_boxes
    b.up("x")
    r = b.exec("x", PYTHON, "-c", DETACHED, "go")
    assert r.code == 0 and r.out == "up\n", r
    wait_for(lambda: alive(b) == 3)
    assert "agentkernel: 3 processes go on in the background: " in r.err, r
    assert b.exec("x", "true").err == ""
    quiet = b.exec("x", "sh", "-c", "sleep 7358 &", options=["--quiet"])
    assert quiet.code == 0 and quiet.err == "", quiet
    b.ak("stop", "x")
