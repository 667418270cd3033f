"""A user who has just been made: a home with nothing in it, and no variable that moves our folders elsewhere. Every profile in every mode works there."""
import os

import pytest

MODES = ("native", "claude", "codex", "gemini")
PROFILES = ("permissive", "moderate", "restrictive")
NONE = dict.fromkeys(("XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR"))


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("mode", MODES)
def test_the_first_command_ever_runs(any_user, mode, profile):
    lab = any_user
    r = lab.run(["--compatibility-mode", mode, "--profile", profile, "--", "sh", "-c", "echo here; ls -A $HOME/.config/agentkernel $HOME/.local/state/agentkernel 2>/dev/null"],
                env=NONE)
    assert r.code in (0, 2) and "here\n" in r.out, r
    assert not [line for line in r.out.splitlines() if line and line != "here" and not line.endswith(":")], "our own files are in sight: %r" % r


@pytest.mark.parametrize("mode", MODES)
def test_what_appears_in_our_folders_during_a_run_is_not_in_sight(any_user, mode):
    """The settings are made while a sandbox runs that sees the home."""
    lab = any_user
    look = "echo up; read x; cat $HOME/.config/agentkernel/policies/mine.json; echo; test -e $HOME/seen && echo home"
    p = lab.start(["--compatibility-mode", mode, "--profile", "permissive", "--", "sh", "-c", look], env=NONE, stdin="pipe")
    p.wait_output(b"up\n")
    place = lab.path("home", ".config", "agentkernel", "policies")
    os.makedirs(place, exist_ok=True)
    for path in (os.path.join(place, "mine.json"), lab.path("home", "seen")):
        with open(path, "w") as f:
            f.write("settings")
    p.write(b"x\n")
    r = p.wait()
    p.close_stdin()
    assert "settings" not in r.out, r
    assert ("home\n" in r.out) == (mode != "codex"), r


@pytest.mark.parametrize("profile", PROFILES)
def test_the_first_sandbox_ever_starts(any_boxes, profile):
    b = any_boxes
    b.ak("create", "x", "--profile", profile, env=NONE)
    b.ak("start", "x", env=NONE)
    r = b.lab.ak(["exec", "x", "echo", "here"], env=NONE)
    b.ak("remove", "--force", "x", env=NONE)
    b.ak("daemon", "stop", env=NONE)
    assert r.out == "here\n", r
