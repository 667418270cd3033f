"""Commands by way of the HTTP API: /run, /run/stream and /batch/run."""
import contextlib
import json
import os

import pytest
from api import Api, api, box_api, children, read_answer, serving  # noqa: F401
from expect import Gate
from lab import PYTHON, wait_for


# ---- /run ----

@pytest.mark.parametrize("mode", [None, "native", "claude", "codex", "gemini"])
def test_a_command_runs_and_tells_its_code_and_both_streams(api, mode):
    r = api.run("sh", "-c", "echo out; echo err >&2; exit 7", compatibility_mode=mode, cwd="/tmp" if mode in (None, "native") else None)
    assert (r["stdout"], r["stderr"], r["exit_code"], r["timed_out"]) == ("out\n", "err\n", 7, False)
    assert sorted(r["output"].splitlines()) == ["err", "out"]
    assert r["sandbox"].startswith("run-") and r["network"] == {"allowed": 0, "denied": 0} and r["duration_ms"] > 0


def test_as_an_ordinary_user_and_as_root(any_user):
    with serving(any_user) as api:
        assert api.run("echo", "hi")["output"] == "hi\n"


def test_argv_and_variables_arrive_as_they_are(api):
    words = ["", " ", "a b", "$HOME", "'\"", "ä€😀", "-x", "--", "\\n", "*", "a\tb\x01"]
    code = "import sys, json, os; print(json.dumps([sys.argv[1:], os.environ['A'], os.environ['B']]))"
    for env in ({"A": "x=y", "B": ""}, ["A=x=y", "B="]):
        r = api.run(PYTHON, "-c", code, *words, env=env)
        assert r["exit_code"] == 0, r
        assert json.loads(r["stdout"]) == [words, "x=y", ""]


def test_what_was_not_found_or_timed_out_is_still_an_answer(api):
    r = api.run("no-such-command")
    assert r["exit_code"] == 127 and "no-such-command" in r["stderr"]
    assert api.run("/etc/passwd")["exit_code"] == 126
    r = api.run("sleep", "1000", timeout_ms=300)
    assert r["exit_code"] == 124 and r["timed_out"] is True
    assert api.run("sh", "-c", "kill -9 $$")["exit_code"] == 137


def test_a_project_is_mounted_only_where_the_mode_says_so(api):
    project = api.lab.path("project")
    with open(project + "/mine", "w") as f:
        f.write("x")
    assert "mine" in api.run("ls", compatibility_mode="codex", cwd=project)["stdout"]
    r = api.post("/run", {"command": ["ls"], "compatibility_mode": "codex", "cwd": "/no/such/folder"})
    r.refused(400, "/no/such/folder")
    assert "mine" not in api.run("sh", "-c", "ls %s; true" % project)["output"]
    assert api.run("pwd", cwd="/tmp")["stdout"] == "/tmp\n"


def test_bytes_that_are_no_text_are_shown_as_such_and_characters_are_never_torn(api):
    code = ("import fcntl,os,struct,termios\nfor b in 'aä€😀'.encode() + b'\\xff\\xfe!':\n os.write(1, bytes([b]))\n"
            " while struct.unpack('i', fcntl.ioctl(1, termios.FIONREAD, bytes(4)))[0]: os.sched_yield()  # until it was read, by itself")
    r = api.run(PYTHON, "-c", code)
    assert r["stdout"] == "aä€😀\ufffd\ufffd!" == r["output"]
    s = api.stream("POST", "/run/stream", {"command": [PYTHON, "-c", code]})
    assert "".join(d["data"] for _, n, d in s if n == "output") == "aä€😀\ufffd\ufffd!"
    s.close()


def test_output_without_end_is_cut_and_told(api):
    r = api.run("sh", "-c", "head -c 20000000 /dev/zero | tr '\\0' x; echo end >&2")
    assert r["truncated"] is True and r["exit_code"] == 0 and r["stderr"] == "end\n"
    assert 1 << 20 < len(r["stdout"]) <= 16 << 20


