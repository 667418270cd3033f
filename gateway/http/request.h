/*
 * Parse one request to the HTTP API: method, path, query and the headers that matter. No I/O.
 *
 * wire/http_head.h checks the framing, as strictly as for sandboxes. A path is first split at '/', then each part is percent-decoded
 * once, so an encoded slash never separates parts of the route. Empty parts ("//") are dropped.
 */
#ifndef AK_HTTP_REQUEST_H
#define AK_HTTP_REQUEST_H

#include "gateway/base/err.h"
#include "gateway/base/strbuf.h"
#include "gateway/wire/http_head.h"
#include "gateway/field/field.h"

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
	char *text; /* owned: a copy of the head; the members below point into it or into STORE */
	char *store; /* owned */
	const char *host; /* with the port, as sent; "" when absent */
	const char *authorization, *origin; /* NULL when absent */
	const char *parts[HTTP_PARTS_MAX]; /* decoded */
	size_t n_parts;
	struct {
		const char *key, *value; /* decoded */
		enum field_id id; /* with GIVEN, after http_query_read */
		struct field_value given;
	} query[HTTP_QUERY_MAX];
	size_t n_query;
};

/* Parse a head that http_head_parse accepted. On -EINVAL the framing and keep_alive of *RET are set, too. */
int http_request_parse(const char *data, const struct http_head *head, struct http_request *ret, struct ak_err *err);
void http_request_done(struct http_request *r);

/* The value of the query parameter KEY; NULL when absent. */
const char *http_request_query(const struct http_request *r, const char *key);

/*
 * Decode at most LEN received bytes of DATA and append them to BODY. Returns how many were used; -EBADMSG for bad framing, -EFBIG
 * beyond HTTP_BODY_CAP, -ENOMEM. The body is complete when B->state is HTTP_BODY_DONE.
 */
ssize_t http_request_body(struct http_body *b, const char *data, size_t len, struct strbuf *body);

#endif
