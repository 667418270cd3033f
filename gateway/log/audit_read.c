/* Reads audit files: lines across rotated files, and the link of one record. See log/audit.h. */
#include "gateway/log/audit_line.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void audit_line_digest(const char *line, size_t len, uint8_t ret[static SHA256_SIZE])
{
	struct sha256 s;

	sha256_init(&s);
	sha256_add(&s, line, len);
	sha256_done(&s, ret);
}

int audit_file_name(const char *path, unsigned n, char *buf, size_t size)
{
	int len;

	if (n == AUDIT_NUMBER_KEPT || n == AUDIT_NUMBER_FIRST)
		len = snprintf(buf, size, "%s.%s", path, n == AUDIT_NUMBER_KEPT ? "kept" : "first");
	else
		len = n ? snprintf(buf, size, "%s.%u", path, n) : snprintf(buf, size, "%s", path);

	return len < 0 || (size_t)len >= size ? -ENAMETOOLONG : 0;
}

/* ---- one record ---- */

/* Skip TEXT at *P, or fail. */
static bool skip(const char **p, const char *end, const char *text)
{
	size_t len = strlen(text);

	if ((size_t)(end - *p) < len || memcmp(*p, text, len) != 0)
		return false;
	*p += len;
	return true;
}

static bool take_uint(const char **p, const char *end, uint64_t *ret)
{
	uint64_t value = 0;
	const char *at = *p;

	for (; at < end && *at >= '0' && *at <= '9'; at++) {
		if (__builtin_mul_overflow(value, 10u, &value) || __builtin_add_overflow(value, (uint64_t)(*at - '0'), &value))
			return false;
	}
	if (at == *p)
		return false;
	*p = at;
	*ret = value;
	return true;
}

/* Read N hexadecimal digits. */
static bool take_hex(const char **p, const char *end, size_t n, char *ret)
{
	if ((size_t)(end - *p) < n)
		return false;
	for (size_t i = 0; i < n; i++) {
		char c = (*p)[i];

		if ((c < '0' || c > '9') && (c < 'a' || c > 'f'))
			return false;
		ret[i] = c;
	}
	ret[n] = '\0';
	*p += n;
	return true;
}

uint64_t audit_line_number(const char *line, size_t len, const char *mark)
{
	const char *p = memmem(line, len, mark, strlen(mark));
	uint64_t value = 0;

	if (!p)
		return 0;
	p += strlen(mark);
	return take_uint(&p, line + len, &value) ? value : 0;
}

/* The torn byte count of a loss record: its last member before the link. */
static uint64_t find_torn(const char *line, const char *end)
{
	const char *p = end;
	uint64_t torn = 0;

	while (p > line && p[-1] >= '0' && p[-1] <= '9')
		p--;
	if (p - line < 8 || memcmp(p - 8, ",\"torn\":", 8) != 0 || !take_uint(&p, end, &torn))
		return 0;
	return memmem(line, (size_t)(end - line), "\"event\":\"loss\"", 14) ? torn : 0;
}

/* Parse the end of the line: prev, hash and, if present, the MAC. */
static bool take_tail(const char *line, const char *tail, const char *end, bool has_mac, struct audit_link *ret)
{
	const char *p = tail, *hashed;
	char hash[SHA256_HEX];

	if (!skip(&p, end, ",\"prev\":\"") || !take_hex(&p, end, SHA256_HEX - 1, ret->prev))
		return false;
	hashed = p + 1;
	if (!skip(&p, end, "\",\"hash\":\"") || !take_hex(&p, end, SHA256_HEX - 1, ret->hash))
		return false;
	if (has_mac && (!skip(&p, end, "\",\"mac\":\"") || !take_hex(&p, end, AUDIT_MAC_HEX - 1, ret->mac)))
		return false;
	if (!skip(&p, end, "\"}") || p != end)
		return false;
	audit_line_digest(line, (size_t)(hashed - line), ret->digest);
	sha256_hex(ret->digest, hash);
	return strcmp(hash, ret->hash) == 0;
}

/* A line with a MAC ends with `","mac":"` and its digits. */
static bool ends_with_mac(const char *line, size_t len)
{
	const size_t at = strlen("\",\"mac\":\"") + AUDIT_MAC_HEX - 1 + strlen("\"}");

	return len > at && memcmp(line + len - at, "\",\"mac\":\"", strlen("\",\"mac\":\"")) == 0;
}

