"""h2 to h18 by way of --mount: what the user brings in besides the project is held to the rules of the project."""
import json
import os

import pytest

from expect import compile_c
from lab import PYTHON
from mcp import serving
from test_h2_set_ids import SOURCE, TOOLS, found
from test_h4_own_folders import bound, config_file, folders, refused_or_blind
from test_h5_path_sockets import CLIENT, sockets
from test_h7_swapped_project import SWAPPER
from test_h18_project_files import ATTACKS, FILES, FOLDERS, script

CODEX = ("--compatibility-mode", "codex")


def own(lab, *paths):
    if lab.is_root and lab.who == "user":
        for path in paths:
            os.lchown(path, lab.uid, lab.gid)


def mkdir(lab, *parts):
    made = []
    for i in range(1, len(parts) + 1):
        if not os.path.isdir(lab.path(*parts[:i])):
            os.mkdir(lab.path(*parts[:i]))
            made.append(lab.path(*parts[:i]))
    own(lab, *made)
    return lab.path(*parts)


def put(lab, path, text):
    with open(path, "w") as f:
        f.write(text)
    own(lab, path)
    return path


def refused(lab, mount, says, *options):
    """By run and by create, before anything is mounted."""
    r = lab.run([*options, "--mount", mount, "--", "sh", "-c", "echo ran"])
    assert r.code == 2 and says in r.err and r.out == "", (mount, r)
    r = lab.ak(["create", "refused", *options, "--mount", mount])
    assert r.code != 0 and says in r.err, (mount, r)


# ---- h2, h3 ----

def test_h2_a_writable_mount_takes_no_set_id_file(any_boxes):
    b, lab = any_boxes, any_boxes.lab
    tool, folder = compile_c(lab, SOURCE, "h2", static=True), mkdir(lab, "home", "data")
    for words in ([tool], ["sh", "-c", TOOLS]):
        r = lab.run(["--mount", folder + ":rw", "--mount", os.path.dirname(tool), "-w", folder, "--", *words])
        assert r.code == 0 and os.listdir(folder) and not found(folder), (found(folder), r)
    b.up("x", "--mount", folder + ":/mnt/d:rw", "--mount", tool + ":/mnt/tool")
    b.exec("x", "/mnt/tool", options=("-w", "/mnt/d"))
    assert not found(folder), found(folder)


# ---- h4 ----

@pytest.mark.parametrize("which", ["XDG_RUNTIME_DIR", "XDG_STATE_HOME", "XDG_CONFIG_HOME"])
@pytest.mark.parametrize("target", ["", ":/mnt/d", ":rw"])
def test_h4_our_own_folders_do_not_show_in_a_mount(any_user, which, target):
    lab = any_user
    with folders(lab, "data/own"):
        config_file(lab, "data", "own")
        for r in refused_or_blind(lab, {which: lab.path("data", "own")}, ["--mount", lab.path("data") + target], [lab.path("data"), "/mnt"]):
            assert (r.code == 0) == (target != ":rw"), r


def test_h4_our_own_folders_cannot_be_mounted_by_any_name(any_user):
    lab = any_user
    with folders(lab, "state/agentkernel/deep", "x"), bound(lab, lab.path("state", "agentkernel"), lab.path("x")):
        os.symlink(lab.path("state"), lab.path("home", "link"))
        own(lab, lab.path("home", "link"), put(lab, lab.path("state", "agentkernel", "file"), "ours"))
        for path in (lab.path("state", "agentkernel"), lab.path("state", "agentkernel", "deep"), lab.path("home", "link", "agentkernel"), lab.path("x"), lab.path("x", "deep"),
                     lab.path("state", "agentkernel", "file"), lab.path("x", "file"), lab.path("home", "..", "state", "agentkernel")):
            for mode in ("", ":rw"):
                r = lab.run(["--mount", path + mode, "--", "true"])
                assert r.code == 2 and "agentkernel's own" in r.err, (path, r)


# ---- h5 ----

@pytest.mark.parametrize("warm", [False, True], ids=["cold", "warm"])
def test_h5_sockets_in_a_read_only_mount_lead_nowhere(any_boxes, warm):
    b, lab = any_boxes, any_boxes.lab
    folder = mkdir(lab, "home", "data", "deep")
    paths = [lab.path("home", "data", "a.sock"), os.path.join(folder, "b.sock")]
    inside = [p.replace(lab.path("home", "data"), "/mnt/d") for p in paths]
    if warm:
        b.ak("daemon", "prewarm", "--mode", "codex")
    with sockets(lab, *paths) as server:
        r = lab.run([*CODEX, "--mount", lab.path("home", "data"), "--mount", lab.path("home", "data") + ":/mnt/d", "--", PYTHON, "-c", CLIENT, *paths, *inside])
        assert r.code == 0 and r.out == "" and b"hit" not in server.output[1], (r, server.output)
        b.up("x", "--mount", lab.path("home", "data") + ":/mnt/d")
        assert b.out("x", PYTHON, "-c", CLIENT, *inside) == "" and b"hit" not in server.output[1], server.output
        r = lab.run(["--mount", lab.path("home", "data") + ":rw", "--", "true"])
        assert "holds 4 sockets" in r.err, r
        for path in paths:
            refused(lab, path, "neither a file nor a folder")
            refused(lab, path + ":/mnt/s:rw", "neither a file nor a folder")
    lab.host(["rm", "-f", *paths, *[p + ".dgram" for p in paths]])


