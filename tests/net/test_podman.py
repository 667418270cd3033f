"""`--backend podman`: a container that podman makes, on the sandbox's own link, behind the same gateway."""
import json
import os
import shutil
import stat
import tempfile

import api
import images
import mcp
import pytest
from expect import CODEX, NATIVE, SPOOFED, allow, denied, find, holding, in_sandbox, instead_of, missing, worked
from frames import FRAMES
from lab import PYTHON, wait_for
from persist import Boxes
from screen import Screen

PODMAN = ["--backend", "podman"]
SLOW = 90  # seconds: beside other tests
SERVES = "import socket\ns=socket.create_server(('127.0.0.1',8000)); print('up')\nc,_=s.accept(); c.sendall(b'hello'); c.recv(1)"


def needs_podman():
    lacks = [p for p in ("podman", "conmon") if not shutil.which(p)]
    if not any(shutil.which(p, path="/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/bin") for p in ("runc", "crun")):
        lacks.append("runc")
    if lacks:
        missing("not installed: " + " ".join(lacks))


@pytest.fixture
def pod(any_user):
    needs_podman()
    return any_user


@pytest.fixture
def pod_user(lab):
    """The same as an ordinary user only, for what does not depend on who runs it."""
    needs_podman()
    with lab.acting_as("user"):
        yield lab


def run(lab, args, **kw):
    return lab.run([*PODMAN, *args], timeout=SLOW, **kw)


def imported(lab, name="box", **config):
    if images.missing_tools():
        missing("not installed: " + images.missing_tools())
    folder = images.write_layout(lab.path("project", "layout-" + name), [images.base_layer().done()], config)
    r = lab.ak(["image", "import", "--name", name, folder + ":latest"])
    assert r.code == 0, r
    return name


# ---- the command ----

def test_a_command_runs_in_a_container(pod):
    r = run(pod, ["--no-network", "--", "sh", "-c", "ls -A /run; id -u; echo to-stderr >&2; exit 7"])
    assert r.code == 7 and ".containerenv" in r.out and "to-stderr" in r.err, r
    assert r.out.split()[-1] == str(1000 if pod.who == "root" else pod.uid), "the id that every sandbox has: %r" % r
    row, = json.loads(pod.ak(["list", "-a", "--json"]).out)
    assert row["backend"] == "podman" and " podman " in pod.ak(["list", "-a"]).out, row
    assert json.loads(pod.ak(["inspect", row["name"]]).out)["backend"] == "podman"


def test_streams_arguments_variables_and_exit_codes_arrive_as_they_are(pod_user):
    code = "import sys,os; d=sys.stdin.buffer.read(); print(len(d), d.count(b'x'), sys.argv[1:], repr(os.environ['A']), os.environ['TMPDIR'])"
    r = run(pod_user, ["--no-network", "-e", "A=b c\n", "--", PYTHON, "-c", code, "", "a b", "$HOME", "*", "--rm"], stdin=b"x" * 300000)
    assert r.code == 0 and r.out == "300000 300000 ['', 'a b', '$HOME', '*', '--rm'] 'b c\\n' /tmp\n", r
    for args, want in ((["no-such-program"], 127), (["/etc"], 126), (["sh", "-c", "kill -TERM $$"], 143)):
        r = run(pod_user, ["--no-network", "--", *args])
        assert r.code == want and not r.out, (args, r)
    r = run(pod_user, ["--no-network", "--timeout", "1s", "--", "sleep", "1000"])
    assert r.code == 124 and "timed out after 1s" in r.err, r


def test_signals_reach_the_command(pod_user):
    p = pod_user.start([*PODMAN, "--no-network", "--", "sh", "-c", "trap 'echo term; exit 3' TERM; echo up; while :; do sleep 0.1; done"])
    p.wait_output(b"up\n", SLOW)
    p.signal(15)
    r = p.wait(SLOW)
    assert r.code == 3 and r.out == "up\nterm\n", r


