/* What `network log` shows: like records are one row, an allowed question goes into its flow, and nothing steers the terminal. */
#include "tests/unit/golden.h"

#include "gateway/base/table.h"
#include "gateway/log/netlog.h"

#include "gateway/base/cleanup.h"
#include "gateway/log/audit.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

#define NOON 1767355200000000u /* 2026-01-02T12:00:00Z */

/* A record of the second SECOND after noon; MEMBERS is the rest of it. */
static void add(struct netlog *log, unsigned second, const char *members)
{
	static unsigned seq;
	_cleanup_strbuf_ struct strbuf line = { 0 };
	char when[AUDIT_TIME_MAX];
	struct netlog_rec rec;

	strbuf_printf(&line, "{\"v\":1,\"time\":\"%s\",\"seq\":%u,%s,\"prev\":\"0\",\"hash\":\"0\"}",
		audit_time_print(NOON + second * 1000000u, when), ++seq, members);
	assert_int_equal(netlog_rec_parse(line.data, line.len, &rec), 0);
	assert_int_equal(netlog_add(log, &rec), 0);
	netlog_rec_done(&rec);
}

#define ALLOW_DNS(name, qtype)                                                                                                   \
	"\"event\":\"dns\",\"verdict\":\"allow\",\"proto\":\"dns\",\"name\":\"" name "\",\"qtype\":\"" qtype                     \
	"\",\"rule\":\"codex: " name "\",\"count\":1"
#define FLOW(name, dst, out, in)                                                                                                 \
	"\"event\":\"flow\",\"verdict\":\"allow\",\"proto\":\"tcp\",\"name\":\"" name "\",\"dst\":\"" dst                        \
	"\",\"port\":443,\"rule\":\"codex: " name "\",\"bytes_out\":" out ",\"bytes_in\":" in ",\"duration_ms\":5,\"count\":1"

/* The table as it would be printed WIDTH columns wide. */
static char *table(struct netlog *log, enum netlog_only only, int width, uint64_t now_us)
{
	_cleanup_free_ struct netlog_row **rows = NULL;
	struct table t;
	char *text = NULL;
	size_t n, len;
	FILE *out = open_memstream(&text, &len);

	assert_int_equal(netlog_rows(log, only, now_us, 0, &rows, &n), 0);
	netlog_table_init(&t);
	table_look(&t, (struct ak_look){ .width = width });
	for (size_t i = 0; i < n; i++)
		netlog_table_put(&t, rows[i], netlog_needs_date(rows, n, now_us));
	assert_int_equal(table_print(&t, out, false), 0);
	table_done(&t);
	fclose(out);
	return text;
}

static void expect(struct netlog *log, enum netlog_only only, int width, const char *want)
{
	_cleanup_free_ char *got = table(log, only, width, NOON);

	if (strcmp(got, want) != 0)
		fail_msg("got:\n%swanted:\n%s", got, want);
}

