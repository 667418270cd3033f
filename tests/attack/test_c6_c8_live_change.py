"""c6: a revoked host's flow is cut; c7: an unrelated rule stalls nothing and forgets nothing; c8: 100,000 answers; c12: nothing is inherited."""
import json
import os
import re

from expect import CUT, INSIDE, find, refused, worked
from lab import PYTHON, wait_for
from persist import FLOW, TELL, open_flow


def test_c6_every_way_to_revoke_cuts_the_flow_concerned(boxes):
    b, lab = boxes, boxes.lab
    start = ["--compatibility-mode", "codex", "--allow-host", "ok.test:7", "--allow-host", "*.wild.test:7", "--allow-host", "other.test:7"]
    b.up("x", *start)
    ways = [(["--remove", "ok.test:7"], "default"), (["--block-host", "ok.test:7"], "flags: ok.test:7"), (["--block-cidr", "11.1.0.5/32"], "flags: 11.1.0.5/32"),
            (["--reset", "--allow-host", "other.test:7"], "default")]
    with b.holding("x", FLOW) as (proc, do):
        for i, (way, rule) in enumerate(ways):
            b.ak("network", "policy", "x", "--reset", "--allow-host", "ok.test:7", "--allow-host", "*.wild.test:7", "--allow-host", "other.test:7")
            do([["eval", "flows.clear(); out = 1"], open_flow("stay", "other.test"),
                ["eval", "open_flow('cut', socket.getaddrinfo('ok.test', 7, socket.AF_INET)[0][4][0], 7); out = 1"]])
            wait_for(lambda: all(r["echoes"] > 3 for r in do([TELL])[0]["ok"].values()))
            b.ak("network", "policy", "x", *way)
            wait_for(lambda: do([TELL])[0]["ok"]["cut"]["dead"], 2)
            assert do([TELL])[0]["ok"]["stay"]["dead"] is None, way
            lab.clear()
            refused(do([["tcp", "11.1.0.5", 7]])[0])
            assert lab.arrived("11.1.0.5") == 0, way
            cut = find(b.netlog("x"), event="flow", verdict="deny")
            # Each is told once, by the name that had let it in and not by its address alone.
            assert len(cut) == i + 1 and [(r["name"], r["dst"], r["port"], r["rule"], r["reason"]) for r in cut[i:]] == [("ok.test", "11.1.0.5", 7, rule, CUT)], cut


def test_c6_a_wider_deny_leaves_the_exception(boxes):
    b = boxes
    b.up("x", "--compatibility-mode", "codex", "--allow-host", "*.wild.test:7")
    with b.holding("x", FLOW) as (proc, do):
        b.lab.dns.set("a.wild.test", A="11.1.1.10")
        b.lab.dns.set("b.wild.test", A="11.1.1.11")
        do([open_flow("a", "a.wild.test"), open_flow("b", "b.wild.test")])
        wait_for(lambda: all(r["echoes"] > 3 for r in do([TELL])[0]["ok"].values()))
        b.ak("network", "policy", "x", "--block-host", "*.wild.test:7", "--allow-host", "a.wild.test:7", "--remove", "*.wild.test:7")
        wait_for(lambda: do([TELL])[0]["ok"]["b"]["dead"], 2)
        assert do([TELL])[0]["ok"]["a"]["dead"] is None


def test_c7_an_unrelated_rule_during_a_download_stalls_nothing(boxes):
    b, lab = boxes, boxes.lab
    lab.dns.set("ok.test", A="11.1.0.5", ttl=300)
    b.up("x", "--compatibility-mode", "codex", "--allow-host", "ok.test:80", "--allow-host", "ok.test:7")
    size = 60000000
    with b.holding("x", FLOW) as (proc, do):
        do([open_flow("f", "ok.test")])
        load = lab.spawn([lab.binary, "exec", "x", *lab.probe_command([["http", "ok.test", 80, "ok.test", "/bytes/%d" % size]])], env=lab.env())
        before = len(lab.dns.log("ok.test"))
        for i in range(20):
            b.ak("network", "policy", "x", "--allow-host", "h%d.test:443" % i)
        r = load.wait(60)
        assert '"size": %d' % size in r.out, r
        row = do([TELL])[0]["ok"]["f"]
        assert row["dead"] is None and row["longest"] < 0.5, row
        worked(do([["tcp", "11.1.0.5", 7, b"x".hex()]])[0])
        assert len(lab.dns.log("ok.test")) <= before + 2, "something was learned again"


