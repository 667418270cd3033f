"""h23: a sandbox writes more to the disk than it may. It is ended, the reason is told, and what it can do to hide its files does not help."""
import json

import pytest
from lab import wait_for
from test_h23_log_cannot_be_written import small_disk

FOREVER = "i=0; while :; do head -c 1M /dev/zero > %s/f$i || exit 3; i=$((i+1)); done"
LIMIT = "out of disk space: limit 16 MiB (--disk)"

# Each writes far more than 16 MiB, in pieces that are small, and goes on until it is ended.
HIDE = {
    "plainly": "cd; " + FOREVER % ".",
    "in tmp": FOREVER % "/tmp",
    "in a folder that nobody may read": "cd; mkdir shut; chmod 300 shut; " + FOREVER % "shut",
    "in files without a name": "exec 7> ~/x; rm ~/x; while :; do head -c 1M /dev/zero >&7 || exit 3; done",
    "in the system": "mkdir -p /usr/local/lib/x && " + FOREVER % "/usr/local/lib/x",
    "by empty files": "cd; i=0; while :; do mkdir d$i; cd d$i; touch $(seq 2000) || exit 3; cd ..; i=$((i+1)); done",
    "deep down": "cd; i=0; while :; do mkdir d && cd d || exit 3; i=$((i+1)); [ $i -gt 600 ] && head -c 64K /dev/zero > f; done",
}


@pytest.mark.parametrize("how", HIDE)
def test_h23_a_sandbox_beyond_its_limit_is_ended(any_boxes, how):
    b = any_boxes
    b.up("x", "--disk", "16M", "--no-network")
    assert b.out("x", "sh", "-c", "head -c 2M /dev/zero > ~/small; cat ~/small | wc -c") == "2097152\n"
    r = b.exec("x", "sh", "-c", HIDE[how], timeout=300)
    assert r.code == 137 and LIMIT in r.err, r
    stops = wait_for(lambda: [json.loads(line) for line in b.ak("audit", "--json").out.splitlines() if '"sandbox_stop"' in line])
    assert "out of disk space" in stops[-1]["reason"] and b.list()["x"]["status"] == "stopped", stops


def test_h23_what_is_over_the_limit_starts_only_with_a_higher_one(any_boxes):
    b = any_boxes
    b.up("x", "--disk", "16M", "--no-network")
    assert LIMIT in b.exec("x", "sh", "-c", HIDE["plainly"], timeout=300).err
    wait_for(lambda: b.list()["x"]["status"] == "stopped")
    said = b.fails("start", "x", says="exceed its limit of 16 MiB").err
    assert "start --disk" in said and "cp" in said and "restore" in said, said
    b.ak("cp", "x:/tmp", b.lab.path("project", "out"))
    b.ak("start", "--disk", "1G", "x")
    assert b.list()["x"]["disk_mb"] == 1024
    b.sh("x", "rm ~/f*")
    b.ak("stop", "x")
    b.ak("start", "--disk", "16M", "x")
    assert b.sh("x", "echo fine") == "fine\n"


def test_h23_a_limit_with_which_it_does_not_start_is_not_kept(boxes):
    b = boxes
    b.up("x", "--disk", "1G", "--no-network")
    b.sh("x", "head -c 20M /dev/zero > ~/f")
    b.ak("stop", "x")
    b.fails("start", "--disk", "16M", "x", says="exceed its limit of 16 MiB")
    b.ak("start", "x")
    assert b.list()["x"]["disk_mb"] == 1024


def test_h23_many_names_of_one_file_count_once(any_boxes):
    b = any_boxes
    b.up("x", "--disk", "16M", "--no-network")
    b.sh("x", "cd; head -c 4M /dev/zero > f; for i in $(seq 100); do ln f f$i; done")
    b.ak("stop", "x")
    b.ak("start", "x")
    assert b.sh("x", "ls ~ | wc -l") == "101\n"


def test_h23_a_kept_run_is_held_to_its_limit(any_user):
    lab = any_user
    r = lab.ak(["run", "--keep", "--disk", "16M", "--no-network", "--json", "--name", "kept", "--", "sh", "-c", HIDE["plainly"]], timeout=300)
    try:
        assert LIMIT in r.err and json.loads(r.out)["out_of_disk"] is True and r.code == 137, r
        assert "exceed its limit" in lab.ak(["start", "kept"]).err
    finally:
        lab.ak(["remove", "--force", "kept"])
        lab.ak(["daemon", "stop"])
    r = lab.ak(["run", "--disk", "16M", "--", "true"])
    assert r.code == 2 and "in memory" in r.err, r


def test_h23_a_sandbox_does_not_see_when_it_is_measured(any_boxes):
    """Else it could move its files from a folder that was not read yet to one that was."""
    b = any_boxes
    b.up("x", "--disk", "1G", "--no-network")
    # It is measured again when two seconds have passed and anything was written.
    look = "mkdir ~/d; was=$(stat -c %x ~/d); for i in $(seq 50); do head -c 64K /dev/zero > ~/f$i; sleep 0.1; [ \"$was\" = \"$(stat -c %x ~/d)\" ] || echo read; done"
    assert b.sh("x", look) == ""


def test_h23_without_a_limit_a_sandbox_may_fill_its_disk(boxes):
    """What others write, or wrote before, ends no sandbox."""
    b, lab = boxes, boxes.lab
    with small_disk(lab, "64m"):
        try:
            b.up("x", "--no-network")
            assert b.sh("x", "head -c 80M /dev/zero > ~/f || echo full") == "full\n"
            assert b.sh("x", "rm ~/f; echo fine") == "fine\n"
        finally:
            b.close()
