"""h17: the user's terminal is after a command what it was before, and a sandbox stays the first to go when memory runs out."""
import json
import os
import pty

import pytest
from lab import PYTHON

# Everything that a program can do to a terminal that it was given.
SPOIL = """
import fcntl, os, struct, sys, termios
for request, value in [(0x540C, 0), *((0x5423, struct.pack('i', n)) for n in range(1, 30))]:
    try: fcntl.ioctl(0, request, value)
    except OSError: pass
mode = termios.tcgetattr(0)
mode[0] = mode[1] = mode[3] = 0
mode[6][termios.VINTR] = b'x'
termios.tcsetattr(0, termios.TCSANOW, mode)
for fd in (0, 1, 2): fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_NONBLOCK)
termios.tcflow(0, termios.TCOOFF)
if sys.argv[1] == 'killed': os.kill(os.getpid(), 9)
"""


# The user's shell: it looks at its terminal before and after, and goes on writing there.
SHELL = """
import fcntl, json, os, struct, subprocess, sys, termios
def state():
    mode = termios.tcgetattr(0)
    mode[6] = [c if isinstance(c, int) else c[0] for c in mode[6]]
    return [mode, fcntl.ioctl(0, 0x5424, bytes(4)).hex(), fcntl.ioctl(0, 0x80045440, bytes(4)).hex(), fcntl.fcntl(0, fcntl.F_GETFL)]
before = state()
code = subprocess.call(sys.argv[2:])
try: after = state()
except (OSError, termios.error) as e: after = str(e)
os.set_blocking(1, False)
try: flows = os.write(1, b'x') == 1
except OSError: flows = False
json.dump({'before': before, 'after': after, 'flows': flows, 'code': code}, open(sys.argv[1], 'w'))
"""


def spoil(lab, args, how):
    """What the shell saw, after a command that spoiled all it could."""
    master, slave = pty.openpty()
    out = lab.path("project", "state.json")
    p = lab.spawn([PYTHON, "-c", SHELL, out, lab.binary, *args, PYTHON, "-c", SPOIL, how], env=lab.env(), tty=slave)
    os.close(slave)
    try:
        p.wait(30)
    finally:
        os.close(master)
    with open(out, encoding="ascii") as f:
        seen = json.load(f)
    assert seen["code"] == {"ends": 0, "killed": 137}[how], seen
    return seen


OWN = pytest.mark.parametrize("own", ["-t", "-T"], ids=["own terminal", "caller's terminal"])


@OWN
@pytest.mark.parametrize("how", ["ends", "killed"])
def test_h17_run_leaves_the_terminal_as_it_was(any_user, how, own):
    seen = spoil(any_user, ["run", "--no-network", own, "--"], how)
    assert seen["after"] == seen["before"] and seen["flows"]


@OWN
@pytest.mark.parametrize("how", ["ends", "killed"])
def test_h17_exec_leaves_the_terminal_as_it_was(any_boxes, how, own):
    b = any_boxes
    b.up("x", "--no-network")
    seen = spoil(b.lab, ["exec", own, "x"], how)
    assert seen["after"] == seen["before"] and seen["flows"]


@OWN
def test_h17_a_warm_run_leaves_the_terminal_as_it_was(boxes, own):
    b = boxes
    b.ak("daemon", "prewarm", "--mode", "codex")
    seen = spoil(b.lab, ["run", "--compatibility-mode", "codex", own, "--"], "ends")
    assert seen["after"] == seen["before"] and seen["flows"]


LOWER = """
import os
for value in ('0', '-1', '499', '-1000'):
    for who in ('self', str(os.getppid()), '1'):
        try: open('/proc/%s/oom_score_adj' % who, 'w').write(value); print('lowered', who, value)
        except OSError: pass
print(open('/proc/self/oom_score_adj').read().strip())
"""


@pytest.mark.parametrize("args", [["--no-network"], ["--compatibility-mode", "codex"], ["--compatibility-mode", "claude"]], ids=["moderate", "codex", "claude"])
def test_h17_a_sandbox_cannot_save_itself_when_memory_runs_out(any_user, args):
    r = any_user.run([*args, "--", PYTHON, "-c", LOWER])
    assert r.code == 0 and r.out.strip() == "500", r


CORE = """
import resource
print(resource.getrlimit(resource.RLIMIT_CORE))
for value in ((0, 0), (0, 1), (1, 1)):
    try: resource.setrlimit(resource.RLIMIT_CORE, value)
    except (OSError, ValueError): pass
    try: resource.prlimit(0, resource.RLIMIT_CORE, value)
    except (OSError, ValueError): pass
print(resource.getrlimit(resource.RLIMIT_CORE))
"""


@pytest.mark.parametrize("args", [["--no-network"], ["--compatibility-mode", "codex"]], ids=["moderate", "codex"])
def test_h17_a_crash_starts_no_program_on_the_host(any_user, args):
    """The kernel runs a core_pattern that is a pipe whatever the limit is, but not for a limit of 1 (fs/coredump.c)."""
    r = any_user.run([*args, "--", PYTHON, "-c", CORE])
    assert r.code == 0 and r.out == "(1, 1)\n(1, 1)\n", r
