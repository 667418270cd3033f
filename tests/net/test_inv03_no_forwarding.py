"""Invariant 3: nothing is forwarded; a dead gateway means no network."""
from expect import NATIVE, allow, ask, gateway_pid, holding, in_gateway, worked


def test_forwarding_is_off_in_the_gateways_namespace(any_user):
    lab = any_user
    for mode in (allow("ok.test"), NATIVE):
        with holding(lab, mode) as (proc, do):
            r = in_gateway(lab, proc, "sh", "-c", "cat /proc/sys/net/ipv4/ip_forward /proc/sys/net/ipv6/conf/all/forwarding "
                           "/proc/sys/net/ipv4/conf/all/forwarding")
            assert r.out.split() == ["0", "0", "0"], r
            rules = in_gateway(lab, proc, "nft", "list", "ruleset").out
            assert "hook forward" in rules and "policy drop" in rules, rules
            assert "masquerade" not in rules


def test_the_gateways_namespace_has_no_way_out(lab):
    with holding(lab, NATIVE) as (proc, do):
        routes = in_gateway(lab, proc, "sh", "-c", "ip route; ip -6 route; ip -o link").out
        assert "eth0" not in routes and "11.200" not in routes, routes


def tcp(seconds):
    return [["eval", "s = socket.socket(); s.settimeout(%d); s.connect((%r, 7)); s.send(b'x'); out = s.recv(1).decode()" % (seconds, a)] for a in ("11.1.0.6", "11.1.0.5", "11.66.0.1")]


NO_NETWORK = {"timeout", "ENETUNREACH", "EHOSTUNREACH", "ENETDOWN", "ECONNREFUSED"}


def test_killing_the_gateway_closes_the_network(any_user):
    lab = any_user
    with holding(lab, NATIVE) as (proc, do):
        # The same steps work before: what fails afterwards does so for want of a gateway.
        assert [worked(row) for row in do(tcp(20))] == ["x"] * 3
        for row in do([ask("ok.test", proto=p) for p in ("udp", "tcp")] + [["resolve", "two.test", 4]]):
            worked(row)
        assert lab.dns.names() == ["ok.test", "two.test"]
        lab.host(["kill", "-9", str(gateway_pid(lab, proc))])
        proc.wait_output(b"without a network", stream=2)
        lab.clear()
        for row in do(tcp(1) + [ask("other.test", server=server, proto=p) for server in (None, "11.0.0.53") for p in ("udp", "tcp")]):
            assert row.get("err") in NO_NETWORK, row
        # The program's own resolver tries again and again, and its word for that is EAI_AGAIN.
        row = do([["eval", "os.environ['RES_OPTIONS'] = 'timeout:1 attempts:1'; out = do_resolve('other.test', 4)"]])[0]
        assert row.get("err") == "EAI_AGAIN", row
    # Not one packet, the host's own resolver included.
    assert lab.dns.log() == [] and lab.arrived() == 0, (lab.dns.log(), lab.counters())
