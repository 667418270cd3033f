"""What people see: tables that fit the terminal, colours that can be turned off, times, and one style of JSON."""
import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios

import pytest
from expect import CODEX

ESCAPE = re.compile(r"\x1b\[[0-9]*m")


def shown(lab, args, width, **env):
    """What ARGS print on a terminal WIDTH columns wide."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
    p = lab.spawn([lab.binary, *args], env=lab.env(TERM="xterm", **env), stdout=slave)
    os.close(slave)
    text = b""
    try:
        while True:
            text += os.read(master, 65536)
    except OSError:  # the last writer has gone
        os.close(master)
    r = p.wait()
    assert r.code == 0, r
    return text.decode().replace("\r\n", "\n")


def widest(text):
    return max(len(ESCAPE.sub("", line)) for line in text.splitlines())


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_every_table_and_help_fits(boxes, width):
    b, lab = boxes, boxes.lab
    b.up("a-sandbox-with-a-name-that-is-as-long-as-names-may-become-63-xx", "--compatibility-mode", "codex")
    lab.run([*CODEX, "sh", "-c", "getent hosts a-rather-long-label.and-another-one.and-one-more.evil.test; exit 3"])
    for args in (["list"], ["ls", "-a"], ["audit"], ["policy", "list"], ["network", "log", "--last"], ["network", "log", "--last", "--summary"],
                 ["daemon", "status"], ["--help"], *([["run", "--help"], ["network", "log", "--help"], ["mcp", "server", "--help"]] if width >= 80 else [])):
        text = shown(lab, args, width)
        assert text and widest(text) <= width, (args, width, [line for line in text.splitlines() if len(ESCAPE.sub("", line)) > width])
    assert "not in" in shown(lab, ["network", "log", "--last"], width)  # the reason is never cut


def test_nothing_is_cut_in_a_pipe(boxes):
    b, lab = boxes, boxes.lab
    name = "a-sandbox-with-a-name-that-is-as-long-as-names-may-become-63-xx"
    b.create(name)
    for options in ([], ["-a"]):
        out = b.ak("list", *options, env={"COLUMNS": "40"}).out
        assert name in out and "\x1b" not in out and "ADDRESS" in out and "…" not in out
    assert name not in shown(lab, ["list"], 60) and name in shown(lab, ["list"], 60, COLUMNS="200")


def test_colours_follow_the_option_then_the_environment(boxes):
    b, lab = boxes, boxes.lab
    lab.run([*CODEX, "getent", "hosts", "evil.test"])
    log = ["network", "log", "--last"]
    assert "\x1b[31mdeny\x1b[0m" in shown(lab, log, 120)
    for args, env in ((log, {"NO_COLOR": "1"}), ([*log, "--color", "never"], {}), ([*log, "--color=never"], {"CLICOLOR_FORCE": "1"})):
        assert "\x1b" not in shown(lab, args, 120, **env), (args, env)
    assert "\x1b[31m" in b.ak(*log, "--color", "always").out and "\x1b[31m" in b.ak(*log, env={"CLICOLOR_FORCE": "1"}).out
    b.fails(*log, "--color", "sometimes", code=2, says="auto, always, never")


def test_times_are_local_or_utc(boxes):
    b, lab = boxes, boxes.lab
    b.create("x", "--no-network")
    record = json.loads(b.ak("audit", "--json").out)["time"]
    utc = record[:19].replace("T", " ")
    assert utc in b.ak("audit", "--utc", env={"TZ": "XYZ-5"}).out
    local = b.ak("audit", env={"TZ": "XYZ-5"}).out
    assert utc not in local and "%02d%s" % ((int(utc[11:13]) + 5) % 24, utc[13:]) in local


def test_json_is_one_line_in_a_pipe_and_indented_on_a_terminal(boxes):
    b, lab = boxes, boxes.lab
    b.create("x", "--no-network")
    for args in (["list"], ["policy", "list"], ["version"], ["audit", "verify"], ["network", "check", "codex", "api.openai.com"], ["agents"], ["inspect", "x"],
                 ["run", "--no-network", "true"]):
        words = args if args[0] in ("inspect", "run") else [*args, "--json"]
        words = ["run", "--json", *args[1:]] if args[0] == "run" else words
        out = b.ak(*words).out
        assert out.count("\n") == 1 and json.loads(out), words
        pretty = shown(lab, words, 80)
        assert pretty.count("\n") > 2 and type(json.loads(pretty)) is type(json.loads(out)), words


def test_empty_tables_say_what_to_do_next(boxes):
    b, lab = boxes, boxes.lab
    assert "agentkernel create" in b.ak("list").err and b.ak("list").out.startswith("NAME")
    assert "agentkernel run" in b.ak("list", "-a").err and "agentkernel run" in b.ak("audit").err
    assert "NAME" not in shown(lab, ["list"], 80)
    lab.run(["true"])
    assert "network log: no network requests were recorded" in b.ak("network", "log", "--last").err


def test_numbers_and_times_of_the_daemon_are_plain(boxes):
    b = boxes
    b.ak("daemon", "start")
    text = b.ak("daemon", "status", "--json").out
    assert re.search(r'"started_at":"\d{4}-\d\d-\d\dT', text) and not re.search(r"\d[eE]\+", text), text


def test_a_stopped_sandbox_is_told_with_the_way_to_start_it(boxes):
    b = boxes
    b.create("x")
    for _ in ("without a daemon", "with one"):
        r = b.fails("exec", "x", "true", code=125, says="'agentkernel start x' starts it")
        assert "daemon" not in r.err and len(r.err.splitlines()) == 1, r
        b.ak("start", "x")
        b.ak("stop", "x")


def test_the_lab_opens_in_the_callers_folder():
    here = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    folder = "/usr/share"  # one that everybody may enter
    r = subprocess.run([sys.executable, os.path.join(here, "tests", "lab", "lab.py"), "shell"], input="pwd\n", capture_output=True, text=True, cwd=folder, timeout=60)
    if r.returncode:
        pytest.skip("no lab on this host: " + r.stderr) if not os.environ.get("AK_MUST_WORK") else pytest.fail(r.stderr)
    assert r.stdout.splitlines()[-1] == folder, r
