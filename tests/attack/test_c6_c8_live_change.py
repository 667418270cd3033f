"""c6: a revoked host's flow is cut; c7: an unrelated rule stalls nothing and forgets nothing; c8: 100,000 answers; c12: nothing is inherited."""
import re

from expect import denied, find, refused, worked
from lab import wait_for
from persist import FLOW, TELL, open_flow


def test_c6_every_way_to_revoke_cuts_the_flow_concerned(boxes):
    b, lab = boxes, boxes.lab
    start = ["--compatibility-mode", "codex", "--allow-host", "ok.test:7", "--allow-host", "*.wild.test:7", "--allow-host", "other.test:7"]
    b.up("x", *start)
    ways = [["--remove", "ok.test:7"], ["--block-host", "ok.test:7"], ["--block-cidr", "11.1.0.5/32"], ["--reset", "--allow-host", "other.test:7"]]
    with b.holding("x", FLOW) as (proc, do):
        for way in ways:
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
            cut = denied(b.netlog("x"), event="flow", reason="policy change")
            # Each is told once, by the name that had let it in and not by its address alone.
            assert [(row["name"], row["dst"], row["port"]) for row in cut] == [("ok.test", "11.1.0.5", 7)] * (ways.index(way) + 1), cut


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


def test_c8_very_many_answers_stay_bounded(boxes):
    """Names without end under an allowed wildcard, each with addresses of its own."""
    b, lab = boxes, boxes.lab
    b.up("x", "--compatibility-mode", "native")
    lab.dns.set("*.many.test", A=["11.80.%d.%d" % (i // 250, i % 250 + 1) for i in range(20)], ttl=3600)
    gw = b.status()["gateway"]["pid"]

    def rss():
        return int(re.search(r"VmRSS:\s+(\d+)", lab.host(["cat", "/proc/%d/status" % gw]).out).group(1))
    code = """
import time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(2); s.connect((gateway(), 53))
def q(i):
    name = b''.join(bytes([len(p)]) + p for p in (b'n%%d' %% i, b'many', b'test')) + b'\\0'
    return (i & 0xffff).to_bytes(2, 'big') + b'\\x01\\0\\0\\x01\\0\\0\\0\\0\\0\\0' + name + b'\\0\\x01\\0\\x01'
out = 0
end = time.monotonic() + 20
for i in range(%d, %d):
    if time.monotonic() > end: break
    s.send(q(i))
    try: out += len(s.recv(2000)) > 0
    except OSError: pass
"""
    with b.holding("x") as (proc, do):
        do([["eval", code % (0, 2000)]])
        first = rss()
        do([["eval", code % (2000, 8000)]], timeout=60)
        last = rss()
        assert last < first + 40000, "the gateway grew from %d to %d KiB" % (first, last)
        worked(do([["tcp", "ok.test", 7, b"x".hex()]])[0])


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
