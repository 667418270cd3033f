"""agentkernel.toml: found, checked, beaten by options, honoured by every front end, and trusted only as the user saw it."""
import contextlib
import json
import os
import pty

import pytest
from api import serving as http
from lab import wait_for
from mcp import serving as mcp

OK = '[agent]\ncompatibility_mode = "codex"\n[network]\nallow = ["ok.test"]\n'


def write(lab, text, *parts):
    with open(lab.path("project", *parts, "agentkernel.toml"), "w") as f:
        f.write(text)


def test_what_narrows_counts_at_once(any_user):
    lab = any_user
    write(lab, '[security]\nnetwork = false\nprofile = "restrictive"\n[resources]\ntmp_mb = 3\npids = 50\n')
    got = lab.run(["sh", "-c", "df -k /tmp | tail -1; touch /opt/x || echo read-only; grep -c : /proc/net/dev"])
    assert got.code == 0 and " 3072 " in got.out and "read-only" in got.out and got.out.endswith("\n1\n"), got
    write(lab, '[resources]\ntimeout = "300ms"\n')
    r = lab.run(["sleep", "20"])
    assert r.code == 124 and "timed out" in r.err, r


def test_what_needs_trust_is_shown_as_the_file_says_it(lab):
    write(lab, "[resources]\ntmp_mb = 600\npids = 2000\n")
    r = lab.run(["true"])
    assert r.code == 2 and "agentkernel.toml:2: [resources] tmp_mb = 600\n" in r.err and "agentkernel.toml:3: [resources] pids = 2000\n" in r.err, r


def test_deny_rules_and_the_older_spelling_count_at_once(lab):
    write(lab, '[network]\ndeny = ["ok.test"]\n')
    got = lab.probe([], [["resolve", "ok.test"], ["resolve", "evil.test"]])
    assert "err" in got[0] and "ok" in got[1], got
    write(lab, '[security.domains]\nblock = ["ok.test"]\nallowlist_only = true\n')
    got = lab.probe(["--allow-host", "evil.test"], [["resolve", "ok.test"], ["resolve", "evil.test"], ["resolve", "mixed.test"]])
    assert "err" in got[0] and "ok" in got[1] and "err" in got[2], got


@pytest.mark.parametrize("text, place", [("[security]\nprofle = 'moderate'\n", "agentkernel.toml:2:1: unknown key 'profle' in [security]"),
                                         ("[resources]\nmemory_mb = '1G'\n", "agentkernel.toml:2:13: resources.memory_mb must be a whole number"),
                                         ("[network]\nallow = ['a.test', '*']\n", "agentkernel.toml:2:20: network.allow: "),
                                         ("[security\n", "agentkernel.toml:1:10: expected ']'")])
def test_a_wrong_file_is_wrong_usage_and_says_where(lab, text, place):
    write(lab, text)
    for args in (["run", "true"], ["run", "--explain", "true"], ["create", "x"], ["trust", "--yes"], ["codex", "--version"]):
        r = lab.ak(args)
        assert r.code == 2 and place in r.err and r.out == "", (args, r)


def test_an_option_beats_the_file_which_beats_mode_and_profile(lab):
    write(lab, '[resources]\nmemory_mb = 300\npids = 300\ntmp_mb = 30\n[security]\nprofile = "restrictive"\n')
    r = lab.run(["--explain", "--pids", "200", "--tmp", "20M", "--compatibility-mode", "claude", "true"])
    lines = [" ".join(line.split()) for line in r.out.split("SETTINGS")[1].splitlines()]
    for want in ("mode claude (--compatibility-mode)", "profile restrictive (agentkernel.toml:6)", "network none (profile)", "memory 300 MiB (agentkernel.toml:2)",
                 "pids 200 (--pids)", "vcpus no limit (default)", "/tmp 20 MiB (--tmp)"):
        assert want in lines, (want, r)
    r = lab.run(["--profile", "moderate", "--explain", "true"])
    assert "profile    moderate  (--profile)" in r.out and "network    by policy  (mode)" in r.out, r
    assert lab.run(["--profile", "moderate", "touch", "/opt/x"]).code == 0


