/*
 * /metrics in the text format of Prometheus. A worker asks the daemon and reads on in the network logs of persistent sandboxes; the server
 * keeps how far it has read, adds its own counters and writes the text. See http/http.h.
 */
#include "gateway/http/http.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/service/service.h"
#include "gateway/store/state.h"

#include <errno.h>
#include <inttypes.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define READ_MAX (32u << 20) /* of one log at one scrape; the rest is for the next */

/* ---- in the worker ---- */

static const struct http_tail *tail_of(const struct http_stats *st, const char *name)
{
	for (size_t i = 0; i < st->n_tails; i++) {
		if (!strcmp(st->tails[i].name, name))
			return &st->tails[i];
	}
	return NULL;
}

/* The whole lines of FD from OFFSET on; where they end. */
static uint64_t tally_from(int fd, uint64_t offset, struct http_tally *t)
{
	_cleanup_free_ char *buf = malloc(READ_MAX);
	ssize_t n = buf ? pread(fd, buf, READ_MAX, (off_t)offset) : -1;
	const char *at = buf, *end = buf + (n > 0 ? n : 0), *nl;

	while (n > 0 && (nl = memchr(at, '\n', (size_t)(end - at)))) {
		http_tally_line(t, at, (size_t)(nl - at));
		at = nl + 1;
	}
	return offset + (n > 0 ? (uint64_t)(at - buf) : 0);
}

static uint64_t inode_of(int fd)
{
	struct stat st;

	return fd >= 0 && fstat(fd, &st) == 0 ? st.st_ino : 0;
}

/* One row: what is new in NAME's log, and up to where it was read. After a rotation the rest of the old file comes first. */
static void put_sandbox(struct strbuf *out, const struct http_stats *st, const struct ak_paths *paths, const char *name)
{
	const struct http_tail *tail = tail_of(st, name);
	struct http_tally tally = { 0 };
	char path[PATH_MAX], old[PATH_MAX];
	_cleanup_close_ int fd = -1, before = -1;
	uint64_t ino, from = 0;

	if (state_path(paths, name, "network.jsonl", path) == 0)
		fd = open(path, O_RDONLY | O_CLOEXEC);
	ino = inode_of(fd);
	if (tail && tail->ino == ino) {
		from = tail->offset;
	} else if (tail && state_path(paths, name, "network.jsonl.1", old) == 0) {
		before = open(old, O_RDONLY | O_CLOEXEC);
		if (inode_of(before) == tail->ino)
			tally_from(before, tail->offset, &tally);
	}
	if (fd >= 0)
		from = tally_from(fd, from, &tally);
	strbuf_printf(out, ",\"was\":\"%llu.%llu\",\"ino\":\"%llu\",\"offset\":\"%llu\",\"tally\":",
		tail ? (unsigned long long)tail->ino : 0, tail ? (unsigned long long)tail->offset : 0, (unsigned long long)ino,
		(unsigned long long)from);
	http_tally_put(out, &tally);
}

static void metrics_work(void *ctx, struct http_work *w)
{
	struct http_call *c = ctx;
	_cleanup_strbuf_ struct strbuf out = { 0 };
	_cleanup_json_ cJSON *list = NULL, *status = NULL;
	_cleanup_free_ char *text = NULL;
	const cJSON *item;
	struct ak_err err;

	if (service_daemon_status(w->paths, &status, &err) == 0)
		text = cJSON_PrintUnformatted(status);
	strbuf_printf(&out, "{\"status\":%s,\"sandboxes\":[", text ? text : "null");
	if (service_list(w->paths, NULL, NULL, &list, &err) < 0)
		list = NULL;
	cJSON_ArrayForEach(item, list) {
		strbuf_printf(&out, "%s{\"name\":\"%s\",\"mode\":\"%s\",\"status\":\"%s\"", item == list->child ? "" : ",",
			json_text(item, "name", ""), json_text(item, "mode", ""), json_text(item, "status", ""));
		put_sandbox(&out, &c->s->stats, w->paths, json_text(item, "name", ""));
		strbuf_putc(&out, '}');
	}
	strbuf_puts(&out, "]}");
	if (!out.failed)
		http_work_data(w, 200, out.data, out.len);
}

