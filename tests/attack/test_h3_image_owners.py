"""h3: ids of a sandbox become no ids of the host: in what is mounted from the host, an image's root gives files to nobody but the owner."""
import os

import images
import pytest
from expect import missing

from test_h3_no_host_root import owner
from test_h_mounts import mkdir

CLAUDE = ("--compatibility-mode", "claude")

GIVE = """touch made; mkdir d; chmod 777 . d /mnt/m
chown 42:42 given; chown 1000:1000 made; chown -h 33 link; chgrp 42 d; chown 65534 given
touch /mnt/m/made; chown 7:7 /mnt/m/made
su node -c 'touch d/node /mnt/m/node; mkdir d/folder; ln -s x d/link'
echo in >> given; true"""


@pytest.fixture(autouse=True)
def tools():
    lacks = images.missing_tools()
    if lacks:
        missing("not installed: %s" % lacks)


def imported(lab, config=None):
    folder = images.write_layout(lab.path("project", "layout"), [images.base_layer().done()], config)
    assert lab.ak(["image", "import", "--name", "box", folder + ":latest"]).code == 0


def owners(*folders):
    found = set()
    for top in folders:
        found.add(owner(top))
        for folder, dirs, files in os.walk(top):
            found.update(owner(os.path.join(folder, name)) for name in dirs + files)
    return found


@pytest.fixture
def given(any_user):
    lab = any_user
    lab.p, lab.m = mkdir(lab, "home", "p"), mkdir(lab, "home", "m")
    for name in ("given", "link"):
        path = os.path.join(lab.p, name)
        os.symlink("given", path) if name == "link" else open(path, "w").close()
        os.lchown(path, *owner(lab.p))
    return lab


def check(lab, mine):
    assert owners(lab.p, lab.m) == {mine}
    with open(os.path.join(lab.p, "given")) as f:
        assert f.read() == "in\n"
    assert os.path.exists(os.path.join(lab.p, "made")) and os.path.exists(os.path.join(lab.m, "made"))


@pytest.mark.parametrize("config", [None, {"User": "node"}])
def test_h3_an_image_gives_no_file_of_the_host_away(given, config):
    lab = given
    imported(lab, config=config)
    mine = owner(lab.p)
    r = lab.run([*CLAUDE, "--image", "box", "--dir", lab.p, "--mount", lab.m + ":/mnt/m:rw", "sh", "-c", GIVE])
    assert r.code == 0, r
    if "has one user inside" in r.err:
        mine_only = owners(lab.p, lab.m)
        assert mine_only == {mine}, mine_only
        return
    check(lab, mine)


def test_h3_nor_does_a_persistent_one(any_boxes):
    b, lab = any_boxes, any_boxes.lab
    lab.p, lab.m = mkdir(lab, "home", "p"), mkdir(lab, "home", "m")
    open(lab.p + "/given", "w").close()
    os.symlink("given", lab.p + "/link")
    for name in ("given", "link"):
        os.lchown(os.path.join(lab.p, name), *owner(lab.p))
    imported(lab)
    mine = owner(lab.p)
    b.up("x", *CLAUDE, "--image", "box", "--dir", lab.p, "--mount", lab.m + ":/mnt/m:rw")
    b.exec("x", "sh", "-c", GIVE, options=("-w", lab.p))
    check(lab, mine)


def test_h3_root_works_in_the_project_of_another_user(given):
    """The files stay that user's, and ids of others stay out of reach."""
    lab = given
    if lab.who != "root":
        pytest.skip("root only")
    imported(lab)
    for path in (lab.p, lab.m, lab.p + "/given", lab.p + "/link"):
        os.lchown(path, 4242, 4343)
    r = lab.run([*CLAUDE, "--image", "box", "--dir", lab.p, "--mount", lab.m + ":/mnt/m:rw", "sh", "-c", GIVE])
    assert r.code == 0, r
    check(lab, (4242, 4343))
