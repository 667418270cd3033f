"""h18: folders that a sandbox forges: a git folder in the project's own place, links that lead deep, second names of protected files. The next start succeeds and loses no protection."""
import contextlib
import os

import pytest

from screen import Screen
from test_h18_git_runs import CLAUDE, content, git
from test_h_mounts import mkdir, own, put

TOLD = "files that your own tools may run later were created or changed: "
DEEP = "deep" + "/d" * 100

# Git takes the folder itself for a git folder where it finds no valid .git in it.
FORGERIES = {
    "bare": "git init -q --bare . && git config core.fsmonitor evil",
    "by hand": "mkdir objects refs hooks; echo 'ref: refs/heads/x' > HEAD; printf '[core]\\n\\tfsmonitor = evil\\n' > config; echo evil > hooks/post-checkout",
    "beside": "rm .git/HEAD; mkdir objects refs; echo 'ref: refs/heads/x' > HEAD; printf '[core]\\n\\tfsmonitor = evil\\n' > config",
    "common": "mkdir -p c/objects c/refs; echo 'ref: refs/heads/x' > HEAD; echo c > commondir; printf '[core]\\n\\tfsmonitor = evil\\n' > c/config",
    "links": "mkdir -p o r; ln -s o objects; ln -s r refs; mkdir refs/heads; ln -s refs/heads/x HEAD; printf '[core]\\n\\tfsmonitor = evil\\n' > config",
}


def inside(lab, p, text, mounted=False):
    place = ("--mount", p + ":rw", "-w", p) if mounted else (*CLAUDE, "--dir", p)
    r = lab.run([*place, "--", "sh", "-c", text])
    assert r.code == 0, r
    return r


@pytest.mark.parametrize("mounted", [False, True], ids=["project", "mount"])
@pytest.mark.parametrize("forgery", FORGERIES)
def test_h18_a_folder_that_becomes_a_git_folder_is_told(any_user, forgery, mounted):
    lab, p = any_user, mkdir(any_user, "home", "work")
    if forgery == "beside":
        inside(lab, p, "git init -q", mounted)
    r = inside(lab, p, FORGERIES[forgery], mounted)
    assert TOLD + "HEAD" in r.err, r
    # The attack is one: git on the host finds the folder and its settings.
    git(lab, p, "rev-parse", "--git-dir")
    # Ordinary folders and files of these names are no news.
    other = mkdir(lab, "home", "other")
    r = inside(lab, other, "mkdir config hooks info objects refs modules; echo x > HEAD.txt; echo x > config/x", mounted)
    assert TOLD not in r.err, r


def test_h18_settings_of_a_bare_repository_are_read_only(any_boxes):
    b, lab = any_boxes, any_boxes.lab
    p = mkdir(lab, "home", "work.git")
    git(lab, p, "init", "-q", "--bare")
    put(lab, p + "/hooks/post-receive", "mine\n")
    for folder, dirs, files in os.walk(p):
        own(lab, folder, *(os.path.join(folder, n) for n in dirs + files))
    before = content(p, "config")
    attack = "for f in config hooks/post-receive hooks/new info/attributes; do echo evil > $f; mv $f gone; rm -f $f; done; mv hooks gone; mv config gone; echo x > HEAD2"
    r = inside(lab, p, attack)
    assert "is itself a git folder" in r.err and TOLD not in r.err, r
    b.up("x", *CLAUDE, "--dir", p)
    b.exec("x", "sh", "-c", attack, options=("-w", p))
    b.fails("cp", p + "/description", "x:" + p + "/config")
    assert content(p, "config") == before and content(p, "hooks/post-receive") == "mine\n" and not os.path.exists(p + "/hooks/new"), os.listdir(p)
    assert os.path.exists(p + "/HEAD2")


LINKS = [".vscode", ".idea", ".claude", ".codex", ".gemini", ".bashrc", ".profile", ".zshrc", ".envrc", ".mcp.json", ".ssh", ".husky", ".cursor", ".zed", ".windsurf", "mise.toml",
         ".exrc", ".vimrc", "opencode.json", ".opencode", ".devcontainer", ".gitconfig", ".gitmodules", ".login", ".kshrc", ".cshrc", ".tcshrc", ".zshenv", ".zlogin", ".zlogout"]
OBSTACLES = {
    "one deep link": "mkdir -p %s && ln -s %s .vscode" % (DEEP, DEEP),
    "many links": " && ".join("mkdir -p l%d/a/b/c/d/e && ln -s l%d/a/b/c/d/e %s" % (i, i, name) for i, name in enumerate(LINKS)),
    "a deep git folder": "mkdir -p %s/hooks && touch %s/config && echo gitdir: %s > .git" % (DEEP, DEEP, DEEP),
    "a deep git folder by a link": "mkdir -p %s/hooks && touch %s/config && ln -s %s .git" % (DEEP, DEEP, DEEP),
}


