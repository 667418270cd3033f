"""Invariant 3: nothing is forwarded; a dead gateway means no network."""
from expect import NATIVE, allow, gateway_pid, holding, in_gateway, worked


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


def test_killing_the_gateway_closes_the_network(any_user):
    lab = any_user
    with holding(lab, NATIVE) as (proc, do):
        assert worked(do([["tcp", "11.1.0.6", 7, b"x".hex()]])[0]) == "x"
        lab.host(["kill", "-9", str(gateway_pid(lab, proc))])
        proc.wait_output(b"without a network", stream=2)
        lab.clear()
        code = "s = socket.socket(); s.settimeout(0.3); s.connect((%r, 7)); s.send(b'x'); out = s.recv(1)"
        got = do([["eval", code % a] for a in ("11.1.0.6", "11.66.0.1", "10.0.0.1")] + [["eval", "socket.getaddrinfo('ok.test', 1)"]][:0])
        assert all("err" in row for row in got), got
    assert lab.strangers() == []
