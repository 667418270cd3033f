"""g4 in a guest: commands of a virtual machine have the process limit, the namespaces and the system calls of a sandbox without one."""
import pytest
from guests import SLOW, VM, prepare
from lab import PYTHON

pytestmark = pytest.mark.xdist_group("vm")

PROBE = """
import ctypes, os, socket
def tries(name, act):
    try:
        act()
        print(name, "works")
    except OSError as e:
        print(name, "refused")
def unshare():
    if ctypes.CDLL(None, use_errno=True).unshare(0x10000000) < 0:
        raise OSError(ctypes.get_errno(), "unshare")
def forks():
    for i in range(200):
        if os.fork() == 0:
            os.read(0, 1)
            os._exit(0)
for name, args in dict(tcp=(2, 1), packet=(17, 3), vsock=(40, 1), alg=(38, 5), sctp=(2, 1, 132), mptcp=(2, 1, 262), raw=(2, 3, 1)).items():
    tries(name, lambda: socket.socket(*args))
tries("unshare", unshare)
tries("chmod", lambda: (open("plain", "w").close(), os.chmod("plain", 0o755)))
tries("setuid", lambda: os.chmod("plain", 0o4755))
tries("forks", forks)
"""
ALLOWED = {"tcp", "chmod"}


@pytest.mark.parametrize("mode", ["codex", "claude"])
def test_g4_a_guest_refuses_what_the_namespace_backend_refuses(any_user, mode):
    lab = prepare(any_user)
    p = lab.start([*VM, "-m", mode, "--no-network", "--pids", "64", "--", PYTHON, "-c", PROBE], cwd=lab.path("project"))
    out = p.wait(SLOW).out
    got = dict(line.split() for line in out.splitlines())
    assert len(got) == 11 and {n for n, verdict in got.items() if verdict == "works"} == ALLOWED, got
