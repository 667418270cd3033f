"""Limits in a login session: the user's own systemd, a real one, makes a scope for the command's process."""
import contextlib
import os
import pwd
import shutil
import subprocess

import pytest

from expect import missing
from lab import PATH, PATIENCE_S, ROOT, wait_for

UID = pwd.getpwnam("nobody").pw_uid  # the manager wants a user that has a name
HYBRID = [p for p in ("/sys/fs/cgroup/systemd", "/sys/fs/cgroup/unified") if os.path.isdir(p)]
CGROUPS = HYBRID or ["/sys/fs/cgroup"]
# In mount and pid namespaces of its own, in a group that belongs to the user, as a login leaves things: a bus, the manager, then the command.
SESSION = r"""
set -e
mount --make-rprivate /
mount -t proc proc /proc
mount -t tmpfs tmpfs /run
mkdir -p /run/systemd/system /run/user/$UID_
chown $UID_ /run/user/$UID_
chmod 700 /run/user/$UID_
for group in $CGROUPS_; do echo 0 >$group/cgroup.procs; done
export XDG_RUNTIME_DIR=/run/user/$UID_ HOME="$FOLDER" XDG_STATE_HOME="$FOLDER/state"
user="setpriv --reuid=$UID_ --regid=$UID_ --clear-groups --inh-caps=-all"
if [ "$MANAGER" = yes ]; then
	$user dbus-daemon --session --address=unix:path=$XDG_RUNTIME_DIR/bus --nofork --nopidfile &
	until [ -S $XDG_RUNTIME_DIR/bus ]; do sleep 0.05; done
	DBUS_SESSION_BUS_ADDRESS=unix:path=$XDG_RUNTIME_DIR/bus $user /lib/systemd/systemd --user --unit=basic.target &
	until $user busctl --user call org.freedesktop.systemd1 /org/freedesktop/systemd1 org.freedesktop.DBus.Peer Ping >/dev/null 2>&1; do sleep 0.05; done
fi
cd "$FOLDER/project"
$user "$AK" run --no-network --memory 256M -- sh -c 'echo up; exec sleep 1000' >../out 2>../err &
run=$!
until grep -q up ../out; do kill -0 $run; sleep 0.05; done
cat /proc/$run/cgroup
kill -9 $run
cat ../err >&2
"""


def gone(group):
    """Remove the groups; False while a killed process is still in one."""
    for folder, _, _ in os.walk(group, topdown=False):
        with contextlib.suppress(OSError):
            os.rmdir(folder)
    return not os.path.exists(group)


def session(tmp_path, manager):
    for program in ("dbus-daemon", "busctl", "/lib/systemd/systemd"):
        if not shutil.which(program):
            missing("%s is not installed" % program)
    groups = [os.path.join(top, "ak-test-%d" % os.getpid()) for top in CGROUPS]
    (tmp_path / "project").mkdir()
    os.chmod(tmp_path, 0o755)
    for path in (tmp_path, tmp_path / "project"):
        os.chown(path, UID, UID)
    env = {"PATH": PATH, "UID_": str(UID), "CGROUPS_": " ".join(groups), "FOLDER": str(tmp_path), "MANAGER": manager, "AK": os.path.abspath(os.environ.get("AK_BIN") or os.path.join(ROOT, "build", "agentkernel")),
           "AGENTKERNEL_DATA_DIR": os.environ.get("AGENTKERNEL_DATA_DIR") or ROOT}
    try:
        for group in groups:
            os.mkdir(group)
            for path in (group, os.path.join(group, "cgroup.procs")):
                os.chown(path, UID, UID)
        return subprocess.run(["unshare", "--mount", "--pid", "--fork", "--kill-child", "bash", "-c", SESSION], env=env, capture_output=True, text=True, timeout=PATIENCE_S)
    finally:
        for group in groups:
            wait_for(lambda top=group: gone(top), timeout=20)


@pytest.mark.parametrize("manager", ("yes", "no"))
def test_a_limit_asks_the_user_manager_for_a_scope(tmp_path, manager):
    if os.geteuid() != 0:
        pytest.skip("only root can give a user a group and a manager")
    r = session(tmp_path, manager)
    assert r.returncode == 0, r
    assert (".scope" in r.stdout and "agentkernel-" in r.stdout) == (manager == "yes"), r
