"""Programs that lie in the user's home, and the memory of agents: what is brought in, and what is not."""
import json
import os
import re
import shutil
import stat

import pytest

from homes import Build, Home
from lab import PATH, wait_for


@pytest.fixture
def home(any_user):
    return Home(any_user)


def test_a_program_of_an_npm_prefix_runs_with_its_package_and_nothing_beside_it(home):
    home.program(".npm/lib/node_modules/@a/tool/cli.sh", '#!/usr/bin/env bash\ncat "$(dirname "$(readlink -f "$0")")/data"; echo "$@"\n')
    home.program(".npm/lib/node_modules/@a/tool/data", "mine\n", 0o644)
    home.program(".npm/lib/node_modules/other/secret", "no\n", 0o644)
    home.program(".npmrc", "//registry/:_authToken=secret\n", 0o600)
    home.link(".npm/bin/tool", "../lib/node_modules/@a/tool/cli.sh")
    r = home.run("--", "tool", "a", "--b", path=[".npm/bin"])
    assert (r.code, r.out) == (0, "mine\na --b\n"), r
    script = "cd %s; echo $PATH; ls -A; ls .npm/lib/node_modules; touch .npm/lib/node_modules/@a/tool/x" % home.path()
    home.program(".npm/lib/node_modules/@a/tool/cli.sh", "#!/bin/sh\n" + script + "\n")
    r = home.run("--", "tool", path=[".other/bin", ".npm/bin"])
    lines = r.out.split("\n")
    assert lines[0].startswith(home.path(".npm/bin") + ":") and ".other" not in lines[0], r
    assert ".npmrc" not in lines and "other" not in lines and "@a" in lines, r
    assert "Read-only file system" in r.err and r.code == 1, r


def test_the_interpreter_comes_with_its_tool_chain(home):
    home.program(".nvm/versions/node/v9.9.9/bin/node", '#!/bin/sh\necho "node $(cat "$(dirname "$0")/../lib/marker") $1"\n')
    home.program(".nvm/versions/node/v9.9.9/lib/marker", "9\n", 0o644)
    home.program(".nvm/versions/node/v8.8.8/lib/marker", "8\n", 0o644)
    tool = home.program(".local/bin/tool", "#!/usr/bin/env node\n")
    r = home.run("--", "tool", path=[".local/bin", ".nvm/versions/node/v9.9.9/bin"])
    assert (r.code, r.out) == (0, "node 9 %s\n" % tool), r
    r = home.run("--", "node", "-", path=[".nvm/versions/node/v9.9.9/bin"])
    assert r.out == "node 9 -\n", r


def test_a_warm_sandbox_runs_it_as_well(any_boxes):
    home = Home(any_boxes.lab)
    home.program(".npm/lib/node_modules/tool/cli.sh", "#!/bin/sh\necho warm; ls -A %s\n" % home.path(".npm"))
    home.link(".npm/bin/tool", "../lib/node_modules/tool/cli.sh")
    any_boxes.ak("daemon", "prewarm", "--mode", "codex")
    r = home.run("--", "tool", path=[".npm/bin"])
    assert (r.code, sorted(r.out.split())) == (0, ["bin", "lib", "warm"]), r
    pool = [row for row in any_boxes.status()["pool"] if row["mode"] == "codex"]
    assert pool[0]["hits"] == 1, pool
    starts = [json.loads(line) for line in any_boxes.ak("audit", "--json").out.splitlines() if '"run_start"' in line]
    assert starts[-1]["mounts"] == [home.path(".npm/lib/node_modules/tool"), home.path(".npm/bin/tool")], starts


def test_keys_are_not_brought_in(home):
    home.program(".ssh/helper", "#!/bin/sh\necho stolen\n")
    home.link("bin/helper", "../.ssh/helper")
    r = home.run("--", "helper", path=["bin"])
    assert r.code == 127 and "stolen" not in r.out, r


