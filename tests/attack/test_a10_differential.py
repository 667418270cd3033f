"""a10: over ten thousand random (policy, name, address, protocol, port) cases, `network check`, the DNS verdict and real packets agree.

One sandbox a policy; its program resolves and connects, the Internet's counters say what really left. The seed is printed with every failure; AK_SEED=N repeats a
run. A disagreement is shrunk to the fewest rules that still show it.

A name that lies in an allow_cidr is compared on ports 80 and 443 only, where a flow says its name: elsewhere the address alone decides, by design.
"""
import ipaddress
import json
import os
import random
import subprocess

import pytest
from expect import CODEX, policy_env, worked

PARTS, POLICIES, NAMES, RAWS = 4, 11, 56, 66  # × (3 ports a name): 10,300 cases and more
CLI_SAMPLE = 12  # of each policy, through the real command
TCP, UDP = (443, 80, 22, 7, 8443, 5432), (443, 7, 5000)
SPECIAL = ["x.internal", "metadata.google.internal", "use-application-dns.net", "dns.google", "bare", "printer.local"]
LIMITS = {"dns_qps": 100000, "connections": 4096}

PROBE = r"""
import select
def hello(name):
    sni = struct.pack('!HBH', len(name) + 3, 0, len(name)) + name if name else b''
    ext = (struct.pack('!H', 0) + struct.pack('!H', len(sni)) + sni if name else b'') + b'\x00\x0a\x00\x04\x00\x02\x00\x17' + b'\x00\x0d\x00\x04\x00\x02\x04\x03' + b'\x00\x0b\x00\x02\x01\x00'
    body = b'\x03\x03' + b'r' * 32 + b'\0' + b'\x00\x02\xc0\x2b' + b'\x01\0' + struct.pack('!H', len(ext)) + ext
    hand = b'\x01' + struct.pack('!I', len(body))[1:] + body
    return b'\x16\x03\x01' + struct.pack('!H', len(hand)) + hand
dns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); dns.connect((gateway(), 53)); dns.settimeout(5)
def lookup(name, six):
    dns.send(struct.pack('!HHHHHH', 7, 256, 1, 0, 0, 0) + b''.join(bytes([len(l)]) + l.encode() for l in name.split('.')) + b'\0' + struct.pack('!HH', 28 if six else 1, 1))
    m = dns.recv(4096)
    an = struct.unpack('!H', m[6:8])[0]
    # One answer at most: its data ends the message (no EDNS was asked for).
    return [m[3] & 15, socket.inet_ntop(socket.AF_INET6 if six else socket.AF_INET, m[-16 if six else -4:]) if an else '']
def attempt(addr, proto, port, name):
    six = ':' in addr
    s = socket.socket(socket.AF_INET6 if six else socket.AF_INET, socket.SOCK_STREAM if proto == 'tcp' else socket.SOCK_DGRAM)
    s.settimeout(5)
    try:
        s.connect((addr, port))
        if port in (443, 8443) and proto == 'tcp': s.send(hello(name.encode()))
        elif port == 80: s.send(b'GET / HTTP/1.1\r\nHost: %s\r\n\r\n' % (name or ('[%s]' % addr if six else addr)).encode())
        else: s.send(b'x')
        return 1 if s.recv(10) else 0
    except socket.timeout: return 'timeout'
    except OSError as e: return 0
    finally: s.close()
out = []
for name, addr, proto, port in CASES:
    t = time.monotonic()
    row = lookup(name, ':' in addr) if name else None
    got = attempt(addr, proto, port, name) if not name or row[1] else 0
    out.append([row, got, round((time.monotonic() - t) * 1000)])
"""


# ---- cases ----

def patterns(rng, names, n):
    out = []
    for _ in range(n):
        labels = rng.choice(names).split(".")
        if rng.random() < 0.45:
            labels = ["*"] + labels[max(1, rng.randrange(len(labels) - 1)):] if len(labels) > 2 else labels
        text = ".".join(labels)
        if rng.random() < 0.6:
            proto = rng.choice(["tcp", "tcp", "udp"])
            text += ":%d" % rng.choice(TCP if proto == "tcp" else UDP) + rng.choice(["", "/tcp"] if proto == "tcp" else ["/udp"])
        out.append(text)
    return sorted(set(out))


