/*
 * ClientHello reader (RFC 8446 section 4.1.2, RFC 6066 section 3, RFC 8446 section 5.1 for the records).
 *
 * Records are joined into one handshake message first; then a bounded cursor walks it. Every length must add
 * up exactly: a hello that two parsers could read in two ways is refused.
 */
#include "gateway/tls_hello.h"

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

/* ---- cursor: a failed take leaves it empty and marked ---- */

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

/* A vector with a length of BYTES bytes before it. */
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

/* The first bytes decide whether this is TLS at all, as soon as each of them is there. */
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

/* Join the payload of the records; OK once the first handshake message is whole in BUF. */
static enum tls_hello_status join_records(
	struct cursor in, struct tls_hello *h, uint8_t buf[static TLS_HELLO_MAX], size_t *ret_len)
{
	size_t have = 0, want = MESSAGE_HEADER;

	while (in.left >= RECORD_HEADER) {
		unsigned type = take_uint(&in, 1), version = take_uint(&in, 2), n = take_uint(&in, 2);
		struct cursor part;

		if (type != RECORD_HANDSHAKE || version >> 8 != 3 || n == 0 || n > RECORD_MAX)
			return fail(h, TLS_HELLO_BAD, "malformed TLS record");
		part = take(&in, n < in.left ? n : in.left);
		memcpy(buf + have, part.at, part.left); /* the input is at most as long as BUF */
		have += part.left;
		if (have >= MESSAGE_HEADER)
			want = MESSAGE_HEADER + ((size_t)buf[1] << 16 | (size_t)buf[2] << 8 | buf[3]);
		if (want > TLS_HELLO_MAX - RECORD_HEADER)
			return fail(h, TLS_HELLO_BAD, "ClientHello too long");
		if (have >= want) {
			*ret_len = want;
			return TLS_HELLO_OK;
		}
	}
	return TLS_HELLO_MORE;
}

enum tls_hello_status tls_hello_parse(const uint8_t *data, size_t len, struct tls_hello *ret)
{
	uint8_t buf[TLS_HELLO_MAX];
	size_t in_len = len < TLS_HELLO_MAX ? len : TLS_HELLO_MAX, msg_len = 0;
	enum tls_hello_status status;

	memset(ret, 0, sizeof(*ret));
	status = check_start(data, in_len, ret);
	if (status != TLS_HELLO_OK)
		return status;
	status = join_records((struct cursor){ data, in_len, false }, ret, buf, &msg_len);
	if (status == TLS_HELLO_MORE && len >= TLS_HELLO_MAX)
		return fail(ret, TLS_HELLO_BAD, "ClientHello too long");
	if (status != TLS_HELLO_OK)
		return status;
	return read_message((struct cursor){ buf + MESSAGE_HEADER, msg_len - MESSAGE_HEADER, false }, ret);
}
