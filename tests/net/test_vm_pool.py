"""`daemon prewarm --backend vm`: guests that were restored before their job is known. Each serves one job, as a cold start would, and is destroyed."""
import json
import os
import platform

import pytest
from expect import CODEX, NATIVE, find, refused, worked
from guests import SLOW, VM, prepare, run
from lab import PYTHON, wait_for
from persist import Boxes

pytestmark = pytest.mark.xdist_group("vm")
WHO = ("import os,socket,time,fcntl; s=socket.socket(); q=lambda n: fcntl.ioctl(s, n, b'eth0'.ljust(256, b'\\0'))\n"
       "print(os.uname().release, socket.gethostname(), open('/proc/sys/kernel/random/boot_id').read().strip(), os.urandom(16).hex(), q(0x8927)[18:24].hex(), q(0x8915)[20:24].hex(), time.time())")


@pytest.fixture
def pool(any_user):
    b = Boxes(prepare(any_user))
    yield b
    b.close()


@pytest.fixture
def pool_user(lab):
    with lab.acting_as("user"):
        b = Boxes(prepare(lab))
        yield b
        b.close()


def warm(b, mode, count=1, backend="vm"):
    b.ak("daemon", "prewarm", "--mode", mode, "--backend", backend, "--count", str(count), timeout=SLOW)


def row(b, mode):
    return next(r for r in b.status()["pool"] if r["mode"] == mode)


def test_a_warm_guest_runs_a_job_with_its_project_policy_and_names(pool):
    b, lab = pool, pool.lab
    with open(lab.path("project", "before"), "w") as f:
        f.write("from outside")
    warm(b, "codex")
    r = run(lab, [*CODEX, "-e", "COLOUR=blue", "--", "sh", "-c", "uname -r; hostname; cat /etc/hostname; cat before; echo inside > after; echo; pwd; echo $COLOUR; touch /x 2>/dev/null || echo read-only; exit 7"], cwd=lab.path("project"))
    out = r.out.split("\n")
    assert r.code == 7 and out[0] != platform.release() and out[1] == out[2] and out[1].startswith("run-"), r
    assert out[3:] == ["from outside", lab.path("project"), "blue", "read-only", ""], r
    with open(lab.path("project", "after")) as f:
        assert f.read() == "inside\n"
    assert os.stat(lab.path("project", "after")).st_uid == os.stat(lab.path("project")).st_uid
    assert row(b, "codex")["hits"] == 1 and json.loads(lab.ak(["list", "-a", "--json"]).out)[0]["backend"] == "vm"
    warm(b, "codex")
    got = lab.probe([*VM, *CODEX, "--allow-host", "ok.test"], [["tls", "ok.test", 443, "ok.test", "/p", lab.ca], ["resolve", "evil.test"], ["tcp", "11.66.0.2", 443], ["tcp", "169.254.169.254", 80]],
                    timeout=SLOW)
    worked(got[0])
    for one in got[1:]:
        refused(one)
    assert row(b, "codex")["hits"] == 2 and lab.arrived("11.66.0.2") == 0
    log = [json.loads(line) for line in lab.ak(["network", "log", "--last", "--json"]).out.splitlines()]
    assert find(log, verdict="allow", sni="ok.test") and find(log, verdict="deny", name="evil.test"), log


def test_two_warm_guests_and_a_cold_one_have_nothing_in_common(pool_user):
    b, lab = pool_user, pool_user.lab
    warm(b, "native", 2)
    rows = [run(lab, [*NATIVE, "--", PYTHON, "-c", WHO]).out.split() for _ in range(2)]
    assert row(b, "native")["hits"] == 2
    rows.append(run(lab, [*NATIVE, "--memory", "512M", "--", PYTHON, "-c", WHO]).out.split())
    assert row(b, "native")["hits"] == 2, "a job with a limit of memory takes none"
    assert all(len(r) == 7 for r in rows), rows
    for i in (1, 2, 3, 4, 5):
        assert len({r[i] for r in rows}) == 3, (i, rows)
    now = [float(r[6]) for r in rows]
    assert now == sorted(now) and now[2] - now[0] < 3 * SLOW and abs(now[2] - float(lab.host(["date", "+%s"]).out)) < SLOW, "the clock of the host"


