"""h9: in native mode a deny rule names a host; what cannot be read on ports 80 and 443 does not pass while it is in force."""
import pytest
from expect import CODEX, NATIVE, NOT_TLS, allowed, denied, refused, worked

BLOCK = [*NATIVE, "--block-host", "evil.test"]
# The address of evil.test; DNS does not tell it while the name is denied, but an attacker may know it.
ADDRESSES = ["11.66.0.2", "2a00:66::2"]
TALK = r"""
import ssl
def open_to(port, addr=%r):
    s = socket.socket(socket.AF_INET6 if ':' in addr else socket.AF_INET); s.settimeout(20); s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    s.connect((addr, port)); return s
def end_of(s):
    got = b''
    try:
        while b'}' not in got:
            more = s.recv(65536)
            if not more: return 'eof'
            got += more
    except socket.timeout: return 'silent'
    except OSError: return 'reset'
    finally: s.close()
    return 'answered'
def talk(port, *parts, pause=0, half=False):
    try:
        s = open_to(port)
        for i, data in enumerate(parts):
            if i and pause: let_pass(pause, 'past the moment in which a flow may still name itself unseen')
            s.sendall(data)
        if half: s.shutdown(socket.SHUT_WR)
    except OSError: return 'reset'
    return end_of(s)
def tls(port, name, filler=0, **kw):
    ctx = ssl._create_unverified_context()
    if filler: ctx.set_alpn_protocols([('%%05d' %% i) * 40 for i in range(filler // 201)])
    try:
        s = ctx.wrap_socket(open_to(port, **kw), server_hostname=name)
        s.sendall(b'GET / HTTP/1.1\r\nHost: %%s\r\n\r\n' %% (name or 'x').encode())
    except OSError as e: return 'reset'
    return end_of(s)
def hello(name, filler=0, **kw):
    ctx = ssl._create_unverified_context(); a, b = ssl.MemoryBIO(), ssl.MemoryBIO()
    if filler: ctx.set_alpn_protocols([('%%05d' %% i) * 40 for i in range(filler // 201)])
    o = ctx.wrap_bio(a, b, server_hostname=name)
    try: o.do_handshake()
    except ssl.SSLWantReadError: pass
    return b.read()
H = b'Host: evil.test\r\n'
G = b'GET / HTTP/1.1\r\n'
"""
ATTACKS = r"""
out = {
 'plain': talk(80, G + H + b'\r\n'), 'folded': talk(80, G + b'X: a\r\n b\r\n' + H + b'\r\n'), 'folded Host': talk(80, G + b'Host:\r\n evil.test\r\n\r\n'),
 'space before the colon': talk(80, G + b'Host : evil.test\r\n\r\n'), 'no colon': talk(80, G + b'nonsense\r\n' + H + b'\r\n'), 'bare LF': talk(80, (G + H + b'\r\n').replace(b'\r\n', b'\n')),
 'control character': talk(80, G + b'X: \x01\r\n' + H + b'\r\n'), 'Host twice': talk(80, G + b'Host: ok.test\r\n' + H + b'\r\n'), 'long head': talk(80, G + b'Cookie: ' + b'a' * 20000 + b'\r\n' + H + b'\r\n'),
 'odd version': talk(80, b'GET / HTTP/1.2\r\n' + H + b'\r\n'), 'spaces': talk(80, b'GET  /  HTTP/1.1\r\n' + H + b'\r\n'), 'two lengths': talk(80, b'POST / HTTP/1.1\r\nContent-Length: 0\r\nContent-Length: 0\r\n' + H + b'\r\n'),
 'target differs': talk(80, b'GET http://ok.test/ HTTP/1.1\r\n' + H + b'\r\n'), 'odd Host': talk(80, G + b'Host: evil.test.\xff\r\n\r\n'), 'odd dots': talk(80, G + b'Host: evil.test..\r\n\r\n'), 'brackets': talk(80, G + b'Host: [evil.test]\r\n\r\n'), 'user in Host': talk(80, G + b'Host: ok.test@evil.test\r\n\r\n'),
 'h2c': talk(80, b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'), 'in two parts': talk(80, G + b'X: a\r\n b\r\n', H + b'\r\n', pause=0.6), 'unfinished': talk(80, G + H, half=True), 'unfinished late': talk(80, G, H, pause=0.6, half=True),
 'second request': talk(80, G + b'Host: ok.test\r\n\r\n' + G + b'X: a\r\n b\r\n' + H + b'\r\n'), 'bad chunks': talk(80, b'POST / HTTP/1.1\r\nHost: ok.test\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n' + G + H + b'\r\n'),
 'tls': tls(443, 'evil.test'), 'large hello': tls(443, 'evil.test', 20000), 'larger hello': tls(443, 'evil.test', 60000), 'EVIL': tls(443, 'EVIL.test'), 'tls on 80': talk(80, hello('evil.test')), 'large tls on 80': talk(80, hello('evil.test', 20000)),
 'http on 443': talk(443, G + H + b'\r\n'), 'ssh on 443': talk(443, b'SSH-2.0-x\r\n'), 'sslv2': talk(443, b'\x80\x2e\x01\x00\x02' + b'a' * 43), 'noise on 443': talk(443, b'\x00\x01\x02'),
 'hello in parts': talk(443, hello('evil.test', 20000)[:9000], hello('evil.test', 20000)[9000:], pause=0.6), 'half a hello': talk(443, hello('evil.test')[:100], half=True), 'two records': talk(443, b'\x16\x03\x01\0\x01\x01\x17\x03\x03\0\x01a'),
}
"""
GOOD = r"""
ok = lambda *a, **k: talk(80, *a, **k)
out = {
 'http': ok(G + b'Host: ok.test\r\n\r\n'), 'by address': ok(G + b'Host: 11.66.0.2\r\n\r\n'), 'by address 6': ok(G + b'Host: [2a00:66::2]:80\r\n\r\n'), 'no Host': ok(b'GET / HTTP/1.0\r\n\r\n'), 'in two parts': ok(G, b'Host: ok.test\r\n\r\n', pause=0.6), 'body': ok(b'POST / HTTP/1.1\r\nHost: ok.test\r\nContent-Length: 3\r\n\r\nabc'),
 'tls': tls(443, 'ok.test'), 'no name': tls(443, None), 'large hello': tls(443, 'ok.test', 20000), 'larger hello': tls(443, 'ok.test', 60000),
}
"""


