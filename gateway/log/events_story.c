/* The history of runs and logs according to the events log: see log/events_story.h. */
#include "gateway/log/events_story.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/json.h"
#include "gateway/log/audit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void events_story_done(struct events_story *s)
{
	free(s->runs);
	free(s->gaps);
	free(s->logs);
	*s = (struct events_story){ 0 };
}

/* Make room for one more element of SIZE bytes; NULL if out of memory. */
static void *grow(void *list, size_t n, size_t *cap, size_t size)
{
	void *grown;

	if (n < *cap)
		return list;
	grown = realloc(list, (*cap ? 2 * *cap : 64) * size);
	if (grown)
		*cap = *cap ? 2 * *cap : 64;
	return grown;
}

/* Add one entry per event; merge() joins the events of a run at the end. */
static int add_run(struct events_story *s, const cJSON *name, const struct run_story *event)
{
	struct run_story *runs;

	if (!cJSON_IsString(name) || !ak_sandbox_name_ok(name->valuestring))
		return 0;
	runs = grow(s->runs, s->n_runs, &s->cap_runs, sizeof(*runs));
	if (!runs)
		return -ENOMEM;
	s->runs = runs;
	runs[s->n_runs] = *event;
	runs[s->n_runs].order = s->n_runs;
	memcpy(runs[s->n_runs++].name, name->valuestring, strlen(name->valuestring) + 1);
	return 0;
}

static uint64_t number(const cJSON *obj, const char *key)
{
	const cJSON *item = cJSON_GetObjectItemCaseSensitive(obj, key);

	return cJSON_IsNumber(item) && item->valuedouble > 0 ? (uint64_t)item->valuedouble : 0;
}

static int add_gap(struct events_story *s, const cJSON *obj)
{
	struct gap_story *gaps = grow(s->gaps, s->n_gaps, &s->cap_gaps, sizeof(*gaps)), gap = { 0 };

	if (!gaps)
		return -ENOMEM;
	s->gaps = gaps;
	snprintf(gap.name, sizeof(gap.name), "%s", json_text(obj, "sandbox", ""));
	gap.had = number(obj, "had");
	gap.has = number(obj, "has");
	gap.restarted = json_truth(obj, "restarted");
	gaps[s->n_gaps++] = gap;
	return 0;
}

static int add_pruned(struct events_story *s, const cJSON *obj)
{
	const cJSON *one, *list = cJSON_GetObjectItemCaseSensitive(obj, "runs");
	struct run_story event = { .gone = true };
	int rc = add_run(s, cJSON_GetObjectItemCaseSensitive(obj, "sandbox"), &event);

	for (one = cJSON_IsArray(list) ? list->child : NULL; one && rc == 0; one = one->next)
		rc = add_run(s, one, &event);
	return rc;
}

static int add_end(struct events_story *s, const cJSON *obj, bool keyless)
{
	struct run_story event = { .ended = true, .keyless = keyless, .records = number(obj, "network_records") };
	const char *hash = json_text(obj, "network_hash", NULL);

	if (!hash)
		return 0;
	snprintf(event.hash, sizeof(event.hash), "%s", hash);
	return add_run(s, cJSON_GetObjectItemCaseSensitive(obj, "sandbox"), &event);
}

static int add_log(struct events_story *s, const cJSON *obj, enum log_story_what what, bool keyless)
{
	struct log_story *logs = grow(s->logs, s->n_logs, &s->cap_logs, sizeof(*logs)), *log;
	const char *hash = json_text(obj, "network_hash", ""), *name = json_text(obj, "sandbox", "");

	if (!logs)
		return -ENOMEM;
	s->logs = logs;
	log = &logs[s->n_logs];
	*log = (struct log_story){ .order = s->n_logs, .what = what, .keyless = keyless };
	log->mark.seq = number(obj, "network_records");
	if (!ak_sandbox_name_ok(name) || (what == LOG_STORY_MARK && (!log->mark.seq || strlen(hash) != SHA256_HEX - 1)))
		return 0;
	memcpy(log->name, name, strlen(name) + 1);
	snprintf(log->mark.hash, sizeof(log->mark.hash), "%s", hash);
	s->n_logs++;
	return 0;
}

/* A run became a persistent sandbox, and its log the sandbox's: the log must still have what the run ended with. */
static int add_kept(struct events_story *s, const cJSON *obj, bool keyless)
{
	struct run_story event = { .gone = true };
	int rc = add_run(s, cJSON_GetObjectItemCaseSensitive(obj, "sandbox"), &event);

	if (rc == 0)
		rc = add_log(s, obj, LOG_STORY_CREATED, keyless);
	return rc < 0 ? rc : add_log(s, obj, LOG_STORY_MARK, keyless);
}

