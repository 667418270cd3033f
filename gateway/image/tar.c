/* Reading tar streams: see tar.h. Layout of a header: POSIX.1-1988 ustar; pax: POSIX.1-2001. */
#include "gateway/image/tar.h"

#include "gateway/base/cleanup.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define EXTRA_MAX (64u << 10) /* bytes of one pax header or long name */
#define SKIP_BYTES 65536

struct header {
	char name[100], mode[8], uid[8], gid[8], size[12], mtime[12], sum[8], type, target[100], magic[6], version[2], user[32],
		group[32], major[8], minor[8], prefix[155], pad[12];
};
_Static_assert(sizeof(struct header) == TAR_BLOCK, "a header is one block");

/* What pax headers and long names said about the entry that follows. */
struct extra {
	bool has_name, has_target, has_size, has_uid, has_gid, has_mtime;
	uint64_t size, uid, gid;
	int64_t mtime_s;
};

void tar_init(struct tar *t, ssize_t (*read)(void *ctx, void *buf, size_t len), void *ctx)
{
	*t = (struct tar){ .read = read, .ctx = ctx };
}

static int truncated(struct ak_err *err)
{
	return ak_fail(err, EBADMSG, "the layer is truncated");
}

/* LEN bytes, or an error. */
static int read_all(struct tar *t, void *buf, size_t len, struct ak_err *err)
{
	ssize_t n = t->read(t->ctx, buf, len);

	if (n < 0)
		return ak_fail_errno(err, (int)-n, "reading the layer");
	return (size_t)n < len ? truncated(err) : 0;
}

ssize_t tar_read(struct tar *t, void *buf, size_t len, struct ak_err *err)
{
	int rc;

	if (len > t->content)
		len = (size_t)t->content;
	rc = len ? read_all(t, buf, len, err) : 0;
	if (rc < 0)
		return rc;
	t->content -= len;
	t->left -= len;
	return (ssize_t)len;
}

static int skip_rest(struct tar *t, struct ak_err *err)
{
	static char waste[SKIP_BYTES];
	int rc = 0;

	while (t->left && rc == 0) {
		size_t n = t->left < sizeof(waste) ? (size_t)t->left : sizeof(waste);

		rc = read_all(t, waste, n, err);
		t->left -= n;
	}
	t->content = 0;
	return rc;
}

static void begin_content(struct tar *t, uint64_t size)
{
	t->content = size;
	t->left = (size + TAR_BLOCK - 1) / TAR_BLOCK * TAR_BLOCK;
}

/* ---- fields ---- */

/* Octal digits with spaces around them; or, after a byte 0x80, a binary number (GNU). */
static bool get_number(const char *field, size_t len, uint64_t *ret)
{
	const unsigned char *p = (const unsigned char *)field, *end = p + len;
	uint64_t value = 0;

	if (*p == 0x80) {
		for (p++; p < end; p++) {
			if (value >> 55)
				return false;
			value = value << 8 | *p;
		}
		*ret = value;
		return true;
	}
	while (p < end && *p == ' ')
		p++;
	for (; p < end && *p >= '0' && *p <= '7'; p++) {
		if (value >> 60)
			return false;
		value = value << 3 | (uint64_t)(*p - '0');
	}
	*ret = value;
	return p == end || *p == '\0' || *p == ' ';
}

static bool sum_ok(const struct header *h)
{
	const unsigned char *p = (const void *)h;
	uint64_t sum = 0, said;

	for (size_t i = 0; i < sizeof(*h); i++)
		sum += i >= offsetof(struct header, sum) && i < offsetof(struct header, type) ? ' ' : p[i];
	return get_number(h->sum, sizeof(h->sum), &said) && said == sum;
}

static bool is_zero(const struct header *h)
{
	const char *p = (const void *)h;

	return !p[0] && !memcmp(p, p + 1, sizeof(*h) - 1);
}

/* ---- pax and long names ---- */

