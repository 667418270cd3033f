"""Persistent sandboxes by way of the HTTP API: life, exec, background commands, files, logs, policies, numbers."""
import base64
import os
import shutil
import subprocess
import urllib.parse

import pytest
from api import api, box_api, read_answer, serving  # noqa: F401
from expect import missing
from lab import PYTHON, wait_for


@pytest.fixture
def one(box_api):
    """A server and a running sandbox "one" behind it."""
    a = box_api.post("/sandboxes", {"name": "one", "compatibility_mode": "codex", "dir": box_api.lab.path("project")})
    assert a.status == 201 and a.data["status"] == "running", a
    return box_api


# ---- life ----

def test_a_sandbox_is_created_with_rules_and_limits(box_api):
    body = {"name": "ruled", "compatibility_mode": "codex", "dir": box_api.lab.path("project"), "allow": ["ok.test:80"], "deny_cidr": ["11.66.0.0/16"], "pids": 64}
    assert box_api.post("/sandboxes", body).status == 201
    for target, verdict in (("ok.test:80", "allow"), ("denied.test:80", "deny")):
        assert box_api.post("/sandboxes/ruled/network/check", {"target": target}).data["verdict"] == verdict
    assert "11.66.0.0/16" in str(box_api.get("/sandboxes/ruled/policy").data["policy"]["deny_cidr"])
    many = "i=0; while [ $i -lt 100 ]; do sleep 9 & i=$((i+1)); done"
    assert box_api.post("/sandboxes/ruled/exec", {"command": ["sh", "-c", many]}).data["exit_code"] != 0


def test_a_sandbox_is_created_running_and_lives_until_it_is_removed(box_api):
    assert box_api.get("/sandboxes").data == []
    a = box_api.post("/sandboxes", {"name": "a-1", "memory_mb": 256, "vcpus": 1, "profile": "moderate"})
    assert a.status == 201
    info = a.data
    assert (info["name"], info["status"], info["backend"], info["mode"], info["profile"]) == ("a-1", "running", "ns", "native", "moderate")
    assert info["memory_mb"] == 256 and info["vcpus"] == 1 and info["ip"].startswith("100.64.") and info["created_at"].endswith("Z")
    assert [s["name"] for s in box_api.get("/sandboxes").data] == ["a-1"]
    assert box_api.get("/sandboxes/a-1").data["uuid"] == info["uuid"]
    assert box_api.get("/sandboxes/by-uuid/" + info["uuid"]).data["name"] == "a-1"
    box_api.post("/sandboxes", {"name": "a-1"}).refused(409, "a-1")
    box_api.post("/sandboxes/a-1/start").refused(409, "running already")
    assert box_api.post("/sandboxes/a-1/exec", {"command": ["sh", "-c", "echo kept > ~/f; echo $HOME"]}).data["exit_code"] == 0
    assert box_api.post("/sandboxes/a-1/stop").data["status"] == "stopped"
    box_api.post("/sandboxes/a-1/stop").refused(409, "not running")
    box_api.post("/sandboxes/a-1/exec", {"command": ["true"]}).refused(409, "not running")
    box_api.get("/sandboxes/a-1/files/etc/hostname").refused(409)
    assert box_api.post("/sandboxes/a-1/start").data["status"] == "running"
    assert box_api("DELETE", "/sandboxes/a-1").data == "removed"
    for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/start"), ("POST", "/stop"), ("GET", "/policy"), ("GET", "/network/log"), ("GET", "/files/x"),
                         ("GET", "/exec/detached"), ("GET", "/exec/detached/1"), ("GET", "/exec/detached/1/logs"), ("DELETE", "/exec/detached/1")):
        box_api(method, "/sandboxes/gone" + path).refused(404)
    box_api.post("/sandboxes/gone/exec", {"command": ["true"]}).refused(404, "gone")
    box_api.post("/sandboxes/gone/exec/detach", {"command": ["true"]}).refused(404, "gone")
    box_api("PUT", "/sandboxes/gone/policy", {}).refused(404)
    box_api.post("/sandboxes/gone/network/check", {"target": "x.test"}).refused(404)


