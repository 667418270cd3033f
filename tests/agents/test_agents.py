"""The published agents, installed as people install them, against scripted model APIs: see tests/lab/models.py for what the model does."""
import contextlib
import json
import os

import pytest

from expect import denied, allowed, NOT_LISTED
from lab import PATH
from npm import agents_folder, needed, nvm_bin

KEY = "sk-ant-lab-key"
DENIED = "11.66.0.2"  # evil.test

# What each keeps of a sign-in with an API key, in the home; how it runs a prompt, in a new session and in the last one; its API.
AGENTS = {
    "codex": dict(sign_in={".codex/auth.json": {"OPENAI_API_KEY": KEY}}, api="api.openai.com",
                  new=["exec", "--skip-git-repo-check"], again=["exec", "--skip-git-repo-check", "resume", "--last"]),
    "claude": dict(sign_in={".claude/settings.json": {"env": {"ANTHROPIC_API_KEY": KEY}, "sandbox": {"enabled": True}}}, api="api.anthropic.com",
                   new=["-p", "--allowedTools=Bash"], again=["-p", "--continue", "--allowedTools=Bash"]),
    "gemini": dict(sign_in={".gemini/.env": "GEMINI_API_KEY=" + KEY, ".gemini/settings.json": {"security": {"auth": {"selectedType": "gemini-api-key"}}}},
                   api="generativelanguage.googleapis.com", new=["--skip-trust", "--yolo", "-p"], again=["--skip-trust", "--yolo", "--resume", "latest", "-p"]),
    "opencode": dict(sign_in={".local/share/opencode/auth.json": {"anthropic": {"type": "api", "key": KEY}}}, api="api.anthropic.com",
                     new=["run", "-m", "anthropic/claude-sonnet-4-5"], again=["run", "--continue", "-m", "anthropic/claude-sonnet-4-5"]),
}


