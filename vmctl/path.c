/* Paths below a descriptor: see path.h. */
#include "vmctl/path.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#define ASIDE_MAX 16 /* numbered names to try when renaming */
#define FOLDER_FLAGS (O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)

/* ---- renaming what is in the way ---- */

/* Rename instead of deleting: the user may want to look at it. */
static int move_aside(int dir_fd, const char *name)
{
	char aside[NAME_MAX + 16];
	int rc;

	for (int i = 0; i < ASIDE_MAX; i++) {
		snprintf(aside, sizeof(aside), i ? "%.*s.replaced.%d" : "%.*s.replaced", NAME_MAX - 16, name, i);
		if (syscall(SYS_renameat2, dir_fd, name, dir_fd, aside, 1 /* RENAME_NOREPLACE */) == 0)
			return 0;
		if (errno != EEXIST)
			return -errno;
	}
	rc = ak_fresh_name(aside);
	return rc < 0 ? rc : renameat(dir_fd, name, dir_fd, aside) < 0 ? -errno : 0;
}

static bool same_mount(int a, int b)
{
	struct statx x, y;

	return statx(a, "", AT_EMPTY_PATH, STATX_MNT_ID, &x) == 0 && statx(b, "", AT_EMPTY_PATH, STATX_MNT_ID, &y) == 0 &&
		(x.stx_mask & y.stx_mask & STATX_MNT_ID) && x.stx_mnt_id == y.stx_mnt_id;
}

/* ---- walking a path, creating missing components ---- */

static int make_step(int dir_fd, const char *name, mode_t mode)
{
	int fd;

	if (mkdirat(dir_fd, name, mode) < 0 && errno != EEXIST)
		return -errno;
	fd = openat(dir_fd, name, FOLDER_FLAGS);
	return fd < 0 ? -errno : fd;
}

/* ROOT_FD: rename only what is in its mount; -1: in any mount. */
static int step(int root_fd, int dir_fd, const char *name, mode_t mode)
{
	int fd, rc;

	if (!strcmp(name, ".."))
		return -EINVAL;
	fd = openat(dir_fd, name, FOLDER_FLAGS);
	if (fd >= 0)
		return fd;
	if (errno == ENOTDIR && (root_fd < 0 || same_mount(root_fd, dir_fd))) {
		rc = move_aside(dir_fd, name);
		if (rc < 0)
			return rc;
	} else if (errno != ENOENT) {
		return -errno;
	}
	return make_step(dir_fd, name, mode);
}

