"""h20: nothing about a question to the host's resolver can be known beforehand (port, id, case of its letters), whatever is in flight; forged answers are not
believed and are told; servers that do not keep the case, and those that are drowned, are asked over TCP."""
import pytest
from expect import NATIVE, addresses, allow, ask, find, holding, reply, worked
from lab import wait_for

FAKE = "11.66.2.20"
# Asks without waiting: one slow question that stays in flight, then NAMES one after the other.
PINNED = """
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.connect((gateway(), 53)); s.settimeout(8)
def q(ident, name):
    return struct.pack('!HHHHHH', ident, 256, 1, 0, 0, 0) + b''.join(bytes([len(l)]) + l.encode() for l in name.split('.')) + b'\\0' + struct.pack('!HH', 1, 1)
out = 0
for i, name in enumerate(%r):
    if i %% 10 == 0: s.send(q(9999, 'slow%%d.wild.test' %% (i // 10)))
    s.send(q(i, name))
    while struct.unpack('!H', s.recv(4096)[:2])[0] != i: pass
    out += 1
"""


def one_server(lab, address):
    lab.resolv("nameserver %s\n" % address)


@pytest.fixture
def resolver(any_user):
    """One resolver, so that every question goes there."""
    yield lambda address: one_server(any_user, address)
    any_user.resolv("nameserver 11.0.0.53\nnameserver 2a00::53\n")


@pytest.mark.parametrize("mode", ["codex", "native"])
@pytest.mark.parametrize("address", ["11.0.0.53", "2a00::53"])
def test_h20_a_slow_question_in_flight_pins_nothing(any_user, resolver, mode, address):
    lab = any_user
    resolver(address)
    names = ["abcdefghij%d.wild.test" % i for i in range(80)]
    for i in range(8):
        lab.dns.behave("slow%d.wild.test" % i, drop=True)
    got = lab.probe(allow("*.wild.test", mode=mode), [["eval", PINNED % names]], timeout=60)
    assert worked(got[0]) == len(names)
    rows = [row for row in lab.dns.log() if row["proto"] == "udp" and row.get("name", "").lower() in names]
    assert len(rows) >= len(names)
    ports, ids = [row["sport"] for row in rows], [row["id"] for row in rows]
    assert len(set(ports)) > 70, "ports are used again: %r" % ports
    assert len({(b - a) % 65536 for a, b in zip(ports, ports[1:])}) > 60, "ports follow one another: %r" % ports
    assert max(ports) - min(ports) > 5000, ports
    assert len(set(ids)) > 70, ids
    cases = [tuple(c.isupper() for c in row["name"] if c.isalpha()) for row in rows]
    assert len(set(cases)) > 70, "the case does not vary"
    for column in zip(*cases):
        assert 15 < sum(column) < 65, "a letter prefers one case: %r" % (cases,)


def test_h20_a_forger_who_saw_an_earlier_port_forges_nothing(any_user, resolver):
    """The port of a question that is still open, every id, and the truth withheld for as long as that takes."""
    lab = any_user
    resolver("11.0.0.53")
    lab.dns.behave("slow.wild.test", drop=True)
    lab.dns.behave("ok.test", spray={"A": FAKE, "like": "slow.wild.test"}, delay=1.5)
    with holding(lab, allow("ok.test", "*.wild.test")) as (proc, do):
        code = "import threading; threading.Thread(target=lambda: do_dns(%r, None, 'udp', 53, 20.0), daemon=True).start(); out = 1" % ask("slow.wild.test")[1]
        worked(do([["eval", code]])[0])
        wait_for(lambda: lab.dns.log("slow.wild.test"))
        got = do([["dns", ask("ok.test")[1], None, "udp", 53, 20.0]])
    assert FAKE not in addresses(reply(got[0])), "poisoned"
    assert FAKE not in str(lab.netlog())


@pytest.mark.parametrize("mode", ["codex", "native"])
def test_h20_a_forger_who_knows_the_port_is_noticed_and_not_believed(any_user, resolver, mode):
    """The worst case: the question's own port, every id; what is left to guess is the case, and there is little time for it."""
    lab = any_user
    resolver("11.0.0.53")
    lab.dns.behave("abcdefghijklmnopqrstuvwxyz.wild.test", spray={"A": FAKE}, drop_udp=True)
    got = lab.probe(allow("*.wild.test", mode=mode), [["dns", ask("abcdefghijklmnopqrstuvwxyz.wild.test")[1], None, "udp", 53, 20.0]], timeout=60)
    assert addresses(reply(got[0])) == ["11.1.1.1"]
    assert "tcp" in {row["proto"] for row in lab.dns.log("abcdefghijklmnopqrstuvwxyz.wild.test")}
    log = lab.netlog()
    assert FAKE not in str(log)
    rows = find(log, name="abcdefghijklmnopqrstuvwxyz.wild.test", reason="forged answers")
    assert len(rows) == 1 and rows[0]["verdict"] == "error" and "wrong id" in rows[0]["detail"], log


def test_h20_a_resolver_that_does_not_keep_the_case_is_asked_by_tcp(any_user, resolver):
    lab = any_user
    resolver("11.0.0.53")
    lab.dns.behave("abcdefghijkl.wild.test", lower=True)
    lab.dns.behave("1234.wild.test", lower=True)
    got = lab.probe(NATIVE, [ask("abcdefghijkl.wild.test"), ask("other.test")])
    assert addresses(reply(got[0])) == ["11.1.1.1"] and addresses(reply(got[1])) == ["11.1.0.6"]
    assert [row["proto"] for row in lab.dns.log("abcdefghijkl.wild.test")] == ["udp", "tcp"]
    assert not find(lab.netlog(), reason="forged answers"), "a server's habit is no attack"


def test_h20_the_clients_case_is_not_what_goes_up(lab):
    """Case would be a channel past the budget: every question has the same name, the client's case differs."""
    names = ["".join(c.upper() if i >> k & 1 else c for k, c in enumerate("abcdefghijklmnop")) for i in range(0, 65536, 1638)]
    steps = []
    for i, name in enumerate(names):
        steps.append(ask("%s%d.wild.test" % (name, i)))
    got = lab.probe(allow("*.wild.test"), steps)
    for i, (name, row) in enumerate(zip(names, got)):
        assert reply(row)["questions"][0]["name"] == "%s%d.wild.test" % (name, i)
    seen = [row["name"] for row in lab.dns.log()]
    same = sum(name[:16] == asked[:16] for name, asked in zip(names, seen))
    assert same <= 1, seen
