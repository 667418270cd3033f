/* Give a parked sandbox a job, on the caller's side: see sandbox.h. */
#include "vmctl/caller.h"

#include "gateway/base/cleanup.h"
#include "vmctl/pack.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/nsfs.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>

int sandbox_watch_mounts(void)
{
	return open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);
}

/* The kernel reports a change of mounts once to everybody who has the mount table open. */
bool sandbox_stale(struct sandbox *sb)
{
	struct pollfd p = { .fd = sb->mounts, .events = POLLPRI };

	if (sb->mounts >= 0 && poll(&p, 1, 0) != 0)
		sb->mounts = ak_close(sb->mounts);
	return sb->mounts < 0;
}

static bool below_usr(const char *path)
{
	return !strncmp(path, "/usr", 4) && (path[4] == '/' || !path[4]);
}

/* Its memory is fixed, its process runs outside of the control group, and it has seen /usr already. */
bool sandbox_warm_vm(const struct sandbox_spec *spec)
{
	bool below = false;

	for (size_t i = 0; i < spec->n_mounts; i++)
		below |= below_usr(spec->mounts[i].target);
	for (size_t i = 0; i < spec->n_links; i++)
		below |= below_usr(spec->links[i].path);
	return !below && !spec->limits.memory_bytes && !spec->limits.cpus_milli;
}

static int check(struct sandbox *sb, const struct sandbox_spec *spec, struct ak_err *err)
{
	if (!sb->parked || sb->state != SANDBOX_READY)
		return ak_fail(err, EBUSY, "the sandbox is not parked");
	if (spec->isolation != sb->isolation || spec->readonly_root != sb->readonly_root ||
		spec->root_inside != sb->root_inside || spec->upper_dir || spec->image_root)
		return ak_fail(err, EINVAL, "the sandbox was prepared with other isolation settings");
	if (sb->vm && !sandbox_warm_vm(spec))
		return ak_fail(err, EINVAL, "the virtual machine was prepared for another job");
	if (sandbox_stale(sb))
		return ak_fail(err, ESTALE, "the host's mounts have changed since the sandbox was prepared");
	return sandbox_check_job(spec, err);
}

static void pack_mount(struct strbuf *pack, const struct sandbox_mount *m)
{
	pack_str(pack, m->source);
	pack_str(pack, m->target);
	pack_u64(pack, m->readonly);
	pack_u64(pack, m->shielded);
	pack_u64(pack, m->dev);
	pack_u64(pack, m->ino);
}

/* In the order in which init reads it (park.c). */
void sb_job_pack(struct strbuf *pack, const struct sandbox_spec *spec)
{
	pack_str(pack, spec->name);
	pack_list(pack, spec->argv);
	pack_list(pack, spec->envp);
	pack_str(pack, spec->workdir);
	pack_str(pack, spec->home);
	pack_u64(pack, spec->tty);
	pack_u64(pack, spec->limits.memory_bytes);
	pack_u64(pack, spec->limits.cpus_milli);
	pack_u64(pack, spec->limits.pids);
	pack_u64(pack, spec->pids_counted);
	pack_u64(pack, spec->limits.nofile);
	pack_u64(pack, spec->limits.tmp_bytes);
	pack_u64(pack, spec->n_mounts);
	for (size_t i = 0; i < spec->n_mounts; i++)
		pack_mount(pack, &spec->mounts[i]);
	pack_u64(pack, spec->n_links);
	for (size_t i = 0; i < spec->n_links; i++) {
		pack_str(pack, spec->links[i].path);
		pack_str(pack, spec->links[i].target);
	}
	for (size_t i = 0; i < SANDBOX_FILES_MAX; i++) {
		pack_str(pack, spec->files[i].path);
		pack_str(pack, spec->files[i].text);
	}
}

