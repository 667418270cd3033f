"""`--backend vm`: a guest with a kernel of its own behind the same gateway. The guest is booted once for each user of the lab; every run restores it."""
import json
import os
import platform

import pytest
from expect import CODEX, NATIVE, allow, find, worked
from guests import SLOW, VM, prepare, run
from lab import PYTHON
from persist import Boxes

pytestmark = pytest.mark.xdist_group("vm")


@pytest.fixture
def vm(any_user):
    return prepare(any_user)


@pytest.fixture
def vm_user(lab):
    """The same as an ordinary user only, for what does not depend on who runs it."""
    with lab.acting_as("user"):
        yield prepare(lab)


def test_a_command_runs_under_a_kernel_of_its_own(vm):
    r = run(vm, ["--no-network", "--", "sh", "-c", "uname -r; echo to-stderr >&2; exit 7"])
    assert r.code == 7 and r.out.strip() and r.out.strip() != platform.release() and "to-stderr" in r.err, r
    assert json.loads(vm.ak(["list", "-a", "--json"]).out)[0]["backend"] == "vm"


def test_streams_arguments_variables_and_exit_codes_arrive_as_they_are(vm_user):
    r = run(vm_user, ["--no-network", "-e", "A=b c\n", "--", PYTHON, "-c",
                 "import sys,os; d=sys.stdin.buffer.read(); print(len(d), d.count(b'x'), sys.argv[1:], repr(os.environ['A']), os.environ['TMPDIR'])", "", "a b", "$HOME", "*"], stdin=b"x" * 300000)
    assert r.code == 0 and r.out == "300000 300000 ['', 'a b', '$HOME', '*'] 'b c\\n' /tmp\n", r
    r = run(vm_user, ["--no-network", "--", "head", "-c", "3000000", "/dev/zero"])
    assert r.code == 0 and len(r.out) == 3000000
    for args, code in ((["no-such-program"], 127), (["/etc"], 126), (["sh", "-c", "kill -TERM $$"], 143)):
        r = run(vm_user, ["--no-network", "--", *args])
        assert r.code == code and not r.out, (args, r)
    r = run(vm_user, ["--no-network", "--timeout", "2s", "--", "sleep", "1000"])
    assert r.code == 124 and "timed out after 2s" in r.err, r


def test_the_project_is_the_same_folder_with_the_same_owner(vm):
    with open(vm.path("project", "before"), "w") as f:
        f.write("from outside")
    r = run(vm, [*CODEX, "--", "sh", "-c", "cat before; echo inside > after; mkdir d; pwd"], cwd=vm.path("project"))
    assert r.code == 0 and r.out == "from outside" + vm.path("project") + "\n", r
    with open(vm.path("project", "after")) as f:
        assert f.read() == "inside\n"
    assert os.stat(vm.path("project", "after")).st_uid == os.stat(vm.path("project")).st_uid


def test_the_policy_is_enforced_on_the_tap(vm):
    got = vm.probe([*VM, *allow("ok.test")], [["tls", "ok.test", 443, "ok.test", "/p", vm.ca], ["resolve", "evil.test"], ["tcp", "11.66.0.2", 443], ["tcp", "169.254.169.254", 80],
                                              ["udp", "11.99.0.1", 7, "x"], ["tcp", "2a00:99::1", 7], ["tls", "ok.test", 443, "evil.test"]], timeout=SLOW)
    assert worked(got[0])["path"] == "/p"
    for row in got[1:]:
        assert "err" in row, row
    assert {c["sni"] for c in vm.conns(kind="tls")} == {"ok.test"}
    assert vm.arrived("11.66.0.2") == 0 and vm.arrived("169.254.169.254") == 0 and vm.arrived("11.99.0.1") == 0
    name = vm.ak(["network", "log", "--last", "--json"]).out
    log = [json.loads(line) for line in name.splitlines()]
    assert find(log, verdict="allow", sni="ok.test") and find(log, verdict="deny", name="evil.test") and find(log, verdict="deny", dst="169.254.169.254"), log


def test_large_transfers_arrive_whole(vm_user):
    """Checksums and segmentation are left to the tap's other end: a mistake there shows in large transfers only."""
    code = ("import socket,threading,hashlib,os\ns=socket.create_connection(('11.99.0.1',7)); d=os.urandom(2<<20)\n"
            "threading.Thread(target=lambda:(s.sendall(d),s.shutdown(1)),daemon=True).start()\n"
            "g=b''\nwhile True:\n x=s.recv(65536)\n if not x: break\n g+=x\nprint(len(g), g==d)")
    r = run(vm_user, [*NATIVE, "--", PYTHON, "-c", code])
    assert r.out == "2097152 True\n", r


