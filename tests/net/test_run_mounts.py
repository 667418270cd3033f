"""--mount: files and folders of the host besides the project, for run, create and HTTP; read-only unless said."""
import json
import os

import pytest
from api import box_api  # noqa: F401

CODEX = ("--compatibility-mode", "codex")


def put(lab, *parts, text="mine\n"):
    """A file of the lab's user, with the folders above it."""
    path = lab.path(*parts)
    missing = [path]
    while not os.path.exists(os.path.dirname(missing[-1])):
        missing.append(os.path.dirname(missing[-1]))
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as f:
        f.write(text)
    if lab.is_root and lab.who == "user":
        for made in missing:
            os.lchown(made, lab.uid, lab.gid)
    return path


def read(path):
    with open(path) as f:
        return f.read()


def events(lab, name):
    with open(lab.path("state", "agentkernel", "events.jsonl")) as f:
        return [row for row in map(json.loads, f) if row.get("event") == name]


@pytest.fixture
def data(any_user):
    """home/data with two files and a sub-folder."""
    lab = any_user
    put(lab, "home", "data", "f")
    put(lab, "home", "data", "sub", "g", text="deep\n")
    return lab


@pytest.mark.parametrize("args", [(), ("--compatibility-mode", "codex"), ("--compatibility-mode", "claude"), ("--profile", "restrictive"), ("--profile", "permissive")],
                         ids=lambda a: a[1] if a else "native")
def test_a_folder_is_shown_at_its_own_path_or_another_and_is_read_only(data, args):
    lab, folder = data, data.path("home", "data")
    r = lab.run([*args, "--mount", folder, "--mount", folder + ":/mnt/a//b/", "--", "sh", "-c", "cat %s/f /mnt/a/b/sub/g; echo x > /mnt/a/b/f" % folder])
    assert r.code != 0 and r.out == "mine\ndeep\n" and "Read-only file system" in r.err, r
    assert read(folder + "/f") == "mine\n"


@pytest.mark.parametrize("mode", ["native", "codex"])
def test_a_writable_folder_keeps_what_is_written_with_the_user_as_its_owner(data, mode):
    lab, folder = data, data.path("home", "data")
    r = lab.run(["--compatibility-mode", mode, "--mount", folder + ":/mnt/d:rw", "--", "sh", "-ec", "cd /mnt/d; echo new > made; echo more >> f; mkdir n; rm sub/g"])
    assert r.code == 0, r
    assert (read(folder + "/made"), read(folder + "/f")) == ("new\n", "mine\nmore\n") and not os.path.exists(folder + "/sub/g")
    assert os.stat(folder + "/made").st_uid == os.stat(folder + "/f").st_uid


def test_a_single_file_is_shown_and_nothing_beside_it(data):
    lab = data
    path = lab.path("home", "data", "f")
    r = lab.run([*CODEX, "--mount", path, "--mount", path + ":/mnt/copy:rw", "--", "sh", "-c", "cat %s; ls -A %s; echo w > /mnt/copy; echo x > %s" % (path, os.path.dirname(path), path)])
    assert r.code != 0 and r.out == "mine\nf\n" and "Read-only file system" in r.err, r
    assert read(path) == "w\n"


def test_relative_sources_and_the_tilde_are_understood(data):
    lab = data
    r = lab.run(["--mount", "data/f:/mnt/a", "--mount=~/data/f:/mnt/b", "--", "cat", "/mnt/a", "/mnt/b"], cwd=lab.path("home"))
    assert (r.code, r.out) == (0, "mine\nmine\n"), r