def test_what_a_sandbox_may_have_written_is_not_followed_out_of_the_project(home):
    """A link in the project, on a PATH that leads into it, to a program of the user: the program stays outside."""
    lab = home.lab
    home.program("private/tool", "#!/bin/sh\necho private\n")
    os.makedirs(lab.path("project", "bin"), exist_ok=True)
    os.symlink(home.path("private/tool"), lab.path("project", "bin", "agent"))
    with open(lab.path("project", "bin", "a-script"), "w") as f:
        f.write("#!%s\n" % home.path("private/tool"))
    os.chmod(lab.path("project", "bin", "a-script"), 0o755)
    for command in ("agent", "a-script"):
        r = home.run("--", command, path=[lab.path("project", "bin")], cwd=lab.path("project"))
        assert r.code in (126, 127) and "private" not in r.out, r
    assert home.run("--", "tool", path=["private"]).out == "private\n"


def test_a_socket_beside_a_tool_leads_nowhere(home):
    """The folder is seen through an overlay: its sockets have no one behind them."""
    import socket
    home.program(".volta/bin/tool", "#!/usr/bin/python3\nimport socket, os\ns = socket.socket(socket.AF_UNIX)\n"
                 "try:\n    s.connect('%s')\n    print('connected')\nexcept OSError as e:\n    print(e.strerror)\n" % home.path(".volta/s"))
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(home.path(".volta/s"))
        os.chmod(home.path(".volta/s"), 0o777)
        s.listen(8)
        r = home.run("--", "tool", path=[".volta/bin"])
    assert r.code == 0 and r.out in ("Connection refused\n", "No such file or directory\n"), r


# ---- agents ----


def fake_agent(home, name, text):
    return home.program(".local/bin/" + name, "#!/bin/sh\n" + text + "\n")


def test_an_agents_memory_is_kept_and_apart_from_the_hosts(home):
    fake_agent(home, "codex", "cat ~/.codex/auth 2>/dev/null; echo told >~/.codex/auth")
    home.program(".codex/auth", "the host's\n", 0o600)
    first, second = (home.run("--", "codex", path=[".local/bin"]) for _ in range(2))
    assert (first.code, first.out) == (0, "") and second.out == "told\n", (first, second)
    with open(home.path(".codex/auth")) as f:
        assert f.read() == "the host's\n"
    other = home.run("--", "sh", "-c", "ls -A ~", path=[".local/bin"])
    assert ".codex" not in other.out.split(), other
    none = home.run("--agent-state", "none", "--", "codex", path=[".local/bin"])
    assert "told" not in none.out, none


def test_a_project_may_have_a_memory_of_its_own(home):
    lab = home.lab
    fake_agent(home, "codex", "cat ~/.codex/auth 2>/dev/null; pwd >~/.codex/auth")
    os.makedirs(lab.path("project", "two"), exist_ok=True)
    for folder in (lab.path("project"), lab.path("project", "two")):
        r = home.run("--agent-state", "project", "--dir", folder, "--", "codex", path=[".local/bin"])
        assert (r.code, r.out) == (0, ""), r
    r = home.run("--agent-state", "project", "--dir", lab.path("project"), "--", "codex", path=[".local/bin"])
    assert r.out == lab.path("project") + "\n", r


@pytest.mark.parametrize("agent,folder", [("claude", ".claude"), ("gemini", ".gemini"), ("opencode", ".local/share/opencode")])
def test_an_agent_by_its_name_gets_all_that_follows(home, agent, folder):
    fake_agent(home, agent, 'echo "$AGENTKERNEL_MODE $*"; echo x >~/%s/file' % folder)
    env = {"PATH": home.path(".local/bin") + ":" + PATH}
    r = home.lab.ak([agent, "--help", "-x", "--", "a b"], env=env)
    assert (r.code, r.out) == (0, "%s --help -x -- a b\n" % agent), r
    r = home.run(path=[".local/bin"], mode=agent)
    assert (r.code, r.out) == (0, agent + " \n"), r


def test_without_a_command_a_mode_without_an_agent_asks_for_one(home):
    r = home.run(path=[], mode="native")
    assert r.code == 2 and "no command given" in r.err, r


def test_explain_tells_everything_and_runs_nothing(home):
    fake_agent(home, "codex", "echo ran >~/.codex/ran; echo ran")
    r = home.run("--explain", "-e", "TOKEN=hidden", "--allow-host", "more.test", "--", "codex", path=[".local/bin"])
    assert r.code == 0 and "ran" not in r.out.split() and "hidden" not in r.out, r
    for part in (home.path(".local/bin/codex"), "~/.codex".replace("~", ""), "TOKEN=…", "--allow-host more.test", "rw  "):
        assert part in r.out, (part, r)
    assert not os.path.exists(home.lab.path("state", "agentkernel", "runs")) or \
        not [n for n in os.listdir(home.lab.path("state", "agentkernel", "runs")) if n.startswith("run-")]


