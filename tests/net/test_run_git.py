"""Git in a sandbox: the caller's name and nothing else of their configuration, and commits that look as if made on the host."""
import os
import shutil

import pytest

from expect import missing

CONFIG = """
[include]
	path = more
[user]
	name = "Ada \\"A\\" L\xc3\xb6v" ; a comment
	Email = ada@old.test
	signingkey = secret
[user]
	email = ada@test.test
[user "other"]
	name = nobody
[alias]
	st = !echo alias
[credential]
	helper = !echo password=secret
"""
NAME, EMAIL = 'Ada "A" L\xf6v', "ada@test.test"


class Repo:
    """A repository that the lab's user made on the lab's host."""

    def __init__(self, lab):
        if not shutil.which("git"):
            missing("git is not installed")
        self.lab = lab
        self.configure(CONFIG)
        with open(lab.path("home", "more"), "w") as f:
            f.write("[user]\n\temail = included@test.test\n")

    def configure(self, text):
        with open(self.lab.path("home", ".gitconfig"), "w", encoding="latin-1") as f:
            f.write(text)

    def host(self, *args, at="project", **kw):
        r = self.lab.spawn(["git", *args], cwd=self.lab.path(at), **kw).wait()
        assert r.code == 0, r
        return r.out

    def make(self, at, files=1):
        path = self.lab.path(at)
        os.makedirs(path, exist_ok=True)
        self.own(path)
        self.host("init", "-q", "-b", "main", at=at)
        for i in range(files):
            with open(os.path.join(path, "file%d" % i), "w") as f:
                f.write("%d\n" % i)
            self.own(f.name)
        self.host("add", ".", at=at)
        self.host("commit", "-qm", "first", at=at)
        return path

    def own(self, path):
        home = os.stat(self.lab.path("home"))
        if os.getuid() == 0:
            os.chown(path, home.st_uid, home.st_gid)

    def inside(self, script, *options, at="project", mode="codex", env=None):
        r = self.lab.run(["--compatibility-mode", mode, *options, "--", "sh", "-ec", script], cwd=self.lab.path(at), env=env)
        assert r.code == 0, r
        return r.out

    def identity(self, commit="HEAD", at="project"):
        return self.host("log", "-1", "--format=%an|%ae|%cn|%ce", commit, at=at).strip()

    def strangers(self, at="project"):
        """Files below AT that do not belong to the user."""
        uid = os.stat(self.lab.path("home")).st_uid
        return [os.path.join(d, n) for d, dirs, names in os.walk(self.lab.path(at)) for n in dirs + names if os.lstat(os.path.join(d, n)).st_uid != uid]


@pytest.fixture
def repo(any_user):
    return Repo(any_user)


def test_a_commit_made_inside_looks_as_if_made_on_the_host(repo):
    repo.make("project")
    repo.inside("echo new >new; printf '#!/bin/sh\\n' >run; chmod +x run; mkdir d; echo x >d/x; git add .; git commit -qm second; git gc -q; git status --porcelain")
    assert repo.identity() == "|".join([NAME, EMAIL, NAME, EMAIL]) == repo.identity("HEAD~1")
    assert repo.host("status", "--porcelain") == "" and repo.host("fsck", "--strict") == ""
    assert repo.host("ls-tree", "HEAD", "run", "new").split()[0::4] == ["100644", "100755"]
    assert repo.strangers() == []
    before, after = (os.stat(repo.lab.path("project", name)).st_mode for name in ("file0", "new"))
    assert before == after
    repo.host("commit", "--amend", "-qm", "amended on the host")


def test_nothing_else_of_the_configuration_is_inside(repo):
    repo.make("project")
    out = repo.inside("git config --list --show-scope; ls -A ~")
    rows = [line for line in out.splitlines() if line.startswith(("system", "global", "command"))]
    assert sorted(rows) == ["system\tsafe.directory=*", "system\tuser.email=" + EMAIL, "system\tuser.name=" + NAME], out
    assert ".gitconfig" not in out and "secret" not in out


