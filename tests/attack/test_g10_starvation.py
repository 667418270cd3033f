"""g10: one sandbox floods DNS and connections; the other's p99 DNS stays under 20 ms, and it still gets through to where the flood goes."""
import contextlib
import json

from expect import find, worked
from lab import PYTHON
from latency import dns_latency

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


def test_g10_a_flood_next_door_is_not_felt(boxes):
    b, lab = boxes, boxes.lab
    lab.dns.set("ok.test", A="11.1.0.5", ttl=300)
    b.up("quiet", "--compatibility-mode", "codex", "--allow-host", "ok.test:7", "--vcpus", "1")
    b.up("loud", "--compatibility-mode", "codex", "--allow-host", "ok.test:7")
    with b.holding("quiet") as (proc, do):
        calm = dns_latency(b, do)
        flood = lab.spawn([lab.binary, "exec", "loud", PYTHON, "-c", FLOOD], env=lab.env())
        flood.wait_output(b"up\n")
        loud = dns_latency(b, do)
        assert loud["lost"] == 0 and loud["p99"] < 0.02, (calm, loud)
        worked(do([["tcp", "ok.test", 7, b"x".hex()]])[0])
        flood.signal(9)
        flood.wait()


PORT_RANGE = "/proc/sys/net/ipv4/ip_local_port_range"
PORTS = 2048
# Each is ended by us, in order, so that its port towards the far side is kept for a minute.
CHURN = """
import json, socket, sys
done = failed = 0
addr = socket.gethostbyname('ok.test')
for _ in range(int(sys.argv[1])):
    try:
        with socket.create_connection((addr, 7), 5) as s:
            s.sendall(b'x')
            done += len(s.recv(1))
    except (ConnectionResetError, BrokenPipeError): failed += 1
print(json.dumps([done, failed]))
"""


@contextlib.contextmanager
def local_ports(lab, text):
    """The lab's host has these ports for connections."""
    before = lab.host(["cat", PORT_RANGE]).out
    put = lambda t: lab.host(["tee", PORT_RANGE], stdin=t.encode())
    assert put(text).code == 0
    try:
        yield
    finally:
        put(before)


def test_g10_who_uses_up_the_local_ports_uses_up_its_own(boxes):
    b, lab = boxes, boxes.lab
    lab.dns.set("ok.test", A="11.1.0.5", ttl=300)
    churn = lambda name, n: json.loads(b.out(name, PYTHON, "-c", CHURN, str(n), timeout=60))
    with local_ports(lab, "40000 %d" % (40000 + PORTS - 1)):
        for name in ("loud", "quiet"):
            b.up(name, "--compatibility-mode", "codex", "--allow-host", "ok.test:7")
        lab.clear()
        done, failed = churn("loud", PORTS)
        assert lab.syns("11.1.0.5", 7) == done  # what found no port never left
        assert PORTS // 4 < done < PORTS * 3 // 4 and failed == PORTS - done, (done, failed)
        assert find(b.netlog("loud"), event="flow", detail="no local port is free"), b.netlog("loud")[-3:]
        assert churn("quiet", 100) == [100, 0]
        r = lab.host([PYTHON, "-c", CHURN.replace("ok.test", "11.1.0.5"), "100"])
        assert json.loads(r.out) == [100, 0], r
        b.close()
