"""h28: what a sandbox was denied stays recorded when the model that drives an MCP server removes it, or when the server ends."""
import json

import pytest
from lab import wait_for
from mcp import serving

CODEX = ("--compatibility-mode", "codex")


def denials(b, name):
    events = [json.loads(line) for line in b.ak("audit", "--sandbox", name, "--json").out.splitlines()]
    return [d["dest"] for e in events if e["event"] == "sandbox_denials" for d in e["denials"]]


@pytest.mark.parametrize("how", ["removed", "the server ends"])
def test_h28_a_removed_sandbox_leaves_its_denials(any_boxes, how):
    b = any_boxes
    with serving(b.lab, *CODEX) as m:
        m.good("sandbox_create", name="box")
        m.good("sandbox_exec", name="box", command=["sh", "-c", "getent hosts evil.test; true"])
        if how == "removed":
            m.good("sandbox_remove", name="box", force=True)
    wait_for(lambda: b.list() == {})
    wait_for(lambda: [d for d in denials(b, "box") if "evil.test" in d])
    assert b.ak("audit", "verify").code == 0


def test_h28_a_sandbox_without_denials_leaves_none(any_boxes):
    b = any_boxes
    b.up("quiet", *CODEX)
    b.ak("remove", "--force", "quiet")
    assert denials(b, "quiet") == []