def test_the_repositorys_own_identity_and_the_environments_win_as_on_the_host(repo):
    repo.make("project")
    repo.host("config", "user.email", "local@test.test")
    commit = "git commit -q --allow-empty -m x"
    repo.inside(commit)
    assert repo.identity() == "|".join([NAME, "local@test.test"] * 2)
    repo.inside(commit, env={"GIT_AUTHOR_NAME": "Env", "GIT_AUTHOR_EMAIL": "env@test.test", "GIT_SSH_COMMAND": "secret"})
    assert repo.identity() == "|".join(["Env", "env@test.test", NAME, "local@test.test"])
    repo.inside(commit, "-e", "GIT_AUTHOR_NAME=Option")
    assert repo.identity().startswith("Option|")


def test_other_places_of_the_configuration_are_read_and_none_is_needed(repo):
    lab = repo.lab
    repo.make("project")
    os.rename(lab.path("home", ".gitconfig"), lab.path("home", "dotfiles"))
    assert "user." not in repo.inside("git config --list --system", env={"HOME": lab.path("home")})
    os.symlink("dotfiles", lab.path("home", ".gitconfig"))
    assert EMAIL in repo.inside("git config user.email")
    os.makedirs(lab.path("config", "git"))
    with open(lab.path("config", "git", "config"), "w") as f:
        f.write("[user]\nname = Xdg\nemail = xdg@test.test\n")
    assert EMAIL in repo.inside("git config user.email")
    os.unlink(lab.path("home", ".gitconfig"))
    assert repo.inside("git config user.email") == "xdg@test.test\n"
    assert repo.inside("git config user.name", env={"GIT_CONFIG_GLOBAL": lab.path("home", "dotfiles")}) == NAME + "\n"
    assert repo.inside("git config --list --system; git init -q -b main n; cd n; git commit -q --allow-empty -m x; git log --format=%an",
                       env={"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_AUTHOR_NAME": "A", "GIT_AUTHOR_EMAIL": "e", "GIT_COMMITTER_NAME": "A", "GIT_COMMITTER_EMAIL": "e"}
                       ).splitlines()[-1] == "A"


def test_a_name_is_data_and_no_configuration(repo):
    repo.make("project")
    repo.configure('[user]\n\tname = "x\\\\\\" # [alias] st = !id"\n\temail = "a\\tb"\n')
    assert repo.inside("git config user.name; git config --list --system | wc -l") == 'x\\" # [alias] st = !id\n2\n'


def test_a_linked_worktree_as_the_project(repo):
    repo.make("project/main")
    repo.host("worktree", "add", "-q", "-b", "side", repo.lab.path("project", "side"), at="project/main")
    repo.inside("echo w >w; git add w; git commit -qm side; git log --oneline main..side | wc -l", at="project/side")
    assert repo.identity("side", at="project/main") == "|".join([NAME, EMAIL] * 2)
    assert repo.host("status", "--porcelain", at="project/side") == "" and repo.strangers() == []


def test_a_repository_with_submodules_and_one_of_them_as_the_project(repo):
    repo.make("project/library")
    repo.make("project/app")
    repo.host("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", repo.lab.path("project", "library"), "sub", at="project/app")
    repo.host("commit", "-qm", "with a submodule", at="project/app")
    repo.inside("cd sub; echo s >s; git add s; git commit -qm sub; cd ..; git add sub; git commit -qm bump; git submodule status", at="project/app")
    repo.inside("echo t >t; git add t; git commit -qm again", at="project/app/sub")
    assert repo.identity(at="project/app/sub") == repo.identity(at="project/app") == "|".join([NAME, EMAIL] * 2)
    assert repo.host("status", "--porcelain", at="project/app") == " M sub\n" and repo.strangers() == []


def test_a_repository_with_many_files_and_packs(repo):
    repo.make("project", files=1000)
    repo.host("gc", "-q")
    out = repo.inside("for f in file1*; do echo more >>$f; done; git add -A; git commit -qm many; git repack -adq; git log --stat --oneline -1 | tail -1; git status --porcelain | wc -l")
    assert out == " 111 files changed, 111 insertions(+)\n0\n", out
    assert repo.host("fsck") == "" and repo.strangers() == []


def test_a_repository_of_another_user_can_be_read(repo):
    """Git trusts a repository by its owner; what the project is, its user has said."""
    if not repo.lab.is_root:
        pytest.skip("needs two users")
    path = repo.make("project/theirs")
    for folder, dirs, names in os.walk(path):
        for name in [".", *dirs, *names]:
            os.chown(os.path.join(folder, name), 4242, 4242)
    assert repo.inside("git log --format=%s; git status --porcelain", at="project/theirs") == "first\n"
