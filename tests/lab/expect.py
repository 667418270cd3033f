"""What the net and attack tests say over and over."""
import contextlib
import json
import os
import re
import shutil
import subprocess
import time

import dnswire
import pytest
from lab import HERE, PATIENCE_S, PYTHON

CODEX = ["--compatibility-mode", "codex"]
NATIVE = ["--compatibility-mode", "native"]
INSIDE = os.path.join(HERE, "inside.py")


def missing(why):
    """A host that lacks something: skip on a laptop, fail where everything must work."""
    if os.environ.get("AK_MUST_WORK") == "1":
        pytest.fail(why)
    pytest.skip(why)


def allow(*hosts, mode="codex"):
    """Options of a run that may reach HOSTS besides the mode's own."""
    out = ["--compatibility-mode", mode]
    for host in hosts:
        out += ["--allow-host", host]
    return out


def policy_env(lab, **policies):
    """A data folder whose policies are POLICIES (a dict each, or the file's very text); the environment that selects it."""
    folder = lab.path("data%d" % len(os.listdir(lab.home)), "policies")
    os.makedirs(folder)
    for name, policy in policies.items():
        with open(os.path.join(folder, name + ".json"), "w") as f:
            f.write(policy if isinstance(policy, str) else json.dumps(dict({"version": 1, "name": name, "default": "deny"}, **policy)))
    return {"AGENTKERNEL_DATA_DIR": os.path.dirname(folder)}


# What nobody answers ends when the kernel gives up a neighbour (3 s), or waits until the C library sends its query again (musl 2.5 s, glibc 5 s).
SHORTEST_WAIT_MS = 2500


def at_once(row):
    """Somebody answered: no SYN was sent a second time, and no time-out can have ended it. How long a busy machine takes to answer says nothing."""
    assert row["again"] == 0 and row.get("err") != "timeout" and row["ms"] < SHORTEST_WAIT_MS, "nobody answered at once: %r" % row


def refused(row):
    """The client got an error of the network, at once, and not a time-out. A mistake in the test's own code is no refusal."""
    assert "err" in row, "was not refused: %r" % row
    assert re.fullmatch(r"E[A-Z0-9_]+|eof|ssl: .+", row["err"]), "not refused but failed: %r" % row
    at_once(row)


def worked(row):
    assert "ok" in row, "did not work: %r" % row
    return row["ok"]


def find(log, **want):
    """Records that have all of WANT, exactly; a set or tuple means any of these."""
    def fits(have, value):
        return have in value if isinstance(value, (set, tuple)) else have == value
    return [r for r in log if all(fits(r.get(k), v) for k, v in want.items())]


def brief(log):
    """The records without what no reader of a failure needs."""
    drop = ("v", "time", "sandbox", "policy", "generation", "prev", "hash")
    return "\n".join(json.dumps({k: v for k, v in row.items() if k not in drop}) for row in log)


# Why something is refused: the rule and the reason, exactly as a record has them. A rule of the policy is "<policy>: <rule as written>".
NOT_LISTED = ("default", "not in allowlist")
NOT_THIS_PORT = ("default", "not allowed on this port")
NOT_LEARNED = ("default", "no allowed name has this address")
STALLED = ("default", "gave no name in time")
NO_SNI = ("default", "TLS without a server name (SNI)")
NOT_TLS = ("default", "not TLS")
SNI_NOT_ALLOWED = ("default", "SNI not allowed here")
SNI_ELSEWHERE = ("default", "SNI is not a name of this address")
HOST_NOT_ALLOWED = ("default", "Host not allowed here")
HOST_ELSEWHERE = ("default", "Host is not a name of this address")
METADATA = ("builtin: metadata", "cloud metadata")
PRIVATE = ("builtin: private", "private address")
MULTICAST = ("builtin: multicast", "multicast or broadcast")
BROADCAST = ("builtin: broadcast", "multicast or broadcast")
INTERNAL = ("builtin: internal", "internal name")
RESOLVER = ("builtin: resolver", "encrypted-DNS resolver")
DNS_ELSEWHERE = ("builtin: encrypted-dns", "DNS only through the gateway")
SPOOFED = ("builtin: spoof", "spoofed source address")
PROTOCOL = ("builtin: protocol", "only TCP and UDP may pass")
FRAGMENT = ("builtin: protocol", "fragments and IP options may not pass")
FRAME = ("builtin: link", "not a plain IPv4 or IPv6 frame of this sandbox")
HOST_ITSELF = ("builtin: host", "an address of the host itself")
CUT = "cut by a policy change"
BLOCKED_ANSWERS = "answers in blocked ranges"


