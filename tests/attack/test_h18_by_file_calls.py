"""h18: protected project files cannot be changed through agentkernel's own file calls (cp, HTTP, MCP) either, and stay protected after the attempt."""
import os

from mcp import serving


def project(lab):
    path = lab.path("project")
    r = lab.spawn(["sh", "-c", "git init -q . && echo export A=b > .envrc && mkdir -p .vscode && echo '{}' > .vscode/tasks.json"], cwd=path).wait()
    assert r.code == 0, r
    return path


def read(*parts):
    with open(os.path.join(*parts)) as f:
        return f.read()


def test_h18_cp_does_not_replace_protected_files(any_boxes):
    b, lab = any_boxes, any_boxes.lab
    path = project(lab)
    before = {name: read(path, name) for name in (".git/config", ".envrc", ".vscode/tasks.json")}
    b.up("x", "--compatibility-mode", "claude", "--dir", path)
    with open(lab.path("evil"), "w") as f:
        f.write("evil")
    for name in before:
        assert lab.ak(["cp", lab.path("evil"), "x:%s/%s" % (path, name)]).code == 1, name
        assert b.exec("x", "sh", "-c", "echo evil >> '%s/%s'" % (path, name)).code != 0, name
    os.makedirs(lab.path("tree", ".vscode"))
    with open(lab.path("tree", ".vscode", "tasks.json"), "w") as f:
        f.write("evil")
    assert lab.ak(["cp", lab.path("tree", ".vscode"), "x:%s" % path]).code == 1
    assert {name: read(path, name) for name in before} == before
    # What is not protected goes in as ever.
    b.ak("cp", lab.path("evil"), "x:%s/plain" % path)
    assert read(path, "plain") == "evil"


def test_h18_tools_do_not_replace_protected_files(any_boxes):
    lab = any_boxes.lab
    path = project(lab)
    before = {name: read(path, name) for name in (".git/config", ".envrc")}
    with serving(lab, "--compatibility-mode", "codex", cwd=path) as m:
        m.good("sandbox_create", name="x")
        for name in before:
            m.bad("sandbox_file_write", name="x", path=os.path.join(path, name), content="evil")
            assert m.good("sandbox_exec", name="x", command=["sh", "-c", "echo evil >> '%s'" % os.path.join(path, name)])[0]["exit_code"] != 0
        m.good("sandbox_file_write", name="x", path=os.path.join(path, "plain"), content="fine")
    assert {name: read(path, name) for name in before} == before and read(path, "plain") == "fine"
