"""The warm pool: `run` uses it without a word, gets exactly what it would have got, and no sandbox is used twice."""
import json

import pytest
from expect import CODEX, NOT_LISTED, allow, denied, refused, worked
from lab import PYTHON, wait_for


def pool(b, mode):
    return next(row for row in b.status()["pool"] if row["mode"] == mode)


def warm(b, mode, count=1):
    b.ak("daemon", "prewarm", "--mode", mode, "--count", str(count))
    wait_for(lambda: pool(b, mode)["warm"] >= count, 30)


FACTS = """
import json, os, socket
def read(p):
    try: return open(p).read()
    except OSError as e: return e.errno
status = {k: v.strip() for k, v in (l.split(':', 1) for l in read('/proc/self/status').splitlines())}
print(json.dumps({
  'uid': os.getuid(), 'groups': os.getgroups(), 'cwd': os.getcwd(), 'env': {k: v for k, v in os.environ.items() if k != 'AGENTKERNEL_SANDBOX'},
  'caps': [status[k] for k in ('CapInh', 'CapPrm', 'CapEff', 'CapBnd', 'CapAmb')], 'seccomp': [status['Seccomp'], status['NoNewPrivs']],
  'mounts': sorted(l.split()[4] + ' ' + l.split()[5] for l in read('/proc/self/mountinfo').splitlines()),
  'root_rw': os.access('/usr', os.W_OK), 'fds': sorted(os.listdir('/proc/self/fd'))[:3], 'dev': sorted(os.listdir('/dev')),
  'resolv': len(read('/etc/resolv.conf').splitlines()), 'ifs': sorted(i for _, i in socket.if_nameindex()), 'pids': len([p for p in os.listdir('/proc') if p.isdigit()]),
  'limits': read('/proc/self/limits'), 'home': sorted(os.listdir(os.path.expanduser('~'))), 'tmp': sorted(os.listdir('/tmp'))}))
"""


def test_a_warm_one_is_exactly_a_cold_one(any_boxes):
    b, lab = any_boxes, any_boxes.lab
    for mode in ("codex", "native", "claude"):
        args = ["--compatibility-mode", mode, "-e", "A=b", "--", PYTHON, "-c", FACTS]
        cold = lab.run(args)
        assert cold.code == 0, cold
        warm(b, mode)
        hits = pool(b, mode)["hits"]
        hot = lab.run(args)
        assert hot.code == 0, hot
        assert pool(b, mode)["hits"] == hits + 1, "the pool was not used"
        a, z = json.loads(cold.out), json.loads(hot.out)
        for key in a:
            assert a[key] == z[key], (mode, key, a[key], z[key])


def test_a_full_disk_ends_a_warm_run_that_cannot_be_recorded(boxes):
    b, lab = boxes, boxes.lab
    if not lab.is_root:
        pytest.skip("mounts in the lab want its root")
    state = lab.path("state")
    assert lab.host(["mount", "-t", "tmpfs", "-o", "size=1m,mode=777", "none", state]).code == 0
    try:
        assert lab.run([*CODEX, "true"]).code == 0  # the project is recorded as a folder that a sandbox could write
        warm(b, "codex")
        listing = ["ls", "-Ai", state + "/agentkernel/runs"]
        wait_for(lambda: ".spare-" in lab.host(listing).out)  # a folder that it can use
        spare = next(line.split()[0] for line in lab.host(listing).out.splitlines() if ".spare-" in line)
        lab.host(["sh", "-c", "head -c 2m /dev/zero > %s/fill" % state])
        r = lab.run([*CODEX, "sleep", "4790"])
        assert r.code == 125 and "space" in r.err.lower(), r
        assert pool(b, "codex")["hits"] == 1 and spare + " run-" in lab.host(listing).out  # it was ready to go
        assert not lab.running("sleep 4790")
        lab.host(["rm", "%s/fill" % state])
        warm(b, "codex")
        hits = pool(b, "codex")["hits"]
        assert lab.run([*CODEX, "echo", "again"]).out == "again\n"
        assert pool(b, "codex")["hits"] == hits + 1
        assert lab.ak(["audit", "verify"]).code == 0
        b.close()
    finally:
        lab.host(["umount", state])


