"""`run`: exit codes, argv, standard streams, signals and time-outs."""
import json
import os
import pty
import signal
import struct
import fcntl
import termios

import pytest
from expect import CODEX, worked
from lab import PYTHON

MODES = [[], CODEX, ["--no-network"], ["--profile", "restrictive"], ["--compatibility-mode", "claude"]]


@pytest.mark.parametrize("options", MODES, ids=lambda o: "-".join(o).replace("--", "") or "default")
def test_the_commands_own_code_comes_back(any_user, options):
    assert any_user.run([*options, "true"]).code == 0
    assert any_user.run([*options, "sh", "-c", "exit 42"]).code == 42
    assert any_user.run([*options, "--", "sh", "-c", "echo out; echo err >&2; exit 3"]).out == "out\n"


def test_stdout_and_stderr_carry_only_the_commands_own(lab):
    r = lab.run([*CODEX, "sh", "-c", "echo out; echo err >&2"])
    assert (r.code, r.out) == (0, "out\n")
    assert [line for line in r.err.splitlines() if not line.startswith("agentkernel: ")] == ["err"]


def test_a_signal_that_ended_the_command_is_128_and_its_number(lab):
    for sig in (signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV, signal.SIGHUP):
        r = lab.run(["sh", "-c", "kill -%d $$" % sig])
        assert r.code == 128 + sig, r


def test_not_found_is_127_and_not_executable_126(lab):
    r = lab.run(["no-such-command-here"])
    assert r.code == 127 and "no-such-command-here" in r.err, r
    r = lab.run(["/etc/passwd"])
    assert r.code == 126 and "/etc/passwd" in r.err, r
    r = lab.run(["/usr"])
    assert r.code == 126, r
    r = lab.run(["/no/such/path"])
    assert r.code == 127, r
    assert all(line.startswith("agentkernel: ") for line in r.err.splitlines()), r


def test_a_script_without_interpreter_is_an_error_that_is_told(lab):
    path = lab.path("project", "script")
    with open(path, "w") as f:
        f.write("#!/no/such/interpreter\n")
    os.chmod(path, 0o755)
    r = lab.run([*CODEX, path])
    assert r.code == 127 and "its interpreter does not exist in the sandbox" in r.err, r


def test_time_out_is_124_and_says_so(lab):
    r = lab.run(["--timeout", "300ms", "sleep", "1000"])
    assert r.code == 124 and "timed out after" in r.err, r
    assert "timed out after 1s" in lab.run(["--timeout", "1s", "sleep", "1000"]).err


def test_time_out_takes_what_ignores_signals_too(lab):
    r = lab.run(["--timeout", "300ms", "sh", "-c", "trap '' TERM INT HUP; while :; do sleep 1; done"])
    assert r.code == 124, r


def test_argv_reaches_the_command_exactly(lab):
    words = ["", " ", "a b", "$HOME", "`id`", "*", "--timeout", "-e", "--", "\n", "\t'\"\\", "é€😀", "-", ";", "|", "x" * 5000]
    r = lab.run([*CODEX, PYTHON, "-c", "import json,sys; print(json.dumps(sys.argv[1:]))", *words])
    assert r.code == 0 and json.loads(r.out) == words, r
    r = lab.run([*CODEX, "--", "printf", "%s|", "--help", "--quiet", "-x"])
    assert r.out == "--help|--quiet|-x|", r


def test_options_take_both_spellings_and_end_at_the_command(lab):
    assert lab.run(["--compatibility-mode=codex", "--timeout=20s", "-e", "A=1", "--env=B=2", "sh", "-c", "echo $A$B"]).out == "12\n"


def test_many_arguments_and_a_large_environment_fit(lab):
    words = ["w%d" % i for i in range(3000)]
    r = lab.run([PYTHON, "-c", "import sys; print(len(sys.argv))", *words])
    assert r.out == "3001\n", r


def test_stdin_is_passed_through(lab):
    data = os.urandom(300000)
    r = lab.run([*CODEX, "cat"], stdin=data)
    assert r.code == 0 and r.out_bytes == data
    r = lab.run([*CODEX, "cat"], stdin=b"")
    assert r.code == 0 and r.out_bytes == b""


def test_stdin_closed_is_no_trouble(any_user):
    r = any_user.run([*CODEX, "sh", "-c", "cat; echo done"], closed=[0])
    assert r.code == 0 and r.out == "done\n", r


def test_all_streams_closed_still_runs_and_returns_the_code(lab):
    assert lab.run([*CODEX, "sh", "-c", "exit 7"], closed=[0, 1, 2]).code == 7


