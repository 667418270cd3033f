/* Requests to the API, taken apart; keys, Host and Origin; routes and what may be sent to them. */
#include "gateway/base/base64.h"
#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/base/json.h"
#include "gateway/http/http.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* The request line and headers in TEXT; the status of its framing is asserted to be good. */
static int parse(const char *text, struct http_request *ret, struct ak_err *err)
{
	struct http_head head;

	assert_int_equal(http_head_parse(text, strlen(text), &head), HTTP_OK);
	return http_request_parse(text, &head, ret, err);
}

static int parse_target(const char *target, struct http_request *ret, struct ak_err *err)
{
	_cleanup_free_ char *text = NULL;

	assert_true(asprintf(&text, "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", target) > 0);
	return parse(text, ret, err);
}

static void a_path_is_split_first_and_decoded_once(void **state)
{
	static const struct {
		const char *target;
		const char *parts[6];
	} cases[] = {
		{ "/", { NULL } },
		{ "//", { NULL } },
		{ "/a", { "a" } },
		{ "/a/", { "a" } },
		{ "//a///b//", { "a", "b" } },
		{ "/a%2Fb/c", { "a/b", "c" } },
		{ "/%2f", { "/" } },
		{ "/%252e", { "%2e" } },
		{ "/%2e%2E/..", { "..", ".." } },
		{ "/a+b%20c", { "a+b c" } },
		{ "/%c3%a4", { "\xc3\xa4" } },
		{ "http://x/a?b", { "a" } },
		{ "http://x", { NULL } },
		{ "http://x?b=1", { NULL } },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct http_request r;
		struct ak_err err;
		size_t n = 0;

		if (strncmp(cases[i].target, "http", 4) == 0) {
			_cleanup_free_ char *text = NULL;

			assert_true(asprintf(&text, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", cases[i].target) > 0);
			assert_int_equal(parse(text, &r, &err), 0);
		} else {
			assert_int_equal(parse_target(cases[i].target, &r, &err), 0);
		}
		for (; cases[i].parts[n]; n++) {
			assert_true(n < r.n_parts);
			assert_string_equal(r.parts[n], cases[i].parts[n]);
		}
		assert_int_equal(r.n_parts, n);
		http_request_done(&r);
	}
}

static void a_target_that_does_not_decode_is_refused(void **state)
{
	static const char *const bad[] = { "/%", "/%4", "/%zz", "/%0", "/a%00b", "/%ff", "/%c0%af", "/%ed%a0%80", "/a#b", "/?a=%",
		"/?a=1&a=2", "/?%00", "/?a=%ff" };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct http_request r;
		struct ak_err err = { "" };

		assert_int_equal(parse_target(bad[i], &r, &err), -EINVAL);
		assert_string_not_equal(err.text, "");
		http_request_done(&r);
	}
}

static void parameters_are_decoded_too(void **state)
{
	struct http_request r;
	struct ak_err err;

	(void)state;
	assert_int_equal(parse_target("/x?a=1&b=&c&d=a+b%26c&&=e", &r, &err), 0);
	assert_string_equal(http_request_query(&r, "a"), "1");
	assert_string_equal(http_request_query(&r, "b"), "");
	assert_string_equal(http_request_query(&r, "c"), "");
	assert_string_equal(http_request_query(&r, "d"), "a b&c");
	assert_string_equal(http_request_query(&r, ""), "e");
	assert_null(http_request_query(&r, "e"));
	http_request_done(&r);
}

static void headers_that_matter_are_found_and_others_left(void **state)
{
	struct http_request r;
	struct ak_err err;

	(void)state;
	assert_int_equal(
		parse("POST /run HTTP/1.1\r\nhost:  [::1]:80 \r\nAUTHORIZATION: Bearer x \r\nOrigin: http://a\r\nX-Host: b\r\nExpect: 100-Continue\r\n"
		      "Connection: foo , Close\r\nContent-Length: 3\r\n\r\n",
			&r, &err),
		0);
	assert_string_equal(r.host, "[::1]:80");
	assert_string_equal(r.authorization, "Bearer x");
	assert_string_equal(r.origin, "http://a");
	assert_true(r.expect_continue && !r.keep_alive && !r.http10 && r.method == HTTP_POST && r.head.length == 3);
	http_request_done(&r);
	assert_int_equal(parse("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", &r, &err), 0);
	assert_true(r.http10 && !r.keep_alive);
	assert_string_equal(r.host, "");
	http_request_done(&r);
	assert_int_equal(parse("GET / HTTP/1.1\r\nConnection: closed\r\n\r\n", &r, &err), 0);
	assert_true(r.keep_alive);
	http_request_done(&r);
	assert_int_equal(parse("GET / HTTP/1.1\r\nAuthorization: a\r\nAuthorization: a\r\n\r\n", &r, &err), -EINVAL);
	http_request_done(&r);
}

static void a_body_is_the_same_however_it_arrives(void **state)
{
	static const char chunked[] = "3\r\nabc\r\n5;x=y\r\ndefgh\r\n0\r\nT: u\r\n\r\nNEXT";

	(void)state;
	for (size_t step = 1; step < sizeof(chunked); step++) {
		_cleanup_strbuf_ struct strbuf body = { 0 };
		struct http_head head = { .chunked = true };
		struct http_body b;
		size_t at = 0;

		http_body_init(&b, &head);
		while (b.state != HTTP_BODY_DONE) {
			size_t n = sizeof(chunked) - 1 - at < step ? sizeof(chunked) - 1 - at : step;
			ssize_t used = http_request_body(&b, chunked + at, n, &body);

			assert_true(used > 0);
			at += (size_t)used;
		}
		assert_string_equal(chunked + at, "NEXT");
		assert_string_equal(body.data, "abcdefgh");
	}
}

static void a_body_past_the_cap_is_refused_by_its_announcement(void **state)
{
	_cleanup_strbuf_ struct strbuf body = { 0 };
	struct http_head head = { .chunked = true };
	struct http_body b;

	(void)state;
	http_body_init(&b, &head);
	assert_int_equal(http_request_body(&b, "1000001\r\nx", 10, &body), -EFBIG);
	assert_int_equal(body.len, 0);
}

/* ---- keys, Host, Origin ---- */

static void one_of_the_keys_exactly_opens(void **state)
{
	struct http_keys k = { 0 };
	struct ak_err err;

	(void)state;
	assert_false(http_keys_ok(&k, NULL) || http_keys_ok(&k, "Bearer ") || http_keys_ok(&k, "Bearer one"));
	assert_int_equal(http_keys_add(&k, "one", &err), 0);
	assert_int_equal(http_keys_add(&k, "a-longer-key", &err), 0);
	assert_true(http_keys_ok(&k, "Bearer one") && http_keys_ok(&k, "bearer  a-longer-key"));
	assert_false(http_keys_ok(&k, NULL) || http_keys_ok(&k, "") || http_keys_ok(&k, "Bearer ") ||
		http_keys_ok(&k, "Bearer on") || http_keys_ok(&k, "Bearer onee") || http_keys_ok(&k, "Bearerone") ||
		http_keys_ok(&k, "one") || http_keys_ok(&k, "Basic one"));
	assert_int_equal(http_keys_add(&k, "", &err), -EINVAL);
	assert_int_equal(http_keys_add(&k, "a b", &err), -EINVAL);
	assert_int_equal(http_keys_add(&k, "\xc3\xa4", &err), -EINVAL);
	http_keys_done(&k);
}

static void hosts_that_a_rebound_name_never_has(void **state)
{
	static const char *const names[] = { "box.example", NULL };
	static const char *const good[] = { "localhost", "LocalHost:1", "a.localhost", "127.0.0.1", "127.1.2.3:9", "[::1]",
		"[::1]:1", "box.example", "BOX.example.:80", "11.0.0.1:1", "localhost." };
	static const char *const bad[] = { "", ":80", "x", "localhost.x", "xlocalhost", ".", "11.0.0.2", "[::2]", "[::1",
		"[::1]x", "0.0.0.0", "127.0.0.1.x", "box.example.x", "2130706433", "0x7f.1", "[::ffff:11.0.0.2]" };
	struct ak_addr local;

	(void)state;
	assert_int_equal(ak_addr_parse("11.0.0.1", &local), 0);
	for (size_t i = 0; i < ARRAY_SIZE(good); i++)
		assert_true(http_host_ok(good[i], names, &local));
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_false(http_host_ok(bad[i], names, &local));
	assert_true(http_origin_ok("http://localhost:1", "localhost:1") && http_origin_ok("https://box.example", "box.example"));
	assert_false(http_origin_ok("http://localhost:1", "localhost") || http_origin_ok("null", "null") ||
		http_origin_ok("http://", "x"));
}

/* ---- routes ---- */

static const struct http_route *find(const char *method, const char *target, struct http_params *params, unsigned *status)
{
	_cleanup_free_ char *text = NULL;
	const struct http_route *route;
	char allow[HTTP_ALLOW_MAX];
	struct http_request r;
	struct ak_err err;

	*params = (struct http_params){ 0 };
	*status = 0;
	assert_true(asprintf(&text, "%s %s HTTP/1.1\r\nHost: x\r\n\r\n", method, target) > 0);
	assert_int_equal(parse(text, &r, &err), 0);
	route = http_route_find(&r, params, status, allow, &err);
	params->name = params->id = params->uuid = NULL;
	http_request_done(&r);
	return route;
}

static void requests_find_their_route_or_the_reason(void **state)
{
	static const struct {
		const char *method, *target, *id;
		unsigned status;
		const char *path;
	} cases[] = {
		{ "GET", "/health", "health", 0, NULL },
		{ "HEAD", "/health", "health", 0, NULL },
		{ "GET", "//sandboxes//a//", "getSandbox", 0, NULL },
		{ "GET", "/sandboxes/by-uuid/x", "getSandboxByUuid", 0, NULL },
		{ "DELETE", "/sandboxes/by-uuid", "removeSandbox", 0, NULL },
		{ "GET", "/sandboxes/a/files//x//y%20z", "readFile", 0, "/x/y z" },
		{ "GET", "/sandboxes/a/files/%2Fx", "readFile", 0, "//x" },
		{ "GET", "/sandboxes/a/files", NULL, 405, NULL },
		{ "GET", "/sandboxes/a/files/../b", NULL, 400, NULL },
		{ "GET", "/sandboxes/a/files/b%2F..%2Fc", NULL, 400, NULL },
		{ "GET", "/sandboxes/a/files/..b", "readFile", 0, "/..b" },
		{ "GET", "/sandboxes/a%2Fb", NULL, 400, NULL },
		{ "GET", "/sandboxes/-", NULL, 400, NULL },
		{ "PUT", "/run", NULL, 405, NULL },
		{ "HEAD", "/events", NULL, 405, NULL },
		{ "GET", "/", NULL, 404, NULL },
		{ "GET", "/health/x", NULL, 404, NULL },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		const struct http_route *route;
		struct http_params params;
		unsigned status;

		route = find(cases[i].method, cases[i].target, &params, &status);
		if (cases[i].id) {
			assert_non_null(route);
			assert_string_equal(route->id, cases[i].id);
		} else {
			assert_null(route);
			assert_int_equal(status, cases[i].status);
		}
		if (cases[i].path)
			assert_string_equal(params.path, cases[i].path);
		free(params.path);
	}
}

static const cJSON *member(const cJSON *obj, const char *key)
{
	const cJSON *found = cJSON_GetObjectItemCaseSensitive(obj, key);

	if (!found)
		fail_msg("no %s in %s", key, obj && obj->string ? obj->string : "the document");
	return found;
}

static cJSON *description(void)
{
	_cleanup_strbuf_ struct strbuf text = { 0 };
	struct ak_err err;
	cJSON *doc = NULL;

	http_openapi(&text);
	assert_int_equal(json_parse(text.data, text.len, &doc, &err), 0);
	return doc;
}

/* Every "$ref" below NODE leads to something; how many there are. */
static size_t follow_refs(const cJSON *doc, const cJSON *node)
{
	const cJSON *child;
	size_t n = 0;

	cJSON_ArrayForEach(child, node) {
		char ref[128], *save = NULL;
		const cJSON *at = doc;

		n += follow_refs(doc, child);
		if (!child->string || strcmp(child->string, "$ref") != 0)
			continue;
		assert_true(snprintf(ref, sizeof(ref), "%s", child->valuestring) < (int)sizeof(ref));
		assert_string_equal(strtok_r(ref, "/", &save), "#");
		for (const char *part = strtok_r(NULL, "/", &save); part; part = strtok_r(NULL, "/", &save))
			at = member(at, part);
		n++;
	}
	return n;
}

static void check_operation(const cJSON *doc, const struct http_route *r, const cJSON *op)
{
	const cJSON *answers = member(op, "responses"), *answer, *tag, *known;
	size_t described = 0, n = 0, found = 0;

	assert_string_equal(member(op, "operationId")->valuestring, r->id);
	assert_string_equal(member(op, "summary")->valuestring, r->summary);
	tag = cJSON_GetArrayItem(member(op, "tags"), 0);
	cJSON_ArrayForEach(known, member(doc, "tags"))
		found += !strcmp(member(known, "name")->valuestring, tag->valuestring) &&
			member(known, "description")->valuestring[0];
	assert_int_equal(found, 1);
	member(answers, r->created ? "201" : "200");
	for (unsigned status = 400; status < 600; status++) {
		char text[8];

		snprintf(text, sizeof(text), "%u", status);
		n += http_route_answers(r, status);
		described += cJSON_GetObjectItemCaseSensitive(answers, text) != NULL;
		if (http_route_answers(r, status))
			member(member(answers, text), "$ref");
	}
	assert_int_equal(described, n);
	cJSON_ArrayForEach(answer, answers)
		assert_true(strspn(answer->string, "0123456789") == 3);
	assert_true((r->body == VERB_NONE) == (cJSON_GetObjectItemCaseSensitive(op, "requestBody") == NULL));
}

static void the_description_names_every_route_and_every_answer(void **state)
{
	static const char *const verbs[] = { "get", "head", "post", "put", "patch", "delete" };
	_cleanup_json_ cJSON *doc = description();

	(void)state;
	member(member(doc, "info"), "license");
	assert_int_equal(cJSON_GetArraySize(member(doc, "servers")), 1);
	member(member(member(doc, "components"), "securitySchemes"), "key");
	for (size_t i = 0; i < http_n_routes; i++) {
		const struct http_route *r = &http_routes[i];

		check_operation(
			doc, r, member(member(member(doc, "paths"), r->described ? r->described : r->path), verbs[r->method]));
	}
	assert_true(follow_refs(doc, doc) > 6 * http_n_routes);
}

/* A verb's reason becomes a status that every route that calls verbs may answer with, or 500 by http_reply_error. */
static void every_status_of_a_verb_is_one_that_some_route_describes(void **state)
{
	(void)state;
	for (int code = 1; code < 134; code++) {
		unsigned status = http_status_of(-code);
		bool described = false;

		for (size_t i = 0; i < http_n_routes; i++)
			described |= http_route_answers(&http_routes[i], status);
		if (!described)
			fail_msg("errno %d: status %u is described nowhere", code, status);
	}
}

static void every_route_has_one_handler_and_a_description(void **state)
{
	_cleanup_json_ cJSON *doc = description();
	const cJSON *paths, *path, *op;
	size_t n = 0;

	(void)state;
	paths = cJSON_GetObjectItemCaseSensitive(doc, "paths");
	cJSON_ArrayForEach(path, paths)
		cJSON_ArrayForEach(op, path)
			n++;
	assert_int_equal(n, http_n_routes);
	for (size_t i = 0; i < http_n_routes; i++) {
		assert_true(!http_routes[i].work != !http_routes[i].handle);
		assert_true((http_routes[i].method == HTTP_GET || http_routes[i].method == HTTP_DELETE) <= !http_routes[i].body);
		for (size_t j = 0; j < i; j++) {
			assert_string_not_equal(http_routes[i].id, http_routes[j].id);
			assert_true(http_routes[i].method != http_routes[j].method ||
				strcmp(http_routes[i].path, http_routes[j].path) != 0);
		}
	}
}

/* ---- JSON and base64 below it ---- */

static void a_key_given_twice_is_found_in_large_objects_too(void **state)
{
	_cleanup_strbuf_ struct strbuf text = { 0 };
	_cleanup_json_ cJSON *obj = NULL;
	struct ak_err err;
	uint64_t began;

	(void)state;
	strbuf_puts(&text, "{\"k77\":0");
	for (int i = 0; i < 200000; i++)
		strbuf_printf(&text, ",\"k%d\":1", i);
	strbuf_putc(&text, '}');
	began = ak_now_ms();
	assert_int_equal(json_parse(text.data, text.len, &obj, &err), -EINVAL);
	assert_string_equal(err.text, "k77: key given twice");
	memcpy(text.data, "{\"x77\":0", 8);
	assert_int_equal(json_parse(text.data, text.len, &obj, &err), 0);
	assert_true(ak_now_ms() - began < 5000);
}

static void depth_and_number_of_values_are_bounded(void **state)
{
	size_t len = JSON_VALUES_MAX * 2 + 100;
	_cleanup_free_ char *text = malloc(len);
	cJSON *obj = NULL;
	struct ak_err err;

	(void)state;
	memset(text, '[', len);
	assert_int_equal(json_parse(text, len, &obj, &err), -EINVAL);
	assert_non_null(strstr(err.text, "deep"));
	for (size_t i = 1; i < len; i++)
		text[i] = i % 2 ? '1' : ',';
	assert_int_equal(json_parse(text, len, &obj, &err), -EINVAL);
	assert_non_null(strstr(err.text, "many"));
	assert_int_equal(json_parse("[\"[[[[,,,,\\\"{{{{\"]", 18, &obj, &err), 0);
	cJSON_Delete(obj);
}

static void base64_is_strict_and_comes_back(void **state)
{
	static const struct {
		const char *plain, *text;
	} rows[] = { { "", "" }, { "f", "Zg==" }, { "fo", "Zm8=" }, { "foo", "Zm9v" }, { "foobar", "Zm9vYmFy" },
		{ "\xff\xfe\xfd", "//79" } };
	static const char *const bad[] = { "A", "AA", "AAA", "AA=A", "A===", "====", "AB==", "AAB=", "AA==AAAA",
		"A A=", "AA\n=", "AA-_", "Zm9v\n" };
	struct ak_err err;
	char data[257];

	(void)state;
	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (char)(i * 7);
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		_cleanup_strbuf_ struct strbuf text = { 0 };

		base64_encode(&text, rows[i].plain, strlen(rows[i].plain));
		assert_string_equal(text.data ? text.data : "", rows[i].text);
	}
	for (size_t n = 0; n <= sizeof(data); n++) {
		_cleanup_strbuf_ struct strbuf text = { 0 };
		_cleanup_free_ char *back = NULL;
		size_t len;

		base64_encode(&text, data, n);
		assert_int_equal(text.len, (n + 2) / 3 * 4);
		assert_int_equal(base64_decode(text.data ? text.data : "", text.len, &back, &len, &err), 0);
		assert_int_equal(len, n);
		assert_memory_equal(back, data, n);
	}
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		char *back;
		size_t len;

		assert_int_equal(base64_decode(bad[i], strlen(bad[i]), &back, &len, &err), -EINVAL);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_path_is_split_first_and_decoded_once),
		cmocka_unit_test(a_target_that_does_not_decode_is_refused),
		cmocka_unit_test(parameters_are_decoded_too),
		cmocka_unit_test(headers_that_matter_are_found_and_others_left),
		cmocka_unit_test(a_body_is_the_same_however_it_arrives),
		cmocka_unit_test(a_body_past_the_cap_is_refused_by_its_announcement),
		cmocka_unit_test(one_of_the_keys_exactly_opens),
		cmocka_unit_test(hosts_that_a_rebound_name_never_has),
		cmocka_unit_test(requests_find_their_route_or_the_reason),
		cmocka_unit_test(every_route_has_one_handler_and_a_description),
		cmocka_unit_test(the_description_names_every_route_and_every_answer),
		cmocka_unit_test(every_status_of_a_verb_is_one_that_some_route_describes),
		cmocka_unit_test(a_key_given_twice_is_found_in_large_objects_too),
		cmocka_unit_test(depth_and_number_of_values_are_bounded),
		cmocka_unit_test(base64_is_strict_and_comes_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