def test_what_the_network_refused_is_counted_and_can_be_read(api):
    r = api.run(PYTHON, "-c", "import socket\ntry: socket.create_connection(('denied.test', 80), 3)\nexcept OSError as e: print('refused')",
                compatibility_mode="codex", cwd=api.lab.path("project"))
    assert r["stdout"] == "refused\n" and r["network"]["denied"] > 0
    records = api.get("/sandboxes/%s/network/log?denied=1" % r["sandbox"]).data
    assert any(x["name"] == "denied.test" and x["verdict"] == "deny" for x in records)
    text = api.get("/metrics").body.decode()
    assert 'agentkernel_network_verdicts_total{mode="codex",verdict="deny",reason="not in allowlist"}' in text
    assert api.lab.arrived("11.66.0.1") == 0


def test_rules_and_limits_of_a_body_are_those_of_the_command_line(api):
    code = "import urllib.request; print(urllib.request.urlopen('http://ok.test', timeout=3).status)"
    where = {"compatibility_mode": "codex", "cwd": api.lab.path("project")}
    assert api.run(PYTHON, "-c", code, **where)["network"]["denied"] > 0
    r = api.run(PYTHON, "-c", code, allow=["ok.test:80"], **where)
    assert r["stdout"] == "200\n" and r["network"]["denied"] == 0, r
    assert api.run(PYTHON, "-c", code, allow=["ok.test:80"], deny=["ok.test:80"], **where)["network"]["denied"] > 0
    api.post("/run", {"command": ["true"], "allow": ["*"]}).refused(400, "*")
    r = api.run(PYTHON, "-c", "x = bytearray(200 << 20)", memory_mb=64)
    if "memory limit off" in api.lab.run(["--memory", "64M", "true"]).err:  # no control group that this user may write
        assert r["exit_code"] == 0 and not r["out_of_memory"], r
    else:
        assert r["exit_code"] != 0 and r["out_of_memory"], r
    r = api.run("sh", "-c", "head -c 9M /dev/zero > /tmp/x || wc -c < /tmp/x", tmp_mb=2)
    assert r["stdout"] == "%d\n" % (2 << 20), r
    api.post("/run", {"command": ["true"], "memory_mb": 3}).refused(400, "memory_mb: must be a whole number from 4 to 16777216")


def test_fast_or_not_the_policy_is_the_same(box_api):
    box_api.boxes.ak("daemon", "start")
    box_api.boxes.ak("daemon", "prewarm", "--mode", "codex")
    code = "import socket\ntry: socket.create_connection(('denied.test', 80), 3)\nexcept OSError as e: print('refused')"
    for fast in (True, False, None):
        r = box_api.run(PYTHON, "-c", code, compatibility_mode="codex", cwd=box_api.lab.path("project"), fast=fast)
        assert r["stdout"] == "refused\n" and r["network"]["denied"] > 0, (fast, r)
    pool = {m["mode"]: m for m in box_api.boxes.status()["pool"]}["codex"]
    assert pool["hits"] + pool["misses"] > 0
    assert box_api.lab.arrived("11.66.0.1") == 0


def test_the_api_is_out_of_reach_from_inside(lab):
    """Not even where everything public is allowed, and the server listens everywhere."""
    code = """
import socket, sys
for host in sys.argv[2:]:
    try:
        s = socket.create_connection((host, int(sys.argv[1])), 2)
        s.sendall(b'GET /health HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n')
        if s.recv(100): print('reached', host)
    except OSError: pass
"""
    own = lab.host(["ip", "-o", "addr", "show", "scope", "global"]).out.split()
    addresses = [w.split("/")[0] for i, w in enumerate(own) if own[i - 1] in ("inet", "inet6")]
    with serving(lab, "--host", "0.0.0.0", env={"AGENTKERNEL_API_KEY": "k"}, key="k") as api:
        hosts = ["127.0.0.1", "::1", "localhost", "0.0.0.0", "host.agentkernel.internal", *addresses]
        r = api.run(PYTHON, "-c", code, str(api.port), *hosts)
        assert r["exit_code"] == 0 and r["output"] == "", r


# ---- streaming ----