def test_the_project_is_the_same_folder_with_the_same_owner(pod):
    git = pod.path("project", ".git", "hooks")
    pod.spawn(["mkdir", "-p", git]).wait()
    with open(pod.path("project", "before"), "w") as f:
        f.write("from outside")
    script = "cat before; echo inside > after; pwd; touch .git/hooks/pre-commit 2>/dev/null && echo hook; chmod 4755 after 2>/dev/null; cp /bin/true suid; chmod u+s suid 2>/dev/null; true"
    r = run(pod, [*CODEX, "--", "sh", "-c", script], cwd=pod.path("project"))
    assert r.code == 0 and r.out == "from outside" + pod.path("project") + "\n", r
    with open(pod.path("project", "after")) as f:
        assert f.read() == "inside\n"
    assert os.stat(pod.path("project", "after")).st_uid == os.stat(pod.path("project")).st_uid
    assert not any(os.stat(pod.path("project", n)).st_mode & (stat.S_ISUID | stat.S_ISGID) for n in ("after", "suid"))


def test_strict_mode_has_a_read_only_root(pod):
    r = run(pod, [*CODEX, "--", "sh", "-c", "touch /x 2>/dev/null || echo ro; touch /usr/x 2>/dev/null || echo ro; touch ~/x /tmp/x /dev/shm/x && echo rw"],
            cwd=pod.path("project"))
    assert r.code == 0 and r.out == "ro\nro\nrw\n", r


def test_the_container_has_no_power(pod):
    """No capability, no new privileges, a filter of ours, no nested namespace, and nothing of the host's tree."""
    code = ("import os,ctypes,socket\n"
            "s=dict(l.split()[:2] for l in open('/proc/self/status') if len(l.split()) > 1)\n"
            "print(s['CapBnd:'], s['CapEff:'], s['NoNewPrivs:'], s['Seccomp:'])\n"
            "l=ctypes.CDLL(None,use_errno=True)\n"
            "print(*[l.unshare(f) for f in (0x10000000,0x40000000,0x20000)])\n"
            "for f,t,p in ((17,3,3),(2,3,1)):\n"
            " try: socket.socket(f,t,p); print('raw')\n"
            " except OSError: print('refused')\n"
            "print([p for p in ('/var/lib/dpkg','/boot','/etc/shadow') if os.path.exists(p)], os.listdir('/sys'))\n"
            "print(sorted(p for p in os.listdir('/proc') if p.isdigit())[:1], os.path.realpath('/..'))\n")
    r = run(pod, [*NATIVE, "--", PYTHON, "-c", code])
    assert r.out.splitlines() == ["0" * 16 + " " + "0" * 16 + " 1 2", "-1 -1 -1", "refused", "refused", "[] []", "['1'] /"], r


def test_nobody_keeps_power_when_the_command_runs(pod):
    """podman, its monitor and the sandbox's own first process have all capabilities in the sandbox's user namespace, until the container is ready."""
    code = """
import os
for pid in filter(str.isdigit, os.listdir('/proc')):
    try: ns, st = os.stat('/proc/%s/ns/pid' % pid).st_ino, open('/proc/%s/status' % pid).read()
    except OSError: continue
    if ns != os.stat('/proc/self/ns/pid').st_ino: print(st.split()[1], st.split('CapEff:')[1].split()[0])
"""
    p = pod.start([*PODMAN, *NATIVE, "--", "sh", "-c", "echo up; exec sleep 4323"])
    p.wait_output(b"up\n", SLOW)
    try:
        wait_for(lambda: not pod.running("conmon"))
        rows = [line.split() for line in pod.host([PYTHON, "-c", code]).out.splitlines()]
        assert len(rows) == 3 and all(int(caps, 16) == 0 for _, caps in rows), rows
    finally:
        p.signal(9)
        p.wait(SLOW)


# ---- the network ----

