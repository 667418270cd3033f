"""h11: what a sandbox leaves in its files does not lead the host's side anywhere, nor hold it up, nor keep the user from their own files."""
import os
import stat

import pytest

from lab import PYTHON

SECRET = "the host's"


def secret(lab):
    outside = lab.path("home")
    with open(os.path.join(outside, "secret"), "w") as f:
        f.write(SECRET)
    return outside


def home_of(b, name):
    return b.sh(name, "printf %s ~")


def stolen(lab):
    """Files of the project that hold the host's secret."""
    found = []
    for path, _, names in os.walk(lab.path("project")):
        for name in names:
            full = os.path.join(path, name)
            if stat.S_ISREG(os.lstat(full).st_mode):
                with open(full, errors="replace") as f:
                    found += [full] if f.read(100) == SECRET else []
    return found


# ---- a sandbox that does not run ----

def test_h11_files_come_out_of_a_sandbox_that_does_not_run(any_boxes):
    b, lab = any_boxes, any_boxes.lab
    b.up("x")
    home = home_of(b, "x")
    b.sh("x", "mkdir -p ~/d/e; echo one > ~/d/e/f; chmod 751 ~/d/e/f; ln -s f ~/d/e/l; echo two > /tmp/t; echo three > /var/tmp/v; mkdir -p /srv/s; echo four > /srv/s/f; "
         "echo five > /usr/local/share/own; rm -f /usr/share/doc/base-files/copyright 2>/dev/null; true")
    b.ak("stop", "x")
    b.ak("cp", "x:%s/d" % home, ".")
    b.ak("cp", "x:/tmp/t", "two")
    b.ak("cp", "x:/var/tmp/v", "three")
    b.ak("cp", "x:/srv/s/f", "four")
    b.ak("cp", "x:/usr/local/share/own", "five")
    b.ak("cp", "x:/usr/local", "local")
    for name, text in (("d/e/f", "one"), ("two", "two"), ("three", "three"), ("four", "four"), ("five", "five"), ("local/share/own", "five")):
        with open(lab.path("project", *name.split("/"))) as f:
            assert f.read() == text + "\n"
    assert stat.S_IMODE(os.stat(lab.path("project", "d", "e", "f")).st_mode) == 0o751
    assert os.readlink(lab.path("project", "d", "e", "l")) == "f"
    with open(lab.path("project", "in"), "w") as f:
        f.write("x")
    b.fails("cp", "in", "x:/tmp/in", says="not running")
    b.fails("cp", "x:/srv/none", "none", says="no such file")
    b.fails("cp", "ghost:/srv/s", "none", says="no sandbox named 'ghost'")
    assert lab.ak(["start", "x"]).code == 0


def test_h11_links_in_a_sandbox_that_does_not_run_lead_nowhere(any_boxes):
    b, lab = any_boxes, any_boxes.lab
    outside = secret(lab)
    b.up("x")
    home = home_of(b, "x")
    b.sh("x", "cd; mkdir t; cd t; ln -s %s abs; ln -s ../../../../../../../../../..%s up; ln -s / slash; ln -s /proc/self/root root; mkfifo fifo; "
         "echo x > suid; chmod 755 suid; chmod 6755 suid; mkdir sgid; chmod 777 sgid; chmod 2777 sgid; ln -s %s /srv/out" % (outside, outside, outside))
    b.ak("stop", "x")
    for way in ("%s/t/abs/secret", "%s/t/up/secret", "%s/t/slash" + outside + "/secret", "%s/t/root" + outside + "/secret", "/srv/out/secret",
                "/../../../../../.." + outside + "/secret", "/tmp/../../.." + outside + "/secret", "/usr/../../../../.." + outside + "/secret"):
        way = way % home if "%s" in way else way
        assert lab.ak(["cp", "x:" + way, "got"], timeout=10).code == 1, way
    assert lab.ak(["cp", "x:%s/t/fifo" % home, "got"], timeout=10).code == 1
    r = lab.ak(["cp", "x:%s/t" % home, "t"], timeout=20)
    assert r.code == 1 and "FIFO" in r.err, r
    assert stolen(lab) == []
    assert stat.S_IMODE(os.stat(lab.path("project", "t", "suid")).st_mode) == 0o755
    assert stat.S_IMODE(os.stat(lab.path("project", "t", "sgid")).st_mode) == 0o777


