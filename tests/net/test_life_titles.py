"""Process titles: each process of ours says in the process list what it is, whoever started it, and shows no secret."""
from lab import PYTHON, wait_for

LIST = """
import os
for pid in filter(str.isdigit, os.listdir('/proc')):
    try: text = open('/proc/%s/cmdline' % pid, 'rb').read()
    except OSError: continue
    if text.startswith(b'agentkernel'): print(text.rstrip(b'\\0').replace(b'\\0', b' ').decode())
"""
SECRET = "hunter2-4e1a"


def titles(lab):
    return lab.host([PYTHON, "-c", LIST]).out.splitlines()


def test_a_run_shows_its_gateway_and_init(any_user):
    lab = any_user
    p = lab.start(["--name", "job", "-e", "TOKEN=" + SECRET, "--", "sh", "-c", "echo up; read line"], stdin="pipe")
    p.wait_output(b"up\n")
    shown = titles(lab)
    assert {"agentkernel gateway job", "agentkernel init job"} <= set(shown) and SECRET not in "".join(shown), shown
    p.write(b"\n")
    assert p.wait().code == 0


def test_the_daemon_is_not_shown_as_the_command_that_started_it(any_boxes):
    b, lab = any_boxes, any_boxes.lab
    name = "a-name-that-is-much-longer-than-the-words-of-the-command"
    b.ak("create", name, "-e", "TOKEN=" + SECRET)
    b.ak("start", name)
    want = {"agentkernel daemon", "agentkernel gateway", "agentkernel supervise " + name, "agentkernel init " + name}
    wait_for(lambda: want <= set(titles(lab)))
    shown = titles(lab)
    assert SECRET not in "".join(shown) and not any("start" in line for line in shown), shown
    # What the daemon reads from its variables is still there: it can start another sandbox.
    b.up("other", "--no-network")
    assert b.out("other", "echo", "fine") == "fine\n"


def test_a_daemon_in_the_foreground_has_the_same_title(boxes):
    b, lab = boxes, boxes.lab
    p = lab.spawn([lab.binary, "daemon", "start", "--foreground"], env=lab.env())
    wait_for(b.runs)
    assert "agentkernel daemon" in titles(lab)
    b.ak("daemon", "stop")
    p.wait()
