"""h10: no flood pushes a sandbox's first deed out of its log: the first records and each first denial of its kind stay, repeats are summed, and what goes is counted."""
import os

import pytest
from expect import NOT_LEARNED, NOT_LISTED, denied, policy_env, worked

# Questions with names as long as names can be, as fast as they are answered.
FLOOD = """
import struct
def flood(n, distinct):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(0.5)
    s.connect((open('/etc/resolv.conf').read().split()[1], 53))
    for i in range(n):
        label = b'%08d' % (i if distinct else 0) + b'\\xff' * 52
        s.send(struct.pack('!HHHHHH', i % 65536, 256, 1, 0, 0, 0) + (bytes([len(label)]) + label) * 4 + b'\\0' + struct.pack('!HH', 1, 1))
        if i % 64 == 63:
            try:
                for _ in range(64): s.recv(999)
            except OSError: pass
    return n
"""
MANY = {"distinct": 60000, "alike": 6000}


def log_size(lab):
    return sum(os.path.getsize(os.path.join(d, f)) for d, _, fs in os.walk(lab.path("state")) for f in fs if f.startswith("network"))


def flooded(lab, flood, before, after=()):
    env = policy_env(lab, codex={"allow": ["ok.test:80"], "limits": {"dns_qps": 100000}})
    step = ["eval", FLOOD + "out = flood(%d, %r)" % (MANY[flood], flood == "distinct")]
    got = lab.probe(["--compatibility-mode", "codex"], [*before, step, *after, *([step] if after else [])], timeout=240, env=env)
    worked(got[len(before)])
    return lab.netlog()


@pytest.mark.parametrize("who, flood", [("user", "distinct"), ("user", "alike"), ("root", "alike")])
def test_h10_a_flood_leaves_the_deed_before_it(lab, who, flood):
    if who == "root" and not lab.is_root:
        pytest.skip("the suite runs as an ordinary user")
    with lab.acting_as(who):
        rows = flooded(lab, flood, [["resolve", "deed.test"]])
        denied(rows, NOT_LISTED, event="dns", name="deed.test")
        told = sum(r.get("count", 1) + r.get("suppressed", 0) for r in rows if r.get("verdict") == "deny" and "of" not in r)
        gone = max([r["gone_to"] - r["gone_from"] + 1 for r in rows if "gone_to" in r] or [0])
        assert told + gone >= MANY[flood], (told, gone)
        assert flood == "distinct" or len(rows) < 1500, len(rows)
        assert (gone > 0) == (flood == "distinct"), (gone, len(rows))
        assert log_size(lab) < 48 << 20 and max(len(r.get("name", "")) for r in rows) <= 512
        assert lab.ak(["audit", "verify"]).code == 0


def test_h10_a_new_kind_of_denial_between_two_floods_stays(lab):
    with lab.acting_as("user"):
        rows = flooded(lab, "distinct", [["resolve", "early.test"]], after=[["tcp", "11.66.0.1", 4444]])
        denied(rows, NOT_LISTED, event="dns", name="early.test")
        denied(rows, NOT_LEARNED, dst="11.66.0.1", port=4444, proto="tcp")
        assert lab.ak(["audit", "verify"]).code == 0