@pytest.mark.parametrize("obstacle", OBSTACLES)
def test_h18_links_that_lead_deep_do_not_stop_the_next_start(any_user, obstacle):
    lab, p = any_user, mkdir(any_user, "home", "work")
    inside(lab, p, OBSTACLES[obstacle] + " && echo mine > plain")
    targets = [os.path.realpath(os.path.join(p, n)) for n in LINKS if os.path.islink(os.path.join(p, n))] or [os.path.join(p, DEEP, "hooks")]
    for path in targets:
        put(lab, path + "/settings", "mine\n")
    r = inside(lab, p, "for f in %s; do echo evil > $f/settings; mv $f $f.gone; mv ${f%%/*} $f.gone; done; mv deep gone; echo fine > plain; echo fine > new" % " ".join(targets))
    assert "is read-only inside, because links or a .git file lead to protected files deep in it" in r.err and "--project-writable" not in r.err, r
    assert [content(path, "settings") for path in targets] == ["mine\n"] * len(targets)
    assert content(p, "plain") == "fine\n" and content(p, "new") == "fine\n"


def test_h18_a_second_name_of_a_protected_file_is_told_at_the_start(any_user):
    lab, p = any_user, mkdir(any_user, "home", "work")
    r = inside(lab, p, "mkdir .vscode && echo mine > .vscode/tasks.json && echo mine > .envrc")
    assert "hard links" not in inside(lab, p, "true").err
    inside(lab, p, "mkdir .zed && echo mine > .zed/tasks.json && ln .zed/tasks.json second")
    r = inside(lab, p, "echo evil > .zed/tasks.json; true")
    assert "'.zed/tasks.json' is also known by other names (hard links)" in r.err and content(p, "second") == "mine\n", r
    assert TOLD + ".zed/tasks.json" in inside(lab, p, "echo evil > second").err


def test_h18_a_crowd_of_files_hides_no_new_one_among_them(any_user):
    lab, p = any_user, mkdir(any_user, "home", "work")
    assert TOLD in inside(lab, p, "mkdir -p .yarn/plugins; for i in $(seq 300); do echo x > .yarn/plugins/$i; done").err
    assert TOLD not in inside(lab, p, "ls .yarn/plugins").err
    assert TOLD + ".yarn/plugins/" in inside(lab, p, "echo evil > .yarn/plugins/evil.cjs").err
    assert TOLD not in inside(lab, p, "true").err


def test_h18_removing_a_running_sandbox_tells_what_it_changed(any_boxes):
    b, lab = any_boxes, any_boxes.lab
    p = mkdir(lab, "home", "work")
    b.up("x", *CLAUDE, "--dir", p)
    b.exec("x", "sh", "-c", "mkdir .vscode && echo evil > .vscode/tasks.json", options=("-w", p))
    assert "x: " + TOLD + ".vscode/tasks.json" in b.ak("remove", "--force", "x").err
    b.up("x", *CLAUDE, "--dir", p)
    assert TOLD not in b.ak("remove", "--force", "x").err


HIDERS = {"concealed": rb"\\033[8m", "black on black": rb"\\033[30;40m", "in a title": rb"\\033]0;", "in a device control string": rb"\\033P", "line drawing": rb"\\033(0"}


@pytest.mark.parametrize("hider", HIDERS)
def test_h18_what_a_command_left_on_the_terminal_does_not_hide_what_is_told(any_user, hider):
    lab, p = any_user, mkdir(any_user, "home", "work")
    with contextlib.closing(Screen(lab, [], shell=True, cols=200)) as s:
        s.line("export TERM=xterm")
        s.type(("ak run %s --dir %s -- sh -c 'mkdir .vscode; echo evil > .vscode/tasks.json; printf \"END%s\"'\n" % (" ".join(CLAUDE), p, HIDERS[hider].decode())).encode())
        # The string ends, and everything that a program may have set is reset, after its last output.
        before = s.until(rb"(?s)END(\x1b.*?)agentkernel: " + TOLD.encode()).group(1)
        assert before.endswith(b"\033\\\033[!p\033[0m"), before
        s.until(rb"host\$ ")
        s.line("export TERM=dumb")
        s.type(("ak run %s --dir %s -- sh -c 'mkdir .zed; echo evil > .zed/tasks.json; echo; echo GO'\n" % (" ".join(CLAUDE), p)).encode())
        assert s.until(rb"(?s)\nGO\r*\n(.*?)agentkernel: " + TOLD.encode()).group(1) == b""
        s.until(rb"host\$ ")
