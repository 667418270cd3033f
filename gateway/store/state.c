/* Persistent sandboxes on disk: see store/state.h. */
#include "gateway/store/state.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_NAME "sandbox.json"
#define FILE_MAX (8u << 20)
#define LINKS_NAME ".links" /* the last link id that was assigned */
#define LOCK_WAIT_MS 5000

/* ---- paths and locks ---- */

int state_path(const struct ak_paths *paths, const char *name, const char *file, char ret[static PATH_MAX])
{
	char dir[PATH_MAX];
	int rc = ak_path_join(dir, paths->state, "sandboxes", NULL);

	return rc < 0 ? rc : ak_path_join(ret, dir, name, file);
}

static int fail_disk(struct ak_err *err, int code, const char *path)
{
	return ak_fail(err, code, "%s: %s: agentkernel keeps its sandboxes there; nothing was changed", path, strerror(code));
}

/* Open STATE/sandboxes, created if missing. */
static int open_all(const struct ak_paths *paths, struct ak_err *err)
{
	char path[PATH_MAX];
	int rc = ak_path_join(path, paths->state, "sandboxes", NULL), fd;

	if (rc == 0)
		rc = ak_mkdir_p(path, 0700);
	if (rc < 0)
		return fail_disk(err, -rc, paths->state);
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return fd < 0 ? fail_disk(err, errno, path) : fd;
}

/* A lock is held for milliseconds, unless its holder was stopped: wait with a timeout. */
static int lock_dir(int fd)
{
	uint64_t until = ak_now_ms() + LOCK_WAIT_MS;
	int wait_ms = 1;

	while (flock(fd, LOCK_EX | LOCK_NB) < 0) {
		if (errno != EWOULDBLOCK && errno != EINTR)
			return -errno;
		if (ak_now_ms() >= until)
			return -ETIMEDOUT;
		poll(NULL, 0, wait_ms);
		wait_ms = wait_ms < 16 ? wait_ms * 2 : 16;
	}
	return 0;
}

static int fail_unknown(struct ak_err *err, const char *name)
{
	return ak_fail(err, ENOENT, "no sandbox named '%.63s'", name);
}

