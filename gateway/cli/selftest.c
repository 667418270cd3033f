/* `agentkernel network selftest`: print the report as a table or as one JSON object. */
#include "gateway/cli/cmd.h"
#include "gateway/selftest/selftest.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/strbuf.h"

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
	printf("%-5s %-66s %-6s %s\n", "ROW", "WHAT", "RESULT", "REASON");
	for (size_t i = 0; i < r->n_rows; i++)
		printf("%-5s %-66s %-6s %s\n", r->rows[i].id, r->rows[i].what, result_words[r->rows[i].result],
			r->rows[i].reason);
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
	strbuf_puts(&out, "]}\n");
	if (!out.failed)
		fputs(out.data, stdout);
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