def test_h11_a_kept_run_gives_its_files(any_user):
    lab = any_user
    outside = secret(lab)
    r = lab.run(["--keep", "--quiet", "--", "sh", "-c", "echo kept > /srv/f; ln -s %s /srv/out; echo tmp > /tmp/t" % outside])
    assert r.code == 0, r
    (name,) = [n for n in os.listdir(lab.path("state", "agentkernel", "sandboxes")) if n.startswith("run-")]
    assert lab.ak(["cp", name + ":/srv/f", "f"]).code == 0
    assert lab.ak(["cp", name + ":/tmp/t", "t"]).code == 0
    assert lab.ak(["cp", name + ":/srv/out/secret", "got"]).code == 1
    with open(lab.path("project", "f")) as f:
        assert f.read() == "kept\n"
    assert stolen(lab) == []


def test_h11_files_come_out_of_a_sandbox_whose_record_is_damaged(any_boxes):
    b, lab = any_boxes, any_boxes.lab
    b.up("x")
    b.sh("x", "echo mine > /srv/f")
    b.ak("stop", "x")
    b.ak("daemon", "stop")
    with open(lab.path("state", "agentkernel", "sandboxes", "x", "sandbox.json"), "w") as f:
        f.write("{")
    b.ak("cp", "x:/srv/f", "f")
    with open(lab.path("project", "f")) as f:
        assert f.read() == "mine\n"
    b.ak("remove", "--force", "x")


BRICKS = {
    "etc-link": "mv /etc /old && ln -s %s /etc",
    "etc-file": "mv /etc /old && echo x > /etc",
    "var-link": "rm -rf /var/lib; mv /var /oldvar && ln -s %s /var",
    "var-file": "mv /var /oldvar && echo x > /var",
    "home-link": "d=$(dirname ~); mv $d /oldhome && ln -s %s $d",
    "dev-link": "mv /srv /oldsrv; ln -s %s /srv; ln -sfn %s /mnt 2>/dev/null; true",
}


@pytest.mark.parametrize("brick", sorted(BRICKS))
def test_h11_a_sandbox_that_breaks_its_own_root_gives_its_files(any_boxes, brick):
    """It starts again; on the host nothing changed, and the user's files can be had, also while it does not run."""
    b, lab = any_boxes, any_boxes.lab
    outside = secret(lab)
    b.up("x")
    b.sh("x", "mkdir -p /root-of-mine; echo precious > /root-of-mine/f")
    script = BRICKS[brick]
    done = b.exec("x", "sh", "-c", script.replace("%s", outside))
    b.ak("stop", "x")
    before = sorted(os.listdir(outside))
    r = lab.ak(["start", "x"], timeout=60)
    assert r.code == 0, (done, r)
    assert sorted(os.listdir(outside)) == before == ["secret"], "a start went through the sandbox's link"
    assert b.exec("x", "cat", "/root-of-mine/f").out == "precious\n"
    b.ak("cp", "x:/root-of-mine/f", "running")
    b.ak("stop", "x")
    b.ak("cp", "x:/root-of-mine", "saved")
    with open(lab.path("project", "saved", "f")) as f:
        assert f.read() == "precious\n"
    b.ak("remove", "x")
    assert sorted(os.listdir(outside)) == before


# ---- a copy that finishes, with all that it can have ----

HELD = """
import fcntl, os, signal
signal.signal(signal.SIGIO, signal.SIG_IGN)
os.makedirs('held/sub'); open('held/a', 'w').write('a'); open('held/z', 'w').write('z'); open('held/leased', 'w').write('l')
f = os.open('held/leased', os.O_WRONLY); fcntl.fcntl(f, fcntl.F_SETLEASE, fcntl.F_WRLCK)
os.mkfifo('held/sub/fifo')
print('held', flush=True)
signal.pause()
"""


