/* Logs by way of the API: audit records, network records, and both as they are written. Reading is done in workers. See http/http.h. */
#include "gateway/http/http.h"

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
#include <unistd.h>

#define LIMIT_DEFAULT 1000
#define BYTES_MAX (24u << 20) /* of one answer */
#define TICK_MS 250

/* What of a log is wanted. */
struct view {
	const char *sandbox; /* NULL: of all */
	enum netlog_only only;
	uint64_t since_us;
	size_t limit;
	bool network;
	char dir[PATH_MAX], path[PATH_MAX];
	struct audit_reader reader; /* fd -1: the file is not there yet */
	char **lines; /* owned: a ring of the newest LIMIT */
	size_t n_lines, at;
};

static void view_done(struct view *v)
{
	audit_reader_done(&v->reader);
	for (size_t i = 0; v->lines && i < v->limit; i++)
		free(v->lines[i]);
	free(v->lines);
}

static bool flag(const struct http_request *req, const char *key)
{
	const char *v = http_request_query(req, key);

	return v && strcmp(v, "0") != 0 && strcmp(v, "false") != 0;
}

static int view_parse(const struct http_request *req, struct view *v, struct ak_err *err)
{
	const char *since = http_request_query(req, "since"), *limit = http_request_query(req, "limit");

	v->reader.fd = -1;
	v->limit = limit ? strtoul(limit, NULL, 10) : LIMIT_DEFAULT;
	if (flag(req, "denied") && flag(req, "allowed"))
		return ak_fail(err, EINVAL, "denied and allowed do not go together");
	v->only = flag(req, "denied") ? NETLOG_DENIED : flag(req, "allowed") ? NETLOG_ALLOWED : NETLOG_ALL;
	if (since && audit_parse_since(since, ak_wall_us(), &v->since_us, err) < 0)
		return ak_err_prefix(err, -EINVAL, "since");
	return 0;
}

/* ---- records ---- */

static bool is_wanted(const struct view *v, const char *line, size_t len)
{
	struct netlog_rec rec = { 0 };
	const cJSON *sandbox;
	bool wanted;

	if (netlog_rec_parse(line, len, &rec) < 0)
		return false;
	sandbox = cJSON_GetObjectItemCaseSensitive(rec.json, "sandbox");
	wanted = rec.time_us >= v->since_us && (!v->network || netlog_wanted(v->only, rec.verdict)) &&
		(!v->sandbox || v->network || (cJSON_IsString(sandbox) && !strcmp(sandbox->valuestring, v->sandbox)));
	netlog_rec_done(&rec);
	return wanted;
}

static int keep_line(void *ctx, const char *line, size_t len, bool whole)
{
	struct view *v = ctx;
	char *copy;

	if (!whole || !is_wanted(v, line, len))
		return 0;
	copy = strndup(line, len);
	if (!v->lines)
		v->lines = calloc(v->limit, sizeof(*v->lines));
	if (!copy || !v->lines) {
		free(copy);
		return -ENOMEM;
	}
	free(v->lines[v->at]);
	v->lines[v->at] = copy;
	v->at = (v->at + 1) % v->limit;
	v->n_lines++;
	return 0;
}

/* How many of the oldest must be left out for the others to fit. */
static size_t count_over(const struct view *v)
{
	size_t n = v->lines ? v->limit : 0, bytes = 0;

	for (; n > 0; n--) {
		const char *line = v->lines[(v->at + n - 1) % v->limit];

		bytes += line ? strlen(line) + 1 : 0;
		if (bytes > BYTES_MAX)
			break;
	}
	return n;
}

/* The newest, oldest of them first. */
static void say_lines(struct view *v, struct http_work *w)
{
	_cleanup_strbuf_ struct strbuf out = { 0 };

	strbuf_putc(&out, '[');
	for (size_t i = count_over(v); v->lines && i < v->limit; i++) {
		const char *line = v->lines[(v->at + i) % v->limit];

		if (!line)
			continue;
		if (out.len > 1)
			strbuf_putc(&out, ',');
		strbuf_puts(&out, line);
	}
	strbuf_putc(&out, ']');
	if (out.failed)
		http_work_data(w, 500, "out of memory", 13);
	else
		http_work_data(w, 200, out.data, out.len);
}

