/*
 * User namespaces and their id maps.
 *
 * There are two namespaces, one inside the other. The outer one owns the network; the invoker is 0 in it. The inner one is the
 * sandbox's and has no capability over the outer one. One id is mapped, unless root inside was requested and the host grants
 * subordinate ids: then 1 to n are mapped too, so that package managers can change owners.
 *
 * The host's root is never mapped. It lends its sandboxes a range of ids that own nothing; trees.h explains how they access
 * root's files.
 */
#include "vmctl/internal.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "vmctl/vm.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/magic.h>
#include <pwd.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#define SUB_IDS_MAX 65535u
#define NEWUIDMAP "/usr/bin/newuidmap"
#define NEWGIDMAP "/usr/bin/newgidmap"
/* The range that root lends: far above the ids that distributions and container tools assign. */
#define LENT_FIRST 2000000000u
#define NOBODY 65534u /* used where that range is not available */

/* The first range of OWNER (a name or a number) in a file of "owner:first:count" lines. */
static bool find_range(const char *file, const char *name, uid_t uid, uint32_t *ret_first, uint32_t *ret_count)
{
	_cleanup_free_ char *text = NULL;
	char number[16], *save = NULL;

	if (ak_read_file(AT_FDCWD, file, 1 << 20, &text, NULL) < 0)
		return false;
	snprintf(number, sizeof(number), "%u", (unsigned)uid);
	for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		char owner[256];
		unsigned long first, count;

		if (sscanf(line, "%255[^:]:%lu:%lu", owner, &first, &count) != 3)
			continue;
		if ((strcmp(owner, name) && strcmp(owner, number)) || first > UINT32_MAX - SUB_IDS_MAX || count == 0)
			continue;
		*ret_first = (uint32_t)first;
		*ret_count = count > SUB_IDS_MAX ? SUB_IDS_MAX : (uint32_t)count;
		return true;
	}
	return false;
}

static void plan_ranges(struct sb_ids *ids)
{
	uint32_t uid_count, gid_count;
	struct passwd *pw;

	if (access(NEWUIDMAP, X_OK) < 0 || access(NEWGIDMAP, X_OK) < 0)
		return;
	pw = getpwuid(ids->uid);
	if (!pw || !find_range("/etc/subuid", pw->pw_name, ids->uid, &ids->sub_uid, &uid_count))
		return;
	if (!find_range("/etc/subgid", pw->pw_name, ids->uid, &ids->sub_gid, &gid_count))
		return;
	ids->n_sub = uid_count < gid_count ? uid_count : gid_count;
}

/* Whether the ids from FIRST on are mapped in our own namespace, and to which id outside the first one maps. */
static bool has_ids(const char *file, uint32_t first, uint32_t count, uint32_t *ret_outside)
{
	_cleanup_free_ char *text = NULL;
	char *save = NULL;

	if (ak_read_file(AT_FDCWD, file, 1 << 16, &text, NULL) < 0)
		return false;
	for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		unsigned inner, outer, n;

		if (sscanf(line, "%u %u %u", &inner, &outer, &n) != 3 || first < inner || first - inner >= n ||
			n - (first - inner) < count)
			continue;
		*ret_outside = outer + (first - inner);
		return true;
	}
	return false;
}

static bool can_lend(uint32_t first, uint32_t count)
{
	uint32_t ignored;

	return has_ids("/proc/self/uid_map", first, count, &ignored) && has_ids("/proc/self/gid_map", first, count, &ignored);
}

/*
 * An ordinary user can be 0 in a user namespace, and root can have any id there. Files at the top of /proc belong to the
 * host's root in every namespace.
 */
bool sandbox_is_host_root(void)
{
	struct stat st;

	return stat("/proc/version", &st) < 0 ? geteuid() == 0 : st.st_uid == geteuid();
}

static void plan_lent(struct sb_ids *ids)
{
	ids->lent = true;
	if (can_lend(LENT_FIRST, SUB_IDS_MAX + 1)) {
		ids->outer_uid = ids->outer_gid = LENT_FIRST;
		ids->sub_uid = ids->sub_gid = LENT_FIRST + 1;
		ids->n_sub = SUB_IDS_MAX;
	} else {
		ids->outer_uid = ids->outer_gid = can_lend(NOBODY, 1) ? NOBODY : 0;
	}
}

