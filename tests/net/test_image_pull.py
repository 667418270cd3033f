"""`image pull` from a real registry (docker-registry) on the lab's Internet, through our own gateway."""
import json
import os
import shutil
import subprocess

import images
import pytest
from expect import find, missing
from lab import wait_for

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


def serve(lab, folder):
    layout = images.write_layout(str(folder / "layout"), [images.base_layer().done()], {"Cmd": ["echo", "pulled"]})
    blobs = folder / "registry"
    blobs.mkdir()
    blobs.chmod(0o777)
    config = folder / "config.yml"
    config.write_text(json.dumps({
        "version": 0.1, "log": {"level": "error"}, "storage": {"filesystem": {"rootdirectory": str(blobs)}},
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
