"""Completion, asked of the program and tried in the shells themselves: bash, zsh and fish."""
import os
import pty
import re
import select
import shutil
import time

import pytest
from expect import missing
from lab import PATIENCE_S
from screen import Screen

CASES = [
    ("ne", {"network"}),
    ("policy s", {"show"}),
    ("run --profile ", {"permissive", "moderate", "restrictive"}),
    ("run --profile=mo", {"--profile=moderate"}),
    ("run --no-n", {"--no-network"}),
    ("run -e A=B --no-n", {"--no-network"}),
    ("exec -e A=B box --wo", {"--workdir"}),
    ("completion ", {"bash", "zsh", "fish"}),
    ("audit v", {"verify"}),
    ("audit verify --j", {"--json"}),
    ("network log --last --su", {"--summary"}),
    ("network proxy x --policy ", {"allow", "deny"}),
    ("policy show cod", {"codex"}),
    ("run --compatibility-mode cod", {"codex"}),
    ("agents reset ", {"claude", "codex", "gemini", "opencode"}),
    ("help attac", {"attach"}),
    ("--vers", {"--version"}),
    ("create ", set()),
    ("run -- --no", set()),
]


def words_of(line):
    words = line.split()
    return words + [""] if line.endswith(" ") or not line else words


def ask(lab, line):
    r = lab.ak(["__complete", *words_of(line)])
    assert r.code == 0 and not r.err, r
    kind, *rows = r.out.splitlines()
    return kind, {row.split("\t")[0] for row in rows}


@pytest.mark.parametrize("line, want", CASES, ids=[c[0] for c in CASES])
def test_the_program_knows_what_fits(lab, line, want):
    assert ask(lab, line)[1] == want


def test_every_command_and_every_option_is_offered(lab):
    overview = lab.ak(["--help"]).out
    top = ask(lab, "")[1]
    for name in re.findall(r"^  (\w[\w-]*)", overview, re.M):
        assert name in top, name
    usage = lab.ak(["run", "--help"]).out
    assert set(re.findall(r"^\s+(?:-\w, )?(--[a-z-]+)", usage, re.M)) == ask(lab, "run --")[1]


def test_a_word_of_the_users_own_command_is_the_shells_business(lab):
    assert ask(lab, "run ls --no") == ("command 1", set())
    assert ask(lab, "exec box ls --wo") == ("command 2", set())
    assert ask(lab, "run --dir ")[0] == "folders" and ask(lab, "policy validate ")[0] == "files"


def test_programs_of_the_path_are_offered_and_nothing_of_the_shell(lab):
    kind, found = ask(lab, "run ca")
    assert kind == "words" and "cat" in found and all(shutil.which(p) for p in found), found
    assert ask(lab, "run _agent")[1] == set()


def test_sandboxes_policies_and_paths_inside_are_offered(boxes):
    lab = boxes.lab
    folder = lab.path("config", "agentkernel", "policies")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "mine.json"), "w") as f:
        f.write('{"version":1,"name":"mine","allow":["ok.test"]}')
    boxes.ak("create", "alpha")
    boxes.ak("create", "beta")
    boxes.ak("start", "beta")
    assert ask(lab, "start ")[1] == {"alpha", "beta"} and ask(lab, "exec b")[1] == {"beta"} and ask(lab, "stop alpha b")[1] == {"beta"}
    assert "mine" in ask(lab, "policy show ")[1]
    assert ask(lab, "cp al")[1] == {"alpha:"} and ask(lab, "cp beta:")[1] == {"beta:/"}
    assert {"beta:/usr/", "beta:/etc/"} <= ask(lab, "cp beta:/")[1]
    assert ask(lab, "cp x beta:/etc/host")[1] >= {"beta:/etc/hostname", "beta:/etc/hosts"}


# ---- in the shells ----

def shell(name):
    if not shutil.which(name):
        missing("%s is not installed" % name)
    return name


@pytest.fixture
def on_path(lab, tmp_path):
    """Variables of a shell that finds the program by its name, with an empty home."""
    os.symlink(lab.binary, tmp_path / "agentkernel")
    return {"PATH": "%s:/usr/bin:/bin" % tmp_path, "HOME": str(tmp_path), "AGENTKERNEL_DATA_DIR": os.environ.get("AGENTKERNEL_DATA_DIR", ""), "TERM": "dumb"}


LINES = [("agentkernel network l", "log"), ("agentkernel run --profile ", "moderate permissive restrictive"), ("agentkernel run --no-n", "--no-network"),
         ("agentkernel run --profile=mo", None), ("agentkernel completion ", "bash fish zsh"), ("agentkernel policy show cod", "codex")]