def test_the_policy_is_enforced(pod):
    steps = [["tls", "ok.test", 443, "ok.test", "/p", pod.ca], ["resolve", "evil.test"], ["tcp", "11.66.0.2", 443], ["tcp", "169.254.169.254", 80],
             ["udp", "11.99.0.1", 7, "x"], ["tcp", "2a00:99::1", 7], ["tls", "ok.test", 443, "evil.test"]]
    proxies = sum((["-e", "%s=http://11.66.0.2:443" % n] for n in ("http_proxy", "https_proxy", "ALL_PROXY")), [])
    got = pod.probe([*PODMAN, *proxies, *allow("ok.test")], steps, timeout=SLOW)
    assert worked(got[0])["path"] == "/p"
    for row in got[1:]:
        assert "err" in row, row
    assert {c["sni"] for c in pod.conns(kind="tls")} == {"ok.test"}
    assert [pod.arrived(a) for a in ("11.66.0.2", "169.254.169.254", "11.99.0.1", "2a00:99::1")] == [0, 0, 0, 0]
    assert "evil.test" not in pod.dns.names()
    log = pod.netlog()
    assert find(log, verdict="allow", sni="ok.test") and find(log, verdict="deny", name="evil.test") and find(log, verdict="deny", dst="169.254.169.254"), log


def test_a_run_tells_what_was_denied(pod_user):
    r = run(pod_user, [*CODEX, "--", PYTHON, "-c", "import socket\ntry: socket.getaddrinfo('evil.test', 443)\nexcept OSError: print('refused')"])
    assert r.out == "refused\n" and "denied: evil.test" in r.err and pod_user.dns.log("evil.test") == [], r


def test_the_resolver_is_ours(pod_user):
    r = run(pod_user, [*CODEX, "--", "cat", "/etc/resolv.conf", "/etc/hostname"])
    assert r.code == 0 and r.out.startswith("nameserver 100.64.0.") and "\nrun-" in r.out, r


SPOOFS = r"""
link = Link()
for n, src in enumerate(('11.9.9.9', '100.64.0.10', '127.0.0.1', '11.1.0.5', '169.254.169.254')):
    link.send(syn(src, '11.66.0.1', 41000 + n, 443)); link.send(udp4(src, '11.66.0.1', 41000 + n, 5000, b'data'))
link.send(syn(link.addr4, '11.66.0.1', 43000, 443), src_mac=b'\x02\0\0\0\0\1')
print('sent')
"""


def test_spoofed_sources_are_dropped_whatever_the_container_may_do(pod):
    """Raw frames on the container's own link, sent with all capabilities over its network namespace, which the container never gets."""
    with holding(pod, [*PODMAN, *allow("ok.test")]) as (proc, do):
        worked(do([["tls", "ok.test", 443, "ok.test"]])[0])
        pod.clear()
        r = in_sandbox(pod, proc, PYTHON, "-c", FRAMES + SPOOFS)
        assert r.code == 0 and r.out == "sent\n", r
        worked(do([["tls", "ok.test", 443, "ok.test"]])[0])
        assert pod.strangers("11.1.0.5", "2a00:1::5") == [], pod.strangers()
    denied(pod.netlog(), SPOOFED, proto="tcp", dst="11.66.0.1", port=443)


def test_the_network_waits_for_its_rules_and_is_nobodys_else(pod_user):
    """The container is in the network namespace of the sandbox and sees one link."""
    r = run(pod_user, [*NATIVE, "--", "sh", "-c", "cat /proc/net/dev | tail -n +3 | cut -d: -f1 | tr -d ' '"])
    assert sorted(r.out.split()) == ["eth0", "lo"], r
    r = run(pod_user, ["--no-network", "--", "sh", "-c", "cat /proc/net/dev | tail -n +3 | cut -d: -f1 | tr -d ' '"])
    assert r.out.split() == ["lo"], r


# ---- images ----

def test_an_image_is_the_root(pod):
    name = imported(pod, Env=["PATH=/bin", "FOO=bar baz"], WorkingDir="/home", Cmd=["sh", "-c", "echo $FOO; pwd; id -u; ls /"])
    r = run(pod, ["--image", name])
    assert r.code == 0 and r.out.startswith("bar baz\n/home\n0\nbin\n") and "\nboot\n" not in r.out, r


