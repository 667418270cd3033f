"""Images that want out: layers with climbing names, links, devices, bombs and lies. Nothing of them reaches the host, and nothing stays."""
import gzip
import hashlib
import io
import json
import os
import stat
import tarfile

import images
import pytest
from expect import missing
from lab import PYTHON, wait_for

VICTIM = "/etc/ak-escaped"


@pytest.fixture(autouse=True)
def tools():
    lacks = images.missing_tools()
    if lacks:
        missing("not installed: %s" % lacks)


def store(lab):
    return lab.path("state", "agentkernel", "images")


def offer(lab, layers, options=(), **kw):
    """Import an image made of LAYERS on top of a plain one."""
    folder = images.write_layout(lab.path("project", "layout"), [images.base_layer().done(), *layers], **kw)
    return lab.ak(["image", "import", *options, "--name", "evil", folder + ":latest"], timeout=120)


def nothing_stays(lab):
    left = [n for n in os.listdir(store(lab)) if n not in (".lock", "names.json")] if os.path.exists(store(lab)) else []
    assert left == [] and lab.ak(["image", "list", "--json"]).json() == [], left
    assert not os.path.exists(VICTIM)


def raw(name, kind=tarfile.REGTYPE, target="", size=0, content=b""):
    """One entry whose header says what it likes."""
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, target, size
    return info.tobuf(tarfile.GNU_FORMAT) + content + b"\0" * (-len(content) % 512)


END = b"\0" * 1024


@pytest.mark.parametrize("name", ["../../../../../../..%s" % VICTIM, "usr/../../../../../../..%s" % VICTIM, "..", "a/.."])
def test_a_name_that_climbs_is_refused(any_user, name):
    lab = any_user
    r = offer(lab, [raw(name, content=b"x", size=1) + END])
    assert r.code == 1 and "in the layer contains '..'" in r.err, r
    nothing_stays(lab)


def test_absolute_names_and_links_stay_in_the_image(any_user):
    """What a link means is decided in the image, as it will be for the programs in it."""
    lab = any_user
    outside = lab.path("project", "outside")
    os.mkdir(outside)
    os.chmod(outside, 0o777)
    layer = images.Layer().add(VICTIM, "in").folder(outside.lstrip("/")).link("out", outside).add("out/dropped", "x").link("up", "../../../../../../../..").add("up" + VICTIM + "2", "y")
    layer.link("etc/shadow", "/etc/shadow").add("etc/shadow", "image's")
    r = offer(lab, [layer.done()])
    assert r.code == 0, r
    assert os.listdir(outside) == [] and not os.path.exists(VICTIM) and not os.path.exists(VICTIM + "2")
    r = lab.run(["--image", "evil", "sh", "-c", "cat %s %s2 /etc/shadow" % (VICTIM, VICTIM)])
    assert r.out == "inyimage's", r
    inside = [os.path.join(store(lab), n, "rootfs") for n in os.listdir(store(lab)) if len(n) == 64][0]
    assert os.listdir(inside + outside) == ["dropped"]


@pytest.mark.parametrize("target", ["/etc/passwd-of-the-host", "../../../../../../../etc/hostname", "/proc/self/exe", "etc"])
def test_a_hard_link_to_what_is_no_file_of_the_image_is_refused(lab, target):
    r = offer(lab, [raw("stolen", tarfile.LNKTYPE, target) + END])
    assert r.code == 1 and ("no file of the image" in r.err or "contains '..'" in r.err), r
    nothing_stays(lab)


def test_devices_sockets_and_set_id_bits_do_not_arrive(any_user):
    lab = any_user
    layer = images.Layer().device("dev/mem").device("block", tarfile.BLKTYPE).add("bin/su2", "#!/bin/sh\n", mode=0o6755).folder("shared", mode=0o2775)
    layer.add("pipe", kind=tarfile.FIFOTYPE)
    r = offer(lab, [layer.done()])
    assert r.code == 0, r
    modes = [os.lstat(os.path.join(d, n)).st_mode for d, dirs, files in os.walk(store(lab)) for n in dirs + files]
    assert len(modes) > 30 and not [m for m in modes if m & (stat.S_ISUID | stat.S_ISGID) or stat.S_ISCHR(m) or stat.S_ISBLK(m)]
    r = lab.run(["--image", "evil", "sh", "-c", "stat -c '%a %F' /bin/su2 /shared /pipe; ls /dev/mem /block"])
    assert r.out.splitlines() == ["755 regular file", "775 directory", "644 fifo"] and r.err.count("No such file") == 2, r


