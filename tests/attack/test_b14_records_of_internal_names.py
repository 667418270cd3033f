"""b14, in native mode: what the host's resolver knows of internal names (split horizon) is not told by other types or by chains either."""
import pytest
from expect import BLOCKED_ANSWERS, NATIVE, ask, denied, reply

TYPES = ["TXT", "SRV", "NS", "SOA", "MX"]


def split_horizon(lab, address, kind="A"):
    """A company's zone as its own resolver tells it."""
    lab.dns.set("corp.example.com", **{kind: address}, TXT="token=s3cret", NS="dc1.corp.example.com", MX="mail.corp.example.com")
    lab.dns.set("vault.corp.example.com", **{kind: address}, TXT="token=s3cret", SRV="dc1.corp.example.com", NS="dc1.corp.example.com", MX="mail.corp.example.com")
    lab.dns.set("notes.corp.example.com", TXT="token=s3cret")  # no address of its own
    lab.dns.set("_ldap._tcp.corp.example.com", SRV="dc1.corp.example.com")
    lab.dns.set("www.shop.test", CNAME="origin-7.corp.example.com")
    lab.dns.set("origin-7.corp.example.com", **{kind: address})
    return [("vault.corp.example.com", t) for t in TYPES] + [("corp.example.com", t) for t in TYPES] + [
        ("notes.corp.example.com", "TXT"), ("_ldap._tcp.corp.example.com", "SRV"), ("www.shop.test", "A"), ("www.shop.test", "AAAA"), ("www.shop.test", "TXT")]


@pytest.mark.parametrize("kind,address", [("A", "10.20.30.40"), ("AAAA", "fd12:3456::9")])
def test_b14_internal_names_have_no_other_records_either(any_user, kind, address):
    lab = any_user
    asked = split_horizon(lab, address, kind)
    got = lab.probe(NATIVE, [ask(n, t) for n, t in asked] + [ask(n, t, proto="tcp") for n, t in asked], timeout=60)
    for (name, qtype), row in zip(asked * 2, got):
        message = reply(row)
        told = bytes.fromhex(row["ok"])
        assert not message["answers"], (name, qtype, message)
        for word in (b"s3cret", b"dc1", b"mail", b"origin"):
            assert word not in told, (name, qtype, message)
    assert not {row["qtype"] for row in lab.dns.log("vault.corp.example.com")} & set(TYPES), "was asked all the same"
    denied(lab.netlog(), ("default", BLOCKED_ANSWERS), event="dns", name="vault.corp.example.com")
    chain = denied(lab.netlog(), ("default", BLOCKED_ANSWERS), event="dns", name="www.shop.test")
    assert "origin-7.corp.example.com" in str(chain), "the record tells the user what the sandbox is not told"


def test_b14_public_names_keep_their_records(any_user):
    lab = any_user
    lab.dns.set("ok.test", A="11.1.0.5", TXT="v=spf1", MX="mail.ok.test")
    lab.dns.set("cluster0.ab12.db.test", TXT="authSource=admin")
    lab.dns.set("_mongodb._tcp.cluster0.ab12.db.test", SRV="shard-0.ab12.db.test")
    lab.dns.set("db.test", A="11.1.0.6")
    lab.dns.set("v6.test", AAAA="2a00:1::7", TXT="only six")
    got = lab.probe(NATIVE, [ask("ok.test", "TXT"), ask("ok.test", "MX"), ask("cluster0.ab12.db.test", "TXT"), ask("_mongodb._tcp.cluster0.ab12.db.test", "SRV"),
                             ask("v6.test", "TXT"), ask("ok.test", "NS")])
    for row in got[:5]:
        assert reply(row)["answers"], reply(row)
    assert reply(got[5])["rcode"] == 0 and not reply(got[5])["answers"]
