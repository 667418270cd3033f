"""`image pull` from a real registry (docker-registry) on the lab's Internet, through our own gateway."""
import json
import os
import shutil

import images
import pytest
from expect import find, missing
from lab import wait_for
from screen import Screen

REGISTRY = "registry.test"
ADDRESS = "11.7.0.1"
PORT = 5443


@pytest.fixture
def registry(lab, tmp_path):
    """A registry with the image box:1, on the Internet side, with the lab's certificate."""
    lacks = images.missing_tools() + ("" if shutil.which("docker-registry") else " docker-registry")
    if lacks:
        missing("not installed: %s" % lacks)
    yield from serve(lab, tmp_path)


def serve(lab, folder, more=None):
    layout = images.write_layout(str(folder / "layout"), [images.base_layer().done()], {"Cmd": ["echo", "pulled"]})
    blobs = folder / "registry"
    blobs.mkdir()
    blobs.chmod(0o777)
    config = folder / "config.yml"
    config.write_text(json.dumps({
        **(more or {}), "version": 0.1, "log": {"level": "error"}, "storage": {"filesystem": {"rootdirectory": str(blobs)}},
        "http": {"addr": "%s:%d" % (ADDRESS, PORT), "tls": {"certificate": os.path.join(lab.folder, "server.pem"), "key": os.path.join(lab.folder, "server.key")}}}))
    lab.dns.set(REGISTRY, A=ADDRESS)
    ca = folder / "ca.pem"
    ca.write_text(lab.ca)
    p = lab.spawn(["docker-registry", "serve", str(config)], who="root", internet=True)
    certs = "SSL_CERT_FILE=%s" % ca
    push = ["env", certs, "skopeo", "--insecure-policy", "copy", "-q", "oci:%s:latest" % layout, "docker://%s:%d/box:1" % (REGISTRY, PORT)]
    wait_for(lambda: lab.host(push).code == 0, timeout=30, every=0.1)
    lab.clear()
    yield {"ca": str(ca), "blobs": str(blobs), "log": p}
    p.signal(9)
    p.wait()


def pull(lab, registry, *options, name="%s:%d/box:1" % (REGISTRY, PORT)):
    return lab.ak(["image", "pull", "--ca-file", registry["ca"], *options, name], timeout=60)


def test_an_image_is_pulled_through_the_gateway_and_runs(registry, lab):
    r = pull(lab, registry)
    assert r.code == 0 and r.out.splitlines() == ["registry.test:5443/box:1"], r
    assert "Copying blob" in r.err, r
    assert lab.strangers(ADDRESS) == [] and lab.dns.names() == [REGISTRY], lab.counters()
    rows = lab.netlog()
    assert find(rows, verdict="allow", port=PORT) and not find(rows, verdict="deny"), rows
    assert lab.run(["--image", r.out.strip()]).out == "pulled\n"


def test_concurrent_pulls_do_the_work_once(registry, lab):
    args = ["image", "pull", "--ca-file", registry["ca"], "%s:%d/box:1" % (REGISTRY, PORT)]
    both = [lab.spawn([lab.binary, *args], env=lab.env()) for _ in range(3)]
    for p in both:
        r = p.wait(60)
        assert r.code == 0 and r.out == "registry.test:5443/box:1\n", r
    runs = [n for n in os.listdir(lab.path("state", "agentkernel", "runs")) if n.startswith("run-")]
    assert len(runs) == 1, runs
    # A later one asks the registry again: the tag may mean something else by then.
    assert pull(lab, registry).code == 0
    assert len([n for n in os.listdir(lab.path("state", "agentkernel", "runs")) if n.startswith("run-")]) == 2


def nothing_stays(lab):
    store = lab.path("state", "agentkernel", "images")
    left = [n for n in os.listdir(store) if n not in (".lock", "names.json") and not n.startswith(".pull-")]
    assert left == [] and lab.ak(["image", "list", "--json"]).json() == [], left


def test_a_registry_that_redirects_elsewhere_is_not_followed(lab, tmp_path):
    lacks = images.missing_tools() + ("" if shutil.which("docker-registry") else " docker-registry")
    if lacks:
        missing("not installed: %s" % lacks)
    lab.dns.set("cdn.test", A="11.66.0.77")
    for registry in serve(lab, tmp_path, {"middleware": {"storage": [{"name": "redirect", "options": {"baseurl": "https://cdn.test/"}}]}}):
        r = pull(lab, registry)
        assert r.code == 1 and "--allow-host" in r.err and "network log run-" in r.err and r.out == "", r
        assert lab.arrived("11.66.0.77") == 0 and find(lab.netlog(), verdict="deny", name="cdn.test"), r
        nothing_stays(lab)
        r = pull(lab, registry, "--allow-host", "cdn.test")
        assert r.code == 1 and lab.arrived("11.66.0.77") > 0, r  # allowed now; what answers there has no blobs
        nothing_stays(lab)


def test_what_the_registry_does_not_have_or_changed_is_an_error(registry, lab):
    r = pull(lab, registry, name="%s:%d/box:2" % (REGISTRY, PORT))
    assert r.code == 1 and "manifest unknown" in r.err, r
    r = lab.ak(["image", "pull", "%s:%d/box:1" % (REGISTRY, PORT)], timeout=60)
    assert r.code == 1 and "certificate" in r.err, r
    largest = max((os.path.join(d, n) for d, _, names in os.walk(registry["blobs"]) for n in names), key=os.path.getsize)
    with open(largest, "r+b") as f:
        f.seek(os.path.getsize(largest) // 2)
        f.write(b"changed")
    r = pull(lab, registry)
    assert r.code == 1, r
    nothing_stays(lab)


def test_a_name_that_is_none_is_a_usage_error(lab):
    if images.missing_tools():
        missing("not installed: " + images.missing_tools())
    for name in ("docker://alpine", "UPPER", "a b", "../x"):
        r = lab.ak(["image", "pull", name])
        assert r.code == 2 and "is not the name of an image" in r.err, r
    assert lab.ak(["image", "pull"]).code == 2


def test_on_a_terminal_the_progress_is_a_bar_and_the_name_comes_last(registry, lab):
    screen = Screen(lab, ["image", "pull", "--ca-file", registry["ca"], "%s:%d/box:1" % (REGISTRY, PORT)])
    screen.until(rb"Copying blob [^\n]*\[=*>?-*\]|Copying blob [^\n]*\x1b\[", timeout=30)
    screen.until(rb"registry\.test:5443/box:1\r\n$", timeout=30)
    assert screen.proc.wait().code == 0
