"""h18: files in the project that the user's own tools run on the host later. Those that are there are read-only inside, the others are told at the end."""
import json
import os

import pytest

from lab import PYTHON

CLAUDE = ("--compatibility-mode", "claude")
CODEX = ("--compatibility-mode", "codex")
FILES = [".gitmodules", ".mcp.json", "agentkernel.toml", ".envrc", ".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".profile", ".zshrc", ".zshenv",
         ".zprofile", ".zlogin", ".zlogout", "mise.toml", ".mise.toml", ".aider.conf.yml", ".exrc", ".vimrc", ".nvimrc", ".nvim.lua", ".dir-locals.el", "lefthook.yml",
         ".hg/hgrc", ".cargo/config.toml"]
WATCHED = [".pre-commit-config.yaml", ".npmrc", ".yarnrc.yml", ".tool-versions", ".github/workflows/ci.yml"]
FOLDERS = {".zed": "tasks.json", ".windsurf": "mcp.json", ".vscode": "tasks.json", ".idea": "workspace.xml", ".claude": "settings.json", ".codex": "config.toml", ".gemini": "settings.json"}
GIT = "git -c user.name=a -c user.email=a@b.test -c init.defaultBranch=main -c protocol.file.allow=always "


def script(lab, text, cwd=None):
    """A script of the user's own, on the lab's host."""
    r = lab.spawn(["sh", "-ec", text.replace("GIT ", GIT)], env=lab.env(GIT_CONFIG_NOSYSTEM="1"), cwd=cwd).wait()
    assert r.code == 0, r
    return r.out


def project(lab, *parts):
    return lab.path("project", *parts)


def one_of_everything(lab):
    """A project with all files and folders that tools run."""
    script(lab, "GIT init -q; echo one > file; GIT add file; GIT commit -qm one; mkdir .claude/ .claude/hooks .claude/commands .claude/agents .vscode .idea .codex .gemini .hg .cargo .zed .windsurf;"
           + "".join("echo '# mine' > %s;" % f for f in FILES) + "".join("echo mine > %s/%s;" % kv for kv in FOLDERS.items())
           + "echo mine > .claude/hooks/h; echo mine > .claude/commands/c; echo mine > .claude/agents/a; echo mine > .git/hooks/pre-commit; chmod +x .git/hooks/pre-commit")
    return lab


@pytest.fixture
def repo(any_user):
    return one_of_everything(any_user)


def state_of(lab):
    """Every file of the project that tools run, and what is in it."""
    out = {}
    names = [*FILES, *FOLDERS, ".git/hooks", ".git/config", ".git/info"]
    for name in names:
        full = project(lab, name)
        for path, _, files in os.walk(full) if os.path.isdir(full) else [(os.path.dirname(full), [], [os.path.basename(full)])]:
            for f in files:
                with open(os.path.join(path, f), "rb") as fh:
                    out[os.path.join(path, f)] = fh.read()
    return out


ATTACKS = """
import os, shutil, sys
names = sys.argv[1:]
def tries(*fns):
    for fn in fns:
        try: fn()
        except OSError: pass
def put(p):
    os.makedirs(os.path.dirname(p) or '.', exist_ok=True)
    with open(p, 'w') as f: f.write('evil')
open('evil', 'w').write('evil')
for n in names:
    tries(lambda: put(n), lambda: open(n, 'a').write('evil'), lambda: os.replace('evil', n), lambda: os.link('evil', n + '.l') or os.replace(n + '.l', n),
          lambda: os.truncate(n, 0), lambda: os.unlink(n), lambda: os.rename(n, n + '.gone'), lambda: os.chmod(n, 0o777))
    for i in range(1, n.count('/') + 1):
        up = '/'.join(n.split('/')[:i])
        tries(lambda: os.rename(up, up + '.gone'), lambda: shutil.rmtree(up), lambda: os.rename('other', up), lambda: os.symlink('/tmp', up))
    tries(lambda: put(n), lambda: os.link(n, 'linked') or open('linked', 'w').write('evil'))
"""


@pytest.mark.parametrize("mode", ["native", "claude", "codex", "gemini"])
@pytest.mark.parametrize("profile", ["permissive", "moderate", "restrictive"])
def test_h18_what_is_there_cannot_be_changed_replaced_or_moved_away(repo, mode, profile):
    lab = repo
    before = state_of(lab)
    assert len(before) > 30
    names = [os.path.relpath(p, project(lab)) for p in before] + [".git/hooks/post-checkout", ".vscode/launch.json", ".claude/settings.local.json", ".git/info/attributes"]
    r = lab.run(["--compatibility-mode", mode, "--profile", profile, "--dir", project(lab), "--", PYTHON, "-c", ATTACKS, *names])
    assert r.code == 0, r
    assert state_of(lab) == before
    assert "run later" not in r.err, r


def test_h18_git_itself_goes_on_working(repo):
    lab = repo
    work = """
echo two > two; GIT add two; GIT commit -qm two --no-verify; GIT branch side; echo three > file; GIT stash -q; GIT stash pop -q; GIT commit -qam three --no-verify;
GIT checkout -q side; echo four > four; GIT add four; GIT commit -qm four --no-verify; GIT rebase -q main; GIT checkout -q main; GIT merge -q side; GIT branch -d side; GIT tag v1;
GIT stash list; GIT gc -q; GIT log --oneline | wc -l; GIT status --porcelain -uno"""
    r = lab.run([*CLAUDE, "--", "sh", "-ec", work.replace("GIT ", GIT)], timeout=60)
    assert r.code == 0 and "4" in r.out, r
    assert "run later" not in r.err, r
    assert script(lab, "GIT log --oneline | wc -l").strip() == "4"


