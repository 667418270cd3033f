/*
 * Copy trees between a sandbox and the host: see service/service.h.
 *
 * A hostile sandbox may change its files while we walk them. Every step therefore goes from an open folder to
 * one name in it, never through a path: we pin the name with O_PATH and O_NOFOLLOW, read the type from that descriptor, and open
 * the pinned inode. At the destination we write to a new temporary name and rename it, which replaces a planted symbolic link
 * instead of writing through it.
 */
#include "gateway/service/service.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/base/make.h"
#include "gateway/base/strbuf.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define DEPTH_MAX 200 /* each level holds three descriptors */
#define CHUNK (256u << 10)
#define STRING_(x) #x
#define STRING(x) STRING_(x)

struct walk {
	struct service_copy *c; /* borrowed */
	struct strbuf path; /* where we are, for messages */
	unsigned depth;
	char *buf; /* owned; CHUNK bytes */
};

static int copy_one(struct walk *w, int src_dir, const char *src, int dst_dir, const char *dst, struct ak_err *err);

static bool stopped(const struct walk *w)
{
	return w->c->stop && *w->c->stop;
}

static int fail(const struct walk *w, int code, struct ak_err *err)
{
	return ak_fail_errno(err, code, "'%.300s'", w->path.data ? w->path.data : "");
}

/* Something failed at the destination: name that side. */
static int fail_there(const struct walk *w, int code, struct ak_err *err)
{
	if (!w->c->to)
		return fail(w, code, err);
	return ak_fail(err, code, "'%.200s': cannot write '%.200s' there: %s", w->c->to, w->path.data ? w->path.data : "",
		strerror(code));
}

static int interrupted(struct ak_err *err)
{
	return ak_fail(err, EINTR, "interrupted");
}

/* ---- skipping ---- */

static int skip(struct walk *w, const char *why)
{
	w->c->left_out++;
	if (w->c->skipped)
		w->c->skipped(w->c->ctx, w->path.data ? w->path.data : "", why);
	return 0;
}

/* One file that a sandbox made unreadable must not prevent copying the others. EAGAIN means a lease, for which we do not wait. */
static int unreadable(struct walk *w, int code, struct ak_err *err)
{
	char why[128];

	if (w->depth == 0)
		return code == EAGAIN ? fail(w, EBUSY, err) : fail(w, code, err);
	snprintf(why, sizeof(why), "cannot be read (%s)", code == EAGAIN ? "a process holds a lease on it" : strerror(code));
	return skip(w, why);
}

/* Count and report what would be copied. */
static int found(struct walk *w, uint64_t size)
{
	w->c->bytes += size;
	if (w->c->found)
		w->c->found(w->c->ctx, w->path.data ? w->path.data : "", size);
	return 0;
}

/* ---- one file ---- */

/* Copy LEN bytes from the current position of SRC; 1 if it ends earlier. */
static int copy_range(struct walk *w, int src, int dst, uint64_t len)
{
	while (len > 0) {
		ssize_t n;
		int rc;

		if (stopped(w))
			return -EINTR;
		n = read(src, w->buf, len < CHUNK ? (size_t)len : CHUNK);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : 1;
		rc = ak_write_all(dst, w->buf, (size_t)n);
		if (rc < 0)
			return rc;
		len -= (uint64_t)n;
		w->c->bytes += (uint64_t)n;
	}
	return 0;
}

/*
 * Copy SIZE bytes, the size at the time of stat: a growing file would never end. Keep holes, otherwise a large sparse file would fill
 * the disk.
 */
static int copy_bytes(struct walk *w, int src, int dst, off_t size)
{
	off_t at = 0;

	while (at < size) {
		off_t data = lseek(src, at, SEEK_DATA), end;
		int rc;

		if (data < 0 && errno == ENXIO)
			break;
		if (data < 0)
			data = at; /* this file system does not support SEEK_DATA */
		if (data >= size)
			break;
		end = lseek(src, data, SEEK_HOLE);
		if (end < 0 || end > size)
			end = size;
		if (lseek(src, data, SEEK_SET) < 0 || lseek(dst, data, SEEK_SET) < 0)
			return -errno;
		rc = copy_range(w, src, dst, (uint64_t)(end - data));
		if (rc)
			return rc < 0 ? rc : 0;
		at = end;
	}
	return ftruncate(dst, size) < 0 ? -errno : 0;
}