def test_a_damaged_one_is_listed_and_can_be_deleted(box_api):
    assert box_api.post("/sandboxes", {"name": "bad"}).status == 201
    assert box_api.post("/sandboxes/bad/stop").status == 200
    path = box_api.lab.path("state", "agentkernel", "sandboxes", "bad", "sandbox.json")
    with open(path, "w") as f:
        f.write("{")
    row, = box_api.get("/sandboxes").data
    assert row["name"] == "bad" and row["status"] == "damaged" and row["uuid"] is None and path in row["error"], row
    for method, path in (("GET", ""), ("POST", "/start"), ("POST", "/stop"), ("GET", "/policy")):
        box_api(method, "/sandboxes/bad" + path).refused(500, "sandbox.json")
    assert box_api("DELETE", "/sandboxes/bad").data == "removed"
    assert box_api.get("/sandboxes").data == []


def test_of_many_who_create_the_same_name_one_does(box_api):
    body = box_api.encode({"name": "wanted"})
    socks = [box_api.connect() for _ in range(8)]
    for s in socks:
        s.sendall(box_api.head("POST", "/sandboxes", (), len(body)) + body)
    answers = []
    for s in socks:
        with s, s.makefile("rb") as f:
            answers.append(read_answer(f))
    assert sorted(a.status for a in answers) == [201] + [409] * 7, answers
    assert box_api.get("/sandboxes/wanted").data["status"] == "running"


def test_as_an_ordinary_user_and_as_root(any_boxes):
    with serving(any_boxes.lab) as api:
        assert api.post("/sandboxes", {"name": "mine"}).data["status"] == "running"
        assert api.post("/sandboxes/mine/exec", {"command": ["echo", "hi"]}).data["output"] == "hi\n"


# ---- exec ----

def test_exec_runs_where_and_with_what_it_was_told(one):
    r = one.post("/sandboxes/one/exec", {"command": ["sh", "-c", "echo $A; pwd; echo e >&2; exit 5"], "env": ["A=1 2"], "workdir": "/tmp"}).data
    assert (r["stdout"], r["stderr"], r["exit_code"], r["sandbox"]) == ("1 2\n/tmp\n", "e\n", 5, "one")
    assert one.post("/sandboxes/one/exec", {"command": ["printenv", "B"], "env": {"B": "x"}}).data["output"] == "x\n"
    assert one.post("/sandboxes/one/exec", {"command": ["nope-not-there"]}).data["exit_code"] == 127
    r = one.post("/sandboxes/one/exec", {"command": ["sleep", "100"], "timeout_ms": 300}).data
    assert r["timed_out"] is True and r["exit_code"] == 124
    one.post("/sandboxes/one/exec", {"command": ["true"], "sudo": True}).refused(400, "sudo")
    one.post("/sandboxes/one/exec", {"command": ["true"], "workdir": "x"}).refused(400, "workdir")
    # What stays in the background holds no answer back.
    assert one.post("/sandboxes/one/exec", {"command": ["sh", "-c", "sleep 1000 & echo here"]}).data["output"] == "here\n"


def test_exec_tells_what_the_network_refused(one):
    code = "import socket\ntry: socket.create_connection(('denied.test', 80), 3)\nexcept OSError: print('refused')"
    r = one.post("/sandboxes/one/exec", {"command": [PYTHON, "-c", code]}).data
    assert r["output"] == "refused\n" and r["network"]["denied"] > 0
    assert one.lab.arrived("11.66.0.1") == 0


def test_a_client_that_leaves_takes_its_command_along_and_only_that(one):
    body = one.encode({"command": ["sh", "-c", "sleep 1000 # marker-of-exec"]})
    s = one.connect()
    s.sendall(one.head("POST", "/sandboxes/one/exec", (), len(body)) + body)
    wait_for(lambda: one.lab.running("marker-of-exec"))
    s.close()
    wait_for(lambda: not one.lab.running("marker-of-exec"))
    assert one.get("/sandboxes/one").data["status"] == "running"


# ---- background commands ----

