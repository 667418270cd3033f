"""Published ports of persistent sandboxes: kept, changed while they run, and there again after whatever part was restarted."""
import contextlib
import json
import re

import mcp
import pytest
from api import Door, api, as_uid, box_api  # noqa: F401
from expect import CODEX, holding
from lab import PYTHON, wait_for
from published import closed, echo, records, reset, serve, wait_record


@pytest.fixture
def door(boxes):
    with Door(boxes.lab) as d:
        yield d


def first_bytes(door, port):
    """What the server inside says first; b"" until it listens, because clients are reset before that."""
    with contextlib.suppress(OSError), contextlib.closing(door.connect(port)) as s:
        return s.recv(100)
    return b""


def ports(b, name):
    return b.list()[name].get("publish")


def test_a_port_of_create_is_there_at_every_start_and_gone_at_every_stop(any_boxes):
    b = any_boxes
    b.create("web", "--compatibility-mode", "codex", "-p", "15201:5001", "--publish", "0:5001")
    assert ports(b, "web") == ["127.0.0.1:15201:5001", "127.0.0.1:0:5001"]
    with Door(b.lab) as door:
        assert closed(door, 15201)
        for _ in range(2):
            said = b.ak("start", "web").err
            free = int(re.search(r"agentkernel: 127\.0\.0\.1:(\d+) leads to port 5001 of the sandbox\n", said)[1])
            assert ports(b, "web") == ["127.0.0.1:15201:5001", "127.0.0.1:%d:5001" % free]
            assert b.ak("network", "publish", "web").out == "".join("127.0.0.1:%d leads to port 5001 of web\n" % p for p in (15201, free))
            with b.holding("web", serve(("127.0.0.1", 5001))):
                assert echo(door, 15201) == echo(door, free) == b"helloend"
            assert reset(door, 15201)
            b.ak("stop", "web")
            assert closed(door, 15201) and closed(door, free)
    assert sum(r["count"] for r in records(b.netlog("web")) if r["verdict"] == "allow") == 4


def test_a_start_whose_port_is_taken_fails_and_leaves_nothing_behind(boxes, door):
    b = boxes
    b.up("one", "-p", "15202")
    b.create("two", "-p", "15203", "-p", "15202")
    b.fails("start", "two", says="port 127.0.0.1:15202 of the host is in use: publish another one")
    assert b.list()["two"]["status"] == "stopped" and closed(door, 15203)
    b.ak("stop", "one")
    b.ak("start", "two")
    assert reset(door, 15202) and reset(door, 15203)


def test_ports_change_while_it_runs_and_stay_changed(boxes, door):
    b = boxes
    b.up("web")
    with b.holding("web", serve(("127.0.0.1", 5001))), contextlib.ExitStack() as stack:
        assert b.ak("network", "publish", "web", "15204:5001", "0.0.0.0:15205:5001").err.startswith("agentkernel: 0.0.0.0:15205: other machines")
        held = {p: stack.enter_context(contextlib.closing(door.connect(p))) for p in (15204, 15205)}
        for s in held.values():
            s.sendall(b"x")
            assert s.recv(1) == b"x"
        assert json.loads(b.ak("network", "publish", "web", "--remove", "15204", "--json").out) == ["0.0.0.0:15205:5001"]
        with pytest.raises(ConnectionResetError):
            held[15204].recv(1)
        assert closed(door, 15204)
        held[15205].sendall(b"y")
        assert held[15205].recv(1) == b"y"
    wait_record(lambda: b.netlog("web"), rule="publish: 127.0.0.1:15204", detail="the port is no longer published")
    b.ak("stop", "web")
    b.ak("network", "publish", "web", "15206:5001")
    assert closed(door, 15206)
    b.ak("start", "web")
    with b.holding("web", serve(("127.0.0.1", 5001))):
        assert echo(door, 15205) == echo(door, 15206) == b"helloend" and closed(door, 15204)
    told = [json.loads(line) for line in b.ak("audit", "--sandbox", "web", "--json").out.splitlines()]
    changes = [{k: e[k] for k in ("publish", "remove") if k in e} for e in told if e["event"] == "sandbox_publish"]
    assert changes == [{"publish": ["127.0.0.1:15204:5001", "0.0.0.0:15205:5001"]}, {"remove": ["127.0.0.1:15204:15204"]},
                       {"publish": ["127.0.0.1:15206:5001"]}]


