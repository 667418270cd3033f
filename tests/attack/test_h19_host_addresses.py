"""h19: addresses that are the host's in other ways than by bind(2): anycast, broadcast, secondary, of a VRF, mapped, just added; also under live flows."""
import contextlib

import pytest
from expect import CODEX, CUT, HOST_ITSELF, NATIVE, denied, find, missing, probe_server, talking, worked
from lab import PYTHON

SERVICE = """
import selectors, socket
sel = selectors.DefaultSelector()
def listen(kind, port):
    s = socket.socket(socket.AF_INET6, kind); s.setsockopt(1, 2, 1); s.setsockopt(41, 26, 0); s.bind(('::', port))
    if kind == socket.SOCK_STREAM: s.listen(16)
    sel.register(s, 1)
listen(socket.SOCK_DGRAM, 5000); listen(socket.SOCK_STREAM, 5000)
print('up', flush=True)
while True:
    for key, _ in sel.select():
        if key.fileobj.type == socket.SOCK_DGRAM:
            data, peer = key.fileobj.recvfrom(2000); print('hit udp', peer[0], flush=True); key.fileobj.sendto(b'host service', peer)
        else:
            c, peer = key.fileobj.accept(); print('hit tcp', peer[0], flush=True); c.sendall(b'host service'); c.close()
"""
FORWARDING = "/proc/sys/net/ipv6/conf/all/forwarding"
ANYCAST = "2a00:ffff::"  # the subnet-router anycast address of the lab's link (RFC 4291 section 2.6.1)


@contextlib.contextmanager
def service(lab):
    """UDP and TCP on port 5000 of every address that the host has."""
    proc = lab.spawn([PYTHON, "-c", SERVICE], who="root")
    proc.wait_output(b"up\n")
    try:
        yield proc
    finally:
        proc.signal(9)
        proc.result = proc.wait()


def hits(lab, proc):
    """What reached the service, after a datagram of the host itself has: it is the last in the queue."""
    mark = lab.host([PYTHON, "-c", "import socket; s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM); s.settimeout(5); s.connect(('::1', 5000)); s.send(b'm'); s.recv(99)"])
    assert mark.code == 0, mark
    proc.wait_output(b"hit udp ::1\n")
    return [line for line in proc.output[1].decode().splitlines() if line.startswith("hit") and line != "hit udp ::1"]


@contextlib.contextmanager
def ip(lab, *commands):
    """The host's network with COMMANDS (`ip` without its name: "addr add …", "route add …", "link add …") carried out, and undone."""
    done = []
    try:
        for command in commands:
            r = lab.host(["ip", *command.split()])
            if r.code != 0:
                missing("ip %s: %s" % (command, r.err.strip()))
            done.append(command)
        yield
    finally:
        for command in reversed(done):
            assert lab.host(["ip", *command.replace(" add ", " del ", 1).replace(" nodad", "").split()]).code == 0


@contextlib.contextmanager
def forwarding(lab):
    before = lab.host(["cat", FORWARDING]).out
    assert lab.host(["tee", FORWARDING], stdin=b"1").code == 0
    try:
        yield
    finally:
        lab.host(["tee", FORWARDING], stdin=before.encode())


def both(address, port=5000):
    return [["udp", address, port], ["tcp", address, port, b"x".hex()]]


def refused_all(lab, args, addresses):
    with service(lab) as server:
        steps = [step for address in addresses for step in both(address)]
        got = lab.probe(args, steps)
        reached = hits(lab, server)
    assert reached == [], (args, reached, got)
    for step, row in zip(steps, got):
        assert "err" in row, (args, step, row)
    log = lab.netlog()
    assert not find(log, event="flow", verdict="allow", port=5000), find(log, port=5000)
    return log


OPEN6 = [*CODEX, "--allow-cidr", "2a00:ffff::/64", "--allow-cidr", "2a00:51::/32"]


@pytest.mark.parametrize("args", [NATIVE, OPEN6], ids=["native", "allow-cidr"])
def test_h19_the_subnet_router_anycast_address_of_a_forwarding_host_is_refused(any_user, args):
    with forwarding(any_user):
        log = refused_all(any_user, args, [ANYCAST])
    denied(log, HOST_ITSELF, dst="2a00:ffff::", port=5000, proto="udp")


@pytest.mark.parametrize("args", [NATIVE, [*CODEX, "--allow-cidr", "11.200.0.0/24", "--allow-cidr", "11.51.0.0/16"]], ids=["native", "allow-cidr"])
def test_h19_broadcast_secondary_and_routed_addresses_are_refused(lab, args):
    with ip(lab, "addr add 11.200.0.77/24 dev eth0", "addr add 11.51.0.9/16 brd 11.51.255.255 dev lo", "route add local 11.51.7.0/24 dev lo"):
        refused_all(lab, args, ["11.200.0.77", "11.200.0.255", "11.51.0.9", "11.51.255.255", "11.51.7.200"])


