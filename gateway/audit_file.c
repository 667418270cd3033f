/*
 * Audit files: opening one at the end of its chain, rotating, and the events log that many commands share. See audit.h.
 *
 * The events log is locked by flock on the file itself. Whoever got the lock makes sure that PATH still is that file, because the
 * holder before may have rotated it away.
 */
#include "gateway/audit_line.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define LOCK_WAIT_MS 10000

/* The window that surely holds the last whole line and a torn one after it. */
#define TAIL_MAX (2u * AUDIT_LINE_MAX)
#define TAIL_FIRST 8192u

struct tail {
	uint64_t seq;
	char hash[SHA256_HEX]; /* "" when no record was found */
	uint64_t whole; /* size up to the last newline */
	uint64_t size;
};

/* The newest record in the LEN bytes at DATA; damaged lines after it are passed over: verification will name them. */
static bool last_record(const char *data, size_t len, struct tail *t)
{
	const char *end = memrchr(data, '\n', len);

	while (end) {
		const char *nl = end > data ? memrchr(data, '\n', (size_t)(end - data)) : NULL;
		const char *line = nl ? nl + 1 : data;
		struct audit_link link;

		if (audit_link_parse(line, (size_t)(end - line), &link)) {
			t->seq = link.seq;
			memcpy(t->hash, link.hash, sizeof(t->hash));
			return true;
		}
		end = nl;
	}
	return false;
}

static int read_tail_window(int fd, uint64_t size, size_t window, struct tail *t, bool *ret_found)
{
	size_t want = size < window ? (size_t)size : window;
	_cleanup_free_ char *data = malloc(want + 1);
	const char *nl;
	ssize_t got;

	if (!data)
		return -ENOMEM;
	got = ak_pread_all(fd, data, want, size - want);
	if (got < 0)
		return (int)got;
	nl = memrchr(data, '\n', (size_t)got);
	if (!nl && want < size && window == TAIL_MAX)
		return -EBADMSG; /* one endless line: nothing of ours */
	t->whole = nl ? size - want + (uint64_t)(nl + 1 - data) : 0;
	*ret_found = last_record(data, (size_t)got, t);
	return 0;
}

