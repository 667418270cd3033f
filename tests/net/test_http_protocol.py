"""The HTTP API as a server: what it takes, what it refuses and how, and that it lives on."""
import os
import re
import select
import socket
import time

import pytest
from api import Api, api, cpu_seconds, read_answer, serving  # noqa: F401
from expect import Gate
from lab import wait_for

CAP = 16 << 20


# ---- the envelope ----

def test_health_needs_nothing_and_answers_ok(api):
    a = api.get("/health")
    assert a.data == "ok" and a.headers["content-type"] == "application/json"
    assert api.get("/health", host="::1", headers={"Host": "[::1]:%d" % api.port}).data == "ok"
    assert api.get("/health", headers={"Host": "localhost"}).data == "ok"


@pytest.mark.parametrize("path", ["/", "/nope", "/sandboxes/a/b", "/orchestrations", "/objects/x", "/snapshots", "/schedules", "/stores/1/query",
                                  "/health/x", "/HEALTH"])
def test_what_is_not_there_is_a_json_404(api, path):
    api.get(path).refused(404)
    api.post(path, {}).refused(404)


def test_a_wrong_method_is_told_the_right_ones(api):
    a = api.post("/health", {}).refused(405, "GET")
    assert a.headers["allow"] == "GET, HEAD"
    api("OPTIONS", "/run").refused(405)
    api("BREW", "/run").refused(405)


def test_head_is_get_without_the_body(api):
    a = api("HEAD", "/health")
    assert a.status == 200 and a.body == b"" and int(a.headers["content-length"]) > 0


def test_many_requests_on_one_connection_also_pipelined(api):
    with api.connect() as s, s.makefile("rb") as f:
        for _ in range(3):
            s.sendall(api.head("GET", "/health"))
            assert read_answer(f).data == "ok"
        s.sendall(api.head("GET", "/health") * 20 + api.head("GET", "/nope") + api.head("GET", "/health", {"Connection": "close"}))
        assert [read_answer(f).status for _ in range(22)] == [200] * 20 + [404, 200]
        assert f.read() == b""


def test_http_1_0_is_answered_and_closed(api):
    out = api.raw(b"GET /health HTTP/1.0\r\nHost: localhost\r\n\r\n")
    assert b"Connection: close" in out and out.endswith(b'"ok"}\n')


def test_who_has_said_everything_still_gets_the_answer(api):
    with api.connect() as s, s.makefile("rb") as f:
        s.sendall(api.head("GET", "/health"))
        s.shutdown(socket.SHUT_WR)
        assert read_answer(f).data == "ok"


# ---- who may talk ----

@pytest.mark.parametrize("host", ["evil.example", "evil.example:18888", "localhost.evil.example", "127.0.0.1.evil.example", "10.0.0.1", "notlocalhost",
                                  "[2a00::1]:1", "1.1.1.1"])
def test_a_name_that_was_rebound_is_refused(api, host):
    api.get("/health", headers={"Host": host}).refused(403, "Host")


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:99", "localhost.", "app.localhost", "127.0.0.1", "127.9.9.9:1", "[::1]", "[::1]:5"])
def test_loopback_by_any_name_is_fine(api, host):
    assert api.get("/health", headers={"Host": host}).data == "ok"


def test_a_missing_host_is_bad_input(api):
    api.get("/health", headers={"Host": None}).refused(400, "Host")


def test_web_pages_from_elsewhere_are_refused(api):
    for origin in ("http://evil.example", "null", "http://localhost:1", "https://127.0.0.1"):
        api.post("/run", {"command": ["true"]}, headers={"Origin": origin}).refused(403)
    api.get("/health", headers={"Sec-Fetch-Site": "cross-site"}).refused(403)
    assert api.get("/health", headers={"Origin": "http://127.0.0.1:%d" % api.port}).data == "ok"