/* ---- taking it into account ---- */

/* Two scrapes at once have read the same lines: only the first counts. */
static void take_sandbox(struct http_stats *st, const cJSON *row)
{
	const char *name = json_text(row, "name", "");
	struct http_tail *tail = (struct http_tail *)(uintptr_t)tail_of(st, name), *grown;
	enum ak_mode mode = AK_MODE_NATIVE;
	struct ak_err err;
	char was[64];

	snprintf(was, sizeof(was), "%llu.%llu", tail ? (unsigned long long)tail->ino : 0,
		tail ? (unsigned long long)tail->offset : 0);
	if (strcmp(was, json_text(row, "was", "")) != 0 || ak_mode_parse(json_text(row, "mode", ""), &mode, &err) < 0)
		return;
	if (!tail) {
		grown = reallocarray(st->tails, st->n_tails + 1, sizeof(*grown));
		if (!grown)
			return;
		st->tails = grown;
		tail = &st->tails[st->n_tails++];
		*tail = (struct http_tail){ 0 };
		snprintf(tail->name, sizeof(tail->name), "%s", name);
	}
	tail->ino = strtoull(json_text(row, "ino", ""), NULL, 10);
	tail->offset = strtoull(json_text(row, "offset", ""), NULL, 10);
	http_stats_add(st, mode, cJSON_GetObjectItemCaseSensitive(row, "tally"));
}

/* Forget those that are gone. */
static void prune_tails(struct http_stats *st, const cJSON *rows)
{
	size_t kept = 0;

	for (size_t i = 0; i < st->n_tails; i++) {
		const cJSON *row;
		bool found = false;

		cJSON_ArrayForEach(row, rows)
			found |= !strcmp(json_text(row, "name", ""), st->tails[i].name);
		if (found)
			st->tails[kept++] = st->tails[i];
	}
	st->n_tails = kept;
}

/* ---- the text ---- */

static void put_family(struct strbuf *out, const char *name, const char *type, const char *help)
{
	strbuf_printf(out, "# HELP agentkernel_%s %s\n# TYPE agentkernel_%s %s\n", name, help, name, type);
}

static void put_single(struct strbuf *out, const char *name, const char *type, const char *help, double value)
{
	put_family(out, name, type, help);
	strbuf_printf(out, "agentkernel_%s %.15g\n", name, value);
}

static void put_label(struct strbuf *out, const char *text)
{
	for (; *text; text++) {
		if (*text == '"' || *text == '\\')
			strbuf_putc(out, '\\');
		strbuf_putc(out, (unsigned char)*text < 0x20 || (unsigned char)*text >= 0x7f ? '?' : *text);
	}
}

/* LABELS end with a comma, or are "". */
static void put_histogram(
	struct strbuf *out, const char *name, const char *labels, const uint64_t buckets[HTTP_BUCKETS + 1], double sum_s)
{
	int len = (int)strlen(labels);
	uint64_t sum = 0;

	for (size_t b = 0; b < HTTP_BUCKETS; b++) {
		sum += buckets[b];
		strbuf_printf(out, "agentkernel_%s_bucket{%sle=\"%g\"} %llu\n", name, labels, (double)http_bucket_us[b] / 1e6,
			(unsigned long long)sum);
	}
	sum += buckets[HTTP_BUCKETS];
	len -= len > 0;
	strbuf_printf(out,
		"agentkernel_%s_bucket{%sle=\"+Inf\"} %llu\nagentkernel_%s_sum{%.*s} %.6f\nagentkernel_%s_count{%.*s} %llu\n",
		name, labels, (unsigned long long)sum, name, len, labels, sum_s, name, len, labels, (unsigned long long)sum);
}

