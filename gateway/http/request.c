/* Parse one request. See http/request.h. */
#include "gateway/http/request.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/number.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char *const method_names[] = {
	[HTTP_GET] = "GET",
	[HTTP_HEAD] = "HEAD",
	[HTTP_POST] = "POST",
	[HTTP_PUT] = "PUT",
	[HTTP_PATCH] = "PATCH",
	[HTTP_DELETE] = "DELETE",
	[HTTP_OTHER] = "?",
};
static_assert(ARRAY_SIZE(method_names) == HTTP_METHOD_NUM, "a name for each");

const char *http_method_name(enum http_method m)
{
	return method_names[m];
}

static enum http_method method_of(const char *text)
{
	for (int m = 0; m < HTTP_OTHER; m++) {
		if (!strcmp(method_names[m], text))
			return (enum http_method)m;
	}
	return HTTP_OTHER;
}

/* ---- percent-decoding ---- */

/* Decode FROM up to END into *TO, and advance *TO past the terminating NUL. */
static int decode(const char *from, const char *end, bool plus, char **to, struct ak_err *err)
{
	char *start = *to, *out = start;

	for (; from < end; from++) {
		char c = *from;

		if (c == '%') {
			int hi = end - from > 2 ? ak_hex_digit(from[1]) : -1, lo = hi < 0 ? -1 : ak_hex_digit(from[2]);

			if (lo < 0)
				return ak_fail(err, EINVAL, "the URL contains a '%%' without two hexadecimal digits");
			c = (char)(hi << 4 | lo);
			from += 2;
		} else if (plus && c == '+') {
			c = ' ';
		}
		if (!c)
			return ak_fail(err, EINVAL, "the URL contains a NUL");
		*out++ = c;
	}
	*out = '\0';
	for (const unsigned char *p = (const unsigned char *)start; *p;) {
		size_t n = ak_utf8_length(p, (size_t)(out - (const char *)p));

		if (!n)
			return ak_fail(err, EINVAL, "the URL is not UTF-8");
		p += n;
	}
	*to = out + 1;
	return 0;
}

static int split_path(struct http_request *r, const char *from, const char *end, char **to, struct ak_err *err)
{
	while (from < end) {
		const char *slash = memchr(from, '/', (size_t)(end - from)), *stop = slash ? slash : end;

		if (stop > from) {
			int rc;

			if (r->n_parts == HTTP_PARTS_MAX)
				return ak_fail(err, EINVAL, "the URL path has more than %d parts", HTTP_PARTS_MAX);
			r->parts[r->n_parts++] = *to;
			rc = decode(from, stop, false, to, err);
			if (rc < 0)
				return rc;
		}
		from = stop + 1;
	}
	return 0;
}

static int split_query(struct http_request *r, const char *from, const char *end, char **to, struct ak_err *err)
{
	while (from < end) {
		const char *amp = memchr(from, '&', (size_t)(end - from)), *stop = amp ? amp : end;
		const char *eq = memchr(from, '=', (size_t)(stop - from)), *key_end = eq ? eq : stop;
		int rc;

		if (stop > from) {
			if (r->n_query == HTTP_QUERY_MAX)
				return ak_fail(err, EINVAL, "more than %d parameters", HTTP_QUERY_MAX);
			r->query[r->n_query].key = *to;
			rc = decode(from, key_end, true, to, err);
			r->query[r->n_query].value = *to;
			if (rc == 0)
				rc = decode(eq ? eq + 1 : stop, stop, true, to, err);
			if (rc < 0)
				return rc;
			if (http_request_query(r, r->query[r->n_query].key))
				return ak_fail(err, EINVAL, "%.60s: parameter given twice", r->query[r->n_query].key);
			r->n_query++;
		}
		from = stop + 1;
	}
	return 0;
}

const char *http_request_query(const struct http_request *r, const char *key)
{
	for (size_t i = 0; i < r->n_query; i++) {
		if (!strcmp(r->query[i].key, key))
			return r->query[i].value;
	}
	return NULL;
}

/* TARGET has origin form or absolute form: http_head_parse has checked that. */
static int split_target(struct http_request *r, const char *target, struct ak_err *err)
{
	const char *path = target, *end = target + strlen(target), *query;
	char *to;
	int rc;

	if (*target != '/') {
		path = strstr(target, "://");
		path = path ? path + 3 + strcspn(path + 3, "/?#") : end;
	}
	if (memchr(path, '#', (size_t)(end - path)))
		return ak_fail(err, EINVAL, "the URL contains a '#'");
	query = memchr(path, '?', (size_t)(end - path));
	/* Decoding adds at most one NUL per path part and two per parameter, so twice the length is enough. */
	to = r->store = malloc(2 * strlen(target) + 4);
	if (!to)
		return ak_fail(err, ENOMEM, "out of memory");
	rc = split_path(r, path, query ? query : end, &to, err);
	if (rc == 0 && query)
		rc = split_query(r, query + 1, end, &to, err);
	return rc;
}

