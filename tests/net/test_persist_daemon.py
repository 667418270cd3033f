"""The daemon itself: one a user, found again, started on demand, by hand or by a service manager, and never fooled by what a crash left."""
import json
import os
import stat

import pytest
from lab import PYTHON, wait_for


def runtime(b):
    return b.lab.path("runtime", "agentkernel")


def test_started_on_demand_and_by_hand(any_boxes):
    b = any_boxes
    r = b.lab.ak(["daemon", "status"])
    assert r.code == 1 and "no daemon" in r.err
    r = b.lab.ak(["daemon", "status", "--json"])
    assert r.code == 1 and json.loads(r.out) == {"running": False}
    assert b.lab.ak(["daemon", "stop"]).code == 1
    b.ak("daemon", "start")
    first = b.pid()
    b.fails("daemon", "start", says="running already (pid %d)" % first)
    b.fails("daemon", "start", "--foreground", says="running already")
    assert b.pid() == first
    b.ak("daemon", "stop")
    assert not b.runs()
    b.up("x")
    assert b.pid() != first
    assert "running" in b.ak("daemon", "status").out


def test_many_commands_start_one(boxes):
    b, lab = boxes, boxes.lab
    for i in range(8):
        b.create("n%d" % i)
    procs = [lab.spawn([lab.binary, "start", "n%d" % i], env=lab.env()) for i in range(8)]
    assert all(p.wait(60).code == 0 for p in procs)
    assert {row["status"] for row in b.list().values()} == {"running"}
    count = lab.host(["sh", "-c", "cat /proc/[0-9]*/comm | grep -c '^ak-daemon' || true"]).out.strip()
    assert count == "1", count
    assert b.status()["sandboxes"] == {"total": 8, "running": 8}


def test_the_socket_is_for_its_user_alone(boxes):
    b, lab = boxes, boxes.lab
    b.ak("daemon", "start")
    st = os.stat(os.path.join(runtime(b), "daemon.sock"))
    assert stat.S_IMODE(st.st_mode) == 0o600 and stat.S_ISSOCK(st.st_mode)
    assert stat.S_IMODE(os.stat(runtime(b)).st_mode) == 0o700
    if not lab.is_root:
        return
    # Even one who gets at the socket is asked who they are.
    path = os.path.join(runtime(b), "daemon.sock")
    lab.host(["sh", "-c", "chmod 777 %s %s %s" % (lab.path("runtime"), runtime(b), path)])
    code = ("import socket,os,sys\nos.setgid(65534); os.setuid(65534)\ns=socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); s.settimeout(3)\n"
            "s.connect(sys.argv[1])\ntry:\n s.send(b'{\"op\":\"ping\"}'); print(s.recv(1000))\nexcept OSError as e: print('refused', e)")
    r = lab.host([PYTHON, "-c", code, path])
    assert b"pid" not in r.out_bytes, r
    lab.host(["sh", "-c", "chmod 700 %s %s; chmod 600 %s" % (lab.path("runtime"), runtime(b), path)])
    assert b.runs()


def test_stale_files_are_replaced_and_strange_ones_told(boxes):
    b, lab = boxes, boxes.lab
    b.up("x")
    with b.without_daemon():
        assert os.path.exists(os.path.join(runtime(b), "daemon.sock"))
        b.ak("daemon", "start")
    assert b.list()["x"]["status"] == "running"
    b.ak("remove", "--force", "x")
    b.ak("daemon", "stop")
    path = os.path.join(runtime(b), "daemon.sock")
    if os.path.exists(path):
        os.unlink(path)
    os.mkdir(path)
    r = lab.ak(["daemon", "start"])
    assert r.code == 1 and "daemon.sock" in r.err, r
    os.rmdir(path)


def test_foreground_ends_with_its_signal(boxes):
    b, lab = boxes, boxes.lab
    p = lab.spawn([lab.binary, "daemon", "start", "--foreground"], env=lab.env())
    wait_for(b.runs)
    assert b.pid() == p.pid
    b.up("x")
    p.signal(15)
    assert p.wait(20).code == 0
    assert b.exec("x", "true").code == 0
    b.ak("remove", "--force", "x")


ACTIVATE = """
import os, socket, sys
path = sys.argv[1]
os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET if sys.argv[3] == 'right' else socket.SOCK_STREAM); s.bind(path); os.chmod(path, 0o600); s.listen(16)
os.dup2(s.fileno(), 3); os.set_inheritable(3, True)
os.environ['LISTEN_FDS'] = '1'; os.environ['LISTEN_PID'] = str(os.getpid())
os.execv(sys.argv[2], [sys.argv[2], 'daemon', 'start', '--foreground'])
"""


def test_a_socket_passed_by_a_service_manager_is_used(boxes):
    b, lab = boxes, boxes.lab
    path = os.path.join(runtime(b), "daemon.sock")
    p = lab.spawn([PYTHON, "-c", ACTIVATE, path, lab.binary, "right"], env=lab.env())
    wait_for(b.runs)
    assert b.pid() == p.pid
    b.up("x")
    assert "LISTEN" not in b.out("x", "env")
    b.ak("remove", "--force", "x")
    b.ak("daemon", "stop")
    assert p.wait(20).code == 0
    if os.path.exists(path):
        os.unlink(path)
    p = lab.spawn([PYTHON, "-c", ACTIVATE, path, lab.binary, "wrong"], env=lab.env())
    r = p.wait(10)
    assert r.code == 1 and "ListenSequentialPacket" in r.err, r
    os.unlink(path)


@pytest.mark.parametrize("junk", [b"", b"x", b"{}", b"[]", b'{"op":1}', b'{"op":"nonsense"}', b'{"op":"start"}', b'{"op":"start","name":"../x"}',
                                  b'{"op":"create","name":"a","mode":"x"}', b'{"op":"run"}', b'{"op":"policy","name":"x","edits":{}}', b"\xff" * 1000,
                                  b"[" * 60000], ids=range(13))
def test_junk_on_the_socket_hurts_nobody(boxes, junk):
    b, lab = boxes, boxes.lab
    b.up("x")
    code = ("import socket,sys\ns=socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); s.settimeout(5); s.connect(sys.argv[1])\n"
            "s.send(bytes.fromhex(sys.argv[2]))\ntry: print(s.recv(10000))\nexcept OSError as e: print(e)")
    before = b.pid()
    for path in (os.path.join(runtime(b), "daemon.sock"), os.path.join(runtime(b), "sb", "x.sock")):
        r = lab.spawn([PYTHON, "-c", code, path, junk.hex()], env=lab.env()).wait(20)
        assert r.code == 0, r
    assert b.pid() == before and b.exec("x", "true").code == 0
