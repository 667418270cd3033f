"""The Debian package: made twice with the same bytes, installed into a clean system, used there by an ordinary user, and removed without a trace."""
import hashlib
import os
import shlex
import shutil
import subprocess

import pytest
from expect import missing

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
ENTER = os.path.join(ROOT, "tests", "package", "enter.sh")
BASE = os.path.join(ROOT, "build", "debian-root")
pytestmark = pytest.mark.xdist_group("package")


def sh(*argv, **kw):
    r = subprocess.run(argv, capture_output=True, text=True, timeout=900, **kw)
    assert r.returncode == 0, "%s: exit %d\n%s\n%s" % (" ".join(argv), r.returncode, r.stdout[-3000:], r.stderr[-3000:])
    return r.stdout


def digest(path):
    with open(path, "rb") as f:
        return hashlib.sha256(f.read()).hexdigest()


@pytest.fixture(scope="module")
def deb():
    if not shutil.which("dpkg-deb"):
        missing("no Debian tools on this host")
    out = sh("make", "--no-print-directory", "package", cwd=ROOT)
    return os.path.join(ROOT, next(line for line in out.splitlines() if line.endswith(".deb")))


@pytest.fixture(scope="module")
def base():
    """A clean Debian of this machine's own release and mirror, made once for each build folder."""
    if os.geteuid() != 0:
        pytest.skip("only root can make a root file system")
    sh(os.path.join(ROOT, ".ci", "deps"), "root")
    if not os.path.exists(os.path.join(BASE, "usr/bin/dpkg")):
        shutil.rmtree(BASE, ignore_errors=True)
        lines = sh("apt-get", "indextargets", "--format", "$(SITE) $(CODENAME)", "Created-By: Packages").split("\n")
        name = [line.split("=")[1].strip('"') for line in open("/etc/os-release") if line.startswith("VERSION_CODENAME=")][0].strip().strip('"')
        site = [line.split()[0] for line in lines if line.endswith(" " + name)]
        if not site:
            missing("no Debian mirror is set up")
        sh("debootstrap", "--variant=minbase", name, BASE + ".new", site[0])
        os.rename(BASE + ".new", BASE)
    return BASE


@pytest.fixture
def system(base, tmp_path):
    """A copy of the clean system, as a function that runs a command in it; NET: with the machine's own network, for the package manager."""
    layers = [tmp_path / n for n in ("upper", "work", "root")]
    for d in layers:
        d.mkdir()
    sh("mount", "-t", "overlay", "overlay", "-o", "lowerdir=%s,upperdir=%s,workdir=%s" % (base, layers[0], layers[1]), str(layers[2]))
    root = str(layers[2])

    def run(*argv, net=False):
        spaces = ["--mount", "--pid", "--fork", "--kill-child"] + ([] if net else ["--net"])
        return sh("unshare", *spaces, ENTER, root, *argv, env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "DEBIAN_FRONTEND": "noninteractive"})
    run.root = root
    yield run
    sh("umount", root)


def copy_settings(root):
    """What the package manager needs to reach this machine's mirror."""
    for path in ("/etc/resolv.conf", "/etc/hosts"):
        shutil.copyfile(path, root + path)
    for name in ("sources.list.d", "apt.conf.d"):
        shutil.copytree("/etc/apt/" + name, root + "/etc/apt/" + name, dirs_exist_ok=True, symlinks=False)
    for name in os.listdir(root + "/etc/apt/sources.list.d"):
        if not name.startswith("debian"):
            os.remove(os.path.join(root, "etc/apt/sources.list.d", name))
    if os.path.exists(root + "/etc/apt/sources.list"):
        os.remove(root + "/etc/apt/sources.list")


def test_the_package_installs_works_for_an_ordinary_user_and_goes(deb, system):
    shutil.copyfile(deb, system.root + "/tmp/agentkernel.deb")
    copy_settings(system.root)
    system("sh", "-c", "apt-get update -qq && apt-get install -y -qq --no-install-recommends /tmp/agentkernel.deb && useradd -m new", net=True)

    def user(*argv):
        return system("setpriv", "--reuid", "new", "--regid", "new", "--init-groups", "--reset-env", *argv)

    assert user("agentkernel", "run", "--", "sh", "-c", "echo inside; id -u") == "inside\n1000\n"
    assert '"ok":true' in user("agentkernel", "doctor", "--offline", "--json").replace(" ", "").replace("\t", "").replace("\n", "")
    assert "codex" in user("agentkernel", "policy", "list") and user("agentkernel", "network", "check", "codex", "pypi.org").startswith("allow")
    version = user("agentkernel", "version").split()[-1]
    assert version in sh("dpkg-deb", "-f", deb, "Version")
    for path in ("usr/share/man/man1/agentkernel.1", "usr/share/man/man5/agentkernel-policy.5", "usr/share/man/man5/agentkernel.toml.5",
                 "usr/share/agentkernel/policies/agentkernel.schema.json", "usr/share/bash-completion/completions/agentkernel",
                 "etc/apparmor.d/agentkernel"):
        assert os.path.exists(os.path.join(system.root, path)), path
    system("dpkg", "--purge", "agentkernel")
    left = [p for p in system("find", "/usr", "/etc", "-xdev", "-name", "*agentkernel*").split("\n") if p and "/var/" not in p]
    assert left == [], left


