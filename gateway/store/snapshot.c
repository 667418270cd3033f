/* Snapshots of persistent sandboxes on disk: see store/snapshot.h. */
#include "gateway/store/snapshot.h"

#include "gateway/base/cleanup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define RECORD "snapshot.json"
#define RECORD_MAX 4096
#define FOLDER_FLAGS (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)

void snapshot_tag(uint64_t now_us, char ret[static AK_NAME_MAX])
{
	time_t now = (time_t)(now_us / 1000000);
	struct tm tm;

	gmtime_r(&now, &tm);
	strftime(ret, AK_NAME_MAX, "%Y%m%d-%H%M%S", &tm);
}

/* ---- reading ---- */

/* Open the folder of NAME's snapshots; -ENOENT if there is none. */
static int open_all(const struct ak_paths *paths, const char *name)
{
	char path[PATH_MAX];
	int rc = state_path(paths, name, "snapshots", path), fd;

	if (rc < 0)
		return rc;
	fd = open(path, FOLDER_FLAGS);
	return fd < 0 ? -errno : fd;
}

static void read_one(int all, const char *tag, struct snapshot *ret)
{
	_cleanup_close_ int dir = openat(all, tag, FOLDER_FLAGS);
	_cleanup_free_ char *text = NULL;
	_cleanup_json_ cJSON *obj = NULL;
	struct ak_err ignored;
	size_t len;

	*ret = (struct snapshot){ .damaged = true };
	snprintf(ret->tag, sizeof(ret->tag), "%s", tag);
	if (dir < 0 || ak_read_file(dir, RECORD, RECORD_MAX, &text, &len) < 0 || json_parse(text, len, &obj, &ignored) < 0 ||
		faccessat(dir, "upper", F_OK, AT_SYMLINK_NOFOLLOW) < 0 || json_number(obj, "version", 0) != 1)
		return;
	ret->created_us = json_number(obj, "created_us", 0);
	ret->bytes = json_number(obj, "bytes", 0);
	ret->files = json_number(obj, "files", 0);
	ret->damaged = !ret->created_us;
}

static int by_age(const void *a, const void *b)
{
	const struct snapshot *x = a, *y = b;

	if (x->created_us != y->created_us)
		return x->created_us < y->created_us ? -1 : 1;
	return strcmp(x->tag, y->tag);
}

static int check_sandbox(const struct ak_paths *paths, const char *name, struct ak_err *err)
{
	char path[PATH_MAX];

	if (!ak_sandbox_name_ok(name) || state_path(paths, name, NULL, path) < 0 || access(path, F_OK) < 0)
		return ak_fail(err, ENOENT, "no sandbox named '%.63s'", name);
	return 0;
}

int snapshot_list(const struct ak_paths *paths, const char *name, struct snapshot **ret, size_t *ret_n, struct ak_err *err)
{
	int rc = check_sandbox(paths, name, err), all = rc < 0 ? -1 : open_all(paths, name);
	DIR *dir = all < 0 ? NULL : fdopendir(all);
	struct snapshot *list;
	size_t n = 0;

	if (rc < 0)
		return rc;
	list = calloc(SNAPSHOTS_MAX, sizeof(*list));
	for (struct dirent *e; dir && list && n < SNAPSHOTS_MAX && (e = readdir(dir));) {
		if (ak_sandbox_name_ok(e->d_name))
			read_one(all, e->d_name, &list[n++]);
	}
	if (dir)
		closedir(dir);
	if (!list)
		return ak_fail(err, ENOMEM, "out of memory");
	qsort(list, n, sizeof(*list), by_age);
	*ret = list;
	*ret_n = n;
	return 0;
}

