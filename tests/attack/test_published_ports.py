"""Published ports lead inwards only, to what was published only, and a sandbox cannot use them against the host or its neighbours."""
import contextlib

from api import Door
from expect import CODEX, NATIVE, at_once, holding, worked
from lab import wait_for
from published import closed, echo, records, reset, serve

AT_ONCE = 256  # connections to the published ports of one sandbox


def test_what_is_not_published_cannot_be_reached_from_the_host(lab):
    script = serve(("127.0.0.1", 5001), ("0.0.0.0", 5002), ("::", 5003))
    with Door(lab) as door, holding(lab, [*CODEX, "-p", "15101:5001"], script):
        assert echo(door, 15101) == b"helloend"
        for host in ("127.0.0.1", "::1", "11.200.0.2"):
            for port in (5001, 5002, 5003) if host == "127.0.0.1" else (15101, 5001, 5002, 5003):
                assert closed(door, port, host), (host, port)


def test_no_sandbox_reaches_a_published_port(lab):
    """Neither its own nor another's, by whatever address of the host, in the mode that allows most."""
    hosts = ["127.0.0.1", "::1", "11.200.0.2", "10.77.0.1", "2a00:ffff::2", "100.64.0.1"]
    steps = [["read", host, 15102] for host in hosts]
    steps.append(["eval", "s = socket.create_connection((gateway(), 15102), 3); out = 'in'"])
    both = ["-p", "0.0.0.0:15102:5001", "-p", "[::]:15102:5001"]
    with Door(lab) as door, holding(lab, [*NATIVE, *both], serve(("127.0.0.1", 5001))) as (proc, do):
        tries = list(zip(steps, do(steps))) + list(zip(steps, lab.probe(NATIVE, steps)))
        for step, row in tries:
            assert "err" in row, (step, row)
            at_once(row)
        assert echo(door, 15102, "11.200.0.2") == b"helloend"
        # What may be done: the user opens the host's port to a sandbox by name.
        opened = lab.probe([*NATIVE, "--allow-host", "host.agentkernel.internal:15102"],
                           [["eval", "s = socket.create_connection(('host.agentkernel.internal', 15102), 3); s.sendall(b'a'); out = s.recv(1).decode()"]])
        assert worked(opened[0]) == "a"
        name = name_of(do)
    assert len(records(lab.netlog(name=name))) == 2, "only the host's client and the one that was let in"


def test_connections_are_bounded_and_starve_nobody(boxes):
    """One that holds as many as it can: more are reset and recorded, its own network and its neighbour in the same gateway go on, and all descriptors
    come back."""
    b, lab, script = boxes, boxes.lab, serve(("127.0.0.1", 5001))
    b.up("greedy", "-p", "15103:5001")
    b.up("other", "-p", "15104:5001")
    with contextlib.ExitStack() as stack:
        door = stack.enter_context(Door(lab))
        _, do = stack.enter_context(b.holding("greedy", script))
        _, other = stack.enter_context(b.holding("other", script))
        fds = "/proc/%d/fd" % b.status()["gateway"]["pid"]

        def count():
            """Descriptors of the gateway; only root may look."""
            n = len(lab.host(["ls", fds]).out.split())
            assert n > 3 or not lab.is_root
            return n

        before, held = count(), []
        for _ in range(AT_ONCE):
            held.append(stack.enter_context(contextlib.closing(door.connect(15103))))
            held[-1].sendall(b"x")
            assert held[-1].recv(1) == b"x"
        for _ in range(20):
            assert reset(door, 15103)
        assert count() <= before + 6 * AT_ONCE + 16
        assert echo(door, 15104) == b"helloend"
        for ask in (do, other):
            worked(ask([["tls", "ok.test", 443, "ok.test"]])[0])
        held.pop().close()
        wait_for(lambda: not reset_or_echo(door))
        for s in held:
            s.close()
        wait_for(lambda: count() <= before + 16)
    b.ak("stop", "greedy")
    over = [r for r in records(b.netlog("greedy")) if r["verdict"] == "deny"]
    assert {r["reason"] for r in over} == {"limit of published ports reached"} and sum(r["count"] for r in over) >= 20


def name_of(do):
    return worked(do([["eval", "out = os.environ['AGENTKERNEL_SANDBOX']"]])[0])


def reset_or_echo(door):
    """False once a new connection works again."""
    try:
        return echo(door, 15103) != b"helloend"
    except OSError:
        return True


def test_a_server_that_never_accepts_holds_up_neither_init_nor_other_ports(lab):
    script = serve(("127.0.0.1", 5001)) + "deaf = socket.socket(); deaf.bind(('127.0.0.1', 5002)); deaf.listen(0)\n"
    with Door(lab) as door, holding(lab, [*CODEX, "-p", "15105:5001", "-p", "15106:5002"], script) as (proc, do):
        with contextlib.ExitStack() as stack:
            for _ in range(16):
                stack.enter_context(contextlib.closing(door.connect(15106)))
            assert echo(door, 15105) == b"helloend"
            # init still reaps and starts: it is pid 1 of whatever runs here
            assert worked(do([["eval", "import subprocess; out = subprocess.run(['true']).returncode"]])[0]) == 0
        proc.signal(15)
        proc.result = proc.wait(10)
        assert proc.result.code == 143, proc.result
