"""c1–c5: addresses are usable the moment they are told, for as long as they are told, never for ever; flows outlive them."""
import re

from expect import CODEX, allow, ask, holding, in_gateway, policy_env, refused, reply, worked
from lab import wait_for


def test_c1_connect_right_after_the_answer_a_thousand_times(lab):
    names = ["n%d.many.test" % i for i in range(1000)]
    for i, name in enumerate(names):
        lab.dns.set(name, A="11.70.%d.%d" % (i // 250, i % 250 + 1), ttl=30)
    env = policy_env(lab, codex={"allow": [n + ":7" for n in names], "limits": {"dns_qps": 100000, "connections": 4096}})
    code = """
out = {'refused': 0, 'wrong': 0}
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.settimeout(5); u.connect((gateway(), 53))
for i in range(1000):
    name = b'n%d.many.test' % i
    u.send(struct.pack('!HHHHHH', i, 256, 1, 0, 0, 0) + b''.join(bytes([len(l)]) + l for l in name.split(b'.')) + b'\\0' + struct.pack('!HH', 1, 1))
    m = u.recv(4096)
    addr = socket.inet_ntoa(m[-4:]) if m[-15:-10] else ''
    addr = '11.70.%d.%d' % (i // 250, i % 250 + 1)
    if m[3] & 15: out['wrong'] += 1; continue
    s = socket.socket(); s.settimeout(5)
    try: s.connect((addr, 7)); s.send(b'x'); out['wrong'] += s.recv(1) != b'x'
    except OSError as e: out['refused'] += 1
    s.close()
"""
    got = lab.probe(CODEX, [["eval", code]], env=env, timeout=120)
    assert worked(got[0]) == {"refused": 0, "wrong": 0}
    assert len(lab.conns(kind="echo")) == 1000


def test_c2_c5_short_lives_are_refreshed_and_flows_outlive_them(lab):
    lab.dns.set("ok.test", A="11.1.0.5", ttl=1)
    lab.dns.set("other.test", A="11.1.0.6", ttl=2)
    with holding(lab, allow("ok.test:7", "other.test:7"), "long = connect('ok.test', 7)") as (proc, do):
        def forgotten():
            worked(do([["tcp", "other.test", 7, b"x".hex()]])[0])
            return "11.1.0.5 . 7" not in in_gateway(lab, proc, "nft", "list", "sets").out
        # Nobody asks for the first any more: its address closes, and the flow that was there before does not notice.
        wait_for(forgotten, 60, every=0.3)
        got = do([["tcp", "11.1.0.5", 7], ["eval", "long.send(b'still'); out = long.recv(10).decode()"], ["tcp", "ok.test", 7, b"x".hex()]])
        refused(got[0])
        assert worked(got[1]) == "still" and worked(got[2]) == "x"
    asked = {n: len([q for q in lab.dns.log(n) if q["qtype"] == "A"]) for n in ("ok.test", "other.test")}
    assert asked["ok.test"] == 2 and asked["other.test"] >= 4, "an answer was used for longer than it was told: %r" % asked


TTLS = [0, 1, 5, 60, 86400, 2 ** 31 - 1, 2 ** 31, 2 ** 32 - 1]


def seconds(text):
    units = {"d": 86400, "h": 3600, "m": 60, "s": 1, "ms": 0.001}
    return sum(int(n) * units[u] for n, u in re.findall(r"(\d+)(ms|d|h|m|s)", text))


def test_c3_c4_lives_are_bounded_and_never_shorter_than_told(lab):
    for i, ttl in enumerate(TTLS):
        lab.dns.set("t%d.wild.test" % i, A="11.71.0.%d" % (i + 1), ttl=ttl)
    with holding(lab, allow("*.wild.test:7")) as (proc, do):
        got = do([ask("t%d.wild.test" % i) for i in range(len(TTLS))])
        told = [reply(row)["answers"][0]["ttl"] for row in got]
        text = in_gateway(lab, proc, "nft", "list", "sets").out
        for i, ttl in enumerate(TTLS):
            addr = "11.71.0.%d" % (i + 1)
            found = re.search(re.escape(addr) + r" \. 7 timeout (\S+) expires (\S+)", text)
            assert found, "no timed element for %s in %s" % (addr, text)
            assert 0 < seconds(found.group(1)) <= 86400, (ttl, found.group(0))
            # c4: what the client was told ends no later than the element does.
            assert told[i] <= seconds(found.group(2)) + 1, (ttl, told[i], found.group(0))
            assert 0 <= told[i] <= 86400
        assert not re.search(r"11\.71\.0\.\d+ \. 7(,| })", text), "an element without end: " + text
        again = do([ask("t3.wild.test")])
        left = seconds(re.search(r"11\.71\.0\.4 \. 7 timeout \S+ expires (\S+)", in_gateway(lab, proc, "nft", "list", "sets").out).group(1))
        assert reply(again[0])["answers"][0]["ttl"] <= left + 1
        for row in do([["tcp", "11.71.0.%d" % (i + 1), 7, b"x".hex()] for i in range(len(TTLS))]):
            worked(row)


def test_c3_only_an_answer_prolongs_a_life(lab):
    """Connecting does not: the element goes on ageing while connections come and go."""
    lab.dns.set("ok.test", A="11.1.0.5", ttl=1)

    def left():
        found = re.search(r"11\.1\.0\.5 \. 7 timeout (\S+) expires (\S+)", in_gateway(lab, proc, "nft", "list", "sets").out)
        return seconds(found.group(1)), seconds(found.group(2))
    with holding(lab, allow("ok.test:7")) as (proc, do):
        worked(do([["tcp", "ok.test", 7, b"x".hex()]])[0])
        life, first = left()
        assert life <= 60, "a second's answer must not open an address for long"

        def aged():
            worked(do([["tcp", "11.1.0.5", 7, b"x".hex()]])[0])
            return left()[1] < first - 1
        wait_for(aged)
        worked(do([["tcp", "ok.test", 7, b"x".hex()]])[0])