def make_policy(rng, names):
    near = ["11.44.0.0/16", "2a00:44::/32", "10.44.0.0/16", "fd12:44::/32"] + ["11.44.%d.0/24" % i for i in range(4)] + ["2a00:44:%x::/48" % i for i in range(4)]
    far = ["11.43.0.0/16", "2a00:43::/32"] + ["11.44.%d.0/24" % i for i in range(4)] + ["11.44.%d.128/25" % i for i in range(4)] + ["2a00:44:%x::/48" % i for i in range(4)]
    return {"default": "allow" if rng.random() < 0.3 else "deny", "allow": patterns(rng, names, rng.randint(3, 16)), "deny": patterns(rng, names, rng.choice([0, 2, 5, 8])),
            "allow_cidr": sorted(set(rng.sample(near, rng.choice([0, 1, 3, 5])))), "deny_cidr": sorted(set(rng.sample(far, rng.choice([0, 1, 3, 5]))))}


class Addresses:
    """Each is used once, so that a counter on the far side speaks of one case."""

    def __init__(self, rng):
        self.rng, self.n = rng, 0

    def new(self, kinds):
        return str(ipaddress.ip_address(self.text(kinds)))

    def text(self, kinds):
        self.n += 1
        kind, n, six = self.rng.choices(*zip(*kinds))[0], self.n, self.rng.random() < 0.5
        low = (n >> 7, n & 127 | self.rng.choice([0, 128]))
        if kind == "builtin":
            return self.rng.choice(["10.45.%d.%d" % low, "192.168.%d.%d" % low, "169.254.%d.%d" % low, "100.65.%d.%d" % low, "fd12:45::%x" % n, "fe81::%x" % n, "10.44.%d.%d" % low, "fd12:44::%x" % n,
                                    "64:ff9b::a2d:%x" % n, "2002:a2d:%x::1" % n])
        if kind == "44":
            third = self.rng.randrange(6)
            return "2a00:44:%x::%x" % (third, n) if six else "11.44.%d.%d" % (third * 40 + low[0] if third > 3 else third, low[1])
        return "2a00:%s::%x" % (kind, n) if six else "11.%s.%d.%d" % (kind, *low)


def make_cases(rng):
    """(policy, zone, cases); a case is [name, address, proto, port], with name "" for a raw address."""
    labels = ["a", "b", "api", "x-1", "_s", "www"]
    names = sorted({".".join([rng.choice(labels) for _ in range(rng.randint(0, 3))] + ["z%d" % rng.randrange(7), "test"]) for _ in range(NAMES * 3)})
    rng.shuffle(names)
    names = names[:NAMES - len(SPECIAL)]
    policy = make_policy(rng, names)
    addresses, used, cases, zone = Addresses(rng), set(), [], {}
    for name in names + SPECIAL:
        zone[name] = addresses.new([("41", 70), ("43", 10), ("44", 12), ("builtin", 8)])
        ways = [("tcp", p) for p in TCP] + [("udp", p) for p in UDP]
        if zone[name].startswith(("11.44.", "2a00:44:", "10.44.", "fd12:44:")):
            ways = [("tcp", 443), ("tcp", 80)]
        cases += [[name, zone[name], *way] for way in rng.sample(ways, min(3, len(ways)))]
    while len(cases) < NAMES * 3 + RAWS:
        addr = addresses.new([("42", 40), ("43", 25), ("44", 25), ("builtin", 10)])
        if addr not in used:
            used.add(addr)
            cases.append(["", addr, *rng.choice([("tcp", p) for p in TCP] + [("udp", p) for p in UDP])])
    rng.shuffle(cases)
    return policy, zone, cases


# ---- verdicts ----

def target(host, proto, port):
    return ("[%s]:%d/%s" if ":" in host else "%s:%d/%s") % (host, port, proto)


def judge_path(lab):
    path = os.environ.get("AK_JUDGE") or os.path.join(os.path.dirname(lab.binary), "tests", "judge")
    assert os.access(path, os.X_OK), "%s is not there: build first" % path
    return path


def judge(lab, path, questions):
    r = subprocess.run([judge_path(lab), path], input="\n".join(questions) + "\n", capture_output=True, text=True, check=True)
    rows = [tuple(line.split("\t")) for line in r.stdout.splitlines()]
    assert len(rows) == len(questions) and ("bad",) not in rows, r
    return rows


def expected(lab, path, cases):
    """Of each case: (DNS answers, a packet leaves), from what `network check` says of the name and of the address."""
    asked = judge(lab, path, [q for name, addr, proto, port in cases for q in ("dns " + (name or "none.test"), target(name or addr, proto, port), target(addr, proto, port))])
    out = []
    for i, (name, addr, proto, port) in enumerate(cases):
        dns, by_name, by_addr = asked[3 * i:3 * i + 3]
        open_ = by_addr[0] == "allow" and by_addr[1] != "default"
        blocked = by_addr[0] == "deny" and by_addr[1] != "default"
        if not name:
            out.append((None, by_addr[0] == "allow"))
            continue
        answers = dns[0] == "allow" and not blocked
        passes = by_name[0] == "allow" or open_ and by_name[1] == "default"
        out.append((answers, answers and passes))
    return out


