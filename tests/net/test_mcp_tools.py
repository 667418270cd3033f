"""What the tools do: commands, files, life, logs, and that the model gets no more network than the user started the server with."""
import base64
import json
import os

import pytest
from expect import Gate
from lab import PYTHON, wait_for
from mcp import Mcp, serving
from persist import Boxes

CODEX = ("--compatibility-mode", "codex")


def probe_in(lab, m, tool="sandbox_run", steps=(), **kw):
    got, text = m.good(tool, command=lab.probe_command(list(steps)), **kw)
    return json.loads(got["stdout"]), got, text


# ---- commands ----

def test_run_gives_output_code_and_streams(any_user):
    with serving(any_user, *CODEX) as m:
        got, text = m.good("sandbox_run", command=["sh", "-c", "echo out; echo err >&2; exit 7"])
        assert (got["stdout"], got["stderr"], got["exit_code"], got["timed_out"], got["truncated"]) == ("out\n", "err\n", 7, False, False), got
        assert got["network"] == {"denied": []} and text == "out\n[stderr]\nerr\n[exit code 7]\n"
        got, _ = m.good("sandbox_run", command=["printf", "%s|", "a b", "$HOME", "*", "'q'"])
        assert got["stdout"] == "a b|$HOME|*|'q'|"
        got, _ = m.good("sandbox_run", command=["sh", "-c", "pwd; echo $X; cat"], env={"X": "y z"}, cwd="/tmp")
        assert got["stdout"] == "/tmp\ny z\n", "standard input is empty"
        got, text = m.good("sandbox_run", command=["no-such-program"])
        assert got["exit_code"] == 127 and "not found" in text
        assert "absolute" in m.bad("sandbox_run", command=["true"], cwd="tmp")
        assert "agentkernel image pull alpine:3.20" in m.bad("sandbox_run", command=["true"], image="alpine:3.20")


def test_the_projects_files_are_there_and_stay(lab):
    with serving(lab, "--compatibility-mode", "claude") as m:
        m.good("sandbox_run", command=["sh", "-c", "echo made > file"])
        with open(lab.path("project", "file")) as f:
            assert f.read() == "made\n"


def test_time_limits_hold(lab):
    with serving(lab, *CODEX) as m:
        got, text = m.good("sandbox_run", command=["sh", "-c", "echo before; trap '' TERM INT; sleep 1000"], timeout_ms=400)
        assert got["timed_out"] is True and got["exit_code"] == 124 and got["stdout"] == "before\n" and "timed out" in text


def test_long_output_is_cut_in_the_middle_and_says_so(lab):
    with serving(lab, *CODEX) as m:
        got, text = m.good("sandbox_run", command=[PYTHON, "-c", "print('BEGIN' + 'ä€😀' * 100000 + 'END')"])
        assert got["truncated"] is True and got["stdout"].startswith("BEGINä€😀") and got["stdout"].endswith("😀END\n") and "�" not in got["stdout"]
        assert len(got["stdout"].encode()) < 70000 and "bytes left out" in got["stdout"] and "bytes left out" in text
        got, _ = m.good("sandbox_run", command=[PYTHON, "-c", "import sys; sys.stdout.buffer.write(b'\\xff\\x00\\x1b[31m' * 3)"])
        assert got["stdout"] == "�\x00\x1b[31m" * 3 and got["truncated"] is False
        got, _ = m.good("sandbox_run", command=["sh", "-c", "yes | head -c 40000000"], timeout_ms=60000)
        assert got["truncated"] is True and len(got["stdout"]) < 70000


def test_calls_run_at_the_same_time_and_more_than_fit_wait(lab):
    with serving(lab, *CODEX, "--no-network") as m, Gate(lab) as gate:
        slow = m.ask("tools/call", name="sandbox_run", arguments={"command": ["sh", "-c", gate.wait]})
        m.good("sandbox_list")
        ids = [m.ask("tools/call", name="sandbox_run", arguments={"command": ["echo", str(i)]}) for i in range(40)]
        for i, ident in enumerate(ids):
            assert m.answer(ident, 60)["result"]["structuredContent"]["stdout"] == "%d\n" % i
        assert not [x for x in m.lines() if x.get("id") == slow]
        gate.open()
        assert m.answer(slow)["result"]["structuredContent"]["exit_code"] == 0


