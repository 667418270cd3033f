"""A check that cannot fail checks nothing: programs built with one part broken on purpose, and the rows of `network selftest` that must notice."""
import json
import os
import subprocess

import pytest
from homes import Home
from lab import ROOT

from test_h18_programs_of_the_project import hit, plant, pull_beside, setup_beside
from test_h28_mcp_chain import replay

pytestmark = pytest.mark.xdist_group("selftest")  # which counts processes of other self-tests as its own

# switch → the rows that fail, these and no others
SWITCHES = {
    "nospoof": "e1",  # source address rule removed
    "noingress": "e2 e6 e7",  # the link's own table lets everything in
    "nodot": "b7 e4",  # port 853 open
    "nodefaultdeny": "a1 a5 b9 b10 b11 c10 d3 d4 e4 f6",  # the kernel's last rule allows; only the relay is left
    "noblocks": "b8 d1 d2 d3 d4 g1",  # no built-in blocks
    "norebind": "d1 d2",  # answers in blocked ranges are passed on
    "notypes": "b3 b12",  # every record type is asked upstream
    "nobudget": "b2",  # no exfiltration budget
    "noackwait": "c1",  # the reply leaves before the kernel has the addresses
    "nosni": "b11 c9 e4 f1 f3 f4 h9",  # the ClientHello is not judged
    "nounread": "h9",  # what cannot be read passes although names are denied
    "nohttphost": "f2 f7",  # nor the Host of a request
    "nohostguard": "d4",  # the relay dials the machine's own addresses
    "noconfine": "inv6",  # the gateway keeps its power
    "nosetids": "h2",  # modes with set-id bits are let through
    "noseccomp": "g1 g4 h2 h6 h17",  # no system-call filter in the sandbox
}
# switches that a chain of calls notices, not a row of the self-test
CHAINS = {
    "notooltrust",  # programs that a sandbox wrote, and paths that a model names, are trusted
    "nosystempath",  # programs that we start ourselves are looked up in the caller's PATH
}


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """One build tree; a switch rebuilds the file that it breaks and links again."""
    folder = os.path.join(ROOT, "build-sabotage") if os.access(ROOT, os.W_OK) else str(tmp_path_factory.mktemp("sabotage"))

    def build(switches):
        run(["cmake", "-G", "Ninja", "-S", ROOT, "-B", folder, "-DAK_TESTS=OFF", "-DCMAKE_BUILD_TYPE=Debug", "-DAK_SABOTAGE=" + switches])
        run(["ninja", "-C", folder, "agentkernel"])
        return os.path.join(folder, "agentkernel")
    return build


def run(cmd, **env):
    r = subprocess.run(cmd, capture_output=True, text=True, env=dict(os.environ, **env), timeout=600)
    assert r.returncode in (0, 1) if "selftest" in cmd else r.returncode == 0, r.stdout[-3000:] + r.stderr[-3000:]
    return r


def failed(program):
    data = json.loads(run([program, "network", "selftest", "--json"], AK_SABOTAGE_OK="1").stdout)
    return {row["row"]: row["reason"] for row in data["rows"] if row["result"] != "passed"}


def test_sabotage_the_same_tree_unbroken_holds(tree):
    program = tree("")
    assert failed(program) == {}
    assert "SABOTAGED" not in run([program, "version"]).stdout


@pytest.mark.parametrize("switch", SWITCHES)
def test_sabotage_is_noticed_by_its_rows_alone(tree, switch):
    got = failed(tree(switch))
    assert set(got) == set(SWITCHES[switch].split()), got


def test_sabotage_says_so_and_runs_nothing(tree):
    program = tree("nospoof")
    assert "SABOTAGED (nospoof)" in run([program, "version"]).stdout
    assert json.loads(run([program, "version", "--json"]).stdout)["sabotaged"] == "nospoof"
    env = {k: v for k, v in os.environ.items() if k != "AK_SABOTAGE_OK"}
    for args in (["run", "true"], ["run", "--no-network", "true"]):
        r = subprocess.run([program, *args], capture_output=True, text=True, env=env, cwd="/")
        assert r.returncode == 125 and "deliberately broken" in r.stderr, r
    r = subprocess.run([program, "network", "selftest"], capture_output=True, text=True, env=env)
    assert r.returncode == 1 and "0 passed" in r.stdout, r.stdout


def test_sabotage_an_unknown_switch_is_refused(tmp_path):
    r = subprocess.run(["cmake", "-G", "Ninja", "-S", ROOT, "-B", tmp_path, "-DAK_TESTS=OFF", "-DAK_SABOTAGE=nosuch"], capture_output=True, text=True)
    assert r.returncode != 0 and "nosuch" in r.stderr


def test_sabotage_switches_are_all_tested():
    known = set()
    for folder in ("gateway", "gateway/base", "nft", "dnsproxy", "policies", "vmctl"):
        with open(os.path.join(ROOT, folder, "CMakeLists.txt")) as f:
            for line in f:
                if line.startswith("ak_sabotage("):
                    known |= set(line.strip()[len("ak_sabotage("):-1].split()[1:])
    assert known == set(SWITCHES) | CHAINS


@pytest.mark.parametrize("kind", ["script", "link", "library"])
def test_sabotage_is_noticed_by_the_chain_over_mcp(tree, lab, kind, monkeypatch):
    home = Home(lab)
    home.secret = home.program("private/bin/helper", "#!/bin/sh\necho s3cret\n")
    monkeypatch.setattr(lab, "binary", tree("notooltrust"))
    assert "s3cret" in replay(home, kind)


def test_sabotage_is_noticed_by_programs_in_the_callers_path(tree, lab, monkeypatch):
    home = plant(lab, AK_SABOTAGE_OK="1")
    monkeypatch.setattr(lab, "binary", tree("nosystempath"))
    r = pull_beside(home)
    assert "none.test" not in lab.dns.names(), r
    assert not hit(home)
    r, ran = setup_beside(home)
    assert hit(home) and ran == "", r
