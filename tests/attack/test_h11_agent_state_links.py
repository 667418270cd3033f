"""h11 by way of an agent's state: a link never makes a folder of the user's own the state that a sandbox may write."""
import os
import shutil

import pytest

from homes import Home
from lab import PATH

WRITE = "echo told >~/.claude/settings.json; cat ~/.claude/settings.json"


@pytest.fixture
def home(any_user):
    made = Home(any_user)
    made.program("dotfiles/claude/settings.json", "mine\n", 0o600)
    made.program(".local/bin/claude", "#!/bin/sh\n" + WRITE + "\n")
    return made


def ak(home, *args):
    return home.lab.ak(list(args), env={"PATH": home.path(".local/bin") + ":" + PATH})


def agent(home, *options):
    return home.run(*options, "--", "claude", path=[".local/bin"], mode="claude")


def text(path):
    with open(path) as f:
        return f.read()


def state(home, *parts):
    return home.lab.path("state", "agentkernel", "agents", "claude", "shared", *parts)


@pytest.mark.parametrize("relative", [False, True])
def test_h11_a_linked_folder_is_imported_as_a_copy(home, relative):
    home.link(".claude", "dotfiles/claude" if relative else home.path("dotfiles/claude"))
    r = ak(home, "agents", "import", "claude", "--yes")
    assert r.code == 0 and "1 file copied" in r.err, r
    assert not os.path.islink(state(home, ".claude")) and text(state(home, ".claude", "settings.json")) == "mine\n"
    r = agent(home)
    assert (r.code, r.out) == (0, "told\n"), r
    assert text(home.path("dotfiles/claude/settings.json")) == "mine\n"


def test_h11_a_file_beside_the_link_is_not_written_through_it(home):
    home.link(".claude", home.path("dotfiles/claude"))
    home.program(".claude.json", "{}\n", 0o600)
    r = ak(home, "agents", "import", "claude", "--yes")
    assert r.code == 0 and "2 files copied" in r.err, r
    assert os.listdir(home.path("dotfiles/claude")) == ["settings.json"]


@pytest.mark.parametrize("target", ["/etc/hostname", "../outside", "sub/../../outside", "./.."])
def test_h11_links_that_lead_out_are_left_out_and_named(home, target):
    home.program(".claude/settings.json", "mine\n", 0o600)
    home.program(".claude/sub/file", "mine\n", 0o600)
    home.link(".claude/out", target)
    home.link(".claude/sub/inner", "../settings.json")
    r = ak(home, "agents", "import", "claude", "--yes")
    assert r.code == 0 and "out' is a link that leads out of the folder; left out" in r.err, r
    assert not os.path.lexists(state(home, ".claude", "out"))
    assert os.readlink(state(home, ".claude", "sub", "inner")) == "../settings.json"


def test_h11_a_link_to_keys_is_not_imported(home):
    home.program(".ssh/id", "s3cret\n", 0o600)
    home.link(".claude", home.path(".ssh"))
    r = ak(home, "agents", "import", "claude", "--yes")
    assert r.code == 1 and "holds keys" in r.err, r
    assert not os.path.lexists(state(home))


def test_h11_a_failed_import_leaves_nothing(home):
    home.program(".claude/settings.json", "mine\n", 0o600)
    home.program(".ssh/id", "s3cret\n", 0o600)
    home.link(".claude.json", home.path(".ssh/id"))
    r = ak(home, "agents", "import", "claude", "--yes")
    assert r.code == 1 and "holds keys" in r.err, r
    assert not os.path.lexists(state(home))
    os.unlink(home.path(".claude.json"))
    r = ak(home, "agents", "import", "claude", "--yes")
    assert r.code == 0, r


@pytest.mark.parametrize("part", [".claude", ""])
@pytest.mark.parametrize("kind", ["shared", "project"])
def test_h11_a_link_in_the_state_ends_the_run(home, part, kind):
    """As an older version has left it."""
    assert agent(home, "--agent-state", kind).code == 0
    base = os.path.dirname(state(home))
    (name,) = os.listdir(base)
    place = os.path.join(base, name, part).rstrip("/")
    shutil.rmtree(place)
    if not part:
        home.program("dotfiles/claude/.claude/settings.json", "mine\n", 0o600)
    os.symlink(home.path("dotfiles/claude"), place)
    r = agent(home, "--agent-state", kind)
    assert r.code == 125 and "is a symbolic link" in r.err and "agents reset claude" in r.err, r
    for folder, _, files in os.walk(home.path("dotfiles/claude")):
        assert [text(os.path.join(folder, f)) for f in files] == ["mine\n"], folder
    assert ak(home, "agents", "reset", "claude", "--yes").code == 0
    assert agent(home, "--agent-state", kind).out == "told\n"


def place(home, name):
    return home.lab.path("state", "agentkernel") if name == "state" else os.path.normpath(home.path(name))


def leave_link(home, name, target):
    """What a run in the user's dotfiles does to one of them."""
    r = home.run("--dir", home.path("dotfiles"), "--", "sh", "-c", 'rm -r "$0"; ln -s "$1" "$0"', name, target, path=[])
    assert r.code == 0 and os.readlink(home.path("dotfiles", name)) == target, r


@pytest.mark.parametrize("target", ["", ".ssh", "papers", "state"])
def test_h11_a_link_of_a_past_run_behind_a_link_of_the_user_is_not_followed(home, target):
    for name in (".ssh/id", "papers/id"):
        home.program(name, "s3cret\n", 0o600)
    home.link(".claude", "dotfiles/claude")
    leave_link(home, "claude", place(home, target))
    r = ak(home, "agents", "import", "claude", "--yes")
    assert r.code == 1 and "dotfiles/claude', which a sandbox may have made" in r.err, r
    assert not os.path.lexists(state(home))


def test_h11_a_file_behind_a_link_of_a_past_run_is_not_imported(home):
    home.program(".netrc", "s3cret\n", 0o600)
    home.program("dotfiles/claude.json", "{}\n", 0o600)
    home.link(".claude.json", "dotfiles/claude.json")
    leave_link(home, "claude.json", home.path(".netrc"))
    r = ak(home, "agents", "import", "claude", "--yes")
    assert r.code == 1 and "dotfiles/claude.json', which a sandbox may have made" in r.err, r
    assert not os.path.lexists(state(home))


def test_h11_a_linked_folder_is_imported_after_a_run_in_it(home):
    """The control: the run changed no link, and what it wrote is no link."""
    home.link(".claude", "dotfiles/claude")
    r = home.run("--dir", home.path("dotfiles"), "--", "true", path=[])
    assert r.code == 0, r
    r = ak(home, "agents", "import", "claude", "--yes")
    assert r.code == 0 and text(state(home, ".claude", "settings.json")) == "mine\n", r


@pytest.mark.parametrize("target,words", [("", "contains your home"), (".config", "contains"), ("state", "own folder")])
def test_h11_a_link_to_more_than_an_agents_files_is_not_imported(home, target, words):
    """Whoever made it: no record of past runs is complete."""
    home.program(".config/gh/hosts.yml", "s3cret\n", 0o600)
    home.link(".claude", place(home, target))
    assert home.run("--", "true", path=[]).code == 0  # there is a state folder
    r = ak(home, "agents", "import", "claude", "--yes")
    assert r.code == 1 and words in r.err, r
    assert not os.path.lexists(state(home))
