/*
 * ClientHello reader (RFC 8446 section 4.1.2, RFC 6066 section 3, RFC 8446 section 5.1 for the records).
 *
 * Record headers are parsed as they arrive. Once the handshake message is complete, it is joined if it spans several records
 * and then parsed with a bounded cursor. All lengths must add up exactly: a hello that two parsers could read differently is
 * refused.
 */
#include "gateway/wire/tls_hello.h"

#include <string.h>

enum {
	RECORD_HANDSHAKE = 22,
	RECORD_HEADER = 5,
	RECORD_MAX = 16384,
	MESSAGE_HEADER = 4,
	MESSAGE_CLIENT_HELLO = 1,
	EXT_SERVER_NAME = 0,
	EXT_ECH = 0xfe0d,
	NAME_TYPE_HOST = 0,
};

/* ---- cursor: after a failed read it is empty and marked as failed ---- */

struct cursor {
	const uint8_t *at;
	size_t left;
	bool bad;
};

static struct cursor take(struct cursor *c, size_t n)
{
	struct cursor part = { c->at, n, false };

	if (c->bad || c->left < n) {
		c->bad = true;
		c->left = 0;
		return (struct cursor){ c->at, 0, true };
	}
	c->at += n;
	c->left -= n;
	return part;
}

static unsigned take_uint(struct cursor *c, unsigned bytes)
{
	struct cursor part = take(c, bytes);
	unsigned v = 0;

	for (size_t i = 0; i < part.left; i++)
		v = v << 8 | part.at[i];
	return v;
}

/* Read a vector with a length prefix of BYTES bytes. */
static struct cursor take_vector(struct cursor *c, unsigned bytes)
{
	unsigned n = take_uint(c, bytes);

	return take(c, n);
}

static enum tls_hello_status fail(struct tls_hello *h, enum tls_hello_status status, const char *why)
{
	h->why = why;
	h->has_sni = false;
	return status;
}

/* ---- extensions ---- */

static enum tls_hello_status read_sni(struct cursor ext, struct tls_hello *h)
{
	struct cursor list = take_vector(&ext, 2);
	unsigned type = take_uint(&list, 1);
	struct cursor name = take_vector(&list, 2);

	if (h->has_sni)
		return fail(h, TLS_HELLO_BAD, "SNI given twice");
	if (ext.bad || ext.left || list.bad || name.bad || !name.left || name.left >= sizeof(h->sni))
		return fail(h, TLS_HELLO_BAD, "malformed SNI");
	if (type != NAME_TYPE_HOST)
		return fail(h, TLS_HELLO_BAD, "SNI of an unknown type");
	if (list.left)
		return fail(h, TLS_HELLO_BAD, "several names in SNI");
	if (memchr(name.at, 0, name.left))
		return fail(h, TLS_HELLO_BAD, "NUL in SNI");
	memcpy(h->sni, name.at, name.left);
	h->sni[name.left] = '\0';
	h->has_sni = true;
	return TLS_HELLO_OK;
}

static enum tls_hello_status read_extensions(struct cursor all, struct tls_hello *h)
{
	while (all.left) {
		unsigned type = take_uint(&all, 2);
		struct cursor ext = take_vector(&all, 2);

		if (all.bad || ext.bad)
			return fail(h, TLS_HELLO_BAD, "malformed TLS extension");
		if (type == EXT_ECH)
			h->ech = true;
		if (type == EXT_SERVER_NAME && read_sni(ext, h) != TLS_HELLO_OK)
			return TLS_HELLO_BAD;
	}
	return TLS_HELLO_OK;
}

static enum tls_hello_status read_message(struct cursor msg, struct tls_hello *h)
{
	unsigned version = take_uint(&msg, 2);
	struct cursor extensions;

	take(&msg, 32); /* random */
	if (take_vector(&msg, 1).left > 32) /* session id */
		return fail(h, TLS_HELLO_BAD, "malformed ClientHello");
	take_vector(&msg, 2); /* cipher suites */
	take_vector(&msg, 1); /* compression methods */
	if (msg.bad || version >> 8 != 3)
		return fail(h, TLS_HELLO_BAD, "malformed ClientHello");
	if (!msg.left)
		return TLS_HELLO_OK; /* TLS 1.0 without extensions: no SNI */
	extensions = take_vector(&msg, 2);
	if (msg.bad || msg.left)
		return fail(h, TLS_HELLO_BAD, "malformed ClientHello");
	return read_extensions(extensions, h);
}

/* ---- records ---- */