static void the_table_of_the_manual(void **state)
{
	_cleanup_(netlog_freep) struct netlog *log = NULL;

	assert_int_equal(netlog_new(&log), 0);
	add(log, 0, "\"event\":\"start\",\"verdict\":\"allow\",\"count\":1");
	add(log, 1, ALLOW_DNS("api.openai.com", "A"));
	add(log, 1, ALLOW_DNS("api.openai.com", "AAAA"));
	add(log, 1, FLOW("api.openai.com", "104.18.6.192", "2000", "40000"));
	add(log, 2,
		"\"event\":\"dns\",\"verdict\":\"deny\",\"proto\":\"dns\",\"name\":\"pastebin.com\",\"qtype\":\"A\",\"rule\":\"default\",\"reason\":\"not in allowlist\",\"count\":1");
	add(log, 2,
		"\"event\":\"packet\",\"verdict\":\"deny\",\"proto\":\"tcp\",\"dst\":\"169.254.169.254\",\"port\":80,\"rule\":\"builtin: metadata\",\"reason\":\"cloud metadata\",\"count\":1,\"suppressed\":41");
	add(log, 3,
		"\"event\":\"flow\",\"verdict\":\"deny\",\"proto\":\"tls\",\"dst\":\"203.0.113.9\",\"port\":443,\"sni\":\"evil.example\",\"rule\":\"default\",\"reason\":\"SNI not allowed here\",\"count\":1");
	add(log, 4, FLOW("api.openai.com", "104.18.6.192", "2200", "50000"));
	add(log, 5, FLOW("api.openai.com", "104.18.7.192", "0", "112"));
	add(log, 6,
		"\"event\":\"packet\",\"verdict\":\"deny\",\"proto\":\"tcp\",\"dst\":\"2a00::1\",\"port\":22,\"rule\":\"default\",\"reason\":\"address not learned\",\"count\":1");
	add(log, 7,
		"\"event\":\"packet\",\"verdict\":\"deny\",\"proto\":\"icmp\",\"dst\":\"11.0.0.1\",\"rule\":\"builtin: protocol\",\"reason\":\"only TCP and UDP may pass\",\"count\":1");
	add(log, 8, "\"event\":\"loss\",\"reason\":\"disk full\",\"count\":7");
	for (size_t i = 0; i < ARRAY_SIZE(golden_widths); i++) {
		_cleanup_free_ char *got = table(log, NETLOG_ALL, golden_widths[i], NOON);

		golden_check("network_log", golden_widths[i], got);
	}
	expect(log, NETLOG_ALLOWED, 70,
		"TIME      VERDICT  PROTO  DESTINATION           BYTES ↑/↓  COUNT\n"
		"12:00:01  allow    tcp    api.opena….6.192 +1)  4.1K/88K       3\n");
}

static void rows_fit_the_width(void **state)
{
	_cleanup_(netlog_freep) struct netlog *log = NULL;

	assert_int_equal(netlog_new(&log), 0);
	add(log, 1, FLOW("a-rather-long-label.and-another-one.example.com", "104.18.6.192", "1", "1"));
	for (int width = 60; width <= 160; width += 8) {
		_cleanup_free_ char *text = table(log, NETLOG_ALL, width, NOON);

		for (const char *line = text; *line; line += strcspn(line, "\n") + 1) {
			int columns = 0;

			for (const char *p = line; *p != '\n'; p++)
				columns += (*p & 0xc0) != 0x80;
			assert_in_range(columns, 1, width);
		}
	}
}

static void an_unused_question_stands_alone(void **state)
{
	_cleanup_(netlog_freep) struct netlog *log = NULL;
	_cleanup_free_ struct netlog_row **rows = NULL;
	size_t n;

	assert_int_equal(netlog_new(&log), 0);
	add(log, 1, ALLOW_DNS("used.example", "A"));
	add(log, 1, ALLOW_DNS("unused.example", "A"));
	add(log, 2, FLOW("used.example", "11.0.0.1", "1", "1"));
	add(log, 3, ALLOW_DNS("unused.example", "A"));
	assert_int_equal(netlog_rows(log, NETLOG_ALL, NOON, 0, &rows, &n), 0);
	assert_int_equal(n, 2);
	assert_string_equal(rows[0]->dest, "unused.example A");
	assert_int_equal(rows[0]->count, 2);
	assert_string_equal(rows[1]->dest, "used.example:443");
}

static void the_queries_of_one_lookup_share_a_row_and_count_once(void **state)
{
	_cleanup_(netlog_freep) struct netlog *log = NULL;
	_cleanup_free_ struct netlog_row **rows = NULL;
	size_t n;

	assert_int_equal(netlog_new(&log), 0);
	for (int i = 0; i < 3; i++) {
		add(log, 1, ALLOW_DNS("a.example", "A"));
		add(log, 1, ALLOW_DNS("a.example", "AAAA"));
	}
	add(log, 2, ALLOW_DNS("a.example", "A"));
	add(log, 2, ALLOW_DNS("a.example", "TXT"));
	add(log, 2, ALLOW_DNS("b.example", "HTTPS"));
	assert_int_equal(netlog_rows(log, NETLOG_ALL, NOON, 0, &rows, &n), 0);
	assert_int_equal(n, 3);
	assert_string_equal(rows[0]->dest, "a.example A, AAAA");
	assert_int_equal(rows[0]->count, 4);
	assert_string_equal(rows[1]->dest, "a.example TXT");
	assert_string_equal(rows[2]->dest, "b.example HTTPS");
}

