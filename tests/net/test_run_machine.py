"""What programs expect of a machine, seen from inside a sandbox."""
import json
import os
import re

import pytest

from expect import missing
from lab import PYTHON

MODES = ["claude", "codex", "native"]
LOOK = r"""
import json, locale, multiprocessing, os, pwd, resource, shutil, socket, ssl, subprocess, tempfile, time
from multiprocessing import shared_memory
def sh(text):
    r = subprocess.run(["sh", "-c", text], capture_output=True, text=True)
    return [r.returncode, r.stdout.strip(), r.stderr.strip()]
shm = shared_memory.SharedMemory(create=True, size=64 << 20)
shm.buf[-1] = 7
with multiprocessing.Lock(): pass
with tempfile.NamedTemporaryFile() as f: temporary = f.name
name = socket.gethostname()
me = pwd.getpwuid(os.getuid())
out = {"zone": time.strftime("%Z", time.localtime(1700000000)), "localtime": os.path.realpath("/etc/localtime"), "charset": locale.getpreferredencoding(),
    "lang": os.environ.get("LANG"), "own": socket.gethostbyname(name), "fqdn": sh("hostname -f")[1] == name,
    "loopback": socket.create_server(("127.0.0.1", 0)).getsockname()[0], "localhost": socket.gethostbyname("localhost"),
    "authorities": len(ssl.create_default_context().get_ca_certs()), "bundle": os.path.getsize("/etc/ssl/certs/ca-certificates.crt") > 10000, "shm": shm.buf[-1],
    "files": resource.getrlimit(resource.RLIMIT_NOFILE), "processes": resource.getrlimit(resource.RLIMIT_NPROC)[0], "stack": resource.getrlimit(resource.RLIMIT_STACK)[0],
    "temporary": temporary, "tmpdir": os.environ.get("TMPDIR"), "term": [os.environ.get("TERM"), os.environ.get("COLORTERM")], "ps": sh("ps -e -o comm= | grep -c .")[1],
    "id": sh("id -un; id -gn; whoami")[1].split(), "me": [me.pw_name, me.pw_dir, me.pw_shell], "user": [os.environ["USER"], os.environ["HOME"], os.environ["SHELL"]],
    "sudo": [shutil.which("sudo"), shutil.which("pkexec"), os.path.lexists("/usr/bin/sudo"), sh("sudo -n true")[0]], "other": shutil.which("env"), "pty": sh("script -qc 'echo pty' /dev/null")[1],
    "tput": sh("tput colors")[1], "umask": sh("umask")[1], "uid": os.getuid()}
shm.close(); shm.unlink()
print(json.dumps(out))
"""


@pytest.mark.parametrize("mode", MODES)
def test_a_program_finds_the_machine_that_it_expects(any_user, mode):
    lab = any_user
    env = {"COLORTERM": "truecolor", "TERM": "xterm-256color", "TZ": "Asia/Tokyo", "LANG": None}
    r = lab.run(["--compatibility-mode", mode, "--", PYTHON, "-c", LOOK], env=env)
    assert r.code == 0, r
    got = json.loads(r.out)
    want = {"zone": "JST", "localtime": os.path.realpath("/etc/localtime"), "charset": "UTF-8", "lang": "C.UTF-8", "own": "127.0.0.1", "fqdn": True,
            "loopback": "127.0.0.1", "localhost": "127.0.0.1", "bundle": True, "shm": 7, "term": ["xterm-256color", "truecolor"], "other": "/usr/bin/env",
            "pty": "pty", "tput": "256", "tmpdir": "/tmp", "umask": "0022", "sudo": [None, None, False, 127]}
    assert {k: got[k] for k in want} == want, got
    name = "agent" if lab.who == "root" else "lab"
    assert got["id"] == [name] * 3 and got["me"] == got["user"] == [name, got["me"][1], "/bin/bash" if os.path.exists("/bin/bash") else "/bin/sh"] and got["uid"] != 0, got
    assert got["authorities"] > 50 and got["files"][0] >= 4096 and got["processes"] >= 1024 and got["stack"] in (-1, 8 << 20), got
    assert got["temporary"].startswith("/tmp/") and int(got["ps"]) >= 3, got


def test_sudo_is_absent_in_read_only_and_persistent_sandboxes_too(any_boxes):
    if not os.path.exists("/usr/bin/sudo"):
        missing("sudo is not installed")
    look = "command -v sudo; ls /usr/bin | grep -x -e sudo -e env; env true && echo fine"
    r = any_boxes.lab.run(["--profile", "restrictive", "--", "sh", "-c", look])
    assert r.out == "env\nfine\n", r
    any_boxes.ak("create", "x", "--compatibility-mode", "claude", "--dir", any_boxes.lab.path("project"))
    for _ in range(2):
        any_boxes.ak("start", "x")
        assert any_boxes.ak("exec", "x", "sh", "-c", look).out == "env\nfine\n"
        any_boxes.ak("stop", "x")


def test_temporary_files_go_to_a_folder_of_the_sandbox_unless_the_user_names_one(lab):
    env = {"TMPDIR": lab.path("tmp"), "MINE": "passed"}
    r = lab.run(["--profile", "permissive", "--", "sh", "-c", "echo $MINE $TMPDIR $XDG_RUNTIME_DIR; mktemp"], env=env)
    assert r.code == 0 and re.fullmatch(r"passed /tmp\n/tmp/tmp\.\w+\n", r.out), r
    r = lab.run(["-e", "TMPDIR=/var/tmp", "--", "mktemp"], env=env)
    assert r.code == 0 and r.out.startswith("/var/tmp/tmp."), r
    r = lab.run(["--explain", "--", "true"], env=env)
    assert "  TMPDIR=/tmp\n      the sandbox's own folder for temporary files\n" in r.out, r


def test_the_users_language_and_shell_win(lab):
    r = lab.run(["--compatibility-mode", "codex", "-e", "SHELL=/bin/dash", "--", "sh", "-c", "echo $LANG $SHELL; getent passwd $(id -u) | cut -d: -f7"], env={"LANG": "C"})
    assert r.out == "C /bin/dash\n/bin/dash\n", r
    r = lab.run(["--compatibility-mode", "codex", "-e", "SHELL=/bin/dash:x\nroot::0", "-e", "USER=root", "--", "cat", "/etc/passwd"])
    assert r.out.count("\n") == 3 and "/bin/dash" not in r.out and "\nagent:x:" in r.out, r
