"""a4: only whole labels match."""
from expect import INTERNAL, NOT_LISTED, allow, ask, denied, refused, reply

NAMES = ["evilok.test", "ok.test.evil", "xok.test", "ok.testx", "ok.tes", "k.test", "test", "ok", "sub.ok.test", "ok-test", "wild.test",
         "evilwild.test", "a.wild.test.evil", "a.evilwild.test", "wild.test.test", "api.openai.com.evil.test", "evil-api.openai.com.test"]


def test_a4_only_whole_labels_match(lab):
    for name in NAMES:
        lab.dns.set(name, A="11.66.7.7")
    steps = [["resolve", name, 4] for name in NAMES] + [["tcp", "11.66.7.7", 443]] + [["tls", "11.66.7.7", 443, "ok.test"]]
    got = lab.probe(allow("ok.test", "*.wild.test"), steps + [ask("-ok.test")])  # libc would not even ask that one
    message = reply(got.pop())
    assert message["rcode"] == 3 and not message["answers"], message
    for row in got:
        refused(row)
    assert lab.arrived("11.66.7.7") == 0 and lab.dns.log() == []
    log = lab.netlog()
    for name in NAMES:
        denied(log, NOT_LISTED if "." in name else INTERNAL, name=name, event="dns")


def test_a4_empty_labels_are_malformed(lab):
    """ok..test cannot be said on the wire: what follows the empty label is not part of the name."""
    wires = [b"\x02ok\x00\x04test\x00", b"\x00\x02ok\x04test\x00", b"\x00"]
    got = lab.probe(allow("ok.test"), [ask(w) for w in wires] + [ask("ok.test")])
    assert [reply(row)["rcode"] for row in got[:-1]] == [1, 1, 3]  # the root itself is a name, and denied
    assert not any(reply(row)["answers"] for row in got[:-1])
    assert reply(got[-1])["answers"] and lab.dns.names() == ["ok.test"]
