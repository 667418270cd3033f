/* network log NAME|--last: the policy audit of one sandbox, as a table, a summary or raw records. */
#include "gateway/cli/cmd.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/log/audit.h"
#include "gateway/log/follow.h"
#include "gateway/log/netlog.h"
#include "gateway/service/service.h"
#include "gateway/store/runs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define TICK_MS 250
#define HOLD_US 2000000 /* how long a DNS question waits for its flow while following */

struct view {
	const char *name; /* NULL: the newest */
	bool last, follow, json, summary;
	enum netlog_only only;
	uint64_t since_us;
	uint64_t limit; /* 0: none */

	struct ak_paths paths;
	char dir[PATH_MAX];
	struct audit_reader reader; /* fd -1: the file is not there yet */
	struct netlog *log; /* owned */
	struct netlog_layout layout;
	char **ring; /* owned: the last LIMIT lines of raw records */
	size_t ring_at;
	uint64_t corrupt;
};

static void view_done(struct view *v)
{
	audit_reader_done(&v->reader);
	netlog_free(v->log);
	for (size_t i = 0; v->ring && i < v->limit; i++)
		free(v->ring[i]);
	free(v->ring);
}

/* ---- options ---- */

static int check_view(const struct view *v, bool both, struct ak_err *err)
{
	if (both)
		return ak_fail(err, EINVAL, "--denied and --allowed do not go together");
	if (!v->name && !v->last)
		return ak_fail(err, EINVAL, "which sandbox? give its name or --last");
	if (v->name && v->last)
		return ak_fail(err, EINVAL, "give a name or --last, not both");
	if (v->follow && v->summary)
		return ak_fail(err, EINVAL, "--follow and --summary do not go together");
	return 0;
}

/* 0 to go on; else the exit code + 1. */
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

/* ---- records ---- */

static int print_raw(struct view *v, const char *line)
{
	char *copy;

	if (!v->ring) {
		puts(line);
		return 0;
	}
	copy = strdup(line);
	if (!copy)
		return -ENOMEM;
	free(v->ring[v->ring_at]);
	v->ring[v->ring_at] = copy;
	v->ring_at = (v->ring_at + 1) % v->limit;
	return 0;
}

/* The last LIMIT lines, oldest first; what follows is printed as it comes. */
static void flush_ring(struct view *v)
{
	for (size_t i = 0; v->ring && i < v->limit; i++) {
		char *line = v->ring[(v->ring_at + i) % v->limit];

		if (line)
			puts(line);
		free(line);
	}
	free(v->ring);
	v->ring = NULL;
}

static int take_line(void *ctx, const char *line, size_t len, bool whole)
{
	struct view *v = ctx;
	struct netlog_rec rec = { 0 };
	int rc = whole ? netlog_rec_parse(line, len, &rec) : -EBADMSG;

	if (rc == -EBADMSG) {
		v->corrupt++;
		return 0;
	}
	if (rc == 0 && rec.time_us >= v->since_us) {
		if (!v->json || v->summary)
			rc = netlog_add(v->log, &rec);
		else if (netlog_wanted(v->only, rec.verdict))
			rc = print_raw(v, line);
	}
	netlog_rec_done(&rec);
	return rc;
}

/* ---- output ---- */

static int show_table(struct view *v, bool first, bool ended, struct ak_err *err)
{
	_cleanup_free_ struct netlog_row **rows = NULL;
	uint64_t now = ak_wall_us(), hold = v->follow && !ended ? HOLD_US : 0;
	size_t n, skip = 0;
	int rc = netlog_rows(v->log, v->only, now, hold, &rows, &n);

	if (rc == 0 && v->summary)
		rc = netlog_print_summary(rows, n, v->json, stdout);
	if (rc < 0)
		return ak_fail_errno(err, -rc, "network log");
	if (v->summary)
		return 0;
	if (first && v->limit && n > v->limit)
		skip = n - v->limit;
	if (first) {
		netlog_layout_fit(&v->layout, rows + skip, n - skip, netlog_width(stdout), now, v->follow);
		netlog_print_header(&v->layout, stdout);
	}
	for (size_t i = 0; i < n; i++) {
		rows[i]->live = false; /* printed */
		if (i >= skip)
			netlog_print_row(&v->layout, rows[i], stdout);
	}
	return 0;
}

static int show(struct view *v, bool first, bool ended, struct ak_err *err)
{
	int rc = 0;

	if (v->json && !v->summary)
		flush_ring(v);
	else
		rc = show_table(v, first, ended, err);
	return rc < 0 ? rc : ak_flush(err);
}

/* Once, or again and again until the sandbox ended. Whether it ended is asked before the log is read, so that nothing is missed. */
static int watch(struct view *v, struct ak_err *err)
{
	struct ak_follow f = { -1 };
	bool ended = !v->follow, first = true;
	char path[PATH_MAX];
	int rc;

	if (ak_path_join(path, v->dir, "network.jsonl", NULL) < 0)
		return ak_fail(err, ENAMETOOLONG, "state folder: path too long");
	if (v->follow)
		ak_follow_init(&f, v->dir);
	for (;; first = false) {
		ended = ended || service_ended(&v->paths, v->dir);
		rc = audit_reader_drain(&v->reader, path, ended, take_line, v, err);
		if (rc == 0)
			rc = show(v, first, ended, err);
		if (rc < 0 || ended)
			break;
		ak_follow_wait(&f, TICK_MS);
	}
	ak_follow_done(&f);
	return rc;
}

static int view_open(struct view *v, struct ak_err *err)
{
	char last[AK_NAME_MAX];
	int rc = ak_paths_init(&v->paths, err);

	if (rc == 0 && !v->name)
		rc = runs_last(&v->paths, last, err);
	if (rc == 0)
		rc = runs_dir(&v->paths, v->name ? v->name : last, v->dir, err);
	if (rc < 0)
		return rc;
	cmd_heal(&v->paths, v->name ? v->name : last, false);
	if (v->json && v->limit && !v->summary) {
		v->ring = calloc(v->limit, sizeof(*v->ring));
		if (!v->ring)
			return ak_fail(err, ENOMEM, "out of memory");
	}
	rc = netlog_new(&v->log);
	return rc < 0 ? ak_fail(err, -rc, "out of memory") : 0;
}

int cmd_network_log(int argc, char **argv)
{
	_cleanup_(view_done) struct view v = { .reader.fd = -1 };
	struct ak_err err = { "" };
	int rc = parse(&v, argc, argv);

	if (rc)
		return rc - 1;
	rc = view_open(&v, &err);
	if (rc == 0)
		rc = watch(&v, &err);
	return ak_log_end(v.corrupt, rc, &err);
}