def events(lab, name):
    with open(lab.path("state", "agentkernel", "events.jsonl")) as f:
        return [row for row in map(json.loads, f) if row.get("event") == name]


@pytest.mark.parametrize("warm", [False, True], ids=["cold", "warm"])
def test_h18_what_appears_is_told_and_recorded(any_boxes, warm):
    b, lab = any_boxes, any_boxes.lab
    if warm:
        b.ak("daemon", "start")
        b.ak("daemon", "prewarm", "--mode", "claude", "--count", "2")
    made = [".envrc", ".vscode/tasks.json", ".git/hooks/pre-commit", ".git/config", ".claude/commands/deep/c.md", ".bashrc", ".git/commondir"]
    r = lab.run([*CLAUDE, "--", "sh", "-c", "for f in %s; do mkdir -p $(dirname $f); echo evil > $f; done; echo fine > ordinary" % " ".join(made)])
    assert r.code == 0, r
    line = [row for row in r.err.splitlines() if "run later" in row]
    assert len(line) == 1, r
    for name in made:
        assert name in line[0], (name, line)
    assert "ordinary" not in line[0]
    row = events(lab, "project_changed")[-1]
    assert sorted(row["files"]) == sorted(made) and row["project"] == project(lab), row
    r = lab.run([*CLAUDE, "--", "true"])
    assert "run later" not in r.err, r  # nothing new


@pytest.mark.parametrize("more", ["", "touch 'naïve'", "for i in $(seq 1 400); do touch a-file-with-a-rather-long-name-$i; done"], ids=["few", "beyond-ascii", "many"])
def test_h18_other_names_in_the_top_folder_change_nothing(any_user, more):
    """Whatever a listing of the folder looks like: what is there is protected, what a run adds is told."""
    lab = any_user
    script(lab, "echo mine > .envrc; mkdir .vscode; %s" % (more or "true"))
    add = "for i in $(seq 1 400); do touch another-file-with-a-rather-long-name-$i; done; touch 'ſ'"
    r = lab.run([*CLAUDE, "--", "sh", "-c", "echo evil > .envrc; echo evil > .vscode/tasks.json; echo evil > .bashrc; mkdir .git; echo evil > .git/config; " + add])
    told = [row for row in r.err.splitlines() if "run later" in row]
    assert len(told) == 1 and ".bashrc" in told[0] and ".git/config" in told[0], r
    with open(project(lab, ".envrc")) as f:
        assert f.read() == "mine\n" and not os.listdir(project(lab, ".vscode"))
    r = lab.run([*CLAUDE, "--", "sh", "-c", "echo evil > .bashrc; rm -r another-file-*; mkdir -p .config/fish; echo evil > .config/fish/config.fish"])
    told = [row for row in r.err.splitlines() if "run later" in row]
    assert len(told) == 1 and ".config/fish/config.fish" in told[0] and ".bashrc" not in told[0], r


def test_h18_a_name_that_cannot_be_mounted_over_is_told_when_it_changes(any_user):
    """A link in place of the entry, a hard link made before, a folder made unreadable."""
    lab = any_user
    script(lab, "mkdir real; echo mine > real/settings.json; ln -s real .claude; ln -s /etc/profile .envrc")
    r = lab.run([*CLAUDE, "--", "sh", "-c", "rm .claude .envrc; echo x > .envrc; mkdir .claude; echo evil > .claude/settings.json"])
    assert ".envrc" in r.err and ".claude" in r.err, r
    r = lab.run([*CLAUDE, "--", "sh", "-c", "echo x > .zshrc; ln .zshrc side"])
    assert ".zshrc" in r.err, r
    r = lab.run([*CLAUDE, "--", "sh", "-c", "echo more >> side; echo direct >> .zshrc"])
    assert ".zshrc" in r.err, r
    r = lab.run([*CLAUDE, "--", "sh", "-c", "mkdir .idea; echo x > .idea/run.xml; chmod 0 .idea"])
    assert ".idea" in r.err, r
    script(lab, "chmod 700 .idea")


def test_h18_links_are_not_followed_and_their_folder_in_the_project_is_protected(any_user):
    lab = any_user
    script(lab, "mkdir -p conf/claude; echo mine > conf/claude/settings.json; ln -s conf/claude .claude; mkdir real; cd real; GIT init -q; cd ..; mv real/.git git.d; ln -s git.d .git; "
           "echo mine > %s/outside; ln -s %s .vscode" % (lab.path("home"), lab.path("home")))
    r = lab.run([*CLAUDE, "--", "sh", "-c", "echo evil > .claude/settings.json; echo evil > conf/claude/settings.json; echo evil > .git/hooks/pre-commit; echo evil >> .git/config; "
                 "ls .vscode/; echo evil > .vscode/outside"])
    assert "outside" not in r.out, r
    with open(lab.path("home", "outside")) as f:
        assert f.read() == "mine\n"
    assert script(lab, "cat conf/claude/settings.json") == "mine\n"
    assert "evil" not in script(lab, "cat .git/config; ls .git/hooks") and not os.path.exists(project(lab, "git.d", "hooks", "pre-commit"))


