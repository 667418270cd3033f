"""Images: import, list, remove, and sandboxes whose root is an image."""
import json
import os
import subprocess
import tarfile

import images
import pytest
from api import serving
from expect import CODEX, missing
from lab import wait_for
from mcp import serving as mcp_serving

CLAUDE = ["--compatibility-mode", "claude"]


@pytest.fixture(autouse=True)
def tools():
    lacks = images.missing_tools()
    if lacks:
        missing("not installed: %s" % lacks)


def imported(lab, name="box", config=None, layers=None, **kw):
    """Write an image and import it; the name for --image."""
    folder = images.write_layout(lab.path("project", "layout-" + name), layers or [images.base_layer().done()], config, **kw)
    r = lab.ak(["image", "import", "--name", name, folder + ":latest"])
    assert r.code == 0, r
    return r.out.splitlines()[-1]


def stored(lab):
    r = lab.ak(["image", "list", "--json"])
    assert r.code == 0, r
    return r.json()


def test_an_imported_layout_runs_with_its_environment_and_command(any_user):
    lab = any_user
    config = {"Env": ["PATH=/bin:/usr/bin", "FOO=bar baz"], "WorkingDir": "/home", "Cmd": ["sh", "-c", "echo $FOO; pwd; id -u; echo $HOME $TMPDIR; cat /etc/passwd"],
              "Labels": {"kind": "test"}}
    name = imported(lab, config=config)
    assert name == "docker.io/library/box:latest"
    r = lab.run(["--image", name])
    assert r.code == 0 and r.out == "bar baz\n/home\n0\n/root /tmp\n" + images.PASSWD, r
    assert [(row["name"], len(row["id"]), row["labels"]) for row in stored(lab)] == [(name, 64, {"kind": "test"})]
    r = lab.run(["--image", "box", "-e", "FOO=mine", "-w", "/usr", "sh", "-c", "echo $FOO; pwd; ls /usr/share /usr/lib 2>&1 | wc -l"])
    assert r.out == "mine\n/usr\n2\n", r  # nothing of the host's /usr


def test_the_folder_for_temporary_files_is_the_image_s_if_it_names_one(lab):
    imported(lab, config={"Env": ["TMPDIR=/var/tmp"], "Cmd": ["sh", "-c", "echo $TMPDIR"]})
    assert lab.run(["--image", "box"]).out == "/var/tmp\n"


def test_an_entry_point_gets_the_arguments(lab):
    imported(lab, config={"Entrypoint": ["/bin/echo", "entry"], "Cmd": ["default"]})
    assert lab.run(["--image", "box"]).out == "entry default\n"
    assert lab.run(["--image", "box", "--", "a b", "--c"]).out == "entry a b --c\n"


def test_an_image_without_a_command_says_so(lab):
    imported(lab)
    r = lab.run(["--image", "box"])
    assert r.code == 2 and "has no command of its own" in r.err, r


def test_the_image_s_user_runs_it_and_owns_the_project(any_user):
    lab = any_user
    imported(lab, config={"User": "node"})
    r = lab.run([*CLAUDE, "--image", "box", "sh", "-c", "id -u; id -g; echo $HOME; touch made ~/mine; stat -c %u made ~/mine"], cwd=lab.path("project"))
    assert r.code == 0 and r.out.split() == ["1000", "1000", "/home/node", "1000", "1000"], r
    assert os.stat(lab.path("project", "made")).st_uid == (0 if lab.who == "root" else lab.uid)


def test_owners_of_files_are_those_of_the_image_where_ids_are_to_be_had(lab):
    if not lab.is_root:
        pytest.skip("an ordinary user has one id here")
    with lab.acting_as("root"):
        for user, name in (("", "a"), ("node", "b")):
            imported(lab, name, {"User": user})
            r = lab.run(["--image", name, "stat", "-c", "%u", "/etc/owned", "/etc/passwd", "/home/node"])
            assert r.out.split() == ["1000", "0", "1000"], (user, r)


def test_package_managers_may_change_owners_with_one_id_or_many(any_user):
    lab = any_user
    imported(lab)
    r = lab.run(["--image", "box", "sh", "-c", "touch /x; chown 42:42 /x && su node -c 'echo as $(id -u)'; stat -c %u /x"])
    one = "has one user inside" in r.err
    assert r.code == 0 and r.out.split() == (["as", "0", "0"] if one else ["as", "1000", "42"]), r
    assert lab.who != "root" or not one, r
    assert r.err.count("has one user inside") == one, r


def test_root_inside_is_not_root_of_the_host(any_user):
    lab = any_user
    imported(lab)
    r = lab.run(["--image", "box", "sh", "-c", "id -u; cat /proc/self/uid_map; mount -t tmpfs none /mnt; cat /proc/1/environ"])
    assert r.out.startswith("0\n"), r
    outside = [line.split()[1] for line in r.out.splitlines()[1:] if len(line.split()) == 3]
    # The second number is an id of the sandbox's own parent namespace, in which the host's root is not mapped at all.
    assert outside and r.code != 0, r
    r = lab.run(["--image", "box", "sh", "-c", "touch /tmp/x; exec cat /proc/self/status"])
    assert "NoNewPrivs:\t1" in r.out and "Seccomp:\t2" in r.out, r