def test_the_file_of_dir_and_of_config_counts(lab):
    os.mkdir(lab.path("project", "sub"))
    os.chmod(lab.path("project", "sub"), 0o777)
    write(lab, "[security]\nnetwork = false\n", "sub")
    assert "network    by policy" in lab.run(["--explain", "true"]).out
    assert "network    none" in lab.run(["--explain", "--dir", "sub", "true"]).out
    assert "network    none" in lab.run(["--explain", "--config", "sub/agentkernel.toml", "true"]).out
    r = lab.run(["--config", "nothing.toml", "true"])
    assert r.code == 2 and "nothing.toml" in r.err, r


def test_what_widens_needs_trust_in_exactly_this_content(any_user):
    lab = any_user
    write(lab, OK + '[env]\nA = "from the file"\nSECRET = true\n')
    env = {"SECRET": "hunter2"}
    r = lab.run(["env"], env=env)
    assert r.code == 2 and r.out == "", r
    for line in ('agentkernel.toml:2: [agent] compatibility_mode = "codex"', 'agentkernel.toml:4: [network] allow = "ok.test"',
                 'agentkernel.toml:6: [env] A = "from the file"', "agentkernel.toml:7: [env] SECRET = true", "agentkernel trust '%s'" % lab.path("project", "agentkernel.toml")):
        assert line in r.err, (line, r)
    r = lab.ak(["trust"], env=env)
    assert r.code == 2 and "--yes" in r.err, r
    assert lab.ak(["trust", "--yes"], env=env).code == 0
    r = lab.run(["env"], env=env)
    assert r.code == 0 and "A=from the file\n" in r.out and "SECRET=hunter2" in r.out and "AGENTKERNEL_MODE=codex" in r.out, r
    got = lab.probe([], [["resolve", "ok.test"], ["resolve", "evil.test"]], env=env)
    assert "ok" in got[0] and "err" in got[1], got
    write(lab, OK + '[env]\nA = "another"\nSECRET = true\n')
    r = lab.run(["env"], env=env)
    assert r.code == 2 and '- A = "from the file"' in r.err and '+ A = "another"' in r.err and "changed since you trusted it" in r.err, r
    rows = json.loads(lab.ak(["trust", "--list", "--json"], env=env).out)
    assert [(row["path"], row["status"]) for row in rows] == [(lab.path("project", "agentkernel.toml"), "changed")]
    write(lab, OK + '[env]\nA = "from the file"\nSECRET = true\n')
    assert lab.run(["true"], env=env).code == 0
    assert "trusted" in lab.ak(["trust", "--list"], env=env).out
    r = lab.ak(["trust", "--revoke"])
    assert r.code == 0 and r.out == "no longer trusted: %s\n" % lab.path("project", "agentkernel.toml") and lab.run(["true"], env=env).code == 2
    r = lab.ak(["trust", "--revoke"])
    assert r.code == 1 and "was not trusted" in r.err, r


def test_mounts_ports_and_groups_of_a_trusted_file_count(any_user):
    lab = any_user
    os.makedirs(lab.path("home", "data"), exist_ok=True)
    with open(lab.path("home", "data", "given"), "w") as f:
        f.write("from the host")
    for path in (lab.path("home"), lab.path("home", "data")):
        os.chmod(path, 0o755)
    write(lab, '[[mounts]]\nsource = "~/data"\ntarget = "/data"\n[publish]\nports = ["0:80"]\n[network]\ngroups = ["source-hosting"]\n'
          '[agent]\ncompatibility_mode = "codex"\n')
    r = lab.run(["cat", "/data/given"])
    assert r.code == 2, r
    for line in ("agentkernel.toml:1: [[mounts]] = ", '[publish] ports = "0:80"', '[network] groups = "source-hosting"'):
        assert line in r.err, (line, r)
    assert lab.ak(["trust", "--yes"]).code == 0
    r = lab.run(["sh", "-c", "cat /data/given; touch /data/x"])
    assert r.out == "from the host" and r.code != 0 and "published" in r.err or "127.0.0.1:" in r.err, r
    r = lab.run(["--explain", "true"])
    assert "/data" in r.out and "github.com" in r.out and "[publish] ports" in r.out, r


