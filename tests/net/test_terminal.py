"""Commands on a terminal: who gets one, the keys that stop and continue a command, sizes, colours, and programs that draw."""
import os
import re
import shutil

import pytest
from expect import missing
from lab import PYTHON, wait_for
from screen import Screen

SCRIPTS = {
    # What a program can ask about its terminal. `own`: it is in the foreground of a session that another process leads.
    "who": """
import os
def of(ask):
    try: return ask()
    except OSError: return False
print('tty', *[os.isatty(n) for n in (0, 1, 2)], os.environ.get('TERM'), os.environ.get('COLORTERM'),
      'own', of(lambda: os.tcgetpgrp(0) == os.getpid() and os.getsid(0) == os.getppid()), flush=True)
os.write(2, b'to stderr\\n')
""",
    # A program that draws: it reads keys as they come; q ends it.
    "raw": """
import os, tty
tty.setraw(0)
os.write(1, b'ready\\r\\n')
total = b''
while not total.endswith(b'q'):
    total += os.read(0, 65536)
    os.write(1, b'have %d\\r\\n' % len(total))
os.write(1, b'sum %d begin %r\\r\\n' % (sum(total), total[:8]))
""",
    # It prints when it is continued, and ends with the next line. Python runs a handler of a signal that came just before a read only after that read.
    "count": """
import os, select, signal, sys
r, w = os.pipe(); os.set_blocking(w, False)
signal.set_wakeup_fd(w); signal.signal(signal.SIGCONT, lambda *_: None)
os.write(1, b'up\\n')
while sys.stdin not in select.select([sys.stdin, r], [], [])[0]: os.read(r, 100); os.write(1, b'continued\\n')
print('line', sys.stdin.readline().strip(), flush=True)
raise SystemExit(7)
""",
    # Everything that would show or change the memory of the session's leader, which is a copy of init's.
    "spy": """
import ctypes, os
parent, got = os.getppid(), []
for name in ('environ', 'mem', 'maps', 'auxv', 'fd', 'cwd', 'root', 'exe'):
    path = '/proc/%d/%s' % (parent, name)
    try: got.append((name, os.listdir(path) if name == 'fd' else os.readlink(path) if name in ('cwd', 'root', 'exe') else open(path, 'rb').read(16)))
    except OSError: pass
if ctypes.CDLL(None).ptrace(16, parent, 0, 0) == 0: got.append('traced')
print('leader', os.getsid(0) == parent, 'got', got)
""",
    # What Claude Code and others do when Ctrl-Z reaches them as a key.
    "own-stop": """
import os, signal, sys, termios, tty
before = termios.tcgetattr(0)
while True:
    tty.setraw(0)
    os.write(1, b'drawn\\r\\n')
    key = os.read(0, 1)
    termios.tcsetattr(0, termios.TCSADRAIN, before)
    if key == b'q': raise SystemExit(3)
    if key == b'\\x1a':
        os.write(1, b'suspended\\n')
        os.kill(0, signal.SIGTSTP) if sys.argv[1] == 'group' else os.kill(os.getpid(), signal.SIGSTOP)
""",
}


@pytest.fixture
def scripts(lab):
    """The scripts as files; a shell hands their text to the program inside."""
    for name, text in SCRIPTS.items():
        with open(lab.path("tmp", name), "w", encoding="ascii") as f:
            f.write(text)
    yield lambda name, *args: '%s -c "$(cat %s)" %s' % (PYTHON, lab.path("tmp", name), " ".join(args))
    for name in SCRIPTS:
        os.unlink(lab.path("tmp", name))


@pytest.fixture
def open_shell(lab):
    """A user's shell on a terminal."""
    screens = []

    def make(**kw):
        screens.append(Screen(lab, None, shell=True, **kw))
        return screens[-1]
    yield make
    for s in screens:
        s.close()


@pytest.fixture
def shell(any_user, scripts, open_shell):
    """The same, as an ordinary user and as root."""
    return open_shell


def wait_stopped(lab, text):
    """Until the command has stopped, which on the caller's terminal is a moment after the prompt: before that, it could read what is meant for the shell."""
    states = "for p in %s; do cut -d' ' -f3 /proc/$p/stat; done"
    wait_for(lambda: "T" in lab.host(["sh", "-c", states % " ".join(map(str, lab.running(text)))]).out.split(), every=0.05)


