/* Decode a job or a command in init, in the order in which sandbox_park.c and sandbox_exec.c encode it. See internal.h. */
#include "vmctl/internal.h"

#include "gateway/base/cleanup.h"

#include <errno.h>

/*
 * Assign the N_FDS descriptors after the pack to the streams of MASK, -1 where there is none. *AT is the index after the last
 * stream.
 */
static int find_streams(int mask, size_t n_fds, int ret[static 3], size_t *at)
{
	*at = 1;
	for (int i = 0; i < 3; i++) {
		ret[i] = mask & 1 << i ? (int)(*at)++ : -1;
		if (*at > n_fds)
			return -EBADMSG;
	}
	return 0;
}

static int read_mounts(struct sb_job *job)
{
	uint64_t n = unpack_u64(&job->pack);

	if (n > SB_MOUNTS_MAX)
		return -E2BIG;
	for (uint64_t i = 0; i < n; i++) {
		job->mounts[i].source = unpack_str(&job->pack);
		job->mounts[i].target = unpack_str(&job->pack);
		job->mounts[i].readonly = unpack_u64(&job->pack) != 0;
		job->mounts[i].shielded = unpack_u64(&job->pack) != 0;
		job->mounts[i].dev = (dev_t)unpack_u64(&job->pack);
		job->mounts[i].ino = (ino_t)unpack_u64(&job->pack);
		if (!job->mounts[i].source || !job->mounts[i].target || !job->mounts[i].ino)
			return -EBADMSG;
	}
	job->spec.mounts = job->mounts;
	job->spec.n_mounts = (size_t)n;
	return job->pack.bad ? -EBADMSG : 0;
}

static int read_links(struct sb_job *job)
{
	uint64_t n = unpack_u64(&job->pack);

	if (n > SB_LINKS_MAX)
		return -E2BIG;
	for (uint64_t i = 0; i < n; i++) {
		job->links[i].path = unpack_str(&job->pack);
		job->links[i].target = unpack_str(&job->pack);
		if (!job->links[i].path || !job->links[i].target)
			return -EBADMSG;
	}
	job->spec.links = job->links;
	job->spec.n_links = (size_t)n;
	return job->pack.bad ? -EBADMSG : 0;
}

static int read_files(struct sb_job *job)
{
	for (size_t i = 0; i < SANDBOX_FILES_MAX; i++) {
		struct sandbox_file *f = &job->spec.files[i];

		f->path = unpack_str(&job->pack);
		f->text = unpack_str(&job->pack);
		if (!f->path != !f->text)
			return -EBADMSG;
	}
	return job->pack.bad ? -EBADMSG : 0;
}

int sb_spec_read(struct sb_job *job)
{
	struct sandbox_spec *s = &job->spec;
	struct pack *p = &job->pack;
	int rc;

	s->name = unpack_str(p);
	s->argv = unpack_list(p);
	s->envp = unpack_list(p);
	s->workdir = unpack_str(p);
	s->home = unpack_str(p);
	s->tty = unpack_u64(p) != 0;
	s->limits.memory_bytes = unpack_u64(p);
	s->limits.cpus_milli = (uint32_t)unpack_u64(p);
	s->limits.pids = (uint32_t)unpack_u64(p);
	s->pids_counted = unpack_u64(p) != 0;
	s->limits.nofile = (uint32_t)unpack_u64(p);
	s->limits.tmp_bytes = unpack_u64(p);
	/* A command needs at least one word and an environment. */
	if (!s->name || (s->argv && (!s->argv[0] || !s->envp)))
		return -EBADMSG;
	rc = read_mounts(job);
	if (rc == 0)
		rc = read_links(job);
	return rc < 0 ? rc : read_files(job);
}

int sb_job_read(const struct sandbox_spec *parked, const struct sb_msg *msg, int *fds, size_t n_fds, struct sb_job *ret,
	size_t *ret_groups)
{
	int streams[3], rc;
	size_t at;

	ret->spec = *parked; /* isolation and network do not change after parking */
	ret->spec.parked = false;
	for (int i = 0; i < 3; i++)
		ret->spec.stdio[i] = -1;
	rc = find_streams(msg->value, n_fds, streams, &at);
	if (rc == 0)
		rc = pack_open(fds[0], &ret->pack);
	if (rc == 0)
		rc = sb_spec_read(ret);
	if (rc < 0)
		return rc;
	for (int i = 0; i < 3; i++) {
		if (streams[i] >= 0)
			ret->spec.stdio[i] = TAKE_FD(fds[streams[i]]);
	}
	*ret_groups = at;
	return 0;
}

void sb_job_done(struct sb_job *job)
{
	for (int i = 0; i < 3; i++)
		job->spec.stdio[i] = ak_close(job->spec.stdio[i]);
	pack_done(&job->pack);
}

int sb_command_read(const struct sb_msg *msg, const int *fds, size_t n_fds, struct pack *p, struct sb_command *ret)
{
	size_t at;
	int rc = find_streams(msg->value, n_fds, ret->streams, &at);

	if (rc == 0)
		rc = pack_open(fds[0], p);
	if (rc < 0)
		return rc;
	for (int i = 0; i < 3; i++)
		ret->streams[i] = ret->streams[i] < 0 ? -1 : fds[ret->streams[i]];
	ret->argv = unpack_list(p);
	ret->envp = unpack_list(p);
	ret->workdir = unpack_str(p);
	ret->tty = unpack_u64(p) != 0;
	ret->rows = (uint16_t)unpack_u64(p);
	ret->cols = (uint16_t)unpack_u64(p);
	return p->bad || !ret->argv || !ret->envp ? -EBADMSG : 0;
}
