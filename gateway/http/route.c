/* Finding a route, and checking what was sent to it against its row: see http/route.h. */
#include "gateway/http/route.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/paths.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- finding ---- */

static bool part_is(const char *pattern, size_t len, const char *word)
{
	return strlen(word) == len && !strncmp(pattern, word, len);
}

/* The parts from AT on as one path. */
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
		else if (part_is(p, len, "{uuid}"))
			ret->uuid = req->parts[i];
		else if (!part_is(p, len, req->parts[i]))
			return false;
		p += len;
	}
	return i == req->n_parts;
}

/* "by-uuid" is a name, too: the row with the fixed word wins. */
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
			return ak_fail(err, EINVAL, "'..' in a path");
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
		ak_fail(err, EINVAL, "this address takes %s", allow);
	else
		ak_fail(err, ENOENT, "there is nothing at this address; see /openapi.json");
	return NULL;
}

/* ---- checking ---- */

static const struct http_field *field_of(const struct http_field *fields, const char *name)
{
	for (; fields && fields->name; fields++) {
		if (!strcmp(fields->name, name))
			return fields;
	}
	return NULL;
}

static bool is_choice(const char *choices, const char *text)
{
	size_t len = strlen(text);

	for (const char *p = choices; *p; p += strcspn(p, "|"), p += *p == '|') {
		if (len && strcspn(p, "|") == len && !strncmp(p, text, len))
			return true;
	}
	return false;
}

static int check_text(const struct http_field *f, const char *text, struct ak_err *err)
{
	size_t len = strlen(text);

	if (f->choices && !is_choice(f->choices, text))
		return ak_fail(err, EINVAL, "%s: '%.40s' is none of %s", f->name, text, f->choices);
	if (len < f->min)
		return ak_fail(err, EINVAL, "%s: is empty", f->name);
	if (f->max && len > f->max)
		return ak_fail(err, EINVAL, "%s: longer than %llu bytes", f->name, (unsigned long long)f->max);
	return 0;
}

static int check_number(const struct http_field *f, double n, struct ak_err *err)
{
	if (n < 0 || floor(n) != n)
		return ak_fail(err, EINVAL, "%s: must be a whole number of 0 or more", f->name);
	if (n < (double)f->min || (f->max && n > (double)f->max))
		return ak_fail(err, EINVAL, "%s: %.0f is not in %llu to %llu", f->name, n, (unsigned long long)f->min,
			(unsigned long long)f->max);
	return 0;
}

static int check_count(const struct http_field *f, const cJSON *list, struct ak_err *err)
{
	uint64_t n = (uint64_t)cJSON_GetArraySize(list);

	if (n < f->min)
		return ak_fail(err, EINVAL, "%s: is empty", f->name);
	return f->max && n > f->max ? ak_fail(err, EINVAL, "%s: more than %llu", f->name, (unsigned long long)f->max) : 0;
}

static int check_strings(const struct http_field *f, const cJSON *list, struct ak_err *err)
{
	const cJSON *item;
	size_t i = 0;

	cJSON_ArrayForEach(item, list) {
		if (!cJSON_IsString(item) && cJSON_IsObject(list))
			return ak_fail(err, EINVAL, "%s.%.60s: must be a string", f->name, item->string);
		if (!cJSON_IsString(item))
			return ak_fail(err, EINVAL, "%s[%zu]: must be a string", f->name, i);
		i++;
	}
	return check_count(f, list, err);
}

static int check_runs(const struct http_field *f, const cJSON *list, struct ak_err *err)
{
	const cJSON *item;
	size_t i = 0;

	cJSON_ArrayForEach(item, list) {
		int rc = cJSON_IsObject(item) ? http_fields_check(item, http_run_fields, err)
					      : ak_fail(err, EINVAL, "must be an object");

		if (rc < 0)
			return ak_err_prefix(err, rc, "%s[%zu]", f->name, i);
		i++;
	}
	return check_count(f, list, err);
}

static int check_field(const struct http_field *f, const cJSON *v, struct ak_err *err)
{
	static const char *const wanted[] = {
		[HTTP_STRING] = "a string",
		[HTTP_BOOL] = "true or false",
		[HTTP_UINT] = "a number",
		[HTTP_STRINGS] = "an array of strings",
		[HTTP_ENV] = "an object of strings or an array of K=V strings",
		[HTTP_TEXTS] = "an object of strings",
		[HTTP_RUNS] = "an array of objects",
	};

	switch (f->type) {
	case HTTP_STRING:
		if (cJSON_IsString(v))
			return check_text(f, v->valuestring, err);
		break;
	case HTTP_BOOL:
		if (cJSON_IsBool(v))
			return 0;
		break;
	case HTTP_UINT:
		if (cJSON_IsNumber(v))
			return check_number(f, v->valuedouble, err);
		break;
	case HTTP_STRINGS:
		if (cJSON_IsArray(v))
			return check_strings(f, v, err);
		break;
	case HTTP_ENV:
		if (cJSON_IsArray(v) || cJSON_IsObject(v))
			return check_strings(f, v, err);
		break;
	case HTTP_TEXTS:
		if (cJSON_IsObject(v))
			return check_strings(f, v, err);
		break;
	case HTTP_RUNS:
		if (cJSON_IsArray(v))
			return check_runs(f, v, err);
		break;
	case HTTP_TYPE_NUM:
		break;
	}
	return ak_fail(err, EINVAL, "%s: must be %s", f->name, wanted[f->type]);
}

int http_fields_check(const cJSON *obj, const struct http_field *fields, struct ak_err *err)
{
	const cJSON *item;

	cJSON_ArrayForEach(item, obj) {
		const struct http_field *f = field_of(fields, item->string);
		int rc = !f		     ? ak_fail(err, EINVAL, "%.60s: unknown field", item->string)
			: cJSON_IsNull(item) ? 0
					     : check_field(f, item, err);

		if (rc < 0)
			return rc;
	}
	for (const struct http_field *f = fields; f && f->name; f++) {
		item = cJSON_GetObjectItemCaseSensitive(obj, f->name);
		if (f->required && (!item || cJSON_IsNull(item)))
			return ak_fail(err, EINVAL, "%s: is missing", f->name);
	}
	return 0;
}

static int check_parameter(const struct http_field *f, const char *text, struct ak_err *err)
{
	char *end;
	double n;

	if (f->type == HTTP_BOOL)
		return is_choice("1|0|true|false", text) || !*text ? 0 : ak_fail(err, EINVAL, "%s: must be 1 or 0", f->name);
	if (f->type != HTTP_UINT)
		return check_text(f, text, err);
	n = strtod(text, &end);
	if (!*text || *end || strspn(text, "0123456789") != strlen(text))
		return ak_fail(err, EINVAL, "%s: must be a number", f->name);
	return check_number(f, n, err);
}

int http_query_check(const struct http_request *req, const struct http_field *fields, struct ak_err *err)
{
	for (size_t i = 0; i < req->n_query; i++) {
		const struct http_field *f = field_of(fields, req->query[i].key);
		int rc = f ? check_parameter(f, req->query[i].value, err)
			   : ak_fail(err, EINVAL, "%.60s: unknown parameter", req->query[i].key);

		if (rc < 0)
			return rc;
	}
	return 0;
}
