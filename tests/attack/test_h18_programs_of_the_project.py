"""h18 by way of PATH: programs of the project, in an active venv or node_modules/.bin, are not run on the host by our own commands."""
import os
import shutil

import pytest

from expect import instead_of, missing
from homes import Home
from lab import PATH


SYSTEM = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"  # of spawn.h
NAMES = ("claude", "codex", "gemini", "opencode", "tar", "skopeo", "apt-get", "modprobe", "apparmor_parser", "newuidmap", "git", "systemd-run", "gzip", "sudo", "dpkg",
         "podman", "docker", "runc", "crun")


def plant(lab, **more):
    """PATH begins with a folder of the project and with the project itself, where a sandbox has left programs."""
    home = Home(lab)
    for name in NAMES:
        for folder in ("p/.venv/bin/", "p/"):
            home.program(folder + name, "#!/bin/sh\ntouch %s\necho 1.0.0\n" % home.path("p", "HIT"))
    home.env = {"PATH": home.path("p/.venv/bin") + ":.:" + PATH, **more}
    return home


@pytest.fixture
def venv(any_user):
    return plant(any_user)


def hit(home):
    return os.path.exists(home.path("p", "HIT"))


@pytest.mark.parametrize("args", [["agents"], ["agents", "--json"], ["doctor", "--offline"], ["version"], ["list"], ["run", "--explain", "claude"],
                                  ["image", "pull", "none.test/x:1"], ["init", "--dry-run"], ["run", "--backend", "docker", "true"]])
def test_h18_a_command_runs_no_program_of_the_project(venv, args):
    r = venv.lab.ak(args, env=venv.env, cwd=venv.path("p"))
    assert not hit(venv), r


def test_h18_cp_takes_tar_from_the_system(venv):
    lab = venv.lab
    if not shutil.which("tar"):
        missing("tar is not installed")
    assert lab.ak(["create", "box", "--no-network"]).code == 0 and lab.ak(["start", "box"]).code == 0
    try:
        r = lab.ak(["cp", "box:/etc/hostname", "-"], env=venv.env)
        assert r.code == 0 and "hostname" in r.out and not hit(venv), r
    finally:
        assert lab.ak(["remove", "--force", "box"]).code == 0 and lab.ak(["daemon", "stop"]).code == 0


def test_h18_podman_takes_its_helpers_from_the_system(venv):
    """podman runs on the host to look for an image, and finds runc, newuidmap and the like on its PATH."""
    lab, asked, program = venv.lab, venv.path("asked"), venv.program("podman", '#!/bin/sh\necho "$PATH" >>%s\nexit 1\n' % venv.path("asked"))
    if not shutil.which("podman") or not (shutil.which("runc") or shutil.which("crun")):
        missing("not installed: podman runc")
    with instead_of(lab, "podman", program):
        r = lab.run(["--backend", "podman", "--image", "none.test/x:1", "true"], env=venv.env, cwd=venv.path("p"))
    assert r.code != 0 and not hit(venv), r
    with open(asked) as f:
        paths = f.read().split()
    assert paths and not any("/.venv/" in path for path in paths), paths


# The lab's root, on a system without skopeo and newuidmap, whose programs only say that they ran, and with which PATH.
ROOTS = """
mount -t tmpfs none /usr/local/sbin
for p in apt-get modprobe apparmor_parser; do printf '#!/bin/sh\\necho "$0 $PATH" >> %(log)s\\n' > /usr/local/sbin/$p; chmod 755 /usr/local/sbin/$p; done
for d in /usr/local/bin /usr/sbin /usr/bin /sbin /bin; do for p in skopeo newuidmap; do [ ! -e $d/$p ] || mount --bind /dev/null $d/$p; done; done
[ ! -d /etc/apparmor.d ] || mount -t tmpfs none /etc/apparmor.d
cd %(project)s; PATH=%(path)s; export PATH; exec "$@"
"""


def setup_beside(home):
    """`setup --yes` by root, in the project; its result, and which programs of the system ran."""
    lab, log = home.lab, home.path("ran")
    for folder in ("p/.venv/bin", "p"):
        os.unlink(home.path(folder, "newuidmap"))  # else a program that finds it here has nothing to install
    fill = dict(log=log, project=home.path("p"), path=home.env["PATH"])
    r = lab.spawn(["unshare", "-m", "sh", "-ec", ROOTS % fill, "sh", lab.binary, "setup", "--yes"], env=lab.env(**dict(home.env, PATH=PATH)), who="root").wait(120)
    ran = ""
    if os.path.exists(log):
        with open(log) as f:
            ran = f.read()
    return r, ran


def pull_beside(home):
    """`image pull` in the project. Skopeo asks for the registry's address; nobody else does."""
    if not shutil.which("skopeo"):
        missing("skopeo is not installed")
    return home.lab.ak(["image", "pull", "none.test/x:1"], env=home.env, cwd=home.path("p"), timeout=60)


def test_h18_setup_as_root_takes_its_programs_from_the_system(lab):
    home = plant(lab)
    r, ran = setup_beside(home)
    assert "install the programs for images" in r.out, r
    assert "/usr/local/sbin/apt-get %s\n" % SYSTEM in ran and not hit(home), (ran, r)


def test_h18_image_pull_takes_skopeo_from_the_system(venv):
    r = pull_beside(venv)
    assert r.code != 0 and "none.test" in venv.lab.dns.names() and not hit(venv), r


@pytest.mark.parametrize("folder", [".codex", ".vim", ".config/systemd/user", "bin", ".local/bin"])
def test_h18_a_folder_of_settings_is_a_project_only_when_confirmed(any_user, folder):
    home = Home(any_user)
    place = os.path.dirname(home.program(folder + "/mine", "mine\n", 0o644))
    command = ["--compatibility-mode", "claude", "--dir", place]
    r = home.lab.run([*command, "--", "sh", "-c", "echo x >left"])
    assert r.code == 2 and "read their settings" in r.err and "--allow-broad-dir" in r.err and not os.path.exists(place + "/left"), r
    assert home.lab.run([*command, "--allow-broad-dir", "--", "sh", "-c", "echo x >left"]).code == 0 and os.path.exists(place + "/left")


def test_h18_names_of_the_project_do_not_control_the_terminal(any_user):
    home = Home(any_user)
    home.program("p/\x1b]0;T\x07\x1b[2J.lua", "", 0o644)
    home.program("p/sub\x1b[31m/agentkernel.toml", '[network]\nallow = ["ok.test"]\n', 0o644)
    p, sub = home.path("p"), home.path("p", "sub\x1b[31m")
    for args, cwd in ((["run", "--explain", "nosuch"], p), (["run", "-m", "claude", "--explain", "true"], sub), (["trust", sub, "--yes"], p), (["trust", "--list"], p)):
        r = home.lab.ak(args, cwd=cwd)
        assert "\x1b" not in r.out + r.err, (args, r)
    assert "\\x1b[31m" in home.lab.ak(["trust", "--list"]).out