static int make_dir(int root_fd, const char *path, mode_t mode, bool own, int *ret_fd)
{
	_cleanup_close_ int fd = openat(root_fd, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
	char copy[PATH_MAX], *save = NULL;
	size_t len = strlen(path);

	if (fd < 0)
		return -errno;
	if (len >= sizeof(copy))
		return -ENAMETOOLONG;
	memcpy(copy, path, len + 1);
	for (char *name = strtok_r(copy, "/", &save); name; name = strtok_r(NULL, "/", &save)) {
		int next = step(own ? -1 : root_fd, fd, name, mode);

		if (next < 0)
			return next;
		ak_close(fd);
		fd = next;
	}
	*ret_fd = TAKE_FD(fd);
	return 0;
}

int path_make_dir(int root_fd, const char *path, mode_t mode, int *ret_fd)
{
	return make_dir(root_fd, path, mode, false, ret_fd);
}

int path_make_own_dir(int root_fd, const char *path, mode_t mode, int *ret_fd)
{
	return make_dir(root_fd, path, mode, true, ret_fd);
}

int path_make_file(int root_fd, const char *path, int *ret_fd)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	_cleanup_close_ int dir_fd = -1, made = -1;
	char parent[PATH_MAX];
	size_t len = slash ? (size_t)(slash - path) : 0;
	struct stat st;
	int rc, fd;

	if (len >= sizeof(parent))
		return -ENAMETOOLONG;
	if (!name[0] || !strcmp(name, ".") || !strcmp(name, ".."))
		return -EINVAL;
	memcpy(parent, path, len);
	parent[len] = '\0';
	rc = path_make_dir(root_fd, parent, 0755, &dir_fd);
	if (rc < 0)
		return rc;
	fd = openat(dir_fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	if (fd >= 0 && same_mount(root_fd, dir_fd) && fstat(fd, &st) == 0 && S_ISDIR(st.st_mode)) { /* left by a sandbox */
		ak_close(fd);
		rc = move_aside(dir_fd, name);
		if (rc < 0)
			return rc;
		fd = openat(dir_fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	}
	if (fd < 0 && errno == ENOENT) {
		made = openat(dir_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
		fd = made < 0 ? -1 : openat(dir_fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	}
	if (fd < 0)
		return -errno;
	*ret_fd = fd;
	return 0;
}

/* ---- one name in an existing folder ---- */

/* The last component of a path, and its folder. */
struct place {
	int dir_fd; /* borrowed, or equal to OWNED */
	int owned;
	char name[NAME_MAX + 1];
	bool folder; /* the path ended in a slash */
};

static void place_done(struct place *p)
{
	ak_close(p->owned);
}

/* Names at the top level are the most frequent and need no lookup. */
static int find_place(int root_fd, const char *path, struct place *ret)
{
	struct open_how how = { .flags = FOLDER_FLAGS, .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS };
	size_t len = strlen(path), head;
	char parent[PATH_MAX];

	ret->folder = len && path[len - 1] == '/';
	len -= ret->folder;
	for (head = len; head && path[head - 1] != '/'; head--)
		;
	if (len - head > NAME_MAX || head >= sizeof(parent))
		return -ENAMETOOLONG;
	memcpy(ret->name, path + head, len - head);
	ret->name[len - head] = '\0';
	ret->dir_fd = root_fd;
	if (!head)
		return 0;
	memcpy(parent, path, head);
	parent[head] = '\0';
	ret->dir_fd = ret->owned = (int)syscall(SYS_openat2, root_fd, parent, &how, sizeof(how));
	return ret->owned < 0 ? -errno : 0;
}

static int make_entry(const struct place *p, mode_t mode)
{
	int rc = p->folder ? mkdirat(p->dir_fd, p->name, mode) : mknodat(p->dir_fd, p->name, S_IFREG | mode, 0);

	return rc < 0 ? -errno : 0;
}

/* Create a folder or a file of that name, whatever was there before. */
static int place_fill(const struct place *p, mode_t mode)
{
	int rc = make_entry(p, mode);
	struct stat st;

	if (rc != -EEXIST)
		return rc;
	if (fstatat(p->dir_fd, p->name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	if (p->folder ? S_ISDIR(st.st_mode) : S_ISREG(st.st_mode) || S_ISCHR(st.st_mode))
		return 0;
	rc = move_aside(p->dir_fd, p->name);
	return rc < 0 ? rc : make_entry(p, mode);
}

int path_folder(int root_fd, const char *path, mode_t mode)
{
	_cleanup_(place_done) struct place p = { .owned = -1 };
	int rc = find_place(root_fd, path, &p);

	p.folder = true;
	return rc < 0 ? rc : place_fill(&p, mode);
}

int path_target(int root_fd, const char *path)
{
	_cleanup_(place_done) struct place p = { .owned = -1 };
	int rc = find_place(root_fd, path, &p), fd;

	if (rc == 0)
		rc = place_fill(&p, p.folder ? 0755 : 0644);
	if (rc < 0)
		return rc;
	fd = openat(p.dir_fd, p.name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

int path_link(int root_fd, const char *path, const char *target)
{
	_cleanup_(place_done) struct place p = { .owned = -1 };
	int rc = find_place(root_fd, path, &p);

	if (rc < 0)
		return rc;
	return symlinkat(target, p.dir_fd, p.name) < 0 && errno != EEXIST ? -errno : 0;
}

int path_write(int root_fd, const char *path, const char *text)
{
	const int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
	_cleanup_(place_done) struct place p = { .owned = -1 };
	_cleanup_close_ int fd = -1;
	int rc = find_place(root_fd, path, &p);

	if (rc < 0)
		return rc;
	fd = openat(p.dir_fd, p.name, flags, 0644);
	if (fd < 0 && errno == EEXIST) { /* from an earlier start, and perhaps no longer a file */
		if (unlinkat(p.dir_fd, p.name, 0) < 0)
			rc = errno == EISDIR ? move_aside(p.dir_fd, p.name) : -errno;
		if (rc < 0)
			return rc;
		fd = openat(p.dir_fd, p.name, flags, 0644);
	}
	if (fd < 0)
		return -errno;
	return ak_write_all(fd, text, strlen(text));
}
