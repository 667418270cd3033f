"""`network selftest` holds as root and as an ordinary user, says so in a table and in JSON, and leaves nothing behind, also when it is killed."""
import json
import os
import re
import shutil
import signal
import subprocess
import time

import pytest
from lab import PATIENCE_S, ROOT, user_ids, wait_for

BINARY = os.path.abspath(os.environ.get("AK_BIN") or os.path.join(ROOT, "build", "agentkernel"))
pytestmark = pytest.mark.xdist_group("selftest")
# Rows of the catalogue that need nothing but this machine.
ROWS = set("a1 a2 a3 a4 a5 a6 a7 a8 b1 b2 b3 b4 b5 b6 b7 b8 b9 b10 b11 b12 b14 c1 c3 c9 c10 d1 d2 d3 d4 e1 e2 e3 e4 e5 e6 e7 e8 e9 f1 f2 f3 f4 f5 f6 f7 "
           "g1 g2 g3 g4 g6 g8".split())


@pytest.fixture(params=["user", "root"])
def start(request, tmp_path):
    """Start the self-test as that user, from a folder that anybody can read."""
    if request.param == "root" and os.geteuid() != 0:
        pytest.skip("the suite runs as an ordinary user")
    program = str(tmp_path / "agentkernel")
    shutil.copy(BINARY, program)
    who = {}
    if os.geteuid() == 0 and request.param == "user":
        uid, gid = user_ids()
        who = dict(user=uid, group=gid, extra_groups=[])

    def go(*args):
        return subprocess.Popen([program, "network", "selftest", *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd="/",
                                env={"PATH": "/usr/bin:/bin", "HOME": "/nonexistent"}, start_new_session=True, **who)
    go.program = program
    return go


def left_over(program):
    """Processes of the self-test: ours, and those of the sandboxes, which run a copy."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            exe = os.readlink("/proc/%s/exe" % pid)
        except OSError:
            continue
        if exe.split(" ")[0] in (program, "/project/agentkernel", "/tmp/project/agentkernel"):
            found.append((pid, exe))
    return found


def nothing_left(program):
    wait_for(lambda: left_over(program) == [], 5)


def test_selftest_every_row_holds(start):
    proc = start()
    out, err = proc.communicate(timeout=PATIENCE_S)
    assert proc.returncode == 0, out + err
    lines = out.splitlines()
    assert re.match(r"ROW +WHAT +RESULT +REASON", lines[0])
    assert {line.split()[0] for line in lines[1:] if re.match(r"[a-g]\d", line)} >= ROWS
    assert re.search(r"^\d+ passed, 0 failed", out, re.M), out
    nothing_left(start.program)


def test_selftest_json_is_one_object(start):
    proc = start("--json")
    out, err = proc.communicate(timeout=PATIENCE_S)
    data = json.loads(out)
    assert proc.returncode == 0 and data["ok"] is True and data["failed"] == 0, out + err
    assert data["passed"] + data["skipped"] == len(data["rows"]) and data["duration_ms"] > 0
    assert {row["row"] for row in data["rows"]} >= ROWS and all(row["vectors"] for row in data["rows"] if row["result"] == "passed")


def test_selftest_probe_tries_nothing_outside_of_its_sandbox(start):
    for args in ([], ["0"], ["1"], ["9"]):
        r = subprocess.run([start.program, "selftest-probe", *args], capture_output=True, text=True)
        assert r.returncode == 2 and r.stdout == "" and "runs only in its sandbox" in r.stderr, r


@pytest.mark.parametrize("sig", [signal.SIGINT, signal.SIGKILL, signal.SIGTERM])
def test_selftest_leaves_nothing_when_it_is_ended(start, sig):
    def world():
        with open("/proc/self/mountinfo") as f:
            mounts = f.read()
        return mounts, set(os.listdir("/sys/class/net"))
    before = world()
    for after_ms in (0, 5, 20, 60, 120, 250):
        proc = start()
        end = time.monotonic() + after_ms / 1000
        while time.monotonic() < end:
            pass
        proc.send_signal(sig)
        proc.communicate(timeout=PATIENCE_S)
        nothing_left(start.program)
    assert world() == before
    assert not os.path.exists("/tmp/project"), "a file outside of its own memory"
