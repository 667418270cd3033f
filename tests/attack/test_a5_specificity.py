"""a5: apex and wildcard, depth, ports, ties. One vector file: `network check`, the DNS path and real packets must give its verdicts."""
import json
import os

from expect import CODEX, at_once, policy_env
from lab import HERE

with open(os.path.join(os.path.dirname(HERE), "attack", "vectors_a5.json")) as f:
    VECTORS = json.load(f)
ADDRESS = "11.40.0.%d"


def ways(vectors):
    return [(host, port, proto, want) for host, port, proto, want in vectors]


def test_a5_network_check_agrees_with_the_vectors(lab):
    env = policy_env(lab, codex=VECTORS["policy"])
    path = os.path.join(env["AGENTKERNEL_DATA_DIR"], "policies", "codex.json")
    wrong = []
    for host, port, proto, want in VECTORS["names"] + VECTORS["addresses"]:
        target = ("[%s]:%d/%s" if ":" in host else "%s:%d/%s") % (host, port, proto)
        for policy in (path, "codex"):
            r = lab.ak(["network", "check", policy, target], env=env)
            if r.code != (0 if want else 3):
                wrong.append((policy == path, target, want, r.out.strip() + r.err.strip()))
    assert not wrong, wrong


def step(host, port, proto):
    bare = host.rstrip(".").lower()
    if proto == "udp":
        return ["udp", host, port, "x", 1.0]
    if port in (443, 8443):
        return ["tls", host, port, bare]
    if port in (80, 8080):
        return ["http", host, port, bare]
    return ["tcp", host, port, b"x".hex()]


def test_a5_real_packets_agree_with_the_vectors(lab):
    env = policy_env(lab, codex=VECTORS["policy"])
    names = sorted({n.rstrip(".").lower() for n, *_ in VECTORS["names"]})
    where = {name: ADDRESS % (i + 1) for i, name in enumerate(names)}
    for name, address in where.items():
        lab.dns.set(name, A=address)
    cases = VECTORS["names"] + VECTORS["addresses"]
    got = lab.probe(CODEX, [step(*case[:3]) for case in cases], env=env)
    wrong = [(case, row) for case, row in zip(cases, got) if ("ok" in row) != case[3]]
    assert not wrong, wrong
    for case, row in zip(cases, got):
        if not case[3]:
            at_once(row)
    # Nothing was dialled for what is denied.
    for host, port, proto, want in cases:
        if not want:
            assert lab.arrived(where.get(host.rstrip(".").lower(), host), port, proto) == 0, (host, port, proto)
    reachable = {n.rstrip(".").lower() for n, _, _, want in VECTORS["names"] if want}
    assert set(lab.dns.names()) <= reachable, set(lab.dns.names()) - reachable