bool audit_link_parse(const char *line, size_t len, struct audit_link *ret)
{
	bool has_mac = ends_with_mac(line, len);
	const size_t tail_len = strlen(",\"prev\":\"") + strlen("\",\"hash\":\"") + strlen("\"}") + 2 * (SHA256_HEX - 1) +
		(has_mac ? strlen("\",\"mac\":\"") + AUDIT_MAC_HEX - 1 : 0);
	const char *end = line + len, *p = line, *tail;
	struct audit_link link = { 0 };
	uint64_t version;

	if (len < tail_len || !skip(&p, end, "{\"v\":") || !take_uint(&p, end, &version) || version != AUDIT_VERSION)
		return false;
	if (!skip(&p, end, ",\"time\":\"") || !(p = memchr(p, '"', (size_t)(end - p))))
		return false;
	if (!skip(&p, end, "\",\"seq\":") || !take_uint(&p, end, &link.seq))
		return false;
	if (skip(&p, end, ",\"of\":") && !take_uint(&p, end, &link.of))
		return false;
	tail = end - tail_len;
	if (tail < p)
		return false;
	link.torn = find_torn(line, tail);
	if (!take_tail(line, tail, end, has_mac, &link))
		return false;
	*ret = link;
	return true;
}

/* ---- lines across files ---- */

static int open_nth(struct audit_reader *r, unsigned n)
{
	struct stat st;
	int fd, rc = audit_file_name(r->path, n, r->name, sizeof(r->name));

	if (rc < 0)
		return rc;
	fd = open(r->name, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
		ak_close(fd);
		return -EINVAL;
	}
	ak_close(r->fd);
	r->fd = fd;
	r->number = n;
	r->dev = st.st_dev;
	r->ino = st.st_ino;
	r->line = 0;
	r->start = r->len = r->scanned = 0;
	r->skipping = false;
	return 0;
}

bool audit_first_link(int fd, struct audit_link *ret)
{
	_cleanup_free_ char *data = malloc(AUDIT_LINE_MAX);
	ssize_t n = data ? ak_pread_all(fd, data, AUDIT_LINE_MAX, 0) : -ENOMEM;
	const char *nl = n > 0 ? memchr(data, '\n', (size_t)n) : NULL;

	return nl && audit_link_parse(data, (size_t)(nl - data), ret);
}