# ---- h7 ----

@pytest.fixture
def world(any_boxes):
    """data/inner, and a secret that nobody named."""
    lab = any_boxes.lab
    any_boxes.inner, any_boxes.secret = mkdir(lab, "home", "data", "inner"), mkdir(lab, "home", "secret")
    put(lab, os.path.join(any_boxes.inner, "f"), "mine")
    put(lab, os.path.join(any_boxes.secret, "f"), "the host's")
    return any_boxes


def to_link(b):
    os.rename(b.inner, b.inner + ".old")
    os.symlink(b.secret, b.inner)


def to_other(b):
    os.rename(b.inner, b.inner + ".old")
    os.rename(b.secret, b.inner)


def parent_to_link(b):
    os.rename(b.secret, b.lab.path("home", "inner"))
    os.rename(b.lab.path("home", "data"), b.lab.path("home", "data.old"))
    os.symlink(b.lab.path("home"), b.lab.path("home", "data"))


@pytest.mark.parametrize("swap", [to_link, to_other, parent_to_link])
@pytest.mark.parametrize("kind", ["", ":rw", "/f"])
@pytest.mark.parametrize("when", ["create", "stop"])
def test_h7_a_source_that_was_swapped_is_not_mounted(world, swap, kind, when):
    b = world
    b.create("x", "--mount", b.inner + kind.replace("/f", "/f:/mnt/f") if kind else b.inner)
    if when == "stop":
        b.ak("start", "x")
        b.ak("stop", "x")
    swap(b)
    r = b.lab.ak(["start", "x"])
    assert r.code != 0 and b.inner in r.err and "nothing was mounted" in r.err, (r, b.exec("x", "cat", b.inner + "/f", "/mnt/f"))


@pytest.mark.parametrize("warm", [False, True], ids=["cold", "warm"])
def test_h7_swapping_a_source_during_the_start_gains_nothing(world, warm):
    b, lab = world, world.lab
    if warm:
        b.ak("daemon", "prewarm", "--mode", "codex", "--count", "4")
    p = lab.spawn([PYTHON, "-c", SWAPPER, b.inner, b.secret], env=lab.env())
    p.wait_output(b"up\n")
    try:
        for _ in range(12):
            r = lab.run([*CODEX, "--mount", b.inner, "--", "sh", "-c", "cat %s/f" % b.inner])
            assert r.code in (0, 1, 2, 125) and "the host's" not in r.out, r
    finally:
        p.signal(9)
        p.wait()


def test_h7_a_link_that_a_sandbox_left_leads_no_mount_elsewhere(world):
    """In its project, or in a writable mount of its."""
    b, lab = world, world.lab
    other = mkdir(lab, "home", "other")
    b.up("x", *CODEX, "--mount", other + ":rw")
    b.sh("x", "ln -s %s link; ln -s %s %s/link" % (b.secret, b.secret, other))
    for path in (lab.path("project", "link"), lab.path("project", "link", "f"), other + "/link", other + "/link/f"):
        r = lab.run(["--mount", path + ":/mnt/d", "--", "sh", "-c", "cat /mnt/d /mnt/d/f"])
        assert r.code == 125 and "symbolic link" in r.err and r.out == "", r


def test_h7_a_run_that_is_kept_cannot_choose_its_mounts(world):
    """While it runs it puts another folder with a link in the place of the one above its mount."""
    b, lab = world, world.lab
    deep = mkdir(lab, "project", "a", "sub")
    put(lab, deep + "/f", "mine")
    r = lab.run([*CODEX, "--keep", "--name", "kept", "--mount", deep, "--", "sh", "-ec", "mv a old; mkdir a; ln -s %s a/sub" % b.secret])
    assert r.code == 0, r
    r = lab.ak(["start", "kept"])
    assert r.code != 0 and "symbolic link" in r.err, (r, b.exec("kept", "cat", "a/sub/f"))
    os.unlink(deep)
    os.rmdir(lab.path("project", "a"))
    os.rename(lab.path("project", "old"), lab.path("project", "a"))
    b.ak("start", "kept")
    assert b.exec("kept", "sh", "-c", "cat a/sub/f; touch a/sub/x").out == "mine" and os.listdir(deep) == ["f"]


