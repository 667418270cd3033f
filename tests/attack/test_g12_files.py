"""g12: links, `..`, devices, FIFOs, set-id files and huge names in `cp`: they stay inside, and nothing hangs."""
import os
import stat

from lab import PYTHON, wait_for

PLANT = """
import os, socket, sys
outside = sys.argv[1]
home = os.path.expanduser('~'); t = os.path.join(home, 't'); os.makedirs(os.path.join(t, 'sub'))
os.symlink('../../../../../../../../..' + outside, t + '/up'); os.symlink(outside, t + '/abs'); os.symlink('/proc/self/root', t + '/root')
os.symlink('/proc/1/root' + outside, t + '/init'); os.symlink('/', t + '/slash'); os.symlink('loop', t + '/loop')
os.mkfifo(t + '/fifo'); s = socket.socket(socket.AF_UNIX); s.bind(t + '/sock')
open(t + '/suid', 'w').write('x'); os.chmod(t + '/suid', 0o755)
try: os.chmod(t + '/suid', 0o6755)
except PermissionError: pass
open(t + '/' + 'n' * 255, 'w').write('long')
open(t + '/new\\nline\\x1b[31m', 'w').write('odd')
f = open(t + '/hole', 'w'); f.truncate(1 << 36); f.close()
print(t, end='')
"""


def test_g12_a_hostile_tree_comes_out_harmless(any_boxes):
    b, lab = any_boxes, any_boxes.lab
    outside = lab.path("home")
    with open(os.path.join(outside, "secret"), "w") as f:
        f.write("the host's")
    b.up("x")
    t = b.out("x", PYTHON, "-c", PLANT, outside)
    r = lab.ak(["cp", "x:" + t, "out"], timeout=30)
    assert r.code == 1 and "FIFO" in r.err and "socket" in r.err and "\x1b" not in r.err, r
    out = lab.path("project", "out")
    assert os.readlink(os.path.join(out, "abs")) == outside and os.path.islink(os.path.join(out, "up"))
    assert stat.S_IMODE(os.lstat(os.path.join(out, "suid")).st_mode) == 0o755
    assert os.path.getsize(os.path.join(out, "n" * 255)) == 4
    assert os.stat(os.path.join(out, "hole")).st_blocks < 1000
    for path, _, names in os.walk(out):
        for name in names:
            full = os.path.join(path, name)
            if not os.path.islink(full) and name != "hole":
                with open(full) as f:
                    assert f.read() != "the host's", full
    # The links of the sandbox lead nowhere when they are part of the path.
    for way in ("abs/secret", "up/secret", "root" + outside + "/secret", "init/secret", "slash" + outside + "/secret"):
        r = lab.ak(["cp", "x:%s/%s" % (t, way), "stolen"], timeout=10)
        assert r.code == 1, (way, r)
        assert not os.path.exists(lab.path("project", "stolen")), way
    for name in ("fifo", "sock"):
        r = lab.ak(["cp", "x:%s/%s" % (t, name), "stolen"], timeout=10)
        assert r.code == 1, r


def test_g12_writing_through_planted_links_hits_the_sandbox_only(any_boxes):
    b, lab = any_boxes, any_boxes.lab
    outside = lab.path("home")
    with open(os.path.join(outside, "secret"), "w") as f:
        f.write("the host's")
    with open(lab.path("project", "evil"), "w") as f:
        f.write("evil")
    b.up("x")
    t = b.out("x", PYTHON, "-c", PLANT, outside)
    for way in ("abs/secret", "up/secret", "abs", "up", "root" + outside + "/secret", "init/secret", "slash" + outside + "/secret", "loop", "fifo", "sock", "n" * 256,
                "../" * 40 + outside.lstrip("/") + "/secret"):
        lab.ak(["cp", "evil", "x:%s/%s" % (t, way)], timeout=10)
        with open(os.path.join(outside, "secret")) as f:
            assert f.read() == "the host's", way
    for name in os.listdir(outside):
        assert name == "secret", name


