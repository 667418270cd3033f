"""h18: a sandbox that can write the project must not give the next run more by agentkernel.toml."""
import os

import pytest

CLAUDE = ("--compatibility-mode", "claude")
NARROW = "[security]\nnetwork = false\n"
WIDE = '[network]\nallow = ["evil.test"]\nallow_cidr = ["10.0.0.0/8"]\n[security]\nprofile = "permissive"\n[env]\nSECRET = true\n'


def project(lab, *parts):
    return lab.path("project", *parts)


def write(lab, text):
    """A file that the lab's user may change too."""
    with open(project(lab, "agentkernel.toml"), "w") as f:
        f.write(text)
    os.chmod(project(lab, "agentkernel.toml"), 0o666)


def inside(lab, script, *options):
    """What the attacker does in its own run."""
    r = lab.run([*CLAUDE, *options, "--", "sh", "-c", script], env={"SECRET": "hunter2"})
    assert r.code in (0, 1, 2), r
    return r


def next_run(lab, cwd=None):
    """The user's next run: does it reach what the file asks for, and get the user's secret?"""
    r = lab.run([*CLAUDE, "--", "sh", "-c", "env; getent hosts evil.test; exit 7"], env={"SECRET": "hunter2"}, cwd=cwd)
    assert r.code in (2, 7), r
    assert "hunter2" not in r.out and lab.arrived("11.66.0.1") == 0, r
    assert "evil.test" not in r.out, r
    return r


def test_h18_the_attack_works_once_the_user_has_trusted_the_content(any_user):
    """The control: the same file does widen the run when the user agrees."""
    lab = any_user
    inside(lab, "cat > agentkernel.toml <<'E'\n%sE" % WIDE)
    assert lab.ak(["trust", "--yes"], env={"SECRET": "hunter2"}).code == 0
    r = lab.run([*CLAUDE, "--", "sh", "-c", "env; getent hosts evil.test"], env={"SECRET": "hunter2"})
    assert "hunter2" in r.out and "evil.test" in r.out, r


WAYS = {
    "created": "printf '%s' \"$WIDE\" > agentkernel.toml",
    "by-rename": "printf '%s' \"$WIDE\" > new; mv -f new agentkernel.toml",
    "by-hard-link": "printf '%s' \"$WIDE\" > new; ln -f new agentkernel.toml",
    "by-link": "printf '%s' \"$WIDE\" > new; ln -sf new agentkernel.toml",
    "by-link-out": "ln -sf /proc/self/environ agentkernel.toml",
    "a-fifo": "mkfifo agentkernel.toml",
    "a-folder": "mkdir agentkernel.toml",
    "huge": "{ printf '%s' \"$WIDE\"; head -c 3000000 /dev/zero | tr '\\0' '\\n'; } > agentkernel.toml",
    "too-deep": "{ printf 'a = '; head -c 60000 /dev/zero | tr '\\0' '['; } > agentkernel.toml",
}


@pytest.mark.parametrize("way", WAYS)
def test_h18_a_new_file_does_not_widen_the_next_run(any_user, way):
    lab = any_user
    inside(lab, WAYS[way], "-e", "WIDE=" + WIDE)
    assert os.path.lexists(project(lab, "agentkernel.toml"))
    r = next_run(lab)
    assert r.code == 2, r  # told, not passed over
    assert lab.run([*CLAUDE, "--explain", "true"], env={"SECRET": "x"}).code == 2


SINGLE = {
    "image": '[sandbox]\nbase_image = "box"\n', "backend": '[sandbox]\nbackend = "podman"\n', "mode": '[agent]\ncompatibility_mode = "codex"\n', "profile": '[security]\nprofile = "permissive"\n',
    "host": '[network]\nallow = ["evil.test"]\n', "range": '[network]\nallow_cidr = ["11.66.0.0/16"]\n', "policy": '[network]\npolicies = ["native"]\n',
    "group": '[network]\ngroups = ["source-hosting"]\n', "older host": '[security.domains]\nallow = ["evil.test"]\n', "variable": "[env]\nSECRET = true\n", "value": '[env]\nPATH = "/tmp"\n',
    "port": '[publish]\nports = ["127.0.0.1:15999:80"]\n', "mount": '[[mounts]]\nsource = "/etc"\ntarget = "/mnt/x"\n',
}


