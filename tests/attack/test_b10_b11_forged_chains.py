"""b9, b10: forged and extra records are neither learned nor passed on; b11: only the chain from the question counts."""
from expect import addresses, allow, allowed, ask, at_once, find, refused, reply, worked


def test_b10_records_of_another_owner_are_dropped(lab):
    lab.dns.behave("ok.test", extra=[["evil.test", "A", "11.66.1.1", 300], ["www.ok.test", "A", "11.66.1.2", 300], ["test", "A", "11.66.1.5", 300]],
                   additional=[["ok.test", "A", "11.66.1.3", 300], ["evil.test", "A", "11.66.1.4", 300], ["other.test", "A", "11.66.1.6", 300]])
    got = lab.probe(allow("ok.test", "other.test"), [ask("ok.test"), ask("ok.test", proto="tcp")] + [["tls", "11.66.1.%d" % i, 443, "ok.test"] for i in range(1, 7)] +
                    [["tls", "11.66.1.6", 443, "other.test"], ["tls", "ok.test", 443, "ok.test"]])
    for row in got[:2]:
        message = reply(row)
        assert addresses(message) == ["11.1.0.5"], message
        assert not message["additional"] and not message["authority"], message
    for row in got[2:9]:
        refused(row)
    worked(got[9])
    assert not [k for k in lab.strangers() if k.startswith("11.66.1.")]


def test_b9_forged_replies_are_not_believed(lab):
    lab.dns.behave("ok.test", forge=[{"kind": "id", "A": "11.66.2.1"}, {"kind": "question", "A": "11.66.2.2"}, {"kind": "source", "A": "11.66.2.3", "source": "11.0.0.66"}])
    got = lab.probe(allow("ok.test"), [ask("ok.test")] + [["tls", "11.66.2.%d" % i, 443, "ok.test"] for i in (1, 2, 3)])
    assert addresses(reply(got[0])) == ["11.1.0.5"]
    for row in got[1:]:
        refused(row)
    assert not [k for k in lab.strangers() if k.startswith("11.66.2.")]


def test_b11_a_chain_is_followed_and_recorded(lab):
    lab.dns.set("one.test", CNAME="two.cdn.example")
    lab.dns.set("two.cdn.example", CNAME="three.cdn.example")
    lab.dns.set("three.cdn.example", A="11.50.0.1")
    got = lab.probe(allow("one.test"), [["tls", "one.test", 443, "one.test"], ["tls", "11.50.0.1", 443, "three.cdn.example"], ["resolve", "three.cdn.example"],
                                        ["resolve", "two.cdn.example"]])
    worked(got[0])
    for row in got[1:]:
        refused(row)
    row = allowed(lab.netlog(), event="dns", name="one.test")[0]
    assert row["cname"] == ["two.cdn.example", "three.cdn.example"], row


def test_b11_loops_long_chains_and_loose_ends_are_servfail(lab):
    lab.dns.set("loop.test", CNAME="loop2.test")
    lab.dns.set("loop2.test", CNAME="loop.test")
    lab.dns.set("self.test", CNAME="self.test")
    lab.dns.set("nine.test", CNAME="h1.test")
    for i in range(1, 9):
        lab.dns.set("h%d.test" % i, CNAME="h%d.test" % (i + 1))
    lab.dns.set("h9.test", A="11.66.3.1")
    lab.dns.set("eight.test", CNAME="h2.test")
    lab.dns.set("loose.test")
    lab.dns.behave("loose.test", extra=[["elsewhere.test", "CNAME", "h9.test", 60], ["h9.test", "A", "11.66.3.2", 60]])
    got = lab.probe(allow("loop.test", "self.test", "nine.test", "eight.test", "loose.test"), [
        ask("loop.test"), ask("self.test"), ask("nine.test"), ask("eight.test"), ask("loose.test"),
        ["tcp", "11.66.3.2", 443]])
    for row in got[:3]:
        message = reply(row)
        assert message["rcode"] == 2 and not message["answers"], message
        at_once(row)
    assert addresses(reply(got[3])) == ["11.66.3.1"]
    assert not reply(got[4])["answers"]
    refused(got[5])
    assert lab.arrived("11.66.3.2") == 0
    assert find(lab.netlog(), event="dns", name="nine.test", verdict="error", reason="resolver failed", detail="more than 8 CNAME hops")


def test_b11_a_cname_to_a_blocked_name_is_an_address_question_only(lab):
    lab.dns.set("meta.test", CNAME="metadata.google.internal")
    lab.dns.set("metadata.google.internal", A="169.254.169.254")
    got = lab.probe(allow("meta.test"), [ask("meta.test"), ["tcp", "169.254.169.254", 80]])
    assert not addresses(reply(got[0]))
    refused(got[1])
    assert lab.arrived("169.254.169.254") == 0
