"""How long a sandbox waits for DNS answers, without the time in which the gateway or the client waited for a processor.

What else runs on the machine, a flood's own processes included, then does not decide whether a test passes: what is left is how the gateway shares
itself out. The kernel counts that waiting in /proc/PID/schedstat.
"""
from expect import INSIDE, worked
from lab import PYTHON

# Sandboxes have one process that stays for as long as they run: the first of its pid namespace.
INITS = """
import json, os
found = {}
for pid in filter(str.isdigit, os.listdir('/proc')):
    try:
        ids = next(line.split()[1:] for line in open('/proc/%s/status' % pid) if line.startswith('NSpid:'))
        if len(ids) > 1 and ids[-1] == '1': found[os.readlink('/proc/%s/ns/net' % pid)] = pid
    except OSError: pass  # it has ended
print(json.dumps(found))
"""
MEASURE = """
import json, os, socket, sys, time
stats = [os.open('/proc/%s/schedstat' % pid, os.O_RDONLY) for pid in (sys.argv[1], 'self')]
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(20); s.connect((sys.argv[2], 53))
queued = lambda: sum(int(os.pread(fd, 100, 0).split()[1]) for fd in stats) / 1e9
times, lost = [], 0
for i in range(int(sys.argv[3])):
    before, began = queued(), time.monotonic()
    s.send((i + 1).to_bytes(2, 'big') + b'\\x01\\0\\0\\x01\\0\\0\\0\\0\\0\\0\\x02ok\\x04test\\0\\0\\x01\\0\\x01')
    try:
        while int.from_bytes(s.recv(1000)[:2], 'big') != i + 1: pass
        times.append(max(0, time.monotonic() - began - (queued() - before)))
    except OSError: lost += 1
    time.sleep(0.005)  # pace: no more queries a second than the limit dns_qps allows
times.sort()
print(json.dumps({'p50': times[len(times) // 2], 'p99': times[int(len(times) * 0.99) - 1], 'lost': lost}))
"""


def inits(lab):
    """Network namespace, as readlink tells it → pid of its sandbox's init, on the lab's host."""
    return lab.host([PYTHON, "-c", INITS]).json()


def queued(lab, *pids):
    """Seconds that these processes have waited for a processor."""
    return sum(int(row.split()[1]) for row in lab.host(["cat", *("/proc/%s/schedstat" % pid for pid in pids)]).out.splitlines()) / 1e9


def latency(lab, init, gateway, server, n):
    """The same from the sandbox with this INIT, of the GATEWAY with this pid."""
    r = lab.host([PYTHON, INSIDE, "sandbox", str(init), PYTHON, "-c", MEASURE, str(gateway), server, str(n)], timeout=120)
    assert r.code == 0, r
    return r.json()


def dns_latency(boxes, do, n=500):
    """Ask for ok.test N times from the sandbox behind DO (see Boxes.holding); {"p50": seconds, "p99": seconds, "lost": answers that never came}."""
    server, namespace = worked(do([["eval", "out = [gateway(), os.readlink('/proc/self/ns/net')]"]])[0])
    return latency(boxes.lab, inits(boxes.lab)[namespace], boxes.status()["gateway"]["pid"], server, n)