int snapshot_find(const struct ak_paths *paths, const char *name, const char *tag, struct snapshot *ret, struct ak_err *err)
{
	_cleanup_free_ struct snapshot *list = NULL;
	size_t n = 0;
	int rc = snapshot_list(paths, name, &list, &n, err);

	for (size_t i = 0; i < n; i++) {
		if (strcmp(list[i].tag, tag) != 0)
			continue;
		*ret = list[i];
		return 0;
	}
	return rc < 0 ? rc
		      : ak_fail(err, ENOENT, "sandbox '%s' has no snapshot '%.63s'; 'agentkernel snapshot --list %s' shows them",
				name, tag, name);
}

int snapshot_check_new(const struct ak_paths *paths, const char *name, const char *tag, struct ak_err *err)
{
	_cleanup_free_ struct snapshot *list = NULL;
	size_t n = 0;
	int rc;

	if (!ak_sandbox_name_ok(tag))
		return ak_fail(err, EINVAL,
			"'%.63s' is not a tag: 1 to 63 of A-Z a-z 0-9 _ -, with a letter or digit at both ends", tag);
	rc = snapshot_list(paths, name, &list, &n, err);
	if (rc < 0)
		return rc;
	for (size_t i = 0; i < n; i++) {
		if (!strcmp(list[i].tag, tag))
			return ak_fail(err, EEXIST, "sandbox '%s' has a snapshot '%s' already; remove it or choose another tag",
				name, tag);
	}
	if (n >= SNAPSHOTS_MAX)
		return ak_fail(err, EBUSY, "sandbox '%s' has %d snapshots, the maximum; remove one", name, SNAPSHOTS_MAX);
	return 0;
}

/* ---- making a copy ---- */

static int fail_disk(struct ak_err *err, int code, const char *path)
{
	return ak_fail_errno(err, code, "%s", path);
}

int snapshot_work_begin(const struct ak_paths *paths, struct snapshot_work *ret, struct ak_err *err)
{
	char fresh[32], name[48], all_path[PATH_MAX];
	_cleanup_close_ int all = -1, dir = -1;
	int rc = ak_path_join(all_path, paths->state, "sandboxes", NULL);

	if (rc == 0)
		rc = ak_fresh_name(fresh);
	if (rc < 0)
		return fail_disk(err, -rc, paths->state);
	snprintf(name, sizeof(name), ".copy-%s", fresh + strspn(fresh, "."));
	rc = state_path(paths, name, NULL, ret->path);
	all = open(all_path, FOLDER_FLAGS);
	/* Under this lock, state_sweep cannot take the folder before it is locked itself. */
	if (rc < 0 || all < 0 || flock(all, LOCK_EX) < 0 || mkdirat(all, name, 0700) < 0)
		return fail_disk(err, rc < 0 ? -rc : errno, ret->path);
	dir = openat(all, name, FOLDER_FLAGS);
	if (dir < 0 || flock(dir, LOCK_EX | LOCK_NB) < 0 || mkdirat(dir, "upper", 0700) < 0 || mkdirat(dir, "links", 0700) < 0) {
		rc = fail_disk(err, errno, ret->path);
		(void)ak_remove_tree(all, name);
		return rc;
	}
	ret->dir = TAKE_FD(dir);
	return 0;
}

void snapshot_work_done(struct snapshot_work *w)
{
	w->dir = ak_close(w->dir);
}

static int source_path(const struct ak_paths *paths, const char *name, const char *tag, char ret[static PATH_MAX])
{
	char more[AK_NAME_MAX + 32];

	snprintf(more, sizeof(more), "snapshots/%s/upper", tag);
	return state_path(paths, name, tag[0] ? more : "upper", ret);
}

int snapshot_copy(const struct ak_paths *paths, const char *name, const char *tag, const struct snapshot_work *w,
	struct ak_clone *ret, struct ak_err *err)
{
	char path[PATH_MAX];
	_cleanup_close_ int from = source_path(paths, name, tag, path) < 0 ? -1 : open(path, FOLDER_FLAGS),
			    to = openat(w->dir, "upper", FOLDER_FLAGS), links = openat(w->dir, "links", FOLDER_FLAGS);
	int rc;

