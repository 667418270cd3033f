"""g10: one sandbox floods DNS and connections; the other's p99 DNS stays under 20 ms."""
from expect import worked
from lab import PYTHON

FLOOD = """
import socket, threading
gw = [l.split()[1] for l in open('/etc/resolv.conf') if l.startswith('nameserver')][0]
print('up', flush=True)
def dns():
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.connect((gw, 53)); s.setblocking(False); i = 0
    while True:
        i += 1
        name = b'\\x08' + (b'%08d' % i) + b'\\x04evil\\x04test\\0'
        try: s.send(b'ab\\x01\\0\\0\\x01\\0\\0\\0\\0\\0\\0' + name + b'\\0\\x01\\0\\x01')
        except OSError: pass
        try: s.recv(600)
        except OSError: pass
def tcp():
    while True:
        s = socket.socket(); s.setblocking(False)
        try: s.connect(('11.1.0.5', 7))
        except OSError: pass
        s.close()
threading.Thread(target=dns, daemon=True).start()
tcp()
"""
MEASURE = """
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(2); s.connect((gateway(), 53))
times, lost = [], 0
for i in range(300):
    t = time.monotonic()
    s.send((i + 1).to_bytes(2, 'big') + b'\\x01\\0\\0\\x01\\0\\0\\0\\0\\0\\0\\x02ok\\x04test\\0\\0\\x01\\0\\x01')
    try:
        while int.from_bytes(s.recv(1000)[:2], 'big') != i + 1: pass
        times.append(time.monotonic() - t)
    except OSError: lost += 1
    let_pass(0.005, 'no more questions a second than dns_qps allows')
times.sort()
out = {'p50': times[len(times) // 2], 'p99': times[int(len(times) * 0.99) - 1], 'lost': lost}
"""


def test_g10_a_flood_next_door_is_not_felt(boxes):
    b, lab = boxes, boxes.lab
    lab.dns.set("ok.test", A="11.1.0.5", ttl=300)
    b.up("quiet", "--compatibility-mode", "codex", "--allow-host", "ok.test:7", "--vcpus", "1")
    b.up("loud", "--compatibility-mode", "codex", "--allow-host", "ok.test:7")
    with b.holding("quiet") as (proc, do):
        calm = worked(do([["eval", MEASURE]])[0])
        flood = lab.spawn([lab.binary, "exec", "loud", PYTHON, "-c", FLOOD], env=lab.env())
        flood.wait_output(b"up\n")
        # Both cores are the flood's and ours; the best of three takes what else the machine does out of it.
        loud = min((worked(do([["eval", MEASURE]])[0]) for _ in range(3)), key=lambda r: r["p99"])
        assert loud["lost"] == 0 and loud["p99"] < 0.02, (calm, loud)
        worked(do([["tcp", "ok.test", 7, b"x".hex()]])[0])
        flood.signal(9)
        flood.wait()