OWN_SANDBOX = {"codex": ("/etc/codex/config.toml", 'sandbox_mode = "danger-full-access"'),
               "claude": ("/etc/claude-code/managed-settings.json", '{"sandbox":{"enabled":false}}')}


@pytest.mark.parametrize("agent", OWN_SANDBOX)
def test_an_agents_own_sandbox_is_turned_off_by_a_file_that_explain_shows(home, agent):
    path, line = OWN_SANDBOX[agent]
    fake_agent(home, agent, "cat %s" % path)
    for options in ([], ["--agent-state", "none"]):
        r = home.run(*options, "--", agent, path=[".local/bin"], mode=agent)
        assert r.code == 0 and line in r.out.splitlines(), r
    r = home.run("--explain", "--", agent, path=[".local/bin"], mode=agent)
    assert "fi  %s\n      turns off its own sandbox" % path in r.out, r
    assert not os.path.exists(path) or line not in open(path).read()
    assert home.run("--", "cat", path, path=[], mode=agent).code == 1


def test_variables_of_an_agent_have_a_reason_and_those_of_the_user_win(home):
    fake_agent(home, "gemini", 'echo "$SANDBOX"')
    assert home.run("--", "gemini", path=[".local/bin"], mode="gemini").out == "agentkernel\n"
    assert home.run("-e", "SANDBOX=mine", "--", "gemini", path=[".local/bin"], mode="gemini").out == "mine\n"
    r = home.run("--explain", "--", "gemini", path=[".local/bin"], mode="gemini")
    assert "SANDBOX=agentkernel\n      the agent: tells it that it is in a sandbox" in r.out, r


def test_a_persistent_or_warm_sandbox_of_the_mode_has_the_file_as_well(any_boxes):
    home = Home(any_boxes.lab)
    path, line = OWN_SANDBOX["codex"]
    any_boxes.ak("create", "x", "--compatibility-mode", "codex", "--dir", any_boxes.lab.path("project"))
    for _ in range(2):
        any_boxes.ak("start", "x")
        assert line in any_boxes.ak("exec", "x", "cat", path).out
        any_boxes.ak("stop", "x")
    fake_agent(home, "codex", "cat %s" % path)
    any_boxes.ak("daemon", "prewarm", "--mode", "codex")
    assert line in home.run("--", "codex", path=[".local/bin"]).out


def test_authorities_that_the_sandbox_sees_are_named_inside(home):
    env = {"NODE_EXTRA_CA_CERTS": "/etc/ssl/certs/ca-certificates.crt", "SSL_CERT_FILE": home.path("ca.pem"), "PIP_CERT": "/etc/ssl/certs/../private/key",
           "PATH": PATH}
    r = home.lab.run(["--compatibility-mode", "codex", "--", "env"], env=env)
    assert "NODE_EXTRA_CA_CERTS=/etc/ssl/certs/ca-certificates.crt" in r.out.splitlines(), r
    assert "SSL_CERT_FILE" not in r.out and "PIP_CERT" not in r.out, r


def test_the_record_names_what_was_brought_in(home):
    home.program("bin/tool", "#!/bin/sh\n")
    assert home.run("--", "tool", path=["bin"]).code == 0
    r = home.lab.ak(["audit", "--json"])
    starts = [json.loads(line) for line in r.out.splitlines() if '"run_start"' in line]
    assert starts[-1]["mounts"] == [home.path("bin/tool")], starts


def test_what_an_agent_writes_stays_private(home):
    fake_agent(home, "codex", "echo x >~/.codex/auth; chmod 666 ~/.codex/auth")
    assert home.run("--", "codex", path=[".local/bin"]).code == 0
    folder = home.lab.path("state", "agentkernel", "agents", "codex", "shared")
    assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700 and os.path.exists(os.path.join(folder, ".codex", "auth"))