@pytest.mark.parametrize("address", ADDRESSES)
def test_h9_what_cannot_be_read_never_reaches_a_denied_host(any_user, address):
    lab = any_user
    out = worked(lab.probe(BLOCK, [["eval", TALK % address + ATTACKS]], timeout=90)[0])
    seen = [c for c in lab.conns(dst=address) if c["sni"] or [h for h in c.get("hosts", []) if h != "ok.test"] or (c["first"] and not c.get("hosts"))]
    assert seen == [], (seen, out)
    assert "answered" not in {k: v for k, v in out.items() if k not in ("second request", "bad chunks")}.values(), out
    assert set(lab.strangers(address)) == set()
    log = lab.netlog()
    denied(log, ("default", "folded header line"), dst=address, port=80)
    denied(log, NOT_TLS, dst=address, port=443)
    denied(log, ("flags: evil.test", "name denied"), dst=address, port=443, sni="evil.test")


def test_h9_the_same_host_is_reached_by_other_names_and_by_none(lab):
    """The rule is about a name, not about an address: SECURITY.md says so."""
    for address in ADDRESSES:
        out = worked(lab.probe(BLOCK, [["eval", TALK % address + GOOD]], timeout=90)[0])
        assert set(out.values()) == {"answered"}, (address, out)


def test_h9_without_a_rule_that_denies_names_nothing_is_refused_for_being_odd(lab):
    odd = r"""
out = [talk(80, G + b'X: a\r\n b\r\n' + H + b'\r\n'), talk(443, b'SSH-2.0-x\r\n'), tls(443, 'evil.test', 20000)]
"""
    for args in (NATIVE, [*NATIVE, "--block-host", "evil.test:22"], [*NATIVE, "--block-cidr", "11.67.0.0/16"]):
        out = worked(lab.probe(args, [["eval", TALK % "11.66.0.2" + odd]])[0])
        assert out[0] == out[2] == "answered", (args, out)
        assert [c for c in lab.conns(dst="11.66.0.2") if c["kind"] == "http"]


