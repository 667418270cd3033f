/*
 * Removes a tree that a sandbox may have built to be hard to remove: see io.h.
 *
 * Theory of operation. Folders are emptied depth first, with one descriptor per level. At depth LEVELS, the next folder is not
 * entered but moved up to the top of the tree, where a later pass removes it: depth costs passes, not memory. The last pass
 * is the one that changes nothing.
 */
#include "gateway/base/io.h"

#include "gateway/base/cleanup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LEVELS 32
#define PASSES_MAX (1u << 20) /* another process may add files as fast as we remove them */

struct level {
	DIR *dir; /* owned */
	char name[NAME_MAX + 1]; /* in its parent */
};

struct removal {
	struct level levels[LEVELS];
	unsigned depth; /* levels in use */
	bool progress; /* this pass changed something */
	int error; /* the last error of this pass */
	char *where; /* borrowed */
};

static void failed(struct removal *r, const char *name, int error)
{
	size_t len = 0;

	r->error = error;
	r->where[0] = '\0';
	for (unsigned i = 0; i < r->depth && len < AK_WHERE_MAX; i++)
		len += (size_t)snprintf(r->where + len, AK_WHERE_MAX - len, "%s/", r->levels[i].name);
	if (len < AK_WHERE_MAX)
		snprintf(r->where + len, AK_WHERE_MAX - len, "%s", name);
}

/* ---- one folder ---- */

/* Open without following a link or crossing into another mount. */
static int open_beneath(int dir, const char *name, uint64_t flags)
{
	struct open_how how = {
		.flags = flags | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC,
		.resolve = RESOLVE_NO_XDEV | RESOLVE_NO_SYMLINKS | RESOLVE_BENEATH,
	};
	long fd = syscall(SYS_openat2, dir, name, &how, sizeof(how));

	return fd < 0 ? -errno : (int)fd;
}

/* Make a folder accessible. We own it and may change its mode; overlayfs leaves a work folder of mode 0. */
static int unlock(int dir, const char *name)
{
	_cleanup_close_ int pinned = open_beneath(dir, name, O_PATH);
	char path[40];

	if (pinned < 0)
		return pinned;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", pinned);
	return chmod(path, 0700) < 0 ? -errno : 0;
}

static int open_folder(int dir, const char *name)
{
	int fd = open_beneath(dir, name, O_RDONLY), rc;
	struct stat st;

	if (fd == -EACCES) {
		rc = unlock(dir, name);
		fd = rc < 0 ? rc : open_beneath(dir, name, O_RDONLY);
	}
	if (fd >= 0 && fstat(fd, &st) == 0 && (st.st_mode & 0700) != 0700)
		(void)fchmod(fd, 0700);
	return fd;
}

/* Enter FD, the folder NAME, as the next level; takes ownership of FD. */
static int push(struct removal *r, int fd, const char *name)
{
	struct level *l = &r->levels[r->depth];

	if (fd < 0)
		return fd;
	l->dir = fdopendir(fd);
	if (!l->dir) {
		int rc = -errno;

		ak_close(fd);
		return rc;
	}
	snprintf(l->name, sizeof(l->name), "%s", name);
	r->depth++;
	return 0;
}

static int dir_of(const struct removal *r, unsigned depth)
{
	return dirfd(r->levels[depth].dir);
}

/* Too deep to enter: move it to the top under a unique name. */
static int lift(struct removal *r, int dir, const char *name)
{
	char fresh[32];
	int rc = ak_fresh_name(fresh);

	if (rc < 0)
		return rc;
	rc = renameat(dir, name, dir_of(r, 0), fresh) < 0 ? -errno : 0;
	if (rc == -EACCES && unlock(dir, name) == 0) /* moving a folder changes its "..", so it must be writable itself */
		rc = renameat(dir, name, dir_of(r, 0), fresh) < 0 ? -errno : 0;
	r->progress |= rc == 0;
	return rc;
}

/* ---- a pass ---- */

/* Remove NAME, or enter it, or move it up. */
static void take(struct removal *r, const char *name)
{
	int dir = dir_of(r, r->depth - 1), rc;

	rc = unlinkat(dir, name, 0) < 0 ? -errno : 0;
	if (rc == -EISDIR || rc == -EPERM) {
		int as_folder = unlinkat(dir, name, AT_REMOVEDIR) < 0 ? -errno : 0;

		rc = as_folder == -ENOTDIR ? rc : as_folder;
	}
	r->progress |= rc == 0;
	if (rc == -ENOTEMPTY || rc == -EEXIST)
		rc = r->depth < LEVELS ? push(r, open_folder(dir, name), name) : lift(r, dir, name);
	if (rc < 0 && rc != -ENOENT)
		failed(r, name, rc);
}

/* The deepest level is exhausted: remove it. */
static void pop(struct removal *r)
{
	struct level *l = &r->levels[--r->depth];

	closedir(l->dir);
	if (r->depth == 0)
		return;
	if (unlinkat(dir_of(r, r->depth - 1), l->name, AT_REMOVEDIR) == 0)
		r->progress = true;
	else if (errno != ENOENT && errno != ENOTEMPTY &&
		errno != EEXIST) /* remaining entries were already reported, or are for the next pass */
		failed(r, l->name, -errno);
}

static void empty(struct removal *r)
{
	while (r->depth > 0) {
		struct dirent *e = readdir(r->levels[r->depth - 1].dir);

		if (!e)
			pop(r);
		else if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
			take(r, e->d_name);
	}
}

/* The caller's path may contain links; a single name is opened like any other entry. */
static int open_top(int dir, const char *name)
{
	const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
	int fd;

	if (!strchr(name, '/'))
		return open_folder(dir, name);
	fd = openat(dir, name, flags);
	if (fd < 0 && errno == EACCES && fchmodat(dir, name, 0700, 0) == 0)
		fd = openat(dir, name, flags);
	if (fd >= 0)
		(void)fchmod(fd, 0700);
	return fd < 0 ? -errno : fd;
}

static int remove_folder(struct removal *r, int dirfd, const char *name)
{
	const char *slash = strrchr(name, '/'), *base = slash ? slash + 1 : name;

	for (unsigned i = 0; i < PASSES_MAX; i++) {
		int rc = push(r, open_top(dirfd, name), base);

		if (rc < 0) {
			failed(r, base, rc);
			break;
		}
		r->progress = false;
		r->error = 0;
		empty(r);
		if (unlinkat(dirfd, name, AT_REMOVEDIR) == 0 || errno == ENOENT)
			return 0;
		if (r->error == 0)
			failed(r, base, -errno);
		if (!r->progress)
			break;
	}
	return r->error;
}

int ak_remove_tree(int dirfd, const char *name)
{
	char where[AK_WHERE_MAX];

	return ak_remove_tree_told(dirfd, name, where);
}

int ak_remove_tree_told(int dirfd, const char *name, char where[static AK_WHERE_MAX])
{
	_cleanup_free_ struct removal *r = NULL;

	if (unlinkat(dirfd, name, 0) == 0 || errno == ENOENT)
		return 0;
	snprintf(where, AK_WHERE_MAX, "%s", name);
	if (errno != EISDIR && errno != EPERM)
		return -errno;
	r = calloc(1, sizeof(*r));
	if (!r)
		return -ENOMEM;
	r->where = where;
	return remove_folder(r, dirfd, name);
}
