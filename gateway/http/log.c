/* API for logs: audit records and network records, once or followed as they are written. Workers do the reading. See http/http.h. */
#include "gateway/http/http.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/log/audit.h"
#include "gateway/log/view.h"
#include "gateway/service/service.h"
#include "gateway/store/runs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LIMIT_DEFAULT 1000
#define BYTES_MAX (24u << 20) /* limit of one answer */

/* What a request asks for. */
struct wish {
	struct log_view view;
	const struct ak_paths *paths; /* borrowed */
	char dir[PATH_MAX];
	struct strbuf out; /* a JSON array without its closing bracket */
};

static bool flag(const struct http_request *req, enum field_id id)
{
	const struct field_value *v = http_query(req, id);

	return v && v->flag;
}

/* Parse a request for the events of SANDBOX (NULL: of all), or without EVENTS for the network log of SANDBOX. */
static int wish_parse(const struct http_call *c, bool events, const char *sandbox, struct wish *ret, struct ak_err *err)
{
	const struct field_value *since = http_query(&c->req, FIELD_SINCE), *limit = http_query(&c->req, FIELD_LIMIT_RECORDS);
	bool denied = flag(&c->req, FIELD_DENIED), allowed = flag(&c->req, FIELD_ALLOWED);

	*ret = (struct wish){ .paths = c->s->paths };
	ret->view = (struct log_view){ .events = events, .sandbox = sandbox, .ctx = ret, .max_bytes = BYTES_MAX };
	ret->view.limit = limit ? limit->number : LIMIT_DEFAULT;
	ret->view.only = denied ? NETLOG_DENIED : allowed ? NETLOG_ALLOWED : NETLOG_ALL;
	if (denied && allowed)
		return ak_fail(err, EINVAL, "denied and allowed exclude each other");
	if (since)
		ret->view.since_us = since->number;
	if (!events)
		return runs_dir(ret->paths, sandbox, ret->dir, err);
	snprintf(ret->dir, sizeof(ret->dir), "%s", ret->paths->state);
	return 0;
}

/* ---- once ---- */

static int add_line(void *ctx, const char *line, size_t len, const struct netlog_rec *rec)
{
	struct wish *wish = ctx;

	strbuf_putc(&wish->out, wish->out.len ? ',' : '[');
	strbuf_add(&wish->out, line, len);
	return wish->out.failed ? -ENOMEM : 0;
}

static int read_log(struct wish *wish, struct ak_err *err)
{
	wish->view.record = add_line;
	return log_view_run(&wish->view, wish->dir, err);
}

static void end_log(struct work *w, int rc, struct wish *wish, const struct ak_err *err)
{
	strbuf_puts(&wish->out, wish->out.len ? "]" : "[]");
	work_end_buf(w, rc, &wish->out, err);
	strbuf_done(&wish->out);
}

void http_work_logs(struct http_call *c, struct work *w)
{
	_cleanup_json_ cJSON *info = NULL;
	struct wish wish;
	struct ak_err err = { "" };
	int rc = wish_parse(c, true, c->params.name, &wish, &err);

	if (rc == 0)
		rc = read_log(&wish, &err);
	if (rc == 0 && !wish.out.len) /* no records: check that the sandbox exists */
		rc = service_get(c->s->paths, c->params.name, &info, &err);
	end_log(w, rc, &wish, &err);
}

static void network_work(void *ctx, struct work *w)
{
	struct http_call *c = ctx;
	struct wish wish;
	struct ak_err err = { "" };
	int rc = wish_parse(c, false, c->params.name, &wish, &err);

	if (rc == 0)
		rc = read_log(&wish, &err);
	end_log(w, rc, &wish, &err);
}

/* ---- following: the worker writes lines, the server turns them into events ---- */

struct follow {
	struct http_call *call; /* borrowed; we end it */
	struct http_job *job; /* borrowed, until it ends */
	struct strbuf line; /* an incomplete line */
	bool begun;
};

static int print_line(void *ctx, const char *line, size_t len, const struct netlog_rec *rec)
{
	int rc = ak_write_all(STDOUT_FILENO, line, len);

	return rc < 0 ? rc : ak_write_all(STDOUT_FILENO, "\n", 1);
}

static bool is_over(void *ctx)
{
	const struct wish *wish = ctx;

	return service_ended(wish->paths, wish->dir);
}

/* Print an empty line first: it tells the server that the request is valid and following begins. */
static void follow_log(struct wish *wish, int rc, struct work *w, struct ak_err *err)
{
	wish->view.follow = true;
	wish->view.limit = 0;
	wish->view.record = print_line;
	if (rc == 0)
		rc = ak_write_all(STDOUT_FILENO, "\n", 1);
	if (rc == 0)
		rc = log_view_run(&wish->view, wish->dir, err);
	work_end_text(w, rc, "ended", err);
}

static void follow_network(void *ctx, struct work *w)
{
	struct follow *f = ctx;
	struct wish wish;
	struct ak_err err = { "" };
	int rc = wish_parse(f->call, false, f->call->params.name, &wish, &err);

	wish.view.ended = is_over;
	follow_log(&wish, rc, w, &err);
}

static void follow_events(void *ctx, struct work *w)
{
	struct follow *f = ctx;
	struct wish wish;
	struct ak_err err = { "" };
	int rc = wish_parse(f->call, true, http_request_query(&f->call->req, "sandbox"), &wish, &err);

	if (!wish.view.since_us)
		wish.view.since_us = ak_wall_us();
	follow_log(&wish, rc, w, &err);
}

static void follow_line(struct follow *f, const char *line, size_t len)
{
	static const char long_one[] =
		"{\"error\":\"skipped a record that is too long for an event; read the log without follow\"}";

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

static void follow_end(struct http_job *j, int rc, const char *payload, size_t len)
{
	struct follow *f = j->ctx;

	f->call->drained = NULL;
	if (!f->begun)
		http_reply_failure(f->call, rc ? rc : -EIO, payload, len);
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
		http_reply_error(c, 429, "too many clients follow logs; try again later");
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

static void network_end(struct http_job *j, int rc, const char *payload, size_t len)
{
	http_reply_result(j->ctx, rc, payload, len, j);
}

void http_handle_network_log(struct http_call *c)
{
	static const struct http_job_ops following = { HTTP_JOB_FOLLOW, follow_network, NULL, follow_output, follow_end };
	static const struct http_job_ops once = { .kind = HTTP_JOB, .work = network_work, .end = network_end };

	if (flag(&c->req, FIELD_FOLLOW))
		follow_start(c, &following);
	else
		http_call_job(c, &once);
}