def test_agents_tells_what_is_missing_and_checks_each_in_its_mode(home):
    fake_agent(home, "codex", "echo codex-cli 1.2.3")
    fake_agent(home, "gemini", 'test -z "$AGENTKERNEL_MODE" && echo 4.5.6')
    env = {"PATH": home.path(".local/bin") + ":/usr/bin:/bin"}
    r = home.lab.ak(["agents", "--check", "--json"], env=env)
    rows = {row["command"]: row for row in json.loads(r.out)}
    assert r.code == 1 and rows["codex"]["inside"] == "1.2.3", r
    assert rows["gemini"]["version"] == "4.5.6" and rows["gemini"]["inside"].startswith("fails: "), r
    assert rows["codex"]["missing"] == "sign in: agentkernel codex", r
    for name in ("claude", "opencode"):
        if not rows[name]["installed"]:
            assert rows[name]["missing"].startswith("install: npm install -g ") and "inside" not in rows[name], r
    assert "agentkernel-check" not in "".join(os.listdir(home.lab.path("tmp")))


def test_the_hosts_memory_is_imported_once_and_reset_forgets_it(home):
    lab = home.lab
    fake_agent(home, "claude", 'cat "$CLAUDE_CONFIG_DIR/.claude.json" "$CLAUDE_CONFIG_DIR/settings"')
    home.program(".claude.json", "one ", 0o600)
    home.program(".claude/settings", "two\n", 0o600)
    r = lab.ak(["agents", "import", "claude"])
    assert r.code == 0 and home.path(".claude.json") in r.err and "2 files copied" in r.err, r
    assert home.run("--", "claude", path=[".local/bin"], mode="claude").out == "one two\n"
    again = lab.ak(["agents", "import", "claude"])
    assert again.code == 1 and "agents reset claude" in again.err, again
    assert lab.ak(["agents", "reset", "claude"]).code == 0
    assert home.run("--", "claude", path=[".local/bin"], mode="claude").code == 1
    assert os.path.exists(home.path(".claude.json")) and os.path.exists(home.path(".claude/settings"))


def test_an_agent_that_nobody_knows_is_refused(home):
    for verb in ("import", "reset"):
        r = home.lab.ak(["agents", verb, "gpt"])
        assert r.code == 2 and "unknown agent 'gpt': one of claude, codex, gemini, opencode" in r.err, r


@pytest.mark.parametrize("folder", ["bin", ".git/bin"])
def test_what_another_sandbox_may_have_written_is_not_followed(any_boxes, folder):
    """The project of a persistent sandbox, its .git as well: a link there leads to no program of the user."""
    home = Home(any_boxes.lab)
    other = any_boxes.lab.path("project", "other")
    home.program("private/tool", "#!/bin/sh\necho private\n")
    os.makedirs(os.path.join(other, folder))
    os.makedirs(any_boxes.lab.path("project", "mine"))
    any_boxes.ak("create", "x", "--compatibility-mode", "codex", "--dir", other)
    os.symlink(home.path("private/tool"), os.path.join(other, folder, "agent"))
    r = home.run("--dir", any_boxes.lab.path("project", "mine"), "--", "agent", path=[os.path.join(other, folder)])
    assert r.code == 127 and "private" not in r.out, r


# ---- shared libraries ----

@pytest.fixture
def build(home):
    return Build(home)


A = "int b(void); int a(void) { return b() + 1; }"
B = "int b(void) { return 40; }"
MAIN = '#include <stdio.h>\nint a(void); int main(void) { printf("%d\\n", a() + 1); return 0; }'


@pytest.mark.parametrize("tags", ["--enable-new-dtags", "--disable-new-dtags"], ids=["runpath", "rpath"])
def test_libraries_that_a_program_finds_beside_it_come_in_and_nothing_else(build, tags):
    """By RUNPATH each file has its own path; by RPATH the program's is good for the libraries of its libraries."""
    home, new = build.home, tags == "--enable-new-dtags"
    b = build.library("app/lib/deep/libb.so.1.2", B)
    home.link("app/lib/libb.so.1" if not new else "app/lib/deep/libb.so.1", "deep/libb.so.1.2" if not new else "libb.so.1.2")
    a = build.library("app/lib/liba.so.1", A, b, *(["-Wl,%s,-rpath,$ORIGIN/deep" % tags] if new else []))
    build.make("app/bin/prog", MAIN, a, "-Wl,%s,-rpath,$ORIGIN/../lib" % tags)
    home.program("app/lib/secret", "no\n", 0o644)
    home.link("bin/prog", "../app/bin/prog")
    r = home.run("--", "prog", path=["bin"])
    assert (r.code, r.out) == (0, "42\n"), r
    r = home.run("--tool", "prog", "--", "sh", "-c", "prog; cd %s; find . -type f -o -type l | sort" % home.path("app"), path=["bin"])
    assert r.out.split() == ["42", "./bin/prog", *sorted(["./lib/liba.so.1", "./lib/deep/libb.so.1.2", "./lib/deep/libb.so.1" if new else "./lib/libb.so.1"])], r


