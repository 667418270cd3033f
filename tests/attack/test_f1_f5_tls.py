"""f1–f5: what TLS and HTTP say of themselves must be a name of that very address; unusual hellos get the right verdict; QUIC is refused at once."""
from expect import HOST_ELSEWHERE, HOST_NOT_ALLOWED, NOT_THIS_PORT, NO_SNI, SNI_ELSEWHERE, SNI_NOT_ALLOWED, STALLED, allow, at_once, denied, refused, worked

HELLO = r"""
import fcntl
def on_its_way(s):
    # SIOCOUTQNSD: nothing waits to be sent any more, so that what was written last is a segment of its own.
    return struct.unpack('i', fcntl.ioctl(s, 0x894b, b'\0' * 4))[0] == 0
def hello(name, alpn=None):
    ctx = ssl._create_unverified_context()
    if alpn: ctx.set_alpn_protocols(alpn)
    inb, outb = ssl.MemoryBIO(), ssl.MemoryBIO()
    obj = ctx.wrap_bio(inb, outb, server_hostname=name)
    try: obj.do_handshake()
    except ssl.SSLWantReadError: pass
    return outb.read()
def grown(record, size, kind=0x4a4a):
    # A ClientHello with one more extension (of a kind nobody knows) of SIZE octets.
    body = record[9:]
    sid = 35 + body[34]
    suites = sid + 2 + struct.unpack_from('!H', body, sid)[0]
    ext = suites + 1 + body[suites]
    total = struct.unpack_from('!H', body, ext)[0]
    body = body[:ext] + struct.pack('!H', total + 4 + size) + body[ext + 2:ext + 2 + total] + struct.pack('!HH', kind, size) + b'\0' * size
    return b'\x01' + struct.pack('!I', len(body))[1:] + body
def records(handshake, step):
    return b''.join(b'\x16\x03\x01' + struct.pack('!H', len(handshake[i:i + step])) + handshake[i:i + step] for i in range(0, len(handshake), step))
def talk(data, chunk=None, addr='11.1.0.5', port=443, wait=7):
    s = socket.socket(); s.settimeout(wait); s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    start = time.monotonic()
    try:
        s.connect((addr, port))
        for i in range(0, len(data), chunk or len(data) or 1):
            s.send(data[i:i + (chunk or len(data))])
            while chunk and not on_its_way(s): os.sched_yield()
        got = s.recv(5)
        what = 'server hello' if got[:1] == b'\x16' else 'alert' if got[:1] == b'\x15' else 'eof' if not got else repr(got)
    except socket.timeout: what = 'timeout'
    except OSError as e: what = 'reset' if e.errno in (errno.ECONNRESET, errno.EPIPE, errno.ECONNREFUSED) else str(e)
    s.close()
    return [what, round(time.monotonic() - start, 2)]
socket.getaddrinfo('ok.test', 443); socket.getaddrinfo('other.test', 443)
"""


def test_f1_an_allowed_name_at_an_address_of_another(lab):
    got = lab.probe(allow("ok.test", "other.test"), [["resolve", "ok.test"], ["resolve", "other.test"], ["tls", "11.1.0.6", 443, "ok.test"],
                                                     ["tls", "11.1.0.5", 443, "other.test"], ["tls", "2a00:1::6", 443, "ok.test"], ["tls", "11.1.0.6", 443, "other.test"]])
    for row in got[2:5]:
        refused(row)
    worked(got[5])
    assert {(c["dst"], c["sni"]) for c in lab.conns(kind="tls")} == {("11.1.0.6", "other.test")}
    assert lab.syns("11.1.0.5") == 0 and lab.syns("2a00:1::6") == 0
    denied(lab.netlog(), SNI_ELSEWHERE, dst="11.1.0.6", port=443, sni="ok.test")


def test_f2_http_hosts_are_held_to_the_same_rule(lab):
    steps = [["resolve", "ok.test"], ["resolve", "other.test"]] + [["http", "11.1.0.5", 80, h] for h in ("evil.test", "other.test", "two.test", "11.1.0.5", "", None, "ok.test@evil.test",
             "evil.test:80", "ok.test evil.test", "ok.test, evil.test", "ok.test.evil.test")]
    good = [["http", "11.1.0.5", 80, h] for h in ("ok.test", "OK.TEST", "ok.test:80", "ok.test.")]
    raw = lambda text: ["tcp", "11.1.0.5", 80, text.encode().hex()]
    twisted = [raw("GET / HTTP/1.1\r\nHost: ok.test\r\nHost: evil.test\r\n\r\n"), raw("GET http://evil.test/ HTTP/1.1\r\nHost: ok.test\r\n\r\n"),
               raw("GET / HTTP/1.1\r\nHost : evil.test\r\n\r\n"), raw("GET / HTTP/1.1\r\n Host: ok.test\r\nHost: evil.test\r\n\r\n"), raw("CONNECT evil.test:443 HTTP/1.1\r\nHost: ok.test\r\n\r\n"),
               raw("SSH-2.0-x\r\n"), raw("GET / HTTP/1.1\r\nHost: evil.test\nHost: ok.test\r\n\r\n")]
    got = lab.probe(allow("ok.test", "other.test"), steps + twisted + good)
    for step, row in zip(steps[2:] + twisted, got[2:]):
        assert "err" in row, (step, row)
        at_once(row)
    for row in got[len(steps) + len(twisted):]:
        worked(row)
    assert lab.syns("11.1.0.5", 80) == 4, lab.conns()
    log = lab.netlog()
    denied(log, HOST_NOT_ALLOWED, port=80, dst="11.1.0.5", sni="evil.test")
    denied(log, HOST_ELSEWHERE, port=80, dst="11.1.0.5", sni="other.test")
    for reason in ("HTTP without a Host header", "malformed Host", "Host given twice", "Host differs from the request target"):
        denied(log, ("default", reason), port=80, dst="11.1.0.5")