def test_h19_an_address_that_our_routes_do_not_lead_to_is_refused(lab):
    """As those of a VRF are: its local routes are in a table of its own. The host's list of addresses knows it all the same."""
    with ip(lab, "addr add 2a00:51::7/128 dev lo nodad", "addr add 11.51.0.7/32 dev lo"):
        for family, address in (("-6", "2a00:51::7"), ("-4", "11.51.0.7")):
            assert lab.host(["ip", family, "route", "del", "local", address, "dev", "lo", "table", "local"]).code == 0
            assert "local" not in lab.host(["ip", family, "route", "get", address]).out
        log = refused_all(lab, NATIVE, ["2a00:51::7", "11.51.0.7"])
    for dst in ("2a00:51::7", "11.51.0.7"):
        denied(log, HOST_ITSELF, dst=dst, port=5000)


def test_h19_wrapped_forms_of_the_hosts_ipv4_address_are_refused(lab):
    wrapped = ["::ffff:11.200.0.2", "64:ff9b::11.200.0.2", "2002:bc8:2::1"]
    with ip(lab, "route add 2002::/16 dev lo", "route add 64:ff9b::/96 dev lo"):
        refused_all(lab, NATIVE, wrapped)
        refused_all(lab, [*CODEX, "--allow-cidr", "64:ff9b::/96"], wrapped)
        r = lab.run([*CODEX, "--allow-cidr", "2002::/16", "--", "true"])
        assert r.code == 2 and "can never be opened" in r.err, r


def test_h19_an_address_that_was_just_added_is_refused_and_one_that_was_removed_is_public_again(lab):
    with service(lab) as server, talking(lab.start([*NATIVE, "--", *probe_server("")], stdin="pipe")) as (proc, do):
        for _ in range(3):
            for address in ("11.52.0.1/32", "2a00:52::1/128"):
                bare = address.partition("/")[0]
                assert worked(do([["udp", bare, 5000]])[0]) == "x"
                with ip(lab, "addr add %s dev lo" % address):
                    assert "err" in do([["udp", bare, 5000]])[0]
                    assert "err" in do([["tcp", bare, 5000, b"x".hex()]])[0]
        assert hits(lab, server) == []
        proc.close_stdin()
        assert proc.wait().code == 0


LIVE = """
def live(kind, address):
    s = socket.socket(socket.AF_INET6 if ':' in address else socket.AF_INET, kind); s.settimeout(3); s.connect((address, 5000))
    return s
def say(s):
    try:
        s.send(b'x')
        return s.recv(100).decode()
    except OSError as e: return 'cut'
"""


def live_case(lab, do, server, before, commands, address):
    """Flows to ADDRESS are open and work; COMMANDS make it the host's."""
    steps = [["eval", "socket.flows = [live(socket.SOCK_DGRAM, %r), live(socket.SOCK_STREAM, %r)]; out = [say(s) for s in socket.flows]" % (address, address)]]
    assert worked(do(steps)[0]) == ["x", "x"]
    with ip(lab, *commands):
        out = worked(do([["eval", "out = [say(s) for s in socket.flows for _ in range(3)]"]])[0])
        assert set(out) == {"cut"}, (address, out)
        assert hits(lab, server) == before
    worked(do([["eval", "[s.close() for s in socket.flows]; out = 1"]])[0])


def test_h19_live_flows_are_cut_when_their_destination_becomes_the_hosts(any_user):
    lab = any_user
    lab.listen(5000)
    with service(lab) as server, talking(lab.start([*NATIVE, "--", *probe_server(LIVE)], stdin="pipe")) as (proc, do):
        for address, command in (("2a00:53::1", "addr add 2a00:53::1/128 dev lo nodad"), ("11.53.0.1", "addr add 11.53.0.1/32 dev lo"),
                                 ("11.53.7.7", "route add local 11.53.7.0/24 dev lo"), ("2a00:53:0:7::", "addr add 2a00:53:0:7::1/64 dev eth0 nodad")):
            with forwarding(lab):
                live_case(lab, do, server, [], [command], address)
        proc.close_stdin()
        assert proc.wait().code == 0
    rows = find(lab.netlog(), event="flow", port=5000, rule="builtin: host", reason=CUT, detail="became an address of the host itself")
    wanted = {(a, p) for a in ("2a00:53::1", "11.53.0.1", "11.53.7.7", "2a00:53:0:7::") for p in ("udp", "tcp")}
    assert {(r["dst"], r["proto"]) for r in rows} >= wanted, rows


def test_h19_other_addresses_of_the_link_stay_what_they_are(lab):
    """A host that does not forward has no anycast address there, and a public neighbour is a public address: see SECURITY.md."""
    got = lab.probe(NATIVE, [["tcp", "11.200.0.1", 22], ["udp", "11.1.0.5", 5000], ["udp", "2a00:1::5", 5000]])
    for row in got:
        worked(row)
    assert "err" in lab.probe(CODEX, [["tcp", "11.200.0.1", 22]])[0]
    assert "err" in lab.probe([*NATIVE, "--block-cidr", "11.200.0.0/24"], [["tcp", "11.200.0.1", 22]])[0]