def test_two_guests_of_one_template_differ(vm_user):
    code = ("import os,socket; print(open('/proc/sys/kernel/random/boot_id').read().strip(), os.urandom(16).hex(), socket.gethostname(), "
            "open('/sys/class/net/eth0/address').read().strip(), __import__('time').time())")
    a, b = [run(vm_user, [*NATIVE, "--", PYTHON, "-c", code]).out.split() for _ in range(2)]
    assert len(a) == len(b) == 5, (a, b)
    assert all(x != y for x, y in zip(a[:3], b[:3])), (a, b)
    assert abs(float(a[4]) - float(b[4])) < SLOW and float(b[4]) > float(a[4]), "the clock of the host, not that of the template"


def test_a_persistent_sandbox_lives_in_a_guest(vm):
    b = Boxes(vm)
    try:
        b.ak("create", "box", *VM, timeout=SLOW)
        b.ak("start", "box", timeout=SLOW)
        assert json.loads(vm.ak(["list", "--json"]).out)[0]["backend"] == "vm"
        r = vm.ak(["exec", "box", "--", "sh", "-c", "uname -r; echo kept > ~/file; sleep 1000 & echo ok"], timeout=SLOW)
        assert r.code == 0 and r.out.split()[0] != platform.release() and r.out.endswith("ok\n"), r
        assert vm.ak(["cp", "box:" + vm.ak(["exec", "box", "--", "sh", "-c", "echo -n ~/file"], timeout=SLOW).out, vm.path("tmp", "copy")]).code == 0
        with open(vm.path("tmp", "copy")) as f:
            assert f.read() == "kept\n"
        left = vm.ak(["exec", "box", "--", "sh", "-c", "sleep 1000 >/dev/null 2>&1 & echo $!"], timeout=SLOW).out.strip()
        r = vm.ak(["exec", "--timeout", "2s", "box", "--", "sleep", "1000"], timeout=SLOW)
        assert r.code == 124, r
        r = vm.ak(["exec", "box", "--", "kill", "-0", left], timeout=SLOW)
        assert r.code == 0, "what an earlier command left behind on purpose is not the later one's to end: %r" % r
        b.ak("stop", "box", timeout=SLOW)
        b.ak("start", "box", timeout=SLOW)
        assert vm.ak(["exec", "box", "--", "sh", "-c", "cat ~/file"], timeout=SLOW).out == "kept\n"
    finally:
        b.close()


def test_what_a_machine_cannot_do_is_refused(vm_user):
    for args, word in ((["--memory", "16M"], "--memory"), (["--nested-namespaces"], "--nested-namespaces")):
        r = run(vm_user, [*args, "--", "true"])
        assert r.code in (2, 125) and word in r.err, r


def cut(path):
    os.truncate(path, 100)


def damage(path):
    """One bit of the file's first data, its size and time as before: what a bad disk does."""
    st = os.stat(path)
    with open(path, "r+b") as f:
        at = os.lseek(f.fileno(), 0, os.SEEK_DATA)
        f.seek(at)
        byte = f.read(1)[0]
        f.seek(at)
        f.write(bytes([byte ^ 1]))
    os.utime(path, ns=(st.st_atime_ns, st.st_mtime_ns))


@pytest.mark.parametrize("name, spoil", (("state", cut), ("state", damage), ("memory", damage)), ids=("cut", "state", "memory"))
def test_a_guest_that_does_not_fit_is_made_anew(vm_user, name, spoil):
    r = run(vm_user, ["--no-network", "--", "true"])
    assert r.code == 0, r
    r = run(vm_user, ["--no-network", "--", "true"])
    assert r.code == 0 and "preparing" not in r.err, r
    top = os.path.join(vm_user.folder, "vm-" + vm_user.who)
    for folder in os.listdir(top):
        if os.path.isdir(os.path.join(top, folder)):
            spoil(os.path.join(top, folder, name))
    r = run(vm_user, ["--no-network", "--", "echo", "again"])
    assert r.code == 0 and r.out == "again\n" and "preparing" in r.err, r