/* The folder may have been renamed while we waited for the lock. */
static bool still_there(const char *path, int fd)
{
	struct stat a, b;

	return fstat(fd, &a) == 0 && lstat(path, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

int state_lock(const struct ak_paths *paths, const char *name, struct ak_err *err)
{
	_cleanup_close_ int fd = -1;
	char path[PATH_MAX];
	int rc;

	if (!ak_sandbox_name_ok(name))
		return fail_unknown(err, name);
	rc = state_path(paths, name, NULL, path);
	if (rc < 0)
		return fail_disk(err, -rc, paths->state);
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return errno == ENOENT ? fail_unknown(err, name) : fail_disk(err, errno, path);
	rc = lock_dir(fd);
	if (rc == -ETIMEDOUT)
		return ak_fail(err, ETIMEDOUT, "sandbox '%s' is locked by another command; try again when it has ended", name);
	if (rc < 0)
		return fail_disk(err, -rc, path);
	if (!still_there(path, fd))
		return fail_unknown(err, name);
	return TAKE_FD(fd);
}

/* ---- reading and writing one ---- */

static int write_at(int dir, const struct state_sandbox *s)
{
	_cleanup_json_ cJSON *obj = state_to_json(s);
	_cleanup_free_ char *text = obj ? cJSON_Print(obj) : NULL;

	return text ? ak_replace_file(dir, FILE_NAME, text, strlen(text), true) : -ENOMEM;
}

int state_save(const struct ak_paths *paths, const struct state_sandbox *s, struct ak_err *err)
{
	_cleanup_close_ int dir = state_lock(paths, s->name, err);
	int rc = dir < 0 ? dir : write_at(dir, s);

	return dir < 0 ? dir : rc < 0 ? fail_disk(err, -rc, s->name) : 0;
}

bool state_damaged(int rc)
{
	return rc == -EBADMSG || rc == -EPROTONOSUPPORT;
}

/* Distinguish transient errors from a damaged file. */
static int code_of(int rc)
{
	return rc == -ENOMEM || rc == -EMFILE || rc == -ENFILE || rc == -EPROTONOSUPPORT ? rc : -EBADMSG;
}

/* Read sandbox.json. It exists from the creation of the folder until the folder is renamed; without it, the sandbox is damaged. */
static int read_record(const struct ak_paths *paths, const char *name, char **ret, size_t *ret_len, struct ak_err *err)
{
	_cleanup_close_ int dir = -1;
	char path[PATH_MAX];
	int rc = state_path(paths, name, NULL, path);

	if (rc < 0)
		return fail_disk(err, -rc, paths->state);
	dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	rc = dir < 0 ? -errno : ak_read_file(dir, FILE_NAME, FILE_MAX, ret, ret_len);
	if (rc == -ENOENT && (dir < 0 || !still_there(path, dir)))
		return fail_unknown(err, name);
	return rc < 0 ? code_of(ak_fail_errno(err, -rc, "%s/" FILE_NAME, path)) : 0;
}

static int parse_record(const char *name, const char *text, size_t len, struct state_sandbox *ret, struct ak_err *err)
{
	_cleanup_json_ cJSON *obj = NULL;
	int rc = json_parse(text, len, &obj, err);

	if (rc == 0)
		rc = state_from_json(obj, ret, err);
	if (rc == 0 && strcmp(ret->name, name) != 0) {
		state_done(ret);
		rc = ak_fail(err, EINVAL, "it belongs to another sandbox");
	}
	return rc;
}

int state_load(const struct ak_paths *paths, const char *name, struct state_sandbox *ret, struct ak_err *err)
{
	_cleanup_free_ char *text = NULL;
	size_t len = 0;
	int rc;

	if (!ak_sandbox_name_ok(name))
		return fail_unknown(err, name);
	rc = read_record(paths, name, &text, &len, err);
	if (rc < 0)
		return rc;
	rc = parse_record(name, text, len, ret, err);
	return rc < 0 ? ak_err_prefix(err, code_of(rc), "%s/sandboxes/%s/" FILE_NAME, paths->state, name) : 0;
}

/* ---- creating ---- */

static void make_uuid(char ret[static 37])
{
	uint8_t b[16] = { 0 };

	if (getrandom(b, sizeof(b), 0) != sizeof(b))
		memcpy(b, &(uint64_t){ ak_wall_us() }, 8);
	b[6] = (b[6] & 0x0f) | 0x40; /* RFC 9562, version 4 */
	b[8] = (b[8] & 0x3f) | 0x80;
	snprintf(ret, 37, "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1], b[2], b[3], b[4],
		b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
}

struct links {
	unsigned char used[STATE_LINK_MAX + 1];
	uint32_t highest;
};

static int mark_link(void *ctx, struct state_sandbox *s)
{
	struct links *l = ctx;

	l->used[s->link_id] = 1;
	if (s->link_id > l->highest)
		l->highest = s->link_id;
	return 0;
}

static uint32_t read_last_link(int all)
{
	_cleanup_free_ char *text = NULL;
	unsigned long n;

	if (ak_read_file(all, LINKS_NAME, 64, &text, NULL) < 0)
		return STATE_LINK_MAX;
	n = strtoul(text, NULL, 10);
	return n > 0 && n < STATE_LINK_MAX ? (uint32_t)n : STATE_LINK_MAX;
}

/* Ids increase, so that an address is not reused soon. All sandboxes are read only after a wrap-around, or if the file is lost. */
static int next_link(const struct ak_paths *paths, int all, uint32_t *ret, struct ak_err *err)
{
	uint32_t last = read_last_link(all), id = last + 1;
	char text[16];
	int rc;

	if (last == STATE_LINK_MAX) {
		_cleanup_free_ struct links *l = calloc(1, sizeof(*l));

		rc = l ? state_each(paths, mark_link, NULL, l, err) : ak_fail(err, ENOMEM, "out of memory");
		if (rc < 0)
			return rc;
		id = l->highest + 1;
		if (id > STATE_LINK_MAX) {
			for (id = 1; id <= STATE_LINK_MAX && l->used[id]; id++)
				;
		}
		if (id > STATE_LINK_MAX)
			return ak_fail(
				err, ENOSPC, "there are %d sandboxes, the maximum of one gateway; remove some", STATE_LINK_MAX);
	}
	rc = ak_replace_file(all, LINKS_NAME, text, (size_t)snprintf(text, sizeof(text), "%u\n", id), false);
	if (rc < 0)
		return fail_disk(err, -rc, LINKS_NAME);
	*ret = id;
	return 0;
}

static int build_folder(int all, const char *tmp, const struct state_sandbox *s)
{
	_cleanup_close_ int dir = -1;
	int rc;

	(void)ak_remove_tree(all, tmp);
	if (mkdirat(all, tmp, 0700) < 0)
		return -errno;
	dir = openat(all, tmp, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return -errno;
	if (mkdirat(dir, "upper", 0700) < 0)
		return -errno;
	rc = write_at(dir, s);
	/* Never replaces an existing one: the folder of a sandbox is never empty. */
	if (rc == 0 && renameat(all, tmp, all, s->name) < 0)
		rc = errno == ENOTEMPTY ? -EEXIST : -errno;
	return rc;
}

struct made {
	const struct state_mcp *by; /* borrowed */
	size_t n;
};

static int count_made(void *ctx, struct state_sandbox *s)
{
	struct made *m = ctx;
	bool kept = s->mcp.keep && s->mcp.server[0] && !strcmp(s->mcp.project, m->by->project);

	m->n += kept || !strcmp(s->mcp.server, m->by->server);
	return 0;
}

/* Limits how many sandboxes an MCP client can create. Call it under the lock, so that concurrent calls cannot exceed the limit. */
static int check_made(const struct ak_paths *paths, const struct state_mcp *mcp, struct ak_err *err)
{
	struct made m = { .by = mcp };
	int rc = mcp->server[0] ? state_each(paths, count_made, NULL, &m, err) : 0;

	if (rc == 0 && m.n >= STATE_MCP_MAX)
		rc = ak_fail(err, EDQUOT,
			"there are %d sandboxes created by this MCP server or kept for its project, the maximum; remove one with sandbox_remove",
			STATE_MCP_MAX);
	return rc;
}

const char *state_origin(const struct state_sandbox *s)
{
	return run_origin_name(s->mcp.server[0] ? RUN_ORIGIN_MCP : RUN_ORIGIN_CLI);
}

/* Lock STATE/sandboxes, check that the name is free, and set what identifies the sandbox. Returns the locked folder. */
static int begin_create(const struct ak_paths *paths, struct state_sandbox *s, struct ak_err *err)
{
	_cleanup_close_ int all = -1;
	int rc;

	if (!ak_sandbox_name_ok(s->name))
		return ak_fail(err, EINVAL,
			"name '%.63s': must be 1 to 63 letters, digits, '-' or '_', with a letter or digit at both ends",
			s->name);
	all = open_all(paths, err);
	if (all < 0)
		return all;
	rc = lock_dir(all);
	if (rc < 0)
		return fail_disk(err, -rc, "sandboxes");
	if (faccessat(all, s->name, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
		return ak_fail(err, EEXIST, "a sandbox named '%s' exists already", s->name);
	rc = check_made(paths, &s->mcp, err);
	if (rc == 0)
		rc = next_link(paths, all, &s->link_id, err);
	if (rc < 0)
		return rc;
	make_uuid(s->uuid);
	s->created_us = ak_wall_us();
	s->generation = s->mcp.generation = 1;
	s->running = false;
	return TAKE_FD(all);
}

static int fail_create(struct ak_err *err, int rc, const char *name)
{
	return rc == -EEXIST ? ak_fail(err, EEXIST, "a sandbox named '%s' exists already", name) : fail_disk(err, -rc, name);
}

int state_create(const struct ak_paths *paths, struct state_sandbox *s, struct ak_err *err)
{
	_cleanup_close_ int all = begin_create(paths, s, err);
	char tmp[AK_NAME_MAX + 8];
	int rc;

	if (all < 0)
		return all;
	snprintf(tmp, sizeof(tmp), ".new-%s", s->name);
	rc = build_folder(all, tmp, s);
	if (rc < 0) {
		(void)ak_remove_tree(all, tmp);
		return fail_create(err, rc, s->name);
	}
	(void)fsync(all);
	return 0;
}

/* The rename is atomic: the folder is either a run with an unused sandbox.json, or a complete sandbox. */
int state_keep(const struct ak_paths *paths, struct state_sandbox *s, const char *dir, struct ak_err *err)
{
	_cleanup_close_ int all = begin_create(paths, s, err), fd = -1, runs = -1;
	char path[PATH_MAX];
	int rc;

	if (all < 0)
		return all;
	fd = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	rc = fd < 0 ? -errno : write_at(fd, s);
	/* `audit verify` holds this lock while it compares the folders with the events. */
	runs = ak_path_join(path, paths->state, "runs", NULL) < 0 ? -1 : open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (runs >= 0)
		(void)lock_dir(runs);
	if (rc == 0 && renameat2(AT_FDCWD, dir, all, s->name, RENAME_NOREPLACE) < 0)
		rc = -errno;
	if (rc < 0)
		return fail_create(err, rc, s->name);
	(void)fsync(all);
	return 0;
}

/* ---- removing ---- */

int state_remove(const struct ak_paths *paths, const char *name, char ret_gone[static PATH_MAX], struct ak_err *err)
{
	_cleanup_close_ int all = open_all(paths, err), lock = -1;
	char gone[AK_NAME_MAX + 32];

	if (all < 0)
		return all;
	lock = state_lock(paths, name, err);
	if (lock < 0)
		return lock;
	snprintf(gone, sizeof(gone), ".gone-%s-%llx", name, (unsigned long long)ak_wall_us());
	if (state_path(paths, gone, NULL, ret_gone) < 0)
		return fail_disk(err, ENAMETOOLONG, name);
	if (renameat(all, name, all, gone) < 0)
		return fail_disk(err, errno, name);
	(void)fsync(all);
	return 0;
}

struct sweep {
	int all; /* borrowed */
	void (*left)(void *ctx, const char *name, const char *where, int error); /* may be NULL */
	void *ctx;
};

/* Call FN for each entry whose name is PREFIX and REST. */
static void each_named(
	const struct sweep *s, const char *prefix, void (*fn)(const struct sweep *s, const char *name, const char *rest))
{
	int fd = openat(s->all, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);

	if (!dir) {
		ak_close(fd);
		return;
	}
	for (struct dirent *e; (e = readdir(dir));) {
		if (!strncmp(e->d_name, prefix, strlen(prefix)))
			fn(s, e->d_name, e->d_name + strlen(prefix));
	}
	closedir(dir);
}

static void sweep_one(const struct sweep *s, const char *name, const char *rest)
{
	char where[AK_WHERE_MAX];
	int rc = ak_remove_tree_told(s->all, name, where);

	if (rc < 0 && s->left)
		s->left(s->ctx, rest, where, -rc);
}

/* A copy of files (store/snapshot.h) that nobody holds locked is left from a crash. */
static void give_up_copy(const struct sweep *s, const char *name, const char *rest)
{
	_cleanup_close_ int fd = openat(s->all, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	char gone[NAME_MAX + 1];

	snprintf(gone, sizeof(gone), ".gone-%.200s", rest);
	if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0)
		(void)renameat(s->all, name, s->all, gone);
}

void state_sweep(const struct ak_paths *paths, void (*left)(void *ctx, const char *name, const char *where, int error), void *ctx)
{
	struct ak_err ignored;
	_cleanup_close_ int all = open_all(paths, &ignored);
	const struct sweep s = { all, left, ctx };

	if (all < 0)
		return;
	/* Only the lock distinguishes a half-created folder from one being created. Removed folders need no lock and may take long. */
	if (lock_dir(all) == 0) {
		each_named(&s, ".new-", sweep_one);
		each_named(&s, ".copy-", give_up_copy);
	}
	flock(all, LOCK_UN);
	each_named(&s, ".gone-", sweep_one);
}

/* ---- all sandboxes ---- */

static int only_names(const struct dirent *e)
{
	return ak_sandbox_name_ok(e->d_name);
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

static int each_one(const struct ak_paths *paths, const char *name, int (*fn)(void *ctx, struct state_sandbox *s),
	void (*err_fn)(void *ctx, const char *name, const char *reason), void *ctx, struct ak_err *err)
{
	struct state_sandbox s;
	struct ak_err why;
	int rc = state_load(paths, name, &s, &why);

	if (rc == 0) {
		rc = fn(ctx, &s);
		state_done(&s);
		return rc;
	}
	if (rc == -ENOENT)
		return 0; /* removed meanwhile */
	if (!state_damaged(rc))
		return ak_fail(err, -rc, "%s", why.text);
	if (err_fn)
		err_fn(ctx, name, why.text);
	return 0;
}

int state_each(const struct ak_paths *paths, int (*fn)(void *ctx, struct state_sandbox *s),
	void (*err_fn)(void *ctx, const char *name, const char *reason), void *ctx, struct ak_err *err)
{
	struct dirent **names = NULL;
	char path[PATH_MAX];
	int rc = ak_path_join(path, paths->state, "sandboxes", NULL), n;

	if (rc < 0)
		return fail_disk(err, -rc, paths->state);
	n = scandir(path, &names, only_names, by_name);
	if (n < 0)
		return errno == ENOENT ? 0 : fail_disk(err, errno, path);
	for (int i = 0; i < n; i++) {
		if (rc == 0)
			rc = each_one(paths, names[i]->d_name, fn, err_fn, ctx, err);
		free(names[i]);
	}
	free(names);
	return rc;
}
