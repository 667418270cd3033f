/*
 * /metrics in the Prometheus text format. A worker asks the daemon for its counters and those of its gateway; the server adds its own counters and those
 * from the reports of its runs. See http/http.h.
 */
#include "gateway/http/http.h"

#include "gateway/base/cleanup.h"
#include "gateway/service/service.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

/* ---- counting ---- */

void http_stats_request(struct http_stats *st, const struct http_route *route, unsigned status, uint64_t us)
{
	struct http_route_stats *r = &st->routes[route ? (size_t)(route - http_routes) : http_n_routes];

	net_histogram_add(&r->times, us);
	r->by_class[status / 100 % 6]++;
	r->count++;
}

void http_stats_run(struct http_stats *st, enum ak_mode mode, const struct gw_stats *net)
{
	net_counts_add(&st->ours[mode], &net->counts);
	st->lost += net->lost;
}

/*
 * Store what the daemon has counted since it started. If the daemon was restarted, first add the counts of the old one to ours, so that no counter
 * decreases. Scrapes may overlap, so keep the larger of each pair of numbers.
 */
static void take_counts(struct http_stats *st, const cJSON *counts)
{
	const cJSON *modes = cJSON_GetObjectItemCaseSensitive(counts, "modes");
	uint64_t started_us = json_number(counts, "started_us", 0);
	struct ak_err ignored;

	if (!modes || started_us < st->daemon_us)
		return;
	if (started_us != st->daemon_us) {
		for (int i = 0; i < AK_MODE_NUM; i++)
			net_counts_add(&st->ours[i], &st->daemons[i]);
		memset(st->daemons, 0, sizeof(st->daemons));
		st->lost += st->daemon_lost;
		st->daemon_lost = 0;
		st->daemon_us = started_us;
	}
	for (int i = 0; i < AK_MODE_NUM; i++) {
		struct net_counts now = { 0 };

		if (net_counts_from_json(
			    cJSON_GetObjectItemCaseSensitive(modes, ak_mode_name((enum ak_mode)i)), &now, &ignored) == 0)
			net_counts_max(&st->daemons[i], &now);
	}
	if (json_number(counts, "lost", 0) > st->daemon_lost)
		st->daemon_lost = json_number(counts, "lost", 0);
}

/* ---- in the worker ---- */

/* {"status":…,"counts":…,"running":N,"stopped":N}; the first two are missing when no daemon runs. */
static void metrics_work(void *ctx, struct work *w)
{
	struct http_call *c = ctx;
	_cleanup_json_ cJSON *out = cJSON_CreateObject(), *list = NULL;
	cJSON *status = NULL, *counts = NULL;
	unsigned n[2] = { 0 };
	const cJSON *item;
	struct ak_err err;

	if (service_daemon_status(c->s->paths, &status, &err) == 0)
		cJSON_AddItemToObject(out, "status", status);
	if (service_call(c->s->paths, false, "counts", NULL, &counts, &err) == 0)
		cJSON_AddItemToObject(out, "counts", counts);
	if (service_list(c->s->paths, NULL, NULL, &list, &err) < 0)
		list = NULL;
	cJSON_ArrayForEach(item, list)
		n[!strcmp(json_text(item, "status", ""), "running")]++;
	cJSON_AddNumberToObject(out, "stopped", n[0]);
	cJSON_AddNumberToObject(out, "running", n[1]);
	work_end_json(w, 0, out, NULL);
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

/* LABELS ends with a comma, or is "". */
static void put_histogram(struct strbuf *out, const char *name, const char *labels, const struct net_histogram *h)
{
	int len = (int)strlen(labels);
	uint64_t sum = 0;

	for (size_t b = 0; b < NET_BUCKETS; b++) {
		sum += h->buckets[b];
		strbuf_printf(out, "agentkernel_%s_bucket{%sle=\"%g\"} %llu\n", name, labels, (double)net_bucket_us[b] / 1e6,
			(unsigned long long)sum);
	}
	sum += h->buckets[NET_BUCKETS];
	len -= len > 0;
	strbuf_printf(out,
		"agentkernel_%s_bucket{%sle=\"+Inf\"} %llu\nagentkernel_%s_sum{%.*s} %.6f\nagentkernel_%s_count{%.*s} %llu\n",
		name, labels, (unsigned long long)sum, name, len, labels, (double)h->sum_us / 1e6, name, len, labels,
		(unsigned long long)sum);
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
		put_histogram(out, "http_request_seconds", labels, &r->times);
	}
}

static void put_timings(struct strbuf *out, const struct net_counts *all)
{
	static const struct {
		const char *name, *help;
	} rows[NET_TIMING_NUM] = {
		[NET_TIMING_FLOWS] = { "network_flow_seconds", "Duration of flows through the relay, counted when they end." },
		[NET_TIMING_DNS] = { "network_dns_seconds",
			"Time from a DNS query to its reply, except replies from the cache." },
		[NET_TIMING_DIAL] = { "network_dial_seconds",
			"Time from the start of a connection until it was connected to its destination, counted when it ends." },
	};

	for (size_t i = 0; i < NET_TIMING_NUM; i++) {
		put_family(out, rows[i].name, "histogram", rows[i].help);
		put_histogram(out, rows[i].name, "", &all->timings[i]);
	}
}

