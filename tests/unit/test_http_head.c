#include "gateway/wire/http_head.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static enum http_status parse(const char *text, struct http_head *h)
{
	return http_head_parse(text, strlen(text), h);
}

static void host_is_found_in_every_form(void **state)
{
	static const struct {
		const char *text, *host;
	} good[] = {
		{ "GET / HTTP/1.1\r\nHost: ok.test\r\n\r\n", "ok.test" },
		{ "GET / HTTP/1.1\r\nhOST:ok.test:8080\r\n\r\n", "ok.test" },
		{ "GET / HTTP/1.1\r\nHost: \t ok.test \t\r\n\r\n", "ok.test" },
		{ "GET http://ok.test/x HTTP/1.1\r\nHost: OK.test\r\n\r\n", "OK.test" },
		{ "GET HTTP://ok.test:80?q HTTP/1.0\r\n\r\n", "ok.test" },
		{ "OPTIONS * HTTP/1.1\r\nHost: ok.test.\r\n\r\n", "ok.test." },
		{ "GET / HTTP/1.1\r\nHost: [2a00::1]:80\r\n\r\n", "[2a00::1]" },
		{ "\r\nGET / HTTP/1.1\r\nHost: ok.test\r\n\r\n", "ok.test" },
		{ "GET / HTTP/1.1\r\nHost:\r\n\r\n", "" },
		{ "GET /\xc3\xa4 HTTP/1.1\r\nHost: ok.test\r\nX: \xff\r\n\r\n", "ok.test" },
	};
	struct http_head h;

	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		assert_int_equal(parse(good[i].text, &h), HTTP_OK);
		assert_string_equal(h.host, good[i].host);
		assert_int_equal(h.len, strlen(good[i].text));
	}
	assert_int_equal(parse("GET / HTTP/1.0\r\n\r\n", &h), HTTP_OK);
	assert_false(h.has_host);
}

static void every_cut_waits_for_the_rest(void **state)
{
	static const char text[] = "POST /a HTTP/1.1\r\nHost: ok.test\r\nContent-Length: 5\r\nX: y\r\n\r\n";
	struct http_head h;

	for (size_t n = 0; n < strlen(text); n++) {
		char *part = malloc(n ? n : 1);

		memcpy(part, text, n);
		assert_int_equal(http_head_parse(part, n, &h), HTTP_MORE);
		free(part);
	}
	assert_int_equal(parse(text, &h), HTTP_OK);
	assert_int_equal(h.length, 5);
}

static void what_could_be_framed_in_two_ways_is_refused(void **state)
{
	static const char *const bad[] = {
		"GET / HTTP/1.1\r\nHost: a.test\r\nHost: b.test\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a.test\r\nHost: a.test\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5, 5\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +5\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0x5\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length:\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9999999999999999999\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: identity\r\n\r\n",
		"POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding : chunked\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding\t: chunked\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a\r\n folded\r\n\r\n",
		"GET / HTTP/1.1\r\n Host: a\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a\rX: b\r\n\r\n",
		"GET / HTTP/1.1\nHost: a\n\n",
		"GET / HTTP/1.1\r\nHost: a\n\r\n",
		"GET / HTTP/1.1\r\nHost: a\r\nX: \x01\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a\r\nno colon\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a\r\n: empty\r\n\r\n",
		"GET http://a.test/ HTTP/1.1\r\nHost: b.test\r\n\r\n",
		"GET http://a.test@b.test/ HTTP/1.1\r\nHost: b.test\r\n\r\n",
		"GET http:///x HTTP/1.1\r\nHost: b.test\r\n\r\n",
		"GET https://a.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n",
		"GET a.test HTTP/1.1\r\nHost: a.test\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a.test, b.test\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a.test b.test\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a.test/b\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a.test:x\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: [::1\r\n\r\n",
		"GET  / HTTP/1.1\r\nHost: a\r\n\r\n",
		"GET / HTTP/1.1 \r\nHost: a\r\n\r\n",
		"GET / x HTTP/1.1\r\nHost: a\r\n\r\n",
		"GET /\r\nHost: a\r\n\r\n",
		"GET / HTTP/1.2\r\nHost: a\r\n\r\n",
		"GET / HTTP/2.0\r\nHost: a\r\n\r\n",
		"GET / http/1.1\r\nHost: a\r\n\r\n",
		"CONNECT a.test:443 HTTP/1.1\r\nHost: a.test\r\n\r\n",
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct http_head h;

		if (parse(bad[i], &h) != HTTP_BAD)
			fail_msg("taken: %s", bad[i]);
		assert_non_null(h.why);
	}
}