static int read_tail(int fd, struct tail *ret)
{
	struct tail t = { 0 };
	struct stat st;
	bool found = false;
	int rc = 0;

	if (fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EINVAL;
	t.size = (uint64_t)st.st_size;
	/* Records are a few hundred bytes: the small window does, nearly always. */
	rc = read_tail_window(fd, t.size, TAIL_FIRST, &t, &found);
	if (rc == 0 && !found && t.size > TAIL_FIRST)
		rc = read_tail_window(fd, t.size, TAIL_MAX, &t, &found);
	if (rc == 0)
		*ret = t;
	return rc;
}

/* An empty file may be one that was just rotated: then the chain ends in its predecessor. */
static int read_predecessor(const char *path, struct tail *t)
{
	char name[PATH_MAX];
	struct tail older = { 0 };
	_cleanup_close_ int fd = -1;
	int rc = audit_file_name(path, 1, name, sizeof(name));

	if (rc < 0)
		return rc;
	fd = open(name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0)
		return errno == ENOENT ? 0 : -errno;
	rc = read_tail(fd, &older);
	if (rc < 0)
		return rc;
	t->seq = older.seq;
	memcpy(t->hash, older.hash, sizeof(t->hash));
	return 0;
}

/* Take FD over as a writer at the end of its chain. */
static int continue_chain(const char *path, int fd, struct audit_writer *w)
{
	_cleanup_close_ int owned = fd;
	struct tail t = { 0 };
	int rc = read_tail(fd, &t);

	if (rc == 0 && !t.hash[0])
		rc = read_predecessor(path, &t);
	if (rc < 0)
		return rc;
	audit_writer_init(w, TAKE_FD(owned), t.seq, t.hash[0] ? t.hash : NULL, t.whole);
	if (t.whole == t.size)
		return 0;
	/* A torn last line: take it back now, or let the next record attest it. */
	if (ftruncate(fd, (off_t)t.whole) == 0)
		return 0;
	w->torn = w->torn_open = t.size - t.whole;
	w->lost = w->lost_total = 1;
	w->lost_errno = EIO;
	return 0;
}

static int open_append(const char *path, int flags)
{
	int fd = open(path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK | flags, 0600);

	return fd < 0 ? -errno : fd;
}

int audit_open(const char *path, struct audit_writer *w, struct ak_err *err)
{
	int fd = open_append(path, 0), rc;

	if (fd < 0)
		return ak_fail_errno(err, -fd, "cannot open '%s'", path);
	rc = continue_chain(path, fd, w);
	return rc < 0 ? ak_fail_errno(err, -rc, "cannot continue '%s'", path) : 0;
}

/* From the oldest on, so that a failure half-way loses nothing. */
static int shift_files(const char *path)
{
	char from[PATH_MAX], to[PATH_MAX];

	for (unsigned n = AUDIT_KEEP_FILES - 1; n-- > 0;) {
		int rc = audit_file_name(path, n + 1, to, sizeof(to));

		if (rc == 0)
			rc = audit_file_name(path, n, from, sizeof(from));
		if (rc < 0)
			return rc;
		if (rename(from, to) < 0 && errno != ENOENT)
			return -errno;
	}
	return 0;
}

int audit_rotate(const char *path, struct ak_err *err)
{
	int rc = shift_files(path);

	if (rc == 0)
		rc = open_append(path, O_EXCL);
	return rc < 0 ? ak_fail_errno(err, -rc, "cannot rotate '%s'", path) : rc;
}

/* ---- the shared events log ---- */

/* Wait for the lock, but not for ever: its holder may be stopped. */
static int lock_file(int fd)
{
	uint64_t deadline = ak_now_ms() + LOCK_WAIT_MS;
	int wait_ms = 1;

	while (flock(fd, LOCK_EX | LOCK_NB) < 0) {
		if (errno != EWOULDBLOCK && errno != EINTR)
			return -errno;
		if (ak_now_ms() >= deadline)
			return -ETIMEDOUT;
		poll(NULL, 0, wait_ms);
		wait_ms = wait_ms < 16 ? wait_ms * 2 : 16;
	}
	return 0;
}

static bool still_there(const char *path, int fd)
{
	struct stat a, b;

	return fstat(fd, &a) == 0 && stat(path, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

/* The locked writer of PATH, rotated before when it was full. */
static int open_locked(const char *path, struct audit_writer *w)
{
	for (int tries = 0; tries < 100; tries++) {
		_cleanup_close_ int fd = open_append(path, 0);
		int rc;

		if (fd < 0)
			return fd;
		rc = lock_file(fd);
		if (rc < 0)
			return rc;
		if (!still_there(path, fd))
			continue;
		rc = continue_chain(path, TAKE_FD(fd), w);
		if (rc < 0 || !audit_writer_full(w))
			return rc;
		rc = shift_files(path);
		if (rc < 0)
			return 0; /* a log that grows too long is better than none */
		audit_writer_done(w);
	}
	return -EAGAIN;
}

static int write_event(struct audit_writer *w, const char *fields)
{
	int rc = audit_write_loss(w, NULL);

	if (rc < 0)
		return rc;
	audit_line_begin(w);
	strbuf_putc(&w->line, ',');
	strbuf_puts(&w->line, fields);
	return audit_line_end(w);
}

int audit_event(const char *path, const char *fields, struct ak_err *err)
{
	struct audit_writer w;
	int rc;

	if (!fields[0] || strpbrk(fields, "\r\n"))
		return ak_fail(err, EINVAL, "an event must be members on one line");
	rc = open_locked(path, &w);
	if (rc < 0)
		return ak_fail_errno(err, -rc, "cannot write '%s'", path);
	rc = write_event(&w, fields);
	audit_writer_done(&w); /* and the lock with it */
	return rc < 0 ? ak_fail_errno(err, -rc, "cannot write '%s'", path) : 0;
}
