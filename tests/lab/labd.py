"""The lab's machine: pid 1 of private user, pid, mount and network namespaces.

    labd.py CONTROL_FD INTERNET_FD DIR

Makes the namespaces, joins "host" (where agentkernel will run) and "Internet" by a veth pair, starts internet.py there, then serves
spawn requests: each carries the descriptors that become 0, 1, 2 of the new process and one that its end is reported on.
When the control socket closes, this process ends and the kernel takes everything with it. Its parent then removes DIR, also when the tests
were killed.

Started by root it keeps the host's user ids, so that a process can run as root or as anybody. Started by an ordinary user it maps
that user to 0 for the set-up; a process that runs "as user" gets one more user namespace that maps it back to its own id.
"""
import ctypes
import fcntl
import ipaddress
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import termios

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x20000, 0x4000000, 0x8000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
MS_REC, MS_PRIVATE, MS_BIND = 0x4000, 1 << 18, 0x1000
MS_NOSUID, MS_NODEV = 2, 4
MNT_DETACH = 2
PR_SET_PDEATHSIG = 1

LINK4, LINK6 = ipaddress.ip_network("11.200.0.0/24"), ipaddress.ip_network("2a00:ffff::/64")
HOST4, INET4, HOST6, INET6 = "11.200.0.2", "11.200.0.1", "2a00:ffff::2", "2a00:ffff::1"
EVERYTHING6 = ("2000::/3", "fc00::/7", "64:ff9b::/32", "::fffe:0:0/95")
PRIVATE = {"/run": "755", "/var/lib": "755", "/dev/shm": "1777"}  # folders of the lab's own, and their modes
RESOLV = "nameserver 11.0.0.53\nnameserver 2a00::53\n"
HOSTS = "127.0.0.1 localhost\n::1 localhost\n127.0.1.1 lab\n"

libc = ctypes.CDLL(None, use_errno=True)


def check(ret, what):
    if ret < 0:
        err = ctypes.get_errno()
        raise OSError(err, "%s: %s" % (what, os.strerror(err)))
    return ret


def unshare(flags):
    check(libc.unshare(flags), "unshare")


def mount(source, target, kind=None, flags=0, data=None):
    enc = [x.encode() if x is not None else None for x in (source, target, kind)]
    check(libc.mount(enc[0], enc[1], enc[2], ctypes.c_ulong(flags), data.encode() if data else None), "mount " + target)


def write(path, text):
    with open(path, "w") as f:
        f.write(text)


def map_self(inner_uid, inner_gid):
    uid, gid = os.geteuid(), os.getegid()
    unshare(CLONE_NEWUSER)
    write("/proc/self/setgroups", "deny")
    write("/proc/self/uid_map", "%d %d 1" % (inner_uid, uid))
    write("/proc/self/gid_map", "%d %d 1" % (inner_gid, gid))


def user_namespace(uid, gid):
    """A user namespace in which we are UID, as a descriptor: one for all of a user's processes, as on any host."""
    r, w = os.pipe()
    done_r, done_w = os.pipe()
    pid = os.fork()
    if pid == 0:
        map_self(uid, gid)
        os.write(w, b"1")
        os.close(done_w)
        os.read(done_r, 1)
        os._exit(0)
    os.read(r, 1)
    fd = os.open("/proc/%d/ns/user" % pid, os.O_RDONLY)
    for end in (r, w, done_r, done_w):
        os.close(end)
    os.waitpid(pid, 0)
    return fd


def mount_table():
    """/proc/self/mountinfo without its optional fields and the options of the file system, which others may change: "id parent device root place options kind source"."""
    with open("/proc/self/mountinfo") as f:
        rows = [line.split() for line in f]
    return [" ".join(row[:6] + row[row.index("-") + 1:row.index("-") + 3]) for row in rows]


def unmount(folder, table):
    """Whatever a test has mounted below FOLDER: what lies behind it is not the lab's to remove. TABLE is an open mountinfo."""
    for row in reversed(table.readlines()):
        place = row.split()[4]
        if place.startswith(folder + "/"):
            check(libc.umount2(place.encode(), MNT_DETACH), "umount " + place)


