/* Applying a layer: see layer.h. */
#include "gateway/image/layer.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/image/inodes.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define WHITEOUT ".wh."
#define OPAQUE ".wh..wh..opq"
#define COPY_BYTES (256u << 10)
#define INODE_BYTES 4096 /* charged for each file and folder besides its content: about what it takes on disk */
#define REMOVE_DEPTH_MAX 1024 /* links can make a tree deeper than any path in a layer */

struct applying {
	struct layer_totals *totals;
	struct inodes
		own; /* that this layer made: whiteouts hide only what lower layers made, wherever in the layer they stand */
	struct inodes cleared; /* folders in which nothing of lower layers is left */
	char *buf;
};

static int mark_own(struct applying *a, const char *path)
{
	struct stat st;

	return lstat(path, &st) < 0 ? -errno : inodes_add(&a->own, st.st_ino);
}

static int charge(struct layer_totals *t, uint64_t bytes, struct ak_err *err)
{
	if (bytes > t->max_bytes - t->bytes)
		return ak_fail(err, EFBIG, "the image unpacks to more than %llu MiB; --max-size raises the limit",
			(unsigned long long)(t->max_bytes >> 20));
	t->bytes += bytes;
	return 0;
}

/* For each entry, and each folder that is made above one: a layer of a few kilobytes can name a million of them. */
static int charge_inode(struct applying *a, struct ak_err *err)
{
	if (++a->totals->inodes > LAYER_INODES_MAX)
		return ak_fail(err, EFBIG, "the image has more than %d files and folders", LAYER_INODES_MAX);
	return charge(a->totals, INODE_BYTES, err);
}

/* ---- paths ---- */

/* "/a/b" from "./a//b/"; "/" from ".". A name with ".." is refused. */
static int clean_path(const char *name, char ret[static TAR_PATH_MAX + 1], struct ak_err *err)
{
	size_t len = 0;
	unsigned depth = 0;

	for (const char *p = name; *p;) {
		size_t n = strcspn(p, "/");

		if (n == 2 && p[0] == '.' && p[1] == '.')
			return ak_fail(err, EBADMSG, "'%.200s' in the layer contains '..'", name);
		if (n > NAME_MAX || ++depth > LAYER_DEPTH_MAX)
			return ak_fail(err, EBADMSG, "'%.100s…' in the layer is too long or too deep", name);
		if (n && !(n == 1 && p[0] == '.')) {
			ret[len++] = '/';
			memcpy(ret + len, p, n);
			len += n;
		}
		p += n + (p[n] == '/');
	}
	if (!len)
		ret[len++] = '/';
	ret[len] = '\0';
	return 0;
}

/* A folder above an entry; there may be one already. */
static int make_parent(struct applying *a, const char *path, struct ak_err *err)
{
	int rc;

	if (mkdir(path, 0755) < 0)
		return errno == EEXIST ? 0 : ak_fail_errno(err, errno, "folder '%.200s'", path);
	rc = mark_own(a, path);
	return rc < 0 ? ak_fail_errno(err, -rc, "folder '%.200s'", path) : charge_inode(a, err);
}

/* Missing folders above PATH: a layer need not name them. */
static int make_parents(struct applying *a, char *path, struct ak_err *err)
{
	int rc = 0;

	for (char *slash = strchr(path + 1, '/'); slash && rc == 0; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		rc = make_parent(a, path, err);
		*slash = '/';
	}
	return rc;
}

static int empty_folder(int fd, unsigned depth);

/* ak_remove_tree needs openat2, which the sandbox's filter refuses. */
static int remove_at(int dir, const char *name, unsigned depth)
{
	int fd, rc;

	if (unlinkat(dir, name, 0) == 0)
		return 0;
	if (errno != EISDIR && errno != EPERM)
		return -errno;
	fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	rc = depth < REMOVE_DEPTH_MAX ? empty_folder(fd, depth) : -ENAMETOOLONG;
	return rc < 0 ? rc : unlinkat(dir, name, AT_REMOVEDIR) < 0 ? -errno : 0;
}

