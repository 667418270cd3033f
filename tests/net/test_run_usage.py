"""Bad input to `run` and its sisters: a clear error, the right code, nothing run and nothing left."""
import json
import os

import pytest
from expect import CODEX, policy_env

BAD = [
    (["--compatibility-mode", "cursor", "true"], "cursor"),
    (["--profile", "paranoid", "true"], "paranoid"),
    (["--no-such-option", "true"], "no-such-option"),
    (["--compatibility-mode"], "compatibility-mode"),
    ([], "run"),
    (["--"], "run"),
    (["--timeout", "soon", "true"], "soon"),
    (["--timeout", "-3s", "true"], "-3s"),
    (["--memory", "lots", "true"], "lots"),
    (["--memory", "99999999999999999999G", "true"], "99999999999999999999G"),
    (["--vcpus", "many", "true"], "many"),
    (["--pids", "0x", "true"], "0x"),
    (["--allow-host", "*", "true"], "*"),
    (["--allow-host", "*.com", "true"], "*.com"),
    (["--allow-host", "ok.test:70000", "true"], "70000"),
    (["--allow-host", "ok.test:443/sctp", "true"], "sctp"),
    (["--allow-host", "1.2.3.4", "true"], "1.2.3.4"),
    (["--allow-host", "bücher.example", "true"], "b"),
    (["--allow-host", "", "true"], "allow-host"),
    (["--allow-host", "a..b", "true"], "a..b"),
    (["--block-host", "x y", "true"], "x y"),
    (["--allow-cidr", "10.0.0.0/33", "true"], "10.0.0.0/33"),
    (["--allow-cidr", "ten", "true"], "ten"),
    (["--block-cidr", "fd00::/129", "true"], "fd00::/129"),
    (["--env", "NOEQUALS=", "--env", "=x", "true"], "=x"),
    (["--quiet=yes", "true"], "quiet"),
]


@pytest.mark.parametrize("args, word", BAD, ids=[" ".join(a)[:40] for a, _ in BAD])
def test_wrong_usage_is_told_and_nothing_runs(lab, args, word):
    r = lab.run([*args[:-1], "touch", lab.path("project", "ran")] if args[-1:] == ["true"] else args)
    assert r.code == 2, r
    assert word in r.err and r.err.startswith("agentkernel: "), r
    assert r.out == "" and not os.path.exists(lab.path("project", "ran"))
    assert not lab.strangers() and not lab.dns.log()


def test_metadata_can_never_be_opened(lab):
    for cidr in ("169.254.169.254/32", "169.254.0.0/16"):
        r = lab.probe([*CODEX, "--allow-cidr", cidr], [["tcp", "169.254.169.254", 80]]) if lab.run(
            [*CODEX, "--allow-cidr", cidr, "true"]).code == 0 else [{"err": "refused at load", "ms": 0}]
        assert "err" in r[0]
    assert lab.arrived("169.254.169.254") == 0


def test_an_unreadable_project_folder_is_told(lab):
    secret = lab.path("locked")
    os.mkdir(secret)
    with lab.acting_as("user"):
        secret = lab.path("locked")
        os.mkdir(secret, 0o000)
        r = lab.run([*CODEX, "--dir", secret, "true"])
        assert r.code == 125 and secret in r.err, r
        r = lab.run([*CODEX, "--dir", lab.path("absent"), "true"])
        assert r.code == 125 and "absent" in r.err, r
        r = lab.run([*CODEX, "--dir", "/etc/passwd", "true"])
        assert r.code == 125 and "/etc/passwd" in r.err, r
        os.chmod(secret, 0o755)


POLICY_ERRORS = [
    ('{"version":1,"name":"codex","allow":["ok.test"],"colour":1}', "colour: unknown key"),
    ('{"version":1,"name":"codex","allow":["ok.test"],"allow":[]}', "allow: key given twice"),
    ('{"version":1,"name":"codex","allow":["ok.test","b\u00fccher.example"]}', "allow[1]"),
    ('{"version":1,"name":"codex","allow":["1.2.3.4"]}', "allow[0]"),
    ('{"version":1,"name":"codex","allow":["ok.test","x.test","*.com"]}', "allow[2]"),
    ('{"version":1,"name":"codex","allow":["a.test","b.test","c.test","ok.test:70000"]}', "allow[3]"),
    ('{"version":1,"name":"codex","allow":["ok.test:0"]}', "allow[0]"),
    ('{"version":1,"name":"codex","allow":["*"]}', "allow[0]"),
    ('{"version":1,"name":"codex","extends":["codex"]}', "extends[0]: cycle: codex > codex"),
    ('{"version":1,"name":"codex","extends":["nowhere"]}', "nowhere"),
    ('{"version":2,"name":"codex","allow":[]}', "version: 2 is not supported"),
    ('{"version":1,"name":"codex","allow":"ok.test"}', "allow: must be an array"),
    ('{"version":1,"name":"codex","allow":[1]}', "allow[0]"),
    ('{"version":1,"name":"codex","default":"maybe"}', "default: 'maybe'"),
    ('{"version":1,"name":"codex","allow_cidr":["10.0.0.0/40"]}', "allow_cidr[0]"),
    ('{"version":1,"name":"codex","limits":{"connections":-1}}', "limits: connections: "),
    ('{"version":1,"name":"codex","allow":["ok.test"]', "codex.json: line 1, column 47: "),
    ("", "codex.json: line 1, column 1: "),
    ("[]", "codex.json: must be a JSON object"),
]


