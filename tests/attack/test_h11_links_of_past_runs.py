"""h11: a link that a run has left in a folder of the user's leads no later command elsewhere. Nothing remembers such a run."""
import os

import pytest

from test_h_mounts import mkdir, own, put

CLAUDE = ("--compatibility-mode", "claude")


@pytest.fixture
def planted(any_boxes):
    """A run in the project p of the home left links in it and has ended."""
    b, lab = any_boxes, any_boxes.lab
    lab.private, lab.p = mkdir(lab, "home", "private"), mkdir(lab, "home", "p")
    put(lab, lab.private + "/s", "hunter2")
    mkdir(lab, "home", "p", "a", "data")
    r = lab.run([*CLAUDE, "--dir", lab.p, "--", "sh", "-ec",
                 "ln -s %s out; ln -s %s/s file; mkdir sub; ln -s ../out sub/hop; mv a a2; mkdir a; ln -s ../../private a/data" % (lab.private, lab.private)])
    assert r.code == 0 and os.readlink(lab.p + "/out") == lab.private, r
    return b


LINKS = ("out", "file", "sub/hop", "a/data", "out/s", "sub/hop/s", "sub/../out", "./out/.")


@pytest.mark.parametrize("where", ["absolute", "relative", "in the project"])
def test_h11_a_link_of_a_past_run_leads_no_mount_elsewhere(planted, where):
    lab = planted.lab
    for link in LINKS:
        path = link if where == "relative" and link[0] == "." else "./" + link if where == "relative" else os.path.join(lab.p, link)
        options = [*CLAUDE] if where == "in the project" else []
        r = lab.run([*options, "--mount", path + ":/mnt/d", "--", "sh", "-c", "cat /mnt/d /mnt/d/s"], cwd=None if where == "absolute" else lab.p)
        assert r.code == 125 and "symbolic link" in r.err and lab.private in r.err and "hunter2" not in r.out, (path, r)
    assert lab.ak(["create", "x", "--mount", lab.p + "/out"]).code == 1


def test_h11_the_link_is_named_and_so_is_where_it_leads(planted):
    lab = planted.lab
    r = lab.run(["--mount", lab.p + "/sub/hop/s:/mnt/s", "--", "true"])
    assert "'%s/sub/hop'" % lab.p in r.err and "'%s/s'" % lab.private in r.err, r
    assert lab.run(["--mount", lab.private + "/s:/mnt/s", "--", "cat", "/mnt/s"]).out == "hunter2"


def test_h11_a_link_of_a_past_run_makes_no_project_of_another_folder(planted):
    lab = planted.lab
    for link in ("out", "sub/hop", "a/data", "sub/../out/"):
        path = os.path.join(lab.p, link)
        for args, kw in ((["--dir", path], {}), ([], dict(cwd=path, env=dict(PWD=path)))):
            r = lab.run([*CLAUDE, *args, "--", "touch", "made"], **kw)
            assert r.code == 125 and "symbolic link" in r.err, (path, args, r)
    assert os.listdir(lab.private) == ["s"]


@pytest.mark.parametrize("link", ["out", "sub/hop"])
def test_h11_a_relative_path_begins_with_the_links_to_the_current_folder(planted, link):
    """A shell that followed the link shows its name, not where the user is."""
    b, lab = planted, planted.lab
    b.up("x")
    b.sh("x", "echo evil > /tmp/f")
    there = dict(cwd=lab.private, env=dict(PWD=os.path.join(lab.p, link)))
    put(lab, lab.private + "/env", "A=hunter2")
    for args in ([*CLAUDE, "--dir", ".", "--", "touch", "made"], [*CLAUDE, "--dir", "../private", "--", "touch", "made"],
                 ["--mount", "./s:/mnt/s", "--", "cat", "/mnt/s"], ["--env-file", "env", "--", "env"]):
        r = lab.run(args, **there)
        assert r.code in (2, 125) and "symbolic link" in r.err and link in r.err and "hunter2" not in r.out, (args, r)
    for args in (["cp", "x:/tmp/f", "."], ["cp", "x:/tmp/f", "f"], ["cp", "s", "x:/tmp/got"]):
        r = lab.ak(args, **there)
        assert r.code == 1 and "symbolic link" in r.err, (args, r)
    assert sorted(os.listdir(lab.private)) == ["env", "s"]
    # The control: by its own name, and with a PWD that names another folder.
    for pwd in (lab.private, lab.p):
        assert lab.run(["--mount", "./s:/mnt/s", "--", "cat", "/mnt/s"], cwd=lab.private, env=dict(PWD=pwd)).out == "hunter2"