static int seal(const struct sandbox *sb, const struct sandbox_spec *spec, struct ak_err *err)
{
	_cleanup_strbuf_ struct strbuf pack = { 0 };
	struct sandbox_spec job = *spec;
	int fd;

	job.pids_counted = sb->cgroup.dirs[CGROUP_PIDS] != NULL; /* init knows only the group in which it waited */
	sb_job_pack(&pack, &job);
	fd = pack_seal(&pack);
	return fd < 0 ? ak_fail_errno(err, -fd, "passing the job to the sandbox") : fd;
}

/* The sandbox's parent user namespace, whose id 0 is the lent id. */
static int open_outer(const struct sandbox *sb)
{
	_cleanup_close_ int inner = -1;
	char path[64];
	int outer;

	snprintf(path, sizeof(path), "/proc/%d/ns/user", (int)sb->init_pid);
	inner = open(path, O_RDONLY | O_CLOEXEC);
	if (inner < 0)
		return -errno;
	outer = ioctl(inner, NS_GET_PARENT);
	return outer < 0 ? -errno : outer;
}

/* Send the mounts in as many messages as needed. */
static int send_trees(struct sandbox *sb, const struct sb_trees *t)
{
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < t->n; i += SB_FDS_MAX)
		rc = sb_send_fds(sb->ctl, SB_MSG_TREES, 0, 0, NULL, t->mounts + i, t->n - i < SB_FDS_MAX ? t->n - i : SB_FDS_MAX);
	return rc;
}

/* Open what root's sandboxes cannot open themselves. */
static int lend(struct sandbox *sb, const struct sandbox_spec *spec, struct ak_err *err)
{
	_cleanup_(sb_trees_close) struct sb_trees trees;
	_cleanup_close_ int outer = -1;
	int rc;

	sb_trees_init(&trees);
	if (spec->argv && !spec->tty)
		sb_ids_give_pipes(&sb->ids, spec->stdio);
	rc = sb_trees_open(&trees, spec, err);
	if (rc < 0)
		return rc;
	outer = open_outer(sb);
	if (outer < 0)
		return ak_fail_errno(err, -outer, "the sandbox's user namespace");
	sb_trees_map(&trees, spec, &sb->ids, outer, -1);
	rc = send_trees(sb, &trees);
	return rc < 0 ? ak_fail_errno(err, -rc, "passing the job to the sandbox") : 0;
}

static int send_job(struct sandbox *sb, const struct sandbox_spec *spec, int pack, struct ak_err *err)
{
	int fds[SB_FDS_MAX] = { pack }, mask = 0, rc;
	_cleanup_close_ int v2 = cgroup_open_procs(&sb->cgroup);
	size_t n = 1;

	for (int i = 0; i < 3 && spec->argv && !spec->tty; i++) {
		if (spec->stdio[i] < 0)
			continue;
		mask |= 1 << i;
		fds[n++] = spec->stdio[i];
	}
	for (enum cgroup_kind kind = 0; kind < CGROUP_KIND_NUM; kind++) {
		if (sb->cgroup.join_fds[kind] >= 0)
			fds[n++] = sb->cgroup.join_fds[kind];
	}
	if (v2 >= 0)
		fds[n++] = v2;
	rc = sb_send_fds(sb->ctl, SB_MSG_ASSIGN, 0, mask, NULL, fds, n);
	return rc < 0 ? ak_fail_errno(err, -rc, "passing the job to the sandbox") : 0;
}

int sandbox_assign(struct sandbox *sb, const struct sandbox_spec *spec, struct ak_err *err)
{
	_cleanup_close_ int pack = -1;
	int rc;

	sandbox_poll(sb);
	rc = check(sb, spec, err);
	if (rc < 0)
		return rc;
	sandbox_group(sb, spec);
	rc = pack = seal(sb, spec, err);
	if (rc < 0)
		return rc;
	rc = sb->ids.lent ? lend(sb, spec, err) : 0;
	if (rc == 0)
		rc = send_job(sb, spec, pack, err);
	if (rc < 0)
		return rc;
	sb->parked = false;
	sb->mounts = ak_close(sb->mounts);
	sb->serves = !spec->argv;
	sb->init_done = false;
	sb->state = SANDBOX_STARTING;
	return 0;
}
