"""h21: nothing that a command or a client does holds up the other clients of the HTTP server."""
import contextlib
import json

import pytest
from api import box_api  # noqa: F401
from lab import PYTHON, wait_for

# A client that asks again and again, for as long as a stall may take to show, on one connection: how long each answer took, without the time in
# which server or client waited for a processor, and how much of it the server used meanwhile. Neither depends on what else the machine does.
ASK = """
import json, select, socket, sys, time
port, pid, n = map(int, sys.argv[1:])
s = socket.create_connection(('127.0.0.1', port)); s.setsockopt(6, 1, 1); s.settimeout(60)
stats = lambda who: [int(x) / 1e9 for x in open('/proc/%s/schedstat' % who).read().split()[:2]]
wall, work = [], []
for _ in range(n):
    select.select([], [], [], 0.005)
    t, (used, queued), (_, own) = time.monotonic(), stats(pid), stats('self')
    s.sendall(b'GET /health HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n')
    while not s.recv(65536).endswith(b'}\\n'): pass
    took, (used_now, queued_now), (_, own_now) = time.monotonic() - t, stats(pid), stats('self')
    wall.append(max(0, took - (queued_now - queued) - (own_now - own))); work.append(used_now - used)
wall.sort(); work.sort()
print(json.dumps({'p50': wall[n // 2], 'p99': wall[n * 99 // 100], 'work': work[n * 99 // 100], 'most': work[-1]}))
"""
# Clients that send one request again and again, a few a second, and read the answers or do not.
PRESS = """
import json, socket, sys, threading
port, path, body, n, reads = int(sys.argv[1]), sys.argv[2], sys.argv[3].encode(), int(sys.argv[4]), sys.argv[5] == 'reads'
head = ('POST %s HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: close\\r\\nContent-Length: %d\\r\\n\\r\\n' % (path, len(body))).encode()
never, done = threading.Event(), threading.Event()
def press():
    while True:
        with socket.create_connection(('127.0.0.1', port)) as s:
            s.sendall(head + body)
            if not reads: never.wait()
            while s.recv(1 << 20): pass
            done.set()
        never.wait(0.2)
for _ in range(n): threading.Thread(target=press, daemon=True).start()
if reads: done.wait()
print('up', flush=True)
sys.stdin.read()
"""
WRITERS = "for i in 1 2 3 4; do head -c 2000000000 /dev/zero %s & done; exit 0"
GROWN = ("import fcntl, os, sys\nif os.fork(): os._exit(0)\nfcntl.fcntl(1, 1031, 1 << 20)\nd = b'\\1' * (1 << 20)\nn = os.open('/dev/null', 1)\n"
         "for _ in range(3000): os.write(1 if sys.argv[1] == 'loud' else n, d)")
PACKETS = ("import fcntl, os, sys\nif os.fork(): os._exit(0)\nfd = os.open('/proc/self/fd/1' if sys.argv[1] == 'loud' else '/dev/null', os.O_WRONLY | os.O_DIRECT if "
           "sys.argv[1] == 'loud' else os.O_WRONLY)\nfor _ in range(2000000): os.write(fd, b'\\1')")


def shell(script):
    return {"command": ["sh", "-c", script]}


@contextlib.contextmanager
def pressing(api, path, body, n=2, reads=True):
    proc = api.lab.spawn([PYTHON, "-c", PRESS, str(api.port), path, json.dumps(body), str(n), "reads" if reads else "no"], stdin="pipe")
    try:
        proc.wait_output(b"up", timeout=60)
        yield
    finally:
        proc.signal(9)
        proc.close_stdin()
        proc.wait()


def asked(api, n=200):
    r = api.lab.spawn([PYTHON, "-c", ASK, str(api.port), str(api.proc.pid), str(n)]).wait(120)
    assert r.code == 0, r
    return r.json()


def compare(api, path, loud, calm, **kw):
    """Others are served about as well as when the same work does not pass through the server."""
    with pressing(api, path, calm, **kw):
        quiet = asked(api)
    with pressing(api, path, loud, **kw):
        noise = asked(api)
    assert noise["work"] < 0.01 and noise["most"] < 0.1 and noise["p50"] < 2 * max(quiet["p50"], 0.001), (noise, quiet)


@pytest.fixture
def one(box_api):  # noqa: F811
    a = box_api.post("/sandboxes", {"name": "one"})
    assert a.status == 201, a
    return box_api


@pytest.mark.parametrize("where", ["", ">&2"], ids=["stdout", "stderr"])
def test_h21_writers_that_outlive_their_command_stall_nobody(one, where):
    compare(one, "/sandboxes/one/exec", shell(WRITERS % where), shell(WRITERS % ">/dev/null"))


@pytest.mark.parametrize("code", [GROWN, PACKETS], ids=["grown pipe", "one octet a packet"])
def test_h21_nor_do_pipes_that_were_changed_from_inside(one, code):
    compare(one, "/sandboxes/one/exec", {"command": [PYTHON, "-c", code, "loud"]}, {"command": [PYTHON, "-c", code, "calm"]})


def test_h21_the_answer_comes_although_writers_go_on(one):
    r = one.post("/sandboxes/one/exec", shell("echo here; (while :; do echo more; done) & exit 3")).data
    assert r["exit_code"] == 3 and r["stdout"].startswith("here\n")
    d = one.post("/sandboxes/one/exec/detach", shell("echo here; (while :; do echo more; done) & exit 3")).data
    base = "/sandboxes/one/exec/detached/" + d["id"]
    wait_for(lambda: one.get(base).data["status"] == "failed")
    assert one.get(base).data["exit_code"] == 3


def test_h21_endless_output_stalls_nobody(one):
    compare(one, "/run", dict(shell("exec yes"), timeout_ms=3000), dict(shell("exec yes >/dev/null"), timeout_ms=3000), reads=False)


def test_h21_slow_readers_stall_nobody(one):
    compare(one, "/run/stream", shell("exec yes"), shell("exec yes >/dev/null"), n=4, reads=False)


def test_h21_huge_escapes_stall_nobody(one):
    noise = "head -c 16000000 /dev/zero | tr '\\0' '\\1' %s"
    compare(one, "/run", shell(noise % ""), shell(noise % ">/dev/null"))
