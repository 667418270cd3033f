/*
 * Folders that a sandbox could ever write: see store/written.h.
 *
 * STATE/written has an entry "ID PATH" for each folder, each ended by a NUL byte, because a path may contain a newline. It is replaced as a
 * whole, under a lock, so that readers need none.
 */
#include "gateway/store/written.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/base/strbuf.h"
#include "gateway/store/plan.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_NAME "written"
#define LOCK_NAME "written.lock"
#define TEXT_MAX (WRITTEN_MAX * (PATH_MAX + PROJECT_ID_TEXT))
#define KEEP (WRITTEN_MAX / 2) /* after folders were merged */

/* ---- the list ---- */

void written_done(struct written *w)
{
	for (size_t i = 0; i < w->n; i++)
		free(w->list[i].path);
	free(w->list);
	*w = (struct written){ .paths = w->paths };
}

static int append(struct written *w, const char *path, const struct project_id *id)
{
	struct written_folder *grown = reallocarray(w->list, w->n + 1, sizeof(*grown));

	if (!grown)
		return -ENOMEM;
	w->list = grown;
	grown[w->n] = (struct written_folder){ .path = strdup(path), .id = *id };
	if (!grown[w->n].path)
		return -ENOMEM;
	w->n++;
	return 0;
}

static void drop(struct written *w, size_t i)
{
	free(w->list[i].path);
	w->list[i] = w->list[--w->n];
}

/* "DEV:INO:BORN PATH" */
static int parse(struct written *w, char *entry)
{
	char *space = strchr(entry, ' ');
	struct project_id id;

	if (!space || space[1] != '/')
		return -EBADMSG;
	*space = '\0';
	return project_id_parse(entry, &id) < 0 ? -EBADMSG : append(w, space + 1, &id);
}

static int load(struct written *w)
{
	_cleanup_free_ char *text = NULL;
	char path[PATH_MAX];
	size_t len = 0;
	int rc = w->loaded ? 1 : ak_path_join(path, w->paths->state, FILE_NAME, NULL);

	if (rc == 0)
		rc = ak_read_file(AT_FDCWD, path, TEXT_MAX, &text, &len);
	if (rc > 0 || rc == -ENOENT) {
		w->loaded = true;
		return 0;
	}
	for (char *at = text, *next; rc == 0 && at < text + len; at = next) {
		next = at + strlen(at) + 1;
		rc = parse(w, at);
	}
	if (rc < 0)
		written_done(w);
	w->loaded = rc == 0;
	return rc;
}

static int save(const struct written *w, int dir)
{
	_cleanup_strbuf_ struct strbuf out = { 0 };
	char id[PROJECT_ID_TEXT];

	for (size_t i = 0; i < w->n; i++) {
		strbuf_printf(&out, "%s %s", project_id_print(&w->list[i].id, id), w->list[i].path);
		strbuf_putc(&out, '\0');
	}
	return out.failed ? -ENOMEM : ak_replace_file(dir, FILE_NAME, out.data, out.len, true);
}

static int fail_record(const struct ak_paths *paths, int rc, struct ak_err *err)
{
	return ak_fail_errno(err, -rc, "%s/%s, the record of folders that sandboxes could write", paths->state, FILE_NAME);
}

/* ---- asking ---- */

static bool has_id(const struct written *w, const struct project_id *id)
{
	for (size_t i = 0; i < w->n; i++) {
		if (w->list[i].id.ino && project_id_same(&w->list[i].id, id))
			return true;
	}
	return false;
}

bool written_has(struct written *w, const char *path)
{
	char part[PATH_MAX];
	struct project_id id;

	if (load(w) < 0 || snprintf(part, sizeof(part), "%s", path) >= (int)sizeof(part))
		return true;
	for (size_t i = 0; i < w->n; i++) {
		if (project_inside(path, w->list[i].path))
			return true;
	}
	for (char *slash; w->n && (slash = strrchr(part, '/')) && part[0]; *slash = '\0') {
		if (part[1] && project_id_of(part, &id) == 0 && has_id(w, &id))
			return true;
	}
	return false;
}

bool written_touches(struct written *w, const char *path)
{
	bool yes = written_has(w, path);

	for (size_t i = 0; i < w->n && !yes; i++)
		yes = project_inside(w->list[i].path, path);
	return yes;
}