def test_an_id_that_is_in_use_is_refused(lab):
    with serving(lab, *CODEX, "--no-network") as m, Gate(lab) as gate:
        m.say({"jsonrpc": "2.0", "id": "same", "method": "tools/call", "params": {"name": "sandbox_run", "arguments": {"command": ["sh", "-c", gate.wait]}}})
        m.say({"jsonrpc": "2.0", "id": "same", "method": "tools/call", "params": {"name": "sandbox_list"}})
        assert m.answer("same")["error"]["code"] == -32600
        gate.open()
        m.hear(lambda x: x.get("id") == "same" and "result" in x)


def test_too_many_calls_are_refused_not_kept(lab):
    with serving(lab, *CODEX, "--no-network") as m:
        ids = [m.ask("tools/call", name="sandbox_run", arguments={"command": ["sleep", "600"], "timeout_ms": 600000}) for _ in range(100)]
        busy = m.hear(lambda x: "error" in x)
        assert busy["error"]["code"] == -32000 and "too many" in busy["error"]["message"]
        for ident in ids:
            m.notify("notifications/cancelled", requestId=ident)
        assert m.good("sandbox_list", timeout=20)


def test_progress_is_told_when_asked_for(lab):
    with serving(lab, *CODEX) as m, Gate(lab) as gate:
        ident = m.ask("tools/call", name="sandbox_run", arguments={"command": ["sh", "-c", gate.wait]}, _meta={"progressToken": "tok"})
        heard = lambda: [x["params"] for x in m.lines() if x.get("method") == "notifications/progress"]
        m.hear(lambda _: len(heard()) >= 3)
        gate.open()
        m.answer(ident)
        told = heard()
        assert all(x["progressToken"] == "tok" and x["message"] for x in told), told
        assert [x["progress"] for x in told] == sorted({x["progress"] for x in told})
        m.call("sandbox_run", command=["true"])
        assert len([x for x in m.lines() if "method" in x]) == len(told)


# ---- ends ----

def test_cancelling_kills_the_sandbox_and_is_not_answered(any_user):
    lab = any_user
    with serving(lab, *CODEX) as m:
        ident = m.ask("tools/call", name="sandbox_run", timeout=0, arguments={"command": ["sh", "-c", "trap '' TERM INT HUP; sleep 4711; sleep 4711"],
                                                                             "timeout_ms": 600000})
        wait_for(lambda: lab.running("sleep 4711"))
        m.notify("notifications/cancelled", requestId=ident, reason="changed my mind")
        wait_for(lambda: not lab.running("sleep 4711"))
        m.good("sandbox_list")
        assert not [x for x in m.lines() if x.get("id") == ident]


def test_at_the_end_of_input_what_is_short_is_answered_and_what_is_long_is_ended(lab):
    m = Mcp(lab, *CODEX)
    m.open()
    short = m.ask("tools/call", name="sandbox_run", arguments={"command": ["echo", "done"]})
    m.ask("tools/call", name="sandbox_run", arguments={"command": ["sh", "-c", "trap '' TERM INT; sleep 4712; sleep 4712"], "timeout_ms": 600000})
    wait_for(lambda: lab.running("sleep 4712"))
    assert m.close().code == 0
    assert m.answer(short)["result"]["structuredContent"]["stdout"] == "done\n"
    assert not lab.running("sleep 4712") and not lab.leaks()


@pytest.mark.parametrize("sig", [15, 9])
def test_a_server_that_is_killed_leaves_nothing(lab, sig):
    m = Mcp(lab, *CODEX)
    m.open()
    m.ask("tools/call", name="sandbox_run", arguments={"command": ["sleep", "4713"], "timeout_ms": 600000})
    wait_for(lambda: lab.running("sleep 4713"))
    m.proc.signal(sig)
    m.proc.wait()
    wait_for(lambda: not lab.running("sleep 4713"))
    assert not lab.leaks()
    m.proc.close_stdin()


# ---- the network ----

