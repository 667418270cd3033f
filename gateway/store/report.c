/* The report of a run and its codec: see store/report.h. */
#include "gateway/store/report.h"

#include "gateway/base/cleanup.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void run_report_done(struct run_report *r)
{
	free(r->notes);
	free(r->changed);
	free(r->out);
	free(r->err);
	*r = (struct run_report){ 0 };
}

void run_report_note(struct run_report *r, const char *fmt, ...)
{
	char line[AK_ERR_MAX], *longer;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	if (asprintf(&longer, "%s%s\n", r->notes ? r->notes : "", line) < 0)
		return;
	free(r->notes);
	r->notes = longer;
}

/* ---- the field tables that both directions use ---- */

#define OUTCOME(member) offsetof(struct run_report, outcome.member)

static const struct {
	const char *key;
	size_t at; /* offset of a uint64_t */
} numbers[] = {
	{ "start_us", OUTCOME(start_us) },
	{ "duration_ms", OUTCOME(duration_ms) },
	{ "memory_bytes", OUTCOME(memory_bytes) },
	{ "pids", OUTCOME(pids) },
	{ "disk_bytes", OUTCOME(disk_bytes) },
	{ "allowed", OUTCOME(net.allowed) },
	{ "denied", OUTCOME(net.denied) },
	{ "lost", OUTCOME(net.lost) },
};

static const struct {
	const char *key;
	size_t at; /* offset of a bool */
} truths[] = {
	{ "timed_out", OUTCOME(timed_out) },
	{ "out_of_memory", OUTCOME(out_of_memory) },
	{ "pids_hit", OUTCOME(pids_hit) },
	{ "out_of_disk", OUTCOME(out_of_disk) },
	{ "has_net", OUTCOME(has_net) },
};

static const struct {
	const char *key;
	size_t at; /* offset of a char *, which is NULL if absent */
} texts[] = {
	{ "notes", offsetof(struct run_report, notes) },
	{ "changed", offsetof(struct run_report, changed) },
};

/* ---- writing ---- */

static bool put_texts(cJSON *obj, const struct run_report *r)
{
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		const char *text = *(char *const *)((const char *)r + texts[i].at);

		if (text && !cJSON_AddStringToObject(obj, texts[i].key, text))
			return false;
	}
	return !r->outcome.why.text[0] || cJSON_AddStringToObject(obj, "why", r->outcome.why.text);
}

cJSON *run_report_to_json(const struct run_report *r)
{
	_cleanup_json_ cJSON *obj = cJSON_CreateObject(), *counts = NULL;
	bool ok = obj && cJSON_AddStringToObject(obj, "name", r->name) &&
		cJSON_AddNumberToObject(obj, "exit_code", r->outcome.exit_code) && put_texts(obj, r);

	for (size_t i = 0; ok && i < ARRAY_SIZE(numbers); i++)
		ok = cJSON_AddNumberToObject(obj, numbers[i].key, (double)*(const uint64_t *)((const char *)r + numbers[i].at));
	for (size_t i = 0; ok && i < ARRAY_SIZE(truths); i++)
		ok = cJSON_AddBoolToObject(obj, truths[i].key, *(const bool *)((const char *)r + truths[i].at));
	if (ok && r->outcome.has_net) {
		counts = net_counts_to_json(&r->outcome.net.counts);
		ok = counts && cJSON_AddItemToObject(obj, "counts", counts);
	}
	if (ok)
		(void)TAKE(counts);
	return ok ? TAKE(obj) : NULL;
}

/* ---- reading ---- */

static int get_text(const cJSON *obj, const char *key, char **ret, struct ak_err *err)
{
	const char *text = NULL;
	int rc = json_get_string(obj, key, &text, err);

	if (rc <= 0)
		return rc;
	*ret = strdup(text);
	return *ret ? 0 : ak_fail(err, ENOMEM, "out of memory");
}

