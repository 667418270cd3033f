"""c9: two names, one address; c10: a learned address on another port or protocol; c11: what A resolved, B may not reach."""
from expect import HOST_NOT_ALLOWED, NOT_THIS_PORT, NO_SNI, SNI_NOT_ALLOWED, allow, allowed, denied, holding, refused, worked


def test_c9_the_name_decides_on_a_shared_address(lab):
    got = lab.probe(allow("ok.test"), [["tls", "ok.test", 443, "ok.test"], ["tls", "ok.test", 443, "two.test"], ["tls", "ok.test", 443, None],
                                       ["tls", "11.1.0.5", 443, "two.test"], ["tls", "2a00:1::5", 443, "two.test"], ["http", "11.1.0.5", 80, "two.test"],
                                       ["tls", "ok.test", 443, "ok.test"]])
    worked(got[0]), worked(got[6])
    for row in got[1:6]:
        refused(row)
    assert {c["sni"] for c in lab.conns(kind="tls")} == {"ok.test"}
    assert lab.syns("11.1.0.5", 443) + lab.syns("2a00:1::5", 443) == 2 and lab.syns("11.1.0.5", 80) == 0
    log = lab.netlog()
    for address in ("11.1.0.5", "2a00:1::5"):
        denied(log, SNI_NOT_ALLOWED, sni="two.test", dst=address, port=443)
    denied(log, HOST_NOT_ALLOWED, sni="two.test", dst="11.1.0.5", port=80)
    denied(log, NO_SNI, port=443)
    allowed(log, event="flow", sni="ok.test", port=443, rule="flags: ok.test")


def test_c10_other_ports_and_protocols_of_a_learned_address(lab):
    ports = [22, 7, 8080, 8443, 9000, 25, 3306, 1, 65535]
    got = lab.probe(allow("ok.test"), [["resolve", "ok.test"]] + [["tcp", a, p] for p in ports for a in ("11.1.0.5", "2a00:1::5")] +
                    [["udp", a, p] for p in (443, 80, 7, 5000) for a in ("11.1.0.5", "2a00:1::5")])
    worked(got[0])
    for row in got[1:]:
        refused(row)
    assert lab.strangers() == []
    log = lab.netlog()
    for address in ("11.1.0.5", "2a00:1::5"):
        for proto, port in [("tcp", p) for p in ports] + [("udp", p) for p in (443, 80, 7, 5000)]:
            denied(log, NOT_THIS_PORT, name="ok.test", dst=address, port=port, proto=proto)


def test_c11_what_one_resolved_another_may_not_reach(lab):
    with holding(lab, allow("ok.test")) as (proc, do):
        worked(do([["tls", "ok.test", 443, "ok.test"]])[0])
        lab.clear()
        for args in (allow("ok.test"), allow("other.test")):
            for row in lab.probe(args, [["tcp", "11.1.0.5", 443], ["tls", "11.1.0.5", 443, "ok.test"], ["tcp", "2a00:1::5", 443]]):
                refused(row)
        assert lab.syns() == 0  # (the first one's flow may still say goodbye)
        worked(do([["tls", "11.1.0.5", 443, "ok.test"]])[0])
