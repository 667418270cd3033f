"""Policies of one's own: as a mode, on top of one, from a file, and groups by name; on every path that starts a sandbox."""
import json
import os

import pytest
from api import serving
from expect import CODEX, NATIVE, refused, worked
from mcp import serving as mcp_serving

OK, OTHER = ["tcp", "ok.test", 7, b"x".hex()], ["tcp", "other.test", 7, b"x".hex()]


def install(lab, name, **policy):
    folder = lab.path("config", "agentkernel", "policies")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, name + ".json"), "w") as f:
        json.dump(dict({"version": 1, "name": name}, **policy), f)


def file(lab, name, **policy):
    path = lab.path("project", name)
    with open(path, "w") as f:
        json.dump(dict({"version": 1}, **policy), f)
    return path


@pytest.fixture
def mine(any_user):
    install(any_user, "mine", allow=["ok.test:7"], deny=["shut.test"])
    install(any_user, "hosts", allow=["other.test:7"])
    return any_user


def test_an_installed_policy_is_a_mode_with_the_project(mine):
    for spelling in (["-m", "mine"], ["--mode=mine"], ["--compatibility-mode", "mine"]):
        r = mine.run([*spelling, "sh", "-c", "pwd; echo $AGENTKERNEL_MODE; touch made"], cwd=mine.path("project"))
        assert (r.code, r.out) == (0, mine.path("project") + "\nmine\n"), r
    assert os.path.exists(mine.path("project", "made"))
    got = mine.probe(["-m", "mine"], [OK, OTHER], cwd=mine.path("project"))
    worked(got[0])
    refused(got[1])
    assert {r["policy"] for r in mine.netlog() if r.get("policy")} == {"mine"}


def test_policies_add_up_and_an_allowlist_is_all_there_is(mine):
    got = mine.probe(["--policy", "mine"], [OK, OTHER])  # on top of native, which alone would allow both
    worked(got[0])
    refused(got[1])
    got = mine.probe([*CODEX, "--policy", "mine", "--policy", "hosts"], [OK, OTHER])
    worked(got[0])
    worked(got[1])
    assert {r["policy"] for r in mine.netlog() if r.get("policy")} == {"codex+mine+hosts"}
    got = mine.probe([*CODEX, "--allow-group", "hosts", "--block-host", "other.test:7"], [OTHER])
    refused(got[0])


def test_a_policy_comes_from_a_file(mine):
    path = file(mine, "job.json", extends=["hosts"], allow=["ok.test:7"])
    got = mine.probe(["--policy", "job.json"], [OK, OTHER, ["tcp", "third.test", 7]], cwd=os.path.dirname(path))
    worked(got[0])
    worked(got[1])
    refused(got[2])


WRONG = [(["-m", "nosuch"], "compatibility mode 'nosuch' is neither claude"), (["--policy", "nosuch"], "--policy: no policy named 'nosuch'"),
         (["--policy", "absent.json"], "absent.json"), (["--allow-group", "mine"], "'mine' is not a group"),
         (["--policy", "fifo.json"], "not a regular file"), (["--policy", "bad.json"], "bad.json: allow[0]"),
         (["--policy", "x y"], "--policy: 'x y' is neither")]


@pytest.mark.parametrize("args, says", WRONG, ids=[" ".join(a) for a, _ in WRONG])
def test_what_cannot_be_used_is_told(lab, args, says):
    install(lab, "mine", allow=["ok.test:7"], deny=["shut.test"])
    file(lab, "bad.json", allow=["*"])
    os.mkfifo(lab.path("project", "fifo.json"))
    for command in (["run", *args, "true"], ["create", "x", *args], ["run", *args, "--explain", "true"]):
        r = lab.ak(command, cwd=lab.path("project"))
        assert r.code in (2, 1 if command[0] == "create" else 2), r
        assert says in r.err and r.err.startswith("agentkernel: "), r
    assert json.loads(lab.ak(["list", "--json"]).out) == []


def test_a_user_extends_the_policy_that_the_file_replaces(lab):
    install(lab, "codex", extends=["codex"], allow=["ok.test:7"])
    got = lab.probe(CODEX, [OK, OTHER])
    worked(got[0])
    refused(got[1])
    for host in ("ok.test:7", "api.openai.com", "pypi.org"):
        assert lab.ak(["network", "check", "codex", host]).code == 0, host


