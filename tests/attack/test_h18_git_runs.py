"""h18: files of the project that git's settings make git run on the host. They are read-only inside; one that does not exist yet is told at the end."""
import os
import subprocess

import pytest
from lab import wait_for

from test_h_mounts import mkdir, own, put

CLAUDE = ("--compatibility-mode", "claude")

# A setting of the repository, and the file of the project that it runs.
SETTINGS = {
    "filter.x.clean": ("tools/clean.sh %f", "tools/clean.sh"),
    "filter.x.smudge": ("./tools/smudge.sh", "tools/smudge.sh"),
    "filter.x.process": ("\"tools/a b.sh\" --go", None),
    "core.fsmonitor": (".fsmonitor/watch", ".fsmonitor/watch"),
    "core.sshCommand": ("PROJECT/ssh.sh -v", "ssh.sh"),
    "core.editor": ("sh -c 'exec tools/edit \"$@\"'", "tools/edit"),
    "credential.helper": ("!f() { tools/cred; }; f", "tools/cred"),
    "diff.y.textconv": ("python3 conv.py", "conv.py"),
    "diff.external": ("$PWD/tools/diff", "tools/diff"),
    "merge.z.driver": ("bash ./tools/merge %O %A", "tools/merge"),
    "alias.go": ("!\"$(git rev-parse --show-toplevel)\"/tools/go", "tools/go"),
    "gpg.program": ("./tools/gpg", "tools/gpg"),
    "submodule.s.update": ("!tools/update", "tools/update"),
    "tar.x.command": ("tools/tar", "tools/tar"),
    "gc.recentObjectsHook": ("./tools/recent", "tools/recent"),
    "imap.tunnel": ("tools/tunnel -q", "tools/tunnel"),
    "core.pager": ("~/repo/tools/page", "tools/page"),
    "core.askPass": ("~lab/repo/tools/ask", "tools/ask"),
    "merge.h.driver": ("exec $HOME/repo/tools/merge-home %O", "tools/merge-home"),
    "sequence.editor": ("\"${HOME}/repo/tools/seq\"", "tools/seq"),
}
FILES = sorted(file for _, file in SETTINGS.values() if file)

ATTACK = """for f in %s; do
  echo evil > $f; rm -f $f; mv $f $f.gone; echo evil > $f.new && mv -f $f.new $f; chmod 777 $f
done
mv tools gone; mkdir -p tools; echo evil > tools/clean.sh; mv .fsmonitor gone2
echo fine > plain; echo fine > tools/other; true"""


def git(lab, folder, *args):
    put(lab, lab.path("tmp", ".gitconfig"), "[safe]\n\tdirectory = *\n")
    r = subprocess.run(["git", "-C", folder, *args], capture_output=True, text=True, env={"PATH": os.environ["PATH"], "HOME": lab.path("tmp"), "GIT_CONFIG_NOSYSTEM": "1"})
    assert r.returncode == 0, r


def chown_all(lab, top):
    for folder, dirs, files in os.walk(top):
        own(lab, folder, *(os.path.join(folder, n) for n in dirs + files))


def repository(lab, settings=SETTINGS, files=FILES):
    p = mkdir(lab, "home", "repo")
    git(lab, p, "init", "-q")
    for key, (value, _) in settings.items():
        git(lab, p, "config", key, value.replace("PROJECT", p))
    for name in files:
        os.makedirs(os.path.dirname(os.path.join(p, name)), exist_ok=True)
        put(lab, os.path.join(p, name), "mine\n")
    put(lab, p + "/plain", "mine\n")
    chown_all(lab, p)
    return p


def worktree(lab):
    """A repository, and a worktree of it that is elsewhere."""
    p, side = repository(lab, {"user.email": ("a@b", None), "user.name": ("a", None)}, []), lab.path("home", "side")
    git(lab, p, "add", "plain")
    git(lab, p, "commit", "-qm", "x")
    git(lab, p, "worktree", "add", "-q", side)
    for folder in (p, side):
        chown_all(lab, folder)
    return p, side


def content(p, name):
    with open(os.path.join(p, name)) as f:
        return f.read()


def unchanged(p, files=FILES):
    assert {name: content(p, name) for name in files} == {name: "mine\n" for name in files}


