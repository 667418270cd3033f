"""The bench's machine: private namespaces with a small Internet, and a router to compare with.

        sandbox ── gateway ─ host ── inet          what agentkernel does: "host" is where it runs
        client ──── router ───────── inet          what the kernel and dnsmasq do over the same kind of links

enter() puts the calling program into fresh user (unless root), mount, pid, network, ipc and uts namespaces; Rig builds the links.
Everything dies with the program. Measured programs run as an ordinary user: for root that is another uid, for anybody else a
further user namespace that maps back to their own.
"""
import contextlib
import ctypes
import os
import pwd
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x20000, 0x4000000, 0x8000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
MS_REC, MS_PRIVATE, MS_BIND, MS_NOSUID, MS_NODEV = 0x4000, 1 << 18, 0x1000, 2, 4
PR_SET_PDEATHSIG = 1

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
DNS, WEB = "11.0.0.53", "11.1.0.5"  # the Internet's resolver, and its server
OPEN_FILES = 1024
BOUND = "/mnt/bound"  # on a private /mnt; programs below /run are not brought into a sandbox
ROUTER = "10.77.0.1"  # the router, as the client sees it
LINKS = """
link add eth0 type veth peer name host netns inet
link set lo up
addr add 11.200.0.2/24 dev eth0
link set eth0 up
"""
LINKS_OF = {
    "inet": ["link set lo up", "addr add 11.200.0.1/24 dev host", "link set host up", "addr add %s/32 dev lo" % DNS, "addr add %s/32 dev lo" % WEB,
             "link add router type veth peer name up0 netns router", "addr add 11.201.0.1/24 dev router", "link set router up"],
    "router": ["link set lo up", "addr add 11.201.0.2/24 dev up0", "link set up0 up", "route add default via 11.201.0.1",
               "link add down0 type veth peer name eth0 netns client", "addr add %s/24 dev down0" % ROUTER, "link set down0 up"],
    "client": ["link set lo up", "addr add 10.77.0.2/24 dev eth0", "link set eth0 up", "route add default via " + ROUTER],
}
libc = ctypes.CDLL(None, use_errno=True)


class RigError(Exception):
    pass


def check(ret, what):
    if ret < 0:
        err = ctypes.get_errno()
        raise OSError(err, "%s: %s" % (what, os.strerror(err)))


def mount(source, target, kind=None, flags=0, data=None):
    enc = [x.encode() if x is not None else None for x in (source, target, kind, data)]
    check(libc.mount(enc[0], enc[1], enc[2], ctypes.c_ulong(flags), enc[3]), "mount " + target)


def write(path, text):
    with open(path, "w") as f:
        f.write(text)


def map_self(inner_uid, inner_gid):
    uid, gid = os.geteuid(), os.getegid()
    check(libc.unshare(CLONE_NEWUSER), "unshare")
    write("/proc/self/setgroups", "deny")
    write("/proc/self/uid_map", "%d %d 1" % (inner_uid, uid))
    write("/proc/self/gid_map", "%d %d 1" % (inner_gid, gid))


def ordinary_user():
    """Whom the measured programs run as."""
    if os.geteuid() != 0:
        return os.geteuid(), os.getegid()
    for name in (os.environ.get("AK_BENCH_USER"), "tester", "nobody"):
        with contextlib.suppress(KeyError):
            if name:
                entry = pwd.getpwnam(name)
                return entry.pw_uid, entry.pw_gid
    return 65534, 65534


def enter():
    """Returns, in a child that is neither pid 1 nor anybody's elder, the (user, mapped) to build a Rig with. The caller's own process waits."""
    user, mapped = ordinary_user(), os.geteuid() != 0
    sys.stdout.flush()
    outer = os.fork()
    if outer:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the worker hears it too, and tidies up
        _, status = os.waitpid(outer, 0)
        sys.exit(os.waitstatus_to_exitcode(status) & 0xFF)
    check(libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL), "prctl")
    if mapped:
        map_self(0, 0)
    check(libc.unshare(CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS), "unshare")
    first = os.fork()
    if first:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        _, status = os.waitpid(first, 0)
        os._exit(os.waitstatus_to_exitcode(status) & 0xFF)
    check(libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL), "prctl")
    # Pid 1 only reaps, so that no zombie of a thousand runs stays to be counted.
    worker = os.fork()
    if worker:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    while worker:
        pid, status = os.wait()
        if pid == worker:
            os._exit(os.waitstatus_to_exitcode(status) & 0xFF)
    return user, mapped


