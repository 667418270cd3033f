"""The API from the command line, with curl."""
import json
import shutil

import pytest
from api import api, serving  # noqa: F401
from expect import missing


@pytest.fixture
def curl(api):
    path = shutil.which("curl")
    if not path:
        missing("curl is not there")
    return lambda *args, base=None: api.lab.spawn([path, "-s", "--max-time", "20", *args[:-1], (base or "http://localhost:%d" % api.port) + args[-1]]).wait()


def test_curl_by_name_and_by_both_families(curl, api):
    for base in ("http://localhost:%d", "http://127.0.0.1:%d", "http://[::1]:%d"):
        assert curl("/health", base=base % api.port).json() == {"success": True, "data": "ok"}
    assert curl("--http1.0", "/health").json()["data"] == "ok"
    assert "HTTP/1.1 200 OK" in curl("-I", "/health").out


def test_curl_runs_streams_and_sends_in_every_way(curl, api):
    assert curl("-d", '{"command":["echo","hi"]}', "/run").json()["data"]["output"] == "hi\n"
    chunked = ["-H", "Transfer-Encoding: chunked", "-H", "Expect: 100-continue", "--data-binary"]
    assert curl(*chunked, '{"command":["echo","in pieces"]}', "/run").json()["data"]["output"] == "in pieces\n"
    out = curl("-N", "-d", '{"command":["echo","flows"]}', "/run/stream").out
    assert 'event: output\ndata: {"data":"flows' in out and out.rstrip().split("\n\n")[-1].startswith("event: done")
    # A body that curl sends only after it was told to go on.
    big = json.dumps({"command": ["true"], "env": {"A": "x" * 100000}})
    path = api.lab.path("project", "big.json")
    with open(path, "w") as f:
        f.write(big)
    assert curl("-H", "Expect: 100-continue", "--data-binary", "@" + path, "/run").json()["data"]["exit_code"] == 0
    with open(path, "w") as f:
        f.write("x" * (17 << 20))
    r = curl("-w", "%{http_code}", "--data-binary", "@" + path, "/run")
    assert r.out.endswith("}\n413"), r
    r = curl("-w", "%{http_code}", "--path-as-is", "/sandboxes/a/files/../../../etc/passwd")
    assert r.out.endswith("}\n400"), r
