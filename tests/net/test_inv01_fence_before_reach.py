"""Invariant 1: rules, then DNS, then the link, then the command; a failure on the way leaves no link and runs nothing."""
import os

from expect import CODEX, allow, gateway_pid, holding, in_gateway, policy_env
from lab import PYTHON

FIRST = ("import socket,sys\ns=socket.socket(); s.settimeout(3)\n"
         "try: s.connect(('11.66.0.1', 443)); print('reached')\nexcept OSError as e: print('refused')\n"
         "print(socket.getaddrinfo('ok.test', 443, socket.AF_INET)[0][4][0])")


def test_the_first_thing_a_command_does_meets_the_fence_and_a_ready_resolver(lab):
    procs = [lab.start([*allow("ok.test"), "--", PYTHON, "-S", "-c", FIRST]) for _ in range(12)]
    for proc in procs:
        assert proc.wait().out == "refused\n11.1.0.5\n"
    assert lab.arrived("11.66.0.1") == 0


def test_rules_are_there_and_the_link_is_up_when_the_command_runs(lab):
    with holding(lab, allow("ok.test")) as (proc, do):
        rules = in_gateway(lab, proc, "nft", "list", "ruleset").out
        assert "table inet agentkernel" in rules and "tproxy" in rules, rules
        links = in_gateway(lab, proc, "ip", "-o", "link").out
        assert " ak" in links and "LOWER_UP" in links, links


def test_the_own_ipv6_address_is_reachable_before_the_command_runs(lab):
    """The kernel's route to it comes from a worker, late on a busy machine, and until then replies are lost: ours (metric 1024) is there first."""
    routes = [line.split() for line in lab.run([*allow("ok.test"), "cat", "/proc/net/ipv6_route"]).out.splitlines()]
    local = 0x80000000
    assert [r for r in routes if r[9] == "eth0" and r[1] == "80" and r[5] == "00000400" and int(r[8], 16) & local], routes


def test_what_cannot_be_enforced_is_not_started(lab):
    env = policy_env(lab, codex='{"version":1,"name":"codex","allow":["*"]}')
    r = lab.run([*CODEX, "touch", lab.path("project", "ran")], env=env)
    assert r.code == 2 and not os.path.exists(lab.path("project", "ran")), r
