"""h18 in a guest, which is root with a kernel of its own and speaks 9p to the host: the project's files that tools run later are read-only there as well, and new ones are told at the end."""
import pytest
import test_h18_project_files as h18
from guests import VM, every_run
from persist import Boxes

pytestmark = pytest.mark.xdist_group("vm")


@pytest.fixture
def guests(lab):
    """The lab as an ordinary user, every run in a virtual machine."""
    with lab.acting_as("user"), every_run(lab):
        yield lab


def test_vm_h18_what_is_there_cannot_be_changed_replaced_or_moved_away(guests):
    h18.test_h18_what_is_there_cannot_be_changed_replaced_or_moved_away(h18.one_of_everything(guests), "claude", "permissive")


def test_vm_h18_what_appears_is_told_and_recorded(guests):
    b = Boxes(guests)
    try:
        h18.test_h18_what_appears_is_told_and_recorded(b, False)
    finally:
        b.close()


def test_vm_h18_in_a_persistent_guest_as_well(guests):
    lab, b = h18.one_of_everything(guests), Boxes(guests)
    before = h18.state_of(lab)
    try:
        b.ak("create", "box", *VM, "--compatibility-mode", "claude", "--dir", h18.project(lab), timeout=lab.patience_s)
        b.ak("start", "box", timeout=lab.patience_s)
        r = lab.ak(["exec", "box", "--", "sh", "-c", "for f in .envrc .git/config .git/hooks/pre-commit .git/hooks/new .vscode/tasks.json; do echo evil >> $f && echo written $f; done; echo fine > ordinary; rm .envrc"],
                   timeout=lab.patience_s)
        assert r.code != 0 and "written" not in r.out, r
        b.ak("stop", "box", timeout=lab.patience_s)
        assert h18.state_of(lab) == before
    finally:
        b.close()
