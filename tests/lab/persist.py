"""Persistent sandboxes in the lab: what the tests of create, start, exec, live policies and the daemon say over and over."""
import contextlib
import fcntl
import json
import time

from expect import probe_server, talking
from lab import PYTHON, LabError, wait_for


# What a supervisor forks has its name for a moment: only one who is nobody's of that name counts.
SUPERVISORS = """
import os
rows = {}
for pid in filter(str.isdigit, os.listdir('/proc')):
    try: st = dict(l.rstrip().split(':', 1) for l in open('/proc/%s/status' % pid))
    except OSError: continue
    rows[pid] = st['Name'].strip(), st['PPid'].strip()
print(*[pid for pid, (name, parent) in rows.items() if name == 'ak-super' and rows.get(parent, ('', ''))[0] != name])
"""


def locked(f):
    try:
        fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False


class Boxes:
    def __init__(self, lab):
        self.lab = lab

    # ---- commands ----

    def ak(self, *args, **kw):
        """A command that must work; its result."""
        r = self.lab.ak(list(args), **kw)
        assert r.code == 0, "%s: %r" % (" ".join(args), r)
        return r

    def fails(self, *args, code=1, says=""):
        """A command that must fail with CODE, at once, and say why in our own words."""
        r = self.lab.ak(list(args))
        assert r.code == code, "%s: %r" % (" ".join(args), r)
        lines = r.err.splitlines()
        assert lines and all(line.startswith("agentkernel: ") for line in lines), r
        assert says.lower() in r.err.lower(), "%r is not in %r" % (says, r)
        return r

    def create(self, name, *args, **kw):
        self.ak("create", name, *args, **kw)
        return name

    def up(self, name, *args, **kw):
        """Create and start."""
        self.create(name, *args, **kw)
        self.ak("start", name)
        return name

    def exec(self, name, *cmd, options=(), **kw):
        return self.lab.ak(["exec", *options, name, *cmd], **kw)

    def out(self, name, *cmd, **kw):
        r = self.exec(name, *cmd, **kw)
        assert r.code == 0, r
        return r.out

    def sh(self, name, script, **kw):
        return self.out(name, "sh", "-c", script, **kw)

    def probe(self, name, steps, timeout=60):
        r = self.exec(name, *self.lab.probe_command(steps), timeout=timeout)
        try:
            return json.loads(r.out)
        except ValueError:
            raise LabError("the probe printed no result: %r" % r) from None

    def list(self):
        return {row["name"]: row for row in json.loads(self.ak("list", "--json").out)}

    def policy(self, name):
        return json.loads(self.ak("network", "policy", name, "--json").out)

    def netlog(self, name, *options):
        return self.lab.netlog(*options, name=name)

    # ---- the daemon ----

    def status(self):
        return json.loads(self.ak("daemon", "status", "--json").out)

    def pid(self):
        return self.status()["pid"]

    def kill_daemon(self, sig=9):
        """SIGKILL, and wait until it and its gateway are gone."""
        before = self.status()
        pids = [before["pid"], before["gateway"].get("pid") or before["pid"]]
        self.lab.host(["kill", "-%d" % sig, str(pids[0])])
        for pid in pids:
            wait_for(lambda: self.lab.host(["test", "!", "-d", "/proc/%d" % pid]).code == 0)

    def runtime(self, *parts):
        return self.lab.path("runtime", "agentkernel", *parts)

    def life(self):
        """What is kept of the daemon's life: see life.h."""
        with open(self.runtime("daemon.json")) as f:
            return json.load(f)

    @contextlib.contextmanager
    def supervisors_held_back(self):
        """The lock of the one who brings the daemon back is ours: no supervisor can."""
        with open(self.runtime("daemon.heal"), "r+") as f:
            wait_for(lambda: locked(f), 30)
            yield

    @contextlib.contextmanager
    def without_daemon(self):
        """The daemon dies and does not come back, as in the middle of a crash loop: not by a supervisor, which finds the lock taken, nor by a command
        that can do without it, which finds the next attempt far away. `daemon start` works, and when this ends supervisors may again."""
        with self.supervisors_held_back():
            self.kill_daemon()
            record = {"state": "ended", "failures": 9, "retry_ms": int(time.monotonic() * 1000) + 59000, "reason": "as this test wants"}
            with open(self.runtime("daemon.json"), "w") as f:
                json.dump(record, f)
            yield

    def revive(self):
        """A daemon runs, whoever starts it."""
        self.lab.ak(["daemon", "start"])
        wait_for(self.runs)

    def supervisors(self):
        """The pids of those who hold the sandboxes that run."""
        return self.lab.host([PYTHON, "-c", SUPERVISORS]).out.split()

    def runs(self):
        return self.lab.ak(["daemon", "status", "--json"]).code == 0

    def close(self):
        self.lab.ak(["remove", "--all", "--force"])
        if self.runs():
            self.lab.ak(["daemon", "stop"])

    # ---- a command that stays ----

    def holding(self, name, script="", timeout=20):
        """A command in NAME that stays for as long as the context does; see probe_server and talking."""
        return talking(self.lab.spawn([self.lab.binary, "exec", name, *probe_server(script)], env=self.lab.env(), stdin="pipe"), timeout)


# A connection that echoes for as long as it lives, and says for how long after its end it was cut.
FLOW = """
import threading, time
flows = {}
def open_flow(key, host, port):
    s = socket.create_connection((host, port), 5); s.settimeout(5)
    row = flows[key] = {'sock': s, 'dead': None, 'echoes': 0, 'longest': 0.0}
    def pump():
        last = time.monotonic()
        try:
            while True:
                s.sendall(b'x')
                if not s.recv(1): raise OSError('eof')
                now = time.monotonic(); row['longest'] = max(row['longest'], now - last); last = now
                row['echoes'] += 1
                let_pass(0.002, 'an echo every few milliseconds tells enough, and leaves the processors to others')
        except OSError as e:
            row['dead'] = time.time(); row['why'] = str(e)
    threading.Thread(target=pump, daemon=True).start()
def tell():
    return {k: {n: v for n, v in row.items() if n != 'sock'} for k, row in flows.items()}
"""


def open_flow(key, host, port=7):
    return ["eval", "open_flow(%r, %r, %d); out = 1" % (key, host, port)]


TELL = ["eval", "out = tell()"]