def test_a_closed_pipe_ends_the_sandbox(lab):
    r, w = os.pipe()
    os.close(r)
    proc = lab.start([*CODEX, "sh", "-c", "while :; do echo y; done"], stdout=w)
    os.close(w)
    got = proc.wait(15)
    assert got.code == 141, got


@pytest.mark.parametrize("sig", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_sandbox_with_its_code(lab, sig):
    proc = lab.start([*CODEX, "sh", "-c", "echo up; while :; do sleep 1; done"])
    proc.wait_output(b"up\n")
    proc.signal(sig)
    assert proc.wait(10).code == 128 + sig


def test_the_command_may_handle_a_signal_itself(lab):
    proc = lab.start([*CODEX, "sh", "-c", "trap 'echo bye; exit 9' TERM; echo up; while :; do sleep 0.05; done"])
    proc.wait_output(b"up\n")
    proc.signal(signal.SIGTERM)
    got = proc.wait(10)
    assert got.code == 9 and "bye" in got.out, got


def test_interrupting_twice_ends_even_a_stubborn_command(lab):
    proc = lab.start([*CODEX, PYTHON, "-c", "import os,signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, (2, 15))\n"
                      "os.write(1, b'up\\n')\nwhile signal.sigwait((2, 15)): os.write(1, b'no\\n')"])
    proc.wait_output(b"up\n")
    proc.signal(signal.SIGINT)
    proc.wait_output(b"no\n")
    proc.signal(signal.SIGINT)
    got = proc.wait(15)
    assert got.code == 137, got


def terminal(lab, args, **kw):
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
    proc = lab.start(args, tty=slave, **kw)
    os.close(slave)
    proc.pipes[1] = os.dup(master)
    return proc, master


def test_a_terminal_is_one_inside_and_its_size_is_followed(lab):
    code = ("import os,signal,sys\ndef say(word): os.write(1, ('%s %d %d\\n' % (word, *os.get_terminal_size())).encode())\n"
            "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGWINCH])\nsay('tty %s %s' % (os.isatty(0), os.isatty(1)))\n"
            "signal.sigwait([signal.SIGWINCH]); say('now')\nsys.stdin.readline()")
    proc, master = terminal(lab, [*CODEX, "-i", "-t", PYTHON, "-c", code])
    proc.wait_output(b"tty True True 100 30")
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", 44, 132, 0, 0))
    proc.signal(signal.SIGWINCH)
    proc.wait_output(b"now 132 44")
    os.write(master, b"\n")
    assert proc.wait().code == 0
    os.close(master)


def test_control_c_on_a_terminal_interrupts_the_command(lab):
    proc, master = terminal(lab, [*CODEX, "-i", "-t", PYTHON, "-c", "import signal; signal.signal(2, signal.SIG_DFL); print('up', flush=True); signal.pause()"])
    proc.wait_output(b"up")
    os.write(master, b"\x03")
    assert proc.wait(10).code == 130
    os.close(master)


def test_the_terminal_is_left_as_it_was(lab):
    master, slave = pty.openpty()
    before = termios.tcgetattr(slave)
    proc = lab.start([*CODEX, "-i", "-t", "sh", "-c", "stty raw -echo; echo up; exit 5"], tty=slave)
    proc.pipes[1] = os.dup(master)
    assert proc.wait(15).code == 5
    assert termios.tcgetattr(slave) == before
    os.close(master)
    os.close(slave)


def test_a_vanishing_terminal_ends_the_sandbox(lab):
    proc, master = terminal(lab, [*CODEX, "-i", "-t", "sh", "-c", "echo up; sleep 100"])
    proc.wait_output(b"up")
    os.close(proc.pipes.pop(1))
    os.close(master)
    assert proc.wait(10).code != 0


def test_background_children_go_with_the_command(lab):
    r = lab.run([*CODEX, "sh", "-c", "(setsid sleep 1000 &) ; (sleep 1000 >/dev/null 2>&1 &) ; echo up"])
    assert r.code == 0 and r.out == "up\n" and not r.held_open, r


def test_orphans_are_reaped_inside(lab):
    code = """
import subprocess
subprocess.run(['sh', '-c', 'for i in 1 2 3 4 5 6 7 8; do (true &); done'])
def others():
    return [p for p in os.listdir('/proc') if p.isdigit() and int(p) not in (1, os.getpid())]
wait_for(lambda: not others())
out = others()
"""
    assert worked(lab.probe(CODEX, [["eval", code]])[0]) == []