void sb_ids_plan(const struct sandbox_spec *spec, struct sb_ids *ret)
{
	const bool range = spec->root_inside || spec->has_ids;

	*ret = (struct sb_ids){ .uid = geteuid(), .gid = getegid(), .inner_range = range };
	ret->outer_uid = ret->uid;
	ret->outer_gid = ret->gid;
	if (sandbox_is_host_root())
		plan_lent(ret);
	else if (range)
		plan_ranges(ret);
	if (spec->has_ids) {
		ret->inner_uid = spec->uid;
		ret->inner_gid = spec->gid;
	}
	if (range)
		return;
	ret->inner_uid = ret->uid ? ret->uid : 1000;
	ret->inner_gid = ret->gid ? ret->gid : 1000;
}

/* Anonymous pipes only: anything else has an owner that must not change after the sandbox ends. */
void sb_ids_give_pipes(const struct sb_ids *ids, const int fds[3])
{
	for (int i = 0; i < 3; i++) {
		struct statfs fs;

		if (fds[i] >= 0 && fstatfs(fds[i], &fs) == 0 && (unsigned long)fs.f_type == PIPEFS_MAGIC)
			(void)!fchown(fds[i], ids->outer_uid, ids->outer_gid);
	}
}

static int write_map(pid_t pid, const char *file, const char *text)
{
	char path[64];

	if (pid)
		snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, file);
	else
		snprintf(path, sizeof(path), "/proc/self/%s", file);
	return ak_write_file(path, text);
}

/* One id each: a process may write this map itself, without privileges. */
static int map_one_uid(uid_t inner, uid_t outer, struct ak_err *err)
{
	char text[64];
	int rc;

	snprintf(text, sizeof(text), "%u %u 1\n", (unsigned)inner, (unsigned)outer);
	rc = write_map(0, "uid_map", text);
	return rc < 0 ? ak_fail_errno(err, -rc, "uid map '%u %u 1'", (unsigned)inner, (unsigned)outer) : 0;
}

static int map_one_gid(gid_t inner, gid_t outer, struct ak_err *err)
{
	char text[64];
	int rc;

	/* The kernel requires this before an unprivileged gid map. In a nested namespace it is already set. */
	write_map(0, "setgroups", "deny");
	snprintf(text, sizeof(text), "%u %u 1\n", (unsigned)inner, (unsigned)outer);
	rc = write_map(0, "gid_map", text);
	return rc < 0 ? ak_fail_errno(err, -rc, "gid map '%u %u 1'", (unsigned)inner, (unsigned)outer) : 0;
}

/* ---- ranges: a helper process outside the namespace writes the maps ---- */

static int run_map_tool(const char *tool, pid_t target, unsigned own, unsigned first, unsigned count)
{
	char words[7][16];
	char *argv[] = { (char *)(uintptr_t)tool, words[0], words[1], words[2], words[3], words[4], words[5], words[6], NULL };
	char *envp[] = { NULL };
	const unsigned values[7] = { (unsigned)target, 0, own, 1, 1, first, count };
	int status;
	pid_t pid;

	for (size_t i = 0; i < 7; i++)
		snprintf(words[i], sizeof(words[i]), "%u", values[i]);
	pid = fork();
	if (pid < 0)
		return -errno;
	if (pid == 0) {
		execve(tool, argv, envp);
		_exit(127);
	}
	if (waitpid(pid, &status, 0) < 0)
		return -errno;
	return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -EPERM;
}

static int map_lent(pid_t target, const char *file, unsigned first, unsigned more)
{
	char text[96];

	snprintf(text, sizeof(text), more ? "0 %u 1\n1 %u %u\n" : "0 %u 1\n", first, first + 1, more);
	return write_map(target, file, text);
}