/* Takes ownership of FD. */
static int empty_folder(int fd, unsigned depth)
{
	DIR *d = fdopendir(fd);
	const struct dirent *e;
	int rc = 0;

	if (!d) {
		ak_close(fd);
		return -errno;
	}
	while (rc == 0 && (e = readdir(d))) {
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
			rc = remove_at(fd, e->d_name, depth + 1);
	}
	closedir(d);
	return rc;
}

static int remove_tree(const char *path)
{
	return remove_at(AT_FDCWD, path, 0);
}

/* ---- whiteouts ---- */

static int clear_folder(struct applying *a, const char *path, unsigned depth);

static int clear_entry(struct applying *a, const char *path, unsigned depth)
{
	struct stat st;

	if (lstat(path, &st) < 0)
		return -errno;
	if (!inodes_has(&a->own, st.st_ino))
		return remove_tree(path);
	return S_ISDIR(st.st_mode) && depth < LAYER_DEPTH_MAX ? clear_folder(a, path, depth + 1) : 0;
}

/* Remove what lower layers put into the folder. Once for each: a layer can repeat a whiteout a million times, also through links and for the folders above, over as many files. */
static int clear_folder(struct applying *a, const char *path, unsigned depth)
{
	char *child = NULL;
	DIR *d = opendir(path);
	const struct dirent *e;
	struct stat st;
	int rc = d && fstat(dirfd(d), &st) == 0 ? 0 : -errno;

	if (rc == 0 && inodes_has(&a->cleared, st.st_ino)) {
		closedir(d);
		return 0;
	}
	while (rc == 0 && (e = readdir(d))) {
		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
			continue;
		if (asprintf(&child, "%s/%s", path, e->d_name) < 0) {
			rc = -ENOMEM;
			break;
		}
		rc = clear_entry(a, child, depth);
		free(child);
	}
	if (d)
		closedir(d);
	return rc < 0 ? rc : inodes_add(&a->cleared, st.st_ino);
}

/* PATH ends in a whiteout's name, BASE. */
static int apply_whiteout(struct applying *a, char *path, char *base)
{
	struct stat st;
	int rc;

	if (!strcmp(base, OPAQUE)) {
		base[-1] = '\0';
		rc = clear_folder(a, path[0] ? path : "/", 0);
		return rc == -ENOENT ? 0 : rc;
	}
	memmove(base, base + strlen(WHITEOUT), strlen(base + strlen(WHITEOUT)) + 1);
	if (!base[0] || !strcmp(base, ".") || !strcmp(base, "..") || !strncmp(base, WHITEOUT, strlen(WHITEOUT)))
		return -EBADMSG;
	if (lstat(path, &st) < 0)
		return errno == ENOENT ? 0 : -errno;
	return inodes_has(&a->own, st.st_ino) ? 0 : remove_tree(path);
}

/* ---- entries ---- */

/* Remove what exists at PATH, unless it and the new entry are folders. */
static int make_room(const char *path, enum tar_kind kind)
{
	struct stat st;

	if (lstat(path, &st) < 0)
		return errno == ENOENT ? 0 : -errno;
	return kind == TAR_FOLDER && S_ISDIR(st.st_mode) ? 0 : remove_tree(path);
}

static int write_file(struct applying *a, struct tar *t, const char *path, uint64_t size, struct ak_err *err)
{
	_cleanup_close_ int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	ssize_t n;
	int rc;

	if (fd < 0)
		return ak_fail_errno(err, errno, "'%.200s'", path);
	rc = charge(a->totals, size, err);
	while (rc == 0 && (n = tar_read(t, a->buf, COPY_BYTES, err)) != 0) {
		if (n < 0)
			return (int)n;
		rc = ak_write_all(fd, a->buf, (size_t)n);
		if (rc < 0)
			return ak_fail_errno(err, -rc, "writing '%.200s'", path);
	}
	return rc;
}

