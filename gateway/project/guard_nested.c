/*
 * Git folders of submodules and worktrees inside a git folder: see project/guard.h.
 *
 * Files that a sandbox left there cannot weaken the protection: modules and worktrees are read-only, and a git folder in them
 * is writable only if all its protected files are mounted. If there are too many git folders, or some cannot be read, none is
 * writable.
 */
#include "gateway/project/guard_internal.h"

#include "gateway/base/cleanup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#define NESTED_MAX 16 /* git folders in one git folder */
#define ENTRIES_MAX 1024
#define DEPTH_MAX 8

#define WORKTREES "worktrees"

const char *const guard_git_inner[] = { WORKTREES, "modules", NULL };

/* ---- finding them ---- */

static int list(struct guard_walk *w, const char *rel, unsigned depth, bool flat);

/* The type of NAME, 0 if it does not exist, -errno if that cannot be determined. */
static int type_of(int dir, const char *name)
{
	struct stat st;

	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0)
		return (int)(st.st_mode & S_IFMT);
	return errno == ENOENT ? 0 : -errno;
}

static int visit_link(struct guard_walk *w, const char *rel)
{
	w->links++;
	return w->fn(w->ctx, w->root, rel, GUARD_LINK);
}

static int visit_inner(struct guard_walk *w, const char *rel, const char *inner, unsigned depth)
{
	_cleanup_free_ char *path = guard_join(rel, inner);
	struct stat st;
	int fd = path ? guard_open(w->g, w->root, path, &st) : -ENOMEM, rc;

	if (fd == -ENOENT || fd == -ENOTDIR || fd == -ELOOP) /* a link on the way is visited itself */
		return 0;
	if (fd < 0)
		return fd;
	ak_close(fd);
	if (S_ISLNK(st.st_mode))
		return visit_link(w, path);
	if (!S_ISDIR(st.st_mode))
		return 0;
	rc = w->fn(w->ctx, w->root, path, GUARD_INNER);
	return rc < 0 ? rc : list(w, path, depth + 1, !strcmp(inner, WORKTREES));
}

/* Like git's own check: HEAD may be a link. An incomplete git folder stays read-only. */
static int kind_of(int fd, enum guard_kind *ret)
{
	int head = type_of(fd, "HEAD"), objects = type_of(fd, "objects"), refs = type_of(fd, "refs"),
	    config = type_of(fd, "config");

	if (head < 0 || objects < 0 || refs < 0 || config < 0)
		return -EACCES;
	*ret = head && objects == S_IFDIR && refs == S_IFDIR ? GUARD_GIT
		: head || config || objects || refs	     ? GUARD_LIKE
							     : GUARD_INNER;
	return 0;
}

/*
 * REL is a folder below modules or worktrees: a git folder, or a component of its name. In worktrees (FLAT) all entries are
 * git folders.
 */
static int visit(struct guard_walk *w, int fd, const char *rel, unsigned depth, bool flat)
{
	enum guard_kind kind = GUARD_GIT;
	int rc = flat ? 0 : kind_of(fd, &kind);

	if (rc == 0 && (depth > DEPTH_MAX || (kind != GUARD_INNER && ++w->found > NESTED_MAX)))
		return -E2BIG;
	if (rc == 0 && kind != GUARD_INNER)
		rc = w->fn(w->ctx, w->root, rel, kind);
	if (rc == 0 && kind != GUARD_GIT)
		return list(w, rel, depth + 1, false);
	for (size_t i = 0; rc == 0 && guard_git_inner[i]; i++)
		rc = visit_inner(w, rel, guard_git_inner[i], depth + 1);
	return rc;
}