/* NAME.kept repeats records that the rotated files may still have; skip those from the oldest rotated file on. */
static uint64_t oldest_rotated(const struct audit_reader *r)
{
	for (unsigned n = AUDIT_KEEP_FILES; n-- > 0;) {
		_cleanup_close_ int fd = -1;
		struct audit_link link;
		char name[PATH_MAX];

		if (audit_file_name(r->path, n, name, sizeof(name)) < 0)
			break;
		fd = open(name, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
		if (fd >= 0 && audit_first_link(fd, &link))
			return link.seq;
	}
	return UINT64_MAX;
}

/* Open the newest file that is older than number BELOW. */
static int open_below(struct audit_reader *r, unsigned below)
{
	for (unsigned n = below; n-- > 0;) {
		int rc;

		if (n == AUDIT_NUMBER_KEPT && r->plain)
			continue;
		rc = open_nth(r, n);
		if (rc == 0 && n == AUDIT_NUMBER_KEPT)
			r->kept_until = oldest_rotated(r);
		if (rc != -ENOENT)
			return rc;
	}
	return -ENOENT;
}

static int open_reader(struct audit_reader *r, const char *path, bool plain, struct ak_err *err)
{
	int rc;

	*r = (struct audit_reader){ .fd = -1, .plain = plain };
	if (strlen(path) >= sizeof(r->path))
		return ak_fail(err, ENAMETOOLONG, "path too long");
	strcpy(r->path, path);
	rc = open_below(r, AUDIT_NUMBERS);
	return rc < 0 ? ak_fail_errno(err, -rc, "cannot read '%s'", path) : 0;
}

int audit_reader_open(struct audit_reader *r, const char *path, struct ak_err *err)
{
	return open_reader(r, path, false, err);
}

int audit_reader_open_plain(struct audit_reader *r, const char *path, struct ak_err *err)
{
	return open_reader(r, path, true, err);
}

void audit_reader_done(struct audit_reader *r)
{
	r->fd = ak_close(r->fd);
	free(r->buf);
	r->buf = NULL;
}

/* The number of the file DEV, INO: 0 is the newest; AUDIT_NUMBERS if it was deleted. */
static unsigned number_of(const struct audit_reader *r, dev_t dev, ino_t ino)
{
	char name[PATH_MAX];
	struct stat st;

	for (unsigned n = 0; n < AUDIT_NUMBERS; n++) {
		if (audit_file_name(r->path, n, name, sizeof(name)) < 0 || stat(name, &st) < 0)
			continue;
		if (st.st_dev == dev && st.st_ino == ino)
			return n;
	}
	return AUDIT_NUMBERS;
}

static bool has_newer(const struct audit_reader *r)
{
	return number_of(r, r->dev, r->ino) > 0;
}

/* Read more of the file: 1, 0 at its end, or -errno. */
static int fill(struct audit_reader *r)
{
	ssize_t n;

	if (r->start > 0) {
		memmove(r->buf, r->buf + r->start, r->len);
		r->start = 0;
	}
	if (r->cap - r->len < 4096) {
		size_t cap = r->cap ? r->cap * 2 : 65536;
		char *grown = realloc(r->buf, cap);

		if (!grown)
			return -ENOMEM;
		r->buf = grown;
		r->cap = cap;
	}
	do {
		n = read(r->fd, r->buf + r->len, r->cap - r->len - 1);
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	r->len += (size_t)n;
	return n > 0;
}

/* Return the first LEN bytes and skip them and the newline. */
static int hand_out(struct audit_reader *r, size_t len, bool newline, char **ret_line, size_t *ret_len)
{
	char *line = r->buf + r->start;

	line[len] = '\0';
	r->start += len + newline;
	r->len -= len + newline;
	r->scanned = 0;
	r->line++;
	*ret_line = line;
	*ret_len = len;
	return 1;
}

/* Return a complete line from the buffer: 1; 0 if there is none. */
static int buffered_line(struct audit_reader *r, char **ret_line, size_t *ret_len, bool *ret_whole)
{
	while (r->len > 0) {
		char *from = r->buf + r->start, *nl = memchr(from + r->scanned, '\n', r->len - r->scanned);

		if (r->skipping) {
			size_t drop = nl ? (size_t)(nl - from) + 1 : r->len;

			r->start += drop;
			r->len -= drop;
			r->scanned = 0;
			r->skipping = !nl;
			continue;
		}
		*ret_whole = nl != NULL;
		if (nl)
			return hand_out(r, (size_t)(nl - from), true, ret_line, ret_len);
		r->scanned = r->len;
		if (r->len < AUDIT_LINE_MAX)
			return 0;
		r->skipping = true;
		return hand_out(r, r->len, false, ret_line, ret_len);
	}
	return 0;
}

/* At the end of a file, continue with the next one. Files may be renamed meanwhile: repeat until they were not. */
static int next_file(struct audit_reader *r)
{
	dev_t dev = r->dev;
	ino_t ino = r->ino;

	for (int tries = 0; tries < 16; tries++) {
		unsigned ours = number_of(r, dev, ino);
		int rc;

		if (ours == 0)
			return 0;
		rc = open_below(r, ours == AUDIT_NUMBERS ? AUDIT_KEEP_FILES : ours); /* deleted: continue with the oldest left */
		if (rc < 0 && rc != -ENOENT)
			return rc;
		if (rc == 0 && number_of(r, dev, ino) == ours)
			return 1;
	}
	return 0;
}

/* Is this a copy of a record that follows later in another file? */
static bool comes_again(const struct audit_reader *r, const char *line, size_t len)
{
	return r->number == AUDIT_NUMBER_KEPT && audit_line_number(line, len, ",\"of\":") >= r->kept_until;
}

int audit_reader_next(struct audit_reader *r, bool at_end, char **ret_line, size_t *ret_len, bool *ret_whole)
{
	for (;;) {
		int rc = r->buf ? buffered_line(r, ret_line, ret_len, ret_whole) : 0;

		if (rc > 0 && comes_again(r, *ret_line, *ret_len))
			continue;
		if (rc)
			return rc;
		rc = fill(r);
		if (rc < 0)
			return rc;
		if (rc > 0)
			continue;
		if (r->len > 0 && (at_end || has_newer(r))) {
			*ret_whole = false;
			return hand_out(r, r->len, false, ret_line, ret_len);
		}
		if (r->len > 0)
			return 0;
		rc = next_file(r);
		if (rc <= 0)
			return rc;
	}
}

int audit_reader_drain(struct audit_reader *r, const char *path, bool at_end,
	int (*fn)(void *ctx, const char *line, size_t len, bool whole), void *ctx, struct ak_err *err)
{
	char *line;
	bool whole;
	size_t len;
	int rc;

	if (r->fd < 0) {
		struct ak_err why;

		rc = audit_reader_open(r, path, &why);
		if (rc < 0)
			return rc == -ENOENT ? 0 : ak_fail(err, -rc, "%s", why.text);
	}
	while ((rc = audit_reader_next(r, at_end, &line, &len, &whole)) > 0) {
		rc = fn(ctx, line, len, whole);
		if (rc < 0)
			break;
	}
	return rc < 0 ? ak_fail_errno(err, -rc, "cannot read '%s'", r->name) : 0;
}
