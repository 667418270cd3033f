/* HTTP/1.x request heads and bodies: see wire/http_head.h. */
#include "gateway/wire/http_head.h"

#include "gateway/base/number.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

#define METHOD_MAX 32
#define EXTRA_MAX 8192 /* chunk extensions and trailers of one body */

struct text {
	const char *at;
	size_t len;
};

static enum http_status fault(struct http_head *h, enum http_fault what, const char *why)
{
	h->fault = what;
	h->why = why;
	return HTTP_BAD;
}

static enum http_status bad(struct http_head *h, const char *why)
{
	return fault(h, HTTP_FAULT_SYNTAX, why);
}

static bool is_tchar(unsigned char c)
{
	return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c && strchr("!#$%&'*+-.^_`|~", c));
}

static bool is_token(struct text t)
{
	for (size_t i = 0; i < t.len; i++)
		if (!is_tchar((unsigned char)t.at[i]))
			return false;
	return t.len > 0;
}

static bool text_is(struct text t, const char *word)
{
	return t.len == strlen(word) && strncasecmp(t.at, word, t.len) == 0;
}

/* No control characters, except a tab if TAB. Bytes beyond ASCII are accepted. */
static bool is_clean(struct text t, bool tab)
{
	for (size_t i = 0; i < t.len; i++) {
		unsigned char c = (unsigned char)t.at[i];

		if ((c < 0x20 && !(tab && c == '\t')) || c == 0x7f)
			return false;
	}
	return true;
}

/* ---- lines ---- */

/*
 * Return the next line without its CRLF; MORE if it is incomplete. The available part is checked anyway, so that data that is
 * not HTTP is refused by its first bytes.
 */
static enum http_status next_line(struct http_reader *r, const char *data, size_t len, struct text *ret)
{
	const char *lf = memchr(data + r->seen, '\n', len - r->seen);
	size_t end = lf ? (size_t)(lf - data) : len;
	bool cr = end > r->line && data[end - 1] == '\r';

	if (lf && !cr)
		return bad(&r->head, "line without CR");
	/* Check a trailing CR again together with the next byte. */
	end -= cr ? 1 : 0;
	if (end > r->seen && !is_clean((struct text){ data + r->seen, end - r->seen }, true))
		return bad(&r->head, "control character in the request head");
	if (!lf) {
		r->seen = end;
		return HTTP_MORE;
	}
	*ret = (struct text){ data + r->line, end - r->line };
	r->line = r->seen = (size_t)(lf + 1 - data);
	return HTTP_OK;
}

/* ---- host and port ---- */

static bool port_ok(struct text t)
{
	if (t.len > 5)
		return false;
	for (size_t i = 0; i < t.len; i++)
		if (t.at[i] < '0' || t.at[i] > '9')
			return false;
	return true;
}

/* host[:port] → host; an IPv6 literal keeps its brackets, so that it is never taken for a name. */
static bool split_authority(struct text t, struct text *ret_host)
{
	const char *end = t.len && t.at[0] == '[' ? memchr(t.at, ']', t.len) : memchr(t.at, ':', t.len);
	struct text host = t, port = { t.at, 0 };

	if (t.len && t.at[0] == '[') {
		if (!end)
			return false;
		host.len = (size_t)(end + 1 - t.at);
		if (host.len < t.len && t.at[host.len] != ':')
			return false;
	} else if (end) {
		host.len = (size_t)(end - t.at);
	}
	if (host.len < t.len)
		port = (struct text){ t.at + host.len + 1, t.len - host.len - 1 };
	if (!port_ok(port))
		return false;
	for (size_t i = 0; i < host.len; i++)
		if ((unsigned char)host.at[i] <= ' ' || strchr("@/\\,;?#%\"<>", host.at[i]))
			return false;
	*ret_host = host;
	return true;
}

static enum http_status set_host(struct http_head *h, struct text authority)
{
	struct text host;

	if (!split_authority(authority, &host) || host.len >= sizeof(h->host))
		return bad(h, "malformed Host");
	memcpy(h->host, host.at, host.len);
	h->host[host.len] = '\0';
	h->has_host = true;
	return HTTP_OK;
}