/* ---- audit records of one sandbox ---- */

static int read_events(struct http_call *c, struct http_work *w, struct view *v, struct ak_err *err)
{
	_cleanup_json_ cJSON *info = NULL;
	int rc = view_parse(&c->req, v, err);

	v->sandbox = c->params.name;
	if (rc == 0)
		rc = ak_path_join(v->path, w->paths->state, "events.jsonl", NULL);
	if (rc == 0)
		rc = audit_reader_drain(&v->reader, v->path, true, keep_line, v, err);
	if (rc == 0 && !v->n_lines) /* no word of it: is there one at all? */
		rc = service_get(w->paths, v->sandbox, &info, err);
	return rc;
}

void http_work_logs(struct http_call *c, struct http_work *w)
{
	_cleanup_(view_done) struct view v = { 0 };
	struct ak_err err = { "" };
	int rc = read_events(c, w, &v, &err);

	if (rc < 0)
		http_work_fail(w, rc, &err);
	else
		say_lines(&v, w);
}

/* ---- network records ---- */

static int open_network(struct http_call *c, struct http_work *w, struct view *v, struct ak_err *err)
{
	int rc = view_parse(&c->req, v, err);

	v->network = true;
	v->sandbox = c->params.name;
	if (rc == 0)
		rc = runs_dir(w->paths, v->sandbox, v->dir, err);
	return rc == 0 ? ak_path_join(v->path, v->dir, "network.jsonl", NULL) : rc;
}

static void network_work(void *ctx, struct http_work *w)
{
	_cleanup_(view_done) struct view v = { 0 };
	struct http_call *c = ctx;
	struct ak_err err = { "" };
	int rc = open_network(c, w, &v, &err);

	if (rc == 0)
		rc = audit_reader_drain(&v.reader, v.path, true, keep_line, &v, &err);
	if (rc < 0)
		http_work_fail(w, rc, &err);
	else
		say_lines(&v, w);
}

/* ---- following: the worker writes lines, the server makes events of them ---- */

struct follow {
	struct http_call *call; /* borrowed: ended by us */
	struct http_job *job; /* borrowed: until its end */
	struct strbuf line; /* one that has not ended */
	bool begun;
};

static int print_line(void *ctx, const char *line, size_t len, bool whole)
{
	int rc;

	if (!whole || !is_wanted(ctx, line, len))
		return 0;
	rc = ak_write_all(STDOUT_FILENO, line, len);
	return rc < 0 ? rc : ak_write_all(STDOUT_FILENO, "\n", 1);
}

/* An empty line first: whoever follows knows then that there is something to follow. ENDS (may be NULL) knows when it is over. */
static int watch(struct view *v, const struct ak_paths *ends, struct ak_err *err)
{
	struct ak_follow f = { -1 };
	bool ended = false;
	int rc = ak_write_all(STDOUT_FILENO, "\n", 1);

	ak_follow_init(&f, v->dir);
	while (rc == 0 && !ended) {
		ended = ends && service_ended(ends, v->dir);
		rc = audit_reader_drain(&v->reader, v->path, ended, print_line, v, err);
		if (rc == 0 && !ended)
			ak_follow_wait(&f, TICK_MS);
	}
	ak_follow_done(&f);
	return rc;
}

static void follow_network(void *ctx, struct http_work *w)
{
	_cleanup_(view_done) struct view v = { 0 };
	struct follow *f = ctx;
	struct ak_err err = { "" };
	int rc = open_network(f->call, w, &v, &err);

	if (rc == 0)
		rc = watch(&v, w->paths, &err);
	if (rc < 0)
		http_work_fail(w, rc, &err);
	else
		http_work_text(w, 200, "ended");
}

