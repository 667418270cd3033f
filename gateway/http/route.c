/* Find the route of a request, and check the request against it. See http/route.h. */
#include "gateway/http/route.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/paths.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- finding ---- */

static bool part_is(const char *pattern, size_t len, const char *word)
{
	return strlen(word) == len && !strncmp(pattern, word, len);
}

/* Join the parts from AT on into one path. */
static char *join_rest(const struct http_request *req, size_t at)
{
	_cleanup_strbuf_ struct strbuf out = { 0 };

	for (size_t i = at; i < req->n_parts; i++) {
		strbuf_putc(&out, '/');
		strbuf_puts(&out, req->parts[i]);
	}
	return strbuf_take(&out);
}

static bool match(const struct http_route *route, const struct http_request *req, struct http_params *ret)
{
	const char *p = route->path;
	size_t i = 0;

	*ret = (struct http_params){ 0 };
	for (; *p == '/'; i++) {
		size_t len = strcspn(++p, "/");

		if (i == req->n_parts)
			return false;
		if (part_is(p, len, "{path}")) {
			ret->path = join_rest(req, i);
			return ret->path != NULL;
		}
		if (part_is(p, len, "{name}"))
			ret->name = req->parts[i];
		else if (part_is(p, len, "{id}"))
			ret->id = req->parts[i];
		else if (part_is(p, len, "{tag}"))
			ret->tag = req->parts[i];
		else if (part_is(p, len, "{uuid}"))
			ret->uuid = req->parts[i];
		else if (!part_is(p, len, req->parts[i]))
			return false;
		p += len;
	}
	return i == req->n_parts;
}

/* "by-uuid" is also a valid sandbox name: the route with the fixed word has priority. */
static bool fixed_wins(const struct http_route *route, const struct http_request *req)
{
	return !strncmp(route->path, "/sandboxes/{name}", 17) && req->n_parts == 3 && !strcmp(req->parts[1], "by-uuid");
}

static int check_params(const struct http_params *p, struct ak_err *err)
{
	if (p->name && !ak_sandbox_name_ok(p->name))
		return ak_fail(err, EINVAL, "'%.64s' is not a name: 1 to 63 of A-Z a-z 0-9 _ -, a letter or digit at both ends",
			p->name);
	if (p->path && strlen(p->path) >= PATH_MAX)
		return ak_fail(err, EINVAL, "the path is longer than %d bytes", PATH_MAX - 1);
	for (const char *at = p->path; at; at = strchr(at + 1, '/')) {
		if (!strncmp(at, "/..", 3) && (at[3] == '/' || !at[3]))
			return ak_fail(err, EINVAL, "the path contains '..'");
	}
	return 0;
}

static void allow_add(char *allow, enum http_method m)
{
	size_t len = strlen(allow);

	snprintf(allow + len, HTTP_ALLOW_MAX - len, "%s%s", len ? ", " : "", http_method_name(m));
	if (m == HTTP_GET)
		allow_add(allow, HTTP_HEAD);
}

const struct http_route *http_route_find(const struct http_request *req, struct http_params *ret, unsigned *ret_status,
	char allow[static HTTP_ALLOW_MAX], struct ak_err *err)
{
	enum http_method wanted = req->method == HTTP_HEAD ? HTTP_GET : req->method;

	allow[0] = '\0';
	for (size_t i = 0; i < http_n_routes; i++) {
		const struct http_route *r = &http_routes[i];
		struct http_params params;

		if (fixed_wins(r, req) || !match(r, req, &params))
			continue;
		if (r->method == wanted && !(req->method == HTTP_HEAD && (r->answer == HTTP_SSE || r->follows))) {
			*ret = params;
			*ret_status = 400;
			return check_params(&params, err) < 0 ? NULL : r;
		}
		free(params.path);
		allow_add(allow, r->method);
	}
	*ret_status = allow[0] ? 405 : 404;
	if (allow[0])
		ak_fail(err, EINVAL, "method not allowed; this path allows %s", allow);
	else
		ak_fail(err, ENOENT, "no such path; see /openapi.json");
	return NULL;
}

/* ---- checking ---- */

int http_query_read(struct http_request *req, enum field_verb verb, struct ak_err *err)
{
	for (size_t i = 0; i < req->n_query; i++) {
		const char *key = req->query[i].key;
		const struct field_use *u = field_find(verb, FIELD_QUERY, key, strlen(key));
		int rc = u ? field_parse(&field_table[u->id], FIELD_QUERY, req->query[i].value, &req->query[i].given, err)
			   : ak_fail(err, EINVAL, "%.60s: unknown parameter", key);

		if (rc < 0)
			return rc;
		req->query[i].id = u->id;
	}
	return 0;
}

const struct field_value *http_query(const struct http_request *req, enum field_id id)
{
	for (size_t i = 0; i < req->n_query; i++) {
		if (req->query[i].id == id)
			return &req->query[i].given;
	}
	return NULL;
}

bool http_route_answers(const struct http_route *r, unsigned status)
{
	switch (status) {
	case 400:
	case 403:
	case 408:
	case 413:
	case 429:
	case 500:
		return true;
	case 401:
		return !r->open;
	case 404:
		return strchr(r->path, '{');
	case 409:
		return r->conflict;
	default:
		return false;
	}
}
