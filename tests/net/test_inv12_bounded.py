"""Invariant 12: caps per sandbox hold, and one sandbox does not starve another."""
import dnswire
from expect import allow, denied, find, gateway_pid, holding, policy_env, worked
from latency import latency


def test_connections_are_capped_by_the_policy(lab):
    env = policy_env(lab, codex={"allow": ["ok.test:7"], "limits": {"connections": 4}})
    code = ("addr = socket.getaddrinfo('ok.test', 7, socket.AF_INET)[0][4]\nheld, out = [], []\nfor i in range(8):\n s = socket.socket(); s.settimeout(3)\n"
            " try:\n  s.connect(addr); s.send(b'x'); out.append(s.recv(1).decode()); held.append(s)\n except OSError as e: out.append('no')")
    got = lab.probe(["--compatibility-mode", "codex"], [["eval", code]], env=env)
    results = worked(got[0])
    assert results == ["x"] * 4 + ["no"] * 4, results
    assert lab.syns("11.1.0.5", 7) == 4
    denied(lab.netlog(), ("codex: limits.connections", "policy limit reached"), event="flow", port=7, dst="11.1.0.5")


# A bucket of QPS questions a second that holds two seconds' worth: no more can pass within a time.
QPS, BURST_S, ASKED = 20, 2, 400
NAMES = ["n%d.many.test" % i for i in range(ASKED)]
ASK_ALL = """
def question(i):
    label = b'n%d' % i
    return struct.pack('!HHHHHH', i, 256, 1, 0, 0, 0) + bytes([len(label)]) + label + b'\\4many\\4test\\0\\0\\1\\0\\1'
out = {'answered': 0, 'refused': 0, 'other': []}
def count(message):
    code = message[3] & 15
    if code == 0 and message[7] == 1: out['answered'] += 1
    elif code == 5: out['refused'] += 1
    else: out['other'].append(message.hex())
began = time.monotonic()
"""


# The bucket fills again: a name that nobody asked for is answered in the end. How often it was refused until then.
ASK_AGAIN = """
s, message, out = socket.create_connection((gateway(), 53), 10), bytes.fromhex('%s'), -1
def answered():
    global out
    out += 1
    s.sendall(struct.pack('!H', len(message)) + message)
    return tcp_frame(s)[3] & 15 == 0
wait_for(answered)
""" % dnswire.query("ok.test").hex()


def limited(lab, code, **limits):
    """Run CODE where every one of NAMES is allowed; what it counted, and the names that the far side was asked for."""
    lab.dns.set("*.many.test", A="11.1.0.5")
    env = policy_env(lab, codex={"allow": NAMES + ["ok.test"], "limits": limits})
    got = lab.probe(["--compatibility-mode", "codex"], [["eval", ASK_ALL + code + "\nout['seconds'] = time.monotonic() - began"], ["eval", ASK_AGAIN]], env=env)
    return dict(worked(got[0]), later=worked(got[1])), {n for n in lab.dns.names() if n.endswith(".many.test")}


OVER_TCP = """
s = socket.create_connection((gateway(), 53), 10)
for i in range(%d):
    q = question(i); s.sendall(struct.pack('!H', len(q)) + q); count(tcp_frame(s))
""" % ASKED


def test_questions_are_capped_per_second(lab):
    """Over TCP, where the kernel counts no packets, each question gets its own answer or refusal."""
    out, arrived = limited(lab, OVER_TCP, dns_qps=QPS)
    assert out["answered"] + out["refused"] == ASKED and out["other"] == [], out
    assert QPS * BURST_S <= out["answered"] <= QPS * (BURST_S + out["seconds"]) + 1, out
    assert len(arrived) == out["answered"], "what is refused is not asked of anybody"
    rows = denied(lab.netlog(), ("codex: limits.dns_qps", "DNS budget exceeded"), event="dns")
    assert sum(row["count"] + row.get("suppressed", 0) for row in rows) == out["refused"] + out["later"], (out, rows)


def test_the_same_questions_pass_under_a_higher_limit(lab):
    out, arrived = limited(lab, OVER_TCP, dns_qps=100000)
    assert (out["answered"], out["refused"], out["other"]) == (ASKED, 0, []) and arrived == set(NAMES), out
    assert not find(lab.netlog(), verdict="deny")


def test_a_flood_of_questions_is_capped_by_the_kernel(lab):
    """Over UDP the kernel drops what comes faster than four times the limit: it must not fill the queue that all sandboxes share."""
    code = """
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.connect((gateway(), 53)); s.settimeout(5)
for i in range(%d): s.send(question(i))
try:
    while True: count(s.recv(4096))
except socket.timeout: began += 5
""" % ASKED
    out, arrived = limited(lab, code, dns_qps=QPS)
    assert QPS * BURST_S <= out["answered"] <= QPS * (BURST_S + out["seconds"]) + 1 and out["other"] == [], out
    assert len(arrived) == out["answered"]
    log = lab.netlog()
    rows = denied(log, ("builtin: dns_qps", "far more questions than the policy allows"), event="packet", proto="udp", port=53)
    dropped = sum(row["count"] + row.get("suppressed", 0) for row in rows + find(log, rule="builtin: rate"))
    assert dropped == ASKED - out["answered"] - out["refused"] > 0, (out, rows)


def test_egress_bytes_are_capped(lab):
    env = policy_env(lab, codex={"allow": ["ok.test:9000"], "limits": {"egress_bytes": "100K"}})
    code = ("s = socket.create_connection(('ok.test', 9000), 5)\nsent = 0\ntry:\n while sent < 8000000:\n  sent += s.send(b'x' * 65536)\n s.shutdown(1); out = s.recv(100).decode()\n"
            "except OSError as e: out = 'cut'")
    got = lab.probe(["--compatibility-mode", "codex"], [["eval", code]], env=env)
    assert worked(got[0]) in ("cut", ""), got
    far = [c["bytes"] for c in lab.conns(kind="count")]
    assert len(far) == 1 and 0 < far[0] <= 100 * 1024, far
    denied(lab.netlog(), ("codex: limits.egress_bytes", "policy limit reached"), event="flow", port=9000, name="ok.test")


def test_one_sandbox_flooding_does_not_slow_the_other(lab):
    flood = ("import socket\ns=socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\nprint('up', flush=True)\nq=bytes.fromhex('123401000001000000000000046576696c04746573740000010001')\n"
             "while True: s.sendto(q, ('11.0.0.53', 53))")
    noisy = lab.start([*allow("ok.test"), "--", "/usr/bin/python3", "-c", flood])
    noisy.wait_output(b"up\n")
    with holding(lab, allow("ok.test")) as (proc, do):
        server = worked(do([["eval", "out = gateway()"]])[0])
        got = latency(lab, lab.sandbox_init(proc), gateway_pid(lab, proc), server, 50)
    noisy.signal(15)
    noisy.wait(15)
    assert got["lost"] == 0 and got["p50"] < 0.02, got