def test_a_mount_around_the_project_or_in_it(data):
    """The folder above, read-only, with the project writable in it; and a folder of the project made read-only."""
    lab = data
    put(lab, "home", "work", "beside", "f", text="beside\n")
    project = os.path.dirname(put(lab, "home", "work", "project", "f"))
    put(lab, "home", "work", "project", "vendor", "v", text="v\n")
    work = "cat ../beside/f vendor/v; echo x > made; echo x > ../beside/x; echo x > vendor/x; true"
    r = lab.run([*CODEX, "--dir", project, "--mount", lab.path("home", "work"), "--mount", project + "/vendor", "--", "sh", "-c", work])
    assert r.code == 0 and r.out == "beside\nv\n", r
    assert sorted(os.listdir(project)) == ["f", "made", "vendor"] and os.listdir(project + "/vendor") == ["v"], r
    r = lab.run([*CODEX, "--dir", project, "--mount", lab.path("home", "data") + ":" + project + "/nowhere", "--", "true"])
    assert r.code == 2 and "create it first" in r.err and not os.path.exists(project + "/nowhere"), r


def test_the_record_and_explain_name_every_mount(data):
    lab, folder = data, data.path("home", "data")
    r = lab.run(["--explain", "--mount", folder + ":/mnt/d", "--mount", lab.path("tmp") + ":rw", "--", "true"])
    assert r.code == 0 and "ro  /mnt/d (from %s)\n      named by --mount, read-only" % folder in r.out and "rw  %s\n      named by --mount, writable" % lab.path("tmp") in r.out, r
    assert lab.run(["--mount", folder + ":/mnt/d", "--", "true"]).code == 0
    assert events(lab, "run_start")[-1]["mounts"] == ["%s:/mnt/d:ro" % folder]


def test_a_warm_sandbox_has_the_mounts_as_well(any_boxes):
    b, lab = any_boxes, any_boxes.lab
    folder = os.path.dirname(put(lab, "home", "data", "f"))
    put(lab, "home", "data", ".envrc")
    b.ak("daemon", "prewarm", "--mode", "codex")
    r = lab.run([*CODEX, "--mount", folder + ":/mnt/d", "--mount", folder + "/f:/mnt/f", "--", "sh", "-c", "cat /mnt/d/f /mnt/f; echo x > /mnt/d/f"])
    assert r.out == "mine\nmine\n" and r.code != 0, r
    assert [row["hits"] for row in b.status()["pool"] if row["mode"] == "codex"] == [1]
    assert events(lab, "run_start")[-1]["mounts"] == ["%s:/mnt/d:ro" % folder, "%s/f:/mnt/f:ro" % folder]
    b.ak("daemon", "prewarm", "--mode", "codex")
    r = lab.run([*CODEX, "--mount", folder + ":/mnt/d:rw", "--", "sh", "-c", "cd /mnt/d; echo x > .envrc; echo y > new; echo z > .bashrc"])
    assert (read(folder + "/.envrc"), read(folder + "/new")) == ("mine\n", "y\n"), r
    assert "in '%s', files that your own tools may run later were created or changed: .bashrc" % folder in r.err, r
    assert [row["hits"] for row in b.status()["pool"] if row["mode"] == "codex"] == [2]


def test_a_persistent_sandbox_keeps_its_mounts(any_boxes):
    b, lab = any_boxes, any_boxes.lab
    folder = os.path.dirname(put(lab, "home", "data", "f"))
    b.up("x", "--mount", folder + ":/mnt/d", "--mount", lab.path("tmp") + ":/mnt/w:rw", "--mount", folder + "/f:/etc/mine.conf")
    assert b.sh("x", "cat /mnt/d/f /etc/mine.conf; echo one > /mnt/w/one") == "mine\nmine\n"
    assert b.exec("x", "touch", "/mnt/d/x").code != 0
    assert events(lab, "sandbox_create")[-1]["mounts"] == ["%s:/mnt/d:ro" % folder, "%s:/mnt/w:rw" % lab.path("tmp"), "%s/f:/etc/mine.conf:ro" % folder]
    b.ak("stop", "x")
    b.kill_daemon()
    b.ak("start", "x")
    assert b.sh("x", "cat /mnt/d/f /mnt/w/one") == "mine\none\n"