def test_options_that_replace_what_widens_need_no_trust(lab):
    write(lab, '[agent]\ncompatibility_mode = "codex"\n[security]\nprofile = "permissive"\n[env]\nA = "file"\n')
    r = lab.run(["--compatibility-mode", "native", "--profile", "moderate", "-e", "A=option", "sh", "-c", "echo $A $AGENTKERNEL_MODE"])
    assert r.code == 0 and r.out == "option native\n", r


def on_terminal(lab, args, answer, **kw):
    """Run ARGS on a terminal, ANSWER its question; the exit code and what the terminal showed."""
    master, slave = pty.openpty()
    os.set_blocking(master, False)
    proc = lab.spawn([lab.binary, *args], env=lab.env(), tty=slave, **kw)
    os.close(slave)
    seen = b""

    def read():
        nonlocal seen
        with contextlib.suppress(BlockingIOError, OSError):
            while True:
                seen += os.read(master, 4096)
    try:
        wait_for(lambda: read() or b"[y/N]" in seen)
        os.write(master, answer)
        code = proc.wait().code
        read()
    finally:
        os.close(master)
    return code, seen.decode()


def test_on_a_terminal_forgetting_a_folder_is_asked_about(any_user):
    lab = any_user
    assert lab.run(["--compatibility-mode", "codex", "true"]).code == 0
    listed = lab.ak(["trust", "--written"]).out
    assert listed == lab.path("project") + "\n"
    code, seen = on_terminal(lab, ["trust", "--forget", "."], b"\n")
    assert code == 1 and "could write in " + lab.path("project") in seen and lab.ak(["trust", "--written"]).out == listed, seen
    code, seen = on_terminal(lab, ["trust", "--forget", "."], b"y\n")
    assert code == 0 and "forgot " + lab.path("project") in seen and lab.ak(["trust", "--written"]).out == "", seen


def test_on_a_terminal_the_lines_are_shown_and_asked_about(any_user):
    lab = any_user
    write(lab, OK)
    code, seen = on_terminal(lab, ["run", "true"], b"\n")
    assert code == 2 and '[network] allow = "ok.test"' in seen, seen
    assert lab.run(["true"]).code == 2
    code, seen = on_terminal(lab, ["run", "sh", "-c", "echo $AGENTKERNEL_MODE"], b"y\n")
    assert code == 0 and "\ncodex" in seen.replace("\r", ""), seen
    assert lab.run(["true"]).code == 0
    write(lab, OK + "# more\n")
    code, seen = on_terminal(lab, ["trust"], b"y\n")
    assert code == 0 and "+ # more" in seen, seen
    assert lab.run(["true"]).code == 0


def test_a_file_of_the_configuration_folder_needs_no_trust(lab):
    os.makedirs(lab.path("config", "agentkernel"), exist_ok=True)
    path = lab.path("config", "agentkernel", "mine.toml")
    with open(path, "w") as f:
        f.write(OK)
    r = lab.run(["--config", path, "sh", "-c", "echo $AGENTKERNEL_MODE"])
    assert r.code == 0 and r.out == "codex\n", r
    copy = lab.path("project", "mine.toml")
    with open(copy, "w") as f:
        f.write(OK)
    assert lab.run(["--config", copy, "true"]).code == 2
    assert lab.ak(["trust", "--yes", copy]).code == 0 and lab.run(["--config", copy, "true"]).code == 0


def test_create_fixes_what_the_file_says(boxes):
    b, lab = boxes, boxes.lab
    write(lab, '[sandbox]\nname = "from-file"\n[resources]\nmemory_mb = 200\n[network]\ndeny = ["ok.test"]\n')
    r = lab.ak(["create"])
    assert r.code == 0 and r.out == "from-file\n", r
    info = json.loads(lab.ak(["list", "--json"]).out)[0]
    assert info["name"] == "from-file" and info["memory_mb"] == 200, info
    assert "ok.test" in lab.ak(["network", "policy", "from-file"]).out
    write(lab, "")
    r = lab.ak(["create"])
    assert r.code == 2 and "no name given" in r.err, r
    write(lab, OK)
    r = lab.ak(["create", "other"])
    assert r.code == 2 and "agentkernel trust" in r.err, r
    assert lab.ak(["trust", "--yes"]).code == 0 and lab.ak(["create", "other"]).code == 0
    assert [row["mode"] for row in json.loads(lab.ak(["list", "--json"]).out) if row["name"] == "other"] == ["codex"]


