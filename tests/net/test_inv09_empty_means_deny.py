"""Invariant 9: an empty list denies; a policy that does not load changes nothing; what cannot be enforced is not run.

The vectors of an empty list are in attack/test_a1; here the sandbox must not even start on a gateway that cannot work.
"""
import errno
import os

import pytest
from expect import CODEX, allow, policy_env
from lab import PYTHON


def test_a_missing_policy_file_starts_nothing(lab):
    env = policy_env(lab, other={"allow": ["ok.test"]})
    r = lab.run([*CODEX, "touch", lab.path("project", "ran")], env=env)
    assert r.code == 125 and "codex" in r.err and not os.path.exists(lab.path("project", "ran")), r


@pytest.mark.xdist_group("descriptors")
def test_without_room_for_descriptors_nothing_starts_or_everything_is_fenced(lab):
    ran = []
    for limit in (8, 12, 16, 20, 24, 32):
        r = lab.run([*allow("ok.test"), "--", PYTHON, "-c", "import socket; s=socket.socket(); s.settimeout(2); print(s.connect_ex(('11.66.0.1',443)))"],
                    rlimits={"RLIMIT_NOFILE": limit})
        if r.code == 0:
            assert r.out.strip() == str(errno.ECONNREFUSED), (limit, r)
        else:
            assert r.code == 125 and r.out == "" and "Too many open files" in r.err, (limit, r)
        ran.append(r.code)
    assert lab.arrived("11.66.0.1") == 0
    assert set(ran) == {0, 125}, "both cases were tried: %r" % ran
