"""f6: protocols that do not say a name pass by DNS binding and port alone; f7: each HTTP request of a connection is judged, however it is framed."""
import pytest
from expect import HOST_NOT_ALLOWED, NOT_THIS_PORT, NOT_TLS, allow, allowed, at_once, denied, refused, worked

PORTS = {22: b"SSH-2.0-x\r\n", 5432: b"\0\0\0\x08\x04\xd2\x16\x2f", 7: b"EHLO", 3306: b"\x01", 6379: b"PING\r\n", 25: b"EHLO x\r\n", 9418: b"0033git-upload-pack /x\0host=y\0"}


@pytest.mark.parametrize("family", ["A", "AAAA"])
def test_f6_other_protocols_pass_by_binding_and_port(any_user, family):
    lab = any_user
    address, other = {"A": ("11.1.6.1", "11.1.6.2"), "AAAA": ("2a00:1:6::1", "2a00:1:6::2")}[family]
    for port in (3306, 6379, 25, 9418):
        lab.listen(port)
    lab.dns.set("db.test", **{family: address})
    lab.dns.set("two.test", **{family: other})
    rules = ["db.test:%d" % p for p in PORTS if p != 6379] + ["two.test:22"]
    good = [["tcp", "db.test", p, data.hex()] for p, data in PORTS.items() if p != 6379] + [["read", "two.test", 22]]
    # Not that port, not that address's name, not before it was resolved, and no name makes a raw address pass.
    bad = [["tcp", address, 6379], ["tcp", address, 443], ["tcp", address, 80], ["tcp", other, 5432], ["tcp", other, 7], ["udp", address, 22], ["udp", address, 5432], ["tcp", "11.66.0.1", 22],
           ["tcp", "2a00:66::1", 5432], ["resolve", "db2.test"]]
    got = lab.probe(allow(*rules), [["tcp", address, 22], *good, *bad])
    refused(got[0])
    for row in got[1:1 + len(good)]:
        worked(row)
    assert got[1]["ok"].startswith("SSH-2.0-lab")
    for row in got[1 + len(good):]:
        refused(row)
    assert sorted({(c["dst"], c["port"]) for c in lab.conns()}) == sorted({(address, p) for p in PORTS if p != 6379} | {(other, 22)})
    assert lab.strangers(address, other) == []
    log = lab.netlog()
    allowed(log, event="flow", name="db.test", port=5432, rule="flags: db.test:5432")
    denied(log, NOT_THIS_PORT, name="db.test", dst=address, port=6379, proto="tcp")
    denied(log, NOT_THIS_PORT, name="two.test", dst=other, port=5432, proto="tcp")


def test_f6_tls_and_http_on_other_ports_pass_by_binding(lab):
    """Where a rule names a port that is neither 80 nor 443 the binding decides: what is said inside is the server's affair."""
    got = lab.probe(allow("ok.test:8443", "ok.test:8080"), [["tls", "ok.test", 8443, "ok.test"], ["http", "ok.test", 8080, "ok.test"], ["tls", "ok.test", 443, "ok.test"], ["http", "ok.test", 80, "ok.test"],
                                                           ["tls", "11.1.0.6", 8443, "ok.test"]])
    worked(got[0]), worked(got[1])
    for row in got[2:]:
        refused(row)
    assert lab.syns("11.1.0.5", 443) + lab.syns("2a00:1::5", 443) + lab.syns("11.1.0.5", 80) + lab.syns("2a00:1::5", 80) == 0 and lab.arrived("11.1.0.6") == 0


