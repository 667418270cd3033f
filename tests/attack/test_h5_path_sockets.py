"""h5: no path socket of the host outside the project can be connected to, in any mode or profile."""
import contextlib
import os

import pytest
from lab import PYTHON

SERVER = """
import os, selectors, socket, sys
sel = selectors.DefaultSelector()
for path in sys.argv[1:]:
    for kind, name in ((socket.SOCK_STREAM, path), (socket.SOCK_DGRAM, path + '.dgram')):
        if os.path.exists(name): os.unlink(name)
        s = socket.socket(socket.AF_UNIX, kind); s.bind(name); os.chmod(name, 0o777)
        if kind == socket.SOCK_STREAM: s.listen(16)
        sel.register(s, 1)
print('up', flush=True)
while True:
    for key, _ in sel.select():
        if key.fileobj.type == socket.SOCK_STREAM: key.fileobj.accept()[0].close()
        else: key.fileobj.recv(100)
        print('hit', key.fileobj.getsockname(), flush=True)
"""
# Prints the paths that answered; a path that is not there at all is as good.
CLIENT = """
import os, socket, sys
for path in sys.argv[1:]:
    for kind, name in ((socket.SOCK_STREAM, path), (socket.SOCK_DGRAM, path + '.dgram')):
        folder, last = os.path.split(name)
        for how in ('whole', 'relative', 'descriptor'):
            try:
                s = socket.socket(socket.AF_UNIX, kind)
                if how == 'whole': s.connect(name)
                else:
                    os.chdir(folder)
                    s.connect(last if how == 'relative' else '/proc/self/fd/%d' % os.open(last, os.O_PATH))
                s.send(b'x'); print(how, name)
            except OSError: pass
"""


@contextlib.contextmanager
def sockets(lab, *paths):
    proc = lab.spawn([PYTHON, "-c", SERVER, *paths], who="root", cwd="/")
    proc.wait_output(b"up\n")
    try:
        yield proc
    finally:
        proc.signal(9)
        proc.wait()


@contextlib.contextmanager
def private_folders(lab, *folders):
    """The system's folders, empty and of the lab's own, so that sockets can be put there."""
    for folder in folders:
        assert lab.host(["mount", "-t", "tmpfs", "-o", "mode=755", "none", folder]).code == 0
    try:
        yield
    finally:
        for folder in folders:
            assert lab.host(["umount", "-l", folder]).code == 0


@pytest.mark.parametrize("options", [["--compatibility-mode", m] for m in ("codex", "claude", "gemini", "native")] +
                         [["--profile", p] for p in ("permissive", "moderate", "restrictive")], ids=lambda o: o[1])
def test_h5_sockets_of_the_host_lead_nowhere(any_user, options):
    lab = any_user
    os.makedirs(lab.path("home", ".gnupg"))
    os.makedirs(lab.path("config", "agentkernel"))  # what a first run makes by itself
    os.chmod(lab.path("home"), 0o755)
    paths = ["/opt/docker.sock", "/etc/fonts/x.sock", "/etc/terminfo/x.sock", "/run/dbus.sock", lab.path("home", "docker.sock"), lab.path("home", ".gnupg", "S.agent"), lab.path("tmp", "x.sock")]
    with private_folders(lab, "/opt", "/etc/fonts", "/etc/terminfo"):
        with sockets(lab, *paths) as server:
            r = lab.run([*options, "--", PYTHON, "-c", CLIENT, *paths])
            assert r.code == 0 and r.out == "", r
            assert b"hit" not in server.output[1], server.output
        for path in paths:
            lab.host(["rm", "-f", path, path + ".dgram"])


