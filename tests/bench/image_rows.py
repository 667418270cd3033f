"""The bench's rows about images: a start with an image next to one without, and next to podman's of the same image."""
import os
import shutil
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "lab"))
import images  # noqa: E402
from rig import RigError  # noqa: E402
from row import Row  # noqa: E402


class ImageRows:
    """Part of Bench."""

    def podman_why_not(self, layout):
        """Make the image known to podman; why it cannot be measured, or None."""
        if not shutil.which("podman"):
            return "podman is not installed"
        # As root of the bench's own namespaces: its ordinary user has no ids for podman. runc, because crun refuses some machines' control groups.
        podman = ["podman", "--runtime", shutil.which("runc", path="/usr/sbin:/usr/bin:/sbin") or "crun", "--cgroup-manager", "cgroupfs", "--root", self.rig.mkdir("podman"),
                  "--runroot", self.rig.mkdir("podman-run"), "--storage-driver", "vfs"]
        try:
            self.rig.run([*podman, "pull", "-q", "oci:%s:latest" % layout], root=True)
            listed = self.rig.run([*podman, "images", "-q"], root=True).split()
            self.podman = [*podman, "run", "--rm", "--network", "slirp4netns", listed[0], "/bin/busybox", "true"]
            self.rig.run(self.podman, root=True)
        except (subprocess.CalledProcessError, RigError, IndexError) as e:
            return "podman does not work here: " + " ".join(str(e).split())[:80]
        return None

    def timed(self, argv, **kw):
        """Milliseconds, with what starting a process from here costs."""
        began = time.monotonic()
        self.rig.run(argv, **kw)
        return (time.monotonic() - began) * 1000

    def image(self):
        lacks = images.missing_tools()
        if lacks:
            yield Row("cold start, image", lambda r: r <= 1.2, "≤ 1.2×", None, None, "not measured: needs " + lacks, "ms")
            return
        layout = images.write_layout(self.rig.mkdir("layout"), [images.base_layer().done()], {"Env": ["PATH=/bin"]})
        subprocess.run(["chmod", "-R", "a+rX", layout], check=True)
        env = {"AGENTKERNEL_DATA_DIR": self.data}
        self.rig.run([self.ak, "image", "import", "--name", "bench", layout + ":latest"], env=env)
        # The same program in both: what differs is the root.
        ours = ([self.ak, "run", "--quiet", "--image", "bench", "/bin/busybox", "true"], 12, env)
        host = ([self.ak, "run", "--quiet", "/bin/busybox", "true"], 12, env)
        a, b = self.hyperfine_alternate(ours, host)
        yield Row("cold start, image", lambda r: r <= 1.2, "≤ 1.2×", a, b, "the host's root", "ms", a / b, "%.2f×" % (a / b))
        why = self.podman_why_not(layout)
        if why:
            yield Row("cold start, image", lambda r: r >= 15, "≥ 15× faster", a, None, "podman not measured: " + why, "ms")
            return
        a, b = self.alternate(lambda: self.timed(ours[0], env=env), lambda: self.timed(self.podman, root=True))
        yield Row("cold start, image", lambda r: r >= 15, "≥ 15× faster", a, b, "podman run --rm, network slirp4netns", "ms", b / a, "%.1f× faster" % (b / a))