/* ---- keeping it bounded ---- */

static void drop_missing(struct written *w)
{
	struct stat st;

	for (size_t i = w->n; i-- > 0;) {
		if (lstat(w->list[i].path, &st) < 0 && (errno == ENOENT || errno == ENOTDIR))
			drop(w, i);
	}
}

/* The length of the parent's path; at least that of "/". */
static size_t parent_len(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash == path ? 1 : (size_t)(slash - path);
}

static int by_parent(const void *a, const void *b)
{
	const struct written_folder *x = a, *y = b;
	size_t m = parent_len(x->path), n = parent_len(y->path);
	int order = strncmp(x->path, y->path, m < n ? m : n);

	return order ? order : (m > n) - (m < n);
}

/* Replace the folders of the parent that has most of them by that parent, which keeps its identity if it has one; of several, the deepest. */
static int merge(struct written *w)
{
	const struct written_folder *best = w->list;
	size_t most = 0, run = 0;
	char parent[PATH_MAX];
	struct project_id id;

	qsort(w->list, w->n, sizeof(*w->list), by_parent);
	for (size_t i = 0; i < w->n; i++) {
		run = i && by_parent(&w->list[i - 1], &w->list[i]) == 0 ? run + 1 : 1;
		if (run > most || (run == most && parent_len(w->list[i].path) > parent_len(best->path))) {
			best = &w->list[i];
			most = run;
		}
	}
	snprintf(parent, sizeof(parent), "%.*s", (int)parent_len(best->path), best->path);
	if (project_id_of(parent, &id) < 0 || !has_id(w, &id))
		id = (struct project_id){ 0 };
	for (size_t i = w->n; i-- > 0;) {
		if (project_inside(w->list[i].path, parent))
			drop(w, i);
	}
	return append(w, parent, &id);
}

static int bound(struct written *w)
{
	int rc = 0;

	if (w->n <= WRITTEN_MAX)
		return 0;
	drop_missing(w);
	while (rc == 0 && w->n > KEEP)
		rc = merge(w);
	return rc;
}

/* ---- changing it ---- */

/*
 * Whether the folder ID at PATH is recorded, so that it is recognised also after it was moved: with its own identity, because it may be moved out of a
 * folder that is recorded. What is in a folder that merge() made is not recorded again, or the record would fill up again.
 */
static bool is_recorded(struct written *w, const char *path, const struct project_id *id)
{
	for (size_t i = 0; i < w->n; i++) {
		const struct written_folder *f = &w->list[i];

		if (project_inside(path, f->path) && (!f->id.ino || project_id_same(&f->id, id)))
			return true;
	}
	return false;
}

/* Record what is new in PLAN; returns the number. Our own folders are out of question: nothing in them is followed. */
static int add_new(struct written *w, const struct run_plan *plan)
{
	int added = 0;

	for (size_t i = 0; i < plan->n_mounts; i++) {
		const struct sandbox_mount *m = &plan->mounts[i];
		struct project_id id;
		int rc;

		if (m->readonly || project_inside(m->source, w->paths->state))
			continue;
		rc = project_id_of(m->source, &id);
		if (rc == 0 && is_recorded(w, m->source, &id))
			continue;
		rc = rc < 0 ? rc : append(w, m->source, &id);
		if (rc < 0)
			return rc;
		added++;
	}
	return added;
}

