"""h13: audit verify tells when the log of a persistent sandbox is cut, deleted, put back or made anew along with its anchor."""
import os
import re
import shutil

import pytest
from test_h13_audit_verify_tells import chained_anew, lines, state, write


def log_of(lab):
    return state(lab, "sandboxes", "x", "network.jsonl")


def drop_anchor(lab):
    os.unlink(state(lab, "anchors", "x"))


def cut_and_drop_the_anchor(lab):
    write(log_of(lab), lines(log_of(lab))[:2])
    drop_anchor(lab)


def delete_both(lab):
    os.unlink(log_of(lab))
    drop_anchor(lab)


def make_anew_as_if_older_than_the_key(lab):
    rows = [re.sub(r'"time":"\d{4}', '"time":"2001', row) for row in lines(log_of(lab)) if "evil.test" not in row]
    write(log_of(lab), chained_anew(rows)[0])
    drop_anchor(lab)


def put_an_old_log_and_anchor_back(lab):
    shutil.copy(state(lab, "old.log"), log_of(lab))
    shutil.copy(state(lab, "old.anchor"), state(lab, "anchors", "x"))


ATTACKS = [drop_anchor, cut_and_drop_the_anchor, delete_both, make_anew_as_if_older_than_the_key, put_an_old_log_and_anchor_back]


def begin(b):
    b.up("x", "--compatibility-mode", "codex")
    b.probe("x", [["resolve", "first.test"]])
    b.ak("stop", "x")
    shutil.copy(log_of(b.lab), state(b.lab, "old.log"))
    shutil.copy(state(b.lab, "anchors", "x"), state(b.lab, "old.anchor"))
    b.ak("start", "x")
    b.probe("x", [["resolve", "evil.test"]])


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda f: f.__name__)
def test_h13_verify_tells_of_a_stopped_sandbox(any_boxes, attack):
    b, lab = any_boxes, any_boxes.lab
    begin(b)
    b.ak("stop", "x")
    assert lab.host(["cp", "-p", state(lab, "audit.key"), state(lab, "copy")]).code == 0
    assert lab.ak(["audit", "verify"]).code == 0
    attack(lab)
    for options in ([], ["--key-file", state(lab, "copy")]):
        r = lab.ak(["audit", "verify", *options])
        assert r.code == 1 and "broken" in r.out, r
    if attack is drop_anchor:  # no record was lost, and a start makes a new one
        return
    # Going on with it does not hide it.
    b.ak("start", "x")
    b.ak("stop", "x")
    assert lab.ak(["audit", "verify"]).code == 1


@pytest.mark.parametrize("attack", ATTACKS[:4], ids=lambda f: f.__name__)
def test_h13_verify_tells_of_a_running_sandbox(any_boxes, attack):
    b, lab = any_boxes, any_boxes.lab
    begin(b)
    assert lab.ak(["audit", "verify"]).code == 0
    attack(lab)
    assert lab.ak(["audit", "verify"]).code == 1


def test_h13_sudden_death_of_a_persistent_sandbox_is_no_false_alarm(any_boxes):
    b, lab = any_boxes, any_boxes.lab
    begin(b)
    b.kill_daemon()
    assert lab.ak(["audit", "verify"]).code == 0
    b.ak("stop", "x")
    assert lab.ak(["audit", "verify"]).code == 0
    b.ak("remove", "x")
    b.create("x", "--compatibility-mode", "codex")
    assert lab.ak(["audit", "verify"]).code == 0
    b.ak("start", "x")
    assert lab.ak(["audit", "verify"]).code == 0