def run_real(lab, env, zone, cases):
    """Of each case: (DNS answers, a packet left), and what is odd about it."""
    lab.clear()
    for name, addr in zone.items():
        lab.dns.set(name, **{"AAAA" if ":" in addr else "A": addr})
    got = worked(lab.probe(CODEX, [["eval", "CASES = json.loads(%r)\n%s" % (json.dumps(cases), PROBE)]], env=env, timeout=120)[0])
    left = {key for key in lab.counters()["packets"] if not key.endswith((" 53 udp", " 53 tcp"))}
    asked = set(lab.dns.names())
    out = []
    for (name, addr, proto, port), (dns, answer, ms) in zip(cases, got):
        odd = []
        if answer == "timeout" or ms > 2500:
            odd.append("slow: %s ms" % ms)
        key = "%s %d %s" % (addr, port, proto)
        if bool(answer == 1) != (key in left):
            odd.append("the program got %r, the far side %s" % (answer, "a packet" if key in left else "nothing"))
        if name and dns[1] not in ("", addr):
            odd.append("a strange answer: %s" % dns[1])
        out.append((bool(dns[1]) if name else None, key in left, dns, odd, name in asked))
    known = {"%s %d %s" % (addr, port, proto) for _, addr, proto, port in cases}
    return out, sorted(left - known)


def compare(lab, policy, zone, cases):
    """The disagreements, as (case, text)."""
    env = policy_env(lab, codex=dict(policy, limits=LIMITS))
    path = os.path.join(env["AGENTKERNEL_DATA_DIR"], "policies", "codex.json")
    want = expected(lab, path, cases)
    got, strangers = run_real(lab, env, zone, cases)
    bad = [(None, "packets to nobody's address: %r" % strangers)] if strangers else []
    for case, (answers, passes), (real_answers, left, dns, odd, was_asked) in zip(cases, want, got):
        if case[0] and answers != real_answers:
            bad.append((case, "check says DNS %s, the proxy said %r" % ("answers" if answers else "refuses", dns)))
        if passes != left:
            bad.append((case, "check says %s, real packets %s" % ("allow" if passes else "deny", "left" if left else "did not leave")))
        if case[0] and was_asked and not answers and not dns[0] == 0 and judge(lab, path, ["dns " + case[0]])[0][0] == "deny":
            bad.append((case, "a denied name was asked upstream"))
        bad += [(case, text) for text in odd]
    return bad, path, env


def shrink(lab, policy, zone, case, budget=60):
    """The smallest policy that still shows it."""
    def shows(p):
        return bool(compare(lab, p, {case[0]: case[1]} if case[0] else {}, [case])[0])
    if not shows(policy):
        return policy, "(alone it does not show: the cases before it matter)"
    changed = True
    while changed and budget > 0:
        changed = False
        for key in ("allow", "deny", "allow_cidr", "deny_cidr"):
            for rule in list(policy[key]):
                budget -= 1
                less = dict(policy, **{key: [r for r in policy[key] if r != rule]})
                if budget > 0 and shows(less):
                    policy, changed = less, True
    return {k: v for k, v in policy.items() if v}, ""


def check_cli(lab, rng, path, env, cases):
    """The command says what the matcher says."""
    sample = rng.sample(cases, min(CLI_SAMPLE, len(cases)))
    questions = [target(name or addr, proto, port) for name, addr, proto, port in sample]
    for question, (verdict, rule, _) in zip(questions, judge(lab, path, questions)):
        r = lab.ak(["network", "check", path, question, "--json"], env=env)
        said = json.loads(r.out)
        assert r.code == (0 if verdict == "allow" else 3) and said["verdict"] == verdict and said["rule"] == rule, (question, verdict, rule, r)


@pytest.mark.parametrize("part", range(PARTS))
def test_a10_check_dns_and_packets_agree(lab, part):
    seed = int(os.environ.get("AK_SEED") or int.from_bytes(os.urandom(4), "big"))
    print("AK_SEED=%d part %d" % (seed, part))
    total = 0
    for i in range(POLICIES):
        rng = random.Random("%d/%d/%d" % (seed, part, i))
        policy, zone, cases = make_cases(rng)
        bad, path, env = compare(lab, policy, zone, cases)
        if bad:
            case = bad[0][0]
            least, note = shrink(lab, policy, zone, case) if case else (policy, "")
            pytest.fail("AK_SEED=%d part %d policy %d: %d disagreements; the first: %r: %s\nleast policy %s: %s\nothers: %r" % (seed, part, i, len(bad), case, bad[0][1], note, json.dumps(least), bad[1:6]))
        check_cli(lab, rng, path, env, cases)
        total += len(cases)
    assert total * PARTS >= 10000, total
