/*
 * The routes of the API. The dispatcher, the checks of bodies and parameters, the metrics and /openapi.json all use this one table, so
 * they cannot disagree.
 */
#ifndef AK_HTTP_ROUTE_H
#define AK_HTTP_ROUTE_H

#include "gateway/base/err.h"
#include "gateway/base/json.h"
#include "gateway/base/strbuf.h"
#include "gateway/field/field.h"
#include "gateway/http/request.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct http_call;
struct work;

enum http_tag {
	HTTP_TAG_RUN,
	HTTP_TAG_SANDBOXES,
	HTTP_TAG_EXEC,
	HTTP_TAG_FILES,
	HTTP_TAG_POLICIES,
	HTTP_TAG_LOGS,
	HTTP_TAG_SERVER,
	HTTP_TAG_NUM
};
enum http_answer { HTTP_JSON, HTTP_TEXT, HTTP_SSE };

struct http_route {
	enum http_method method;
	const char *path; /* "/sandboxes/{name}/files/{path}": {path} matches the whole rest */
	enum http_tag tag; /* its group in the OpenAPI description */
	const char *id; /* operationId */
	const char *summary;
	enum field_verb body, query; /* the verbs whose fields it takes; VERB_NONE: none */
	const char *data; /* the JSON Schema of `data` (or of an event's data), or "#Name" of a shared one */
	enum http_answer answer;
	bool created; /* success is 201 */
	bool open; /* needs no key */
	bool conflict; /* may be answered with 409 */
	const char *described; /* the path in the OpenAPI description, if it differs */
	bool follows; /* with follow=1, the answer is an SSE stream */
	/* Exactly one is set: WORK runs in a worker process, HANDLE in the server process. */
	void (*work)(struct http_call *c, struct work *w);
	void (*handle)(struct http_call *c);
};

extern const struct http_route http_routes[];
extern const size_t http_n_routes;

/* The values of the path parameters; borrowed from the request, except PATH. */
struct http_params {
	const char *name, *id, *uuid, *tag;
	char *path; /* owned: "/a/b" */
};

/*
 * Find the route of REQ; HEAD matches GET routes. On failure, returns NULL with *RET_STATUS 404, 405 (the allowed methods are in ALLOW) or 400, and ERR.
 */
#define HTTP_ALLOW_MAX 64
const struct http_route *http_route_find(const struct http_request *req, struct http_params *ret, unsigned *ret_status,
	char allow[static HTTP_ALLOW_MAX], struct ak_err *err);

/* Read the query parameters of REQ: they must be fields of VERB and within their limits. http_query then gives their values. */
int http_query_read(struct http_request *req, enum field_verb verb, struct ak_err *err);
const struct field_value *http_query(const struct http_request *req, enum field_id id); /* NULL when absent */

/*
 * May R be answered with the error STATUS? The OpenAPI description lists exactly these, and http_reply_error sends no others. They do not include what
 * the connection answers before it has a route (404, 405, 431, 505).
 */
bool http_route_answers(const struct http_route *r, unsigned status);

/* /openapi.json */
void http_openapi(struct strbuf *out);

#endif
