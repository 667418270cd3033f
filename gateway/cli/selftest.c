/* `agentkernel network selftest`: print the report as a table or as one JSON object. */
#include "gateway/cli/cmd.h"
#include "gateway/selftest/selftest.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/strbuf.h"
#include "gateway/base/table.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

static const char *const result_words[] = {
	[SELFTEST_SKIPPED] = "skip",
	[SELFTEST_PASSED] = "pass",
	[SELFTEST_FAILED] = "FAIL",
};
static_assert(ARRAY_SIZE(result_words) == SELFTEST_RESULT_NUM, "a word for each result");

static void print_table(const struct selftest_report *r)
{
	static const struct table_column columns[] = { { "ROW", 0, 0, 0, 0 }, { "WHAT", TABLE_CUT, 40, 0, 0 },
		{ "RESULT", 0, 0, 0, 0 }, { "REASON", 0, 0, 0, 0 } };
	static const enum ak_style styles[] = {
		[SELFTEST_SKIPPED] = AK_DIM, [SELFTEST_PASSED] = AK_GOOD, [SELFTEST_FAILED] = AK_BAD
	};
	struct table t;

	table_init(&t, columns, ARRAY_SIZE(columns));
	for (size_t i = 0; i < r->n_rows; i++) {
		table_put(&t, AK_PLAIN, r->rows[i].id);
		table_put(&t, AK_PLAIN, r->rows[i].what);
		table_put(&t, styles[r->rows[i].result], result_words[r->rows[i].result]);
		table_put(&t, AK_PLAIN, r->rows[i].reason);
	}
	(void)cmd_print_table(&t, "network selftest: there are no rows");
	printf("\n%u passed, %u failed", r->passed, r->failed);
	if (r->skipped)
		printf(", %u skipped", r->skipped);
	printf(" in %u.%u s\n", (unsigned)(r->duration_ms / 1000), (unsigned)(r->duration_ms % 1000 / 100));
}

static void print_json(const struct selftest_report *r)
{
	static const char *const words[] = { "skipped", "passed", "failed" };
	_cleanup_strbuf_ struct strbuf out = { 0 };

	strbuf_printf(&out, "{\"ok\":%s,\"passed\":%u,\"failed\":%u,\"skipped\":%u,\"duration_ms\":%llu,\"rows\":[",
		r->failed ? "false" : "true", r->passed, r->failed, r->skipped, (unsigned long long)r->duration_ms);
	for (size_t i = 0; i < r->n_rows; i++) {
		const struct selftest_row *row = &r->rows[i];

		strbuf_printf(&out, "%s{\"row\":\"%s\",\"what\":", i ? "," : "", row->id);
		strbuf_json(&out, row->what);
		strbuf_printf(&out, ",\"result\":\"%s\",\"reason\":", words[row->result]);
		strbuf_json(&out, row->reason);
		strbuf_printf(&out, ",\"vectors\":%u}", row->vectors);
	}
	strbuf_puts(&out, "]}");
	(void)cmd_print_json_text(&out);
}

int cmd_network_selftest(int argc, char **argv)
{
	static struct selftest_report report;
	struct cmd_args a;
	struct ak_err err;
	int rc = cmd_read(&a, "network selftest", argc, argv, NULL, 0, NULL);

	if (rc)
		return rc - 1;
	if (selftest_run(&report, &err) < 0) {
		ak_say("network selftest: %s", err.text);
		return AK_EXIT_ERROR;
	}
	if (a.seen[FIELD_JSON])
		print_json(&report);
	else
		print_table(&report);
	return report.failed ? AK_EXIT_ERROR : 0;
}
