"""`--backend vm`: a guest with a kernel of its own behind the same gateway. The guest is booted once for each user of the lab; every run restores it."""
import json
import os
import platform

import pytest
from expect import CODEX, NATIVE, allow, find, missing, refused, worked
from lab import PYTHON, wait_for
from persist import Boxes

VM = ["--backend", "vm"]
pytestmark = pytest.mark.xdist_group("vm")
SLOW = 150  # seconds: software emulation beside other tests


def prepare(lab):
    """The guest that the first run saves serves all later tests of the same user."""
    if platform.machine() != "x86_64" or not os.path.exists("/usr/bin/qemu-system-x86_64"):
        missing("no QEMU on this host")
    place = os.path.join(lab.folder, "vm-" + lab.who)
    script = "mkdir -p {0} && mkdir -p {1} && ln -sfn {0} {1}/vm".format(place, lab.path("state", "agentkernel"))
    if not os.path.isdir(place):
        os.mkdir(place, 0o700)
        if lab.is_root and lab.who == "user":
            os.chown(place, lab.uid, lab.gid)
    r = lab.spawn(["sh", "-c", script]).wait()
    assert r.code == 0, r
    return lab


@pytest.fixture
def vm(any_user):
    return prepare(any_user)


@pytest.fixture
def vm_user(lab):
    """The same as an ordinary user only, for what does not depend on who runs it."""
    with lab.acting_as("user"):
        yield prepare(lab)


def run(lab, args, **kw):
    return lab.run([*VM, *args], timeout=SLOW, **kw)


def test_a_command_runs_under_a_kernel_of_its_own(vm):
    r = run(vm, ["--no-network", "--", "sh", "-c", "uname -r; echo to-stderr >&2; exit 7"])
    assert r.code == 7 and r.out.strip() and r.out.strip() != platform.release() and "to-stderr" in r.err, r


def test_streams_arguments_variables_and_exit_codes_arrive_as_they_are(vm_user):
    r = run(vm_user, ["--no-network", "-e", "A=b c\n", "--", PYTHON, "-c",
                 "import sys,os; d=sys.stdin.buffer.read(); print(len(d), d.count(b'x'), sys.argv[1:], repr(os.environ['A']))", "", "a b", "$HOME", "*"], stdin=b"x" * 300000)
    assert r.code == 0 and r.out == "300000 300000 ['', 'a b', '$HOME', '*'] 'b c\\n'\n", r
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
        r = vm.ak(["exec", "--timeout", "2s", "box", "--", "sleep", "1000"], timeout=SLOW)
        assert r.code == 124, r
        b.ak("stop", "box", timeout=SLOW)
        b.ak("start", "box", timeout=SLOW)
        assert vm.ak(["exec", "box", "--", "sh", "-c", "cat ~/file"], timeout=SLOW).out == "kept\n"
    finally:
        b.close()


def test_a_machine_that_dies_is_told_and_leaves_nothing(vm_user):
    p = vm_user.start([*VM, "--no-network", "--", "sh", "-c", "echo up; sleep 1000"])
    p.wait_output(b"up\n", SLOW)
    assert vm_user.spawn(["pkill", "-9", "-f", "qemu-system-x86_64.*/proc/self/fd"], who="root" if vm_user.is_root else "user").wait().code == 0
    r = p.wait(SLOW)
    assert r.code == 137, r


def test_what_a_machine_cannot_do_is_refused(vm_user):
    for args, word in ((["--memory", "16M"], "--memory"), (["--nested-namespaces"], "--nested-namespaces"), (["--publish", "8080"], "--publish")):
        r = run(vm_user, [*args, "--", "true"])
        assert r.code in (2, 125) and word in r.err, r


def test_a_guest_that_does_not_fit_is_made_anew(vm_user):
    assert run(vm_user, ["--no-network", "--", "true"]).code == 0
    top = os.path.join(vm_user.folder, "vm-" + vm_user.who)
    name = next(n for n in os.listdir(top) if n != "lock")
    with open(os.path.join(top, name, "state"), "r+b") as f:
        f.truncate(100)
    r = run(vm_user, ["--no-network", "--", "echo", "again"])
    assert r.code == 0 and r.out == "again\n" and "preparing" in r.err, r