def test_h18_a_hooks_folder_in_the_project_is_protected(any_user):
    lab = any_user
    script(lab, "GIT init -q; mkdir -p tools/hooks; echo mine > tools/hooks/pre-commit; GIT config core.hooksPath tools/hooks")
    r = lab.run([*CLAUDE, "--", "sh", "-c", "echo evil > tools/hooks/pre-commit; echo evil > tools/hooks/pre-push; mv tools x; echo fine > tools/other"])
    assert os.listdir(project(lab, "tools", "hooks")) == ["pre-commit"] and script(lab, "cat tools/hooks/pre-commit tools/other") == "mine\nfine\n", r


def test_h18_a_new_repository_is_told_without_its_samples(any_user):
    lab = any_user
    r = lab.run([*CLAUDE, "--", "sh", "-c", GIT + "init -q"])
    assert ".git/config" in r.err and ".sample" not in r.err, r


def test_h18_many_and_odd_names_are_told_in_one_harmless_line(any_user):
    lab = any_user
    r = lab.run([*CLAUDE, "--", PYTHON, "-c", """
import os
os.makedirs('.vscode/a/b'); os.mkdir('.idea')
for i in range(3000): open('.vscode/a/b/%d' % i, 'w')
open('.idea/\\x1b[31m\\n' + 'n' * 200, 'w')
os.makedirs('.codex/' + 'd/' * 60); os.mkfifo('.envrc'); os.symlink('.', '.codex/loop')
"""])
    assert r.code == 0 and "\x1b" not in r.err, r
    line = [row for row in r.err.splitlines() if "run later" in row]
    assert len(line) == 1 and len(line[0]) < 2048 and "more" in line[0] and ".envrc" in line[0], r


def test_h18_a_persistent_sandbox_tells_at_stop(any_boxes):
    b, lab = any_boxes, any_boxes.lab
    script(lab, "echo mine > .envrc")
    b.up("x", *CODEX)
    b.exec("x", "sh", "-c", "echo evil > .envrc; mkdir .vscode; echo evil > .vscode/tasks.json")
    r = b.ak("stop", "x")
    assert ".vscode/tasks.json" in r.err and ".envrc" not in r.err, r
    assert events(lab, "project_changed")[-1]["sandbox"] == "x"
    assert script(lab, "cat .envrc") == "mine\n"
    b.ak("start", "x")
    assert b.exec("x", "sh", "-c", "echo evil > .vscode/tasks.json").code != 0


@pytest.mark.parametrize("how", ["run", "create"])
def test_h18_it_can_be_turned_off(any_boxes, how):
    b, lab = any_boxes, any_boxes.lab
    script(lab, "echo mine > .envrc; mkdir .vscode")
    work = "echo changed > .envrc; echo x > .vscode/tasks.json; mv .vscode other"
    if how == "run":
        r = lab.run([*CLAUDE, "--project-writable", "--", "sh", "-ec", work])
    else:
        b.create("x", *CLAUDE, "--project-writable")
        for _ in range(2):
            b.ak("start", "x")
            r = b.exec("x", "sh", "-ec", work)
            work = "mv other .vscode; rm .envrc; echo changed > .envrc"
            assert r.code == 0, r
            r = b.ak("stop", "x")
    assert r.code == 0 and "run later" not in r.err, r
    assert script(lab, "cat .envrc") == "changed\n"


# ---- git folders outside the project ----

REPO = """
mkdir main; cd main; GIT init -q; echo one > file; GIT add file; GIT commit -qm one; GIT worktree add -q ../tree; GIT worktree add -q ../tree2;
cd ..; mkdir lib; cd lib; GIT init -q; echo l > l; GIT add l; GIT commit -qm l; cd ../main; GIT submodule --quiet add ../lib sub; GIT commit -qm sub
"""
COMMIT = "echo new > new; GIT add new; GIT commit -qm new --no-verify; GIT stash list; GIT checkout -q -b side; echo x > new; GIT stash -q; GIT stash pop -q; GIT commit -qam x; GIT log --oneline | wc -l"


@pytest.mark.parametrize("place", ["tree", "main/sub"])
def test_h18_a_worktree_and_a_submodule_work_and_are_protected(any_user, place):
    lab = any_user
    script(lab, REPO)
    git = project(lab, "main", ".git") if place == "tree" else project(lab, "main", ".git", "modules", "sub")
    where = project(lab, place)
    r = lab.run([*CLAUDE, "--", "sh", "-ec", COMMIT.replace("GIT ", GIT)], cwd=where)
    assert r.code == 0 and r.out.strip().endswith("3"), r
    names = ["hooks/pre-commit", "hooks/post-checkout", "config", "info/exclude", "info/attributes"]
    names += ["worktrees/tree/commondir", "worktrees/tree/gitdir", "worktrees/tree2/commondir", "worktrees/tree2/config.worktree", "modules/sub/config"] if place == "tree" else []
    read = "cat %s; ls %s/hooks %s/info %s/worktrees/tree2; cat %s/.git" % (" ".join(os.path.join(git, n) for n in names if "attr" not in n), git, git, git, where)
    before = lab.spawn(["sh", "-c", read], env=lab.env()).wait().out
    r = lab.run([*CLAUDE, "--", PYTHON, "-c", ATTACKS, ".git", *[os.path.join(git, n) for n in names]], cwd=where)
    assert lab.spawn(["sh", "-c", read], env=lab.env()).wait().out == before
    assert script(lab, "GIT log --oneline | wc -l", cwd=where).strip() == "3"