MANY, KEPT = 100000, 16384  # answers, and how many addresses a sandbox may have learned at once
ASK_MANY = """
def ask_many(first, last, at_once=128):
    # Each of FIRST to LAST is asked for once; how many were answered with their own address, and the codes of the others.
    # All replies under way must fit in the socket (about 1 KiB each of 208): one that is dropped there is not asked for again.
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(10); s.connect((gateway(), 53))
    right, wrong, waiting, i = 0, [], 0, first
    while i < last or waiting:
        while i < last and waiting < at_once:
            label = b'n%d' % i
            s.send(struct.pack('!HHHHHH', i & 0xffff, 256, 1, 0, 0, 0) + bytes([len(label)]) + label + b'\\4many\\4test\\0\\0\\1\\0\\1')
            i += 1; waiting += 1
        m = s.recv(2000); waiting -= 1
        n = int(m[14:13 + m[12]])
        if m[3] & 15 == 0 and m[7] == 1 and m[-4:] == struct.pack('!I', 0x0b600000 + n): right += 1
        else: wrong.append(m[3] & 15)
    return right, wrong[:10]
"""


def test_c8_a_hundred_thousand_answers_stay_bounded(boxes):
    """As many names, each with an address of its own and each allowed by a rule of its own. The oldest go, of the table and of the kernel's set, and it is told."""
    b, lab = boxes, boxes.lab
    os.makedirs(lab.path("config", "agentkernel", "policies"))
    with open(lab.path("config", "agentkernel", "policies", "codex.json"), "w") as f:
        json.dump({"version": 1, "name": "codex", "default": "deny", "limits": {"dns_qps": 1000000}, "allow": ["ok.test:7"] + ["n%d.many.test:7" % i for i in range(MANY)]}, f)
    lab.dns.set("*.many.test", A="11.96.0.0*1", ttl=3600)
    lab.dns.set("ok.test", A="11.1.0.5", ttl=3600)
    b.up("x", "--compatibility-mode", "codex")
    gw = b.status()["gateway"]["pid"]

    def rss():
        return int(re.search(r"VmRSS:\s+(\d+)", lab.host(["cat", "/proc/%d/status" % gw]).out).group(1))

    told = {}

    def evicted():
        """How many were told of so far. A log holds fewer than so many records, so what it says is gathered before rotation takes it."""
        text = lab.host(["sh", "-c", "%s network log x --json | grep '\"event\":\"evict\"'" % lab.binary], env=lab.env()).out
        told.update((row["seq"], row["count"]) for row in map(json.loads, text.splitlines()))
        return sum(told.values())
    with b.holding("x", ASK_MANY + FLOW) as (proc, do):
        do([open_flow("first", "ok.test")])
        assert worked(do([["eval", "out = ask_many(0, 20000)"]])[0]) == [20000, []]
        full = rss()
        for first in range(20000, MANY, 20000):
            assert worked(do([["eval", "out = ask_many(%d, %d)" % (first, first + 20000)]], timeout=60)[0]) == [20000, []]
            assert evicted() <= first + 20001 - KEPT
        grown = rss()
        assert grown < full + 2048, "the gateway grew from %d to %d KiB" % (full, grown)
        wait_for(lambda: evicted() == MANY + 1 - KEPT, every=0.5)
        held = lab.host([PYTHON, INSIDE, "gateway", str(gw), "nft", "list", "ruleset"]).out.count(" . 7 timeout")
        assert KEPT - 100 < held <= KEPT, held
        # The newest is open, the oldest is not until it is asked for again, and the flow that came before them all lives.
        got = do([["tcp", "11.97.134.159", 7, b"x".hex()], ["tcp", "11.96.0.0", 7], ["tcp", "n0.many.test", 7, b"x".hex()], ["tcp", "11.96.0.0", 7, b"x".hex()], TELL])
        worked(got[0]), refused(got[1]), worked(got[2]), worked(got[3])
        before = worked(got[4])["first"]
        wait_for(lambda: do([TELL])[0]["ok"]["first"]["echoes"] > before["echoes"])


def test_c12_a_recycled_address_inherits_nothing(boxes):
    b, lab = boxes, boxes.lab
    lab.dns.set("ok.test", A="11.1.0.5", ttl=3600)
    b.up("x", "--compatibility-mode", "codex", "--allow-host", "ok.test:7")
    worked(b.probe("x", [["tcp", "ok.test", 7, b"x".hex()]])[0])
    address = b.list()["x"]["ip"]
    b.ak("remove", "--force", "x")
    seen = set()
    for i in range(4):
        name = "y%d" % i
        b.up(name, "--compatibility-mode", "codex")
        seen.add(b.list()[name]["ip"])
        lab.clear()
        for row in b.probe(name, [["tcp", "11.1.0.5", 7], ["tcp", "ok.test", 7]]):
            refused(row)
        assert lab.arrived("11.1.0.5") == 0
        assert find(b.netlog(name), name="ok.test", verdict="allow") == []
        assert {row["sandbox"] for row in b.netlog(name)} == {name}
        b.ak("remove", "--force", name)
    # The name again: a new log, a new life, no rule of the old one.
    b.up("x", "--compatibility-mode", "codex")
    refused(b.probe("x", [["tcp", "ok.test", 7, b"x".hex()]])[0])
    assert b.policy("x")["generation"] == 1 and b.netlog("x")[0]["seq"] == 1
    assert address