def test_h18_files_that_git_s_settings_run_are_read_only(any_user):
    lab = any_user
    p = repository(lab)
    r = lab.run([*CLAUDE, "--dir", p, "--", "sh", "-c", ATTACK % " ".join(FILES)])
    assert r.code == 0, r
    unchanged(p)
    assert content(p, "plain") == "fine\n" and content(p, "tools/other") == "fine\n"


def test_h18_also_in_a_persistent_sandbox_and_by_its_file_calls(any_boxes):
    b, lab = any_boxes, any_boxes.lab
    p = repository(lab)
    b.up("x", *CLAUDE, "--dir", p)
    b.exec("x", "sh", "-c", ATTACK % " ".join(FILES), options=("-w", p))
    put(lab, lab.path("tmp", "evil"), "evil\n")
    for name in FILES:
        b.fails("cp", lab.path("tmp", "evil"), "x:" + os.path.join(p, name))
    unchanged(p)


def test_h18_files_that_included_settings_run(any_user):
    lab = any_user
    p = repository(lab, {"include.path": ("../more/settings", None)}, ["tools/clean.sh", "more/settings"])
    put(lab, p + "/more/settings", "[filter \"x\"]\n\tclean = tools/clean.sh\n")
    r = lab.run([*CLAUDE, "--dir", p, "--", "sh", "-c", "echo evil > tools/clean.sh; echo evil > more/settings; true"])
    assert r.code == 0 and content(p, "tools/clean.sh") == "mine\n" and "evil" not in content(p, "more/settings"), r


def test_h18_files_that_the_user_s_own_settings_run(any_user):
    lab = any_user
    p = repository(lab, {}, ["tools/clean.sh", ".githooks/pre-commit"])
    put(lab, lab.path("home", ".gitconfig"), "[core]\n\thooksPath = .githooks\n[filter \"x\"]\n\tclean = ./tools/clean.sh\n")
    r = lab.run([*CLAUDE, "--dir", p, "--", "sh", "-c", "echo evil > tools/clean.sh; echo evil > .githooks/pre-commit; echo evil > .githooks/new; true"])
    assert r.code == 0, r
    unchanged(p, ["tools/clean.sh", ".githooks/pre-commit"])
    assert not os.path.exists(p + "/.githooks/new")


RUNS = "[core]\n\thooksPath = %s\n[filter \"x\"]\n\tclean = ./t/s.sh\n"

# Where the settings are: the file that has them, and files that lead to it, each with what it includes. "+" is a file of the home, and
# "@" a link.
SOURCES = {
    "config": (".git/config", {}),
    "config.worktree": (".git/config.worktree", {}),
    "included": ("cfg/x", {".git/config": "../cfg/x"}),
    "included by config.worktree": ("cfg/x", {".git/config.worktree": "../cfg/x"}),
    "included in the home's name": ("cfg/x", {".git/config": "~/repo/cfg/x"}),
    "included twice": ("cfg/x", {".git/config": "../cfg/y", "cfg/y": "x"}),
    "user": ("+.gitconfig", {}),
    "user's included": ("cfg/x", {"+.gitconfig": "repo/cfg/x"}),
    "user's included in the home's name": ("cfg/x", {"+.gitconfig": "~/repo/cfg/x"}),
    "user's included outside": ("+other", {"+.gitconfig": "~/other"}),
    "user's file is a link": ("cfg/x", {"@.gitconfig": "repo/cfg/x"}),
    "config folder": ("+.config/git/config", {}),
    "config folder's included": ("cfg/x", {"+.config/git/config": "~/repo/cfg/x"}),
    "XDG_CONFIG_HOME": ("+../config/git/config", {}),
}