def test_bash(lab, on_path):
    code = ("source <(agentkernel completion bash) || exit 1\nfor l in \"$@\"; do COMP_LINE=$l COMP_POINT=${#l}; _agentkernel; "
            "printf '%s\\n' \"$(printf '%s\\n' \"${COMPREPLY[@]}\" | sort | tr '\\n' ' ')\"; done")
    r = lab.spawn([shell("bash"), "-c", code, "bash", *[line for line, _ in LINES]], env=on_path).wait(20)
    assert [row.strip() for row in r.out.splitlines()] == [want or "moderate" for _, want in LINES], r


def test_fish(lab, on_path):
    code = "agentkernel completion fish | source; for l in $argv; echo (complete -C $l | string replace -r '\\t.*' '' | sort); end"
    r = lab.spawn([shell("fish"), "-Nc", code, *[line for line, _ in LINES]], env=on_path).wait(20)
    assert [row.strip() for row in r.out.splitlines()] == [want or "--profile=moderate" for _, want in LINES], r


HOSTILE = ["report;touch $HOME$(printf %b '\\057')HIT;.txt", "a b", "$(touch HIT)", "`touch HIT`", "'q", '"q', "x&touch HIT", "x|touch HIT", "x>HIT", "!!", "#c", "~", "*", "\\q"]


def test_a_file_name_of_a_sandbox_is_a_word_in_bash_and_no_command(boxes, tmp_path):
    """TAB and Enter at a terminal: the name reaches the command as it is."""
    shell("bash")
    boxes.up("web")
    make = """for n; do i=$((i + 1)); mkdir -p /tmp/out/$i; printf '%s\\n' "$n" >"/tmp/out/$i/$n"; done"""
    boxes.ak("exec", "web", "--", "sh", "-c", make, "sh", *HOSTILE)
    os.symlink(boxes.lab.binary, tmp_path / "agentkernel")
    screen = Screen(boxes.lab, [], shell=True)
    try:
        screen.line("export HOME='%s' PATH='%s':$PATH; cd; source <(agentkernel completion bash)" % (tmp_path, tmp_path))
        for i, name in enumerate(HOSTILE, 1):
            screen.type(b"agentkernel cp web:/tmp/out/%d/\t" % i)
            screen.type(b" got%d; echo end''ed$?\n" % i)
            assert screen.until(rb"ended(\d+)").group(1) == b"0", name
            assert (tmp_path / ("got%d" % i)).read_text() == name + "\n" and not list(tmp_path.rglob("HIT")), name
    finally:
        screen.close()


def test_names_that_would_control_a_terminal_are_not_offered(boxes):
    boxes.up("web")
    boxes.ak("exec", "web", "--", "python3", "-c", "import os\nos.mkdir('/tmp/out')\n"
             "for n in (b'a\\nb', b'a\\x1b[2J', b'a\\x7f', b'a\\xc2\\x9b', b'a\\tb', b'a\\xff', 'aä'.encode()): open(b'/tmp/out/' + n, 'w')")
    assert ask(boxes.lab, "cp web:/tmp/out/a")[1] == {"web:/tmp/out/aä"}


def interactive(argv, env, steps, seconds=PATIENCE_S):
    """Type at a shell on a terminal: each step is what to send, and what must appear before the next."""
    pid, fd = pty.fork()
    if pid == 0:
        os.execvpe(argv[0], argv, env)
    seen, end = b"", time.monotonic() + seconds
    try:
        for send, want in steps:
            os.write(fd, send)
            seen = b""
            while want not in seen:
                left = end - time.monotonic()
                assert left > 0 and select.select([fd], [], [], left)[0], "no %r in %r" % (want, seen)
                seen += os.read(fd, 65536)
        return seen
    finally:
        os.close(fd)
        os.kill(pid, 9)
        os.waitpid(pid, 0)


def test_zsh(lab, on_path):
    """On a terminal: zsh completes nowhere else."""
    start = b"autoload -U compinit; compinit -D; source <(agentkernel completion zsh); PS1='rea''dy> '\n"
    interactive([shell("zsh"), "-f"], on_path, [
        (start, b"ready> "),
        (b"agentkernel network l\t", b"network log "),
        (b"\x15agentkernel run --profile=mo\t", b"--profile=moderate "),
        (b"\x15agentkernel policy show cod\t", b"show codex "),
        (b"\x15agentkernel completion \t\t", b"fish"),
    ])
