#!/usr/bin/python3
"""The lab: a private Internet in namespaces, and agentkernel run inside it.

    with Lab() as lab:
        lab.dns.set("ok.test", A="11.1.0.5", ttl=30)
        r = lab.run(["--compatibility-mode", "codex", "--allow-host", "ok.test", "--", "python3", "-c", CODE])
        assert r.code == 0 and lab.arrived("11.66.0.1") == 0
        for record in lab.netlog(): ...

    lab.py shell [internet]    a shell on the lab's host (or on its Internet side)
    lab.py demo                what `make demo` shows

Works for root and for an ordinary user; nothing of it outlives the process. See labd.py for how it is made and internet.py for
what answers there.
"""
import contextlib
import ctypes
import errno
import fcntl
import glob
import json
import os
import pwd
import resource
import select
import selectors
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, HERE)
PYTHON = "/usr/bin/python3"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# Every name the tests and the shipped policies speak of. One address may have several names.
ZONE = [
    dict(name="ok.test", A="11.1.0.5", AAAA="2a00:1::5"),
    dict(name="two.test", A="11.1.0.5", AAAA="2a00:1::5"),
    dict(name="other.test", A="11.1.0.6", AAAA="2a00:1::6"),
    dict(name="v4.test", A="11.1.0.7"),
    dict(name="v6.test", AAAA="2a00:1::7"),
    dict(name="wild.test", A="11.1.1.2"),
    dict(name="*.wild.test", A="11.1.1.1"),
    dict(name="alias.test", CNAME="ok.test"),
    dict(name="denied.test", A="11.66.0.1", AAAA="2a00:66::1"),
    dict(name="evil.test", A="11.66.0.2", AAAA="2a00:66::2"),
    dict(name="evilok.test", A="11.66.0.3"),
    dict(name="ok.test.evil", A="11.66.0.4"),
    dict(name="-ok.test", A="11.66.0.5"),
    dict(name="test", A="11.66.0.6"),
    dict(name="api.openai.com", A="11.2.0.1", AAAA="2a00:2::1"),
    dict(name="cdn.openai.com", A="11.2.0.1"),
    dict(name="*.openai.com", A="11.2.0.2"),
    dict(name="*.chatgpt.com", A="11.2.0.3"),
    dict(name="chatgpt.com", A="11.2.0.3"),
    dict(name="*.anthropic.com", A="11.3.0.1"),
    dict(name="*.claude.ai", A="11.3.0.2"),
    dict(name="claude.ai", A="11.3.0.2"),
    dict(name="*.claude.com", A="11.3.0.2"),
    dict(name="models.dev", A="11.3.0.3"),
    dict(name="*.opencode.ai", A="11.3.0.4"),
    dict(name="*.googleapis.com", A="11.4.0.1"),
    dict(name="*.google.com", A="11.4.0.2"),
    dict(name="*.npmjs.org", A="11.5.0.1"),
    dict(name="pypi.org", A="11.5.0.2"),
    dict(name="*.pythonhosted.org", A="11.5.0.3"),
    dict(name="*.debian.org", A="11.5.0.4"),
    dict(name="*.crates.io", A="11.5.0.5"),
    dict(name="proxy.golang.org", A="11.5.0.6"),
    dict(name="repo.maven.apache.org", A="11.5.0.7"),
    dict(name="pastebin.com", A="11.66.0.9"),
    dict(name="use-application-dns.net", A="11.66.0.10"),
    dict(name="metadata.google.internal", A="11.66.0.11"),
    dict(name="db.internal", A="11.66.0.12"),
    dict(name="printer.local", A="11.66.0.13"),
    dict(name="intranet", A="11.66.0.14"),
]


ANSWER_S = 120  # until the lab answers a request: the Internet works off a flood first


class LabError(Exception):
    pass


# The lab passes descriptors too, as the same user as the sandboxes of the attacks: see test_g5_descriptors_on_their_way_are_limited.
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)


# The least bound of every wait. A bound ends a test that hangs; how fast a busy machine gets there says nothing about the program.
PATIENCE_S = 60


