"""The guests of one daemon are restored from one copy of the saved guest: what none of them has written is in memory once, and none can change it for the next."""
import json

import pytest
from guests import SLOW, VM, prepare
from lab import PYTHON, wait_for
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
