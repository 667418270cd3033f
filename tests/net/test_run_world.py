"""`run`: what the command finds inside (files, environment, limits) and what is kept of it."""
import json
import os
import re

import pytest
from expect import CODEX, NATIVE, allow, policy_env, refused
from lab import PYTHON


def test_the_environment_stays_outside(lab):
    env = {"SECRET": "hunter2", "AWS_SECRET_ACCESS_KEY": "x", "OPENAI_API_KEY": "sk-1", "ANTHROPIC_API_KEY": "sk-2", "LD_PRELOAD": ""}
    r = lab.run([*CODEX, "env"], env=env)
    for word in ("hunter2", "AWS_SECRET", "sk-1", "sk-2", "XDG_STATE_HOME", "AGENTKERNEL_DATA_DIR"):
        assert word not in r.out, r
    r = lab.run([*CODEX, "-e", "A=one two", "-e", "B=", "env"], env=env)
    assert "A=one two\n" in r.out and "B=\n" in r.out, r
    r = lab.run([*CODEX, "--pass-api-key", "env"], env=env)
    assert "OPENAI_API_KEY=sk-1" in r.out and "sk-2" not in r.out and "hunter2" not in r.out, r
    r = lab.run(["--compatibility-mode", "claude", "--pass-api-key", "env"], env=env)
    assert "ANTHROPIC_API_KEY=sk-2" in r.out and "sk-1" not in r.out, r
    r = lab.run(["--profile", "permissive", "env"], env=env)
    assert "SECRET=hunter2" in r.out, r


@pytest.mark.parametrize("mode", ["codex", "claude", "gemini"])
def test_the_project_is_mounted_writable_at_its_own_path(any_user, mode):
    lab = any_user
    with open(lab.path("project", "given"), "w") as f:
        f.write("from outside")
    r = lab.run(["--compatibility-mode", mode, "sh", "-c", "pwd; cat given; echo made > made; mkdir sub"], cwd=lab.path("project"))
    assert r.code == 0 and r.out == lab.path("project") + "\nfrom outside", r
    info = os.stat(lab.path("project", "made"))
    assert open(lab.path("project", "made")).read() == "made\n"
    assert info.st_uid == (0 if lab.who == "root" else lab.uid)


def test_another_folder_is_the_project_by_dir(lab):
    os.mkdir(lab.path("project", "inner dir"))
    r = lab.run([*CODEX, "--dir", lab.path("project", "inner dir"), "sh", "-c", "pwd; touch x; ls -A ..; echo z > ../leak"])
    assert r.out.startswith(lab.path("project", "inner dir")), r
    assert os.path.exists(lab.path("project", "inner dir", "x")) and not os.path.exists(lab.path("project", "leak"))


def test_native_and_moderate_do_not_mount_the_project(lab):
    with open(lab.path("project", "given"), "w") as f:
        f.write("x")
    for options in ([], NATIVE, ["--profile", "moderate"], ["--profile", "restrictive"]):
        r = lab.run([*options, "cat", lab.path("project", "given")])
        assert r.code != 0, (options, r)


def test_nothing_else_of_home_is_visible(lab):
    with open(lab.path("home", "id_rsa"), "w") as f:
        f.write("private")
    for options in (CODEX, NATIVE, ["--compatibility-mode", "claude"], []):
        r = lab.run([*options, "sh", "-c", "cat %s; ls -A ~ | head; ls /root /home 2>/dev/null" % lab.path("home", "id_rsa")])
        assert "private" not in r.out and "id_rsa" not in r.out, r
    r = lab.run(["--profile", "permissive", "sh", "-c", "cat %s; echo x > %s" % (lab.path("home", "id_rsa"), lab.path("home", "new"))])
    assert "private" in r.out and not os.path.exists(lab.path("home", "new")), r


