"""h28: one ceiling for all tools of the MCP server, a cap on what it makes, and an end of all that with its own."""
import json
import os

import pytest
from lab import wait_for
from mcp import Mcp, serving

CODEX = ("--compatibility-mode", "codex")
CAP = 16


@pytest.fixture
def own_project(any_boxes):
    """A second project of the same user."""
    lab = any_boxes.lab
    os.mkdir(lab.path("project", "else"))
    os.chmod(lab.path("project", "else"), 0o777)
    return any_boxes, lab, lab.path("project", "else")


# ---- what can be seen ----

def test_h28_other_sandboxes_are_neither_listed_nor_asked_nor_read(own_project):
    b, lab, other = own_project
    b.up("hidden", *CODEX, "--allow-host", "hidden-host.test")
    b.probe("hidden", [["resolve", "secret-name.test"]])
    with serving(lab, *CODEX, "--dir", other) as m:
        listed, text = m.good("sandbox_list")
        assert listed["sandboxes"] == [] and "hidden" not in text
        text = m.bad("network_log", name="hidden")
        assert "secret-name" not in text, text
        m.bad("network_check", policy="hidden", target="hidden-host.test")


def test_h28_runs_of_others_are_not_read_and_their_names_not_told(own_project):
    b, lab, other = own_project
    lab.run([*CODEX, "--quiet", "--", *lab.probe_command([["resolve", "secret-name.test"]])])
    name = lab.netlog()[0]["sandbox"]
    with serving(lab, *CODEX) as first, serving(lab, *CODEX) as second:
        mine = first.good("sandbox_run", command=lab.probe_command([["resolve", "evil.test"]]))[0]["sandbox"]
        assert first.good("network_log", name=mine)[0]["total"] >= 1 and first.good("network_check", policy=mine, target="x.test")[0]["verdict"] == "deny"
        for m, run in ((first, name), (second, name), (second, mine), (first, "nobody")):
            for text in (m.bad("network_log", name=run), m.bad("network_check", policy=run, target="x.test")):
                assert "secret-name" not in text and not {name, mine} - {run} & set(text.replace(",", " ").split()), text


def test_h28_the_name_of_a_users_run_cannot_be_claimed_and_its_log_with_it(own_project):
    b, lab, other = own_project
    lab.run([*CODEX, "--quiet", "--", *lab.probe_command([["resolve", "secret-name.test"]])])
    name = lab.netlog()[0]["sandbox"]
    with serving(lab, *CODEX, "--dir", other) as m:
        assert "taken" in m.bad("sandbox_create", name=name)
    assert [r for r in lab.netlog(name=name) if r.get("name") == "secret-name.test"], "the record of the run is still there"


def test_h28_policies_that_calls_cannot_get_are_not_asked(lab):
    os.makedirs(lab.path("config", "agentkernel", "policies"), exist_ok=True)
    with open(lab.path("config", "agentkernel", "policies", "internal.json"), "w") as f:
        json.dump({"version": 1, "name": "internal", "default": "deny", "allow": ["secret-host.test"]}, f)
    os.chmod(lab.path("config", "agentkernel", "policies", "internal.json"), 0o644)
    with open(lab.path("project", "ask.json"), "w") as f:
        json.dump({"version": 1, "name": "ask", "default": "deny", "extends": ["internal"]}, f)
    assert lab.ak(["network", "check", "internal", "secret-host.test"]).code == 0, "the user may"
    with serving(lab, *CODEX) as m:
        for policy in ("internal", "ask.json", "claude", "native"):
            text = m.bad("network_check", policy=policy, target="secret-host.test")
            assert lab.path("config") not in text, text


def test_h28_a_call_does_not_choose_how_much_memory_its_files_take(lab):
    """/tmp is in memory, and without a memory limit nothing else bounds it."""
    with serving(lab, *CODEX) as m:
        assert "tmp_mb" in m.bad("sandbox_run", command=["true"], tmp_mb=1048576)


LIMITS = {"pids": (200, 201), "vcpus": (2, 3), "memory_mb": (300, 301), "disk_mb": (64, 65)}


def test_h28_a_call_asks_for_no_more_than_the_user_gives(any_boxes):
    """Without a file of the project, the default of 1024 processes is the most; with one, what it says."""
    b, lab = any_boxes, any_boxes.lab
    with serving(lab, *CODEX) as m:
        for tool, more in (("sandbox_run", {"command": ["true"]}), ("sandbox_create", {"name": "n", "start": False})):
            said = m.bad(tool, pids=1 << 22, **more)
            assert "pids: 4194304 is more than 1024" in said and "only the user" in said, said
        assert m.good("sandbox_run", command=["echo", "up"], pids=1024)[0]["stdout"] == "up\n"
    with open(lab.path("project", "agentkernel.toml"), "w") as f:
        f.write("[resources]\n" + "".join("%s = %d\n" % (key, most) for key, (most, _) in LIMITS.items()))
    os.chmod(lab.path("project", "agentkernel.toml"), 0o644)
    with serving(lab, *CODEX) as m:
        for key, (most, more) in LIMITS.items():
            assert "%s: %d is more than %d" % (key, more, most) in m.bad("sandbox_create", name="n", start=False, **{key: more})
        m.good("sandbox_create", name="n", start=False, **{key: most for key, (most, _) in LIMITS.items()})
        assert b.list()["n"]["disk_mb"] == 64 and b.list()["n"]["memory_mb"] == 300