/* Give the reader one byte more at a time, each time in a buffer of just that size. */
static enum http_status drip(const char *text, size_t len, struct http_reader *r)
{
	enum http_status st = HTTP_MORE;

	*r = (struct http_reader){ 0 };
	for (size_t n = 1; n <= len && st == HTTP_MORE; n++) {
		char *part = malloc(n);

		memcpy(part, text, n);
		st = http_head_read(r, part, n);
		free(part);
	}
	return st;
}

static void dripped_head_is_read_as_the_whole_one(void **state)
{
	static const char *const texts[] = {
		"GET / HTTP/1.1\r\nHost: ok.test\r\n\r\n",
		"\r\nPOST http://ok.test/x HTTP/1.1\r\nX: y\r\nHost: ok.test:80\r\nContent-Length: 12\r\n\r\n",
		"PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nHost:ok.test \r\n\r\n",
		"GET / HTTP/1.1\r\nHost: ok.test\r\nUpgrade: websocket\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a\rX: b\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a\r\n folded\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a.test\r\nHost: b.test\r\n\r\n",
		"\r\n\r\nGET / HTTP/1.1\r\n\r\n",
		"GET / HTTP/1.1\n",
	};

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		struct http_head whole;
		struct http_reader r;

		assert_int_equal(drip(texts[i], strlen(texts[i]), &r), parse(texts[i], &whole));
		if (whole.why) {
			assert_string_equal(r.head.why, whole.why);
			continue;
		}
		assert_memory_equal(&r.head, &whole, sizeof(whole));
	}
}

static void body_of_a_method_that_has_none_is_told(void **state)
{
	struct http_head h;

	assert_int_equal(parse("GET / HTTP/1.1\r\nContent-Length: 1\r\n\r\n", &h), HTTP_OK);
	assert_true(h.stray_body);
	assert_int_equal(parse("HEAD / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", &h), HTTP_OK);
	assert_true(h.stray_body);
	assert_int_equal(parse("DELETE /x HTTP/1.1\r\nContent-Length: 7\r\n\r\n", &h), HTTP_OK);
	assert_true(h.stray_body);
	assert_int_equal(parse("GET / HTTP/1.1\r\nContent-Length: 0\r\n\r\n", &h), HTTP_OK);
	assert_false(h.stray_body);
	assert_int_equal(parse("POST / HTTP/1.1\r\nContent-Length: 1\r\n\r\n", &h), HTTP_OK);
	assert_false(h.stray_body);
}

/*
 * A head that comes byte by byte costs no more than its length: the reader goes back by at most one short line. Everything before that is overwritten with what is refused
 * wherever it is read.
 */
static void dripped_head_costs_its_length(void **state)
{
	static const char *const lines[] = { "X: aaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n", "x" };
	static char text[HTTP_HEAD_MAX];
	enum { BACK = 64 };

	for (size_t k = 0; k < 2; k++) {
		struct http_reader r = { 0 }, fresh = { 0 };
		size_t n = (size_t)snprintf(text, sizeof(text), "GET / HTTP/1.1\r\n%s", k ? "X: " : "");

		while (n + strlen(lines[k]) < sizeof(text))
			n += (size_t)snprintf(text + n, sizeof(text) - n, "%s", lines[k]);
		for (size_t i = 1; i <= n; i++) {
			assert_int_equal(http_head_read(&r, text, i), HTTP_MORE);
			if (i > BACK)
				text[i - BACK - 1] = '\0';
		}
		assert_int_not_equal(http_head_read(&fresh, text, n), HTTP_MORE); /* who reads it again is caught */
	}
}

static void other_protocols_are_told_by_their_first_bytes(void **state)
{
	struct http_head h;

	assert_int_equal(http_head_parse("\x16\x03\x01", 1, &h), HTTP_BAD);
	assert_int_equal(parse("SSH-2.0-x\r\n", &h), HTTP_BAD);
	assert_int_equal(parse("{\"json\"", &h), HTTP_BAD);
	assert_int_equal(http_head_parse("\0\0\0\4", 4, &h), HTTP_BAD);
	assert_int_equal(parse("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", &h), HTTP_BAD);
}

static void nul_is_refused_anywhere(void **state)
{
	static const char text[] = "GET / HTTP/1.1\r\nHost: ok.test\r\n\r\n";
	char copy[sizeof(text)];
	struct http_head h;

	for (size_t i = 0; i + 1 < sizeof(text); i++) {
		memcpy(copy, text, sizeof(text));
		copy[i] = '\0';
		assert_int_equal(http_head_parse(copy, sizeof(text) - 1, &h), HTTP_BAD);
	}
}

