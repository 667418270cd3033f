"""h4: daemon.sock, a supervisor's socket, the state and the configuration are out of reach however the folders are named."""
import contextlib
import json
import os

import pytest

from lab import PYTHON, wait_for

# Ask every socket that can be seen below the given folders, as a client of ours would; print which of them answered.
ASK = """
import json, os, socket, stat, sys
def ask(path, op):
    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); s.settimeout(5)
    try:
        d = os.open(os.path.dirname(path), os.O_PATH)
        s.connect('/proc/self/fd/%d/%s' % (d, os.path.basename(path)))
        with s:
            try: s.send(json.dumps({'op': op}).encode())
            except OSError: pass
            return json.loads(s.recv(65536))
    except (OSError, ValueError) as e:
        return {'error': str(e)}
got, seen = [], []
for top in sys.argv[1:]:
    for d, dirs, files in os.walk(top):
        for f in files:
            path = os.path.join(d, f)
            if f in ('events.jsonl', 'sandbox.json', 'mine.json', 'daemon.log'): seen.append(path)
            try:
                if not stat.S_ISSOCK(os.lstat(path).st_mode): continue
            except OSError: continue
            for op in ('status', 'namespaces'):
                answer = ask(path, op)
                if 'error' not in answer: got.append([path, op])
print(json.dumps({'answered': got, 'seen': seen}))
"""


@contextlib.contextmanager
def folders(lab, *names):
    for name in names:
        path = lab.path(*name.split("/"))
        os.makedirs(path, mode=0o700, exist_ok=True)
        if lab.is_root and lab.who == "user":
            for at in range(1, len(name.split("/")) + 1):
                os.chown(lab.path(*name.split("/")[:at]), lab.uid, lab.gid)
    yield


def refused_or_blind(lab, env, args, tops):
    """Start a daemon and a sandbox under ENV; what may be seen inside of a run and of the sandbox is nothing."""
    whole = lab.env(**env)
    ak = lambda *words, **kw: lab.spawn([lab.binary, *words], env=whole, **kw).wait(40)
    ak("daemon", "start")
    try:
        ak("create", "victim", "--compatibility-mode", "native")
        ak("start", "victim")
        verdicts = []
        for mode in ("native", "claude", "codex"):
            r = ak("run", "--compatibility-mode", mode, *args, "--", PYTHON, "-c", ASK, *tops)
            verdicts.append(r)
            if r.code == 0:
                assert json.loads(r.out) == {"answered": [], "seen": []}, (mode, r)
            else:
                assert ("agentkernel's own" in r.err or "mounted below" in r.err) and r.out == "", (mode, r)
        made = ak("create", "inside", *args)
        if made.code == 0:
            up = ak("start", "inside")
            assert up.code == 0 or "mounted below" in up.err, up
            r = ak("exec", "inside", PYTHON, "-c", ASK, *tops) if up.code == 0 else None
            assert r is None or (r.code == 0 and json.loads(r.out) == {"answered": [], "seen": []}), r
        else:
            assert "agentkernel's own" in made.err, made
        return verdicts
    finally:
        ak("remove", "--force", *ak("list", "-q").out.split())
        ak("daemon", "stop")


def config_file(lab, *parts):
    """A policy of the user's, which no sandbox is to see either."""
    path = lab.path(*parts, "agentkernel", "policies", "mine.json")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as f:
        f.write("{}")
    if lab.is_root and lab.who == "user":
        for at in (path, os.path.dirname(path), os.path.dirname(os.path.dirname(path))):
            os.chown(at, lab.uid, lab.gid)


def test_h4_a_home_that_is_a_link(any_user):
    lab = any_user
    with folders(lab, "home/.local/state", "home/.config", "home/run"):
        config_file(lab, "home", ".config")
        os.symlink(lab.path("home"), lab.path("link"))
        env = dict(HOME=lab.path("link"), XDG_STATE_HOME=lab.path("link", ".local", "state"), XDG_CONFIG_HOME=None, XDG_RUNTIME_DIR=None)
        for r in refused_or_blind(lab, env, ["--profile", "permissive"], [lab.path("home"), lab.path("link")]):
            assert r.code == 0, r  # covered, not refused: a home that is a link is nobody's fault


def test_h4_a_runtime_folder_below_the_home(any_user):
    lab = any_user
    with folders(lab, "home/run", "home/conf"):
        config_file(lab, "home", "conf")
        env = dict(XDG_RUNTIME_DIR=lab.path("home", "run"), XDG_CONFIG_HOME=lab.path("home", "conf"))
        for r in refused_or_blind(lab, env, ["--profile", "permissive"], [lab.path("home")]):
            assert r.code == 0, r


