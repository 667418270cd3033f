"""`doctor` finds what is there and what is missing by trying it; `setup` does what it can and says what is left."""
import json
import os
import shutil

import pytest
from expect import instead_of

NONE = dict.fromkeys(("XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR"))
MUST = ("kernel", "namespaces", "sandbox", "gateway", "resolver", "state")


def rows(r):
    report = json.loads(r.out)
    return report["ok"], {row["id"]: row for row in report["checks"]}


def test_a_host_on_which_run_works_passes(any_user):
    r = any_user.ak(["doctor", "--json", "--offline"], env=NONE)
    ok, found = rows(r)
    assert r.code == 0 and ok, r
    assert [i for i in MUST if found[i]["status"] != "ok"] == [], found
    assert all(row["fix"] for row in found.values() if row["status"] != "ok"), "every complaint has a fix: %s" % found
    assert any_user.dns.log() == [], "--offline sends nothing"


def test_it_leaves_the_list_of_runs_alone(any_user):
    first = json.loads(any_user.run(["--json", "--", "true"]).out)["sandbox"]
    any_user.ak(["doctor", "--offline"])
    assert any_user.ak(["network", "log", "--last"]).code == 0
    with open(any_user.path("state", "agentkernel", "last")) as f:
        assert f.read().strip() == first


def test_limits_that_are_off_have_a_fix_for_this_host(lab):
    """An ordinary user without a manager of services: no control group is theirs."""
    with lab.acting_as("user"):
        _, found = rows(lab.ak(["doctor", "--json", "--offline"], env=NONE))
    row = found["limits"]
    if row["status"] == "ok":
        return  # a group was delegated to whoever runs the tests
    want = "loginctl enable-linger" if os.path.exists("/run/systemd/system") else "root must delegate one"
    assert row["status"] == "warn" and "memory limit off" in row["found"] and "--pids" in row["found"] and want in row["fix"], row


def test_settings_of_the_project_do_not_matter(any_user):
    """A project's file that nobody has trusted stops a run there, but says nothing about the host."""
    with open(any_user.path("project", "agentkernel.toml"), "w") as f:
        f.write('[network]\nallow = ["evil.test"]\n')
    r = any_user.ak(["doctor", "--json", "--offline"], cwd=any_user.path("project"))
    assert r.code == 0 and rows(r)[0], r


def test_the_table_says_the_same(any_user):
    r = any_user.ak(["doctor", "--offline"])
    assert r.code == 0 and r.out.endswith("agentkernel run works on this host.\n"), r
    assert [line.split()[1] for line in r.out.splitlines() if line.startswith("ok ")][:3] == ["kernel", "namespaces", "landlock"], r


@pytest.mark.parametrize("what", ["user", "net"])
def test_missing_namespaces_fail_with_the_reason(lab, what):
    """In a user namespace whose limit for that kind is 0, as an administrator would set it for all."""
    with lab.acting_as("user"):
        script = "echo 0 > /proc/sys/user/max_%s_namespaces || exit 99; exec \"$@\"" % what
        r = lab.spawn(["unshare", "-Ur", "sh", "-c", script, "sh", lab.binary, "doctor", "--json", "--offline"], env=lab.env(), who="user").wait(60)
        if r.code == 99:
            pytest.skip("this kernel has no such limit")
    ok, found = rows(r)
    assert r.code == 1 and not ok, r
    assert found["namespaces"]["status"] == "fail" and "max_%s_namespaces" % what in found["namespaces"]["found"], found
    assert found["sandbox"]["status"] == "fail" and found["sandbox"]["fix"], found


def test_a_missing_resolver_fails(any_user):
    any_user.resolv("# none\n")
    try:
        r = any_user.ak(["doctor", "--json", "--offline"])
    finally:
        any_user.resolv("nameserver 11.0.0.53\nnameserver 2a00::53\n")
    ok, found = rows(r)
    assert r.code == 1 and not ok and found["resolver"]["status"] == "fail" and "nameserver" in found["resolver"]["fix"], found
    assert found["sandbox"]["status"] == "ok" and found["gateway"]["status"] == "fail", found


def test_hosts_that_do_not_answer_are_named_and_run_works_all_the_same(lab):
    r = lab.ak(["doctor", "--json"])
    ok, found = rows(r)
    reach = found["reach"]
    assert r.code == 0 and ok and reach["status"] == "warn", found
    assert "crates.io (no address)" in reach["found"] and "api.openai.com" not in reach["found"], reach


def test_a_state_folder_that_cannot_be_written_fails(lab):
    with lab.acting_as("user"):
        os.chmod(lab.path("state"), 0o555)
        try:
            r = lab.ak(["doctor", "--json", "--offline"])
        finally:
            os.chmod(lab.path("state"), 0o755)
        where = lab.path("state")
    _, found = rows(r)
    assert r.code == 1 and found["state"]["status"] == "fail" and where in found["state"]["fix"], found


def test_a_program_that_is_not_there_is_a_warning(lab):
    """Without skopeo images cannot be pulled, and run works."""
    with lab.acting_as("user"):
        r = lab.spawn(["unshare", "-Urm", "sh", "-c", "for p in skopeo; do f=$(command -v $p) && mount --bind /dev/null $f; done; exec \"$@\"", "sh", lab.binary,
                       "doctor", "--json", "--offline"], env=lab.env(), who="user").wait(60)
    _, found = rows(r)
    assert found["images"]["status"] == "warn" and "skopeo" in found["images"]["found"] and "skopeo" in found["images"]["fix"], found


# ---- setup ----

def test_a_dry_run_changes_nothing(lab):
    with lab.acting_as("user"):
        r = lab.ak(["setup", "--dry-run"], env=NONE)
        assert r.code == 0 and "would create the folders" in r.out, r
        assert not os.path.exists(lab.path("home", ".config", "agentkernel")), "nothing was made"


def test_setup_is_done_once(lab):
    with lab.acting_as("user"):
        first = lab.ak(["setup", "--yes"], env=NONE)
        assert first.code == 0 and "now: create the folders" in first.out, first
        assert os.path.isdir(lab.path("home", ".config", "agentkernel", "policies"))
        again = lab.ak(["setup"], env=NONE)
        assert again.code == 0 and "done already: create the folders" in again.out, again
        assert "sudo" not in first.out or "left to you" in first.out, "an ordinary user is told what root must do"


def test_the_container_backends_are_tried(any_user):
    """podman by a container that runs; docker by what is there of it. Without podman both the row and its fix say so."""
    _, found = rows(any_user.ak(["doctor", "--json", "--offline"], timeout=60))
    assert (found["podman"]["status"] == "ok") == (shutil.which("podman") is not None), found["podman"]
    assert ("docker" in found) == (shutil.which("docker", path="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin") is not None)


def test_a_missing_podman_is_told_with_its_fix(any_user):
    with instead_of(any_user, "podman", "/dev/null"):
        _, found = rows(any_user.ak(["doctor", "--json", "--offline"], timeout=60))
    assert found["podman"]["status"] == "warn" and "not installed" in found["podman"]["found"] and "apt install podman" in found["podman"]["fix"], found
