/* audit: the events of all sandboxes as a table or raw records. audit verify: are the hash chains whole? */
#include "gateway/cli/cmd.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/base/json.h"
#include "gateway/log/audit.h"
#include "gateway/log/follow.h"
#include "gateway/log/netlog.h"
#include "gateway/store/runs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TICK_MS 500

/* ---- audit ---- */

struct events {
	const char *sandbox;
	bool follow, json;
	uint64_t since_us;

	struct ak_paths paths;
	struct audit_reader reader;
	uint64_t corrupt;
};

/* 0 to go on; else the exit code + 1. */
static int parse_events(struct events *e, int argc, char **argv)
{
	struct cmd_args a;
	const char *word;
	size_t n = 0;
	int rc = cmd_read(&a, "audit", argc, argv, &word, 1, &n);

	if (rc == 0 && n) {
		ak_say("audit: unexpected '%.100s'; did you mean 'agentkernel audit verify'?", word);
		return 1 + AK_EXIT_USAGE;
	}
	e->since_us = a.given[FIELD_SINCE].number;
	e->sandbox = a.given[FIELD_SANDBOX].text;
	e->follow = a.seen[FIELD_FOLLOW_ALL];
	e->json = a.seen[FIELD_JSON_LINES];
	return rc;
}

/* Members that have a column of their own, or only serve the chain. */
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

static void print_event(const struct netlog_rec *rec)
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
}

static int take_event(void *ctx, const char *line, size_t len, bool whole)
{
	struct events *e = ctx;
	struct netlog_rec rec = { 0 };
	const cJSON *sandbox;

	if (!whole || netlog_event_parse(line, len, &rec) < 0) {
		e->corrupt++;
		return 0;
	}
	sandbox = cJSON_GetObjectItemCaseSensitive(rec.json, "sandbox");
	if (rec.time_us < e->since_us || (e->sandbox && !(cJSON_IsString(sandbox) && !strcmp(sandbox->valuestring, e->sandbox))))
		; /* not asked for */
	else if (e->json)
		puts(line);
	else
		print_event(&rec);
	netlog_rec_done(&rec);
	return 0;
}

static int show_events(struct events *e, struct ak_err *err)
{
	struct ak_follow f = { -1 };
	char path[PATH_MAX];
	int rc = ak_paths_init(&e->paths, err);

	if (rc == 0 && ak_path_join(path, e->paths.state, "events.jsonl", NULL) < 0)
		rc = ak_fail(err, ENAMETOOLONG, "state folder: path too long");
	if (rc < 0)
		return rc;
	if (e->follow)
		ak_follow_init(&f, e->paths.state);
	if (!e->json)
		printf("%-19s  %-16s  %-16s  %s\n", "TIME", "EVENT", "SANDBOX", "DETAIL");
	for (;;) {
		rc = audit_reader_drain(&e->reader, path, !e->follow, take_event, e, err);
		if (rc == 0)
			rc = ak_flush(err);
		if (rc < 0 || !e->follow)
			break;
		ak_follow_wait(&f, TICK_MS);
	}
	ak_follow_done(&f);
	return rc;
}

int cmd_audit(int argc, char **argv)
{
	struct events e = { .reader.fd = -1 };
	struct ak_err err = { "" };
	int rc = parse_events(&e, argc, argv);

	if (rc)
		return rc - 1;
	rc = show_events(&e, &err);
	audit_reader_done(&e.reader);
	return ak_log_end(e.corrupt, rc, &err);
}
