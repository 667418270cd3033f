"""a1: an empty, null, missing or comment-only allowlist refuses everything."""
import pytest
from expect import CODEX, policy_env, refused

STEPS = [["resolve", "ok.test"], ["resolve", "api.openai.com"], ["tcp", "11.1.0.5", 443], ["tcp", "11.1.0.5", 80], ["udp", "11.1.0.5", 5000],
         ["tcp", "2a00:1::5", 443], ["tls", "11.2.0.1", 443, "api.openai.com"], ["http", "11.1.0.5", 80, "ok.test"]]
EMPTY = {
    "empty": '{"version":1,"name":"codex","default":"deny","allow":[]}',
    "missing": '{"version":1,"name":"codex","default":"deny"}',
    "no_default": '{"version":1,"name":"codex","allow":[]}',
    "nothing_but_version": '{"version":1,"name":"codex"}',
    "empty_group": '{"version":1,"name":"codex","extends":["nothing"]}',
    "only_denies": '{"version":1,"name":"codex","deny":["evil.test"],"deny_cidr":["11.66.0.0/16"]}',
    "null": '{"version":1,"name":"codex","allow":null}',
    "null_default": '{"version":1,"name":"codex","default":null,"allow":[]}',
    "empty_string": '{"version":1,"name":"codex","allow":[""]}',
    "blank_string": '{"version":1,"name":"codex","allow":[" "]}',
    "comment_string": '{"version":1,"name":"codex","allow":["# ok.test"]}',
    "comment_only": "// nothing\n",
    "empty_file": "",
    "empty_object": "{}",
}


@pytest.mark.parametrize("kind", EMPTY)
def test_a1_empty_allowlist_refuses_everything(lab, kind):
    env = policy_env(lab, codex=EMPTY[kind], nothing='{"version":1,"name":"nothing","allow":[]}')
    r = lab.run([*CODEX, "--", *lab.probe_command(STEPS)], env=env)
    if r.out:
        for row in r.json():
            refused(row)
        log = lab.netlog()
        assert [row for row in log if row["verdict"] == "deny"] and not [row for row in log if row["verdict"] == "allow" and row["event"] in ("dns", "flow")]
    else:
        assert r.code == 2 and r.err.startswith("agentkernel: "), r
    assert lab.strangers() == [] and lab.dns.log() == []


def test_a1_a_blocked_mode_host_is_gone(lab):
    got = lab.probe([*CODEX, "--block-host", "api.openai.com"], [["resolve", "api.openai.com"], ["tcp", "11.2.0.1", 443]])
    for row in got:
        refused(row)
    assert lab.strangers() == [] and lab.dns.log() == []
