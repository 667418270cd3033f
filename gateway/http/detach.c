/*
 * Background commands. Each has a worker that lasts as long as the command; we keep the newest output in memory. All background
 * commands end when the server ends. See http/http.h.
 */
#include "gateway/http/http.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/base/say.h"
#include "gateway/log/audit.h"
#include "gateway/service/service.h"
#include "gateway/store/state.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#define KEEP_BYTES (1u << 20) /* of output kept of each stream */
#define KEEP_SLACK (256u << 10) /* extra room, so that not every write moves the whole buffer */
#define KEEP_ENDED 64 /* ended commands kept, for all sandboxes together; the oldest are dropped */

struct http_detached {
	TAILQ_ENTRY(http_detached) link;
	struct http_server *s; /* borrowed: outlives us */
	char id[20], sandbox[AK_NAME_MAX];
	cJSON *spec; /* owned: the body */
	struct http_job *job; /* borrowed; NULL once it has ended */
	struct http_call *call; /* borrowed: the request that started it, until it is answered */
	pid_t pid;
	int exit_code;
	bool cut;
	struct ak_err why;
	uint64_t started_us;
	struct strbuf streams[2];
};

static void detached_free(struct http_detached *d)
{
	cJSON_Delete(d->spec);
	strbuf_done(&d->streams[0]);
	strbuf_done(&d->streams[1]);
	free(d);
}

static void drop(struct http_detached *d)
{
	TAILQ_REMOVE(&d->s->detached, d, link);
	detached_free(d);
}

void http_detached_forget(struct http_server *s, const char *sandbox)
{
	struct http_detached *d = TAILQ_FIRST(&s->detached), *next;

	for (; d; d = next) {
		next = TAILQ_NEXT(d, link);
		if (!d->job && !strcmp(d->sandbox, sandbox))
			drop(d);
	}
}

void http_detached_end(struct http_server *s)
{
	struct http_detached *d = TAILQ_FIRST(&s->detached), *next;

	for (; d; d = next) {
		next = TAILQ_NEXT(d, link);
		if (!d->job)
			drop(d);
		else
			http_job_cancel(d->job);
	}
}

static void prune(struct http_server *s)
{
	struct http_detached *d, *oldest = NULL;
	size_t n = 0;

	TAILQ_FOREACH(d, &s->detached, link) {
		if (d->job)
			continue;
		n++;
		oldest = oldest ? oldest : d;
	}
	if (n > KEEP_ENDED)
		drop(oldest);
}

static size_t count_running(const struct http_server *s)
{
	const struct http_detached *d;
	size_t n = 0;

	TAILQ_FOREACH(d, &s->detached, link)
		n += d->job != NULL;
	return n;
}

/* ---- JSON ---- */

static void put_detached(struct strbuf *out, const struct http_detached *d)
{
	_cleanup_free_ char *command = cJSON_PrintUnformatted(cJSON_GetObjectItemCaseSensitive(d->spec, "command"));
	char when[AUDIT_TIME_MAX];

	strbuf_printf(out, "{\"id\":\"%s\",\"sandbox\":\"%s\",\"command\":%s,\"pid\":%d,\"status\":\"%s\",\"exit_code\":", d->id,
		d->sandbox, command ? command : "[]", (int)d->pid,
		d->job		       ? "running"
			: d->exit_code ? "failed"
				       : "completed");
	if (d->job)
		strbuf_puts(out, "null");
	else
		strbuf_printf(out, "%d", d->exit_code);
	strbuf_printf(out, ",\"started_at\":\"%s\"", audit_time_print(d->started_us, when));
	if (d->why.text[0]) {
		strbuf_puts(out, ",\"error\":");
		strbuf_json_utf8(out, d->why.text, strlen(d->why.text));
	}
	strbuf_putc(out, '}');
}

static void reply(struct http_call *c, unsigned status, const struct strbuf *out)
{
	if (out->failed)
		http_reply_error(c, 500, "out of memory");
	else
		http_reply_data(c, status, out->data, out->len);
}

/* ---- start and end ---- */

static void on_output(struct http_job *j, enum http_pipe pipe, const char *data, size_t len)
{
	struct http_detached *d = j->ctx;
	struct strbuf *to = &d->streams[pipe == HTTP_PIPE_ERR];

	strbuf_add(to, data, len);
	if (to->len > KEEP_BYTES + KEEP_SLACK) {
		memmove(to->data, to->data + to->len - KEEP_BYTES, KEEP_BYTES);
		to->len = KEEP_BYTES;
		d->cut = true;
	}
}

static void on_started(struct http_job *j)
{
	struct http_detached *d = j->ctx;

	d->pid = j->worker.pid;
}

static void on_end(struct http_job *j, int rc, const char *payload, size_t len)
{
	struct http_detached *d = j->ctx;
	_cleanup_(run_report_done) struct run_report report = { 0 };

	d->job = NULL;
	if (rc == -ECANCELED)
		d->exit_code = 128 + SIGKILL;
	else if (http_report_take(rc, payload, len, &report, &d->why) < 0)
		d->exit_code = AK_EXIT_FAILED;
	else
		d->exit_code = report.outcome.exit_code;
	prune(d->s);
}

static void exec_work(void *ctx, struct work *w)
{
	const struct http_detached *d = ctx;

	http_exec_work(d->s->paths, d->sandbox, d->spec, w);
}

