"""Programs, links and libraries in the home of the lab's user."""
import os
import shutil
import subprocess

from expect import missing
from lab import PATH


class Home:
    """Programs and links in the home of the lab's user."""

    def __init__(self, lab):
        self.lab = lab

    def path(self, *parts):
        return self.lab.path("home", *parts)

    def program(self, name, text, mode=0o755):
        path = self.path(name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as f:
            f.write(text)
        os.chmod(path, mode)
        self.own(path)
        return path

    def link(self, name, target):
        path = self.path(name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.symlink(target, path)
        self.own(path)

    def own(self, path):
        """Folders that root made belong to whoever runs the test."""
        home = os.stat(self.path())
        while path != self.path() and os.getuid() == 0:
            os.lchown(path, home.st_uid, home.st_gid)
            path = os.path.dirname(path)

    def run(self, *args, path, mode="codex", **kw):
        env = {"PATH": ":".join([self.path(p) if not p.startswith("/") else p for p in path] + [PATH])}
        return self.lab.run(["--compatibility-mode", mode, *args], env=env, **kw)


class Build:
    """Programs and libraries of the C compiler, in the home."""

    def __init__(self, home):
        self.home = home
        if not shutil.which("gcc"):
            missing("no C compiler")

    def make(self, name, text, *options):
        path = self.home.path(name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        r = subprocess.run(["gcc", "-x", "c", "-", "-x", "none", "-o", path, "-Wl,--allow-shlib-undefined", *options], input=text, capture_output=True, text=True)
        assert r.returncode == 0, r
        self.home.own(path)
        return path

    def library(self, name, text, *options):
        soname = os.path.basename(name).split(".so")[0] + ".so.1"
        return self.make(name, text, "-shared", "-fPIC", "-Wl,-soname," + soname, *options)
