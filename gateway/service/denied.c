/* What a sandbox was denied, and the option that allows it, for people. See service/service.h. */
#include "gateway/service/service.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/base/reason.h"
#include "gateway/log/netlog.h"
#include "gateway/log/view.h"
#include "gateway/store/runs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PORTS_SHOWN 4

struct rows {
	struct netlog *log; /* owned */
	struct netlog_row **list; /* owned; the rows are the log's */
	size_t n;
};

static void rows_done(struct rows *r)
{
	free(r->list);
	netlog_free(r->log);
}

static int add_record(void *ctx, const char *line, size_t len, const struct netlog_rec *rec)
{
	return netlog_add(ctx, rec);
}

static int by_count(const void *a, const void *b)
{
	const struct netlog_row *x = *(struct netlog_row *const *)a, *y = *(struct netlog_row *const *)b;

	if (x->count != y->count)
		return x->count > y->count ? -1 : 1;
	return x->seq < y->seq ? -1 : x->seq > y->seq;
}

static int read_rows(const struct ak_paths *paths, const char *name, struct rows *r, struct ak_err *err)
{
	struct log_view v = { .record = add_record };
	char dir[PATH_MAX];
	int rc = runs_dir(paths, name, dir, err);

	if (rc == 0 && netlog_new(&r->log) < 0)
		rc = ak_fail(err, ENOMEM, "out of memory");
	v.ctx = r->log;
	if (rc == 0)
		rc = log_view_run(&v, dir, err);
	if (rc == 0 && netlog_rows(r->log, NETLOG_DENIED, ak_wall_us(), 0, &r->list, &r->n) < 0)
		rc = ak_fail(err, ENOMEM, "out of memory");
	if (rc == 0)
		qsort(r->list, r->n, sizeof(*r->list), by_count);
	return rc;
}

/* ---- one denial ---- */

void service_ports_text(const struct policy *p, const char *name, enum policy_proto proto, char *buf, size_t size)
{
	struct policy_port ports[PORTS_SHOWN + 1];
	size_t n = policy_name_ports(p, name, ports, PORTS_SHOWN + 1), used;

	used = (size_t)snprintf(buf, size, "only port%s", n == 1 ? "" : "s");
	for (size_t i = 0; i < n && i < PORTS_SHOWN && used < size; i++)
		used += (size_t)snprintf(buf + used, size - used, "%s %u%s", i ? i + 1 == n ? " and" : "," : "", ports[i].port,
			ports[i].proto == proto	      ? ""
				: proto == POLICY_TCP ? "/udp"
						      : "/tcp");
	if (used < size)
		snprintf(buf + used, size - used, "%s %s allowed", n > PORTS_SHOWN ? " and more" : "", n == 1 ? "is" : "are");
}

static bool is_reason(const struct netlog_row *row, enum policy_reason reason)
{
	return !strcmp(row->reason, policy_reason_text(reason, false));
}

/* A destination without a name, as a range of one address; -EINVAL if it is something else. */
static int address_of(const struct netlog_row *row, char *buf, size_t size)
{
	struct policy_target t;
	struct ak_err ignored;
	char addr[AK_ADDR_TEXT];

	if (policy_target_parse(row->dest, &t, &ignored) < 0 || !t.addr.family)
		return -EINVAL;
	snprintf(buf, size, "%s/%u", ak_addr_print(&t.addr, addr), ak_addr_bits(&t.addr));
	return 0;
}

static bool is_udp(const struct netlog_row *row)
{
	return !strcmp(row->proto, "udp");
}

