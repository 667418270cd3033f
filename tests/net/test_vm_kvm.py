"""Whether hardware virtualisation is used: only where a guest really ran on it."""
import contextlib
import os
import platform
import re

import pytest
from guests import SLOW, prepare

pytestmark = pytest.mark.xdist_group("vm")


@pytest.fixture
def vm(any_user):
    return prepare(any_user)


def place(lab):
    return os.path.join(lab.folder, "vm-" + lab.who, "kvm")


def kernel(lab, args):
    r = lab.run([*args, "--no-network", "--", "uname", "-r"], timeout=SLOW)
    assert r.code == 0, r
    return r.out.strip() != platform.release(), r.err


def test_hardware_virtualisation_is_used_where_a_guest_ran_on_it(vm):
    with contextlib.suppress(FileNotFoundError):
        os.unlink(place(vm))  # another test's result
    own, err = kernel(vm, ["--backend", "vm"])
    assert own
    if not os.path.exists(place(vm)):  # /dev/kvm is missing or closed to this user
        assert "agentkernel: no hardware virtualisation (/dev/kvm: " in err, err
        assert kernel(vm, ["--backend", "auto"]) == (False, "")
        return
    with open(place(vm)) as f:
        release, qemu, guest, result = f.read().splitlines()
    assert release == platform.release() and "qemu" in qemu and "vmlinuz" in guest
    row = next(r for r in vm.ak(["doctor", "--offline", "--json"], timeout=SLOW).json()["checks"] if r["id"] == "kvm")
    if result == "runs":
        assert "no hardware" not in err and row["status"] == "ok" and kernel(vm, ["--backend", "auto"])[0]
        return
    assert err.count("agentkernel: no hardware virtualisation (%s)" % result) == 1, err
    assert row["status"] == "warn" and result in row["found"], row
    assert kernel(vm, ["--backend", "auto"]) == (False, ""), "auto without hardware is ns"
    late = re.search(r"did not come up within ([0-9.]+) s", result)
    assert not late or float(late[1]) < 9, "it is given as long as a boot that may take its time: %s" % result


def test_a_result_of_another_kernel_or_qemu_is_tested_anew_and_a_wrong_one_is_mended(vm):
    kernel(vm, ["--backend", "vm"])
    if not os.path.exists(place(vm)):
        pytest.skip("no /dev/kvm")
    with open(place(vm)) as f:
        lines = f.read().splitlines()
    if lines[-1] == "runs":
        pytest.skip("hardware virtualisation works here")
    for n in range(3):
        stale = [*lines[:n], lines[n] + "x", *lines[n + 1:-1], "runs"]
        with open(place(vm), "w") as f:
            f.write("\n".join(stale) + "\n")
        assert kernel(vm, ["--backend", "auto"]) == (False, ""), "a result of something else is not believed"
        with open(place(vm)) as f:
            assert f.read().splitlines()[:-1] == lines[:-1]
    with open(place(vm), "w") as f:
        f.write("\n".join([*lines[:-1], "runs"]) + "\n")
    own, err = kernel(vm, ["--backend", "auto"])
    assert own and "no hardware virtualisation" in err, err
    with open(place(vm)) as f:
        assert f.read().splitlines()[-1] != "runs"
    assert kernel(vm, ["--backend", "auto"]) == (False, "")


def test_the_project_file_chooses_the_backend(vm):
    with open(vm.path("project", "agentkernel.toml"), "w") as f:
        f.write('[sandbox]\nbackend = "vm"\n')
    r = vm.run(["--no-network", "--", "uname", "-r"], cwd=vm.path("project"), timeout=SLOW)
    assert r.code == 0 and r.out.strip() != platform.release(), r
    r = vm.run(["--no-network", "--backend", "ns", "--", "uname", "-r"], cwd=vm.path("project"))
    assert r.code == 0 and r.out.strip() == platform.release(), r
    with open(vm.path("project", "agentkernel.toml"), "w") as f:
        f.write('[sandbox]\nbackend = "kvm"\n')
    r = vm.run(["--no-network", "--", "true"], cwd=vm.path("project"))
    assert r.code == 2 and "backend" in r.err and "auto" in r.err, r
