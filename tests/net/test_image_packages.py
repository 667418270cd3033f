"""Package managers in an image: apt-get with dpkg, apk, and npm, as root inside, from repositories on the lab's Internet."""
import contextlib
import gzip
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


@contextlib.contextmanager
def serving(lab, folder, name, file):
    lab.dns.set(name, A=ADDRESS)
    p = lab.spawn([PYTHON, "-m", "http.server", "--bind", ADDRESS, "--directory", str(folder), str(PORT)], who="root", internet=True)
    probe = [PYTHON, "-c", "import urllib.request as u; u.urlopen('http://%s:%d/%s')" % (ADDRESS, PORT, file)]
    wait_for(lambda: lab.host(probe).code == 0)
    try:
        yield
    finally:
        p.signal(9)
        p.wait()


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
    with serving(lab, tmp_path, "deb.test", "Release"):
        yield lab


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


# Set-uid, set-gid, and a folder that is set-gid; the modes without these bits.
SET_IDS = {"usr/bin/lab-suid": 0o4755, "usr/bin/lab-sgid": 0o2750, "var/lab-mail": 0o2775}


def set_id_tree(top):
    """What a package such as sudo holds, as files; numeric owners are those of the archive."""
    for name, mode in SET_IDS.items():
        path = os.path.join(top, name)
        os.makedirs(path if name.startswith("var/") else os.path.dirname(path), mode=0o755, exist_ok=True)
        if not name.startswith("var/"):
            with open(path, "w", encoding="utf-8") as f:
                f.write("#!/bin/sh\necho ran\n")
        os.chmod(path, mode)


def set_bits(*folders):
    """Paths below FOLDERS, as the host sees them, that carry a set-id bit."""
    return [os.path.join(top, name) for folder in folders for top, dirs, files in os.walk(folder) for name in dirs + files
            if os.lstat(os.path.join(top, name)).st_mode & 0o6000]


@pytest.fixture
def set_id_deb(any_user, tmp_path):
    """A package made by dpkg-deb, and an archive of the same files, in the project; the apt image."""
    lab = any_user
    if images.missing_tools() or not find_program("dpkg-deb"):
        missing("not installed: " + (images.missing_tools() or "dpkg-deb"))
    top = tmp_path / "tree"
    (top / "DEBIAN").mkdir(parents=True, mode=0o755)
    arch = subprocess.run(["dpkg", "--print-architecture"], capture_output=True, text=True, check=True).stdout.strip()
    (top / "DEBIAN" / "control").write_text("Package: lab-suid\nVersion: 1\nArchitecture: %s\nMaintainer: lab <lab@ok.test>\nDescription: x\n" % arch)
    set_id_tree(top)
    subprocess.run(["dpkg-deb", "--build", "--root-owner-group", "-Znone", str(top), lab.path("project", "lab-suid.deb")], check=True, capture_output=True)
    subprocess.run(["tar", "-C", str(top), "--owner=0", "--group=0", "-cf", lab.path("project", "lab-suid.tar"), "usr", "var"], check=True)
    folder = images.write_layout(lab.path("home", "layout"), [apt_layer().done()], {"Env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"]})
    r = lab.ak(["image", "import", "--name", "apt", folder + ":latest"])
    assert r.code == 0, r
    return lab


MODES = "stat -c %%a %s/usr/bin/lab-suid %s/usr/bin/lab-sgid %s/var/lab-mail && %s/usr/bin/lab-suid"
UNPACKERS = {
    "dpkg": "dpkg -i lab-suid.deb && dpkg-query -W -f '${Status}\\n' lab-suid && " + MODES % (("",) * 4),
    "tar": "mkdir /root/t && /usr/bin/tar -C /root/t -xpf lab-suid.tar && " + MODES % (("/root/t",) * 4),
    "busybox tar": "mkdir /root/t && busybox tar -C /root/t -xpf lab-suid.tar && " + MODES % (("/root/t",) * 4),
    "project": "mkdir t && /usr/bin/tar -C t -xpf lab-suid.tar && " + MODES % (("t",) * 4),
}