def place(lab, p, name):
    path = lab.path("home", name[1:]) if name[0] in "+@" else os.path.join(p, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    return path


def add(lab, path, text):
    before = content("/", path) if os.path.exists(path) else ""
    put(lab, path, before + text)


def settings_in(lab, p, source, text):
    """Write TEXT where SOURCE has it; returns the files of the project that have settings."""
    last, includes = SOURCES[source]
    add(lab, place(lab, p, last), text)
    for name, value in includes.items():
        if name[0] == "@":
            os.symlink(value, place(lab, p, name))
        else:
            add(lab, place(lab, p, name), "[include]\n\tpath = %s\n" % value)
    chown_all(lab, lab.path("home"))
    return [n for n in (last, *includes) if n[0] not in "+@"]


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("hooks", ["hk", "~/repo/hk/"])
def test_h18_wherever_the_settings_are(any_user, source, hooks):
    lab = any_user
    p = repository(lab, {"extensions.worktreeConfig": ("true", None)}, ["hk/pre-commit", "t/s.sh"])
    files = settings_in(lab, p, source, RUNS % hooks)
    before = {name: content(p, name) for name in files}
    r = lab.run([*CLAUDE, "--dir", p, "--", "sh", "-c",
                 "for f in hk/pre-commit hk/new t/s.sh %s; do echo evil >> $f; done; echo fine > plain; true" % " ".join(files)])
    assert r.code == 0, r
    unchanged(p, ["hk/pre-commit", "t/s.sh"])
    assert {name: content(p, name) for name in files} == before
    assert not os.path.exists(p + "/hk/new") and content(p, "plain") == "fine\n"


def test_h18_the_user_s_settings_in_a_project_that_is_no_repository(any_user):
    lab = any_user
    p = mkdir(lab, "home", "dotfiles")
    for name in ("gitconfig", "more"):
        put(lab, os.path.join(p, name), "")
    put(lab, p + "/gitconfig", "[include]\n\tpath = ~/dotfiles/more\n")
    os.symlink("dotfiles/gitconfig", lab.path("home", ".gitconfig"))
    r = lab.run([*CLAUDE, "--dir", p, "--", "sh", "-c", "echo '[alias] x = !evil' | tee -a gitconfig more; true"])
    assert r.code == 0 and "evil" not in content(p, "gitconfig") + content(p, "more"), r


# What makes git run or read something that does not exist yet, or that a link leads to, and how a sandbox provides it.
LATER = {
    "hooks folder": ("[core]\n\thooksPath = a/hooks\n", "mkdir -p a/hooks; echo evil > a/hooks/pre-commit", "a/hooks/pre-commit"),
    "included": ("[include]\n\tpath = ../a/b/settings\n", "mkdir -p a/b; echo evil > a/b/settings", "a/b/settings"),
    "command": ("[core]\n\tfsmonitor = ~/repo/a/b/watch\n", "mkdir -p a/b; echo evil > a/b/watch", "a/b/watch"),
    "link": ("[core]\n\tfsmonitor = cur/watch\n", "mkdir v2; echo evil > v2/watch; rm cur; ln -s v2 cur", "cur"),
}


@pytest.mark.parametrize("what", LATER)
def test_h18_what_a_sandbox_provides_later_is_told(any_user, what):
    lab = any_user
    text, attack, told = LATER[what]
    p = repository(lab, {}, ["v1/watch", "v1/other"])
    os.symlink("v1", p + "/cur")
    add(lab, p + "/.git/config", text)
    chown_all(lab, p)
    fine = lab.run([*CLAUDE, "--dir", p, "--", "sh", "-c", "echo x > v1/other; echo x > v1/new"])
    assert fine.code == 0 and "created or changed" not in fine.err, fine
    r = lab.run([*CLAUDE, "--dir", p, "--", "sh", "-c", attack])
    assert r.code == 0 and "created or changed: %s" % told in r.err, r


def test_h18_settings_that_are_hard_to_read(any_user):
    """A comment that ends with a backslash, a byte order mark, two headers in a line; and includes that are a FIFO, a device or themselves."""
    lab = any_user
    p = repository(lab, {}, ["a.sh", "b.sh", "c.sh", "d.sh"])
    os.mkfifo(p + "/fifo")
    put(lab, p + "/more", "\ufeff[core]\n\tpager = ./b.sh\n[a] [core] editor = ./c.sh\n[include]\n\tpath = more\n\tpath = ../repo/more\n")
    add(lab, p + "/.git/config", "# comment \\\n[include] path = ../fifo\n path = /dev/zero\n path = ../more ; and \\\n[core]\n\tsshCommand = ./a.sh\n"
        "\taskPass = ./\\\nd.sh\n")
    chown_all(lab, p)
    r = lab.run([*CLAUDE, "--dir", p, "--", "sh", "-c", "for f in *.sh more; do echo evil > $f; done; true"])
    assert r.code == 0 and "evil" not in content(p, "more"), r
    unchanged(p, ["a.sh", "b.sh", "c.sh", "d.sh"])
    assert "more than 64 files" in r.err, r


def test_h18_a_file_that_did_not_exist_is_told(any_user):
    lab = any_user
    p = repository(lab, {"core.fsmonitor": ("./later/watch", None), "diff.external": ("missing.sh", None)}, ["later/x"])
    r = lab.run([*CLAUDE, "--dir", p, "--", "sh", "-c", "echo evil > later/watch; chmod 755 later/watch"])
    assert r.code == 0 and "later/watch" in r.err, r
    assert "later" not in lab.run([*CLAUDE, "--dir", p, "--", "touch", "plain"]).err


def test_h18_more_files_than_can_be_protected_are_told(any_user):
    lab = any_user
    settings = {"filter.f%d.clean" % i: ("tools/%d.sh" % i, None) for i in range(40)}
    p = repository(lab, settings, ["tools/%d.sh" % i for i in range(40)])
    r = lab.run([*CLAUDE, "--dir", p, "--", "true"])
    assert r.code == 0 and "more than 32 files" in r.err, r


def test_h18_words_that_are_no_files_stay_free(any_user):
    """Values of other keys, and words of git's own, protect nothing."""
    lab = any_user
    p = repository(lab, {"alias.st": ("status", None), "init.defaultBranch": ("main", None), "user.name": ("plain", None), "core.pager": ("less", None)},
                   ["status", "main", "less"])
    r = lab.run([*CLAUDE, "--dir", p, "--", "sh", "-ec", "for f in status main less plain; do echo fine > $f; done; git status --short >/dev/null"])
    assert r.code == 0 and [content(p, n) for n in ("status", "main", "less", "plain")] == ["fine\n"] * 4, r


@pytest.mark.parametrize("kind", ["submodule", "worktree"])
def test_h18_the_git_file_of_a_work_tree_in_the_project(any_user, kind):
    """A submodule's SUB/.git, or that of a worktree, leads git to its settings: another one would run what it likes."""
    lab = any_user
    p = repository(lab, {"user.email": ("a@b", None), "user.name": ("a", None), "protocol.file.allow": ("always", None)}, ["f"])
    git(lab, p, "add", "f")
    git(lab, p, "commit", "-qm", "x")
    if kind == "submodule":
        git(lab, p, "-c", "protocol.file.allow=always", "clone", "-q", p, lab.path("home", "lib.git"))
        git(lab, p, "-c", "protocol.file.allow=always", "submodule", "-q", "add", lab.path("home", "lib.git"), "sub")
    else:
        git(lab, p, "worktree", "add", "-q", p + "/sub")
    chown_all(lab, lab.path("home"))
    before = content(p, "sub/.git")
    r = lab.run([*CLAUDE, "--dir", p, "--", "sh", "-c",
                 "cd sub; echo x > y; git status --short; echo 'gitdir: ../evil' > .git; rm -f .git; echo 'gitdir: /tmp' > n; mv -f n .git; cd ..; mv sub moved; true"])
    assert r.code == 0 and "y" in r.out and content(p, "sub/.git") == before, r


def test_h18_a_file_that_the_host_replaces_meanwhile_is_told(any_user):
    """The kernel takes the mount on the old file away: what the sandbox then writes to the new one is reported at the end."""
    lab = any_user
    p = repository(lab, {}, [])
    run = lab.start([*CLAUDE, "--dir", p, "--", "sh", "-c", "touch ready; until [ -e go ]; do sleep 0.02; done; echo '[alias] x = !evil' >> .git/config"])
    wait_for(lambda: os.path.exists(p + "/ready"), 20)
    put(lab, p + "/new", content(p, ".git/config"))
    os.replace(p + "/new", p + "/.git/config")
    put(lab, p + "/go", "")
    r = run.wait(20)
    assert r.code == 0 and ".git/config" in r.err, r