class Machine:
    """The lab's host with the agents in the home of whoever acts, and an authority that the system's certificates vouch for."""

    def __init__(self, lab, layout):
        self.lab, self.mounted = lab, []
        with needed():
            folder = agents_folder()
        place, bin_folder = {"prefix": (".npm-global", "bin"), "nvm": (".nvm", nvm_bin(folder))}[layout]
        self.mount(os.path.join(folder, layout), lab.path("home", place))
        # Node.js has a list of authorities of its own; whoever has more of them sets this variable.
        self.env = {"PATH": ":".join([lab.path("home", place, bin_folder), PATH]), "NODE_EXTRA_CA_CERTS": "/etc/ssl/certs/ca-certificates.crt"}

    def mount(self, source, target):
        os.makedirs(target, exist_ok=True)
        self.own(target)
        r = self.lab.host(["mount", "--bind", source, target])
        assert r.code == 0, r
        self.mounted.append(target)

    def own(self, path):
        home = os.stat(self.lab.path("home"))
        while os.getuid() == 0 and path.startswith(self.lab.path("home") + "/"):
            os.lchown(path, home.st_uid, home.st_gid)
            path = os.path.dirname(path)

    def sign_in(self, agent):
        """On the host, as the agent itself would; then take it over."""
        for name, content in AGENTS[agent]["sign_in"].items():
            path = self.lab.path("home", name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w") as f:
                f.write(content if isinstance(content, str) else json.dumps(content))
            self.own(path)
        r = self.lab.ak(["agents", "import", agent, "--yes"])
        assert r.code == 0, r

    def start(self, agent, words, prompt):
        return self.lab.spawn([self.lab.binary, agent, *words, prompt], env=self.lab.env(**self.env))

    def close(self):
        while self.mounted:
            self.lab.host(["umount", self.mounted.pop()])


@contextlib.contextmanager
def machine_for(lab, who, layout):
    with lab.acting_as(who), lab.trusted():
        machine = Machine(lab, layout)
        try:
            yield machine
        finally:
            machine.close()


def prompt(mark):
    """Writes a file in the project and tries a host that is denied."""
    return "please [[%s|echo %s > %s.txt; curl -sS --max-time 20 https://evil.test/%s; echo curl said $?]]" % (mark, mark, mark, mark)


def finished(lab, r, mark, *seen):
    """The agent has ended well, its command has run, and the model saw the prompts SEEN before this one."""
    assert r.code == 0 and "seen: " + " ".join([*seen, mark]) + "\n" in r.out, (r, lab.internet(op="models"))
    with open(lab.path("project", mark + ".txt")) as f:
        assert f.read() == mark + "\n"


def results(lab, mark):
    """What the model was told of MARK's command."""
    return [m["result"] for m in lab.internet(op="models") if m.get("result") and (m.get("marks") or [""])[-1] == mark]


@pytest.mark.xdist_group("agents")
@pytest.mark.parametrize("agent", AGENTS)
def test_an_agent_works_by_its_name_also_two_at_once_and_goes_on_where_it_was(lab, agent):
    row = AGENTS[agent]
    with machine_for(lab, "root" if lab.is_root else "user", "prefix") as machine:
        machine.sign_in(agent)
        finished(lab, machine.start(agent, row["new"], prompt("one")).wait(180), "one")
        assert "curl said 6" in results(lab, "one")[0], results(lab, "one")
        log = lab.netlog()
        denied(log, NOT_LISTED, event="dns", name="evil.test", qtype="A")
        allowed(log, name=row["api"], proto="tcp")
        both = [machine.start(agent, row["new"], prompt(mark)) for mark in ("left", "right")]
        for mark, proc in zip(("left", "right"), both):
            finished(lab, proc.wait(180), mark)
        r = machine.start(agent, row["again"], prompt("two")).wait(180)
        finished(lab, r, "two", "left" if "seen: left" in r.out else "right")
        assert lab.arrived(DENIED) == 0 and not lab.dns.log("evil.test")


@pytest.mark.xdist_group("agents")
def test_two_first_starts_at_once_do_not_disturb_each_other(lab):
    """OpenCode's would: each makes the tables of the one database. One of them has it made before, and the other waits."""
    with machine_for(lab, "user", "prefix") as machine:
        machine.sign_in("opencode")
        both = [machine.start("opencode", AGENTS["opencode"]["new"], prompt(mark)) for mark in ("left", "right")]
        ends = [proc.wait(180) for proc in both]
        for mark, r in zip(("left", "right"), ends):
            finished(lab, r, mark)
        assert sum(r.err.count("agentkernel: preparing the memory of OpenCode") for r in ends) == 1, ends
        again = lab.ak(["opencode", "--version"], env=machine.env)
        assert again.code == 0 and "preparing" not in again.err, again


@pytest.mark.xdist_group("agents")
@pytest.mark.parametrize("agent", AGENTS)
def test_an_agent_below_a_node_of_nvm_works_with_an_api_key_of_the_environment(lab, agent):
    row, key = AGENTS[agent], {"codex": "CODEX_API_KEY", "gemini": "GEMINI_API_KEY"}.get(agent, "ANTHROPIC_API_KEY")
    with machine_for(lab, "user", "nvm") as machine:
        ask = "please [[nvm|command -v node; echo nvm > nvm.txt]]"
        r = lab.run(["--compatibility-mode", agent, "--pass-api-key", "--", agent, *row["new"], ask], env=dict(machine.env, **{key: KEY}), timeout=180)
        finished(lab, r, "nvm")
        assert "/home/.nvm/versions/node/v" in results(lab, "nvm")[0], results(lab, "nvm")


@pytest.mark.xdist_group("agents")
def test_signing_in_works_as_the_readme_tells_up_to_the_browser(lab):
    with machine_for(lab, "user", "prefix") as machine:
        def ak(*args, env=(), **kw):
            return lab.ak(list(args), env=dict(machine.env, **dict(env)), timeout=60, **kw)

        def start(*args):
            return lab.spawn([lab.binary, *args], env=lab.env(**machine.env), stdin="pipe")
        r = ak("codex", "login", "--with-api-key", stdin=KEY.encode())
        assert r.code == 0, r
        r = ak("codex", "login", "status")
        assert r.code == 0 and "API key" in r.out + r.err, r
        assert ak("codex", "logout").code == 0
        login = start("run", "-m", "codex", "-p", "1455", "--", "codex", "login")
        login.wait_output(b"https://auth.openai.com/", stream=2, timeout=60)
        r = lab.host(["curl", "-sS", "-o", "/dev/null", "-w", "%{http_code}", "http://127.0.0.1:1455/"])
        assert r.code == 0 and r.out == "404", r  # Codex answers: only its own addresses are known there
        login.signal(15)
        login.wait(60)
        login = start("claude", "auth", "login")
        login.wait_output(b"https://claude.com/", timeout=60)
        login.signal(15)
        login.wait(60)
        r = ak("run", "-m", "claude", "--pass-api-key", "--", "claude", "auth", "status", env={"CLAUDE_CODE_OAUTH_TOKEN": "lab"})
        assert r.code == 0 and json.loads(r.out)["loggedIn"] is True, r
        r = ak("opencode", "auth", "list")
        assert r.code == 0 and "0 credentials" in r.out + r.err, r