@pytest.mark.parametrize("how", UNPACKERS)
def test_a_package_with_set_id_files_installs_without_the_bits(set_id_deb, how):
    lab = set_id_deb
    r = lab.run(["--compatibility-mode", "claude", "--keep", "--image", "apt", "--dir", lab.path("project"), "sh", "-c", UNPACKERS[how]], cwd=lab.path("project"), timeout=60)
    assert r.code == 0, r
    assert r.out.endswith(("install ok installed\n" if how == "dpkg" else "") + "755\n750\n775\nran\n"), r
    assert not set_bits(lab.path("project"), lab.path("state"))


# ---- apk: AK_APK names programs that are to be tried, as Debian has none; both 2.14 and 3.0 work the same way ----

APKS = os.environ.get("AK_APK", find_program("apk") or "").split(":")
APK_SCRIPT = "#!/bin/sh\nset -e\nid -u > /etc/lab-installed\nchown 1000:42 /etc/lab-installed 2>/dev/null || true\nmkdir -p /var/lab\n"


def gzipped(entries, end):
    """One stream of a package: a tar, and zeros at its end for the last one only."""
    buf = io.BytesIO()
    with tarfile.open(fileobj=buf, mode="w", format=tarfile.PAX_FORMAT) as t:
        for info, content in entries:
            t.addfile(info, io.BytesIO(content))
        size = t.offset
    return gzip.compress(buf.getvalue() if end else buf.getvalue()[:size], mtime=0)


def entry(name, content=b"", mode=0o644, **kw):
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(content), mode
    for key, value in kw.items():
        setattr(info, key, value)
    if info.isreg() or info.issym():
        info.pax_headers = {"APK-TOOLS.checksum.SHA1": hashlib.sha1(info.linkname.encode() if info.issym() else content).hexdigest()}
    return info, content


def apk_package(arch):
    """A folder of another user, a file of the group shadow, a link, a program, and a script that runs after the installation."""
    data = gzipped([entry("usr/", mode=0o755, type=tarfile.DIRTYPE), entry("usr/share/", mode=0o755, type=tarfile.DIRTYPE),
                    entry("usr/share/lab-apk", b"installed", 0o640, gid=42, gname="shadow"), entry("usr/share/lab-link", type=tarfile.SYMTYPE, linkname="lab-apk", mode=0o777),
                    entry("usr/share/lab-run", b"#!/bin/sh\necho ran\n", 0o4755), entry("usr/share/lab-home/", mode=0o750, type=tarfile.DIRTYPE, uid=1000, gid=1000, uname="node", gname="node")], True)
    head = "pkgname = lab-apk\npkgver = 1-r0\npkgdesc = x\nurl = http://ok.test\nbuilddate = 1000000000\nsize = 4096\narch = %s\nlicense = MIT\norigin = lab-apk\ndatahash = %s\n" % (
        arch, hashlib.sha256(data).hexdigest())
    control = gzipped([entry(".PKGINFO", head.encode()), entry(".post-install", APK_SCRIPT.encode(), 0o755)], False)
    return control + data