def test_a_persistent_sandbox_keeps_its_policies(boxes):
    b = boxes
    install(b.lab, "mine", allow=["ok.test:7"])
    install(b.lab, "hosts", allow=["other.test:7"])
    b.up("x", "-m", "mine")
    assert b.list()["x"]["mode"] == "mine"
    with b.holding("x") as (proc, do):
        got = do([OK, OTHER])
        worked(got[0])
        refused(got[1])
        b.ak("network", "policy", "x", "--allow-group", "hosts")
        worked(do([OTHER])[0])
        assert [(c["op"], c["text"]) for c in b.policy("x")["changes"]] == [("allow-group", "hosts")]
        b.fails("network", "policy", "x", "--allow-group", "nosuch", code=2, says="no policy named 'nosuch'")
    b.ak("stop", "x")
    b.ak("start", "x")
    worked(b.probe("x", [OTHER])[0])
    b.ak("network", "policy", "x", "--remove", "other.test:7")
    refused(b.probe("x", [OTHER])[0])
    b.ak("network", "policy", "x", "--reset", "--allow-group", "hosts")
    worked(b.probe("x", [OTHER])[0])
    b.ak("network", "policy", "x", "--remove", "hosts")
    refused(b.probe("x", [OTHER])[0])
    worked(b.probe("x", [OK])[0])


def test_a_policy_file_is_read_once(boxes):
    """The sandbox mounts the folder of the file that its user named, and rewrites it."""
    b = boxes
    path = file(b.lab, "job.json", allow=["ok.test:7"])
    b.up("x", *CODEX, "--dir", b.lab.path("project"), "--policy", path)
    b.sh("x", """echo '{"version":1,"default":"allow","allow":["other.test:7"]}' > %s""" % path)
    b.ak("stop", "x")
    b.ak("start", "x")
    b.ak("network", "policy", "x", "--allow-host", "third.test:7")
    got = b.probe("x", [OK, OTHER])
    refused(got[1])
    worked(got[0])
    assert b.policy("x")["changes"][0] == {"op": "policy", "text": "job"}
    assert b.policy("x")["policy"]["name"] == "codex+job"


def test_a_warm_sandbox_has_the_added_policies(boxes):
    b = boxes
    install(b.lab, "mine", allow=["ok.test:7"])
    b.ak("daemon", "prewarm", "-m", "native")
    before = {m["mode"]: m["hits"] for m in b.status()["pool"]}
    got = b.lab.probe([*NATIVE, "--policy", file(b.lab, "job.json", allow=["ok.test:7"]), "--allow-group", "mine"], [OK, OTHER])
    worked(got[0])
    refused(got[1])
    assert {m["mode"]: m["hits"] for m in b.status()["pool"]}["native"] == before["native"] + 1
    worked(b.lab.probe(["-m", "mine"], [OK], cwd=b.lab.path("project"))[0])


def test_http_and_mcp(boxes):
    b = boxes
    install(b.lab, "mine", allow=["ok.test:7"])
    install(b.lab, "hosts", allow=["other.test:7"])
    cmd = b.lab.probe_command([OK, OTHER])
    with serving(b.lab) as api:
        got = json.loads(api.run(*cmd, policies=["mine"])["stdout"])
        worked(got[0])
        refused(got[1])
        got = json.loads(api.run(*cmd, compatibility_mode="mine", allow_groups=["hosts"], cwd=b.lab.path("project"))["stdout"])
        worked(got[0])
        worked(got[1])
        api.post("/run", {"command": ["true"], "policies": ["./x.json"]}).refused(400, "absolute")
        api.post("/run", {"command": ["true"], "compatibility_mode": "nosuch"}).refused(400, "nosuch")
        assert api.post("/sandboxes", {"name": "x", "policies": ["mine"]}).status == 201
        now = api("PATCH", "/sandboxes/x/policy", {"allow_groups": ["hosts"]}).data
        assert [(c["op"], c["text"]) for c in now["changes"]] == [("policy", "mine"), ("allow-group", "hosts")] and now["generation"] == 2, now
        api("PATCH", "/sandboxes/x/policy", {"allow_groups": ["nosuch"]}).refused(400, "nosuch")
    with mcp_serving(b.lab, "-m", "mine", "--allow-group", "hosts", cwd=b.lab.path("project")) as m:
        got = json.loads(m.good("sandbox_run", command=cmd)[0]["stdout"])
        worked(got[0])
        worked(got[1])
        m.bad("sandbox_run", command=["true"], compatibility_mode="codex")
        m.bad("sandbox_run", command=["true"], policies=["mine"])
