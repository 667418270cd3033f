/*
 * Start of a guest, in the sandbox's init after it has confined itself: QEMU, restored from the template, and the process that routes its frames. Both are confined like any command,
 * and end with init.
 */
#include "vmctl/vm_internal.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define READY_MS 60000 /* a busy host with software emulation is slow */
#define FS_ALL UINT64_C(0x7fff) /* what Landlock ABI 3 knows */
#define FS_ALL_V1 UINT64_C(0x1fff)

/*
 * What the guest's 9p server may open: everything in the root but /proc. There lies QEMU's own memory, and a guest that is root could ask for it. QEMU itself opens its memory files through
 * /proc/self/fd, which Landlock does not count as files of /proc.
 */
static int close_proc(void)
{
	long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
	struct {
		uint64_t fs;
	} attr = { .fs = abi >= 3 ? FS_ALL : FS_ALL_V1 };
	_cleanup_close_ int ruleset = -1;
	DIR *d;
	int rc = 0;

	if (abi < 1)
		return -EOPNOTSUPP;
	ruleset = (int)syscall(SYS_landlock_create_ruleset, &attr, sizeof(attr), 0);
	d = ruleset < 0 ? NULL : opendir("/");
	if (!d)
		return -errno;
	for (const struct dirent *e; rc == 0 && (e = readdir(d));) {
		struct landlock_path_beneath_attr rule = { .allowed_access = attr.fs };
		_cleanup_close_ int fd = -1;

		if (e->d_name[0] == '.' || !strcmp(e->d_name, "proc"))
			continue;
		fd = openat(dirfd(d), e->d_name, O_PATH | O_NOFOLLOW | O_DIRECTORY | O_CLOEXEC);
		rule.parent_fd = fd;
		if (fd >= 0 && syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) < 0)
			rc = -errno;
	}
	closedir(d);
	if (rc == 0) { /* list the root itself */
		_cleanup_close_ int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
		struct landlock_path_beneath_attr rule = { .allowed_access = LANDLOCK_ACCESS_FS_READ_DIR, .parent_fd = root };

		if (syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) < 0 ||
			syscall(SYS_landlock_restrict_self, ruleset, 0) < 0)
			rc = -errno;
	}
	return rc;
}

/* Keep FD across exec, above the numbers of the standard streams. */
static int inherit(int fd)
{
	return fd < 0 ? -1 : fcntl(fd, F_DUPFD, 10);
}

static _Noreturn void qemu_main(const struct sandbox_vm *vm, struct vm_machine *m, int log)
{
	static struct vm_args args;
	char kernel[32], initrd[32], memory[32], *env[] = { (char[]){ "PATH=/usr/bin:/bin" }, NULL };
	sigset_t none;

	snprintf(kernel, sizeof(kernel), "/proc/self/fd/%d", inherit(vm->kernel));
	snprintf(initrd, sizeof(initrd), "/proc/self/fd/%d", inherit(vm->initrd));
	snprintf(memory, sizeof(memory), "/proc/self/fd/%d", inherit(vm->memory));
	m->kernel = kernel;
	m->initrd = initrd;
	m->memory = memory;
	m->port = inherit(m->port);
	m->monitor = inherit(m->monitor);
	m->tap = inherit(m->tap);
	vm_args_build(&args, m);
	setsid();
	dup2(log, 1);
	dup2(log, 2);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	if (close_proc() < 0)
		dprintf(2, "Landlock is needed to hide /proc from the guest\n");
	else if (chdir("/") == 0)
		execve(VM_QEMU, args.argv, env);
	dprintf(2, "%s: %s\n", VM_QEMU, strerror(errno));
	_exit(1);
}

static void fill_config(const struct sb_ctx *ctx, struct vm_config *c)
{
	const struct sandbox_spec *spec = ctx->spec;
	struct timespec now;

	memset(c, 0, sizeof(*c));
	clock_gettime(CLOCK_REALTIME, &now);
	c->version = VM_WIRE_VERSION;
	c->uid = ctx->ids.inner_uid;
	c->gid = ctx->ids.inner_gid;
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

/* Tell QEMU to load the saved state; it runs when that is done. Answers are not needed: a failure ends QEMU. */
static int load_state(int monitor, int state)
{
	char text[512];
	int len = snprintf(text, sizeof(text),
		"{\"execute\":\"qmp_capabilities\"}{\"execute\":\"migrate-set-capabilities\",\"arguments\":{\"capabilities\":[{\"capability\":\"x-ignore-shared\","
		"\"state\":true}]}}{\"execute\":\"migrate-incoming\",\"arguments\":{\"uri\":\"fd:%d\"}}",
		state);

	return ak_write_all(monitor, text, (size_t)len);
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

int sb_vm_start(struct sb_ctx *ctx, struct ak_err *err)
{
	const struct sandbox_vm *vm = ctx->spec->vm;
	/* The number that QEMU knows the state by. */
	const int state = fcntl(vm->state, F_DUPFD, 100);
	int port[2] = { -1, -1 }, monitor[2] = { -1, -1 }, dial[2] = { -1, -1 }, ready[2] = { -1, -1 }, rc = 0;
	_cleanup_close_ int log = memfd_create("qemu", MFD_CLOEXEC);
	struct vm_machine m = { .memory_mb = vm->memory_mb, .private_memory = true, .tap = ctx->tap };
	struct vm_config config;
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, port) < 0 ||
		socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, monitor) < 0 ||
		socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, dial) < 0 || pipe2(ready, O_CLOEXEC) < 0)
		return ak_fail_errno(err, errno, "sockets of the virtual machine");
	m.port = port[1];
	m.monitor = monitor[1];
	pid = fork();
	if (pid == 0)
		qemu_main(vm, &m, log);
	fill_config(ctx, &config);
	if (pid > 0)
		pid = fork();
	if (pid == 0) {
		ak_close(dial[0]);
		ak_close(ready[0]);
		ak_close(port[1]);
		ak_close(ctx->ctl);
		vm_mux_main(port[0], dial[1], ready[1], &config);
	}
	if (pid < 0)
		rc = ak_fail_errno(err, errno, "fork");
	memset(&config, 0, sizeof(config));
	ak_close(port[0]);
	ak_close(port[1]);
	ak_close(dial[1]);
	ak_close(ready[1]);
	ak_close(monitor[1]);
	if (rc == 0 && load_state(monitor[0], state) < 0)
		rc = explain(log, err);
	if (rc == 0)
		rc = await_ready(ready[0], log, err);
	ak_close(ready[0]);
	ctx->monitor = monitor[0]; /* QEMU ends when it is closed from our side only by init's own end */
	ctx->dial = dial[0];
	for (const int *fd = (const int[]){ vm->kernel, vm->initrd, vm->memory, vm->state, state, ctx->tap, -2 }; *fd != -2; fd++)
		ak_close(*fd);
	return rc;
}