static void a_question_after_the_last_flow_stands_alone(void **state)
{
	_cleanup_(netlog_freep) struct netlog *log = NULL;
	_cleanup_free_ struct netlog_row **rows = NULL;
	size_t n;

	assert_int_equal(netlog_new(&log), 0);
	add(log, 1, ALLOW_DNS("a.example", "A"));
	add(log, 2, FLOW("a.example", "11.0.0.1", "1", "1"));
	add(log, 3, ALLOW_DNS("a.example", "A"));
	assert_int_equal(netlog_rows(log, NETLOG_ALL, NOON, 0, &rows, &n), 0);
	assert_int_equal(n, 2);
	assert_string_equal(rows[1]->dest, "a.example A");
	assert_int_equal(rows[1]->count, 1);
	assert_int_equal(rows[1]->time_us, NOON + 3000000);
}

static void a_denied_flow_uses_its_question_too(void **state)
{
	_cleanup_(netlog_freep) struct netlog *log = NULL;
	_cleanup_free_ struct netlog_row **rows = NULL;
	size_t n;

	assert_int_equal(netlog_new(&log), 0);
	add(log, 1, ALLOW_DNS("a.example", "A"));
	add(log, 2,
		"\"event\":\"flow\",\"verdict\":\"deny\",\"proto\":\"tls\",\"name\":\"a.example\",\"dst\":\"11.0.0.1\",\"port\":443,\"sni\":\"b.example\",\"count\":1");
	assert_int_equal(netlog_rows(log, NETLOG_ALLOWED, NOON, 0, &rows, &n), 0);
	assert_int_equal(n, 0);
}

static void a_denied_question_is_never_folded(void **state)
{
	_cleanup_(netlog_freep) struct netlog *log = NULL;
	_cleanup_free_ struct netlog_row **rows = NULL;
	size_t n;

	assert_int_equal(netlog_new(&log), 0);
	add(log, 1,
		"\"event\":\"dns\",\"verdict\":\"deny\",\"proto\":\"dns\",\"name\":\"a.example\",\"qtype\":\"A\",\"count\":1");
	add(log, 2, FLOW("a.example", "11.0.0.1", "1", "1"));
	assert_int_equal(netlog_rows(log, NETLOG_DENIED, NOON, 0, &rows, &n), 0);
	assert_int_equal(n, 1);
}

static void a_fresh_question_is_held_back_while_following(void **state)
{
	_cleanup_(netlog_freep) struct netlog *log = NULL;
	struct netlog_row **rows = NULL;
	size_t n;

	assert_int_equal(netlog_new(&log), 0);
	add(log, 1, ALLOW_DNS("a.example", "A"));
	assert_int_equal(netlog_rows(log, NETLOG_ALL, NOON + 2000000, 2000000, &rows, &n), 0);
	assert_int_equal(n, 0);
	free(rows);
	assert_int_equal(netlog_rows(log, NETLOG_ALL, NOON + 4000000, 2000000, &rows, &n), 0);
	assert_int_equal(n, 1);
	free(rows);
}

static void another_day_shows_its_date(void **state)
{
	_cleanup_(netlog_freep) struct netlog *log = NULL;
	_cleanup_free_ char *text = NULL;

	assert_int_equal(netlog_new(&log), 0);
	add(log, 1, FLOW("a.example", "11.0.0.1", "1", "1"));
	text = table(log, NETLOG_ALL, 120, NOON + 86400000000u);
	assert_non_null(strstr(text, "\n01-02 12:00:01  allow"));
}