/* ---- request line ---- */

static enum http_status check_target(struct text method, struct text target, struct http_head *h)
{
	static const char scheme[] = "http://";
	size_t n = strlen(scheme);
	struct text rest;

	if (!target.len || !is_clean(target, false))
		return bad(h, "malformed request target");
	if (target.at[0] == '/' || (text_is(target, "*") && text_is(method, "OPTIONS")))
		return HTTP_OK;
	if (target.len <= n || strncasecmp(target.at, scheme, n) != 0)
		return bad(h, "malformed request target");
	rest = (struct text){ target.at + n, target.len - n };
	for (size_t i = 0; i < rest.len; i++) {
		if (strchr("/?#", rest.at[i])) {
			rest.len = i;
			break;
		}
	}
	return rest.len ? set_host(h, rest) : bad(h, "malformed request target");
}

/* These methods define no meaning for a body. A server might parse the body as the next request, hidden from the relay. */
static bool is_bodiless(struct text method)
{
	return text_is(method, "GET") || text_is(method, "HEAD") || text_is(method, "DELETE") || text_is(method, "TRACE");
}

/* METHOD SP target SP HTTP/1.x, with exactly these two spaces. */
static enum http_status parse_request_line(struct text line, struct http_reader *r)
{
	struct http_head *h = &r->head;
	const char *sp = memchr(line.at, ' ', line.len), *last = memrchr(line.at, ' ', line.len);
	struct text method, target, version;

	if (!sp || sp == last)
		return bad(h, "malformed request line");
	method = (struct text){ line.at, (size_t)(sp - line.at) };
	target = (struct text){ sp + 1, (size_t)(last - sp - 1) };
	version = (struct text){ last + 1, line.len - (size_t)(last + 1 - line.at) };
	if (!is_token(method) || method.len > METHOD_MAX || memchr(target.at, ' ', target.len))
		return bad(h, "malformed request line");
	if (text_is(method, "PRI"))
		return bad(h, "HTTP/2 without TLS");
	if (text_is(method, "CONNECT"))
		return bad(h, "CONNECT");
	r->http10 = version.len == 8 && memcmp(version.at, "HTTP/1.0", 8) == 0;
	if (!r->http10 && !(version.len == 8 && memcmp(version.at, "HTTP/1.1", 8) == 0))
		return fault(h, HTTP_FAULT_VERSION, "unknown HTTP version");
	r->bodiless = is_bodiless(method);
	return check_target(method, target, h);
}

/* Check the method of an incomplete line: it must be a token of permitted length. */
static enum http_status check_partial(struct text in, struct http_head *h)
{
	const char *sp = memchr(in.at, ' ', in.len < METHOD_MAX + 1 ? in.len : METHOD_MAX + 1);
	struct text method = { in.at, sp ? (size_t)(sp - in.at) : in.len };

	if (in.len && in.at[0] == '\r')
		return HTTP_MORE;
	if (in.len && (method.len > METHOD_MAX || !is_token(method)))
		return bad(h, "not HTTP");
	return HTTP_MORE;
}

/* ---- fields ---- */

static enum http_status parse_length(struct text v, struct http_head *h)
{
	uint64_t n = 0;

	if (!v.len || v.len > 18)
		return bad(h, "malformed Content-Length");
	for (size_t i = 0; i < v.len; i++) {
		if (v.at[i] < '0' || v.at[i] > '9')
			return bad(h, "malformed Content-Length");
		n = n * 10 + (uint64_t)(v.at[i] - '0');
	}
	h->has_length = true;
	h->length = n;
	return HTTP_OK;
}

static enum http_status parse_field(struct text line, const char *data, struct http_reader *r)
{
	const char *colon = memchr(line.at, ':', line.len);
	struct http_head *h = &r->head;
	struct text name, v;

