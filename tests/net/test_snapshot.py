"""snapshot, restore, fork: the files that a persistent sandbox wrote come back as they were, and nothing else of the past does."""
import json
import os

import images
import pytest
from api import box_api  # noqa: F401
from expect import missing, refused, worked
from guests import SLOW, VM, prepare
from lab import PYTHON, wait_for
from persist import Boxes

TREE = """cd; umask 022; echo one > f; ln f g; ln -s f l; ln -s /etc/shadow out; mkfifo pipe; mkdir -m 0 none; mkdir -p d/e; echo deep > d/e/x; chmod 640 d/e/x
touch -d 2001-02-03T04:05:06 d/e/x; truncate -s 3G sparse; printf end >> sparse; rm /usr/bin/sum; mkdir -p /usr/local/t; echo usr > /usr/local/t/x; rm -r /usr/share/base-files; mkdir /usr/share/base-files
python3 -c 'import os; os.setxattr("f", "user.colour", b"blue")' 2>/dev/null || true"""
LOOK = """cd; cat f l d/e/x; readlink l out; stat -c '%n %a %h %F' f g pipe none d/e/x; stat -c %Y d/e/x; tail -c 3 sparse; du -k sparse | cut -f1; ls /usr/bin/sum 2>&1 | wc -c
cat /usr/local/t/x; ls /usr/share/base-files | wc -l; python3 -c 'import os; print(os.getxattr("f", "user.colour"))' 2>&1 | tail -1"""
RUIN = "cd; rm -rf f g l out pipe d sparse /usr/local/t; chmod 700 none; touch none/y; echo new > n; echo new > /tmp/n"


def state(lab, *parts):
    return lab.path("state", "agentkernel", "sandboxes", *parts)


def left_over(lab):
    return [n for n in lab.host(["ls", "-A", state(lab)]).out.split() if n.startswith((".copy", ".new", ".gone"))]


def tags(b, name):
    return [row["tag"] for row in json.loads(b.ak("snapshot", "--list", name, "--json").out)]


def test_files_come_back_as_they_were_and_a_fork_has_them_too(any_boxes):
    b = any_boxes
    b.up("work", "--no-network", "-e", "COLOUR=blue sky")
    b.sh("work", TREE)
    before = b.sh("work", LOOK)
    assert b.ak("snapshot", "--stop", "work", "good").out == "good\n"
    assert b.list()["work"]["status"] == "running"
    b.sh("work", RUIN)
    b.ak("stop", "work")
    assert b.ak("restore", "work", "good").out == "work\n"
    b.ak("start", "work")
    assert b.sh("work", LOOK) == before
    assert b.exec("work", "sh", "-c", "ls ~/n /tmp/n").code != 0
    b.sh("work", "echo changed > ~/f")
    b.ak("stop", "work")
    b.ak("fork", "work", "now")
    b.ak("fork", "work", "then", "--tag", "good")
    b.ak("start", "now", "then", "work")
    assert b.sh("then", LOOK) == before
    assert b.sh("now", "cat ~/f; printf %s \"$COLOUR\"") == "changed\nblue sky"
    b.sh("then", "echo own > ~/f")
    assert b.sh("work", "cat ~/f") == "changed\n", "the files of a fork are its own"
    rows = b.list()
    assert len({r["uuid"] for r in rows.values()}) == 3
    assert b.sh("then", "cat /etc/hostname; hostname") == "then\nthen\n"
    wait_for(lambda: not left_over(b.lab))


def test_the_space_is_told_and_snapshots_are_removed_with_the_sandbox(boxes):
    b = boxes
    b.up("work", "--no-network")
    b.sh("work", "head -c 3000000 /dev/zero > ~/three")
    made = json.loads(b.ak("snapshot", "--stop", "work", "--json").out)
    assert 3000000 <= made["bytes"] < 4000000 and made["files"] > 1, made
    b.ak("snapshot", "--stop", "work", "second")
    assert tags(b, "work") == [made["tag"], "second"]
    assert "3.0 MB" in b.ak("snapshot", "--list", "work").out
    b.ak("snapshot", "--remove", "work", made["tag"])
    assert tags(b, "work") == ["second"]
    b.ak("remove", "--force", "work")
    wait_for(lambda: b.lab.host(["ls", "-A", state(b.lab)]).out.split() == [".links"])