def test_a_background_command_is_started_watched_and_ended(one):
    a = one.post("/sandboxes/one/exec/detach", {"command": ["sh", "-c", "echo out; echo err >&2; sleep 1000"], "env": ["X=1"]})
    d = a.data
    assert a.status == 201 and d["status"] == "running" and d["exit_code"] is None and d["sandbox"] == "one" and d["pid"] > 0
    assert d["command"][0] == "sh" and d["started_at"]
    base = "/sandboxes/one/exec/detached/" + d["id"]
    logs = wait_for(lambda: (lambda x: x if x["stdout"] and x["stderr"] else None)(one.get(base + "/logs").data))
    assert logs["stdout"] == "out\n" and logs["stderr"] == "err\n"
    assert "stdout" not in one.get(base + "/logs?stream=stderr").data
    assert [x["id"] for x in one.get("/sandboxes/one/exec/detached").data] == [d["id"]]
    assert one("DELETE", base).data == "killed"
    ended = wait_for(lambda: (lambda x: x if x["status"] != "running" else None)(one.get(base).data))
    assert ended["status"] == "failed" and ended["exit_code"] == 137
    one("DELETE", base)
    one.get(base + "x").refused(404)
    one.get("/sandboxes/two/exec/detached/" + d["id"]).refused(404)


def test_background_commands_end_with_their_own_code_and_keep_their_last_output(one):
    ids = [one.post("/sandboxes/one/exec/detach", {"command": c}).data["id"] for c in (
        ["true"], ["sh", "-c", "exit 9"], ["no-such-thing"], ["sh", "-c", "seq 1 400000"])]
    rows = wait_for(lambda: (lambda x: x if all(r["status"] != "running" for r in x) else None)(one.get("/sandboxes/one/exec/detached").data), 30)
    assert [(r["id"], r["status"], r["exit_code"]) for r in rows] == list(zip(ids, ["completed", "failed", "failed", "completed"], [0, 9, 127, 0]))
    logs = one.get("/sandboxes/one/exec/detached/%s/logs" % ids[3]).data
    assert logs["truncated"] is True and logs["stdout"].endswith("399999\n400000\n") and len(logs["stdout"]) <= 1 << 20
    one("DELETE", "/sandboxes/one").data
    one.get("/sandboxes/one/exec/detached/" + ids[0]).refused(404)


# ---- files ----

@pytest.mark.parametrize("path", ["/tmp/plain", "/tmp/with space", "/tmp/new/folders/deep", "/tmp/ä€😀", "/tmp/100%", "/tmp/a+b&c=d", "/tmp/q?x", "/tmp/#h"])
def test_what_is_written_is_read_back(one, path):
    url = "/sandboxes/one/files" + urllib.parse.quote(path)
    for content, encoding in (("text ä\n", "utf8"), (bytes(range(256)) * 40, "base64"), ("", "utf8"), ("a\nb\r\n\t", "utf8")):
        sent = base64.b64encode(content).decode() if encoding == "base64" else content
        assert one("PUT", url, {"content": sent, "encoding": encoding}).data == "written"
        f = one.get(url).data
        assert f == {"content": sent, "encoding": encoding, "size": len(content if encoding == "base64" else content.encode())}
    assert one("DELETE", url).data == "deleted"
    one.get(url).refused(404)
    one("DELETE", url).refused(404)


def test_slashes_are_collapsed_and_nothing_leads_outside(one):
    one("PUT", "/sandboxes/one/files//tmp//x", {"content": "1"}).data
    assert one.get("/sandboxes/one/files/tmp/x").data["content"] == "1"
    one.post("/sandboxes/one/exec", {"command": ["ln", "-s", "/etc/hostname", "/tmp/link"]})
    one.get("/sandboxes/one/files/tmp/link").refused(400)
    one.get("/sandboxes/one/files/tmp").refused(400)
    assert one.get("/sandboxes/one/files/proc/self/environ").status in (400, 404)
    assert one.get("/sandboxes/one/files/proc/1/environ").status in (400, 404)
    one("PUT", "/sandboxes/one/files/tmp/x", {"content": "!!", "encoding": "base64"}).refused(400, "base64")
    one("PUT", "/sandboxes/one/files/tmp/x", {"content": "x", "encoding": "utf16"}).refused(400, "encoding")
    one("PUT", "/sandboxes/one/files/tmp/x", {}).refused(400, "content")


def test_many_files_at_once_or_none_with_a_bad_path(one):
    assert one.post("/sandboxes/one/files", {"files": {"/tmp/m/1": "a", "tmp/m/2": "b", "/tmp/m/ü": ""}}).data == {"written": 3}
    assert one.post("/sandboxes/one/exec", {"command": ["sh", "-c", "cat /tmp/m/*"]}).data["output"] == "ab"
    one.post("/sandboxes/one/files", {"files": {"/tmp/n": "a", "../etc/x": "b"}}).refused(400, "..")
    one.get("/sandboxes/one/files/tmp/n").refused(404)
    one.post("/sandboxes/one/files", {"files": {"/tmp/n": 1}}).refused(400, "files")
    one.post("/sandboxes/one/files", {"files": {}}).refused(400, "files")


