"""Invariant 2: a DNS reply with addresses is sent only after the kernel took them; otherwise SERVFAIL."""
from expect import allow, ask, find, holding, in_gateway, reply, worked


def test_no_answer_when_the_kernel_refuses_the_elements(lab):
    with holding(lab, allow("ok.test", "other.test")) as (proc, do):
        worked(do([["tls", "ok.test", 443, "ok.test"]])[0])
        assert in_gateway(lab, proc, "nft", "delete", "table", "inet", "agentkernel").code == 0
        got = reply(do([ask("other.test")])[0])
        assert got["rcode"] == 2 and not got["answers"], got
        # And without rules there is no network, not an open one.
        for row in do([["tcp", "11.1.0.6", 443], ["tcp", "11.66.0.1", 443]]):
            assert "err" in row, row
    assert lab.arrived("11.1.0.6") == 0 and lab.arrived("11.66.0.1") == 0
    assert find(lab.netlog(), event="dns", name="other.test", verdict="error", rule="flags: other.test", reason="kernel did not acknowledge the addresses")


def test_an_answered_address_is_in_the_kernel_already(lab):
    with holding(lab, allow("ok.test")) as (proc, do):
        assert "11.1.0.5" not in in_gateway(lab, proc, "nft", "list", "ruleset").out
        reply(do([ask("ok.test")])[0])
        assert "11.1.0.5 . 443" in in_gateway(lab, proc, "nft", "list", "ruleset").out
