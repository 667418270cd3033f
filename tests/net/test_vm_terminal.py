"""Terminals of commands in a guest: sizes, the keys that interrupt, stop and continue, and a shell that is left and found again."""
import pytest
from guests import SLOW, prepare
from persist import Boxes
from screen import Screen

pytestmark = pytest.mark.xdist_group("vm")


@pytest.fixture
def vm_user(lab):
    with lab.acting_as("user"):
        yield prepare(lab)


@pytest.fixture
def shell(vm_user):
    """A user's shell on a terminal."""
    s = Screen(vm_user, None, rows=33, cols=99, shell=True)
    yield s
    s.close()


@pytest.fixture
def box(vm_user):
    b = Boxes(vm_user)
    b.ak("create", "box", "--backend", "vm", "--no-network", timeout=SLOW)
    b.ak("start", "box", timeout=SLOW)
    yield vm_user
    b.close()


def test_ctrl_z_gives_the_shell_back_and_fg_returns_to_the_guest(shell):
    s = shell
    s.type(b"ak run --backend vm --no-network sh -c 'stty size; trap \"echo caught; exit 5\" INT; echo up; while read x; do echo got-$x; done'\n")
    s.until(rb"33 99\r\nup\r\n", SLOW)
    s.type(b"one\n")
    s.until(rb"got-one\r\n", SLOW)
    s.type(b"\x1a")
    s.until(rb"Stopped[\s\S]*host\$ ", SLOW)
    s.type(b"echo me-$((40+2))\n")
    s.until(rb"me-42")
    s.type(b"fg\n")
    s.until_typed(b"two\n", rb"got-two\r\n")
    s.type(b"\x03")
    s.until(rb"caught[\s\S]*host\$ ", SLOW)
    s.type(b"echo code-$?\n")
    s.until(rb"code-5")


def test_exec_has_the_size_of_the_terminal_and_follows_it(box):
    s = Screen(box, ["exec", "-it", "box", "--", "sh", "-c", "trap 'stty size' WINCH; trap 'echo caught; exit 3' INT; stty size; while :; do sleep 0.2; done"], rows=30, cols=90)
    s.until(rb"30 90\r\n", SLOW)
    s.resize(41, 101)
    s.until(rb"41 101\r\n", SLOW)
    s.type(b"\x03")
    s.until(rb"caught", SLOW)
    assert s.end(SLOW).code == 3


def test_a_shell_in_a_guest_is_left_and_found_again(box):
    s = Screen(box, ["attach", "box"])
    s.until(rb"[$#] ", SLOW)
    s.type(b"V=still; echo here-$V\n")
    s.until(rb"here-still", SLOW)
    s.type(b"\x10\x11")
    s.until(rb"keeps running", SLOW)
    assert s.end(SLOW).code == 0
    s = Screen(box, ["attach", "box"], rows=37)
    s.until_typed(b"stty size; echo again-$V\n", rb"37 80\r\nagain-still\r\n")
    s.close()