def test_root_of_an_image_has_no_network_of_its_own(pod):
    """Root inside, which the image chooses: no raw socket, no new address, and the policy holds."""
    name = imported(pod)
    script = "id -u; ip addr add 11.9.9.9/32 dev eth0 2>/dev/null && echo added; ping -c1 -W1 11.66.0.1 >/dev/null 2>&1 && echo pinged; nslookup evil.test >/dev/null 2>&1 && echo resolved; echo done"
    r = run(pod, [*NATIVE, "--block-host", "evil.test", "--image", name, "/bin/busybox", "sh", "-c", script.replace("ip addr", "/bin/busybox ip addr").replace("ping", "/bin/busybox ping", 1)])
    assert r.out == "0\ndone\n" and pod.arrived("11.66.0.1") == 0 and pod.dns.log("evil.test") == [], r


def test_root_of_an_image_gets_files_without_set_id_bits(pod):
    imported(pod)
    script = "touch a && chmod 6750 a && stat -c %a a && cd /root && touch a && chmod 4711 a && stat -c %a a"
    r = run(pod, ["--image", "box", "--dir", pod.path("project"), "sh", "-c", script], cwd=pod.path("project"))
    assert r.code == 0 and r.out.split()[:2] == ["750", "711"], r
    assert stat.S_IMODE(os.lstat(pod.path("project", "a")).st_mode) == 0o750


def test_another_user_of_an_image_owns_the_project(pod):
    name = imported(pod, User="node")
    r = run(pod, ["-m", "claude", "--image", name, "/bin/busybox", "sh", "-c", "id -u; echo x > made; stat -c %u made"], cwd=pod.path("project"))
    assert r.code == 0 and r.out == "1000\n1000\n", r
    assert os.stat(pod.path("project", "made")).st_uid == os.stat(pod.path("project")).st_uid


def test_an_image_that_only_podman_has_is_copied_over(pod):
    """As the lab's root: its ordinary user has no ids for podman's own storage."""
    if pod.who == "user":
        pytest.skip("podman's storage needs ids that the lab's user does not have")
    folder = images.write_layout(pod.path("project", "layout"), [images.base_layer().done()], {"Cmd": ["echo", "from podman"]})
    conf = pod.path("config", "storage.conf")
    with open(conf, "w") as f:
        f.write('[storage]\ndriver = "vfs"\ngraphroot = "%s"\nrunroot = "%s"\n' % (pod.path("state", "graph"), pod.path("state", "run")))
    env = {"CONTAINERS_STORAGE_CONF": conf, "TMPDIR": pod.path("state")}
    # A relative path: podman makes a name of it, in which the letters of the lab's folder may be wrong.
    r = pod.spawn(["podman", "pull", "-q", "oci:layout:latest"], cwd=os.path.dirname(folder), env=pod.env(**env)).wait(SLOW)
    assert r.code == 0, r
    r = pod.spawn(["podman", "tag", r.out.split()[-1], "localhost/mine:1"], env=pod.env(**env)).wait(SLOW)
    assert r.code == 0, r
    r = run(pod, ["--no-network", "--image", "localhost/mine:1"], env=env)
    assert r.code == 0 and r.out == "from podman\n" and "copying the image localhost/mine:1 from podman's storage" in r.err, r
    r = run(pod, ["--no-network", "--image", "localhost/mine:1"], env=env)
    assert r.code == 0 and "copying" not in r.err, r
    r = run(pod, ["--no-network", "--image", "localhost/none:1", "true"], env=env)
    assert r.code == 125 and "agentkernel image pull localhost/none:1" in r.err, r
    b = Boxes(pod)
    try:
        b.ak("image", "remove", "localhost/mine:1")
        name = b.ak("run", "--detach", *PODMAN, "--no-network", "--image", "localhost/mine:1", env=env, timeout=SLOW).out.strip()
        wait_for(lambda: b.ak("logs", name).out == "from podman\n", SLOW)
    finally:
        b.close()


# ---- persistent sandboxes ----