static void long_head_is_bounded(void **state)
{
	char *text = malloc(HTTP_HEAD_MAX + 10);
	struct http_head h;

	memset(text, 'a', HTTP_HEAD_MAX + 10);
	memcpy(text, "GET / HTTP/1.1\r\nX: ", 19);
	assert_int_equal(http_head_parse(text, HTTP_HEAD_MAX - 1, &h), HTTP_MORE);
	assert_int_equal(http_head_parse(text, HTTP_HEAD_MAX, &h), HTTP_BAD);
	free(text);
}

static void only_a_lone_websocket_is_an_upgrade(void **state)
{
	struct http_head h;

	assert_int_equal(parse("GET / HTTP/1.1\r\nHost: a\r\nUpgrade: WebSocket\r\n\r\n", &h), HTTP_OK);
	assert_true(h.websocket);
	assert_int_equal(parse("GET / HTTP/1.1\r\nHost: a\r\nUpgrade: h2c\r\n\r\n", &h), HTTP_OK);
	assert_false(h.websocket);
	assert_int_equal(parse("GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket, h2c\r\n\r\n", &h), HTTP_OK);
	assert_false(h.websocket);
	assert_int_equal(parse("GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nUpgrade: h2c\r\n\r\n", &h), HTTP_OK);
	assert_false(h.websocket);
	assert_int_equal(parse("GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nContent-Length: 4\r\n\r\n", &h), HTTP_OK);
	assert_false(h.websocket);
}

/* Feed TEXT in pieces of STEP; the bytes taken, or -1. */
static ssize_t take(const struct http_head *h, const char *text, size_t step, bool *ret_done)
{
	struct http_body b;
	size_t at = 0, len = strlen(text);

	http_body_init(&b, h);
	while (at < len && b.state != HTTP_BODY_DONE) {
		size_t want = len - at < step ? len - at : step;
		ssize_t n = http_body_take(&b, text + at, want);

		if (n < 0)
			return -1;
		at += (size_t)n;
	}
	*ret_done = b.state == HTTP_BODY_DONE;
	return (ssize_t)at;
}

static void bodies_end_where_they_should(void **state)
{
	static const char chunked[] = "5\r\nhello\r\nA;x=y\r\n0123456789\r\n0\r\nT: v\r\n\r\nGET /";
	const struct http_head with_length = { .length = 5, .has_length = true }, with_chunks = { .chunked = true };
	bool done;

	for (size_t step = 1; step < sizeof(chunked); step++) {
		assert_int_equal(take(&with_chunks, chunked, step, &done), strlen(chunked) - 5);
		assert_true(done);
		assert_int_equal(take(&with_length, "helloGET /", step, &done), 5);
		assert_true(done);
	}
	assert_int_equal(take(&(struct http_head){ 0 }, "GET /", 1, &done), 0);
	assert_true(done);
	assert_int_equal(take(&with_chunks, "5\r\nhel", 1, &done), 6);
	assert_false(done);
}

static void bad_chunks_are_refused(void **state)
{
	static const char *const bad[] = { "\r\n", "g\r\n", "5\nhello", "5 \r\nhello", "5\r\nhelloX", "5\r\nhello\n",
		"0x5\r\nhello\r\n", "-1\r\n", "1234567890abcdef0\r\n", "5;a\x01\r\n", "0\r\n X: y\r\n\r\n", "0\r\n\nGET",
		"0\r\nX: y\rz" };
	const struct http_head with_chunks = { .chunked = true };
	bool done;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		if (take(&with_chunks, bad[i], 1, &done) != -1)
			fail_msg("taken: %s", bad[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(host_is_found_in_every_form),
		cmocka_unit_test(every_cut_waits_for_the_rest),
		cmocka_unit_test(what_could_be_framed_in_two_ways_is_refused),
		cmocka_unit_test(dripped_head_is_read_as_the_whole_one),
		cmocka_unit_test(body_of_a_method_that_has_none_is_told),
		cmocka_unit_test(dripped_head_costs_its_length),
		cmocka_unit_test(other_protocols_are_told_by_their_first_bytes),
		cmocka_unit_test(nul_is_refused_anywhere),
		cmocka_unit_test(long_head_is_bounded),
		cmocka_unit_test(only_a_lone_websocket_is_an_upgrade),
		cmocka_unit_test(bodies_end_where_they_should),
		cmocka_unit_test(bad_chunks_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
