/* One look at a log: only what is wanted of it, the newest where there is a limit, and nothing of a log that is not there. */
#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/base/strbuf.h"
#include "gateway/log/audit.h"
#include "gateway/log/view.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/unit/tmp_dir.h"

#define RECORD(time, seq, rest) "{\"v\":1,\"time\":\"2026-01-02T12:00:" time "Z\",\"seq\":" seq "," rest "}\n"

static char dir[32];

static void write_log(const char *name, const char *text)
{
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(ak_write_all(fd, text, strlen(text)), 0);
	close(fd);
}

static int make_dir(void **state)
{
	strcpy(dir, "/tmp/ak-view-XXXXXX");
	return tmp_dir(dir) ? 0 : -1;
}

static int note(void *ctx, const char *line, size_t len, const struct netlog_rec *rec)
{
	const char *seq = strstr(line, "\"seq\":");

	assert_int_equal(strlen(line), len);
	strbuf_putc(ctx, seq[6]);
	return 0;
}

static void expect(struct log_view v, const char *seqs)
{
	_cleanup_strbuf_ struct strbuf got = { 0 };
	struct ak_err err = { "" };

	v.record = note;
	v.ctx = &got;
	assert_int_equal(log_view_run(&v, dir, &err), 0);
	assert_string_equal(got.data ? got.data : "", seqs);
}

static void only_what_is_wanted_is_told(void **state)
{
	uint64_t third;

	write_log("network.jsonl",
		RECORD("01", "1", "\"event\":\"dns\",\"verdict\":\"allow\"")
			RECORD("02", "2", "\"event\":\"flow\",\"verdict\":\"deny\"")
				RECORD("03", "3", "\"event\":\"flow\",\"verdict\":\"allow\"") "no record\n");
	assert_int_equal(audit_time_parse("2026-01-02T12:00:03Z", &third), 0);
	expect((struct log_view){ 0 }, "123");
	expect((struct log_view){ .only = NETLOG_DENIED }, "2");
	expect((struct log_view){ .only = NETLOG_ALLOWED }, "13");
	expect((struct log_view){ .since_us = third }, "3");
	expect((struct log_view){ .limit = 2 }, "23");
	expect((struct log_view){ .limit = 2, .only = NETLOG_ALLOWED }, "13");
	expect((struct log_view){ .limit = 9 }, "123");
	expect((struct log_view){ .limit = 9, .max_bytes = 100 }, "3");
}

static void events_are_those_of_one_sandbox_in_any_script(void **state)
{
	write_log("events.jsonl",
		RECORD("01", "1", "\"event\":\"exec\",\"sandbox\":\"a\",\"argv\":[\"ä\"]")
			RECORD("02", "2", "\"event\":\"exec\",\"sandbox\":\"b\""));
	expect((struct log_view){ .events = true }, "12");
	expect((struct log_view){ .events = true, .sandbox = "a" }, "1");
}

static void a_log_that_is_not_there_is_empty(void **state)
{
	expect((struct log_view){ 0 }, "");
	expect((struct log_view){ .limit = 3 }, "");
}

struct follower {
	struct strbuf seen;
	unsigned rounds;
};

static int note_following(void *ctx, const char *line, size_t len, const struct netlog_rec *rec)
{
	struct follower *f = ctx;

	return note(&f->seen, line, len, rec);
}

static int write_more(void *ctx, bool ended, struct ak_err *err)
{
	struct follower *f = ctx;

	strbuf_putc(&f->seen, ended ? '.' : ',');
	if (++f->rounds == 1)
		write_log("network.jsonl", RECORD("04", "4", "\"event\":\"flow\",\"verdict\":\"deny\""));
	return 0;
}

static bool after_one_round(void *ctx)
{
	return ((struct follower *)ctx)->rounds > 0;
}

/* The limit is for what is there at first. */
static void what_is_written_later_follows_until_the_end(void **state)
{
	struct follower f = { 0 };
	struct log_view v = {
		.follow = true, .limit = 1, .record = note_following, .pause = write_more, .ended = after_one_round, .ctx = &f
	};
	struct ak_err err;

	write_log("network.jsonl",
		RECORD("01", "1", "\"event\":\"flow\",\"verdict\":\"deny\"")
			RECORD("02", "2", "\"event\":\"flow\",\"verdict\":\"deny\""));
	assert_int_equal(log_view_run(&v, dir, &err), 0);
	assert_string_equal(f.seen.data, "2,4.");
	strbuf_done(&f.seen);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(only_what_is_wanted_is_told, make_dir),
		cmocka_unit_test_setup(events_are_those_of_one_sandbox_in_any_script, make_dir),
		cmocka_unit_test_setup(a_log_that_is_not_there_is_empty, make_dir),
		cmocka_unit_test_setup(what_is_written_later_follows_until_the_end, make_dir),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
