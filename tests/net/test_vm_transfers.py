"""Large transfers over tap and relay. A guest leaves checksums and segmentation to the host, and the host to the guest: a mistake in either shows in large transfers only."""
import pytest
from expect import allow, worked
from guests import every_run

pytestmark = pytest.mark.xdist_group("vm")
MIB = 256
# Every block has its number, so that a lost, doubled or moved one shows; both directions at once, the whole compared by hash.
ECHO = r"""
import hashlib, threading
blocks, block = %d, os.urandom(1 << 20)
def numbered(i): return struct.pack('!Q', i) + block[8:]
sent, got, total = hashlib.md5(), hashlib.md5(), 0
s = connect('ok.test', 7); s.settimeout(120)
def send():
    for i in range(blocks): data = numbered(i); sent.update(data); s.sendall(data)
    s.shutdown(socket.SHUT_WR)
began = time.monotonic()
sender = threading.Thread(target=send, daemon=True); sender.start()
while True:
    data = s.recv(1 << 20)
    if not data: break
    got.update(data); total += len(data)
sender.join()
out = [total, sent.hexdigest() == got.hexdigest(), round(time.monotonic() - began, 2)]
"""
# One datagram at a time: each comes back, or the test ends.
DATAGRAMS = r"""
s = socket.socket(*socket.getaddrinfo('ok.test', 7, socket.AF_INET, socket.SOCK_DGRAM)[0][:3]); s.settimeout(20); s.connect((socket.gethostbyname('ok.test'), 7)); out = 0
for i in range(500):
    data = struct.pack('!I', i) + os.urandom(i % 1400); s.send(data); out += s.recv(2000) == data
"""


@pytest.fixture
def guests(lab):
    with lab.acting_as("user"), every_run(lab):
        yield lab


def test_large_transfers_arrive_whole(guests):
    got = guests.probe(allow("ok.test:7", "ok.test:7/udp"), [["eval", ECHO % MIB], ["eval", DATAGRAMS], ["eval", "out = open('/sys/class/net/eth0/device/features').read()"]], timeout=600)
    total, same, seconds = worked(got[0])
    assert total == MIB << 20 and same, got
    assert worked(got[1]) == 500
    # Negotiated when the guest was booted: checksums and segmentation in both directions (virtio 5.1.3: bits 0, 1, 7, 8, 11, 12).
    assert {worked(got[2])[bit] for bit in (0, 1, 7, 8, 11, 12)} == {"1"}, got[2]
    assert sum(c["bytes"] for c in guests.conns(kind="echo") or guests.conns()) >= MIB << 20
    print("%d MiB both ways in %.1f s" % (MIB, seconds))