def test_codes_streams_and_closing_lines_are_the_same(boxes):
    b, lab = boxes, boxes.lab
    cases = [["sh", "-c", "exit 7"], ["sh", "-c", "kill -15 $$"], ["no-such-program"], ["/etc/passwd"], ["sh", "-c", "cat; echo e >&2"]]
    cold = [lab.run([*CODEX, "--", *c], stdin=b"in\0put") for c in cases]
    for c, want in zip(cases, cold):
        warm(b, "codex")
        hits = pool(b, "codex")["hits"]
        got = lab.run([*CODEX, "--", *c], stdin=b"in\0put")
        assert pool(b, "codex")["hits"] == hits + 1
        assert (got.code, got.out, got.err) == (want.code, want.out, want.err), (c, got, want)
    warm(b, "codex")
    r = lab.run([*CODEX, "--timeout", "300ms", "sleep", "100"])
    assert r.code == 124 and "timed out after 0.3s" in r.err, r
    warm(b, "codex")
    r = lab.run([*CODEX, "--json", "--", "sh", "-c", "echo out; echo err >&2; exit 3"])
    got = r.json()
    assert r.code == 3 and got["exit_code"] == 3 and got["stdout"] == "out\n" and got["stderr"] == "err\n" and got["sandbox"].startswith("run-"), r


def test_policy_rules_and_log_are_those_of_the_run(boxes):
    b, lab = boxes, boxes.lab
    warm(b, "codex")
    hits = pool(b, "codex")["hits"]
    got = lab.probe(allow("ok.test:7"), [["tcp", "ok.test", 7, b"x".hex()], ["tcp", "other.test", 7, b"x".hex()], ["tcp", "169.254.169.254", 80]])
    assert pool(b, "codex")["hits"] == hits + 1
    worked(got[0]), refused(got[1]), refused(got[2])
    log = lab.netlog()
    assert len({row["sandbox"] for row in log}) == 1 and log[0]["seq"] == 1
    denied(log, NOT_LISTED, event="dns", name="other.test")
    b.ak("audit", "verify")
    r = lab.run([*CODEX, "--", "sh", "-c", "getent hosts evil.test"])
    assert "denied" in r.err and "network log" in r.err, r


def test_no_sandbox_is_used_twice(boxes):
    b, lab = boxes, boxes.lab
    warm(b, "native", 2)
    mark = "sh", "-c", "echo $(ls /tmp ~ /dev/shm 2>/dev/null | grep -c mark); touch /tmp/mark ~/mark /dev/shm/mark"
    for _ in range(6):
        assert lab.run(["--", *mark]).out.strip() == "0"
        wait_for(lambda: pool(b, "native")["warm"] >= 1, 20)
    row = pool(b, "native")
    assert row["hits"] >= 5 and row["in_use"] == 0, row


def test_what_does_not_fit_takes_the_cold_path_without_a_word(boxes):
    b, lab = boxes, boxes.lab
    warm(b, "native")
    for args in (["--no-network"], ["--profile", "restrictive"], ["--keep", "--quiet"]):
        r = lab.run([*args, "--", "sh", "-c", "echo ok"])
        assert r.code == 0 and r.out == "ok\n", r
    # A bad flag is told as ever, and a mode without a warm one just works.
    r = lab.run(["--allow-host", "*", "true"])
    assert r.code == 2 and r.err.startswith("agentkernel: "), r
    r = lab.run(["--compatibility-mode", "gemini", "sh", "-c", "echo ok"])
    assert r.code == 0 and r.out == "ok\n" and r.err == "", r


def test_what_the_pool_cannot_take_is_planned_and_told_once(boxes):
    b, lab = boxes, boxes.lab
    warm(b, "native")
    misses = pool(b, "gemini")["misses"]
    bind = "import socket; socket.socket(socket.AF_UNIX).bind('%s/sock')" % lab.path("project")
    assert lab.host([PYTHON, "-c", bind]).code == 0
    r = lab.run(["--compatibility-mode", "gemini", "--", "sh", "-c", "echo ok"])
    assert r.code == 0 and r.out == "ok\n" and r.err.count("the project holds 1 socket") == 1 == len(r.err.splitlines()), r
    assert pool(b, "gemini")["misses"] == misses + 1


def test_signals_and_leaving_end_a_warm_run(boxes):
    b, lab = boxes, boxes.lab
    for sig, code in ((2, 42), (15, 42)):
        warm(b, "native")
        p = lab.start(["--", "sh", "-c", "trap 'exit 42' INT TERM; echo up; while :; do sleep 0.05; done"])
        p.wait_output(b"up\n")
        p.signal(sig)
        assert p.wait(10).code == code
    warm(b, "native")
    p = lab.start(["--", "sh", "-c", "echo up; sleep 1000"])
    p.wait_output(b"up\n")
    p.signal(9)
    p.wait()
    wait_for(lambda: pool(b, "native")["in_use"] == 0)