def test_what_cannot_be_done_is_said_and_changes_nothing(boxes):
    b = boxes
    b.up("work", "--no-network")
    b.fails("snapshot", "work", "a", says="is running; stop it first, or use --stop")
    b.fails("fork", "work", "other", says="is running")
    b.ak("snapshot", "--stop", "work", "a")
    b.fails("restore", "work", "a", says="is running")
    b.ak("stop", "work")
    b.fails("snapshot", "work", "a", says="has a snapshot 'a' already")
    for tag in ("", "-x", "a/b", "..", "x" * 64):
        b.fails("snapshot", "work", "--", tag, code=2, says="not a tag")
        b.fails("restore", "work", "--", tag, says="no snapshot")
    b.fails("snapshot", code=2, says="no sandbox given")
    b.fails("restore", "work", code=2, says="no tag given")
    b.fails("fork", "work", code=2, says="no name for the new sandbox")
    b.fails("snapshot", "--list", "work", "a", code=2)
    b.fails("snapshot", "--list", "--remove", "work", code=2)
    b.fails("snapshot", "--remove", "work", code=2, says="no tag given")
    b.fails("snapshot", "--remove", "work", "b", says="no snapshot 'b'")
    b.fails("fork", "work", "../x", code=2, says="not a name")
    b.fails("fork", "work", "work", says="exists already")
    b.fails("fork", "work", "other", "--tag", "b", says="no snapshot 'b'")
    for verb in (["snapshot", "nobody"], ["snapshot", "--list", "nobody"], ["restore", "nobody", "a"], ["fork", "nobody", "x"]):
        b.fails(*verb, says="no sandbox named 'nobody'")
    assert sorted(b.list()) == ["work"] and tags(b, "work") == ["a"] and not left_over(b.lab)
    b.lab.host(["sh", "-c", "echo '{' > " + state(b.lab, "work", "snapshots", "a", "snapshot.json")])
    b.fails("restore", "work", "a", says="damaged")
    assert "damaged" in b.ak("snapshot", "--list", "work").out
    b.ak("snapshot", "--remove", "work", "a")


def test_a_restore_keeps_the_policy_and_forgets_what_was_learned(boxes):
    """The policy of today, under a new generation; addresses that were learned before are not allowed after, not even by a daemon that reads them from the log."""
    b, lab = boxes, boxes.lab
    lab.dns.set("ok.test", A="11.1.0.5", ttl=300)
    b.up("work", "--compatibility-mode", "codex", "--allow-host", "evil.test:7")
    b.ak("snapshot", "--stop", "work", "a")
    b.ak("network", "policy", "work", "--remove", "evil.test:7", "--allow-host", "ok.test:7")
    by_address = [["tcp", "11.1.0.5", 7, b"x".hex()]]
    worked(b.probe("work", [["tcp", "ok.test", 7, b"x".hex()]])[0])
    worked(b.probe("work", by_address)[0])
    before = b.policy("work")
    b.ak("restore", "--stop", "work", "a")
    after = b.policy("work")
    assert after["generation"] > before["generation"] and after["changes"] == before["changes"]
    refused(b.probe("work", by_address)[0])
    b.kill_daemon()
    b.revive()
    wait_for(lambda: b.status()["gateway"]["state"] == "up", 20)
    refused(b.probe("work", by_address)[0])
    worked(b.probe("work", [["tcp", "ok.test", 7, b"x".hex()]])[0])
    refused(b.probe("work", [["tcp", "evil.test", 7]])[0])


def test_a_fork_has_an_address_a_log_and_ports_of_its_own(boxes):
    b = boxes
    b.up("work", "--compatibility-mode", "codex", "--allow-host", "ok.test:7", "-p", "127.0.0.1:18123:80", "--mcp")
    worked(b.probe("work", [["tcp", "ok.test", 7, b"x".hex()]])[0])
    b.ak("fork", "--stop", "work", "other")
    b.ak("start", "other")
    rows = b.list()
    assert rows["work"]["ip"] != rows["other"]["ip"] and rows["work"]["publish"] and not rows["other"].get("publish") and not rows["other"].get("mcp")
    assert rows["other"]["allowed"] == 0
    mac = [PYTHON, "-c", "import fcntl, socket; print(fcntl.ioctl(socket.socket(), 0x8927, b'eth0'.ljust(256, b'\\0'))[18:24].hex())"]
    assert len(b.out("work", *mac)) == 13 and b.out("work", *mac) != b.out("other", *mac)
    worked(b.probe("other", [["tcp", "ok.test", 7, b"x".hex()]])[0])
    refused(b.probe("other", [["tcp", "ok.test", 443]])[0])
    assert b.ak("audit", "verify").code == 0