static void put_requests(struct strbuf *out, const struct http_stats *st)
{
	put_family(out, "http_requests_total", "counter", "Requests answered, by route and class of status.");
	for (size_t i = 0; i <= http_n_routes; i++) {
		for (int c = 2; c < 6; c++) {
			if (st->routes[i].by_class[c])
				strbuf_printf(out,
					"agentkernel_http_requests_total{route=\"%s\",method=\"%s\",status=\"%dxx\"} %llu\n",
					i < http_n_routes ? http_routes[i].path : "",
					i < http_n_routes ? http_method_name(http_routes[i].method) : "", c,
					(unsigned long long)st->routes[i].by_class[c]);
		}
	}
	put_family(out, "http_request_seconds", "histogram", "Time from a request to the end of its answer.");
	for (size_t i = 0; i < http_n_routes; i++) {
		const struct http_route_stats *r = &st->routes[i];
		char labels[160];

		if (!r->count)
			continue;
		snprintf(labels, sizeof(labels), "route=\"%s\",method=\"%s\",", http_routes[i].path,
			http_method_name(http_routes[i].method));
		put_histogram(out, "http_request_seconds", labels, r->buckets, (double)r->sum_us / 1e6);
	}
}

static void put_timings(struct strbuf *out, const struct http_stats *st)
{
	static const struct {
		const char *name, *help;
	} rows[HTTP_TIMING_NUM] = {
		[HTTP_TIMING_FLOWS] = { "network_flow_seconds",
			"How long flows through the relay lasted, once they have ended." },
		[HTTP_TIMING_DNS] = { "network_dns_seconds",
			"Time from a name's question to its answer, those from the cache left out." },
		[HTTP_TIMING_DIAL] = { "network_dial_seconds",
			"Time from a connection's beginning until its far side was connected, told once it has ended." },
	};

	for (size_t i = 0; i < HTTP_TIMING_NUM; i++) {
		put_family(out, rows[i].name, "histogram", rows[i].help);
		put_histogram(out, rows[i].name, "", st->timings[i].buckets, (double)st->timings[i].sum_us / 1e6);
	}
}

static void put_verdicts(struct strbuf *out, const struct http_stats *st)
{
	put_family(out, "network_verdicts_total", "counter",
		"Verdicts on names, flows and packets, of persistent sandboxes and of the runs of this server.");
	for (size_t i = 0; i < st->n_reasons; i++) {
		const struct http_reason *r = &st->reasons[i];

		strbuf_printf(out, "agentkernel_network_verdicts_total{mode=\"%s\",verdict=\"%s\",reason=\"",
			ak_mode_name(r->mode), r->allow ? "allow" : "deny");
		put_label(out, r->reason);
		strbuf_printf(out, "\"} %llu\n", (unsigned long long)r->count);
	}
	put_family(out, "network_bytes_total", "counter", "Bytes that flows of sandboxes carried, once a flow has ended.");
	strbuf_printf(out,
		"agentkernel_network_bytes_total{direction=\"out\"} %llu\nagentkernel_network_bytes_total{direction=\"in\"} %llu\n",
		(unsigned long long)st->bytes_out, (unsigned long long)st->bytes_in);
	put_timings(out, st);
	put_single(out, "audit_lost_total", "counter", "Network records that could not be written.", (double)st->lost);
}

static void put_pool(struct strbuf *out, const cJSON *status)
{
	static const struct {
		const char *key, *name, *type, *help;
	} rows[] = {
		{ "warm", "pool_warm", "gauge", "Pre-built sandboxes that wait for a job." },
		{ "in_use", "pool_in_use", "gauge", "Pre-built sandboxes at work." },
		{ "min", "pool_min", "gauge", "How many the pool keeps ready." },
		{ "max", "pool_max", "gauge", "How many it may hold." },
		{ "hits", "pool_hits_total", "counter", "Jobs that got a pre-built sandbox." },
		{ "misses", "pool_misses_total", "counter", "Jobs that did not." },
		{ "failed", "pool_failures_total", "counter", "Sandboxes that could not be built." },
	};
	const cJSON *mode, *pool = cJSON_GetObjectItemCaseSensitive(status, "pool");

	for (size_t i = 0; pool && i < ARRAY_SIZE(rows); i++) {
		put_family(out, rows[i].name, rows[i].type, rows[i].help);
		cJSON_ArrayForEach(mode, pool)
			strbuf_printf(out, "agentkernel_%s{mode=\"%s\"} %" PRIu64 "\n", rows[i].name, json_text(mode, "mode", ""),
				json_number(mode, rows[i].key, 0));
	}
}

