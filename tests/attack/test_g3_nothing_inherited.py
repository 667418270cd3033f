"""g3: inherited descriptors and sockets, /proc paths, ptrace, host processes, keyrings: none reachable."""
import os
import socket
import tempfile

from expect import CODEX, NATIVE, allow, worked
from lab import PYTHON

LOOK = r"""
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
def call(nr, *a):
    rc = libc.syscall(nr, *a)
    return rc if rc >= 0 else -ctypes.get_errno()
fds = {}
for f in os.listdir('/proc/self/fd'):
    try: fds[f] = os.readlink('/proc/self/fd/' + f)
    except OSError: pass
pids = [int(p) for p in os.listdir('/proc') if p.isdigit()]
def readable(p):
    try: return bool(open(p, 'rb').read(1))
    except OSError: return False
def listed(p):
    try: return os.listdir(p)
    except OSError: return None
out = {'fds': fds, 'pids': pids, 'init_root': listed('/proc/1/root'), 'init_env': readable('/proc/1/environ'), 'init_mem': readable('/proc/1/mem'),
    'init_fd': listed('/proc/1/fd'), 'kcore': readable('/proc/kcore'), 'sysrq': readable('/proc/sysrq-trigger'),
    'ptrace_init': call(101, 16, 1, 0, 0), 'kill_host': call(62, 2 ** 22 - 7, 0), 'keyring': call(250, 0, -3, 0), 'add_key': call(248, b'user', b'x', b'y', 1, -3),
    'request_session': call(250, 6, -3, 0), 'hostname': socket.gethostname(), 'modules': call(175, 0, 0, b''), 'bpf': call(321, 0, 0, 0),
    'perf': call(298, 0, 0, -1, -1, 0), 'userfaultfd': call(323, 0), 'kexec': call(246, 0, 0, 0, 0), 'mount': call(165, b'none', b'/tmp', b'tmpfs', 0, 0),
    'open_by_handle': call(304, -100, 0, 0), 'status': open('/proc/self/status').read()}
"""


def test_g3_nothing_of_the_host_is_reachable(any_user):
    lab = any_user
    secret = tempfile.TemporaryFile()
    secret.write(b"secret")
    secret.flush()
    a, b = socket.socketpair()
    root = os.open("/", os.O_RDONLY)
    for args in (CODEX, NATIVE, ["--compatibility-mode", "claude"]):
        out = worked(lab.probe(args, [["eval", LOOK]], extra_fds=[secret.fileno(), a.fileno(), root])[0])
        extra = {k: v for k, v in out["fds"].items() if int(k) > 2 and not v.startswith("/proc/")}
        assert not extra, (args, extra)
        assert len(out["pids"]) <= 3, out["pids"]
        assert out["init_root"] is None and out["init_fd"] is None and not out["init_env"], out
        for key in ("ptrace_init", "kill_host", "modules", "bpf", "perf", "kexec", "add_key", "request_session", "open_by_handle"):
            assert out[key] < 0, (args, key, out[key])
        for key in ("mount", "userfaultfd", "keyring"):
            assert out[key] < 0, (args, key, out[key])
        assert not out["init_mem"] and not out["kcore"] and not out["sysrq"]
        assert "NoNewPrivs:\t1" in out["status"] and "Seccomp:\t2" in out["status"], out["status"]
        for kind in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
            assert "%s:\t%016x\n" % (kind, 0) in out["status"], (args, out["status"])
        assert out["hostname"] != "lab"
    a.close()
    b.close()
    os.close(root)


WRITE = r"""
import mmap, os
fd = 0
def tries():
    yield lambda: os.write(fd, b'evil')
    yield lambda: os.open('/proc/self/fd/0', os.O_WRONLY)
    yield lambda: os.open('/proc/self/fd/0', os.O_RDWR | os.O_APPEND)
    yield lambda: os.truncate('/proc/self/fd/0', 0)
    yield lambda: os.ftruncate(fd, 0)
    yield lambda: mmap.mmap(fd, 4, mmap.MAP_SHARED, mmap.PROT_WRITE)
    yield lambda: os.rename('/proc/self/fd/0', 'x')
    yield lambda: os.link('/proc/self/fd/0', 'x', follow_symlinks=True)
for number, attempt in enumerate(tries()):
    try:
        attempt()
        print('succeeded:', number)
    except OSError:
        pass
print('tried', number + 1)
"""


def test_g3_a_file_that_is_given_for_reading_keeps_its_content(any_user):
    lab = any_user
    name = lab.path("home", "input")
    with open(name, "w") as f:
        f.write("mine\n")
    os.chmod(name, 0o666)
    for args in (CODEX, NATIVE, ["--compatibility-mode", "claude"]):
        r = lab.spawn(["sh", "-c", 'f=$1; shift; exec "$@" <"$f"', "sh", name, lab.binary, "run", *args, "--", PYTHON, "-c", WRITE], env=lab.env()).wait()
        assert r.out == "tried 8\n", r
        with open(name) as f:
            assert f.read() == "mine\n"


def test_g3_the_environment_of_the_supervisor_is_not_in_proc(lab):
    r = lab.run([*CODEX, "sh", "-c", "cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n'"], env={"TOKEN": "sk-hidden"})
    assert "sk-hidden" not in r.out, r


def test_g3_no_nested_namespaces_in_codex(lab):
    r = lab.run([*CODEX, "sh", "-c", "unshare -U true 2>/dev/null && echo user; unshare -Ur mount -t tmpfs none /mnt 2>/dev/null && echo mount; unshare -n true 2>/dev/null && echo net; true"])
    assert r.out == "" and r.code == 0, r


def test_g3_setuid_programs_gain_nothing(lab):
    r = lab.run([*CODEX, "sh", "-c", "su -c id 2>/dev/null </dev/null; sudo -n id 2>/dev/null; newuidmap 1 0 0 1 2>/dev/null && echo mapped; grep CapEff /proc/self/status"])
    assert "uid=0" not in r.out and "mapped" not in r.out and "0000000000000000" in r.out, r
