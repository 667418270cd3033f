"""b3: other types of an allowed name are NODATA; b4: no EDNS option, padding or header bit of the client reaches upstream; b12: no HTTPS hints."""
from expect import addresses, allow, ask, at_once, refused, reply, worked

TYPES = ["TXT", "NULL", "MX", "SRV", "ANY", "NS", "SOA", "CNAME", 65280, 13, 35, 44, 52, 99, 257, 251, 252]


def test_b3_only_addresses_are_resolved_in_allowlist_modes(lab):
    lab.dns.set("ok.test", A="11.1.0.5", TXT="instructions", MX="evil.test", SRV="evil.test", HTTPS="11.66.0.1")
    got = lab.probe(allow("ok.test"), [ask("ok.test", t, ident=i + 1) for i, t in enumerate(TYPES)] + [ask("ok.test", "TXT", proto="tcp"), ask("ok.test")])
    for qtype, row in zip(TYPES + ["TXT over TCP"], got[:-1]):
        message = reply(row)
        assert message["rcode"] in (0, 4, 5) and not message["answers"], (qtype, message)
        at_once(row)
    assert [reply(row)["rcode"] for row in got[:5]] == [0] * 5
    assert addresses(reply(got[-1])) == ["11.1.0.5"]
    assert {row["qtype"] for row in lab.dns.log()} == {"A"}, {row["qtype"] for row in lab.dns.log()}


def test_b3_pointers_are_answered_from_what_was_learned(lab):
    steps = [ask("5.0.1.11.in-addr.arpa", "PTR"), ["resolve", "ok.test", 4], ask("5.0.1.11.in-addr.arpa", "PTR"), ask("8.8.8.8.in-addr.arpa", "PTR")]
    got = lab.probe(allow("ok.test"), steps)
    assert not reply(got[0])["answers"]
    assert [a["data"] for a in reply(got[2])["answers"]] in (["ok.test"], [])
    assert not reply(got[3])["answers"]
    assert "in-addr.arpa" not in " ".join(lab.dns.names())


def test_b4_nothing_of_the_clients_message_but_name_and_type_goes_up(lab):
    options = [(8, bytes.fromhex("00011800c00002")), (10, b"cookie!!"), (12, b"\0" * 64), (15, b"\0\0hello"), (65001, b"exfil" * 40), (3, b"nsid")]
    steps = []
    for i, (flags, edns) in enumerate([(0x0100, options), (0x0100, [options[4]]), (0x0100 | 0x70, []), (0x0130, []), (0x0000, None), (0x0110, [options[0]])]):
        name = "n%d.wild.test" % i
        steps.append(ask(name, flags=flags, edns=edns, ident=i + 1))
        steps.append(ask(name, flags=flags, edns=edns, ident=i + 1, proto="tcp"))
    steps.append(ask("pad.wild.test", extra=b"trailing secret"))
    lab.probe(allow("*.wild.test"), steps)
    log = lab.dns.log()
    assert log
    for row in log:
        assert row["options"] == [], row
        assert row["flags"] & ~0x0110 == 0, "header bits went up: %04x" % row["flags"]
        assert not row.get("bad")
        raw = bytes.fromhex(row["raw"])
        assert b"exfil" not in raw and b"secret" not in raw and b"cookie" not in raw
    assert len({bytes.fromhex(row["raw"])[2:4] for row in log}) == 1, "upstream headers differ by what the client set"


def test_b4_ids_are_not_the_clients(lab):
    lab.probe(allow("*.wild.test"), [ask("n%d.wild.test" % i, ident=0x4242) for i in range(12)])
    ids = {row["id"] for row in lab.dns.log()}
    assert len(ids) > 8, ids


def test_b12_https_records_are_withheld_and_hints_never_learned(lab):
    lab.dns.set("ok.test", A="11.1.0.5", HTTPS="11.66.0.1", SVCB="11.66.0.1")
    got = lab.probe(allow("ok.test"), [ask("ok.test", "HTTPS"), ask("ok.test", "SVCB"), ask("_443._https.ok.test", "HTTPS"), ["resolve", "ok.test", 4],
                                       ["tls", "11.66.0.1", 443, "ok.test"], ["tls", "ok.test", 443, "ok.test"]])
    for row in got[:2]:
        assert reply(row)["rcode"] == 0 and not reply(row)["answers"], reply(row)
    refused(got[4])
    worked(got[5])
    assert lab.arrived("11.66.0.1") == 0
    assert not {"HTTPS", "SVCB"} & {row["qtype"] for row in lab.dns.log()}