def test_the_same_source_gives_the_same_package(deb):
    first = {p: digest(os.path.join(os.path.dirname(deb), p)) for p in os.listdir(os.path.dirname(deb)) if p.endswith((".deb", ".tar.gz"))}
    assert len(first) == 2
    sh("make", "--no-print-directory", "package", cwd=ROOT)
    assert {p: digest(os.path.join(os.path.dirname(deb), p)) for p in first} == first


def test_the_archive_of_the_sources_is_the_same_twice():
    if subprocess.run(["git", "-c", "safe.directory=*", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True).returncode:
        pytest.skip("not a git checkout")
    out = os.path.join(ROOT, sh("make", "--no-print-directory", "dist", cwd=ROOT).strip())
    first = digest(out)
    sh("make", "--no-print-directory", "dist", cwd=ROOT)
    assert digest(out) == first


@pytest.fixture
def unpacked(deb, tmp_path):
    """The tarball in a folder of its own."""
    folder, top = os.path.dirname(deb), tmp_path / "unpacked"
    top.mkdir()
    sh("tar", "-C", str(top), "-xf", os.path.join(folder, next(p for p in os.listdir(folder) if p.endswith(".tar.gz"))))
    return top / os.listdir(top)[0]


def test_the_tarball_runs_from_any_folder(unpacked, tmp_path):
    program = str(unpacked / "bin" / "agentkernel")
    if "static-pie linked" not in sh("file", program):
        missing("no source of cJSON, so the program in the tarball is not static")
    assert not [name for name in os.listdir(unpacked / "lib") if ".so" in name]
    env = dict(os.environ, HOME=str(tmp_path), XDG_STATE_HOME=str(tmp_path / "state"))
    env.pop("AGENTKERNEL_DATA_DIR", None)
    assert sh(program, "run", "--no-network", "--", "echo", "inside", env=env) == "inside\n"


def test_the_tarball_runs_in_a_system_without_a_c_library(unpacked, tmp_path):
    """A root file system with busybox and nothing else, as an ordinary user; network selftest tries the rules, the DNS proxy and the relay there."""
    if os.geteuid() != 0:
        pytest.skip("only root can make a root file system")
    root = tmp_path / "bare"
    for name in ("bin", "usr/bin", "etc", "dev", "sys", "proc", "tmp", "home/new", "run", "opt"):
        (root / name).mkdir(parents=True)
    shutil.copyfile("/bin/busybox", root / "bin/busybox")
    (root / "bin/busybox").chmod(0o755)
    for name in ("sh", "id", "setpriv", "cat", "mount", "mkdir", "umount", "pivot_root"):
        (root / "bin" / name).symlink_to("busybox")
    (root / "etc/passwd").write_text("root:x:0:0::/root:/bin/sh\nnew:x:1000:1000::/home/new:/bin/sh\n")
    (root / "etc/group").write_text("root:x:0:\nnew:x:1000:\n")
    (root / "etc/resolv.conf").write_text("nameserver 127.0.0.1\n")
    (root / "home/new/project").mkdir()
    for name in ("home/new", "home/new/project"):
        os.chown(root / name, 1000, 1000)
    (root / "tmp").chmod(0o1777)
    shutil.copytree(unpacked, root / "opt/agentkernel", symlinks=True)

    def user(*argv):
        command = "cd /home/new/project; exec " + shlex.join(argv)
        return sh("unshare", "--mount", "--pid", "--fork", "--kill-child", "--net", ENTER, str(root), "/bin/busybox", "su", "-p", "new", "-c", command,
                  env={"PATH": "/opt/agentkernel/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/home/new", "USER": "new"})

    assert user("agentkernel", "run", "--", "sh", "-c", "echo inside; id -u") == "inside\n1000\n"
    assert user("agentkernel", "run", "-m", "codex", "--", "cat", "/etc/hosts").startswith("127.0.0.1")
    assert user("agentkernel", "network", "selftest")
