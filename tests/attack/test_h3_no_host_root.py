"""h3: no process of a sandbox, root's included, has a uid or gid that is 0 outside; the project's files keep their owners all the same."""
import json
import os
import stat

import pytest
from lab import PYTHON, wait_for

# Every process below PID and who it is on the lab's host.
WHO = """
import json, os
parents, ids = {}, {}
for pid in filter(str.isdigit, os.listdir('/proc')):
    try: rows = dict(l.rstrip('\\n').split(':', 1) for l in open('/proc/%s/status' % pid))
    except OSError: continue
    if len(rows['NSpid'].split()) > 1: ids[pid] = rows['Uid'].split() + rows['Gid'].split() + rows['Groups'].split(), rows['CapEff'].strip()
print(json.dumps(ids))
"""
MODES = ["codex", "claude", "gemini", "native"]


def inside(lab):
    """Ids and capabilities, seen from the host, of all processes in pid namespaces below the lab's own."""
    return json.loads(lab.host([PYTHON, "-c", WHO]).out)


def check(lab, rows):
    assert rows
    for pid, (ids, caps) in rows.items():
        if lab.is_root:  # else the lab's own root is the user that runs the suite
            assert "0" not in ids, (pid, ids)
        assert int(caps, 16) == 0, (pid, caps)
        if lab.who == "user":
            assert set(ids) <= ({str(lab.uid), str(lab.gid)} if lab.is_root else {"0", "65534"}), (pid, ids)


@pytest.mark.parametrize("mode", MODES)
def test_h3_no_process_of_a_run_is_root_outside(any_user, mode):
    lab = any_user
    proc = lab.start(["--compatibility-mode", mode, "--", "sh", "-c", "sleep 1000 & echo up; wait"])
    proc.wait_output(b"up\n")
    try:
        check(lab, inside(lab))
    finally:
        proc.signal(15)
        proc.wait()


def test_h3_no_process_of_a_persistent_or_warm_sandbox_is_root_outside(any_boxes):
    b, lab = any_boxes, any_boxes.lab
    b.up("x", "--compatibility-mode", "claude", "--dir", lab.path("project"))
    b.ak("daemon", "prewarm", "--mode", "codex")
    with b.holding("x"):
        proc = lab.start(["--compatibility-mode", "codex", "--", "sh", "-c", "echo up; sleep 1000"])
        proc.wait_output(b"up\n")
        try:
            wait_for(lambda: len(inside(lab)) >= 4)
            # Parked ones have run nothing yet, and keep the capabilities of their own namespace until they get a job.
            rows = {pid: (ids, "0") for pid, (ids, caps) in inside(lab).items()}
            check(lab, rows)
        finally:
            proc.signal(15)
            proc.wait()


def owner(path):
    st = os.lstat(path)
    return st.st_uid, st.st_gid


@pytest.mark.parametrize("mode", MODES)
def test_h3_the_project_stays_its_owners(any_user, mode):
    lab = any_user
    project = lab.path("project")
    mine = owner(project)
    with open(os.path.join(project, "secret"), "w") as f:
        f.write("mine\n")
    os.chown(os.path.join(project, "secret"), *mine)
    os.chmod(os.path.join(project, "secret"), 0o600)
    r = lab.run(["--compatibility-mode", mode, "--dir", project, "--", "sh", "-c", "cat secret && echo x >> secret && mkdir -p d/e && echo y > d/e/f && ln -s f d/e/l && stat -c %u:%g secret d/e/f && id -u"], cwd=project)
    assert r.code == 0, r
    lines = r.out.split()
    assert lines[0] == "mine" and lines[1] == lines[2] and lines[1].split(":")[0] == lines[3], r
    for name in ("secret", "d", "d/e", "d/e/f", "d/e/l"):
        assert owner(os.path.join(project, name)) == mine, name
    assert stat.S_IMODE(os.lstat(os.path.join(project, "secret")).st_mode) == 0o600


def test_h3_a_kept_root_is_the_users_own_on_disk(any_boxes):
    b, lab = any_boxes, any_boxes.lab
    b.up("x")
    b.sh("x", "echo kept > ~/a; mkdir -p /var/lib/thing; echo b > /usr/local/bin/b; echo c > /tmp/c")
    b.ak("stop", "x")
    mine = owner(lab.path("project"))
    for folder, dirs, files in os.walk(lab.path("state")):
        for name in dirs + files:
            assert owner(os.path.join(folder, name)) == mine, os.path.join(folder, name)
    b.ak("start", "x")
    assert b.sh("x", "cat ~/a /usr/local/bin/b /tmp/c") == "kept\nb\nc\n"
    # Files go in and out.
    os.makedirs(lab.path("tree", "sub"))
    with open(lab.path("tree", "sub", "file"), "w") as f:
        f.write("x")
    os.symlink("file", lab.path("tree", "sub", "link"))
    with open(lab.path("project", "in"), "w") as f:
        f.write("from outside\n")
    b.ak("cp", "in", "x:/tmp/in")
    b.ak("cp", lab.path("tree"), "x:/tmp/tree")
    assert b.sh("x", "cat /tmp/in; echo more >> /tmp/in; echo more > /tmp/tree/sub/new; stat -c %u /tmp/in /tmp/tree /tmp/tree/sub/file").split() == ["from", "outside"] + [b.sh("x", "id -u").strip()] * 3
    b.ak("cp", "x:/tmp/in", "out")
    with open(lab.path("project", "out")) as f:
        assert f.read() == "from outside\nmore\n"
    assert owner(lab.path("project", "out")) == mine


def test_h3_streams_can_be_opened_again(any_user):
    """Pipes of the caller, by the names that scripts use."""
    lab = any_user
    script = """echo in | "$0" run -- sh -c 'echo out > /dev/stdout; cat /dev/stdin; echo err > /dev/stderr' 2>&1 | cat"""
    r = lab.spawn(["sh", "-c", script, lab.binary]).wait()
    assert r.code == 0 and r.out == "out\nin\nerr\n", r


@pytest.mark.parametrize("how", [["--user", "--map-user=1000", "--map-group=1000"], ["-Ur"]], ids=["as-1000", "as-0"])
def test_h3_root_in_a_user_namespace_is_still_root(lab, how):
    """Whatever it is called there: there is no other id to give to the sandbox, so nothing runs."""
    if not lab.is_root:
        pytest.skip("the suite runs as an ordinary user")
    with lab.acting_as("root"):
        for more, code, says in (([], 125, "root has no other id here"), (["--nested-namespaces"], 2, "not available to root")):
            r = lab.spawn(["unshare", *how, lab.binary, "run", *more, "--", "touch", "made"]).wait()
            assert r.code == code and says in r.err, r
            assert not os.path.exists(lab.path("project", "made"))