STUBBORN = "import os,signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, (2, 15))\nos.write(1, b'up\\n')\nwhile signal.sigwait((2, 15)): os.write(1, b'no\\n')"


@pytest.mark.parametrize("signals", [(2, 2), (15,)])
def test_a_stubborn_command_ends_as_in_a_cold_run(boxes, signals):
    b, lab = boxes, boxes.lab
    warm(b, "native")
    p = lab.start(["--", PYTHON, "-c", STUBBORN])
    p.wait_output(b"up\n")
    assert pool(b, "native")["in_use"] == 1
    for sig in signals:
        p.signal(sig)
        p.wait_output(b"no\n") if sig == signals[0] else None
    r = p.wait(15)
    assert r.code == 137 and r.out.count("no\n") == 1, r  # it got the first signal; the second Ctrl-C kills it, as nothing else would
    assert r.seconds >= 5 or signals == (2, 2), r  # the grace period after SIGTERM
    wait_for(lambda: pool(b, "native")["in_use"] == 0)


def run_folders(b):
    return [n for n in b.lab.host(["ls", b.lab.path("state") + "/agentkernel/runs"]).out.split() if n.startswith("run-")]


def start_and_hold(b, *args):
    """A run that has its warm sandbox and waits for a gateway that does not answer; and that gateway's pid."""
    warm(b, "native")
    gateway = str(b.status()["gateway"]["pid"])
    b.lab.host(["kill", "-STOP", gateway])
    p = b.lab.start([*args])
    wait_for(lambda: pool(b, "native")["in_use"] == 1)
    return p, gateway


def test_a_signal_before_the_start_is_the_end_of_a_warm_run(boxes):
    b, lab = boxes, boxes.lab
    p, gateway = start_and_hold(b, "--", "echo", "ran")
    p.signal(2)
    r = p.wait(10)
    lab.host(["kill", "-CONT", gateway])
    assert r.code == 130 and r.out == "" and r.err == "agentkernel: interrupted before the command ran\n", r
    assert not run_folders(b)
    assert lab.run(["echo", "ran"]).out == "ran\n"


def test_a_warm_run_whose_gateway_dies_first_is_a_cold_one(boxes):
    b, lab = boxes, boxes.lab
    p, gateway = start_and_hold(b, "--json", "--", "sh", "-c", "echo ran; echo too >&2")
    lab.host(["kill", "-KILL", gateway])
    r = p.wait(30)
    got = json.loads(r.out)
    assert r.code == 0 and r.err == "" and got["stdout"] == "ran\n" and got["stderr"] == "too\n", r
    assert len(run_folders(b)) == 1
    assert lab.ak(["audit", "verify"]).code == 0


def test_a_warm_run_whose_daemon_dies_first_is_a_cold_one(boxes):
    b, lab = boxes, boxes.lab
    p, _ = start_and_hold(b, "--", "sh", "-c", "echo $AGENTKERNEL_SANDBOX")
    b.kill_daemon()
    r = p.wait(30)
    assert r.code == 0 and r.err == "", r
    left = run_folders(b)  # the daemon could not remove its own any more
    assert r.out.strip() in left and len(left) == 2, (r, left)


def test_a_caller_who_leaves_before_the_start_takes_a_warm_run_along(boxes):
    b, lab = boxes, boxes.lab
    p, gateway = start_and_hold(b, "--", "echo", "ran")
    p.signal(9)
    p.wait()
    lab.host(["kill", "-CONT", gateway])
    wait_for(lambda: pool(b, "native")["in_use"] == 0)
    assert not run_folders(b)


def test_a_daemon_that_dies_takes_its_jobs_and_the_next_run_is_cold(boxes):
    b, lab = boxes, boxes.lab
    warm(b, "native")
    p = lab.start(["--", "sh", "-c", "echo up; sleep 1000"])
    p.wait_output(b"up\n")
    b.kill_daemon()
    r = p.wait(20)
    assert r.code == 137 and "daemon" in r.err, r
    assert lab.run(["true"]).code == 0


def test_a_hundred_at_once_none_failing(boxes):
    b, lab = boxes, boxes.lab
    warm(b, "native", 8)
    procs = [lab.start(["--", "sh", "-c", "echo %d" % i]) for i in range(100)]
    for i, p in enumerate(procs):
        r = p.wait(120)
        assert r.code == 0 and r.out == "%d\n" % i, r
