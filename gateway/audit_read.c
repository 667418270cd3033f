/* Reading audit files: lines over rotated files, the link of one record, verification of a chain. See audit.h. */
#include "gateway/audit_line.h"

#include "gateway/base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void audit_line_hash(const char *line, size_t len, char ret[static SHA256_HEX])
{
	static const char digits[] = "0123456789abcdef";
	uint8_t digest[SHA256_SIZE];
	struct sha256 s;

	sha256_init(&s);
	sha256_add(&s, line, len);
	sha256_done(&s, digest);
	for (size_t i = 0; i < SHA256_SIZE; i++) {
		ret[2 * i] = digits[digest[i] >> 4];
		ret[2 * i + 1] = digits[digest[i] & 15];
	}
	ret[SHA256_HEX - 1] = '\0';
}

int audit_file_name(const char *path, unsigned n, char *buf, size_t size)
{
	int len = n ? snprintf(buf, size, "%s.%u", path, n) : snprintf(buf, size, "%s", path);

	return len < 0 || (size_t)len >= size ? -ENAMETOOLONG : 0;
}

/* ---- one record ---- */

/* Step over TEXT at *P, or fail. */
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

static bool take_hash(const char **p, const char *end, char ret[static SHA256_HEX])
{
	if (end - *p < SHA256_HEX - 1)
		return false;
	for (int i = 0; i < SHA256_HEX - 1; i++) {
		char c = (*p)[i];

		if ((c < '0' || c > '9') && (c < 'a' || c > 'f'))
			return false;
		ret[i] = c;
	}
	ret[SHA256_HEX - 1] = '\0';
	*p += SHA256_HEX - 1;
	return true;
}

/* A loss record's own count of torn bytes: its last member before the link. */
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

bool audit_link_parse(const char *line, size_t len, struct audit_link *ret)
{
	const size_t tail_len = strlen(",\"prev\":\"") + strlen("\",\"hash\":\"") + strlen("\"}") + 2 * (SHA256_HEX - 1);
	const char *end = line + len, *p = line, *tail, *hashed;
	struct audit_link link = { 0 };
	uint64_t version;
	char hash[SHA256_HEX];

	if (len < tail_len || !skip(&p, end, "{\"v\":") || !take_uint(&p, end, &version) || version != AUDIT_VERSION)
		return false;
	if (!skip(&p, end, ",\"time\":\"") || !(p = memchr(p, '"', (size_t)(end - p))))
		return false;
	if (!skip(&p, end, "\",\"seq\":") || !take_uint(&p, end, &link.seq))
		return false;
	tail = end - tail_len;
	if (tail < p)
		return false;
	link.torn = find_torn(line, tail);
	p = tail;
	if (!skip(&p, end, ",\"prev\":\"") || !take_hash(&p, end, link.prev))
		return false;
	hashed = p + 1;
	if (!skip(&p, end, "\",\"hash\":\"") || !take_hash(&p, end, link.hash) || !skip(&p, end, "\"}"))
		return false;
	audit_line_hash(line, (size_t)(hashed - line), hash);
	if (strcmp(hash, link.hash) != 0)
		return false;
	*ret = link;
	return true;
}

/* ---- lines over files ---- */

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
	r->dev = st.st_dev;
	r->ino = st.st_ino;
	r->line = 0;
	r->start = r->len = r->scanned = 0;
	r->skipping = false;
	return 0;
}

static int open_oldest(struct audit_reader *r)
{
	for (unsigned n = AUDIT_KEEP_FILES; n-- > 0;) {
		int rc = open_nth(r, n);

		if (rc != -ENOENT)
			return rc;
	}
	return -ENOENT;
}

int audit_reader_open(struct audit_reader *r, const char *path, struct ak_err *err)
{
	int rc;

	*r = (struct audit_reader){ .fd = -1 };
	if (strlen(path) >= sizeof(r->path))
		return ak_fail(err, ENAMETOOLONG, "path too long");
	strcpy(r->path, path);
	rc = open_oldest(r);
	return rc < 0 ? ak_fail_errno(err, -rc, "cannot read '%s'", path) : 0;
}

void audit_reader_done(struct audit_reader *r)
{
	r->fd = ak_close(r->fd);
	free(r->buf);
	r->buf = NULL;
}

/* Which number has the file DEV, INO? 0 is the newest; AUDIT_KEEP_FILES when it was rotated away. */
static unsigned number_of(const struct audit_reader *r, dev_t dev, ino_t ino)
{
	char name[PATH_MAX];
	struct stat st;

	for (unsigned n = 0; n < AUDIT_KEEP_FILES; n++) {
		if (audit_file_name(r->path, n, name, sizeof(name)) < 0 || stat(name, &st) < 0)
			continue;
		if (st.st_dev == dev && st.st_ino == ino)
			return n;
	}
	return AUDIT_KEEP_FILES;
}

static bool has_newer(const struct audit_reader *r)
{
	return number_of(r, r->dev, r->ino) > 0;
}

/* More bytes of the file: 1, 0 at its end, or -errno. */
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

/* Hand out the first LEN bytes and step over them and over the newline. */
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

/* A line that is in the buffer: 1; 0 when there is none. */
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

/* At the end of a file: go on with the next one, if there is one. Files may be renamed while we look: look again until they were not. */
static int next_file(struct audit_reader *r)
{
	dev_t dev = r->dev;
	ino_t ino = r->ino;

	for (int tries = 0; tries < 16; tries++) {
		unsigned ours = number_of(r, dev, ino), n = ours;
		int rc = -ENOENT;

		if (ours == 0)
			return 0;
		while (rc == -ENOENT && n > 0)
			rc = open_nth(r, --n);
		if (rc < 0 && rc != -ENOENT)
			return rc;
		if (rc == 0 && number_of(r, dev, ino) == ours)
			return 1;
	}
	return 0;
}