HOSTILE = """
import os
home = os.path.expanduser('~')
os.chdir(home)
for i in range(1500):
    os.mkdir('d' * 100); os.chdir('d' * 100)
os.chdir(home)
os.mkdir('wide')
for i in range(3000):
    os.symlink('/etc/passwd', 'wide/%d' % i)
os.symlink('/', 'root'); os.symlink('.', 'loop'); os.mkfifo('fifo'); os.mkdir('n' * 255); open('n' * 255 + '/' + '\\n\\xff', 'w').close()
os.link('fifo', 'fifo2')
import socket; socket.socket(socket.AF_UNIX).bind('sock')
"""


def test_hostile_trees_are_copied_without_following_anything(any_boxes):
    b = any_boxes
    b.up("work", "--no-network")
    b.out("work", PYTHON, "-c", HOSTILE)
    b.ak("snapshot", "--stop", "work", "a", timeout=120)
    b.ak("restore", "--stop", "work", "a", timeout=120)
    look = "ls ~/wide | wc -l; readlink ~/root ~/loop; stat -c %F ~/fifo ~/sock; stat -c %h ~/fifo"
    assert b.sh("work", look).split("\n") == ["3000", "/", ".", "fifo", "socket", "2", ""]
    code = "import os; os.chdir(os.path.expanduser('~')); n = 0\nwhile True:\n try: os.chdir('d' * 100); n += 1\n except OSError: break\nprint(n)"
    assert b.out("work", PYTHON, "-c", code) == "1500\n"
    assert b.lab.host(["cat", state(b.lab, "work", "snapshots", "a", "snapshot.json")]).json()["bytes"] < 100 << 20
    b.ak("remove", "--force", "work", timeout=120)
    wait_for(lambda: b.lab.host(["ls", "-A", state(b.lab)]).out.split() == [".links"], 60)


def test_owners_inside_an_image_are_kept(any_boxes):
    lacks = images.missing_tools()
    if lacks:
        missing("not installed: %s" % lacks)
    b, lab = any_boxes, any_boxes.lab
    folder = images.write_layout(lab.path("project", "layout"), [images.base_layer().done()], {"Cmd": ["sh"]})
    assert lab.ak(["image", "import", "--name", "box", folder + ":latest"]).code == 0
    b.up("work", "--image", "box", "--no-network")
    b.sh("work", "echo x > /home/f; chown 42:43 /home/f || true")
    look = "stat -c '%u %g %a' /home/f"
    before = b.sh("work", look)
    assert before == "42 43 644\n" or lab.who == "user", "root's sandboxes have a range of ids; a user's only where the host grants one"
    b.ak("fork", "--stop", "work", "other")
    b.ak("start", "other")
    assert b.sh("other", look) == before


def test_a_full_disk_leaves_nothing_half_made(boxes):
    b, lab = boxes, boxes.lab
    if not lab.is_root:
        pytest.skip("mounts in the lab want its root")
    place = lab.path("state")
    assert lab.host(["mount", "-t", "tmpfs", "-o", "size=12m,mode=777", "none", place]).code == 0
    try:
        b.up("work", "--no-network")
        b.sh("work", "head -c 7000000 /dev/zero > ~/seven")
        b.ak("stop", "work")
        for verb in (["snapshot", "work", "a"], ["fork", "work", "other"]):
            b.fails(*verb, says="no space left on device; nothing was changed")
        assert tags(b, "work") == [] and list(b.list()) == ["work"] and left_over(lab) == []
        b.ak("start", "work")
        assert b.sh("work", "wc -c < ~/seven") == "7000000\n"
        b.sh("work", "rm ~/seven; echo small > ~/f")
        b.ak("snapshot", "--stop", "work", "a")
        b.sh("work", "head -c 7000000 /dev/zero > ~/seven")
        b.ak("restore", "--stop", "work", "a")
        assert b.sh("work", "ls ~") == "f\n"
        b.ak("remove", "--force", "work")
        lab.ak(["daemon", "stop"])
    finally:
        lab.host(["umount", place])