def test_a_file_that_was_replaced_must_be_accepted(any_boxes):
    """As editors save: a new file under the old name."""
    b, lab = any_boxes, any_boxes.lab
    path = put(lab, "home", "data", "f")
    b.create("x", "--mount", path + ":/mnt/f")
    os.rename(put(lab, "home", "data", "g", text="new\n"), path)
    b.fails("start", "x", says="--accept-dir")
    b.ak("start", "--accept-dir", "x")
    assert b.sh("x", "cat /mnt/f") == "new\n"


def test_http_takes_mounts_as_objects(box_api):  # noqa: F811
    lab = box_api.lab
    folder = os.path.dirname(put(lab, "home", "data", "f"))
    r = box_api.run("sh", "-c", "cat /mnt/d/f; echo x > /mnt/w/made; echo x > /mnt/d/x",
                    mounts=[{"source": folder, "target": "/mnt/d"}, {"source": lab.path("tmp"), "target": "/mnt/w", "mode": "rw"}])
    assert r["stdout"] == "mine\n" and r["exit_code"] != 0 and os.path.exists(lab.path("tmp", "made")), r
    os.unlink(lab.path("tmp", "made"))
    assert box_api.post("/sandboxes", {"name": "m", "mounts": [{"source": folder}]}).status == 201
    assert box_api.post("/sandboxes/m/exec", {"command": ["cat", folder + "/f"]}).data["stdout"] == "mine\n"
    for bad, says in (([folder], "mounts[0]"), ([{"target": "/x"}], "source"), ([{"source": "data"}], "absolute"), ([{"source": folder, "mode": "x"}], "ro, rw"),
                      ([{"source": folder, "to": "/x"}], "to"), ([{"source": folder, "target": "/proc"}], "/proc"), ({}, "array")):
        box_api.post("/run", {"command": ["true"], "mounts": bad}).refused(400, says)


@pytest.mark.parametrize("mount, says", [
    ("{data}:rel", "absolute path inside"), ("{data}:/mnt/a:/mnt/b", "absolute path inside"), (":/mnt/a", "source is missing"), ("{data}:/", "not '/'"), ("{data}:/proc/x", "/proc"),
    ("{data}:/sys", "/sys"), ("{data}:/dev/shm", "/dev"), ("{data}:/mnt/../proc", "'..'"), ("{data}:/./proc", "'.'"), ("{data}:/lib/x", "/lib"), ("{data}:/usr", "sandbox's own"),
    ("{data}:/tmp", "sandbox's own"), ("{data}/f:/etc/resolv.conf", "sandbox's own"), ("{data}:{project}", "hide the project"), ("{data}:{home}", "hide the home"), ("{project}:/mnt/p:rw", "overlaps the project")])
def test_a_bad_mount_is_refused_with_its_reason(data, mount, says):
    lab = data
    home = lab.run(["--", "sh", "-c", "echo $HOME"]).out.strip()
    text = mount.format(data=lab.path("home", "data"), project=lab.path("project"), home=home)
    r = lab.run([*CODEX, "--mount", text, "--", "true"])
    assert r.code == 2 and says in r.err and "mount" in r.err, r


def test_mounts_that_get_in_each_other_s_way_are_refused(data):
    lab, folder = data, data.path("home", "data")
    put(lab, "home", "other", "f")
    for first, second, says in ((":/mnt/a", ":/mnt/a", "twice"), (":/mnt/a:rw", ":/mnt/a/sub", "each other"), (":/mnt/a/sub", ":/mnt/a:rw", "each other")):
        r = lab.run(["--mount", folder + first, "--mount", lab.path("home", "other") + second, "--", "true"])
        assert r.code == 2 and says in r.err, r
    r = lab.run(["--mount", folder + ":/mnt/a:rw", "--mount", folder + "/sub:/mnt/b:rw", "--", "true"])
    assert r.code == 2 and "overlaps" in r.err, r
    assert lab.run(["--mount", lab.path("nowhere"), "--", "true"]).code == 125
    args = [w for i in range(17) for w in ("--mount", "%s:/mnt/%d" % (folder, i))]
    assert lab.run([*args, "--", "true"]).code == 2 and lab.run([*args[2:], "--", "true"]).code == 0