static bool get_decimal(const char *text, size_t len, uint64_t *ret)
{
	uint64_t value = 0;

	for (size_t i = 0; i < len; i++) {
		if (text[i] == '.' && i) /* fractions of a second */
			break;
		if (text[i] < '0' || text[i] > '9' || value > UINT64_MAX / 16)
			return false;
		value = value * 10 + (uint64_t)(text[i] - '0');
	}
	*ret = value;
	return len > 0;
}

static bool get_path(char ret[static TAR_PATH_MAX], const char *text, size_t len)
{
	if (len >= TAR_PATH_MAX || memchr(text, '\0', len))
		return false;
	memcpy(ret, text, len);
	ret[len] = '\0';
	return true;
}

static bool key_is(const char *key, size_t len, const char *name)
{
	return strlen(name) == len && !memcmp(key, name, len);
}

static int take_pair(
	struct tar_entry *e, struct extra *x, const char *key, size_t key_len, const char *value, size_t len, struct ak_err *err)
{
	uint64_t number = 0;
	bool ok = true;

	if (key_is(key, key_len, "path"))
		ok = x->has_name = get_path(e->name, value, len);
	else if (key_is(key, key_len, "linkpath"))
		ok = x->has_target = get_path(e->target, value, len);
	else if (key_is(key, key_len, "size"))
		ok = x->has_size = get_decimal(value, len, &x->size);
	else if (key_is(key, key_len, "uid"))
		ok = x->has_uid = get_decimal(value, len, &x->uid);
	else if (key_is(key, key_len, "gid"))
		ok = x->has_gid = get_decimal(value, len, &x->gid);
	else if (key_is(key, key_len, "mtime") && len && value[0] != '-') {
		ok = x->has_mtime = get_decimal(value, len, &number);
		x->mtime_s = (int64_t)(number & INT64_MAX);
	} else if (key_len > 10 && !memcmp(key, "GNU.sparse", 10))
		return ak_fail(err, EBADMSG, "the layer has sparse files, which layers must not have");
	return ok ? 0 : ak_fail(err, EBADMSG, "bad pax header '%.*s'", (int)(key_len > 40 ? 40 : key_len), key);
}

/* Records "LENGTH KEY=VALUE\n". */
static int take_pax(struct tar_entry *e, struct extra *x, const char *text, size_t len, struct ak_err *err)
{
	while (len) {
		const char *space = memchr(text, ' ', len), *equals;
		uint64_t record = 0;
		int rc;

		if (!space || !get_decimal(text, (size_t)(space - text), &record) || record > len ||
			record < (size_t)(space - text) + 3 || text[record - 1] != '\n')
			return ak_fail(err, EBADMSG, "bad pax header");
		equals = memchr(space, '=', (size_t)record - 1 - (size_t)(space - text));
		if (!equals)
			return ak_fail(err, EBADMSG, "bad pax header");
		rc = take_pair(
			e, x, space + 1, (size_t)(equals - space - 1), equals + 1, (size_t)(text + record - 1 - equals - 1), err);
		if (rc < 0)
			return rc;
		text += record;
		len -= (size_t)record;
	}
	return 0;
}

static int take_extra(struct tar *t, char type, uint64_t size, struct tar_entry *e, struct extra *x, struct ak_err *err)
{
	_cleanup_free_ char *text = NULL;
	bool ok = true;
	int rc;

	if (size > EXTRA_MAX)
		return ak_fail(err, EBADMSG, "a header of %llu bytes in the layer", (unsigned long long)size);
	text = malloc(EXTRA_MAX + 1);
	if (!text)
		return ak_fail(err, ENOMEM, "out of memory");
	begin_content(t, size);
	rc = (int)tar_read(t, text, (size_t)size, err);
	if (rc < 0)
		return rc;
	text[size] = '\0';
	if (type == 'x')
		rc = take_pax(e, x, text, (size_t)size, err);
	else if (type == 'L')
		ok = x->has_name = get_path(e->name, text, strlen(text));
	else if (type == 'K')
		ok = x->has_target = get_path(e->target, text, strlen(text));
	if (rc >= 0 && !ok)
		rc = ak_fail(err, EBADMSG, "a path of more than %d bytes in the layer", TAR_PATH_MAX - 1);
	return rc < 0 ? rc : skip_rest(t, err);
}