static void launch(struct http_detached *d)
{
	static const struct http_job_ops ops = { HTTP_JOB_DETACHED, exec_work, on_started, on_output, on_end };
	_cleanup_strbuf_ struct strbuf out = { 0 };
	struct http_call *c = TAKE(d->call);

	d->job = http_job_new(d->s, &ops, d);
	if (!d->job) {
		detached_free(d);
		http_reply_error(c, 429, "too busy: try again soon");
		return;
	}
	d->started_us = ak_wall_us();
	TAILQ_INSERT_TAIL(&d->s->detached, d, link);
	http_job_go(d->job);
	put_detached(&out, d);
	reply(c, 201, &out);
}

/* First check that the sandbox exists and runs. */

static void look_work(void *ctx, struct work *w)
{
	const struct http_detached *d = ctx;
	struct ak_err err;
	int rc = service_super(d->s->paths, d->sandbox, &err);

	work_end_text(w, rc, "ok", &err);
}

static void look_end(struct http_job *j, int rc, const char *payload, size_t len)
{
	struct http_detached *d = j->ctx;

	if (rc == 0 && d->call->conn) {
		launch(d);
		return;
	}
	http_reply_failure(d->call, rc ? rc : -ECANCELED, payload, len);
	detached_free(d);
}

static int detached_new(struct http_call *c, struct http_detached **ret, struct ak_err *err)
{
	struct http_detached *d = calloc(1, sizeof(*d));
	uint64_t number;
	int rc;

	if (!d)
		return ak_fail(err, ENOMEM, "out of memory");
	d->s = c->s;
	d->call = c;
	d->spec = TAKE(c->body);
	snprintf(d->sandbox, sizeof(d->sandbox), "%s", c->params.name);
	if (getrandom(&number, sizeof(number), 0) != sizeof(number)) {
		rc = ak_fail_errno(err, errno, "no random number");
		detached_free(d);
		return rc;
	}
	snprintf(d->id, sizeof(d->id), "%016llx", (unsigned long long)number);
	*ret = d;
	return 0;
}

void http_handle_detach(struct http_call *c)
{
	static const struct http_job_ops ops = { .kind = HTTP_JOB, .work = look_work, .end = look_end };
	struct http_detached *d = NULL;
	struct http_job *j;
	struct ak_err err;

	if (detached_new(c, &d, &err) < 0) {
		http_reply_error(c, 500, "%s", err.text);
		return;
	}
	j = count_running(c->s) < HTTP_DETACHED_MAX ? http_job_new(c->s, &ops, d) : NULL;
	if (!j) {
		detached_free(d);
		http_reply_error(c, 429, "too many background commands are running; end one or try again later");
		return;
	}
	http_job_go(j);
}

/* ---- status and logs ---- */

static struct http_detached *look_up(const struct http_call *c)
{
	struct http_detached *d;

	TAILQ_FOREACH(d, &c->s->detached, link) {
		if (!strcmp(d->id, c->params.id) && !strcmp(d->sandbox, c->params.name))
			return d;
	}
	return NULL;
}

static int not_there(const struct http_call *c, struct ak_err *err)
{
	return ak_fail(err, ENOENT, "sandbox '%s' has no background command '%.40s'", c->params.name, c->params.id);
}

/* Returns NULL after answering 404. */
static struct http_detached *find(struct http_call *c)
{
	struct http_detached *d = look_up(c);
	struct ak_err err;

	if (!d && not_there(c, &err) < 0)
		http_reply_error(c, 404, "%s", err.text);
	return d;
}

void http_handle_detached_list(struct http_call *c)
{
	_cleanup_strbuf_ struct strbuf out = { 0 };
	const struct http_detached *d;
	char path[PATH_MAX];

	if (state_path(c->s->paths, c->params.name, "sandbox.json", path) < 0 || access(path, F_OK) < 0) {
		http_reply_error(c, 404, "no sandbox named '%s'", c->params.name);
		return;
	}
	strbuf_putc(&out, '[');
	TAILQ_FOREACH(d, &c->s->detached, link) {
		if (strcmp(d->sandbox, c->params.name) != 0)
			continue;
		if (out.len > 1)
			strbuf_putc(&out, ',');
		put_detached(&out, d);
	}
	strbuf_putc(&out, ']');
	reply(c, 200, &out);
}

void http_handle_detached_get(struct http_call *c)
{
	_cleanup_strbuf_ struct strbuf out = { 0 };
	const struct http_detached *d = find(c);

	if (!d)
		return;
	put_detached(&out, d);
	reply(c, 200, &out);
}

/* Runs in a worker, on its own copy of the output: escaping two full streams of control characters takes long. */
void http_work_detached_logs(struct http_call *c, struct work *w)
{
	static const char *const names[] = { "stdout", "stderr" };
	_cleanup_strbuf_ struct strbuf out = { 0 };
	const char *only = http_request_query(&c->req, "stream");
	const struct http_detached *d = look_up(c);
	struct ak_err err;

	if (!d) {
		work_fail(w, not_there(c, &err), &err);
		return;
	}
	strbuf_printf(&out, "{\"truncated\":%s", d->cut ? "true" : "false");
	for (int i = 0; i < 2; i++) {
		const struct strbuf *text = &d->streams[i];
		size_t n = text->len < KEEP_BYTES ? text->len : KEEP_BYTES;

		if (only && strcmp(only, names[i]) != 0)
			continue;
		strbuf_printf(&out, ",\"%s\":", names[i]);
		strbuf_json_utf8(&out, n ? text->data + text->len - n : "", n);
	}
	strbuf_putc(&out, '}');
	work_end_buf(w, 0, &out, NULL);
}

void http_handle_detached_kill(struct http_call *c)
{
	struct http_detached *d = find(c);
	bool ran = d && d->job;

	if (!d)
		return;
	if (ran)
		http_job_cancel(d->job);
	http_reply_data(c, 200, ran ? "\"killed\"" : "\"it had ended already\"", ran ? 8 : 22);
}