def test_what_a_warm_guest_cannot_take_starts_cold(pool_user):
    b, lab = pool_user, pool_user.lab
    warm(b, "native")
    os.mkdir(lab.path("project", "more"), 0o755)
    with open(lab.path("project", "more", "f"), "w") as f:
        f.write("mounted\n")
    for options in (["--mount", lab.path("project", "more") + ":/usr/more"], ["--vcpus", "1"]):
        r = run(lab, [*NATIVE, *options, "--", "sh", "-c", "uname -r; cat /usr/more/f"])
        assert r.out.split()[0] != platform.release() and ("mounted" in r.out) == ("--mount" in options), r
    r = lab.run([*NATIVE, "--", "uname", "-r"])
    assert r.out.strip() == platform.release(), "a run in namespaces takes no guest"
    assert row(b, "native")["hits"] == 0 and row(b, "native")["warm"] == 1
    warm(b, "native", backend="ns")
    assert lab.run([*NATIVE, "--", "uname", "-r"]).out.strip() == platform.release() and row(b, "native")["hits"] == 1
    assert run(lab, [*NATIVE, "--", "uname", "-r"]).out.strip() != platform.release(), "a guest is never replaced by a namespace"


def machines(b):
    """The monitors of the daemon's own guests: other tests may have some, too."""
    rows = {}
    for line in b.lab.host(["ps", "-eo", "pid=,ppid=,args="]).out.splitlines():
        pid, parent, *args = line.split(None, 2)
        rows[pid] = parent, args[0] if args else ""

    def is_ours(pid):
        return pid == daemon or (pid in rows and is_ours(rows[pid][0]))
    daemon = str(b.pid())
    return [pid for pid, (_, args) in rows.items() if "/qemu-system" in args and is_ours(pid)]


def test_a_guest_that_died_while_it_waited_is_replaced_silently(pool_user):
    b, lab = pool_user, pool_user.lab
    warm(b, "native")
    found = machines(b)
    assert len(found) == 1, found
    lab.host(["kill", "-9", found[0]])
    r = run(lab, [*NATIVE, "--", "uname", "-r"])
    assert r.code == 0 and r.out.strip() != platform.release() and "virtual machine" not in r.err, r


def test_the_monitor_of_a_guest_knows_no_secret_and_ends_with_the_daemon(pool_user):
    b, lab = pool_user, pool_user.lab
    warm(b, "codex")
    p = lab.spawn([lab.binary, "run", *VM, *CODEX, "-e", "TOKEN=s3cr3t", "--", "sh", "-c", "touch begun; sleep 1000"], env=lab.env(), cwd=lab.path("project"))
    wait_for(lambda: os.path.exists(lab.path("project", "begun")), SLOW)
    assert row(b, "codex")["hits"] == 1
    found = machines(b)
    seen = [lab.host(["cat", "/proc/%s/%s" % (pid, what)]).out for pid in found for what in ("environ", "cmdline")]
    assert seen and any("qemu" in text for text in seen) and not any("s3cr3t" in text or "sleep" in text for text in seen)
    p.signal(15)
    p.wait(30)
    b.ak("daemon", "stop")
    wait_for(lambda: lab.host(["sh", "-c", "cat /proc/%s/cmdline 2>/dev/null" % "/cmdline /proc/".join(found)]).out == "", 30)


def test_the_configuration_chooses_the_backend(pool_user):
    b, lab = pool_user, pool_user.lab
    assert run(lab, ["--no-network", "--", "true"]).code == 0  # a guest is saved
    with open(lab.path("project", "agentkernel.toml"), "w") as f:
        f.write("[daemon.agents.codex]\nmin_warm = 1\nbackend = 'vm'\n")
    assert lab.ak(["trust", "--yes"], cwd=lab.path("project")).code == 0
    b.ak("daemon", "start", cwd=lab.path("project"))
    wait_for(lambda: row(b, "codex")["warm"] == 1, SLOW)
    r = run(lab, [*CODEX, "--", "uname", "-r"], cwd=lab.path("project"))
    assert r.out.strip() != platform.release() and row(b, "codex")["hits"] == 1, r
    with open(lab.path("project", "agentkernel.toml"), "w") as f:
        f.write("[daemon.agents.codex]\nbackend = 'qemu'\n")
    r = lab.ak(["daemon", "start"], cwd=lab.path("project"))
    assert r.code == 2 and "not one of" in r.err, r


def test_a_warm_guest_that_ends_is_told_and_debug_takes_none(pool_user):
    b, lab = pool_user, pool_user.lab
    warm(b, "codex")
    r = run(lab, ["--debug", *CODEX, "--", "true"], cwd=lab.path("project"))
    assert r.code == 0 and row(b, "codex")["hits"] == 0, r
    p = lab.start([*VM, *CODEX, "--", "sh", "-c", "echo up; sleep 1000"], cwd=lab.path("project"))
    p.wait_output(b"up\n", SLOW)
    assert row(b, "codex")["hits"] == 1
    assert lab.spawn(["pkill", "-9", "-f", "qemu-system-x86_64.*/proc/self/fd"], who="user").wait().code == 0
    r = p.wait(SLOW)
    assert r.code == 137 and "agentkernel: the virtual machine has ended" in r.err, r
