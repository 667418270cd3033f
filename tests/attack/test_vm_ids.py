"""What stands for commands and connections of a guest is counted: neither whoever connects from outside nor a command that ends badly uses it up."""
import pytest
from api import Door
from expect import CODEX, holding
from guests import SLOW, VM, prepare, run
from lab import wait_for
from persist import Boxes
from published import echo, reset, serve

pytestmark = pytest.mark.xdist_group("vm")


@pytest.fixture
def vm(lab):
    with lab.acting_as("user"):
        prepare(lab)
        assert run(lab, ["--no-network", "--", "true"]).code == 0
        yield lab


def test_vm_refused_connections_use_nothing_up(vm):
    """Before the program inside listens: each client costs a connection over IPv4 and one over IPv6, of 192 at one time."""
    with Door(vm) as door, holding(vm, [*VM, *CODEX, "-p", "15301:5001"], serve(), SLOW) as (_, do):
        for _ in range(100):
            assert reset(door, 15301)
        do([["eval", "listen('127.0.0.1', 5001); out = 1"]])
        assert echo(door, 15301) == b"helloend"


def test_vm_a_command_that_is_killed_while_it_writes_uses_nothing_up(vm):
    """Its output stays in the guest, because nobody reads it any more. The number of a command is in the name of its control group."""
    b = Boxes(vm)
    try:
        b.ak("create", "x", *VM, "--no-network", timeout=SLOW)
        b.ak("start", "x", timeout=SLOW)
        number = lambda: vm.ak(["exec", "x", "cat", "/proc/self/cgroup"], timeout=SLOW).out
        first = number().split(".")[0]
        for _ in range(2):
            assert vm.ak(["exec", "--timeout", "1s", "x", "sh", "-c", "yes & yes >&2"], timeout=SLOW).code == 124
        wait_for(lambda: number().split(".")[0] == first, 30)
    finally:
        b.close()
