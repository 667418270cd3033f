"""`network log`: one record joins question, addresses, flow, bytes and verdict; and all its options."""
import json
import re

from expect import METADATA, NOT_LEARNED, NOT_LISTED, SNI_NOT_ALLOWED, allow, allowed, denied, table_is_clean

FIELDS = set("v time seq of mac gone_from gone_to kept kept_hash sandbox event verdict reason rule policy generation proto name qtype sni dst port cname answers ttl bytes_out bytes_in "
             "duration_ms latency_us count suppressed detail prev hash".split())


def traffic(lab):
    lab.probe(allow("ok.test"), [["tls", "ok.test", 443, "ok.test", "/bytes/50000"], ["resolve", "evil.test"], ["tcp", "169.254.169.254", 80],
                                 ["tls", "11.1.0.5", 443, "two.test"], ["tcp", "11.66.0.1", 443]])


def test_records_join_name_address_flow_and_bytes(lab):
    traffic(lab)
    log = lab.netlog()
    flow = allowed(log, event="flow", port=443)[0]
    assert flow["name"] == "ok.test" and flow["sni"] == "ok.test" and flow["dst"] in ("11.1.0.5", "2a00:1::5")
    assert flow["bytes_in"] > 50000 and flow["bytes_out"] > 200 and flow["duration_ms"] >= 0 and flow["latency_us"] > 0 and flow["generation"] >= 1
    assert "ok.test" in flow["rule"] and flow["dst"] in flow["answers"]
    dns = allowed(log, event="dns", name="ok.test")[0]
    assert dns["answers"] and dns["ttl"] > 0 and dns["latency_us"] > 0 and dns["qtype"] in ("A", "AAAA")
    denied(log, NOT_LISTED, event="dns", name="evil.test")
    denied(log, METADATA, dst="169.254.169.254", port=80)
    denied(log, SNI_NOT_ALLOWED, sni="two.test", dst="11.1.0.5", port=443)
    denied(log, NOT_LEARNED, dst="11.66.0.1", port=443)
    assert {row["event"] for row in log} >= {"start", "end"}


def test_every_line_has_known_fields_and_rising_numbers(lab):
    traffic(lab)
    log = lab.netlog()
    assert [row["seq"] for row in log] == sorted({row["seq"] for row in log})
    for row in log:
        assert not set(row) - FIELDS, set(row) - FIELDS
        assert row["verdict"] in ("allow", "deny", "error") or row["event"] in ("start", "end", "policy", "loss"), row
    assert len({row["sandbox"] for row in log}) == 1


def test_the_table_reads_as_documented(lab):
    traffic(lab)
    r = lab.ak(["network", "log", "--last"])
    assert r.code == 0
    head = r.out.splitlines()[0]
    for word in ("TIME", "VERDICT", "PROTO", "DESTINATION", "RULE", "REASON", "BYTES", "COUNT"):
        assert word in head, head
    table_is_clean(r.out.replace("↑", "").replace("↓", ""))
    assert re.search(r"deny +tls .*sni=two\.test", r.out), r.out
    assert re.search(r"deny +tcp +169\.254\.169\.254:80 .*metadata", r.out), r.out
    assert re.search(r"allow .*ok\.test:443 \(", r.out), r.out


def test_options_filter(lab):
    traffic(lab)
    assert {row["verdict"] for row in lab.netlog("--denied")} == {"deny"}
    assert {row["verdict"] for row in lab.netlog("--allowed")} == {"allow"}
    assert len(lab.netlog("--limit", "2")) == 2
    assert lab.netlog("--since", "10m") and len(lab.netlog("--since", "10m", "--denied")) == len(lab.netlog("--denied"))
    assert lab.ak(["network", "log", "--last", "--since", "whenever"]).code == 2
    assert lab.ak(["network", "log", "--last", "--denied", "--allowed"]).code == 2
    r = lab.ak(["network", "log", "--last", "--summary"])
    assert r.code == 0 and "evil.test" in r.out, r


def test_follow_shows_records_as_they_come(lab):
    import expect
    with expect.holding(lab, allow("ok.test")) as (proc, do):
        follow = lab.spawn([lab.binary, "network", "log", "--last", "--follow", "--json"], env=lab.env())
        do([["resolve", "evil.test"]])
        follow.wait_output(b"evil.test")
        do([["resolve", "denied.test"]])
        follow.wait_output(b"denied.test")
        follow.signal(2)
        follow.wait()


def test_past_runs_are_found_by_name(lab):
    traffic(lab)
    name = lab.netlog()[0]["sandbox"]
    lab.run(["--compatibility-mode", "codex", "true"])
    assert lab.netlog(name=name)[0]["sandbox"] == name
    assert lab.netlog()[0]["sandbox"] != name


def test_the_chain_verifies_and_a_changed_byte_is_named(any_user):
    lab = any_user
    traffic(lab)
    r = lab.ak(["audit", "verify"])
    assert r.code == 0, r
    name = lab.netlog()[0]["sandbox"]
    path = lab.host(["sh", "-c", "find %s /var/lib/agentkernel -name network.jsonl 2>/dev/null" % lab.path("state")]).out.split()[0]
    assert lab.host(["sed", "-i", "2s/\"verdict\":\"[a-z]*\"/\"verdict\":\"fine\"/;3s/ok.test/no.test/", path]).code == 0
    r = lab.ak(["audit", "verify"])
    assert r.code != 0 and re.search(r"[23]", r.out + r.err), r


def test_audit_lists_life_cycle(lab):
    lab.run(["--compatibility-mode", "codex", "true"])
    r = lab.ak(["audit", "--json"])
    assert r.code == 0, r
    rows = [json.loads(line) for line in r.out.splitlines()]
    assert len(rows) >= 2 and all("event" in row for row in rows)