def test_h18_a_forged_git_file_mounts_nothing(any_user):
    """The .git file is the sandbox's to write when there is none: it must not choose what the next run mounts."""
    lab = any_user
    script(lab, REPO)
    script(lab, "mkdir -p %s/.ssh; echo key > %s/.ssh/id" % (lab.path("home"), lab.path("home")))
    victim = project(lab, "victim")
    script(lab, "mkdir victim; mkdir -p %s/fake/objects %s/fake/refs; echo ref: x > %s/fake/HEAD; echo '[core]' > %s/fake/config" % ((lab.path("home"),) * 4))
    targets = [lab.path("home", ".ssh"), lab.path("home"), lab.path("home", "fake"), "/", "/etc", project(lab, "main", ".git"), project(lab, "main", ".git", "worktrees", "tree"),
               project(lab, "main", ".git", "modules", "sub"), project(lab, "main"), "../main/.git", "/proc/self/root", "../../home/.ssh", "~/.ssh", lab.path("state"),
               project(lab, "tree")]
    for target in targets:
        r = lab.run([*CLAUDE, "--", "sh", "-c", "rm -rf .git; printf 'gitdir: %s\\n' > .git" % target], cwd=victim)
        assert r.code == 0, r
        if target.startswith("/"):
            real = target
        else:
            real = os.path.normpath(os.path.join(victim, target))
        r = lab.run([*CLAUDE, "--", "sh", "-c", "ls -A %s; echo evil > %s/planted" % (real, real)], cwd=victim)
        if real not in ("/", "/etc", "/proc/self/root"):
            assert r.out == "", (target, r)
        if target != "~/.ssh":
            assert "does not name this project in return" in r.err, (target, r)
        assert not os.path.exists(os.path.join(real, "planted")), target
        script(lab, "rm .git", cwd=victim)


def test_h18_a_back_pointer_that_the_sandbox_wrote_does_not_help(any_user):
    """Everything that points back lies in the project itself: nothing outside comes into sight."""
    lab = any_user
    script(lab, "mkdir victim secret; echo key > secret/id")
    victim, secret = project(lab, "victim"), project(lab, "secret")
    r = lab.run([*CLAUDE, "--", "sh", "-c", "mkdir -p g/worktrees/x g/objects g/refs; echo ref: x > g/HEAD; cp g/HEAD g/worktrees/x/; touch g/config; echo %s/.git > g/worktrees/x/gitdir; "
                 "echo %s > g/worktrees/x/commondir; ln -s %s l; echo 'gitdir: g/worktrees/x' > .git" % (victim, secret, secret)], cwd=victim)
    r = lab.run([*CLAUDE, "--", "cat", secret + "/id"], cwd=victim)
    assert r.code != 0 and "key" not in r.out, r
    r = lab.run([*CLAUDE, "--project-writable", "--", "sh", "-c", "rm -f .git; echo 'gitdir: l' > .git"], cwd=victim)
    r = lab.run([*CLAUDE, "--", "cat", secret + "/id"], cwd=victim)
    assert r.code != 0 and "key" not in r.out, r


# ---- git folders in the project's git folder ----

NESTED = """
mkdir -p src/lib; cd src/lib; GIT init -q; echo l > l; GIT add l; GIT commit -qm l; cd "$OLDPWD"; GIT init -q; echo one > file; GIT add file; GIT commit -qm one;
GIT submodule --quiet add $PWD/src/lib third_party/lib; GIT commit -qm sub
"""
MODULE = ".git/modules/third_party/lib"
PLANT = "cd .git/modules/third_party/lib; printf '[core]\\n\\tfsmonitor = touch PWNED\\n' >> config; echo evil > hooks/post-checkout; chmod 755 hooks/post-checkout; cd ../../../..; "
PREPARE = {
    "many folders beside it": ("for i in $(seq 200); do d=.git/modules/third_party/d$i; mkdir -p $d/info; echo > $d/HEAD; done", ""),
    "a folder that cannot be listed": ("chmod 300 .git/modules", "chmod 300 .git/modules"),
    "a folder above it that cannot be listed": ("chmod 300 .git/modules/third_party", "chmod 300 .git/modules/third_party"),
    "a HEAD that is a link": ("cd %s; rm HEAD; ln -s refs/heads/main HEAD" % MODULE, ""),
    "no HEAD for one run": ("mv %s/HEAD kept" % MODULE, "mv kept %s/HEAD" % MODULE),
    "a HEAD in the folder above it": ("echo ref: refs/heads/main > .git/modules/third_party/HEAD", ""),
    "a git folder that cannot be seen": ("chmod 0 .git", "chmod 0 .git"),
    "a module that cannot be seen": ("chmod 0 %s" % MODULE, "chmod 0 %s" % MODULE),
    "many plain files": ("cd .git/modules; for i in $(seq 5000); do echo > f$i; done 2>&-", ""),
    "a protected name that is it": ("ln -s %s .claude" % MODULE, "echo evil > .claude/settings.json"),
    "a link to a folder in it": ("cd .git; mkdir -p %s/x/hooks; cp %s/config %s/x; ln -s third_party/lib/x modules/x" % ((MODULE[5:],) * 3), "echo evil > .git/modules/x/hooks/x"),
    "a protected name that leads into it": ("mkdir %s/x; ln -s %s/x .claude; ln -s %s/x .vscode; rm %s/HEAD" % ((MODULE,) * 4), ""),
}


