/*
 * The sandbox's init, pid 1 of its pid namespace, until it is ready: it completes the root and drops its privileges. What it does then is in
 * init_loop.c; with podman, both the last steps and the loop are those of a container's first process (podman_init.c).
 */
#include "vmctl/internal.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/base/title.h"
#include "vmctl/mnt.h"
#include "vmctl/vm.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- start ---- */

static int map_ids(const struct sb_ctx *ctx, int map_ready_fd, struct ak_err *err)
{
	const struct sb_ids ids = sb_init_ids(ctx);
	char byte;

	if (map_ready_fd < 0)
		return sb_map_inner(&ids, 0, err);
	if (read(map_ready_fd, &byte, 1) != 1)
		return ak_fail(err, EPERM, "id map of the sandbox: the setup process ended");
	return 0;
}

/* Die with the caller. The caller's pid is not visible here; a closed control socket says that the caller is already dead. */
static int follow_caller(const struct sb_ctx *ctx)
{
	struct pollfd p = { .fd = ctx->ctl };

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	return poll(&p, 1, 0) > 0 && (p.revents & (POLLHUP | POLLERR)) ? -ESRCH : 0;
}

/*
 * The kernel limits inotify instances and watches per user, over all their processes. A sandbox gets a quarter, so that the
 * host and other sandboxes do not run out. If the host does not permit this, its own limit applies.
 */
static void limit_watches(void)
{
	static const struct {
		const char *given, *ours;
	} limits[] = { { "/proc/sys/fs/inotify/max_user_instances", "/proc/sys/user/max_inotify_instances" },
		{ "/proc/sys/fs/inotify/max_user_watches", "/proc/sys/user/max_inotify_watches" } };

	for (size_t i = 0; i < ARRAY_SIZE(limits); i++) {
		_cleanup_free_ char *text = NULL;
		char quarter[24];
		size_t len;

		if (ak_read_file(AT_FDCWD, limits[i].given, 32, &text, &len) < 0)
			continue;
		snprintf(quarter, sizeof(quarter), "%ld", strtol(text, NULL, 10) / 4);
		ak_write_file(limits[i].ours, quarter);
	}
}

/*
 * The system-call filter refuses this too; this limit also holds if the filter is bypassed. It counts the namespaces at all depths; the first process of podman's container
 * makes one.
 */
static int forbid_nesting(const struct sb_ctx *ctx, struct ak_err *err)
{
	const char *most = ctx->spec->podman ? "1" : "0";
	int rc = ctx->spec->isolation == SANDBOX_NESTED ? 0 : ak_write_file("/proc/sys/user/max_user_namespaces", most);

	return rc < 0 ? ak_fail_errno(err, -rc, "forbidding nested user namespaces") : 0;
}

static int keep_needed(const struct sb_ctx *ctx)
{
	const struct sandbox_spec *spec = ctx->spec;
	int fds[12 + SB_MOUNTS_MAX] = { ctx->ctl, ctx->trees.store, ctx->trees.image };
	size_t n = 3;

	if (spec->vm) {
		fds[n++] = spec->vm->memory;
		fds[n++] = spec->vm->state;
		fds[n++] = spec->vm->kernel;
		fds[n++] = spec->vm->initrd;
		fds[n++] = spec->debug > 0 ? spec->debug : -1;
		fds[n++] = ctx->tap_pair[1];
	}

	for (size_t i = 0; i < ctx->trees.n; i++)
		fds[n++] = ctx->trees.mounts[i];
	/* With a pty the given streams are not for the sandbox, and without a command nobody uses them. */
	for (int i = 0; i < 3 && spec->argv && !spec->tty && !spec->parked; i++)
		fds[n++] = spec->stdio[i];
	return sb_keep_fds(fds, n);
}

/* Everything that is the same for every job. */
static int prepare(struct sb_ctx *ctx, int map_ready_fd, struct sb_root *root, struct ak_err *err)
{
	int rc = map_ids(ctx, map_ready_fd, err);

	if (rc < 0)
		return rc;
	if (follow_caller(ctx) < 0)
		_exit(1);
	limit_watches();
	rc = forbid_nesting(ctx, err);
	if (rc < 0)
		return rc;
	rc = keep_needed(ctx);
	if (rc < 0)
		return ak_fail_errno(err, -rc, "closing inherited descriptors");
	/*
	 * No session of its own: setsid costs half a millisecond (autogroup), all signals are blocked, and the command creates
	 * its own.
	 */
	umask(022);
	rc = sb_root_base(root, ctx, err);
	return rc == 0 && ctx->spec->vm ? sb_vm_open_host(root, &ctx->vm_host, err) : rc;
}

/*
 * Make /proc read-only: processes inside need to write only id maps of their own namespaces, and could otherwise lower their
 * oom_score_adj.
 */
static int close_proc(const struct sb_ctx *ctx, struct ak_err *err)
{
	_cleanup_close_ int proc = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
	int rc = proc < 0 ? -errno : 0;

	if (rc == 0 && ctx->spec->isolation != SANDBOX_NESTED)
		rc = mnt_attr(proc, false, MOUNT_ATTR_RDONLY, 0);
	return rc < 0 ? ak_fail_errno(err, -rc, "making /proc read-only") : 0;
}

/* The root is complete, and we are in it. */
static int start_machine(struct sb_ctx *ctx, struct ak_err *err)
{
	_cleanup_close_ int base = -1;

	if (ctx->was_parked)
		return sb_vm_furnish(ctx, err);
	base = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	return base < 0 ? ak_fail_errno(err, errno, "/") : sb_vm_spawn(ctx, base, err);
}

static int become_init(struct sb_ctx *ctx, struct sb_root *root, struct ak_err *err)
{
	int rc;

	if (sethostname(ctx->spec->name, strlen(ctx->spec->name)) < 0)
		return ak_fail_errno(err, errno, "host name '%s'", ctx->spec->name);
	rc = sb_root_job(root, err);
	sb_root_done(root); /* a descriptor open for writing keeps the mount writable */
	if (rc == 0)
		rc = close_proc(ctx, err);
	if (rc == 0 && ctx->spec->vm)
		rc = start_machine(ctx, err);
	if (rc < 0)
		return rc;
	rc = sb_init_confine(ctx, err);
	if (rc < 0)
		return rc;
	prctl(PR_SET_PDEATHSIG, SIGKILL); /* again: a change of credentials clears it */
	return ctx->spec->vm ? sb_vm_start(ctx, err) : 0;
}

_Noreturn void sb_init_main(struct sb_ctx *ctx, int map_ready_fd)
{
	struct sb_root root;
	struct ak_err err;
	int rc = prepare(ctx, map_ready_fd, &root, &err);

	if (rc == 0 && ctx->spec->parked && ctx->spec->vm)
		rc = sb_vm_park(ctx, root.fd, &err);
	if (rc == 0 && ctx->spec->parked)
		rc = sb_confine_early(ctx, &err);
	if (rc == 0 && ctx->spec->parked)
		rc = sb_await_job(ctx, &err);
	if (rc == 0 && ctx->spec->podman)
		sb_podman_main(ctx, &root);
	if (rc == 0)
		rc = become_init(ctx, &root, &err);
	sb_root_done(&root);
	if (rc < 0)
		sb_child_fail(ctx->ctl, 125, &err);
	sb_init_serve(ctx);
}
