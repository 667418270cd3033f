"""h28: the model that drives an MCP server uses the images that the user brought to agentkernel's store, and none of podman's own."""
import os

import pytest
from expect import instead_of, missing
from mcp import serving
from shutil import which

IMAGE = "localhost/private:1"


@pytest.fixture
def podman(any_user):
    """The lab, and a file in which everything is recorded that podman is asked, whose answer is yes."""
    if not which("podman") or not (which("runc") or which("crun")):
        missing("not installed: podman runc")
    asked, program = any_user.path("state", "asked"), any_user.path("state", "podman")
    with open(asked, "w"):
        pass
    os.chmod(asked, 0o666)
    with open(program, "w") as f:
        f.write('#!/bin/sh\necho "$@" >>%s\n[ "$1" = image ]\n' % asked)
    os.chmod(program, 0o755)
    with instead_of(any_user, "podman", program):
        yield any_user, asked


def read(path):
    with open(path) as f:
        return f.read()


def test_h28_a_users_own_run_asks_podman_for_its_image(podman):
    """The control."""
    lab, asked = podman
    assert lab.run(["--backend", "podman", "--image", IMAGE, "true"]).code != 0
    assert "image exists " + IMAGE in read(asked) and "save" in read(asked)


@pytest.mark.parametrize("tool", ["sandbox_run", "sandbox_create"])
def test_h28_a_call_brings_no_image_of_podmans(podman, tool):
    lab, asked = podman
    with serving(lab, "--compatibility-mode", "codex") as m:
        more = {"command": ["true"]} if tool == "sandbox_run" else {"name": "box"}
        text = m.bad(tool, backend="podman", image=IMAGE, **more)
    assert "not on this machine" in text, text
    assert read(asked) == ""
