"""g6: SIGKILL of the daemon, its gateway, a supervisor or a sandbox's init, at many moments: no network without a gateway, and nothing left."""
import random
import time

import pytest
from expect import TRYING, tries_again
from lab import PYTHON, wait_for

ECHO = ["tcp", "ok.test", 7, b"x".hex()]

TREE = """
import json, os
rows = {}
for pid in filter(str.isdigit, os.listdir('/proc')):
    try:
        st = dict(l.rstrip().split(':', 1) for l in open('/proc/%s/status' % pid))
        rows[int(pid)] = [int(st['PPid']), st['Name'].strip(), [int(x) for x in st['NSpid'].split()], open('/proc/%s/cmdline' % pid).read()]
    except OSError:
        pass
print(json.dumps(rows))
"""


def tree(lab):
    return {int(k): v for k, v in lab.host([PYTHON, "-c", TREE]).json().items()}


def init_pids(lab):
    """The pid 1s of sandboxes: alone in a pid namespace below the lab's."""
    return [pid for pid, row in tree(lab).items() if len(row[2]) > 1 and row[2][-1] == 1]


@pytest.mark.parametrize("victim", ["supervisor", "init"])
def test_g6_what_ends_a_sandbox_is_noticed_and_leaves_nothing(any_boxes, victim):
    b, lab = any_boxes, any_boxes.lab
    b.up("x", "--compatibility-mode", "codex", "--allow-host", "ok.test:7")
    b.up("other", "--compatibility-mode", "codex", "--allow-host", "ok.test:7")
    before = set(init_pids(lab))
    b.ak("stop", "x")
    b.ak("start", "x")
    init = (set(init_pids(lab)) - before).pop()
    pid = init if victim == "init" else tree(lab)[init][0]
    command = lab.spawn([lab.binary, "exec", "x", "sleep", "1000"], env=lab.env())
    wait_for(lambda: "sleep" in b.sh("x", "cat /proc/[0-9]*/comm"))
    lab.host(["kill", "-9", str(pid)])
    assert command.wait(10).code != 0
    wait_for(lambda: b.list()["x"]["status"] == "stopped")
    assert "ok" in b.probe("other", [ECHO])[0]
    b.ak("start", "x")
    assert "ok" in b.probe("x", [ECHO])[0]


def test_g6_random_kills_while_things_start_and_stop(boxes):
    """Forty cycles in which something of ours dies at a random moment; afterwards everything works and nothing is left."""
    b, lab = boxes, boxes.lab
    rng = random.Random(7)
    names = ["a", "b"]
    for name in names:
        b.create(name, "--compatibility-mode", "codex", "--allow-host", "ok.test:7")
    b.ak("daemon", "start")
    for cycle in range(40):
        verbs = [lab.spawn([lab.binary, verb, name], env=lab.env()) for name in names for verb in [rng.choice(["start", "stop"])]]
        end = time.monotonic() + rng.random() * 0.04
        while time.monotonic() < end:
            pass
        rows = tree(lab)
        ours = [p for p, row in rows.items() if ("agentkernel" in row[3] or row[1].startswith("ak")) and p not in [v.pid for v in verbs] and p > 2
                and "python" not in row[3]]
        if ours:
            lab.host(["kill", "-9", str(rng.choice(sorted(ours)))])
        for v in verbs:
            assert v.wait(60).code in (0, 1, 125), v.output
    b.revive()
    for name in names:
        if b.list()[name]["status"] != "running":
            b.ak("start", name)
        wait_for(lambda: "ok" in b.probe(name, [ECHO])[0], 20)
    b.ak("audit", "verify")


def test_g6_no_packet_leaves_without_a_gateway(any_boxes):
    b, lab = any_boxes, any_boxes.lab
    b.up("x", "--compatibility-mode", "native")
    p = lab.spawn([lab.binary, "exec", "x", PYTHON, "-c", TRYING], env=lab.env())
    p.wait_output(b"up\n")
    wait_for(lambda: lab.arrived("11.66.0.1") > 0)
    with b.without_daemon():
        lab.clear()
        tries_again(p)
        # The host's kernel may still say goodbye on connections of before; not one new attempt leaves.
        assert lab.syns() == 0 and p.code is None
        b.ak("daemon", "start")
    wait_for(lambda: lab.arrived("11.66.0.1") > 0)
    p.signal(2)
    p.signal(2)
    p.wait(10)
