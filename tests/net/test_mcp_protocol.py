"""JSON-RPC and MCP as such: each revision gets what it knows, and whatever is wrong gets the right error from a server that lives on."""
import json
import os
import time

import pytest
from mcp import REVISIONS, TOOLS, Mcp, serving

PARSE, REQUEST, METHOD, PARAMS = -32700, -32600, -32601, -32602


@pytest.fixture
def mcp(lab):
    with serving(lab) as m:
        yield m


@pytest.mark.parametrize("revision", REVISIONS)
def test_each_revision_gets_what_it_knows(lab, revision):
    m = Mcp(lab)
    welcome = m.open(revision)
    assert welcome["protocolVersion"] == revision and welcome["serverInfo"]["name"] == "agentkernel" and welcome["capabilities"]["tools"] is not None
    assert ("title" in welcome["serverInfo"]) == (revision >= "2025-06-18")
    tools = m.request("tools/list")["result"]["tools"]
    assert {t["name"] for t in tools} == TOOLS
    for t in tools:
        assert t["inputSchema"]["type"] == "object" and t["inputSchema"]["additionalProperties"] is False and t["description"]
        assert ("annotations" in t) == (revision >= "2025-03-26") and ("outputSchema" in t) == ("title" in t) == (revision >= "2025-06-18")
    result = m.call("sandbox_list")["result"]
    assert result["content"][0]["type"] == "text" and ("structuredContent" in result) == (revision >= "2025-06-18")
    wrong = m.call("sandbox_run", command=["true", 3])
    if revision >= "2025-11-25":
        assert wrong["result"]["isError"] and "command[1]: must be a string" in wrong["result"]["content"][0]["text"]
    else:
        assert wrong["error"]["code"] == PARAMS and wrong["error"]["message"] == "params.arguments.command[1]: must be a string"
    assert m.close().code == 0


def test_an_unknown_revision_is_answered_with_our_newest(lab):
    m = Mcp(lab)
    assert m.open("2099-01-01")["protocolVersion"] == REVISIONS[-1]
    assert m.close().code == 0


def test_both_spellings_of_the_command(lab):
    with serving(lab, command=("mcp-server",)) as m:
        assert m.ping()["result"] == {}


def test_nothing_but_ping_before_initialize_and_no_second_one(lab):
    m = Mcp(lab)
    assert m.ping()["result"] == {}
    for method in ("tools/list", "tools/call"):
        assert m.request(method, name="sandbox_list")["error"]["code"] == REQUEST
    assert m.request("initialize")["error"]["code"] == PARAMS
    assert m.request("initialize", protocolVersion=1)["error"]["code"] == PARAMS
    assert m.request("initialize", protocolVersion="2025-06-18", clientInfo=[])["error"]["code"] == PARAMS
    m.open()
    assert m.request("initialize", protocolVersion="2025-06-18")["error"]["code"] == REQUEST
    assert m.close().code == 0


def test_malformed_lines_are_parse_errors(mcp):
    for line in (b"{bad", b"nonsense", b'{"jsonrpc":"2.0",}', b'{"jsonrpc":"2.0" "id":1}', b'"\xff\xfe"', b'{"a":"\xc0\xaf"}', b'"\xed\xa0\x80"',
                 b'{"a":"\\ud800"}', b'{"a":"\\x"}', b'{"a":01}', b'{"a":1.}', b'{"a":+1}', b'{"a":NaN}', b"[1,2", b'{"a":"b\tc"}', b'{"a":1}}',
                 b"\x00", b'{"a":"\x00"}', b"tru", b"["):
        code, text = mcp.error(line + b"\n")
        assert code == PARSE and text.startswith("byte "), (line, code, text)
    mcp.hears_nothing()


def test_wrong_shapes_are_invalid_requests(mcp):
    for line in ("1", "null", '"x"', "[]", "{}", '{"jsonrpc":"1.0","id":1,"method":"ping"}', '{"jsonrpc":"2.0"}', '{"jsonrpc":"2.0","method":3}',
                 '{"jsonrpc":"2.0","id":null,"method":"ping"}', '{"jsonrpc":"2.0","id":1.5,"method":"ping"}', '{"jsonrpc":"2.0","id":{},"method":"ping"}',
                 '{"jsonrpc":"2.0","id":true,"method":"ping"}', '{"jsonrpc":"2.0","id":1e300,"method":"ping"}', '{"jsonrpc":"2.0","id":[1],"method":"ping"}',
                 '{"jsonrpc":"2.0","id":"%s","method":"ping"}' % ("x" * 2000), '{"jsonrpc":"2.0","method":"ping","method":"ping","id":1}',
                 '[{"jsonrpc":"2.0","id":1,"method":"ping"}]'):
        code, text = mcp.error(line.encode() + b"\n", ident=1 if '"1.0"' in line else None)
        assert code == REQUEST, (line, code, text)
    mcp.hears_nothing()


