/*
 * The routes of the API: one table that the dispatcher, the check of bodies and parameters, the metrics and /openapi.json are made
 * from, so that they cannot differ.
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
	const char *path; /* "/sandboxes/{name}/files/{path}": {path} is the whole rest */
	enum http_tag tag; /* the group it stands in in the description */
	const char *id; /* operationId */
	const char *summary;
	enum field_verb body, query; /* whose fields it takes; VERB_NONE: none */
	const char *data; /* the JSON Schema of `data` (or of an event's data), or "#Name" of a shared one */
	enum http_answer answer;
	bool created; /* 201 */
	bool open; /* needs no key */
	bool conflict; /* may be answered with 409 */
	const char *described; /* the path in the description, where it is another */
	bool follows; /* an SSE stream when follow=1 is asked for */
	/* One of these: in a worker process, or at once in the server's own. */
	void (*work)(struct http_call *c, struct work *w);
	void (*handle)(struct http_call *c);
};

extern const struct http_route http_routes[];
extern const size_t http_n_routes;

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

/* The parameters of REQ are fields of VERB, each within its limits. */
int http_query_check(const struct http_request *req, enum field_verb verb, struct ak_err *err);

/*
 * May R be answered with the error STATUS? The description names exactly these, and http_reply_error sends no others. What the connection answers before
 * there is a route (404, 405, 431, 505) is not among them.
 */
bool http_route_answers(const struct http_route *r, unsigned status);

/* /openapi.json */
void http_openapi(struct strbuf *out);

#endif
