/*
 * Audit files: opening one at the end of its chain, rotation, and the shared events log. See log/audit.h.
 *
 * The events log is locked by flock on the file itself. After getting the lock, a writer checks that PATH is still that file,
 * because the previous holder may have rotated it.
 */
#include "gateway/log/audit_line.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/log/audit_anchor.h"

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

/* A window that is certain to contain the last complete line and a torn one after it. */
#define TAIL_MAX (2u * AUDIT_LINE_MAX)
#define TAIL_FIRST 8192u
#define ROTATE_ROOM (2u << 20) /* reserved in a new file */
#define EVENTS_ROOM 65536 /* reserved beyond the end of the events log, … */
#define EVENTS_STEP 32768 /* … renewed each time it has grown by this */

struct tail {
	uint64_t seq;
	char hash[SHA256_HEX]; /* "" if no record was found */
	uint64_t whole; /* size up to the last newline */
	uint64_t size;
};

/* Find the newest record in the LEN bytes at DATA. Skips damaged lines after it, which verification will report. */
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
		return -EBADMSG; /* one endless line: not our file */
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
	/* Records have a few hundred bytes: the small window is nearly always enough. */
	rc = read_tail_window(fd, t.size, TAIL_FIRST, &t, &found);
	if (rc == 0 && !found && t.size > TAIL_FIRST)
		rc = read_tail_window(fd, t.size, TAIL_MAX, &t, &found);
	if (rc == 0)
		*ret = t;
	return rc;
}

/* An empty file may have just been created by rotation: then the chain ends in its predecessor. */
static int open_number(const char *path, unsigned n)
{
	char name[PATH_MAX];
	int fd, rc = audit_file_name(path, n, name, sizeof(name));

	if (rc < 0)
		return rc;
	fd = open(name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	return fd < 0 ? -errno : fd;
}

static int read_predecessor(const char *path, struct tail *t)
{
	_cleanup_close_ int fd = open_number(path, 1);
	struct tail older = { 0 };
	int rc;

	if (fd == -ENOENT)
		fd = open_number(path, AUDIT_NUMBER_FIRST);
	if (fd < 0)
		return fd == -ENOENT ? 0 : fd;
	rc = read_tail(fd, &older);
	if (rc < 0)
		return rc;
	t->seq = older.seq;
	memcpy(t->hash, older.hash, sizeof(t->hash));
	return 0;
}

/* Use FD as a writer at the end of its chain; takes ownership of FD. */
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
	/* A torn last line: remove it now, or let the next record attest it. */
	if (ftruncate(fd, (off_t)t.whole) == 0)
		return 0;
	w->torn = w->torn_open = t.size - t.whole;
	w->lost = w->lost_total = 1;
	w->lost_errno = EIO;
	return 0;
}

void audit_stand(const char *path, uint64_t *ret_seq, char ret_hash[static SHA256_HEX])
{
	_cleanup_close_ int fd = open_number(path, 0);
	struct tail t = { 0 };

	if (fd >= 0 && read_tail(fd, &t) == 0 && !t.hash[0])
		(void)read_predecessor(path, &t);
	*ret_seq = t.hash[0] ? t.seq : 0;
	memcpy(ret_hash, t.hash, sizeof(t.hash));
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

/* Rename the very first file to NAME.first, once. */
static int keep_first(const char *path)
{
	char first[PATH_MAX];
	int rc = audit_file_name(path, AUDIT_NUMBER_FIRST, first, sizeof(first));

	if (rc < 0)
		return rc;
	if (access(first, F_OK) == 0)
		return -EEXIST;
	return rename(path, first) < 0 && errno != ENOENT ? -errno : 0;
}

/* Start with the oldest, so that a failure half-way loses nothing. */
static int shift_files(const char *path)
{
	char from[PATH_MAX], to[PATH_MAX];
	int first = keep_first(path);

	if (first != -EEXIST)
		return first;

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

void audit_find_gone(const char *path, uint64_t *ret_from, uint64_t *ret_to)
{
	_cleanup_close_ int first = open_number(path, AUDIT_NUMBER_FIRST), oldest = -ENOENT;
	struct audit_link link;
	struct tail t;

	*ret_from = *ret_to = 0;
	for (unsigned n = AUDIT_KEEP_FILES; n-- > 1 && oldest == -ENOENT;)
		oldest = open_number(path, n);
	if (first < 0 || oldest < 0 || read_tail(first, &t) < 0 || !audit_first_link(oldest, &link) || link.seq <= t.seq + 1)
		return;
	*ret_from = t.seq + 1;
	*ret_to = link.seq - 1;
}

int audit_rotate(const char *path, struct ak_err *err)
{
	_cleanup_close_ int fd = -1;
	char fresh[PATH_MAX];
	int rc = 0;

	if (snprintf(fresh, sizeof(fresh), "%s.new", path) >= (int)sizeof(fresh))
		return ak_fail(err, ENAMETOOLONG, "path too long");
	(void)unlink(fresh); /* left by a process that was killed */
	fd = open_append(fresh, O_EXCL);
	if (fd < 0)
		rc = fd;
	if (rc == 0)
		rc = audit_set_room(fd, ROTATE_ROOM);
	if (rc == 0)
		rc = shift_files(path);
	if (rc == 0 && rename(fresh, path) < 0)
		rc = -errno;
	if (rc < 0) {
		(void)unlink(fresh);
		return ak_fail_errno(err, -rc, "cannot rotate '%s'", path);
	}
	return TAKE_FD(fd);
}

/* ---- the shared events log ---- */

/* Wait for the lock, with a timeout: its holder may be stopped. */
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

/* Lock PATH and return its writer; rotates it first if it is full. */
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
			return 0; /* a log that is too long is better than none */
		audit_writer_done(w);
	}
	return -EAGAIN;
}