def test_denials_are_told_in_words_one_can_act_on(lab):
    with serving(lab, *CODEX, "--allow-host", "ok.test") as m:
        rows, got, text = probe_in(lab, m, steps=[["tls", "ok.test", 443, "ok.test"], ["resolve", "evil.test"], ["tcp", "169.254.169.254", 80]])
        assert "ok" in rows[0] and "err" in rows[1] and "err" in rows[2]
        denied = {row["destination"]: row for row in got["network"]["denied"]}
        dns = next(row for key, row in denied.items() if key.startswith("evil.test"))
        assert dns["rule"] == "default" and dns["reason"] == "not in allowlist" and dns["count"] >= 1
        assert "metadata" in denied["169.254.169.254:80"]["rule"]
        assert "evil.test" in text and "[rule: default]" in text and "--allow-host evil.test" in text and "ask the user" in text
        log, _ = m.good("network_log", name=got["sandbox"])
        assert {"allow", "deny"} <= {row["verdict"] for row in log["rows"]} and log["total"] == len(log["rows"])
        only, _ = m.good("network_log", name=got["sandbox"], denied=True, since="1h", limit=1)
        assert [row["verdict"] for row in only["rows"]] == ["deny"] and only["total"] >= 2
        assert "since" in m.bad("network_log", name=got["sandbox"], since="whenever")
        assert "no sandbox or run" in m.bad("network_log", name="nobody")
    assert lab.arrived("11.66.0.2") == 0


def test_network_check_asks_the_policy_that_would_hold(lab):
    os.makedirs(lab.path("project", "sub"))
    with open(lab.path("project", "sub", "mine.json"), "w") as f:
        json.dump({"version": 1, "name": "mine", "default": "deny", "allow": ["good.test:443"]}, f)
    os.symlink("/etc/passwd", lab.path("project", "link.json"))
    with serving(lab, *CODEX, "--allow-host", "extra.test", "--block-host", "api.openai.com") as m:
        assert m.good("network_check", policy="codex", target="extra.test")[0]["verdict"] == "allow"
        got, text = m.good("network_check", policy="codex", target="api.openai.com:443")
        assert got["verdict"] == "deny" and "api.openai.com" in got["rule"]
        assert "only the user" in m.bad("network_check", policy="claude", target="extra.test"), "a mode that calls cannot choose"
        assert "ask the user" in m.good("network_check", policy="codex", target="evil.test")[1]
        assert m.good("network_check", policy="sub/mine.json", target="good.test")[0]["verdict"] == "allow"
        got, text = m.good("network_check", policy="codex", target="169.254.169.254:80")
        assert got["verdict"] == "deny" and "stay blocked" in text
        for policy in ("/etc/passwd", "../../../../etc/passwd", "link.json", "sub/none.json", "nobody", "", "a b"):
            text = m.bad("network_check", policy=policy, target="x.test")
            assert "root" not in text, text
        assert "target" in m.bad("network_check", policy="codex", target="not a host")


def test_no_call_gets_a_wider_mode_profile_or_network(lab):
    with serving(lab, *CODEX) as m:
        for mode in ("native", "claude", "gemini"):
            text = m.bad("sandbox_run", command=["true"], compatibility_mode=mode)
            assert "only the user" in text and "codex" in text, text
            assert "only the user" in m.bad("sandbox_create", name="x", compatibility_mode=mode)
        assert "wider" in m.bad("sandbox_run", command=["true"], profile="permissive")
        got, _ = m.good("sandbox_run", command=["true"], compatibility_mode="codex", profile="moderate", network=True)
        assert got["exit_code"] == 0
        for narrow in (dict(network=False), dict(profile="restrictive")):
            rows, _, _ = probe_in(lab, m, steps=[["tls", "api.openai.com", 443, "api.openai.com"]], **narrow)
            assert "err" in rows[0], narrow
        assert "has no network" in m.bad("sandbox_run", command=["true"], profile="restrictive", network=True)
    with serving(lab, *CODEX, "--no-network") as m:
        assert "--no-network" in m.bad("sandbox_run", command=["true"], network=True)
        rows, _, _ = probe_in(lab, m, steps=[["tls", "api.openai.com", 443, "api.openai.com"]])
        assert "err" in rows[0]
    with serving(lab) as m:
        assert "only the user" in m.bad("sandbox_run", command=["true"], compatibility_mode="native")
        for mode in ("claude", "codex", "gemini"):
            assert m.good("sandbox_run", command=["true"], compatibility_mode=mode)[0]["exit_code"] == 0
    with serving(lab, "--compatibility-mode", "native") as m:
        rows, _, _ = probe_in(lab, m, steps=[["tls", "evil.test", 443, "evil.test"]])
        assert "ok" in rows[0], "native, because the user said so"
        assert "only the user" in m.bad("sandbox_run", command=["true"], compatibility_mode="claude")
    assert lab.arrived("11.2.0.1") == 0


