/* The protocol without processes: calls are answered by the test, and every line that is sent is looked at. */
#include "gateway/mcp/session.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/base/jsonscan.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

struct rig {
	struct mcp_session session;
	struct strbuf sent;
	struct mcp_call *last; /* the newest call that runs */
	unsigned cancelled;
	bool busy;
};

static void on_send(void *ctx, const char *line, size_t len)
{
	struct rig *r = ctx;

	assert_true(len > 0 && line[len - 1] == '\n' && !memchr(line, '\n', len - 1));
	strbuf_add(&r->sent, line, len);
}

static int on_start(void *ctx, struct mcp_call *call, struct ak_err *err)
{
	struct rig *r = ctx;

	if (r->busy)
		return ak_fail(err, EAGAIN, "busy");
	r->last = call;
	return 0;
}

static void on_cancel(void *ctx, struct mcp_call *call)
{
	struct rig *r = ctx;

	assert_true(call->cancelled);
	r->cancelled++;
}

static const struct mcp_session_ops ops = { on_send, on_start, on_cancel };

static int setup(void **state)
{
	struct rig *r = calloc(1, sizeof(*r));

	r->session = (struct mcp_session){ .ops = &ops, .ctx = r, .instructions = "be \"kind\"" };
	*state = r;
	return 0;
}

static int teardown(void **state)
{
	struct rig *r = *state;

	while (r->session.calls)
		mcp_call_drop(r->session.calls);
	strbuf_done(&r->sent);
	free(r);
	return 0;
}

/* What LINE is answered with; "" for nothing. */
static const char *say(struct rig *r, const char *line)
{
	strbuf_reset(&r->sent);
	mcp_session_line(&r->session, line, strlen(line));
	return r->sent.data ? r->sent.data : "";
}

static void greet(struct rig *r, const char *revision)
{
	char line[256];

	snprintf(line, sizeof(line),
		"{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"initialize\",\"params\":{\"protocolVersion\":\"%s\"}}", revision);
	assert_non_null(strstr(say(r, line), revision));
}

#define LIST(id) "{\"jsonrpc\":\"2.0\",\"id\":" id ",\"method\":\"tools/call\",\"params\":{\"name\":\"sandbox_list\"}}"
#define CANCEL(id) "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":" id "}}"

static void test_a_call_is_answered_once_with_its_own_id(void **state)
{
	struct rig *r = *state;

	greet(r, "2025-06-18");
	assert_string_equal(say(r, LIST("\"x\\u00e4\"")), "");
	assert_non_null(r->last);
	assert_true(r->last->structured);
	mcp_call_done(r->last, "{\"ok\":1}");
	assert_string_equal(r->sent.data, "{\"jsonrpc\":\"2.0\",\"id\":\"x\xc3\xa4\",\"result\":{\"ok\":1}}\n");
	assert_null(r->session.calls);
}

static void test_a_cancelled_call_is_not_answered(void **state)
{
	struct rig *r = *state;

	greet(r, "2025-11-25");
	say(r, LIST("5"));
	assert_string_equal(say(r, CANCEL("\"5\"")), "");
	assert_int_equal(r->cancelled, 0); /* the string is another id than the number */
	say(r, CANCEL("5"));
	say(r, CANCEL("5"));
	assert_int_equal(r->cancelled, 1);
	mcp_call_progress(r->last, 1, "on");
	mcp_call_done(r->last, "{}");
	assert_int_equal(r->sent.len, 0);
	assert_null(r->session.calls);
}

static void test_an_id_is_free_again_after_its_answer_and_after_cancelling(void **state)
{
	struct rig *r = *state;

	greet(r, "2025-11-25");
	say(r, LIST("5"));
	assert_non_null(strstr(say(r, LIST("5")), "still running"));
	mcp_call_done(r->last, "{}");
	assert_string_equal(say(r, LIST("5")), "");
	say(r, CANCEL("5"));
	assert_string_equal(say(r, LIST("5")), "");
}

static void test_a_refused_start_is_an_error_and_leaves_nothing(void **state)
{
	struct rig *r = *state;

	greet(r, "2025-11-25");
	r->busy = true;
	assert_non_null(strstr(say(r, LIST("1")), "-32000"));
	assert_null(r->session.calls);
}