def git_files(lab, *names):
    out = {}
    script(lab, "chmod u+rwx .git; find .git -type d -exec chmod u+rwx {} \\;")
    for name in names:
        for path, _, files in os.walk(project(lab, name)):
            for f in files:
                if "hooks" in path or "info" in path.split("/") or f in ("config", "config.worktree", "commondir"):
                    with open(os.path.join(path, f), "rb") as fh:
                        out[os.path.join(path, f)] = fh.read()
    return out


@pytest.mark.parametrize("how", PREPARE)
def test_h18_one_run_cannot_prepare_the_git_folder_of_a_submodule_for_the_next(any_user, how):
    lab = any_user
    script(lab, NESTED)
    before = git_files(lab, ".git")
    first, last = PREPARE[how]
    lab.run([*CLAUDE, "--", "sh", "-c", first], timeout=60)
    r = lab.run([*CLAUDE, "--", "sh", "-c", "chmod 755 .git .git/modules .git/modules/third_party %s; %s%s" % (MODULE, PLANT, last)], timeout=60)
    after = git_files(lab, ".git")
    assert {p: after.get(p) for p in before} == before, r
    for name in (MODULE + "/hooks/post-checkout", MODULE + "/settings.json", MODULE + "/x/hooks/x"):
        assert not os.path.exists(project(lab, name)), (name, r)


def test_h18_a_submodule_cannot_be_led_to_another_git_folder(any_user):
    """Whose configuration git on the host would obey: it looks into submodules by itself."""
    lab = any_user
    script(lab, NESTED)
    evil = "cp -r %s forged; printf '[core]\\n\\tworktree = ../third_party/lib\\n\\tfsmonitor = touch %s; false\\n' > forged/config; " % (MODULE, project(lab, "PWNED"))
    for way in ("echo 'gitdir: ../../forged' > third_party/lib/.git", "rm -f third_party/lib/.git; echo 'gitdir: ../../forged' > third_party/lib/.git",
                "mv third_party/lib third_party/old; mkdir third_party/lib; echo 'gitdir: ../../forged' > third_party/lib/.git",
                "mv third_party gone; mkdir -p third_party/lib; echo 'gitdir: ../../forged' > third_party/lib/.git", "echo 'gitdir: ../../forged' > x; mv x third_party/lib/.git"):
        lab.run([*CLAUDE, "--", "sh", "-c", evil + way])
        script(lab, "GIT status --porcelain > /dev/null")
        assert not os.path.exists(project(lab, "PWNED")), way
        with open(project(lab, "third_party", "lib", ".git")) as f:
            assert "forged" not in f.read(), way


def test_h18_more_submodules_than_mounts_are_told(any_user):
    lab = any_user
    script(lab, NESTED + "for i in $(seq 9); do GIT submodule --quiet add $PWD/src/lib a$i/b/c/d/e/f/s; done; GIT commit -qm more")
    r = lab.run([*CLAUDE, "--", "sh", "-c", "for i in $(seq 9); do echo evil >> a$i/b/c/d/e/f/s/.git; done; cat a?/b/c/d/e/f/s/.git | grep -c evil"], timeout=60)
    changed = int(r.out)
    assert 0 < changed < 9 and "/.git" in [row for row in r.err.splitlines() if "run later" in row][0], r


INCLUDES = """
mkdir -p conf/deep; printf '[include]\n\tpath = ../conf/deep/two\n' > .git/included; printf '[core]\n' > conf/deep/two; echo '[core]' > "conf/a b"; ln -s deep/two conf/link;
GIT config --add include.path included; GIT config --add 'includeIf.gitdir:/x]y/.path' '../conf/a b'; GIT config --add include.path ../conf/link; GIT config --add include.path ../conf/later;
GIT config --add include.path ../src
"""


@pytest.mark.parametrize("how", ["project", "mount"])
def test_h18_what_git_s_configuration_includes_is_read_only_or_told(any_user, how):
    lab = any_user
    script(lab, NESTED + INCLUDES)
    names = [".git/included", "conf/deep/two", "conf/a b"]
    before = {n: open(project(lab, n)).read() for n in names}
    args = [*CLAUDE, "--dir", project(lab)] if how == "project" else ["--mount", project(lab) + ":rw", "-w", project(lab)]
    r = lab.run([*args, "--", PYTHON, "-c", ATTACKS, *names, "conf/link"])
    assert r.code == 0 and {n: open(project(lab, n)).read() for n in names} == before, r
    script(lab, "rm -f conf/link; ln -s deep/two conf/link; rm -rf evil")
    r = lab.run([*args, "--", "sh", "-ec", "echo '[core]' > conf/later; echo x > src/made; rm conf/link; echo evil > conf/link"])
    told = [row for row in r.err.splitlines() if "run later" in row]
    assert r.code == 0 and len(told) == 1 and "conf/later" in told[0] and "conf/link" in told[0] and "src" not in told[0], r


@pytest.mark.parametrize("link", [".", "..", "a", "../modules"])
def test_h18_links_among_worktrees_open_nothing(any_user, link):
    lab = any_user
    script(lab, NESTED + "GIT worktree add -q trees/a")
    before = git_files(lab, ".git")
    lab.run([*CLAUDE, "--", "sh", "-c", "ln -s %s .git/worktrees/0; ln -s %s .git/worktrees/z" % (link, link)])
    r = lab.run([*CLAUDE, "--", PYTHON, "-c", ATTACKS, *[os.path.relpath(p, project(lab)) for p in before]], timeout=60)
    assert "read-only inside" in r.err and git_files(lab, ".git") == before, r


