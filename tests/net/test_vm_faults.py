"""What goes wrong in or under a guest is told in words, ends with the right code and leaves nothing."""
import os

import images
import pytest
from expect import missing
from guests import SLOW, VM, prepare, run
from lab import wait_for
from persist import Boxes

pytestmark = pytest.mark.xdist_group("vm")


@pytest.fixture
def vm(any_user):
    """With an image, in which the user is root of the guest's kernel."""
    lacks = images.missing_tools()
    if lacks:
        missing("not installed: %s" % lacks)
    lab = prepare(any_user)
    folder = images.write_layout(lab.path("project", "layout"), [images.base_layer().done()])
    r = lab.ak(["image", "import", "--name", "box", folder + ":latest"])
    assert r.code == 0, r
    return lab


def as_root(lab, script, *args):
    return run(lab, [*args, "--no-network", "--image", "box", "--", "sh", "-c", script])


def test_a_kernel_that_panics_ends_the_run_and_is_quoted(vm):
    p = vm.start([*VM, "--no-network", "--image", "box", "--", "sh", "-c", "echo before; cat; echo c > /proc/sysrq-trigger; sleep 1000"], stdin="pipe")
    p.wait_output(b"before\n", SLOW)
    p.close_stdin()
    r = p.wait(SLOW)
    assert r.code == 137 and r.out == "before\n", r
    assert "agentkernel: the guest's kernel failed: Kernel panic - not syncing: sysrq triggered crash" in r.err, r


def test_a_guest_without_memory_kills_a_process_and_says_so(vm):
    r = as_root(vm, "echo f > /proc/sysrq-trigger; sleep 1000")
    assert r.code == 137 and "agentkernel: the guest ran out of memory (--memory gives it more): Out of memory: Killed process" in r.err, r


def test_the_console_is_shown_for_debug_only(vm):
    script = "echo '<1>one line' > /dev/kmsg; printf '<1>a\\033[31mb\\n' > /dev/kmsg; echo done"
    r = as_root(vm, script, "--debug")
    lines = [line for line in r.err.splitlines() if line.startswith("agentkernel: guest: ")]
    assert r.code == 0 and r.out == "done\n" and any(line.endswith("one line") for line in lines) and "\033" not in r.err, r
    r = as_root(vm, script)
    assert r.code == 0 and "guest: " not in r.err, r
    r = vm.run(["--debug", "--no-network", "--", "true"])
    assert r.code == 2 and "--debug" in r.err and "--backend vm" in r.err, r
    r = run(vm, ["--debug", "--detach", "--no-network", "--", "true"])
    assert r.code == 2 and "--debug" in r.err and "--detach" in r.err, r


def test_a_guest_that_powers_off_ends_the_run(vm):
    r = as_root(vm, "echo o > /proc/sysrq-trigger; sleep 1000")
    assert r.code == 137 and "agentkernel: the virtual machine has ended" in r.err, r


def test_a_machine_that_is_killed_is_told_and_leaves_nothing(vm):
    p = vm.start([*VM, "--no-network", "--", "sh", "-c", "echo up; sleep 1000"])
    p.wait_output(b"up\n", SLOW)
    who = "root" if vm.is_root else "user"
    assert vm.spawn(["pkill", "-9", "-f", "qemu-system-x86_64.*/proc/self/fd"], who=who).wait().code == 0
    r = p.wait(SLOW)
    assert r.code == 137 and "agentkernel: the virtual machine has ended" in r.err, r


def monitor_of(lab, name):
    """The QEMU of the persistent sandbox NAME, which no other test has."""
    rows = {}
    for line in lab.host(["ps", "-eo", "pid=,ppid=,args="]).out.splitlines():
        pid, parent, *args = line.split(None, 2)
        rows[pid] = parent, args[0] if args else ""

    def is_below(pid):
        return pid in rows and (rows[pid][1].split()[-1:] == [name] or is_below(rows[pid][0]))
    found = [pid for pid, (_, args) in rows.items() if "/qemu-system" in args and is_below(pid)]
    assert len(found) == 1, found
    return found[0]


def test_exec_in_a_persistent_guest_tells_why_it_ended(vm):
    b, name = Boxes(vm), "faults-%d" % os.getpid()
    try:
        b.ak("create", name, *VM, "--no-network", "--image", "box", timeout=SLOW)
        b.ak("start", name, timeout=SLOW)
        r = vm.ak(["exec", name, "--", "sh", "-c", "echo f > /proc/sysrq-trigger; sleep 1000"], timeout=SLOW)
        assert r.code == 137 and "agentkernel: the guest ran out of memory (--memory gives it more): Out of memory: Killed process" in r.err, r
        r = vm.ak(["exec", name, "--", "sh", "-c", "exit 3"], timeout=SLOW)
        assert r.code == 3 and not r.err, "told once: %r" % r
        p = vm.spawn([vm.binary, "exec", name, "--", "sh", "-c", "echo before; cat; echo c > /proc/sysrq-trigger; sleep 1000"], env=vm.env(), stdin="pipe")
        p.wait_output(b"before\n", SLOW)
        p.close_stdin()
        r = p.wait(SLOW)
        assert r.code == 137 and r.out == "before\n" and "agentkernel: the guest's kernel failed: Kernel panic - not syncing: sysrq triggered crash" in r.err, r
        wait_for(lambda: b.list()[name]["status"] == "stopped", SLOW)
        b.ak("start", name, timeout=SLOW)
        p = vm.spawn([vm.binary, "exec", name, "--", "sh", "-c", "echo up; sleep 1000"], env=vm.env())
        p.wait_output(b"up\n", SLOW)
        assert vm.host(["kill", "-9", monitor_of(vm, name)]).code == 0
        r = p.wait(SLOW)
        assert r.code == 137 and "agentkernel: the virtual machine has ended" in r.err, r
    finally:
        b.close()