static void explain_name(
	const struct netlog_row *row, const struct policy *p, const struct service_groups *groups, struct service_denial *d)
{
	const char *group = service_group_of(groups, row->host, is_udp(row) ? POLICY_UDP : POLICY_TCP, row->port);
	bool port = is_reason(row, POLICY_REASON_PORT);

	if (port && p)
		service_ports_text(p, row->host, is_udp(row) ? POLICY_UDP : POLICY_TCP, d->why, sizeof(d->why));
	else if (group)
		snprintf(d->why, sizeof(d->why), "in %s", group);
	else if (p && policy_name(p)[0])
		snprintf(d->why, sizeof(d->why), "not in %s", policy_name(p));
	if (group && !port)
		snprintf(d->option, sizeof(d->option), "--allow-group %s", group);
	else if (is_udp(row))
		snprintf(d->option, sizeof(d->option), "--allow-host %s:%u/udp", row->host, row->port);
	else if (row->port && row->port != 443 && (row->port != 80 || port))
		snprintf(d->option, sizeof(d->option), "--allow-host %s:%u", row->host, row->port);
	else
		snprintf(d->option, sizeof(d->option), "--allow-host %s", row->host);
	snprintf(d->group, sizeof(d->group), "%s", group && !port ? group : "");
}

/* Names come from inside: only what can be the name of a host goes into an option that people copy. */
static void explain(
	const struct netlog_row *row, const struct policy *p, const struct service_groups *groups, struct service_denial *d)
{
	_cleanup_strbuf_ struct strbuf what = { 0 };
	char range[AK_ADDR_TEXT + 8];

	*d = (struct service_denial){ .count = row->count };
	netlog_safe(&what, row->host[0] && !row->port ? row->host : row->dest);
	snprintf(d->what, sizeof(d->what), "%s", what.data ? what.data : "");
	snprintf(d->why, sizeof(d->why), "%s", row->reason);
	if (policy_name_ok(row->host) &&
		(is_reason(row, POLICY_REASON_DEFAULT) || is_reason(row, POLICY_REASON_PORT) ||
			is_reason(row, POLICY_REASON_RESOLVER) || !strcmp(row->reason, net_reason_text(NET_REASON_SNI_DENIED))))
		explain_name(row, p, groups, d);
	else if (!row->host[0] && (is_reason(row, POLICY_REASON_ADDRESS) || is_reason(row, POLICY_REASON_PRIVATE)) &&
		address_of(row, range, sizeof(range)) == 0)
		snprintf(d->option, sizeof(d->option), "--allow-cidr %s", range);
	else if (is_reason(row, POLICY_REASON_RULE))
		snprintf(d->why, sizeof(d->why), "denied by %s", row->rule);
}

/* ---- all of them ---- */

static bool is_told(const struct service_denial *list, size_t n, const struct service_denial *d)
{
	for (size_t i = 0; i < n; i++) {
		if (!strcmp(list[i].what, d->what))
			return true;
	}
	return false;
}

int service_denials(
	const struct ak_paths *paths, const char *name, struct service_denial *ret, size_t cap, size_t *ret_n, struct ak_err *err)
{
	_cleanup_(policy_unrefp) struct policy *p = NULL;
	_cleanup_(service_groups_freep) struct service_groups *groups = NULL;
	_cleanup_(rows_done) struct rows rows = { 0 };
	struct ak_err ignored;
	int rc = read_rows(paths, name, &rows, err);

	*ret_n = 0;
	if (rc < 0 || rows.n == 0)
		return rc;
	(void)service_run_policy(paths, name, NULL, 0, &p, &ignored);
	groups = service_groups_load(paths);
	for (size_t i = 0; i < rows.n && *ret_n < cap; i++) {
		explain(rows.list[i], p, groups, &ret[*ret_n]);
		*ret_n += !is_told(ret, *ret_n, &ret[*ret_n]);
	}
	return 0;
}

void service_denials_put(struct strbuf *out, const struct service_denial *list, size_t n)
{
	const char *gap = " Allow with ";

	for (size_t i = 0; i < n; i++)
		strbuf_printf(out, "%s%s (%s)", i ? ", " : "", list[i].what, list[i].why);
	strbuf_putc(out, '.');
	for (size_t i = 0; i < n; i++) {
		bool given = !list[i].option[0];

		for (size_t k = 0; k < i; k++)
			given |= !strcmp(list[k].option, list[i].option);
		if (given)
			continue;
		strbuf_printf(out, "%s%s", gap, list[i].option);
		gap = " ";
	}
	strbuf_puts(out, strcmp(gap, " ") ? " See: " : ", or see: ");
}
