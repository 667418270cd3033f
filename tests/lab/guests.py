"""Sandboxes with `--backend vm`. The guest is booted once for each user of the lab; every run restores it."""
import contextlib
import os
import platform

from expect import missing
from lab import PATIENCE_S

VM = ["--backend", "vm"]
SLOW = 150  # seconds: software emulation beside other tests


def prepare(lab):
    """The guest that the first run saves serves all later tests of the same user."""
    if platform.machine() != "x86_64" or not os.path.exists("/usr/bin/qemu-system-x86_64"):
        missing("no QEMU on this host")
    place = os.path.join(lab.folder, "vm-" + lab.who)
    script = "mkdir -p {0} && mkdir -p {1} && ln -sfn {0} {1}/vm".format(place, lab.path("state", "agentkernel"))
    if not os.path.isdir(place):
        os.mkdir(place, 0o700)
        if lab.is_root and lab.who == "user":
            os.chown(place, lab.uid, lab.gid)
    r = lab.spawn(["sh", "-c", script]).wait()
    assert r.code == 0, r
    return lab


def run(lab, args, **kw):
    return lab.run([*VM, *args], timeout=SLOW, **kw)


@contextlib.contextmanager
def every_run(lab):
    """Every run of LAB is a virtual machine, also those of tests that know nothing of it."""
    prepare(lab)
    lab.backend, lab.patience_s = "vm", SLOW
    try:
        yield lab
    finally:
        lab.backend, lab.patience_s = "ns", PATIENCE_S