/* Lock the record, which is in the folder *RET_DIR, and read it again: somebody else may have changed it meanwhile. Returns the lock. */
static int load_locked(struct written *w, int *ret_dir)
{
	_cleanup_close_ int dir = -1, lock = -1;
	int rc = ak_mkdir_p(w->paths->state, 0700);

	dir = rc < 0 ? -1 : open(w->paths->state, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	lock = dir < 0 ? -1 : openat(dir, LOCK_NAME, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (lock < 0 || flock(lock, LOCK_EX) < 0)
		return rc < 0 ? rc : -errno;
	written_done(w);
	rc = load(w);
	if (rc < 0)
		return rc;
	*ret_dir = TAKE_FD(dir);
	return TAKE_FD(lock);
}

static int add_locked(struct written *w, const struct run_plan *plan)
{
	_cleanup_close_ int dir = -1, lock = load_locked(w, &dir);
	int rc = lock < 0 ? lock : 0;

	if (rc == 0)
		rc = add_new(w, plan);
	if (rc > 0)
		rc = bound(w);
	return rc < 0 ? rc : save(w, dir);
}

int written_add_plan(const struct ak_paths *paths, const struct run_plan *plan, struct ak_err *err)
{
	_cleanup_(written_done) struct written w = { .paths = paths };
	bool any = false;
	int rc;

	for (size_t i = 0; i < plan->n_mounts; i++)
		any |= !plan->mounts[i].readonly;
	if (!any)
		return 0;
	rc = load(&w);
	if (rc == 0)
		rc = add_new(&w, plan);
	if (rc > 0)
		rc = add_locked(&w, plan);
	return rc < 0 ? fail_record(paths, rc, err) : 0;
}

/* ---- forgetting ---- */

/* The folder around PATH that is recorded, as it is called now; false if there is none. */
static bool around(const struct written *w, const char *path, char ret[static PATH_MAX])
{
	struct project_id id;

	snprintf(ret, PATH_MAX, "%s", path);
	for (char *slash; (slash = strrchr(ret, '/')) && slash > ret;) {
		*slash = '\0';
		for (size_t i = 0; i < w->n; i++) {
			if (!strcmp(w->list[i].path, ret))
				return true;
		}
		if (project_id_of(ret, &id) == 0 && has_id(w, &id))
			return true;
	}
	return false;
}

/* Whether the folder of F is no longer at its path: then it may be anywhere, and only its identity tells that a sandbox could write it. */
static bool is_away(const struct written_folder *f)
{
	struct project_id id;
	char real[PATH_MAX];

	if (!f->id.ino)
		return false;
	/* A link in its place may lead to where it is now. */
	return !realpath(f->path, real) || strcmp(real, f->path) || project_id_of(real, &id) < 0 || !project_id_same(&f->id, &id);
}

/*
 * Drop what is recorded at PATH or is still in it, and the folder that is there now, if it was recorded elsewhere; returns the number. A folder that was
 * moved out of PATH stays: who looked at PATH has not seen what is in it.
 */
static size_t drop_at(struct written *w, const char *path)
{
	struct project_id id;
	bool known = project_id_of(path, &id) == 0;
	size_t before = w->n;

	for (size_t i = w->n; i-- > 0;) {
		const struct written_folder *f = &w->list[i];

		if (!strcmp(f->path, path) || (project_inside(f->path, path) && !is_away(f)) ||
			(known && f->id.ino && project_id_same(&f->id, &id)))
			drop(w, i);
	}
	return before - w->n;
}

static int drop_locked(struct written *w, const char *path, struct ak_err *err)
{
	char parent[PATH_MAX];

	if (around(w, path, parent))
		return ak_fail(
			err, EINVAL, "'%.200s' is recorded with all of '%.200s'; --forget takes that folder", path, parent);
	return drop_at(w, path) ? 0 : ak_fail(err, ENOENT, "'%.200s' is not recorded", path);
}

/*
 * A run that starts meanwhile finds the folder recorded, and does not record it. It registers and then looks again (shared_begin); we change the record
 * and then look at the registered runs again. So at least one side notices.
 */
int written_forget(const struct ak_paths *paths, const char *path, int (*in_use)(void *ctx, struct ak_err *err), void *ctx,
	struct ak_err *err)
{
	_cleanup_(written_done) struct written w = { .paths = paths }, before = { .paths = paths };
	_cleanup_close_ int dir = -1, lock = load_locked(&w, &dir);
	int rc = lock < 0 ? lock : load(&before), undone;

	if (rc < 0)
		return fail_record(paths, rc, err);
	rc = drop_locked(&w, path, err);
	if (rc == 0)
		rc = in_use(ctx, err);
	if (rc < 0)
		return rc;
	rc = save(&w, dir);
	if (rc < 0)
		return fail_record(paths, rc, err);
	rc = in_use(ctx, err);
	undone = rc < 0 ? save(&before, dir) : 0;
	return undone < 0 ? fail_record(paths, undone, err) : rc;
}

int written_list(const struct ak_paths *paths, struct written *ret, struct ak_err *err)
{
	int rc;

	*ret = (struct written){ .paths = paths };
	rc = load(ret);
	return rc < 0 ? fail_record(paths, rc, err) : 0;
}