def test_h18_a_project_with_many_links_starts_and_its_link_targets_are_read_only(any_user):
    lab = any_user
    script(lab, "mkdir p")
    where = project(lab, "p")
    r = lab.run([*CLAUDE, "--", PYTHON, "-c", """
import os
for n in ('.mcp.json', '.envrc', '.vscode', '.idea', '.claude', '.codex', '.gemini', '.bashrc', '.profile', '.zshrc', '.zshenv', '.zlogin', '.ssh', '.husky', '.cursor'):
    os.makedirs('links/' + n + '/1/2/3/4/5/6/7/8'); os.symlink('links/' + n + '/1/2/3/4/5/6/7/8', n)
"""], cwd=where)
    assert r.code == 0 and ".husky" in r.err, r
    r = lab.run([*CLAUDE, "--", "sh", "-c", "touch made; touch .envrc/evil links/evil; mv links gone; rm -rf links; true"], cwd=where)
    assert r.code == 0 and "'links' is read-only inside" in r.err and "--project-writable" not in r.err, r
    assert os.path.exists(os.path.join(where, "made")) and os.listdir(os.path.join(where, ".envrc")) == [], r
    script(lab, "rm -rf p; mkdir p")
    r = lab.run([*CLAUDE, "--", "sh", "-c", "chmod 0 ."], cwd=where)
    lab.spawn(["chmod", "755", where], env=lab.env()).wait()
    if lab.who == "user":
        assert "run later" in r.err, r


def test_h18_what_cannot_be_seen_in_the_end_is_told(any_user):
    lab = any_user
    script(lab, NESTED)
    for path, hide in ((".git", "chmod 0 .git"), (".config", "mkdir -p .config/fish; echo x > .config/fish/config.fish; chmod 0 .config"), (".git/modules", "chmod 0 " + MODULE)):
        r = lab.run([*CLAUDE, "--", "sh", "-c", hide])
        if lab.who == "user" or path == ".config":
            assert path in r.err, (path, r)
        script(lab, "chmod 755 .git; chmod 755 .config %s || true" % MODULE)
    script(lab, "rm -rf .config")
    r = lab.run([*CLAUDE, "--", "sh", "-c", "mkdir conf; ln -s conf .config; mkdir conf/fish; echo x > conf/fish/config.fish"])
    assert ".config" in r.err, r
    script(lab, "rm -rf conf/fish")
    r = lab.run([*CLAUDE, "--", "sh", "-c", "mkdir conf/fish; echo x > conf/fish/config.fish"])
    assert "conf/fish/config.fish" in r.err, r
    r = lab.run([*CLAUDE, "--", "sh", "-c", "for i in $(seq 600); do mkdir -p .git/worktrees/w$i; done"], timeout=60)
    assert ".git/worktrees" in r.err, r


def test_h18_git_goes_on_working_in_submodules_and_worktrees_inside(any_user):
    lab = any_user
    script(lab, NESTED + "GIT worktree add -q trees/a")
    for where in ("third_party/lib", "trees/a"):
        r = lab.run([*CLAUDE, "--", "sh", "-ec", ("cd %s; " % where + COMMIT).replace("GIT ", GIT)], timeout=60)
        assert r.code == 0, (where, r)
        assert "run later" not in r.err and "read-only" not in r.err, r
    r = lab.run([*CLAUDE, "--", "sh", "-ec", ("GIT worktree add -q trees/b; cd trees/b; " + COMMIT.replace("side", "side2")).replace("GIT ", GIT)], timeout=60)
    assert r.code == 0 and ".git/worktrees/b/gitdir" in r.err, r
    r = lab.run([*CLAUDE, "--", "sh", "-ec", "GIT worktree list; cd trees/b; GIT rebase -q main; GIT status --porcelain".replace("GIT ", GIT)], timeout=60)
    assert r.code == 0 and "trees/a" in r.out and "trees/b" in r.out, r
    before = git_files(lab, ".git/worktrees")
    lab.run([*CLAUDE, "--", PYTHON, "-c", ATTACKS, *[os.path.relpath(p, project(lab)) for p in before]])
    assert git_files(lab, ".git/worktrees") == before


@pytest.mark.parametrize("kind", ["modules", "worktrees"])
def test_h18_more_git_folders_than_can_be_protected_are_read_only_and_it_is_told(any_user, kind):
    lab = any_user
    script(lab, NESTED)
    if kind == "modules":
        script(lab, "cd .git/modules; for i in $(seq 40); do mkdir -p a/b; cp -r third_party/lib a/b/c$i; touch a/b/c$i/config.worktree a/b/c$i/commondir; done; mkdir ../worktrees")
    else:
        script(lab, "for i in $(seq 40); do GIT worktree add -q trees/$i; done")
    before = git_files(lab, ".git")
    names = [os.path.relpath(p, project(lab)) for p in before if "/%s/" % kind in p]
    r = lab.run([*CLAUDE, "--", PYTHON, "-c", ATTACKS, *names], timeout=120)
    assert r.code == 0 and "'.git/%s' is read-only inside" % kind in r.err, r
    assert git_files(lab, ".git") == before
    r = lab.run([*CLAUDE, "--", "sh", "-ec", COMMIT.replace("GIT ", GIT)], timeout=60)
    assert r.code == 0, r


# ---- another sandbox's project ----

FORGE = """mkdir -p {at}/objects {at}/refs {at}/worktrees/n; echo ref: refs/heads/main > {at}/HEAD; printf '[core]\\n\\tworktree = {pa}\\n' > {at}/config; echo {pa}/.git > {at}/worktrees/n/gitdir;
echo ../.. > {at}/worktrees/n/commondir; cp {at}/HEAD {at}/worktrees/n/HEAD"""


