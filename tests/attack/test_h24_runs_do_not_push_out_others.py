"""h24: many short runs from one side take no other run's log away; what goes is told before, with what it was denied."""
import json

import pytest
from expect import NOT_LISTED, allow, denied, worked
from mcp import serving

RUNS = 340


@pytest.mark.parametrize("who", ["user", "root"])
def test_h24_a_flood_of_mcp_runs_keeps_the_logs_of_others(lab, who):
    if who == "root" and not lab.is_root:
        pytest.skip("the suite runs as an ordinary user")
    with lab.acting_as(who):
        worked(lab.probe(allow("ok.test"), [["tls", "ok.test", 443, "ok.test"]])[0])
        clean = lab.host(["cat", lab.path("state") + "/agentkernel/last"]).out.strip()
        lab.probe(allow("ok.test"), [["resolve", "evil.test"]])
        guilty = lab.host(["cat", lab.path("state") + "/agentkernel/last"]).out.strip()
        with serving(lab, "--compatibility-mode", "codex") as m:
            own = m.good("sandbox_run", command=["sh", "-c", "getent hosts evil.test || true"])[0]["sandbox"]
            for _ in range(RUNS):
                m.good("sandbox_run", command=["true"])
        for name in (guilty, own):
            denied(lab.netlog(name=name), NOT_LISTED, event="dns", name="evil.test")
        assert [r for r in lab.netlog(name=clean) if r.get("name") == "ok.test"]
        assert lab.ak(["audit", "verify"]).code == 0
        gone = [json.loads(line) for line in lab.ak(["audit", "--json"]).out.splitlines() if '"run_prune"' in line]
        left = lab.host(["sh", "-c", "ls %s/agentkernel/runs" % lab.path("state")]).out.split()
        assert len(left) + sum(len(e.get("runs", [1])) for e in gone) >= RUNS + 3


def test_h24_long_command_lines_by_mcp_push_no_event_out(lab):
    with lab.acting_as("user"):
        with serving(lab, "--compatibility-mode", "codex") as m:
            for n in range(360):
                m.good("sandbox_run", command=["true", "A" * 120000])
                if n == 75:  # past what stays for good
                    assert lab.ak(["run", "--compatibility-mode", "codex", "--", "sh", "-c", "echo evil > .envrc"]).code == 0
        rows = [json.loads(line) for line in lab.ak(["audit", "--json"]).out.splitlines()]
        assert [r for r in rows if r["event"] == "project_changed" and ".envrc" in r["files"]], "the deed is gone"
        assert max(len(json.dumps(r)) for r in rows) < 8192
        assert lab.ak(["audit", "verify"]).code == 0