def test_h11_a_link_that_was_renamed_after_the_user_followed_it(any_boxes):
    """PWD no longer names the current folder, or names another one that the sandbox has put there."""
    b, lab = any_boxes, any_boxes.lab
    lab.private, lab.p = mkdir(lab, "home", "private"), mkdir(lab, "home", "p")
    put(lab, lab.private + "/s", "hunter2")
    b.up("x", *CLAUDE, "--dir", lab.p)
    for before, after in (("ln -s ../private sub", "mv sub gone"), ("ln -s ../private sub", "rm sub; mkdir sub"),
                          ("mkdir sub; ln -s ../../private sub/deep", "mv sub gone")):
        link = "sub/deep" if "deep" in before else "sub"
        # A shell of the user's goes there, and starts us when the sandbox has renamed the link.
        script = 'cd "$1" && export PWD && echo there && read go && shift && exec "$@"'
        for args in ([*CLAUDE, "--dir", ".", "--", "touch", "made"], [*CLAUDE, "--", "touch", "made"], ["--mount", "./s:/mnt/s", "--", "cat", "/mnt/s"]):
            b.sh("x", "rm -rf sub gone; " + before)
            shell = lab.spawn(["sh", "-c", script, "sh", os.path.join(lab.p, link), lab.binary, "run", *args], stdin="pipe", env=lab.env())
            shell.wait_output(b"there")
            b.sh("x", after)
            shell.write(b"go\n")
            shell.close_stdin()
            r = shell.wait()
            assert r.code == 125 and "PWD" in r.err and lab.private in r.err and "hunter2" not in r.out, (args, r)
    assert os.listdir(lab.private) == ["s"]


def test_h11_a_path_too_long_to_be_made_absolute(planted):
    """It is opened from the current folder, so that the links to that are not seen."""
    lab = planted.lab
    long = "./" * 2040
    r = lab.run([*CLAUDE, "--dir", long, "--", "touch", "made"], cwd=lab.private, env=dict(PWD=lab.p + "/out"))
    assert r.code == 125 and "PWD" in r.err and os.listdir(lab.private) == ["s"], r
    r = lab.run([*CLAUDE, "--dir", long, "--", "pwd"], cwd=lab.private, env=dict(PWD=lab.private))
    assert (r.code, r.out) == (0, lab.private + "\n"), r


def test_h11_a_program_that_changed_the_folder_and_not_pwd(planted):
    """Controls: within the project, to it from elsewhere, and from its top folder, whose name no sandbox could change."""
    lab = planted.lab
    for cwd, pwd in ((lab.p + "/a2", lab.p + "/sub"), (lab.p, lab.p + "/sub/none"), (lab.p, lab.private), (lab.private, lab.p), (lab.private, "/none/x")):
        r = lab.run([*CLAUDE, "--dir", ".", "--", "pwd"], cwd=cwd, env=dict(PWD=pwd))
        assert (r.code, r.out) == (0, cwd + "\n"), (cwd, pwd, r)
    there = dict(cwd=lab.private, env=dict(PWD=lab.p + "/none"))
    assert lab.run([*CLAUDE, "--dir", ".", "--", "pwd"], **there).code == 125
    assert lab.run([*CLAUDE, "--dir", lab.private, "--", "pwd"], **there).out == lab.private + "\n"


def test_h11_a_mount_of_a_trusted_file_is_not_turned_by_a_link(planted):
    lab = planted.lab
    os.unlink(lab.p + "/a/data")
    data = mkdir(lab, "home", "p", "a", "data")
    put(lab, lab.p + "/agentkernel.toml", '[[mounts]]\nsource = "%s"\ntarget = "/mnt/d"\n' % data)
    assert lab.ak(["trust", "--yes"], cwd=lab.p).code == 0
    r = lab.run([*CLAUDE, "--", "sh", "-ec", "ls /mnt/d; mv a gone; mkdir a; ln -s %s a/data" % lab.private], cwd=lab.p)
    assert r.code == 0 and os.path.islink(data), r
    r = lab.run([*CLAUDE, "--", "sh", "-c", "cat /mnt/d/s"], cwd=lab.p)
    assert r.code == 125 and "symbolic link" in r.err and "hunter2" not in r.out, r


def test_h11_a_link_of_a_past_run_turns_no_copy(planted):
    b, lab = planted, planted.lab
    b.up("x")
    b.sh("x", "echo evil > /tmp/f")
    for dst in ("out/", "out/f", "out/.", "sub/hop/", "sub/hop/f", "a/data/f", "sub/../out/f", "out"):
        for path, cwd in ((lab.p + "/" + dst, None), (dst, lab.p)):
            r = lab.ak(["cp", "x:/tmp/f", path], cwd=cwd)
            assert r.code == 1 and "symbolic link" in r.err, (path, r)
    assert os.listdir(lab.private) == ["s"]
    for src in ("out/s", "sub/hop/s", "a/data/."):
        r = lab.ak(["cp", lab.p + "/" + src, "x:/tmp/got"])
        assert r.code == 1 and "symbolic link" in r.err and b.exec("x", "test", "-e", "/tmp/got").code == 1, (src, r)