	if (line.at[0] == ' ' || line.at[0] == '\t')
		return bad(h, "folded header line");
	if (!colon)
		return bad(h, "malformed header line");
	name = (struct text){ line.at, (size_t)(colon - line.at) };
	v = (struct text){ colon + 1, line.len - name.len - 1 };
	if (!is_token(name))
		return bad(h, "malformed header name");
	while (v.len && (v.at[0] == ' ' || v.at[0] == '\t'))
		v.at++, v.len--;
	while (v.len && (v.at[v.len - 1] == ' ' || v.at[v.len - 1] == '\t'))
		v.len--;
	if (text_is(name, "Host")) {
		r->n_host++;
		r->host = (size_t)(v.at - data);
		r->host_len = v.len;
	} else if (text_is(name, "Content-Length")) {
		r->n_length++;
		return parse_length(v, h);
	} else if (text_is(name, "Transfer-Encoding")) {
		r->n_encoding++;
		h->chunked = text_is(v, "chunked");
		return h->chunked ? HTTP_OK : bad(h, "unknown Transfer-Encoding");
	} else if (text_is(name, "Upgrade")) {
		r->n_upgrade++;
		h->websocket = text_is(v, "websocket");
	}
	return HTTP_OK;
}

/* Check the fields against each other. */
static enum http_status check_fields(struct http_reader *r, const char *data)
{
	struct http_head *h = &r->head;
	char target_host[sizeof(h->host)];
	bool absolute = h->has_host;

	if (r->n_host > 1)
		return bad(h, "Host given twice");
	if (r->n_length > 1 || r->n_encoding > 1)
		return bad(h, "body length given twice");
	if (r->n_encoding && (r->n_length || r->http10))
		return bad(h, "ambiguous body length");
	if (r->n_upgrade != 1 || h->chunked || h->length)
		h->websocket = false;
	h->stray_body = r->bodiless && (h->chunked || h->length);
	if (!r->n_host)
		return HTTP_OK;
	memcpy(target_host, h->host, sizeof(target_host));
	if (set_host(h, (struct text){ data + r->host, r->host_len }) != HTTP_OK)
		return HTTP_BAD;
	/* RFC 9112 section 3.2.2: the target wins. Require both to be equal, because some servers do not implement that. */
	if (absolute && strcasecmp(target_host, h->host) != 0)
		return bad(h, "Host differs from the request target");
	return HTTP_OK;
}

static enum http_status read_request_line(struct http_reader *r, const char *data, size_t len)
{
	enum http_status st;
	struct text line;

	/* Ignore one empty line before a request (RFC 9112 section 2.2). */
	if (!r->line && len >= 2 && memcmp(data, "\r\n", 2) == 0)
		r->line = r->seen = 2;
	st = check_partial((struct text){ data + r->line, len - r->line }, &r->head);
	if (st == HTTP_BAD)
		return st;
	st = next_line(r, data, len, &line);
	if (st != HTTP_OK)
		return st;
	r->begun = true;
	return parse_request_line(line, r);
}

static enum http_status read_lines(struct http_reader *r, const char *data, size_t len)
{
	enum http_status st = r->begun ? HTTP_OK : read_request_line(r, data, len);
	struct text line;

	while (st == HTTP_OK) {
		st = next_line(r, data, len, &line);
		if (st == HTTP_OK && !line.len) {
			r->head.len = r->line;
			return check_fields(r, data);
		}
		if (st == HTTP_OK)
			st = parse_field(line, data, r);
	}
	return st;
}

enum http_status http_head_read(struct http_reader *r, const char *data, size_t len)
{
	enum http_status st = len ? read_lines(r, data, len < HTTP_HEAD_MAX ? len : HTTP_HEAD_MAX) : HTTP_MORE;

	return st == HTTP_MORE && len >= HTTP_HEAD_MAX ? fault(&r->head, HTTP_FAULT_LENGTH, "request head too long") : st;
}

enum http_status http_head_parse(const char *data, size_t len, struct http_head *ret)
{
	struct http_reader r = { 0 };
	enum http_status st = http_head_read(&r, data, len);

	*ret = r.head;
	return st;
}

/* ---- bodies ---- */

