/*
 * A parked init and the job it gets: the sandbox's namespaces, network and most of its root are there, the host's tree is still in sight, and
 * nothing but this code has run. The job's own parts go through the very functions that a cold start uses.
 */
#include "vmctl/internal.h"

#include "gateway/base/cleanup.h"
#include "vmctl/pack.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

#define MOUNTS_MAX 64

struct job {
	struct sandbox_spec spec;
	struct pack pack; /* what the spec points into */
	struct sandbox_mount mounts[MOUNTS_MAX];
	struct sb_identity sources[MOUNTS_MAX];
};

static int read_mounts(struct job *job)
{
	uint64_t n = unpack_u64(&job->pack);

	if (n > MOUNTS_MAX)
		return -E2BIG;
	for (uint64_t i = 0; i < n; i++) {
		job->mounts[i].source = unpack_str(&job->pack);
		job->mounts[i].target = unpack_str(&job->pack);
		job->mounts[i].readonly = unpack_u64(&job->pack) != 0;
		job->sources[i].dev = (dev_t)unpack_u64(&job->pack);
		job->sources[i].ino = (ino_t)unpack_u64(&job->pack);
		if (!job->mounts[i].source || !job->mounts[i].target)
			return -EBADMSG;
	}
	job->spec.mounts = job->mounts;
	job->spec.n_mounts = (size_t)n;
	return 0;
}

/* In the order of sandbox_assign. */
static int read_job(struct job *job)
{
	struct sandbox_spec *s = &job->spec;
	struct pack *p = &job->pack;

	s->name = unpack_str(p);
	s->argv = unpack_list(p);
	s->envp = unpack_list(p);
	s->workdir = unpack_str(p);
	s->home = unpack_str(p);
	s->tty = unpack_u64(p) != 0;
	s->limits.memory_bytes = unpack_u64(p);
	s->limits.cpus_milli = (uint32_t)unpack_u64(p);
	s->limits.pids = (uint32_t)unpack_u64(p);
	s->limits.nofile = (uint32_t)unpack_u64(p);
	s->limits.tmp_bytes = unpack_u64(p);
	if (!s->name)
		return -EBADMSG;
	return read_mounts(job);
}

/* The streams, in the order of their numbers; what is left of FDS are control groups. */
static int take_streams(struct sandbox_spec *spec, int mask, int *fds, size_t n_fds, size_t *at)
{
	for (int i = 0; i < 3; i++) {
		spec->stdio[i] = -1;
		if (!(mask & 1 << i))
			continue;
		if (*at >= n_fds)
			return -EBADMSG;
		spec->stdio[i] = TAKE_FD(fds[*at]);
		(*at)++;
	}
	return 0;
}

/* Where they show, the groups are the root of what the sandbox sees, as when it is born in them. */
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
	struct job *job = calloc(1, sizeof(*job));
	size_t at = 1;
	int rc;

	if (!job)
		return ak_fail(err, ENOMEM, "out of memory");
	job->spec = *ctx->spec; /* isolation and network stay what they were parked with */
	job->spec.parked = false;
	rc = n_fds ? pack_open(fds[0], &job->pack) : -EBADMSG;
	if (rc == 0)
		rc = read_job(job);
	if (rc == 0 && job->pack.bad)
		rc = -EBADMSG;
	if (rc == 0)
		rc = take_streams(&job->spec, msg->value, fds, n_fds, &at);
	if (rc < 0)
		return ak_fail_errno(err, -rc, "receiving the job");
	rc = join_groups(fds + at, n_fds - at);
	if (rc < 0)
		return ak_fail_errno(err, -rc, "joining the control group");
	ctx->spec = &job->spec;
	ctx->sources = job->sources;
	return 0;
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
		if (rc <= 0) /* the caller is gone */
			_exit(0);
		if (msg.type == SB_MSG_ASSIGN)
			break;
		for (size_t i = 0; i < n_fds; i++)
			ak_close(fds[i]);
	}
	rc = accept_job(ctx, &msg, fds, n_fds, err);
	for (size_t i = 0; i < n_fds; i++)
		ak_close(fds[i]);
	return rc;
}
