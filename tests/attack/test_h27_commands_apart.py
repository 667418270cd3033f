"""h27: commands of one sandbox do not see each other's secrets, and the host's process list shows none of them."""
import re

import pytest
from lab import PYTHON, wait_for

SECRET = "hunter2-9f3c"
# Everything in /proc that could give away what another process holds.
LOOK = """
import glob, os, sys
seen = set()
for pid in filter(str.isdigit, os.listdir('/proc')):
    if int(pid) in (os.getpid(), os.getppid()): continue
    for name in ('environ', 'maps', 'mem', 'auxv', 'stack', 'cmdline', 'task/' + pid + '/environ'):
        try: text = open('/proc/%s/%s' % (pid, name), 'rb').read(1 << 20)
        except OSError: continue
        if sys.argv[1].encode() in text: seen.add(name)
        elif name in ('environ', 'mem', 'maps') and text: seen.add('open ' + name)
    for path in glob.glob('/proc/%s/fd/*' % pid) + glob.glob('/proc/%s/map_files/*' % pid) + ['/proc/%s/%s' % (pid, n) for n in ('cwd', 'root', 'exe')]:
        for use in (os.readlink, lambda p: os.open(p, os.O_RDONLY | os.O_NONBLOCK)):
            try: use(path)
            except OSError: continue
            seen.add(path.split('/')[3])
print(sorted(seen))
"""
HOLD = "echo up; read line; echo $SECRET_WORD-$line"


def holder(b, *options):
    p = b.lab.spawn([b.lab.binary, "exec", *options, "x", "sh", "-c", HOLD], env=b.lab.env(), stdin="pipe")
    p.wait_output(b"up\n")
    return p


@pytest.mark.parametrize("args", [[], ["--compatibility-mode", "codex"], ["--compatibility-mode", "claude"]], ids=["moderate", "codex", "claude"])
def test_h27_a_command_cannot_look_into_another(any_boxes, args):
    b = any_boxes
    b.up("x", "--no-network", *args)
    p = holder(b, "-e", "SECRET_WORD=" + SECRET)
    assert b.out("x", PYTHON, "-c", LOOK, SECRET).strip() == "[]"
    p.write(b"end\n")
    assert p.wait().out.endswith(SECRET + "-end\n")


def test_h27_signals_still_reach_other_commands(any_boxes):
    b = any_boxes
    b.up("x", "--no-network")
    p = b.lab.spawn([b.lab.binary, "exec", "x", "sleep", "7359"], env=b.lab.env())
    wait_for(lambda: b.sh("x", "cat /proc/[0-9]*/comm").count("sleep") == 1)
    b.sh("x", "kill -TERM $(for p in /proc/[0-9]*; do [ \"$(cat $p/comm 2>/dev/null)\" = sleep ] && basename $p; done)")
    assert p.wait().code == 143


COMMAND_LINES = """
import os
for pid in filter(str.isdigit, os.listdir('/proc')):
    try: text = open('/proc/%s/cmdline' % pid, 'rb').read()
    except OSError: continue
    if b'agentkernel' in text: print(text)
"""


@pytest.mark.parametrize("form", [["-e", "SECRET_WORD=%s"], ["-eSECRET_WORD=%s"], ["--env", "SECRET_WORD=%s"], ["--env=SECRET_WORD=%s"]],
                         ids=["-e", "-eK", "--env", "--env="])
@pytest.mark.parametrize("verb", ["exec", "run"])
def test_h27_the_hosts_process_list_does_not_show_a_variables_value(any_boxes, verb, form):
    b, lab = any_boxes, any_boxes.lab
    words = [w.replace("%s", SECRET) for w in form]
    if verb == "exec":
        b.up("x", "--no-network")
        p = holder(b, *words)
    else:
        p = lab.start(["--no-network", *words, "--", "sh", "-c", HOLD], stdin="pipe")
        p.wait_output(b"up\n")
    listed = lab.host([PYTHON, "-c", COMMAND_LINES]).out
    assert "agentkernel" in listed and SECRET not in listed, listed
    p.write(b"end\n")
    r = p.wait()
    assert r.code == 0 and r.out.endswith(SECRET + "-end\n"), r


def test_h27_init_shows_nothing_of_the_hosts_command_line(any_user):
    lab = any_user
    r = lab.run(["--no-network", "-e", "SECRET_WORD=" + SECRET, "--", "sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' '\\n'; tr '\\0' '\\n' < /proc/1/cmdline >&2"])
    assert r.code == 0 and SECRET not in r.out, r
    assert re.fullmatch("agentkernel init run-[0-9a-f]{8}", r.err.strip("\n")), r