def test_h11_links_of_the_system_and_of_the_home_are_followed(any_boxes):
    """A home that is a link, or lies behind one of the user's, and what the user has linked in the home itself."""
    b, lab = any_boxes, any_boxes.lab
    real = mkdir(lab, "tmp", "data", "src")
    put(lab, real + "/f", "mine")
    os.symlink(real, lab.path("home", "src"))
    os.symlink(real + "/f", lab.path("home", ".gitconfig"))
    os.symlink(lab.path("home"), lab.path("tmp", "home"))
    own(lab, lab.path("home", "src"), lab.path("home", ".gitconfig"), lab.path("tmp", "home"))
    b.up("x")
    for home in (lab.path("home"), lab.path("tmp", "home")):
        env = dict(HOME=home)
        for source in ("/src", "/src/f", "/.gitconfig"):
            r = lab.run(["--mount", home + source + ":/mnt/d", "--", "sh", "-c", "cat /mnt/d /mnt/d/f 2>/dev/null"], env=env)
            assert r.out == "mine", (home, source, r)
        r = lab.run([*CLAUDE, "--dir", home + "/src", "--", "pwd"], env=env)
        assert r.code == 0 and r.out.strip() == real, r
        assert lab.ak(["cp", home + "/src/f", "x:/tmp/f"], env=env).code == 0
    assert lab.run(["--mount", "/proc/self/root/etc/hostname:/mnt/n", "--", "cat", "/mnt/n"]).code == 0


# ---- --env-file ----

def test_h11_a_file_of_variables_takes_nothing_that_a_run_asks_for(planted):
    lab = planted.lab
    put(lab, lab.p + "/.env", "A=1\n")
    put(lab, lab.private + "/.env", "OTHER=hunter2\n")
    assert lab.run([*CLAUDE, "--", "sh", "-ec", "echo SECRET >> .env; ln -s %s/.env linked; mkfifo fifo" % lab.private], cwd=lab.p).code == 0
    for file, says in ((".env", "line 2"), (lab.p + "/.env", "-e SECRET"), ("linked", "symbolic link"), ("out/.env", "symbolic link"), ("fifo", "regular file")):
        for mode in ((), CLAUDE):
            r = lab.run([*mode, "--env-file", file, "--", "env"], cwd=lab.p, env={"SECRET": "hunter2"}, timeout=20)
            assert r.code == 2 and says in r.err and "hunter2" not in r.out, (file, r)
    put(lab, lab.private + "/mine", "SECRET\n")
    r = lab.run(["--env-file", lab.private + "/mine", "--", "env"], cwd=lab.p, env={"SECRET": "hunter2"})
    assert r.code == 0 and "SECRET=hunter2" in r.out, r


# ---- writable mounts ----

def test_h11_no_dot_file_of_a_home_is_writable(any_user):
    lab = any_user
    for name in (".vimrc", ".npmrc", ".pam_environment", ".forward", ".rhosts", ".xprofile"):
        put(lab, lab.path("home", name), "mine")
    for parts in ((".local", "share"), (".local", "lib"), (".nvm",), (".cargo", "registry"), ("bin",), (".cache",)):
        mkdir(lab, "home", *parts)
    for name in (".vimrc", ".npmrc", ".pam_environment", ".forward", ".rhosts", ".xprofile", ".local", ".local/share", ".local/lib", ".nvm", ".cargo/registry", "bin"):
        for more in ((), ("--allow-broad-dir",)):
            r = lab.run([*more, "--mount", lab.path("home", name) + ":/mnt/d:rw", "--", "true"])
            assert r.code == 2 and "writable" in r.err, (name, r)
        assert lab.run(["--mount", lab.path("home", name) + ":/mnt/d", "--", "true"]).code == 0, name
    assert lab.run(["--mount", lab.path("home", ".cache") + ":/mnt/d:rw", "--", "touch", "/mnt/d/x"]).code == 0


def test_h11_records_of_the_system_are_writable_only_when_confirmed(any_user):
    for folder in ("/var/lib", "/var/log", "/var/spool", "/var/backups"):
        r = any_user.run(["--mount", folder + ":/mnt/d:rw", "--", "true"])
        assert "No such file" in r.err or (r.code == 2 and "--allow-broad-dir" in r.err), (folder, r)


# ---- policies ----

def test_h11_a_fifo_does_not_block_the_check_of_a_policy(any_user):
    lab = any_user
    os.mkfifo(lab.path("project", "fifo"))
    r = lab.ak(["policy", "validate", "fifo"], timeout=20)
    assert r.code != 0 and "FIFO" in r.err + r.out, r