static int get_members(const cJSON *obj, struct run_report *r, struct ak_err *err)
{
	const cJSON *counts = NULL;
	int rc = 0, truth;

	for (size_t i = 0; rc >= 0 && i < ARRAY_SIZE(numbers); i++)
		rc = json_get_uint(obj, numbers[i].key, GW_COUNT_MAX, (uint64_t *)((char *)r + numbers[i].at), err);
	for (size_t i = 0; rc >= 0 && i < ARRAY_SIZE(truths); i++) {
		truth = 0;
		rc = json_get_bool(obj, truths[i].key, &truth, err);
		*(bool *)((char *)r + truths[i].at) = truth != 0;
	}
	if (rc >= 0)
		rc = json_get_object(obj, "counts", &counts, err);
	if (rc > 0)
		rc = net_counts_from_json(counts, &r->outcome.net.counts, err);
	for (size_t i = 0; rc >= 0 && i < ARRAY_SIZE(texts); i++)
		rc = get_text(obj, texts[i].key, (char **)((char *)r + texts[i].at), err);
	return rc;
}

int run_report_from_json(const cJSON *obj, struct run_report *ret, struct ak_err *err)
{
	_cleanup_(run_report_done) struct run_report r = { 0 };
	const char *name = "", *why = "";
	uint64_t code = 0;
	int rc = json_get_string(obj, "name", &name, err);

	if (rc >= 0 && !ak_sandbox_name_ok(name))
		return ak_fail(err, EINVAL, "name: '%.64s' is not a valid sandbox name", name);
	if (rc >= 0)
		rc = json_get_uint(obj, "exit_code", 255, &code, err);
	if (rc == 0)
		return ak_fail(err, EINVAL, "exit_code: missing");
	if (rc >= 0)
		rc = json_get_string(obj, "why", &why, err);
	if (rc >= 0)
		rc = get_members(obj, &r, err);
	if (rc < 0)
		return rc;
	snprintf(r.name, sizeof(r.name), "%s", name);
	snprintf(r.outcome.why.text, sizeof(r.outcome.why.text), "%s", why);
	r.outcome.exit_code = (int)code;
	*ret = r;
	r = (struct run_report){ 0 };
	return 0;
}

/* ---- for users ---- */

static const char *truth(bool b)
{
	return b ? "true" : "false";
}

void run_report_put(struct strbuf *out, const struct run_report *r)
{
	const struct run_outcome *o = &r->outcome;

	strbuf_puts(out, "\"sandbox\":");
	strbuf_json(out, r->name);
	strbuf_printf(out, ",\"exit_code\":%d,\"timed_out\":%s,\"out_of_memory\":%s,\"out_of_disk\":%s", o->exit_code,
		truth(o->timed_out), truth(o->out_of_memory), truth(o->out_of_disk));
	strbuf_printf(out, ",\"start_us\":%llu,\"duration_ms\":%llu", (unsigned long long)o->start_us,
		(unsigned long long)o->duration_ms);
}

void run_report_put_network(struct strbuf *out, const struct run_report *r)
{
	strbuf_printf(out, "\"network\":{\"allowed\":%llu,\"denied\":%llu}", (unsigned long long)r->outcome.net.allowed,
		(unsigned long long)r->outcome.net.denied);
}

void run_outcome_tell(struct strbuf *out, const struct run_outcome *o)
{
	if (o->out_of_memory && o->memory_bytes)
		strbuf_printf(out, "out of memory: limit %llu MiB (--memory)\n", (unsigned long long)(o->memory_bytes >> 20));
	else if (o->out_of_memory)
		strbuf_puts(out, "out of memory: the sandbox reached its memory limit\n");
	if (o->pids_hit && o->pids)
		strbuf_printf(out, "the sandbox reached its limit of %llu processes (--pids)\n", (unsigned long long)o->pids);
	else if (o->pids_hit)
		strbuf_puts(out, "the sandbox reached its process limit (--pids)\n");
	if (o->out_of_disk)
		strbuf_printf(out, "out of disk space: limit %llu MiB (--disk)\n", (unsigned long long)(o->disk_bytes >> 20));
}

void run_report_tell(struct strbuf *out, const struct run_report *r)
{
	const struct run_outcome *o = &r->outcome;

	if (o->why.text[0])
		strbuf_printf(out, "%s\n", o->why.text);
	run_outcome_tell(out, o);
	if (o->net.counts.verdicts[0][NET_REASON_UNRECORDED])
		strbuf_puts(
			out, "the network log could not be written for a while, and no new connection was allowed meanwhile\n");
	if (r->notes)
		strbuf_puts(out, r->notes);
}
