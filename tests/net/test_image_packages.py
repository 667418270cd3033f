"""Package managers in an image: apt-get with dpkg, as root inside, from a repository on the lab's Internet."""
import contextlib
import hashlib
import io
import os
import re
import shutil
import subprocess
import tarfile

import images
import pytest
from expect import missing
from lab import PYTHON, wait_for

PROGRAMS = ["apt-get", "apt-config", "dpkg", "dpkg-deb", "dpkg-split", "dpkg-query", "tar", "rm", "ldconfig", "start-stop-daemon", "sh", "diff"]
METHODS = "/usr/lib/apt/methods"
ADDRESS, PORT = "11.7.0.2", 8081


def find_program(name):
    return shutil.which(name, path="/usr/sbin:/usr/bin:/sbin:/bin")


def with_libraries(paths):
    """The files and what they are linked with, name → contents."""
    out = {}
    for path in paths:
        real = os.path.realpath(path)
        out[path] = real
        text = subprocess.run(["ldd", real], capture_output=True, text=True).stdout
        for lib in re.findall(r"(/\S+) \(0x", text):
            out[lib] = os.path.realpath(lib)
    return out


def apt_layer():
    """This host's own apt and dpkg, which is a Debian's or a relative's, on top of busybox."""
    layer = images.base_layer()
    methods = [os.path.join(METHODS, m) for m in ("http", "store", "copy", "file")]
    for path, real in sorted(with_libraries([find_program(p) for p in PROGRAMS if find_program(p)] + methods).items()):
        with open(real, "rb") as f:
            layer.add(path.lstrip("/"), f.read(), mode=0o755)
    for folder in ("etc/apt/apt.conf.d", "etc/apt/sources.list.d", "etc/apt/preferences.d", "etc/apt/trusted.gpg.d", "var/lib/dpkg/info", "var/lib/dpkg/updates", "var/lib/dpkg/triggers",
                   "var/lib/apt/lists/partial", "var/cache/apt/archives/partial", "var/log/apt", "usr/share"):
        layer.folder(folder)
    for name in ("cputable", "tupletable", "ostable", "abitable"):
        with contextlib.suppress(OSError), open("/usr/share/dpkg/" + name, "rb") as f:
            layer.add("usr/share/dpkg/" + name, f.read())
    layer.add("var/lib/dpkg/status", "").add("var/lib/dpkg/arch", "")
    layer.add("etc/passwd", images.PASSWD + "_apt:x:100:65534::/nonexistent:/usr/sbin/nologin\n")
    layer.add("etc/group", images.GROUP + "nogroup:x:65534:\n")
    layer.add("etc/apt/sources.list", "deb [trusted=yes] http://deb.test:%d ./\n" % PORT)
    return layer


def tar_of(entries):
    buf = io.BytesIO()
    with tarfile.open(fileobj=buf, mode="w", format=tarfile.GNU_FORMAT) as t:
        for name, content, gid in entries:
            info = tarfile.TarInfo(name)
            info.gid, info.mode, info.size = gid, 0o640, len(content)
            if name.endswith("/"):
                info.type, info.mode = tarfile.DIRTYPE, 0o755
            t.addfile(info, io.BytesIO(content))
    return buf.getvalue()


def package(arch):
    """A .deb with a file of the group shadow."""
    control = b"Package: lab-tool\nVersion: 1\nArchitecture: %s\nMaintainer: lab <lab@ok.test>\nDescription: x\n" % arch
    members = [("debian-binary", b"2.0\n"), ("control.tar", tar_of([("./", b"", 0), ("./control", control, 0)])),
               ("data.tar", tar_of([("./", b"", 0), ("./usr/", b"", 0), ("./usr/share/", b"", 0), ("./usr/share/lab-tool", b"installed", 42)]))]
    out = b"!<arch>\n"
    for name, data in members:
        out += b"%-16s%-12d%-6d%-6d%-8o%-10d`\n" % (name.encode(), 0, 0, 0, 0o100644, len(data)) + data + b"\n" * (len(data) % 2)
    return out, control


@pytest.fixture
def repository(any_user, tmp_path):
    lab = any_user
    if images.missing_tools():
        missing("not installed: " + images.missing_tools())
    if not find_program("apt-get") or not os.path.exists(METHODS + "/http"):
        missing("no apt on this host")
    arch = subprocess.run(["dpkg", "--print-architecture"], capture_output=True, check=True).stdout.strip()
    deb, control = package(arch)
    (tmp_path / "lab-tool.deb").write_bytes(deb)
    packages = control + b"Filename: ./lab-tool.deb\nSize: %d\nSHA256: %s\n\n" % (len(deb), hashlib.sha256(deb).hexdigest().encode())
    (tmp_path / "Packages").write_bytes(packages)
    (tmp_path / "Release").write_text("Date: Thu, 01 Jan 2026 00:00:00 UTC\nArchitectures: %s\nSHA256:\n %s %d Packages\n" % (
        arch.decode(), hashlib.sha256(packages).hexdigest(), len(packages)))
    lab.dns.set("deb.test", A=ADDRESS)
    p = lab.spawn([PYTHON, "-m", "http.server", "--bind", ADDRESS, "--directory", str(tmp_path), str(PORT)], who="root", internet=True)
    probe = [PYTHON, "-c", "import urllib.request as u; u.urlopen('http://%s:%d/Release')" % (ADDRESS, PORT)]
    wait_for(lambda: lab.host(probe).code == 0)
    yield lab
    p.signal(9)
    p.wait()


def test_apt_get_installs_from_an_allowed_repository_in_an_image(repository):
    lab = repository
    folder = images.write_layout(lab.path("project", "layout"), [apt_layer().done()], {"Env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"]})
    r = lab.ak(["image", "import", "--name", "apt", folder + ":latest"])
    assert r.code == 0, r
    script = "apt-get update && apt-get install -y lab-tool && cat /usr/share/lab-tool && stat -c %g /usr/share/lab-tool"
    command = ["--compatibility-mode", "claude", "--allow-host", "deb.test:%d" % PORT, "--image", "apt", "sh", "-c", script]
    r = lab.run(command, timeout=60)
    assert r.code == 0 and "installed" in r.out, r
    assert r.out.endswith("installed0\n" if "one user inside" in r.err else "installed42\n"), r
    r = lab.run([*command[:2], *command[4:]], timeout=60)
    assert r.code != 0 and "installed" not in r.out, r