def test_codex_root_is_read_only_with_writable_tmp_and_home(any_user):
    lab = any_user
    r = lab.run([*CODEX, "sh", "-c", "id -u; for d in /usr /etc / /var; do touch $d/x 2>/dev/null && echo wrote $d; done; "
                 "touch /tmp/x ~/x . && echo fine; test -w /usr/bin/env && echo writable; df -T /tmp ~ 2>/dev/null | grep -c tmpfs"])
    lines = r.out.split()
    assert "wrote" not in r.out and "writable" not in r.out and "fine" in lines, r
    assert lines[0] != "0" and lines[-1] == "2", r


def test_modes_and_profiles_say_read_only_or_not(lab):
    r = lab.run(["--profile", "restrictive", "sh", "-c", "touch /etc/x /usr/x"])
    assert r.code != 0
    r = lab.run(["--profile", "moderate", "sh", "-c", "touch /opt/x /etc/x /usr/x /var/x && echo fine"])
    assert r.out == "fine\n", r
    assert not os.path.exists("/opt/x") and not os.path.exists("/usr/x")


def test_devices_and_proc_are_minimal(lab):
    r = lab.run([*CODEX, "sh", "-c", "ls /dev; echo; ls /proc | grep -c '^[0-9]'; cat /proc/1/cmdline | tr '\\0' ' '; cat /proc/kcore 2>&1 | head -c 20; "
                 "echo 1 > /proc/sys/kernel/sysrq"])
    devices = set(r.out.split("\n\n")[0].split())
    assert {"null", "zero", "urandom"} <= devices, r
    assert not devices & {"vda", "sda", "kmsg", "mem", "kvm", "net", "fuse"}, devices


def test_the_work_folder_may_be_chosen(lab):
    assert lab.run([*CODEX, "-w", "/tmp", "pwd"]).out == "/tmp\n"
    r = lab.run([*CODEX, "--workdir", "/nowhere", "pwd"])
    assert r.code == 125 and "/nowhere" in r.err, r


def test_no_network_has_only_loopback(lab):
    for options in (["--no-network"], ["--profile", "restrictive"], ["--profile", "restrictive", "--compatibility-mode", "claude"],
                    [*CODEX, "--no-network", "--allow-host", "ok.test"]):
        got = lab.probe(options, [["eval", "out = sorted(os.listdir('/sys/class/net')) if os.path.exists('/sys/class/net') else "
                                   "[l.split(':')[0].strip() for l in open('/proc/net/dev').readlines()[2:]]"],
                                  ["resolve", "ok.test"], ["tcp", "11.1.0.5", 443], ["udp", "11.1.0.5", 5000],
                                  ["eval", "l=socket.create_server(('127.0.0.1',0)); c=socket.create_connection(l.getsockname()); out='loop'"]])
        assert "eth0" not in got[0]["ok"], got
        for row in got[1:4]:
            refused(row)
        assert got[4]["ok"] == "loop"
    assert not lab.strangers() and not lab.dns.log()


def test_a_profile_never_widens_a_modes_network(lab):
    got = lab.probe([*CODEX, "--profile", "permissive"], [["resolve", "evil.test"], ["tcp", "11.66.0.2", 443]])
    assert "err" in got[0] and "err" in got[1] and not lab.strangers()


def test_memory_limit_is_reported_as_such(lab):
    r = lab.run([*CODEX, "--memory", "64M", PYTHON, "-c", "x = bytearray(400 << 20); print('got it')"])
    if "memory limit off" in r.err:
        return
    assert r.code != 0 and "got it" not in r.out, r


def test_process_limit_holds(lab):
    r = lab.run([*CODEX, "--pids", "20", PYTHON, "-c", "import os,signal\nn=0\ntry:\n while n < 200:\n  if os.fork() == 0: signal.pause()\n  n += 1\n"
                 "except OSError: pass\nprint(n)"])
    assert int(r.out) < 25, r