def test_a_large_file_goes_both_ways(one):
    content = base64.b64encode(os.urandom(8 << 20)).decode()
    assert one("PUT", "/sandboxes/one/files/tmp/big", {"content": content, "encoding": "base64"}).data == "written"
    assert one.get("/sandboxes/one/files/tmp/big").data["content"] == content
    one.post("/sandboxes/one/exec", {"command": ["truncate", "-s", "17M", "/tmp/big"]})
    one.get("/sandboxes/one/files/tmp/big").refused(413)


# ---- logs and events ----

def test_the_audit_records_of_one_sandbox(one):
    one.post("/sandboxes", {"name": "two"})
    one("PUT", "/sandboxes/one/files/tmp/x", {"content": "1"})
    rows = one.get("/sandboxes/one/logs").data
    assert {r["sandbox"] for r in rows} == {"one"} and {"sandbox_create", "sandbox_start"} <= {r["event"] for r in rows}
    assert len(one.get("/sandboxes/one/logs?limit=1").data) == 1
    assert one.get("/sandboxes/one/logs?since=2100-01-01T00:00:00Z").data == []
    one.get("/sandboxes/nobody/logs").refused(404)


def test_network_records_are_told_while_they_are_written(one):
    s = one.stream("GET", "/sandboxes/one/network/log?follow=1&denied=1")
    assert s.status == 200 and s.headers["content-type"] == "text/event-stream"
    rows = iter(s)
    for host in ("denied.test", "evil.test"):
        code = "import socket\ntry: socket.create_connection(('%s', 80), 3)\nexcept OSError: pass" % host
        one.post("/sandboxes/one/exec", {"command": [PYTHON, "-c", code]}).data
        seconds, name, record = next(r for r in rows if r[2].get("name") == host)
        assert name == "record" and record["verdict"] == "deny"
    one("DELETE", "/sandboxes/one").data
    assert all(n == "record" for _, n, _ in rows)  # and it ends
    s.close()


def test_events_of_all_sandboxes_as_they_happen(box_api):
    s = box_api.stream("GET", "/events")
    assert s.status == 200
    box_api.post("/sandboxes", {"name": "seen"})
    names = []
    for _, name, record in s:
        assert name == "record"
        names.append(record["event"])
        if record["event"] == "sandbox_start":
            assert record["sandbox"] == "seen"
            break
    assert "sandbox_create" in names
    s.close()
    s = box_api.stream("GET", "/events?since=1h&sandbox=seen")
    assert next(iter(s))[2]["sandbox"] == "seen"
    s.close()


# ---- policies ----

def test_a_live_policy_is_shown_merged_and_replaced(one):
    before = one.get("/sandboxes/one/policy").data
    assert before["name"] == "one" and before["generation"] == 1 and before["policy"]["default"] == "deny"
    check = lambda target: one.post("/sandboxes/one/network/check", {"target": target}).data  # noqa: E731
    assert check("ok.test")["verdict"] == "deny" and check("api.openai.com:443")["verdict"] == "allow"
    after = one("PATCH", "/sandboxes/one/policy", {"allow": ["ok.test:80"], "deny": ["api.openai.com"]}).data
    assert after["generation"] == 2
    assert check("ok.test:80")["verdict"] == "allow" and check("ok.test:443")["verdict"] == "deny"
    code = "import socket\ntry: socket.create_connection(('ok.test', 80), 5); print('in')\nexcept OSError as e: print(e)"
    assert one.post("/sandboxes/one/exec", {"command": [PYTHON, "-c", code]}).data["output"] == "in\n"
    only = one("PUT", "/sandboxes/one/policy", {"allow": ["two.test"], "default": "deny"}).data
    assert only["generation"] == 3 and [r["rule"] for r in only["policy"]["allow"]] == ["two.test"]
    assert check("two.test")["verdict"] == "allow" and check("pypi.org")["verdict"] == "deny"
    again = one("PUT", "/sandboxes/one/policy", {"allow": ["api.openai.com:443"]}).data
    assert [r["rule"] for r in again["policy"]["allow"]] == ["api.openai.com:443"]
    empty = one("PUT", "/sandboxes/one/policy", {}).data
    assert empty["policy"]["allow"] == [] and empty["policy"]["default"] == "deny"
    back = one("PATCH", "/sandboxes/one/policy", {"reset": True}).data
    assert back["policy"]["allow"] == before["policy"]["allow"]