def test_h28_files_are_asked_only_where_calls_see_the_project(lab):
    with open(lab.path("project", "keys.json"), "w") as f:
        json.dump({"s3cret-key": "s3cret-value"}, f)
    with serving(lab, "--compatibility-mode", "native") as m:
        text = m.bad("network_check", policy="keys.json", target="x.test")
        assert "s3cret" not in text, text
    with open(lab.path("home", "keys.json"), "w") as f:
        json.dump({"s3cret-key": "s3cret-value"}, f)
    os.chmod(lab.path("home", "keys.json"), 0o644)
    m = Mcp(lab, *CODEX, command=("mcp", "server"), cwd=lab.path("home"))
    m.open()
    text = m.bad("network_check", policy="keys.json", target="x.test")
    assert "s3cret" not in text, "the home is no project"
    assert m.close().code == 0


# ---- how many ----

def test_h28_a_server_makes_only_so_many(any_boxes):
    b, lab = any_boxes, any_boxes.lab
    with serving(lab, *CODEX, "--no-network") as m:
        ids = [m.ask("tools/call", name="sandbox_create", arguments={"name": "s%d" % i, "start": False}) for i in range(3 * CAP)]
        results = [m.answer(i, 60)["result"] for i in ids]
        assert sum(not r["isError"] for r in results) == CAP and len(b.list()) == CAP
        assert all(str(CAP) in r["content"][0]["text"] and "sandbox_remove" in r["content"][0]["text"] for r in results if r["isError"])
        assert len(m.good("sandbox_list")[0]["sandboxes"]) == CAP
        gone = m.good("sandbox_list")[0]["sandboxes"][0]["name"]
        m.good("sandbox_remove", name=gone)
        m.good("sandbox_create", name="after", start=False)
        b.create("users")
        m.bad("sandbox_create", name="more", start=False)


# ---- how long ----

def make_three(m):
    m.good("sandbox_create", name="runs")
    m.good("sandbox_exec", name="runs", command=["sh", "-c", "sleep 4721 >/dev/null 2>&1 </dev/null &"])
    m.good("sandbox_create", name="stopped", start=False)
    m.good("sandbox_create", name="deaf")
    m.good("sandbox_exec", name="deaf", command=["sh", "-c", "trap '' TERM; (while :; do sleep 4721; done) >/dev/null 2>&1 </dev/null &"])


def test_h28_what_a_server_made_is_gone_when_it_is(any_boxes):
    b, lab = any_boxes, any_boxes.lab
    b.create("users")
    with serving(lab, *CODEX) as m:
        make_three(m)
    wait_for(lambda: list(b.list()) == ["users"])
    assert not lab.running("sleep 4721")


@pytest.mark.parametrize("sig", [15, 9])
def test_h28_what_a_server_made_is_gone_also_when_it_is_killed(any_boxes, sig):
    b, lab = any_boxes, any_boxes.lab
    b.create("users")
    m = Mcp(lab, *CODEX)
    m.open()
    make_three(m)
    m.proc.signal(sig)
    m.proc.wait()
    m.proc.close_stdin()
    wait_for(lambda: list(b.list()) == ["users"], timeout=20)
    assert not lab.running("sleep 4721")


def test_h28_what_is_left_when_all_are_killed_goes_with_the_next_daemon_or_server(any_boxes):
    b, lab = any_boxes, any_boxes.lab
    for who in ("daemon", "server"):
        m = Mcp(lab, *CODEX)
        m.open()
        make_three(m)
        guards = [p for p in lab.host(["pgrep", "-x", "ak-mcp-guard"]).out.split()]
        assert len(guards) == 1
        lab.host(["kill", "-9", *guards])
        m.proc.signal(9)
        m.proc.wait()
        m.proc.close_stdin()
        assert len(b.list()) == 3
        if who == "daemon":
            b.kill_daemon()
            b.revive()
        else:
            with serving(lab, *CODEX) as m:
                m.good("sandbox_list")
        wait_for(lambda: b.list() == {}, timeout=20)
        assert not lab.running("sleep 4721")


def test_h28_what_is_kept_on_purpose_stays_for_servers_that_could_make_it(own_project):
    b, lab, other = own_project
    with serving(lab, *CODEX, "--keep", "--allow-host", "ok.test") as m:
        m.good("sandbox_create", name="kept")
    assert b.list()["kept"]["status"] == "running" and b.list()["kept"]["mcp"] == {"from": "server", "project": lab.path("project"), "keep": True}
    with serving(lab, *CODEX, "--allow-host", "ok.test") as m:
        assert m.good("sandbox_exec", name="kept", command=["echo", "in"])[0]["stdout"] == "in\n"
    for options in (CODEX, ("--compatibility-mode", "claude"), (*CODEX, "--allow-host", "ok.test", "--no-network"), (*CODEX, "--allow-host", "ok.test", "--dir", other)):
        with serving(lab, *options) as m:
            m.bad("sandbox_exec", name="kept", command=["true"])
            assert m.good("sandbox_list")[0]["sandboxes"] == []
    assert list(b.list()) == ["kept"]


def test_h28_kept_ones_count_for_every_server_of_the_project(any_boxes):
    b, lab = any_boxes, any_boxes.lab
    for part in range(2):
        with serving(lab, *CODEX, "--no-network", "--keep") as m:
            for i in range(CAP // 2):
                m.good("sandbox_create", name="k%d-%d" % (part, i), start=False)
    with serving(lab, *CODEX, "--no-network", "--keep") as m:
        m.bad("sandbox_create", name="more", start=False)
    assert len(b.list()) == CAP
