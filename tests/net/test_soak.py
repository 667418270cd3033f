"""Start, exec and stop over and over while parts of ours are killed at random: afterwards everything works, and nothing has grown or is left.

AK_SOAK_CYCLES says how many cycles (`make soak`: 2,000), AK_SOAK_SEED repeats a run."""
import json
import os
import random
import time

from lab import PYTHON, wait_for

CYCLES = int(os.environ.get("AK_SOAK_CYCLES") or 150)
SEED = int(os.environ.get("AK_SOAK_SEED") or random.SystemRandom().randrange(1 << 32))
MARK = "soak%d" % os.getpid()  # the control groups of all are in one place
NAMES = ["%s-%d" % (MARK, i) for i in range(5)]
KILL_EVERY = 8  # cycles, on average
VICTIMS = ("daemon", "gateway", "supervisor", "init")
ECHO = ["tcp", "ok.test", 7, b"x".hex()]
MEMORY_SLACK_KIB = 2048

# What there is of ours on the lab's host, as numbers and names that can be compared.
LOOK = """
import json, os
kinds = ('mnt', 'net', 'pid', 'user', 'ipc', 'uts', 'cgroup')
seen, procs = {k: set() for k in kinds}, {}
def descriptors(pid):
    try:
        return len(os.listdir('/proc/%s/fd' % pid))
    except OSError:  # the gateway lets no one look but the host's own root
        return -1
for pid in filter(str.isdigit, os.listdir('/proc')):
    try:
        st = dict(l.rstrip().split(':', 1) for l in open('/proc/%s/status' % pid))
        exe = os.path.basename(os.readlink('/proc/%s/exe' % pid)) if st['State'].split()[0] != 'Z' else ''
        for k in kinds:
            seen[k].add(os.readlink('/proc/%s/ns/%s' % (pid, k)))
    except (OSError, KeyError):
        continue
    if exe.startswith('agentkernel'):
        procs[pid] = {'parent': st['PPid'].strip(), 'name': st['Name'].strip(), 'inner': [int(x) for x in st['NSpid'].split()],
                      'anon': int(st.get('RssAnon', '0').split()[0]), 'fds': descriptors(pid)}
groups = sum(1 for _, dirs, _ in os.walk('/sys/fs/cgroup') for d in dirs if 'MARK' in d)
print(json.dumps({'procs': procs, 'namespaces': {k: len(v) for k, v in seen.items()}, 'groups': groups,
                  'mounts': sum(1 for _ in open('/proc/self/mountinfo'))}))
"""


def look(b):
    return b.lab.host([PYTHON, "-c", LOOK.replace("MARK", MARK)]).json()


def settled(b):
    """What is comparable while nothing runs but the daemon and its gateway."""
    now, status = look(b), b.status()
    pids = [str(status["pid"]), str(status["gateway"].get("pid"))]
    if sorted(now["procs"]) != sorted(pids):
        return None
    return {"namespaces": now["namespaces"], "groups": now["groups"], "mounts": now["mounts"], "fds": [now["procs"][p]["fds"] for p in pids],
            "anon": [now["procs"][p]["anon"] for p in pids], "files": files(b)}


def files(b):
    """The folders of the runtime and the state, but for what a log is allowed to grow by."""
    r = b.lab.host(["sh", "-c", 'find "$XDG_RUNTIME_DIR" "$XDG_STATE_HOME" 2>/dev/null | grep -v "jsonl" | sort'], env=b.lab.env())
    return r.out.split("\n")


def differences(before, after):
    if isinstance(before, list):
        return "gone %s, new %s" % (sorted(set(before) - set(after)), sorted(set(after) - set(before)))
    return "before %s, after %s" % (before, after)


def victim(b, kind):
    procs = look(b)["procs"]
    inits = [pid for pid, p in procs.items() if len(p["inner"]) > 1 and p["inner"][-1] == 1]
    pids = {"daemon": [pid for pid, p in procs.items() if p["name"] == "ak-daemon"],
            "gateway": [pid for pid, p in procs.items() if p["name"] == "ak-gateway"],
            "supervisor": [procs[pid]["parent"] for pid in inits if procs[pid]["parent"] in procs],
            "init": inits}[kind]
    return sorted(pids)


def recover(b):
    """The daemon is started again where it is gone, and what still runs is stopped."""
    b.revive()
    wait_for(lambda: b.status()["gateway"]["state"] == "up", 30)
    for name, row in b.list().items():
        if row["status"] != "stopped":
            assert b.lab.ak(["stop", name]).code in (0, 1)
    wait_for(lambda: all(row["status"] == "stopped" for row in b.list().values()), 30)


def calm_cycle(b, rng):
    name = rng.choice(NAMES)
    b.ak("start", name)
    assert b.sh(name, "echo %s; exit 0" % name) == name + "\n"
    b.ak("stop", name)


def stormy_cycle(b, rng, killed):
    """Two sandboxes at work while something dies; every command ends, and with a code of ours or the command's."""
    lab, names = b.lab, rng.sample(NAMES, 2)
    b.ak("start", names[0])
    going = [lab.spawn([lab.binary, "exec", names[0], "sleep", "0.05"], env=lab.env()), lab.spawn([lab.binary, "start", names[1]], env=lab.env())]
    kind = rng.choice(VICTIMS)
    pids = victim(b, kind)
    until = time.monotonic() + rng.random() * 0.03
    while time.monotonic() < until:
        pass
    if pids and lab.host(["kill", "-9", rng.choice(pids)]).code == 0:
        killed[kind] += 1
    for p in going:
        code = p.wait(60).code
        assert code in (0, 1, 125, 137), (kind, code, p.output)
    recover(b)


def test_soak(boxes):
    b, rng, killed = boxes, random.Random(SEED), dict.fromkeys(VICTIMS, 0)
    print("soak: seed %d, %d cycles" % (SEED, CYCLES))
    for name in NAMES:
        b.create(name, "--compatibility-mode", "codex", "--allow-host", "ok.test:7")
        b.ak("start", name)
        assert "ok" in b.probe(name, [ECHO])[0]
        b.ak("stop", name)
    b.ak("daemon", "stop")
    b.ak("daemon", "start")
    wait_for(lambda: b.status()["gateway"]["state"] == "up")
    calm_cycle(b, rng)
    before = wait_for(lambda: settled(b), 30)
    began = time.monotonic()
    for cycle in range(CYCLES):
        if rng.randrange(KILL_EVERY):
            calm_cycle(b, rng)
        else:
            stormy_cycle(b, rng, killed)
    took = time.monotonic() - began
    recover(b)
    after = wait_for(lambda: settled(b), 30)
    print("soak: %d cycles in %.0f s, killed %s\nbefore %s\nafter  %s" % (
        CYCLES, took, killed, *(json.dumps({k: v for k, v in s.items() if k != "files"}) for s in (before, after))))
    for key in ("namespaces", "groups", "mounts", "files"):
        try:
            wait_for(lambda: settled(b)[key] == before[key], 30)
        except AssertionError:
            raise AssertionError("%s: %s" % (key, differences(before[key], settled(b)[key]))) from None
    assert all(z <= a + 2 for a, z in zip(before["fds"], after["fds"])), (before["fds"], after["fds"])
    assert all(z <= a + MEMORY_SLACK_KIB for a, z in zip(before["anon"], after["anon"])), (before["anon"], after["anon"])
    for name in NAMES:
        b.ak("start", name)
        wait_for(lambda: "ok" in b.probe(name, [ECHO])[0], 20)
    b.ak("audit", "verify")
