"""exec and attach: codes, streams, signals, time limits, terminals, and many at once."""
import json
import os
import pty
import termios
import time

from lab import PYTHON, wait_for
from screen import Screen


def test_codes_streams_environment_and_folder(any_boxes):
    b = any_boxes
    b.up("x", "-e", "A=create", "-e", "B=create")
    assert b.exec("x", "sh", "-c", "exit 37").code == 37
    assert b.exec("x", "sh", "-c", "kill -9 $$").code == 137
    r = b.exec("x", "no-such-program")
    assert r.code == 127 and "no-such-program" in r.err, r
    r = b.exec("x", "/etc/passwd")
    assert r.code == 126, r
    r = b.exec("x", "sh", "-c", "cat; echo err >&2", stdin=bytes(range(256)) * 300)
    assert r.out_bytes == bytes(range(256)) * 300 and r.err == "err\n"
    assert b.sh("x", "echo $A $B $C", options=["-e", "B=exec", "-e", "C=exec"]) == "create exec exec\n"
    assert b.out("x", "pwd", options=["-w", "/usr"]) == "/usr\n"
    assert b.exec("x", "pwd", options=["-w", "usr"]).code == 2
    assert b.exec("x", "true", options=["-w", "/nowhere"]).code == 125
    assert b.out("x", "printf", "%s|", "a b", "", "-e", "--", "$HOME") == "a b||-e|--|$HOME|"
    assert b.lab.ak(["exec", "x", "-e", "Z=1", "--", "sh", "-c", "echo $Z"]).out == "1\n"
    assert b.lab.ak(["exec", "--", "x", "echo", "-e"]).out.strip() in ("-e", "")


def test_a_time_limit_ends_the_command_and_only_it(boxes):
    b = boxes
    b.up("x")
    other = b.lab.spawn([b.lab.binary, "exec", "x", "sh", "-c", "echo up; read line; echo $line"], env=b.lab.env(), stdin="pipe")
    other.wait_output(b"up\n")
    r = b.exec("x", "sh", "-c", "sleep 100 & sleep 100", options=["--timeout", "300ms"])
    assert r.code == 124 and "timed out after 0.300s" in r.err, r
    wait_for(lambda: "sleep" not in b.sh("x", "cat /proc/[0-9]*/comm"))
    other.write(b"still\n")
    assert "still" in other.wait().out


def test_signals_reach_the_command_and_a_client_that_leaves_ends_it(boxes):
    b, lab = boxes, boxes.lab
    b.up("x")
    script = "trap 'echo term; exit 5' TERM; trap 'echo int; exit 6' INT; echo up; while :; do sleep 0.05; done"
    for sig, code in ((15, 5), (2, 6)):
        p = lab.spawn([lab.binary, "exec", "x", "sh", "-c", script], env=lab.env())
        p.wait_output(b"up\n")
        p.signal(sig)
        assert p.wait(10).code == code
    p = lab.spawn([lab.binary, "exec", "x", "sleep", "1000"], env=lab.env())
    wait_for(lambda: "sleep" in b.sh("x", "cat /proc/[0-9]*/comm"))
    p.signal(9)
    p.wait()
    wait_for(lambda: "sleep" not in b.sh("x", "cat /proc/[0-9]*/comm"))


def test_many_at_once(boxes):
    b, lab = boxes, boxes.lab
    b.up("x")
    procs = [lab.spawn([lab.binary, "exec", "x", "sh", "-c", "cat; exit %d" % i], env=lab.env(), stdin=b"%d" % i * 1000) for i in range(24)]
    for i, p in enumerate(procs):
        r = p.wait(60)
        assert r.code == i and r.out == str(i) * 1000, r


def test_a_slow_reader_slows_the_command_and_grows_nothing(boxes):
    b, lab = boxes, boxes.lab
    b.up("x")
    r, w = os.pipe()
    p = lab.spawn([lab.binary, "exec", "x", "sh", "-c", "yes | head -c 400000000; touch ~/done"], env=lab.env(), stdout=w)
    os.close(w)
    pids = "\n".join(lab.host(["sh", "-c", "pgrep '^(agentkernel|ak-)' || true"]).out.split())
    os.read(r, 1000)
    # It stands still: nothing of the 400 MB is anywhere but in the pipe.
    rss = [int(x) for x in lab.host(["sh", "-c", "for p in %s; do grep -h VmRSS /proc/$p/status 2>/dev/null; done | tr -dc '0-9\\n'" %
                                     pids.replace("\n", " ")]).out.split()]
    assert rss and max(rss) < 60000, rss
    assert b.sh("x", "ls ~/done 2>/dev/null || echo waiting").strip() == "waiting"
    os.close(r)  # the reader leaves: SIGPIPE, as anywhere
    assert p.wait(20).code == 0  # the shell goes on after its pipe broke