@pytest.mark.parametrize("names", [("etc/.wh...", ), ("etc/.wh..", ), (".wh..wh..wh.x", )])
def test_a_whiteout_of_something_else_is_refused(lab, names):
    layer = images.Layer()
    for name in names:
        layer.add(name)
    r = offer(lab, [layer.done()])
    assert r.code == 1 and "whiteout" in r.err, r
    nothing_stays(lab)


def test_a_whiteout_that_is_repeated_costs_no_more_than_one(lab):
    """20,000 files, and 10,000 times that their folder hides what is below: directly, through links and from the folder above. Looking at each file each time would take a quarter of an hour."""
    layer = images.Layer().folder("up").folder("up/all")
    for i in range(20000):
        layer.add("up/all/%d" % i)
    for i in range(5000):
        layer.add("up/all/.wh..wh..opq").add("up/.wh..wh..opq").link("l%d" % i, "up/all").add("l%d/.wh..wh..opq" % i)
    lower = images.Layer().folder("up").folder("up/all").add("up/all/lower").add("up/below")
    r = offer(lab, [lower.done(), layer.done()])
    assert r.code == 0, r
    r = lab.run(["--no-network", "--image", "evil", "sh", "-c", "ls /up; ls /up/all | wc -l; ls /up/all/lower"])
    assert r.out == "all\n20000\n" and "lower" in r.err, r


def test_a_bomb_stops_at_the_limit(any_user):
    lab = any_user
    size = 1 << 30
    head = raw("bomb", size=size)
    packed = gzip.compress(head, 1, mtime=0)
    zeroes = gzip.compress(b"\0" * (1 << 24), 9, mtime=0) * (size >> 24)  # members may follow each other
    folder = images.write_layout(lab.path("project", "layout"), [images.base_layer().done()])
    splice_layer(folder, packed + zeroes + gzip.compress(END, 1, mtime=0))
    r = lab.ak(["image", "import", "--max-size", "64M", "--name", "evil", folder + ":latest"], timeout=60)
    assert r.code == 1 and "unpacks to more than 64 MiB" in r.err, r
    nothing_stays(lab)


def test_folders_that_a_layer_does_not_name_count_too(any_user):
    """40 names, each with 120 folders above it: a layer of a few kilobytes that makes 4,800 folders."""
    lab = any_user
    deep = images.Layer()
    for i in range(40):
        deep.add("%d/%s/x" % (i, "/".join("d" * 120)))
    r = offer(lab, [deep.done()], ["--max-size", "16M"])
    assert r.code == 1 and "unpacks to more than 16 MiB" in r.err, r
    nothing_stays(lab)


@pytest.mark.parametrize("name", ["index.json", "oci-layout", "blob"])
def test_a_layout_with_a_fifo_is_refused_at_once(lab, name):
    folder = images.write_layout(lab.path("project", "layout"), [images.base_layer().done()])
    blobs = os.path.join(folder, "blobs", "sha256")
    path = os.path.join(blobs, os.listdir(blobs)[0]) if name == "blob" else os.path.join(folder, name)
    os.unlink(path)
    os.mkfifo(path)
    r = lab.ak(["image", "import", "--name", "evil", folder + ":latest"], timeout=20)
    assert r.code == 2 and "is not a regular file" in r.err, r
    nothing_stays(lab)