def test_a_change_that_cannot_be_made_changes_nothing(boxes, door):
    b = boxes
    b.up("web", "-p", "15207")
    b.up("other", "-p", "15208")
    b.create("dark", "--no-network")
    b.fails("network", "publish", "web", "15209", "15208", says="port 127.0.0.1:15208 of the host is in use")
    b.fails("network", "publish", "web", "15207", says="127.0.0.1:15207 is published already")
    b.fails("network", "publish", "web", "--remove", "15210", says="sandbox 'web' does not publish 127.0.0.1:15210")
    b.fails("network", "publish", "web", "http", code=2, says="is not a published port")
    b.fails("network", "publish", "web", "15209", "--remove", "15207", code=2, says="not both at once")
    b.fails("network", "publish", "dark", "15209", code=2, says="has no network")
    b.fails("network", "publish", "nobody", "15209", says="no sandbox named 'nobody'")
    b.fails("create", "dark2", "--no-network", "-p", "15209", code=2, says="cannot be combined with --publish")
    for i in range(15):
        b.ak("network", "publish", "web", str(15211 + i))
    b.fails("network", "publish", "web", "15209", says="at most 16 ports")
    assert len(ports(b, "web")) == 16 and closed(door, 15209)


def test_ports_come_back_with_a_restarted_gateway_and_daemon(boxes, door):
    b = boxes
    b.up("web", "-p", "15230:5001")
    with b.holding("web", serve(("127.0.0.1", 5001))):
        assert echo(door, 15230) == b"helloend"
        gateway = str(b.status()["gateway"]["pid"])
        b.lab.host(["kill", "-9", gateway])
        wait_for(lambda: b.lab.host(["test", "!", "-d", "/proc/" + gateway]).code == 0)
        assert echo(door, 15230) == b"helloend"  # a client waits until the gateway is back
        with b.without_daemon():
            assert closed(door, 15230)
            b.revive()
        wait_for(lambda: not closed(door, 15230))
        assert echo(door, 15230) == b"helloend"
        assert ports(b, "web") == ["127.0.0.1:15230:5001"]


def change_a_running_command(b, door, name):
    """Publish and remove ports of the run NAME, whose command echoes on port 5001; it was started with 15231."""
    assert b.ak("network", "publish", name, "15232:5001", "0:5001", "0.0.0.0:15233:5001").err.startswith("agentkernel: 0.0.0.0:15233: other machines")
    now = json.loads(b.ak("network", "publish", name, "--json").out)
    free = int(now[2].split(":")[1])
    assert now == ["127.0.0.1:15231:5001", "127.0.0.1:15232:5001", "127.0.0.1:%d:5001" % free, "0.0.0.0:15233:5001"]
    for port in (15231, 15232, free, 15233):
        assert echo(door, port) == b"helloend"
    with contextlib.closing(door.connect(15232)) as held:
        held.sendall(b"x")
        assert held.recv(1) == b"x"
        assert "15232" not in b.ak("network", "publish", name, "--remove", "15232").out
        with pytest.raises(ConnectionResetError):
            held.recv(1)
    assert closed(door, 15232) and echo(door, 15231) == b"helloend"
    b.fails("network", "publish", name, "15234", "15231", says="127.0.0.1:15231 is published already")
    b.fails("network", "publish", name, "--remove", "15234", says="run '%s' does not publish 127.0.0.1:15234" % name)
    b.fails("network", "publish", name, "203.0.113.9:15234", says="this host does not have that address")
    assert closed(door, 15234)
    shown = b.ak("list").out.splitlines()
    assert shown[0].split()[-1] == "PORTS" and [line for line in shown if line.startswith(name) and "0.0.0.0:15233:5001" in line], shown
    return ["127.0.0.1:15231:5001", "127.0.0.1:%d:5001" % free, "0.0.0.0:15233:5001"]


@pytest.mark.parametrize("warm", (False, True))
def test_ports_of_a_running_command_change(any_boxes, warm):
    b = any_boxes
    if warm:
        b.ak("daemon", "prewarm", "--mode", "codex", "--count", "1")
    with Door(b.lab) as door, holding(b.lab, [*CODEX, "--name", "goes-on", "-p", "15231:5001"], serve(("127.0.0.1", 5001))):
        assert not warm or next(p["hits"] for p in b.status()["pool"] if p["mode"] == "codex") == 1
        left = change_a_running_command(b, door, "goes-on")
    with Door(b.lab) as door:
        assert all(closed(door, int(p.split(":")[1])) for p in left)
    b.fails("network", "publish", "goes-on", "15234", says="no sandbox named 'goes-on'")
    assert json.loads(b.ak("inspect", "goes-on").out)["publish"] == left
    rules = [r["rule"] for r in records(b.netlog("goes-on")) if r["verdict"] == "allow"]
    assert rules.count("publish: 127.0.0.1:15232") == 2 and rules.count("publish: 0.0.0.0:15233") == 1, rules
    told = [json.loads(line) for line in b.ak("audit", "--sandbox", "goes-on", "--json").out.splitlines()]
    changes = [{k: e[k] for k in ("publish", "remove") if k in e} for e in told if e["event"] == "sandbox_publish"]
    assert changes == [{"publish": ["127.0.0.1:15232:5001", left[1], left[2]]}, {"remove": ["127.0.0.1:15232:5001"]}]
    assert b.ak("audit", "verify").code == 0