def test_the_image_stays_as_it_is(any_user):
    lab = any_user
    imported(lab)
    script = "echo x > /etc/passwd; rm -r /home; mkdir /new; ls /new /home; cat /etc/passwd"
    for _ in range(2):
        r = lab.run(["--image", "box", "sh", "-c", "ls -d /new; cat /etc/passwd; " + script])
        assert images.PASSWD in r.out and "No such file or directory" in r.err, r


def test_strict_isolation_has_a_read_only_image_and_no_root(any_user):
    lab = any_user
    imported(lab, layers=[images.base_layer().add("etc/passwd", "root:x:0:0::/root:/bin/sh").done()])
    r = lab.run([*CODEX, "--image", "box", "sh", "-c", "id -u; id -un; touch /etc/x; touch made ~/x /tmp/x && echo fine"], cwd=lab.path("project"))
    assert r.out.splitlines()[0] != "0" and r.out.splitlines()[1:] == ["agent", "fine"], r
    assert "Read-only file system" in r.err and os.path.exists(lab.path("project", "made")), r


def test_an_image_sandbox_reaches_what_the_policy_allows_and_nothing_else(any_user):
    lab = any_user
    imported(lab)
    r = lab.run([*CLAUDE, "--allow-host", "ok.test", "--image", "box", "sh", "-c",
                 "cat /etc/resolv.conf; wget -q -O - http://ok.test/ && echo; wget -q -O - http://denied.test/; hostname"])
    assert "nameserver 100.64." in r.out and r.out.count("run-") == 1, r
    assert lab.arrived("11.1.0.5") > 0 and lab.arrived("11.66.0.1") == 0, r


def test_a_name_that_is_not_local_names_the_command_that_brings_it(lab):
    for name in ("alpine:3.20", "ghcr.io/owner/thing"):
        r = lab.run(["--image", name, "true"])
        assert r.code == 125 and "agentkernel image pull " + name in r.err, r
    r = lab.run(["--image", "Not An Image", "true"])
    assert r.code == 2 and "is not the name of an image" in r.err, r


def test_a_persistent_sandbox_keeps_its_changes_and_its_image(any_boxes):
    lab = any_boxes.lab
    imported(lab)
    any_boxes.create("work", "--image", "box")
    assert any_boxes.ak("list", "--json").json()[0]["image"] == "box"
    any_boxes.ak("start", "work")
    assert any_boxes.sh("work", "touch /kept; rm /etc/owned; id -u; echo $HOME") == "0\n/root\n"
    any_boxes.ak("stop", "work")
    any_boxes.fails("image", "remove", "box", says="in use by a sandbox")
    assert any_boxes.ak("image", "prune").out == "" and len(stored(lab)) == 1
    # The name stands for another image now; the sandbox has its own.
    imported(lab, config={"Env": ["NEW=1"]})
    any_boxes.ak("start", "work")
    assert any_boxes.sh("work", "ls /kept; ls /etc/owned 2>&1; echo new=$NEW") == "/kept\nls: /etc/owned: No such file or directory\nnew=\n"
    any_boxes.ak("stop", "work")
    any_boxes.ak("remove", "work")
    assert any_boxes.ak("image", "prune").out == "docker.io/library/box:latest\n" and stored(lab) == []
    assert not [n for n in os.listdir(store(lab)) if not n.startswith(".") and n != "names.json"]


def store(lab):
    return lab.path("state", "agentkernel", "images")


def test_an_image_in_use_by_a_running_command_stays(lab):
    imported(lab)
    p = lab.start(["--image", "box", "sh", "-c", "echo up; cat"], stdin="pipe")
    p.wait_output(b"up")
    r = lab.ak(["image", "remove", "box"])
    assert r.code == 1 and "in use by a running sandbox" in r.err and len(stored(lab)) == 1, r
    assert lab.ak(["image", "prune"]).out == ""
    p.close_stdin()
    assert p.wait().code == 0
    assert lab.ak(["image", "prune"]).out == "docker.io/library/box:latest\n"


def test_removed_means_gone_and_two_names_share_one_copy(lab):
    imported(lab, "one")
    imported(lab, "two")
    assert len({row["id"] for row in stored(lab)}) == 1
    assert lab.ak(["image", "remove", "one"]).code == 0
    assert lab.run(["--image", "two", "true"]).code == 0
    assert lab.ak(["image", "remove", "two"]).code == 0
    assert [n for n in os.listdir(store(lab)) if len(n) == 64] == []
    r = lab.ak(["image", "remove", "two"])
    assert r.code == 1 and "is not on this machine" in r.err, r


