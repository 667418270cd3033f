"""h11: a folder that a past run could write is the user's own again when they say so, on the command line only, and not while a sandbox can write it."""
import json
import os
import shutil

import mcp
import pytest

from api import serving
from test_h11_past_runs import check_closed, later, leave, make
from test_h18_git_runs import worktree

CODEX = ("--compatibility-mode", "codex")
WIDE = '{"version":1,"name":"rules","allow":["evil.test"]}'
PROGRAM = "printf '#!/bin/sh\\necho mine\\n' > tool; chmod 755 tool"


@pytest.fixture
def home(any_user):
    return make(any_user)


def written(lab):
    return json.loads(lab.ak(["trust", "--written", "--json"]).out)


def record(lab):
    with open(lab.path("state", "agentkernel", "written"), "rb") as f:
        return f.read()


def forget(lab, path, code=0, says="", **kw):
    r = lab.ak(["trust", "--forget", path, "--yes"], **kw)
    assert r.code == code and says in r.out + r.err, r
    return r


def test_h11_a_folder_that_was_forgotten_brings_programs_in(home):
    lab = home.lab
    leave(home, PROGRAM)
    check_closed(home, "tool")
    r = later(home, "sh", "-c", "true", options=("--tool", "tool"))
    assert "agentkernel trust --forget" in r.err + later(home, "tool").err, r
    assert home.path("left") in lab.ak(["trust", "--written"]).out.splitlines() and home.path("left") in written(lab)
    forget(lab, "left", says="forgot " + home.path("left"), cwd=home.path())
    assert home.path("left") not in written(lab)
    r = later(home, "tool")
    assert (r.code, r.out) == (0, "mine\n"), r
    assert any(e["event"] == "written_forget" and e["path"] == home.path("left")
               for e in map(json.loads, lab.ak(["audit", "--json"]).out.splitlines()))
    leave(home, PROGRAM)  # the next run that can write it is remembered again
    check_closed(home, "tool")


def test_h11_forgetting_needs_a_word_and_a_folder_that_is_recorded(home):
    lab = home.lab
    leave(home, PROGRAM)
    home.program("left/sub/x", "", 0o644)
    r = lab.ak(["trust", "--forget", home.path("left")])
    assert r.code == 2 and "--yes" in r.err, r
    r = lab.ak(["trust", "--forget", "--yes"], cwd=home.path("left"))
    assert r.code == 2 and "--written" in r.err, r
    forget(lab, home.path("left/sub"), 2, "with all of '%s'" % home.path("left"))
    forget(lab, home.path("private"), 1, "no sandbox could write")
    forget(lab, home.path("nowhere"), 1, "no sandbox could write")
    check_closed(home, "tool")
    forget(lab, home.path())  # with all in it
    assert written(lab) == []


def test_h11_a_link_that_the_run_left_does_not_choose_what_is_forgotten(home):
    leave(home, PROGRAM)
    leave(home, "ln -s ../left l", "now")
    forget(home.lab, home.path("now/l"), 1, "symbolic link")
    check_closed(home, "tool")


def test_h11_a_folder_that_was_moved_or_is_gone_can_be_forgotten(home):
    lab = home.lab
    leave(home, PROGRAM)
    os.rename(home.path("left"), home.path("moved"))
    check_closed(home, "tool", path=("moved",))
    forget(lab, home.path("moved"))
    r = later(home, "tool", path=("moved",))
    assert (r.code, r.out) == (0, "mine\n"), r
    leave(home, "true", "moved")
    shutil.rmtree(home.path("moved"))
    assert home.path("moved") in written(lab)
    forget(lab, home.path("moved"))
    assert home.path("moved") not in written(lab)


def test_h11_a_folder_that_was_moved_out_is_not_forgotten_with_the_one_around_it(home):
    lab = home.lab
    home.program("left/p/x", "", 0o644)
    leave(home, "true")
    leave(home, PROGRAM, "left/p")
    os.rename(home.path("left/p"), home.path("moved"))
    forget(lab, home.path("left"))
    check_closed(home, "tool", path=("moved",))
    forget(lab, home.path("moved"))
    assert home.path("left/p") not in written(lab)