def test_a_persistent_sandbox_lives_in_a_container(pod):
    b = Boxes(pod)
    try:
        b.ak("create", "box", *PODMAN, *allow("ok.test"), timeout=SLOW)
        b.ak("start", "box", timeout=SLOW)
        assert json.loads(pod.ak(["list", "--json"]).out)[0]["backend"] == "podman"
        r = pod.ak(["exec", "box", "--", "sh", "-c", "echo kept > ~/file; (trap 'echo asked > ~/end; exit' TERM; while :; do sleep 1000 & : > ~/ready; wait; done) & "
                    "until [ -e ~/ready ]; do sleep 0.01; done; echo ok"])
        assert r.code == 0 and r.out == "ok\n" and "2 processes go on" in r.err, r
        assert worked(b.probe("box", [["tls", "ok.test", 443, "ok.test", "/p", pod.ca]])[0])["path"] == "/p"
        b.ak("network", "policy", "box", "--remove", "ok.test")
        assert "err" in b.probe("box", [["tls", "ok.test", 443, "ok.test"]])[0]
        home = b.out("box", "sh", "-c", "echo -n ~")
        b.ak("cp", "box:%s/file" % home, pod.path("tmp", "copy"))
        with open(pod.path("tmp", "copy")) as f:
            assert f.read() == "kept\n"
        os.unlink(pod.path("tmp", "copy"))
        assert pod.ak(["exec", "--timeout", "1s", "box", "--", "sleep", "1000"]).code == 124
        b.ak("stop", "box", timeout=SLOW)
        b.ak("start", "box", timeout=SLOW)
        assert b.out("box", "sh", "-c", "cat ~/file ~/end") == "kept\nasked\n"
        b.ak("remove", "--force", "box")
    finally:
        b.close()
    assert pod.leaks() == ""


def test_a_container_has_terminals_and_copies_and_ports(pod):
    b = Boxes(pod)
    try:
        b.ak("create", "box", *PODMAN, "--no-network", timeout=SLOW)
        b.ak("start", "box", timeout=SLOW)
        s = Screen(pod, ["attach", "box"])
        s.prompt()
        s.type(b"tty; stty size; sleep 8123 &\n")
        s.until(rb"/dev/pts/\d+\r\n24 80\r\n")
        s.type(b"exit 4\n")
        assert s.end(SLOW).code == 4
        s = Screen(pod, ["exec", "-t", "box", "sh", "-c", "echo up; read a; echo got-$a"])
        s.until(rb"up")
        s.type(b"one\x10\x11")
        s.until(rb"keeps running")
        assert s.end(SLOW).code == 0
        s = Screen(pod, ["attach", "box"])
        s.type(b"two\n")
        s.until(rb"got-onetwo")
        assert s.end(SLOW).code == 0
        with open(pod.path("tmp", "in"), "wb") as f:
            f.write(bytes(range(256)) * 999)
        home = b.out("box", "sh", "-c", "echo -n ~")
        b.ak("cp", pod.path("tmp", "in"), "box:%s/there" % home)
        b.ak("cp", "box:%s/there" % home, pod.path("tmp", "back"))
        with open(pod.path("tmp", "back"), "rb") as f:
            assert f.read() == bytes(range(256)) * 999
        os.unlink(pod.path("tmp", "in"))
        os.unlink(pod.path("tmp", "back"))
        b.ak("remove", "--force", "box")
    finally:
        b.close()
    assert pod.leaks() == ""


def test_a_detached_run_goes_on_in_a_container(pod):
    b = Boxes(pod)
    try:
        name = b.ak("run", "--detach", *PODMAN, *NATIVE, "--", PYTHON, "-uc", SERVES, timeout=SLOW).out.strip()
        assert b.list()[name]["backend"] == "podman"
        wait_for(lambda: b.ak("logs", name).out == "up\n")
        b.ak("network", "publish", name, "18082:8000")
        assert pod.host([PYTHON, "-c", "import socket; print(socket.create_connection(('127.0.0.1',18082),5).recv(9).decode())"]).out == "hello\n"
        wait_for(lambda: name not in b.list(), SLOW)
        row = next(r for r in json.loads(b.ak("list", "-a", "--json").out) if r["name"] == name)
        assert (row["backend"], row["exit_code"], row["status"]) == ("podman", 0, "exited"), row
    finally:
        b.close()
    assert pod.leaks() == ""


