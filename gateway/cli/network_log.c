/* network log NAME|--last: print the network log of one sandbox as a table, a summary or raw records. */
#include "gateway/cli/cmd.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/base/table.h"
#include "gateway/log/audit.h"
#include "gateway/log/netlog.h"
#include "gateway/log/view.h"
#include "gateway/service/service.h"
#include "gateway/store/runs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define HOLD_US 2000000 /* while following, how long a DNS query waits for its flow, to share a row */

struct view {
	const char *name; /* NULL: the newest run */
	char whole[AK_NAME_MAX]; /* the name that was abbreviated */
	bool last, follow, json, summary;
	enum netlog_only only;
	uint64_t since_us;
	uint64_t limit; /* 0: none */

	struct ak_paths paths;
	char dir[PATH_MAX];
	struct netlog *log; /* owned */
	struct table table;
	bool begun; /* the table's titles were printed */
	bool with_date, any;
};

/* ---- options ---- */

static int check_view(const struct view *v, bool both, struct ak_err *err)
{
	if (both)
		return ak_fail(err, EINVAL, "--denied and --allowed exclude each other");
	if (!v->name && !v->last)
		return ak_fail(err, EINVAL, "no sandbox given; give its name or --last");
	if (v->name && v->last)
		return ak_fail(err, EINVAL, "give a name or --last, not both");
	if (v->follow && v->summary)
		return ak_fail(err, EINVAL, "--follow and --summary exclude each other");
	return 0;
}

/* Returns 0 to continue, else the exit code + 1. */
static int parse(struct view *v, int argc, char **argv)
{
	struct cmd_args a;
	struct ak_err err;
	int rc = cmd_read(&a, "network log", argc, argv, &v->name, 1, NULL);

	if (rc)
		return rc;
	v->only = a.seen[FIELD_DENIED] ? NETLOG_DENIED : a.seen[FIELD_ALLOWED] ? NETLOG_ALLOWED : NETLOG_ALL;
	v->since_us = a.given[FIELD_SINCE].number;
	v->limit = a.given[FIELD_LIMIT_LINES].number;
	v->last = a.seen[FIELD_LAST];
	v->follow = a.seen[FIELD_FOLLOW];
	v->json = a.seen[FIELD_JSON_LINES];
	v->summary = a.seen[FIELD_SUMMARY];
	rc = check_view(v, a.seen[FIELD_DENIED] && a.seen[FIELD_ALLOWED], &err);
	if (rc < 0)
		ak_say("network log: %s", err.text);
	return rc < 0 ? 1 + AK_EXIT_USAGE : 0;
}

/* ---- output ---- */

static int print_raw(void *ctx, const char *line, size_t len, const struct netlog_rec *rec)
{
	puts(line);
	return 0;
}

static int add_record(void *ctx, const char *line, size_t len, const struct netlog_rec *rec)
{
	struct view *v = ctx;

	return netlog_add(v->log, rec);
}

#define GROUPS_TOLD 5

/* Which denied hosts are in a group that can be allowed? */
static void tell_groups(const struct view *v, struct netlog_row *const *rows, size_t n)
{
	_cleanup_(service_groups_freep) struct service_groups *groups = NULL;
	const char *told = "";
	size_t n_told = 0;

	for (size_t i = 0; i < n && n_told < GROUPS_TOLD; i++) {
		const struct netlog_row *row = rows[i];
		const char *group;

		if (strcmp(row->verdict, "deny") != 0 ||
			strcmp(row->reason, policy_reason_text(POLICY_REASON_DEFAULT, false)) != 0 ||
			!policy_name_ok(row->host) || !strcmp(row->host, told))
			continue;
		groups = groups ? groups : service_groups_load(&v->paths);
		group = service_group_of(groups, row->host, strcmp(row->proto, "udp") ? POLICY_TCP : POLICY_UDP, row->port);
		if (!group)
			continue;
		fflush(stdout);
		ak_say("%s is in %s: --allow-group %s", row->host, group, group);
		told = row->host;
		n_told++;
	}
}

