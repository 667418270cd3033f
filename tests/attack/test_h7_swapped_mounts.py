"""h7: another real folder in the place of a mount's source, put there by a sandbox that may write the folder around it."""
import os

import pytest

from test_h_mounts import mkdir, put

CLAUDE = ("--compatibility-mode", "claude")
LOOK = ["--", "sh", "-c", "cat /mnt/d/f; touch /mnt/d/made 2>/dev/null; true"]


@pytest.fixture
def around(any_boxes):
    """The folder o, which a sandbox may write, with the source o/data; and the project p, whose file mounts it."""
    b, lab = any_boxes, any_boxes.lab
    lab.o, lab.p, lab.data = mkdir(lab, "home", "o"), mkdir(lab, "home", "p"), mkdir(lab, "home", "o", "data")
    put(lab, lab.data + "/f", "mine")
    put(lab, mkdir(lab, "home", "o", "other") + "/f", "others")
    return b


def trust(lab, mode="ro"):
    put(lab, lab.p + "/agentkernel.toml", '[[mounts]]\nsource = "%s"\ntarget = "/mnt/d"\nmode = "%s"\n' % (lab.data, mode))
    assert lab.ak(["trust", "--yes"], cwd=lab.p).code == 0


def in_o(lab, script):
    r = lab.run([*CLAUDE, "--dir", lab.o, "--", "sh", "-ec", script])
    assert r.code == 0, r


@pytest.mark.parametrize("mode", ["ro", "rw"])
@pytest.mark.parametrize("swap", ["mv data gone; mv other data", "rm -r data; mkdir data; echo evil > data/f", "mv data x; cp -r x data"])
def test_h7_a_mount_of_a_trusted_file_stays_the_folder_that_it_was(around, swap, mode):
    b, lab = around, around.lab
    trust(lab, mode)
    assert lab.run(LOOK, cwd=lab.p).out == "mine"
    in_o(lab, swap)
    for args in (LOOK, [*CLAUDE, *LOOK]):
        r = lab.run(args, cwd=lab.p)
        assert r.code == 125 and "not the folder" in r.err and r.out == "", r
    assert b.lab.ak(["create", "x"], cwd=lab.p).code == 1
    # The way out is to agree to what is there now.
    trust(lab, mode)
    assert lab.run(LOOK, cwd=lab.p).code == 0


def test_h7_a_source_that_was_missing_is_nobody_s_later(around):
    lab = around.lab
    in_o(lab, "mv data gone")
    trust(lab)
    in_o(lab, "mv other data")
    r = lab.run(LOOK, cwd=lab.p)
    assert r.code == 125 and "not the folder" in r.err and r.out == "", r


def test_h7_what_changes_in_the_folder_is_no_change_of_it(around):
    lab = around.lab
    trust(lab)
    in_o(lab, "echo new > data/f; touch data/g; mv data y; mv y data")
    assert lab.run(LOOK, cwd=lab.p).out == "new\n"


def test_h7_a_persistent_sandbox_s_mount_stays_the_folder_that_it_was(around):
    b, lab = around, around.lab
    b.up("x", "--mount", lab.data + ":/mnt/d")
    b.ak("stop", "x")
    in_o(lab, "mv data gone; mv other data")
    b.fails("start", "x", says="not what it was")
