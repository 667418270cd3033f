"""h8: tools of the MCP server enter only sandboxes that it made itself, or that the user marked for it, and only as they were then."""
import os

import pytest
from lab import PYTHON
from mcp import serving

CODEX = ("--compatibility-mode", "codex")
ENTER = [("sandbox_exec", dict(command=["sh", "-c", "echo in; env"])), ("sandbox_file_read", dict(path="/etc/hostname")),
         ("sandbox_file_write", dict(path="/tmp/x", content="x")), ("sandbox_start", {}), ("sandbox_stop", {}), ("sandbox_remove", dict(force=True)),
         ("network_log", {})]


def refused_everywhere(m, name, why=""):
    """No tool gets at NAME, and none says what is in it."""
    for tool, more in ENTER:
        text = m.bad(tool, name=name, **more)
        assert why in text and "s3cret" not in text, (tool, text)
    text = m.bad("network_check", policy=name, target="ok.test")
    assert "s3cret" not in text, text
    listed, text = m.good("sandbox_list")
    assert name not in [s["name"] for s in listed["sandboxes"]] and name not in text, listed


def reach(lab, m, name, host):
    got, _ = m.good("sandbox_exec", name=name, command=lab.probe_command([["tls", host, 443, host]]))
    return '"ok"' in got["stdout"]


@pytest.mark.parametrize("how", [
    ("-e", "TOKEN=s3cret"), ("--allow-host", "evil.test"), ("--allow-cidr", "10.0.0.0/8"), ("--profile", "permissive"), ()])
def test_h8_a_sandbox_of_the_users_is_not_entered_whatever_its_mode(any_boxes, how):
    b, lab = any_boxes, any_boxes.lab
    b.up("mine", *CODEX, *how)
    with serving(lab, *CODEX) as m:
        refused_everywhere(m, "mine")
    assert b.list()["mine"]["status"] == "running" and lab.arrived("11.66.0.2") == 0


def test_h8_a_sandbox_that_was_widened_by_a_live_change_is_not_entered(any_boxes):
    b, lab = any_boxes, any_boxes.lab
    b.up("mine", *CODEX)
    b.ak("network", "policy", "mine", "--allow-host", "evil.test")
    with serving(lab, *CODEX) as m:
        refused_everywhere(m, "mine")


def test_h8_a_name_that_was_the_servers_and_is_the_users_now_is_not_entered(any_boxes):
    b, lab = any_boxes, any_boxes.lab
    with serving(lab, *CODEX) as m:
        m.good("sandbox_create", name="work")
        b.ak("remove", "--force", "work")
        b.up("work", *CODEX, "-e", "TOKEN=s3cret")
        refused_everywhere(m, "work")
    assert b.list()["work"]["status"] == "running", "and it does not end with the server"


def test_h8_what_another_server_made_is_not_entered(any_boxes):
    lab = any_boxes.lab
    with serving(lab, *CODEX) as first, serving(lab, *CODEX) as second:
        first.good("sandbox_create", name="work", env={"TOKEN": "s3cret"})
        refused_everywhere(second, "work")
        assert "already" in second.bad("sandbox_create", name="work")
        assert first.good("sandbox_exec", name="work", command=["echo", "on"])[0]["stdout"] == "on\n"


def test_h8_the_users_mark_opens_that_sandbox_to_servers_of_its_project_only(any_boxes):
    b, lab = any_boxes, any_boxes.lab
    r = b.ak("create", "given", *CODEX, "--mcp", "-e", "TOKEN=s3cret", "--allow-host", "ok.test")
    assert "MCP" in r.err and "1 variable" in r.err and "s3cret" not in r.err, "what is handed over is told"
    b.ak("start", "given")
    assert b.list()["given"]["mcp"] == {"from": "user", "project": lab.path("project")}
    with serving(lab, *CODEX) as m:
        assert "TOKEN=s3cret" in m.good("sandbox_exec", name="given", command=["env"])[0]["stdout"]
        assert reach(lab, m, "given", "ok.test") and [s["name"] for s in m.good("sandbox_list")[0]["sandboxes"]] == ["given"]
    assert b.list()["given"]["status"] == "running", "what the user made stays"
    os.mkdir(lab.path("project", "else"))
    os.chmod(lab.path("project", "else"), 0o777)
    with serving(lab, *CODEX, "--dir", lab.path("project", "else")) as m:
        refused_everywhere(m, "given")
    with serving(lab, *CODEX, "--no-network") as m:
        refused_everywhere(m, "given")
    with serving(lab, *CODEX, "--block-host", "api.openai.com") as m:
        refused_everywhere(m, "given")


