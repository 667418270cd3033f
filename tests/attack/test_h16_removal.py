"""h16: trees that are too deep, too wide or locked are removed all the same, or it is told what is left."""
import os

import pytest

from lab import PYTHON, wait_for

# In pieces, the lowest first, each moved to the bottom of the next: Landlock looks at every parent of a new folder.
DEEP = """
import os, sys
depth, name, tree = int(sys.argv[1]), sys.argv[2], None
home = os.path.expanduser('~')
while depth > 0:
    os.chdir(home); os.mkdir('piece'); os.chdir('piece')
    for i in range(min(depth, 200)):
        os.mkdir(name); os.chdir(name)
    open('file' if tree else 'bottom', 'w').write('x')
    if tree: os.rename(tree, name)
    tree, depth = os.path.join(home, 'tree'), depth - 200
    os.rename(os.path.join(home, 'piece', name), tree); os.rmdir(os.path.join(home, 'piece'))
print('made', end='')
"""

WIDE = """
import os
os.chdir('/tmp'); os.mkdir('wide'); os.chdir('wide')
for i in range(5000): os.close(os.open('f%d' % i, os.O_CREAT | os.O_WRONLY))
for i in range(2000): os.makedirs('d%d/sub' % i)
print('made', end='')
"""

LOCKED = """
import os
os.chdir(os.path.expanduser('~'))
for i in range(60):
    os.mkdir('d'); open('d/f', 'w').write('x'); os.mkdir('d/e'); os.chdir('d')
for i in range(60):
    os.chmod('e', 0); os.chmod('f', 0); os.chdir('..'); os.chmod('d', 0 if i % 2 else 0o500)
print('made', end='')
"""

ODD = """
import os, socket
home = os.path.expanduser('~'); os.chdir(home)
os.symlink('/', 'root'); os.symlink('..', 'up'); os.mkfifo('fifo'); socket.socket(socket.AF_UNIX).bind('sock')
os.mkdir('x\\ny'); open(b'\\xff\\xfe', 'w').close(); os.mkdir(b'z' * 255); os.symlink(home, b'z' * 255 + b'/' + b'l' * 255)
print('made', end='')
"""


def left(lab):
    """What is still there of any sandbox."""
    top = lab.path("state", "agentkernel", "sandboxes")
    return [n for n in os.listdir(top) if n != ".links"]


def removed(b, name, timeout=120):
    """When `remove` says that it is done, it is. On a busy machine it says after 45 s that it is still at it, and goes on."""
    r = b.lab.ak(["remove", "--force", name], timeout=timeout)
    if r.code == 1 and "is still being removed" in r.err and r.seconds > 40:
        wait_for(lambda: left(b.lab) == [], timeout=300, every=0.2)
        return
    assert r.code == 0, r
    assert left(b.lab) == [], r


@pytest.mark.parametrize("depth,part", [(20000, "d"), (600, "n" * 255), (33, "e"), (1, "f")], ids=["20000", "long", "33", "1"])
def test_h16_nested_folders_are_removed(any_boxes, depth, part):
    b = any_boxes
    b.up("x")
    assert b.out("x", PYTHON, "-c", DEEP, str(depth), part, timeout=120) == "made"
    removed(b, "x")


@pytest.mark.parametrize("script", [WIDE, LOCKED, ODD], ids=["wide", "locked", "odd"])
def test_h16_what_a_sandbox_leaves_is_removed(any_boxes, script):
    b, lab = any_boxes, any_boxes.lab
    with open(lab.path("home", "mine"), "w") as f:
        f.write("the user's")
    b.up("x")
    assert b.out("x", PYTHON, "-c", script, timeout=120) == "made"
    removed(b, "x")
    assert os.path.exists(lab.path("home", "mine"))


def test_h16_a_deep_tree_that_a_killed_daemon_left_is_removed_by_the_next(boxes):
    b, lab = boxes, boxes.lab
    b.up("x")
    assert b.out("x", PYTHON, "-c", DEEP, "20000", "d", timeout=120) == "made"
    b.ak("stop", "x")
    b.kill_daemon()
    top = lab.path("state", "agentkernel", "sandboxes")
    os.rename(os.path.join(top, "x"), os.path.join(top, ".gone-x-1"))
    b.ak("daemon", "start")
    wait_for(lambda: left(lab) == [], timeout=300, every=0.2)


def test_h16_what_cannot_be_removed_is_told_and_other_mounts_are_not_entered(any_boxes):
    b, lab = any_boxes, any_boxes.lab
    other = lab.path("other")
    os.mkdir(other)
    with open(os.path.join(other, "keep"), "w") as f:
        f.write("not the sandbox's")
    b.up("x")
    b.sh("x", "mkdir -p /srv/one/two; echo x > /srv/one/file")
    b.ak("stop", "x")
    target = lab.path("state", "agentkernel", "sandboxes", "x", "upper", "root", "srv", "one", "two")
    assert lab.host(["mount", "--bind", other, target]).code == 0
    r = lab.ak(["remove", "x"])
    gone = lab.path("state", "agentkernel", "sandboxes")
    (folder,) = [n for n in os.listdir(gone) if n.startswith(".gone-")]
    place = os.path.join(gone, folder, "upper", "root", "srv", "one", "two")
    assert lab.host(["umount", place]).code == 0
    assert r.code == 1 and "srv/one/two" in r.err and folder in r.err, r
    assert os.listdir(other) == ["keep"]
    assert os.listdir(os.path.dirname(place)) == ["two"]  # all else is gone
    assert "x" not in b.list()
    b.kill_daemon()
    b.ak("daemon", "start")
    wait_for(lambda: left(lab) == [], timeout=20)