def test_too_deep_too_many_and_too_long(mcp):
    assert mcp.error(b"[" * 100000 + b"]" * 100000 + b"\n")[0] == REQUEST
    assert mcp.error(b'{"a":' * 70 + b"1" + b"}" * 70 + b"\n")[0] == REQUEST
    assert mcp.error(b"[" + b"1," * 300000 + b"1]\n")[0] == REQUEST
    assert mcp.error(b"{" + b",".join(b'"k%d":1' % i for i in range(5000)) + b"}\n")[0] == REQUEST
    code, text = mcp.error(b'{"jsonrpc":"2.0","id":1,"method":"' + b"x" * (17 << 20) + b'"}\n')
    assert code == REQUEST and "16 MiB" in text
    mcp.hears_nothing()


def test_a_message_just_under_the_limit_is_taken(mcp):
    big = "x" * ((16 << 20) - 200)
    assert mcp.request("nothing/such", pad=big)["error"]["code"] == METHOD


def test_ids_come_back_as_they_were(mcp):
    for ident in (0, -7, 9007199254740991, "a", "", "ünï \"quoted\" \n", "1"):
        mcp.say({"jsonrpc": "2.0", "id": ident, "method": "ping"})
        assert mcp.hear(lambda m: m.get("id") == ident and type(m["id"]) is type(ident))["result"] == {}