def test_a_program_with_many_libraries_gets_their_folder(build):
    home = build.home
    libs = [build.library("app/lib/libn%d.so.1" % i, "int n%d(void) { return 1; }" % i) for i in range(12)]
    text = "#include <stdio.h>\n" + "".join("int n%d(void);" % i for i in range(12)) + 'int main(void) { printf("%d\\n", ' + " + ".join("n%d()" % i for i in range(12)) + "); return 0; }"
    build.make("app/bin/prog", text, *libs, "-Wl,-rpath,$ORIGIN/../lib")
    home.program("app/secret", "no\n", 0o644)
    r = home.run("--tool", "prog", "--", "sh", "-c", "prog; ls %s" % home.path("app"), path=["app/bin"])
    assert (r.code, r.out) == (0, "12\nbin\nlib\n"), r


def test_a_conda_environment_comes_in_as_a_whole(build):
    home = build.home
    build.make("conda/bin/prog", MAIN, build.library("conda/lib/liba.so.1", A, build.library("conda/lib/libb.so.1", B)), "-Wl,--disable-new-dtags,-rpath,$ORIGIN/../lib")
    home.program("conda/conda-meta/history", "", 0o644)
    home.program("conda/share/data", "data\n", 0o644)
    r = home.run("--tool", "prog", "--", "sh", "-c", "prog; cat %s" % home.path("conda/share/data"), path=["conda/bin"])
    assert (r.code, r.out) == (0, "42\ndata\n"), r


def test_the_dynamic_linker_may_lie_elsewhere_too(build):
    """As with a glibc of one's own: the program names its linker by its full path, here through a link."""
    home = build.home
    with open("/proc/self/exe", "rb") as f:
        system = re.search(rb"/[\w./-]*ld-[\w.-]+\.so\.\d", f.read()).group().decode()
    os.makedirs(home.path("glibc/2.0"))
    shutil.copy(os.path.realpath(system), home.path("glibc/2.0/ld.so"))
    home.own(home.path("glibc/2.0/ld.so"))
    home.link("glibc/current", "2.0")
    build.make("app/prog", '#include <stdio.h>\nint main(void) { puts("ran"); return 0; }', "-Wl,--dynamic-linker," + home.path("glibc/current/ld.so"))
    r = home.run("--", "prog", path=["app"])
    assert (r.code, r.out) == (0, "ran\n"), r


def test_libraries_among_keys_or_of_a_sandbox_are_not_brought_in(any_boxes):
    home = Home(any_boxes.lab)
    build, other = Build(home), any_boxes.lab.path("project", "other")
    os.mkdir(other)
    home.own(build.make("key/prog", MAIN, build.library(".ssh/liba.so.1", A, build.library(".ssh/libb.so.1", B)), "-Wl,--disable-new-dtags,-rpath," + home.path(".ssh")))
    r = home.run("--tool", "prog", "--", "sh", "-c", "prog; ls -A " + home.path(), path=["key"])
    assert "42" not in r.out and "liba.so.1" in r.err and ".ssh" not in r.out.split(), r
    home.program("private/liba.so.1", "the user's\n")
    build.make("bin/prog", MAIN, "-Wl,--unresolved-symbols=ignore-all", home.path(".ssh/liba.so.1"), "-Wl,-rpath," + other)
    any_boxes.ak("create", "x", "--compatibility-mode", "codex", "--dir", other)
    os.symlink(home.path("private/liba.so.1"), os.path.join(other, "liba.so.1"))
    r = home.run("--dir", any_boxes.lab.path("home", "bin"), "--tool", "prog", "--", "sh", "-c", "cat %s" % home.path("private/liba.so.1"), path=["bin"])
    assert r.code != 0 and r.out == "", r


# ---- persistent sandboxes ----

