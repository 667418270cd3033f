/*
 * Copy a tree that a sandbox wrote: see base/clone.h.
 *
 * Theory of operation. Only two folders are open: the current one of each side. The files of a folder are copied while it is read; the names of
 * its folders are remembered and entered one after the other. The way back is "..", checked by inode. So depth costs memory, not descriptors.
 */
#include "gateway/base/clone.h"

#include "gateway/base/cleanup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#define XATTR_BYTES 65536 /* the kernel's limit for a list and for a value */

struct level {
	char **names; /* owned: folders to enter */
	size_t n, cap, at;
	struct stat st; /* of the source folder */
	dev_t to_dev; /* identity of the copy */
	ino_t to_ino;
};

struct walk {
	struct ak_clone *ret; /* borrowed */
	int from, to; /* owned: the current folders */
	int links; /* borrowed */
	struct level *levels; /* owned */
	size_t depth, cap;
	char names[XATTR_BYTES], value[XATTR_BYTES];
};

static int failed(struct walk *w, const char *name, int rc)
{
	size_t len = 0;

	for (size_t i = 0; i + 1 < w->depth && len < AK_WHERE_MAX; i++)
		len += (size_t)snprintf(w->ret->where + len, AK_WHERE_MAX - len, "%s/", w->levels[i].names[w->levels[i].at - 1]);
	if (len < AK_WHERE_MAX)
		snprintf(w->ret->where + len, AK_WHERE_MAX - len, "%s", name);
	return rc;
}

/* ---- data ---- */

static int copy_plainly(int from, int to, off_t at, off_t end)
{
	static char block[1 << 18];

	while (at < end) {
		size_t want = end - at < (off_t)sizeof(block) ? (size_t)(end - at) : sizeof(block);
		ssize_t n = ak_pread_all(from, block, want, (uint64_t)at);

		if (n <= 0)
			return (int)n;
		if (pwrite(to, block, (size_t)n, at) != n)
			return errno ? -errno : -ENOSPC;
		at += n;
	}
	return 0;
}

static int copy_range(int from, int to, off_t at, off_t end)
{
	while (at < end) {
		off_t in = at, out = at;
		ssize_t n = copy_file_range(from, &in, to, &out, (size_t)(end - at), 0);

		if (n < 0 && (errno == EXDEV || errno == EINVAL || errno == EOPNOTSUPP || errno == ENOSYS || errno == EPERM))
			return copy_plainly(from, to, at, end);
		if (n <= 0)
			return n < 0 ? -errno : 0; /* 0: the file has become shorter */
		at += n;
	}
	return 0;
}

int ak_clone_data(int from, int to, off_t size)
{
	off_t at = 0;

	if (ioctl(to, FICLONE, from) == 0)
		return 0;
	while (at < size) {
		off_t data = lseek(from, at, SEEK_DATA), end;
		int rc;

		if (data < 0 && errno == ENXIO)
			break;
		if (data < 0)
			data = at; /* this file system does not support SEEK_DATA */
		end = lseek(from, data, SEEK_HOLE);
		if (end < 0 || end > size)
			end = size;
		rc = data < end ? copy_range(from, to, data, end) : 0;
		if (rc < 0)
			return rc;
		at = end > at ? end : size;
	}
	return ftruncate(to, size) < 0 ? -errno : 0;
}

/* ---- attributes ---- */

static bool keeps_xattr(const char *name)
{
	return !strncmp(name, "user.", 5) || !strncmp(name, "trusted.overlay.", 16) || !strncmp(name, "system.posix_acl_", 17);
}

static int copy_xattrs(struct walk *w, int from, int to)
{
	ssize_t len = flistxattr(from, w->names, sizeof(w->names));

	if (len < 0)
		return errno == ENOTSUP ? 0 : -errno;
	for (const char *name = w->names; name < w->names + len; name += strlen(name) + 1) {
		ssize_t n = keeps_xattr(name) ? fgetxattr(from, name, w->value, sizeof(w->value)) : -1;

		if (n >= 0 && fsetxattr(to, name, w->value, (size_t)n, 0) < 0)
			return -errno;
	}
	return 0;
}

