"""Images on `--backend vm`: the same root, users, variables and command as on namespaces, with root of a kernel of its own."""
import os
import platform

import images
import pytest
from expect import CODEX, missing
from guests import SLOW, VM, prepare, run
from persist import Boxes

pytestmark = pytest.mark.xdist_group("vm")
CLAUDE = ["--compatibility-mode", "claude"]


@pytest.fixture
def vm(any_user):
    lacks = images.missing_tools()
    if lacks:
        missing("not installed: %s" % lacks)
    return prepare(any_user)


def imported(lab, name="box", config=None):
    folder = images.write_layout(lab.path("project", "layout-" + name), [images.base_layer().done()], config)
    r = lab.ak(["image", "import", "--name", name, folder + ":latest"])
    assert r.code == 0, r
    return name


def test_an_image_runs_with_its_environment_user_and_command(vm):
    imported(vm, config={"Env": ["PATH=/bin:/usr/bin", "FOO=bar baz"], "WorkingDir": "/home", "Entrypoint": ["/bin/sh", "-c"],
                         "Cmd": ["echo $FOO; pwd; id -u; echo $HOME; uname -r; ls /usr"]})
    r = run(vm, ["--no-network", "--image", "box"])
    lines = r.out.splitlines()
    assert r.code == 0 and lines[:4] == ["bar baz", "/home", "0", "/root"] and lines[4] != platform.release() and lines[5:] == ["bin"], r
    imported(vm, "other", {"User": "node"})
    r = run(vm, [*CLAUDE, "--image", "other", "--", "sh", "-c", "id -u; touch made ~/mine; stat -c %u made ~/mine"], cwd=vm.path("project"))
    assert r.code == 0 and r.out.split() == ["1000", "1000", "1000"], r
    assert os.stat(vm.path("project", "made")).st_uid == (0 if vm.who == "root" else vm.uid)


def test_root_of_the_guest_owns_and_gives_away_files_and_leaves_the_image_as_it_is(vm):
    imported(vm)
    script = "cat /etc/passwd; ls -d /new; touch /x; chown 42:42 /x && su node -c 'echo as $(id -u)'; stat -c %u /x; mkdir /new; rm -r /home; echo gone > /etc/passwd"
    for _ in range(2):
        r = run(vm, ["--no-network", "--image", "box", "--", "sh", "-c", script])
        one = "has one user inside" in r.err
        assert r.code == 0 and r.out.startswith(images.PASSWD), r
        if one:  # no ranges of ids: changing owners only seems to work, as on namespaces
            assert vm.who != "root" and r.out.endswith("as 1000\n0\n"), r
        else:
            assert r.out.endswith("as 1000\n42\n"), r


def test_root_of_the_guest_has_its_own_kernel_and_nothing_of_the_host(vm):
    imported(vm)
    r = run(vm, ["--no-network", "--image", "box", "--", "sh", "-c", "echo changed > /proc/sys/kernel/hostname; hostname; ls /guest; ls /dev/kvm; mount -t tmpfs none /mnt"])
    assert r.out == "changed\n" and r.code != 0, r
    assert "/guest" in r.err and "/dev/kvm" in r.err and platform.node() != "changed", r


def test_strict_isolation_has_a_read_only_image_and_no_root(vm):
    imported(vm)
    r = run(vm, [*CODEX, "--image", "box", "--", "sh", "-c", "id -u; touch /etc/x; touch made ~/x /tmp/x && echo fine"], cwd=vm.path("project"))
    assert r.out.splitlines()[0] != "0" and r.out.splitlines()[1:] == ["fine"], r
    assert "Read-only file system" in r.err and os.path.exists(vm.path("project", "made")), r


def test_a_persistent_image_keeps_its_changes(vm):
    imported(vm)
    b = Boxes(vm)
    try:
        b.ak("create", "box", *VM, "--image", "box", timeout=SLOW)
        b.ak("start", "box", timeout=SLOW)
        r = vm.ak(["exec", "box", "--", "sh", "-c", "id -u; echo kept > /etc/mine; chown 42 /etc/mine"], timeout=SLOW)
        assert r.code == 0 and r.out == "0\n", r
        b.ak("stop", "box", timeout=SLOW)
        b.ak("start", "box", timeout=SLOW)
        assert vm.ak(["exec", "box", "--", "cat", "/etc/mine"], timeout=SLOW).out == "kept\n"
        assert vm.ak(["cp", "box:/etc/mine", vm.path("tmp", "copy")]).code == 0
        with open(vm.path("tmp", "copy")) as f:
            assert f.read() == "kept\n"
    finally:
        b.close()