/* ---- headers ---- */

static bool has_word(const char *list, const char *word)
{
	size_t n = strlen(word);

	for (const char *p = list; *p; p += strcspn(p, ",")) {
		p += strspn(p, ", \t");
		if (!strncasecmp(p, word, n) && strchr(", \t", p[n]))
			return true;
	}
	return false;
}

static int take_once(const char **field, const char *name, const char *value, struct ak_err *err)
{
	if (*field)
		return ak_fail(err, EINVAL, "%s: header given twice", name);
	*field = value;
	return 0;
}

static int take_header(struct http_request *r, const char *name, const char *value, struct ak_err *err)
{
	if (!strcasecmp(name, "Host"))
		r->host = value;
	else if (!strcasecmp(name, "Authorization"))
		return take_once(&r->authorization, "Authorization", value, err);
	else if (!strcasecmp(name, "Origin"))
		return take_once(&r->origin, "Origin", value, err);
	else if (!strcasecmp(name, "Sec-Fetch-Site"))
		r->cross_site |= !strcasecmp(value, "cross-site") || !strcasecmp(value, "same-site");
	else if (!strcasecmp(name, "Connection"))
		r->keep_alive = r->keep_alive && !has_word(value, "close");
	else if (!strcasecmp(name, "Expect"))
		r->expect_continue = !r->http10 && !strcasecmp(value, "100-continue");
	else if (!strcasecmp(name, "Content-Encoding") && strcasecmp(value, "identity") != 0)
		return ak_fail(err, EINVAL, "Content-Encoding '%.40s' is not supported; send the body unencoded", value);
	return 0;
}

/* Split LINE into name and value. http_head_parse has checked its syntax. */
static int split_header(struct http_request *r, char *line, struct ak_err *err)
{
	char *value = strchr(line, ':'), *end;

	if (!value)
		return 0;
	*value++ = '\0';
	value += strspn(value, " \t");
	for (end = value + strlen(value); end > value && strchr(" \t", end[-1]);)
		*--end = '\0';
	return take_header(r, line, value, err);
}

static char *next_line(char **at)
{
	char *line = *at, *end = strstr(line, "\r\n");

	if (!end)
		return NULL;
	*end = '\0';
	*at = end + 2;
	return line;
}

int http_request_parse(const char *data, const struct http_head *head, struct http_request *ret, struct ak_err *err)
{
	char *at, *line, *target, *version;
	int rc = 0;

	*ret = (struct http_request){ .head = *head, .host = "" };
	at = ret->text = strndup(data, head->len);
	if (!at)
		return ak_fail(err, ENOMEM, "out of memory");
	line = next_line(&at);
	if (line && !*line) /* one empty line is allowed before the request line */
		line = next_line(&at);
	target = line ? strchr(line, ' ') : NULL;
	version = target ? strrchr(target, ' ') : NULL;
	if (!version || version == target)
		return ak_fail(err, EINVAL, "malformed request line");
	*target++ = *version++ = '\0';
	ret->method = method_of(line);
	ret->http10 = !strcmp(version, "HTTP/1.0");
	ret->keep_alive = !ret->http10; /* HTTP/1.0 connections are always closed, even with "Connection: keep-alive" */
	while (rc == 0 && (line = next_line(&at)) && *line)
		rc = split_header(ret, line, err);
	return rc < 0 ? rc : split_target(ret, target, err);
}

void http_request_done(struct http_request *r)
{
	free(r->text);
	free(r->store);
	*r = (struct http_request){ 0 };
}

/* ---- the body ---- */

ssize_t http_request_body(struct http_body *b, const char *data, size_t len, struct strbuf *body)
{
	size_t at = 0;

	while (at < len && b->state != HTTP_BODY_DONE) {
		bool payload = b->state == HTTP_BODY_LENGTH || b->state == HTTP_BODY_DATA;
		size_t n = payload ? len - at : 1;

		if (payload && b->left < n)
			n = (size_t)b->left;
		if (payload && b->left > HTTP_BODY_CAP - body->len)
			return -EFBIG;
		if (http_body_take(b, data + at, n) < 0)
			return -EBADMSG;
		if (payload)
			strbuf_add(body, data + at, n);
		if (body->failed)
			return -ENOMEM;
		at += n;
	}
	return (ssize_t)at;
}
