"""The guests of one daemon are restored from one copy of the saved guest: what none of them has written is in memory once, and none can change it for the next."""
import json
import os
import subprocess

import pytest
from expect import missing
from guests import SLOW, VM, prepare
from lab import PYTHON, ROOT, wait_for
from persist import Boxes

pytestmark = pytest.mark.xdist_group("vm")

# The daemon's sealed memory files; for each, the processes that map it, with what they share and what is their own (KiB), and what comes of writing to it.
LOOK = r"""
import json, mmap, os, re, sys
def number(pid, path):
    try: return os.stat("/proc/%s/fd/%s" % (pid, path)).st_ino if os.readlink("/proc/%s/fd/%s" % (pid, path)).startswith("/memfd:memory") else None
    except OSError: return None
def rows(ino):
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try: text = open("/proc/%s/smaps" % pid).read()
        except OSError: continue
        for part in re.split(r"^(?=[0-9a-f]+-[0-9a-f]+ )", text, flags=re.M):
            if re.match(r"\S+ \S+ \S+ \S+ %d +/memfd:memory" % ino, part):
                kib = lambda word: sum(int(n) for n in re.findall(r"^%s_(?:Clean|Dirty): +(\d+)" % word, part, re.M))
                yield {"pid": int(pid), "shared": kib("Shared"), "own": kib("Private")}
def tries(path):
    fd = os.open(path, os.O_RDWR)
    for what in (lambda: os.pwrite(fd, b"x", 0), lambda: os.ftruncate(fd, 0), lambda: mmap.mmap(fd, 4096, mmap.MAP_SHARED)):
        try: what(); yield "done"
        except OSError as e: yield e.strerror
daemon = sys.argv[1]
files = {number(daemon, n): n for n in os.listdir("/proc/%s/fd" % daemon)}
found = []
for ino, n in files.items():
    try: found += [{"guests": list(rows(ino)), "writes": list(tries("/proc/%s/fd/%s" % (daemon, n)))}] if ino else []
    except FileNotFoundError: pass  # the daemon has just let it go
print(json.dumps(found))
"""


@pytest.fixture
def boxes(lab):
    with lab.acting_as("user"):
        b = Boxes(prepare(lab))
        yield b
        b.close()


def look(b):
    return json.loads(b.lab.host([PYTHON, "-c", LOOK, str(b.pid())]).out)


def test_guests_share_one_copy_that_nobody_can_write(boxes):
    b = boxes
    for name in ("one", "two"):
        b.ak("create", name, *VM, "--no-network", timeout=SLOW)
        b.ak("start", name, timeout=SLOW)
    b.ak("daemon", "prewarm", "--mode", "codex", "--backend", "vm", "--count", "1", timeout=SLOW)
    found = look(b)
    assert len(found) == 1 and len({g["pid"] for g in found[0]["guests"]}) == 3, found
    assert all(g["shared"] > 8 * 1024 for g in found[0]["guests"]), found
    assert found[0]["writes"] == ["Operation not permitted"] * 3, found
    assert b.ak("exec", "two", "--", "echo", "well", timeout=SLOW).out == "well\n"


def test_the_copy_is_let_go_with_the_last_guest(boxes):
    b = boxes
    b.ak("create", "one", *VM, "--no-network", timeout=SLOW)
    b.ak("start", "one", timeout=SLOW)
    assert len(look(b)) == 1
    b.ak("stop", "one", timeout=SLOW)
    wait_for(lambda: look(b) == [], 30)


# ---- what a guest may use, and what is kept of saved guests ----

TOUCH = r"""
have = {line.split(":")[0]: int(line.split()[1]) << 10 for line in open("/proc/meminfo")}
n = have["MemAvailable"] * 9 // 10
memory = bytearray(n)
for i in range(0, n, 4096): memory[i] = 1
print(n * 100 // (512 << 20))
"""


def test_a_guest_may_use_all_the_memory_that_it_was_given(tmp_path):
    """Outside of the lab, where root can write a control group, so that the limit is in force."""
    if os.geteuid():
        pytest.skip("the suite runs as an ordinary user")
    if not os.path.exists("/usr/bin/qemu-system-x86_64"):
        missing("no QEMU on this host")
    env = {"PATH": os.environ["PATH"], "AGENTKERNEL_DATA_DIR": os.environ.get("AGENTKERNEL_DATA_DIR", ROOT)}
    env.update({name: str(tmp_path) for name in ("HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME")})
    command = [os.path.abspath(os.environ.get("AK_BIN") or os.path.join(ROOT, "build", "agentkernel")), "run", *VM, "--memory", "512M", "--no-network", "--", PYTHON, "-c", TOUCH]
    r = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=env, check=False)
    assert r.returncode == 0 and int(r.stdout) > 50, r
    if "memory limit off" in r.stderr:
        missing("no writable control group")


PLANT = r"""
import os, sys, time
place, now = sys.argv[1], time.time()
def put(name, made, used, complete=True):
    os.mkdir(place + "/" + name, 0o700)
    if complete:
        open(place + "/" + name + "/complete", "w").close()
        os.utime(place + "/" + name + "/complete", (made, made))
    os.utime(place + "/" + name, (used, used))
for i in range(12): put("%032x" % i, now - 3600, now - 60 * i)
put("a" * 32, now - 90000, now)
put("b" * 32 + ".new", now, now, complete=False)
put("c" * 32, now, now, complete=False)
put("not-a-template", now - 90000, now - 90000)
"""


def test_saved_guests_that_nobody_uses_go_when_a_new_one_is_made(lab):
    with lab.acting_as("user"):
        place = lab.path("state", "agentkernel", "vm")
        assert lab.spawn(["sh", "-c", "mkdir -p '%s' && exec %s -c \"$0\" '%s'" % (place, PYTHON, place), PLANT]).wait().code == 0
        r = lab.run([*VM, "--memory", "150M", "--no-network", "--", "true"], timeout=SLOW)
        assert r.code == 0, r
        left = lab.host(["ls", place]).out.split()
        old = ["%032x" % i for i in range(12)]
        assert [name for name in old if name in left] == old[:8], "the last used of those that are not too old"
        assert not {"a" * 32, "b" * 32 + ".new", "c" * 32} & set(left) and "not-a-template" in left, left
        new = set(left) - set(old) - {"not-a-template"}
        assert len([name for name in new if len(name) == 32]) == 1, left
        made = next("%s/%s" % (place, name) for name in new if len(name) == 32)
        assert lab.host(["touch", "-d", "@1", made]).code == 0
        assert lab.run([*VM, "--memory", "150M", "--no-network", "--", "true"], timeout=SLOW).code == 0
        assert int(lab.host(["stat", "-c", "%Y", made]).out) > 1, "a use is remembered"


def test_a_guest_tells_that_the_process_limit_was_reached(lab):
    forks = "import os,signal\ntry:\n while True:\n  if os.fork() == 0: signal.pause()\nexcept OSError: raise SystemExit(9)"
    with lab.acting_as("user"):
        prepare(lab)
        r = lab.run([*VM, "--pids", "20", "--no-network", "--", PYTHON, "-c", forks], timeout=SLOW)
        assert r.code == 9 and "the sandbox reached its process limit (--pids)" in r.err, r
        r = lab.run([*VM, "--pids", "20", "--no-network", "--", "true"], timeout=SLOW)
        assert r.code == 0 and "process limit" not in r.err, r
