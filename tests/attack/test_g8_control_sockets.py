"""g8: the control sockets, the state and the audit files are not reachable from inside."""
import json

from lab import PYTHON

LOOK = """
import json, os, socket, stat, sys
found = []
for top in sys.argv[1:]:
    if os.path.lexists(top):
        for d, dirs, files in os.walk(top):
            found += [os.path.join(d, f) for f in files]
sockets, folders = [], ['/']
while folders:  # by the type in the folder's entry: asking for every file of /usr takes half a minute
    d = folders.pop()
    if d.startswith(('/proc', '/sys')):
        continue
    try: rows = list(os.scandir(d))
    except OSError: continue
    for row in rows:
        try:
            if row.is_dir(follow_symlinks=False): folders.append(row.path)
            elif not row.is_file(follow_symlinks=False) and stat.S_ISSOCK(row.stat(follow_symlinks=False).st_mode): sockets.append(row.path)
        except OSError: pass
for fd in os.listdir('/proc/self/fd'):
    try:
        t = os.readlink('/proc/self/fd/' + fd)
        if t.startswith('socket:'): sockets.append(fd + ' ' + t)
    except OSError: pass
unix = [l.split()[-1] for l in open('/proc/net/unix').read().splitlines()[1:] if len(l.split()) > 7]
print(json.dumps({'found': found, 'sockets': sockets, 'unix': unix}))
"""


def test_g8_nothing_of_ours_is_to_be_seen_inside(any_boxes):
    b, lab = any_boxes, any_boxes.lab
    tops = [lab.path("state"), lab.path("runtime"), "/var/lib/agentkernel", "/run/agentkernel"]
    for name, args in (("plain", []), ("strict", ["--compatibility-mode", "codex"]), ("open", ["--profile", "permissive"])):
        b.up(name, *args)
        got = json.loads(b.out(name, PYTHON, "-c", LOOK, *tops))
        assert got == {"found": [], "sockets": [], "unix": []}, (name, got)
        # Nor through the processes of the sandbox itself.
        r = b.exec(name, "sh", "-c", "ls -l /proc/1/fd /proc/1/root/ /proc/1/cwd/ 2>&1; cat /proc/1/environ 2>&1")
        assert "daemon.sock" not in r.out and "events.jsonl" not in r.out, r


def test_g8_a_project_that_would_hold_them_is_refused(boxes):
    b, lab = boxes, boxes.lab
    b.fails("create", "x", "--dir", lab.path("state"), code=2)
    assert b.list() == {}


def test_g8_descriptors_that_exec_passes_are_only_the_three(boxes):
    b, lab = boxes, boxes.lab
    b.up("x")
    import os
    r, w = os.pipe()
    p = lab.spawn([lab.binary, "exec", "x", PYTHON, "-c", "import os; print(sorted(int(f) for f in os.listdir('/proc/self/fd'))[:-1])"], env=lab.env(), extra_fds=[r, w])
    assert p.wait().out.strip() == "[0, 1, 2]"
    os.close(r)
    os.close(w)
