"""h12: commands that run at the same time and share a project, a mount or an agent's state are told, and nothing that a killed one left is."""
import contextlib
import json
import os
import socket

import pytest

from test_h18_git_runs import worktree

CLAUDE = ("--compatibility-mode", "claude")
CODEX = ("--compatibility-mode", "codex")
NATIVE = ("--compatibility-mode", "native")


@contextlib.contextmanager
def running(lab, name, *args, **kw):
    p = lab.start(["--name", name, *args, "--", "sh", "-c", "echo up; read end"], stdin="pipe", **kw)
    try:
        p.wait_output(b"up")
        yield p
    finally:
        p.close_stdin()
        p.wait()


def told(lab, *args, **kw):
    """What a short command says at its start: nothing, or one line."""
    r = lab.run([*args, "--", "true"], **kw)
    assert r.code == 0 and len(r.err.splitlines()) <= 1, r
    return r.err


def give(lab, path):
    """PATH belongs to the lab's user."""
    if lab.is_root and lab.who != "root":
        os.chown(path, lab.uid, lab.gid)


def rows(b):
    return {row["name"]: row for row in json.loads(b.ak("list", "--json").out)}


@pytest.fixture(params=["cold", "warm"])
def both(request, any_boxes):
    if request.param == "warm":
        any_boxes.ak("daemon", "start")
        any_boxes.ak("daemon", "prewarm", "--mode", "codex", "--count", "2")
    return any_boxes


def test_h12_two_commands_in_one_project_are_told(both):
    b, lab = both, both.lab
    with running(lab, "first", *CODEX):
        assert "shared with first (codex)" in told(lab, *CLAUDE)
        assert "shared with first (codex)" in told(lab, *CODEX, "--allow-host", "ok.test")
        assert "shared with first (codex)" in told(lab, *CODEX, "--no-network")
        assert told(lab, *CODEX) == "", "of one policy"
        assert told(lab, *NATIVE) == "", "native mounts no project"
        assert told(lab, *CLAUDE, "--quiet") == ""
        with running(lab, "second", *CLAUDE, "--quiet"):
            assert "shared with second (claude)" in told(lab, *CODEX), "one that says nothing itself is seen all the same"
            listed = rows(b)
            assert listed["first"]["shared_with"] == ["second"] and listed["second"]["shared_with"] == ["first"], listed
            assert "second shares its project folder with sandboxes that have another policy: first" in b.ak("list").err
    assert told(lab, *CLAUDE) == ""
    assert "shares" not in b.ak("list").err


def test_h12_folders_that_are_not_common_are_not_told(any_boxes):
    lab = any_boxes.lab
    for name in ("in", "in-side"):
        os.mkdir(lab.path("project", name))
        give(lab, lab.path("project", name))
    with running(lab, "first", *CODEX, cwd=lab.path("project", "in")):
        assert told(lab, *CLAUDE, cwd=lab.path("project", "in-side")) == ""
        assert "first (codex)" in told(lab, *CLAUDE), "a folder around it"
        assert "first (codex)" in told(lab, *NATIVE, "--mount", lab.path("project", "in") + ":/m:rw")
        assert "first" not in told(lab, *NATIVE, "--mount", lab.path("project", "in") + ":/m"), "read-only"


def test_h12_a_sandbox_that_starts_beside_a_command_is_told(any_boxes):
    b, lab = any_boxes, any_boxes.lab
    b.create("box", *CLAUDE)
    with running(lab, "first", *CODEX):
        assert "shared with first (codex)" in b.ak("start", "box").err
        assert rows(b)["box"]["shared_with"] == ["first"]
        assert rows(b)["first"]["shared_with"] == ["box"]


