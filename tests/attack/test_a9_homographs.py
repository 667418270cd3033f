"""a9: U-labels, homographs and invisible characters in a policy are refused when it is loaded, with the place and a hint; A-labels are taken as they are."""
import json
import os

import pytest
from expect import CODEX, NATIVE, NOT_LISTED, allow, ask, denied, policy_env, refused, reply, worked

BAD = ["bücher.test", "о\u043a.test", "ok.tеst", "ok。test", "ok\uff0etest", "ok\u200b.test", "ok\u00ad.test", "\u202eok.test", "ＯＫ.test", "ok.test\u0301", "*.bücher.test", "ok.test\u2024evil",
       "ℊoogle.test", "ok\ufe0f.test", "xn--bcher-kva.bücher", "ok\u0000.test", "ok\u001b[0m.test", "İ.test", "ok.test\u00a0"]


def text_of(host, where):
    return json.dumps({"version": 1, "name": "codex", "default": "deny", "allow": [], "deny": [], **{where: ["first.test", host]}})


@pytest.mark.parametrize("where", ["allow", "deny"])
def test_a9_names_outside_ascii_are_refused_at_load(lab, where):
    path = lab.path("config", "p.json")
    for host in BAD:
        for raw in (True, False):  # as bytes, and as \u escapes: the same text
            with open(path, "w") as f:
                f.write(json.dumps(json.loads(text_of(host, where)), ensure_ascii=not raw))
            r = lab.ak(["policy", "validate", path])
            assert r.code not in (0, 124) and any(w in r.err for w in ("%s[1]" % where, "line 1: ")), (host, r)
            assert all(32 <= ord(c) < 127 or c in "\n…" for c in (r.err + r.out).replace(path, "")), "the message repeats the bytes: %r" % r
    with open(path, "w") as f:
        f.write(text_of("bücher.test", where))
    r = lab.ak(["policy", "validate", path])
    assert "xn--" in r.err + r.out, r
    assert lab.ak(["network", "check", path, "first.test"]).code not in (0, 3), "a bad file was used"


def test_a9_a_bad_policy_starts_nothing(any_user):
    lab = any_user
    for host in ("bücher.test", "о\u043a.test"):
        env = policy_env(lab, codex=text_of(host, "allow"))
        r = lab.run([*CODEX, "--", "sh", "-c", "echo ran"], env=env)
        assert r.code == 2 and r.out == "" and r.err.startswith("agentkernel: ") and "allow[1]" in r.err, r
    assert lab.strangers() == [] and lab.dns.log() == []


@pytest.mark.parametrize("option", ["--allow-host", "--block-host"])
def test_a9_flags_are_held_to_the_same(lab, option):
    for host in BAD[:8] + ["ok.test\u0301"]:
        r = lab.run([*CODEX, option, host, "--", "sh", "-c", "echo ran"])
        assert r.code == 2 and r.out == "", (host, r)
        assert "\u202e" not in r.err and "\u200b" not in r.err, r
    assert lab.dns.log() == []


def test_a9_a_look_alike_is_another_name(any_user):
    """An allowed A-label works; its look-alikes in ASCII, in other A-labels and in raw bytes do not."""
    lab = any_user
    lab.dns.set("xn--bcher-kva.test", A="11.1.3.1", AAAA="2a00:1:3::1")
    alikes = ["bcher.test", "bucher.test", "xn--bcher-kvb.test", "xn--bcher-kva.test.evil", "0k.test", "xn--k-jmb.test"]
    for name in alikes:
        lab.dns.set(name, A="11.66.3.1", AAAA="2a00:66:3::1")
    raw = [["bücher".encode(), b"test"], ["ок".encode(), b"test"], [b"b\xfccher", b"test"], ["ok\u200b".encode(), b"test"]]
    steps = [["tls", "xn--bcher-kva.test", 443, "xn--bcher-kva.test"], ["resolve", "XN--BCHER-KVA.test", 6]] + [["tls", n, 443, n] for n in alikes] + [
        ["tls", "11.1.3.1", 443, "xn--bcher-kvb.test"]] + [ask(n, q) for n in raw for q in ("A", "AAAA")]
    got = lab.probe(allow("xn--bcher-kva.test", "ok.test"), steps)
    worked(got[0]), worked(got[1])
    for row in got[2:3 + len(alikes)]:
        refused(row)
    for row in got[3 + len(alikes):]:
        assert not reply(row)["answers"] and reply(row)["rcode"] in (1, 3, 5)
    assert lab.strangers("11.1.3.1", "2a00:1:3::1") == [] and set(lab.dns.names()) == {"xn--bcher-kva.test"}
    for name in alikes:
        denied(lab.netlog(), NOT_LISTED, name=name, event="dns")


def test_a9_native_mode_asks_no_such_name_either(lab):
    raw = [["bücher".encode(), b"test"], [b"\xff\xfe", b"test"], ["ok\u200b".encode(), b"test"]]
    for row in lab.probe(NATIVE, [ask(n, q, proto=p) for n in raw for q in ("A", "AAAA") for p in ("udp", "tcp")]):
        assert not reply(row)["answers"] and reply(row)["rcode"] in (1, 3, 5)
    assert lab.dns.log() == []
