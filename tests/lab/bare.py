"""Virtual machines that a test makes itself, without agentkernel: an initramfs with one static program as init, and QEMU's command line."""
import glob
import os
import shutil
import subprocess

from expect import missing

QEMU = "/usr/bin/qemu-system-x86_64"

# What every such init begins with: devices, modules, and console() to speak.
COMMON = r"""
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
static void load_modules(void)
{
	for (int i = 0; i < 100; i++) {
		char path[40];
		int fd;
		snprintf(path, sizeof(path), "/modules/%02d.ko", i);
		fd = open(path, O_RDONLY);
		if (fd < 0)
			return;
		if (syscall(SYS_finit_module, fd, "", 0) < 0)
			printf("%s: %s\n", path, strerror(errno));
		close(fd);
	}
}
static void begin(void)
{
	mkdir("/dev", 0755);
	mkdir("/proc", 0755);
	mkdir("/sys", 0755);
	mount("devtmpfs", "/dev", "devtmpfs", 0, "");
	mount("proc", "/proc", "proc", 0, "");
	mount("sysfs", "/sys", "sysfs", 0, "");
	load_modules();
}
"""


def kernel():
    """(image, release) of the newest generic kernel, as agentkernel chooses it."""
    found = [p for p in glob.glob("/boot/vmlinuz-*") if "cloud" not in p and os.path.exists("/lib/modules/%s/modules.dep" % p[14:])]
    if not found:
        missing("no kernel for a guest in /boot")
    image = max(found, key=lambda p: [int(x) if x.isdigit() else 0 for x in p[14:].replace("-", ".").split(".")])
    return image, image[14:]


def module_paths(release, names):
    """Files of the modules NAMES and of what they need, in the order of loading."""
    out, top = [], "/lib/modules/" + release
    with open(top + "/modules.dep") as f:
        lines = [line.split(":") for line in f]
    needs = {os.path.basename(path).split(".ko")[0]: [path, *rest.split()] for path, rest in lines}
    for name in names:
        for path in reversed(needs.get(name, [])):
            if path not in out:
                out.append(path)
    return [os.path.join(top, path) for path in out]


def entry(name, mode, data=b""):
    head = "070701" + "".join("%08x" % n for n in (0, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0))
    out = head.encode() + name.encode() + b"\0"
    out += b"\0" * (-len(out) % 4) + data
    return out + b"\0" * (-len(data) % 4)


def initramfs(folder, source, modules=(), files=None):
    """An initramfs in FOLDER whose init is SOURCE (C, after COMMON) with the kernel's MODULES; FILES maps further names to bytes. The path."""
    cc = shutil.which("musl-gcc")
    if not cc:
        missing("no musl-gcc here")
    src, init, path = (os.path.join(folder, n) for n in ("init.c", "init", "initrd"))
    with open(src, "w") as f:
        f.write(COMMON + source)
    subprocess.run([cc, "-O1", "-static", "-s", "-o", init, src], check=True)
    with open(init, "rb") as f:
        out = entry("init", 0o100755, f.read()) + entry("modules", 0o40755)
    for i, module in enumerate(module_paths(kernel()[1], modules)):
        with open(module, "rb") as f:
            out += entry("modules/%02d.ko" % i, 0o100644, f.read())
    for name, data in (files or {}).items():
        out += entry(name, 0o100644, data)
    with open(path, "wb") as f:
        f.write(out + entry("TRAILER!!!", 0))
    return path


def clock_khz():
    with open("/proc/cpuinfo") as f:
        mhz = [float(line.split(":")[1]) for line in f if line.startswith("cpu MHz")]
    return int(mhz[0] * 1000) if mhz else 2000000


def qemu(initrd, *more, memory="512M"):
    """A bare microvm that boots INITRD; what it prints is on standard output."""
    khz = clock_khz()
    return [QEMU, "-nodefaults", "-no-user-config", "-nographic", "-no-reboot", "-accel", "tcg", "-cpu", "max", "-m", memory, "-machine", "microvm,x-option-roms=off,pit=off,pic=off,rtc=on,isa-serial=on,acpi=on",
            "-kernel", kernel()[0], "-initrd", initrd, "-append", "console=ttyS0 quiet panic=-1 reboot=t tsc_early_khz=%d lpj=%d no_timer_check random.trust_cpu=on" % (khz, khz * 4), "-serial", "stdio", *more]
