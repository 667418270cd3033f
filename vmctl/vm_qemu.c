/* QEMU's command line: machine microvm without default devices. The template and every restored guest must have the same devices in the same order. */
#include "vmctl/vm_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void add(struct vm_args *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void add(struct vm_args *a, const char *fmt, ...)
{
	size_t room = sizeof(a->text) - a->used;
	va_list ap;
	int len;

	va_start(ap, fmt);
	len = vsnprintf(a->text + a->used, room, fmt, ap);
	va_end(ap);
	if (len < 0 || (size_t)len >= room || a->n == VM_ARGS_MAX)
		abort(); /* fixed texts and numbers */
	a->argv[a->n++] = a->text + a->used;
	a->used += (size_t)len + 1;
}

static void add_share(struct vm_args *a, const char *tag, const char *path)
{
	add(a, "-fsdev");
	add(a, "local,id=%s,path=%s,security_model=none,multidevs=remap", tag, path);
	add(a, "-device");
	add(a, "virtio-9p-device,fsdev=%s,mount_tag=%s", tag, tag);
}

/* The kernel measures the clock by a timer that stalls on a busy host, and then hangs: tell it instead. */
static unsigned long clock_khz(void)
{
	char line[256];
	double mhz = 0;
	FILE *f = fopen("/proc/cpuinfo", "re");

	while (f && mhz <= 0 && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "cpu MHz : %lf", &mhz) != 1)
			mhz = 0;
	}
	if (f)
		fclose(f);
	return mhz > 100 ? (unsigned long)(mhz * 1000) : 2000000;
}

void vm_args_build(struct vm_args *a, const struct vm_machine *m)
{
	unsigned long khz = clock_khz();

	a->n = a->used = 0;
	add(a, "%s", VM_QEMU);
	for (const char *const *w = (const char *const[]){ "-nodefaults", "-no-user-config", "-nographic", "-no-reboot", "-accel",
		     "tcg", "-cpu", "max", NULL };
		*w; w++)
		add(a, "%s", *w);
	add(a, "-machine");
	add(a, "microvm,x-option-roms=off,pit=off,pic=off,rtc=on,isa-serial=on,acpi=on,memory-backend=ram");
	add(a, "-m");
	add(a, "%uM", m->memory_mb);
	add(a, "-object");
	add(a, "memory-backend-file,id=ram,size=%uM,mem-path=%s,share=%s", m->memory_mb, m->memory,
		m->private_memory ? "off" : "on");
	add(a, "-kernel");
	add(a, "%s", m->kernel);
	add(a, "-initrd");
	add(a, "%s", m->initrd);
	add(a, "-append");
	add(a, "console=ttyS0 quiet panic=-1 reboot=t tsc_early_khz=%lu lpj=%lu no_timer_check random.trust_cpu=on ipv6.autoconf=0",
		khz, khz * 4);
	add(a, "-serial");
	add(a, m->port < 0 ? "file:console" : "null");
	add(a, "-device");
	add(a, "virtio-serial-device");
	add(a, "-chardev");
	if (m->port < 0)
		add(a, "file,id=port,path=port");
	else
		add(a, "socket,id=port,fd=%d", m->port);
	add(a, "-device");
	add(a, "virtserialport,chardev=port,name=agentkernel");
	add_share(a, "root", "/");
	add_share(a, "usr", "/usr");
	add(a, "-netdev");
	if (m->tap < 0)
		add(a, "hubport,id=net,hubid=0");
	else
		add(a, "tap,id=net,fd=%d,vhost=off", m->tap);
	add(a, "-device");
	add(a, "virtio-net-device,netdev=net,mac=02:00:00:00:00:01,mq=off");
	add(a, "-chardev");
	if (m->monitor < 0)
		add(a, "stdio,id=monitor,signal=off");
	else
		add(a, "socket,id=monitor,fd=%d", m->monitor);
	add(a, "-mon");
	add(a, "chardev=monitor,mode=control");
	if (m->private_memory) {
		add(a, "-incoming");
		add(a, "defer");
	}
	a->argv[a->n] = NULL;
}
