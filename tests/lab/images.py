"""OCI images for tests, written by hand: every byte of a layer is the test's own."""
import gzip
import hashlib
import io
import json
import os
import platform
import shutil
import struct
import tarfile

ARCH = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
BUSYBOX = "/bin/busybox"
PASSWD = "root:x:0:0:root:/root:/bin/sh\nnode:x:1000:1000:node:/home/node:/bin/sh\n"
GROUP = "root:x:0:\nnode:x:1000:\nshadow:x:42:\n"


def have_busybox():
    """A busybox without shared libraries: it must run in a root that has nothing else."""
    if not os.path.exists(BUSYBOX):
        return False
    with open(BUSYBOX, "rb") as f:
        head = f.read(4096)
    at, size, n = struct.unpack_from("<Q", head, 32)[0], *struct.unpack_from("<HH", head, 54)
    return all(struct.unpack_from("<I", head, at + i * size)[0] != 3 for i in range(n))  # PT_INTERP


class Layer:
    """A layer under construction: entries in the order in which they are added."""

    def __init__(self):
        self.buf = io.BytesIO()
        self.tar = tarfile.open(fileobj=self.buf, mode="w", format=tarfile.PAX_FORMAT)

    def add(self, name, content=b"", kind=tarfile.REGTYPE, mode=0o644, uid=0, gid=0, target=""):
        info = tarfile.TarInfo(name)
        info.type, info.mode, info.uid, info.gid, info.linkname, info.mtime = kind, mode, uid, gid, target, 1000000000
        if isinstance(content, str):
            content = content.encode()
        info.size = len(content) if kind == tarfile.REGTYPE else 0
        self.tar.addfile(info, io.BytesIO(content) if info.size else None)
        return self

    def folder(self, name, mode=0o755, uid=0, gid=0):
        return self.add(name, kind=tarfile.DIRTYPE, mode=mode, uid=uid, gid=gid)

    def link(self, name, target):
        return self.add(name, kind=tarfile.SYMTYPE, target=target, mode=0o777)

    def hard_link(self, name, target):
        return self.add(name, kind=tarfile.LNKTYPE, target=target)

    def device(self, name, kind=tarfile.CHRTYPE):
        info = tarfile.TarInfo(name)
        info.type, info.mode, info.devmajor, info.devminor = kind, 0o666, 1, 3
        self.tar.addfile(info)
        return self

    def done(self):
        self.tar.close()
        return self.buf.getvalue()


def base_layer():
    """busybox with the usual programs, and two users."""
    layer = Layer()
    for name in ("bin", "etc", "root", "tmp", "usr", "usr/bin", "home"):
        layer.folder(name, mode=0o1777 if name == "tmp" else 0o755)
    layer.folder("home/node", uid=1000, gid=1000)
    with open(BUSYBOX, "rb") as f:
        layer.add("bin/busybox", f.read(), mode=0o755)
    for name in ("sh", "cat", "id", "ls", "echo", "env", "pwd", "stat", "touch", "chown", "mount", "mkdir", "rm", "grep", "wget", "nslookup",
                 "true", "sleep", "head", "wc", "find", "chmod", "readlink", "su", "dd", "tar", "hostname"):
        layer.link("bin/" + name, "busybox")
    layer.add("etc/passwd", PASSWD).add("etc/group", GROUP)
    layer.add("etc/owned", "x", uid=1000, gid=1000)
    return layer


def write_layout(path, layers, config=None, tag="latest", packing="gzip", spoil=None):
    """An OCI layout at PATH with one image. LAYERS: uncompressed tars. SPOIL(name → bytes) may change a blob after its digest was taken."""
    blobs = os.path.join(path, "blobs", "sha256")
    os.makedirs(blobs, exist_ok=True)

    def put(data, change=None):
        digest = hashlib.sha256(data).hexdigest()
        with open(os.path.join(blobs, digest), "wb") as f:
            f.write(change(data) if change else data)
        return "sha256:" + digest

    rows, diff_ids = [], []
    for tar in layers:
        data = gzip.compress(tar, 1, mtime=0) if packing == "gzip" else tar
        rows.append({"mediaType": "application/vnd.oci.image.layer.v1.tar" + ("+gzip" if packing == "gzip" else ""), "digest": put(data, spoil), "size": len(data)})
        diff_ids.append("sha256:" + hashlib.sha256(tar).hexdigest())
    text = json.dumps({"architecture": ARCH, "os": "linux", "config": config or {}, "rootfs": {"type": "layers", "diff_ids": diff_ids}}).encode()
    manifest = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
                "config": {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": put(text), "size": len(text)}, "layers": rows}
    data = json.dumps(manifest).encode()
    index = {"schemaVersion": 2, "manifests": [{"mediaType": manifest["mediaType"], "digest": put(data), "size": len(data),
                                                "annotations": {"org.opencontainers.image.ref.name": tag}}]}
    with open(os.path.join(path, "index.json"), "w", encoding="utf-8") as f:
        json.dump(index, f)
    with open(os.path.join(path, "oci-layout"), "w", encoding="utf-8") as f:
        f.write('{"imageLayoutVersion": "1.0.0"}')
    return path


def missing_tools():
    """What the tests need and this machine lacks, or ""."""
    lacks = [t for t in ("skopeo",) if not shutil.which(t)]
    if not have_busybox():
        lacks.append("busybox-static")
    return " ".join(lacks)
