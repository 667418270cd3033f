"""g11: another program flushes all rules, routes or links it can reach on the host: ours live in a namespace of their own and do not notice."""
import pytest
from expect import NATIVE, NOT_LEARNED, allow, denied, holding, in_gateway, refused, worked

FLUSHES = [["nft", "flush", "ruleset"], ["sh", "-c", "nft list tables | while read t f n; do nft delete table $f $n; done"], ["sh", "-c", "iptables -F; iptables -t nat -F; iptables -X; ip6tables -F; true"],
           ["sh", "-c", "ip rule flush; ip rule add from all lookup local pref 0; ip rule add from all lookup main pref 32766; ip rule add from all lookup default pref 32767"], ["ip", "neigh", "flush", "all"],
           ["sh", "-c", "conntrack -F; true"]]
FIREWALL = "table inet evil { chain out { type filter hook output priority 0; policy accept; }; chain thru { type filter hook forward priority 0; policy accept; }; }\n"


def verdicts(do):
    got = do([["tls", "ok.test", 443, "ok.test"], ["tcp", "11.66.0.1", 443], ["udp", "11.66.0.1", 5000], ["tcp", "2a00:66::1", 443], ["tcp", "169.254.169.254", 80], ["resolve", "evil.test"],
              ["tls", "11.1.0.5", 443, "evil.test"]])
    worked(got[0])
    for row in got[1:]:
        refused(row)


def test_g11_flushing_the_hosts_rules_changes_nothing(any_user):
    lab = any_user
    with holding(lab, allow("ok.test")) as (proc, do):
        verdicts(do)
        before = in_gateway(lab, proc, "nft", "list", "chains").out
        assert "agentkernel" in before
        for cmd in FLUSHES:
            lab.host(cmd)
            verdicts(do)
            assert in_gateway(lab, proc, "nft", "list", "chains").out == before, cmd
        # Another firewall comes up and goes down beside us.
        assert lab.host(["nft", "-f", "-"], stdin=FIREWALL.encode()).code == 0
        verdicts(do)
        lab.host(["nft", "delete", "table", "inet", "evil"])
        verdicts(do)
    assert "agentkernel" not in lab.host(["nft", "list", "ruleset"]).out
    assert lab.strangers("11.1.0.5", "2a00:1::5") == []
    log = lab.netlog()
    denied(log, NOT_LEARNED, dst="11.66.0.1", port=443, proto="tcp")
    denied(log, NOT_LEARNED, dst="2a00:66::1", port=443, proto="tcp")


def test_g11_the_hosts_rules_are_not_ours_to_flush(any_user):
    """And the other way round: a run starts and ends beside a firewall that stays as it is."""
    lab = any_user
    assert lab.host(["nft", "-f", "-"], stdin=FIREWALL.encode()).code == 0
    try:
        before = lab.host(["nft", "-j", "list", "ruleset"]).out
        worked(lab.probe(allow("ok.test"), [["tls", "ok.test", 443, "ok.test"]])[0])
        assert lab.host(["nft", "-j", "list", "ruleset"]).out == before
    finally:
        lab.host(["nft", "flush", "ruleset"])


@pytest.mark.parametrize("policy", ["drop", "reject"])
def test_g11_a_host_firewall_that_forbids_more_is_obeyed(lab, policy):
    """Our connections leave as the user's own: the host's rules hold for them, and the sandbox is told at once or after the connect time-out, never around them."""
    text = "table inet evil { chain out { type filter hook output priority 0; tcp dport 443 %s; }; }\n" % ("drop" if policy == "drop" else "reject with tcp reset")
    assert lab.host(["nft", "-f", "-"], stdin=text.encode()).code == 0
    try:
        got = lab.probe(NATIVE, [["resolve", "ok.test"], ["eval", "s = socket.socket(); s.settimeout(1); s.connect(('11.1.0.5', 443)); s.send(b'x'); out = s.recv(1).decode()"], ["http", "ok.test", 80, "ok.test"]])
        assert "err" in got[1]
        worked(got[2])
        assert lab.syns("11.1.0.5", 443) == 0
    finally:
        lab.host(["nft", "flush", "ruleset"])