static int fill_file(struct walk *w, int src, const struct stat *st, int dst)
{
	const struct timespec times[2] = { st->st_atim, st->st_mtim };
	int rc = copy_bytes(w, src, dst, st->st_size);

	if (rc == 0 && fchmod(dst, st->st_mode & 0777) < 0)
		rc = -errno;
	if (rc == 0)
		(void)futimens(dst, times);
	return rc;
}

static int copy_file(struct walk *w, int pinned, const struct stat *st, int dst_dir, const char *dst, struct ak_err *err)
{
	char tmp[32];
	_cleanup_close_ int out = -1;
	_cleanup_close_ int in = ak_reopen(pinned, O_RDONLY | O_NONBLOCK);
	int rc = in < 0 ? unreadable(w, -in, err) : 0;

	if (in < 0)
		return rc;
	if (w->c->look) {
		w->c->files++;
		return found(w, (uint64_t)st->st_size);
	}
	rc = service_file_replaceable(dst_dir, dst, err);
	if (rc < 0)
		return rc;
	rc = ak_fresh_name(tmp);
	if (rc == 0)
		rc = out = ak_make_file(dst_dir, tmp, 0600);
	if (rc < 0)
		return fail_there(w, -rc, err);
	rc = fill_file(w, in, st, out);
	if (rc == 0)
		rc = ak_make_renamed(dst_dir, tmp, dst);
	if (rc < 0) {
		unlinkat(dst_dir, tmp, 0);
		return rc == -EINTR ? interrupted(err) : fail_there(w, -rc, err);
	}
	w->c->files++;
	return 0;
}

/* Whether TARGET, by its text, leads out of the folder that is copied: the link is in a folder DEPTH - 1 below that one. */
static bool leads_out(const char *target, unsigned depth)
{
	unsigned level = depth ? depth - 1 : 0;

	if (target[0] == '/' || depth == 0)
		return true;
	for (const char *at = target; *at; at += strspn(at, "/")) {
		size_t len = strcspn(at, "/");

		if (len == 2 && at[0] == '.' && at[1] == '.') {
			if (level-- == 0)
				return true;
		} else if (!(len == 1 && at[0] == '.')) {
			level++;
		}
		at += len;
	}
	return false;
}

static int copy_link(struct walk *w, int pinned, int dst_dir, const char *dst, struct ak_err *err)
{
	char target[PATH_MAX], tmp[32];
	ssize_t n = readlinkat(pinned, "", target, sizeof(target) - 1);
	int rc = n < 0 ? -errno : 0;

	target[n < 0 ? 0 : n] = '\0';
	if (rc == 0 && w->c->inner_links && leads_out(target, w->depth))
		return skip(w, "is a link that leads out of the folder");
	if (rc == 0 && w->c->look) {
		w->c->links++;
		return found(w, 0);
	}
	if (rc == 0 && service_file_replaceable(dst_dir, dst, err) < 0)
		return -EINVAL;
	if (rc == 0)
		rc = ak_fresh_name(tmp);
	if (rc < 0)
		return fail(w, -rc, err);
	rc = ak_make_link(dst_dir, tmp, target);
	if (rc < 0)
		return fail_there(w, -rc, err);
	rc = ak_make_renamed(dst_dir, tmp, dst);
	if (rc < 0) {
		unlinkat(dst_dir, tmp, 0);
		return fail_there(w, -rc, err);
	}
	w->c->links++;
	return 0;
}

/* ---- folders ---- */

static int copy_entries(struct walk *w, DIR *src, int dst, struct ak_err *err)
{
	_cleanup_(service_names_done) struct service_names names = { 0 };
	size_t mark = w->path.len;
	int rc = service_names_read(src, &names);

	if (rc < 0)
		return fail(w, -rc, err);
	for (size_t i = 0; i < names.n && rc == 0; i++) {
		if (stopped(w))
			return interrupted(err);
		strbuf_printf(&w->path, "/%s", names.list[i]);
		rc = copy_one(w, dirfd(src), names.list[i], dst, names.list[i], err);
		w->path.len = mark;
		if (w->path.data)
			w->path.data[mark] = '\0';
	}
	return rc;
}