@pytest.mark.parametrize("apk", APKS, ids=os.path.dirname)
def test_apk_adds_a_package_in_an_image(any_user, tmp_path, apk):
    lab = any_user
    if not apk or images.missing_tools():
        pytest.skip("no apk on this host: set AK_APK")
    arch = subprocess.run([apk, "--print-arch"], capture_output=True, text=True, check=True).stdout.strip()
    (tmp_path / arch).mkdir()
    (tmp_path / arch / "lab-apk-1-r0.apk").write_bytes(apk_package(arch))
    subprocess.run([apk, "index", "--allow-untrusted", "-o", "APKINDEX.tar.gz", "lab-apk-1-r0.apk"], cwd=tmp_path / arch, check=True)
    layer = images.base_layer()
    for path, real in sorted(with_libraries([apk]).items()):
        with open(real, "rb") as f:
            layer.add(("sbin/apk" if path == apk else path).lstrip("/"), f.read(), mode=0o755)
    for folder in ("etc/apk/keys", "lib/apk/db", "var/cache/apk", "var/cache/misc"):
        layer.folder(folder)
    layer.add("etc/apk/repositories", "http://apk.test:%d\n" % PORT).add("etc/apk/arch", arch + "\n").add("etc/apk/world", "")
    layer.add("lib/apk/db/installed", "").add("lib/apk/db/scripts.tar", b"\0" * 1024).add("lib/apk/db/triggers", "").add("lib/apk/db/lock", "")
    folder = images.write_layout(lab.path("project", "layout"), [layer.done()], {"Env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"]})
    r = lab.ak(["image", "import", "--name", "apk", folder + ":latest"])
    assert r.code == 0, r
    script = ("apk --allow-untrusted update && apk --allow-untrusted add lab-apk && cat /usr/share/lab-link && stat -c ' %u:%g:%a' /usr/share/lab-apk /usr/share/lab-home /etc/lab-installed && "
              "ls -d /var/lab && /usr/share/lab-run && apk info -e lab-apk && apk del lab-apk && ! ls /usr/share/lab-apk && echo gone")
    command = ["--compatibility-mode", "claude", "--allow-host", "apk.test:%d" % PORT, "--image", "apk", "sh", "-c", script]
    with serving(lab, tmp_path, "apk.test", arch + "/APKINDEX.tar.gz"):
        r = lab.run(command, timeout=60)
        assert r.code == 0 and r.out.endswith("gone\n") and "error" not in r.out.lower() + r.err.lower(), r
        owners = ["0:0:640", "0:0:750", "0:0:644"] if "one user inside" in r.err else ["0:42:640", "1000:1000:750", "1000:42:644"]
        assert "\n".join(["installed " + owners[0], *(" " + o for o in owners[1:]), "/var/lab", "ran", "lab-apk", ""]) in r.out, r
        r = lab.run([*command[:2], *command[4:]], timeout=60)
        assert r.code != 0 and "installed" not in r.out, r


def node_layer(lab):
    """This host's Node.js and npm on top of busybox, and the lab's authority."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if images.missing_tools() or not node or not npm:
        missing("not installed: " + (images.missing_tools() or "node and npm"))
    layer = images.base_layer()
    for path, real in sorted(with_libraries([node]).items()):
        with open(real, "rb") as f:
            layer.add(("usr/local/bin/node" if path == node else path).lstrip("/"), f.read(), mode=0o755)
    top = os.path.dirname(os.path.dirname(os.path.realpath(npm)))
    for folder, _, names in os.walk(top):
        for name in names:
            with open(os.path.join(folder, name), "rb") as f:
                layer.add("usr/local/lib/node_modules/npm/" + os.path.relpath(os.path.join(folder, name), top), f.read())
    layer.link("usr/local/bin/npm", "../lib/node_modules/npm/bin/npm")
    layer.add("usr/local/lib/node_modules/npm/bin/npm", '#!/bin/sh\nexec node /usr/local/lib/node_modules/npm/bin/npm-cli.js "$@"\n', mode=0o755)
    return layer.add("etc/lab.pem", lab.ca)


def test_npm_installs_a_package_for_all_in_an_image(any_user):
    lab = any_user
    env = ["PATH=/usr/local/bin:/usr/bin:/bin", "NODE_EXTRA_CA_CERTS=/etc/lab.pem"]
    folder = images.write_layout(lab.path("project", "layout"), [node_layer(lab).done()], {"Env": env})
    r = lab.ak(["image", "import", "--name", "node", folder + ":latest"], timeout=120)
    assert r.code == 0, r
    script = "npm install -g --no-audit --no-fund labpack && cd / && node -p \"require('/usr/local/lib/node_modules/labpack').answer()\""
    r = lab.run(["--compatibility-mode", "claude", "--image", "node", "sh", "-c", script], timeout=120)
    assert r.code == 0 and "added 1 package" in r.out and r.out.endswith("42\n"), r
    assert not os.path.exists("/usr/local/lib/node_modules/labpack")
    r = lab.run(["--compatibility-mode", "claude", "--block-host", "*.npmjs.org", "--image", "node", "sh", "-c", script], timeout=120)
    assert r.code != 0, r
