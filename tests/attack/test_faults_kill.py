"""Faults: SIGKILL of supervisor, setup child, init or gateway at exact system calls, from the first of the start to the last of the end. After each: nothing left, nothing leaked out;
afterwards the next run works. The calls are spread evenly over what each process makes, from another offset each time; AK_SEED repeats them."""
import json
import os
import random
import subprocess

import conftest
import pytest
from expect import CODEX, allow, worked
from lab import HERE

KILLS = int(os.environ.get("AK_KILLS", "24"))  # of each process
VICTIMS = ["supervisor", "setup", "init", "gateway"]
BUSY = "echo up; while :; do : 2>/dev/null >/dev/tcp/11.66.0.1/7; : 2>/dev/null >/dev/tcp/11.1.0.5/7; done"


def stepper(lab):
    tool = os.path.join(lab.folder, "stepper")
    if not os.path.exists(tool):
        subprocess.run(["cc", "-O1", "-w", "-o", tool, os.path.join(HERE, "stepper.c")], check=True)
    return tool


def step(lab, index, call, args=()):
    r = lab.spawn([stepper(lab), str(index), str(call), lab.binary, "run", *(args or allow("ok.test:7")), "--", "bash", "-c", BUSY], env=lab.env()).wait(60)
    if r.code == 77:
        conftest.missing("this host forbids ptrace")
    try:
        return r.json(), r.err
    except ValueError:
        raise AssertionError(repr(r)) from None


def index_of(procs, victim):
    if victim == "gateway":
        return next(i for i, (name, _) in enumerate(procs) if name == "ak-gateway")
    others = [i for i, (name, _) in enumerate(procs) if name != "ak-gateway"]
    return others[VICTIMS.index(victim)]


@pytest.mark.parametrize("victim", VICTIMS)
def test_faults_killed_at_every_step(any_user, victim):
    lab = any_user
    seed = int(os.environ.get("AK_SEED") or int.from_bytes(os.urandom(3), "big"))
    dry, _ = step(lab, 0, 0)
    procs = dry["procs"]
    index = index_of(procs, victim)
    calls = procs[index][1]
    offset = random.Random(seed).randrange(1, max(2, calls // KILLS))
    killed = 0
    for call in range(offset, calls, max(1, calls // KILLS)):
        out, err = step(lab, index, call)
        killed += out["killed"]
        where = "AK_SEED=%d: %s killed at call %d of %d: %r %s" % (seed, victim, call, calls, out, err)
        assert not out["stuck"], "it hangs: " + where
        assert out["code"] != 0, "it claims success: " + where
        left = lab.leaks(timeout=5)
        assert left == "", where + "\n" + left
    # A run makes more calls the longer the machine lets it wait, so that the last steps may lie past its end.
    assert killed >= KILLS * 2 // 3, (seed, killed, calls)
    assert lab.arrived("11.66.0.1") == 0 and lab.strangers("11.1.0.5") == [], lab.strangers()
    worked(lab.probe(CODEX + ["--allow-host", "ok.test"], [["tls", "ok.test", 443, "ok.test"]])[0])
    r = lab.ak(["audit", "verify"])
    assert r.code == 0, r


def test_faults_what_a_killed_run_left_in_its_log_verifies(any_user):
    """Half-written lines are repaired or attested, and the next run goes on."""
    lab = any_user
    dry, _ = step(lab, 0, 0)
    index = index_of(dry["procs"], "gateway")
    for call in (dry["procs"][index][1] // 2, dry["procs"][index][1] // 3):
        step(lab, index, call)
        for line in lab.ak(["network", "log", "--last", "--json"]).out.splitlines():
            json.loads(line)
    assert lab.ak(["audit", "verify"]).code == 0
