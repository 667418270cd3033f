"""Faults of the host's resolver: it lies, hangs, truncates, answers nonsense, refuses, disappears and comes back. Answers are right or SERVFAIL in bounded time; other names do not notice; nothing is learned from nonsense."""
import itertools
import json

import pytest
from expect import addresses, allow, ask, dnswire, find, holding, refused, reply, worked
from lab import wait_for

HEAD1 = "81800001000100000000"  # flags, one question, one answer


def nonsense(name):
    """Ways to answer that are none; each follows the right id."""
    quest = dnswire.encode_name(name).hex() + "00010001"
    return {"nothing": "", "one byte": "81", "header only": "8180000100000000", "no question": "81800000000100000000" + "0b420001", "counts that lie": "8180000100ff00ff00ff" + quest,
            "a loop": HEAD1 + quest + "c0%02x0001000100000e1000040b420001" % (10 + len(quest) // 2 + 2), "data of the wrong length": HEAD1 + quest + "c00c0001000100000e1000030b4200",
            "data past the end": HEAD1 + quest + "c00c0001000100000e1000ff0b420001", "an endless name": HEAD1 + "3f" * 300, "text": b"GET / HTTP/1.1".hex(),
            "another's name": HEAD1 + quest + "046576696c" + "0474657374" + "00" + "0001000100000e1000040b420001", "a name of many hops": HEAD1 + quest + "c00c" + "0005000100000e100002c00c"}


def bounded(row, seconds=12):
    assert row["ms"] < seconds * 1000, row
    return row


ASK_ALL = """
import select
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.connect((gateway(), 53)); out = {}
start = time.monotonic()
for i, m in enumerate(json.loads(%r)): s.send(struct.pack('!H', i) + bytes.fromhex(m)[2:])
while len(out) < %d and select.select([s], [], [], 15)[0]:
    m = s.recv(4096); out[struct.unpack('!H', m[:2])[0]] = [m.hex(), time.monotonic() - start]
"""


def test_faults_nonsense_is_servfail_and_never_learned(any_user):
    """All kinds at once, each as the answer to a name of its own; a name that is answered well does not wait for them."""
    lab = any_user
    lab.resolv("nameserver 11.0.0.53\n")
    kinds = list(nonsense("x.test"))
    names = ["k%d.wild.test" % i for i in range(len(kinds))]
    for name, kind in zip(names, kinds):
        lab.dns.behave(name, garbage=[nonsense(name)[kind]])
    messages = [dnswire.query(n).hex() for n in names + ["other.test"]]
    try:
        got = lab.probe(allow("*.wild.test", "other.test"), [["eval", ASK_ALL % (json.dumps(messages), len(messages))], ["tls", "11.66.0.1", 443, names[0]], ["tls", "other.test", 443, "other.test"]], timeout=60)
    finally:
        lab.resolv("nameserver 11.0.0.53\nnameserver 2a00::53\n")
    out = worked(got[0])
    assert len(out) == len(messages), sorted(set(map(str, range(len(messages)))) - set(out))
    for i, kind in enumerate(kinds):
        message = dnswire.parse(bytes.fromhex(out[str(i)][0]))
        assert message["rcode"] in (0, 2, 3) and not addresses(message), (kind, message)
        assert out[str(i)][1] < 12, (kind, out[str(i)])
    last = out[str(len(kinds))]
    assert addresses(dnswire.parse(bytes.fromhex(last[0]))) == ["11.1.0.6"], last
    assert last[1] < max(row[1] for row in out.values()), "it waited for the others: %r" % out
    refused(got[1])
    worked(got[2])
    assert lab.arrived("11.66.0.1") == 0
    assert find(lab.netlog(), event="dns", name=names[1], verdict="error", reason="resolver failed", detail="upstream timed out")


@pytest.mark.parametrize("rcode", [1, 2, 4, 5, 9, 11, 15])
def test_faults_an_error_upstream_is_an_error_inside(lab, rcode):
    lab.dns.behave("ok.test", rcode=rcode)
    lab.dns.set("ok.test")
    got = lab.probe(allow("ok.test", "other.test"), [["dns", ask("ok.test")[1], None, "udp", 53, 12.0], ask("other.test")], timeout=60)
    assert reply(bounded(got[0]))["rcode"] in (2, rcode) and not reply(got[0])["answers"]
    assert addresses(reply(got[1])) == ["11.1.0.6"]
    assert find(lab.netlog(), event="dns", name="ok.test", verdict="error", reason="resolver failed", detail="upstream refused")


def test_faults_truncation_is_followed_over_tcp(any_user):
    lab = any_user
    lab.dns.behave("ok.test", truncate=True)
    got = lab.probe(allow("ok.test"), [ask("ok.test"), ask("ok.test", "AAAA", proto="tcp"), ["tls", "ok.test", 443, "ok.test"]])
    assert addresses(reply(got[0])) == ["11.1.0.5"] and addresses(reply(got[1])) == ["2a00:1::5"]
    worked(got[2])
    assert {row["proto"] for row in lab.dns.log("ok.test")} == {"udp", "tcp"}


def test_faults_large_answers_are_cut_to_what_is_kept(any_user):
    """Two hundred addresses: over TCP upstream, as many as fit inside, and each that is told is open."""
    lab = any_user
    many = ["11.80.%d.%d" % (i // 200, i % 200 + 1) for i in range(200)]
    lab.dns.set("ok.test", A=many)
    got = lab.probe(allow("ok.test:7"), [ask("ok.test", proto="tcp"), ask("ok.test")], timeout=60)
    told = addresses(reply(got[0]))
    assert len(told) == len(set(told) & set(many)) == 32, told
    assert reply(got[1])["tc"] and not addresses(reply(got[1]))
    got = lab.probe(allow("ok.test:7"), [ask("ok.test", proto="tcp")] + [["tcp", a, 7, b"x".hex()] for a in (told[0], told[-1])])
    worked(got[1]), worked(got[2])


def test_faults_one_that_hangs_holds_up_nobody_else(any_user):
    lab = any_user
    lab.dns.behave("ok.test", drop=True)
    code = """
import threading
out = {}
def slow(i):
    t = time.monotonic()
    try: socket.getaddrinfo('ok.test', 443)
    except OSError as e: out['slow'] = max(out.get('slow', 0), time.monotonic() - t)
threads = [threading.Thread(target=slow, args=(i,)) for i in range(20)]
for t in threads: t.start()
worst = 0
for i in range(40):
    t = time.monotonic(); socket.getaddrinfo('n%d.wild.test' % i, 443, socket.AF_INET); worst = max(worst, time.monotonic() - t)
out['worst'] = worst
for t in threads: t.join()
"""
    got = lab.probe(allow("ok.test", "*.wild.test"), [["eval", code]], timeout=90)
    out = worked(got[0])
    assert out["worst"] < out["slow"] / 2, out
    assert 0 < out["slow"] < 30, out


def test_faults_a_resolver_that_disappears_and_returns(any_user):
    lab = any_user
    lab.dns.set("*.wild.test", A="11.1.1.1", ttl=1)
    with holding(lab, allow("ok.test", "*.wild.test")) as (proc, do):
        worked(do([["resolve", "a.wild.test", 4]])[0])
        lab.dns.behave("*", drop=True)
        row = do([["resolve", "b.wild.test", 4]])[0]
        assert "err" in row and row["ms"] < 30000, row
        row = do([["resolve", "evil.test", 4]])[0]
        refused(row)  # what is denied needs no resolver
        lab.dns.behave("*")
        row = do([["resolve", "c.wild.test", 4]])[0]
        worked(row)


def test_faults_resolv_conf_that_changes_is_followed(any_user):
    """To another server, to nonsense (the last good one stays), and back."""
    lab = any_user
    try:
        with holding(lab, allow("*.wild.test")) as (proc, do):
            worked(do([["resolve", "a.wild.test", 4]])[0])
            assert {row["dst"] for row in lab.dns.log()} <= {"11.0.0.53", "2a00::53"}
            lab.resolv("nameserver 11.0.0.54\n")
            fresh = ("b%d.wild.test" % i for i in itertools.count())

            def asked_there():
                name = next(fresh)
                worked(do([["resolve", name, 4]])[0])
                return {row["dst"] for row in lab.dns.log(name)} == {"11.0.0.54"}
            wait_for(asked_there)
            for text in ("", "nonsense\n", "nameserver\n"):
                lab.resolv(text, read=True)
                assert asked_there(), text
            lab.resolv("nameserver 11.0.0.53\n", read=True)
            wait_for(lambda: not asked_there())
    finally:
        lab.resolv("nameserver 11.0.0.53\nnameserver 2a00::53\n")


def test_faults_two_resolvers_and_one_is_dead(any_user):
    lab = any_user
    lab.resolv("nameserver 10.255.255.1\nnameserver 11.0.0.53\n")
    lab.host(["ip", "route", "add", "blackhole", "10.255.255.1/32"])
    try:
        got = lab.probe(allow("ok.test", "*.wild.test"), [["resolve", "ok.test", 4], ["resolve", "a.wild.test", 4]], timeout=60)
        worked(got[0]), worked(got[1])
        assert got[1]["ms"] < 8000, got
    finally:
        lab.host(["ip", "route", "del", "blackhole", "10.255.255.1/32"])
        lab.resolv("nameserver 11.0.0.53\nnameserver 2a00::53\n")
