"""Every cell of the tables of modes and profiles, shown from inside by a user whose home is new."""
import json
import os

import pytest
from lab import PYTHON

MODES = {  # allowlist, project mounted, strict, what it may reach besides, its key
    "native": (False, False, False, None, None),
    "claude": (True, True, False, "api.anthropic.com cdn.anthropic.com", "ANTHROPIC_API_KEY"),
    "codex": (True, True, True, "api.openai.com cdn.openai.com", "OPENAI_API_KEY"),
    "gemini": (True, True, False, "generativelanguage.googleapis.com aiplatform.googleapis.com", "GEMINI_API_KEY"),
}
PROFILES = {  # network, current folder, home, environment, read-only root
    "permissive": (True, True, True, True, False),
    "moderate": (True, False, False, False, False),
    "restrictive": (False, False, False, False, True),
}
NONE = dict.fromkeys(("XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR"))
LOOK = """
import json, os, socket
def wrote(path):
    try:
        with open(path, "x") as f:
            f.write("x")
        return True
    except OSError:
        return False
def read(path):
    try:
        return open(path).read()
    except OSError:
        return None
def resolves(name):
    try:
        return bool(socket.getaddrinfo(name, 443))
    except OSError:
        return False
def reaches(name):
    try:
        socket.create_connection((name, 7), 5).close()
        return True
    except OSError:
        return False
project, home = os.environ["P"], os.environ["H"]
status = {l.split(":")[0]: l.split()[1] for l in open("/proc/self/status") if l[:3] in ("Cap", "Uid", "NoN", "Sec")}
try:
    os.unshare(0x10000000) if hasattr(os, "unshare") else __import__("ctypes").CDLL(None).unshare(0x10000000) == 0 or 1 / 0
    nested = True
except (OSError, ZeroDivisionError):
    nested = False
print(json.dumps(dict(
    links=[l.split(":")[0].strip() for l in open("/proc/net/dev").readlines()[2:]],
    public=resolves("ok.test"), reach=reaches("ok.test"),
    given=read(project + "/given"), made=wrote(project + "/made"), secret=read(home + "/notes"), home_wrote=wrote(home + "/new"),
    variable=os.environ.get("SECRET"), key=[k for k in os.environ if k.endswith("_API_KEY")],
    root=[d for d in ("/usr", "/etc", "/opt", "/var") if wrote(d + "/x")], tmp=wrote("/tmp/x"), own_home=wrote(os.path.expanduser("~/own")),
    cwd=os.getcwd(), uid=os.getuid(), caps=status["CapBnd"], nnp=status["NoNewPrivs"], filter=status["Seccomp"], nested=nested)))
"""


def look(lab, *options):
    project, home = lab.path("project"), lab.path("home")
    for path in (os.path.join(project, "given"), os.path.join(home, "notes")):
        with open(path, "w") as f:
            f.write("from the host")
    env = dict(NONE, SECRET="hunter2", ANTHROPIC_API_KEY="sk", OPENAI_API_KEY="sk", GEMINI_API_KEY="sk")
    r = lab.run([*options, "-e", "P=" + project, "-e", "H=" + home, "--", PYTHON, "-c", LOOK], env=env)
    assert r.code == 0, r
    return json.loads(r.out)


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("mode", MODES)
def test_every_mode_in_every_profile_is_what_the_tables_say(any_user, mode, profile):
    lab = any_user
    allowlist, mounts, strict, _, _ = MODES[mode]
    network, cwd, home, env, readonly = PROFILES[profile]
    got = look(lab, "--compatibility-mode", mode, "--profile", profile)
    assert ("eth0" in got["links"]) == network, got
    assert got["public"] == got["reach"] == (network and not allowlist), got
    project = mounts or cwd
    assert got["given"] == ("from the host" if project else None) and got["made"] == project == os.path.exists(lab.path("project", "made")), got
    if project:
        assert got["cwd"] == lab.path("project") and os.stat(lab.path("project", "made")).st_uid == (0 if lab.who == "root" else lab.uid), got
    # Strict isolation never shows the home. Nobody writes to the host's own.
    assert got["secret"] == ("from the host" if home and not strict else None) and not os.path.exists(lab.path("home", "new")), got
    assert got["variable"] == ("hunter2" if env else None), got
    assert bool(got["key"]) == env, got
    assert got["root"] == ([] if readonly or strict else ["/usr", "/etc", "/opt", "/var"]), got
    assert got["tmp"] and got["own_home"] == (not home or strict), got
    assert got["uid"] != 0 and got["nnp"] == "1" and got["filter"] == "2" and not got["nested"], got


def test_what_is_not_said_is_native_and_moderate(any_user):
    assert look(any_user) == look(any_user, "--compatibility-mode", "native", "--profile", "moderate")


@pytest.mark.parametrize("mode", [m for m in MODES if m != "native"])
def test_a_mode_reaches_its_own_api_and_not_that_of_the_others(lab, mode):
    for other, row in MODES.items():
        for host in (row[3] or "").split():
            code = lab.ak(["network", "check", mode, host + ":443"]).code
            assert code == (0 if other == mode else 3), (mode, host, code)
            if other == mode:
                lab.dns.set(host, A="11.1.0.5")
                got = lab.probe(["--compatibility-mode", mode], [["resolve", host]])
                assert "ok" in got[0], (mode, host, got)


@pytest.mark.parametrize("mode", [m for m in MODES if m != "native"])
def test_pass_api_key_passes_the_key_of_the_mode_alone(lab, mode):
    got = look(lab, "--compatibility-mode", mode, "--pass-api-key")
    assert got["key"] == [MODES[mode][4]], got
