"""Invariant 5: the kernel's set and the relay's check must both allow; `network check` is the same matcher."""
from expect import HOST_ELSEWHERE, NOT_LEARNED, SNI_ELSEWHERE, SNI_NOT_ALLOWED, allow, denied, holding, in_gateway, refused, worked


def test_an_element_that_the_relay_knows_nothing_of_opens_nothing(lab):
    """Somebody put the address into the kernel's set: the relay has learned no name for it and refuses."""
    with holding(lab, allow("ok.test")) as (proc, do):
        worked(do([["tls", "ok.test", 443, "ok.test"]])[0])
        rules = in_gateway(lab, proc, "nft", "list", "sets").out
        name = next(line.split()[1] for line in rules.splitlines() if line.strip().startswith("set sb") and "tcp4" in line)
        r = in_gateway(lab, proc, "nft", "add", "element", "inet", "agentkernel", name,
                       "{ 11.66.0.1 . 443 timeout 60s, 11.66.0.1 . 80 timeout 60s, 11.66.0.1 . 7 timeout 60s }")
        assert r.code == 0, r
        got = do([["tls", "11.66.0.1", 443, "ok.test"], ["tls", "11.66.0.1", 443, "evil.test"], ["http", "11.66.0.1", 80, "ok.test"],
                  ["tcp", "11.66.0.1", 7, b"x".hex()]])
        for row in got:
            refused(row)
    assert lab.arrived("11.66.0.1") == 0
    log = lab.netlog()
    denied(log, SNI_ELSEWHERE, event="flow", dst="11.66.0.1", port=443, sni="ok.test")
    denied(log, SNI_NOT_ALLOWED, event="flow", dst="11.66.0.1", port=443, sni="evil.test")
    denied(log, HOST_ELSEWHERE, event="flow", dst="11.66.0.1", port=80, sni="ok.test")
    denied(log, NOT_LEARNED, event="flow", dst="11.66.0.1", port=7)


def test_a_flow_the_relay_would_take_is_refused_by_the_kernel_alone(lab):
    """Take the element away again: the relay still knows the name, the kernel does not."""
    with holding(lab, allow("ok.test")) as (proc, do):
        worked(do([["tls", "ok.test", 443, "ok.test"]])[0])
        lab.clear()
        rules = in_gateway(lab, proc, "nft", "list", "sets").out
        for line in rules.splitlines():
            if line.strip().startswith("set sb"):
                in_gateway(lab, proc, "nft", "flush", "set", "inet", "agentkernel", line.split()[1])
        refused(do([["tls", "11.1.0.5", 443, "ok.test"]])[0])
    assert lab.syns("11.1.0.5") == 0