def test_h11_what_a_sandbox_can_still_write_is_not_forgotten(any_boxes):
    b, home = any_boxes, make(any_boxes.lab)
    lab = home.lab
    home.program("left/sub/x", "", 0o644)
    p = lab.start([*CODEX, "--name", "busy", "--dir", home.path("left/sub"), "--", "sh", "-c", "echo up; read end"], stdin="pipe")
    p.wait_output(b"up")
    for folder in ("left/sub", "left", ""):
        forget(lab, home.path(folder), 1, "run 'busy'")
    p.close_stdin()
    p.wait()
    b.create("box", *CODEX, "--dir", home.path("left"))
    for folder in ("left", ""):
        forget(lab, home.path(folder), 1, "sandbox 'box'")
    b.ak("remove", "box")
    assert home.path("left/sub") in written(lab)
    forget(lab, home.path("left"))


@pytest.mark.parametrize("how", ["detached", "persistent"])
def test_h11_the_git_folder_that_a_running_sandbox_writes_is_not_forgotten(any_boxes, how):
    """That of a worktree is outside the project, and only the running sandbox knows it."""
    b, lab = any_boxes, any_boxes.lab
    repo, side = worktree(lab)
    if how == "persistent":
        b.up("box", *CODEX, "--dir", side)
    else:
        b.ak("run", "--detach", "--name", "box", *CODEX, "--dir", side, "--", "sleep", "300")
    b.sh("box", "echo '%s' > %s/.git/rules.json" % (WIDE, repo))
    for folder in (repo, repo + "/.git"):
        forget(lab, folder, 1, "sandbox 'box' can write in '%s' until it is stopped" % folder)
    assert repo + "/.git" in written(lab)
    r = lab.ak(["network", "policy", "box", "--watch", repo + "/.git/rules.json"])
    assert r.code == 1 and "a sandbox could write" in r.err, r
    b.ak("stop", "box")
    forget(lab, repo)
    assert repo + "/.git" not in written(lab)


def test_h11_nothing_is_forgotten_while_it_is_not_known_what_runs(home):
    lab = home.lab
    leave(home, PROGRAM)
    live = lab.path("state", "agentkernel", "live")
    os.rename(live, live + ".away")
    os.mkdir(live)
    forget(lab, home.path("left"), 1, "what runs now is not known")
    assert home.path("left") in written(lab)
    os.rmdir(live)
    forget(lab, home.path("left"))  # nothing has run since


def test_h11_nothing_inside_and_no_server_can_forget(any_user):
    """The state folder is not visible inside; the API and the tools have no such call."""
    lab, home = any_user, make(any_user)
    leave(home, PROGRAM)
    before = record(lab)
    env = "XDG_STATE_HOME=%s XDG_CONFIG_HOME=/tmp XDG_RUNTIME_DIR=/tmp" % lab.path("state")
    r = lab.run([*CODEX, "--dir", home.path("left"), "--mount", lab.binary + ":/ak", "--", "sh", "-c",
                 "env %s /ak trust --forget %s --yes; env %s /ak trust --written; echo ran" % (env, home.path("left"), env)])
    assert r.out == "ran\n", r
    assert record(lab) == before
    with serving(lab) as api:
        doc = json.dumps(api.get("/openapi.json").json)
        assert "/sandboxes" in doc and '"forget"' not in doc
        for path in ("/trust", "/written", "/trust/forget"):
            for method in ("GET", "POST", "DELETE"):
                assert api(method, path).status == 404
    with mcp.serving(lab) as m:
        tools = m.request("tools/list")["result"]["tools"]
        assert {t["name"] for t in tools} == mcp.TOOLS and '"forget"' not in json.dumps(tools)
    assert record(lab) == before
    check_closed(home, "tool")