def test_output_arrives_while_the_command_runs(api):
    rows = []
    with Gate(api.lab) as gate:
        s = api.stream("POST", "/run/stream", {"command": ["sh", "-c", "for i in 1 2 3; do echo $i; %s; done; echo e >&2; exit 3" % gate.wait],
                                               "compatibility_mode": "codex", "cwd": api.lab.path("project")})
        assert s.status == 200 and s.headers["content-type"] == "text/event-stream"
        for row in s:
            rows.append(row)
            if row[1] == "output" and row[2]["stream"] == "stdout":
                gate.open()  # only now does it go on
        s.close()
    assert [n for _, n, _ in rows if n != "progress"] == ["started", "output", "output", "output", "output", "done"]
    out = [d for _, n, d in rows if n == "output"]
    assert [d["data"] for d in out] == ["1\n", "2\n", "3\n", "e\n"] and [d["stream"] for d in out] == ["stdout"] * 3 + ["stderr"]
    assert rows[-1][2]["exit_code"] == 3 and rows[-1][2]["success"] is True


def test_every_way_to_run_tells_the_same_members(api):
    body = {"command": ["true"]}
    whole = api.post("/run", body).data
    s = api.stream("POST", "/run/stream", body)
    done = [d for _, n, d in s if n == "done"][0]
    s.close()
    printed = json.loads(api.lab.ak(["run", "--json", "true"]).out)
    assert done["success"] is True and done["exit_code"] == 0
    assert set(done) - {"success"} == set(whole) - {"output", "stdout", "stderr"} == set(printed) - {"stdout", "stderr"}


def test_events_stay_below_their_limit_whatever_the_bytes(api):
    s = api.stream("POST", "/run/stream", {"command": ["sh", "-c", "head -c 300000 /dev/zero; head -c 300000 /dev/zero | tr '\\0' '\\377'; true"]})
    got = "".join(d["data"] for _, n, d in s if n == "output")
    assert got == "\0" * 300000 + "\ufffd" * 300000 and s.longest < 32768
    s.close()


def test_a_failure_to_start_is_an_error_event(api):
    s = api.stream("POST", "/run/stream", {"command": ["ls"], "compatibility_mode": "codex", "cwd": "/no/such/folder"})
    rows = list(s)
    assert rows[-1][1] == "error" and "/no/such/folder" in rows[-1][2]["message"]
    s.close()


def test_a_slow_reader_holds_its_command_back_and_no_one_else(api):
    """The command writes 100 MB; a reader that takes nothing lets it get no further than the buffers on the way."""
    code = "import os\nfor i in range(100):\n with open('written', 'w') as f: f.write(str(i))\n os.write(1, b'x' * 1000000); os.write(2, b'%d\\n' % i)"
    s = api.stream("POST", "/run/stream", {"command": [PYTHON, "-c", code], "compatibility_mode": "codex", "cwd": api.lab.path("project")})
    looks = []

    def stuck():
        api.alive()
        with contextlib.suppress(FileNotFoundError), open(api.lab.path("project", "written")) as f:
            looks.append(f.read())
        return len(looks) > 50 and set(looks[-50:]) == {looks[-1]} and looks[-1]
    assert int(wait_for(stuck, 30)) < 90
    rss = int(api.lab.host(["sh", "-c", "grep VmRSS /proc/%d/status" % api.proc.pid]).out.split()[1])
    assert rss < 60000, "the server holds %d kB" % rss
    rows = list(s)
    assert rows[-1][1] == "done" and sum(len(d["data"]) for _, n, d in rows if n == "output" and d["stream"] == "stdout") == 100 * 1000000
    s.close()


@pytest.mark.parametrize("path", ["/run", "/run/stream"])
@pytest.mark.parametrize("command", ["sleep 1000", "trap '' TERM INT HUP; while :; do sleep 0.1; done"], ids=["obedient", "stubborn"])
def test_a_client_that_leaves_takes_its_sandbox_along(api, path, command):
    body = {"command": ["sh", "-c", command + " # marker-of-this-test"]}
    s = api.connect()
    data = api.encode(body)
    s.sendall(api.head("POST", path, (), len(data)) + data)
    wait_for(lambda: api.lab.running("marker-of-this-test"))
    s.close()
    wait_for(lambda: not api.lab.running("marker-of-this-test"))
    wait_for(lambda: not children(api.lab, api.proc.pid))
    assert "agentkernel_http_workers 0" in api.get("/metrics").body.decode()


def test_when_the_server_is_killed_nothing_of_it_stays(lab):
    api = Api(lab)
    s = api.stream("POST", "/run/stream", {"command": ["sh", "-c", "echo begun; sleep 1000"]})
    assert next(r for r in s if r[1] == "output")
    api.proc.signal(9)
    api.proc.wait()
    api.door.close()
    s.close()  # the lab looks for leftovers