def denied(log, why, **where):
    """There is a record of a denial WHERE that has the rule and the reason of WHY; the records."""
    rule, reason = why
    near = find(log, verdict="deny", **where)
    rows = find(near, rule=rule, reason=reason)
    assert rows, "no denial by %r because %r in\n%s" % (rule, reason, brief(near or log))
    return rows


def allowed(log, **want):
    rows = find(log, verdict="allow", **want)
    assert rows, "no allow with %r in\n%s" % (want, brief(log))
    return rows


def ask(name, qtype="A", server=None, proto="udp", **kw):
    """A probe step that asks the sandbox's resolver."""
    return ["dns", dnswire.query(name, qtype, **kw).hex(), server, proto]


def reply(row):
    return dnswire.parse(bytes.fromhex(worked(row)))


def addresses(message):
    return [a["data"] for a in message["answers"] if a["type"] in ("A", "AAAA")]


def probe_server(script):
    """A command that runs SCRIPT (Python), then evaluates each line written to it as a list of probe steps."""
    with open(os.path.join(HERE, "probe.py")) as f:
        probe = f.read().replace('if __name__ == "__main__":', "if False:")
    return [PYTHON, "-c", probe + "\n%s\nprint('ready', flush=True)\nfor line in sys.stdin:\n    main(json.loads(line)); sys.stdout.flush()\n" % script]


@contextlib.contextmanager
def talking(proc, timeout=20):
    """PROC runs a probe_server, which starts within TIMEOUT; yields (process, do) where do(steps) → results."""
    proc.wait_output(b"ready\n", timeout)

    def do(steps, timeout=60):
        lines = proc.output[1].count(b"\n")
        proc.write(json.dumps(steps).encode() + b"\n")
        if not proc._pump(time.monotonic() + max(timeout, proc.lab.patience_s), lambda: proc.output[1].count(b"\n") > lines or proc.code is not None):
            raise AssertionError("no answer from the sandbox: %r" % proc.output)
        assert proc.code is None, "ended with %s: %r" % (proc.code, proc.output)
        return json.loads(proc.output[1].split(b"\n")[lines])

    try:
        yield proc, do
    finally:
        with contextlib.suppress(OSError):
            proc.close_stdin()
        with contextlib.suppress(Exception):
            if proc.code is None:
                proc.result = proc.wait(10)


def holding(lab, args, script="", timeout=20, **kw):
    """A sandbox that stays for as long as the context does; see probe_server and talking."""
    return talking(lab.start([*args, "--", *probe_server(script)], stdin="pipe", **kw), timeout)


# A program that tries to reach 11.66.0.1 for ever, and prints when it began each attempt that has ended.
TRYING = """import socket, time
print('up', flush=True)
while True:
    began, s = time.monotonic(), socket.socket()
    s.settimeout(0.5)
    try:
        s.connect(('11.66.0.1', 7)); s.send(b'alive'); s.recv(5)
    except OSError:
        pass
    s.close()
    print(began, flush=True)
"""


def tries_again(proc, times=3):
    """PROC runs TRYING: until it has begun and ended TIMES more attempts."""
    now = time.monotonic()
    assert proc._pump(now + PATIENCE_S, lambda: sum(float(t) > now for t in proc.output[1].split(b"\n")[1:-1]) >= times), proc.output


class Gate:
    """Where a command in a sandbox waits for the test: its shell runs WAIT, and goes on when open() is called here. In the project folder."""

    def __init__(self, lab, name="gate"):
        self.path = lab.path("project", name)
        os.mkfifo(self.path)
        os.chmod(self.path, 0o666)
        self.fd = os.open(self.path, os.O_RDWR)  # both ends: nobody waits for the other to come
        self.wait = "read _ < '%s'" % self.path

    def open(self):
        os.write(self.fd, b"\n")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self.fd)
        os.unlink(self.path)