/* Create the destination folder or open an existing one. Never follows a symbolic link. */
static int open_target(int dst_dir, const char *dst)
{
	int fd, rc = ak_make_folder(dst_dir, dst, 0700);

	if (rc < 0 && rc != -EEXIST)
		return rc;
	fd = openat(dst_dir, dst, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

static int copy_folder(struct walk *w, int pinned, const struct stat *st, int dst_dir, const char *dst, struct ak_err *err)
{
	const struct timespec times[2] = { st->st_atim, st->st_mtim };
	_cleanup_close_ int out = -1;
	int in, rc;
	DIR *d;

	if (w->depth == DEPTH_MAX)
		return skip(w, "is more than " STRING(DEPTH_MAX) " folders deep");
	in = ak_reopen(pinned, O_RDONLY | O_DIRECTORY);
	if (in < 0)
		return unreadable(w, -in, err);
	d = fdopendir(in);
	if (!d) {
		rc = errno;
		ak_close(in);
		return fail(w, rc, err);
	}
	out = w->c->look ? -1 : open_target(dst_dir, dst);
	if (out == -ELOOP || out == -ENOTDIR) {
		closedir(d);
		return ak_fail(err, ENOTDIR, "'%.300s' exists and is not a folder, but '%.300s' is one",
			w->c->to ? w->c->to : dst, w->path.data);
	}
	w->depth++;
	rc = out < 0 && !w->c->look ? fail_there(w, -out, err) : copy_entries(w, d, out, err);
	w->depth--;
	closedir(d);
	if (w->c->look)
		return rc;
	if (rc == 0 && fchmod(out, st->st_mode & 0777) < 0)
		rc = fail_there(w, errno, err);
	if (rc == 0)
		(void)futimens(out, times);
	w->c->folders += rc == 0;
	return rc;
}

/* ---- one entry of any type ---- */

static int copy_pinned(struct walk *w, int pinned, int dst_dir, const char *dst, struct ak_err *err)
{
	struct stat st;

	if (fstat(pinned, &st) < 0)
		return unreadable(w, errno, err);
	if (S_ISCHR(st.st_mode) && st.st_rdev == 0) /* a whiteout: overlayfs marks a removed file this way */
		return w->depth > 0 ? 0 : fail(w, ENOENT, err);
	if (!S_ISLNK(st.st_mode) && service_fs_forbidden(pinned))
		return skip(w, "is on a file system of the kernel");
	switch (st.st_mode & S_IFMT) {
	case S_IFREG:
		return copy_file(w, pinned, &st, dst_dir, dst, err);
	case S_IFDIR:
		return copy_folder(w, pinned, &st, dst_dir, dst, err);
	case S_IFLNK:
		return copy_link(w, pinned, dst_dir, dst, err);
	case S_IFIFO:
		return skip(w, "is a FIFO");
	case S_IFSOCK:
		return skip(w, "is a socket");
	default:
		return skip(w, "is a device");
	}
}

static int copy_one(struct walk *w, int src_dir, const char *src, int dst_dir, const char *dst, struct ak_err *err)
{
	_cleanup_close_ int pinned = openat(src_dir, src, O_PATH | O_NOFOLLOW | O_CLOEXEC);

	if (pinned < 0 && errno == ENOENT && w->depth > 0)
		return 0; /* deleted since the folder was read */
	return pinned < 0 ? unreadable(w, errno, err) : copy_pinned(w, pinned, dst_dir, dst, err);
}

/* PINNED, or SRC in SRC_DIR if that is -1. */
static int copy_tree(
	int pinned, int src_dir, const char *src, int dst_dir, const char *dst, struct service_copy *c, struct ak_err *err)
{
	_cleanup_free_ char *buf = malloc(CHUNK);
	struct walk w = { .c = c, .buf = buf };
	int rc;

	if (!buf)
		return ak_fail(err, ENOMEM, "out of memory");
	strbuf_puts(&w.path, src);
	rc = pinned < 0 ? copy_one(&w, src_dir, src, dst_dir, dst, err) : copy_pinned(&w, pinned, dst_dir, dst, err);
	strbuf_done(&w.path);
	return rc;
}

int service_copy_tree(int src_dir, const char *src, int dst_dir, const char *dst, struct service_copy *c, struct ak_err *err)
{
	return copy_tree(-1, src_dir, src, dst_dir, dst, c, err);
}

int service_copy_pinned(int pinned, const char *name, int dst_dir, const char *dst, struct service_copy *c, struct ak_err *err)
{
	return copy_tree(pinned, -1, name, dst_dir, dst, c, err);
}
