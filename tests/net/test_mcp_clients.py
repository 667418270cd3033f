"""Clients nobody here wrote: the MCP TypeScript SDK (which holds every structured result to its schema) and the MCP inspector's command line."""
import json
import os
import shutil

import pytest
from lab import HERE, PATIENCE_S, wait_for
from mcp import TOOLS
from npm import npm_folder

SDK, INSPECTOR = "@modelcontextprotocol/sdk", "@modelcontextprotocol/inspector"
CODEX = ["--compatibility-mode", "codex", "--allow-host", "ok.test"]


@pytest.fixture(scope="session")
def folder():
    return npm_folder("npm-mcp", SDK, INSPECTOR)


@pytest.fixture
def there(boxes):
    """The lab as an ordinary user where that is possible, with everything removed afterwards."""
    return boxes.lab


def sdk(lab, folder, steps, options=CODEX, timeout=120):
    r = lab.spawn([shutil.which("node"), os.path.join(HERE, "mcp_sdk.mjs"), folder, lab.binary, *options], stdin=json.dumps(steps).encode(),
                  env=lab.env()).wait(timeout)
    assert r.code == 0, r
    return [json.loads(line) for line in r.out.splitlines()]


def every_tool(lab):
    """A call for each of the tools, in an order that makes sense."""
    probe = lab.probe_command([["tls", "ok.test", 443, "ok.test"], ["resolve", "evil.test"]])
    return [
        ("sandbox_run", {"command": probe}), ("sandbox_create", {"name": "sdk", "memory_mb": 256}), ("sandbox_exec", {"name": "sdk", "command": probe}),
        ("sandbox_list", {}), ("sandbox_file_write", {"name": "sdk", "path": "/tmp/a b", "content": "héllo"}),
        ("sandbox_file_read", {"name": "sdk", "path": "/tmp/a b"}), ("sandbox_file_read", {"name": "sdk", "path": "/usr/bin/env", "limit": 100}),
        ("network_log", {"name": "sdk"}), ("network_check", {"policy": "codex", "target": "evil.test:443"}), ("sandbox_stop", {"name": "sdk"}),
        ("sandbox_start", {"name": "sdk"}), ("sandbox_remove", {"name": "sdk", "force": True}),
    ]


def test_the_sdk_lists_and_calls_every_tool(there, folder):
    lab = there
    calls = every_tool(lab)
    assert {name for name, _ in calls} == TOOLS
    welcome, tools, *got = sdk(lab, folder, [{"list": True}] + [{"tool": name, "args": args} for name, args in calls])
    assert welcome["server"]["name"] == "agentkernel" and "codex" in welcome["instructions"]
    assert {t["name"] for t in tools["tools"]} == TOOLS and all(t["outputSchema"] and t["annotations"] for t in tools["tools"])
    hints = {t["name"]: t["annotations"] for t in tools["tools"]}
    assert hints["sandbox_list"]["readOnlyHint"] and not hints["sandbox_run"]["readOnlyHint"] and hints["sandbox_remove"]["destructiveHint"]
    for (name, args), result in zip(calls, got):
        assert not result.get("thrown") and not result["isError"] and result["structuredContent"], (name, args, result)
    run, _, done = got[:3]
    assert run["progress"], "told while it ran"
    for result in (run, done):
        rows = json.loads(result["structuredContent"]["stdout"])
        assert "ok" in rows[0] and "err" in rows[1]
        assert any(d["destination"].startswith("evil.test") for d in result["structuredContent"]["network"]["denied"])
    assert got[5]["structuredContent"]["content"] == "héllo" and got[6]["structuredContent"]["encoding"] == "base64"
    assert got[8]["structuredContent"]["verdict"] == "deny"
    assert lab.arrived("11.66.0.2") == 0


def test_the_sdk_sees_errors_and_cancels(there, folder):
    lab = there
    _, wrong, wider, unknown, cancelled, after = sdk(lab, folder, [
        {"tool": "sandbox_run", "args": {"command": "ls"}}, {"tool": "sandbox_run", "args": {"command": ["true"], "compatibility_mode": "native"}},
        {"tool": "no_such", "args": {}}, {"tool": "sandbox_run", "args": {"command": ["sleep", "4715"], "timeout_ms": 600000}, "cancel_after_ms": 700},
        {"tool": "sandbox_run", "args": {"command": ["echo", "alive"]}}])
    assert wrong["isError"] and "command" in wrong["content"][0]["text"]
    assert wider["isError"] and "only the user" in wider["content"][0]["text"]
    assert unknown["code"] == -32602 and "no_such" in unknown["thrown"]
    assert cancelled.get("thrown") and cancelled["ms"] < PATIENCE_S * 1000, cancelled
    assert after["structuredContent"]["stdout"] == "alive\n"
    wait_for(lambda: not lab.running("sleep 4715"))


def test_the_inspector_lists_and_calls_every_tool(there, folder):
    lab = there

    def inspect(*args):
        # A server for each call: what one made must be kept for the next.
        r = lab.spawn([os.path.join(folder, "node_modules", ".bin", "mcp-inspector"), "--cli", lab.binary, "mcp", "server", "--keep", "--compatibility-mode", "codex", *args],
                      env=lab.env(), stdin=b"").wait(60)
        assert r.code == 0, r
        return json.loads(r.out)

    assert {t["name"] for t in inspect("--method", "tools/list")["tools"]} == TOOLS
    seen = set()
    for name, args in [("sandbox_run", {"command": ["echo", "hi there"]}), *every_tool(lab)[1:2], ("sandbox_exec", {"name": "sdk", "command": ["echo", "x"]}),
                       *every_tool(lab)[3:]]:
        more = [x for k, v in args.items() for x in ("--tool-arg", "%s=%s" % (k, v if isinstance(v, str) else json.dumps(v)))]
        result = inspect("--method", "tools/call", "--tool-name", name, *more)
        assert result["isError"] is False and result["structuredContent"], (name, result)
        seen.add(name)
    assert seen == TOOLS