def npm_agent(home, name, version):
    home.program(".npm/lib/node_modules/@a/%s/cli.sh" % name, '#!/bin/sh\necho "%s %s $*"\n' % (name, version))
    home.program(".npm/lib/node_modules/other/secret", "no\n", 0o644)
    home.link(".npm/bin/" + name, "../lib/node_modules/@a/%s/cli.sh" % name)


def test_a_persistent_sandbox_has_the_agent_of_its_mode(any_boxes):
    b, home = any_boxes, Home(any_boxes.lab)
    npm_agent(home, "claude", "1.0")
    env = {"PATH": home.path(".npm/bin") + ":" + PATH}
    b.ak("create", "web", "--compatibility-mode", "claude", env=env)
    b.ak("start", "web")
    assert b.out("web", "claude", "--version") == "claude 1.0 --version\n"
    assert b.sh("web", "ls %s" % home.path(".npm/lib/node_modules")) == "@a\n"
    b.ak("stop", "web")
    # A new version, elsewhere: found anew at every start.
    os.unlink(home.path(".npm/bin/claude"))
    home.program("versions/2.0/claude", "#!/bin/sh\necho claude 2.0\n")
    home.link(".npm/bin/claude", home.path("versions/2.0/claude"))
    b.ak("start", "web")
    assert b.out("web", "claude") == "claude 2.0\n"
    b.ak("stop", "web")
    os.unlink(home.path(".npm/bin/claude"))
    b.ak("start", "web")
    assert b.exec("web", "claude").code == 127


def test_a_persistent_sandbox_has_the_tools_that_it_was_created_with(any_boxes):
    b, home = any_boxes, Home(any_boxes.lab)
    home.program("bin/one", "#!/bin/sh\necho one\n")
    home.program("bin/two", "#!/bin/sh\necho two\n")
    env = {"PATH": home.path("bin") + ":" + PATH}
    b.ak("create", "x", "--tool", "one", "--tool", home.path("bin/two"), "--tool", "sh", env=env)
    b.ak("start", "x")
    assert b.sh("x", "one; two; ls " + home.path("bin")) == "one\ntwo\none\ntwo\n"
    r = b.lab.ak(["create", "y", "--tool", "nowhere"], env=env)
    assert r.code != 0 and "'nowhere' is not on your PATH" in r.err, r
    assert b.lab.ak(["create", "y", "--tool", "bin/one"], env=env).code == 2
    b.ak("stop", "x")
    os.unlink(home.path("bin/one"))
    r = b.ak("start", "x")
    assert "'one' is no longer on the PATH" in r.err and b.exec("x", "one").code in (126, 127) and b.out("x", "two") == "two\n", r


def test_a_kept_run_keeps_its_program(any_boxes):
    b, home = any_boxes, Home(any_boxes.lab)
    home.program("bin/tool", "#!/bin/sh\necho tool\n")
    r = home.run("--keep", "--name", "kept", "--", "tool", path=["bin"])
    assert (r.code, r.out) == (0, "tool\n"), r
    b.ak("start", "kept")
    assert b.out("kept", "tool") == "tool\n"


def test_a_run_in_the_background_has_its_program(any_boxes):
    b, home = any_boxes, Home(any_boxes.lab)
    folder = home.path("data")
    home.program("bin/tool", "#!/bin/sh\ncat %s/f; exec sleep 1000\n" % folder)
    home.program("data/f", "mounted\n", 0o644)
    r = home.run("-d", "--name", "back", "--mount", folder, "--", "tool", path=["bin"])
    assert r.code == 0, r
    wait_for(lambda: "mounted" in b.ak("logs", "back").out)
    assert b.sh("back", "command -v tool") == home.path("bin/tool") + "\n"
    b.ak("remove", "--force", "back")


def test_what_the_sandbox_itself_puts_on_the_path_is_not_followed_at_the_next_start(any_boxes):
    b, home = any_boxes, Home(any_boxes.lab)
    home.program("private/data", "#!/bin/sh\necho private\n")
    env = {"PATH": b.lab.path("project", "bin") + ":" + PATH}
    b.ak("create", "x", "--compatibility-mode", "claude", "--dir", b.lab.path("project"), env=env)
    b.ak("start", "x")
    b.sh("x", "mkdir bin; ln -s %s bin/claude" % home.path("private/data"))
    b.ak("stop", "x")
    b.ak("start", "x")
    assert b.exec("x", "claude").code in (126, 127) and b.exec("x", "ls", home.path("private")).code != 0
