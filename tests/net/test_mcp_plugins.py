"""init and agents: files where each client looks, nothing replaced unasked, keys never shown."""
import json
import os
import tomllib

import pytest
from mcp import TOOLS, Mcp

FILES = {
    None: [], "mcp": [".mcp.json"], "claude": [".mcp.json", ".claude/settings.json", ".claude/skills/agentkernel/SKILL.md"], "codex": [".codex/config.toml"],
    "gemini": [".gemini/settings.json"], "opencode": ["opencode.json"],
}


def tree(lab):
    """Files of the project folder, with what they hold."""
    out = {}
    for folder, _, names in os.walk(lab.path("project")):
        for name in names:
            path = os.path.join(folder, name)
            with open(path) as f:
                out[os.path.relpath(path, lab.path("project"))] = f.read()
    return out


def commands(files):
    """The command lines by which clients would start our server."""
    for name, text in files.items():
        if name == "agentkernel.toml" or name.endswith(".md"):
            continue
        data = tomllib.loads(text) if name.endswith(".toml") else json.loads(text)
        for server in (data.get("mcpServers") or data.get("mcp_servers") or {}).values():
            yield [server["command"], *server["args"]]
        for server in data.get("mcp", {}).values():
            assert server["type"] == "local" and server["enabled"] is True
            yield server["command"]


@pytest.mark.parametrize("plugin", FILES)
def test_each_plugin_writes_its_files_and_its_server_starts(any_user, plugin):
    lab = any_user
    args = ["--plugin", plugin] if plugin else []
    dry = lab.ak(["init", "--dry-run", *args])
    assert dry.code == 0 and tree(lab) == {} and not os.listdir(lab.path("project")), dry
    r = lab.ak(["init", *args])
    files = tree(lab)
    assert r.code == 0 and set(files) == {"agentkernel.toml", *FILES[plugin]}, r
    for name, text in files.items():
        assert name in dry.out and text in dry.out
    started = list(commands(files))
    assert len(started) == (1 if plugin else 0)
    for command in started:
        assert command[0] == "agentkernel"
        m = Mcp(lab, command=command[1:])
        m.open()
        assert {t["name"] for t in m.request("tools/list")["result"]["tools"]} == TOOLS
        assert m.close().code == 0
    again = lab.ak(["init", *args])
    assert again.code == 0 and "wrote" not in again.out and tree(lab) == files


def test_the_permission_example_names_tools_that_exist(lab):
    lab.ak(["init", "--plugin", "claude"])
    rules = json.loads(tree(lab)[".claude/settings.json"])["permissions"]
    named = {kind: {rule.removeprefix("mcp__agentkernel__") for rule in rules[kind]} for kind in rules}
    assert named["allow"] == {"sandbox_run", "sandbox_exec", "sandbox_list", "sandbox_file_read", "network_log", "network_check"}
    assert named["ask"] == {"sandbox_file_write", "sandbox_create", "sandbox_remove"} and named["allow"] | named["ask"] <= TOOLS
    skill = tree(lab)[".claude/skills/agentkernel/SKILL.md"]
    head = skill.split("---")[1]
    assert skill.startswith("---\n") and "name: agentkernel" in head and "description: " in head


def test_the_toml_is_toml_and_named_after_the_folder(lab):
    for folder, name in (("plain", "plain"), ("with space & ünï", "with-space"), ("---", "project"), ("x" * 90, "x" * 63)):
        os.mkdir(lab.path("project", folder))
        os.chmod(lab.path("project", folder), 0o777)
        assert lab.ak(["init"], cwd=lab.path("project", folder)).code == 0
        with open(lab.path("project", folder, "agentkernel.toml"), "rb") as f:
            data = tomllib.load(f)
        assert data["sandbox"]["name"].startswith(name) and len(data["sandbox"]["name"]) <= 63, data
        assert data["network"] == {"allow": [], "deny": [], "allow_cidr": [], "deny_cidr": []}


def test_nothing_is_replaced_without_force_and_what_to_add_is_said(lab):
    own = {".mcp.json": '{"mcpServers":{"mine":{"command":"x"}}}', "agentkernel.toml": "# mine\n"}
    for name, text in own.items():
        with open(lab.path("project", name), "w") as f:
            f.write(text)
    r = lab.ak(["init"])
    assert r.code == 1 and "--force" in r.out and tree(lab) == own
    r = lab.ak(["init", "--plugin", "mcp"])
    assert r.code == 1 and '"agentkernel"' in r.out and tree(lab) == own, r
    r = lab.ak(["init", "--plugin", "mcp", "--force", "--dry-run"])
    assert r.code == 0 and "would replace .mcp.json" in r.out and tree(lab) == own
    r = lab.ak(["init", "--plugin", "mcp", "--force"])
    assert r.code == 0 and "agentkernel" in tree(lab)[".mcp.json"] and tree(lab)["agentkernel.toml"] == "# mine\n"
    assert lab.ak(["init", "--force"]).code == 0 and "[sandbox]" in tree(lab)["agentkernel.toml"]