def test_f3_odd_first_bytes_on_443_are_reset_with_a_reason(lab):
    code = HELLO + r"""
good = hello('ok.test')
out = {
 'no sni': talk(hello(None)),
 'sslv2': talk(b'\x80\x2e\x01\x03\x01\0\x15\0\0\0\x10' + b'\x01\0\x80' * 7 + b'x' * 16),
 'garbage': talk(b'\xde\xad\xbe\xef' * 100),
 'http': talk(b'GET / HTTP/1.1\r\nHost: ok.test\r\n\r\n'),
 'ssh': talk(b'SSH-2.0-OpenSSH_9\r\n'),
 'other sni': talk(hello('evil.test')),
 'ip sni': talk(hello('11.1.0.5')),
 'alert first': talk(b'\x15\x03\x01\0\x02\x02\x28'),
 'appdata first': talk(b'\x17\x03\x03\0\x10' + b'x' * 16),
 'record of none': talk(b'\x16\x03\x01\0\0' * 50),
 'length lies': talk(good[:3] + b'\xff\xff' + good[5:]),
 'nul in sni': talk(good.replace(b'ok.test', b'ok\0test')),
 'dot in sni': talk(good.replace(b'ok.test', b'.k.test')),
 'upper sni': talk(good.replace(b'ok.test', b'OK.TeST')),
 'ech outer other': talk(records(grown(hello('evil.test'), 200, 0xfe0d), 16000)),
 'grease': talk(records(grown(good, 1, 0x1a1a), 16000)),
 'plain': talk(good),
}
"""
    out = worked(lab.probe(allow("ok.test", "other.test"), [["eval", code]], timeout=90)[0])
    passed = {k for k, v in out.items() if v[0] in ("server hello", "alert")}
    assert passed == {"plain", "grease", "upper sni"}, out
    assert all(v[0] != "timeout" for v in out.values()), out
    assert len(lab.conns(kind="tls")) + 0 <= 3 and lab.syns("11.1.0.5", 443) == 3, lab.counters()
    log = lab.netlog()
    denied(log, NO_SNI, dst="11.1.0.5", port=443)
    denied(log, SNI_NOT_ALLOWED, dst="11.1.0.5", port=443, sni="evil.test")
    # Only "length lies" and "record of none" may wait for more bytes; all others are refused at the bytes that decide.
    assert len([row for row in log if row.get("reason") == STALLED[1]]) <= 2, log


def test_f4_hellos_in_pieces_get_the_right_verdict(lab):
    code = HELLO + r"""
out = {}
for name in ('ok.test', 'evil.test'):
    h = hello(name)
    big = grown(h, 3000)
    out[name] = {
     'one byte a segment': talk(h, 1), 'seven': talk(h, 7), 'many records': talk(records(h[5:], 3)), 'many records in pieces': talk(records(h[5:], 16), 5),
     'post-quantum size': talk(records(big, 16000)), 'post-quantum size in records': talk(records(big, 700), 1400), 'large': talk(records(grown(h, 11000), 16000), 1000), 'larger': talk(records(grown(h, 40000), 16000)),
    }
out['too large'] = talk(records(b'\x01\x03\0\0' + bytes(30000), 16000))
"""
    out = worked(lab.probe(allow("ok.test", "other.test"), [["eval", code]], timeout=90)[0])
    # A server may well answer some of these with an alert: that it was asked is what counts.
    assert {v[0] for v in out["ok.test"].values()} <= {"server hello", "alert"}, out["ok.test"]
    assert {v[0] for v in out["evil.test"].values()} <= {"reset", "eof"}, out["evil.test"]
    assert out["too large"][0] in ("reset", "eof"), out
    assert lab.syns("11.1.0.5", 443) == len(out["ok.test"])


def test_f4_a_stalled_hello_is_bounded(lab):
    code = HELLO + r"""
h = hello('ok.test')
out = [talk(h[:20], wait=40), talk(b'', wait=40)]
"""
    with_stall = lab.probe(allow("ok.test", "other.test"), [["eval", code]], timeout=60)
    for what, _ in worked(with_stall[0]):
        assert what in ("reset", "eof"), with_stall
    assert lab.syns("11.1.0.5", 443) == 0
    denied(lab.netlog(), STALLED, port=443, dst="11.1.0.5")


def test_f5_quic_is_refused_at_once(lab):
    for args in (allow("ok.test"),):
        got = lab.probe(args, [["resolve", "ok.test"], ["udp", "11.1.0.5", 443, "\xc0quic" * 240], ["udp", "2a00:1::5", 443, "\xc0quic" * 240], ["udp", "ok.test", 443, "x"],
                               ["tls", "ok.test", 443, "ok.test"]])
        for row in got[1:4]:
            refused(row)
        worked(got[4])
    assert lab.arrived(proto="udp", port=443) == 0
    denied(lab.netlog(), NOT_THIS_PORT, name="ok.test", dst="11.1.0.5", proto="udp", port=443)