def wait_for(what, timeout=PATIENCE_S, every=0.01):
    """Until WHAT() is true; its value. What costs much to ask is asked more seldom."""
    timeout = max(timeout, PATIENCE_S)
    end = time.monotonic() + timeout
    while True:
        got = what()
        if got:
            return got
        assert time.monotonic() < end, "never came true within %ss: %r" % (timeout, what)
        time.sleep(every)


class Watch:
    """Tells when a file is read; inotify(7) sees it whoever reads, in whatever namespace."""
    OPEN, CLOSE_NOWRITE = 0x20, 0x10

    def __init__(self, path):
        libc = ctypes.CDLL(None, use_errno=True)
        self.fd = libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
        if self.fd < 0 or libc.inotify_add_watch(self.fd, path.encode(), self.OPEN | self.CLOSE_NOWRITE) < 0:
            raise OSError(ctypes.get_errno(), "inotify: %s" % path)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self.fd)

    def forget(self):
        """What happened until now does not count."""
        with contextlib.suppress(BlockingIOError):
            while os.read(self.fd, 4096):
                pass

    def wait_read(self, timeout=PATIENCE_S):
        """Until someone has opened it and closed it again without having written."""
        begun, end = False, time.monotonic() + timeout
        while True:
            if not select.select([self.fd], [], [], max(0, end - time.monotonic()))[0]:
                raise LabError("nobody read the file within %ss" % timeout)
            data = os.read(self.fd, 4096)
            while data:
                _, mask, _, size = struct.unpack("iIII", data[:16])
                if begun and mask & self.CLOSE_NOWRITE:
                    return
                begun |= bool(mask & self.OPEN)
                data = data[16 + size:]


class Result:
    """How a process in the lab ended."""

    def __init__(self, code, stdout, stderr, seconds, held_open):
        self.code, self.out_bytes, self.err_bytes, self.seconds, self.held_open = code, stdout, stderr, seconds, held_open
        self.out, self.err = stdout.decode("utf-8", "replace"), stderr.decode("utf-8", "replace")

    def json(self):
        return json.loads(self.out)

    def __repr__(self):
        return "<exit %s after %.2fs\nstdout: %s\nstderr: %s>" % (self.code, self.seconds, self.out[-3000:], self.err[-3000:])


class Process:
    """A process in the lab; CODE is its exit code or -N for signal N."""

    def __init__(self, lab, pid, status_fd, pipes, stdin):
        self.lab, self.pid, self.status_fd, self.pipes, self.stdin = lab, pid, status_fd, pipes, stdin
        self.started = time.monotonic()
        self.output = {1: b"", 2: b""}
        self.code = None

    def signal(self, sig):
        self.lab.agent(op="signal", pid=self.pid, sig=int(sig))

    def _pump(self, deadline, until):
        """Move bytes until UNTIL() is true or the deadline passes."""
        sel = selectors.DefaultSelector()
        for n, fd in self.pipes.items():
            if n == 0:
                sel.register(fd, selectors.EVENT_WRITE, 0)
            else:
                sel.register(fd, selectors.EVENT_READ, n)
        if self.status_fd is not None:
            sel.register(self.status_fd, selectors.EVENT_READ, "status")
        with sel:
            while not until():
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                for key, _ in sel.select(left):
                    self._event(sel, key)
        return True

    def _event(self, sel, key):
        if key.data == "status":
            data = os.read(self.status_fd, 4)
            self.code = os.waitstatus_to_exitcode(struct.unpack("i", data)[0]) if data else -9
            self.ended = time.monotonic()
            sel.unregister(key.fd)
            os.close(self.status_fd)
            self.status_fd = None
            return
        if key.data == 0:
            try:
                done = os.write(key.fd, self.stdin[:65536])
                self.stdin = self.stdin[done:]
            except BrokenPipeError:
                self.stdin = b""
            if self.stdin:
                return
        else:
            try:
                data = os.read(key.fd, 65536)
            except OSError as e:  # a pty whose other side is gone
                if e.errno != errno.EIO:
                    raise
                data = b""
            self.output[key.data] += data
            if data:
                return
        sel.unregister(key.fd)
        os.close(key.fd)
        del self.pipes[key.data]

    def wait_output(self, needle, timeout=20, stream=1):
        """Until NEEDLE was printed; the output so far."""
        timeout = max(timeout, self.lab.patience_s)
        if not self._pump(time.monotonic() + timeout, lambda: needle in self.output[stream] or self.code is not None):
            raise LabError("no %r within %ss: %r %r" % (needle, timeout, self.output[1], self.output[2]))
        if needle not in self.output[stream]:
            raise LabError("ended with %s without %r: %r %r" % (self.code, needle, self.output[1], self.output[2]))
        return self.output[stream]

    def write(self, data):
        os.write(self.pipes[0], data)

    def close_stdin(self):
        os.close(self.pipes.pop(0))

    def wait(self, timeout=30):
        timeout = max(timeout, self.lab.patience_s)
        if not self._pump(time.monotonic() + timeout, lambda: self.code is not None):
            with contextlib.suppress(LabError):
                self.signal(signal.SIGKILL)
            self._pump(time.monotonic() + 5, lambda: self.code is not None)
            raise LabError("did not end within %ss: %r %r" % (timeout, self.output[1], self.output[2]))
        whole = self._pump(time.monotonic() + 3, lambda: not [n for n in self.pipes if n])
        for fd in self.pipes.values():
            os.close(fd)
        self.pipes = {}
        return Result(self.code, self.output[1], self.output[2], self.ended - self.started, not whole)


