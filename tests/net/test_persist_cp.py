"""cp: files and folders both ways, byte for byte, with modes and links, and nothing that waits or leads out."""
import os
import stat

from lab import PYTHON

MAKE = """
import os
home = os.path.expanduser('~')
top = os.path.join(home, 'tree'); os.makedirs(os.path.join(top, 'a/b'))
open(os.path.join(top, 'bin'), 'wb').write(bytes(range(256)) * 5000)
open(os.path.join(top, 'empty'), 'w').close()
open(os.path.join(top, 'a/b/exec'), 'w').write('#!/bin/sh\\n'); os.chmod(os.path.join(top, 'a/b/exec'), 0o751)
os.chmod(os.path.join(top, 'a'), 0o700)
os.symlink('bin', os.path.join(top, 'near')); os.symlink('/etc/passwd', os.path.join(top, 'far')); os.symlink('nowhere', os.path.join(top, 'broken'))
print(top, end='')
"""


def test_a_tree_out_and_in_again(any_boxes):
    b, lab = any_boxes, any_boxes.lab
    b.up("x")
    top = b.out("x", PYTHON, "-c", MAKE)
    b.ak("cp", "x:" + top, "copy")
    copy = lab.path("project", "copy")
    with open(os.path.join(copy, "bin"), "rb") as f:
        assert f.read() == bytes(range(256)) * 5000
    assert os.path.getsize(os.path.join(copy, "empty")) == 0
    assert stat.S_IMODE(os.stat(os.path.join(copy, "a/b/exec")).st_mode) == 0o751
    assert stat.S_IMODE(os.stat(os.path.join(copy, "a")).st_mode) == 0o700
    assert os.readlink(os.path.join(copy, "near")) == "bin" and os.readlink(os.path.join(copy, "far")) == "/etc/passwd"
    assert os.readlink(os.path.join(copy, "broken")) == "nowhere"
    if lab.is_root:
        assert os.stat(copy).st_uid == (lab.uid if lab.who == "user" else 0)
    b.ak("cp", "copy", "x:/tmp/back")
    assert b.sh("x", "cmp /tmp/back/bin %s/bin && ls -lR /tmp/back | sed 's/.*[0-9] //;1d' > /tmp/l1; stat -c %%a /tmp/back/a/b/exec; readlink /tmp/back/far; "
                "test -O /tmp/back/bin && echo mine" % top) == "751\n/etc/passwd\nmine\n"


def test_where_the_copy_goes(boxes):
    b, lab = boxes, boxes.lab
    b.up("x")
    with open(lab.path("project", "f"), "w") as f:
        f.write("text")
    b.ak("cp", "f", "x:/tmp/g")
    b.ak("cp", "f", "x:/tmp")
    b.ak("cp", "./f", "x:/tmp/")
    assert b.sh("x", "cat /tmp/g /tmp/f") == "texttext"
    b.ak("cp", "x:/tmp/g", ".")
    b.ak("cp", "x:/tmp/g", "f")
    assert sorted(os.listdir(lab.path("project"))) == ["f", "g"]
    b.fails("cp", "f", "x:/tmp/no/such/folder/f", says="no such file")
    b.fails("cp", "f", "x:/tmp/new/", says="no such file")
    b.fails("cp", "x:/tmp/nothing", ".", says="no such file")
    b.fails("cp", "nothing", "x:/tmp", says="no such file")
    b.fails("cp", "x:/tmp/g", "f/", says="not a folder")
    b.fails("cp", "ghost:/tmp/g", "f", says="ghost")
    with open(lab.path("project", "a:b"), "w") as f:
        f.write("colon")
    b.ak("cp", "./a:b", "x:/tmp/colon")
    assert b.sh("x", "cat /tmp/colon") == "colon"
    b.ak("cp", "-r", ".", "x:/tmp/all")
    assert b.sh("x", "ls /tmp/all").split() == ["a:b", "f", "g"]


def test_a_replaced_file_is_whole_at_every_moment(boxes):
    b, lab = boxes, boxes.lab
    b.up("x")
    with open(lab.path("project", "big"), "wb") as f:
        f.write(b"1" * 3000000)
    b.ak("cp", "big", "x:/tmp/big")
    watch = lab.spawn([lab.binary, "exec", "x", PYTHON, "-c", """
import os, sys
print('up', flush=True)
sizes = set()
while not os.path.exists('/tmp/stop'):
    sizes.add(os.stat('/tmp/big').st_size)
print(sizes)
"""], env=lab.env())
    watch.wait_output(b"up\n")
    for _ in range(5):
        b.ak("cp", "big", "x:/tmp/big")
    b.sh("x", "touch /tmp/stop")
    assert watch.wait().out.split("\n")[1] == "{3000000}"
    assert b.sh("x", "ls -A /tmp | grep -c '^.ak-' || true").strip() == "0"


def test_copies_are_recorded(boxes):
    b, lab = boxes, boxes.lab
    b.up("x")
    b.ak("cp", "x:/etc/passwd", "p")
    b.ak("cp", "p", "x:/tmp/p")
    text = b.ak("audit", "--sandbox", "x").out
    assert "copy_out" in text and "copy_in" in text and "/etc/passwd" in text, text


def test_archives_on_stdin_and_stdout(any_boxes):
    b, lab = any_boxes, any_boxes.lab
    b.up("x", "--no-network")
    os.makedirs(lab.path("project", "t", "deep"))
    with open(lab.path("project", "t", "deep", "bin"), "wb") as f:
        f.write(bytes(range(256)) * 40)
    os.chmod(lab.path("project", "t", "deep", "bin"), 0o755)
    os.symlink("deep/bin", lab.path("project", "t", "link"))

    def sh(script):
        return lab.spawn(["sh", "-c", script.replace("AK", lab.binary)], env=lab.env()).wait()
    r = sh("tar cf - t | AK cp - x:/tmp")
    assert r.code == 0, r
    assert b.sh("x", "stat -c %a /tmp/t/deep/bin; readlink /tmp/t/link; stat -c %a /tmp") == "755\ndeep/bin\n1777\n"
    r = sh("mkdir out; AK cp x:/tmp/t - | tar xf - -C out && cmp t/deep/bin out/t/deep/bin && readlink out/t/link")
    assert r.code == 0 and r.out == "deep/bin\n", r
    r = sh("echo junk | AK cp - x:/tmp")
    assert r.code == 1 and "tar failed" in r.err, r
    r = sh("tar cf - t | AK cp - x:/nosuch")
    assert r.code == 1 and "'x:/nosuch': No such file" in r.err, r
    assert not [n for n in os.listdir(lab.path("state", "agentkernel")) if n.startswith("cp-")], "left behind"


def test_an_error_names_the_side_that_failed(boxes):
    b, lab = boxes, boxes.lab
    b.up("x", "--no-network")
    with open(lab.path("project", "f"), "w") as f:
        f.write("text")
    b.fails("cp", "x:/etc/hostname", "f/h", says="'f/'")
    b.fails("cp", "x:/tmp", "f", says="'f' exists and is not a folder")
    b.fails("cp", "x:/etc/hostname", "/proc/h", says="'/proc/h': cannot write 'hostname' there")