static void nothing_steers_the_terminal(void **state)
{
	_cleanup_(netlog_freep) struct netlog *log = NULL;
	_cleanup_free_ char *text = NULL;

	assert_int_equal(netlog_new(&log), 0);
	add(log, 1,
		"\"event\":\"dns\",\"verdict\":\"\\u001b[1m\",\"proto\":\"\\u009b\",\"name\":\"a\\u0000b\\u001b]0;x\\u0007\\u0085\\u00ff\\u202e\\n\",\"rule\":\"\\u007f\",\"reason\":\"\\u0008\",\"count\":1");
	text = table(log, NETLOG_ALL, 200, NOON);
	for (const char *p = text; *p; p++)
		assert_true(*p == '\n' || ((unsigned char)*p >= 0x20 && *p != 0x7f));
	assert_non_null(strstr(text, "a\\x00b\\x1b]0;x\\x07\\x85\\xff\\u202e\\x0a"));
	assert_null(strstr(text, "\xc2"));
}

static void what_is_no_record_is_refused(void **state)
{
	static const char *const bad[] = { "", "{", "[]", "{}", "{\"v\":2,\"time\":\"2026-01-02T03:04:05Z\"}", "{\"v\":1}",
		"{\"v\":1,\"time\":\"x\"}", "{\"v\":1,\"time\":\"2026-01-02T03:04:05Z\"} x",
		"{\"v\":1,\"time\":\"2026-01-02T03:04:05Z\",\"a\":\"\x1b\"}",
		"{\"v\":1,\"time\":\"2026-01-02T03:04:05Z\",\"a\":\"\xff\"}" };
	static const char odd[] = "{\"v\":1,\"time\":\"2026-01-02T03:04:05Z\",\"name\":5,\"count\":\"x\",\"port\":-1}";
	struct netlog_rec rec;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(netlog_rec_parse(bad[i], strlen(bad[i]), &rec), -EBADMSG);
	/* Wrong types are read as absent, never believed. */
	assert_int_equal(netlog_rec_parse(odd, strlen(odd), &rec), 0);
	assert_string_equal(rec.name, "");
	assert_int_equal(rec.count, 0);
	netlog_rec_done(&rec);
}

static void byte_counts_are_short(void **state)
{
	static const struct {
		uint64_t n;
		const char *text;
	} vectors[] = { { 0, "0" }, { 999, "999" }, { 1000, "1.0K" }, { 4200, "4.1K" }, { 10188, "9.9K" }, { 10240, "10K" },
		{ 90112, "88K" }, { 1048576, "1.0M" }, { 1023u << 10, "1.0M" }, { 5ull << 30, "5.0G" }, { UINT64_MAX, "16E" } };
	char buf[32];

	for (size_t i = 0; i < ARRAY_SIZE(vectors); i++)
		assert_string_equal(netlog_bytes(vectors[i].n, buf, sizeof(buf)), vectors[i].text);
}

