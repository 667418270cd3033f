/*
 * Start of a guest, in the sandbox's init after it has confined itself: QEMU, restored from the template, and the process that routes its frames. Both are confined like any command,
 * and end with init.
 */
#include "vmctl/vm_internal.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "vmctl/mnt.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define READY_MS 60000 /* a busy host with software emulation is slow */
/* Keep FD across exec, above the numbers of the standard streams. */
static int inherit(int fd)
{
	return fd < 0 ? -1 : fcntl(fd, F_DUPFD, 10);
}

/* The tap is made by the setup process, in the gateway's namespace; without a network, in the sandbox's. */
static int receive_tap(const struct sb_ctx *ctx, int *ret, struct ak_err *err)
{
	size_t n = 1;
	char byte;

	*ret = -1;
	if (ak_recv_fds(ctx->tap_pair[1], &byte, 1, ret, &n) != 1 || n != 1)
		return ak_fail(err, EPIPE, "its link was not made");
	return 0;
}

static int prepare_vmm(const struct sb_ctx *ctx, int base, struct vm_machine *m, struct ak_err *err)
{
	const bool parked = ctx->spec->parked;
	int rc = vm_room_enter(&ctx->vm_host, base, !parked, err), listener;

	if (rc == 0 && parked && (rc = vm_room_keep(ctx->vm_run.room[1])) < 0)
		ak_fail_errno(err, -rc, "fork");
	if (rc == 0)
		rc = sb_confine(ctx, &listener, err);
	if (rc == 0)
		rc = receive_tap(ctx, &m->tap, err);
	if (rc == 0 && vm_room_close(ctx->spec->vm->kvm) < 0)
		rc = ak_fail(err, EOPNOTSUPP, "Landlock is needed to hide the host's files from the guest");
	return rc;
}

/* Every descriptor that we still need may have the number of a standard stream. */
static void place_streams(struct sb_ctx *ctx, int *base, int log)
{
	for (int *const *fd = (int *const[]){ &ctx->vm_host.usr, &ctx->vm_host.kvm, &ctx->tap_pair[1], &ctx->vm_run.room[1], base,
		     &log, NULL };
		*fd; fd++)
		**fd = **fd < 0 ? -1 : fcntl(**fd, F_DUPFD_CLOEXEC, 10);
	dup2(log, 1);
	dup2(log, 2);
}

static _Noreturn void vmm_main(struct sb_ctx *ctx, int base, struct vm_machine *m, int log)
{
	static struct vm_args args;
	const struct sandbox_vm *vm = ctx->spec->vm;
	const struct vmm *vmm = vmm_get();
	char kernel[32], initrd[32], memory[32], *env[] = { (char[]){ "PATH=/usr/bin:/bin" }, NULL };
	struct ak_err err;
	sigset_t none;

	snprintf(kernel, sizeof(kernel), "/proc/self/fd/%d", inherit(vm->kernel));
	snprintf(initrd, sizeof(initrd), "/proc/self/fd/%d", inherit(vm->initrd));
	snprintf(memory, sizeof(memory), "/proc/self/fd/%d", inherit(vm->memory));
	m->kernel = kernel;
	m->initrd = initrd;
	m->memory = memory;
	m->port = inherit(m->port);
	m->monitor = inherit(m->monitor);
	m->console = inherit(m->console);
	setsid();
	place_streams(ctx, &base, log);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	if (prepare_vmm(ctx, base, m, &err) < 0) {
		dprintf(2, "%s\n", err.text);
		_exit(1);
	}
	m->tap = inherit(m->tap);
	vmm->args(&args, m);
	execve(vmm->program, args.argv, env);
	dprintf(2, "%s: %s\n", vmm->program, strerror(errno));
	_exit(1);
}

