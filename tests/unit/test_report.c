/* The report of a run: what one process writes, another reads as the same; what is not a report is refused with its place. */
#include "gateway/base/cleanup.h"
#include "gateway/store/report.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void a_report_is_read_as_it_was_written(void **state)
{
	char notes[] = "one\ntwo\n", changed[] = "package.json";
	struct run_report r = {
		.name = "run-0badcafe",
		.notes = notes,
		.changed = changed,
		.outcome = { .exit_code = 127,
			.timed_out = true,
			.pids_hit = true,
			.has_net = true,
			.start_us = 7100,
			.duration_ms = GW_COUNT_MAX,
			.net = { .allowed = 3, .denied = 4, .lost = 5, .counts = { .bytes_in = 6 } },
			.why = { "no such command" } },
	};
	_cleanup_(run_report_done) struct run_report got = { 0 };
	_cleanup_json_ cJSON *obj = run_report_to_json(&r), *again = NULL;
	struct ak_err err;

	assert_non_null(obj);
	assert_int_equal(run_report_from_json(obj, &got, &err), 0);
	assert_string_equal(got.name, r.name);
	assert_int_equal(got.outcome.exit_code, 127);
	assert_true(got.outcome.timed_out && got.outcome.pids_hit && got.outcome.has_net && !got.outcome.out_of_memory);
	assert_int_equal(got.outcome.duration_ms, GW_COUNT_MAX);
	assert_int_equal(got.outcome.net.lost, 5);
	assert_int_equal(got.outcome.net.counts.bytes_in, 6);
	assert_string_equal(got.outcome.why.text, "no such command");
	assert_string_equal(got.notes, notes);
	again = run_report_to_json(&got);
	assert_true(cJSON_Compare(obj, again, true));
}

static void what_is_not_a_report_is_refused_with_its_place(void **state)
{
	static const struct {
		const char *json, *place;
	} rows[] = {
		{ "{}", "name" },
		{ "{\"name\":\"../x\",\"exit_code\":0}", "name" },
		{ "{\"name\":\"a\"}", "exit_code" },
		{ "{\"name\":\"a\",\"exit_code\":256}", "exit_code" },
		{ "{\"name\":\"a\",\"exit_code\":-1}", "exit_code" },
		{ "{\"name\":\"a\",\"exit_code\":0,\"timed_out\":1}", "timed_out" },
		{ "{\"name\":\"a\",\"exit_code\":0,\"denied\":1e300}", "denied" },
		{ "{\"name\":\"a\",\"exit_code\":0,\"notes\":[]}", "notes" },
		{ "{\"name\":\"a\",\"exit_code\":0,\"counts\":{\"bytes\":[1]}}", "bytes" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		_cleanup_json_ cJSON *obj = cJSON_Parse(rows[i].json);
		struct run_report got = { .outcome = { .exit_code = 42 } };
		struct ak_err err = { "" };

		assert_true(run_report_from_json(obj, &got, &err) < 0);
		assert_non_null(strstr(err.text, rows[i].place));
		assert_int_equal(got.outcome.exit_code, 42);
	}
}

static void every_front_end_gets_the_same_members(void **state)
{
	_cleanup_(run_report_done) struct run_report r = {
		.name = "run-0badcafe",
		.outcome = { .exit_code = 127,
			.out_of_memory = true,
			.duration_ms = 9,
			.net.denied = 4,
			.why = { "no such command" } },
	};
	_cleanup_strbuf_ struct strbuf out = { 0 }, text = { 0 };

	run_report_put(&out, &r);
	strbuf_putc(&out, ',');
	run_report_put_network(&out, &r);
	assert_string_equal(out.data,
		"\"sandbox\":\"run-0badcafe\",\"exit_code\":127,\"timed_out\":false,\"out_of_memory\":true,\"out_of_disk\":false,\"start_us\":0,\"duration_ms\":9,"
		"\"network\":{\"allowed\":0,\"denied\":4}");
	run_report_note(&r, "a %s", "note");
	run_report_note(&r, "another");
	r.outcome.net.counts.verdicts[0][NET_REASON_UNRECORDED] = 1;
	run_report_tell(&text, &r);
	assert_string_equal(text.data,
		"no such command\nout of memory: the sandbox reached its memory limit\n"
		"the network log could not be written for a while, and no new connection was allowed meanwhile\na note\nanother\n");
}

static void a_limit_that_was_reached_is_told_with_its_size(void **state)
{
	_cleanup_strbuf_ struct strbuf text = { 0 };
	struct run_outcome o = { .out_of_memory = true, .memory_bytes = 256u << 20, .pids_hit = true, .pids = 64 };

	run_outcome_tell(&text, &o);
	assert_string_equal(
		text.data, "out of memory: limit 256 MiB (--memory)\nthe sandbox reached its limit of 64 processes (--pids)\n");
	strbuf_reset(&text);
	o = (struct run_outcome){ .out_of_disk = true, .disk_bytes = 2ull << 30 };
	run_outcome_tell(&text, &o);
	assert_string_equal(text.data, "out of disk space: limit 2048 MiB (--disk)\n");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_report_is_read_as_it_was_written),
		cmocka_unit_test(what_is_not_a_report_is_refused_with_its_place),
		cmocka_unit_test(every_front_end_gets_the_same_members),
		cmocka_unit_test(a_limit_that_was_reached_is_told_with_its_size),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
