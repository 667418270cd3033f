"""run --detach: a run in the background that the usual commands reach, and that leaves only its log and output."""
import json
import os

from expect import CODEX
from lab import wait_for

WAIT = "until [ -e /tmp/go ]; do sleep 0.02; done"


def rows(b):
    return {row["name"]: row for row in json.loads(b.ak("list", "-a", "--json").out)}


def ended(b, name):
    wait_for(lambda: rows(b).get(name, {}).get("status") == "exited")
    return rows(b)[name]


def test_a_detached_run_is_reached_by_name_and_gone_at_its_end(any_boxes):
    b, lab = any_boxes, any_boxes.lab
    name = b.ak("run", "--detach", *CODEX, "--", "sh", "-c", "echo out; echo err >&2; getent hosts evil.test; %s; exit 6" % WAIT).out.strip()
    assert b.list()[name]["status"] == "running" and "exit_code" not in b.list()[name]
    wait_for(lambda: any(row.get("name") == "evil.test" for row in b.netlog(name)))
    wait_for(lambda: b.ak("logs", name).out == "out\nerr\n")
    follow = lab.spawn([lab.binary, "logs", "--follow", name], env=lab.env())
    assert b.sh(name, "echo in") == "in\n"
    b.exec(name, "touch", "/tmp/go")  # the run may end, and this command with it, before it has exited
    row = ended(b, name)
    assert row["exit_code"] == 6 and row["denied"] > 0 and row["command"][0] == "sh" and "ip" not in row, row
    assert follow.wait().out == "out\nerr\n"
    assert b.ak("logs", name).out == "out\nerr\n" and name not in b.list()
    assert any(r.get("name") == "evil.test" and r["verdict"] == "deny" for r in b.netlog(name))
    assert json.loads(b.ak("audit", "verify", "--json").out)["intact"]
    b.fails("start", name, says="past run")


def test_stop_ends_it_and_keep_keeps_it(boxes):
    b = boxes
    assert b.ak("run", "-d", "--no-network", "--name", "gone", "sleep", "7411").out == "gone\n"
    b.ak("stop", "gone")
    assert ended(b, "gone")["exit_code"] == 128 + 15
    b.ak("run", "-d", "--no-network", "--keep", "--name", "stays", "--", "sh", "-c", "echo mine > /tmp/f; exit 3")
    wait_for(lambda: rows(b)["stays"].get("exit_code") == 3 and rows(b)["stays"]["status"] == "stopped")
    b.ak("start", "stays")
    assert b.out("stays", "cat", "/tmp/f") == "mine\n"
    r = b.fails("run", "-d", "--no-network", "--name", "stays", "true", code=125, says="exists already")
    assert r.out == ""
    assert b.out("stays", "cat", "/tmp/f") == "mine\n"  # the failed start removed nothing


def test_its_log_cannot_be_cut_off_unnoticed(boxes):
    b, lab = boxes, boxes.lab
    name = b.ak("run", "-d", *CODEX, "getent", "hosts", "evil.test").out.strip()
    ended(b, name)
    with open(lab.path("state", "agentkernel", "runs", name, "network.jsonl"), "r+") as f:
        f.truncate(0)
    b.fails("audit", "verify", says="broken")


def test_a_command_that_is_not_there_is_told_at_once_and_leaves_nothing(boxes):
    b = boxes
    b.fails("run", "-d", "--no-network", "no-such-program", code=127, says="no-such-program")
    b.fails("run", "-d", "-t", "--no-network", "true", code=2, says="terminal")
    b.fails("run", "-d", "--no-network", "--dir", "/no/such/folder", "true", code=125, says="/no/such/folder")
    assert rows(b) == {}


def test_time_and_output_are_limited(boxes):
    b = boxes
    name = b.ak("run", "-d", "--no-network", "--timeout", "300ms", "sleep", "7412").out.strip()
    assert ended(b, name)["exit_code"] == 124
    name = b.ak("run", "-d", "--no-network", "--", "sh", "-c", "head -c 20000000 /dev/zero").out.strip()
    ended(b, name)
    out = b.lab.host(["wc", "-c", b.lab.path("state", "agentkernel", "runs", name, "output.log")]).out
    assert 16 << 20 <= int(out.split()[0]) < 17 << 20


def test_only_detached_runs_have_logs(boxes):
    b = boxes
    b.create("x", "--no-network")
    b.fails("logs", "x", says="--detach")
    b.fails("logs", "nobody", says="nobody")
    b.fails("logs", code=2)


def test_a_tool_of_the_callers_own_is_there(boxes):
    b, lab = boxes, boxes.lab
    folder = lab.path("home", "tools", "bin")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "mine"), "w") as f:
        f.write("#!/bin/sh\necho mine says $1\n")
    os.chmod(os.path.join(folder, "mine"), 0o755)
    name = b.ak("run", "-d", "--no-network", "mine", "hello", env={"PATH": folder + ":/usr/bin:/bin"}).out.strip()
    assert ended(b, name)["exit_code"] == 0 and b.ak("logs", name).out == "mine says hello\n"
