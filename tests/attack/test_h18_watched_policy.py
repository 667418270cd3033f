"""h18: a sandbox does not write the policy file that `network policy --watch` keeps in force for it."""
import json
import os

import pytest

CODEX = ("--compatibility-mode", "codex")
WIDE = '{"version":1,"name":"rules","allow":["evil.test"],"allow_cidr":["10.0.0.0/8"]}'


@pytest.fixture
def watched(any_boxes):
    """A policy file in a folder of the user, and what watches it."""
    b, lab = any_boxes, any_boxes.lab
    folder = lab.path("home", "rules")
    os.mkdir(folder)
    with open(os.path.join(folder, "rules.json"), "w") as f:
        json.dump({"version": 1, "name": "rules", "allow": ["ok.test:7"]}, f)
    if lab.is_root:
        for path in (folder, os.path.join(folder, "rules.json")):
            os.chown(path, *((lab.uid, lab.gid) if lab.who == "user" else (0, 0)))

    def watch(path):
        return lab.spawn([lab.binary, "network", "policy", "x", "--watch", path], env=lab.env())
    return b, folder, watch


def rules(b, name):
    return json.dumps(json.loads(b.ak("inspect", name).out)["policy"])


def test_h18_a_policy_file_of_the_project_is_not_watched(watched):
    b, folder, watch = watched
    b.up("x", *CODEX, "--dir", folder)
    r = watch(os.path.join(folder, "rules.json")).wait()
    assert r.code == 1 and "a sandbox could write" in r.err, r
    assert "ok.test" not in rules(b, "x")


def test_h18_a_link_of_a_sandbox_is_not_watched(watched):
    b, folder, watch = watched
    b.up("x", *CODEX)
    b.sh("x", "ln -s '%s/rules.json' %s" % (folder, "mine.json"))
    r = watch(b.lab.path("project", "mine.json")).wait()
    assert r.code == 1 and "symbolic link" in r.err, r
    assert "ok.test" not in rules(b, "x")


def test_h18_a_sandbox_that_comes_to_the_watched_file_changes_nothing(watched):
    b, folder, watch = watched
    b.up("x", *CODEX)
    follows = watch(os.path.join(folder, "rules.json"))
    follows.wait_output(b"in force", stream=2)
    assert "ok.test:7" in rules(b, "x")
    b.up("y", *CODEX, "--dir", folder)
    b.sh("y", "cat > rules.json <<'E'\n%s\nE" % WIDE)
    follows.wait_output(b"the policy in force stays", stream=2)
    assert "ok.test:7" in rules(b, "x") and "evil.test" not in rules(b, "x")
    follows.signal(2)
    follows.wait()