class Dns:
    def __init__(self, lab):
        self.lab = lab

    def set(self, name, **kw):
        self.lab.internet(op="dns_set", name=name, **kw)

    def behave(self, name, **how):
        self.lab.internet(op="dns_behave", name=name, **how)

    def log(self, name=None):
        """Questions that arrived, as they arrived; NAME compares without case."""
        rows = self.lab.internet(op="dns_log")
        if name is None:  # what the gateway asks about the host's network is no sandbox's question
            return [r for r in rows if r.get("name", "").lower() != "ipv4only.arpa"]
        return [r for r in rows if r.get("name", "").lower() == name.lower()]

    def names(self):
        return sorted({r.get("name", "?").lower() for r in self.log()})


def user_ids():
    """Who "an ordinary user" is in the lab: ourselves, or for root a user that exists."""
    if os.geteuid() != 0:
        return os.getuid(), os.getgid()
    for name in (os.environ.get("AK_LAB_USER"), "tester"):
        with contextlib.suppress(KeyError):
            if name:
                entry = pwd.getpwnam(name)
                return entry.pw_uid, entry.pw_gid
    return 1000, 1000


class Lab:
    def __init__(self):
        self.is_root = os.geteuid() == 0
        self.who = os.environ.get("AK_LAB_AS") or ("root" if self.is_root else "user")
        self.uid, self.gid = user_ids()
        self.binary = os.path.abspath(os.environ.get("AK_BIN") or os.path.join(ROOT, "build", "agentkernel"))
        self.dns = Dns(self)
        self.serial = 0
        self.broken = False
        self.backend, self.patience_s = "ns", PATIENCE_S

    # ---- life ----

    def __enter__(self):
        self.folder = tempfile.mkdtemp(prefix="aklab-")
        os.chmod(self.folder, 0o755)
        try:
            self._certificates()
            self._start()
            self.reset()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        """The lab's parent process removes the folder when the lab has ended."""
        for thing in ("control", "inet_file", "inet", "log"):
            if getattr(self, thing, None):
                getattr(self, thing).close()
        if getattr(self, "daemon", None):
            try:
                self.daemon.wait(60)
            except subprocess.TimeoutExpired:
                self.daemon.terminate()  # and it kills the lab
                self.daemon.wait(120)
        else:
            shutil.rmtree(self.folder)
        if os.path.exists(self.folder):
            raise LabError("the lab left its folder: " + self.folder)

    def _certificates(self):
        """One authority, one certificate for every name there is."""
        run = lambda *cmd: subprocess.run(["openssl", *cmd], cwd=self.folder, check=True, capture_output=True)
        key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
        run("req", "-x509", *key, "-days", "30", "-subj", "/CN=Lab authority", "-keyout", "ca.key", "-out", "ca.pem")
        names = sorted({row["name"] for row in ZONE} | {"*.test"})
        with open(os.path.join(self.folder, "ext"), "w") as f:
            f.write("subjectAltName=" + ",".join("DNS:" + n for n in names if not n.startswith("-")))
        run("req", "-new", *key, "-subj", "/CN=lab", "-keyout", "server.key", "-out", "server.csr")
        run("x509", "-req", "-in", "server.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "30", "-extfile", "ext",
            "-out", "server.pem")
        with open(os.path.join(self.folder, "ca.pem")) as f:
            self.ca = f.read()

    def _start(self):
        self.control, control = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.inet, inet = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        for sock in (control, self.control):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        env = {"PATH": PATH, "PYTHONDONTWRITEBYTECODE": "1", "LANG": "C.UTF-8"}
        self.log = open(os.path.join(self.folder, "labd.log"), "w+")
        self.daemon = subprocess.Popen([PYTHON, os.path.join(HERE, "labd.py"), str(control.fileno()), str(inet.fileno()), self.folder,
                                        str(self.uid), str(self.gid)], pass_fds=(control.fileno(), inet.fileno()), env=env, cwd="/",
                                       stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, start_new_session=True)
        control.close()
        inet.close()
        self.inet_file = self.inet.makefile("rwb")
        for read in (lambda: self.control.recv(1 << 20), self.inet_file.readline):
            self.control.settimeout(ANSWER_S)
            self.inet.settimeout(ANSWER_S)
            if not read():
                self.log.seek(0)
                raise LabError("the lab did not start:\n" + self.log.read())
        self.info = self.agent(op="info")
        self.baseline = self.snapshot()

    # ---- control ----

    def agent(self, fds=(), **req):
        def talk():
            socket.send_fds(self.control, [json.dumps(req).encode()], list(fds))
            return self.control.recv(1 << 22)
        return self._answer("the lab", talk)

    def internet(self, **req):
        def talk():
            self.inet_file.write(json.dumps(req).encode() + b"\n")
            self.inet_file.flush()
            return self.inet_file.readline()
        return self._answer("the Internet", talk)

    def _answer(self, who, talk):
        """What WHO answers. Without an answer the lab is broken: a late one would be taken for that of the next request."""
        try:
            data, why = talk(), "is gone"
        except OSError as e:
            data, why = b"", "does not answer: %s" % e
        if not data:
            self.broken = True
            raise LabError("%s %s" % (who, why))
        out = json.loads(data)
        if "error" in out:
            raise LabError(out["error"])
        return out["ok"]

    def reset(self):
        """As new: zone, logs, counters, resolver, and fresh folders for agentkernel."""
        self.internet(op="reset", zone=[dict(row) for row in ZONE])
        self.agent(op="resolv", text="nameserver 11.0.0.53\nnameserver 2a00::53\n")
        self.serial += 1
        self.home = os.path.join(self.folder, "t%d" % self.serial)
        for sub in ("", "home", "state", "config", "runtime", "project", "tmp"):
            path = os.path.join(self.home, sub)
            os.mkdir(path)
            if self.is_root and self.who == "user":
                os.chown(path, self.uid, self.gid)
        os.chmod(os.path.join(self.home, "runtime"), 0o700)
        if self.is_root:
            self.host(["rm", "-rf", "/var/lib/agentkernel", "/run/agentkernel"])

    def clear(self):
        self.internet(op="clear")

    def resolv(self, text, read=False):
        """The host's resolv.conf; with READ only when someone has read it anew."""
        if not read:
            self.agent(op="resolv", text=text)
            return
        with Watch(os.path.join(self.folder, "resolv.conf")) as watch:
            self.agent(op="resolv", text=text)
            watch.forget()
            watch.wait_read()

    def listen(self, port, kind="echo"):
        self.internet(op="listen", port=port, kind=kind)

    def path(self, *parts):
        return os.path.join(self.home, *parts)

    @contextlib.contextmanager
    def acting_as(self, who):
        """Run agentkernel as "root" or "user" for a while, in folders of its own."""
        before = self.who, self.home
        self.who = who
        self.reset()
        try:
            yield self
        finally:
            self.who, self.home = before

    @contextlib.contextmanager
    def trusted(self):
        """The certificates of the lab's host vouch for the lab's authority, as those of a company's machines do for its own."""
        certs = os.path.join(self.folder, "certs")
        if not os.path.exists(certs):
            shutil.copytree("/etc/ssl/certs", certs, symlinks=True)
            with open(os.path.join(certs, "ca-certificates.crt"), "a") as f:
                f.write(self.ca)
        r = self.host(["mount", "--bind", certs, "/etc/ssl/certs"])
        if r.code:
            raise LabError("mount: %r" % r)
        try:
            yield
        finally:
            self.host(["umount", "/etc/ssl/certs"])

    # ---- what arrived ----

    def counters(self):
        return self.internet(op="counters")

    def _sum(self, table, dst, port, proto):
        total = 0
        for key, n in table.items():
            if key.startswith("ethertype"):
                total += n if dst is None and port is None and proto is None else 0
                continue
            kdst, kport, kproto = key.split(" ")
            if dst in (None, kdst) and port in (None, int(kport)) and proto in (None, kproto):
                total += n
        return total

    def arrived(self, dst=None, port=None, proto=None):
        """Packets that reached the Internet for this destination; "11.1.0.5:443" works too."""
        if dst and port is None and dst.count(":") == 1:
            dst, port = dst.split(":")
            port = int(port)
        return self._sum(self.counters()["packets"], dst, port, proto)

    def syns(self, dst=None, port=None):
        return self._sum(self.counters()["syns"], dst, port, "tcp")

    def strangers(self, *expected):
        """Destinations that got packets and are neither the lab's DNS nor EXPECTED (addresses)."""
        rows = {key for key in self.counters()["packets"] if key.split(" ")[0] not in expected}
        return sorted(rows - {"%s 53 %s" % (dns, kind) for dns in ("11.0.0.53", "2a00::53") for kind in ("udp", "tcp", "late")})

    def conns(self, dst=None, kind=None):
        return [c for c in self.internet(op="conns") if dst in (None, c["dst"]) and kind in (None, c["kind"])]

    # ---- processes ----

    def env(self, **more):
        env = {"PATH": PATH, "HOME": self.path("home"), "USER": "lab", "LANG": "C.UTF-8", "TERM": "xterm", "TMPDIR": self.path("tmp"),
               "XDG_STATE_HOME": self.path("state"), "XDG_CONFIG_HOME": self.path("config"), "XDG_RUNTIME_DIR": self.path("runtime"),
               "AGENTKERNEL_DATA_DIR": ROOT}
        for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS", "LSAN_OPTIONS"):
            if name in os.environ:
                env[name] = os.environ[name]
        env.update({k: v for k, v in more.items() if v is not None})
        for name in [k for k, v in more.items() if v is None]:
            env.pop(name, None)
        return env

    def spawn(self, argv, stdin=None, env=None, who=None, cwd=None, stdout=None, stderr=None, tty=None, closed=(), extra_fds=(),
              internet=False, rlimits=None):
        """Start ARGV on the lab's host. stdin: bytes, "pipe" (see Process.write) or None; stdout, stderr: a descriptor or None to capture;
        tty: a pty slave for all three; extra_fds: left open in it, from 50 up."""
        pipes, give, close = {}, [], []
        if tty is not None:
            give = [tty, tty, tty]
        else:
            if stdin is None:
                fd = os.open("/dev/null", os.O_RDONLY)
                give.append(fd)
            else:
                r, w = os.pipe()
                fcntl.fcntl(w, fcntl.F_SETFL, os.O_NONBLOCK)
                give.append(r)
                pipes[0] = w
            close.append(give[0])
            for n, fd in ((1, stdout), (2, stderr)):
                if fd is None:
                    r, w = os.pipe()
                    pipes[n] = r
                    close.append(w)
                    fd = w
                give.append(fd)
        status_r, status_w = os.pipe()
        close.append(status_w)
        req = dict(op="spawn", argv=list(argv), env=env if env is not None else self.env(), who=who or self.who, cwd=cwd or self.path("project"),
                   tty=tty is not None, closed=list(closed), rlimits=rlimits or {})
        if internet:
            req["netns_pid"] = self.info["inet_pid"]
        try:
            pid = self.agent(fds=[*give, *extra_fds, status_w], **req)
        finally:
            for fd in close:
                os.close(fd)
        if stdin == "pipe":
            proc = Process(self, pid, status_r, pipes, b"")
            proc.keep_stdin = pipes.pop(0)
            proc.write = lambda data: os.write(proc.keep_stdin, data)
            proc.close_stdin = lambda: os.close(proc.keep_stdin)
            return proc
        if stdin == b"":
            os.close(pipes.pop(0))
        return Process(self, pid, status_r, pipes, stdin or b"")

    def host(self, argv, timeout=30, **kw):
        """Run a program as the lab's root, on its host."""
        kw.setdefault("cwd", "/")
        return self.spawn(argv, who="root", **kw).wait(timeout)

    def ak(self, args, timeout=30, env=None, **kw):
        return self.spawn([self.binary, *args], env=self.env(**(env or {})), **kw).wait(timeout)

    def start(self, args, env=None, **kw):
        backend = [] if self.backend == "ns" else ["--backend", self.backend]
        return self.spawn([self.binary, "run", *backend, *args], env=self.env(**(env or {})), **kw)

    def run(self, args, timeout=30, **kw):
        return self.start(args, **kw).wait(timeout)

    def probe(self, args, steps, timeout=60, **kw):
        """Run probe.py in a sandbox made with ARGS; one result a step."""
        r = self.run([*args, "--", *self.probe_command(steps)], timeout=timeout, **kw)
        try:
            return json.loads(r.out)
        except ValueError:
            raise LabError("the probe printed no result: %r" % r) from None

    @staticmethod
    def probe_command(steps):
        with open(os.path.join(HERE, "probe.py")) as f:
            return [PYTHON, "-c", f.read(), json.dumps(steps)]

    def netlog(self, *options, name=None):
        r = self.ak(["network", "log", name or "--last", "--json", *options], timeout=400)  # tens of MiB after a flood, on a busy machine
        if r.code != 0:
            raise LabError("network log: %r" % r)
        return [json.loads(line) for line in r.out.splitlines()]

    def sandbox_init(self, proc, timeout=10):
        """The pid, on the lab's host, of the pid 1 of the sandbox that PROC runs."""
        return int(wait_for(lambda: self.host([PYTHON, "-c", SANDBOX_INIT % proc.pid]).out.strip(), timeout))

    def running(self, text):
        """Processes, in sandboxes or not, whose command line holds TEXT."""
        return [pid for pid, cmd in self.snapshot()["procs"].items() if text in cmd]

    # ---- leaks ----

    def snapshot(self):
        return self.agent(op="snapshot")

    def sweep(self):
        """End whatever still runs, so that one test's leftovers are not the next one's."""
        self.agent(op="sweep")
        if self.leaks():
            self.baseline = self.snapshot()

    def leaks(self, timeout=PATIENCE_S):
        """What is there now and was not when the lab began; "" when nothing. Waits for what is on its way out."""
        end = time.monotonic() + timeout
        while True:
            now, text = self.snapshot(), []
            for pid, cmd in now["procs"].items():
                if pid not in self.baseline["procs"]:
                    text.append("process %s: %s" % (pid, cmd))
            for key in ("namespaces", "mounts", "net/dev", "net/ipv6_route"):
                gone, new = set(self.baseline[key]) - set(now[key]), set(now[key]) - set(self.baseline[key])
                if key == "mounts":  # whoever deletes a mount point on this machine unmounts it in every namespace, unlink(2)
                    gone = {row for row in gone if os.path.lexists(row.split()[4])}
                text += ["%s: new %s" % (key, x) for x in sorted(new)] + ["%s: gone %s" % (key, x) for x in sorted(gone)]
            if now["net/route"] != self.baseline["net/route"]:
                text.append("routes: " + now["net/route"])
            text += ["file: " + name for name in os.listdir(self.path("tmp"))]
            text += self._cgroups()
            if not text or time.monotonic() > end:
                return "\n".join(text)
            time.sleep(0.02)

    def _cgroups(self):
        """Control groups named after runs of this lab, "agentkernel-NAME-PID", and made by one of its users. Another suite may run beside."""
        names = {os.path.basename(p) for p in glob.glob(os.path.join(self.folder, "t*", "state", "agentkernel", "runs", "*"))}
        found = [p for p in glob.glob("/sys/fs/cgroup/**/agentkernel-*-*", recursive=True) if os.path.isdir(p)] if names else []
        users = {0, self.uid} if self.is_root else {self.uid}
        return ["cgroup: " + p for p in found if os.path.basename(p)[len("agentkernel-"):].rpartition("-")[0] in names and owner(p) in users]


