/*
 * The first process of a container, in the container: see podman.h.
 *
 * podman starts it as the container's root, without power over the network, and without a system-call filter, because ours is tighter than podman's. It enters a user namespace
 * of its own, where the sandbox's user has the id that it has in every sandbox; that namespace owns neither the container's mounts nor its network. From then on it is what init is elsewhere.
 */
#include "vmctl/podman_internal.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* The order is that of podman_job_pack. */
static int read_job(struct sb_ctx *ctx, struct sb_job *job, char **ret_uid_map, char **ret_gid_map)
{
	struct sandbox_spec *spec = &job->spec;
	int rc = pack_open(PODMAN_FD_JOB, &job->pack), at = PODMAN_FD_STREAMS;
	uint64_t streams;

	if (rc == 0)
		rc = sb_spec_read(job);
	if (rc < 0)
		return rc;
	streams = unpack_u64(&job->pack);
	spec->isolation = (enum sandbox_isolation)unpack_u64(&job->pack);
	spec->root_inside = unpack_u64(&job->pack) != 0;
	spec->image_root = unpack_u64(&job->pack) ? "/" : NULL;
	ctx->ids.n_sub = (uint32_t)unpack_u64(&job->pack);
	ctx->ids.inner_range = ctx->ids.n_sub != 0;
	*ret_uid_map = unpack_str(&job->pack);
	*ret_gid_map = unpack_str(&job->pack);
	for (int i = 0; i < 3; i++)
		spec->stdio[i] = streams & (1u << i) ? at++ : -1;
	return job->pack.bad || !*ret_uid_map || !*ret_gid_map || spec->isolation >= SANDBOX_ISOLATION_NUM ? -EBADMSG : 0;
}

static int keep_needed(const struct sandbox_spec *spec)
{
	const int fds[] = { PODMAN_FD_CTL, PODMAN_FD_READY, spec->stdio[0], spec->stdio[1], spec->stdio[2] };

	for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
		if (fds[i] >= 0 && fcntl(fds[i], F_SETFD, FD_CLOEXEC) < 0)
			return -errno;
	}
	return sb_keep_fds(fds, ARRAY_SIZE(fds));
}

/* ---- the user namespace ---- */

static int write_map(pid_t pid, const char *file, const char *text)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, file);
	return ak_write_file(path, text);
}

/* Only a process of the namespace above may write maps of more than one id. */
static _Noreturn void map_helper(pid_t target, int go, const char *uid_map, const char *gid_map)
{
	char byte;

	if (read(go, &byte, 1) != 1 || write_map(target, "uid_map", uid_map) < 0 || write_map(target, "gid_map", gid_map) < 0)
		_exit(1);
	_exit(0);
}

static int enter_user_ns(const char *uid_map, const char *gid_map, struct ak_err *err)
{
	pid_t self = getpid(), pid;
	int go[2], status, rc = 0;

	if (pipe2(go, O_CLOEXEC) < 0)
		return ak_fail_errno(err, errno, "pipe");
	pid = fork();
	if (pid == 0) {
		ak_close(go[1]);
		map_helper(self, go[0], uid_map, gid_map);
	}
	ak_close(go[0]);
	if (pid < 0 || unshare(CLONE_NEWUSER) < 0)
		rc = ak_fail_errno(err, errno, "user namespace in the container");
	prctl(PR_SET_DUMPABLE, 1); /* else its maps cannot be written */
	if (rc == 0)
		(void)ak_write_all(go[1], "m", 1);
	ak_close(go[1]);
	if (pid > 0 && waitpid(pid, &status, 0) < 0)
		return ak_fail_errno(err, errno, "waiting for the id maps");
	if (rc == 0 && (!WIFEXITED(status) || WEXITSTATUS(status) != 0))
		return ak_fail(err, EPERM, "id map of the container: refused");
	return rc;
}

/* ---- main ---- */

static int start(struct sb_ctx *ctx, struct sb_job *job, struct ak_err *err)
{
	char *uid_map = NULL, *gid_map = NULL;
	int rc = read_job(ctx, job, &uid_map, &gid_map);

	if (rc == 0)
		rc = keep_needed(&job->spec);
	if (rc < 0)
		return ak_fail_errno(err, -rc, "receiving the job");
	umask(022);
	rc = enter_user_ns(uid_map, gid_map, err);
	return rc < 0 ? rc : sb_init_confine(ctx, err);
}

_Noreturn void podman_init_main(void)
{
	struct sb_job *job = calloc(1, sizeof(*job)); /* kept: the spec's strings are in there */
	struct sb_ctx ctx = { .ctl = PODMAN_FD_CTL, .exec_fence = -1 };
	struct ak_err err = { "out of memory" };
	sigset_t all;

	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, NULL);
	if (job)
		ctx.spec = &job->spec;
	if (!job || start(&ctx, job, &err) < 0)
		sb_child_fail(ctx.ctl, 125, &err);
	(void)!write(PODMAN_FD_READY, "r", 1);
	ak_close(PODMAN_FD_READY);
	sb_init_serve(&ctx);
}