# ---- h8, h28 ----

def test_h8_no_tool_can_mount(any_boxes):
    lab = any_boxes.lab
    with serving(lab, *CODEX) as m:
        schemas = {t["name"]: t["inputSchema"]["properties"] for t in m.request("tools/list")["result"]["tools"]}
        assert not any("mount" in name for properties in schemas.values() for name in properties), schemas
        for tool, more in (("sandbox_run", {"command": ["true"]}), ("sandbox_create", {"name": "x"})):
            for name, value in (("mounts", [{"source": lab.path("home")}]), ("mount", lab.path("home"))):
                answer = m.call(tool, **more, **{name: value})
                assert "unknown argument" in json.dumps(answer), answer


# ---- h11 ----

def test_h11_what_a_sandbox_leaves_at_a_target_is_not_followed(any_boxes):
    b, lab = any_boxes, any_boxes.lab
    folder, path = mkdir(lab, "home", "data"), put(lab, mkdir(lab, "home", "data") + "/f", "mine")
    b.up("x", "--mount", folder + ":/mnt/deep/d", "--mount", path + ":/mnt/deep/f")
    b.sh("x", "mv /mnt /gone && mkdir /tmp/trap && ln -s /tmp/trap /mnt")
    b.ak("stop", "x")
    b.ak("start", "x")
    assert b.sh("x", "cat /mnt/deep/d/f /mnt/deep/f; ls -A /tmp/trap") == "minemine"
    b.sh("x", "mv /mnt/deep /mnt/old && mkdir -p /mnt/deep/f/x && ln -s /etc /mnt/deep/d")
    b.ak("stop", "x")
    b.ak("start", "x")
    assert b.sh("x", "cat /mnt/deep/d/f /mnt/deep/f") == "minemine"
    assert sorted(os.listdir(folder)) == ["f"]


# ---- h12 ----

def test_h12_a_writable_mount_shared_by_different_policies_is_told(any_boxes):
    b, lab = any_boxes, any_boxes.lab
    folder = mkdir(lab, "home", "data")
    b.up("a", "--mount", folder + ":rw")
    for args in (["--mount", folder + ":/mnt/d:rw"], ["--dir", folder]):
        r = lab.run([*CODEX, *args, "--", "true"])
        assert "shared with a (native)" in r.err, (args, r)
    assert "shared with" not in lab.run([*CODEX, "--mount", folder, "--", "true"]).err
    b.create("c", *CODEX, "--mount", lab.path("home", "data") + ":rw")
    assert "shared with a (native)" in b.ak("start", "c").err
    assert b.list()["c"]["shared_with"] == ["a"]


# ---- h18 ----

@pytest.fixture
def repo(any_boxes):
    """A repository with one of everything, beside the project."""
    lab = any_boxes.lab
    any_boxes.repo = mkdir(lab, "home", "repo")
    script(lab, "GIT init -q; echo one > file; GIT add file; GIT commit -qm one; mkdir .claude .vscode .idea .codex .gemini;" + "".join("mkdir -p $(dirname %s); echo mine > %s;" % (f, f) for f in FILES)
           + "".join("mkdir -p %s; echo mine > %s/%s;" % (k, k, v) for k, v in FOLDERS.items()) + "echo mine > .git/hooks/pre-commit", cwd=any_boxes.repo)
    return any_boxes


def state_of(repo):
    out = {}
    for name in [*FILES, *FOLDERS, ".git/hooks", ".git/config", ".git/info"]:
        for path, _, files in os.walk(os.path.join(repo, name)):
            out.update({os.path.join(path, f): open(os.path.join(path, f)).read() for f in files})
        if os.path.isfile(os.path.join(repo, name)):
            out[os.path.join(repo, name)] = open(os.path.join(repo, name)).read()
    return out


@pytest.mark.parametrize("target", ["", ":/mnt/repo"])
@pytest.mark.parametrize("how", ["run", "persistent"])
def test_h18_what_your_tools_run_is_read_only_in_a_writable_mount(repo, target, how):
    b, lab = repo, repo.lab
    before, inside = state_of(b.repo), target[1:] or b.repo
    assert len(before) > 20
    names = [os.path.relpath(p, b.repo) for p in before] + [".git/hooks/post-checkout", ".vscode/launch.json", ".git/info/attributes"]
    words = [PYTHON, "-c", ATTACKS, *names]
    if how == "run":
        r = lab.run([*CODEX, "--mount", b.repo + target + ":rw", "-w", inside, "--", *words])
    else:
        b.up("x", *CODEX, "--mount", b.repo + target + ":rw")
        r = b.exec("x", *words, options=("-w", inside))
        b.ak("stop", "x")
    assert r.code == 0 and os.path.exists(b.repo + "/evil"), r
    assert state_of(b.repo) == before
    r = lab.run([*CODEX, "--mount", b.repo + target + ":rw", "-w", inside, "--", "sh", "-ec", "echo two > two; git add two; git -c user.name=a -c user.email=a@b.test commit -qm two; git log --oneline | wc -l"])
    assert r.code == 0 and r.out == "2\n", r