def splice_layer(folder, blob):
    """Put a second layer with this very blob into the layout; its content's digest is a lie."""
    def read(digest):
        with open(os.path.join(folder, "blobs", "sha256", digest.split(":")[1]), "rb") as f:
            return json.loads(f.read())

    def put(data):
        digest = hashlib.sha256(data).hexdigest()
        with open(os.path.join(folder, "blobs", "sha256", digest), "wb") as f:
            f.write(data)
        return {"digest": "sha256:" + digest, "size": len(data)}

    with open(os.path.join(folder, "index.json")) as f:
        index = json.load(f)
    manifest = read(index["manifests"][0]["digest"])
    config = read(manifest["config"]["digest"])
    manifest["layers"].append(dict(put(blob), mediaType="application/vnd.oci.image.layer.v1.tar+gzip"))
    config["rootfs"]["diff_ids"].append("sha256:" + "0" * 64)
    manifest["config"].update(put(json.dumps(config).encode()))
    index["manifests"][0].update(put(json.dumps(manifest).encode()))
    with open(os.path.join(folder, "index.json"), "w") as f:
        json.dump(index, f)


def test_a_sparse_file_is_refused(lab):
    info = tarfile.TarInfo("sparse")
    info.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": str(1 << 50)}
    buf = io.BytesIO()
    with tarfile.open(fileobj=buf, mode="w", format=tarfile.PAX_FORMAT) as t:
        t.addfile(info)
    for layer in (buf.getvalue(), raw("sparse", b"S", size=1 << 40) + END):
        r = offer(lab, [layer])
        assert r.code == 1 and ("sparse" in r.err or "unknown kind of entry" in r.err), r
        nothing_stays(lab)


def test_a_layer_that_is_not_what_the_configuration_says_is_refused(lab):
    """Its digest in the manifest is right; what it unpacks to is another one."""
    folder = images.write_layout(lab.path("project", "layout"), [images.base_layer().done()])
    splice_layer(folder, gzip.compress(images.Layer().add("x", "y").done()))
    r = lab.ak(["image", "import", "--name", "evil", folder + ":latest"])
    assert r.code == 1 and "does not match the image's configuration" in r.err, r
    nothing_stays(lab)


def test_an_import_cannot_take_the_name_of_another_image_s_digest(lab):
    other = "docker.io/library/alpine@sha256:" + "a" * 64
    folder = images.write_layout(lab.path("project", "layout"), [images.base_layer().done()])
    for args in (["--name", other, folder + ":latest"], [folder + ":" + other]):
        r = lab.ak(["image", "import", *args])
        assert r.code != 0 and "name with a digest" in r.err, r
    nothing_stays(lab)
    assert lab.run(["--no-network", "--image", other, "true"]).code == 125