static void put_reasons(struct strbuf *out, const char *mode, const char *verdict, const uint64_t counts[static NET_REASONS])
{
	for (enum net_reason i = 0; i < NET_REASON_NUM; i++) {
		if (!counts[i])
			continue;
		strbuf_printf(out, "agentkernel_network_verdicts_total{mode=\"%s\",verdict=\"%s\",reason=\"", mode, verdict);
		put_label(out, net_reason_text(i));
		strbuf_printf(out, "\"} %llu\n", (unsigned long long)counts[i]);
	}
}

static void put_network(struct strbuf *out, const struct http_stats *st)
{
	struct net_counts all = { 0 };

	put_family(out, "network_verdicts_total", "counter",
		"Verdicts on names, flows and packets, for persistent sandboxes and for the runs of this server.");
	for (int i = 0; i < AK_MODE_NUM; i++) {
		struct net_counts sum = st->ours[i];

		net_counts_add(&sum, &st->daemons[i]);
		net_counts_add(&all, &sum);
		put_reasons(out, ak_mode_name((enum ak_mode)i), "deny", sum.verdicts[0]);
		put_reasons(out, ak_mode_name((enum ak_mode)i), "allow", sum.verdicts[1]);
	}
	put_family(out, "network_bytes_total", "counter", "Bytes of sandbox flows, counted when a flow ends.");
	strbuf_printf(out,
		"agentkernel_network_bytes_total{direction=\"out\"} %llu\nagentkernel_network_bytes_total{direction=\"in\"} %llu\n",
		(unsigned long long)all.bytes_out, (unsigned long long)all.bytes_in);
	put_timings(out, &all);
	put_single(out, "audit_lost_total", "counter", "Network records that could not be written.",
		(double)(st->lost + st->daemon_lost));
}

static void put_pool(struct strbuf *out, const cJSON *status)
{
	static const struct {
		const char *key, *name, *type, *help;
	} rows[] = {
		{ "warm", "pool_warm", "gauge", "Idle pre-built sandboxes." },
		{ "in_use", "pool_in_use", "gauge", "Pre-built sandboxes in use." },
		{ "min", "pool_min", "gauge", "Pre-built sandboxes that the pool keeps ready." },
		{ "max", "pool_max", "gauge", "Pre-built sandboxes that the pool may hold." },
		{ "hits", "pool_hits_total", "counter", "Jobs that got a pre-built sandbox." },
		{ "misses", "pool_misses_total", "counter", "Jobs that did not get a pre-built sandbox." },
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
	const cJSON *status = cJSON_GetObjectItemCaseSensitive(all, "status");
	const cJSON *gateway = cJSON_GetObjectItemCaseSensitive(status, "gateway");

	put_family(out, "sandboxes", "gauge", "Persistent sandboxes.");
	strbuf_printf(out,
		"agentkernel_sandboxes{status=\"running\"} %" PRIu64 "\nagentkernel_sandboxes{status=\"stopped\"} %" PRIu64 "\n",
		json_number(all, "running", 0), json_number(all, "stopped", 0));
	put_single(out, "daemon_up", "gauge", "1 when the daemon answers.", cJSON_IsObject(status));
	put_single(out, "gateway_up", "gauge", "1 when the daemon's gateway enforces the policies.",
		!strcmp(json_text(gateway, "state", ""), "up"));
	put_single(out, "gateway_restarts_total", "counter", "Restarts of the gateway process.",
		(double)json_number(gateway, "restarts", 0));
	put_pool(out, status);
}

static void put_server(struct strbuf *out, const struct http_server *s)
{
	put_family(out, "build_info", "gauge", "The version of this server.");
	strbuf_puts(out, "agentkernel_build_info{version=\"" AK_VERSION "\"} 1\n");
	put_single(out, "start_time_seconds", "gauge", "When this server started.", (double)s->started_us / 1e6);
	put_single(out, "http_connections", "gauge", "Open connections.", (double)s->n_conns);
	put_single(out, "http_connections_total", "counter", "Connections accepted.", (double)s->stats.connections);
	put_single(out, "http_gave_way_total", "counter", "Unauthenticated connections closed to make room.",
		(double)s->stats.gave_way);
	put_single(out, "http_workers", "gauge", "Requests that a worker is handling.", (double)s->n_jobs);
	put_single(out, "http_waiting", "gauge", "Requests that wait for a worker.", (double)s->n_waiting);
	put_single(out, "http_refused_total", "counter", "Requests refused because too many were waiting.",
		(double)s->stats.refused_busy);
	put_single(out, "runs_total", "counter", "Commands that this server ran.", (double)s->stats.runs);
}

static void metrics_end(struct http_job *j, int rc, const char *payload, size_t len)
{
	_cleanup_strbuf_ struct strbuf out = { 0 };
	_cleanup_json_ cJSON *all = rc < 0 ? NULL : cJSON_ParseWithLength(payload, len);
	struct http_call *c = j->ctx;

	if (!all) {
		http_reply_failure(c, rc ? rc : -ENOMEM, payload, len);
		return;
	}
	take_counts(&c->s->stats, cJSON_GetObjectItemCaseSensitive(all, "counts"));
	put_server(&out, c->s);
	put_daemon(&out, all);
	put_network(&out, &c->s->stats);
	put_requests(&out, &c->s->stats);
	if (out.failed)
		http_reply_error(c, 500, "out of memory");
	else
		http_reply_raw(c, 200, "text/plain; version=0.0.4; charset=utf-8", out.data, out.len);
}

void http_handle_metrics(struct http_call *c)
{
	static const struct http_job_ops ops = { .kind = HTTP_JOB, .work = metrics_work, .end = metrics_end };

	http_call_job(c, &ops);
}
