"""What people are told of denials: what it was, why, the option that allows it, and each attempt counted once."""
import json
import os
import re

from expect import CODEX, ask, refused
from test_own_policies import install


def closing_line(r):
    lines = [line for line in r.err.splitlines() if "denied" in line]
    assert len(lines) == 1 and lines[0].startswith("agentkernel: "), r
    return lines[0]


def test_the_line_after_a_run_names_what_was_denied_and_the_way(any_user):
    lab = any_user
    install(lab, "hosts", allow=["other.test:7", "*.group.test"])
    r = lab.run([*CODEX, "--allow-host", "ok.test:7", "sh", "-c", "for i in 1 2 3; do getent ahosts pastebin.test; done; getent ahosts a.group.test; true"])
    name = lab.netlog()[0]["sandbox"]
    assert closing_line(r) == (
        "agentkernel: 4 network requests were denied: pastebin.test (not in codex), a.group.test (in hosts). "
        "Allow with --allow-host pastebin.test --allow-group hosts, or see: agentkernel network log %s" % name), r
    r = lab.run([*CODEX, "--allow-host", "ok.test:7", "--", *lab.probe_command([["tcp", "ok.test", 8], ["tcp", "169.254.169.254", 80]])])
    line = closing_line(r)
    assert " network requests were denied: " in line and "ok.test:8 (only port 7 is allowed)" in line, line
    assert "169.254.169.254:80 (cloud metadata)" in line and ". Allow with --allow-host ok.test:8, or see: " in line, line


def test_names_from_inside_are_safe_to_print_and_only_hosts_are_offered(lab):
    r = lab.run([*CODEX, "--", *lab.probe_command([ask("evil\x1b[31m.test"), ask("x;reboot.test"), ask("$(id).test")])])
    assert "denied" in r.err and "\x1b" not in r.err and "--allow-host" not in r.err, r


def test_one_attempt_counts_once_wherever_it_is_counted(boxes):
    b = boxes
    b.up("x", *CODEX)
    b.exec("x", "sh", "-c", "getent ahosts one.test; getent ahosts one.test; getent ahosts two.test; true")
    refused(b.probe("x", [["tcp", "11.0.0.9", 7]])[0])
    b.ak("stop", "x")  # repetitions are written as a sum, at the latest now
    records = [r for r in b.netlog("x") if r["verdict"] == "deny" and r["event"] == "dns"]
    assert {r["qtype"] for r in records} == {"A", "AAAA"}  # a record for each query
    rows = {line.split()[3]: line.split() for line in b.ak("network", "log", "x").out.splitlines()[1:]}
    assert rows["one.test"][4:6] == ["A,", "AAAA"] and rows["one.test"][-1] == "2", rows
    summary = json.loads(b.ak("network", "log", "x", "--summary", "--json").out)
    assert summary["verdicts"]["deny"]["count"] == 4, summary
    assert b.list()["x"]["denied"] == 4


def test_allowed_is_the_same_number_everywhere(lab):
    steps = [["tcp", "ok.test", 7, b"x".hex()], ["tcp", "ok.test", 7, b"x".hex()], ["tcp", "ok.test", 9]]
    r = lab.run(["--json", "--", "sh", "-c", "getent ahosts other.test; exec \"$@\"", "sh", *lab.probe_command(steps)])
    report = json.loads(r.out)
    summary = json.loads(lab.ak(["network", "log", report["sandbox"], "--summary", "--json"]).out)
    event = [e for e in map(json.loads, lab.ak(["audit", "--json"]).out.splitlines()) if e["event"] == "run_end"][-1]
    flows = [r for r in lab.netlog() if r["event"] == "flow" and r["verdict"] == "allow"]  # not the lookup, nor what could not be reached
    assert len(flows) >= 2
    assert report["network"]["allowed"] == summary["verdicts"]["allow"]["count"] == event["allowed"] == len(flows), (report, summary, event)


