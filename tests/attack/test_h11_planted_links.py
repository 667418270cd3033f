"""h11: links that a persistent sandbox leaves in its own root lead the next start nowhere; whatever it left, it starts again."""
import os

import pytest
from expect import compile_c
from lab import PYTHON

# What a sandbox may do to its own root, then the next start walks over it.
PLANTS = {
    "usr-local": "rm -rf /usr/local; ln -s {outside} /usr/local",
    "usr-local-relative": "rm -rf /usr/local; ln -s ../../../../../../../../../../../..{outside} /usr/local",
    "usr-local-share": "rm -rf /usr/local/share; ln -s {outside} /usr/local/share",
    "etc-ssl": "mv /etc/ssl /etc/old; ln -s {outside} /etc/ssl",
    "etc": "mv /etc /old-etc; ln -s {outside} /etc",
    "var": "mv /var /old-var || rm -rf /var; ln -s {outside} /var",
    "var-file": "mv /var /old-var || rm -rf /var; echo x > /var",
    "run": "rm -rf /run; ln -s {outside} /run",
    "opt": "rm -rf /opt; ln -s {outside} /opt",
    "tmp": "cd /; rm -rf /tmp/* ; ln -s {outside} /tmp/x",
    "home": "cd /; mv \"$HOME\" /old-home; ln -s {outside} \"$HOME\"",
    "home-parent": "cd /; mv /home /old; ln -s {outside} /home",
    "etc-passwd": "rm -f /etc/passwd; ln -s {outside}/made /etc/passwd",
    "etc-passwd-folder": "rm -f /etc/passwd; mkdir -p /etc/passwd/deep; echo x > /etc/passwd/deep/y",
    "etc-hosts-fifo": "rm -f /etc/hosts; mkfifo /etc/hosts",
    "mtab": "rm -f /etc/mtab; mkdir /etc/mtab",
    "sys": "chmod 777 /sys; mv /sys /old-sys; ln -s {outside} /sys",
}


def tree(folder):
    return sorted((os.path.join(p, n), os.lstat(os.path.join(p, n)).st_mode, os.lstat(os.path.join(p, n)).st_size)
                  for p, d, f in os.walk(folder) for n in d + f)


@pytest.mark.parametrize("plant", PLANTS)
def test_h11_the_next_start_follows_no_planted_link(any_boxes, plant):
    b, lab = any_boxes, any_boxes.lab
    outside = lab.path("tmp", "outside")
    os.makedirs(os.path.join(outside, "bin"))
    os.makedirs(os.path.join(outside, "lib"))
    for path in (outside, os.path.join(outside, "bin"), os.path.join(outside, "lib")):
        os.chmod(path, 0o777)
    before = tree(outside)
    b.up("x")
    b.exec("x", "sh", "-c", PLANTS[plant].format(outside=outside))
    b.ak("stop", "x")
    r = lab.ak(["start", "x"])
    assert tree(outside) == before, (set(tree(outside)) - set(before), r)
    assert r.code == 0, r
    # It is a working sandbox again, with its files.
    assert b.sh("x", "id -un && test -d /etc/ssl && test -d /var/tmp && echo fine").endswith("fine\n")
    assert tree(outside) == before
    lab.host(["rm", "-rf", outside])