int audit_reader_next(struct audit_reader *r, bool at_end, char **ret_line, size_t *ret_len, bool *ret_whole)
{
	for (;;) {
		int rc = r->buf ? buffered_line(r, ret_line, ret_len, ret_whole) : 0;

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

/* ---- verification ---- */

struct verify {
	struct audit_reader reader;
	struct audit_chain chain;
	bool rotated_away; /* the oldest file is the last that is kept: its predecessors may be gone */
	uint64_t torn; /* bytes of broken lines that a record must attest */
	char torn_name[PATH_MAX];
	uint64_t torn_line;
	uint64_t torn_after; /* seq */
	bool torn_cut; /* without a newline */
};

static int torn_unattested(const struct verify *v, struct ak_err *err)
{
	return ak_fail(err, EBADMSG, "%s: line %llu: seq %llu: %s", v->torn_name, (unsigned long long)v->torn_line,
		(unsigned long long)v->torn_after + 1,
		v->torn_cut ? "cut short" : "not a record, or changed after it was written");
}

static void note_torn(struct verify *v, size_t len, bool whole)
{
	if (!v->torn) {
		v->torn_cut = !whole;
		memcpy(v->torn_name, v->reader.name, sizeof(v->torn_name));
		v->torn_line = v->reader.line;
		v->torn_after = v->chain.last_seq;
	}
	v->torn += len ? len : 1; /* an empty line is no tear that a writer leaves, and must not pass as none */
}

static int fail_at(const struct verify *v, uint64_t seq, const char *why, struct ak_err *err)
{
	return ak_fail(err, EBADMSG, "%s: line %llu: seq %llu: %s", v->reader.name, (unsigned long long)v->reader.line,
		(unsigned long long)seq, why);
}

static int check_order(const struct verify *v, const struct audit_link *link, struct ak_err *err)
{
	const struct audit_chain *c = &v->chain;
	char why[128];

	if (c->count == 0 && link->seq != 1 && !v->rotated_away)
		snprintf(why, sizeof(why), "the records before it are missing");
	else if (c->count == 0 && link->seq == 1 && strcmp(link->prev, AUDIT_NO_PREV) != 0)
		snprintf(why, sizeof(why), "the first record has a predecessor");
	else if (c->count == 0)
		return 0;
	else if (link->seq > c->last_seq + 1)
		snprintf(why, sizeof(why), "%llu records before it are missing",
			(unsigned long long)(link->seq - c->last_seq - 1));
	else if (link->seq <= c->last_seq)
		snprintf(why, sizeof(why), "out of order or twice: it comes after seq %llu", (unsigned long long)c->last_seq);
	else if (strcmp(link->prev, c->last_hash) != 0)
		snprintf(why, sizeof(why), "does not follow from the record before it");
	else
		return 0;
	return fail_at(v, link->seq, why, err);
}

static int verify_line(struct verify *v, const char *line, size_t len, bool whole, struct ak_err *err)
{
	struct audit_link link;
	int rc;

	if (!whole || !audit_link_parse(line, len, &link)) {
		note_torn(v, len, whole);
		return 0;
	}
	if (v->torn != link.torn)
		return v->torn ? torn_unattested(v, err) : fail_at(v, link.seq, "attests a torn line that is not there", err);
	rc = check_order(v, &link, err);
	if (rc < 0)
		return rc;
	v->chain.tears += v->torn > 0;
	v->torn = 0;
	if (v->chain.count++ == 0)
		v->chain.first_seq = link.seq;
	v->chain.last_seq = link.seq;
	memcpy(v->chain.last_hash, link.hash, sizeof(v->chain.last_hash));
	return 0;
}

/* A writer may be in the middle of its line: give it a moment before the line is called torn. */
static int next_settled(struct audit_reader *r, char **line, size_t *len, bool *whole)
{
	for (int tries = 0; tries < 10; tries++) {
		int rc = audit_reader_next(r, false, line, len, whole);

		if (rc != 0 || r->len == 0)
			return rc;
		poll(NULL, 0, 10);
	}
	return audit_reader_next(r, true, line, len, whole);
}

static int verify_all(struct verify *v, struct ak_err *err)
{
	char oldest[PATH_MAX];
	bool whole;
	size_t len;
	char *line;
	int rc;

	if (audit_file_name(v->reader.path, AUDIT_KEEP_FILES - 1, oldest, sizeof(oldest)) < 0)
		return ak_fail(err, ENAMETOOLONG, "path too long");
	v->rotated_away = strcmp(v->reader.name, oldest) == 0;
	while ((rc = next_settled(&v->reader, &line, &len, &whole)) > 0) {
		rc = verify_line(v, line, len, whole, err);
		if (rc < 0)
			return rc;
	}
	if (rc < 0)
		return ak_fail_errno(err, -rc, "cannot read '%s'", v->reader.name);
	return v->torn ? torn_unattested(v, err) : 0;
}

int audit_verify_chain(const char *path, struct audit_chain *ret, struct ak_err *err)
{
	struct verify *v = calloc(1, sizeof(*v)); /* too large for a small stack */
	int rc;

	if (!v)
		return ak_fail(err, ENOMEM, "out of memory");
	rc = audit_reader_open(&v->reader, path, err);
	if (rc == 0)
		rc = verify_all(v, err);
	if (rc == 0)
		*ret = v->chain;
	audit_reader_done(&v->reader);
	free(v);
	return rc;
}

int audit_verify(const char *path, uint64_t *ret_count, struct ak_err *err)
{
	struct audit_chain chain;
	int rc = audit_verify_chain(path, &chain, err);

	if (rc == 0)
		*ret_count = chain.count;
	return rc;
}