def test_a_daemon_that_dies_during_a_copy_leaves_nothing(boxes):
    b, lab = boxes, boxes.lab
    b.up("work", "--no-network")
    b.sh("work", "for i in $(seq 60); do head -c 5000000 /dev/urandom > ~/$i; done", timeout=120)
    b.ak("stop", "work")
    going = lab.spawn([lab.binary, "snapshot", "work", "a"], env=lab.env())
    wait_for(lambda: left_over(lab))
    b.kill_daemon()
    assert going.wait().code == 1
    assert tags(b, "work") == []
    wait_for(lambda: not left_over(lab) or b.list() is None, 60)
    b.ak("start", "work")
    assert b.sh("work", "ls ~ | wc -l") == "60\n"


def test_by_the_api(box_api):
    api = box_api
    assert api.post("/sandboxes", {"name": "one"}).status == 201
    api.post("/sandboxes/one/exec", {"command": ["sh", "-c", "echo one > ~/f"]})
    api.post("/sandboxes/one/snapshots", {"tag": "a"}).refused(409, "is running")
    a = api.post("/sandboxes/one/snapshots", {"tag": "a", "stop": True})
    assert a.status == 201 and a.data["tag"] == "a" and a.data["bytes"] > 0, a
    assert [row["tag"] for row in api.get("/sandboxes/one/snapshots").data] == ["a"]
    api.post("/sandboxes/one/exec", {"command": ["sh", "-c", "echo two > ~/f"]})
    assert api.post("/sandboxes/one/restore", {"tag": "a", "stop": True}).data["status"] == "running"
    assert api.post("/sandboxes/one/exec", {"command": ["sh", "-c", "cat ~/f"]}).data["stdout"] == "one\n"
    assert api.post("/sandboxes/one/fork", {"name": "two", "tag": "a", "stop": True}).data["name"] == "two"
    api.post("/sandboxes/one/fork", {"name": "two", "stop": True}).refused(409, "exists already")
    api.post("/sandboxes/one/restore", {"tag": "b"}).refused(404, "no snapshot")
    api.post("/sandboxes/one/restore", {}).refused(400, "tag")
    assert api("DELETE", "/sandboxes/one/snapshots/a").status == 200
    api("DELETE", "/sandboxes/one/snapshots/a").refused(404, "no snapshot")


def test_completion_knows_the_tags(boxes):
    b = boxes
    b.create("work")
    b.ak("snapshot", "work", "before")
    for words in (["restore", "work", ""], ["snapshot", "--remove", "work", "be"], ["fork", "work", "new", "--tag", ""]):
        assert "before" in b.ak("__complete", *words).out, words


@pytest.mark.xdist_group("vm")
def test_a_virtual_machine_and_its_fork_have_the_same_files_and_nothing_else_in_common(any_user):
    b = Boxes(prepare(any_user))
    who = ("import os,socket,fcntl; s=socket.socket(); q=lambda n: fcntl.ioctl(s, n, b'eth0'.ljust(256, b'\\0'))\n"
           "print(socket.gethostname(), open('/proc/sys/kernel/random/boot_id').read().strip(), os.urandom(16).hex(), q(0x8927)[18:24].hex(), q(0x8915)[20:24].hex())")
    try:
        b.ak("create", "box", *VM, timeout=SLOW)
        b.ak("start", "box", timeout=SLOW)
        b.sh("box", "echo one > ~/f", timeout=SLOW)
        b.ak("snapshot", "--stop", "box", "a", timeout=SLOW)
        b.sh("box", "echo two > ~/f", timeout=SLOW)
        b.ak("restore", "--stop", "box", "a", timeout=SLOW)
        b.ak("fork", "--stop", "box", "child", timeout=SLOW)
        b.ak("start", "child", timeout=SLOW)
        rows = [b.out(name, PYTHON, "-c", who, timeout=SLOW).split() for name in ("box", "child")]
        assert len(rows[0]) == 5 and all(x != y for x, y in zip(*rows)), rows
        assert [b.sh(name, "cat ~/f", timeout=SLOW) for name in ("box", "child")] == ["one\n", "one\n"]
        b.ak("remove", "--force", "box", "child", timeout=SLOW)
    finally:
        b.close()