static int open_user_ns(pid_t pid)
{
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/ns/user", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

/* Which maps the helper wrote. */
enum { MAPPED_BOTH, MAPPED_UIDS, MAPPED_NONE };

/* In the helper: a byte on FD says that TARGET is in its new namespace. */
static _Noreturn void range_helper(const struct sb_ctx *ctx, pid_t target, int fd)
{
	const struct sb_ids *ids = &ctx->ids;
	char byte;
	int rc;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (read(fd, &byte, 1) != 1)
		_exit(MAPPED_NONE);
	rc = run_map_tool(NEWUIDMAP, target, ids->uid, ids->sub_uid, ids->n_sub);
	if (rc < 0)
		_exit(MAPPED_NONE);
	rc = run_map_tool(NEWGIDMAP, target, ids->gid, ids->sub_gid, ids->n_sub);
	_exit(rc < 0 ? MAPPED_UIDS : MAPPED_BOTH);
}

/* The same for root. Also maps the owners of the opened folders for TARGET's new namespace. */
static _Noreturn void lend_helper(const struct sb_ctx *ctx, pid_t target, int fd)
{
	const struct sb_ids *ids = &ctx->ids;
	char byte;
	int user_ns;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (read(fd, &byte, 1) != 1 || map_lent(target, "uid_map", ids->outer_uid, ids->n_sub) < 0 ||
		map_lent(target, "gid_map", ids->outer_gid, ids->n_sub) < 0)
		_exit(MAPPED_NONE);
	user_ns = open_user_ns(target);
	if (user_ns < 0)
		_exit(MAPPED_NONE);
	sb_trees_map(&ctx->trees, ctx->spec, ids, user_ns, ctx->ctl);
	_exit(MAPPED_BOTH);
}

/* Like sb_explain_userns, for the call that creates a user namespace: its errno says more. */
static int explain_unshare(struct ak_err *err, int rc)
{
	struct ak_err before = *err;

	sb_explain_userns(err, rc);
	if (strcmp(before.text, err->text))
		return rc;
	if (rc == -ENOSPC || rc == -EUSERS)
		return ak_err_prefix(
			err, rc, "too many user namespaces (sysctl user.max_user_namespaces, or nested deeper than 32)");
	if (rc == -ENOSYS || rc == -EINVAL)
		return ak_err_prefix(err, rc, "this kernel has no user namespaces (CONFIG_USER_NS)");
	if (rc == -EPERM)
		return ak_err_prefix(
			err, rc, "user namespaces are refused here (a container's system-call filter, or a changed root)");
	return rc;
}

static int unshare_outer(struct ak_err *err)
{
	int rc;

	if (unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0)
		return 0;
	rc = ak_fail_errno(err, errno, "cannot create a user and a network namespace");
	return explain_unshare(err, rc);
}

/* The helper may be refused (the range is not granted after all): then map one id, as without a range. */
static int settle_ranges(struct sb_ctx *ctx, int mapped, struct ak_err *err)
{
	int rc;

	if (mapped == MAPPED_BOTH)
		return 0;
	if (ctx->ids.lent)
		return ak_fail(err, EPERM, "cannot map ids for the sandbox; root's own id is never used for one");
	ctx->ids.n_sub = 0;
	sb_send(ctx->ctl, SB_MSG_NOTE, 0, "the ranges in /etc/subuid and /etc/subgid were refused: the sandbox has only one user",
		-1);
	rc = mapped == MAPPED_UIDS ? 0 : map_one_uid(0, ctx->ids.uid, err);
	return rc < 0 ? rc : map_one_gid(0, ctx->ids.gid, err);
}

static int enter_with_ranges(struct sb_ctx *ctx, struct ak_err *err)
{
	pid_t self = getpid(), pid;
	int pipe_fds[2], status, rc;

	if (pipe2(pipe_fds, O_CLOEXEC) < 0)
		return ak_fail_errno(err, errno, "pipe");
	pid = fork();
	if (pid == 0) {
		ak_close(pipe_fds[1]);
		if (ctx->ids.lent)
			lend_helper(ctx, self, pipe_fds[0]);
		range_helper(ctx, self, pipe_fds[0]);
	}
	ak_close(pipe_fds[0]);
	rc = pid < 0 ? ak_fail_errno(err, errno, "fork") : unshare_outer(err);
	if (rc == 0)
		(void)ak_write_all(pipe_fds[1], "m", 1);
	ak_close(pipe_fds[1]);
	if (pid < 0)
		return rc;
	if (waitpid(pid, &status, 0) < 0)
		return ak_fail_errno(err, errno, "waiting for the id maps");
	if (rc < 0)
		return rc;
	return settle_ranges(ctx, WIFEXITED(status) ? WEXITSTATUS(status) : MAPPED_NONE, err);
}

/* Change from root, which is not mapped here, to the lent id. */
static int become_lent(struct ak_err *err)
{
	uint32_t outside = 0;

	if (!has_ids("/proc/self/uid_map", 0, 1, &outside) || outside == 0)
		return ak_fail(err, EPERM,
			"an older agentkernel made the gateway's namespaces; stop its sandboxes and its daemon, then start again");
	if (setresgid(0, 0, 0) < 0 || setresuid(0, 0, 0) < 0)
		return ak_fail_errno(err, errno, "taking on the sandbox's id");
	prctl(PR_SET_DUMPABLE, 1); /* the change of credentials cleared it, and writing id maps needs it */
	return 0;
}

int sb_ids_check(const struct sb_ids *ids, struct ak_err *err)
{
	if (!ids->lent || ids->outer_uid)
		return 0;
	return sb_explain_userns(err,
		ak_fail(err, EPERM,
			"root has no other id here to run a sandbox under (the user namespace maps only root); run agentkernel outside of it, or as an "
			"ordinary user"));
}

/*
 * Root drops its supplementary groups, except the one that may open /dev/kvm where that is shown inside. Other users may not drop theirs, and files of those groups are not visible
 * inside.
 */
static int leave_root(const struct sb_ctx *ctx, struct ak_err *err)
{
	const bool kvm = ctx->spec->kvm || (ctx->spec->vm && ctx->spec->vm->kvm);
	struct stat st = { 0 };

	if (ctx->ids.uid == 0 || ctx->ids.lent)
		(void)!setgroups(kvm && stat("/dev/kvm", &st) == 0 && st.st_gid ? 1 : 0, &st.st_gid);
	return sb_ids_check(&ctx->ids, err);
}

int sb_enter_outer(struct sb_ctx *ctx, struct ak_err *err)
{
	int rc = leave_root(ctx, err);

	if (rc < 0)
		return rc;
	if (ctx->ids.lent || ctx->ids.n_sub) {
		rc = enter_with_ranges(ctx, err);
		return rc < 0 || !ctx->ids.lent ? rc : become_lent(err);
	}
	rc = unshare_outer(err);
	if (rc == 0)
		rc = map_one_uid(0, ctx->ids.uid, err);
	return rc < 0 ? rc : map_one_gid(0, ctx->ids.gid, err);
}

/* ---- owners of what is mounted from the host ---- */

static int map_owner(pid_t pid, const char *file, unsigned on_disk, unsigned lent)
{
	char text[64];

	snprintf(text, sizeof(text), "%u %u 1\n", on_disk, lent);
	return write_map(pid, file, text);
}

int sb_ids_owner_ns(const struct sb_ids *ids, uid_t uid, gid_t gid)
{
	const pid_t parent = getpid();
	pid_t pid = (pid_t)syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, NULL, NULL, NULL, NULL);
	int rc;

	if (pid < 0)
		return -errno;
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		while (getppid() == parent) /* holds the namespace until it is open */
			pause();
		_exit(0);
	}
	rc = map_owner(pid, "uid_map", uid, ids->outer_uid);
	if (rc == 0)
		rc = map_owner(pid, "gid_map", gid, ids->outer_gid);
	if (rc == 0)
		rc = open_user_ns(pid);
	kill(pid, SIGKILL);
	(void)waitpid(pid, NULL, 0);
	return rc;
}