def test_the_apis_choose_podman_too(pod):
    b = Boxes(pod)
    try:
        with api.serving(pod) as a:
            got = a.run("sh", "-c", "ls -A /run; getent hosts evil.test; exit 5", backend="podman", compatibility_mode="codex")
            assert got["exit_code"] == 5 and ".containerenv" in got["stdout"], got
            info = a.post("/sandboxes", {"name": "web", "backend": "podman"}).data
            assert info["backend"] == "podman" and a.get("/sandboxes").data[0]["backend"] == "podman", info
            assert ".containerenv" in a.post("/sandboxes/web/exec", {"command": ["ls", "-A", "/run"]}).data["stdout"]
            a.post("/run", {"command": ["true"], "backend": "docker"}).refused(400, "--backend podman")
        with mcp.serving(pod, *CODEX) as m:
            got, _ = m.good("sandbox_run", timeout=SLOW, command=["ls", "-A", "/run"], backend="podman")
            assert ".containerenv" in got["stdout"], got
            got, text = m.good("sandbox_create", timeout=SLOW, name="tool", backend="podman")
            assert got["backend"] == "podman", got
            got, _ = m.good("sandbox_exec", timeout=SLOW, name="tool", command=["ls", "-A", "/run"])
            assert ".containerenv" in got["stdout"], got
            got, _ = m.good("sandbox_list")
            assert [s["backend"] for s in got["sandboxes"]] == ["podman"], got
            m.good("sandbox_remove", timeout=SLOW, name="tool", force=True)
        past = json.loads(b.ak("list", "-a", "--json").out)
        assert {row["backend"] for row in past} == {"podman"} and {row.get("origin") for row in past} >= {"http", "mcp"}, past
        b.ak("remove", "--force", "web")
    finally:
        b.close()


def test_containers_are_not_kept_warm(pod_user):
    r = pod_user.ak(["daemon", "prewarm", "--mode", "codex", *PODMAN])
    assert r.code == 2 and "podman" in r.err and "ns" in r.err, r


def test_a_port_is_published(pod_user):
    p = pod_user.start([*PODMAN, "-p", "18081:8000", *NATIVE, "--", PYTHON, "-uc", SERVES])
    p.wait_output(b"up\n", SLOW)
    r = pod_user.host([PYTHON, "-c", "import socket; print(socket.create_connection(('127.0.0.1',18081),5).recv(9).decode())"])
    assert r.out == "hello\n", r
    assert p.wait(SLOW).code == 0


# ---- limits and ends ----

def test_limits_hold(pod):
    code = "import os,time\nn=0\ntry:\n while n<100:\n  if os.fork()==0: time.sleep(60)\n  n+=1\nexcept OSError: print('limit', n)"
    r = run(pod, ["--no-network", "--pids", "20", "--", PYTHON, "-c", code])
    assert r.out.startswith("limit ") and int(r.out.split()[1]) < 20, r
    r = run(pod, ["--no-network", "--tmp", "2M", "--", "sh", "-c", "head -c 9M /dev/zero > /tmp/x || wc -c < /tmp/x"])
    assert r.code == 0 and r.out == "%d\n" % (2 << 20), r
    r = run(pod, ["--no-network", "--memory", "64M", "--", PYTHON, "-c", "x = bytearray(400 << 20)"])
    assert "memory limit off" in r.err or (r.code == 137 and "out of memory: limit 64 MiB" in r.err), r
    r = run(pod, ["--memory", "16M", "--", "true"])
    assert r.code == 2 and "--memory: at least 32M" in r.err, r


