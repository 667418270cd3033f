"""Published ports on `--backend vm`: a connection ends at what listens on the guest's own loopback."""
import json

import pytest
from api import Door
from expect import CODEX, holding
from guests import SLOW, VM, prepare, run
from persist import Boxes
from published import closed, echo, records, reset, serve

pytestmark = pytest.mark.xdist_group("vm")


@pytest.fixture
def vm(any_user):
    lab = prepare(any_user)
    assert run(lab, ["--no-network", "--", "true"]).code == 0
    return lab


def test_every_loopback_listener_is_reached_and_recorded_and_the_ports_close_with_the_command(vm):
    places = [("127.0.0.1", 5001), ("::1", 5003)]
    ports = [x for _, p in [*places, ("", 5005)] for x in ("-p", "%d:%d" % (15000 + p, p))]
    big = bytes(range(256)) * 3000
    with Door(vm) as door, holding(vm, [*VM, *CODEX, *ports], serve(*places), SLOW) as (_, do):
        for _, port in places:
            assert echo(door, 15000 + port, data=big) == big + b"end"
        held = [door.connect(20001) for _ in range(20)]
        for n, s in enumerate(held):
            s.sendall(b"%d" % n)
        assert [s.recv(8) for s in held] == [b"%d" % n for n in range(20)]
        for s in held:
            s.close()
        assert reset(door, 20005)
        do([["eval", "listen('127.0.0.1', 5005); out = 1"]])
        assert echo(door, 20005) == b"helloend"
    rows = [r for r in records(vm.netlog()) if r["port"] != 5001 or r.get("bytes_in") == len(big)]
    assert [(r["verdict"], r["dst"], r["port"], r["rule"]) for r in rows] == [
        ("allow", "127.0.0.1", 5001, "publish: 127.0.0.1:20001"), ("allow", "::1", 5003, "publish: 127.0.0.1:20003"),
        ("error", "127.0.0.1", 5005, "publish: 127.0.0.1:20005"), ("allow", "127.0.0.1", 5005, "publish: 127.0.0.1:20005")], rows
    assert rows[2]["reason"] == "nothing listens on this port inside", rows
    with Door(vm) as door:
        assert all(closed(door, 15000 + port) for _, port in places)


def test_ports_of_a_running_sandbox_change(vm):
    b = Boxes(vm)
    try:
        b.ak("create", "web", *VM, timeout=SLOW)
        b.ak("start", "web", timeout=SLOW)
        with Door(vm) as door, b.holding("web", serve(("127.0.0.1", 5001)), SLOW):
            b.ak("network", "publish", "web", "15204:5001")
            assert echo(door, 15204) == b"helloend"
            assert json.loads(b.ak("list", "--json").out)[0]["publish"] == ["127.0.0.1:15204:5001"]
            b.ak("network", "publish", "web", "--remove", "15204")
            assert closed(door, 15204)
    finally:
        b.close()
