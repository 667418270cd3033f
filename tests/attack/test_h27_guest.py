"""h27 in a guest: commands of one virtual machine do not see each other's secrets. Root of an image is not kept from it: the guest's kernel is its own."""
import pytest
import test_h27_commands_apart as h27
from guests import SLOW, VM, prepare
from lab import PYTHON
from persist import Boxes

pytestmark = pytest.mark.xdist_group("vm")


@pytest.fixture
def guests(lab):
    with lab.acting_as("user"):
        b = Boxes(prepare(lab))
        yield b
        b.close()


@pytest.mark.parametrize("args", [[], ["--compatibility-mode", "codex"]], ids=["moderate", "codex"])
def test_h27_a_command_of_a_guest_cannot_look_into_another(guests, args):
    b = guests
    b.ak("create", "x", *VM, "--no-network", *args, timeout=SLOW)
    b.ak("start", "x", timeout=SLOW)
    p = h27.holder(b, "-e", "SECRET_WORD=" + h27.SECRET)
    r = b.exec("x", PYTHON, "-c", h27.LOOK, h27.SECRET, timeout=SLOW)
    assert r.out.strip() == "[]", r
    # What the fence is made of restricts nothing else.
    r = b.exec("x", "sh", "-c", "mkdir -p /tmp/a /tmp/b && echo x > /tmp/a/f && mv /tmp/a/f /tmp/b && ln /tmp/b/f /tmp/a/g && cat /tmp/a/g", timeout=SLOW)
    assert r.out == "x\n", r
    p.write(b"end\n")
    assert p.wait(SLOW).out.endswith(h27.SECRET + "-end\n")
