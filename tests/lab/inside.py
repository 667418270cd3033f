"""Step into a running sandbox's or gateway's network namespace as the lab's root, then run a program there.

    inside.py sandbox PID CMD…    PID is the sandbox's init
    inside.py fds PID             what PID holds open, one a line
    inside.py tap PID QEMU CMD…   like gateway, and the descriptor TAP is the tap that the process QEMU holds
    inside.py gateway PID CMD…    PID is the gateway process: the namespace is found through one of its sockets, for no process lives in it

The namespaces belong to a user namespace below the lab's, so that one is joined first.
"""
import ctypes
import fcntl
import os
import sys

NS_GET_USERNS, SIOCGSKNS, TUNGETIFF = 0xB701, 0x894C, 0x800454D2
SYS_PIDFD_OPEN, SYS_PIDFD_GETFD = 434, 438
libc = ctypes.CDLL(None, use_errno=True)


def setns(fd):
    if libc.setns(fd, 0) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def sandbox_ns(pid):
    return os.open("/proc/%d/ns/net" % pid, os.O_RDONLY)


def gateway_ns(pid):
    """The first socket of the process that is not in our own network namespace shows the way."""
    pidfd = libc.syscall(SYS_PIDFD_OPEN, pid, 0)
    own = os.stat("/proc/self/ns/net").st_ino
    for number in range(256):  # its list of descriptors may be closed to us, the descriptors are not
        fd = libc.syscall(SYS_PIDFD_GETFD, pidfd, number, 0)
        if fd < 0:
            continue
        try:
            ns = fcntl.ioctl(fd, SIOCGSKNS)
        except OSError:
            continue
        if os.fstat(ns).st_ino != own:
            return ns
    raise SystemExit("no socket of pid %d is in another network namespace" % pid)


def descriptors(pid):
    """number → what it is, found by taking a copy of each."""
    pidfd, out = libc.syscall(SYS_PIDFD_OPEN, pid, 0), {}
    for number in range(1024):
        fd = libc.syscall(SYS_PIDFD_GETFD, pidfd, number, 0)
        if fd >= 0:
            out[number] = (os.readlink("/proc/self/fd/%d" % fd), fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE)
            os.close(fd)
    return out


def tap_of(pid):
    """The first descriptor of PID that is one of a tap."""
    pidfd = libc.syscall(SYS_PIDFD_OPEN, pid, 0)
    for number in range(256):
        fd = libc.syscall(SYS_PIDFD_GETFD, pidfd, number, 0)
        if fd < 0:
            continue
        try:
            fcntl.ioctl(fd, TUNGETIFF, bytes(40))
        except OSError:
            os.close(fd)
            continue
        os.set_inheritable(fd, True)
        return fd
    raise SystemExit("pid %d holds no tap" % pid)


def enter(net_fd):
    user_fd = fcntl.ioctl(net_fd, NS_GET_USERNS)
    if os.fstat(user_fd).st_ino != os.stat("/proc/self/ns/user").st_ino:
        setns(user_fd)
        become_owner()
    setns(net_fd)


def become_owner():
    """Be an id that the namespace knows, or exec would take the capabilities away again."""
    with open("/proc/self/uid_map") as f:
        uid = int(f.read().split()[0])
    with open("/proc/self/gid_map") as f:
        gid = int(f.read().split()[0])
    os.setresgid(gid, gid, gid)
    if uid == 0:
        os.setresuid(0, 0, 0)
        return
    libc.prctl(8, 1, 0, 0, 0)  # PR_SET_KEEPCAPS
    os.setresuid(uid, uid, uid)
    every = 0xFFFFFFFF
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    data = (ctypes.c_uint32 * 6)()
    libc.capget(header, data)
    for half in (0, 3):
        data[half] = data[half + 2] = data[half + 1] & every
    libc.capset(header, data)
    for cap in (12, 13, 21):  # NET_ADMIN, NET_RAW, SYS_ADMIN
        libc.prctl(47, 2, cap, 0, 0)  # PR_CAP_AMBIENT_RAISE


if __name__ == "__main__":
    if sys.argv[1] == "fds":
        for number, (what, mode) in descriptors(int(sys.argv[2])).items():
            print(number, ("read", "write", "both")[mode], what)
        sys.exit()
    if sys.argv[1] == "tap":
        os.environ["TAP"] = str(tap_of(int(sys.argv[3])))
        del sys.argv[3]
    enter({"tap": gateway_ns, "sandbox": sandbox_ns, "gateway": gateway_ns}[sys.argv[1]](int(sys.argv[2])))
    os.execvp(sys.argv[3], sys.argv[3:])