def test_a_key_guards_all_but_health(lab):
    keys = lab.path("project", "keys")
    with open(keys, "w") as f:
        f.write("# ours\n\n  second-key  \nthird-key\n")
    os.chmod(keys, 0o644)
    with serving(lab, "--api-key-file", keys, env={"AGENTKERNEL_API_KEY": "first-key"}) as api:
        assert api.get("/health").data == "ok"
        for path in ("/sandboxes", "/metrics", "/openapi.json", "/events", "/nope", "/policies"):
            a = api.get(path).refused(401, "key")
            assert a.headers["www-authenticate"] == "Bearer"
        for bad in ("Bearer", "Bearer ", "Bearer first-ke", "Bearer first-keyx", "Bearer # ours", "Basic first-key", "first-key", "Bearer first-key second-key"):
            api.get("/policies", headers={"Authorization": bad}).refused(401)
        for good in ("Bearer first-key", "bearer second-key", "Bearer third-key"):
            assert api.get("/policies", headers={"Authorization": good}).data
        # The body of someone without a key is not even read.
        api("POST", "/run", None, headers={"Content-Length": str(CAP)}).refused(401)
        # The key reaches no command, not even where the environment does.
        api.key = "first-key"
        out = api.run("env", profile="permissive")["output"]
        assert "first-key" not in out and "HOME=" in out
        assert b"other users can read" in api.proc.output[2]


@pytest.mark.parametrize("options, env, says", [
    (["--host", "0.0.0.0"], {}, "key"),
    (["--host", "::"], {}, "key"),
    ([], {"AGENTKERNEL_API_KEY": ""}, "empty"),
    ([], {"AGENTKERNEL_API_KEY": "two words"}, "blank"),
    (["--api-key-file", "/nonexistent"], {}, "/nonexistent"),
    (["--api-key-file", "/dev/null"], {}, "no key"),
    (["--port", "70000"], {}, "70000"),
    (["--port", "x"], {}, "port"),
    (["--host", "no.such.host.invalid"], {}, "no.such.host"),
    (["more"], {}, "unexpected"),
    (["--nope"], {}, "nope"),
])
def test_what_would_not_be_safe_does_not_start(lab, options, env, says):
    r = lab.ak(["serve", "--port", "0", *options] if "--port" not in options else ["serve", *options], env=env)
    assert r.code == 2 and says in r.err, r
    assert all(line.startswith("agentkernel: ") for line in r.err.splitlines()), r


def test_with_a_key_it_may_be_reached_from_elsewhere(lab):
    with serving(lab, "--host", "0.0.0.0", "--server-name", "box.example", env={"AGENTKERNEL_API_KEY": "k"}, key="k") as api:
        assert api.get("/policies", headers={"Host": "box.example:80"}).data
        api.get("/policies", headers={"Host": "other.example"}).refused(403)


def test_a_port_that_is_taken_is_told(api):
    r = api.lab.ak(["serve", "--port", str(api.port)])
    assert r.code == 1 and str(api.port) in r.err and "in use" in r.err, r


# ---- bad framing ----

H = b"Host: localhost\r\n"