static int write_line(struct audit_writer *w, const char *fields)
{
	audit_line_begin(w);
	strbuf_putc(&w->line, ',');
	strbuf_puts(&w->line, fields);
	return audit_line_end(w);
}

/* The log is shorter than its anchor: record it, because the next record would move the anchor and hide the gap. */
static int record_gap(struct audit_writer *w, const struct audit_anchor *a)
{
	char fields[256];

	if (a->newest.seq <= w->seq)
		return 0;
	snprintf(fields, sizeof(fields), AUDIT_GAP "\"had\":%llu,\"has\":%llu,\"restarted\":%s",
		(unsigned long long)a->newest.seq, (unsigned long long)w->seq,
		audit_anchor_restarted(a) && a->settled.seq <= w->seq ? "true" : "false");
	return write_line(w, fields);
}

static int write_event(struct audit_writer *w, const char *path, const char *dir, const struct audit_key *key, const char *fields)
{
	uint64_t before = w->size;
	char kept_hash[SHA256_HEX];
	struct audit_anchor anchor = { 0 };
	int rc = audit_write_loss(w, NULL);

	(void)audit_anchor_get(dir, AUDIT_EVENTS, key, &anchor);
	if (rc == 0)
		rc = record_gap(w, &anchor);
	if (rc == 0 && w->size == 0 && w->seq > 0) {
		struct audit_gone gone = { 0 };

		audit_find_gone(path, &gone.from, &gone.to);
		gone.kept = audit_kept_stand(path, kept_hash);
		gone.kept_hash = kept_hash;
		audit_write_rotate(w, NULL, &gone);
	}
	if (rc == 0)
		rc = write_line(w, fields);
	if (rc == 0)
		rc = audit_keep_event(path, key, w->seq, fields);
	if (rc == 0)
		(void)audit_anchor_move(dir, AUDIT_EVENTS, key, &anchor, w->seq, w->prev);
	if (rc == 0 && (before == 0 || before / EVENTS_STEP != w->size / EVENTS_STEP))
		(void)!fallocate(w->fd, FALLOC_FL_KEEP_SIZE, (off_t)w->size, EVENTS_ROOM);
	return rc;
}

/* The folder that contains PATH. */
static int folder_of(const char *path, char ret[static PATH_MAX])
{
	const char *slash = strrchr(path, '/');
	int n = slash ? snprintf(ret, PATH_MAX, "%.*s", (int)(slash - path), path) : snprintf(ret, PATH_MAX, ".");

	return n < 0 || n >= PATH_MAX ? -ENAMETOOLONG : 0;
}

int audit_event(const char *path, const char *fields, struct ak_err *err)
{
	struct audit_writer w;
	struct audit_key key;
	char dir[PATH_MAX];
	int rc;

	if (!fields[0] || strpbrk(fields, "\r\n"))
		return ak_fail(err, EINVAL, "event fields must be JSON members on one line");
	if (folder_of(path, dir) < 0)
		return ak_fail(err, ENAMETOOLONG, "path too long");
	rc = open_locked(path, &w);
	if (rc < 0)
		return ak_fail_errno(err, -rc, "cannot write '%s'", path);
	rc = audit_key_of(dir, &key, err);
	if (rc == 0) {
		audit_mac_init(&w.mac, &key, AUDIT_EVENTS, "", w.seq);
		rc = write_event(&w, path, dir, &key, fields);
		if (rc < 0)
			ak_fail_errno(err, -rc, "cannot write '%s'", path);
	}
	audit_writer_done(&w); /* also releases the lock */
	return rc;
}