static void follow_events(void *ctx, struct http_work *w)
{
	_cleanup_(view_done) struct view v = { 0 };
	struct follow *f = ctx;
	struct ak_err err = { "" };
	int rc = view_parse(&f->call->req, &v, &err);

	v.sandbox = http_request_query(&f->call->req, "sandbox");
	if (!v.since_us)
		v.since_us = ak_wall_us();
	snprintf(v.dir, sizeof(v.dir), "%s", w->paths->state);
	if (rc == 0)
		rc = ak_path_join(v.path, v.dir, "events.jsonl", NULL);
	if (rc == 0)
		rc = watch(&v, NULL, &err);
	if (rc < 0)
		http_work_fail(w, rc, &err);
}

static void follow_line(struct follow *f, const char *line, size_t len)
{
	static const char long_one[] = "{\"error\":\"a record too long for an event was left out; read the log without follow\"}";

	if (!f->begun) {
		f->begun = true;
		http_stream_begin(f->call);
	}
	if (len + 64 > HTTP_EVENT_MAX)
		http_stream_event(f->call, "record", long_one, sizeof(long_one) - 1);
	else if (len)
		http_stream_event(f->call, "record", line, len);
}

static void follow_output(struct http_job *j, enum http_pipe pipe, const char *data, size_t len)
{
	struct follow *f = j->ctx;

	while (pipe == HTTP_PIPE_OUT && len > 0) {
		const char *nl = memchr(data, '\n', len);
		size_t n = nl ? (size_t)(nl - data) : len;

		strbuf_add(&f->line, data, n);
		data += n + (nl != NULL);
		len -= n + (nl != NULL);
		if (!nl)
			break;
		follow_line(f, f->line.data ? f->line.data : "", f->line.len);
		f->line.len = 0;
	}
	if (http_stream_behind(f->call))
		http_job_pause(j, true);
}

static void follow_drained(struct http_call *c)
{
	struct follow *f = c->ctx;

	http_job_pause(f->job, false);
}

static void follow_gone(struct http_call *c)
{
	struct follow *f = c->ctx;

	http_job_cancel(f->job);
}

static void follow_end(struct http_job *j, unsigned status, const char *payload, size_t len)
{
	struct follow *f = j->ctx;

	f->call->drained = NULL;
	if (!f->begun)
		http_reply_error(f->call, status < 400 || status == 499 ? 500 : status, "%.*s", (int)len, payload);
	else
		http_stream_end(f->call);
	strbuf_done(&f->line);
	free(f);
}

static void follow_start(struct http_call *c, const struct http_job_ops *ops)
{
	struct follow *f = calloc(1, sizeof(*f));

	if (f) {
		f->call = c;
		f->job = http_job_new(c->s, ops, f);
	}
	if (!f || !f->job) {
		free(f);
		http_reply_error(c, 429, "too many follow logs already");
		return;
	}
	c->ctx = f;
	c->gone = follow_gone;
	c->drained = follow_drained;
	http_job_go(f->job);
}

void http_handle_events(struct http_call *c)
{
	static const struct http_job_ops ops = { HTTP_JOB_FOLLOW, follow_events, NULL, follow_output, follow_end };

	follow_start(c, &ops);
}

static void network_end(struct http_job *j, unsigned status, const char *payload, size_t len)
{
	if (status < 400)
		http_reply_result(j->ctx, status, j);
	else
		http_reply_error(j->ctx, status == 499 ? 500 : status, "%.*s", (int)len, payload);
}

void http_handle_network_log(struct http_call *c)
{
	static const struct http_job_ops following = { HTTP_JOB_FOLLOW, follow_network, NULL, follow_output, follow_end };
	static const struct http_job_ops once = { .kind = HTTP_JOB, .work = network_work, .end = network_end };
	struct http_job *j;

	if (flag(&c->req, "follow")) {
		follow_start(c, &following);
		return;
	}
	j = http_job_new(c->s, &once, c);
	if (j)
		http_job_go(j);
	else
		http_reply_error(c, 429, "too busy: try again soon");
}
