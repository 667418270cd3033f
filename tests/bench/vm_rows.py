"""The bench's rows about virtual machines: next to a bare QEMU that boots the same kernel to an init that prints, and next to the namespace backend."""
import contextlib
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "lab"))
import bare  # noqa: E402
from rig import WEB, RigError  # noqa: E402
from row import Row  # noqa: E402

BOOTS, IDLE, EXECS, TRANSFER_MIB = 20, 10, 10, 64
VM = ["--backend", "vm"]
PRINTS = r"""
int main(void)
{
	begin();
	printf("guest is up\n");
	fflush(stdout);
	reboot(RB_POWER_OFF);
	for (;;)
		pause();
}
"""


def pss_mib(pids):
    """Proportional memory of PIDS: a page that ten processes share counts as a tenth in each."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError), open("/proc/%d/smaps_rollup" % pid) as f:
            total += int(re.search(r"^Pss:\s+(\d+)", f.read(), re.M).group(1))
    return total / 1024


def qemu_pids():
    out = []
    for pid in [p for p in os.listdir("/proc") if p.isdigit()]:
        with contextlib.suppress(OSError):
            if "qemu-system" in os.readlink("/proc/%s/exe" % pid):
                out.append(int(pid))
    return out


class VmRows:
    """Part of Bench."""

    def bare_boot(self):
        """Milliseconds from the start of a bare QEMU to the first line of its init; it must come up."""
        began = time.monotonic()
        p = self.rig.popen(self.bare_qemu, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        try:
            for line in p.stdout:
                if b"guest is up" in line:
                    return (time.monotonic() - began) * 1000
        finally:
            p.kill()
            p.wait()
            p.stdout.close()
        raise RigError("the bare guest did not come up")

    def run_ms(self, *args):
        began = time.monotonic()
        self.rig.run([self.ak, "run", "--quiet", *args, "--", "true"], env={"AGENTKERNEL_DATA_DIR": self.data})
        return (time.monotonic() - began) * 1000

    def forget_guests(self):
        shutil.rmtree(self.rig.path("state", "agentkernel", "vm"), ignore_errors=True)

    def first_boot(self):
        self.forget_guests()
        return self.run_ms(*VM)

    def vm(self):
        if not os.path.exists(bare.QEMU) or not shutil.which("musl-gcc"):
            yield Row("vm, run true", lambda r: r <= 0.2, "≤ 0.2×", None, None, "not measured: needs QEMU and musl-gcc", "ms")
            return
        folder = self.rig.mkdir("guest")
        initrd = bare.initramfs(folder, PRINTS)
        os.chmod(initrd, 0o644)
        self.bare_qemu = bare.qemu(initrd)
        peer = "bare QEMU boot"
        firsts, bares = [], []
        for _ in range(BOOTS if self.rounds > 1 else 3):
            firsts.append(self.first_boot())  # fails unless the guest comes up
            bares.append(self.bare_boot())
        a, b = statistics.median(firsts), statistics.median(bares)
        yield Row("vm, first boot", lambda r: r <= 1.3, "≤ 1.3×", a, b, peer, "ms", a / b, "%.2f×" % (a / b), "%d of %d boots came up" % (len(firsts), len(firsts)))
        a, b = self.alternate(lambda: self.run_ms(*VM), self.bare_boot)
        yield Row("vm, run true", lambda r: r <= 0.2, "≤ 0.2×", a, b, peer, "ms", a / b, "%.2f×" % (a / b), "KVM not measured")
        yield from self.vm_pool()
        yield from self.vm_exec()
        yield from self.vm_network()
        yield from self.vm_memory()

    def pooled_ms(self):
        """A run in a guest that was restored in advance."""
        self.sandbox("daemon", "prewarm", "--mode", "codex", "--backend", "vm", "--count", "1")
        return self.run_ms(*VM, "--compatibility-mode", "codex")

    def vm_pool(self):
        try:
            a, b = self.alternate(self.pooled_ms, self.bare_boot)
            hits = next(row for row in json.loads(self.sandbox("daemon", "status", "--json"))["pool"] if row["mode"] == "codex")["hits"]
        finally:
            self.sandbox("daemon", "stop")
        if hits != self.rounds:
            raise RigError("%d of %d runs took a guest of the pool" % (hits, self.rounds))
        yield Row("vm, run true, pool", lambda r: r <= 0.1, "≤ 0.1×", a, b, "bare QEMU boot", "ms", a / b, "%.3f×" % (a / b), "KVM not measured")

    def sandbox(self, *args):
        return self.rig.run([self.ak, *args], env={"AGENTKERNEL_DATA_DIR": self.data})

    def exec_ms(self, name):
        """Median of a few executions of `true`."""
        times = []
        for _ in range(EXECS):
            began = time.monotonic()
            self.sandbox("exec", name, "--", "true")
            times.append((time.monotonic() - began) * 1000)
        return statistics.median(times)

    @contextlib.contextmanager
    def boxes(self, *rows):
        """Sandboxes that run for as long as the context does: (name, options) each."""
        try:
            for name, options in rows:
                self.sandbox("create", name, *options)
                self.sandbox("start", name)
            yield
        finally:
            for name, _ in rows:
                with contextlib.suppress(RigError):
                    self.sandbox("remove", "--force", name)
            with contextlib.suppress(RigError):
                self.sandbox("daemon", "stop")

    def vm_exec(self):
        with self.boxes(("in-vm", VM), ("in-ns", [])):
            a, b = self.alternate(lambda: self.exec_ms("in-vm"), lambda: self.exec_ms("in-ns"))
        yield Row("vm, exec true", lambda r: r <= 20, "≤ +20 ms", a, b, "backend ns", "ms", a - b, "%+.1f ms" % (a - b))

    def rate(self, flags, *args):
        """Gbit/s that arrive. iperf3 truncates a file that it has unlinked, which QEMU's 9p server cannot do."""
        out = json.loads(self.inside("iperf3", "-c", "echo.test", "-p", "5201", "-n", "%dM" % TRANSFER_MIB, "-J", *args, flags=("--allow-host", "echo.test:5201", "-e", "TMPDIR=/dev/shm", *flags)))
        if "error" in out:
            raise RigError("iperf3: " + out["error"])
        return out["end"]["sum_received"]["bits_per_second"] / 1e9

    def vm_network(self):
        """Through tap and relay, next to veth and relay: the same client, server and policy."""
        tool = self.rig.path("project", "tool")
        port = 7000
        flags = ("--allow-host", "echo.test:%d" % port)
        ms = lambda out: int(out.split()[0]) / 1e6
        first = lambda *more: ms(self.inside(tool, "firstbyte", "echo.test", str(port), "50", "plain", "echo.test", flags=(*flags, *more)))
        a, b = self.alternate(lambda: first(*VM), first)
        yield Row("vm, first byte", None, "-", a, b, "backend ns", "ms", a - b, "%+.3f ms" % (a - b))
        server = self.rig.daemon(["iperf3", "-s", "-B", WEB, "-p", "5201"], 5201, ns="inet")
        for what, args in (("vm, sending", ()), ("vm, receiving", ("-R",))):
            a, b = self.alternate(lambda: self.rate(VM, *args), lambda: self.rate((), *args))
            yield Row(what, None, "-", a, b, "backend ns", "Gbit/s", a / b, "%.2f×" % (a / b), "%d MiB" % TRANSFER_MIB)
        self.rig.stop(server)

    def vm_memory(self):
        rows = [("idle%d" % i, VM) for i in range(IDLE)]
        with self.boxes(*rows[:1]):
            one = pss_mib(qemu_pids())
        with self.boxes(*rows):
            ten = pss_mib(qemu_pids())
        yield Row("vm, memory of %d idle guests" % IDLE, None, "-", ten, one, "of one", "MiB", ten / one, "%.1f×" % (ten / one), "proportional set size of QEMU; %.0f MiB each" % (ten / IDLE))