def test_h9_a_range_that_was_opened_is_read_too(lab):
    args = [*CODEX, "--allow-cidr", "11.66.0.0/16", "--block-host", "evil.test"]
    out = worked(lab.probe(args, [["eval", TALK % "11.66.0.2" + ATTACKS]], timeout=90)[0])
    assert [c for c in lab.conns() if c["sni"] or "evil.test" in str(c.get("hosts"))] == [], out
    assert worked(lab.probe(args, [["eval", TALK % "11.66.0.2" + GOOD]], timeout=90)[0])["large hello"] == "answered"


def test_h9_quic_names_cannot_be_read_so_udp_443_is_closed_while_names_are_denied(lab):
    steps = [["udp", "11.66.0.2", 443], ["udp", "2a00:66::2", 443], ["udp", "11.1.0.5", 443], ["udp", "11.66.0.2", 5000]]
    got = lab.probe(BLOCK, steps)
    for row in got[:3]:
        refused(row)  # at once, so that clients fall back to TCP
    assert worked(got[3]) == "x"
    assert lab.arrived("11.66.0.2", 443) + lab.arrived("2a00:66::2", 443) == 0
    denied(lab.netlog(), ("default", "QUIC: its name is not read, and names are denied"), dst="11.66.0.2", port=443, proto="udp")
    for row in lab.probe(NATIVE, steps):
        worked(row)
    # A rule that names the port opens it for the addresses of its name, as everywhere.
    got = lab.probe([*BLOCK, "--allow-host", "ok.test:443/udp"], [["udp", "ok.test", 443], ["udp", "11.66.0.2", 443]])
    assert worked(got[0]) == "x" and "err" in got[1], got
    allowed(lab.netlog(), name="ok.test", port=443, proto="udp")


def test_h9_every_refused_datagram_is_counted(lab):
    many = """
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.connect(('11.66.0.2', 443)); s.settimeout(5)
for _ in range(50):
    try: s.send(b'x'); s.recv(10)
    except OSError: pass
out = True
"""
    worked(lab.probe(BLOCK, [["eval", many]], timeout=60)[0])
    rows = [r for r in lab.netlog() if r.get("dst") == "11.66.0.2" and r.get("port") == 443]
    assert sum(r["count"] + r.get("suppressed", 0) for r in rows) == 50 and len(rows) <= 3, rows
    assert lab.arrived("11.66.0.2", 443) == 0


def test_h9_udp_443_opens_by_a_rule_that_names_it_and_by_no_other(lab):
    """QUIC's SNI is not read: the address that DNS told for the rule's name decides, whatever name is said inside."""
    for rules, opens in ((["ok.test"], False), (["ok.test:443"], False), (["ok.test:443/tcp"], False), (["ok.test:443/udp"], True)):
        args = [*CODEX, *[x for r in rules for x in ("--allow-host", r)]]
        got = lab.probe(args, [["udp", "ok.test", 443], ["udp", "11.1.0.6", 443]])
        assert ("ok" in got[0]) == opens and "err" in got[1], (rules, got)


def test_h9_a_rule_that_comes_later_cuts_what_passed_unread(boxes):
    b = boxes
    b.up("late", *NATIVE)
    start = TALK % "11.66.0.2" + r"""
socket.kept = [open_to(80), open_to(80), open_to(7)]
for s, text in zip(socket.kept, (b'ECHO\r\n', G + b'Host: ok.test\r\n\r\n', b'x')): s.sendall(text)
out = [s.recv(1000)[:4].decode() for s in socket.kept]
"""
    more = r"""
out = []
for s, text in zip(socket.kept, (b'x', b'GET / HTTP/1.1\r\nHost: ok.test\r\n\r\n', b'x')):
    try: s.sendall(text); out.append(bool(s.recv(1000)))
    except OSError: out.append(False)
"""
    with b.holding("late") as (_, do):
        assert worked(do([["eval", start]])[0]) == ["ECHO", "HTTP", "x"]
        assert worked(do([["eval", more]])[0]) == [True, True, True]
        b.ak("network", "policy", "late", "--block-host", "evil.test")
        assert worked(do([["eval", more]])[0]) == [False, True, True]