/* How many ids from 1 on are mapped in the current namespace. */
static uint32_t mapped_range(const char *file)
{
	_cleanup_free_ char *text = NULL;
	char *save = NULL;

	if (ak_read_file(AT_FDCWD, file, 1 << 16, &text, NULL) < 0)
		return 0;
	for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		unsigned inner, outer, count;

		if (sscanf(line, "%u %u %u", &inner, &outer, &count) == 3 && inner == 1)
			return count;
	}
	return 0;
}

int sb_join_outer(struct sb_ctx *ctx, struct ak_err *err)
{
	uint32_t uids, gids;
	int rc = leave_root(ctx, err);

	if (rc < 0)
		return rc;
	if (ctx->ids.lent)
		sb_trees_map(&ctx->trees, ctx->spec, &ctx->ids, ctx->spec->gw_user_ns, ctx->ctl);
	if (setns(ctx->spec->gw_user_ns, CLONE_NEWUSER) < 0)
		return ak_fail_errno(err, errno, "joining the gateway's user namespace");
	if (ctx->ids.lent && (rc = become_lent(err)) < 0)
		return rc;
	if (unshare(CLONE_NEWNET) < 0)
		return ak_fail_errno(err, errno, "network namespace for the sandbox");
	if (!ctx->ids.n_sub)
		return 0;
	uids = mapped_range("/proc/self/uid_map");
	gids = mapped_range("/proc/self/gid_map");
	gids = gids < uids ? gids : uids;
	ctx->ids.n_sub = gids < ctx->ids.n_sub ? gids : ctx->ids.n_sub;
	return 0;
}

