/*
 * A parked init and its job. The namespaces, the network and most of the root exist, the host's tree is still visible, and
 * only this code has run. The job's parts go through the same functions as in a cold start.
 */
#include "vmctl/internal.h"

#include "gateway/base/cleanup.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

/* Join the control groups. Like a sandbox that is started in them, it sees them as the root of the hierarchy. */
static int join_groups(const int *fds, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (write(fds[i], "0", 1) < 0)
			return -errno;
	}
	return n && unshare(CLONE_NEWCGROUP) < 0 ? -errno : 0;
}

static int accept_job(struct sb_ctx *ctx, const struct sb_msg *msg, int *fds, size_t n_fds, struct ak_err *err)
{
	struct sb_job *job = calloc(1, sizeof(*job));
	size_t groups = n_fds;
	int rc;

	if (!job)
		return ak_fail(err, ENOMEM, "out of memory");
	rc = sb_job_read(ctx->spec, msg, fds, n_fds, job, &groups);
	if (rc < 0)
		ak_fail_errno(err, -rc, "receiving the job");
	if (rc == 0) {
		rc = join_groups(fds + groups, n_fds - groups);
		if (rc < 0)
			ak_fail_errno(err, -rc, "joining the control group");
	}
	if (rc < 0) {
		sb_job_done(job);
		free(job);
		return rc;
	}
	ctx->spec = &job->spec;
	ctx->was_parked = true;
	return 0;
}

static void take_trees(struct sb_trees *t, int *fds, size_t n)
{
	for (size_t i = 0; i < n && t->n < SB_MOUNTS_MAX; i++)
		t->mounts[t->n++] = TAKE_FD(fds[i]);
}

int sb_await_job(struct sb_ctx *ctx, struct ak_err *err)
{
	int fds[SB_FDS_MAX], rc;
	struct sb_msg msg;
	size_t n_fds;

	if (sb_send(ctx->ctl, SB_MSG_READY, 0, NULL, -1) < 0)
		_exit(1);
	for (;;) {
		rc = sb_recv(ctx->ctl, &msg, fds, &n_fds);
		if (rc <= 0) /* the caller has exited */
			_exit(0);
		if (msg.type == SB_MSG_ASSIGN)
			break;
		if (msg.type == SB_MSG_TREES)
			take_trees(&ctx->trees, fds, n_fds);
		for (size_t i = 0; i < n_fds; i++)
			ak_close(fds[i]);
	}
	rc = accept_job(ctx, &msg, fds, n_fds, err);
	for (size_t i = 0; i < n_fds; i++)
		ak_close(fds[i]);
	return rc;
}
