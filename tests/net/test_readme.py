"""Every command of the README, tried: in the order in which it stands there, in the lab, as an ordinary user with a fresh home."""
import os
import re
import shlex

from lab import HERE

ROOT = os.path.dirname(os.path.dirname(HERE))
POLICY = '{"version": 1, "name": "mine", "default": "deny", "allow": ["api.example.com:443"]}'
# What a command needs that the lab does not have, and how the program says so.
LACKS = {
    "agentkernel claude": (127, "claude"),
    "agentkernel agents import claude": (1, "no files of Claude Code"),
    "agentkernel image pull python:3.12-alpine": (None, ""),
    "agentkernel run -m claude --image python:3.12-alpine python3 -m pytest": (125, "image pull"),
    "agentkernel attach web": (2, "terminal"),
}
# Needs a terminal, the network or root: only that it exists is checked.
ELSEWHERE = ("sudo ", "npm ", "cd ", "make ")


def commands():
    with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as f:
        text = f.read()
    for block in re.findall(r"```console\n(.*?)```", text, re.S):
        for line in block.splitlines():
            if line.startswith("$ "):
                yield from (part.strip() for part in shlex_free(line[2:]).split(" && "))


def shlex_free(line):
    """Without the comment behind the command."""
    return re.split(r"\s{2,}#|\s#\s", line)[0].strip()


def make_targets():
    with open(os.path.join(ROOT, "Makefile"), encoding="utf-8") as f:
        return set(re.findall(r"^(\w+):", f.read(), re.M))


def prepare(lab):
    project = lab.path("project")
    files = {"package.json": '{"name":"x","scripts":{"test":"echo tested"}}', "Makefile": "all:\n\techo made\n", "mine.json": POLICY}
    web = lab.path("home", "src", "web")
    os.makedirs(web)
    for folder in (project, web):
        for name, text in files.items():
            with open(os.path.join(folder, name), "w") as f:
                f.write(text)
    policies = lab.path("config", "agentkernel", "policies")
    os.makedirs(policies)
    with open(os.path.join(policies, "mine.json"), "w") as f:
        f.write(POLICY)
    lab.spawn(["chown", "-R", "%d:%d" % (lab.uid, lab.gid), lab.home], who="root").wait() if lab.is_root else None
    return project


def test_every_command_of_the_readme_does_what_it_says(boxes):
    lab = boxes.lab
    with lab.acting_as("user"):
        project = prepare(lab)
        try:
            tried = try_all(lab, project)
        finally:
            for args in (["remove", "--force", "--all"], ["daemon", "stop"]):
                lab.ak(args)
        assert tried > 20, tried


def try_all(lab, project):
    tried = 0
    for line in commands():
        if line.startswith(ELSEWHERE):
            assert not line.startswith("make ") or line.split()[1] in make_targets(), line
            continue
        argv = [os.path.expanduser(w.replace("~", lab.path("home"))) if w.startswith("~") else w for w in shlex.split(line)]
        assert argv[0] == "agentkernel", line
        code, word = LACKS.get(line, (0, ""))
        if "npm test" in line and not os.path.exists("/usr/bin/npm"):
            continue
        if code is None or "cp web:/tmp/report.html" in line and lab.ak(["exec", "web", "--", "touch", "/tmp/report.html"]).code != 0:
            continue
        r = lab.ak(argv[1:], cwd=project, timeout=60, stdin=b"")
        assert r.code == code and word in r.err + r.out, (line, r)
        tried += 1
    return tried