static void the_summary_counts(void **state)
{
	_cleanup_(netlog_freep) struct netlog *log = NULL;
	_cleanup_free_ struct netlog_row **rows = NULL;
	_cleanup_free_ char *text = NULL, *json = NULL;
	size_t n, len;
	FILE *out;

	assert_int_equal(netlog_new(&log), 0);
	for (unsigned i = 0; i < 3; i++)
		add(log, i, FLOW("a.example", "11.0.0.1", "10", "2000"));
	add(log, 4,
		"\"event\":\"dns\",\"verdict\":\"deny\",\"proto\":\"dns\",\"name\":\"b.example\",\"qtype\":\"A\",\"rule\":\"default\",\"reason\":\"not in allowlist\",\"count\":1");
	add(log, 4,
		"\"event\":\"dns\",\"verdict\":\"deny\",\"proto\":\"dns\",\"name\":\"c.example\",\"qtype\":\"A\",\"rule\":\"default\",\"reason\":\"not in allowlist\",\"count\":2");
	add(log, 5, "\"event\":\"loss\",\"reason\":\"disk full\",\"count\":4");
	assert_int_equal(netlog_rows(log, NETLOG_ALL, NOON, 0, &rows, &n), 0);
	out = open_memstream(&text, &len);
	assert_int_equal(netlog_print_summary(rows, n, false, out), 0);
	fclose(out);
	assert_string_equal(text,
		"VERDICT  COUNT  BYTES ↑/↓\n"
		"allow        3  30/5.9K\n"
		"deny         3\n"
		"lost         4\n"
		"\n"
		"VERDICT  COUNT  DESTINATION\n"
		"allow        3  a.example:443\n"
		"deny         2  c.example A\n"
		"deny         1  b.example A\n"
		"\n"
		"VERDICT  COUNT  RULE\n"
		"allow        3  codex: a.example\n"
		"deny         3  default\n"
		"\n"
		"VERDICT  COUNT  REASON\n"
		"deny         3  not in allowlist\n");
	out = open_memstream(&json, &len);
	assert_int_equal(netlog_print_summary(rows, n, true, out), 0);
	fclose(out);
	assert_string_equal(json,
		"{\"verdicts\":{\"allow\":{\"count\":3,\"bytes_out\":30,\"bytes_in\":6000},\"deny\":{\"count\":3,\"bytes_out\":0,\"bytes_in\":0},"
		"\"error\":{\"count\":0,\"bytes_out\":0,\"bytes_in\":0}},\"lost\":4,"
		"\"destinations\":[{\"destination\":\"a.example:443\",\"verdict\":\"allow\",\"count\":3},{\"destination\":\"c.example A\",\"verdict\":\"deny\",\"count\":2},"
		"{\"destination\":\"b.example A\",\"verdict\":\"deny\",\"count\":1}],"
		"\"rules\":[{\"rule\":\"codex: a.example\",\"verdict\":\"allow\",\"count\":3},{\"rule\":\"default\",\"verdict\":\"deny\",\"count\":3}],"
		"\"reasons\":[{\"reason\":\"not in allowlist\",\"verdict\":\"deny\",\"count\":3}]}\n");
}

static void many_rows_stay_quick(void **state)
{
	_cleanup_(netlog_freep) struct netlog *log = NULL;
	_cleanup_free_ struct netlog_row **rows = NULL;
	char members[256];
	size_t n;

	assert_int_equal(netlog_new(&log), 0);
	for (unsigned i = 0; i < 20000; i++) {
		snprintf(members, sizeof(members),
			"\"event\":\"dns\",\"verdict\":\"deny\",\"proto\":\"dns\",\"name\":\"h%u.example\",\"qtype\":\"A\",\"count\":1",
			i);
		add(log, i % 60, members);
		add(log, i % 60, ALLOW_DNS("a.example", "A"));
		add(log, i % 60, FLOW("a.example", "11.0.0.1", "1", "1"));
	}
	assert_int_equal(netlog_rows(log, NETLOG_ALL, NOON, 0, &rows, &n), 0);
	assert_int_equal(n, 20001);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_table_of_the_manual),
		cmocka_unit_test(rows_fit_the_width),
		cmocka_unit_test(an_unused_question_stands_alone),
		cmocka_unit_test(the_queries_of_one_lookup_share_a_row_and_count_once),
		cmocka_unit_test(a_question_after_the_last_flow_stands_alone),
		cmocka_unit_test(a_denied_flow_uses_its_question_too),
		cmocka_unit_test(a_denied_question_is_never_folded),
		cmocka_unit_test(a_fresh_question_is_held_back_while_following),
		cmocka_unit_test(another_day_shows_its_date),
		cmocka_unit_test(nothing_steers_the_terminal),
		cmocka_unit_test(what_is_no_record_is_refused),
		cmocka_unit_test(byte_counts_are_short),
		cmocka_unit_test(the_summary_counts),
		cmocka_unit_test(many_rows_stay_quick),
	};

	setenv("TZ", "UTC0", 1);
	tzset();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