static void test_progress_only_grows_and_is_told_only_when_asked(void **state)
{
	struct rig *r = *state;

	greet(r, "2024-11-05");
	say(r, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"sandbox_list\",\"_meta\":{\"progressToken\":\"t\"}}}");
	mcp_call_progress(r->last, 0, "started");
	assert_string_equal(r->sent.data,
		"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":\"t\",\"progress\":0.000}}\n");
	strbuf_reset(&r->sent);
	mcp_call_progress(r->last, 0, "again");
	assert_int_equal(r->sent.len, 0);
	mcp_call_drop(r->last);
	say(r, LIST("2"));
	mcp_call_progress(r->last, 1, "on");
	assert_int_equal(r->sent.len, 0);
}

static void test_a_batch_is_answered_when_its_last_call_is(void **state)
{
	struct rig *r = *state;
	struct mcp_call *first;

	greet(r, "2025-03-26");
	assert_string_equal(
		say(r, "[" LIST("1") ",{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"ping\"}," LIST("3") "," CANCEL("9") "]"), "");
	first = r->session.calls->next;
	mcp_call_done(r->last, "{}");
	assert_int_equal(r->sent.len, 0);
	mcp_call_done(first, "{}");
	assert_string_equal(r->sent.data,
		"[{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{}},{\"jsonrpc\":\"2.0\",\"id\":3,\"result\":{}},{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}]\n");
	/* All of it cancelled: nothing is owed. */
	say(r, "[" LIST("1") "]");
	say(r, CANCEL("1"));
	mcp_call_drop(r->last);
	assert_int_equal(r->sent.len, 0);
}

static void test_every_schema_is_json_and_every_tool_checks_what_it_says(void **state)
{
	const struct json_bounds bounds = { .depth = 32, .members = 100, .values = 10000 };

	(void)state;
	for (int rev = 0; rev < MCP_REV_NUM; rev++) {
		_cleanup_strbuf_ struct strbuf out = { 0 };
		struct ak_err err;
		bool nul;

		mcp_tools_print((enum mcp_rev)rev, &out);
		assert_int_equal(json_scan(out.data, out.len, &bounds, &nul, &err), 0);
	}
	for (const struct mcp_tool *t = mcp_tools; t->name; t++) {
		_cleanup_json_ cJSON *args = cJSON_Parse("{\"surely_not\":1}");
		struct ak_err err;

		assert_ptr_equal(mcp_tool_find(t->name), t);
		assert_int_equal(fields_check(t->verb, FIELD_MCP, args, &err), -EINVAL);
		assert_string_equal(err.text, "surely_not: unknown argument");
		assert_true(mcp_tool_limit_ms(t, args) >= 60000);
		assert_false(t->read_only && t->destructive);
	}
}

/* ".BR sandbox_run \ {\fIcommand\fR, …}": the line of a tool names its arguments. */
static void test_the_man_page_names_every_argument(void **state)
{
	_cleanup_free_ char *page = NULL;
	size_t lines = 0;

	(void)state;
	assert_int_equal(ak_read_file(AT_FDCWD, AK_SOURCE_DIR "/gateway/agentkernel.1", 1 << 20, &page, NULL), 0);
	for (const struct mcp_tool *t = mcp_tools; t->name; t++) {
		char want[64];
		const char *line;

		snprintf(want, sizeof(want), "\n.BR %s \\ {", t->name);
		line = strstr(page, want);
		lines += line != NULL;
		field_each(u, t->verb, FIELD_MCP) {
			const char *at;

			snprintf(want, sizeof(want), "\\fI%s\\fR", field_table[u->id].name);
			at = line ? strstr(line, want) : NULL;
			if (line && (!at || at > strchr(line + 1, '\n')))
				fail_msg("%s: no %s in its line", t->name, want);
		}
	}
	assert_true(lines >= 7); /* the others share one */
}

/* ---- text ---- */

