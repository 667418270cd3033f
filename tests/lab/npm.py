"""Packages of the npm registry for the tests of published clients, installed once for each build folder."""
import fcntl
import os
import shutil
import subprocess

from expect import missing
from lab import ROOT


def npm_folder(name, *packages):
    """The folder NAME of this build with PACKAGES ("name" or "name@version") installed; the lock serves tests that want it at the same time."""
    if not shutil.which("node") or not shutil.which("npm"):
        missing("node and npm are not installed")
    folder = os.path.join(os.path.dirname(os.path.abspath(os.environ.get("AK_BIN") or os.path.join(ROOT, "build", "agentkernel"))), name)
    os.makedirs(folder, exist_ok=True)
    manifests = [os.path.join(folder, "node_modules", p[0] + p[1:].split("@")[0], "package.json") for p in packages]
    with open(os.path.join(folder, ".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not all(map(os.path.exists, manifests)):
            try:
                r = subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--no-save", "--prefix", folder, *packages], capture_output=True,
                                   text=True, timeout=300, cwd=folder)
                why = r.stderr[-500:] if r.returncode else None
            except (OSError, subprocess.TimeoutExpired) as e:
                why = str(e)
            if why:
                missing("npm cannot install %s: %s" % (", ".join(packages), why))
    return folder
