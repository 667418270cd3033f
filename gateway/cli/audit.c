/* audit: print the events of all sandboxes as a table or as raw records. */
#include "gateway/cli/cmd.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/base/json.h"
#include "gateway/base/table.h"
#include "gateway/log/audit.h"
#include "gateway/log/netlog.h"
#include "gateway/log/view.h"
#include "gateway/store/runs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const struct table_column columns[] = {
	{ "TIME", 0, 0, 0, 19 },
	{ "EVENT", 0, 0, 0, 14 },
	{ "SANDBOX", TABLE_CUT, 12, 0, 12 },
	{ "DETAIL", 0, 0, 0, 0 },
};

struct audit_view {
	struct log_view log;
	char whole[AK_NAME_MAX]; /* the name that was abbreviated */
	bool json, any;
	struct table table;
};

/* Returns 0 to continue, else the exit code + 1. */
static int parse_events(struct audit_view *v, int argc, char **argv)
{
	struct cmd_args a;
	const char *word;
	size_t n = 0;
	int rc = cmd_read(&a, "audit", argc, argv, &word, 1, &n);

	if (rc == 0 && n) {
		ak_say("audit: unexpected '%.100s'; did you mean 'agentkernel audit verify'?", word);
		return 1 + AK_EXIT_USAGE;
	}
	v->log.since_us = a.given[FIELD_SINCE].number;
	v->log.limit = a.given[FIELD_LIMIT_LINES].number;
	v->log.sandbox = a.given[FIELD_SANDBOX].text;
	v->log.follow = a.seen[FIELD_FOLLOW_ALL];
	v->json = a.seen[FIELD_JSON_LINES];
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

static void put_time(struct table *t, uint64_t time_us)
{
	time_t at = (time_t)(time_us / 1000000);
	struct tm tm = { 0 };
	char when[32];

	localtime_r(&at, &tm);
	strftime(when, sizeof(when), "%Y-%m-%d %H:%M:%S", &tm);
	table_put(t, AK_DIM, when);
}

static void put_event(struct table *t, const struct netlog_rec *rec)
{
	_cleanup_strbuf_ struct strbuf text = { 0 }, detail = { 0 };

	put_time(t, rec->time_us);
	netlog_safe(&text, rec->event);
	table_put(t, AK_PLAIN, text.data);
	strbuf_reset(&text);
	netlog_safe(&text, json_text(rec->json, "sandbox", "-"));
	table_put(t, AK_PLAIN, text.data);
	for (const cJSON *c = rec->json->child; c; c = c->next) {
		if (!is_detail(c->string))
			continue;
		strbuf_puts(&detail, detail.len ? "  " : "");
		netlog_safe(&detail, c->string);
		strbuf_putc(&detail, '=');
		put_value(&detail, c);
	}
	table_put(t, AK_DIM, detail.data);
}

static int on_record(void *ctx, const char *line, size_t len, const struct netlog_rec *rec)
{
	struct audit_view *v = ctx;
	struct netlog_rec own;

	v->any = true;
	if (v->json) {
		puts(line);
	} else if (rec) {
		put_event(&v->table, rec);
	} else if (netlog_event_parse(line, len, &own) == 0) { /* with a limit, records are not parsed twice */
		put_event(&v->table, &own);
		netlog_rec_done(&own);
	}
	return 0;
}

static int flush(void *ctx, bool ended, struct ak_err *err)
{
	struct audit_view *v = ctx;

	if (!v->json && (v->any || v->log.follow) && table_print(&v->table, stdout, v->log.follow) < 0)
		return ak_fail(err, ENOMEM, "out of memory");
	return ak_flush(err);
}

/* Does the sandbox or run exist? One that was removed is known only by its events. */
static bool exists(const struct ak_paths *paths, const char *name)
{
	char dir[PATH_MAX];
	struct ak_err ignored;

	return runs_dir(paths, name, dir, &ignored) == 0;
}

/* Nothing was printed: is that because there is nothing, or because the name is wrong? */
static int tell_nothing(const struct audit_view *v, const struct ak_paths *paths)
{
	if (v->log.sandbox && !exists(paths, v->log.sandbox)) {
		ak_say("audit: there is no sandbox or run '%s', and no event of one; see 'agentkernel list -a'", v->log.sandbox);
		return AK_EXIT_ERROR;
	}
	if (!v->json)
		ak_say("audit: no events%s; for example: agentkernel run -- echo hello",
			v->log.since_us ? " since then" : " yet");
	return 0;
}

int cmd_audit(int argc, char **argv)
{
	struct audit_view v = { .log = { .events = true, .pause = flush, .record = on_record, .ctx = &v } };
	struct ak_err err = { "" };
	struct ak_paths paths;
	int rc = parse_events(&v, argc, argv);

	if (rc)
		return rc - 1;
	table_init(&v.table, columns, ARRAY_SIZE(columns));
	rc = ak_paths_init(&paths, &err);
	if (rc == 0 && v.log.sandbox)
		rc = runs_resolve(&paths, &v.log.sandbox, v.whole, &err);
	if (rc == 0 && v.log.follow && v.log.sandbox && !exists(&paths, v.log.sandbox))
		return tell_nothing(&v, &paths);
	if (rc == 0)
		rc = log_view_run(&v.log, paths.state, &err);
	table_done(&v.table);
	if (rc == 0 && !v.any && !v.log.follow)
		return tell_nothing(&v, &paths);
	return ak_log_end(v.log.corrupt, rc, &err);
}
