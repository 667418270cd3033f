/*
 * The routes of the API: one table that the dispatcher, the check of bodies and parameters, the metrics and /openapi.json are made
 * from, so that they cannot differ.
 */
#ifndef AK_HTTP_ROUTE_H
#define AK_HTTP_ROUTE_H

#include "gateway/base/err.h"
#include "gateway/base/json.h"
#include "gateway/base/strbuf.h"
#include "gateway/http/request.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct http_call;
struct http_work;

enum http_type {
	HTTP_STRING,
	HTTP_BOOL,
	HTTP_UINT,
	HTTP_STRINGS, /* array of strings */
	HTTP_ENV, /* ["K=V"] or {"K":"V"} */
	HTTP_TEXTS, /* {"a":"text"} */
	HTTP_RUNS, /* array of bodies of /run */
	HTTP_TYPE_NUM
};

/* A member of a body, or a parameter. */
struct http_field {
	const char *name; /* NULL ends the list */
	enum http_type type;
	bool required;
	uint64_t min, max; /* of a number, of a list's length, of a text's bytes; max 0: no bound of its own */
	const char *choices; /* "a|b": a closed choice */
	const char *help;
};

enum http_answer { HTTP_JSON, HTTP_TEXT, HTTP_SSE };

struct http_route {
	enum http_method method;
	const char *path; /* "/sandboxes/{name}/files/{path}": {path} is the whole rest */
	const char *id; /* operationId */
	const char *summary;
	const struct http_field *body, *query; /* NULL: none */
	const char *data; /* the JSON Schema of `data` (or of an event's data), or "#Name" of a shared one */
	enum http_answer answer;
	bool created; /* 201 */
	bool open; /* needs no key */
	bool follows; /* an SSE stream when follow=1 is asked for */
	/* One of these: in a worker process, or at once in the server's own. */
	void (*work)(struct http_call *c, struct http_work *w);
	void (*handle)(struct http_call *c);
};

extern const struct http_route http_routes[];
extern const size_t http_n_routes;
extern const struct http_field http_run_fields[]; /* what HTTP_RUNS holds */

/* What stood in the braces; borrowed from the request, PATH from STORE. */
struct http_params {
	const char *name, *id, *uuid;
	char *path; /* owned: "/a/b" */
};

/*
 * The route of REQ. NULL with *RET_STATUS 404, 405 (with the methods that there are in ALLOW) or 400, and a reason. HEAD finds GET.
 */
#define HTTP_ALLOW_MAX 64
const struct http_route *http_route_find(const struct http_request *req, struct http_params *ret, unsigned *ret_status,
	char allow[static HTTP_ALLOW_MAX], struct ak_err *err);

/* OBJ has only FIELDS, all that are required, of the right types. Null is as good as absent. */
int http_fields_check(const cJSON *obj, const struct http_field *fields, struct ak_err *err);

/* The same for the parameters of a request, all of which are text. */
int http_query_check(const struct http_request *req, const struct http_field *fields, struct ak_err *err);

/* /openapi.json */
void http_openapi(struct strbuf *out);

#endif