@pytest.mark.parametrize("at,leads", [(".", "worktrees/n"), (".", "."), ("sub", "sub/worktrees/n"), ("sub.git", "sub.git/worktrees/n"), ("x/.git/modules/y", "x/.git/modules/y")])
def test_h18_two_sandboxes_cannot_mount_one_project_in_the_other(any_boxes, at, leads):
    b, lab = any_boxes, any_boxes.lab
    script(lab, "mkdir pa pb; cd pb; GIT init -q; echo secret > file")
    pa, pb = project(lab, "pa"), project(lab, "pb")
    if at in ("sub.git", "x/.git/modules/y"):  # the others are no git folders by their names
        b.create("other", *CLAUDE, "--dir", pb)
    r = lab.run([*CLAUDE, "--", "sh", "-ec", FORGE.format(at=at, pa=pa)], cwd=pb)
    assert r.code == 0, r
    r = lab.run([*CLAUDE, "--", "sh", "-ec", "printf 'gitdir: %s\\n' > .git" % os.path.normpath(os.path.join(pb, leads))], cwd=pa)
    assert r.code == 0, r
    r = lab.run([*CLAUDE, "--", "sh", "-c", "cat %s/file; echo evil > %s/planted; echo evil > %s/.git/hooks/pre-commit" % (pb, os.path.join(pb, at), pb)], cwd=pa)
    assert "secret" not in r.out and "not mounted" in r.err, r
    assert not os.path.exists(os.path.join(pb, at, "planted")) and not os.path.exists(os.path.join(pb, ".git", "hooks", "pre-commit"))


@pytest.mark.parametrize("forge", ["ln wt/.git .git", "mv wt/.git .git; mv wt gone; ln -s . wt", "cp wt/.git .git; mv wt gone; ln -s . wt"])
def test_h18_the_git_file_of_a_worktree_in_the_project_is_of_no_use_elsewhere(any_user, forge):
    lab = any_user
    script(lab, "mkdir g pc; cd g; GIT init -q; echo one > file; GIT add file; GIT commit -qm one; GIT worktree add -q ../pc/wt")
    pc, git = project(lab, "pc"), project(lab, "g", ".git")
    lab.run([*CLAUDE, "--", "sh", "-ec", forge], cwd=pc)
    r = lab.run([*CLAUDE, "--", "sh", "-c", "echo evil > %s/planted" % git], cwd=pc)
    assert "not mounted" in r.err and not os.path.exists(os.path.join(git, "planted")), r


def test_h18_a_git_folder_outside_is_told_at_the_start(any_boxes):
    b, lab = any_boxes, any_boxes.lab
    script(lab, "mkdir main; cd main; GIT init -q; echo one > file; GIT add file; GIT commit -qm one; GIT worktree add -q ../tree")
    git = project(lab, "main", ".git")
    b.up("x", *CODEX, "--dir", project(lab, "main"))
    r = lab.run([*CLAUDE, "--", "sh", "-ec", COMMIT.replace("GIT ", GIT)], cwd=project(lab, "tree"), timeout=60)
    assert r.code == 0 and "'%s'" % git in r.err and "shared with x" in r.err, r


def test_h18_hooks_folders_are_found_however_the_configuration_is_written(any_user):
    lab = any_user
    for text in ("[core] hooksPath = tools/hooks", "[core]\n\thooksPath = tools/hooks # ours", "[core]\n\thooksPath = \"tools/hooks\" ; ours", "[CORE]hookspath=tools/hooks;x"):
        script(lab, "rm -rf .git tools; GIT init -q; mkdir -p tools/hooks; printf '%s\\n' >> .git/config" % text.replace("\n", "\\n"))
        assert "tools/hooks" == script(lab, "GIT config core.hooksPath").strip()
        r = lab.run([*CLAUDE, "--", "sh", "-c", "echo evil > tools/hooks/pre-commit"])
        assert os.listdir(project(lab, "tools", "hooks")) == [], (text, r)


def test_h18_settings_of_further_tools_are_protected(any_user):
    lab = any_user
    script(lab, "echo mine > opencode.json; for d in .husky .cursor .devcontainer .opencode; do mkdir $d; done")
    r = lab.run([*CLAUDE, "--", "sh", "-c", "echo evil > opencode.json; for d in .husky .cursor .devcontainer .opencode; do echo evil > $d/x; done"])
    assert script(lab, "cat opencode.json; ls .husky .cursor .devcontainer .opencode | grep x || true") == "mine\n", r


MORE = ["web.code-workspace", ".code-workspace", "Deep Blue.Code-Workspace", "x.sublime-project", ".dir-locals-2.el", ".helix/languages.toml", ".vim/coc-settings.json",
        ".lvimrc", ".ideavimrc", ".fleet/run.json", ".project", ".externalToolBuilders/a.launch", ".roo/mcp.json", ".kilocode/mcp.json", ".kiro/settings/mcp.json",
        ".amazonq/mcp.json", ".qwen/settings.json", ".junie/mcp/mcp.json", ".trae/mcp.json", ".factory/mcp.json", ".continue/config.yaml", "crush.json", ".crush.json",
        "mise.local.toml", ".mise.local.toml", ".mise/config.toml", ".config/mise.toml", ".config/mise/config.toml", "lefthook.yaml", ".lefthook.yaml", "lefthook.toml",
        "lefthook.json", "lefthook-local.yml", ".lefthook/pre-commit/x", ".lefthook-local/x", ".overcommit.yml", ".jj/repo/config.toml", ".Rprofile", ".octaverc", ".irbrc",
        ".pryrc", ".gdbinit", ".lldbinit", ".hg/hgrc-not-shared", ".hg/sharedpath", ".hg/requires", ".iex.exs", ".ghci", ".ocamlinit", ".Renviron", ".pdbrc", ".byebugrc", ".rdbgrc",
        ".perldb"]
