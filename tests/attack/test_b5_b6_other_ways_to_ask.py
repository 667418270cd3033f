"""b5: other resolvers and odd ports; b6: DNS over TCP in every unfriendly form."""
from expect import DNS_ELSEWHERE, NOT_LEARNED, addresses, allow, ask, denied, dnswire, refused, reply, worked


def test_b5_every_resolver_address_is_the_proxy(lab):
    servers = ["8.8.8.8", "1.1.1.1", "11.0.0.53", "11.9.9.9", "2a00::53", "2a00:88::88", "10.0.0.1", "192.168.1.1", "169.254.169.254"]
    steps = [ask("ok.test", server=s, proto=p) for s in servers for p in ("udp", "tcp")] + [ask("evil.test", server=s, proto=p) for s in servers for p in ("udp", "tcp")]
    got = lab.probe(allow("ok.test"), steps)
    half = len(got) // 2
    for row in got[:half]:
        assert addresses(reply(row)) == ["11.1.0.5"]
    for row in got[half:]:
        assert reply(row)["rcode"] == 3
    assert lab.strangers() == [] and lab.dns.log("evil.test") == []
    assert {row["dst"] for row in lab.dns.log()} <= {"11.0.0.53", "2a00::53"}


def test_b5_odd_ports_are_refused(lab):
    q = dnswire.query("evil.test").hex()
    ports = [54, 5353, 5355, 853, 8053, 443, 123, 137]
    got = lab.probe(allow("ok.test"), [["dns", q, "11.9.9.9", p, port, 2.0] for port in ports for p in ("udp", "tcp")])
    for row in got:
        refused(row)
    assert lab.strangers() == []
    log = lab.netlog()
    denied(log, NOT_LEARNED, dst="11.9.9.9", port=5353, proto="udp")
    for proto in ("udp", "tcp"):
        denied(log, DNS_ELSEWHERE, dst="11.9.9.9", port=853, proto=proto)


TCP = """
def conn(): return socket.create_connection((gateway(), 53), 5)
def frame(m): return struct.pack('!H', len(m)) + m
def q(name, ident): return struct.pack('!HHHHHH', ident, 256, 1, 0, 0, 0) + b''.join(bytes([len(l)]) + l for l in name.encode().split(b'.')) + b'\\0' + struct.pack('!HH', 1, 1)
def rcode(m): return m[3] & 15
"""


def test_b6_pipelined_and_dripped_questions_get_the_same_verdicts(lab):
    code = TCP + """
out = {}
s = conn(); s.settimeout(6)
names = ['ok.test', 'evil.test', 'other.test', 'denied.test'] * 8
s.sendall(b''.join(frame(q(n, i)) for i, n in enumerate(names)))
got = {}
for _ in names:
    m = tcp_frame(s); got[struct.unpack('!H', m[:2])[0]] = rcode(m)
out['pipelined'] = [got.get(i) for i in range(len(names))]
s = conn(); s.settimeout(6)
s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
for b in frame(q('ok.test', 1)) + frame(q('evil.test', 2)): s.send(bytes([b]))
out['dripped'] = sorted((m[1], rcode(m)) for m in (tcp_frame(s), tcp_frame(s)))
s = conn(); s.settimeout(6)
s.sendall(frame(q('evil.test', 3))); s.shutdown(socket.SHUT_WR)
out['half closed'] = rcode(tcp_frame(s))
"""
    out = worked(lab.probe(allow("ok.test", "other.test"), [["eval", code]])[0])
    assert out["pipelined"] == [0, 3, 0, 3] * 8, out
    assert out["dripped"] == [[1, 0], [2, 3]] and out["half closed"] == 3, out
    assert lab.dns.log("evil.test") == [] and lab.dns.log("denied.test") == []


def test_b6_large_idle_and_broken_connections_are_bounded(lab):
    code = TCP + """
out = {}
s = conn(); s.settimeout(6)
try:
    s.sendall(struct.pack('!H', 65535) + b'\\x12\\x34' + b'A' * 65533)
    m = s.recv(100); out['big'] = rcode(m[2:]) if m else 'closed'
except OSError as e: out['big'] = 'closed'
s = conn(); s.settimeout(6)
try: s.sendall(b'\\0\\0'); m = s.recv(100); out['zero'] = 'closed' if not m else rcode(m[2:])
except OSError: out['zero'] = 'closed'
idle = []
try:
    for i in range(400): idle.append(socket.create_connection((gateway(), 53), 1))
except OSError as e: pass
out['idle'] = len(idle)
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.settimeout(3); u.connect((gateway(), 53)); u.send(q('ok.test', 5))
out['udp'] = rcode(u.recv(4096))
for c in idle: c.close()
import time
end = time.monotonic() + 5
while time.monotonic() < end:
    try:
        s = conn(); s.settimeout(2); s.sendall(frame(q('ok.test', 6))); out['tcp again'] = rcode(tcp_frame(s)); break
    except (OSError, EOFError): pass
"""
    out = worked(lab.probe(allow("ok.test"), [["eval", code]])[0])
    assert out["big"] in (1, "closed") and out["zero"] in (1, "closed"), out
    assert out["udp"] == 0 and out.get("tcp again") == 0, out