/* Owner, mode and time. Set-id bits are left out: nothing in a sandbox can use them. */
static int finish_entry(struct applying *a, const struct tar_entry *e, const char *path)
{
	const struct timespec times[2] = { { .tv_sec = e->mtime_s }, { .tv_sec = e->mtime_s } };

	if (lchown(path, e->uid, e->gid) < 0) {
		if (errno != EINVAL && errno != EPERM)
			return -errno;
		a->totals->one_id = true;
	}
	if (e->kind != TAR_LINK && chmod(path, e->mode & 01777) < 0)
		return -errno;
	if (e->kind != TAR_FOLDER)
		(void)utimensat(AT_FDCWD, path, times, AT_SYMLINK_NOFOLLOW);
	return mark_own(a, path);
}

static int make_hard_link(const struct tar_entry *e, const char *path, struct ak_err *err)
{
	char target[TAR_PATH_MAX + 1];
	struct stat st;
	int rc = clean_path(e->target, target, err);

	if (rc < 0)
		return rc;
	if (lstat(target, &st) < 0 || S_ISDIR(st.st_mode))
		return ak_fail(err, EBADMSG, "'%.100s' in the layer is a link to '%.100s', which is no file of the image", path,
			e->target);
	return linkat(AT_FDCWD, target, AT_FDCWD, path, 0) < 0 ? ak_fail_errno(err, errno, "'%.200s'", path) : 0;
}

static int make_entry(struct applying *a, struct tar *t, const struct tar_entry *e, const char *path, struct ak_err *err)
{
	int rc = 0;

	switch (e->kind) {
	case TAR_FILE:
		return write_file(a, t, path, e->size, err);
	case TAR_FOLDER:
		rc = mkdir(path, 0700) < 0 && errno != EEXIST ? -errno : 0;
		break;
	case TAR_LINK:
		rc = symlink(e->target, path) < 0 ? -errno : 0;
		break;
	case TAR_HARD_LINK:
		return make_hard_link(e, path, err);
	case TAR_FIFO:
		rc = mkfifo(path, 0600) < 0 ? -errno : 0;
		break;
	case TAR_DEVICE:
	case TAR_KIND_NUM:
		break;
	}
	return rc < 0 ? ak_fail_errno(err, -rc, "'%.200s'", path) : 0;
}

static int apply_entry(struct applying *a, struct tar *t, const struct tar_entry *e, struct ak_err *err)
{
	char path[TAR_PATH_MAX + 1], *base;
	int rc = clean_path(e->name, path, err);

	if (rc < 0)
		return rc;
	base = strrchr(path, '/') + 1;
	rc = charge_inode(a, err);
	if (rc == 0)
		rc = make_parents(a, path, err);
	if (rc < 0)
		return rc;
	if (!strncmp(base, WHITEOUT, strlen(WHITEOUT))) {
		rc = apply_whiteout(a, path, base);
		return rc < 0 ? ak_fail_errno(err, -rc, "whiteout '%.200s'", e->name) : 0;
	}
	if (e->kind == TAR_DEVICE) {
		a->totals->skipped++;
		return 0;
	}
	if (!*base && e->kind != TAR_FOLDER)
		return ak_fail(err, EBADMSG, "the layer replaces its root folder");
	rc = *base ? make_room(path, e->kind) : 0;
	if (rc < 0)
		return ak_fail_errno(err, -rc, "replacing '%.200s'", path);
	rc = *base ? make_entry(a, t, e, path, err) : 0;
	if (rc < 0)
		return rc;
	rc = e->kind == TAR_HARD_LINK ? mark_own(a, path) : finish_entry(a, e, path);
	return rc < 0 ? ak_fail_errno(err, -rc, "'%.200s'", path) : 0;
}

int layer_apply(struct tar *t, struct layer_totals *totals, struct ak_err *err)
{
	struct applying a = { .totals = totals, .buf = malloc(COPY_BYTES) };
	struct tar_entry *e = malloc(sizeof(*e));
	int rc = e && a.buf ? 0 : ak_fail(err, ENOMEM, "out of memory");

	while (rc == 0 && (rc = tar_next(t, e, err)) > 0)
		rc = apply_entry(&a, t, e, err);
	free(e);
	free(a.buf);
	inodes_done(&a.own);
	inodes_done(&a.cleared);
	return rc;
}
