"""h13: audit verify tells of cut tails, deleted files, and records that were removed with all chains made anew; and it raises no false alarm after a SIGKILL at any moment."""
import hashlib
import json
import os
import re

import pytest
from expect import allow, gateway_pid, holding, worked
from lab import wait_for


def state(lab, *parts):
    return os.path.join(lab.path("state"), "agentkernel", *parts)


def one_run(lab):
    lab.probe(allow("ok.test"), [["resolve", "evil.test"], ["tls", "ok.test", 443, "ok.test"]])
    with open(state(lab, "last")) as f:
        return f.read().strip()


def lines(path):
    with open(path) as f:
        return f.read().splitlines()


def chained_anew(rows):
    """What one who can write the files, and has no key, makes of them."""
    out, prev = [], "0" * 64
    for n, row in enumerate(rows, 1):
        body = re.sub(r'"seq":\d+', '"seq":%d' % n, row[:row.index(',"prev":"')], count=1) + ',"prev":"%s"' % prev
        prev = hashlib.sha256(body.encode()).hexdigest()
        out.append(body + ',"hash":"%s"}' % prev)
    return out, prev


def write(path, rows):
    with open(path, "w") as f:
        f.write("".join(row + "\n" for row in rows))


def cut_the_tail_of_the_events(lab, run):
    write(state(lab, "events.jsonl"), lines(state(lab, "events.jsonl"))[:-1])


def delete_the_events(lab, run):
    os.unlink(state(lab, "events.jsonl"))


def delete_the_run(lab, run):
    for name in os.listdir(state(lab, "runs", run)):
        os.unlink(state(lab, "runs", run, name))
    os.rmdir(state(lab, "runs", run))


def cut_both_tails(lab, run):
    """The end of the log, and of the events that told of it."""
    write(state(lab, "runs", run, "network.jsonl"), lines(state(lab, "runs", run, "network.jsonl"))[:2])
    write(state(lab, "events.jsonl"), [row for row in lines(state(lab, "events.jsonl")) if '"run_end"' not in row])


def remove_the_deed_and_chain_both_anew(lab, run):
    log, events = state(lab, "runs", run, "network.jsonl"), state(lab, "events.jsonl")
    rows, last = chained_anew([row for row in lines(log) if "evil.test" not in row])
    write(log, rows)
    story = [re.sub(r'"network_records":\d+', '"network_records":%d' % len(rows), re.sub(r'"network_hash":"\w+"', '"network_hash":"%s"' % last, row)) if run in row else row for row in lines(events)]
    write(events, chained_anew(story)[0])


ATTACKS = [cut_the_tail_of_the_events, delete_the_events, delete_the_run, cut_both_tails, remove_the_deed_and_chain_both_anew]


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda f: f.__name__)
def test_h13_verify_tells(any_user, attack):
    lab = any_user
    one_run(lab)
    run = one_run(lab)
    assert lab.ak(["audit", "verify"]).code == 0
    attack(lab, run)
    r = lab.ak(["audit", "verify"])
    assert r.code == 1 and "broken" in r.out, r
    # What comes after does not hide it.
    one_run(lab)
    assert lab.ak(["audit", "verify"]).code == 1


def newest_anchored(lab, run):
    """The newest record that the anchor of RUN names; 0 before it is written, which is a moment after its file was made."""
    try:
        with open(state(lab, "anchors", run)) as f:
            text = f.read()
    except FileNotFoundError:
        return 0
    return json.loads(text)["newest"] if text else 0


def test_h13_a_log_that_is_cut_while_it_grows_is_told(any_user):
    lab = any_user
    with holding(lab, allow("ok.test")) as (proc, do):
        worked(do([["tls", "ok.test", 443, "ok.test"]])[0])
        do([["resolve", "evil.test"]])
        run = wait_for(lambda: [n for n in os.listdir(state(lab, "runs")) if n.startswith("run-")])[0]
        log = state(lab, "runs", run, "network.jsonl")
        wait_for(lambda: newest_anchored(lab, run) >= 3)
        assert lab.ak(["audit", "verify"]).code == 0
        write(log, lines(log)[:1])
        assert lab.ak(["audit", "verify"]).code == 1


def test_h13_a_key_that_was_replaced_is_told_by_a_copy(any_user):
    lab = any_user
    one_run(lab)
    copy = lab.path("state") + "/copy.key"
    assert oct(os.stat(state(lab, "audit.key")).st_mode)[-3:] == "600"
    assert lab.host(["cp", "-p", state(lab, "audit.key"), copy]).code == 0
    assert lab.ak(["audit", "verify", "--key-file", copy]).code == 0
    # All is made anew with another key.
    assert lab.host(["sh", "-c", "rm -rf %s/*" % state(lab)]).code == 0
    one_run(lab)
    assert lab.ak(["audit", "verify"]).code == 0
    assert lab.ak(["audit", "verify", "--key-file", copy]).code == 1


@pytest.mark.parametrize("victim", ["gateway", "run"])
def test_h13_sudden_death_is_no_false_alarm(any_user, victim):
    lab = any_user
    for _ in range(3):
        with holding(lab, allow("ok.test")) as (proc, do):
            worked(do([["tls", "ok.test", 443, "ok.test"]])[0])
            pid = gateway_pid(lab, proc)
            do([["eval", "import threading\ndef ask():\n for i in range(300):\n  try: socket.getaddrinfo('n%d.evil.test' % i, 443)\n  except OSError: pass\nthreading.Thread(target=ask, daemon=True).start(); out = 1"]])
            lab.host(["kill", "-9", str(pid if victim == "gateway" else proc.pid)])
    assert lab.ak(["audit", "verify"]).code == 0


def test_h13_the_log_of_a_persistent_sandbox_is_anchored(boxes):
    b, lab = boxes, boxes.lab
    b.up("x", "--compatibility-mode", "codex", "--allow-host", "ok.test:7")
    b.probe("x", [["tcp", "ok.test", 7, b"x".hex()], ["resolve", "evil.test"]])
    b.ak("stop", "x")
    log = state(lab, "sandboxes", "x", "network.jsonl")
    assert lab.ak(["audit", "verify"]).code == 0
    whole = lines(log)
    write(log, whole[:-2])
    assert lab.ak(["audit", "verify"]).code == 1
    # Starting it again goes on with what is there, and does not hide it.
    b.ak("start", "x")
    b.probe("x", [["resolve", "evil.test"]])
    b.ak("stop", "x")
    assert lab.ak(["audit", "verify"]).code == 1


def test_h13_a_persistent_sandbox_that_vanished_is_told_and_one_that_was_removed_is_not(boxes):
    b, lab = boxes, boxes.lab
    for name in ("x", "y"):
        b.up(name, "--compatibility-mode", "codex")
        b.probe(name, [["resolve", "evil.test"]])
        b.ak("stop", name)
    b.ak("remove", "y")
    assert lab.ak(["audit", "verify"]).code == 0
    os.unlink(state(lab, "sandboxes", "x", "network.jsonl"))
    assert lab.ak(["audit", "verify"]).code == 1
    b.ak("remove", "--force", "x")