/* The mode last: a change of owner clears bits of it. */
static int copy_attributes(struct walk *w, int from, int to, const struct stat *st)
{
	const struct timespec times[2] = { st->st_atim, st->st_mtim };
	int rc = fchown(to, st->st_uid, st->st_gid) < 0 ? -errno : copy_xattrs(w, from, to);

	if (rc == 0 && fchmod(to, st->st_mode & (S_ISDIR(st->st_mode) ? 03777 : 01777)) < 0)
		rc = -errno;
	if (rc == 0 && futimens(to, times) < 0)
		rc = -errno;
	return rc;
}

static int copy_attributes_of_name(struct walk *w, const char *name, const struct stat *st)
{
	const struct timespec times[2] = { st->st_atim, st->st_mtim };

	if (fchownat(w->to, name, st->st_uid, st->st_gid, AT_SYMLINK_NOFOLLOW) < 0 ||
		utimensat(w->to, name, times, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	return !S_ISLNK(st->st_mode) && fchmodat(w->to, name, st->st_mode & 0777, 0) < 0 ? -errno : 0;
}

/* ---- one entry that is not a folder ---- */

static int copy_file(struct walk *w, const char *name)
{
	_cleanup_close_ int from = openat(w->from, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC), to = -1;
	struct stat st;
	int rc;

	if (from < 0 || fstat(from, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EINVAL;
	to = openat(w->to, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (to < 0)
		return -errno;
	rc = ak_clone_data(from, to, st.st_size);
	w->ret->bytes += (uint64_t)st.st_blocks * 512;
	return rc < 0 ? rc : copy_attributes(w, from, to, &st);
}

static int copy_link(struct walk *w, const char *name)
{
	char target[PATH_MAX];
	ssize_t len = readlinkat(w->from, name, target, sizeof(target) - 1);

	if (len < 0)
		return -errno;
	target[len] = '\0';
	return symlinkat(target, w->to, name) < 0 ? -errno : 0;
}

static int make_entry(struct walk *w, const char *name, const struct stat *st)
{
	int rc;

	if (S_ISREG(st->st_mode))
		return copy_file(w, name);
	if (S_ISLNK(st->st_mode))
		rc = copy_link(w, name);
	else if (S_ISFIFO(st->st_mode) || S_ISSOCK(st->st_mode) || (S_ISCHR(st->st_mode) && st->st_rdev == makedev(0, 0)))
		rc = mknodat(w->to, name, (st->st_mode & S_IFMT) | 0600, st->st_rdev) < 0 ? -errno : 0;
	else
		return 0; /* a device */
	return rc < 0 ? rc : copy_attributes_of_name(w, name, st);
}

/* The first name of a file with several is also linked into LINKS, under its inode number, where the others find it. */
static int copy_entry(struct walk *w, const char *name, const struct stat *st)
{
	bool several = st->st_nlink > 1;
	char id[24];
	int rc;

	snprintf(id, sizeof(id), "%llx", (unsigned long long)st->st_ino);
	if (several && linkat(w->links, id, w->to, name, 0) == 0)
		return 0;
	rc = make_entry(w, name, st);
	if (rc == 0 && several)
		(void)!linkat(w->to, name, w->links, id, 0);
	return rc;
}

/* ---- folders ---- */

static int remember(struct level *l, const char *name)
{
	if (l->n == l->cap) {
		size_t cap = l->cap ? 2 * l->cap : 16;
		char **grown = realloc(l->names, cap * sizeof(*grown));

		if (!grown)
			return -ENOMEM;
		l->names = grown;
		l->cap = cap;
	}
	l->names[l->n] = strdup(name);
	return l->names[l->n++] ? 0 : -ENOMEM;
}

static int take_entry(struct walk *w, const char *name)
{
	struct stat st;
	int rc;

	if (!strcmp(name, ".") || !strcmp(name, ".."))
		return 0;
	if (++w->ret->files > AK_CLONE_ENTRIES_MAX)
		return -EOVERFLOW;
	if (fstatat(w->from, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	if (!S_ISDIR(st.st_mode))
		return copy_entry(w, name, &st);
	rc = mkdirat(w->to, name, 0700) < 0 ? -errno : 0;
	return rc < 0 ? rc : remember(&w->levels[w->depth - 1], name);
}

static int read_folder(struct walk *w)
{
	int fd = openat(w->from, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), rc = 0;
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;

	if (!dir) {
		rc = -errno;
		ak_close(fd);
		return failed(w, ".", rc);
	}
	while (rc == 0 && (errno = 0, e = readdir(dir))) {
		rc = take_entry(w, e->d_name);
		if (rc < 0)
			failed(w, e->d_name, rc);
	}
	if (rc == 0 && errno)
		rc = failed(w, ".", -errno);
	closedir(dir);
	return rc;
}

static int open_folder(int dir, const char *name)
{
	int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

/* FROM and TO become the current folders; takes ownership of both. */
static int enter(struct walk *w, int from, int to)
{
	struct level *l;
	struct stat st;

	if (w->depth == w->cap) {
		size_t cap = w->cap ? 2 * w->cap : 32;
		struct level *grown = realloc(w->levels, cap * sizeof(*grown));

		if (grown)
			w->levels = grown;
		w->cap = grown ? cap : w->cap;
	}
	ak_close(w->from);
	ak_close(w->to);
	w->from = from;
	w->to = to;
	if (w->depth == w->cap)
		return -ENOMEM;
	l = &w->levels[w->depth];
	*l = (struct level){ .n = 0 };
	if (from < 0 || to < 0)
		return from < 0 ? from : to;
	if (fstat(from, &l->st) < 0 || fstat(to, &st) < 0)
		return -errno;
	l->to_dev = st.st_dev;
	l->to_ino = st.st_ino;
	w->depth++;
	return 0;
}

static void free_level(struct level *l)
{
	for (size_t i = 0; i < l->n; i++)
		free(l->names[i]);
	free(l->names);
}

static bool is_folder(int fd, dev_t dev, ino_t ino)
{
	struct stat st;

	return fd >= 0 && fstat(fd, &st) == 0 && st.st_dev == dev && st.st_ino == ino;
}

/* The current folder is complete: give it its attributes, which may take our access away, after the parents are open. */
static int leave(struct walk *w)
{
	struct level *l = &w->levels[w->depth - 1], *up = w->depth > 1 ? l - 1 : NULL;
	int from = up ? open_folder(w->from, "..") : -1, to = up ? open_folder(w->to, "..") : -1;
	int rc = copy_attributes(w, w->from, w->to, &l->st);

	if (rc == 0 && up && (!is_folder(from, up->st.st_dev, up->st.st_ino) || !is_folder(to, up->to_dev, up->to_ino)))
		rc = -ESTALE;
	if (rc < 0)
		failed(w, ".", rc);
	free_level(l);
	w->depth--;
	ak_close(w->from);
	ak_close(w->to);
	w->from = from;
	w->to = to;
	return rc;
}

static int walk(struct walk *w)
{
	int rc = read_folder(w);

	while (rc == 0 && w->depth > 0) {
		struct level *l = &w->levels[w->depth - 1];

		if (l->at == l->n) {
			rc = leave(w);
			continue;
		}
		const char *name = l->names[l->at++];

		rc = enter(w, open_folder(w->from, name), open_folder(w->to, name));
		rc = rc < 0 ? failed(w, name, rc) : read_folder(w);
	}
	return rc;
}

int ak_clone_tree(int from, int to, int links, struct ak_clone *ret)
{
	_cleanup_free_ struct walk *w = calloc(1, sizeof(*w));
	int rc;

	*ret = (struct ak_clone){ 0 };
	if (!w)
		return -ENOMEM;
	w->ret = ret;
	w->from = w->to = -1;
	w->links = links;
	rc = enter(w, open_folder(from, "."), open_folder(to, "."));
	if (rc == 0)
		rc = walk(w);
	while (w->depth > 0)
		free_level(&w->levels[--w->depth]);
	free(w->levels);
	ak_close(w->from);
	ak_close(w->to);
	return rc;
}