@pytest.mark.parametrize("name, data, status", [
    ("not HTTP", b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03", 400),
    ("no version", b"GET /health\r\n\r\n", 400),
    ("two spaces", b"GET  /health HTTP/1.1\r\n" + H + b"\r\n", 400),
    ("HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
    ("HTTP/3.7", b"GET /health HTTP/3.7\r\n" + H + b"\r\n", 505),
    ("bare LF", b"GET /health HTTP/1.1\nHost: localhost\n\n", 400),
    ("folded header", b"GET /health HTTP/1.1\r\n" + H + b"A: b\r\n c\r\n\r\n", 400),
    ("space before colon", b"GET /health HTTP/1.1\r\nHost : localhost\r\n\r\n", 400),
    ("NUL in a header", b"GET /health HTTP/1.1\r\n" + H + b"A: \0\r\n\r\n", 400),
    ("two hosts", b"GET /health HTTP/1.1\r\n" + H + H + b"\r\n", 400),
    ("two lengths", b"POST /run HTTP/1.1\r\n" + H + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}", 400),
    ("length and chunks", b"POST /run HTTP/1.1\r\n" + H + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    ("negative length", b"POST /run HTTP/1.1\r\n" + H + b"Content-Length: -1\r\n\r\n", 400),
    ("hex length", b"POST /run HTTP/1.1\r\n" + H + b"Content-Length: 0x2\r\n\r\n{}", 400),
    ("length list", b"POST /run HTTP/1.1\r\n" + H + b"Content-Length: 2, 2\r\n\r\n{}", 400),
    ("gzip, chunked", b"POST /run HTTP/1.1\r\n" + H + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 400),
    ("compressed body", b"POST /run HTTP/1.1\r\n" + H + b"Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}", 400),
    ("two keys", b"GET /policies HTTP/1.1\r\n" + H + b"Authorization: Bearer a\r\nAuthorization: Bearer b\r\n\r\n", 400),
    ("chunk of 0x2", b"POST /run HTTP/1.1\r\n" + H + b"Transfer-Encoding: chunked\r\n\r\n0x2\r\n{}\r\n0\r\n\r\n", 400),
    ("chunk of +2", b"POST /run HTTP/1.1\r\n" + H + b"Transfer-Encoding: chunked\r\n\r\n+2\r\n{}\r\n0\r\n\r\n", 400),
    ("chunk too long", b"POST /run HTTP/1.1\r\n" + H + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}x\r\n0\r\n\r\n", 400),
    ("endless chunk size", b"POST /run HTTP/1.1\r\n" + H + b"Transfer-Encoding: chunked\r\n\r\n" + b"0" * 40 + b"2\r\n{}\r\n0\r\n\r\n", 400),
    ("huge chunk", b"POST /run HTTP/1.1\r\n" + H + b"Transfer-Encoding: chunked\r\n\r\nfffffffffffffff\r\n{}", 413),
    ("long header", b"GET /health HTTP/1.1\r\n" + H + b"A: " + b"x" * 20000 + b"\r\n\r\n", 431),
    ("many headers", b"GET /health HTTP/1.1\r\n" + H + b"A: b\r\n" * 5000 + b"\r\n", 431),
    ("long path", b"GET /" + b"x" * 20000 + b" HTTP/1.1\r\n" + H + b"\r\n", 431),
    ("fragment", b"GET /health#x HTTP/1.1\r\n" + H + b"\r\n", 400),
    ("CONNECT", b"CONNECT x:1 HTTP/1.1\r\n" + H + b"\r\n", 400),
], ids=lambda v: v if isinstance(v, str) else "")
def test_bad_framing_is_refused_in_json_and_the_connection_ends(api, name, data, status):
    with api.connect() as s, s.makefile("rb") as f:
        s.sendall(data)
        a = read_answer(f).refused(status)
        # Where it is plain where the next request begins, the connection may go on.
        if name not in ("fragment", "two keys"):
            assert a.headers["connection"] == "close" and f.read() == b""
    api.alive()


def test_bodies_may_come_in_chunks_with_extensions_and_trailers(api):
    body = b'{"command":[]}'
    head = b"POST /run HTTP/1.1\r\n" + H + b"Transfer-Encoding: chunked\r\n\r\n"
    pieces = b"".join(b"%x;x=1\r\n%c\r\n" % (1, c) for c in body) + b"0\r\nTrailer: x\r\n\r\n"
    with api.connect() as s, s.makefile("rb") as f:
        for i in range(0, len(head + pieces), 7):
            s.sendall((head + pieces)[i:i + 7])
        read_answer(f).refused(400, "command: is empty")
        s.sendall(api.head("GET", "/health"))
        assert read_answer(f).data == "ok"


def test_17_mib_are_too_much_and_told_at_once(api):
    big = b'"' + b"x" * (17 << 20)
    api.post("/run", big).refused(413)
    chunk = b"%x\r\n" % (1 << 20) + b"x" * (1 << 20) + b"\r\n"
    with api.connect() as s, s.makefile("rb") as f:
        s.sendall(api.head("POST", "/run", {"Transfer-Encoding": "chunked"}))
        try:
            for _ in range(17):
                s.sendall(chunk)
        except OSError:
            pass
        read_answer(f).refused(413)
    with api.connect() as s, s.makefile("rb") as f:
        s.sendall(api.head("POST", "/run", {"Expect": "100-continue"}, 17 << 20))
        read_answer(f).refused(413)


def test_who_asks_first_is_told_to_go_on(api):
    with api.connect() as s, s.makefile("rb") as f:
        s.sendall(api.head("POST", "/run", {"Expect": "100-continue"}, 14))
        assert f.readline() == b"HTTP/1.1 100 Continue\r\n" and f.readline() == b"\r\n"
        s.sendall(b'{"command":[]}')
        read_answer(f).refused(400)


# ---- bad input ----

@pytest.mark.parametrize("body, says", [
    (b"", "command: is missing"),
    (b"{", "body"),
    (b"[]", "object"),
    (b'"x"', "object"),
    (b"null", "object"),
    (b'{"command":["true"]}x', "body"),
    (b'{"command":["true"],}', "body"),
    (b"{'command':['true']}", "body"),
    (b'{"command":["true"],"command":["false"]}', "twice"),
    (b'{"command":"true"}', "command: must be an array"),
    (b'{"command":[]}', "command: is empty"),
    (b'{"command":[""]}', "command[0]"),
    (b'{"command":[1]}', "command[0]: must be a string"),
    (b'{"command":null}', "command: is missing"),
    (b'{"command":["true"],"what":1}', "what: unknown field"),
    (b'{"Command":["true"]}', "Command: unknown field"),
    (b'{"command":["true"],"profile":"lax"}', "profile"),
    (b'{"command":["true"],"compatibility_mode":"gpt"}', "compatibility mode"),
    (b'{"command":["true"],"network":"no"}', "network: must be true or false"),
    (b'{"command":["true"],"timeout_ms":-1}', "timeout_ms"),
    (b'{"command":["true"],"timeout_ms":1.5}', "timeout_ms"),
    (b'{"command":["true"],"timeout_ms":1e300}', "timeout_ms"),
    (b'{"command":["true"],"timeout_ms":"5"}', "timeout_ms: must be a whole number from 1 to 31622400000"),
    (b'{"command":["true"],"env":["NOEQUALS"]}', "NOEQUALS"),
    (b'{"command":["true"],"env":{"A=B":"c"}}', "A=B"),
    (b'{"command":["true"],"env":{"A":1}}', "env.A"),
    (b'{"command":["true"],"cwd":"relative"}', "cwd"),
    (b'{"command":["true"],"image":"NOT A NAME"}', "is not the name of an image"),
    (b'{"command":["true"],"network":true,"profile":"restrictive"}', "network"),
    (b'{"command":["a\\u0000b"]}', "NUL"),
    (b'{"command":["\xff"]}', "body"),
    (b'{"command":["\xc0\xaf"]}', "body"),
    (b'{"command":["\\ud800"]}', "body"),
    (b'{"command":["a\nb"]}', "body"),
    (b"[" * 100000, "body"),
    (b'{"a":' * 5000 + b"1" + b"}" * 5000, "body"),
    (b'{"command":["true"],"env":{' + b",".join(b'"k%d":"v"' % i for i in range(300)) + b"}}", "env: more than"),
    (b'{"command":[' + b",".join(b'"x"' for _ in range(5000)) + b"]}", "command: more than"),
], ids=lambda v: repr(v)[:40])
def test_a_bad_body_is_a_400_that_names_the_place(api, body, says):
    api.post("/run", body).refused(400, says)
    api.post("/run/stream", body).refused(400, says)


def test_null_is_as_good_as_absent(api):
    r = api.run("echo", "hi", image=None, profile=None, compatibility_mode=None, network=None, cwd=None, env=None, timeout_ms=None, fast=None)
    assert r["output"] == "hi\n"


def test_a_body_of_a_hundred_thousand_keys_costs_no_more_than_its_length(api):
    body = b"{" + b",".join(b'"k%d":1' % i for i in range(100000)) + b"}"
    began = cpu_seconds(api.lab, api.proc.pid)
    api.post("/run", body).refused(400)
    body = b"{" + b",".join(b'"k%d":1' % i for i in range(16000)) + b"}"
    api.post("/run", body).refused(400, "unknown field")
    assert cpu_seconds(api.lab, api.proc.pid) - began < 2


@pytest.mark.parametrize("path, status", [
    ("/sandboxes/%zz", 400), ("/sandboxes/%", 400), ("/sandboxes/a%0", 400), ("/sandboxes/a%00", 400), ("/sandboxes/%ff", 400),
    ("/sandboxes/-a", 400), ("/sandboxes/a%2Fb", 400), ("/sandboxes/..", 400), ("/sandboxes/%2e%2e", 400), ("/sandboxes/a%20b", 400),
    ("/sandboxes/" + "a" * 64, 400), ("/sandboxes/" + "a" * 63, 404), ("/sandboxes/a%25b", 400), ("/sandboxes/%252e", 400),
    ("//sandboxes//nobody//", 404), ("/sandboxes/by-uuid/x", 400), ("/sandboxes/by-uuid/05a130f3-092b-44f2-adc3-ce08aa3a6cf1", 404),
    ("/sandboxes/a/files/%2e%2e/etc/passwd", 400), ("/sandboxes/a/files/x/../../y", 400), ("/sandboxes/a/files/ok", 404),
    ("/sandboxes/a/network/log?follow=2", 400), ("/sandboxes/a/network/log?what=1", 400), ("/sandboxes/a/network/log?limit=0", 400),
    ("/sandboxes/a/network/log?limit=1&limit=2", 400), ("/sandboxes/a/network/log?since=never", 400), ("/sandboxes/a/network/log?denied=1&allowed=1", 400),
    ("/sandboxes/a/network/log?follow=1", 404), ("/policies/none", 404), ("/policies/..%2f..%2fetc%2fpasswd", 400), ("/health?x=1", 400),
    ("/" + "a/" * 200, 400), ("/%68ealth", 200), ("/health/", 200), ("/health?", 200),
])
def test_addresses_are_decoded_once_and_never_lead_outside(api, path, status):
    a = api.get(path)
    assert a.status == status, a
    if status >= 400:
        a.refused(status)


def test_names_out_of_range_are_bad_input(api):
    for name in ("", "-a", "a-", "a b", "a/b", "../x", "a" * 64, "ä", "a\n"):
        api.post("/sandboxes", {"name": name}).refused(400)
    api.post("/sandboxes", {"name": "ok", "memory_mb": 1}).refused(400, "memory_mb")
    api.post("/sandboxes", {"name": "ok", "vcpus": 0}).refused(400, "vcpus")
    api.post("/sandboxes", {"name": "ok", "dir": "relative"}).refused(400, "dir")
    api.post("/sandboxes", {"name": "ok", "dir": "/no/such/folder"}).refused(400, "/no/such/folder")
    api.post("/sandboxes", {"name": "ok", "volumes": []}).refused(400, "volumes")


# ---- limits of time and number ----

def test_a_head_that_drips_in_is_given_ten_seconds(api):
    began = time.monotonic()
    with api.connect() as s:
        s.sendall(b"GET /health HTTP/1.1\r\n")
        while not select.select([s], [], [], 0.5)[0]:
            s.sendall(b"X")
            assert time.monotonic() - began < 60
            api.alive()
        with s.makefile("rb") as f:
            read_answer(f).refused(408)
    assert time.monotonic() - began > 9


def test_idle_connections_give_way_to_new_ones(api):
    held = []
    try:
        for _ in range(540):
            s = api.connect()
            s.sendall(api.head("GET", "/health"))
            assert b"200" in s.recv(65536)
            held.append(s)
        api.alive()
    finally:
        for s in held:
            s.close()


@pytest.mark.xdist_group("descriptors")
def test_without_descriptors_it_waits_for_better_times(lab):
    with serving(lab, rlimits={"RLIMIT_NOFILE": 40}) as api:
        held = [api.connect() for _ in range(60)]  # the kernel takes them all, the server not
        for s in held:
            s.close()
        api.alive()
        assert api.run("echo", "fine")["output"] == "fine\n"


def test_the_first_signal_lets_requests_finish_and_takes_no_more(lab):
    def refuses():
        try:
            api.connect().close()
        except OSError:
            return True
    api = Api(lab)
    with Gate(lab) as gate:
        s = api.stream("POST", "/run/stream", {"command": ["sh", "-c", "echo begun; %s; echo done" % gate.wait], "compatibility_mode": "codex", "cwd": lab.path("project")})
        rows = iter(s)
        assert next(r for r in rows if r[1] == "output")[2]["data"] == "begun\n"
        api.proc.signal(15)
        wait_for(refuses)
        gate.open()
        rest = [(name, data) for _, name, data in rows]
    assert ("output", {"data": "done\n", "stream": "stdout"}) in rest and rest[-1][0] == "done"
    s.close()
    api.door.close()
    assert api.proc.wait(5).code == 0


def test_the_second_signal_ends_it_at_once(lab):
    api = Api(lab)
    s = api.stream("POST", "/run/stream", {"command": ["sh", "-c", "echo begun; sleep 1000"]})
    assert next(r for r in s if r[1] == "output")
    api.proc.signal(2)
    api.proc.signal(15)
    api.door.close()
    assert api.proc.wait().code == 0
    s.close()


# ---- the description ----

def resolve(doc, schema):
    while "$ref" in schema:
        node = doc
        for part in schema["$ref"].lstrip("#/").split("/"):
            node = node[part]
        schema = node
    return schema


def test_the_description_is_whole_and_every_route_of_it_answers(api):
    a = api.get("/openapi.json")
    doc = a.json
    assert a.status == 200 and doc["openapi"].startswith("3.1.") and doc["info"]["title"] == "agentkernel"
    ids, n = set(), 0
    for path, operations in doc["paths"].items():
        for verb, op in operations.items():
            n += 1
            assert verb in ("get", "post", "put", "patch", "delete") and op["summary"] and op["operationId"] not in ids
            ids.add(op["operationId"])
            assert [p["name"] for p in op["parameters"] if p["in"] == "path"] == re.findall(r"{(\w+)}", path)
            assert {"400", "403", "408", "413", "429", "500"} < set(op["responses"]) and op["tags"]
            assert ("401" in op["responses"]) == (path != "/health") and ("404" in op["responses"]) == ("{" in path)
            for answer in op["responses"].values():
                for content in resolve(doc, answer)["content"].values():
                    assert resolve(doc, content["schema"])
            real = re.sub(r"{\w+}", "nobody", path.replace("{by}/{uuid}", "by-uuid/05a130f3-092b-44f2-adc3-ce08aa3a6cf1"))
            if real == "/events":
                continue
            body = {} if "requestBody" in op else None
            answer = api(verb.upper(), real, body)
            # There, and either answered or refused for what was (not) sent.
            assert answer.status not in (405, 500) and not ("no such path" in answer.body.decode()), (verb, path, answer)
            if "requestBody" in op and op["requestBody"]["content"]["application/json"]["schema"]["required"]:
                answer.refused(400, "missing")
            if "requestBody" in op:
                api(verb.upper(), real, {"no_such_field": 1}).refused(400, "no_such_field: unknown field")
            others = {"GET", "POST", "PUT", "PATCH", "DELETE"} - {v.upper() for v in operations}
            api(sorted(others)[0], real).refused(405)
    assert n >= 32