@pytest.mark.parametrize("what", SINGLE)
def test_h18_each_setting_that_widens_is_asked_about_by_itself(any_user, what):
    lab = any_user
    write(lab, SINGLE[what])
    r = lab.run(["sh", "-c", "exit 7"], env={"SECRET": "hunter2"})
    assert r.code == 2 and "agentkernel trust" in r.err, r


@pytest.mark.parametrize("way", ["created", "by-rename", "by-hard-link", "by-link"])
@pytest.mark.parametrize("trusted", [False, True], ids=["untrusted", "trusted"])
def test_h18_an_existing_file_stays_as_it_is(any_user, way, trusted):
    lab = any_user
    write(lab, NARROW)
    if trusted:
        assert lab.ak(["trust", "--yes"]).code == 0
    inside(lab, WAYS[way] + "; rm -f agentkernel.toml; : > agentkernel.toml; truncate -s0 agentkernel.toml; mv agentkernel.toml gone", "-e", "WIDE=" + WIDE)
    with open(project(lab, "agentkernel.toml")) as f:
        assert f.read() == NARROW
    r = next_run(lab)
    assert r.code == 7, r
    assert lab.run(["grep", "-c", ":", "/proc/net/dev"]).out == "1\n"  # what narrows still counts


def test_h18_with_a_writable_project_a_change_of_trusted_content_is_asked_about_again(any_user):
    lab = any_user
    write(lab, '[network]\nallow = ["ok.test"]\n')
    assert lab.ak(["trust", "--yes"]).code == 0
    inside(lab, "printf '%s' \"$WIDE\" > agentkernel.toml", "--project-writable", "-e", "WIDE=" + WIDE)
    r = next_run(lab)
    assert r.code == 2 and '- allow = ["ok.test"]' in r.err and '+ allow = ["evil.test"]' in r.err, r


def test_h18_what_trusted_content_denied_cannot_be_taken_away_unseen(any_user):
    """Less text can be more reach: a trusted file that loses its deny rules is asked about too."""
    lab = any_user
    write(lab, '[network]\ndeny = ["evil.test"]\n')
    assert lab.ak(["trust", "--yes"]).code == 0
    inside(lab, ": > agentkernel.toml", "--project-writable")
    r = lab.run(["sh", "-c", "getent hosts evil.test; exit 7"])
    assert r.code == 2 and '- deny = ["evil.test"]' in r.err, r


def test_h18_what_a_request_gives_itself_is_shown_before_the_file_is_trusted(any_user):
    """Trust is for the next runs as well, which may not have these options."""
    lab = any_user
    wide = WIDE + '[resources]\ntimeout = "10h"\n[[mounts]]\nsource = "%s"\ntarget = "/mnt/x"\n[daemon]\nmin_warm = 128\n' % lab.path("home")
    inside(lab, "printf '%s' \"$WIDE\" > agentkernel.toml", "-e", "WIDE=" + wide)
    options = ["--profile", "moderate", "-e", "SECRET=none", "--timeout", "5s", "--mount", lab.path("project") + ":/mnt/x"]
    r = lab.run([*CLAUDE, *options, "--", "true"], env={"SECRET": "hunter2"})
    assert r.code == 2, r
    for item in ("evil.test", "10.0.0.0/8", "permissive", "SECRET", "10h", "/mnt/x", "min_warm = 128"):
        assert item in r.err, (item, r)


