/* Looking at a log: see log/view.h. */
#include "gateway/log/view.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/paths.h"
#include "gateway/log/audit.h"
#include "gateway/log/follow.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define TICK_MS 250

/* The newest lines of the first reading. */
struct ring {
	char **lines; /* owned, and so are they; NULL: no longer, or not at all */
	size_t size, at;
};

struct look {
	struct log_view *v; /* borrowed */
	struct audit_reader reader;
	struct ring ring;
};

static void look_done(struct look *l)
{
	for (size_t i = 0; l->ring.lines && i < l->ring.size; i++)
		free(l->ring.lines[i]);
	free(l->ring.lines);
	audit_reader_done(&l->reader);
}

static bool is_wanted(const struct log_view *v, const struct netlog_rec *rec)
{
	if (rec->time_us < v->since_us || (!v->events && !netlog_wanted(v->only, rec->verdict)))
		return false;
	return !v->events || !v->sandbox || !strcmp(json_text(rec->json, "sandbox", ""), v->sandbox);
}

static int keep(struct ring *r, const char *line, size_t len)
{
	char *copy = strndup(line, len);

	if (!copy)
		return -ENOMEM;
	free(r->lines[r->at]);
	r->lines[r->at] = copy;
	r->at = (r->at + 1) % r->size;
	return 0;
}

static int on_line(void *ctx, const char *line, size_t len, bool whole)
{
	struct look *l = ctx;
	struct log_view *v = l->v;
	struct netlog_rec rec = { 0 };
	int rc = -EBADMSG;

	if (whole)
		rc = v->events ? netlog_event_parse(line, len, &rec) : netlog_rec_parse(line, len, &rec);
	if (rc == -EBADMSG) {
		v->corrupt++;
		return 0;
	}
	if (rc == 0 && is_wanted(v, &rec))
		rc = l->ring.lines ? keep(&l->ring, line, len) : v->record(v->ctx, line, len, v->limit ? NULL : &rec);
	netlog_rec_done(&rec);
	return rc;
}

/* How many of the oldest must be left out for the others to fit. */
static size_t count_over(const struct ring *r, size_t max_bytes)
{
	size_t n = r->size, bytes = 0;

	for (; max_bytes && n > 0; n--) {
		const char *line = r->lines[(r->at + n - 1) % r->size];

		bytes += line ? strlen(line) + 1 : 0;
		if (bytes > max_bytes)
			break;
	}
	return max_bytes ? n : 0;
}

/* Tell what was kept, oldest first; what follows is told as it comes. */
static int flush_ring(struct look *l)
{
	struct ring *r = &l->ring;
	int rc = 0;

	for (size_t i = r->lines ? count_over(r, l->v->max_bytes) : r->size; i < r->size && rc == 0; i++) {
		const char *line = r->lines[(r->at + i) % r->size];

		if (line)
			rc = l->v->record(l->v->ctx, line, strlen(line), NULL);
	}
	for (size_t i = 0; r->lines && i < r->size; i++)
		free(r->lines[i]);
	free(r->lines);
	*r = (struct ring){ 0 };
	return rc;
}

/* Whether it has ended is asked before the log is read, so that nothing is missed. */
static int read_all(struct look *l, const char *path, bool *ended, struct ak_err *err)
{
	struct log_view *v = l->v;
	int rc;

	*ended = !v->follow || (v->ended && v->ended(v->ctx));
	rc = audit_reader_drain(&l->reader, path, *ended, on_line, l, err);
	if (rc < 0)
		return rc;
	rc = flush_ring(l);
	if (rc < 0)
		return ak_fail_errno(err, -rc, "log");
	return v->pause ? v->pause(v->ctx, *ended, err) : 0;
}

int log_view_run(struct log_view *v, const char *dir, struct ak_err *err)
{
	_cleanup_(look_done) struct look l = { .v = v, .reader.fd = -1, .ring.size = v->limit };
	struct ak_follow f = { -1 };
	char path[PATH_MAX];
	bool ended = false;
	int rc = 0;

	if (ak_path_join(path, dir, v->events ? "events.jsonl" : "network.jsonl", NULL) < 0)
		return ak_fail(err, ENAMETOOLONG, "state folder: path too long");
	if (v->limit && !(l.ring.lines = calloc(v->limit, sizeof(*l.ring.lines))))
		return ak_fail(err, ENOMEM, "out of memory");
	if (v->follow)
		ak_follow_init(&f, dir);
	while (rc == 0 && !ended) {
		rc = read_all(&l, path, &ended, err);
		if (rc == 0 && !ended)
			ak_follow_wait(&f, TICK_MS);
	}
	ak_follow_done(&f);
	return rc;
}
