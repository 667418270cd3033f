"""h10: no command line and no file name is so long that its event cannot be written; what is cut is told with its length and hash, and a command without an event does not run."""
import hashlib
import json
import os

import pytest
from expect import CODEX
from lab import PYTHON
from mcp import serving

LONG = "\x01" * 60000  # six times as long in JSON
DEED = ["sh", "-c", "echo DEED", LONG]

# Names that fill a record, in a folder that is looked at; and then what is to stay unseen.
CROWD = r"""
import os
os.makedirs('.vscode', exist_ok=True)
os.chdir('.vscode')
for _ in range(3):
    os.mkdir('\x01' * 250); os.chdir('\x01' * 250)
for i in range(100):
    open('\x02%03d' % i + '\x01' * 240, 'w').close()
os.chdir('../../../..')
open('.envrc', 'w').write('evil')
"""


def events(lab, kind):
    rows = [json.loads(line) for line in lab.ak(["audit", "--json"]).out.splitlines()]
    return [r for r in rows if r.get("event") == kind]


def check_command(row, argv):
    digest = hashlib.sha256(b"".join(a.encode() + b"\0" for a in argv)).hexdigest()
    assert row["command"][:3] == argv[:3] and row["command_sha256"] == digest, row
    assert row["command_count"] == len(argv) and row["command_bytes"] == sum(len(a) + 1 for a in argv)
    assert len(json.dumps(row)) < 4096


def test_h10_an_exec_with_an_overlong_argument_is_recorded(boxes):
    b = boxes
    b.up("x", *CODEX)
    assert b.out("x", *DEED) == "DEED\n"
    check_command(events(b.lab, "sandbox_exec")[-1], DEED)
    assert b.lab.ak(["audit", "verify"]).code == 0


def test_h10_an_exec_by_mcp_with_an_overlong_argument_is_recorded(boxes):
    with serving(boxes.lab, *CODEX) as m:
        name = m.good("sandbox_create", name="m")[0]["name"]
        assert m.good("sandbox_exec", name=name, command=DEED)[0]["stdout"] == "DEED\n"
        check_command(events(boxes.lab, "sandbox_exec")[-1], DEED)
        m.good("sandbox_remove", name=name, force=True)


@pytest.mark.parametrize("where", ["run", "persistent"])
def test_h10_long_names_do_not_hide_a_file_that_tools_run(boxes, where):
    b, lab = boxes, boxes.lab
    if where == "run":
        r = lab.ak(["run", *CODEX, "--", PYTHON, "-c", CROWD])
        assert r.code == 0 and "lost" not in r.err, r
    else:
        b.up("x", *CODEX)
        b.out("x", PYTHON, "-c", CROWD)
        b.ak("stop", "x")
    row = events(lab, "project_changed")[-1]
    assert ".envrc" in row["files"] and row["files_count"] > len(row["files"]) and row["files_sha256"], row


def test_h10_a_command_whose_event_cannot_be_written_does_not_run(boxes):
    b = boxes
    b.up("x", *CODEX)
    log = os.path.join(b.lab.path("state"), "agentkernel", "events.jsonl")
    os.rename(log, log + ".away")
    os.mkdir(log)
    r = b.exec("x", "sh", "-c", "echo DEED; touch /tmp/deed")
    os.rmdir(log)
    os.rename(log + ".away", log)
    assert r.code != 0 and "DEED" not in r.out and "record" in r.err, r
    assert b.sh("x", "ls /tmp/deed 2>/dev/null || echo none") == "none\n"