def test_h4_a_home_without_any_folder_of_ours(any_user):
    """Nothing to cover yet is no reason to fail, and what appears later is not seen either."""
    lab = any_user
    env = dict(XDG_STATE_HOME=lab.path("home", ".local", "state"), XDG_CONFIG_HOME=None, XDG_RUNTIME_DIR=None)
    for r in refused_or_blind(lab, env, ["--profile", "permissive"], [lab.path("home")]):
        assert r.code == 0, r


@pytest.mark.parametrize("which", ["XDG_RUNTIME_DIR", "XDG_STATE_HOME", "XDG_CONFIG_HOME"])
@pytest.mark.parametrize("way", ["plain", "link", "dotdot"])
def test_h4_a_folder_of_ours_inside_the_project(any_user, which, way):
    lab = any_user
    with folders(lab, "project/own"):
        config_file(lab, "project", "own")
        os.symlink(lab.path("project"), lab.path("home", "elsewhere"))
        value = {"plain": lab.path("project", "own"), "link": lab.path("home", "elsewhere", "own"), "dotdot": lab.path("home") + "/../project/own"}[way]
        for r in refused_or_blind(lab, {which: value}, ["--dir", lab.path("project")], [lab.path("project")]):
            assert r.code != 0, r
        for r in refused_or_blind(lab, {which: value}, ["--dir", lab.path("home", "elsewhere")], [lab.path("project")]):
            assert r.code != 0, r


def test_h4_a_project_above_all_of_ours(any_user):
    lab = any_user
    for r in refused_or_blind(lab, {}, ["--dir", lab.path()], [lab.path()]):
        assert r.code != 0, r


def test_h4_a_way_that_leads_through_the_project(any_user):
    """The folder is elsewhere, but the link to it could be turned by a sandbox, towards a daemon of its own making."""
    lab = any_user
    with folders(lab, "apart"):
        os.symlink(lab.path("apart"), lab.path("project", "hop"))
        os.symlink(lab.path("project", "hop"), lab.path("start"))
        for value in (lab.path("project", "hop"), lab.path("start")):
            for r in refused_or_blind(lab, dict(XDG_STATE_HOME=value), ["--dir", lab.path("project")], [lab.path("project")]):
                assert r.code != 0, r


def test_h4_relative_folders_mean_nothing(any_user):
    """A relative XDG path is ignored, or a project would choose where our sockets are."""
    lab = any_user
    with folders(lab, "project/run", "project/state", "project/conf"):
        env = dict(XDG_RUNTIME_DIR="run", XDG_CONFIG_HOME="conf")
        for r in refused_or_blind(lab, env, ["--dir", lab.path("project")], [lab.path("project")]):
            assert r.code == 0, r
        assert os.listdir(lab.path("project", "run")) == [] and os.listdir(lab.path("project", "conf")) == []


@contextlib.contextmanager
def bound(lab, source, target):
    assert lab.host(["mount", "--bind", source, target]).code == 0
    try:
        yield
    finally:
        wait_for(lambda: lab.host(["umount", target]).code == 0)  # a daemon that ends is still in there


def test_h4_a_runtime_folder_that_is_a_mount_of_a_part_of_the_project(any_user):
    lab = any_user
    with folders(lab, "project/deep/run", "outside"), bound(lab, lab.path("project", "deep", "run"), lab.path("outside")):
        for r in refused_or_blind(lab, dict(XDG_RUNTIME_DIR=lab.path("outside")), ["--dir", lab.path("project")], [lab.path("project")]):
            assert r.code != 0, r


def test_h4_a_mount_of_the_runtime_folder_inside_the_project(any_user):
    lab = any_user
    with folders(lab, "project/x", "runtime"), bound(lab, lab.path("runtime"), lab.path("project", "x")):
        for r in refused_or_blind(lab, {}, ["--dir", lab.path("project")], [lab.path("project")]):
            assert r.code != 0, r


def test_h4_a_mount_of_a_part_of_the_runtime_folder_inside_the_home(any_user):
    lab = any_user
    with folders(lab, "home/x", "runtime/agentkernel/sb"), bound(lab, lab.path("runtime", "agentkernel", "sb"), lab.path("home", "x")):
        for r in refused_or_blind(lab, {}, ["--profile", "permissive"], [lab.path("home")]):
            # Where a user may not look below a mount, neither may their sandbox: the home is not shown at all.
            assert r.code == 0 or "mounted below" in r.err, r


def test_h4_a_state_folder_below_opt(any_user):
    """The host's /opt is in every sandbox."""
    lab = any_user
    with folders(lab, "opt", "opt/own"), bound(lab, lab.path("opt"), "/opt"):
        env = dict(XDG_STATE_HOME="/opt/own", XDG_RUNTIME_DIR="/opt/own", XDG_CONFIG_HOME="/opt/own")
        for r in refused_or_blind(lab, env, [], ["/opt"]):
            assert r.code == 0, r