def test_g12_the_kernels_own_files_are_not_to_be_had(boxes):
    b, lab = boxes, boxes.lab
    b.up("x")
    with open(lab.path("project", "evil"), "w") as f:
        f.write("evil")
    b.sh("x", "ln -s /proc/sys/kernel/hostname ~/h; ln -s /proc ~/p; ln -s /dev ~/d")
    home = b.sh("x", "printf %s ~")
    for dst in ("/proc/sys/kernel/hostname", "/proc/self/mem", "/sys/x", home + "/p/sys/kernel/hostname", "/dev/null", home + "/d/zero"):
        r = lab.ak(["cp", "evil", "x:" + dst], timeout=10)
        assert lab.host(["cat", "/proc/sys/kernel/hostname"]).out.strip() == "lab", dst
    for src in ("/proc/version", "/dev/zero", "/dev/null", "/dev/tty", home + "/p/1/environ"):
        r = lab.ak(["cp", "x:" + src, "got"], timeout=10)
        assert r.code == 1 and not os.path.exists(lab.path("project", "got")), (src, r)
    assert b.sh("x", "test -c /dev/null && echo still").strip() == "still"


def test_g12_a_link_at_the_host_side_of_the_project_is_refused(boxes):
    b, lab = boxes, boxes.lab
    outside = lab.path("home")
    with open(os.path.join(outside, "secret"), "w") as f:
        f.write("the host's")
    b.up("x", "--compatibility-mode", "claude")
    b.sh("x", "echo evil > /tmp/secret; mkdir -p /tmp/d/sub; echo evil > /tmp/d/sub/secret; ln -s %s/secret f; ln -s %s dir; mkdir d; ln -s %s d/sub" % ((outside,) * 3))
    r = lab.ak(["cp", "x:/tmp/secret", "f"])
    assert r.code == 1 and "symbolic link" in r.err, r
    r = lab.ak(["cp", "x:/tmp/secret", "dir"])
    assert r.code == 1 and "symbolic link" in r.err, r
    r = lab.ak(["cp", "x:/tmp/d", "."])
    assert r.code == 1, r
    assert os.listdir(outside) == ["secret"]
    with open(os.path.join(outside, "secret")) as f:
        assert f.read() == "the host's"


def test_g12_swapping_while_copying_gains_nothing(boxes):
    b, lab = boxes, boxes.lab
    outside = lab.path("home")
    with open(os.path.join(outside, "secret"), "w") as f:
        f.write("the host's")
    b.up("x", "--compatibility-mode", "claude")
    swap = lab.spawn([lab.binary, "exec", "x", PYTHON, "-c", """
import os, sys
os.makedirs('/tmp/t/x'); open('/tmp/t/x/secret', 'w').write('evil')
print('up', flush=True)
while True:
    for target in (%r, '/', '..'):
        try:
            os.rename('/tmp/t/x', '/tmp/t/y'); os.symlink(target, '/tmp/t/x'); os.unlink('/tmp/t/x'); os.mkfifo('/tmp/t/x'); os.unlink('/tmp/t/x'); os.rename('/tmp/t/y', '/tmp/t/x')
        except OSError: pass
        for name in ('out',):
            try: os.symlink(target, name); os.unlink(name)
            except OSError: pass
""" % outside], env=lab.env())
    swap.wait_output(b"up\n")
    for i in range(8):
        lab.ak(["cp", "x:/tmp/t", "out%d" % i], timeout=20)
        lab.ak(["cp", "x:/tmp/t/x/secret", "out"], timeout=20)
        lab.ak(["cp", "out%d" % i, "x:/tmp/t/x"], timeout=20)
    swap.signal(2)
    swap.signal(2)
    swap.wait(10)
    with open(os.path.join(outside, "secret")) as f:
        assert f.read() == "the host's"
    assert os.listdir(outside) == ["secret"]
    for path, _, names in os.walk(lab.path("project")):
        for name in names:
            full = os.path.join(path, name)
            if not os.path.islink(full):
                with open(full) as f:
                    assert f.read() != "the host's", full


def test_g12_an_interrupted_copy_leaves_no_half_file(boxes):
    b, lab = boxes, boxes.lab
    b.up("x")
    b.sh("x", "head -c 300000000 /dev/zero | tr '\\0' x > /tmp/big")
    p = lab.spawn([lab.binary, "cp", "x:/tmp/big", "big"], env=lab.env())
    wait_for(lambda: os.listdir(lab.path("project")) or p._pump(0, lambda: p.code is not None))
    p.signal(2) if p.code is None else None
    r = p.wait(20)
    assert r.code in (0, 130), r
    assert os.listdir(lab.path("project")) == (["big"] if r.code == 0 else [])