# ---- many ----

def test_a_batch_runs_in_parallel_and_answers_in_order(api):
    """All eight are there before any may end, and the last ends first."""
    here = lambda i: api.lab.path("project", "here-%d" % i)
    gone = lambda i: api.lab.path("project", "gone-%d" % i)
    with contextlib.ExitStack() as stack:
        gates = [stack.enter_context(Gate(api.lab, "gate-%d" % i)) for i in range(8)]
        body = api.encode({"commands": [{"command": ["sh", "-c", "touch %s; %s; echo %d; touch %s; exit %d" % (here(i), gate.wait, i, gone(i), i)],
                                         "compatibility_mode": "codex", "cwd": api.lab.path("project")} for i, gate in enumerate(gates)]})
        s = stack.enter_context(api.connect())
        s.sendall(api.head("POST", "/batch/run", (), len(body)) + body)
        wait_for(lambda: all(os.path.exists(here(i)) for i in range(8)))
        for i in reversed(range(8)):
            gates[i].open()
            wait_for(lambda: os.path.exists(gone(i)))
        with s.makefile("rb") as f:
            rows = read_answer(f).data["results"]
    assert [r["output"] for r in rows] == ["%d\n" % i for i in range(8)] and [r["exit_code"] for r in rows] == list(range(8))
    assert all(r["error"] is None for r in rows)


def test_a_batch_tells_what_could_not_run_in_its_place(api):
    rows = api.post("/batch/run", {"commands": [{"command": ["echo", "a"]}, {"command": ["ls"], "compatibility_mode": "codex", "cwd": "/no/such"}]}).data["results"]
    assert rows[0]["output"] == "a\n" and rows[0]["error"] is None and rows[0]["exit_code"] == 0
    assert set(rows[0]) - {"error"} == set(api.run("true")) - {"stdout", "stderr"}  # the members of a report, as /run has them
    assert rows[1]["output"] is None and "/no/such" in rows[1]["error"] and rows[1]["exit_code"] is None
    api.post("/batch/run", {"commands": []}).refused(400, "commands")
    api.post("/batch/run", {"commands": [{"command": ["true"]}, {"command": "x"}]}).refused(400, "commands[1]: command")
    api.post("/batch/run", {"commands": [{"command": ["true"]}, {}]}).refused(400, "commands[1]: command: is missing")


def test_a_batch_whose_client_leaves_ends_whole(api):
    body = api.encode({"commands": [{"command": ["sleep", "1000"]}] * 6})
    s = api.connect()
    s.sendall(api.head("POST", "/batch/run", (), len(body)) + body)
    wait_for(lambda: len(children(api.lab, api.proc.pid)) == 6)
    s.close()
    wait_for(lambda: not children(api.lab, api.proc.pid))


def test_long_requests_do_not_hold_up_short_ones_and_too_many_are_told(api):
    held, body = [], api.encode({"command": ["sleep", "1000"]})
    try:
        for _ in range(64 + 256):
            s = api.connect()
            s.sendall(api.head("POST", "/run", (), len(body)) + body)
            held.append(s)
        wait_for(lambda: len(children(api.lab, api.proc.pid)) == 64, 60)
        for _ in range(20):
            api.alive()
        a = wait_for(lambda: (lambda x: x if x.status == 429 else None)(api.post("/run", {"command": ["true"], "timeout_ms": 1000})), 30)
        a.refused(429)
        assert a.headers["retry-after"] == "1"
    finally:
        for s in held:
            s.close()
    wait_for(lambda: not children(api.lab, api.proc.pid), 30)
    assert api.run("echo", "again")["output"] == "again\n"


def test_twenty_clients_at_once_each_get_their_own(api):
    results, lock_step = {}, [api.connect() for _ in range(20)]
    for i, s in enumerate(lock_step):
        body = json.dumps({"command": ["echo", str(i)]}).encode()
        s.sendall(api.head("POST", "/run", (), len(body)) + body)
    for i, s in enumerate(lock_step):
        with s.makefile("rb") as f:
            results[i] = read_answer(f).data["output"]
        s.close()
    assert results == {i: "%d\n" % i for i in range(20)}
