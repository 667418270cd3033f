"""Programs that lie in the user's home, and the memory of agents: what is brought in, and what is not."""
import json
import os
import re
import shutil
import stat

import pytest

from homes import Build, Home
from lab import PATH, wait_for
from screen import Screen


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


# Where tool managers put programs: files and links below the home (%H stands for it), the entries of PATH, and the command. SHOW is the program itself; what is
# called exec hands over to it, as shims do.
SHOW = '#!/bin/sh\necho "found $*"; find %H -name secret\n'
FNM, MISE, UV = ".local/share/fnm/node-versions/v22.0.0/installation", ".local/share/mise", ".local/share/uv"
LAYOUTS = {
    "fnm": ({FNM + "/bin/node": SHOW}, {".local/state/fnm_multishells/77": "%H/" + FNM}, [".local/state/fnm_multishells/77/bin"], "node"),
    "volta": ({".volta/bin/volta-shim": '#!/bin/sh\nexec %H/.volta/tools/image/node/22.0.0/bin/node "$@"\n', ".volta/tools/image/node/22.0.0/bin/node": SHOW},
              {".volta/bin/node": "volta-shim"}, [".volta/bin"], "node"),
    "asdf": ({".asdf/shims/node": '#!/usr/bin/env bash\n# asdf-plugin: nodejs 22.0.0\nexec asdf exec "node" "$@"', ".asdf/installs/nodejs/22.0.0/bin/node": SHOW,
              "bin/asdf": '#!/bin/sh\nname=$2; shift 2; exec "%H/.asdf/installs/$(sed "s, ,/," %H/.tool-versions)/bin/$name" "$@"\n', ".tool-versions": "nodejs 22.0.0\n"},
             {}, [".asdf/shims", "bin"], "node"),
    "asdf of old": ({".asdf/shims/node": '#!/usr/bin/env bash\nexec %H/.asdf/bin/asdf exec "node" "$@"\n', ".asdf/installs/nodejs/22.0.0/bin/node": SHOW,
                     ".asdf/bin/asdf": '#!/bin/sh\nshift 2; exec %H/.asdf/installs/nodejs/22.0.0/bin/node "$@"\n'}, {}, [".asdf/shims"], "node"),
    "mise": ({MISE + "/installs/node/22.0.0/bin/node": SHOW}, {MISE + "/installs/node/22": "./22.0.0"}, [MISE + "/installs/node/22/bin"], "node"),
    "~/.local/bin": ({".local/bin/tool": SHOW}, {}, [".local/bin"], "tool"),
    "pipx": ({".local/share/pipx/venvs/tool/bin/tool": "#!%H/.local/share/pipx/venvs/tool/bin/python\nimport os, sys, tool\n", ".local/share/pipx/venvs/tool/pyvenv.cfg": "home = /usr/bin\n",
              ".local/share/pipx/venvs/tool/bin/tool.py": "import os, sys\nprint('found', *sys.argv[1:], flush=True)\nos.execvp('find', ['find', '%H', '-name', 'secret'])\n"},
             {".local/share/pipx/venvs/tool/bin/python": "/usr/bin/python3", ".local/bin/tool": "%H/.local/share/pipx/venvs/tool/bin/tool"}, [".local/bin"], "tool"),
    "uv tool": ({UV + "/tools/tool/bin/tool": "#!%H/" + UV + "/tools/tool/bin/python\n", UV + "/python/cpython-3.13.1-linux/bin/python3.13": '#!/bin/sh\nshift; echo "found $*"; find %H -name secret\n'},
                {UV + "/tools/tool/bin/python": "%H/" + UV + "/python/cpython-3.13-linux/bin/python3.13", UV + "/python/cpython-3.13-linux": "cpython-3.13.1-linux",
                 ".local/bin/tool": "%H/" + UV + "/tools/tool/bin/tool"}, [".local/bin"], "tool"),
    "cargo": ({".cargo/bin/tool": SHOW, ".cargo/credentials.toml": "secret\n"}, {}, [".cargo/bin"], "tool"),
    "go": ({"go/bin/tool": SHOW}, {}, ["go/bin"], "tool"),
    "go itself": ({"sdk/go1.25/bin/go": '#!/bin/sh\nexec %H/sdk/go1.25/pkg/tool/show "$@"\n', "sdk/go1.25/pkg/tool/show": SHOW}, {}, ["sdk/go1.25/bin"], "go"),
    "bun": ({".bun/bin/bun": SHOW.replace("echo", "shift; echo"), ".bun/install/global/node_modules/tool/cli.js": "#!/usr/bin/env bun\n"},
            {".bun/bin/tool": "../install/global/node_modules/tool/cli.js"}, [".bun/bin"], "tool"),
    "deno": ({".deno/bin/deno": SHOW.replace("echo", "shift 3; echo"), ".deno/bin/tool": "#!/bin/sh\n# generated by deno install\nexec deno run --no-config 'npm:tool' \"$@\"\n"},
             {}, [".deno/bin"], "tool"),
    "pnpm": ({".local/share/pnpm/tool": '#!/bin/sh\nbasedir=$(dirname "$0")\nif [ -x "$basedir/node" ]; then\n  exec "$basedir/node" x "$@"\nelse\n  exec node x "$@"\nfi\n',
              "bin/node": SHOW.replace("echo", "shift; echo")}, {}, [".local/share/pnpm", "bin"], "tool"),
    "SDKMAN": ({".sdkman/candidates/java/25-tem/bin/java": SHOW}, {".sdkman/candidates/java/current": "25-tem"}, [".sdkman/candidates/java/current/bin"], "java"),
    "Homebrew": ({".linuxbrew/Cellar/tool/1.7/bin/tool": SHOW}, {".linuxbrew/bin/tool": "../Cellar/tool/1.7/bin/tool"}, [".linuxbrew/bin"], "tool"),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_program_of_a_tool_manager_runs_and_sees_nothing_else_of_the_home(home, layout):
    files, links, path, command = LAYOUTS[layout]
    for place in ("", ".config/", ".local/share/", ".local/share/other/"):
        home.program(place + "secret", "no\n", 0o644)
    for name, text in files.items():
        home.program(name, text.replace("%H", home.path()))
    for name, target in links.items():
        home.link(name, target.replace("%H", home.path()))
    r = home.run("--", command, "a", "b", path=path)
    assert (r.code, r.out, r.err) == (0, "found a b\n", ""), r


def test_a_shim_of_mise_finds_the_versions_that_the_user_chose_and_no_other_setting(home):
    """mise itself is a script here that does what mise does: the versions of the system's file, then the program below installs."""
    home.program(MISE + "/installs/node/22.0.0/bin/node", SHOW.replace("%H", home.path()))
    home.program(".local/bin/mise", '#!/bin/sh\ncat /etc/mise/config.toml\nexec %s/installs/node/22.0.0/bin/node "$@"\n' % home.path(MISE))
    home.link(MISE + "/shims/node", home.path(".local/bin/mise"))
    os.makedirs(home.lab.path("config", "mise"))
    with open(home.lab.path("config", "mise", "config.toml"), "w") as f:
        f.write('[env]\nTOKEN = "s3cret"\n[tools]\nnode = "22.0.0" # mine\n"npm:@a/b" = ["1", \'2\']\n  go="1.25"\n'
                'x = { version = "1", token = "s3cret" }\ny = "https://me:s3cret@host/"\n"cargo:https://me:s3cret@host/x" = "tag:v1"\n[settings]\nz = "s3cret"\n')
    home.program(".config/secret", "no\n", 0o644)
    want = '[tools]\nnode = "22.0.0"\n"npm:@a/b" = ["1", \'2\']\ngo="1.25"\n'
    for path in ([MISE + "/shims"], [MISE + "/shims", ".local/bin"]):
        r = home.run("--", "node", "a", path=path)
        assert (r.code, r.out, r.err) == (0, want + "found a\n", ""), r
    home.program("bin/tool", "#!/usr/bin/env node\n")
    r = home.run("--explain", "--", "tool", path=["bin", MISE + "/shims"])
    assert "fi  /etc/mise/config.toml\n      the versions that you chose with mise, and nothing else of its configuration\n" in r.out, r
    assert home.run("--", "test", "!", "-e", "/etc/mise", path=[MISE + "/shims"]).code == 0


def test_a_script_of_a_sandbox_brings_in_nothing_that_it_hands_over_to(home):
    lab = home.lab
    home.program("private/tool", "#!/bin/sh\necho private\n")
    os.makedirs(lab.path("project", "bin"), exist_ok=True)
    for name, line in (("by-name", "exec tool"), ("by-path", "exec " + home.path("private/tool"))):
        with open(lab.path("project", "bin", name), "w") as f:
            f.write("#!/bin/sh\n%s\n" % line)
        os.chmod(lab.path("project", "bin", name), 0o755)
        r = home.run("--", name, path=[lab.path("project", "bin"), "private"], cwd=lab.path("project"))
        assert r.code == 127 and "private" not in r.out, r
    home.program(".ssh/tool", "#!/bin/sh\necho stolen\n")
    home.program("bin/mine", "#!/bin/sh\nexec %s\n" % home.path(".ssh/tool"))
    r = home.run("--", "mine", path=["bin"])
    assert r.code == 127 and "stolen" not in r.out, r


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


def test_an_agent_that_is_not_installed_is_told_with_its_install_command(home):
    if shutil.which("gemini", path=PATH):
        pytest.skip("Gemini CLI is installed for all users")
    with open(home.lab.path("project", "package.json"), "w") as f:
        f.write("{}")  # an image of Node.js would not have it either
    for args in (["gemini"], ["run", "-m", "gemini"], ["run", "--", "gemini"]):
        r = home.lab.ak(args, env={"PATH": "/usr/bin:/bin"})
        assert r.code == 127 and "Gemini CLI is not on your PATH; install it with: npm install -g @google/gemini-cli\n" in r.err, r


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
    assert rows["gemini"]["version"] is None and rows["gemini"]["inside"].startswith("fails: "), r
    assert rows["codex"]["missing"] == "sign in: agentkernel codex", r
    for name in ("claude", "opencode"):
        if not rows[name]["installed"]:
            assert rows[name]["missing"].startswith("install: npm install -g ") and "inside" not in rows[name], r
    assert "agentkernel-check" not in "".join(os.listdir(home.lab.path("tmp")))


@pytest.mark.parametrize("agent,file", [("claude", ".claude/.credentials.json"), ("codex", ".codex/auth.json"), ("gemini", ".gemini/oauth_creds.json"),
                                        ("opencode", ".local/share/opencode/auth.json")])
def test_agents_asks_for_a_sign_in_until_there_is_one_inside(home, agent, file):
    fake_agent(home, agent, 'test "$1" = login && echo x >~/%s' % file)
    env = {"PATH": home.path(".local/bin") + ":/usr/bin:/bin"}

    def missing_now():
        return {row["command"]: row["missing"] for row in home.lab.ak(["agents", "--json"], env=env).json()}[agent]
    key = {"codex": "OPENAI_API_KEY", "gemini": "GEMINI_API_KEY"}.get(agent, "ANTHROPIC_API_KEY")
    use = "printenv OPENAI_API_KEY | agentkernel codex login --with-api-key" if agent == "codex" else "agentkernel run -m %s --pass-api-key" % agent
    r = home.lab.ak(["agents"], env=dict(env, **{key: "s3cret"}))
    assert "  use the key: %s\n" % use in r.out and "sign in: agentkernel %s\n" % agent not in r.out and "s3cret" not in r.out, r
    home.lab.ak([agent, "--version"], env=env)
    assert missing_now() == "sign in: agentkernel " + agent
    assert home.lab.ak([agent, "login"], env=env).code == 0
    assert missing_now() is None


def test_the_hosts_memory_is_imported_once_and_reset_forgets_it(home):
    lab = home.lab
    fake_agent(home, "claude", 'cat "$CLAUDE_CONFIG_DIR/.claude.json" "$CLAUDE_CONFIG_DIR/settings"')
    home.program(".claude.json", "one ", 0o600)
    home.program(".claude/settings", "two\n", 0o600)
    r = lab.ak(["agents", "import", "claude", "--yes"])
    assert r.code == 0 and "  ~/.claude.json " in r.out and "    settings " in r.out and "2 files copied" in r.err, r
    assert home.run("--", "claude", path=[".local/bin"], mode="claude").out == "one two\n"
    again = lab.ak(["agents", "import", "claude", "--yes"])
    assert again.code == 1 and "agents reset claude" in again.err, again
    assert lab.ak(["agents", "reset", "claude", "--yes"]).code == 0
    assert home.run("--", "claude", path=[".local/bin"], mode="claude").code == 1
    assert os.path.exists(home.path(".claude.json")) and os.path.exists(home.path(".claude/settings"))


def test_what_is_imported_or_forgotten_is_listed_before_and_nothing_happens_without_consent(home):
    lab = home.lab
    home.program(".claude/.credentials.json", "k" * 2048, 0o600)
    for i in range(30):
        home.program(".claude/projects/p%d/session" % i, "s" * 1024, 0o600)
    home.program(".claude/line\n  more", "x", 0o600)
    home.link(".claude/out", "/etc/passwd")
    state = lab.path("state", "agentkernel", "agents", "claude")
    r = lab.ak(["agents", "import", "claude"])
    assert r.code == 2 and "--yes" in r.err and "out' is a link that leads out of the folder; left out" in r.err and not os.path.exists(state), r
    lines = [re.split(r" {2,}", line) for line in r.out.splitlines()[1:]]
    assert lines == [["", "~/.claude", "32 files, 32K"], ["", ".credentials.json", "2.0K"], ["", "line\\x0a", "more", "1 byte"], ["", "projects/", "30 files, 30K"]], r
    for answer, code, kept in ((b"\n", 1, False), (b"y\n", 0, True)):
        screen = Screen(lab, ["agents", "import", "claude"])
        screen.until(rb"copy these\? \[y/N\] ")
        assert not os.path.exists(state)
        screen.type(answer)
        assert screen.end().code == code and os.path.exists(state) == kept
    r = lab.ak(["agents", "reset", "claude"])
    assert r.code == 2 and "--yes" in r.err and "    shared/ " in r.out and " 32 files, 32K\n" in r.out and os.path.exists(state), r
    screen = Screen(lab, ["agents", "reset", "claude"])
    screen.until(rb"remove these\? \[y/N\] ")
    screen.type(b"y\n")
    assert screen.end().code == 0 and not os.path.exists(state)


def test_a_long_list_of_files_is_cut_and_summed_up(home):
    for i in range(40):
        home.program(".codex/file%02d" % i, "s" * 1024, 0o600)
    r = home.lab.ak(["agents", "import", "codex", "--yes"])
    names = [line.split()[0] for line in r.out.splitlines()[2:]]
    assert r.code == 0 and names == ["file%02d" % i for i in range(12)] + ["others"] and r.out.endswith(" 28 files, 28K\n"), r


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
    r = home.run("--dir", any_boxes.lab.path("home", "bin"), "--allow-broad-dir", "--tool", "prog", "--", "sh", "-c", "cat %s" % home.path("private/liba.so.1"), path=["bin"])
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