@pytest.mark.parametrize("body, says", [
    ({"allow": ["*"]}, "*"), ({"allow": ["*.com"]}, "com"), ({"allow": ["x.test:70000"]}, "70000"), ({"allow_cidr": ["10.0.0.0/40"]}, "10.0.0.0/40"),
    ({"allow": ["ünicode.test"]}, ""), ({"default": "maybe"}, "default"), ({"allow": "x.test"}, "array"), ({"limits": {}}, "limits"),
    ({"allow": [1]}, "allow[0]"),
])
def test_a_bad_policy_changes_nothing(one, body, says):
    before = one.get("/sandboxes/one/policy").data
    one("PATCH", "/sandboxes/one/policy", body).refused(400, says)
    one("PUT", "/sandboxes/one/policy", body).refused(400, says)
    assert one.get("/sandboxes/one/policy").data == before


def test_the_policies_that_exist(api):
    rows = {p["name"]: p for p in api.get("/policies").data}
    assert {"claude", "codex", "gemini", "native", "package-registries"} <= set(rows) and rows["native"]["default"] == "allow"
    assert api.get("/policies/codex").data["name"] == "codex"


# ---- numbers ----

def test_metrics_are_as_prometheus_wants_them(one):
    one("PATCH", "/sandboxes/one/policy", {"allow": ["ok.test:80"]}).data
    code = ("import urllib.request\nfor name in ('denied.test', 'ok.test'):\n try: urllib.request.urlopen('http://' + name, timeout=3).read()\n"
            " except OSError: pass")
    one.post("/sandboxes/one/exec", {"command": [PYTHON, "-c", code]}).data
    wait_for(lambda: any(r["event"] == "flow" for r in one.get("/sandboxes/one/network/log").data))
    one.run("true")
    one.get("/nope")
    a = one.get("/metrics")
    text = a.body.decode()
    assert a.status == 200 and a.headers["content-type"].startswith("text/plain; version=0.0.4")
    value = {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if not line.startswith("#")}
    assert value['agentkernel_sandboxes{status="running"}'] == 1 and value["agentkernel_daemon_up"] == 1
    denied = 'agentkernel_network_verdicts_total{mode="codex",verdict="deny",reason="not in allowlist"}'
    assert value[denied] >= 1
    assert value['agentkernel_http_requests_total{route="/run",method="POST",status="2xx"}'] == 1
    assert value['agentkernel_http_request_seconds_count{route="/run",method="POST"}'] == 1
    assert value["agentkernel_audit_lost_total"] == 0
    for name in ("dns", "dial", "flow"):
        family = "agentkernel_network_%s_seconds" % name
        assert "# TYPE %s histogram\n" % family in text
        assert value[family + '_bucket{le="+Inf"}'] == value[family + "_count{}"] >= 1, name
    assert 0 < value["agentkernel_network_dns_seconds_sum{}"] < 60 and 0 < value["agentkernel_network_dial_seconds_sum{}"] < 60
    # What was counted is not counted again.
    again = one.get("/metrics").body.decode()
    assert "%s %d\n" % (denied, value[denied]) in again
    tool = shutil.which("promtool")
    if not tool:
        missing("promtool is not there (Debian package prometheus)")
    r = subprocess.run([tool, "check", "metrics"], input=text, text=True, capture_output=True)
    assert r.returncode == 0, r


def metric(api, name):
    return sum(float(line.rsplit(" ", 1)[1]) for line in api.get("/metrics").body.decode().splitlines() if line.startswith("agentkernel_" + name))


def test_what_was_counted_stays_when_a_sandbox_stops_and_when_the_daemon_does(one):
    denied = 'network_verdicts_total{mode="codex",verdict="deny",reason="not in allowlist"}'
    deny = [PYTHON, "-c", "import socket\ntry: socket.create_connection(('denied.test', 80), 3)\nexcept OSError: pass"]
    one.post("/sandboxes/one/exec", {"command": deny}).data
    first = metric(one, denied)
    assert first >= 1 and metric(one, denied) == first
    one.post("/sandboxes/one/stop").data
    assert metric(one, denied) == first
    one.post("/sandboxes/one/start").data
    one.post("/sandboxes/one/exec", {"command": deny}).data
    second = metric(one, denied)
    assert second > first
    one.boxes.ak("daemon", "stop")
    assert metric(one, denied) == second and metric(one, "daemon_up") == 0
    one.boxes.ak("daemon", "start")
    assert metric(one, denied) == second and metric(one, "daemon_up") == 1
    one.run(*deny, compatibility_mode="codex", cwd=one.lab.path("project"))
    assert metric(one, denied) > second


