"""h15: what a sandbox sends costs the gateway no more than its length: dripped heads, dripped hellos in tiny records, long pipelines for one host or
many, bodies of tiny chunks; a neighbour does not feel it."""
import pytest
from lab import PYTHON
from latency import dns_latency

# Each kind is one writer of many connections, a little on each in turn, as fast as it can.
DRIP = r"""
import os, socket, sys

kind = sys.argv[1]
addr = socket.gethostbyname('ok.test')
port = int(sys.argv[2])
line = b'X-%d: ' + b'a' * 40 + b'\r\n'
head = b'GET / HTTP/1.1\r\n' + b''.join(line % i for i in range(300))
message = b'\x01\x00\x3f\xff\x03\x03' + b'r' * 32 + b'\0' + b'\x3f\x00' + b'\x13\x01' * 8064
hello = b''.join(b'\x16\x03\x01\0\x01' + bytes([c]) for c in message)[:16000]
request = b'GET / HTTP/1.1\r\nHost: ok.test\r\n\r\n'
hosts = b''.join(b'GET / HTTP/1.1\r\nHost: n%d.test\r\n\r\n' % i for i in range(9))
post = b'POST / HTTP/1.1\r\nHost: ok.test\r\nTransfer-Encoding: chunked\r\n\r\n'
text, step = {'head': (head, 1), 'hello': (hello, 1), 'pipeline': (request * 4000, 65536), 'hosts': (hosts * 500, 65536),
              'chunks': (post + b'1\r\nX\r\n' * 200000, 65536)}[kind]
if kind == 'hosts':
    for i in range(9): socket.gethostbyname('n%d.test' % i)
def begin():
    s = socket.socket(); s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    s.connect((addr, port))
    try: s.send(text[:14000] if step == 1 else b'') # near the bound, where each further octet costs most
    except OSError: pass
    s.setblocking(False)
    return [s, 14000 if step == 1 else 0]
flows = [begin() for _ in range(400)]
print('up', flush=True)
while True:
    for f in flows:
        try:
            n = f[0].send(text[f[1]:f[1] + step]); f[1] += n
            if step != 1: f[0].recv(1 << 16)
        except BlockingIOError: pass
        except OSError: f[1] = len(text)
        if f[1] >= len(text): f[0].close(); f[:] = begin()
"""


@pytest.mark.parametrize("kind", ["head", "hello", "pipeline", "hosts", "chunks"])
def test_h15_a_neighbour_does_not_feel(boxes, kind):
    b, lab = boxes, boxes.lab
    lab.dns.set("ok.test", A="11.1.0.5", ttl=300)
    more = []
    for i in range(9):
        lab.dns.set("n%d.test" % i, A="11.1.0.5", ttl=300)
        more += ["--allow-host", "n%d.test" % i]
    b.up("quiet", "--compatibility-mode", "codex", "--allow-host", "ok.test:7", "--vcpus", "1")
    b.up("loud", "--compatibility-mode", "codex", "--allow-host", "ok.test", *more)
    with b.holding("quiet") as (_, do):
        calm = dns_latency(b, do)
        flood = lab.spawn([lab.binary, "exec", "loud", PYTHON, "-c", DRIP, kind, "443" if kind == "hello" else "80"], env=lab.env())
        flood.wait_output(b"up\n")
        loud = dns_latency(b, do)
        assert loud["lost"] == 0 and loud["p99"] < 0.02, (calm, loud)
        flood.signal(9)
        flood.wait()
