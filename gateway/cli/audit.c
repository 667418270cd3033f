/* audit: print the events of all sandboxes as a table or as raw records. */
#include "gateway/cli/cmd.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/base/json.h"
#include "gateway/log/audit.h"
#include "gateway/log/netlog.h"
#include "gateway/log/view.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- audit ---- */

/* Returns 0 to continue, else the exit code + 1. */
static int parse_events(struct log_view *v, bool *json, int argc, char **argv)
{
	struct cmd_args a;
	const char *word;
	size_t n = 0;
	int rc = cmd_read(&a, "audit", argc, argv, &word, 1, &n);

	if (rc == 0 && n) {
		ak_say("audit: unexpected '%.100s'; did you mean 'agentkernel audit verify'?", word);
		return 1 + AK_EXIT_USAGE;
	}
	v->since_us = a.given[FIELD_SINCE].number;
	v->sandbox = a.given[FIELD_SANDBOX].text;
	v->follow = a.seen[FIELD_FOLLOW_ALL];
	*json = a.seen[FIELD_JSON_LINES];
	return rc;
}

/* False for members that have their own column or belong to the hash chain. */
static bool is_detail(const char *key)
{
	static const char *const others[] = { "v", "time", "seq", "prev", "hash", "mac", "event", "sandbox" };

	for (size_t i = 0; i < ARRAY_SIZE(others); i++) {
		if (!strcmp(key, others[i]))
			return false;
	}
	return true;
}

static void put_value(struct strbuf *out, const cJSON *item)
{
	if (cJSON_IsArray(item)) {
		for (const cJSON *c = item->child; c; c = c->next) {
			put_value(out, c);
			if (c->next)
				strbuf_putc(out, ' ');
		}
	} else if (cJSON_IsString(item)) {
		netlog_safe(out, item->valuestring);
	} else {
		char *text = cJSON_PrintUnformatted(item);

		netlog_safe(out, text ? text : "?");
		cJSON_free(text);
	}
}

static int print_event(void *ctx, const char *line, size_t len, const struct netlog_rec *rec)
{
	_cleanup_strbuf_ struct strbuf text = { 0 }, detail = { 0 };
	const cJSON *sandbox = cJSON_GetObjectItemCaseSensitive(rec->json, "sandbox");
	time_t t = (time_t)(rec->time_us / 1000000);
	struct tm tm = { 0 };
	char when[32];

	localtime_r(&t, &tm);
	strftime(when, sizeof(when), "%Y-%m-%d %H:%M:%S", &tm);
	for (const cJSON *c = rec->json->child; c; c = c->next) {
		if (!is_detail(c->string))
			continue;
		strbuf_puts(&detail, detail.len ? "  " : "");
		netlog_safe(&detail, c->string);
		strbuf_putc(&detail, '=');
		put_value(&detail, c);
	}
	netlog_safe(&text, rec->event);
	printf("%s  %-16s  ", when, text.len ? text.data : "-");
	strbuf_reset(&text);
	netlog_safe(&text, cJSON_IsString(sandbox) ? sandbox->valuestring : "-");
	printf("%-16s  %s\n", text.len ? text.data : "", detail.len ? detail.data : "");
	return 0;
}

static int print_raw(void *ctx, const char *line, size_t len, const struct netlog_rec *rec)
{
	puts(line);
	return 0;
}

static int flush(void *ctx, bool ended, struct ak_err *err)
{
	return ak_flush(err);
}

int cmd_audit(int argc, char **argv)
{
	struct log_view v = { .events = true, .pause = flush };
	struct ak_err err = { "" };
	struct ak_paths paths;
	bool json = false;
	int rc = parse_events(&v, &json, argc, argv);

	if (rc)
		return rc - 1;
	v.record = json ? print_raw : print_event;
	rc = ak_paths_init(&paths, &err);
	if (rc == 0 && !json)
		printf("%-19s  %-16s  %-16s  %s\n", "TIME", "EVENT", "SANDBOX", "DETAIL");
	if (rc == 0)
		rc = log_view_run(&v, paths.state, &err);
	return ak_log_end(v.corrupt, rc, &err);
}