def test_the_servers_own_variables_stay_outside(lab):
    with serving(lab, *CODEX, env={"OPENAI_API_KEY": "sk-secret", "SECRET": "x"}) as m:
        got, _ = m.good("sandbox_run", command=["env"], env={"MINE": "1"})
        assert "MINE=1" in got["stdout"] and "secret" not in got["stdout"] and "SECRET" not in got["stdout"]


# ---- sandboxes that stay ----

@pytest.fixture
def staying(any_user):
    boxes = Boxes(any_user)
    yield any_user, boxes
    boxes.close()


def test_life_of_a_sandbox(staying):
    lab, _ = staying
    with serving(lab, *CODEX, "--allow-host", "ok.test") as m:
        info, _ = m.good("sandbox_create", name="work", env={"A": "b c"}, memory_mb=256, vcpus=1)
        assert info["status"] == "running" and info["mode"] == "codex" and info["network"] is True
        assert "work" in m.bad("sandbox_create", name="work")
        got, text = m.good("sandbox_exec", name="work", command=["sh", "-c", "echo $A$B; echo e >&2; echo kept > ~/f; exit 3"], env={"B": "!"}, cwd="/tmp")
        assert (got["stdout"], got["stderr"], got["exit_code"], got["sandbox"]) == ("b c!\n", "e\n", 3, "work")
        rows, got, text = probe_in(lab, m, "sandbox_exec", [["tls", "ok.test", 443, "ok.test"], ["resolve", "evil.test"]], name="work")
        assert "ok" in rows[0] and "err" in rows[1]
        assert any(row["destination"].startswith("evil.test") for row in got["network"]["denied"])
        assert "agentkernel network policy work --allow-host evil.test" in text
        got, _ = m.good("sandbox_exec", name="work", command=["true"])
        assert got["network"]["denied"] == [], "only what this call met"
        got, _ = m.good("sandbox_exec", name="work", command=["sleep", "60"], timeout_ms=300)
        assert got["timed_out"] is True and got["exit_code"] == 124
        got, text = m.good("sandbox_exec", name="work", command=["sh", "-c", "setsid sleep 4722 & exec sleep 4722"], timeout_ms=500)
        assert got["timed_out"] is True and "the command was ended;" in text, text
        assert not lab.running("sleep 4722")
        assert [(s["name"], s["status"]) for s in m.good("sandbox_list")[0]["sandboxes"]] == [("work", "running")]
        assert m.good("network_check", policy="work", target="ok.test")[0]["verdict"] == "allow"
        assert m.good("sandbox_stop", name="work")[0]["status"] == "stopped"
        assert "sandbox_start" in m.bad("sandbox_exec", name="work", command=["true"])
        assert "sandbox_start" in m.bad("sandbox_file_read", name="work", path="/etc/hostname")
        assert m.good("sandbox_start", name="work")[0]["status"] == "running"
        assert m.good("sandbox_exec", name="work", command=["sh", "-c", "echo $A"])[0]["stdout"] == "b c\n"
        assert "running" in m.bad("sandbox_remove", name="work")
        assert m.good("sandbox_remove", name="work", force=True)[0]["status"] == "removed"
        assert "no sandbox" in m.bad("sandbox_exec", name="work", command=["true"])
        assert "not a name" in m.bad("sandbox_create", name="../x")
        assert m.good("sandbox_create", name="later", start=False)[0]["status"] == "stopped"
        assert m.good("sandbox_list")[0]["sandboxes"][0]["status"] == "stopped"