def test_f6_a_tunnel_through_an_allowed_port_of_443_needs_its_name(any_user):
    """SSH, Postgres or raw bytes on 443 and 80 are not what those ports are for."""
    lab = any_user
    steps = [["resolve", "ok.test"]] + [["tcp", a, p, data.hex()] for a in ("11.1.0.5", "2a00:1::5") for p in (443, 80) for data in (b"SSH-2.0-x\r\n", b"\0\0\0\x08\x04\xd2\x16\x2f", b"\x05\x01\x00", b"\x04\x01\x00\x50\x0b\x42\x00\x01\0",
                                                                                                                                       b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")]
    got = lab.probe(allow("ok.test"), steps)
    worked(got[0])
    for step, row in zip(steps[1:], got[1:]):
        assert "err" in row, (step, row)
        at_once(row)
    assert lab.strangers() == []
    denied(lab.netlog(), NOT_TLS, dst="11.1.0.5", port=443)


# talk: until the connection ends, WANT answers are there or nothing has come for WAIT seconds.
TALK = r"""
def talk(data, addr=%r, chunk=None, want=99, wait=20):
    s = socket.socket(socket.AF_INET6 if ':' in addr else socket.AF_INET); s.settimeout(20); s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    got = b''
    try:
        s.connect((addr, 80))
        for i in range(0, len(data), chunk or len(data)): s.send(data[i:i + (chunk or len(data))])
        s.settimeout(wait); end = 'open'
        while got.count(b'HTTP/1.1 200') < want:
            more = s.recv(65536)
            if not more: end = 'eof'; break
            got += more
    except socket.timeout: end = 'open'
    except OSError as e: end = 'reset'
    s.close()
    return [got.count(b'HTTP/1.1 200'), end, [h for h in ('ok.test', 'two.test', 'evil.test') if ('"host": "%%s"' %% h).encode() in got]]
def req(host, extra='', body='', method='GET', version='1.1', target='/'): return ('%%s %%s HTTP/%%s\r\nHost: %%s\r\n%%s\r\n%%s' %% (method, target, version, host, extra, body)).encode()
socket.getaddrinfo('ok.test', 80)
"""
CASES = r"""
ok, evil, two = req('ok.test'), req('evil.test'), req('two.test')
chunked = lambda body: req('ok.test', 'Transfer-Encoding: chunked\r\n', body, 'POST')
out = {
 'good twice': talk(ok + ok, want=2), 'good slowly': talk(ok + ok + ok, chunk=9, want=3), 'good body': talk(req('ok.test', 'Content-Length: 5\r\n', 'hello', 'POST') + ok, want=2),
 'second evil': talk(ok + evil), 'third evil': talk(ok + ok + evil), 'second evil in pieces': talk(ok + evil, chunk=5), 'neighbour': talk(ok + two), 'no host': talk(ok + b'GET / HTTP/1.1\r\n\r\n'),
 'absolute': talk(ok + req('ok.test', target='http://evil.test/')), 'after a body': talk(req('ok.test', 'Content-Length: 3\r\n', 'abc', 'POST') + evil),
 'inside a body': talk(req('ok.test', 'Content-Length: %d\r\n' % len(evil), evil.decode(), 'POST'), wait=0.5),
 'good chunks': talk(chunked('3\r\nabc\r\n0\r\n\r\n') + ok, want=2), 'after chunks': talk(chunked('3\r\nabc\r\n0\r\n\r\n') + evil), 'after trailers': talk(chunked('0\r\nX: y\r\n\r\n') + evil), 'two lengths': talk(req('ok.test', 'Content-Length: 3\r\nContent-Length: 90\r\n', 'abc', 'POST') + evil),
 'length and chunks': talk(req('ok.test', 'Content-Length: 90\r\nTransfer-Encoding: chunked\r\n', '0\r\n\r\n', 'POST') + evil), 'odd coding': talk(req('ok.test', 'Transfer-Encoding: xchunked\r\n', '0\r\n\r\n', 'POST') + evil),
 'coding twice': talk(req('ok.test', 'Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n', '0\r\n\r\n', 'POST') + evil), 'negative length': talk(req('ok.test', 'Content-Length: -1\r\n', '', 'POST') + evil),
 'plus length': talk(req('ok.test', 'Content-Length: +0\r\n', '', 'POST') + evil), 'huge chunk': talk(chunked('ffffffffffffffff1\r\n') + evil), 'bare lf': talk(ok + evil.replace(b'\r\n', b'\n')),
 'folded': talk(ok + b'GET / HTTP/1.1\r\nHost: ok.test\r\n evil.test\r\n\r\n'), 'upgrade': talk(req('ok.test', 'Connection: Upgrade\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n') + b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'),
 'connect': talk(ok + req('evil.test:443', method='CONNECT', target='evil.test:443')), 'ten then evil': talk(ok * 10 + evil), 'http10': talk(req('ok.test', version='1.0') + evil), 'http09': talk(ok + b'GET /\r\n'),
 'body of GET': talk(req('ok.test', 'Content-Length: %d\r\n' % len(evil), evil.decode())), 'body of HEAD': talk(req('ok.test', 'Content-Length: %d\r\n' % len(evil), evil.decode(), 'HEAD')),
 'chunks of DELETE': talk(req('ok.test', 'Transfer-Encoding: chunked\r\n', '%x\r\n%s\r\n0\r\n\r\n' % (len(evil), evil.decode()), 'DELETE')), 'good empty body': talk(req('ok.test', 'Content-Length: 0\r\n') + ok, want=2),
 'tls after': talk(ok + b'\x16\x03\x01\0\x05\x01\0\0\x01\0'), 'blank lines': talk(ok + b'\r\n\r\n' + evil), 'chunk ext': talk(chunked('3;x="\r\n\r\n"\r\nabc\r\n0\r\n\r\n') + evil, wait=0.5),
}
"""


@pytest.mark.parametrize("address", ["11.1.0.5", "2a00:1::5"])
def test_f7_every_request_of_a_connection_is_judged(any_user, address):
    lab = any_user
    out = worked(lab.probe(allow("ok.test"), [["eval", TALK % address + CASES]], timeout=90)[0])
    assert out["good twice"][0] == 2 and out["good slowly"][0] == 3, out
    for name, (answers, end, hosts) in out.items():
        assert set(hosts) <= {"ok.test"}, (name, out[name])
        if name.startswith("good"):
            assert answers >= 2, (name, out[name])
        elif name not in ("inside a body", "chunk ext"):  # bodies, rightly read
            assert end in ("reset", "eof"), (name, out[name])
    # The far side saw no request of another host; what lies inside a body is a body.
    seen = [h for c in lab.conns(kind="http") for h in c.get("hosts", [])]
    assert set(seen) == {"ok.test"}, seen
    assert lab.strangers(address) == []
    log = lab.netlog()
    denied(log, HOST_NOT_ALLOWED, dst=address, port=80, sni="evil.test")
    denied(log, ("default", "HTTP without a Host header"), dst=address, port=80)
    denied(log, ("default", "Host differs from the request target"), dst=address, port=80)
    assert len([r for r in log if r["verdict"] == "deny" and r.get("dst") == address]) >= 12


def test_f7_a_long_connection_is_cut_at_the_request_that_is_wrong(lab):
    code = TALK % "11.1.0.5" + r"""
s = socket.create_connection(('ok.test', 80), 20); out = []
for host in ['ok.test'] * 20 + ['evil.test'] + ['ok.test']:
    try:
        s.send(req(host)); got = s.recv(65536); out.append(bool(got))
    except OSError: out.append(False)
"""
    got = lab.probe(allow("ok.test"), [["eval", code]])
    assert worked(got[0]) == [True] * 20 + [False] * 2, got
    assert [h for c in lab.conns(kind="http") for h in c.get("hosts", [])] == ["ok.test"] * 20
    denied(lab.netlog(), HOST_NOT_ALLOWED, event="flow", sni="evil.test", dst="11.1.0.5", port=80)
