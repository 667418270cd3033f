"""h21, h22: a command's leftovers do not hold a call of the MCP server, and what it prints does not grow on its way to the model."""
import pytest
from lab import PYTHON
from mcp import serving

CODEX = ("--compatibility-mode", "codex")
CONTROL = "import sys; sys.stdout.write('\\x01' * %d)"


# Writers that stay, on a pipe as large as they can make it; their parent ends when they have filled it once.
WRITERS = """
import fcntl, os, select, sys
if sys.argv[1] == 'large': fcntl.fcntl(1, 1031, 1 << 20)  # F_SETPIPE_SZ
for i in range(4):
    if os.fork() == 0:
        x = b'x' * (1 << 16)
        while True: os.write(1, x)
while select.select([], [1], [], 0)[1]: pass
os._exit(5)
"""


@pytest.mark.parametrize("pipe", ["large", "small"])
def test_h21_writers_in_the_background_do_not_hold_the_call(any_boxes, pipe):
    lab = any_boxes.lab
    with serving(lab, *CODEX) as m:
        m.good("sandbox_create", name="w")
        got, _ = m.good("sandbox_exec", name="w", timeout_ms=600000, command=[PYTHON, "-c", WRITERS, pipe])
        assert got["exit_code"] == 5 and got["timed_out"] is False and len(got["stdout"]) < 200000
        assert m.good("sandbox_exec", name="w", command=["echo", "on"])[0]["stdout"] == "on\n"


def test_h21_what_the_command_wrote_before_its_end_is_there(any_boxes):
    lab = any_boxes.lab
    with serving(lab, *CODEX) as m:
        m.good("sandbox_create", name="w")
        fill = ("import fcntl, os; fcntl.fcntl(1, 1031, 1 << 20); os.write(1, b'a' * 60000 + b'b' * 900000 + b'END')")
        for _ in range(5):
            got, _ = m.good("sandbox_exec", name="w", command=[PYTHON, "-c", fill])
            assert got["stdout"].startswith("aaa") and got["stdout"].endswith("bEND") and got["truncated"] is True


def answer_size(m, tool, **args):
    seen = len(m.proc.output[1])
    m.good(tool, **args)
    return len(m.proc.output[1]) - seen


def test_h22_control_characters_do_not_become_a_huge_answer(any_boxes):
    lab = any_boxes.lab
    with serving(lab, *CODEX) as m:
        m.good("sandbox_create", name="c")
        both = "import sys; sys.stderr.write('\\x02' * (16 << 20)); sys.stdout.write('\\x01' * (16 << 20))"
        for tool, more in (("sandbox_exec", dict(name="c")), ("sandbox_run", {})):
            assert answer_size(m, tool, command=[PYTHON, "-c", both], timeout_ms=60000, **more) < 1 << 20, tool
        m.good("sandbox_exec", name="c", command=["sh", "-c", "head -c 4194304 /dev/zero | tr '\\0' '\\1' > /tmp/ones"])
        assert answer_size(m, "sandbox_file_read", name="c", path="/tmp/ones", limit=1 << 20) < 4 << 20
        m.good("sandbox_exec", name="c", command=["sh", "-c", "yes '' | head -c 500000 > /tmp/lines"])
        assert m.good("sandbox_file_read", name="c", path="/tmp/lines", limit=1 << 20)[0]["content"] == "\n" * 500000, "lines are text"
        got, _ = m.good("sandbox_exec", name="c", command=["sh", "-c", "printf '\\001\\002\\033[1m'"])
        assert got["stdout"] == "\x01\x02\x1b[1m", "a few are told as they are"