def test_files(staying):
    lab, _ = staying
    with serving(lab, "--compatibility-mode", "claude") as m:
        m.good("sandbox_create", name="f")
        for path in ("/tmp/a b/ünï.txt", "/tmp//x/../y"):
            m.good("sandbox_file_write", name="f", path=path, content="héllo\nworld")
            got, text = m.good("sandbox_file_read", name="f", path=path)
            assert got["content"] == text == "héllo\nworld" and got["encoding"] == "utf8" and got["size"] == 12 and got["truncated"] is False
        data = bytes(range(256)) * 3
        m.good("sandbox_file_write", name="f", path="/tmp/b", content=base64.b64encode(data).decode(), encoding="base64")
        got, _ = m.good("sandbox_file_read", name="f", path="/tmp/b")
        assert got["encoding"] == "base64" and base64.b64decode(got["content"]) == data
        m.good("sandbox_file_write", name="f", path="/tmp/empty", content="")
        assert m.good("sandbox_file_read", name="f", path="/tmp/empty")[0]["content"] == ""
        text = "ä€😀" * 40000
        m.good("sandbox_file_write", name="f", path="/tmp/long", content=text)
        parts, at = [], 0
        while at is not None:
            got, _ = m.good("sandbox_file_read", name="f", path="/tmp/long", offset=at)
            assert got["encoding"] == "utf8" and len(got["content"].encode()) <= 65536
            parts.append(got["content"])
            at = got.get("next_offset")
        assert "".join(parts) == text
        for content in ("%%%", "QQ", "QQ==QQ==", "QR=="):
            assert "base64" in m.bad("sandbox_file_write", name="f", path="/tmp/q", content=content, encoding="base64")
        for path, why in (("rel", "absolute"), ("/tmp", "folder"), ("/no/such", "no such"), ("/dev/null", "device"), ("/proc/version", "kernel")):
            assert why in m.bad("sandbox_file_read", name="f", path=path).lower(), path


def test_cancelling_ends_a_command_in_a_sandbox_that_stays(staying):
    lab, _ = staying
    with serving(lab, *CODEX) as m:
        m.good("sandbox_create", name="c")
        ident = m.ask("tools/call", name="sandbox_exec", arguments={"name": "c", "command": ["sleep", "4714"], "timeout_ms": 600000})
        wait_for(lambda: lab.running("sleep 4714"))
        m.notify("notifications/cancelled", requestId=ident)
        wait_for(lambda: not lab.running("sleep 4714"))
        assert m.good("sandbox_exec", name="c", command=["echo", "on"])[0]["stdout"] == "on\n"


def test_a_users_sandbox_is_left_alone_unless_it_was_opened(staying):
    lab, boxes = staying
    boxes.up("wide")
    boxes.up("home", "--compatibility-mode", "codex", "--profile", "permissive")
    boxes.up("fine", "--compatibility-mode", "codex", "--allow-host", "ok.test", "--mcp")
    with serving(lab, *CODEX) as m:
        for name in ("wide", "home"):
            for tool, more in (("sandbox_exec", dict(command=["true"])), ("sandbox_file_read", dict(path="/etc/hostname")), ("sandbox_stop", {}),
                               ("sandbox_file_write", dict(path="/tmp/x", content="")), ("sandbox_remove", dict(force=True)), ("sandbox_start", {})):
                assert "not created by this server" in m.bad(tool, name=name, **more)
        assert m.good("sandbox_exec", name="fine", command=["echo", "x"])[0]["stdout"] == "x\n"
    os.mkdir(lab.path("project", "else"))
    os.chmod(lab.path("project", "else"), 0o777)
    with serving(lab, *CODEX, "--dir", lab.path("project", "else")) as m:
        assert "of this project" in m.bad("sandbox_exec", name="fine", command=["cat", "/etc/hostname"])
    with serving(lab, *CODEX, "--no-network") as m:
        assert "wider" in m.bad("sandbox_exec", name="fine", command=["true"])
    with serving(lab, *CODEX, "--block-host", "api.openai.com") as m:
        assert "block" in m.bad("sandbox_exec", name="fine", command=["true"])
        m.good("sandbox_create", name="mine")
        rows, _, _ = probe_in(lab, m, "sandbox_exec", [["resolve", "api.openai.com"]], name="mine")
        assert "err" in rows[0]
