"""Which image fits: told when a command is missing, used when it is there, explained, and asked for by base_image only with trust."""
import os

import images
import pytest
from expect import missing

FOLDERS = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
# Commands of languages that we know; the first that this host lacks.
TOOLS = {"elixir": "elixir:1.16-alpine", "luajit": "nickblah/lua:5.4-alpine", "terraform": "hashicorp/terraform:1.10", "rails": "ruby:3.3-alpine",
         "dotnet": "mcr.microsoft.com/dotnet/sdk:8.0", "gradle": "eclipse-temurin:21-alpine", "poetry": "python:3.12-alpine"}
TOOL, IMAGE = next(((t, i) for t, i in TOOLS.items() if not any(os.path.exists(os.path.join(d, t)) for d in FOLDERS)), (None, None))


@pytest.fixture(autouse=True)
def absent():
    if not TOOL:
        missing("this host has all of " + " ".join(TOOLS))


def write(lab, name, text=""):
    with open(lab.path("project", name), "w") as f:
        f.write(text)


def imported(lab, name):
    lacks = images.missing_tools()
    if lacks:
        missing("not installed: %s" % lacks)
    layer = images.base_layer()
    layer.add("bin/" + TOOL, "#!/bin/sh\necho in the image $*\n", mode=0o755)
    folder = images.write_layout(lab.path("project", "layout"), [layer.done()])
    r = lab.ak(["image", "import", "--name", name, folder + ":latest"])
    assert r.code == 0, r


def test_a_missing_command_names_the_image_and_the_pull(any_user):
    lab = any_user
    r = lab.run([TOOL, "plan"])
    assert r.code == 127 and "agentkernel image pull " + IMAGE in r.err and "'%s' is not on this host" % TOOL in r.err, r
    with open(lab.path("project", "package.json"), "w") as f:
        f.write("{}")
    r = lab.run(["no-such-tool"], cwd=lab.path("project"))
    assert r.code == 127 and "may have it (the project has 'package.json'), bring it with: agentkernel image pull node:22-alpine" in r.err, r
    os.unlink(lab.path("project", "package.json"))
    r = lab.ak(["image", "list"])
    assert r.code == 0 and not r.out and "image pull" in r.err, r
    r = lab.run(["--image", IMAGE, TOOL])
    assert r.code == 125 and "agentkernel image pull " + IMAGE in r.err, r
    r = lab.run(["no-such-command"])
    assert r.code == 127 and "image pull" not in r.err, r
    write(lab, "Cargo.toml")
    r = lab.run(["no-such-command"])
    assert r.code == 127 and "agentkernel image pull rust:1.85-alpine" in r.err and "Cargo.toml" in r.err, r
    os.unlink(lab.path("project", "Cargo.toml"))
    write(lab, "Procfile", "web: PORT=80 node server.js\n")
    assert "image pull node:22-alpine" in lab.run(["no-such-command"]).err
    os.unlink(lab.path("project", "Procfile"))
    os.mkfifo(lab.path("project", "Procfile"))
    assert lab.run(["no-such-command"]).code == 127  # and does not wait for the FIFO


def test_a_missing_command_in_the_background_names_it_too(boxes):
    boxes.fails("run", "-d", "--no-network", TOOL, code=127, says="agentkernel image pull " + IMAGE)


def test_a_local_image_that_fits_is_used_for_a_missing_command_only(any_user):
    lab = any_user
    imported(lab, IMAGE)
    r = lab.run([TOOL, "plan", "a b"])
    assert r.code == 0 and r.out == "in the image plan a b\n" and "using the image " + IMAGE in r.err, r
    assert lab.run(["test", "-e", "/bin/" + TOOL]).code == 1  # any other command runs on the host's own root
    r = lab.run(["--explain", TOOL])
    assert "using the image %s (the command '%s')" % (IMAGE, TOOL) in r.out, r


def test_explain_says_how_the_name_was_chosen(lab):
    def line(*args):
        r = lab.run(["--explain", *args])
        assert r.code == 0, r
        return [row for row in r.out.splitlines() if row.startswith("  image ")][0]
    assert "none, the host's own programs; alpine:3.20 would fit  (nothing else fits)" in line("true")
    assert "gcc:14-bookworm would fit  (the command 'make')" in line("make")
    write(lab, "main.tf")
    assert "hashicorp/terraform:1.10 would fit  (the project has 'main.tf')" in line("true")
    assert "gcc:14-bookworm would fit  (the command 'make')" in line("make")  # the command comes first


def test_base_image_counts_with_trust(any_user):
    lab = any_user
    imported(lab, "box")
    write(lab, "agentkernel.toml", '[sandbox]\nbase_image = "box"\n')
    r = lab.run(["true"])
    assert r.code == 2 and 'agentkernel.toml:2: [sandbox] base_image = "box"' in r.err, r
    assert lab.ak(["trust", "--yes"]).code == 0
    assert lab.run([TOOL, "x"]).out == "in the image x\n"
    assert "box  (agentkernel.toml:2)" in lab.run(["--explain", "true"]).out
    write(lab, "agentkernel.toml", '[sandbox]\nbase_image = "not-here:1"\n')
    assert lab.ak(["trust", "--yes"]).code == 0
    r = lab.run(["true"])
    assert r.code == 125 and "agentkernel image pull" in r.err, r
