"""h1: a server without a key answers only its own user: not another user, nor one who has left, nor who took over a port."""
import contextlib
import itertools
import os
import shutil
import signal
import socket
import struct

import pytest
from api import Api, Door, read_answer, serving
from lab import wait_for

NOBODY_HERE = 4242
PORTS = itertools.count(23456)  # each is used once: the kernel keeps it for a while
HOW = "AGENTKERNEL_API_KEY"


@pytest.fixture
def mine(any_boxes):
    """A server without a key, of an ordinary user and of root."""
    if not any_boxes.lab.is_root:
        pytest.skip("an ordinary user has no second one to be")
    with serving(any_boxes.lab) as api:
        yield api


def others(lab):
    return [NOBODY_HERE, "root" if lab.who == "user" else "user"]


@contextlib.contextmanager
def frozen(api):
    """The server does nothing meanwhile; the kernel goes on taking connections for it."""
    stat = "/proc/%d/stat" % api.proc.pid
    api.proc.signal(signal.SIGSTOP)
    wait_for(lambda: api.lab.host(["cat", stat]).out.rpartition(")")[2].split()[0] == "T")
    try:
        yield
    finally:
        api.proc.signal(signal.SIGCONT)


def request(api, name):
    """Bytes that make a sandbox, also when nobody waits for the answer."""
    body = api.encode({"name": name})
    return api.head("POST", "/sandboxes", (), len(body)) + body


def names(api):
    return [s["name"] for s in api.get("/sandboxes").data]


@pytest.mark.parametrize("host, source", [("127.0.0.1", None), ("::1", None), ("::ffff:127.0.0.1", None), ("127.0.0.1", ("127.0.0.9", 0)),
                                          ("127.0.0.1", ("11.200.0.2", 0))], ids=["v4", "v6", "mapped", "other source", "not loopback"])
def test_h1_another_user_is_refused_whatever_it_asks_and_the_owner_is_served(mine, host, source):
    mark = mine.lab.path("project", "mark")
    ask = {"command": ["touch", mark], "compatibility_mode": "codex", "cwd": mine.lab.path("project")}
    for who in others(mine.lab):
        with mine.calls_of(who) as door:
            mine.connect = lambda _="": door.connect(mine.port, host, source)
            for method, path, body in [("POST", "/run", ask), ("POST", "/run/stream", ask), ("POST", "/batch/run", {"commands": [ask]}),
                                       ("POST", "/sandboxes", {"name": "theirs"}), ("GET", "/sandboxes", None), ("GET", "/openapi.json", None),
                                       ("GET", "/metrics", None), ("GET", "/events", None), ("GET", "/nope", None), ("BREW", "/run", None)]:
                a = mine(method, path, body).refused(401, HOW)
                assert "--api-key-file" in a.json["error"] and a.headers["www-authenticate"] == "Bearer", a
            mine.get("/sandboxes", headers={"Authorization": "Bearer x"}).refused(401, HOW)
            assert mine.get("/health").data == "ok"
            del mine.connect
    assert not os.path.exists(mark) and names(mine) == [] and "agentkernel_runs_total 0" in mine.get("/metrics").body.decode()
    mine.connect = lambda _="": mine.door.connect(mine.port, host, source)
    assert mine.post("/run", ask).data["exit_code"] == 0 and os.path.exists(mark)
    del mine.connect


def test_h1_every_request_of_a_connection_that_is_kept_is_refused(mine):
    with mine.calls_of(NOBODY_HERE), mine.connect() as s, s.makefile("rb") as f:
        s.sendall(mine.head("GET", "/health") + mine.head("GET", "/sandboxes") * 5 + mine.head("GET", "/health"))
        assert [read_answer(f).status for _ in range(7)] == [200] + [401] * 5 + [200]


def test_h1_who_said_everything_and_waits_is_still_known(mine):
    with frozen(mine):
        s = mine.connect()
        s.sendall(mine.head("GET", "/openapi.json"))
        s.shutdown(socket.SHUT_WR)
    with s, s.makefile("rb") as f:
        assert read_answer(f).json["info"]["title"] == "agentkernel"


@pytest.mark.parametrize("how", ["closed", "reset"])
def test_h1_who_has_left_is_nobody(mine, how):
    """A socket without a process counts as root's on many kernels."""
    for who in others(mine.lab):
        with mine.calls_of(who), frozen(mine):
            for _ in range(3):
                s = mine.connect()
                if how == "reset":
                    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                s.sendall(request(mine, "theirs"))
                s.close()
    taken = wait_for(lambda: connections(mine) >= 6)
    assert taken and names(mine) == []


def connections(api):
    text = api.get("/metrics").body.decode()
    return int(text.partition("\nagentkernel_http_connections_total ")[2].split()[0])


def connect_from(api, source):
    with contextlib.suppress(OSError):  # not free yet
        return api.door.connect(api.port, source=source)


def test_h1_the_owner_on_the_same_port_lends_nothing_to_who_had_it_before(mine):
    """Only a reset frees a port at once; the bytes that came before it are there to be read all the same."""
    source = ("127.0.0.1", next(PORTS))
    with Door(mine.lab, NOBODY_HERE) as theirs, frozen(mine):
        s = theirs.connect(mine.port, source=source)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        s.sendall(request(mine, "theirs"))
        s.close()
        with wait_for(lambda: connect_from(mine, source)) as kept:
            kept.sendall(mine.head("GET", "/health"))
    wait_for(lambda: connections(mine) >= 2)
    assert names(mine) == []


def test_h1_a_listener_of_the_owner_on_that_port_lends_nothing(mine):
    """The kernel's search for a connection that is gone ends at whoever listens on its port."""
    source = ("127.0.0.1", next(PORTS))
    code = "import socket; s = socket.socket(); s.setsockopt(1, 2, 1); s.bind(%r); s.listen(); print('up', flush=True); input()" % (source,)
    with Door(mine.lab, NOBODY_HERE) as theirs, frozen(mine):
        s = theirs.connect(mine.port, source=source)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        s.sendall(request(mine, "theirs"))
        s.close()
        listener = mine.lab.spawn(["/usr/bin/python3", "-c", code], stdin="pipe")
        listener.wait_output(b"up")
    wait_for(lambda: connections(mine) >= 1)
    listener.close_stdin()
    listener.wait()
    assert names(mine) == []


def test_h1_with_a_key_every_user_who_has_it_is_served(any_user):
    if not any_user.is_root:
        pytest.skip("an ordinary user has no second one to be")
    with serving(any_user, env={HOW: "the-key"}, key="the-key") as api:
        for who in others(any_user):
            with api.calls_of(who):
                assert api.run("echo", "hi")["output"] == "hi\n"
                api.get("/policies", headers={"Authorization": None}).refused(401, "Bearer")


def test_h1_the_published_node_client_of_the_same_user_needs_no_key(boxes, package):
    api = Api(boxes.lab, port=None)
    code = ("const { AgentKernel } = await import(process.argv[1]);"
            "const c = new AgentKernel(); const r = await c.run(['echo', 'hello']); console.log(r.output, await c.health());")
    try:
        r = boxes.lab.spawn([shutil.which("node"), "--input-type=module", "-e", code, package]).wait(60)
        assert (r.code, r.out) == (0, "hello\n ok\n"), r
    finally:
        api.close()