def test_h4_policies_that_a_sandbox_could_write_are_refused(any_user):
    """The shipped policies inside of a writable project would be the sandbox's to change."""
    lab = any_user
    with folders(lab, "project/data/policies"):
        for name in ("native", "claude", "codex", "gemini"):
            source = os.path.join(lab.env()["AGENTKERNEL_DATA_DIR"], "policies", name + ".json")
            with open(source) as f, open(lab.path("project", "data", "policies", name + ".json"), "w") as out:
                out.write(f.read())
        env = dict(AGENTKERNEL_DATA_DIR=lab.path("project", "data"))
        for r in refused_or_blind(lab, env, ["--dir", lab.path("project")], [lab.path("home")]):
            assert r.code != 0, r


def test_h4_peers_of_another_namespace_are_refused_in_words(any_boxes):
    """Whatever way a sandbox found to the sockets: its namespaces are not the daemon's."""
    b, lab = any_boxes, any_boxes.lab
    b.up("x")
    ways = [["unshare", "--user", "--map-current-user"], ["unshare", "--user", "--map-current-user", "--mount"]]
    if lab.who == "root":
        ways.append(["unshare", "--mount"])
    for way in ways:
        r = lab.spawn([*way, PYTHON, "-c", ASK, lab.path("runtime")], env=lab.env()).wait()
        assert r.code == 0 and json.loads(r.out)["answered"] == [], (way, r)
        for words in (["daemon", "status"], ["exec", "x", "true"], ["cp", "x:/etc/passwd", "stolen"], ["stop", "x"]):
            r = lab.spawn([*way, lab.binary, *words], env=lab.env()).wait(20)
            assert r.code != 0 and "namespace" in r.err, (way, words, r)
        assert not os.path.exists(lab.path("project", "stolen"))
    r = lab.spawn([PYTHON, "-c", ASK, lab.path("runtime")], env=lab.env()).wait()
    assert json.loads(r.out)["answered"], r  # the same program in the daemon's own namespaces is served
    assert b.list()["x"]["status"] == "running"


def test_h4_a_peer_whose_process_is_gone_is_refused(any_boxes):
    """A socket that was handed on: the process that connected has ended, and its number may be anyone's by now."""
    b, lab = any_boxes, any_boxes.lab
    b.up("x")
    r = lab.spawn([PYTHON, "-c", """
import json, os, signal, socket, sys
daemon = json.loads(sys.argv[2])
os.kill(daemon, signal.SIGSTOP)
try:
    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); s.settimeout(10)
    if os.fork() == 0:
        s.connect(sys.argv[1]); os._exit(0)
    os.wait()
finally:
    os.kill(daemon, signal.SIGCONT)
try:
    try: s.send(b'{"op":"status"}')
    except OSError: pass
    print(s.recv(65536).decode())
except OSError as e: print(e)
""", os.path.join("/proc/self/cwd", "agentkernel", "daemon.sock"), str(b.pid())], env=lab.env(), cwd=lab.path("runtime")).wait()
    assert r.code == 0 and "gateway" not in r.out, r


def test_h4_a_socket_that_a_sandbox_planted_is_no_daemon(any_boxes):
    """The other way round: a client does not hand its descriptors to a listener of another namespace."""
    lab = any_boxes.lab
    os.makedirs(lab.path("runtime", "agentkernel"), exist_ok=True)
    if lab.is_root and lab.who == "user":
        os.chown(lab.path("runtime", "agentkernel"), lab.uid, lab.gid)
    fake = lab.spawn(["unshare", "--user", "--map-current-user", PYTHON, "-c", """
import os, select, socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); s.bind('daemon.sock'); s.listen(8); s.settimeout(20)
print('up', flush=True)
n = 0
while select.select([s, 0], [], [], 20)[0] == [s]:
    c, _ = s.accept()
    c.settimeout(5)
    try: n += len(c.recv(65536))
    except OSError: pass
    c.close()
print('got', n, flush=True)
"""], env=lab.env(), cwd=lab.path("runtime", "agentkernel"), stdin="pipe")
    fake.wait_output(b"up\n")
    r = lab.ak(["run", "--", "true"])
    status = lab.ak(["daemon", "status"])
    fake.close_stdin()
    end = fake.wait()
    os.unlink(lab.path("runtime", "agentkernel", "daemon.sock"))
    assert end.out.split() == ["up", "got", "0"], end
    assert status.code != 0 and "namespace" in status.err, status
    assert r.code == 0, r  # a run needs no daemon
