"""Kept and past runs: their names, what the commands make of them, and what `list`, `inspect` and `audit` show."""
import json
import os
import re

from expect import CODEX


def kept(lab, *args, code=0):
    """Run with --keep; the name of what was kept."""
    r = lab.run(["--keep", *args])
    assert r.code == code, r
    return re.search(r"kept as (\S+);", r.err).group(1)


def rows(b, *options):
    return {row["name"]: row for row in json.loads(b.ak("list", "--json", *options).out)}


def test_a_kept_run_is_a_stopped_sandbox(any_boxes):
    b, lab = any_boxes, any_boxes.lab
    name = kept(lab, *CODEX, "--allow-host", "ok.test", "-e", "COLOUR=blue", "sh", "-c",
                "echo mine > ~/f; echo tmp > /tmp/t; getent hosts evil.test; exit 4", code=4)
    assert re.fullmatch("run-[0-9a-f]{8}", name)
    assert name not in rows(b) and rows(b, "-a")[name]["status"] == "stopped" and rows(b, "-a")[name]["exit_code"] == 4
    assert rows(b, "-a")[name]["denied"] > 0
    b.ak("cp", name + ":/tmp/t", "t")
    before = len(b.netlog(name))
    assert before > 0 and json.loads(b.ak("audit", "verify", "--json").out)["intact"]
    b.ak("start", name)
    assert name in rows(b)
    assert b.sh(name, "cat ~/f /tmp/t; echo $COLOUR") == "mine\ntmp\nblue\n"
    assert b.sh(name, "getent hosts ok.test >/dev/null && echo reached") == "reached\n"
    assert b.exec(name, "getent", "hosts", "evil.test").code == 2
    b.ak("stop", name)
    log = b.netlog(name)
    assert len(log) > before and {r["name"] for r in log if r.get("verdict") == "deny"} == {"evil.test"}
    assert json.loads(b.ak("audit", "verify", "--json").out)["intact"]
    b.ak("remove", name)
    assert name not in rows(b, "-a") and json.loads(b.ak("audit", "verify", "--json").out)["intact"]


def test_the_log_of_a_kept_run_cannot_be_cut_off_unnoticed(boxes):
    b, lab = boxes, boxes.lab
    name = kept(lab, *CODEX, "getent", "hosts", "evil.test", code=2)
    os.truncate(lab.path("state", "agentkernel", "sandboxes", name, "network.jsonl"), 0)
    b.fails("audit", "verify", says="broken")


def test_past_runs_are_listed_with_their_end(boxes):
    b, lab = boxes, boxes.lab
    lab.run([*CODEX, "sh", "-c", "getent hosts evil.test; exit 7"])
    (row,) = rows(b, "-a").values()
    assert (row["status"], row["mode"], row["exit_code"]) == ("exited", "codex", 7) and row["denied"] > 0, row
    assert rows(b) == {}
    line = b.ak("ls", "-a").out.splitlines()[1]
    assert row["name"] in line and "exit 7" in line
    assert b.ak("ps", "-aq").out.split() == [row["name"]]
    b.fails("start", row["name"], says="past run")
    b.fails("exec", row["name"], "true", code=125, says="past run")
    assert json.loads(b.ak("inspect", row["name"]).out)["command"] == ["sh", "-c", "getent hosts evil.test; exit 7"]


def test_unique_prefixes_work_and_others_are_listed(boxes):
    b, lab = boxes, boxes.lab
    for name in ("run-5f000001", "run-5f000002", "run-60000001"):
        lab.run(["--no-network", "--keep", "--quiet", "--name", name, "--", "sh", "-c", "echo %s > /tmp/who" % name])
    assert b.ak("start", "run-60").out == "run-60000001\n"
    assert b.out("run-6", "cat", "/tmp/who") == "run-60000001\n"
    b.ak("cp", "run-60:/tmp/who", "who")
    assert b.ak("inspect", "run-60").out.startswith('{"name":"run-60000001"')
    assert b.ak("network", "log", "run-60").code == 0
    assert "run-60000001" in b.ak("audit", "--sandbox", "run-6000").out
    for words in (["start"], ["exec", "run-5f", "true"], ["cp", "run-5f:/tmp/who", "x"], ["inspect"], ["network", "log"], ["audit", "--sandbox"]):
        words = words if "run-5f" in " ".join(words) else [*words, "run-5f"]
        code = 125 if words[0] == "exec" else 1
        r = b.fails(*words, code=code, says="run-5f000001")
        assert "run-5f000002" in r.err
    # A name of a user's own is never abbreviated, and an exact one is never ambiguous.
    b.create("work")
    b.fails("remove", "wor", says="no sandbox named 'wor'")
    assert b.ak("rm", "run-5f000001").out == "run-5f000001\n"