PROCESSES = """
import json, os
rows = {}
for pid in filter(str.isdigit, os.listdir('/proc')):
    try:
        st = dict(l.rstrip().split(':', 1) for l in open('/proc/%s/status' % pid))
        rows[int(pid)] = {'ppid': int(st['PPid']), 'nspid': [int(x) for x in st['NSpid'].split()], 'comm': st['Name'].strip(),
            'rss_kib': int(st.get('VmRSS', '0').split()[0]), 'seccomp': st['Seccomp'].strip(), 'nnp': st['NoNewPrivs'].strip(),
            'caps': [st[k].strip() for k in ('CapEff', 'CapPrm', 'CapInh', 'CapAmb')],
            'exe': os.readlink('/proc/%s/exe' % pid) if True else ''}
    except OSError:
        pass
print(json.dumps(rows))
"""


def processes(lab, proc):
    """pid → facts, for PROC and everything below it."""
    rows = {int(k): v for k, v in lab.host([PYTHON, "-c", PROCESSES]).json().items()}

    def below(pid):
        while pid > 1 and pid != proc.pid:
            pid = rows[pid]["ppid"] if pid in rows else 0
        return pid > 1
    return {pid: row for pid, row in rows.items() if below(pid)}


def gateway_pid(lab, proc):
    """The process that parses what the sandbox sends: below the supervisor, outside the sandbox's pid namespace, under a filter."""
    found = [pid for pid, row in processes(lab, proc).items() if pid != proc.pid and len(row["nspid"]) == 1]
    assert len(found) == 1, "one gateway process expected: %r" % processes(lab, proc)
    return found[0]


def in_gateway(lab, proc, *cmd):
    return lab.host([PYTHON, INSIDE, "gateway", str(gateway_pid(lab, proc)), *cmd])


def vmm_pid(lab, proc):
    """The virtual machine monitor of the sandbox that PROC runs."""
    found = [pid for pid, row in processes(lab, proc).items() if "qemu-system" in row["exe"]]
    assert len(found) == 1, processes(lab, proc)
    return found[0]


def on_tap(lab, proc, *cmd):
    """CMD as the lab's root in the gateway's namespace, with a copy of the descriptor that QEMU has of the sandbox's tap; its number is in TAP."""
    return lab.spawn([PYTHON, INSIDE, "tap", str(gateway_pid(lab, proc)), str(vmm_pid(lab, proc)), *cmd], who="root", cwd="/")


def in_sandbox(lab, proc, *cmd):
    return lab.host([PYTHON, INSIDE, "sandbox", str(lab.sandbox_init(proc)), *cmd])


def compile_c(lab, source, name, static=False, flags=()):
    """SOURCE (text) as a program in the project folder; the path. NULL compiler means the host cannot."""
    cc = shutil.which("musl-gcc") if static else shutil.which("cc")
    if cc is None:
        missing("no %s here" % ("musl-gcc" if static else "cc"))
    cache = os.path.join(lab.folder, name)
    if not os.path.exists(cache):
        src = cache + ".c"
        with open(src, "w") as f:
            f.write(source)
        subprocess.run([cc, "-O1", "-Wall", *(["-static"] if static else []), "-o", cache, src, *flags], check=True)
    target = lab.path("project", name)
    shutil.copy(cache, target)
    return target


def table_is_clean(text):
    assert not [c for c in text if (ord(c) < 32 and c != "\n") or 127 <= ord(c) < 160], "control characters in: %r" % text


@contextlib.contextmanager
def instead_of(lab, program, path):
    """PATH in the place of a program of the system, in the lab only."""
    if not lab.is_root:
        pytest.skip("mounts in the lab want its root")
    real = shutil.which(program)
    assert lab.host(["mount", "--bind", path, real]).code == 0
    try:
        yield
    finally:
        lab.host(["umount", real])