static void test_output_keeps_both_ends_and_no_half_characters(void **state)
{
	struct mcp_capture c = { 0 };
	_cleanup_strbuf_ struct strbuf out = { 0 };
	uint64_t left;

	(void)state;
	mcp_capture_add(&c, "BEGIN", 5);
	for (int i = 0; i < 1000000; i++)
		mcp_capture_add(&c, "\xe2\x82\xac", 3);
	mcp_capture_add(&c, "END", 3);
	assert_true(mcp_capture_print(&c, &out));
	assert_true(out.len < MCP_OUTPUT_MAX + 200);
	assert_int_equal(mcp_utf8_whole(out.data, out.len), out.len);
	assert_memory_equal(out.data, "BEGIN\xe2\x82\xac", 8);
	assert_memory_equal(out.data + out.len - 6,
		"\xe2\x82\xac"
		"END",
		6);
	left = strtoull(strstr(out.data, "[... ") + 5, NULL, 10);
	assert_int_equal(c.total, 3000008);
	assert_true(left > 2900000 && left < 3000008);
	mcp_capture_done(&c);
}

static void test_short_output_is_whole(void **state)
{
	struct mcp_capture c = { 0 };
	_cleanup_strbuf_ struct strbuf out = { 0 };

	(void)state;
	assert_false(mcp_capture_print(&c, &out));
	assert_int_equal(out.len, 0);
	mcp_capture_add(&c, "a\0b", 3);
	assert_false(mcp_capture_print(&c, &out));
	assert_memory_equal(out.data, "a\0b", 3);
	c.more = true; /* its rest never came */
	assert_true(mcp_capture_print(&c, &out));
	mcp_capture_done(&c);
}

/* ---- JSON from strangers ---- */

static int scan(const char *text, bool *nul)
{
	const struct json_bounds bounds = { .depth = 4, .members = 3, .values = 10 };
	struct ak_err err;

	*nul = false;
	return json_scan(text, strlen(text), &bounds, nul, &err);
}

static void test_only_json_passes(void **state)
{
	static const char *const good[] = { "0", "-0.5e+10", "\"\\ud83d\\ude00\"", " [ 1 , \"\\u00e9\" ] ",
		"{\"a\":{\"b\":[[]]}}", "true", "null", "\"\xf0\x9f\x98\x80\"" };
	static const char *const bad[] = { "", " ", "01", "1.", ".5", "-", "1e", "+1", "tru", "nul", "[1,]", "[,]", "{\"a\"}",
		"{a:1}", "{\"a\":1,}", "\"\\ud800\"", "\"\\ude00\"", "\"\\ud800\\u0041\"", "\"\\q\"", "\"\\u12g4\"", "\"a",
		"\"\x01\"", "\"\xc3\"", "\"\xff\"", "\"\xed\xa0\x80\"", "1 2", "[", "{\"a\":", "'a'",
		("\xef\xbb\xbf"
		 "1") };
	static const char *const big[] = { "[[[[[]]]]]", "{\"a\":1,\"b\":2,\"c\":3,\"d\":4}", "[1,2,3,4,5,6,7,8,9,10]" };
	bool nul;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(good); i++)
		assert_int_equal(scan(good[i], &nul), 0);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(scan(bad[i], &nul), -EINVAL);
	for (size_t i = 0; i < ARRAY_SIZE(big); i++)
		assert_int_equal(scan(big[i], &nul), -E2BIG);
	assert_int_equal(scan("[\"\\u0000\"]", &nul), 0);
	assert_true(nul);
	assert_int_equal(scan("[\"\\\\u0000\"]", &nul), 0);
	assert_false(nul);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_a_call_is_answered_once_with_its_own_id, setup, teardown),
		cmocka_unit_test_setup_teardown(test_a_cancelled_call_is_not_answered, setup, teardown),
		cmocka_unit_test_setup_teardown(test_an_id_is_free_again_after_its_answer_and_after_cancelling, setup, teardown),
		cmocka_unit_test_setup_teardown(test_a_refused_start_is_an_error_and_leaves_nothing, setup, teardown),
		cmocka_unit_test_setup_teardown(test_progress_only_grows_and_is_told_only_when_asked, setup, teardown),
		cmocka_unit_test_setup_teardown(test_a_batch_is_answered_when_its_last_call_is, setup, teardown),
		cmocka_unit_test(test_every_schema_is_json_and_every_tool_checks_what_it_says),
		cmocka_unit_test(test_the_man_page_names_every_argument),
		cmocka_unit_test(test_output_keeps_both_ends_and_no_half_characters),
		cmocka_unit_test(test_short_output_is_whole),
		cmocka_unit_test(test_only_json_passes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