static void fill_config(const struct sb_ctx *ctx, uint32_t steps, struct vm_config *c)
{
	const struct sandbox_spec *spec = ctx->spec;
	struct timespec now;

	memset(c, 0, sizeof(*c));
	clock_gettime(CLOCK_REALTIME, &now);
	c->version = VM_WIRE_VERSION;
	c->steps = steps;
	c->uid = ctx->ids.inner_uid;
	c->gid = ctx->ids.inner_gid;
	c->image = spec->image_root != NULL;
	c->pids = spec->limits.pids ? spec->limits.pids : SANDBOX_PIDS_DEFAULT;
	c->strict = spec->isolation == SANDBOX_STRICT;
	c->clock_s = now.tv_sec;
	c->clock_ns = now.tv_nsec;
	(void)!getrandom(c->entropy, sizeof(c->entropy), 0);
	snprintf(c->hostname, sizeof(c->hostname), "%s", spec->name);
	snprintf(c->home, sizeof(c->home), "%s", spec->home ? spec->home : "/");
	if (!spec->link)
		return;
	c->network = 1;
	c->ipv6 = access("/proc/sys/net/ipv6", F_OK) == 0;
	memcpy(c->mac, spec->link->peer_mac, 6);
	memcpy(c->gw_mac, spec->link->gw_mac, 6);
	memcpy(c->addr4, spec->link->addr4.bytes, 4);
	memcpy(c->gw4, spec->link->gw4.bytes, 4);
	memcpy(c->addr6, spec->link->addr6.bytes, 16);
	memcpy(c->gw6, spec->link->gw6.bytes, 16);
	c->prefix4 = 30;
	c->prefix6 = 126;
}

/* The last line that QEMU wrote, for the user. */
static int explain(int log, struct ak_err *err)
{
	char text[512];
	ssize_t n = ak_pread_all(log, text, sizeof(text) - 1, 0);

	text[n > 0 ? n : 0] = '\0';
	text[strcspn(text, "\n")] = '\0';
	return ak_fail(err, EIO, "the virtual machine did not start%s%s", text[0] ? ": " : "", text);
}

static int await_ready(int ready, int log, struct ak_err *err)
{
	struct pollfd p = { .fd = ready, .events = POLLIN };
	struct ak_err why;

	if (poll(&p, 1, READY_MS) <= 0)
		return ak_fail(err, ETIME, "the virtual machine did not answer within %d s", READY_MS / 1000);
	if (read(ready, &why, sizeof(why)) != sizeof(why))
		return explain(log, err);
	if (why.text[0]) {
		*err = why;
		return -EIO;
	}
	return 0;
}

static int open_machine(struct sb_vm_run *run, struct ak_err *err)
{
	run->log = memfd_create("qemu", MFD_CLOEXEC);
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, run->port) < 0 ||
		socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, run->monitor) < 0 ||
		socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, run->console) < 0 ||
		socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, run->room) < 0 || run->log < 0)
		return ak_fail_errno(err, errno, "sockets of the virtual machine");
	return 0;
}

int sb_vm_spawn(struct sb_ctx *ctx, int base, struct ak_err *err)
{
	const struct sandbox_vm *vm = ctx->spec->vm;
	struct sb_vm_run *run = &ctx->vm_run;
	struct vm_machine m = {
		.memory_mb = vm->memory_mb, .kvm = vm->kvm, .private_memory = true, .root = "/guest", .usr = "/guest"
	};
	int rc = open_machine(run, err);
	pid_t pid;

	if (rc < 0)
		return rc;
	run->state = fcntl(vm->state, F_DUPFD, 100); /* the number that QEMU knows it by */
	m.port = run->port[1];
	m.monitor = run->monitor[1];
	m.console = run->console[1];
	pid = fork();
	if (pid == 0)
		vmm_main(ctx, base, &m, run->log);
	for (const int *fd = (const int[]){ run->port[1], run->monitor[1], run->console[1], run->room[1], vm->kernel, vm->initrd,
		     vm->memory, vm->state, ctx->tap_pair[1], ctx->vm_host.usr, ctx->vm_host.kvm, -2 };
		*fd != -2; fd++)
		ak_close(*fd);
	return pid < 0 ? ak_fail_errno(err, errno, "fork") : 0;
}

