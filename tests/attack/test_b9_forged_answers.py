"""b9: answers with the wrong id, question, type, class, source or direction are not believed, from an upstream over IPv4 and IPv6, alone or before the true one."""
import pytest
from expect import NATIVE, NOT_LEARNED, addresses, allow, ask, denied, find, refused, reply, worked

KINDS = ["id", "question", "type", "class", "query", "source"]


def forgeries(family):
    fake = lambda i: ("2a00:66:2::%d" if family == 6 else "11.66.2.%d") % i
    return [{"kind": kind, "A": fake(i), "source": "11.0.0.66"} for i, kind in enumerate(KINDS, 1)] + [{"kind": "source", "A": fake(9), "source": "2a00::66"}]


@pytest.mark.parametrize("family", [4, 6])
@pytest.mark.parametrize("upstream", ["11.0.0.53", "2a00::53"])
def test_b9_forged_answers_before_the_true_one(any_user, family, upstream):
    lab = any_user
    lab.resolv("nameserver %s\n" % upstream)
    try:
        # (With the right id a message that is no answer ends the question; it is not believed either: the next test.)
        lab.dns.behave("ok.test", forge=[f for f in forgeries(family) if f["kind"] != "query"])
        fakes = [f["A"] for f in forgeries(family)]
        got = lab.probe(allow("ok.test"), [ask("ok.test", "A" if family == 4 else "AAAA"), ["tls", "ok.test", 443, "ok.test"]] + [["tls", a, 443, "ok.test"] for a in fakes])
        assert addresses(reply(got[0])) == ["11.1.0.5" if family == 4 else "2a00:1::5"]
        worked(got[1])
        for row in got[2:]:
            refused(row)
        assert lab.strangers("11.1.0.5", "2a00:1::5", "11.0.0.66", "2a00::66") == []  # (the host's kernel may say "no such port" to a forger)
        log = lab.netlog()
        for a in fakes:
            denied(log, NOT_LEARNED, dst=a, port=443, proto="tcp")
    finally:
        lab.resolv("nameserver 11.0.0.53\nnameserver 2a00::53\n")


def test_b9_forged_answers_alone_are_no_answer(any_user):
    lab = any_user
    lab.dns.behave("ok.test", forge=[f for f in forgeries(4)], silent=True)
    got = lab.probe(allow("ok.test", "other.test"), [["dns", ask("ok.test")[1], None, "udp", 53, 20.0], ask("other.test")] + [["tls", f["A"], 443, "ok.test"] for f in forgeries(4)[:6]], timeout=60)
    assert reply(got[0])["rcode"] == 2 and not reply(got[0])["answers"], reply(got[0])
    assert addresses(reply(got[1])) == ["11.1.0.6"]
    for row in got[2:]:
        refused(row)
    assert lab.strangers("11.0.0.66", "2a00::66", "11.0.0.53", "2a00::53") == []  # (and to the resolver, when a question has left its port)
    for reason in ("forged answers", "resolver failed"):
        assert find(lab.netlog(), event="dns", name="ok.test", verdict="error", rule="flags: ok.test", reason=reason), reason


@pytest.mark.parametrize("mode", ["codex", "native"])
def test_b9_every_id_but_one_is_guessed(lab, mode):
    """From the right address, to the right port, for the right question: 65,535 wrong ids before the right one."""
    lab.dns.behave("ok.test", guess=65536, guess_A="11.66.2.20")
    got = lab.probe(allow("ok.test", mode=mode), [["dns", ask("ok.test")[1], None, "udp", 53, 20.0], ["resolve", "ok.test", 4]], timeout=60)
    for row in got:
        if "ok" in row:
            assert "11.66.2.20" not in str(addresses(reply(row)) if row is got[0] else row["ok"])
    assert not [a for r in lab.netlog() for a in r.get("answers", []) if a == "11.66.2.20"]


def test_b9_ids_and_ports_are_not_to_be_guessed(lab):
    names = ["n%d.wild.test" % i for i in range(60)]
    lab.probe(NATIVE, [ask(n) for n in names])
    ids = [row["id"] for row in lab.dns.log() if row["proto"] == "udp"]
    assert len(set(ids)) > 55, ids
    steps = {(b - a) % 65536 for a, b in zip(ids, ids[1:])}
    assert len(steps) > 40, "ids follow one another: %r" % ids
