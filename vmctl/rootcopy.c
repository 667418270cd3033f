/*
 * Copies of small folders of the host's /etc.
 *
 * Where /etc cannot be overlaid as a whole, each of its folders needs its own protection against connecting to sockets in it.
 * Unmounting an overlay costs an RCU grace period, so a folder with a few small files is copied instead: a copy contains no
 * sockets and shares no inode with the host.
 */
#include "vmctl/internal.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Beyond these limits an overlay is cheaper. */
#define ENTRIES_MAX 16
#define FILE_BYTES_MAX 16384
#define DEPTH_MAX 3
#define FOLDER_BYTES_MAX 4096 /* size of the folder itself: shows that it is large without reading it */

#define FOLDER_FLAGS (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)

struct copying {
	size_t entries; /* so far */
	char buf[FILE_BYTES_MAX + 1];
};

static int copy_file(struct copying *c, int from, int to, const char *name)
{
	_cleanup_close_ int in = openat(from, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC), out = -1;
	struct stat st;
	ssize_t n;

	if (in < 0 || fstat(in, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode) || st.st_size > FILE_BYTES_MAX)
		return -EFBIG;
	n = read(in, c->buf, sizeof(c->buf));
	if (n < 0 || n > FILE_BYTES_MAX)
		return n < 0 ? -errno : -EFBIG;
	out = openat(to, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, st.st_mode & 0777);
	return out < 0 ? -errno : ak_write_all(out, c->buf, (size_t)n);
}

static int copy_link(int from, int to, const char *name)
{
	char target[PATH_MAX];
	ssize_t n = readlinkat(from, name, target, sizeof(target) - 1);

	if (n < 0)
		return -errno;
	target[n] = '\0';
	return symlinkat(target, to, name) < 0 ? -errno : 0;
}

static int copy_folder(struct copying *c, int from, int to, unsigned depth);

static int copy_below(struct copying *c, int from, int to, const char *name, unsigned depth)
{
	_cleanup_close_ int in = openat(from, name, FOLDER_FLAGS), out = -1;

	if (in < 0 || mkdirat(to, name, 0755) < 0)
		return -errno;
	out = openat(to, name, FOLDER_FLAGS);
	return out < 0 ? -errno : copy_folder(c, in, out, depth + 1);
}

/* Copy files, folders and links only. */
static int copy_entry(struct copying *c, int from, int to, const struct dirent64 *e, unsigned depth)
{
	if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
		return 0;
	if (++c->entries > ENTRIES_MAX)
		return -E2BIG;
	switch (e->d_type) {
	case DT_REG:
		return copy_file(c, from, to, e->d_name);
	case DT_LNK:
		return copy_link(from, to, e->d_name);
	case DT_DIR:
		return depth < DEPTH_MAX ? copy_below(c, from, to, e->d_name, depth) : -E2BIG;
	default:
		return -EINVAL;
	}
}

static int copy_folder(struct copying *c, int from, int to, unsigned depth)
{
	_Alignas(struct dirent64) char buf[1024];
	struct stat st;
	ssize_t n;
	int rc = fstat(from, &st) < 0 ? -errno : st.st_size > FOLDER_BYTES_MAX ? -E2BIG : 0;

	while (rc == 0 && (n = getdents64(from, buf, sizeof(buf))) != 0) {
		if (n < 0)
			return -errno;
		for (ssize_t at = 0; rc == 0 && at < n;) {
			const struct dirent64 *e = (const void *)(buf + at);

			rc = copy_entry(c, from, to, e, depth);
			at += e->d_reclen;
		}
	}
	return rc;
}

int sb_root_copy(const struct sb_root *r, const char *path)
{
	struct copying c;
	_cleanup_close_ int from = open(path, FOLDER_FLAGS), to = -1;

	if (from < 0)
		return -errno;
	if (mkdirat(r->fd, path + 1, 0755) < 0 && errno != EEXIST)
		return -errno;
	to = openat(r->fd, path + 1, FOLDER_FLAGS);
	c.entries = 0;
	return to < 0 ? -errno : copy_folder(&c, from, to, 0);
}

bool sb_root_is_empty(const char *path)
{
	DIR *dir = opendir(path);
	const struct dirent *e;

	if (!dir)
		return false;
	while ((e = readdir(dir)) && (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")))
		;
	closedir(dir);
	return !e;
}