@pytest.mark.parametrize("text, place", POLICY_ERRORS, ids=range(len(POLICY_ERRORS)))
def test_a_bad_policy_names_the_place_and_starts_nothing(lab, text, place):
    env = policy_env(lab, codex=text)
    r = lab.run([*CODEX, "touch", lab.path("project", "ran")], env=env)
    assert r.code == (125 if place == "nowhere" else 2) and place in r.err, r
    assert not os.path.exists(lab.path("project", "ran"))
    path = os.path.join(env["AGENTKERNEL_DATA_DIR"], "policies", "codex.json")
    r = lab.ak(["policy", "validate", path], env=env)
    assert r.code == 2 and place in r.err, r


def test_policies_in_a_circle_are_refused(lab):
    env = policy_env(lab, codex={"extends": ["a"]}, a={"extends": ["b"]}, b={"extends": ["a"]})
    r = lab.run([*CODEX, "true"], env=env)
    assert r.code == 2 and "extends" in r.err, r


def test_shipped_policies_are_valid_listed_and_shown(lab):
    r = lab.ak(["policy", "list"])
    assert r.code == 0
    for name in ("native", "claude", "codex", "gemini", "package-registries"):
        assert name in r.out, r
        shown = lab.ak(["policy", "show", name])
        assert shown.code == 0 and json.loads(shown.out), shown
    rows = lab.ak(["policy", "list", "--json"])
    assert rows.code == 0 and json.loads(rows.out if rows.out.lstrip().startswith("[") else "[%s]" % ",".join(rows.out.splitlines()))


CHECKS = [("codex", "api.openai.com", 0), ("codex", "api.openai.com:443", 0), ("codex", "pastebin.com", 3), ("codex", "169.254.169.254:80", 3),
          ("native", "pastebin.com", 0), ("native", "169.254.169.254:80", 3), ("native", "10.0.0.1:22", 3), ("native", "metadata.google.internal", 3),
          ("claude", "api.anthropic.com", 0), ("claude", "api.openai.com", 3), ("gemini", "generativelanguage.googleapis.com", 0),
          ("codex", "any.npmjs.org", 0), ("codex", "files.pythonhosted.org:443", 0), ("codex", "api.openai.com:22", 3),
          ("codex", "11.1.0.5:443", 3), ("codex", "[2a00:1::5]:443", 3), ("codex", "api.openai.com:443/udp", 3)]


@pytest.mark.parametrize("policy, target, code", CHECKS, ids=["%s %s" % c[:2] for c in CHECKS])
def test_network_check_gives_verdict_rule_and_reason(lab, policy, target, code):
    r = lab.ak(["network", "check", policy, target])
    assert r.code == code, r
    assert ("allow" if code == 0 else "deny") in r.out, r
    row = json.loads(lab.ak(["network", "check", "--json", policy, target]).out)
    assert row["verdict"] == ("allow" if code == 0 else "deny") and "rule" in row and "reason" in row


def test_network_check_refuses_nonsense(lab):
    for args in (["codex"], [], ["codex", "ok.test:99999"], ["nowhere", "ok.test"], ["codex", ""], ["codex", "a b"]):
        r = lab.ak(["network", "check", *args])
        assert r.code not in (0, 3) and r.err.startswith("agentkernel: "), r


def test_help_version_and_completion(lab):
    for args in (["help"], ["--help"], ["run", "--help"], ["help", "run"], ["network", "log", "--help"], ["policy", "list", "--help"]):
        r = lab.ak(args)
        assert r.code == 0 and r.out and not r.err, r
    assert lab.ak(["version"]).code == 0
    for shell in ("bash", "zsh", "fish"):
        r = lab.ak(["completion", shell])
        assert r.code == 0 and "__complete" in r.out, r
    for args in (["nonsense"], [], ["network", "nonsense"], ["completion", "tcsh"], ["policy"]):
        assert lab.ak(args).code == 2, args


def test_completion_scripts_are_valid_shell(lab):
    script = lab.ak(["completion", "bash"]).out
    r = lab.spawn(["bash", "-n", "/dev/stdin"], stdin=script.encode()).wait()
    assert r.code == 0, r


def test_the_log_of_nothing_is_an_error(lab):
    for code, *args in ((1, "network", "log", "--last"), (1, "network", "log", "no-such-run"), (2, "network", "log"), (1, "network", "log", "../../etc")):
        r = lab.ak(args)
        assert r.code == code and r.err.startswith("agentkernel: "), r


def test_an_unknown_backend_is_an_error(lab):
    r = lab.run(["--backend", "cloud", "true"])
    assert r.code == 2, r


def test_every_command_has_examples_and_every_example_is_taken(lab):
    """Options and operands of an example are parsed as the command's own help is asked for behind them."""
    import re
    import shlex
    text = lab.ak(["--help"]).out
    groups = {"network", "policy", "daemon", "mcp", "image"}
    names = [n for n in re.findall(r"^  ([a-z][a-z ]*[a-z])  ", text, re.M) if n not in groups]
    assert len(names) > 40, names
    for name in names:
        out = lab.ak(["help", *name.split()]).out
        examples = re.findall(r"^  agentkernel (.*)$", out.split("Examples:")[-1], re.M) if "Examples:" in out else []
        assert len(examples) >= 2, name
        for line in examples:
            words = shlex.split(line)
            assert " ".join(words).startswith(name), line
            assert len(line) < 80 - len("  agentkernel ") + 14, line
            if words[0] in ("claude", "codex", "gemini", "opencode"):
                continue  # everything behind the name is the agent's
            at = words.index("--") if "--" in words else len(words)
            if words[0] in ("run", "exec") and "--" not in words:
                at = 1
            r = lab.ak([*words[:at], "--help"])
            assert r.code == 0 and r.out.startswith("Usage: agentkernel " + name), (line, r)
