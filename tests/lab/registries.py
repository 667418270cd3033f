"""Package registries of the lab's Internet, with one small package each, "labpack" 1.0.0: npm, PyPI, the sparse index of
crates.io and the module proxy of Go; and files that a test puts there (put)."""
import base64
import hashlib
import io
import json
import tarfile
import zipfile

NAME = "labpack"


def tar(**files):
    """A reproducible .tar.gz; "__" in a name stands for a dot and "_s_" for a slash."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as t:
        for name, text in files.items():
            info = tarfile.TarInfo(name.replace("__", ".").replace("_s_", "/"))
            info.size, info.mode = len(text), 0o644
            t.addfile(info, io.BytesIO(text.encode()))
    return out.getvalue()


def wheel():
    out, info = io.BytesIO(), NAME + "-1.0.0.dist-info/"
    with zipfile.ZipFile(out, "w") as z:
        z.writestr(NAME + ".py", "def answer():\n    return 42\n")
        z.writestr(info + "METADATA", "Metadata-Version: 2.1\nName: %s\nVersion: 1.0.0\n" % NAME)
        z.writestr(info + "WHEEL", "Wheel-Version: 1.0\nGenerator: lab\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        z.writestr(info + "RECORD", "%s.py,,\n%sMETADATA,,\n%sWHEEL,,\n%sRECORD,,\n" % (NAME, info, info, info))
    return out.getvalue()


NODE = tar(package_s_package__json=json.dumps({"name": NAME, "version": "1.0.0", "main": "index.js"}), package_s_index__js="exports.answer = () => 42;\n")
WHEEL = wheel()
CRATE = tar(**{NAME + "-1.0.0_s_Cargo__toml": '[package]\nname = "%s"\nversion = "1.0.0"\nedition = "2021"\n' % NAME,
               NAME + "-1.0.0_s_src_s_lib__rs": "pub fn answer() -> i32 {\n    42\n}\n"})
WHEEL_NAME = NAME + "-1.0.0-py3-none-any.whl"


def npm(host, path):
    if path == "/" + NAME:
        dist = {"tarball": "https://%s/%s/-/%s-1.0.0.tgz" % (host, NAME, NAME),
                "integrity": "sha512-" + base64.b64encode(hashlib.sha512(NODE).digest()).decode()}
        return json.dumps({"name": NAME, "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": {"name": NAME, "version": "1.0.0", "dist": dist}}}).encode()
    return NODE if path.endswith(".tgz") else None


def pypi(host, path):
    if path == "/simple/%s/" % NAME:
        return ('<!DOCTYPE html><html><body><a href="https://files.pythonhosted.org/%s#sha256=%s">%s</a></body></html>' %
                (WHEEL_NAME, hashlib.sha256(WHEEL).hexdigest(), WHEEL_NAME)).encode()
    return WHEEL if path == "/" + WHEEL_NAME else None


def crates(host, path):
    if path == "/config.json":
        return json.dumps({"dl": "https://static.crates.io/crates", "api": "https://crates.io"}).encode()
    if path == "/%s/%s/%s" % (NAME[:2], NAME[2:4], NAME):
        return json.dumps({"name": NAME, "vers": "1.0.0", "deps": [], "cksum": hashlib.sha256(CRATE).hexdigest(), "features": {}, "yanked": False}).encode() + b"\n"
    return CRATE if path.startswith("/crates/") else None


def module():
    """The archive of a Go module: every name begins with the module and its version."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as z:
        z.writestr(MODULE + "@v1.0.0/go.mod", "module %s\n\ngo 1.19\n" % MODULE)
        z.writestr(MODULE + "@v1.0.0/labpack.go", "package labpack\n\nfunc Answer() int { return 42 }\n")
    return out.getvalue()


MODULE = "example.test/" + NAME
GO = {"list": b"v1.0.0\n", "v1.0.0.info": b'{"Version":"v1.0.0","Time":"2026-01-01T00:00:00Z"}', "v1.0.0.mod": b"module %s\n\ngo 1.19\n" % MODULE.encode(),
      "v1.0.0.zip": module()}


def golang(host, path):
    return GO.get(path[len(MODULE) + 5:]) if path.startswith("/%s/@v/" % MODULE) else None


files = {}  # (host, path): what a test put there


def put(host, path, data):
    files[host, path] = data


def put_there(host, path):
    return files.get((host, path))


ZONES = {"proxy.golang.org": golang, "repo.maven.apache.org": put_there, ".npmjs.org": npm, "pypi.org": pypi, ".pythonhosted.org": pypi, ".crates.io": crates}


def serves(host):
    return host is not None and host.endswith(tuple(ZONES))


async def answer(host, path, writer):
    registry = next(r for zone, r in ZONES.items() if host.endswith(zone))
    body = registry(host, path.split("?")[0])
    kind = "text/html" if body and body.startswith(b"<!") else "application/json" if body and body[:1] == b"{" else "application/octet-stream"
    status = "200 OK" if body is not None else "404 Not Found"
    body = body if body is not None else b"{}"
    writer.write(b"HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n" % (status.encode(), kind.encode(), len(body)) + body)
    await writer.drain()