def remove(folder):
    """All of FOLDER. Each folder is moved to the top before it is entered, because a test may leave trees of any depth. Overlayfs leaves folders of mode 0,
    which only their owner's capabilities open. Without child processes: we are in a pid namespace that has ended."""
    pending, serial = [folder], 0
    while pending:
        at = pending.pop()
        for row in list(os.scandir(at)):
            if not row.is_dir(follow_symlinks=False):
                os.unlink(row.path)
                continue
            serial += 1
            os.chmod(row.path, 0o700)
            pending.append(os.path.join(folder, ".gone-%d" % serial))
            os.rename(row.path, pending[-1])
        if at != folder:
            os.rmdir(at)
    os.rmdir(folder)


def closed_above(path):
    """The first folder above PATH that other users cannot pass, or None."""
    above = path
    closed = None
    while above != "/":
        above = os.path.dirname(above)
        if not os.stat(above).st_mode & 1:
            closed = above
    return closed


def ip_batch(lines, netns_pid=None):
    cmd = ["ip", "-batch", "-"]
    if netns_pid:
        cmd = ["nsenter", "-n", "-t", str(netns_pid)] + cmd
    subprocess.run(cmd, input="\n".join(lines) + "\n", text=True, check=True, stdout=subprocess.DEVNULL)


