"""Limits of output and processes: what is kept, what is refused, and that it is told."""
import json
import os
import subprocess

import pytest
from expect import missing
from api import api  # noqa: F401
from lab import PYTHON, wait_for
from mcp import serving

FORKS = "import os,signal\nn=0\ntry:\n while n < 200:\n  if os.fork() == 0: signal.pause()\n  n += 1\nexcept OSError: pass\nprint(n)"
CODEX = ("--compatibility-mode", "codex")
PIDS_GROUP = "/sys/fs/cgroup/pids"


# ---- output ----

def test_output_of_a_json_run_is_kept_up_to_its_limit(lab):
    r = lab.run(["--no-network", "--json", "--output-limit", "2K", "--", "sh", "-c", "head -c 3000 /dev/zero | tr '\\0' o; echo e >&2"])
    row = json.loads(r.out)
    assert (row["stdout"], row["stderr"], row["truncated"], row["exit_code"]) == ("o" * 2048, "e\n", True, 0), r
    assert "stdout was longer than 2 KiB; the rest was dropped (--output-limit)" in r.err, r
    r = lab.run(["--no-network", "--json", "--output-limit", "3K", "--", "sh", "-c", "head -c 3000 /dev/zero | tr '\\0' o"])
    assert len(json.loads(r.out)["stdout"]) == 3000 and "truncated" not in r.out and "dropped" not in r.err, r
    r = lab.run(["--output-limit", "1", "--", "true"])
    assert r.code == 2 and "must be from 1K to 1024M" in r.err, r


def test_output_of_a_run_in_the_background_is_stored_up_to_its_limit(boxes):
    b = boxes
    name = b.ak("run", "--no-network", "-d", "--quiet", "--output-limit", "2K", "--", "sh", "-c", "head -c 3000 /dev/zero | tr '\\0' o").out.strip()
    wait_for(lambda: name not in b.list())
    out = b.ak("logs", name).out
    assert out.startswith("o" * 2048 + "\n") and "longer than 2 KiB, see --output-limit" in out and out.count("o") < 2100, out[2000:]


def test_output_in_answers_of_the_servers_has_the_limit_of_the_request(api):
    r = api.run("sh", "-c", "head -c 3000 /dev/zero | tr '\\0' o", output_limit_bytes=2048)
    assert r["stdout"] == r["output"] == "o" * 2048 and r["truncated"] is True and r["exit_code"] == 0, r
    api.post("/run", {"command": ["true"], "output_limit_bytes": 1}).refused(400, "output_limit_bytes: must be a whole number from 1024 to 8388608")
    with serving(api.lab, *CODEX) as m:
        got, text = m.good("sandbox_run", command=["sh", "-c", "seq 3000"], output_limit_bytes=1024)
        assert got["truncated"] is True and got["stdout"].startswith("1\n2\n") and got["stdout"].endswith("2999\n3000\n") and len(got["stdout"]) < 1300, got
        assert "bytes left out in the middle" in text
        assert "output_limit_bytes" in m.bad("sandbox_run", command=["true"], output_limit_bytes=65537)


# ---- processes ----

def test_root_is_told_that_the_process_limit_was_reached(boxes):
    b, lab = boxes, boxes.lab
    if not lab.is_root:
        pytest.skip("the suite runs as an ordinary user")
    with lab.acting_as("root"):
        r = lab.run(["--no-network", "--pids", "30", "--", PYTHON, "-c", FORKS])
        assert int(r.out) < 30 and "the sandbox reached its limit of 30 processes (--pids)" in r.err, r
        b.up("x", "--pids", "30", "--no-network")
        r = b.exec("x", PYTHON, "-c", FORKS)
        assert int(r.out) < 30 and "the sandbox reached its limit of 30 processes (--pids)" in r.err, r
        b.close()


def test_a_user_with_a_group_of_their_own_is_told_too(tmp_path, lab):
    if not lab.is_root:
        pytest.skip("the suite runs as an ordinary user")
    if not os.path.isdir(PIDS_GROUP):
        missing("no control groups of version 1 that we may give away")
    group = "%s/ak-test-%d" % (PIDS_GROUP, os.getpid())
    os.mkdir(group)
    os.chmod(tmp_path, 0o755)
    os.chown(tmp_path, lab.uid, lab.gid)
    try:
        for path in (group, group + "/cgroup.procs"):
            os.chown(path, lab.uid, lab.gid)
        command = ["setpriv", "--reuid=%d" % lab.uid, "--regid=%d" % lab.gid, "--clear-groups", "--inh-caps=-all", lab.binary, "run", "--no-network", "--pids", "30",
                   "--", PYTHON, "-c", FORKS]
        env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path), "AGENTKERNEL_DATA_DIR": os.environ.get("AGENTKERNEL_DATA_DIR", "")}
        r = subprocess.run(["sh", "-c", "echo 0 > %s/cgroup.procs; exec \"$@\"" % group, "sh", *command], capture_output=True, text=True, cwd=tmp_path, env=env, check=False)
        assert int(r.stdout) < 30 and "the sandbox reached its limit of 30 processes (--pids)" in r.stderr, r
    finally:
        wait_for(lambda: gone(group))


def gone(group):
    """Remove it; False while a process that has just ended is still in it."""
    try:
        os.rmdir(group)
    except OSError:
        return False
    return True