MORE_WATCHED = [".yarnrc", ".yarn/releases/yarn.cjs", ".yarn/plugins/p.cjs", ".pnpmfile.cjs", "bunfig.toml", "rust-toolchain.toml", "rust-toolchain", "AGENTS.md", "CLAUDE.md",
                "CLAUDE.local.md", "GEMINI.md", ".cursorrules", ".windsurfrules", ".clinerules", ".github/copilot-instructions.md"]


def fill(lab, names, text="mine"):
    for name in names:
        script(lab, "mkdir -p \"$(dirname '%s')\"; echo %s > '%s'" % (name, text, name))


def contents(lab, names):
    out = set()
    for name in names:
        with open(project(lab, name)) as f:
            out.add(f.read())
    return out


def told_of(r):
    lines = [line for line in r.err.splitlines() if "your own tools may run later were" in line]
    assert len(lines) <= 1, r
    return lines[0] if lines else ""


@pytest.mark.parametrize("part", [slice(0, 15), slice(15, 30), slice(30, 99)], ids=["editors", "agents", "tools"])
def test_h18_workspaces_and_settings_of_further_tools_are_read_only(any_user, part):
    lab = any_user
    fill(lab, MORE[part])
    r = lab.run([*CLAUDE, "--", PYTHON, "-c", ATTACKS, *MORE[part]])
    assert r.code == 0 and contents(lab, MORE[part]) == {"mine\n"}, r
    assert not any(name in told_of(r) for name in MORE[part]), r


def test_h18_new_workspaces_and_settings_are_told(any_user):
    lab = any_user
    r = lab.run([*CLAUDE, "--", PYTHON, "-c", "import os, sys\nfor n in sys.argv[1:]:\n  os.makedirs(os.path.dirname(n) or '.', exist_ok=True)\n  open(n, 'w').write('evil')",
                 *MORE, "ordinary.workspace"])
    line = told_of(r)
    assert all(name in line for name in MORE) and "ordinary" not in line, r
    r = lab.run([*CLAUDE, "--", "true"])
    assert r.code == 0 and told_of(r) == "", r


def test_h18_instructions_and_settings_that_agents_write_are_told(any_user):
    lab = any_user
    fill(lab, MORE_WATCHED)
    r = lab.run([*CLAUDE, "--", "sh", "-ec", "for f in %s; do echo other > $f; done" % " ".join(MORE_WATCHED)])
    assert r.code == 0 and all(name in told_of(r) for name in MORE_WATCHED), r


def test_h18_a_workspace_is_no_writable_mount(any_user):
    lab = any_user
    fill(lab, ["web.code-workspace", "plain"])
    for name, code in (("web.code-workspace", 2), ("plain", 0)):
        r = lab.run(["--mount", project(lab, name) + ":/m:rw", "--", "true"])
        assert r.code == code, r


def test_h18_what_a_run_can_leave_does_not_keep_the_next_one_from_starting(any_user):
    """Every protected name and more workspaces than there are mounts. The oldest protections stay, and the user is told that others are not."""
    lab = any_user
    everything = [*FILES, *("%s/%s" % kv for kv in FOLDERS.items()), *MORE]
    fill(lab, [name for name in everything if name != "agentkernel.toml"])
    script(lab, "GIT init -q; i=0; while [ $i -lt 200 ]; do : > w$i.code-workspace; i=$((i + 1)); done")
    r = lab.run([*CLAUDE, "--", "sh", "-c", "echo evil > .envrc; echo evil > .vscode/tasks.json; echo evil > .git/config; echo evil > .pryrc; echo ran"])
    assert r.code == 0 and r.out == "ran\n", r
    assert "there are too many of them" in r.err and "not every *.code-workspace was found" in r.err, r
    assert contents(lab, [".envrc", ".vscode/tasks.json"]) == {"mine\n"} and "evil" not in script(lab, "cat .git/config")
    assert contents(lab, [".pryrc"]) == {"mine\n"} or ".pryrc" in told_of(r), r


def test_h18_a_workspace_among_very_many_files_is_not_passed_over_in_silence(any_user):
    lab = any_user
    script(lab, "echo mine > web.code-workspace; seq 3000 | sed s/^/some-other-file-/ | xargs touch")
    r = lab.run([*CLAUDE, "--", "sh", "-c", "echo evil > web.code-workspace; echo evil > new.code-workspace"])
    assert contents(lab, ["web.code-workspace"]) == {"mine\n"} and "new.code-workspace" in told_of(r), r


def test_h18_settings_that_agents_change_are_told(any_user):
    lab = any_user
    script(lab, "mkdir -p .github/workflows;" + "".join("echo mine >%s;" % name for name in WATCHED), cwd=project(lab))
    r = lab.run([*CLAUDE, "--", "sh", "-ec", "; ".join("echo other >%s" % name for name in WATCHED)])
    told = [line for line in r.err.splitlines() if "your own tools may run later" in line]
    assert r.code == 0 and len(told) == 1 and all(name.split("/")[0] in told[0] for name in WATCHED[:2]), r