def program(name):
    return shutil.which(name) or missing("%s is not installed" % name)


# ---- who gets a terminal ----

def test_at_a_terminal_the_command_has_one_of_its_own(shell, scripts):
    s = shell()
    s.type(("COLORTERM=truecolor ak run --no-network %s\n" % scripts("who")).encode())
    s.until(rb"tty True True True xterm truecolor own True\r\n")


def test_an_agent_by_its_name_has_one_too(shell, scripts, lab):
    with open(lab.path("home", "codex"), "w") as f:
        f.write("#!%s\n%s" % (PYTHON, SCRIPTS["who"]))
    os.chmod(f.name, 0o755)
    s = shell()
    s.type(("PATH=%s:$PATH ak codex\n" % lab.path("home")).encode())
    s.until(rb"tty True True True xterm None own True\r\n")


@pytest.mark.parametrize("option, rest, seen", [
    ("-T", "", "True True True"), ("--no-tty", "", "True True True"), ("", "</dev/null", "False True True"), ("", "| cat", "True False True"), ("", "&", "True True True"),
], ids=["-T", "--no-tty", "stdin elsewhere", "stdout elsewhere", "in the background"])
def test_otherwise_it_has_the_caller_s_streams(shell, scripts, option, rest, seen):
    s = shell()
    s.type(("ak run --no-network %s %s %s\n" % (option, scripts("who"), rest)).encode())
    s.until(rb"tty %s xterm None own False\r\n" % seen.encode())


def test_options_may_be_typed_as_one_word_and_contradictions_are_refused(shell, scripts):
    s = shell()
    s.type(("ak run --no-network -itw/ -eCOLORTERM=16 %s | cat\n" % scripts("who")).encode())
    s.until(rb"tty True True True xterm 16 own True[\s\S]*host\$ ")
    s.type(b"ak run -tT true; echo code-$?\n")
    s.until(rb"run: --tty and --no-tty exclude each other[\s\S]*code-2")


def test_standard_error_goes_where_the_caller_sent_it(shell, scripts):
    s = shell()
    s.type(("ak run --no-network %s 2>err.log; cat err.log\n" % scripts("who")).encode())
    s.until(rb"tty True True False xterm None[^\n]*\nto stderr")


def test_the_session_s_leader_shows_nothing_of_init(shell, scripts):
    s = shell()
    s.type(("ak run --no-network %s\n" % scripts("spy")).encode())
    s.until(rb"leader True got \[\]\r\n")


# ---- stopping and continuing ----

@pytest.mark.parametrize("options", ["", "-T"], ids=["own terminal", "caller's terminal"])
def test_ctrl_z_gives_the_shell_back_and_fg_returns_to_the_command(shell, scripts, options):
    s = shell()
    s.type(("ak run --no-network %s %s\n" % (options, scripts("count"))).encode())
    s.until(rb"up\r\n")
    s.type(b"\x1a")
    s.until(rb"Stopped[\s\S]*host\$ ")
    wait_stopped(s.lab, "raise SystemExit(7)")
    s.type(b"echo me-$((40+2))\n")
    s.until(rb"me-42")
    s.type(b"fg\n")
    s.until(rb"continued\r\n")
    s.type(b"hello\n")
    s.until(rb"line hello\r\n[\s\S]*host\$ ")
    s.type(b"echo code-$?\n")
    s.until(rb"code-7")


@pytest.mark.parametrize("how", ["group", "alone"])
def test_a_program_that_stops_itself_gives_the_shell_back(shell, scripts, how):
    s = shell()
    s.type(("ak run --no-network %s\n" % scripts("own-stop", how)).encode())
    for _ in range(2):
        s.until(rb"drawn")
        s.type(b"\x1a")
        s.until(rb"suspended[\s\S]*Stopped[\s\S]*host\$ ")
        s.type(b"fg\n")
    s.until(rb"drawn")
    s.type(b"q")
    s.until(rb"host\$ ")
    s.type(b"echo code-$?\n")
    s.until(rb"code-3")