@pytest.mark.parametrize("mode", ["codex", "native"])
def test_h5_folders_of_etc_are_whole(any_user, mode):
    """However they get in: with files, links and folders in them."""
    lab = any_user
    look = "cd /etc/terminfo && find . -printf '%P %y %l\\n' | sort && cat a/file file link"
    with private_folders(lab, "/etc/terminfo"):
        fill = "cd /etc/terminfo && mkdir a b && echo x > file && echo y > a/file && chmod 755 file && ln -s a/file link && ln -s /nowhere dangling"
        assert lab.host(["sh", "-ec", fill]).code == 0
        small = lab.host(["sh", "-c", look]).out
        assert "link l a/file" in small and lab.run(["--compatibility-mode", mode, "--", "sh", "-c", look]).out == small
        for more in ("for i in $(seq 1 40); do echo $i > /etc/terminfo/$i; done", "rm /etc/terminfo/[0-9]*; head -c 100000 /dev/zero > /etc/terminfo/large"):
            assert lab.host(["sh", "-c", more]).code == 0
            r = lab.run(["--compatibility-mode", mode, "--", "sh", "-c", look])
            assert r.code == 0 and r.out == lab.host(["sh", "-c", look]).out != small, r


def test_h5_an_empty_opt_stays_the_sandbox_s_own(any_user):
    lab = any_user
    with private_folders(lab, "/opt"):
        r = lab.run(["--", "sh", "-c", "ls -A /opt; echo x > /opt/made && cat /opt/made"])
        assert r.code == 0 and r.out == "x\n", r
        assert lab.host(["ls", "-A", "/opt"]).out == ""
        r = lab.run(["--compatibility-mode", "codex", "--", "sh", "-c", "ls -A /opt; touch /opt/made"])
        assert r.code != 0 and r.out == "", r


def test_h5_sockets_in_the_project_work(any_user):
    """They are the project's: two programs of one project may talk."""
    lab = any_user
    path = lab.path("project", "p.sock")
    with sockets(lab, path):
        r = lab.run(["--compatibility-mode", "codex", "--", PYTHON, "-c", CLIENT, path])
        assert r.code == 0 and "whole " + path in r.out, r
    lab.host(["rm", "-f", path, path + ".dgram"])


@pytest.mark.parametrize("mode", ["codex", "native", "claude"])
def test_h5_opt_that_cannot_be_overlaid_is_left_out(any_user, mode):
    """Something mounted below it, as in containers: the kernel refuses the overlay."""
    lab = any_user
    with private_folders(lab, "/opt"):
        assert lab.host(["mkdir", "/opt/below"]).code == 0
        with private_folders(lab, "/opt/below"), sockets(lab, "/opt/x.sock", "/opt/below/y.sock") as server:
            r = lab.run(["--compatibility-mode", mode, "--", PYTHON, "-c", CLIENT, "/opt/x.sock", "/opt/below/y.sock"])
            assert r.code == 0 and r.out == "", r
            assert b"hit" not in server.output[1], server.output


def test_h5_a_project_that_is_a_mount_in_opt_works(any_user):
    lab = any_user
    with private_folders(lab, "/opt"):
        assert lab.host(["mkdir", "-m", "777", "/opt/project"]).code == 0
        with private_folders(lab, "/opt/project"):
            assert lab.host(["chmod", "777", "/opt/project"]).code == 0
            r = lab.run(["--compatibility-mode", "codex", "--dir", "/opt/project", "--", "sh", "-c", "echo x > made && cat made"], cwd="/opt/project")
            assert r.code == 0 and r.out == "x\n", r


def test_h5_a_home_below_opt_is_not_shown(any_user):
    lab = any_user
    with private_folders(lab, "/opt"):
        script = "mkdir -p /opt/svc/.ssh && echo key > /opt/svc/.ssh/id && chmod 600 /opt/svc/.ssh/id && chown -R %s /opt/svc"
        assert lab.host(["sh", "-c", script % (lab.uid if lab.who == "user" and lab.is_root else 0)]).code == 0
        for options in (["--compatibility-mode", "codex"], ["--compatibility-mode", "claude"], ["--profile", "restrictive"], []):
            r = lab.run([*options, "--", "sh", "-c", "cat /opt/svc/.ssh/id; echo x > ~/made && ls -a ~"], env=dict(HOME="/opt/svc"))
            assert "key" not in r.out, (options, r)
            if lab.who == "user":
                assert r.code == 0 and "made" in r.out, (options, r)