def test_h18_what_appears_in_a_writable_mount_is_told_and_recorded(any_boxes):
    b, lab = any_boxes, any_boxes.lab
    folder = mkdir(lab, "home", "data")
    b.up("x", "--mount", folder + ":/mnt/d:rw")
    b.sh("x", "cd /mnt/d; mkdir -p .git/hooks; echo evil > .git/hooks/pre-commit; echo evil > .envrc; echo fine > ordinary")
    r = b.ak("stop", "x")
    assert "in '%s', " % folder in r.err and ".git/hooks/pre-commit" in r.err and ".envrc" in r.err and "ordinary" not in r.err, r
    with open(lab.path("state", "agentkernel", "events.jsonl")) as f:
        row = [row for row in map(json.loads, f) if row.get("event") == "project_changed"][-1]
    assert row["project"] == folder and sorted(row["files"]) == [".envrc", ".git/hooks/pre-commit"], row


def test_h18_what_your_tools_run_cannot_be_the_writable_mount_itself(repo):
    b, lab = repo, repo.lab
    script(lab, "GIT init -q --bare bare", cwd=lab.path("home"))
    mkdir(lab, "home", ".config", "tool")
    mkdir(lab, "home", "bin")
    os.link(put(lab, lab.path("home", "data"), "x"), lab.path("home", ".secret-twin"))
    for path, says in ((b.repo + "/.git", "--dir"), (b.repo + "/.git/hooks", "--dir"), (b.repo + "/.git/config", "--dir"), (lab.path("home", "bare"), "--dir"), (b.repo + "/.vscode", "own tools"),
                       (b.repo + "/.envrc", "own tools"), (lab.path("home", ".config"), "settings"), (lab.path("home", ".config", "tool"), "settings"), (lab.path("home", "data"), "other names")):
        refused(lab, path + ":/mnt/d:rw", says)
        assert lab.run(["--mount", path + ":/mnt/d", "--", "true"]).code == 0, path
    path = lab.path("home", "bin") + ":" + lab.env()["PATH"]
    r = lab.run(["--mount", lab.path("home", "bin") + ":/mnt/d:rw", "--", "true"], env={"PATH": path})
    assert r.code == 2 and "PATH" in r.err, r


# ---- keys ----

def test_folders_that_hold_keys_are_refused_however_they_are_named(any_user):
    lab = any_user
    for name in (".ssh/deep", ".gnupg", ".aws", ".kube", ".config/gh", ".mozilla", ".local/share/keyrings", ".claude", "plain"):
        mkdir(lab, "home", *name.split("/"))
    os.symlink(lab.path("home", ".ssh"), lab.path("home", "link"))
    os.rename(lab.path("home", ".aws"), lab.path("home", "plain", "moved"))
    os.symlink(lab.path("home", "plain", "moved"), lab.path("home", ".aws"))
    mkdir(lab, "home", "bound")
    with bound(lab, lab.path("home", ".gnupg"), lab.path("home", "bound")):
        for name in (".ssh", ".ssh/deep", "link", "link/deep", ".gnupg", ".aws", "plain/moved", "plain", ".kube", ".config", ".config/gh", ".mozilla", ".local", ".local/share/keyrings", ".claude",
                     "bound", "../home/.ssh", ""):
            for options in ([], ["--allow-broad-dir"]):
                refused(lab, lab.path("home", *name.split("/")) + ":/mnt/d", "holds keys or sessions", *options)
    key = put(lab, lab.path("home", ".ssh", "known_hosts"), "hosts")
    r = lab.run(["--mount", key, "--", "sh", "-c", "cat %s; ls -A %s" % (key, os.path.dirname(key))])
    assert (r.code, r.out) == (0, "hostsknown_hosts\n"), r
    refused(lab, key + ":rw", "holds keys or sessions")


def test_broad_folders_follow_the_rule_of_the_project(any_user):
    lab = any_user
    for folder in ("/", "/home", "/etc", "/usr/share", "/proc", "/sys/kernel", "/dev"):
        refused(lab, folder + ":/mnt/d", folder, "--allow-broad-dir")
    for folder in ("/tmp", "/var", "/run"):
        refused(lab, folder + ":/mnt/d", "--allow-broad-dir")
    r = lab.run(["--mount", "/etc/os-release:/mnt/f", "--", "cat", "/mnt/f"])
    assert r.code == 0 and r.out, r
    refused(lab, "/etc/passwd:/mnt/f:rw", "part of the system")