static void put_daemon(struct strbuf *out, const cJSON *all)
{
	const cJSON *status = cJSON_GetObjectItemCaseSensitive(all, "status"), *row;
	const cJSON *gateway = cJSON_GetObjectItemCaseSensitive(status, "gateway");
	double counts[2] = { 0 };

	cJSON_ArrayForEach(row, cJSON_GetObjectItemCaseSensitive(all, "sandboxes"))
		counts[!strcmp(json_text(row, "status", ""), "running")]++;
	put_family(out, "sandboxes", "gauge", "Persistent sandboxes.");
	strbuf_printf(out, "agentkernel_sandboxes{status=\"running\"} %g\nagentkernel_sandboxes{status=\"stopped\"} %g\n",
		counts[1], counts[0]);
	put_single(out, "daemon_up", "gauge", "1 when the daemon answers.", cJSON_IsObject(status));
	put_single(out, "gateway_up", "gauge", "1 when the daemon's gateway enforces.",
		!strcmp(json_text(gateway, "state", ""), "up"));
	put_single(out, "gateway_restarts_total", "counter", "Times that the gateway process had to be started again.",
		(double)json_number(gateway, "restarts", 0));
	put_pool(out, status);
}

static void put_server(struct strbuf *out, const struct http_server *s)
{
	put_family(out, "build_info", "gauge", "The version that runs.");
	strbuf_puts(out, "agentkernel_build_info{version=\"" AK_VERSION "\"} 1\n");
	put_single(out, "start_time_seconds", "gauge", "When this server started.", (double)s->started_us / 1e6);
	put_single(out, "http_connections", "gauge", "Connections that are open.", (double)s->n_conns);
	put_single(out, "http_connections_total", "counter", "Connections accepted.", (double)s->stats.connections);
	put_single(out, "http_gave_way_total", "counter", "Connections without a key that were ended to make room.",
		(double)s->stats.gave_way);
	put_single(out, "http_workers", "gauge", "Requests that are being worked on.", (double)s->n_jobs);
	put_single(out, "http_waiting", "gauge", "Requests that wait for a worker.", (double)s->n_waiting);
	put_single(out, "http_refused_total", "counter", "Requests that were refused because too many waited.",
		(double)s->stats.refused_busy);
	put_single(out, "runs_total", "counter", "Commands that this server ran.", (double)s->stats.runs);
}

static void metrics_end(struct http_job *j, unsigned status, const char *payload, size_t len)
{
	_cleanup_strbuf_ struct strbuf out = { 0 };
	_cleanup_json_ cJSON *all = status < 400 ? cJSON_ParseWithLength(payload, len) : NULL;
	const cJSON *row, *rows = cJSON_GetObjectItemCaseSensitive(all, "sandboxes");
	struct http_call *c = j->ctx;

	if (!all) {
		http_reply_error(c, status < 400 || status == 499 ? 500 : status, "%.*s", (int)len, payload);
		return;
	}
	cJSON_ArrayForEach(row, rows)
		take_sandbox(&c->s->stats, row);
	prune_tails(&c->s->stats, rows);
	put_server(&out, c->s);
	put_daemon(&out, all);
	put_verdicts(&out, &c->s->stats);
	put_requests(&out, &c->s->stats);
	if (out.failed)
		http_reply_error(c, 500, "out of memory");
	else
		http_reply_raw(c, 200, "text/plain; version=0.0.4; charset=utf-8", out.data, out.len);
}

void http_handle_metrics(struct http_call *c)
{
	static const struct http_job_ops ops = { .kind = HTTP_JOB, .work = metrics_work, .end = metrics_end };
	struct http_job *j = http_job_new(c->s, &ops, c);

	if (j)
		http_job_go(j);
	else
		http_reply_error(c, 429, "too busy: try again soon");
}