def test_a_terminal_has_a_size_that_follows_and_job_control(boxes):
    b, lab = boxes, boxes.lab
    b.up("x")
    s = Screen(lab, ["exec", "-t", "x", "bash", "--norc", "-i"], rows=33, cols=99)
    s.prompt()
    s.type(b"stty size; tty; echo TERM=$TERM\n")
    s.until(rb"33 99\r\n.*/dev/(pts/\d+|console).*TERM=xterm".replace(b".*", b"[\\s\\S]*"))
    s.resize(44, 111)
    s.type(b"\nstty size\n")
    s.until(rb"44 111\r\n")
    s.type(b"sleep 1000\n")
    wait_for(lambda: "sleep" in b.sh("x", "cat /proc/[0-9]*/comm"))
    s.type(b"\x1a")
    s.until(rb"Stopped")
    s.type(b"fg\n")
    wait_for(lambda: "S" in b.sh("x", "grep -h State /proc/[0-9]*/status"))
    s.type(b"\x03")
    s.prompt()
    s.type(b"exit 9\n")
    assert s.end().code == 9


def test_ctrl_c_goes_to_the_command_on_the_terminal(boxes):
    b, lab = boxes, boxes.lab
    b.up("x")
    s = Screen(lab, ["exec", "-it", "x", "sh", "-c", "trap 'echo caught; exit 3' INT; echo up; while :; do sleep 0.1; done"])
    s.until(rb"up")
    s.type(b"\x03")
    s.until(rb"caught")
    assert s.end().code == 3


def test_detach_leaves_it_running_and_attach_returns(boxes):
    b, lab = boxes, boxes.lab
    b.up("x")
    s = Screen(lab, ["attach", "x"])
    s.prompt()
    s.type(b"V=still; echo here-$V\n")
    s.until(rb"here-still")
    s.type(b"\x10\x11")
    s.until(rb"keeps running")
    assert s.end().code == 0
    names = "import glob; print(*[open(p).read().strip() for p in glob.glob('/proc/[0-9]*/comm')])"
    assert "bash" in b.out("x", PYTHON, "-c", names).split()
    s = Screen(lab, ["attach", "x"], rows=30)
    s.type(b"\n")
    s.until_typed(b"\n", rb"[$#] ")
    s.type(b"echo again-$V\n")
    s.until(rb"again-still")
    # Ctrl-P alone is the shell's: the line before comes back.
    s.type(b"\x10\n")
    s.until(rb"again-still")
    s.type(b"exit 4\n")
    assert s.end().code == 4
    # What was left ends with its sandbox, and so does its holder.
    s = Screen(lab, ["attach", "x"])
    s.prompt()
    s.type(b"echo up-$((1+1))\n")
    s.until(rb"up-2")
    s.type(b"\x10\x11")
    s.end()
    b.ak("stop", "x")


def test_the_terminal_is_as_it_was_afterwards(boxes):
    b, lab = boxes, boxes.lab
    b.up("x")
    fresh, other = pty.openpty()
    before = termios.tcgetattr(fresh)
    os.close(fresh), os.close(other)
    s = Screen(lab, ["exec", "-t", "x", "sh", "-c", "echo go; read _"])
    s.until(rb"go")
    assert termios.tcgetattr(s.master) != before, "the terminal is not ours while a command has it"
    s.type(b"\n")
    wait_for(lambda: s.proc._pump(time.monotonic() + 0.01, lambda: s.proc.code is not None))
    assert termios.tcgetattr(s.master) == before
    assert s.end().code == 0


def test_input_without_end_and_closed_streams(boxes):
    b, lab = boxes, boxes.lab
    b.up("x")
    p = lab.spawn([lab.binary, "exec", "x", PYTHON, "-c", "import sys; print(sys.stdin.readline().strip())"], env=lab.env(), stdin="pipe")
    p.write(b"line\n")
    assert p.wait().out == "line\n"
    r = lab.ak(["exec", "x", "sh", "-c", "echo out"], closed=[0])
    assert r.code == 0 and r.out == "out\n", r


def test_a_command_that_the_memory_limit_killed_is_told_why(any_boxes):
    b = any_boxes
    r = b.ak("create", "small", "--no-network", "--memory", "64M", "--start")
    code = "import subprocess, sys; sys.exit(subprocess.call([sys.executable, '-c', 'x = bytearray(400 << 20)']) % 256)"
    if "memory limit off" in r.err:
        return  # no control group that this user may write
    for command, want in (["-c", "x = bytearray(400 << 20)"], 137), (["-c", code], 247):
        r = b.lab.ak(["exec", "small", PYTHON, *command])
        assert r.code == want and "out of memory: limit 64 MiB (--memory)" in r.err, r
    r = b.lab.ak(["exec", "small", "true"])
    assert r.code == 0 and r.err == "", "it happened before: %r" % r
    name = b.ak("run", "--detach", "--no-network", "--memory", "64M", PYTHON, "-c", "x = bytearray(400 << 20)").out.strip()
    row, = wait_for(lambda: [row for row in json.loads(b.ak("list", "-a", "--json").out) if row["name"] == name and row["status"] == "exited"])
    assert row["exit_code"] == 137 and row["out_of_memory"] is True, row
