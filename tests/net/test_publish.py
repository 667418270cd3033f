"""Published ports: a port of the host leads to what listens on the sandbox's own loopback."""
import contextlib
import json
import re

import pytest
from api import Door
from expect import CODEX, NATIVE, holding
from published import closed, echo, records, reset, serve, wait_record


@pytest.fixture
def door(lab):
    with Door(lab) as d:
        yield d


def test_every_loopback_listener_is_reached_in_every_mode(any_user):
    lab = any_user
    places = [("127.0.0.1", 5001), ("0.0.0.0", 5002), ("::1", 5003), ("::", 5004)]
    ports = [x for _, p in places for x in ("-p", "%d:%d" % (15000 + p, p))]
    for args in (NATIVE, CODEX):
        with Door(lab) as door, holding(lab, [*args, *ports], serve(*places)):
            for _, port in places:
                assert echo(door, 15000 + port, data=b"x" * 300000) == b"x" * 300000 + b"end"
        rows = records(lab.netlog())
        assert [(r["verdict"], r["dst"], r["port"], r["rule"], r["bytes_in"], r["bytes_out"]) for r in rows] == [
            ("allow", "::1" if port == 5003 else "127.0.0.1", port, "publish: 127.0.0.1:%d" % (15000 + port), 300000, 300003) for _, port in places]
        with Door(lab) as door:
            assert all(closed(door, 15000 + port) for _, port in places)


def test_a_port_where_nothing_listens_is_reset_at_once_and_recorded(lab, door):
    with holding(lab, [*CODEX, "-p", "15010"], serve()) as (_, do):
        assert reset(door, 15010)
        do([["eval", "listen('127.0.0.1', 15010); out = 1"]])
        assert echo(door, 15010) == b"helloend"
    rows = records(lab.netlog())
    assert [r["verdict"] for r in rows] == ["error", "allow"]
    assert rows[0]["reason"] == "nothing listens on this port inside" and "bytes_in" not in rows[0]
    assert lab.ak(["network", "log", "--last"]).out.count("publish: 127.0.0.1:15") == 2


def test_port_0_picks_a_free_one_and_says_which(lab, door):
    with holding(lab, [*CODEX, "-p", "0:5001"], serve(("127.0.0.1", 5001))) as (proc, _):
        line = proc.wait_output(b"of the sandbox", stream=2).decode()
        port = int(re.search(r"agentkernel: 127\.0\.0\.1:(\d+) leads to port 5001 of the sandbox\n", line)[1])
        assert echo(door, port) == b"helloend"
        runs = json.loads(lab.ak(["list", "-a", "--json"]).out)
        assert [r["publish"] for r in runs] == [["127.0.0.1:%d:5001" % port]]


def test_another_address_is_told_and_reached(lab, door):
    with holding(lab, [*CODEX, "-p", "0.0.0.0:15011:5001", "-p", "[::1]:15011:5001"], serve(("127.0.0.1", 5001))) as (proc, _):
        proc.wait_output(b"agentkernel: 0.0.0.0:15011 leads to port 5001 of the sandbox; other machines that reach this address can connect\n", stream=2)
        assert b"::1" not in proc.output[2]
        assert echo(door, 15011, "11.200.0.2") == echo(door, 15011, "::1") == echo(door, 15011) == b"helloend"


def test_what_cannot_be_published_is_an_error_that_says_the_fix(any_user):
    lab = any_user
    usage = {
        "http": "is not a published port", "0": "port 0 inside", "8080:0": "port 0 inside", "65536": "out of range",
        "80:70000": "out of range", "localhost:80": "is not an address of the host", "1.2.3:80": "is not an address of the host",
        "::1:80": "is not a port", "[::1]80": "is not a published port", "8080:80/udp": "is not a port", "1:2:3": "is not a port", "-1": "is not a",
    }
    for text, says in usage.items():
        r = lab.run(["--publish=%s" % text, "true"])
        assert r.code == 2 and r.err.startswith("agentkernel: run: --publish: ") and says in r.err, (text, r)
    r = lab.run(["-p", "15012", "-p", "127.0.0.1:15012:80", "true"])
    assert r.code == 2 and "127.0.0.1:15012 is published already" in r.err, r
    for option in (["--no-network"], ["--profile", "restrictive"]):
        r = lab.run([*option, "-p", "15012", "true"])
        assert r.code == 2 and "cannot be combined with --publish" in r.err, r
    with Door(lab) as door, holding(lab, [*CODEX, "-p", "15012"]):
        r = lab.run(["-p", "15013", "-p", "15012", "true"])
        assert r.code == 125 and "port 127.0.0.1:15012 of the host is in use: publish another one, such as 0:15012" in r.err, r
        assert closed(door, 15013)
    r = lab.run(["-p", "203.0.113.9:15012", "true"])
    assert r.code == 125 and "203.0.113.9:15012: this host does not have that address" in r.err, r


def test_explain_names_the_port_and_opens_nothing(lab, door):
    with holding(lab, [*CODEX, "-p", "15017"]):
        r = lab.run([*CODEX, "-p", "15017:80", "--explain", "true"])
    assert r.code == 0 and "127.0.0.1:15017 of the host leads to port 80 inside (--publish)" in r.out, r


def test_a_privileged_port_needs_privileges_and_says_so(lab):
    with lab.acting_as("user"):
        limit = int(open("/proc/sys/net/ipv4/ip_unprivileged_port_start").read())
        r = lab.run(["-p", "80", "true"])
    if limit <= 80:
        pytest.skip("every port is open to every user here")
    assert r.code == 125 and "port 127.0.0.1:80 of the host needs privileges: publish one from 1024 up, such as 8080:80" in r.err, r


def test_the_port_closes_with_the_command_and_its_connections_end(lab, door):
    with holding(lab, [*CODEX, "-p", "15014"], serve(("127.0.0.1", 15014))):
        held = door.connect(15014)
        held.sendall(b"x")
        assert held.recv(1) == b"x"
    assert closed(door, 15014)
    with held, contextlib.suppress(ConnectionResetError):
        assert held.recv(100) == b""
    wait_record(lab.netlog, verdict="allow", bytes_in=1, bytes_out=1)


def test_a_warm_sandbox_publishes_as_a_cold_one(any_boxes):
    b, lab = any_boxes, any_boxes.lab
    b.ak("daemon", "prewarm", "--mode", "codex", "--count", "1")
    with Door(lab) as door:
        with holding(lab, [*CODEX, "-p", "15015:5001", "-p", "15016"], serve(("127.0.0.1", 5001))):
            assert next(p["hits"] for p in b.status()["pool"] if p["mode"] == "codex") == 1
            assert echo(door, 15015) == b"helloend" and reset(door, 15016)
            taken = lab.run([*CODEX, "-p", "15015", "true"])
            assert taken.code == 125 and "127.0.0.1:15015 of the host is in use" in taken.err, taken
        assert closed(door, 15015) and closed(door, 15016)
    assert sorted((r["verdict"], r["rule"]) for r in records(lab.netlog())) == [("allow", "publish: 127.0.0.1:15015"), ("error", "publish: 127.0.0.1:15016")]