/* ---- entries ---- */

static bool get_kind(char type, enum tar_kind *ret)
{
	switch (type) {
	case '\0':
	case '0':
	case '7':
		*ret = TAR_FILE;
		return true;
	case '1':
		*ret = TAR_HARD_LINK;
		return true;
	case '2':
		*ret = TAR_LINK;
		return true;
	case '3':
	case '4':
		*ret = TAR_DEVICE;
		return true;
	case '5':
		*ret = TAR_FOLDER;
		return true;
	case '6':
		*ret = TAR_FIFO;
		return true;
	default:
		return false;
	}
}

static void take_names(const struct header *h, const struct extra *x, struct tar_entry *e)
{
	bool prefix = h->prefix[0] && !memcmp(h->magic, "ustar", 6);

	if (!x->has_name)
		snprintf(e->name, sizeof(e->name), "%.*s%s%.*s", prefix ? (int)sizeof(h->prefix) : 0, h->prefix,
			prefix ? "/" : "", (int)sizeof(h->name), h->name);
	if (!x->has_target)
		snprintf(e->target, sizeof(e->target), "%.*s", (int)sizeof(h->target), h->target);
}

static int take_entry(
	struct tar *t, const struct header *h, uint64_t size, const struct extra *x, struct tar_entry *e, struct ak_err *err)
{
	uint64_t mode, uid, gid, mtime = 0;
	size_t len;

	if (!get_kind(h->type, &e->kind))
		return ak_fail(
			err, EBADMSG, "unknown kind of entry '%c' in the layer", h->type > 32 && h->type < 127 ? h->type : '?');
	if (!get_number(h->mode, sizeof(h->mode), &mode) || !get_number(h->uid, sizeof(h->uid), &uid) ||
		!get_number(h->gid, sizeof(h->gid), &gid))
		return ak_fail(err, EBADMSG, "bad number in a header of the layer");
	(void)get_number(h->mtime, sizeof(h->mtime), &mtime); /* negative ones exist and do no harm */
	take_names(h, x, e);
	e->mode = (uint32_t)mode & 07777;
	e->uid = (uint32_t)(x->has_uid ? x->uid : uid);
	e->gid = (uint32_t)(x->has_gid ? x->gid : gid);
	e->mtime_s = x->has_mtime ? x->mtime_s : (int64_t)(mtime & INT64_MAX);
	len = strlen(e->name);
	if (e->kind == TAR_FILE && len && e->name[len - 1] == '/') /* as written before ustar had folders */
		e->kind = TAR_FOLDER;
	e->size = e->kind == TAR_FILE ? (x->has_size ? x->size : size) : 0;
	if (e->size > INT64_MAX / 2)
		return ak_fail(err, EBADMSG, "'%.100s': bad size", e->name);
	begin_content(t, e->size);
	return 1;
}

int tar_next(struct tar *t, struct tar_entry *ret, struct ak_err *err)
{
	struct extra x = { 0 };
	struct header h;
	int rc = skip_rest(t, err);

	for (unsigned n = 0; rc >= 0; n++) {
		uint64_t size;
		ssize_t got = t->read(t->ctx, &h, sizeof(h));

		if (got < 0)
			return ak_fail_errno(err, (int)-got, "reading the layer");
		/* The second block of zeroes may be missing, and some writers leave out both. */
		if (n == 0 && (got == 0 || (got == sizeof(h) && is_zero(&h))))
			return 0;
		if (got < (ssize_t)sizeof(h))
			return truncated(err);
		if (!sum_ok(&h) || !get_number(h.size, sizeof(h.size), &size))
			return ak_fail(err, EBADMSG, "not a layer: bad header");
		if (!strchr("xgLK", h.type) || !h.type)
			return take_entry(t, &h, size, &x, ret, err);
		if (n == 8)
			return ak_fail(err, EBADMSG, "too many headers for one entry of the layer");
		rc = take_extra(t, h.type, size, ret, &x, err);
	}
	return rc;
}