def test_links_do_not_lead_out_of_the_project(lab):
    os.mkdir(lab.path("home", ".claude"))
    os.chmod(lab.path("home", ".claude"), 0o777)
    os.symlink(lab.path("home", ".claude"), lab.path("project", ".claude"))
    r = lab.ak(["init", "--plugin", "claude"])
    assert r.code == 1 and "links are not followed" in r.err and os.listdir(lab.path("home", ".claude")) == [], r
    target = lab.path("home", "victim")
    with open(target, "w") as f:
        f.write("precious")
    os.chmod(target, 0o666)
    os.symlink(target, lab.path("project", "opencode.json"))
    assert lab.ak(["init", "--plugin", "opencode"]).code == 1
    assert lab.ak(["init", "--plugin", "opencode", "--force"]).code == 0
    with open(target) as f:
        assert f.read() == "precious"
    assert not os.path.islink(lab.path("project", "opencode.json"))


def test_a_folder_that_cannot_be_written(lab):
    with lab.acting_as("user"):
        os.chmod(lab.path("project"), 0o555)
        r = lab.ak(["init"])
        os.chmod(lab.path("project"), 0o755)
        assert r.code == 1 and "cannot write" in r.err, r
    assert lab.ak(["init", "--plugin", "emacs"]).code == 2 and lab.ak(["init", "x"]).code == 2


# ---- agents ----
# Only what the tests put there is on the PATH: agents that are installed on this machine are not found.

def script(lab, name, text, folder="bin"):
    os.makedirs(lab.path("project", folder), exist_ok=True)
    path = lab.path("project", folder, name)
    with open(path, "w") as f:
        f.write("#!/bin/sh\n" + text)
    os.chmod(path, 0o755)
    return os.path.dirname(path)


def test_agents_tells_what_is_installed_and_never_a_key(any_user):
    lab = any_user
    folder = script(lab, "gemini", "exit 1\n")
    for name, version in (("claude", "2.1.3"), ("codex", "0.42.0-beta.1")):
        package = lab.path("project", "lib", name)
        script(lab, name, "exit 1\n", folder="lib/%s/bin" % name)
        with open(os.path.join(package, "package.json"), "w") as f:
            json.dump({"name": name, "version": version}, f)
        os.symlink(os.path.join(package, "bin", name), os.path.join(folder, name))
    env = {"PATH": folder, "ANTHROPIC_AUTH_TOKEN": "sk-secret", "GEMINI_API_KEY": ""}
    r = lab.ak(["agents"], env=env)
    assert r.code == 0 and r.out.splitlines()[0].split() == ["AGENT", "STATUS", "API", "KEY"]
    rows = {line[:14].strip(): line[15:] for line in r.out.splitlines()[1:]}
    assert rows["Claude Code"].startswith("installed 2.1.3 ") and rows["Claude Code"].endswith("ANTHROPIC_AUTH_TOKEN is set")
    assert rows["Codex"].startswith("installed 0.42.0-beta.1 ") and rows["Codex"].endswith("OPENAI_API_KEY is not set")
    assert rows["Gemini CLI"].startswith("installed ") and rows["Gemini CLI"].endswith("GEMINI_API_KEY is not set") and "\x1b" not in r.out
    assert rows["OpenCode"].startswith("not found") and "secret" not in r.out + r.err
    data = {row["agent"]: row for row in lab.ak(["agents", "--json"], env=env).json()}
    assert data["Claude Code"]["version"] == "2.1.3" and data["Claude Code"]["api_key"] == {"variable": "ANTHROPIC_AUTH_TOKEN", "set": True}
    assert data["Gemini CLI"]["installed"] and data["Gemini CLI"]["version"] is None and data["OpenCode"]["path"] is None


@pytest.mark.parametrize("package", ['{"version":"\\u001b[31m1"}', '{"version":["1"]}', "{", "", '{"version":"1 2"}', "FIFO", "FOLDER"])
def test_agents_runs_nothing_and_reads_any_package(lab, package):
    folder = script(lab, "codex", "touch ran; echo 1.2; /bin/sleep 4716 & /bin/sleep 4716\n")
    script(lab, "claude", "touch ran; echo 1.0\n", folder=".")
    path = os.path.join(folder, "package.json")
    if package == "FIFO":
        os.mkfifo(path)
    elif package == "FOLDER":
        os.mkdir(path)
    else:
        with open(path, "w") as f:
            f.write(package)
    r = lab.ak(["agents", "--json"], env={"PATH": ".::%s" % folder})
    data = {row["agent"]: row for row in r.json()}
    assert not data["Claude Code"]["installed"] and not os.path.exists(lab.path("project", "ran"))
    assert data["Codex"]["installed"] and data["Codex"]["version"] == ("1" if "1 2" in package else None)
