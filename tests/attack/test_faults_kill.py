"""Faults: SIGKILL of supervisor, setup child, init or gateway at exact system calls, from the first of the start to the last of the end. After each: nothing left, nothing leaked out;
afterwards the next run works. The calls are spread evenly over what each process makes, each at another place of its part every time; AK_SEED repeats them."""
import json
import os
import random
import subprocess

import pytest
from expect import CODEX, allow, missing, worked
from lab import HERE

KILLS = int(os.environ.get("AK_KILLS", "24"))  # of each process
VICTIMS = ["supervisor", "setup", "init", "gateway"]
BUSY = "echo up; while :; do : 2>/dev/null >/dev/tcp/11.66.0.1/7; : 2>/dev/null >/dev/tcp/11.1.0.5/7; done"


def stepper(lab):
    tool = os.path.join(lab.folder, "stepper")
    if not os.path.exists(tool):
        subprocess.run(["cc", "-O1", "-w", "-o", tool, os.path.join(HERE, "stepper.c")], check=True)
    return tool


def step(lab, who, call, args=()):
    r = lab.spawn([stepper(lab), who, str(call), lab.binary, "run", *(args or allow("ok.test:7")), "--", "bash", "-c", BUSY], env=lab.env()).wait(60)
    if r.code == 77:
        missing("this host forbids ptrace")
    try:
        return r.json(), r.err
    except ValueError:
        raise AssertionError(repr(r)) from None


def who_is(procs, victim):
    """The name that the stepper has for it: who made it, and as which."""
    if victim == "gateway":
        return next(who for who, comm, _ in procs if comm == "ak-gateway")
    if victim == "init":  # made by the setup child, who may have asked for id ranges before
        return next(who for who, comm, _ in procs if who.startswith("0.1.") and comm not in ("newuidmap", "newgidmap"))
    return {"supervisor": "0", "setup": "0.1"}[victim]


@pytest.mark.parametrize("victim", VICTIMS)
def test_faults_killed_at_every_step(any_user, victim):
    lab = any_user
    seed = int(os.environ.get("AK_SEED") or int.from_bytes(os.urandom(3), "big"))
    places = random.Random(seed)
    dry, _ = step(lab, "0", 0)
    who = who_is(dry["procs"], victim)
    calls = next(n for name, _, n in dry["procs"] if name == who)
    killed = 0
    for turn in range(2 * KILLS):
        call = 1 + int((turn + places.random()) % KILLS / KILLS * calls)
        out, err = step(lab, who, call)
        where = "AK_SEED=%d: %s killed at call %d of %d: %r %s" % (seed, victim, call, calls, out, err)
        assert not out["stuck"], "it hangs: " + where
        assert out["code"] != 0, "it claims success: " + where
        left = lab.leaks()
        assert left == "", where + "\n" + left
        killed += out["killed"]
        if killed == KILLS:
            break
        if not out["killed"]:  # a run makes fewer calls when the machine lets it wait less
            calls = max(1, min(calls, out["calls"]))
    assert killed == KILLS, (seed, killed, calls)
    assert lab.arrived("11.66.0.1") == 0 and lab.strangers("11.1.0.5") == [], lab.strangers()
    worked(lab.probe(CODEX + ["--allow-host", "ok.test"], [["tls", "ok.test", 443, "ok.test"]])[0])
    r = lab.ak(["audit", "verify"])
    assert r.code == 0, r


def test_faults_what_a_killed_run_left_in_its_log_verifies(any_user):
    """Half-written lines are repaired or attested, and the next run goes on."""
    lab = any_user
    dry, _ = step(lab, "0", 0)
    who = who_is(dry["procs"], "gateway")
    calls = next(n for name, _, n in dry["procs"] if name == who)
    for call in (calls // 2, calls // 3):
        step(lab, who, call)
        for line in lab.ak(["network", "log", "--last", "--json"]).out.splitlines():
            json.loads(line)
    assert lab.ak(["audit", "verify"]).code == 0