def owner(path):
    with contextlib.suppress(FileNotFoundError):
        return os.stat(path).st_uid


SANDBOX_INIT = """
import os
parents, inner = {}, {}
for pid in filter(str.isdigit, os.listdir('/proc')):
    try:
        rows = dict(l.split(':', 1) for l in open('/proc/%%s/status' %% pid))
    except OSError:
        continue
    parents[int(pid)] = int(rows['PPid'])
    inner[int(pid)] = rows['NSpid'].split()
for pid, ids in inner.items():
    at = pid
    while at > 1 and at != %d:
        at = parents.get(at, 0)
    if at > 1 and len(ids) > 1 and ids[-1] == '1':
        print(pid)
        break
"""


def shell(side):
    with Lab() as lab:
        target = lab.info["outside_pid"]
        cmd = ["nsenter", "-t", str(target), "-m", "-n", "-p"]
        if not lab.is_root:
            cmd[1:1] = ["-U", "--preserve-credentials"]
        if side == "internet":
            cmd += ["nsenter", "-n", "-t", str(lab.info["inet_pid"])]
        elif lab.who == "user" and not lab.is_root:
            cmd += ["unshare", "--map-user=%d" % lab.uid, "--map-group=%d" % lab.gid]
        elif lab.who == "user":
            cmd += ["setpriv", "--reuid=%d" % lab.uid, "--regid=%d" % lab.gid, "--clear-groups"]
        print("A lab with its own Internet: names such as ok.test, two.test and evil.test answer, and so does every address.\n"
              "agentkernel is %s. `exit` takes it all down." % lab.binary, flush=True)
        env = lab.env(PATH=os.path.dirname(lab.binary) + ":" + PATH, PS1="lab\\$ ", TERM=os.environ.get("TERM", "dumb"))
        # Entering a mount namespace goes to its root: return to the caller's folder, if whoever we are now may.
        cmd += ["sh", "-c", 'cd "$0" 2>/dev/null || cd /; exec "$@"', os.getcwd(), "bash", "--norc", *(["-i"] if sys.stdin.isatty() else [])]
        return subprocess.run(cmd, env=env, cwd="/").returncode


def demo():
    import demo as show
    with Lab() as lab:
        return show.main(lab)


def main(argv):
    if argv[:1] == ["shell"] and len(argv) <= 2:
        return shell(argv[1] if len(argv) > 1 else "")
    if argv == ["demo"]:
        return demo()
    print(__doc__)
    return 2


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    sys.exit(main(sys.argv[1:]))