/*
 * The lines of an inner map with ranges. ID is the sandbox's user: it is 0 outside, so that it owns the invoker's files, and 0 inside
 * takes its place. No line may span two lines of the outer map, whose first line is id 0 alone.
 */
static void print_range_map(char text[static SB_MAP_MAX], uint32_t id, uint32_t n_sub)
{
	int len;

	if (!id) {
		snprintf(text, SB_MAP_MAX, "0 0 1\n1 1 %u\n", n_sub);
		return;
	}
	len = snprintf(text, SB_MAP_MAX, "0 %u 1\n%u 0 1\n", id, id);
	if (id > 1)
		len += snprintf(text + len, SB_MAP_MAX - (size_t)len, "1 1 %u\n", id - 1);
	if (id < n_sub)
		snprintf(text + len, SB_MAP_MAX - (size_t)len, "%u %u %u\n", id + 1, id + 1, n_sub - id);
}

void sb_print_maps(const struct sb_ids *ids, char ret_uid[static SB_MAP_MAX], char ret_gid[static SB_MAP_MAX])
{
	if (!sb_maps_range(ids)) {
		snprintf(ret_uid, SB_MAP_MAX, "%u 0 1\n", (unsigned)ids->inner_uid);
		snprintf(ret_gid, SB_MAP_MAX, "%u 0 1\n", (unsigned)ids->inner_gid);
		return;
	}
	print_range_map(ret_uid, ids->inner_uid, ids->n_sub);
	print_range_map(ret_gid, ids->inner_gid, ids->n_sub);
}

int sb_map_inner(const struct sb_ids *ids, pid_t pid, struct ak_err *err)
{
	char uids[SB_MAP_MAX], gids[SB_MAP_MAX];
	int rc;

	if (!sb_maps_range(ids)) {
		rc = map_one_uid(ids->inner_uid, 0, err);
		return rc < 0 ? rc : map_one_gid(ids->inner_gid, 0, err);
	}
	sb_print_maps(ids, uids, gids);
	rc = write_map(pid, "uid_map", uids);
	if (rc == 0)
		rc = write_map(pid, "gid_map", gids);
	return rc < 0 ? ak_fail_errno(err, -rc, "id map of the sandbox") : 0;
}

/* ---- explaining failures ---- */

static bool setting_is(const char *path, char value)
{
	_cleanup_free_ char *text = NULL;

	return ak_read_file(AT_FDCWD, path, 64, &text, NULL) == 0 && text[0] == value && (text[1] == '\n' || !text[1]);
}

int sb_explain_userns(struct ak_err *err, int rc)
{
	static const struct {
		const char *path;
		char bad;
		const char *fix;
	} settings[] = {
		{ "/proc/sys/user/max_user_namespaces", '0', "sysctl user.max_user_namespaces is 0; set it to 10000" },
		{ "/proc/sys/user/max_net_namespaces", '0', "sysctl user.max_net_namespaces is 0; set it to 10000" },
		{ "/proc/sys/kernel/unprivileged_userns_clone", '0',
			"sysctl kernel.unprivileged_userns_clone is 0; set it to 1" },
		{ "/proc/sys/kernel/apparmor_restrict_unprivileged_userns", '1',
			"sysctl kernel.apparmor_restrict_unprivileged_userns is 1; set it to 0 or give agentkernel an AppArmor profile with 'userns,'" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(settings); i++) {
		if (setting_is(settings[i].path, settings[i].bad))
			return ak_err_prefix(err, rc, "user namespaces are restricted on this host (%s)", settings[i].fix);
	}
	return rc;
}