def test_bg_lets_it_go_on_without_the_terminal(shell):
    s = shell()
    s.type(b"ak run --no-network sh -c 'echo up; read x; echo got-$x'\n")
    s.until(rb"up\r\n")
    s.type(b"\x1a")
    s.until(rb"Stopped[\s\S]*host\$ ")
    s.type(b"bg\n")
    s.until(rb"host\$ ")
    s.type(b"echo mine-$((1+1))\n")  # the shell reads it, not the command
    s.until(rb"mine-2")
    s.type(b"fg\n")
    s.until_typed(b"again\n", rb"got-(again)?")
    s.until_typed(b"\n", rb"host\$ ")


def test_a_suspended_command_can_be_ended(shell, any_user):
    s = shell()
    s.type(b"ak run --no-network sh -c 'echo up; exec sleep 4711'\n")
    s.until(rb"up\r\n")
    s.type(b"\x1a")
    s.until(rb"Stopped[\s\S]*host\$ ")
    s.type(b"kill %1; wait; echo ended-$((3+4))\n")
    s.until(rb"ended-7")
    wait_for(lambda: not any_user.running("sleep 4711"))


def test_without_a_shell_above_the_command_goes_on(any_user, scripts):
    """Nobody could continue us: the kernel ignores the stop, and so do we."""
    s = Screen(any_user, ["run", "--no-network", PYTHON, "-c", SCRIPTS["own-stop"], "group"])
    for _ in range(2):
        s.until(rb"drawn")
        s.type(b"\x1a")
        s.until(rb"suspended")
    s.until(rb"drawn")
    s.type(b"q")
    assert s.end().code == 3


# ---- programs ----

def test_job_control_of_a_shell_inside_works(shell):
    s = shell(rows=33, cols=99)
    s.type(b"ak run --no-network -e PS1='in''> ' bash --norc -i\n")
    s.until(rb"in> ")
    s.type(b"sleep 1000\n")
    s.until(rb"sleep 1000\r\n")
    s.until_typed(b"\x1a", rb"Stopped +sleep")
    s.type(b"\njobs; stty size\n")
    s.until(rb"Stopped +sleep[\s\S]*33 99")
    s.resize(44, 111)
    s.until_typed(b"stty size\n", rb"44 111")
    s.type(b"fg\n")
    s.until(rb"sleep 1000\r\n")
    s.until_typed(b"\x03", rb"\^C[\s\S]*in> ")
    s.type(b"cat\n")
    s.until(rb"cat\r\n")
    s.type(b"abc\n")
    s.until(rb"abc\r\nabc\r\n")
    s.type(b"\x04")
    s.until(rb"in> ")
    s.type(b"exit 5\n")
    s.until(rb"host\$ ")
    s.type(b"echo code-$?\n")
    s.until(rb"code-5")


def test_vi_draws_stops_and_continues(shell):
    vi = program("vi")
    s = shell(rows=20, cols=60)
    s.type(b"ak run --no-network %s -u NONE -N /tmp/note\n" % vi.encode())
    s.until(rb"New[\s\S]*~ +[\s\S]*~ +")
    s.type(b"ihello sandbox\x1b")
    s.until(rb"hello sandbox")
    s.type(b"\x1a")
    s.until(rb"Stopped[\s\S]*host\$ ")
    s.type(b"fg\n")
    s.until(rb"hello sandbox")
    s.resize(30, 90)
    s.until_typed(b"\x1b:set columns?\r", rb"columns=90")
    s.type(b"\x1b:q!\r")
    s.until(rb"host\$ ")
    assert_sane(s)


def test_top_runs_until_q(shell):
    program("top")
    s = shell()
    s.type(b"ak run --no-network top\n")
    s.until(rb"PID[\s\S]*top")
    s.type(b"q")
    s.until(rb"host\$ ")
    assert_sane(s)


def test_a_large_paste_arrives_whole(shell, scripts):
    """Bracketed paste is but octets; what is too much for the pty at once waits, and blocks nothing."""
    s = shell()
    s.type(("ak run --no-network %s\n" % scripts("raw")).encode())
    s.until(rb"ready")
    text = b"\x1b[200~" + bytes(range(32, 96)) * 2000 + b"\x1b[201~"
    s.paste(text + b"q")
    found = s.until(rb"sum (\d+) begin (b'[^']*')", 30)
    assert int(found[1]) == sum(text + b"q") and found[2] == repr(text[:8]).encode()


