/*
 * QEMU: machine microvm without default devices. The template and every restored guest must have the same devices in the same order. Commands are JSON on its monitor (QMP).
 */
#include "vmctl/vm_internal.h"

#include "gateway/base/io.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define SAVE_MS 20000
#define STEP_MS 10
#define IGNORE_SHARED                                                                                                            \
	"{\"execute\":\"migrate-set-capabilities\",\"arguments\":{\"capabilities\":[{\"capability\":\"x-ignore-shared\",\"state\":true}]}}"

/* After a restore QEMU would announce the guest's address on the link: frames that the gateway denies and logs. */
#define QUIET "{\"execute\":\"migrate-set-parameters\",\"arguments\":{\"announce-rounds\":0}}"

/* ---- command line ---- */

static void add_share(struct vm_args *a, const char *tag, const char *path)
{
	vm_arg(a, "-fsdev");
	vm_arg(a, "local,id=%s,path=%s,security_model=none,multidevs=remap", tag, path);
	vm_arg(a, "-device");
	vm_arg(a, "virtio-9p-device,fsdev=%s,mount_tag=%s", tag, tag);
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

/*
 * Some hosts that are virtual machines themselves refuse to set the register of arch-capabilities, and QEMU then ends. A guest without it takes every precaution against its processor.
 */
#define KVM_CPU "host,arch-capabilities=off"

static void qemu_args(struct vm_args *a, const struct vm_machine *m)
{
	unsigned long khz = clock_khz();

	a->n = a->used = 0;
	vm_arg(a, "%s", vmm_qemu.program);
	for (const char *const *w = (const char *const[]){ "-nodefaults", "-no-user-config", "-nographic", "-no-reboot", "-accel",
		     m->kvm ? "kvm" : "tcg", "-cpu", m->kvm ? KVM_CPU : "max", NULL };
		*w; w++)
		vm_arg(a, "%s", *w);
	vm_arg(a, "-machine");
	vm_arg(a, "microvm,x-option-roms=off,pit=off,pic=off,rtc=on,isa-serial=on,acpi=on,memory-backend=ram");
	vm_arg(a, "-m");
	vm_arg(a, "%uM", m->memory_mb);
	vm_arg(a, "-object");
	vm_arg(a, "memory-backend-file,id=ram,size=%uM,mem-path=%s,share=%s", m->memory_mb, m->memory,
		m->private_memory ? "off" : "on");
	vm_arg(a, "-kernel");
	vm_arg(a, "%s", m->kernel);
	vm_arg(a, "-initrd");
	vm_arg(a, "%s", m->initrd);
	vm_arg(a, "-append");
	vm_arg(a,
		"console=ttyS0 quiet panic=-1 reboot=t tsc_early_khz=%lu lpj=%lu no_timer_check random.trust_cpu=on ipv6.autoconf=0",
		khz, khz * 4);
	if (m->console >= 0) {
		vm_arg(a, "-chardev");
		vm_arg(a, "socket,id=console,fd=%d", m->console);
	}
	vm_arg(a, "-serial");
	vm_arg(a, m->console >= 0 ? "chardev:console" : "file:console");
	vm_arg(a, "-device");
	vm_arg(a, "virtio-serial-device");
	vm_arg(a, "-chardev");
	if (m->port < 0)
		vm_arg(a, "file,id=port,path=port");
	else
		vm_arg(a, "socket,id=port,fd=%d", m->port);
	vm_arg(a, "-device");
	vm_arg(a, "virtserialport,chardev=port,name=agentkernel");
	add_share(a, "root", m->root);
	add_share(a, "usr", m->usr);
	vm_arg(a, "-netdev");
	vm_arg(a, "tap,id=net,fd=%d,vhost=off", m->tap);
	vm_arg(a, "-device");
	vm_arg(a, "virtio-net-device,netdev=net,mac=02:00:00:00:00:01,mq=off");
	vm_arg(a, "-chardev");
	if (m->monitor < 0)
		vm_arg(a, "stdio,id=monitor,signal=off");
	else
		vm_arg(a, "socket,id=monitor,fd=%d", m->monitor);
	vm_arg(a, "-mon");
	vm_arg(a, "chardev=monitor,mode=control");
	if (m->private_memory) {
		vm_arg(a, "-incoming");
		vm_arg(a, "defer");
	}
	a->argv[a->n] = NULL;
}

/* ---- monitor ---- */

/* Read until TEXT has arrived after offset *AT. */
static int expect(struct vm_talk *t, const char *text, size_t *at, uint64_t until, struct ak_err *err)
{
	for (;;) {
		const char *found;
		struct pollfd p = { .fd = t->from, .events = POLLIN };
		ssize_t n;

		t->reply[t->len] = '\0';
		found = strstr(t->reply + *at, text);
		if (found) {
			*at = (size_t)(found - t->reply) + strlen(text);
			return 0;
		}
		if (strstr(t->reply + *at, "\"error\"") || !t->alive(t->ctx) || ak_now_ms() > until ||
			t->len + 1 >= sizeof(t->reply))
			return ak_fail(
				err, EIO, "QEMU could not save the guest: %.200s", t->reply + (t->len > 200 ? t->len - 200 : 0));
		if (poll(&p, 1, STEP_MS) > 0 && (n = read(t->from, t->reply + t->len, sizeof(t->reply) - 1 - t->len)) > 0)
			t->len += (size_t)n;
	}
}

static int ask(struct vm_talk *t, const char *command, const char *answer, size_t *at, uint64_t until, struct ak_err *err)
{
	int rc = ak_write_all(t->to, command, strlen(command));

	return rc < 0 ? ak_fail_errno(err, -rc, "QEMU's monitor") : expect(t, answer, at, until, err);
}

static int qemu_save(struct vm_talk *t, struct ak_err *err)
{
	uint64_t until = ak_now_ms() + SAVE_MS;
	size_t at = 0;
	int rc = ask(t, "{\"execute\":\"qmp_capabilities\"}", "\"return\"", &at, until, err);

	if (rc == 0)
		rc = ask(t, IGNORE_SHARED, "\"return\"", &at, until, err);
	if (rc == 0)
		rc = ask(t, "{\"execute\":\"migrate\",\"arguments\":{\"uri\":\"exec:cat > state\"}}", "\"return\"", &at, until,
			err);
	while (rc == 0) {
		size_t before = at;

		rc = ask(t, "{\"execute\":\"query-migrate\"}", "\"status\"", &at, until, err);
		if (rc == 0)
			rc = expect(t, "\n", &at, until, err);
		if (rc < 0 || strstr(t->reply + before, "\"completed\""))
			break;
		if (strstr(t->reply + before, "\"failed\""))
			return ak_fail(err, EIO, "QEMU could not save the guest");
		poll(NULL, 0, STEP_MS);
	}
	return rc;
}

static int qemu_quit(struct vm_talk *t, struct ak_err *err)
{
	size_t at = t->len;

	return ask(t, "{\"execute\":\"quit\"}", "\"return\"", &at, ak_now_ms() + SAVE_MS, err);
}

static void qemu_end(int monitor)
{
	static const char text[] = "{\"execute\":\"quit\"}";

	(void)!send(monitor, text, sizeof(text) - 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static int qemu_restore(int monitor, int state)
{
	char text[512];
	int len = snprintf(text, sizeof(text),
		"{\"execute\":\"qmp_capabilities\"}" IGNORE_SHARED QUIET
		"{\"execute\":\"migrate-incoming\",\"arguments\":{\"uri\":\"fd:%d\"}}",
		state);

	return ak_write_all(monitor, text, (size_t)len);
}

const struct vmm vmm_qemu = {
	.name = "qemu",
	.program = "/usr/bin/qemu-system-x86_64",
	.args = qemu_args,
	.save = qemu_save,
	.restore = qemu_restore,
	.quit = qemu_quit,
	.end = qemu_end,
};
