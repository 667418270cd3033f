"""Live policies: in force at once, ending by themselves, surviving everything. What a change does to live flows: test_inv08_policy_change."""
import json
import os
import time

from expect import BLOCKED_ANSWERS, NOT_LISTED, addresses, allowed, ask, denied, find, refused, reply, worked
from lab import wait_for
from persist import FLOW, TELL, open_flow


def test_allow_and_block_take_effect_at_once_and_persist(any_boxes):
    b = any_boxes
    b.up("x", "--compatibility-mode", "codex")
    with b.holding("x") as (proc, do):
        refused(do([["tcp", "ok.test", 7, b"x".hex()]])[0])
        b.ak("network", "policy", "x", "--allow-host", "ok.test:7")
        worked(do([["tcp", "ok.test", 7, b"x".hex()]])[0])
        assert b.policy("x")["generation"] == 2
        b.ak("network", "policy", "x", "--block-host", "ok.test")
        b.ak("network", "policy", "x", "--block-host", "ok.test:7")
        refused(do([["tcp", "ok.test", 7, b"x".hex()]])[0])
        b.ak("network", "policy", "x", "--remove", "ok.test:7", "--allow-host", "other.test:7")
    b.ak("stop", "x")
    b.kill_daemon()
    b.ak("start", "x")
    got = b.probe("x", [["tcp", "other.test", 7, b"x".hex()], ["tcp", "ok.test", 7, b"x".hex()]])
    worked(got[0])
    refused(got[1])
    log = b.netlog("x")
    assert [r["generation"] for r in find(log, event="policy")] == [2, 3, 4, 5] and log[-1]["generation"] == 5
    assert allowed(log, event="flow", name="ok.test")[0]["generation"] == 2
    b.ak("audit", "verify")


def test_a_grant_ends_by_itself(boxes):
    b = boxes
    b.up("x", "--compatibility-mode", "codex")
    with b.holding("x", FLOW) as (proc, do):
        before = time.time()
        b.ak("network", "policy", "x", "--allow-host", "ok.test:7", "--for", "5s")
        worked(do([open_flow("f", "ok.test")])[0])
        change = b.policy("x")["changes"]
        assert len(change) == 1 and change[0]["op"] == "allow-host" and change[0]["until"], change
        dead = wait_for(lambda: do([TELL])[0]["ok"]["f"]["dead"])
        assert dead - before > 4.9, dead - before
        refused(do([["tcp", "ok.test", 7, b"x".hex()]])[0])
        wait_for(lambda: b.policy("x")["changes"] == [])


def test_a_grant_that_ran_out_while_no_daemon_was_there_is_gone(boxes):
    b = boxes
    b.up("x", "--compatibility-mode", "codex")
    b.ak("network", "policy", "x", "--allow-host", "ok.test:7", "--for", "1s")
    with b.without_daemon():
        wait_for(lambda: b.policy("x")["changes"] == [])
        b.ak("daemon", "start")
    refused(b.probe("x", [["tcp", "ok.test", 7, b"x".hex()]])[0])


BAD = [["--allow-host", "*"], ["--allow-host", "10.0.0.1"], ["--allow-cidr", "nonsense"], ["--remove", "never.was:1"], ["--allow-host", "a.test:99999"],
       ["--block-host", "exämple.test"]]


def test_a_bad_change_is_refused_whole(boxes):
    b = boxes
    b.up("x", "--compatibility-mode", "codex")
    before = b.policy("x")
    for bad in BAD:
        r = b.lab.ak(["network", "policy", "x", "--allow-host", "ok.test:7", *bad])
        assert r.code == (1 if bad[0] == "--remove" else 2) and r.err.startswith("agentkernel: network policy: "), r
        assert b.policy("x") == before, bad
    refused(b.probe("x", [["tcp", "ok.test", 7, b"x".hex()]])[0])
    assert not find(b.netlog("x"), event="policy")


def test_the_spelling_of_docker(boxes):
    b = boxes
    b.up("x", "--compatibility-mode", "native")
    with b.holding("x") as (proc, do):
        worked(do([["tcp", "ok.test", 7, b"x".hex()]])[0])
        b.ak("network", "proxy", "x", "--policy", "deny", "--allow-host", "other.test:7")
        got = do([["tcp", "ok.test", 7, b"x".hex()], ["tcp", "other.test", 7, b"x".hex()]])
        refused(got[0])
        worked(got[1])
        b.ak("network", "proxy", "x", "--policy", "allow", "--block-host", "other.test:7")
        got = do([["tcp", "ok.test", 7, b"x".hex()], ["tcp", "other.test", 7, b"x".hex()]])
        worked(got[0])
        refused(got[1])
        b.ak("network", "policy", "x", "--reset")
        worked(do([["tcp", "other.test", 7, b"x".hex()]])[0])
        # What is built in is never opened.
        b.ak("network", "proxy", "x", "--allow-cidr", "169.254.0.0/15")
        refused(do([["tcp", "169.254.169.254", 80]])[0])
    assert b.lab.arrived("169.254.169.254") == 0
    text = b.ak("network", "policy", "x").out
    assert "generation" in text and "default     allow" in text and "169.254.0.0/15" in text, text


