"""The published Node client, unmodified, from the registry, against our server at its default address."""
import os
import shutil

import pytest
from api import Api, children
from lab import HERE, wait_for


def node(lab, package, env, timeout=90):
    r = lab.spawn([shutil.which("node"), os.path.join(HERE, "client_node.mjs"), package], env=lab.env(**env)).wait(timeout)
    assert r.code == 0, r
    return r.json()


@pytest.fixture
def out(boxes, package):
    env = {"AGENTKERNEL_API_KEY": "a-secret-key"}
    api = Api(boxes.lab, env=env, key="a-secret-key", port=None)
    assert api.port == 18888
    try:
        yield node(boxes.lab, package, env)
        wait_for(lambda: not children(boxes.lab, api.proc.pid))  # those it left behind are gone
    finally:
        api.close()


def test_the_published_node_client_works_unmodified(out):
    assert out["health"] == "ok"
    assert out["run"]["output"] == "hello\n" and out["run"]["exit_code"] == 3 and out["restrictive"]["output"] == "quiet\n"
    types = [t for _, t, _ in out["events"]]
    assert types[0] == "started" and types[-1] == "done" and out["events"][-1][2] == dict(out["events"][-1][2], exit_code=2, success=True)
    lines = [(when, data["data"]) for when, t, data in out["events"] if t == "output"]
    assert [d for _, d in lines] == ["one\n", "two\n"] and lines[1][0] - lines[0][0] > 200

    assert out["created"]["name"] == "node-box" and out["created"]["status"] == "running" == out["got"]["status"]
    assert out["created"]["memory_mb"] == 256 and out["byUuid"]["name"] == "node-box" and out["list"] == ["node-box"]
    assert out["exec"]["output"] == "b c\n/tmp\n"

    assert isinstance(out["wrote"], str) and isinstance(out["deleted"], str)
    assert out["read"] == {"content": "käse\n", "encoding": "utf8", "size": 6}
    assert out["binary"] == {"encoding": "base64", "size": 1024, "same": True} and out["many"] == {"written": 2}
    assert {"sandbox_create", "sandbox_start"} <= set(out["logs"])
    assert [(r["output"], r["error"], r["exit_code"]) for r in out["batch"]["results"]] == [("1\n", None, 0), ("2\n", None, 1)]

    d = out["detached"]
    assert d["sandbox"] == "node-box" and d["status"] == "running" and d["exit_code"] is None and d["pid"] > 0 and d["started_at"]
    assert out["detachedStatus"]["id"] == d["id"] and out["detachedList"] == [True]
    assert out["detachedLogs"]["stdout"] == "from behind\n" and out["detachedErr"]["stderr"] == "oops\n" and "stdout" not in out["detachedErr"]
    assert isinstance(out["detachedKill"], str) and out["detachedEnd"]["status"] == "failed"

    assert out["session"]["output"] == "in session\n" and out["sessionInfo"] == "running" and out["left"] == []

    e = out["errors"]
    assert out["classes"] == dict.fromkeys(out["classes"], True) and all(x.get("ours") for x in e.values()), e
    assert (e["missing"]["status"], e["badName"]["status"], e["wrongKey"]["status"]) == (404, 400, 401)
    assert e["unknownField"]["status"] == 400 and "volumes" in e["unknownField"]["message"]
    assert e["badProfile"]["status"] == 400 and e["noFile"]["status"] == 404 and e["streamBad"]["status"] == 400
    assert e["taken"]["name"] == "ServerError" and "node-box" in e["taken"]["message"]
    assert e["snapshots"]["status"] == e["orchestrations"]["status"] == e["extend"]["status"] == 404
    assert "timed out" in e["timeout"]["message"]