def test_h18_the_name_in_a_file_removes_no_log(any_user):
    """A run that knows its own name could otherwise have the user's next `create` replace its log."""
    lab = any_user
    r = inside(lab, "getent hosts evil.test; printf '[sandbox]\\nname = \"%s\"\\n' $AGENTKERNEL_SANDBOX | tee agentkernel.toml")
    name = r.out.split('"')[1]
    r = lab.ak(["create"])
    assert r.code == 1 and name in r.err and "log" in r.err, r
    assert "evil.test" in lab.ak(["network", "log", name]).out
    assert lab.ak(["create", name]).code == 0  # on the user's own word


def test_h18_trust_in_one_project_is_none_in_a_nested_one(any_user):
    lab = any_user
    write(lab, WIDE)
    assert lab.ak(["trust", "--yes"], env={"SECRET": "x"}).code == 0
    inside(lab, "mkdir nested; chmod 777 nested; cp agentkernel.toml nested/")
    r = next_run(lab, cwd=project(lab, "nested"))
    assert r.code == 2 and "nested/agentkernel.toml" in r.err, r


def test_h18_records_of_trust_are_out_of_reach(any_user):
    lab = any_user
    write(lab, WIDE)
    state = lab.path("state", "agentkernel", "trust")
    script = "mkdir -p %s; ls -A %s; cp agentkernel.toml %s/x; agentkernel trust --yes 2>&1; true" % (state, state, state)
    assert lab.ak(["trust", "--yes", lab.path("project")], env={"SECRET": "x"}).code == 0
    have = sorted(os.listdir(state))
    r = inside(lab, script)
    assert have and have[0] not in r.out and sorted(os.listdir(state)) == have, r


# ---- resources ----

ABOVE = {"pids": "pids = 5000", "tmp": "tmp_mb = 4096"}
GUEST = {"memory": "memory_mb = 60000"}
BELOW = 'memory_mb = 512\nvcpus = 64\npids = 1024\ntmp_mb = 512\ntimeout = "9h"'


@pytest.mark.parametrize("backend", ["ns", "vm", "auto", "podman"])
def test_h18_a_new_file_gives_no_more_resources_than_a_run_without_it_has(any_user, backend):
    lab = any_user
    options = [*CLAUDE, "--backend", backend, "--explain", "--", "true"]
    plain = lab.run(options)
    if plain.code != 0:
        assert backend == "podman", plain  # not installed, or not usable in the lab
        pytest.skip(plain.err)
    wider = dict(ABOVE, **(GUEST if backend in ("vm", "auto") else {}))
    for line in wider.values():
        inside(lab, "rm -f agentkernel.toml; printf '[resources]\\n%s\\n' > agentkernel.toml" % line)
        r = lab.run(options)
        assert r.code == 2 and "agentkernel trust" in r.err, (line, r)
        os.unlink(project(lab, "agentkernel.toml"))
    write(lab, "[resources]\n%s\n" % BELOW)
    r = lab.run(options)
    assert r.code == 0 and "agentkernel.toml" in r.out, r
    write(lab, "[resources]\n%s\n" % "\n".join(wider.values()))
    assert lab.ak(["trust", "--yes"]).code == 0
    assert lab.run(options).code == 0


def test_h18_the_file_does_not_choose_a_machine_and_its_size(any_boxes):
    """Both settings by the file, in either order, for run and create; the user's own option is not asked about."""
    b, lab = any_boxes, any_boxes.lab
    parts = ['[sandbox]\nbackend = "vm"\n', "[resources]\nmemory_mb = 60000\n"]
    for text in ("".join(parts), "".join(reversed(parts))):
        write(lab, text)
        r = lab.run([*CLAUDE, "--explain", "--", "true"])
        assert r.code == 2 and "memory_mb = 60000" in r.err, r
        r = lab.ak(["create", "big", *CLAUDE])
        assert r.code != 0 and "memory_mb = 60000" in r.err and "big" not in b.list(), r
        assert lab.run([*CLAUDE, "--backend", "ns", "--explain", "--", "true"]).code == 0
        assert lab.run([*CLAUDE, "--memory", "256M", "--explain", "--", "true"]).code == 0
    shown = lab.ak(["trust", "--yes"])
    assert shown.code == 0 and "memory_mb = 60000" in shown.out, shown