static int visit_entry(struct guard_walk *w, int dir, const char *rel, const char *name, unsigned depth, bool flat)
{
	int type = type_of(dir, name);
	_cleanup_free_ char *path = guard_join(rel, name);
	_cleanup_close_ int fd = -1;

	if (!path)
		return -ENOMEM;
	if (type < 0 || ++w->entries > ENTRIES_MAX)
		return type < 0 ? type : -E2BIG;
	if (type == S_IFLNK)
		return visit_link(w, path);
	if (type != S_IFDIR)
		return 0;
	fd = openat(dir, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return fd < 0 ? -errno : visit(w, fd, path, depth, flat);
}

/* Visit all entries of the folder REL. */
static int list(struct guard_walk *w, const char *rel, unsigned depth, bool flat)
{
	struct stat st;
	_cleanup_close_ int fd = guard_open(w->g, w->root, rel, &st);
	int entries = fd < 0 ? -1 : openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), rc = 0;
	DIR *dir;

	if (entries < 0)
		return fd < 0 ? fd : -errno;
	dir = fdopendir(entries);
	if (!dir) {
		ak_close(entries);
		return -ENOMEM;
	}
	for (const struct dirent *e; rc == 0 && (e = readdir(dir));) {
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
			rc = visit_entry(w, entries, rel, e->d_name, depth, flat);
	}
	closedir(dir);
	return rc;
}

int guard_nested(struct guard_walk *w, const char *rel, const char *inner)
{
	return visit_inner(w, rel, inner, 0);
}

/* ---- protecting them ---- */

int guard_protect_folder(struct guard *g, size_t root, const char *rel)
{
	int rc = 0;

	for (size_t i = 0; guard_git_names[i] && rc == 0; i++) {
		_cleanup_free_ char *path = guard_join(rel, guard_git_names[i]);

		rc = path ? guard_protect(g, root, path) : -ENOMEM;
	}
	return rc;
}

static int protect_one(void *ctx, size_t root, const char *rel, enum guard_kind kind)
{
	int rc = 0;

	switch (kind) {
	case GUARD_INNER:
	case GUARD_LINK:
		return guard_protect(ctx, root, rel);
	case GUARD_GIT:
		((struct guard *)ctx)->has_nested = true;
		rc = guard_except(ctx, root, rel);
		return rc < 0 ? rc : guard_protect_folder(ctx, root, rel);
	case GUARD_LIKE:
		break;
	}
	return rc;
}

static void say_closed(struct guard *g, const char *rel, bool worktrees, int rc)
{
	const char *why = "you have no permission to read all of it (fix: chmod -R u+rwX)";

	if (rc == -E2BIG)
		why = "it has more git folders or files than can be protected one by one";
	if (rc == -ELOOP)
		why = "it contains symbolic links, or some lead into it";
	guard_say(g, "'%.120s' is read-only inside, so git cannot %s: %s", rel,
		worktrees ? "add worktrees or commit in those it has" : "commit in submodules", why);
}

/* If it has no mount of its own, a mount above makes it read-only, or it is a link to a read-only target. */
static int close_inner(struct guard *g, size_t root, const char *rel, bool worktrees, int why)
{
	int rc = guard_reset(g, root, rel, true);

	say_closed(g, rel, worktrees, why);
	return rc == -ENOENT && why == -ELOOP ? 0 : rc < 0 ? why : 0;
}

static int protect_inner(struct guard *g, size_t root, const char *rel, const char *inner)
{
	struct guard_walk w = { .g = g, .root = root, .fn = protect_one, .ctx = g };
	_cleanup_free_ char *path = guard_join(rel, inner);
	bool worktrees = !strcmp(inner, WORKTREES), entered;
	int rc;

	if (!path)
		return -ENOMEM;
	if (!g->protect || guard_closed(g, root, path))
		return 0;
	entered = guard_holds(g, root, path); /* through a link with a protected name: its target must stay read-only */
	rc = guard_nested(&w, rel, inner);
	if (rc == 0 && (entered || w.links))
		rc = -ELOOP;
	if (rc == -ENOMEM)
		return rc;
	if (rc < 0)
		return close_inner(g, root, path, worktrees, rc);
	if (worktrees) /* new ones may be added, and are reported */
		(void)guard_reset(g, root, path, false);
	return 0;
}

int guard_protect_nested(struct guard *g, size_t root, const char *rel)
{
	int rc = 0;

	for (size_t i = 0; guard_git_inner[i] && rc == 0; i++)
		rc = protect_inner(g, root, rel, guard_git_inner[i]);
	return rc;
}
