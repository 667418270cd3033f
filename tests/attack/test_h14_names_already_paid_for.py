"""h14: names that were paid for once, failures, empty answers, short lives and other types are no channel past the budget: every question that leaves is
charged, and what came to nothing is remembered for a while."""
import pytest
from expect import CODEX, allow, ask, find, holding, policy_env, reply, worked

NAMES = 200
# Pays for all names, then sends octets by asking some of them again, in an order that is the message.
CHANNEL = """
import random, select
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.connect((gateway(), 53)); s.settimeout(10)
s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
def q(ident, name, qtype=1):
    return struct.pack('!HHHHHH', ident, 256, 1, 0, 0, 0) + b''.join(bytes([len(l)]) + l.encode() for l in name.split('.')) + b'\\0' + struct.pack('!HH', qtype, 1)
def volley(asked):
    left = len(asked)
    for i, (name, qtype) in enumerate(asked): s.send(q(i, name, qtype))
    while left and select.select([s], [], [], 12)[0]: s.recv(4096); left -= 1
    return left
names = %r
lost = 0
for i in range(0, len(names), 50): lost += volley([(n, 1) for n in names[i:i + 50]])
begun = time.monotonic()
random.seed(7)
for i in range(%r): lost += volley([(random.choice(names), %r) for _ in range(50)])
out = {'seconds': time.monotonic() - begun, 'lost': lost}
"""
KINDS = {
    "failing": {"rcode": 2}, "refusing": {"rcode": 5}, "silent": {"drop": True}, "nonsense": {"garbage": ["8180ffff0000"]}, "absent": {"rcode": 3}, "empty": {"rcode": 0},
}


def run_channel(lab, names, policy, qtype=1, rounds=40):
    lab.resolv("nameserver 11.0.0.53\n")
    try:
        got = lab.probe(CODEX, [["eval", CHANNEL % (names, rounds, qtype)]], env=policy_env(lab, codex=dict(policy, limits={"dns_qps": 100000})), timeout=120)
    finally:
        lab.resolv("nameserver 11.0.0.53\nnameserver 2a00::53\n")
    return worked(got[0])


def asked(lab, names, qtype="A"):
    """Questions that left, without the second try of each."""
    rows = [row["name"].lower() for row in lab.dns.log() if row["proto"] == "udp" and row.get("qtype") == qtype]
    return [n for n in rows if n in set(names)]


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_h14_names_paid_for_once_carry_nothing_more(any_user, kind):
    lab = any_user
    names = ["n%d.wild.test" % i for i in range(NAMES)]
    for name in names:
        lab.dns.set(name)
        lab.dns.behave(name, **KINDS[kind])
    slow = kind in ("silent", "nonsense")
    names = names[:60] if slow else names
    out = run_channel(lab, names, {"allow": ["*.wild.test"]}, rounds=4 if slow else 40)
    tries = 2 if slow else 1
    # Each name once, and once more for every four seconds that passed: not every time.
    bound = tries * len(names) * (1 + (out["seconds"] + 10) / 4)
    assert len(asked(lab, names)) <= bound, (len(asked(lab, names)), bound, out)


def test_h14_short_lives_do_not_make_names_free(any_user):
    lab = any_user
    names = ["n%d.wild.test" % i for i in range(NAMES)]
    for name in names:
        lab.dns.set(name, A="11.1.1.1", ttl=0)
    out = run_channel(lab, names, {"allow": ["*.wild.test"]})
    assert len(asked(lab, names)) <= NAMES * (1 + (out["seconds"] + 10) / 4), out


def test_h14_other_types_and_exact_names_are_bounded_too(any_user):
    lab = any_user
    names = ["n%d.exact.test" % i for i in range(NAMES)]
    for name in names:
        lab.dns.behave(name, rcode=2)
    out = run_channel(lab, names, {"allow": names}, qtype=28)
    for qtype in ("A", "AAAA"):
        assert len(asked(lab, names, qtype)) <= NAMES * (1 + (out["seconds"] + 10) / 4), out
    out = run_channel(lab, names, {"allow": names}, qtype=16)
    assert not asked(lab, names, "TXT")


def test_h14_a_failure_is_forgotten_after_a_few_seconds(any_user):
    lab = any_user
    lab.dns.behave("ok.test", rcode=2)
    with holding(lab, allow("ok.test")) as (proc, do):
        assert reply(do([ask("ok.test")])[0])["rcode"] == 2
        left = len(lab.dns.log("ok.test"))
        assert reply(do([ask("ok.test")])[0])["rcode"] == 2
        assert len(lab.dns.log("ok.test")) == left, "asked again at once"
        lab.dns.behave("ok.test")
        got = do([["eval", "out = wait_for(lambda: do_dns(%r)[7] == '0', 30)" % ask("ok.test")[1]]])
        worked(got[0])
    assert find(lab.netlog(), name="ok.test", verdict="error", rule="flags: ok.test", reason="resolver failed", detail="upstream refused")