	if (from < 0 || to < 0 || links < 0)
		return fail_disk(err, errno, from < 0 ? path : w->path);
	rc = ak_clone_tree(from, to, links, ret);
	if (rc < 0)
		return ak_fail(err, -rc, "cannot copy '%.200s': %s; nothing was changed", ret->where, strerror(-rc));
	rc = ak_remove_tree(w->dir, "links");
	return rc < 0 ? fail_disk(err, -rc, w->path) : 0;
}

/* ---- using it ---- */

static int write_record(int dir, const struct snapshot *s)
{
	char text[256];
	int len = snprintf(text, sizeof(text), "{\"version\":1,\"created_us\":%llu,\"bytes\":%llu,\"files\":%llu}\n",
		(unsigned long long)s->created_us, (unsigned long long)s->bytes, (unsigned long long)s->files);

	return ak_replace_file(dir, RECORD, text, (size_t)len, true);
}

int snapshot_finish(const struct ak_paths *paths, const char *name, const struct snapshot *s, const struct snapshot_work *w,
	struct ak_err *err)
{
	_cleanup_close_ int lock = state_lock(paths, name, err), all = -1;
	int rc;

	if (lock < 0)
		return lock;
	rc = write_record(w->dir, s);
	if (rc == 0 && mkdirat(lock, "snapshots", 0700) < 0 && errno != EEXIST)
		rc = -errno;
	all = rc < 0 ? -1 : openat(lock, "snapshots", FOLDER_FLAGS);
	if (rc == 0 && (all < 0 || renameat2(AT_FDCWD, w->path, all, s->tag, RENAME_NOREPLACE) < 0))
		rc = -errno;
	return rc < 0 ? fail_disk(err, -rc, w->path) : 0;
}

int snapshot_swap(const struct ak_paths *paths, const char *name, const struct snapshot_work *w, struct ak_err *err)
{
	_cleanup_close_ int lock = state_lock(paths, name, err);

	if (lock < 0)
		return lock;
	if (renameat2(w->dir, "upper", lock, "upper", RENAME_EXCHANGE) < 0)
		return fail_disk(err, errno, w->path);
	(void)fsync(lock);
	return 0;
}

int snapshot_fork(const struct ak_paths *paths, const struct state_sandbox *from, const char *name, const struct snapshot_work *w,
	struct state_sandbox *ret, struct ak_err *err)
{
	_cleanup_json_ cJSON *obj = state_to_json(from);
	_cleanup_(state_done) struct state_sandbox s = { 0 };
	int rc = obj ? state_from_json(obj, &s, err) : ak_fail(err, ENOMEM, "out of memory");

	if (rc < 0)
		return rc;
	snprintf(s.name, sizeof(s.name), "%s", name);
	s.mcp = (struct state_mcp){ .project = "" };
	s.n_publish = 0;
	s.allowed = s.denied = 0;
	rc = state_keep(paths, &s, w->path, err);
	if (rc < 0)
		return rc;
	*ret = s;
	s = (struct state_sandbox){ 0 };
	return 0;
}

int snapshot_remove(
	const struct ak_paths *paths, const char *name, const char *tag, char ret_gone[static PATH_MAX], struct ak_err *err)
{
	_cleanup_close_ int lock = state_lock(paths, name, err), all = -1;
	char gone[AK_NAME_MAX + 40];
	struct snapshot s;
	int rc = lock < 0 ? lock : snapshot_find(paths, name, tag, &s, err);

	if (rc < 0)
		return rc;
	snprintf(gone, sizeof(gone), ".gone-%s-%llx", name, (unsigned long long)ak_wall_us());
	if (state_path(paths, gone, NULL, ret_gone) < 0)
		return fail_disk(err, ENAMETOOLONG, name);
	all = open_all(paths, name);
	if (all < 0 || renameat(all, tag, AT_FDCWD, ret_gone) < 0)
		return fail_disk(err, errno, ret_gone);
	return 0;
}