class Lab:
    def __init__(self, control_fd, internet_fd, folder, user):
        self.control = socket.socket(fileno=control_fd)
        self.internet_fd = internet_fd
        self.folder = folder
        self.user = user  # (uid, gid) that "as user" means
        self.mapped = None  # the outside ids when we live in our own user namespace
        self.user_ns = -1  # then the one below it, in which the user is nobody special
        self.children = {}

    # ---- set-up ----

    def mounts(self):
        mount("none", "/", None, MS_REC | MS_PRIVATE)
        mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV)
        real = os.path.realpath("/etc/resolv.conf")
        self.resolv = os.path.join(self.folder, "resolv.conf")
        write(self.resolv, RESOLV)
        write(os.path.join(self.folder, "hosts"), HOSTS)
        os.chmod(self.resolv, 0o644)
        self.machines = {row.split()[0] for row in mount_table()}
        # Whatever root's agentkernel keeps in the system's folders lives and dies with the lab.
        for place, mode in PRIVATE.items():
            mount("tmpfs", place, "tmpfs", MS_NOSUID | MS_NODEV, "mode=" + mode)
        if os.getuid() == 0 and not self.mapped:
            self.show_tree(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
        if real.startswith("/run/"):
            os.makedirs(os.path.dirname(real), exist_ok=True)
            write(real, "")
        mount(self.resolv, real, None, MS_BIND)
        mount(os.path.join(self.folder, "hosts"), os.path.realpath("/etc/hosts"), None, MS_BIND)

    def show_tree(self, tree):
        """Root's source tree at its own path, also for the lab's user: root's home, for one, is closed to others."""
        closed = closed_above(tree)
        if not closed:
            return
        spare = os.path.join(self.folder, "tree")
        os.mkdir(spare)
        mount(tree, spare, None, MS_BIND | MS_REC)
        mount("tmpfs", closed, "tmpfs", MS_NOSUID | MS_NODEV, "mode=755")
        os.makedirs(tree)
        mount(spare, tree, None, MS_BIND | MS_REC)
        check(libc.umount2(spare.encode(), MNT_DETACH), "umount " + spare)
        os.rmdir(spare)

    def internet(self):
        r, w = os.pipe()
        pid = os.fork()
        if pid == 0:
            unshare(CLONE_NEWNET)
            os.write(w, b"1")
            os.close(w)
            os.read(self.go_r, 1)
            os.set_inheritable(self.internet_fd, True)
            here = os.path.dirname(os.path.abspath(__file__))
            os.execv(sys.executable, [sys.executable, os.path.join(here, "internet.py"), str(self.internet_fd), self.folder, "inet0"])
        os.close(w)
        os.read(r, 1)
        os.close(r)
        return pid

    def network(self):
        self.go_r, go_w = os.pipe()
        self.inet_pid = self.internet()
        ip_batch(["link set lo up", "link add eth0 type veth peer name inet0 netns %d" % self.inet_pid,
                  "addr add %s/24 dev eth0" % HOST4, "addr add %s/64 dev eth0 nodad" % HOST6, "addr add fe80::2/64 dev eth0 nodad", "addr add 10.77.0.1/32 dev lo",
                  "link set eth0 addrgenmode none up"])
        lines = ["link set lo up", "addr add %s/24 dev inet0" % INET4, "addr add %s/64 dev inet0 nodad" % INET6, "addr add fe80::1/64 dev inet0 nodad", "link set inet0 addrgenmode none up"]
        nets = [n for n in ipaddress.ip_network("0.0.0.0/0").address_exclude(LINK4)]
        lines += ["route add local %s dev lo table local" % n for n in nets]
        for text in EVERYTHING6:
            net = ipaddress.ip_network(text)
            parts = net.address_exclude(LINK6) if LINK6.subnet_of(net) else [net]
            lines += ["route add local %s dev lo table local" % n for n in parts]
        ip_batch(lines, self.inet_pid)
        ip_batch(["route add default via " + INET4, "route add default via " + INET6])
        os.write(go_w, b"1")
        os.close(go_w)
        os.close(self.go_r)
        os.close(self.internet_fd)

    # ---- spawning ----

    def spawn(self, req, fds):
        pid = os.fork()
        if pid == 0:
            try:
                self.become(req, fds)
            except BaseException as e:
                os.write(2, ("lab: cannot spawn: %r\n" % e).encode())
            os._exit(125)
        self.children[pid] = fds.pop()
        return pid

    def become(self, req, fds):
        status = fds.pop()
        for sig in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD, signal.SIGINT, signal.SIGTERM):
            signal.signal(sig, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        os.setsid()
        if req.get("tty"):
            fcntl.ioctl(fds[0], termios.TIOCSCTTY, 0)
        extra = fds[3:]
        high = [fcntl.fcntl(fd, fcntl.F_DUPFD, 200) for fd in fds[:3]]
        for i, fd in enumerate(high):
            if i in req.get("closed", []):
                try:
                    os.close(i)
                except OSError:
                    pass
            else:
                os.dup2(fd, i)
        keep = set()
        for i, fd in enumerate(extra):  # descriptors that a careless caller leaves open: 50, 51 …
            os.dup2(fd, 50 + i)
            keep.add(50 + i)
        for fd in [int(x) for x in os.listdir("/proc/self/fd")]:
            if fd > 2 and fd not in keep and fd != self.user_ns:
                try:
                    os.close(fd)
                except OSError:
                    pass
        if req.get("netns_pid"):
            fd = os.open("/proc/%d/ns/net" % req["netns_pid"], os.O_RDONLY)
            check(libc.setns(fd, CLONE_NEWNET), "setns")
            os.close(fd)
        if req["who"] == "user":
            self.drop()
        for name, value in req.get("rlimits", {}).items():
            import resource
            resource.setrlimit(getattr(resource, name), (value, value))
        os.umask(0o022)
        os.chdir(req["cwd"])
        os.execvpe(req["argv"][0], req["argv"], req["env"])

    def drop(self):
        uid, gid = self.user
        if self.mapped:
            check(libc.setns(self.user_ns, CLONE_NEWUSER), "setns")  # exec then takes the capabilities away
            os.close(self.user_ns)
        else:
            os.setgroups([])
            os.setresgid(gid, gid, gid)
            os.setresuid(uid, uid, uid)

    # ---- serving ----

    def rpc(self, req, fds):
        op = req["op"]
        if op == "spawn":
            return self.spawn(req, fds)
        if op == "signal":
            if req["pid"] in self.children:  # else it has ended, and been reaped, in between
                os.kill(req["pid"], req["sig"])
        elif op == "resolv":
            write(self.resolv, req["text"])
        elif op == "info":
            return {"inet_pid": self.inet_pid, "pid": os.getpid(), "outside_pid": self.outside_pid, "mapped": bool(self.mapped)}
        elif op == "sweep":
            for pid in [int(p) for p in os.listdir("/proc") if p.isdigit() and int(p) not in (1, self.inet_pid)]:
                os.kill(pid, signal.SIGKILL)
        elif op == "snapshot":
            return self.snapshot()
        return None

    def snapshot(self):
        """What is there: processes, mounts, namespaces and the host's network as the kernel tells it."""
        procs, spaces = {}, set()
        for pid in [p for p in os.listdir("/proc") if p.isdigit()]:
            try:
                with open("/proc/%s/cmdline" % pid, "rb") as f:
                    procs[pid] = f.read().replace(b"\0", b" ").decode("utf-8", "replace").strip() or "(no cmdline)"
                for kind in ("net", "user", "mnt", "pid"):
                    spaces.add(os.readlink("/proc/%s/ns/%s" % (pid, kind)))
            except OSError:
                procs.pop(pid, None)
        files = {}
        for path in ("net/dev", "net/route", "net/ipv6_route", "net/if_inet6"):
            with open("/proc/self/" + path) as f:
                files[path] = f.read()
        files["net/dev"] = [line.split(":")[0].strip() for line in files["net/dev"].splitlines()[2:]]
        files["net/ipv6_route"] = sorted(" ".join(line.split()[:5] + line.split()[-2:]) for line in files["net/ipv6_route"].splitlines())
        return {"procs": procs, "namespaces": sorted(spaces), "mounts": self.compared_mounts(), **files}

    def compared_mounts(self):
        """Those that only the lab can change. The machine's namespaces (nsfs) and what lies below our own folders goes here, too, when it goes there."""
        def ours(row):
            ident, place, kind = row.split()[0], row.split()[4], row.split()[6]
            return ident not in self.machines or kind != "nsfs" and not place.startswith(tuple(p + "/" for p in PRIVATE))
        return [row for row in mount_table() if ours(row)]

    def reap(self):
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self.inet_pid:
                os._exit(1)
            fd = self.children.pop(pid, None)
            if fd is not None:
                try:
                    os.write(fd, struct.pack("i", status))
                except OSError:
                    pass
                os.close(fd)

    def receive(self):
        data, fds, _, _ = socket.recv_fds(self.control, 1 << 20, 16)
        if not data:
            os._exit(0)
        for fd in fds:
            os.set_inheritable(fd, False)
        try:
            out = {"ok": self.rpc(json.loads(data), fds)}
        except Exception as e:
            out = {"error": repr(e)}
        for fd in fds:
            os.close(fd)
        self.control.send(json.dumps(out).encode())

    def loop(self):
        r, w = os.pipe()
        os.set_blocking(r, False)
        os.set_blocking(w, False)
        signal.set_wakeup_fd(w, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self.control.send(b'{"ready":true}')
        poll = select.poll()
        poll.register(self.control, select.POLLIN)
        poll.register(r, select.POLLIN)
        while True:
            for fd, _ in poll.poll():
                if fd == r:
                    try:
                        os.read(r, 4096)
                    except BlockingIOError:
                        pass
                    self.reap()
                else:
                    self.receive()


def main():
    control_fd, internet_fd, folder, uid, gid = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4]), int(sys.argv[5])
    lab = Lab(control_fd, internet_fd, folder, (uid, gid))
    if os.geteuid() != 0:
        lab.mapped = (os.geteuid(), os.getegid())
        map_self(0, 0)
    r, w = os.pipe()
    unshare(CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS)
    table = open("/proc/self/mountinfo")  # of the lab; afterwards /proc is the lab's, and we are not in it
    pid = os.fork()
    if pid:
        os.close(control_fd)
        os.close(internet_fd)
        os.write(w, struct.pack("i", pid))
        for sig in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(sig, lambda *_: os.kill(pid, signal.SIGKILL))
        _, status = os.waitpid(pid, 0)
        for sig in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(sig, signal.SIG_IGN)  # it ends soon anyway, and removes the folder first
        unmount(folder, table)
        remove(folder)
        sys.exit(os.waitstatus_to_exitcode(status) & 0xFF)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    lab.outside_pid = struct.unpack("i", os.read(r, 4))[0]
    os.close(r)
    os.close(w)
    libc.sethostname(b"lab", 3)
    lab.mounts()
    if lab.mapped:
        lab.user_ns = user_namespace(uid, gid)
    lab.network()
    lab.loop()


if __name__ == "__main__":
    main()