def test_answers_are_what_the_description_says(one):
    doc = one.get("/openapi.json").json

    def fits(value, schema, where):
        while "$ref" in schema:
            schema = doc["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]]
        kinds = schema.get("type", [])
        kinds = [kinds] if isinstance(kinds, str) else kinds
        names = {str: "string", bool: "boolean", dict: "object", list: "array", type(None): "null"}
        kind = names.get(type(value)) or ("integer" if float(value).is_integer() else "number")
        assert not kinds or kind in kinds or (kind == "integer" and "number" in kinds), (where, value, schema)
        if "const" in schema:
            assert value == schema["const"], where
        if "enum" in schema:
            assert value in schema["enum"], where
        for key in schema.get("required", []):
            assert key in value, (where, key, value)
        for key, sub in schema.get("properties", {}).items():
            if key in value:
                fits(value[key], sub, where + "." + key)
        for i, item in enumerate(value if kind == "array" and "items" in schema else []):
            fits(item, schema["items"], "%s[%d]" % (where, i))

    d = one.post("/sandboxes/one/exec/detach", {"command": ["true"]}).data["id"]
    one("PUT", "/sandboxes/one/files/tmp/x", {"content": "1"}).data
    uuid = one.get("/sandboxes/one").data["uuid"]
    bodies = {"run": {"command": ["true"]}, "batchRun": {"commands": [{"command": ["true"]}]}, "exec": {"command": ["true"]},
              "execDetach": {"command": ["true"]}, "writeFile": {"content": "x"}, "writeFiles": {"files": {"/tmp/y": ""}},
              "networkCheck": {"target": "ok.test"}, "networkPublish": {"publish": ["0:80"]}, "patchPolicy": {"allow": ["ok.test"]}, "putPolicy": {}, "createSandbox": {"name": "other"},
              "snapshotSandbox": {"tag": "t"}, "restoreSandbox": {"tag": "t"}, "forkSandbox": {"name": "fork"}}
    # Snapshots are of stopped sandboxes, and a tag has to be there before it is restored, forked and removed.
    last = {"detachedKill": 1, "stopSandbox": 2, "snapshotSandbox": 3, "listSnapshots": 4, "restoreSandbox": 5, "forkSandbox": 6, "removeSnapshot": 7, "startSandbox": 8, "removeSandbox": 9}
    seen = 0
    operations = [(path, verb, op) for path, ops in doc["paths"].items() for verb, op in ops.items()]
    for path, verb, op in sorted(operations, key=lambda row: last.get(row[2]["operationId"], 0)):
        content = op["responses"].get("201", op["responses"].get("200"))["content"]
        if "application/json" not in content or path == "/openapi.json":
            continue
        url = path.replace("/policies/{name}", "/policies/codex").replace("{name}", "one").replace("{id}", d).replace("{by}", "by-uuid").replace("{uuid}", uuid).replace("{path}", "tmp/x").replace("{tag}", "t")
        a = one(verb.upper(), url, bodies.get(op["operationId"]))
        assert str(a.status) in op["responses"], (verb, path, a)
        fits(a.json, content["application/json"]["schema"], verb + " " + path)
        seen += 1
    assert seen >= 27


def test_a_run_can_be_named_and_kept(box_api):
    data = box_api.post("/run", {"command": ["sh", "-c", "echo mine > /tmp/f; exit 3"], "network": False, "name": "job", "keep": True}).data
    assert data["exit_code"] == 3 and data["sandbox"] == "job"
    info = box_api.get("/sandboxes/job").data
    assert info["status"] == "stopped" and info["kept"] is True and info["exit_code"] == 3
    box_api.post("/run", {"command": ["true"], "name": "job"}).refused(409, "exists already")
    box_api.post("/sandboxes/job/start")
    assert box_api.get("/sandboxes/job/files/tmp/f").data["content"] == "mine\n"
    box_api("DELETE", "/sandboxes/job")