def test_a_watched_file_is_followed_and_a_wrong_one_changes_nothing(boxes):
    b, lab = boxes, boxes.lab
    b.up("x", "--compatibility-mode", "codex")
    path = lab.path("home", "rules.json")

    def write(policy):
        text = policy if isinstance(policy, str) else json.dumps(dict({"version": 1, "name": "rules"}, **policy))
        with open(path + ".new", "w") as f:
            f.write(text)
        os.rename(path + ".new", path)
    write({"allow": ["ok.test:7"]})
    watch = lab.spawn([lab.binary, "network", "policy", "x", "--watch", path], env=lab.env())
    watch.wait_output(b"generation 2", stream=2)
    with b.holding("x") as (proc, do):
        both = [["tcp", "ok.test", 7, b"x".hex()], ["tcp", "other.test", 7, b"x".hex()]]
        got = do(both)
        worked(got[0]), refused(got[1])
        write({"allow": ["other.test:7"]})
        watch.wait_output(b"generation 3", stream=2)
        got = do(both)
        refused(got[0]), worked(got[1])
        write('{"version": 1, "allow": ["ok.test:7", "*"]}')
        watch.wait_output(b"stays", stream=2)
        got = do(both)
        refused(got[0]), worked(got[1])
        write({"allow": ["ok.test:7", "other.test:7"]})
        watch.wait_output(b"generation 4", stream=2)
        for row in do(both):
            worked(row)
    watch.signal(2)
    assert watch.wait().code == -2
    b.fails("network", "policy", "x", "--watch", "nothing.json", says="nothing.json")


def test_check_and_log_know_persistent_ones(boxes):
    b = boxes
    b.up("x", "--compatibility-mode", "codex", "--allow-host", "ok.test:7")
    assert b.lab.ak(["network", "check", "x", "ok.test:7"]).code == 0
    assert b.lab.ak(["network", "check", "x", "ok.test:8"]).code == 3
    b.ak("network", "policy", "x", "--block-host", "ok.test:7")
    assert b.lab.ak(["network", "check", "x", "ok.test:7"]).code == 3
    follow = b.lab.spawn([b.lab.binary, "network", "log", "x", "--follow", "--json"], env=b.lab.env())
    for i in range(20):
        b.probe("x", [["resolve", "n%d.evil.test" % i]])
    follow.wait_output(b"n19.evil.test")
    b.ak("stop", "x")
    r = follow.wait(20)
    rows = [json.loads(line) for line in r.out.splitlines()]
    seqs = [row["seq"] for row in rows]
    assert seqs == list(range(seqs[0], seqs[0] + len(seqs))), seqs
    for i in range(20):
        denied(rows, NOT_LISTED, event="dns", name="n%d.evil.test" % i)
    assert b.netlog("x") == rows


def test_changes_at_once_lose_none(boxes):
    b, lab = boxes, boxes.lab
    b.up("x", "--compatibility-mode", "codex")
    procs = [lab.spawn([lab.binary, "network", "policy", "x", "--allow-host", "h%d.test:7" % i], env=lab.env()) for i in range(16)]
    assert all(p.wait(60).code == 0 for p in procs)
    now = b.policy("x")
    assert now["generation"] == 17
    assert {c["text"] for c in now["changes"]} == {"h%d.test:7" % i for i in range(16)}


def test_cached_answers_are_held_to_the_new_policy(boxes):
    b, lab = boxes, boxes.lab
    lab.dns.set("ok.test", A=["11.1.0.5", "11.1.0.6"], ttl=3600)
    b.up("x", "--compatibility-mode", "codex", "--allow-host", "ok.test:7")

    def told():
        return sorted(addresses(reply(b.probe("x", [ask("ok.test")])[0])))
    assert told() == ["11.1.0.5", "11.1.0.6"]
    b.ak("network", "policy", "x", "--block-cidr", "11.1.0.5/32")
    assert told() == ["11.1.0.6"]
    b.ak("network", "policy", "x", "--block-cidr", "11.1.0.6/32")
    assert told() == []
    denied(b.netlog("x"), ("flags: ok.test:7", BLOCKED_ANSWERS), event="dns", name="ok.test")
    b.ak("network", "policy", "x", "--reset", "--allow-host", "ok.test:7")
    assert told() == ["11.1.0.5", "11.1.0.6"]
