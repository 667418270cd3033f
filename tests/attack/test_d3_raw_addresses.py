"""d3: raw addresses, and numbers that pretend to be names."""
from expect import NOT_LEARNED, allow, ask, denied, refused, reply

RAW = ["11.1.0.5", "11.66.0.1", "8.8.8.8", "2a00:1::5", "2a00:66::1"]
NUMBERS = ["184614917", "0x0b010005", "0xb.1.5", "013.1.0.5", "11.1.5", "0x7f.1", "2852039166", "0xa9fea9fe", "0251.0376.0251.0376"]


def test_d3_raw_addresses_and_number_names_are_refused(lab):
    steps = [["tcp", a, p] for a in RAW for p in (443, 80, 7)] + [["udp", a, 5000] for a in RAW] + [["tls", a, 443, "ok.test"] for a in RAW]
    steps += [["tcp", n, 443] for n in NUMBERS]
    got = lab.probe(allow("ok.test"), steps)
    for row in got:
        refused(row)
    assert lab.strangers() == []
    log = lab.netlog()
    denied(log, NOT_LEARNED, dst="11.66.0.1", port=443, proto="tcp")
    denied(log, NOT_LEARNED, dst="2a00:66::1", port=443, proto="tcp")
    denied(log, NOT_LEARNED, dst="8.8.8.8", port=5000, proto="udp")


def test_d3_numbers_are_not_asked_upstream(lab):
    names = NUMBERS + ["11.1.0.5", "1.2.3.4", "[::1]", "2a00:1::5"]
    for name in names:
        lab.dns.set(name, A="11.66.6.6")
    for mode in ("codex", "native"):
        got = lab.probe(allow("ok.test", mode=mode), [ask([n.encode()] if ":" in n else n) for n in names])
        for name, row in zip(names, got):
            message = reply(row)
            assert message["rcode"] in (1, 3, 5) and not message["answers"], (mode, name, message)
    assert lab.dns.log() == [], lab.dns.names()