def test_h11_a_lease_does_not_hold_up_cp(any_boxes):
    """Inside nobody can take one; another program of the host may hold one on a file of the project."""
    b, lab = any_boxes, any_boxes.lab
    b.up("x", "--dir", lab.path("project"))
    assert b.exec("x", PYTHON, "-c", HELD).code != 0
    lab.host(["rm", "-rf", lab.path("project", "held")])
    p = lab.spawn([PYTHON, "-c", HELD])
    p.wait_output(b"held")
    tree = "x:" + lab.path("project", "held")
    r = lab.ak(["cp", tree, "t"], timeout=15)  # the kernel would wait for the lease to be broken, 45 s by default
    assert r.code == 1 and "leased" in r.err and "FIFO" in r.err, r
    assert sorted(os.listdir(lab.path("project", "t"))) == ["a", "sub", "z"]
    r = lab.ak(["cp", tree + "/leased", "one"], timeout=15)
    assert r.code == 1 and not os.path.exists(lab.path("project", "one")), r
    p.signal(9)
    p.wait(20)


def test_h11_what_cannot_be_copied_is_told_and_the_rest_comes(any_boxes):
    b, lab = any_boxes, any_boxes.lab
    b.up("x")
    b.out("x", PYTHON, "-c", """
import os
os.makedirs('/tmp/t/a/locked'); os.makedirs('/tmp/t/deep'); open('/tmp/t/a/f', 'w').write('x'); open('/tmp/t/zz', 'w').write('x')
open('/tmp/t/a/secret', 'w').write('x'); os.chmod('/tmp/t/a/secret', 0); os.chmod('/tmp/t/a/locked', 0)
os.chdir('/tmp/t/deep')
for i in range(3000): os.mkdir('d'); os.chdir('d')
""", timeout=60)
    for i, when in enumerate(("running", "stopped")):
        r = lab.ak(["cp", "x:/tmp/t", "t%d" % i], timeout=60)
        assert r.code == 1 and "deep" in r.err and "folders deep" in r.err, (when, r)
        assert os.path.exists(lab.path("project", "t%d" % i, "zz")) and os.path.exists(lab.path("project", "t%d" % i, "a", "f")), when
        if lab.who == "user":
            assert "a/secret" in r.err and "a/locked" in r.err, (when, r)
        if when == "running":
            b.ak("stop", "x")


# ---- the host's side of a copy, in a project that a sandbox may write ----

def test_h11_a_link_in_the_project_turns_no_copy(any_boxes):
    """`cp x:/tmp/f out/f` and `cp data/f x:/tmp` mean the project's folders, not what a sandbox put in their place."""
    b, lab = any_boxes, any_boxes.lab
    outside = secret(lab)
    b.up("x", "--compatibility-mode", "claude")
    b.up("other")
    b.sh("x", "echo evil > /tmp/f; mkdir real; ln -s %s out; ln -s real/../out hop; mkdir in; ln -s ../out in/again" % outside)
    b.sh("other", "echo evil > /tmp/f")
    for name in ("x", "other"):
        for dst in ("out/f", "out/.", "out/", "hop/f", "in/again/f", "./out/f", "real/../out/f", lab.path("project", "out", "f")):
            r = lab.ak(["cp", name + ":/tmp/f", dst], timeout=10)
            assert r.code == 1 and "symbolic link" in r.err, (dst, r)
        assert os.listdir(outside) == ["secret"]
        for src in ("out/secret", "hop/secret", "in/again/secret", "out/."):
            r = lab.ak(["cp", src, name + ":/tmp/got"], timeout=10)
            assert r.code == 1 and b.exec(name, "cat", "/tmp/got").code != 0, (src, r)
    # The user's own links in the home work.
    os.symlink(lab.path("project"), lab.path("home", "mine"))
    b.ak("cp", "x:/tmp/f", lab.path("home", "mine", "real", "f"))
    with open(lab.path("project", "real", "f")) as f:
        assert f.read() == "evil\n"