static int show_summary(struct netlog_row *const *rows, size_t n, bool json)
{
	_cleanup_strbuf_ struct strbuf text = { 0 };
	_cleanup_free_ char *buf = NULL;
	size_t len = 0;
	FILE *out;
	int rc;

	if (!json)
		return netlog_print_summary(rows, n, false, stdout);
	out = open_memstream(&buf, &len);
	if (!out)
		return -ENOMEM;
	rc = netlog_print_summary(rows, n, true, out);
	if (fclose(out) != 0)
		return -ENOMEM;
	strbuf_add(&text, buf, len && buf[len - 1] == '\n' ? len - 1 : len);
	return rc < 0 ? rc : cmd_print_json_text(&text) ? -ENOMEM : 0;
}

static int show_table(struct view *v, bool ended, struct ak_err *err)
{
	_cleanup_free_ struct netlog_row **rows = NULL;
	uint64_t now = ak_wall_us(), hold = v->follow && !ended ? HOLD_US : 0;
	size_t n, skip = 0;
	int rc = netlog_rows(v->log, v->only, now, hold, &rows, &n);

	if (rc == 0 && v->summary)
		rc = show_summary(rows, n, v->json);
	if (rc < 0)
		return ak_fail_errno(err, -rc, "network log");
	if (v->summary)
		return 0;
	if (!v->begun && v->limit && n > v->limit)
		skip = n - v->limit;
	if (!v->begun)
		v->with_date = netlog_needs_date(rows + skip, n - skip, now);
	for (size_t i = 0; i < n; i++) {
		rows[i]->live = false; /* printed */
		if (i >= skip)
			netlog_table_put(&v->table, rows[i], v->with_date);
	}
	v->any |= n > 0;
	/* Without rows the titles alone would say nothing on a terminal; a script may want them. */
	if (v->any || v->follow || !ak_look_at(stdout).width) {
		v->begun = true;
		if (table_print(&v->table, stdout, v->follow) < 0)
			return ak_fail(err, ENOMEM, "out of memory");
	}
	if (!v->follow)
		tell_groups(v, rows + skip, n - skip);
	return 0;
}

static int show(void *ctx, bool ended, struct ak_err *err)
{
	struct view *v = ctx;
	int rc = v->json && !v->summary ? 0 : show_table(v, ended, err);

	return rc < 0 ? rc : ak_flush(err);
}

static bool is_over(void *ctx)
{
	const struct view *v = ctx;

	return service_ended(&v->paths, v->dir);
}

static int view_open(struct view *v, struct ak_err *err)
{
	char last[AK_NAME_MAX];
	int rc = ak_paths_init(&v->paths, err);

	if (rc == 0 && v->name)
		rc = runs_resolve(&v->paths, &v->name, v->whole, err);
	else if (rc == 0)
		rc = runs_last(&v->paths, last, err);
	if (rc == 0)
		rc = runs_dir(&v->paths, v->name ? v->name : last, v->dir, err);
	if (rc < 0)
		return rc;
	cmd_heal(&v->paths, v->name ? v->name : last, false);
	rc = netlog_new(&v->log);
	return rc < 0 ? ak_fail(err, -rc, "out of memory") : 0;
}

static void tell_nothing(const struct view *v)
{
	static const char *const what[] = { [NETLOG_ALL] = "no network requests",
		[NETLOG_DENIED] = "nothing was denied",
		[NETLOG_ALLOWED] = "nothing was allowed" };

	fflush(stdout);
	ak_say("network log: %s%s%s", what[v->only], v->since_us ? " since then" : "",
		v->only != NETLOG_ALL || v->since_us ? "; without options it shows all requests" : " were recorded");
}

int cmd_network_log(int argc, char **argv)
{
	struct view v = { 0 };
	struct ak_err err = { "" };
	struct log_view look = { .pause = show, .ended = is_over, .ctx = &v };
	int rc = parse(&v, argc, argv);
	bool raw = v.json && !v.summary;

	if (rc)
		return rc - 1;
	netlog_table_init(&v.table);
	look.since_us = v.since_us;
	look.follow = v.follow;
	look.only = raw ? v.only : NETLOG_ALL; /* rows are filtered once they are complete */
	look.limit = raw ? v.limit : 0;
	look.record = raw ? print_raw : add_record;
	rc = view_open(&v, &err);
	if (rc == 0)
		rc = log_view_run(&look, v.dir, &err);
	netlog_free(v.log);
	table_done(&v.table);
	if (rc == 0 && !v.any && !v.json && !v.follow && !v.summary)
		tell_nothing(&v);
	return ak_log_end(look.corrupt, rc, &err);
}