static int add_log_event(struct events_story *s, const char *event, const cJSON *obj, bool keyless)
{
	if (!strcmp(event, "sandbox_create"))
		return add_log(s, obj, LOG_STORY_CREATED, keyless);
	if (!strcmp(event, "sandbox_remove"))
		return add_log(s, obj, LOG_STORY_REMOVED, keyless);
	if (!strcmp(event, "sandbox_start") && json_truth(obj, "anchored"))
		return add_log(s, obj, LOG_STORY_STARTED, keyless);
	if (!strcmp(event, "sandbox_stop") || !strcmp(event, "log_mark"))
		return add_log(s, obj, LOG_STORY_MARK, keyless);
	return 0;
}

static int add_event(struct events_story *s, const cJSON *obj, bool keyless)
{
	const char *event = json_text(obj, "event", "");
	struct run_story start = { .started = true };

	if (!strcmp(event, "run_end"))
		return add_end(s, obj, keyless);
	if (!strcmp(event, "run_prune") || !strcmp(event, "run_discard"))
		return add_pruned(s, obj);
	if (!strcmp(event, "run_keep"))
		return add_kept(s, obj, keyless);
	if (!strcmp(event, "log_gap"))
		return add_gap(s, obj);
	if (!strcmp(event, "run_start") && cJSON_HasObjectItem(obj, "origin"))
		return add_run(s, cJSON_GetObjectItemCaseSensitive(obj, "sandbox"), &start);
	return add_log_event(s, event, obj, keyless);
}

/* Filter before parsing, which is expensive: most events in a busy log are of other kinds. */
static bool tells(const char *line, size_t len)
{
	return memmem(line, len, "\"event\":\"run_", 13) || memmem(line, len, "\"event\":\"log_", 13) ||
		memmem(line, len, "\"event\":\"sandbox_", 17);
}

static int take_line(void *ctx, const char *line, size_t len, bool whole)
{
	_cleanup_json_ cJSON *obj = NULL;
	struct audit_link link;
	struct ak_err err;

	if (!whole || !tells(line, len) || !audit_link_parse(line, len, &link) || json_parse(line, len, &obj, &err) < 0)
		return 0;
	return add_event(ctx, obj, !link.mac[0]);
}

static int by_name_and_order(const void *a, const void *b)
{
	const struct run_story *x = a, *y = b;
	int c = strcmp(x->name, y->name);

	return c ? c : x->order < y->order ? -1 : x->order > y->order;
}

static int logs_by_name_and_order(const void *a, const void *b)
{
	const struct log_story *x = a, *y = b;
	int c = strcmp(x->name, y->name);

	return c ? c : x->order < y->order ? -1 : x->order > y->order;
}

/* Merge the events of each run. A reused name starts a new run. */
static void merge(struct events_story *s)
{
	size_t n = 0;

	if (s->n_runs)
		qsort(s->runs, s->n_runs, sizeof(*s->runs), by_name_and_order);
	for (size_t i = 0; i < s->n_runs; i++) {
		const struct run_story *e = &s->runs[i];
		struct run_story *run = n && !strcmp(s->runs[n - 1].name, e->name) ? &s->runs[n - 1] : NULL;

		if (!run || e->started) {
			s->runs[run ? n - 1 : n++] = *e;
			continue;
		}
		run->gone |= e->gone;
		if (e->ended) {
			run->ended = true;
			run->keyless = e->keyless;
			run->records = e->records;
			memcpy(run->hash, e->hash, sizeof(run->hash));
		}
	}
	s->n_runs = n;
}

int events_story_read(const char *path, struct events_story *ret, struct ak_err *err)
{
	static struct audit_reader r; /* too large for the stack */
	int rc;

	*ret = (struct events_story){ 0 };
	r = (struct audit_reader){ .fd = -1 };
	rc = audit_reader_drain(&r, path, true, take_line, ret, err);
	audit_reader_done(&r);
	merge(ret);
	if (ret->n_logs)
		qsort(ret->logs, ret->n_logs, sizeof(*ret->logs), logs_by_name_and_order);
	return rc;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(a, ((const struct run_story *)b)->name);
}

const struct run_story *events_story_find(const struct events_story *s, const char *name)
{
	return s->n_runs ? bsearch(name, s->runs, s->n_runs, sizeof(*s->runs), by_name) : NULL;
}

const struct log_story *events_story_log(const struct events_story *s, const char *name, size_t *ret_n)
{
	size_t from = 0, end;

	while (from < s->n_logs && strcmp(s->logs[from].name, name) != 0)
		from++;
	for (end = from; end < s->n_logs && !strcmp(s->logs[end].name, name); end++) {
		if (s->logs[end].what == LOG_STORY_CREATED || s->logs[end].what == LOG_STORY_REMOVED)
			from = end;
	}
	*ret_n = end - from;
	return end > from ? &s->logs[from] : NULL;
}
