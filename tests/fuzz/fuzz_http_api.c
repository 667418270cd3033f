/* The API's front: a stream of requests, whole and in pieces, through everything that runs before a verb is called. */
#include "gateway/base/cleanup.h"
#include "gateway/base/jsonscan.h"
#include "gateway/http/auth.h"
#include "gateway/http/route.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_body(const struct http_route *route, const struct strbuf *body)
{
	static const struct json_bounds bounds = { .depth = 32, .members = 16384, .values = 1u << 20 };
	_cleanup_json_ cJSON *obj = NULL;
	struct ak_err err;
	bool nul;

	if (!route->body || !body->len || json_scan(body->data, body->len, &bounds, &nul, &err) < 0 || nul)
		return;
	/* What passed the scan is JSON: only a repeated key, or bounds of the parser's own, may be in the way. */
	if (json_parse(body->data, body->len, &obj, &err) < 0 || !cJSON_IsObject(obj))
		return;
	(void)fields_check(route->body, FIELD_HTTP, obj, &err);
}

static void check_request(struct http_request *req, const struct strbuf *body)
{
	static const char *const names[] = { "box.example", NULL };
	struct ak_addr local = ak_addr_v4(0x0b000001);
	static struct http_keys keys;
	struct http_params params = { 0 };
	char allow[HTTP_ALLOW_MAX];
	const struct http_route *route;
	struct ak_err err;
	unsigned status;

	(void)http_host_ok(req->host, names, &local);
	if (!keys.n && http_keys_add(&keys, "right", &err) < 0)
		abort();
	/* The word, and nothing but the word. */
	if (http_keys_ok(&keys, req->authorization) && (!req->authorization || !strstr(req->authorization, "right")))
		abort();
	if (req->origin)
		(void)http_origin_ok(req->origin, req->host);
	route = http_route_find(req, &params, &status, allow, &err);
	if (route && http_query_read(req, route->query, &err) == 0)
		check_body(route, body);
	/* Nothing that climbs gets through. */
	if (route && params.path && (strstr(params.path, "/../") || params.path[0] != '/'))
		abort();
	free(params.path);
}

/* How many requests there were. */
static size_t walk(const char *data, size_t size, size_t step)
{
	size_t at = 0, n = 0;

	while (at < size) {
		_cleanup_strbuf_ struct strbuf body = { 0 };
		struct http_request req;
		struct http_head head;
		struct http_body b;
		struct ak_err err;
		int rc;

		if (http_head_parse(data + at, size - at, &head) != HTTP_OK)
			return n;
		rc = http_request_parse(data + at, &head, &req, &err);
		at += head.len;
		http_body_init(&b, &head);
		while (b.state != HTTP_BODY_DONE && at < size) {
			ssize_t used = http_request_body(&b, data + at, size - at < step ? size - at : step, &body);

			if (used < 0) {
				http_request_done(&req);
				return n;
			}
			at += (size_t)used;
		}
		if (rc == 0 && b.state == HTTP_BODY_DONE)
			check_request(&req, &body);
		http_request_done(&req);
		n++;
	}
	return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (walk((const char *)data, size, SIZE_MAX) != walk((const char *)data, size, 3))
		abort();
	return 0;
}