def test_a_run_without_a_network_takes_no_port(boxes):
    b = boxes
    with holding(b.lab, ["--no-network", "--name", "dark-run"]):
        b.fails("network", "publish", "dark-run", "15231", says="takes no further ports")


ASK = r"""
import socket
names = [line.split()[-1] for line in open('/proc/net/unix') if '@agentkernel-run-' in line]
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
s.connect(chr(0) + names[0][1:])
try: s.sendall(b'{"publish":["15231"]}')
except OSError: pass
try: said = s.recv(4096)
except ConnectionResetError: said = s.recv(4096)  # closed with our request unread; the reason is still there
print(said.decode())
"""


def test_only_the_owner_of_a_run_publishes_its_ports(any_boxes):
    """Its socket has no file, so no mode protects it: the peer's user decides."""
    lab = any_boxes.lab
    if not lab.is_root:
        pytest.skip("only root can become another user")
    with Door(lab) as door, holding(lab, [*CODEX, "--name", "mine"]):
        said = lab.host([*as_uid(4242), PYTHON, "-c", ASK])
        assert "belongs to another user" in said.out and closed(door, 15231), said
        said = lab.spawn([PYTHON, "-c", ASK]).wait(30)
        assert json.loads(said.out)["publish"] == ["127.0.0.1:15231:15231"] and not closed(door, 15231), said


def test_a_run_in_the_background_publishes_and_can_be_changed(boxes, door):
    b = boxes
    server = "import socket; s = socket.create_server(('127.0.0.1', 5001)); s.accept()[0].sendall(b'inside'); s.accept()[0].sendall(b'again')"
    r = b.ak("run", "-d", "--name", "bg", "-p", "0:5001", "--", PYTHON, "-c", server)
    port = int(re.search(r"127\.0\.0\.1:(\d+) leads to port 5001 of the sandbox\n", r.err)[1])
    assert wait_for(lambda: first_bytes(door, port)) == b"inside"
    b.ak("network", "publish", "bg", "15235:5001")
    assert wait_for(lambda: first_bytes(door, 15235)) == b"again"
    wait_for(lambda: closed(door, port) and closed(door, 15235))


# ---- HTTP ----

def test_the_api_publishes_shows_and_removes(box_api, door):
    a = box_api.post("/sandboxes", {"name": "web", "publish": ["15232:5001"]})
    assert a.status == 201 and a.data["publish"] == ["127.0.0.1:15232:5001"], a
    with box_api.boxes.holding("web", serve(("127.0.0.1", 5001))):
        assert echo(door, 15232) == b"helloend"
        more = box_api.post("/sandboxes/web/network/publish", {"publish": ["0:5001"]}).data["publish"]
        assert echo(door, int(more[1].split(":")[1])) == b"helloend"
        assert box_api.get("/sandboxes/web").data["publish"] == more
        assert box_api.post("/sandboxes/web/network/publish", {"remove": ["15232"]}).data["publish"] == more[1:]
        assert closed(door, 15232)
    wait_for(lambda: len(records(box_api.get("/sandboxes/web/network/log").data)) == 2)
    box_api.post("/sandboxes/web/network/publish", {"publish": ["x"]}).refused(400, "publish[0]: 'x' is not a published port")
    box_api.post("/sandboxes/web/network/publish", {}).refused(400, "no port given")
    box_api.post("/sandboxes/web/network/publish", {"publish": [more[1].split(":")[1]]}).refused(409, "of the host is in use")
    box_api.post("/sandboxes/web/network/publish", {"remove": ["1"]}).refused(404, "does not publish")
    box_api.post("/sandboxes/nobody/network/publish", {"publish": ["15232"]}).refused(404)


def test_a_run_by_the_api_publishes(api, lab):
    server = "import socket; s = socket.create_server(('127.0.0.1', 5001)); c = s.accept()[0]; c.sendall(b'inside'); c.close(); print('served')"
    body = {"command": [PYTHON, "-c", server], "publish": ["15233:5001"]}
    with Door(lab) as door, contextlib.closing(api.stream("POST", "/run/stream", body)) as stream:
        assert wait_for(lambda: first_bytes(door, 15233)) == b"inside"
        assert any("served" in str(event) for event in stream)
    api.post("/run", {"command": ["true"], "publish": ["0:80"]}).refused(400, "publish[0]: name the port of the host")
    api.post("/run", {"command": ["true"], "publish": ["1:2:3"]}).refused(400, "is not a port")
    api.post("/run", {"command": ["true"], "publish": ["203.0.113.9:15233"]}).refused(400, "does not have that address")


def test_no_tool_of_the_mcp_server_publishes(lab):
    with mcp.serving(lab) as m:
        tools = m.request("tools/list")["result"]["tools"]
        assert tools and "publish" not in json.dumps([t["inputSchema"] for t in tools])
        for tool, args in (("sandbox_run", {"command": ["true"]}), ("sandbox_create", {"name": "mine"})):
            assert "publish" in json.dumps(m.bad(tool, publish=["15234"], **args))