def test_http_honours_it_for_the_project_of_the_request(lab):
    project = lab.path("project")
    write(lab, "[security]\nnetwork = false\n")
    with http(lab) as api:
        run = dict(compatibility_mode="codex", cwd=project)
        assert api.run("grep", "-c", ":", "/proc/net/dev", **run)["output"] == "1\n"
        assert api.run("grep", "-c", ":", "/proc/net/dev")["output"] != "1\n"  # no project
        write(lab, OK)
        api.post("/run", dict(command=["true"], **run)).refused(400, "agentkernel trust")
        api.post("/sandboxes", dict(name="x", dir=project)).refused(400, "agentkernel trust")
        assert lab.ak(["trust", "--yes"]).code == 0
        assert api.run("getent", "hosts", "ok.test", **run)["exit_code"] == 0
        write(lab, "[security]\nprofle = 1\n")
        api.post("/run", dict(command=["true"], **run)).refused(400, "agentkernel.toml:2:1")


def test_mcp_honours_it_within_the_limits_of_the_server(lab):
    write(lab, "[security]\nnetwork = false\n")
    with mcp(lab, "--compatibility-mode", "codex") as m:
        assert m.good("sandbox_run", command=["grep", "-c", ":", "/proc/net/dev"])[0]["stdout"] == "1\n"
        write(lab, '[security]\nprofile = "permissive"\n[agent]\ncompatibility_mode = "native"\n[network]\nallow = ["ok.test"]\n[env]\nA = "file"\n')
        assert "agentkernel trust" in m.bad("sandbox_run", command=["true"])
        assert "agentkernel trust" in m.bad("sandbox_create", name="x")
        assert lab.ak(["trust", "--yes"]).code == 0
        got = m.good("sandbox_run", command=["sh", "-c", "echo $AGENTKERNEL_MODE $A $XDG_STATE_HOME; getent hosts ok.test >/dev/null && echo there"])[0]
        assert got["stdout"] == "codex file\nthere\n", got
    with mcp(lab) as m:
        write(lab, '[agent]\ncompatibility_mode = "gemini"\n')
        assert lab.ak(["trust", "--yes"]).code == 0
        assert m.good("sandbox_run", command=["sh", "-c", "echo $AGENTKERNEL_MODE"])[0]["stdout"] == "gemini\n"


def test_the_daemon_keeps_as_many_ready_as_the_trusted_file_says(boxes):
    b, lab = boxes, boxes.lab
    write(lab, "[daemon]\nmin_warm = 0\nmax_warm = 4\n[daemon.agents.codex]\nmin_warm = 1\nruntime = 'python'\n")
    r = lab.ak(["daemon", "start"])
    assert r.code == 2 and "agentkernel trust" in r.err, r
    assert lab.ak(["trust", "--yes"]).code == 0
    b.ak("daemon", "start")

    def pool():
        return {row["mode"]: row for row in json.loads(lab.ak(["daemon", "status", "--json"]).out)["pool"]}
    wait_for(lambda: pool()["codex"]["warm"] == 1)
    rows = pool()
    assert (rows["codex"]["min"], rows["codex"]["max"], rows["claude"]["min"], rows["claude"]["max"]) == (1, 4, 0, 4), rows


def test_without_a_command_the_preferred_agent_starts(lab):
    write(lab, '[agent]\npreferred = "gemini"\n')
    r = lab.run([])
    assert r.code == 2 and '[agent] preferred = "gemini"' in r.err, r
    assert lab.run(["true"]).code == 0
    assert lab.ak(["trust", "--yes"]).code == 0
    r = lab.run(["--explain"])
    assert r.code == 0 and r.out.startswith("command    gemini\n") and "mode       gemini" in r.out, r


def test_init_writes_a_file_that_loads_and_says_what_it_found(any_user):
    lab = any_user
    with open(lab.path("project", "go.mod"), "w") as f:
        f.write("module x\n")
    assert lab.ak(["init"]).code == 0
    with open(lab.path("project", "agentkernel.toml")) as f:
        text = f.read()
    assert 'base_image = "golang:1.23-alpine"' in text and "go.mod" in text and "@" not in text, text
    assert lab.run(["true"]).code == 0
    r = lab.ak(["trust", "--yes"])
    assert r.code == 0 and "asks for nothing" in r.out, r