def test_a_run_can_have_a_name(boxes):
    b, lab = boxes, boxes.lab
    for _ in range(2):  # the name of a past run is free again
        assert lab.run(["--no-network", "--name", "job", "--", "sh", "-c", "echo $AGENTKERNEL_SANDBOX"]).out == "job\n"
    assert list(rows(b, "-a")) == ["job"] and json.loads(b.ak("audit", "verify", "--json").out)["intact"]
    assert lab.run(["--no-network", "--name", "job", "--keep", "--quiet", "true"]).code == 0
    r = lab.run(["--no-network", "--name", "job", "touch", lab.path("project", "ran")])
    assert r.code == 125 and "exists already" in r.err, r
    b.ak("remove", "job")
    b.create("job")
    r = lab.run(["--no-network", "--name", "bad name", "true"])
    assert r.code == 2 and "--name" in r.err, r
    assert json.loads(b.ak("audit", "verify", "--json").out)["intact"]


def test_all_of_them_at_once(boxes):
    b, lab = boxes, boxes.lab
    assert "no sandbox is stopped" in b.ak("start", "--all").err
    b.create("one", "--no-network")
    assert b.ak("create", "two", "--no-network", "--start").out == "two\n"
    lab.run(["--no-network", "--keep", "--quiet", "--name", "run-00000003", "true"])
    assert b.ak("start", "--all").out.split() == ["one"]  # a kept run is started only by its name
    assert b.ak("stop", "--all").out.split() == ["one", "two"]
    b.fails("stop", "--all", "one", code=2, says="not both")
    assert b.ak("remove", "--all").out.split() == ["one", "run-00000003", "two"]
    assert b.list() == {}


def test_starting_what_runs_and_stopping_what_does_not_is_told_and_fine(boxes):
    b = boxes
    b.create("x", "--no-network")
    assert "is not running" in b.ak("stop", "x").err
    b.ak("start", "x")
    r = b.ak("start", "x")
    assert r.out == "x\n" and "is running already" in r.err


def test_inspect_shows_all_but_the_values_of_variables(boxes):
    b, lab = boxes, boxes.lab
    b.ak("create", "x", "--compatibility-mode", "codex", "--memory", "64M", "-e", "TOKEN=s3cret", "--allow-host", "ok.test", "--start")
    text = b.ak("inspect", "x").out
    seen = json.loads(text)
    assert "s3cret" not in text and "TOKEN" in seen["env"] and seen["status"] == "running"
    assert seen["limits"]["memory_bytes"] == 64 << 20 and seen["policy"]["name"] == "codex" and seen["policy"]["generation"] == 1
    assert [m["mode"] for m in seen["mounts"] if m["target"] == lab.path("project")] == ["rw"] and seen["isolation"] == "strict"
    assert {"op": "allow-host", "text": "ok.test"} in seen["policy"]["changes"]


def test_variables_from_a_file(boxes):
    b, lab = boxes, boxes.lab
    with open(lab.path("home", "vars"), "w") as f:
        f.write("# comment\n\nA=from file\nB=\"as is\" # too\nHOME_OF\nGIVEN=file\n")
    want = "from file|\"as is\" # too|option|\n"
    show = ["sh", "-c", 'echo "$A|$B|$GIVEN|$HOME_OF"']
    options = ["-e", "GIVEN=option", "--env-file", lab.path("home", "vars")]
    assert lab.run(["--no-network", *options, "--", *show]).out == want
    b.ak("create", "x", "--no-network", "--start", *options)
    assert b.out("x", *show) == want
    b.ak("create", "y", "--no-network", "--start")
    assert b.out("y", *show, options=options) == want
    with open(lab.path("project", "vars"), "w") as f:
        f.write("A=1\nexport B=2\n")
    r = lab.run(["--no-network", "--env-file", "vars", "true"])
    assert r.code == 2 and "line 2" in r.err and "export B" in r.err, r
    r = lab.run(["--no-network", "--env-file", "nothing", "true"])
    assert r.code == 2 and "--env-file: 'nothing'" in r.err, r


def test_audit_of_nobody_is_an_error_and_n_is_the_newest(boxes):
    b, lab = boxes, boxes.lab
    b.fails("audit", "--sandbox", "nosuch", says="no sandbox or run 'nosuch'")
    b.fails("audit", "--sandbox", "nosuch", "--json", says="nosuch")
    b.create("x", "--no-network")
    b.ak("remove", "x")
    assert "sandbox_remove" in b.ak("audit", "--sandbox", "x").out  # it is gone, its events are not
    assert [json.loads(line)["event"] for line in b.ak("audit", "-n", "1", "--json").out.splitlines()] == ["sandbox_remove"]
    assert len(b.ak("audit", "-n", "1").out.splitlines()) == 2


def test_the_version_by_every_name(boxes):
    b = boxes
    assert b.ak("-V").out == b.ak("--version").out == b.ak("version").out != ""


def test_a_run_in_the_foreground_is_listed_and_told_apart(boxes):
    b, lab = boxes, boxes.lab
    p = lab.start(["--no-network", "--name", "front", "--", "sh", "-c", "echo up; read line"], stdin="pipe")
    p.wait_output(b"up\n")
    assert rows(b, "-a")["front"]["status"] == rows(b)["front"]["status"] == "running"
    b.fails("stop", "front", says="in the foreground")
    b.fails("exec", "front", "true", code=125, says="in the foreground")
    r = lab.run(["--no-network", "--name", "front", "true"])
    assert r.code == 125 and "is going on" in r.err, r
    p.write(b"\n")
    assert p.wait().code == 0 and rows(b, "-a")["front"]["status"] == "exited"