def test_unknown_methods_notifications_with_ids_and_answers_to_nobody(mcp):
    assert mcp.request("resources/list")["error"]["code"] == METHOD
    assert mcp.request("tools/Call")["error"]["code"] == METHOD
    assert mcp.request("notifications/cancelled", requestId=1)["error"]["code"] == REQUEST
    assert mcp.request("notifications/initialized")["error"]["code"] == REQUEST
    mcp.say({"jsonrpc": "2.0", "id": 77, "result": {}})
    mcp.say({"jsonrpc": "2.0", "id": 78, "error": {"code": 1, "message": "x"}})
    mcp.say({"jsonrpc": "2.0", "method": "tools/call", "params": {"name": "sandbox_run", "arguments": {"command": ["touch", "ran"]}}})
    mcp.say({"jsonrpc": "2.0", "method": "no/such"})
    mcp.say({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": [1]})
    mcp.notify("notifications/cancelled", requestId="unknown")
    mcp.write(b"\n \n\t\r\n")
    mcp.hears_nothing()
    assert not os.path.exists(mcp.lab.path("project", "ran"))


def test_bad_params_name_the_place(lab):
    with serving(lab, revision="2025-06-18") as m:
        cases = [
            (dict(), "params.name: missing"), (dict(name=3), "params.name: must be a string"), (dict(name="no_such"), "params.name: unknown tool 'no_such'"),
            (dict(name="sandbox_list", arguments=[]), "params.arguments: must be an object"),
            (dict(name="sandbox_list", arguments={"x": 1}), "params.arguments.x: unknown argument"),
            (dict(name="sandbox_list", _meta={"progressToken": [1]}), "params._meta.progressToken: must be a string or a whole number"),
            (dict(name="sandbox_run"), "params.arguments.command: is missing"),
            (dict(name="sandbox_run", arguments={"command": "ls"}), "params.arguments.command: must be an array of strings"),
            (dict(name="sandbox_run", arguments={"command": []}), "params.arguments.command: is empty"),
            (dict(name="sandbox_run", arguments={"command": [""]}), "params.arguments.command[0]: is empty"),
            (dict(name="sandbox_run", arguments={"command": ["x"], "timeout_ms": 0}), "params.arguments.timeout_ms: must be a whole number from 1 to 31622400000"),
            (dict(name="sandbox_run", arguments={"command": ["x"], "timeout_ms": 1.5}), "params.arguments.timeout_ms: must be a whole number from 1 to 31622400000"),
            (dict(name="sandbox_run", arguments={"command": ["x"], "network": "no"}), "params.arguments.network: must be true or false"),
            (dict(name="sandbox_run", arguments={"command": ["x"], "env": {"A": 1}}), "params.arguments.env.A: must be a string"),
            (dict(name="sandbox_run", arguments={"command": ["x"], "env": {"A=B": "1"}}), "params.arguments.env: 'A=B' is not the name of a variable"),
            (dict(name="sandbox_run", arguments={"command": ["x"], "env": {"": "1"}}), "params.arguments.env: '' is not the name of a variable"),
            (dict(name="sandbox_run", arguments={"command": ["x"], "profile": "wide"}),
             "params.arguments.profile: 'wide' is not one of: permissive, moderate, restrictive"),
        ]
        for params, text in cases:
            error = m.request("tools/call", **params)["error"]
            assert error == {"code": PARAMS, "message": text}, (params, error)
        assert m.request("tools/list", cursor="x")["error"]["code"] == PARAMS
        m.say({"jsonrpc": "2.0", "id": "p", "method": "tools/call", "params": ["sandbox_list"]})
        assert m.answer("p")["error"] == {"code": PARAMS, "message": "params: must be an object"}
        m.say(b'{"jsonrpc":"2.0","id":"n","method":"tools/call","params":{"name":"sandbox_run","arguments":{"command":["echo","a\\u0000b"]}}}\n')
        assert m.answer("n")["error"]["code"] == PARAMS


def test_null_is_read_as_absent(mcp):
    got, _ = mcp.good("sandbox_run", command=["echo", "x"], network=False, profile=None, compatibility_mode=None, env=None, cwd=None, timeout_ms=None, image=None)
    assert got["stdout"] == "x\n"


def test_batches_where_the_revision_has_them_and_nowhere_else(lab):
    ping = [{"jsonrpc": "2.0", "id": "a", "method": "ping"}]
    for revision in REVISIONS:
        with serving(lab, revision=revision) as m:
            if revision != "2025-03-26":
                assert m.error(json.dumps(ping).encode() + b"\n")[0] == REQUEST
                continue
            m.say([*ping, {"jsonrpc": "2.0", "method": "notifications/initialized"}, 3, {"jsonrpc": "2.0", "id": "i", "method": "initialize"},
                   {"jsonrpc": "2.0", "id": "c", "method": "tools/call", "params": {"name": "sandbox_run", "arguments": {"command": ["echo", "1"], "network": False}}},
                   {"jsonrpc": "2.0", "id": "d", "method": "tools/call", "params": {"name": "sandbox_list"}}])
            got = m.hear(lambda x: isinstance(x, list))
            by_id = {x["id"]: x for x in got}
            assert len(got) == 5 and by_id["a"]["result"] == {} and by_id[None]["error"]["code"] == by_id["i"]["error"]["code"] == REQUEST
            assert by_id["c"]["result"]["content"][0]["text"].startswith("1\n") and "result" in by_id["d"]
            m.say([{"jsonrpc": "2.0", "method": "notifications/initialized"}])
            assert m.error(b"[]\n")[0] == REQUEST
            assert m.error(json.dumps(ping * 65).encode() + b"\n")[0] == REQUEST


def test_a_last_line_without_its_end_is_read_and_stdout_holds_protocol_only(lab):
    first = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18"}}
    run = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "sandbox_run", "arguments": {"command": ["no-such-program"], "network": False}}}
    r = lab.ak(["mcp", "server"], stdin=(json.dumps(first) + "\n" + json.dumps(run)).encode())
    lines = [json.loads(line) for line in r.out.splitlines()]
    assert r.code == 0 and r.err == "" and [x["id"] for x in lines] == [1, 2], r
    assert lines[1]["result"]["structuredContent"]["exit_code"] == 127 and "not found" in lines[1]["result"]["content"][0]["text"]


def test_a_client_that_does_not_read_or_leaves_does_not_hold_the_server(lab):
    r, w = os.pipe()
    proc = lab.spawn([lab.binary, "mcp", "server"], stdin="pipe", stdout=w, env=lab.env())
    os.close(w)
    line = b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n' * 1000
    sent, moved = 0, time.monotonic()
    while time.monotonic() < moved + 1:  # until it reads no more: what it keeps for us is bounded
        try:
            sent += os.write(proc.keep_stdin, line)
            moved = time.monotonic()
        except BlockingIOError:
            proc._pump(time.monotonic() + 0.001, lambda: False)
        assert sent < 64 << 20
    os.close(r)
    end = proc.wait(5)
    assert end.code == 0, end
    proc.close_stdin()


def test_wrong_usage(lab):
    for args, text in ((["--compatibility-mode", "wide"], "'wide' is neither"), (["--allow-host", "*"], "*"), (["--dir", "/no/such"], "/no/such"), (["x"], "unexpected"),
                       (["--allow-cidr", "1.2.3"], "1.2.3")):
        r = lab.ak(["mcp", "server", *args])
        assert r.code == 2 and text in r.err and r.out == "", r