def test_check_and_log_name_the_group_and_the_ports(lab):
    install(lab, "hosts", allow=["other.test:7"])
    r = lab.ak(["network", "check", "codex", "other.test:7"])
    assert r.code == 3 and r.out.splitlines()[1] == "other.test is in hosts: --allow-group hosts", r
    assert json.loads(lab.ak(["network", "check", "--json", "codex", "other.test:7"]).out)["group"] == "hosts"
    r = lab.ak(["network", "check", "codex", "pypi.org:80"])
    assert r.code == 3 and r.out == "deny pypi.org:80/tcp by default (only port 443 is allowed)\n", r
    assert "(only port 443/tcp is allowed)" in lab.ak(["network", "check", "codex", "pypi.org:443/udp"]).out
    lab.run([*CODEX, "sh", "-c", "getent ahosts other.test; true"])
    r = lab.ak(["network", "log", "--last"])
    assert r.err == "agentkernel: other.test is in hosts: --allow-group hosts\n", r
    kinds = {p["name"]: p["kind"] for p in json.loads(lab.ak(["policy", "list", "--json"]).out)}
    assert (kinds["hosts"], kinds["source-hosting"], kinds["codex"]) == ("group", "group", "mode"), kinds
    assert "is a group: --allow-group hosts" in lab.ak(["policy", "show", "hosts"]).err


def test_a_range_that_can_never_open_is_refused(lab):
    for cidr, why in (("169.254.169.254", "cloud metadata"), ("127.0.0.0/8", "loopback"), ("fe80::/10", "link-local"), ("100.64.0.0/16", "sandbox links")):
        for command in (["run", "--allow-cidr", cidr, "true"], ["create", "x", "--allow-cidr", cidr], ["mcp", "server", "--allow-cidr", cidr]):
            r = lab.ak(command)
            assert r.code == 2 and "--allow-cidr: '" in r.err and "can never be opened (%s" % why in r.err, r
    for cidr in ("10.0.0.0/8", "169.254.0.0/15", "0.0.0.0/0"):
        assert lab.run(["--allow-cidr", cidr, "true"]).code == 0


def test_a_command_that_only_the_caller_has_is_told_with_the_reason(lab):
    folder = lab.path("home", ".ssh")
    os.makedirs(folder)
    with open(os.path.join(folder, "tool"), "w") as f:
        f.write("#!/bin/sh\n")
    os.chmod(f.name, 0o755)
    r = lab.run([*CODEX, "tool"], env={"PATH": "/usr/bin:/bin:" + folder})
    assert r.code == 127 and "command not found: 'tool' in the sandbox: '%s' lies in '%s', which holds keys" % (f.name, folder) in r.err, r
    r = lab.run([*CODEX, "no-such-tool"])
    assert r.code == 127 and r.err == "agentkernel: command not found: 'no-such-tool'\n", r


def test_a_change_of_the_policy_prints_what_changed(boxes):
    b = boxes
    b.create("x", *CODEX)
    assert b.ak("network", "policy", "x", "--allow-host", "ok.test:7", "--block-cidr", "11.0.0.0/8").out == (
        "x: allow ok.test:7 (generation 2)\nx: block 11.0.0.0/8 (generation 2)\n")
    out = b.ak("network", "policy", "x", "--allow-host", "other.test", "--for", "10m").out
    assert re.fullmatch(r"x: allow other\.test until (\d{4}-\d\d-\d\d )?\d\d:\d\d \(generation 3\)\n", out), out
    out = b.ak("network", "policy", "x", "--reset", "--allow-group", "source-hosting", "--show").out
    assert out.startswith("x: dropped all earlier changes (generation 4)\nx: allow group source-hosting (generation 4)\nsandbox     x\n"), out
    whole = b.ak("network", "policy", "x").out
    assert whole.startswith("sandbox     x\ngeneration  4\n") and whole in out, whole
    assert json.loads(b.ak("network", "policy", "x", "--remove", "github.com:22", "--json").out)["generation"] == 5