class Rig:
    def __init__(self, user, mapped):
        self.user, self.mapped = user, mapped
        self.daemons = []

    def __enter__(self):
        self.folder = tempfile.mkdtemp(prefix="akbench-")
        try:
            os.chmod(self.folder, 0o755)
            for sub in ("home", "state", "config", "runtime", "project", "tmp"):
                self.mkdir(sub)
            os.chmod(self.path("runtime"), 0o700)
            self._mounts()
            self._links()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for p in self.daemons:
            self.stop(p)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _mounts(self):
        mount("none", "/", None, MS_REC | MS_PRIVATE)
        mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV)
        real = os.path.realpath("/etc/resolv.conf")
        mount("tmpfs", "/run", "tmpfs", MS_NOSUID | MS_NODEV, "mode=755")
        mount("tmpfs", "/mnt", "tmpfs", MS_NOSUID | MS_NODEV, "mode=755")
        if real.startswith("/run/"):
            os.makedirs(os.path.dirname(real), exist_ok=True)
            write(real, "")
        write(self.path("resolv.conf"), "nameserver %s\n" % DNS)
        mount(self.path("resolv.conf"), real, None, MS_BIND)

    def _links(self):
        for name in LINKS_OF:
            subprocess.run(["ip", "netns", "add", name], check=True)
        self._ip(None, LINKS.strip().split("\n"))
        for name, lines in LINKS_OF.items():
            self._ip(name, lines)
        self._ip(None, ["route add default via 11.200.0.1"])
        self.run(["sysctl", "-qw", "net.ipv4.ip_forward=1"], ns="router", root=True)

    def _ip(self, ns, lines):
        subprocess.run(["ip"] + (["-n", ns] if ns else []) + ["-batch", "-"], input="\n".join(lines) + "\n", text=True, check=True)

    # ---- folders ----

    def path(self, *parts):
        return os.path.join(self.folder, *parts)

    def mkdir(self, *parts):
        os.makedirs(self.path(*parts), exist_ok=True)
        if not self.mapped:
            os.chown(self.path(*parts), *self.user)
        return self.path(*parts)

    def bind(self, source, name):
        """SOURCE at a place that the ordinary user can reach, whatever folders lie above it. Not in our folder: that is removed at the end,
        with all that it holds."""
        target = os.path.join(BOUND, name)
        os.makedirs(target if os.path.isdir(source) else BOUND, exist_ok=True)
        if not os.path.isdir(source):
            write(target, "")
        mount(source, target, None, MS_BIND | MS_REC)
        return target

    # ---- programs ----

    def env(self, **more):
        return {"PATH": PATH, "LANG": "C.UTF-8", "HOME": self.path("home"), "USER": "bench", "XDG_STATE_HOME": self.path("state"),
                "XDG_CONFIG_HOME": self.path("config"), "XDG_RUNTIME_DIR": self.path("runtime"), "TMPDIR": self.path("tmp"), **more}

    def _before_exec(self, ns, root):
        if ns:
            fd = os.open("/run/netns/" + ns, os.O_RDONLY)
            check(libc.setns(fd, CLONE_NEWNET), "setns")
            os.close(fd)
        check(libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL), "prctl")
        # What a login gives. dnsmasq looks through a table of as many sockets at every turn, so a large limit would slow it.
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(OPEN_FILES, hard) if hard != resource.RLIM_INFINITY else OPEN_FILES, hard))
        if root:
            return
        if self.mapped:
            map_self(*self.user)
        else:
            os.setgroups([])
            os.setresgid(self.user[1], self.user[1], self.user[1])
            os.setresuid(self.user[0], self.user[0], self.user[0])

    def popen(self, argv, ns=None, root=False, env=None, cwd=None, **kw):
        return subprocess.Popen(argv, env=self.env(**(env or {})), cwd=cwd or self.path("project"), preexec_fn=lambda: self._before_exec(ns, root), **kw)

    def run(self, argv, text=None, codes=(0,), **kw):
        """Its stdout; RigError with what it said when it ended with another code."""
        p = self.popen(argv, stdin=subprocess.PIPE if text else subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **kw)
        out, err = p.communicate(text)
        if p.returncode not in codes:
            raise RigError("%s: exit %d: %s" % (" ".join(argv[:4]), p.returncode, (err.strip() or out.strip())[-300:]))
        return out

    def daemon(self, argv, port, proto="tcp", **kw):
        """Started and listening."""
        log = open(self.path("daemon.log"), "w+")
        p = self.popen(argv, root=True, stdin=subprocess.DEVNULL, stdout=log, stderr=log, **kw)
        self.daemons.append(p)
        until = time.monotonic() + 10
        while not listening(p.pid, proto, port):
            if p.poll() is not None or time.monotonic() > until:
                log.seek(0)
                raise RigError("%s did not start: %s" % (argv[0], log.read().strip()[-300:]))
            time.sleep(0.005)
        return p

    def stop(self, p):
        if p.poll() is None:
            p.kill()
        p.wait()
        if p in self.daemons:
            self.daemons.remove(p)


def listening(pid, proto, port):
    """Does the namespace of PID have a socket that waits on PORT?"""
    try:
        with open("/proc/%d/net/%s" % (pid, proto)) as f:
            rows = [line.split() for line in f.readlines()[1:]]
    except OSError:
        return False
    return any(int(row[1].split(":")[1], 16) == port and row[3] in ("0A", "07") for row in rows)
