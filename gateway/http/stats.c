/* What the server counts: requests, and what the sandboxes' network logs say. See http/http.h. */
#include "gateway/http/http.h"

#include "gateway/base/cleanup.h"
#include "gateway/log/netlog.h"

#include <stdlib.h>
#include <string.h>

#define REASONS_MAX 512 /* a reason may name things; past this many they are counted as "other" */

const uint64_t http_bucket_us[HTTP_BUCKETS] = { 500, 1000, 2500, 5000, 10000, 25000, 50000, 100000, 250000, 1000000, 5000000,
	30000000 };

const char *const http_timing_name[HTTP_TIMING_NUM] = {
	[HTTP_TIMING_FLOWS] = "flows",
	[HTTP_TIMING_DNS] = "dns",
	[HTTP_TIMING_DIAL] = "dial",
};

static size_t bucket_of(uint64_t us)
{
	size_t i = 0;

	while (i < HTTP_BUCKETS && us > http_bucket_us[i])
		i++;
	return i;
}

void http_stats_request(struct http_stats *st, const struct http_route *route, unsigned status, uint64_t us)
{
	struct http_route_stats *r = &st->routes[route ? (size_t)(route - http_routes) : http_n_routes];

	r->buckets[bucket_of(us)]++;
	r->by_class[status / 100 % 6]++;
	r->sum_us += us;
	r->count++;
}

void http_stats_reason(struct http_stats *st, enum ak_mode mode, bool allow, const char *reason, uint64_t count)
{
	struct http_reason *grown;

	for (size_t i = 0; i < st->n_reasons; i++) {
		struct http_reason *r = &st->reasons[i];

		if (r->mode == mode && r->allow == allow && !strncmp(r->reason, reason, sizeof(r->reason) - 1)) {
			r->count += count;
			return;
		}
	}
	if (st->n_reasons >= REASONS_MAX && strcmp(reason, "other") != 0) {
		http_stats_reason(st, mode, allow, "other", count);
		return;
	}
	grown = reallocarray(st->reasons, st->n_reasons + 1, sizeof(*grown));
	if (!grown)
		return;
	st->reasons = grown;
	grown[st->n_reasons] = (struct http_reason){ .mode = mode, .allow = allow, .count = count };
	snprintf(grown[st->n_reasons++].reason, sizeof(grown->reason), "%s", reason);
}

void http_stats_done(struct http_stats *st)
{
	free(st->routes);
	free(st->reasons);
	free(st->tails);
}

/* ---- records, summed up in a worker ---- */

static void tally_reason(struct http_tally *t, const struct netlog_rec *rec)
{
	bool allow = !strcmp(rec->verdict, "allow");
	size_t i = 0;

	if (!allow && strcmp(rec->verdict, "deny") != 0)
		return;
	while (i < t->n &&
		(t->rows[i].allow != allow || strncmp(t->rows[i].reason, rec->reason, sizeof(t->rows[i].reason) - 1) != 0))
		i++;
	if (i == ARRAY_SIZE(t->rows))
		return;
	if (i == t->n) {
		snprintf(t->rows[i].reason, sizeof(t->rows[i].reason), "%s", rec->reason);
		t->rows[i].allow = allow;
		t->n++;
	}
	t->rows[i].count += rec->count;
}

/* UNIT_US microseconds to one of KEY. */
static void tally_time(struct http_histogram *h, const struct netlog_rec *rec, const char *key, uint64_t unit_us)
{
	const cJSON *n = cJSON_GetObjectItemCaseSensitive(rec->json, key);
	uint64_t us;

	if (!cJSON_IsNumber(n) || n->valuedouble < 0 || n->valuedouble > 1e12)
		return;
	us = (uint64_t)n->valuedouble * unit_us;
	h->buckets[bucket_of(us)]++;
	h->sum_us += us;
}

void http_tally_line(struct http_tally *t, const char *line, size_t len)
{
	struct netlog_rec rec = { 0 };

	if (netlog_rec_parse(line, len, &rec) < 0)
		return;
	t->bytes_out += rec.bytes_out;
	t->bytes_in += rec.bytes_in;
	if (!strcmp(rec.event, "loss")) {
		t->lost += rec.count;
	} else if (!strcmp(rec.event, "dns") || !strcmp(rec.event, "flow") || !strcmp(rec.event, "packet")) {
		tally_reason(t, &rec);
	}
	if (!strcmp(rec.event, "flow") && rec.has_bytes)
		tally_time(&t->timings[HTTP_TIMING_FLOWS], &rec, "duration_ms", 1000);
	if (!strcmp(rec.event, "flow"))
		tally_time(&t->timings[HTTP_TIMING_DIAL], &rec, "latency_us", 1);
	else if (!strcmp(rec.event, "dns"))
		tally_time(&t->timings[HTTP_TIMING_DNS], &rec, "latency_us", 1);
	netlog_rec_done(&rec);
}

void http_tally_put(struct strbuf *out, const struct http_tally *t)
{
	strbuf_printf(out, "{\"bytes\":[%llu,%llu,%llu]", (unsigned long long)t->bytes_out, (unsigned long long)t->bytes_in,
		(unsigned long long)t->lost);
	for (size_t k = 0; k < HTTP_TIMING_NUM; k++) {
		strbuf_printf(out, ",\"%s\":[", http_timing_name[k]);
		for (size_t i = 0; i <= HTTP_BUCKETS; i++)
			strbuf_printf(out, "%llu,", (unsigned long long)t->timings[k].buckets[i]);
		strbuf_printf(out, "%llu]", (unsigned long long)t->timings[k].sum_us);
	}
	strbuf_puts(out, ",\"reasons\":[");
	for (size_t i = 0; i < t->n; i++) {
		strbuf_printf(out, "%s[%s,", i ? "," : "", t->rows[i].allow ? "true" : "false");
		strbuf_json(out, t->rows[i].reason);
		strbuf_printf(out, ",%llu]", (unsigned long long)t->rows[i].count);
	}
	strbuf_puts(out, "]}");
}

static uint64_t number_at(const cJSON *list, int i)
{
	const cJSON *item = cJSON_GetArrayItem(list, i);

	return cJSON_IsNumber(item) && item->valuedouble > 0 && item->valuedouble < 1e18 ? (uint64_t)item->valuedouble : 0;
}

void http_stats_add(struct http_stats *st, enum ak_mode mode, const cJSON *tally)
{
	const cJSON *row, *bytes = cJSON_GetObjectItemCaseSensitive(tally, "bytes");

	st->bytes_out += number_at(bytes, 0);
	st->bytes_in += number_at(bytes, 1);
	st->lost += number_at(bytes, 2);
	for (size_t k = 0; k < HTTP_TIMING_NUM; k++) {
		const cJSON *list = cJSON_GetObjectItemCaseSensitive(tally, http_timing_name[k]);

		for (int i = 0; i <= HTTP_BUCKETS; i++)
			st->timings[k].buckets[i] += number_at(list, i);
		st->timings[k].sum_us += number_at(list, HTTP_BUCKETS + 1);
	}
	cJSON_ArrayForEach(row, cJSON_GetObjectItemCaseSensitive(tally, "reasons")) {
		const cJSON *reason = cJSON_GetArrayItem(row, 1);

		if (cJSON_IsString(reason))
			http_stats_reason(
				st, mode, cJSON_IsTrue(cJSON_GetArrayItem(row, 0)), reason->valuestring, number_at(row, 2));
	}
}
