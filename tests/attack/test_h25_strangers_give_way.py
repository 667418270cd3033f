"""h25: connections without a key keep nobody out who has one: they are few of each user and address, and the first to go."""
import contextlib
import json
import select

import pytest
from api import api, as_uid, serving  # noqa: F401
from lab import PYTHON

STRANGER = 4242
KEY = {"AGENTKERNEL_API_KEY": "the-key"}

# Opens N connections, or N again and again, and tells in the end how many of them the server still has.
CROWD = """
import json, socket, sys
port, n, again, what = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == 'again', sys.argv[4].encode().decode('unicode_escape').encode()
host, sources, held = sys.argv[5], sys.argv[6:], []
def one(i):
    s = socket.socket(); s.settimeout(5)
    if sources: s.bind((sources[i % len(sources)], 0))
    try:
        s.connect((host, port)); s.settimeout(0); s.send(what)
    except OSError: return
    held.append(s)
for i in range(n): one(i)
print('up', flush=True)
i = n
while again:
    i += 1
    one(i)
    if len(held) > n: held.pop(0).close()
sys.stdin.read()
live = 0
for s in held:
    try: live += s.recv(1, socket.MSG_PEEK) != b''
    except BlockingIOError: live += 1
    except OSError: pass
print(live)
"""
HALF = r"GET /sandboxes HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bea"


@contextlib.contextmanager
def crowd(api, n, what=HALF, again=False, uid=None, sources=(), host="127.0.0.1", internet=False):
    """N connections that say WHAT, held for a while."""
    lab = api.lab
    argv = [*(as_uid(uid) if uid is not None else []), PYTHON, "-c", CROWD, str(api.port), str(n), "again" if again else "once", what, host, *sources]
    proc = lab.spawn(argv, stdin="pipe", who="root" if internet or uid is not None else None, cwd="/", internet=internet)
    try:
        proc.wait_output(b"up", timeout=60)
        yield proc
    finally:
        if proc.code is None:
            proc.signal(9)
            proc.close_stdin()
            proc.wait()


def held(proc):
    """How many the server still has."""
    proc.close_stdin()
    r = proc.wait()
    return int(r.out.split()[-1])


@pytest.fixture
def keyed(lab):
    with serving(lab, env=KEY, key="the-key") as a:
        yield a


def gets_through(api, n=50):
    """Every one of N calls of the owner is answered."""
    assert [api.get("/policies/codex").status for _ in range(n)] == [200] * n


@pytest.mark.parametrize("what", [HALF, "", "G", r"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n", r"GET /sandboxes HTTP/1.1\r\nHost: localhost\r\n\r\n"],
                         ids=["half a head", "silent", "one octet", "health", "without a key"])
def test_h25_520_without_a_key_do_not_keep_the_owner_out(keyed, what):
    with crowd(keyed, 520, what):
        gets_through(keyed)
        assert keyed.run("echo", "hi")["output"] == "hi\n"


def test_h25_neither_do_those_who_come_again_and_again(keyed):
    """They are of the owner's own user: only time tells them apart, so a call that a busy machine holds up for long may be lost to them."""
    def works():
        with contextlib.suppress(OSError, EOFError):
            return keyed.get("/policies/codex").status == 200
    with crowd(keyed, 520, again=True):
        assert sum(bool(works()) for _ in range(100)) >= 80


def test_h25_nor_do_those_of_other_users_who_come_again_and_again(keyed):
    if not keyed.lab.is_root:
        pytest.skip("an ordinary user has no second one to be")
    with crowd(keyed, 520, again=True, uid=STRANGER), crowd(keyed, 200, "", again=True, uid=STRANGER + 1):
        gets_through(keyed, 100)


@pytest.mark.parametrize("again", [False, True], ids=["many addresses", "one address again and again"])
def test_h25_nor_do_those_from_elsewhere(lab, again):
    sources = ["11.9.0.1"] if again else ["11.9.%d.%d" % (i % 3, i // 3) for i in range(3, 600)]
    with serving(lab, "--host", "0.0.0.0", env=KEY, key="the-key") as a, crowd(a, 520, again=again, sources=sources, host="11.200.0.2", internet=True):
        gets_through(a, 100)


def test_h25_strangers_are_few_of_each_user(keyed):
    if not keyed.lab.is_root:
        pytest.skip("an ordinary user has no second one to be")
    with crowd(keyed, 100, uid=STRANGER) as one, crowd(keyed, 100, uid=STRANGER + 1) as two:
        keyed.alive()
        assert held(one) <= 32 and 0 < held(two) <= 32
    assert int(keyed.get("/metrics").body.decode().partition("\nagentkernel_http_gave_way_total ")[2].split()[0]) >= 136


def test_h25_a_server_without_a_key_is_not_kept_from_its_user(lab):
    if not lab.is_root:
        pytest.skip("an ordinary user has no second one to be")
    with serving(lab) as a, crowd(a, 520, again=True, uid=STRANGER):
        gets_through(a, 100)


@pytest.mark.xdist_group("descriptors")
def test_h25_descriptors_are_given_back_by_strangers_first(lab):
    with serving(lab, env=KEY, key="the-key", rlimits={"RLIMIT_NOFILE": 64}) as a, crowd(a, 100):
        gets_through(a, 50)
        assert a.run("echo", "hi")["output"] == "hi\n"


def test_h25_whoever_showed_the_key_stays_when_strangers_come(keyed):
    mine = []
    try:
        for _ in range(100):
            s = keyed.connect()
            s.sendall(keyed.head("GET", "/policies/codex"))
            mine.append(s)
        for s in mine:
            assert s.recv(1 << 20).startswith(b"HTTP/1.1 200")
        with crowd(keyed, 520):
            keyed.alive()
            for s in mine:
                s.sendall(keyed.head("GET", "/policies/codex"))
                assert s.recv(1 << 20).startswith(b"HTTP/1.1 200")
    finally:
        for s in mine:
            s.close()


def memory(api, what="VmRSS"):
    return int(api.lab.host(["grep", what, "/proc/%d/status" % api.proc.pid]).out.split()[1])


def test_h25_a_stranger_who_takes_no_answers_gets_no_more_of_them(keyed):
    """Each answer is five times as long as its question."""
    before, chunk = memory(keyed), b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n" * 1000
    with keyed.connect() as s:
        s.setblocking(False)
        sent = 0
        while sent < 64 << 20 and select.select([], [s], [], 1)[1]:
            with contextlib.suppress(BlockingIOError):
                sent += s.send(chunk)
        keyed.alive()
        assert sent < 32 << 20 and memory(keyed) < before + 8192, (sent, before, memory(keyed))


def test_h25_what_was_sent_ahead_is_answered_whole_also_after_the_end(keyed):
    n = 300
    with keyed.connect() as s, s.makefile("rb") as f:
        s.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n" * n)
        s.shutdown(1)
        text = f.read()
    assert text.count(b'"ok"') == n and json.loads(text.splitlines()[-1])["success"] is True