def test_archives_are_imported_too(lab):
    folder = images.write_layout(lab.path("project", "lay"), [images.base_layer().done()], {"Cmd": ["echo", "hi"]})
    archive = lab.path("project", "box.tar")
    with tarfile.open(archive, "w") as t:
        t.add(folder, arcname=".")
    r = lab.ak(["image", "import", "oci-archive:" + archive])
    assert r.code == 0 and r.out == "localhost/box:latest\n", r
    assert lab.run(["--image", "box"]).out == "hi\n"
    docker = lab.path("project", "docker.tar")
    subprocess.run(["skopeo", "--insecure-policy", "copy", "-q", "oci:%s:latest" % folder, "docker-archive:%s:tool:1.2" % docker], check=True)
    os.chmod(docker, 0o644)
    r = lab.ak(["image", "import", "docker-archive:%s:tool:1.2" % docker])
    assert r.code == 0 and r.out == "docker.io/library/tool:1.2\n", r
    assert lab.run(["--image", "tool:1.2"]).out == "hi\n"


def test_layers_apply_in_order_with_whiteouts_and_links(any_user):
    lab = any_user
    upper = images.Layer().folder("home").add("home/.wh.node").add("etc/.wh.owned").add("etc/passwd", "root:x:0:0::/root:/bin/sh\n")
    upper.folder("opt").add("opt/kept", "k").add("opt/.wh..wh..opq").link("lib", "usr/bin").add("lib/through", "t").hard_link("etc/again", "etc/passwd")
    lower = images.base_layer().folder("opt").add("opt/old", "o").folder("opt/sub").add("opt/sub/deep", "d")
    imported(lab, layers=[lower.done(), upper.done()])
    r = lab.run(["--image", "box", "sh", "-c", "ls /home /opt; cat /usr/bin/through; ls /etc/owned; stat -c %h /etc/passwd; stat -c %Y /opt/kept"])
    assert r.out.split() == ["/home:", "/opt:", "kept", "t2", "1000000000"] and "/etc/owned" in r.err, r


def test_import_errors_say_what_is_wrong(lab):
    r = lab.ak(["image", "import", lab.path("project", "nothing:latest")])
    assert r.code == 1 and "No such file" in r.err, r
    with open(lab.path("project", "file"), "w") as f:
        f.write("x")
    r = lab.ak(["image", "import", lab.path("project", "file")])
    assert r.code == 2 and "docker-archive:" in r.err, r
    r = lab.ak(["image", "import", "docker-archive:" + lab.path("project", "file")])
    assert r.code == 1, r
    os.mkdir(lab.path("project", "empty"))
    r = lab.ak(["image", "import", lab.path("project", "empty")])
    assert r.code == 1 and stored(lab) == [], r
    assert json.loads(lab.ak(["image", "list", "--json"]).out) == []


def test_programs_use_local_images_and_never_bring_one(boxes):
    """HTTP and MCP: the same image, the same words when it is not there, and not one packet."""
    lab = boxes.lab
    imported(lab, config={"Env": ["FOO=bar"]})
    with serving(lab) as api:
        assert api.run("sh", "-c", "echo $FOO; id -u", image="box")["stdout"] == "bar\n0\n"
        r = api.post("/run", {"command": ["true"], "image": "alpine:3.20"})
        assert r.status in (400, 404) and "image pull alpine:3.20" in r.json["error"], r
        made = api.post("/sandboxes", {"name": "boxed", "image": "box"})
        assert made.status == 201 and made.json["data"]["image"] == "box", made
        assert boxes.sh("boxed", "echo $FOO") == "bar\n"
    with mcp_serving(lab, "--compatibility-mode", "claude") as m:
        got, _ = m.good("sandbox_run", command=["sh", "-c", "echo $FOO"], image="box")
        assert got["stdout"] == "bar\n", got
        assert "image pull alpine:3.20" in m.bad("sandbox_run", command=["true"], image="alpine:3.20")
    assert lab.strangers() == []


def test_explain_names_the_image_and_runs_nothing(lab):
    imported(lab, config={"Env": ["FOO=bar"], "Entrypoint": ["/bin/echo"]})
    r = lab.run(["--image", "box", "--explain", "x"])
    assert r.code == 0 and "image      box (" in r.out and "FOO=bar\n      the image" in r.out and "command    /bin/echo" in r.out, r


def test_in_the_background_an_image_runs_the_same_command(boxes):
    lab = boxes.lab
    imported(lab, config={"Entrypoint": ["/bin/echo", "entry"], "Cmd": ["default"]})
    for name, words, says in (("a", [], "entry default\n"), ("b", ["x"], "entry x\n")):
        assert boxes.ak("run", "-d", "--name", name, "--image", "box", *words).out == name + "\n"
        wait_for(lambda: lab.ak(["logs", name]).out == says)


def test_variables_that_name_files_of_the_host_stay_outside(lab):
    imported(lab)
    r = lab.run(["--image", "box", "env"], env={"SSL_CERT_FILE": "/etc/ssl/certs/ca-certificates.crt"})
    assert r.code == 0 and "SSL_CERT" not in r.out and "SHELL=" not in r.out, r
