/*
 * One request to the HTTP API, taken apart: method, path, query and the headers that matter. Pure: no I/O.
 *
 * Framing is judged by wire/http_head.h, as strictly as for sandboxes. A path is split at '/' first and each part percent-decoded once
 * after that, so that an encoded slash never makes a part of the route; empty parts ("//") vanish.
 */
#ifndef AK_HTTP_REQUEST_H
#define AK_HTTP_REQUEST_H

#include "gateway/base/err.h"
#include "gateway/base/strbuf.h"
#include "gateway/wire/http_head.h"

#include <stdbool.h>
#include <stddef.h>

#define HTTP_PARTS_MAX 128
#define HTTP_QUERY_MAX 16
#define HTTP_BODY_CAP (16u << 20)

enum http_method { HTTP_GET, HTTP_HEAD, HTTP_POST, HTTP_PUT, HTTP_PATCH, HTTP_DELETE, HTTP_OTHER, HTTP_METHOD_NUM };
const char *http_method_name(enum http_method m);

struct http_request {
	struct http_head head; /* framing */
	enum http_method method;
	bool keep_alive, http10, expect_continue, cross_site;
	char *text; /* owned: the head itself; everything below points into it or into STORE */
	char *store; /* owned */
	const char *host; /* with its port, as sent; "" when absent */
	const char *authorization, *origin; /* NULL when absent */
	const char *parts[HTTP_PARTS_MAX]; /* decoded */
	size_t n_parts;
	struct {
		const char *key, *value; /* decoded */
	} query[HTTP_QUERY_MAX];
	size_t n_query;
};

/* Take the head apart that http_head_parse found good. -EINVAL with a reason; the framing and keep_alive of *RET are set even then. */
int http_request_parse(const char *data, const struct http_head *head, struct http_request *ret, struct ak_err *err);
void http_request_done(struct http_request *r);

/* NULL when it was not given. */
const char *http_request_query(const struct http_request *r, const char *key);

/*
 * Body bytes that arrive: at most LEN of DATA, decoded into BODY. How many were used; -EBADMSG for bad framing, -EFBIG past
 * HTTP_BODY_CAP, -ENOMEM. It has ended when B->state is HTTP_BODY_DONE.
 */
ssize_t http_request_body(struct http_body *b, const char *data, size_t len, struct strbuf *body);

#endif