@pytest.mark.parametrize("spoil", [lambda d: d[:len(d) // 2], lambda d: d[:-8] + b"\0" * 8, lambda d: b"", lambda d: b"\xff" * len(d)],
                         ids=["cut", "sum", "empty", "noise"])
def test_a_damaged_blob_is_refused(lab, spoil):
    r = offer(lab, [], spoil=spoil)
    assert r.code == 1 and r.err.startswith("agentkernel: image import: "), r
    nothing_stays(lab)


@pytest.mark.parametrize("tail", [b"", raw("x", size=5000, content=b"y" * 1000), raw("x")[:300]], ids=["no end", "short file", "half a header"])
def test_a_truncated_tar_is_refused_or_whole(lab, tail):
    layer = images.Layer().add("whole", "w").done()[:1024] + tail
    r = offer(lab, [layer])
    if tail:
        assert r.code == 1 and "truncated" in r.err, r
        nothing_stays(lab)
    else:
        assert lab.run(["--image", "evil", "cat", "/whole"]).out == "w"


def test_a_deep_tree_is_refused_and_one_made_deep_by_links_is_removed(lab):
    r = offer(lab, [images.Layer().add("a/" * 300 + "x", "y").done()])
    assert r.code == 1 and "too deep" in r.err, r
    nothing_stays(lab)
    layer, deep = images.Layer(), "d/" * 200
    layer.folder(deep).link("l0", deep.rstrip("/"))
    for i in range(20):  # each goes on where the one before ended: some 4,000 folders deep
        layer.folder("l%d/%s" % (i, deep)).link("l%d" % (i + 1), "l%d/%s" % (i, deep.rstrip("/")))
    r = offer(lab, [layer.done()])
    if r.code == 0:
        assert lab.ak(["image", "remove", "evil"], timeout=120).code == 0
    nothing_stays(lab)


def test_the_image_cannot_redirect_what_the_sandbox_mounts(any_user):
    """Links where the sandbox's own files, folders and mounts go, and a /proc, /dev and /sys with content."""
    lab = any_user
    outside = lab.path("project", "outside")
    with open(outside, "w") as f:
        f.write("untouched")
    os.chmod(outside, 0o666)
    layer = images.Layer()
    layer.add(".wh.tmp").link("tmp", "/etc").link("dev", "/etc").link("proc", "etc").link("sys", "etc").link("var", "etc").link("run", "/etc")
    layer.add("etc/.wh.passwd").link("etc/passwd", "/proc/1/environ").link("etc/hosts", outside).link("etc/resolv.conf", outside).link("etc/hostname", outside)
    r = offer(lab, [layer.done()])
    assert r.code == 0, r
    r = lab.run(["--compatibility-mode", "claude", "--image", "evil", "sh", "-c",
                 "cat /etc/hostname; ls -ld /tmp /dev /proc /sys; cat /proc/self/comm; echo x > /dev/null; ls /sys; touch /tmp/y && echo fine"], cwd=lab.path("project"))
    assert r.code == 0 and r.out.startswith("run-") and r.out.count("\nd") == 4 and r.out.endswith("cat\nfine\n"), r
    assert open(outside).read() == "untouched"


LOOK = """
import os, sys
def text(pid, name):
    return open('/proc/%s/%s' % (pid, name)).read()
for pid in filter(str.isdigit, os.listdir('/proc')):
    try:
        if 'image-unpack' not in text(pid, 'cmdline') or '/image/unpacker' not in text(pid, 'cmdline'):
            continue
        status = dict(l.rstrip().split(':', 1) for l in text(pid, 'status').splitlines())
        if len(status['NSpid'].split()) < 2 or status['Seccomp'].strip() != '2':
            continue
        links = [l.split(':')[0].strip() for l in text(pid, 'net/dev').splitlines()[2:]]
        mounts = [l.split() for l in text(pid, 'mountinfo').splitlines()]
        writable = [m[4] for m in mounts if 'rw' in m[5].split(',') and m[m.index('-') + 1] not in ('tmpfs', 'devpts', 'proc', 'devtmpfs', 'mqueue')]
        root = '/proc/%s/root' % pid
        print(status['Uid'].split()[0], status['NoNewPrivs'].strip(), links, writable, os.path.exists(root + sys.argv[1]))
        break
    except (OSError, KeyError):
        continue
"""


def test_the_unpacker_has_no_network_no_files_of_the_user_and_one_folder_to_write(any_user):
    """So that a layer that takes it over has won nothing."""
    lab = any_user
    secret = lab.path("home", "secret")
    with open(secret, "w") as f:
        f.write("s")
    folder = images.write_layout(lab.path("project", "layout"), [images.base_layer().done()])
    zeroes = gzip.compress(b"\0" * (1 << 24), 9, mtime=0) * 128
    splice_layer(folder, gzip.compress(raw("bomb", size=1 << 31), 1, mtime=0) + zeroes)
    p = lab.spawn([lab.binary, "image", "import", "--max-size", "4G", folder + ":latest"], env=lab.env())
    seen = wait_for(lambda: p.code is not None or lab.host([PYTHON, "-c", LOOK, secret]).out)
    p.signal(9)
    p.wait()
    assert seen is not True
    uid, nnp, rest = seen.split(" ", 2)
    assert (uid != "0" or not lab.is_root) and nnp == "1" and rest == "['lo'] ['/image/out'] False\n", seen
    # What the killed import left goes with the next one.
    wait_for(lambda: not lab.host([PYTHON, "-c", LOOK, secret]).out)
    assert offer(lab, []).code == 0 and [n for n in os.listdir(store(lab)) if n.startswith(".new-")] == []