static int start_mux(struct sb_ctx *ctx, struct ak_err *err)
{
	int dial[2] = { -1, -1 }, ready[2] = { -1, -1 };
	struct vm_config config;
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, dial) < 0 || pipe2(ready, O_CLOEXEC) < 0)
		return ak_fail_errno(err, errno, "sockets of the virtual machine");
	fill_config(ctx, ctx->was_parked ? VM_STEP_JOB : VM_STEP_PREPARE | VM_STEP_JOB, &config);
	pid = fork();
	if (pid == 0) {
		ak_close(dial[0]);
		ak_close(ready[0]);
		ak_close(ctx->ctl);
		vm_mux_main(ctx->vm_run.port[0], dial[1], ready[1],
			&(struct vm_console){ .fd = ctx->vm_run.console[0],
				.debug = ctx->spec->debug > 0 ? ctx->spec->debug : -1,
				.notices = ready[1] },
			&config);
	}
	memset(&config, 0, sizeof(config));
	ak_close(ctx->vm_run.port[0]);
	ak_close(ctx->vm_run.console[0]);
	ak_close(dial[1]);
	ak_close(ready[1]);
	ctx->dial = fcntl(dial[0], F_DUPFD_CLOEXEC, 3); /* 0 would stand for a command that runs outside of the guest */
	ak_close(dial[0]);
	ctx->vm_run.notices = ready[0];
	ctx->vm_run.mux = pid;
	return pid < 0 || ctx->dial < 0 ? ak_fail_errno(err, errno, "starting the virtual machine") : 0;
}

int sb_vm_start(struct sb_ctx *ctx, struct ak_err *err)
{
	struct sb_vm_run *run = &ctx->vm_run;
	_cleanup_close_ int log = TAKE_FD(run->log), state = TAKE_FD(run->state);
	int rc = start_mux(ctx, err);

	/* QEMU's monitor stays open as long as init lives. */
	run->end = vmm_get()->end;
	if (rc == 0 && !ctx->was_parked && vmm_get()->restore(run->monitor[0], state) < 0)
		rc = explain(log, err);
	if (rc == 0)
		rc = await_ready(run->notices, log, err);
	return rc < 0 ? rc : ak_set_nonblock(run->notices, true);
}

/* ---- parked ---- */

/* Wait for the guest's answer to its first configuration. It has run nothing but our agent yet. */
static int await_prepared(int port, int log, struct ak_err *err)
{
	uint64_t until = ak_now_ms() + READY_MS;
	uint8_t data[VM_HEAD + VM_PAYLOAD_MAX];
	size_t len = 0;
	struct vm_head h = { .len = 0 };

	while (len < VM_HEAD || len < VM_HEAD + h.len) {
		struct pollfd p = { .fd = port, .events = POLLIN };
		uint64_t now = ak_now_ms();
		ssize_t n = now < until && poll(&p, 1, (int)(until - now)) > 0 ? read(port, data + len, sizeof(data) - len) : 0;

		if (n <= 0)
			return explain(log, err);
		len += (size_t)n;
		if (len >= VM_HEAD && vm_head_get(data, true, &h) < 0)
			return ak_fail(err, EPROTO, "the guest broke the protocol");
	}
	if (h.type == VM_READY)
		return 0;
	return ak_fail(err, EIO, "the guest could not be prepared: %.*s", (int)h.len, (const char *)data + VM_HEAD);
}

int sb_vm_park(struct sb_ctx *ctx, int base, struct ak_err *err)
{
	struct sb_vm_run *run = &ctx->vm_run;
	uint8_t head[VM_HEAD];
	struct vm_config config;
	int rc = sb_vm_spawn(ctx, base, err);

	if (rc < 0)
		return rc;
	fill_config(ctx, VM_STEP_PREPARE, &config);
	vm_head_put(head, VM_CONFIG, 0, sizeof(config));
	if (vmm_get()->restore(run->monitor[0], run->state) < 0 || ak_write_all(run->port[0], head, sizeof(head)) < 0 ||
		ak_write_all(run->port[0], &config, sizeof(config)) < 0)
		return explain(run->log, err);
	memset(&config, 0, sizeof(config));
	return await_prepared(run->port[0], run->log, err);
}

int sb_vm_furnish(struct sb_ctx *ctx, struct ak_err *err)
{
	_cleanup_close_ int root = mnt_clone(AT_FDCWD, "/", true), sock = TAKE_FD(ctx->vm_run.room[0]);
	struct pollfd p = { .fd = sock, .events = POLLIN };
	int rc = root < 0 ? root : ak_send_fds(sock, "r", 1, &root, 1), answer = -EPIPE;

	if (rc == 0 && poll(&p, 1, READY_MS) > 0 && read(sock, &answer, sizeof(answer)) != sizeof(answer))
		answer = -EPIPE;
	rc = rc < 0 ? rc : answer;
	return rc < 0 ? ak_fail_errno(err, -rc, "the root of the virtual machine") : 0;
}