@pytest.mark.parametrize("victim", ["agentkernel", "init"])
def test_sudden_death_leaves_nothing(pod, victim):
    p = pod.start([*PODMAN, *NATIVE, "--", "sh", "-c", "echo up; sleep 4321"])
    p.wait_output(b"up\n", SLOW)
    assert pod.running("sleep 4321")
    pod.host(["kill", "-9", str(p.pid if victim == "agentkernel" else pod.sandbox_init(p))])
    assert p.wait(SLOW).code == 137 or victim == "agentkernel"
    assert pod.leaks() == ""


def test_death_while_podman_starts_leaves_nothing(pod_user):
    p = pod_user.start([*PODMAN, *NATIVE, "--", "sleep", "4322"])
    wait_for(lambda: pod_user.running("--storage-driver vfs"), SLOW)
    pod_user.host(["kill", "-9", str(p.pid)])
    p.wait(SLOW)
    assert pod_user.leaks() == ""


# ---- what is not there ----

def test_a_host_without_podman_says_what_to_install(lab):
    with instead_of(lab, "podman", "/dev/null"):
        r = lab.run([*PODMAN, "--no-network", "--", "true"])
        assert r.code == 125 and "podman is not installed" in r.err and "apt install podman" in r.err, r
        r = lab.ak(["create", "box", *PODMAN])
        assert r.code != 0 and "podman is not installed" in r.err, r
    assert json.loads(lab.ak(["list", "--json"]).out) == []


def test_a_podman_that_fails_is_quoted(pod_user):
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:  # podman does not see the host's /tmp
        os.chmod(folder, 0o755)
        bad = os.path.join(folder, "podman")
        with open(bad, "w") as f:
            f.write("#!/bin/sh\necho 'Error: no such thing today' >&2\nexit 125\n")
        os.chmod(bad, 0o755)
        with instead_of(pod_user, "podman", bad):
            r = run(pod_user, ["--no-network", "--", "true"])
    assert r.code == 125 and "podman could not start the container: no such thing today" in r.err, r


def test_a_podman_on_the_callers_path_is_not_started(pod):
    """A project's folder may be on PATH, and a sandbox may have written what is in it."""
    folder = pod.path("project", "bin")
    os.makedirs(folder)
    with open(os.path.join(folder, "podman"), "w") as f:
        f.write("#!/bin/sh\necho planted >&2\nexit 125\n")
    os.chmod(os.path.join(folder, "podman"), 0o755)
    r = run(pod, ["--no-network", "--", "echo", "fine"], env={"PATH": folder + ":/usr/bin:/bin"})
    assert r.code == 0 and r.out == "fine\n" and "planted" not in r.err, r


LEFT = "mv /run /run.old; mkdir /run; printf '#!/bin/sh\\necho planted\\n' > /evil; chmod 755 /evil; ln -s /proc/self/cwd/evil /run/agentkernel-init; echo left"


def test_a_kept_root_does_not_choose_the_first_process(pod):
    """The runtime and the kernel resolve a link below /proc/self at different times: no path in the container's tree names our program."""
    b = Boxes(pod)
    try:
        b.ak("create", "box", *PODMAN, timeout=SLOW)
        for _ in range(2):
            b.ak("start", "box", timeout=SLOW)
            r = pod.ak(["exec", "box", "--", "sh", "-c", "grep Seccomp: /proc/1/status; ls /run/agentkernel-init"], timeout=SLOW)
            assert "Seccomp:\t2" in r.out, r
            pod.ak(["exec", "box", "--", "sh", "-c", LEFT], timeout=SLOW)
            b.ak("stop", "box", timeout=SLOW)
    finally:
        b.close()


def test_docker_is_refused_with_the_reason(lab):
    r = lab.run(["--backend", "docker", "--", "true"])
    assert r.code == 2 and "docker" in r.err and "--backend podman" in r.err, r
    assert ("not installed" in r.err) == (shutil.which("docker", path=lab.env()["PATH"]) is None), r


def test_nested_namespaces_are_refused(pod_user):
    r = run(pod_user, ["--nested-namespaces", "--", "true"])
    assert r.code == 2 and "--backend ns" in r.err, r