/* Decide from the first bytes whether this is TLS, each as soon as it is available. */
static enum tls_hello_status check_start(const uint8_t *d, size_t len, struct tls_hello *h)
{
	if (len >= 1 && d[0] & 0x80 && (len < 3 || d[2] == 1))
		return len < 3 ? TLS_HELLO_MORE : fail(h, TLS_HELLO_NOT_TLS, "SSLv2 hello");
	if (len >= 1 && d[0] != RECORD_HANDSHAKE)
		return fail(h, TLS_HELLO_NOT_TLS, "not TLS");
	if (len >= 2 && d[1] != 3)
		return fail(h, TLS_HELLO_NOT_TLS, "not TLS");
	if (len > RECORD_HEADER && d[RECORD_HEADER] != MESSAGE_CLIENT_HELLO)
		return fail(h, TLS_HELLO_NOT_TLS, "not a TLS ClientHello");
	return len < RECORD_HEADER ? TLS_HELLO_MORE : TLS_HELLO_OK;
}

/* Parse the record at R->record: returns how much of its payload is available, 0 while its header is incomplete. */
static enum tls_hello_status check_record(
	const struct tls_hello_reader *r, const uint8_t *data, size_t len, size_t *ret_size, size_t *ret_got, struct tls_hello *h)
{
	struct cursor in = { data + r->record, len - r->record, false };
	unsigned type, version, size;

	if (in.left < RECORD_HEADER)
		return TLS_HELLO_MORE;
	type = take_uint(&in, 1);
	version = take_uint(&in, 2);
	size = take_uint(&in, 2);
	if (type != RECORD_HANDSHAKE || version >> 8 != 3 || size == 0 || size > RECORD_MAX)
		return fail(h, TLS_HELLO_BAD, "malformed TLS record");
	*ret_size = size;
	*ret_got = in.left < size ? in.left : size;
	return TLS_HELLO_OK;
}

/* The length of the message including its header, or 0 if not known yet. GOT bytes at AT follow the R->have earlier ones. */
static size_t message_size(struct tls_hello_reader *r, const uint8_t *at, size_t got)
{
	for (size_t i = r->have; i < MESSAGE_HEADER && i - r->have < got; i++)
		r->head[i] = at[i - r->have];
	if (r->have + got < MESSAGE_HEADER)
		return 0;
	return MESSAGE_HEADER + ((size_t)r->head[1] << 16 | (size_t)r->head[2] << 8 | r->head[3]);
}

/* Walk the received records; OK with the length once the first handshake message is complete. */
static enum tls_hello_status follow_records(
	struct tls_hello_reader *r, const uint8_t *data, size_t len, struct tls_hello *h, size_t *ret_want)
{
	for (;;) {
		size_t size, got, want;
		enum tls_hello_status status = check_record(r, data, len, &size, &got, h);

		if (status != TLS_HELLO_OK)
			return status;
		want = message_size(r, data + r->record + RECORD_HEADER, got);
		if (want > MESSAGE_HEADER + TLS_HELLO_BODY_MAX)
			return fail(h, TLS_HELLO_BAD, "ClientHello too long");
		if (want && r->have + got >= want) {
			*ret_want = want;
			return TLS_HELLO_OK;
		}
		if (got < size)
			return TLS_HELLO_MORE;
		r->have += size;
		r->record += RECORD_HEADER + size;
	}
}

/* A message in several records: rare, and the buffer is large. */
static __attribute__((noinline)) enum tls_hello_status read_joined(const uint8_t *data, size_t want, struct tls_hello *h)
{
	uint8_t buf[MESSAGE_HEADER + TLS_HELLO_BODY_MAX];
	size_t have = 0;

	while (have < want) {
		size_t size = (size_t)data[3] << 8 | data[4], n = size < want - have ? size : want - have;

		memcpy(buf + have, data + RECORD_HEADER, n);
		have += n;
		data += RECORD_HEADER + size;
	}
	return read_message((struct cursor){ buf + MESSAGE_HEADER, want - MESSAGE_HEADER, false }, h);
}

enum tls_hello_status tls_hello_read(struct tls_hello_reader *r, const uint8_t *data, size_t len, struct tls_hello *ret)
{
	size_t in_len = len < TLS_HELLO_MAX ? len : TLS_HELLO_MAX, want = 0;
	enum tls_hello_status status;

	memset(ret, 0, sizeof(*ret));
	status = check_start(data, in_len, ret);
	if (status != TLS_HELLO_OK)
		return status;
	status = follow_records(r, data, in_len, ret, &want);
	if (status == TLS_HELLO_MORE && len >= TLS_HELLO_MAX)
		return fail(ret, TLS_HELLO_BAD, "ClientHello too long");
	if (status != TLS_HELLO_OK)
		return status;
	if (r->record)
		return read_joined(data, want, ret);
	data += RECORD_HEADER + MESSAGE_HEADER;
	return read_message((struct cursor){ data, want - MESSAGE_HEADER, false }, ret);
}

enum tls_hello_status tls_hello_parse(const uint8_t *data, size_t len, struct tls_hello *ret)
{
	struct tls_hello_reader r = { 0 };

	return tls_hello_read(&r, data, len, ret);
}
