"""d5: one sandbox reaches another neither by address nor by link nor by ARP, whatever its policy."""
from expect import worked
from lab import PYTHON

LISTEN = """
import socket, sys
a = socket.socket(); a.setsockopt(1, 2, 1); a.bind(('0.0.0.0', 9999)); a.listen(8)
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.bind(('0.0.0.0', 9999))
print('up', flush=True)
import selectors
sel = selectors.DefaultSelector(); sel.register(a, 1); sel.register(u, 1)
while True:
    for key, _ in sel.select():
        print('hit', flush=True)
        if key.fileobj is a: a.accept()[0].close()
        else: u.recv(100)
"""


def test_d5_neighbours_do_not_exist_for_each_other(boxes):
    b, lab = boxes, boxes.lab
    b.up("victim", "--compatibility-mode", "native")
    b.up("agent", "--compatibility-mode", "native", "--allow-cidr", "100.64.0.0/10")
    b.up("third", "--compatibility-mode", "codex", "--allow-host", "ok.test:7")
    target = b.list()["victim"]["ip"]
    server = lab.spawn([lab.binary, "exec", "victim", PYTHON, "-c", LISTEN], env=lab.env())
    server.wait_output(b"up\n")
    last = int(target.rsplit(".", 1)[1])
    near = [target.rsplit(".", 1)[0] + ".%d" % (last + d) for d in (-2, -1, 0, 1, 2) if 0 <= last + d < 256]
    for name in ("agent", "third"):
        steps = [["tcp", a, 9999, b"x".hex()] for a in near] + [["udp", a, 9999] for a in near] + [["tcp", a, 53] for a in near[2:3]]
        for step, row in zip(steps, b.probe(name, steps, timeout=120)):
            assert "err" in row, (name, step, row)
        rows = worked(b.probe(name, [["eval", "out = open('/proc/net/arp').read()"]])[0])
        assert target not in rows, rows
    # A route on the link itself, and ARP for the neighbour.
    raw = ("import subprocess\nout = [subprocess.call(c, shell=True, stdout=-3, stderr=-3) for c in ("
           "'ip addr add %s/30 dev eth0', 'ip neigh add %s lladdr 02:00:00:00:00:01 dev eth0', 'ip route add %s dev eth0', 'arping -c 1 -I eth0 %s')]")
    b.probe("agent", [["eval", raw % ((target,) * 4)], ["tcp", target, 9999]])
    assert b"hit" not in server.output[1]
    server.signal(2)
    server.wait(10)
    assert b"hit" not in server.output[1], server.output