def test_h12_the_git_folder_of_a_running_sandbox_s_worktree_is_told(any_boxes):
    """It is outside the project, so the sandbox's state does not name it; the sandbox is named once, and not to itself."""
    b, lab = any_boxes, any_boxes.lab
    repo, side = worktree(lab)
    b.create("box", *CODEX, "--dir", side)
    assert "shared" not in b.ak("start", "box").err
    assert "shared_with" not in rows(b)["box"]
    line = told(lab, *CLAUDE, cwd=repo)
    assert line.count("box (codex)") == 1, line
    assert lab.run([*CLAUDE, "--", "true"], cwd=side).err.count("box (codex)") == 1, "it shares the project and the git folder"
    assert told(lab, *CODEX, cwd=repo) == "", "of one policy"
    with running(lab, "first", *CLAUDE, "--quiet", cwd=repo):
        listed = rows(b)
        assert listed["box"]["shared_with"] == ["first"] and listed["first"]["shared_with"] == ["box"], listed
    b.ak("network", "policy", "box", "--allow-host", "ok.test")
    assert "box (codex)" in told(lab, *CODEX, cwd=repo), "its policy is another one now"
    b.ak("stop", "box")
    assert told(lab, *CLAUDE, cwd=repo) == ""


def test_h12_what_a_killed_command_leaves_is_not_told(any_boxes):
    """Its entry stays in the file, and what it started may live for a moment: only the lock of its process counts."""
    b, lab = any_boxes, any_boxes.lab
    # The one that ends first leaves a free slot to later commands, so that they do not overwrite the entry of the killed one.
    with running(lab, "before", *CODEX):
        p = lab.start(["--name", "first", *CODEX, "--", "sh", "-c", "echo up; read end"], stdin="pipe")
        p.wait_output(b"up")
    assert "first (codex)" in told(lab, *CLAUDE)
    p.signal(9)
    p.wait()
    assert told(lab, *CLAUDE) == ""
    assert "shared_with" not in json.dumps(rows(b))
    with open(lab.path("state", "agentkernel", "live"), "rb") as f:
        assert b"first\0codex\0" in f.read(), "the test looks at the wrong place"
    with running(lab, "next", *CLAUDE):
        assert "shared with next (claude)" in told(lab, *CODEX) and "first" not in told(lab, *CODEX), "its slot is used again"


def test_h12_the_socket_of_a_killed_supervisor_is_not_told(any_boxes):
    b, lab = any_boxes, any_boxes.lab
    b.up("box", *CODEX)
    assert "box (codex)" in told(lab, *CLAUDE)
    b.ak("stop", "box")
    b.ak("daemon", "stop")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
        s.bind(b.runtime("sb", "box.sock"))
        give(lab, b.runtime("sb", "box.sock"))
        s.listen()
        assert "box (codex)" in told(lab, *CLAUDE), "the test looks at the wrong place"
    assert told(lab, *CLAUDE) == ""
    os.unlink(b.runtime("sb", "box.sock"))


def test_h12_an_agents_state_in_two_projects_is_told(any_boxes):
    b, lab = any_boxes, any_boxes.lab
    other = lab.path("home", "other")
    os.mkdir(other)
    give(lab, other)
    shared = (*CLAUDE, "--agent-state", "shared")
    with running(lab, "first", *shared):
        line = told(lab, *shared, cwd=other)
        assert "agent's state is shared with first (%s)" % lab.path("project") in line and "--agent-state project" in line
        assert told(lab, *shared) == "", "the same project and policy"
        assert told(lab, *CLAUDE, "--agent-state", "project", cwd=other) == ""
        assert told(lab, *CLAUDE, "--agent-state", "none", cwd=other) == ""
        assert told(lab, *CODEX, "--agent-state", "shared", cwd=other) == "", "another agent's"
        with running(lab, "second", *shared, cwd=other):
            listed = rows(b)
            assert listed["first"]["agent_state_shared_with"] == ["second"] and "shared_with" not in listed["first"], listed
            assert "first shares its agent's state with runs of another project or policy: second" in b.ak("list").err
    assert told(lab, *shared, cwd=other) == ""


def test_h12_of_two_that_start_at_once_one_is_told(any_boxes):
    """Each registers before it looks, so no moment is left in which neither sees the other."""
    lab = any_boxes.lab
    for _ in range(5):
        pair = [lab.start([*mode, "--", "sh", "-c", "echo up; read end"], stdin="pipe") for mode in (CODEX, CLAUDE)]
        for p in pair:
            p.wait_output(b"up")
        for p in pair:
            p.close_stdin()
        assert any("shared with" in p.wait().err for p in pair)