void http_body_init(struct http_body *b, const struct http_head *h)
{
	*b = (struct http_body){ 0 };
	if (h->chunked)
		b->state = HTTP_BODY_SIZE;
	else if (h->length)
		b->state = HTTP_BODY_LENGTH;
	b->left = h->chunked ? 0 : h->length;
}

/* The state after the size line of a chunk: its data, or the trailers after the last chunk. */
static enum http_body_state after_size(struct http_body *b)
{
	b->digits = 0;
	return b->left ? HTTP_BODY_DATA : HTTP_BODY_TRAILER;
}

static int body_size_char(struct http_body *b, char c)
{
	int digit = ak_hex_digit(c);

	if (digit >= 0 && b->digits < 15) {
		b->left = b->left << 4 | (uint64_t)digit;
		b->digits++;
		return 0;
	}
	if (!b->digits || (c != '\r' && c != ';'))
		return -EBADMSG;
	b->state = c == '\r' ? HTTP_BODY_SIZE_LF : HTTP_BODY_EXT;
	return 0;
}

/* Accept a byte of an extension or trailer: anything printable, up to CR. */
static int body_extra_char(struct http_body *b, char c, enum http_body_state at_cr)
{
	if (++b->extra > EXTRA_MAX)
		return -EBADMSG;
	if (c == '\r')
		b->state = at_cr;
	else if (((unsigned char)c < 0x20 && c != '\t') || c == 0x7f)
		return -EBADMSG;
	return 0;
}

static int body_expect(struct http_body *b, char c, char wanted, enum http_body_state next)
{
	if (c != wanted)
		return -EBADMSG;
	b->state = next;
	return 0;
}

static int body_char(struct http_body *b, char c)
{
	switch (b->state) {
	case HTTP_BODY_SIZE:
		return body_size_char(b, c);
	case HTTP_BODY_EXT:
		return body_extra_char(b, c, HTTP_BODY_SIZE_LF);
	case HTTP_BODY_SIZE_LF:
		return body_expect(b, c, '\n', after_size(b));
	case HTTP_BODY_DATA_CR:
		return body_expect(b, c, '\r', HTTP_BODY_DATA_LF);
	case HTTP_BODY_DATA_LF:
		return body_expect(b, c, '\n', HTTP_BODY_SIZE);
	case HTTP_BODY_TRAILER:
		if (c == '\r')
			return body_expect(b, c, '\r', HTTP_BODY_LAST_LF);
		b->state = HTTP_BODY_TRAILER_LINE;
		return is_tchar((unsigned char)c) ? body_extra_char(b, c, HTTP_BODY_TRAILER_LF) : -EBADMSG;
	case HTTP_BODY_TRAILER_LINE:
		return body_extra_char(b, c, HTTP_BODY_TRAILER_LF);
	case HTTP_BODY_TRAILER_LF:
		return body_expect(b, c, '\n', HTTP_BODY_TRAILER);
	case HTTP_BODY_LAST_LF:
		return body_expect(b, c, '\n', HTTP_BODY_DONE);
	case HTTP_BODY_DONE:
	case HTTP_BODY_LENGTH:
	case HTTP_BODY_DATA:
	case HTTP_BODY_STATE_NUM:
		break;
	}
	return -EBADMSG;
}

void http_body_skip(struct http_body *b, uint64_t n)
{
	b->left -= n;
	if (!b->left)
		b->state = b->state == HTTP_BODY_LENGTH ? HTTP_BODY_DONE : HTTP_BODY_DATA_CR;
}

ssize_t http_body_take(struct http_body *b, const char *data, size_t len)
{
	size_t at = 0;

	while (at < len && b->state != HTTP_BODY_DONE) {
		if (b->state == HTTP_BODY_LENGTH || b->state == HTTP_BODY_DATA) {
			size_t n = b->left < len - at ? (size_t)b->left : len - at;

			at += n;
			http_body_skip(b, n);
		} else if (body_char(b, data[at++]) < 0) {
			return -EBADMSG;
		}
	}
	return (ssize_t)at;
}
