"""Fixtures of the net and attack tests: one lab a worker, made new for every test, and searched for leftovers after it."""
import os
import pathlib
import sys
import tempfile

import pytest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lab"))

from expect import missing  # noqa: E402
from lab import Lab, LabError  # noqa: E402
from npm import npm_folder  # noqa: E402
from persist import Boxes  # noqa: E402


@pytest.fixture
def tmp_path():
    """Instead of pytest's own, which stays: a folder that anybody can read, and that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="ak-test-") as folder:
        os.chmod(folder, 0o755)
        yield pathlib.Path(folder)


@pytest.fixture(scope="session")
def lab_session():
    """The worker's lab, as a function: a test that ends or hangs the lab fails, and the next one gets a new lab."""
    labs = []

    def current():
        if labs and labs[-1].broken:
            labs.pop().__exit__()
        if not labs:
            try:
                labs.append(Lab().__enter__())
            except (LabError, OSError) as e:
                missing("no lab on this host: %s" % e)
        return labs[-1]
    yield current
    for lab in labs:
        lab.__exit__()


@pytest.fixture
def plain_lab(lab_session):
    """The lab without agentkernel."""
    lab = lab_session()
    lab.reset()
    return lab


@pytest.fixture
def lab(plain_lab):
    if not os.access(plain_lab.binary, os.X_OK):
        pytest.fail("%s is not there: build first" % plain_lab.binary)
    yield plain_lab
    left = plain_lab.leaks()
    if left:
        plain_lab.sweep()
    assert not left, "left behind:\n" + left


@pytest.fixture(params=["user", "root"])
def any_user(request, lab):
    """The lab, once as an ordinary user and once as root (when the suite runs as root)."""
    if request.param == "root" and not lab.is_root:
        pytest.skip("the suite runs as an ordinary user")
    with lab.acting_as(request.param):
        yield lab


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """With a test of persistent sandboxes that failed, show what the daemon said: it is removed afterwards."""
    report = (yield).get_result()
    made = getattr(item, "funcargs", {}).get("boxes") or getattr(item, "funcargs", {}).get("any_boxes")
    if report.failed and made:
        try:
            with open(made.runtime("daemon.log"), errors="replace") as f:
                report.sections.append(("daemon.log", f.read()[-8000:]))
        except OSError:
            pass


@pytest.fixture
def boxes(lab):
    """Persistent sandboxes in the lab; all are removed afterwards, and the daemon ended."""
    made = Boxes(lab)
    yield made
    made.close()


@pytest.fixture
def any_boxes(any_user):
    made = Boxes(any_user)
    yield made
    made.close()


@pytest.fixture(scope="session")
def package():
    """The published Node client: the path of its module."""
    return os.path.join(npm_folder("npm-http", "agentkernel@0.18.1"), "node_modules", "agentkernel", "dist", "index.js")