def test_ctrl_c_and_ctrl_backslash_reach_the_command(shell):
    s = shell()
    for key, code in ((b"\x03", b"130"), (b"\x1c", b"131")):
        s.type(b"ak run --no-network sh -c 'echo up; exec sleep 1000'\n")
        s.until(rb"up\r\n")
        s.until_typed(key, rb"host\$ ")
        s.type(b"echo code-$?\n")
        s.until(rb"code-" + code)


def assert_sane(s):
    """The terminal is the shell's again: lines, echo, and signals by keys."""
    s.type(b"echo sane-$((2+3))\n")
    s.until(rb"sane-5")
    s.type(b"stty -a | tr ';' '\\n' | grep -cE '(^| )(isig|onlcr|opost|ixon)( |$)'\n")
    s.until(rb"[\r\n]3\r\n")


def test_the_terminal_is_restored_when_we_are_ended(shell, scripts):
    for sig in ("TERM", "HUP"):
        s = shell()
        s.type(("ak run --no-network %s\n" % scripts("raw")).encode())
        s.until(rb"ready")
        s.lab.host(["pkill", "-" + sig, "-f", "^%s run --no-network" % re.escape(s.lab.binary)])
        s.until(rb"host\$ ", 20)
        assert_sane(s)


# ---- exec and attach ----

def test_exec_has_a_terminal_too_and_can_be_suspended(any_boxes, scripts, open_shell):
    b = any_boxes
    b.up("x", "--no-network")
    s = open_shell()
    s.type(("ak exec x %s\n" % scripts("who")).encode())
    s.until(rb"tty True True True xterm None own True\r\n[\s\S]*host\$ ")
    s.type(("ak exec -T x %s\n" % scripts("who")).encode())
    s.until(rb"tty True True True xterm None own False\r\n[\s\S]*host\$ ")
    for options in ("", "-T"):
        s.type(("ak exec %s x %s\n" % (options, scripts("count"))).encode())
        s.until(rb"up\r\n")
        s.type(b"\x1a")
        s.until(rb"Stopped[\s\S]*host\$ ")
        wait_stopped(s.lab, "raise SystemExit(7)")
        s.type(b"fg\n")
        s.until(rb"continued\r\n")
        s.type(b"hello\n")
        s.until(rb"line hello\r\n")
        s.until(rb"host\$ ")
        s.type(b"echo code-$?\n")
        s.until(rb"code-7[\s\S]*host\$ ")


def test_a_warm_run_can_be_suspended(boxes, scripts, open_shell):
    b = boxes
    b.ak("daemon", "prewarm", "--mode", "codex")
    s = open_shell()
    s.type(("ak run --compatibility-mode codex %s\n" % scripts("count")).encode())
    s.until(rb"up\r\n")
    s.type(b"\x1a")
    s.until(rb"Stopped[\s\S]*host\$ ")
    s.type(b"fg\n")
    s.until(rb"continued\r\n")
    s.type(b"hello\n")
    s.until(rb"line hello\r\n[\s\S]*host\$ ")


def test_attach_needs_a_terminal_and_says_so(boxes):
    b = boxes
    b.up("x", "--no-network")
    r = b.lab.ak(["attach", "x"])
    assert r.code == 2 and "standard input is not a terminal" in r.err and "agentkernel exec x" in r.err, r


def test_sigterm_ends_exec_even_of_a_shell_that_ignores_it(boxes):
    b = boxes
    b.up("x", "--no-network")
    s = Screen(b.lab, ["exec", "-t", "x", "bash", "--norc", "-i"])
    s.prompt()
    s.proc.signal(15)
    assert s.end(20).code == 137
    wait_for(lambda: "bash" not in b.sh("x", "cat /proc/[0-9]*/comm"))


def test_a_detached_command_may_stop_and_is_continued_by_attach(boxes):
    b = boxes
    b.up("x", "--no-network")
    s = Screen(b.lab, ["exec", "-t", "x", "sh", "-c", "echo up; read a; kill -STOP $$; read b; echo $a-$b"])
    s.until(rb"up")
    s.type(b"one\n\x10\x11")
    s.until(rb"keeps running")
    assert s.end().code == 0
    wait_for(lambda: re.search(r"T \(stopped\)", b.sh("x", "grep -h State /proc/[0-9]*/status")))
    s = Screen(b.lab, ["attach", "x"])
    s.until_typed(b"two\n", rb"one-two")
    assert s.end().code == 0