@pytest.mark.parametrize("how", [("--allow-host", "evil.test"), ("--allow-cidr", "10.0.0.0/8"), ("--default", "allow"), ("--remove", "api.openai.com:443")])
def test_h8_what_is_widened_later_is_left_alone_until_the_user_marks_it_again(any_boxes, how):
    b, lab = any_boxes, any_boxes.lab
    b.up("given", *CODEX, "--mcp", "--block-host", "other.test")
    narrower = how[0] == "--remove"
    with serving(lab, *CODEX) as m:
        m.good("sandbox_create", name="own")
        for name in ("given", "own"):
            r = b.ak("network", "policy", name, *how)
            assert ("--mcp" in r.err) != narrower, "the user is told that tools leave it alone now"
            if narrower:
                assert m.good("sandbox_exec", name=name, command=["echo", "in"])[0]["stdout"] == "in\n"
                continue
            refused_everywhere(m, name, why="--mcp" if name == "given" else "")
            b.ak("network", "policy", name, "--mcp")
            assert m.good("sandbox_exec", name=name, command=["echo", "in"])[0]["stdout"] == "in\n"
            b.ak("network", "policy", name, "--block-host", "api.openai.com")
            assert m.good("sandbox_exec", name=name, command=["echo", "in"])[0]["stdout"] == "in\n", "narrowing it changes nothing"
            b.ak("network", "policy", name, "--reset")
    assert lab.arrived("11.66.0.2") == 0


def test_h8_a_removed_block_is_a_widening(any_boxes):
    b, lab = any_boxes, any_boxes.lab
    b.up("given", *CODEX, "--mcp", "--block-host", "api.openai.com")
    with serving(lab, *CODEX, "--no-network") as m:
        refused_everywhere(m, "given")
    with serving(lab, *CODEX) as m:
        assert m.good("sandbox_exec", name="given", command=["true"])[0]["exit_code"] == 0
        b.ak("network", "policy", "given", "--remove", "api.openai.com")
        assert m.good("sandbox_exec", name="given", command=["true"])[0]["exit_code"] == 0, "it is what this server could make itself"
    with serving(lab, "--compatibility-mode", "claude") as m:
        refused_everywhere(m, "given")


def test_h8_a_change_with_the_mark_is_used_at_once(any_boxes):
    b, lab = any_boxes, any_boxes.lab
    with serving(lab, *CODEX) as m:
        m.good("sandbox_create", name="own")
        _, text = m.good("sandbox_exec", name="own", command=lab.probe_command([["resolve", "ok.test"]]))
        assert "agentkernel network policy own --allow-host ok.test --mcp" in text
        b.ak("network", "policy", "own", "--allow-host", "ok.test", "--mcp")
        assert reach(lab, m, "own", "ok.test")


def test_h8_only_a_sandbox_for_mcp_can_be_marked_anew(any_boxes):
    b = any_boxes
    b.create("plain", *CODEX)
    b.fails("network", "policy", "plain", "--mcp", says="--mcp", code=2)


@pytest.mark.parametrize("mode", ["claude", "codex"])
def test_h8_no_argument_gets_variables_mounts_or_modes_that_the_server_does_not_give(any_boxes, mode):
    lab = any_boxes.lab
    with open(lab.path("home", "secret"), "w") as f:
        f.write("s3cret")
    os.chmod(lab.path("home", "secret"), 0o644)
    with serving(lab, "--compatibility-mode", mode, env={"TOKEN": "s3cret"}) as m:
        for more in (dict(profile="permissive"), dict(compatibility_mode="native"), dict(dir="/"), dict(mcp=True), dict(keep=True), dict(mounts=["/"]),
                     dict(allow_host=["evil.test"])):
            for tool, first in (("sandbox_run", dict(command=["env"])), ("sandbox_create", dict(name="x"))):
                result = m.call(tool, **first, **more)
                assert "error" in result or result["result"]["isError"] is True, (tool, more, result)
        m.good("sandbox_create", name="own", env={"A": "1", "HOME": lab.path("home"), "LD_PRELOAD": "x"})
        look = [PYTHON, "-c", "import os, sys; print(os.environ.get('TOKEN'), [open(p).read() for p in sys.argv[1:] if os.path.exists(p)])", lab.path("home", "secret")]
        for tool, first in (("sandbox_run", {}), ("sandbox_exec", dict(name="own"))):
            for cwd in ("/", "/proc/1/cwd", "/tmp/../.."):
                result = m.call(tool, command=look, cwd=cwd, env={"B": "$TOKEN"}, **first)["result"]
                assert "s3cret" not in str(result), result