def test_json_result_is_one_object(lab):
    r = lab.run([*CODEX, "--json", "sh", "-c", "echo out; echo err >&2; exit 3"])
    assert r.code == 3, r
    row = json.loads(r.out)
    assert (row["exit_code"], row["stdout"], row["stderr"], row["timed_out"]) == (3, "out\n", "err\n", False), row
    assert row["network"]["denied"] == 0 and row["duration_ms"] >= 0 and row["sandbox"]


def test_json_counts_denials_and_says_when_time_ran_out(lab):
    r = lab.run([*CODEX, "--json", "--timeout", "500ms", "sh", "-c", "getent hosts evil.test; sleep 20"])
    row = json.loads(r.out)
    assert row["timed_out"] is True and row["network"]["denied"] >= 1, row


def test_after_denials_one_line_says_how_many_and_how_to_see_them(lab):
    r = lab.run([*CODEX, "getent", "hosts", "evil.test"])
    lines = [line for line in r.err.splitlines() if "denied" in line]
    assert len(lines) == 1 and "network log" in lines[0] and re.search(r"\d", lines[0]), r
    assert "denied" not in lab.run([*CODEX, "true"]).err
    assert lab.run([*CODEX, "--quiet", "getent", "hosts", "evil.test"]).err == ""


def test_keep_keeps_files_and_record(any_user):
    lab = any_user
    r = lab.run([*CODEX, "--keep", "sh", "-c", "echo kept > ~/file; getent hosts evil.test; exit 4"])
    assert r.code == 4, r
    name = re.search(r"run-[0-9a-f]{8}", r.err).group(0)
    log = lab.netlog(name=name)
    assert any(row.get("name") == "evil.test" and row["verdict"] == "deny" for row in log)
    found = lab.host(["sh", "-c", "grep -rl '^kept$' %s /var/lib/agentkernel 2>/dev/null" % lab.path("state")]).out
    assert "file" in found, "the kept file is nowhere: %r" % found


def test_state_is_private(lab):
    lab.run([*CODEX, "getent", "hosts", "evil.test"])
    out = lab.host(["sh", "-c", "find %s /var/lib/agentkernel -type f -perm /077 2>/dev/null" % lab.path("state")]).out
    assert out == "", "readable by others: " + out


def test_no_user_namespaces_is_told_with_a_remedy(lab):
    """A nested user namespace that allows no more of them, and no capabilities to do without."""
    script = ("echo 0 > /proc/sys/user/max_user_namespaces && exec setpriv --bounding-set=-all --inh-caps=-all --no-new-privs %s run "
              "--compatibility-mode codex touch %s" % (lab.binary, lab.path("project", "ran")))
    with lab.acting_as("user"):
        r = lab.spawn(["unshare", "--map-root-user", "sh", "-c", script]).wait()
    assert r.code == 125 and "user namespace" in r.err and r.err.startswith("agentkernel: "), r


def test_without_a_resolver_it_says_so_and_runs_nothing(lab):
    for text in ("", "# nothing here\n", "nameserver not-an-address\n"):
        lab.resolv(text)
        r = lab.run([*allow("ok.test"), "getent", "hosts", "ok.test"], timeout=20)
        assert r.code == 125 and r.out == "" and r.err.startswith("agentkernel: "), r
        assert "has no resolver" in r.err, r


def test_a_read_only_state_folder_is_told_and_nothing_runs(lab):
    with lab.acting_as("user"):
        os.chmod(lab.path("state"), 0o555)
        r = lab.run([*CODEX, "touch", lab.path("project", "ran")])
        os.chmod(lab.path("state"), 0o755)
        assert r.code == 125 and lab.path("state") in r.err and not os.path.exists(lab.path("project", "ran")), r


def test_fifty_at_once_all_work(lab):
    procs = [lab.start([*allow("ok.test"), "--", "sh", "-c", "getent hosts ok.test >/dev/null && echo %d" % i]) for i in range(50)]
    results = [p.wait(60) for p in procs]
    assert [(r.code, r.out) for r in results] == [(0, "%d\n" % i) for i in range(50)], [r for r in results if r.code][:3]
