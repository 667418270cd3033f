/* Routes that run commands: /run, /run/stream, /batch/run and exec. See http/http.h. */
#include "gateway/http/http.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/http/task.h"

#include <errno.h>
#include <event2/buffer.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define BATCH_OUTPUT_MAX (1u << 20) /* limit for one command of a batch */
#define PIECE 4096 /* bytes of output in one event; escaping makes them up to six times as long */

struct http_batch {
	struct http_call *call; /* borrowed; we end it */
	size_t n, left;
	struct http_task **tasks; /* owned */
	bool building;
};

/* ---- tasks ---- */

static void kept_done(struct http_kept *k)
{
	if (!k->text)
		return;
	evbuffer_drain(k->text, evbuffer_get_length(k->text));
	evbuffer_free(k->text);
}

static void task_free(struct http_task *t)
{
	kept_done(&t->out);
	kept_done(&t->err);
	kept_done(&t->both);
	run_report_done(&t->report);
	free(t);
}

static size_t batch_share(const struct http_batch *b)
{
	size_t share = HTTP_BATCH_MAX / b->n;

	return share < BATCH_OUTPUT_MAX ? share : BATCH_OUTPUT_MAX;
}

static size_t room_of(const struct http_task *t, const struct http_kept *k, size_t max)
{
	size_t len = k->text ? evbuffer_get_length(k->text) : 0;

	return k->cut || t->s->held > HTTP_HELD_MAX || len > max ? 0 : max - len;
}

/* Append TEXT, the JSON-escaped DATA, to K as far as ROOM allows. WHOLE is false when TEXT was cut already. */
static void keep(struct http_task *t, struct http_kept *k, size_t room, const struct strbuf *text, bool whole, const char *data,
	size_t len)
{
	_cleanup_strbuf_ struct strbuf part = { 0 };

	k->cut = k->cut || !whole || text->len > room;
	if (text->len > room) {
		strbuf_json_part(&part, data, len, room);
		text = &part;
	}
	if (!k->text && (k->text = evbuffer_new()))
		http_hold(t->s, k->text);
	if (!k->text || text->failed || (text->len && evbuffer_add(k->text, text->data, text->len) < 0))
		k->cut = true;
}

/* Escape output as it arrives, so that answering takes little time at the end. */
static void keep_output(struct http_job *j, enum http_pipe pipe, const char *data, size_t len)
{
	_cleanup_strbuf_ struct strbuf text = { 0 };
	struct http_task *t = j->ctx;
	struct http_kept *one = t->batch ? NULL : pipe == HTTP_PIPE_OUT ? &t->out : &t->err;
	size_t max = t->output_max, share = t->batch ? batch_share(t->batch) : max;
	size_t both_room = room_of(t, &t->both, share < max ? share : max);
	size_t one_room = one ? room_of(t, one, max) : 0;
	bool whole = strbuf_json_part(&text, data, len, one_room > both_room ? one_room : both_room) == len;

	if (one)
		keep(t, one, one_room, &text, whole, data, len);
	keep(t, &t->both, both_room, &text, whole, data, len);
}

static bool is_cut(const struct http_task *t)
{
	return t->out.cut || t->err.cut || t->both.cut;
}

/* Decode the report into the task and count the run. Returns 0, or a negative errno with the reason in T->why when the command did not run. */
static int take_report(struct http_task *t, int rc, const char *payload, size_t len)
{
	t->rc = http_report_take(rc, payload, len, &t->report, &t->why);
	if (t->rc < 0)
		return t->rc;
	t->s->stats.runs++;
	if (t->report.outcome.has_net)
		http_stats_run(&t->s->stats, t->mode, &t->report.outcome.net);
	return 0;
}

/* ---- one answer ---- */

static void put_kept(struct evbuffer *out, const char *key, struct http_kept *k)
{
	evbuffer_add_printf(out, "\"%s\":\"", key);
	if (k->text)
		evbuffer_add_buffer(out, k->text);
	evbuffer_add(out, "\",", 2);
}

/* Append the members of the report, after those of the output. */
static void put_report(struct evbuffer *out, const struct http_task *t)
{
	_cleanup_strbuf_ struct strbuf text = { 0 };

	if (is_cut(t))
		strbuf_puts(&text, "\"truncated\":true,");
	run_report_put(&text, &t->report);
	strbuf_putc(&text, ',');
	run_report_put_network(&text, &t->report);
	if (text.failed)
		evbuffer_add_printf(out, "\"exit_code\":%d", t->report.outcome.exit_code);
	else
		evbuffer_add(out, text.data, text.len);
}

static void reply_report(struct http_task *t)
{
	struct evbuffer *out = evbuffer_new();

	if (out) {
		evbuffer_add(out, "{", 1);
		put_kept(out, "output", &t->both);
		put_kept(out, "stdout", &t->out);
		put_kept(out, "stderr", &t->err);
		put_report(out, t);
		evbuffer_add(out, "}", 1);
	}
	http_reply_buffer(t->call, 200, out);
}

static void whole_end(struct http_job *j, int rc, const char *payload, size_t len)
{
	struct http_task *t = j->ctx;

	if (take_report(t, rc, payload, len) == 0)
		reply_report(t);
	else
		http_reply_failure(t->call, t->rc, t->why.text, strlen(t->why.text));
	task_free(t);
}

static void task_gone(struct http_call *c)
{
	struct http_task *t = c->ctx;

	http_job_cancel(t->job);
}

/* Returns NULL on failure, with ERR set. */
static struct http_task *task_new(struct http_call *c, const cJSON *spec, struct ak_err *err)
{
	struct http_task *t = calloc(1, sizeof(*t));
	uint32_t number = 0;
	int rc = t ? 0 : ak_fail(err, ENOMEM, "out of memory");

	if (rc == 0) {
		t->s = c->s;
		t->call = c;
		t->spec = spec;
		t->output_max = (size_t)json_number(spec, "output_limit_bytes", HTTP_OUTPUT_MAX);
	}
	if (rc == 0 && !c->params.name) {
		if (getrandom(&number, sizeof(number), 0) != sizeof(number))
			rc = ak_fail_errno(err, errno, "no random number");
		snprintf(t->name, sizeof(t->name), "run-%08x", number);
		if (rc == 0)
			rc = http_task_check(t, err);
	} else if (rc == 0) {
		snprintf(t->name, sizeof(t->name), "%s", c->params.name);
	}
	if (rc < 0 && t)
		task_free(t);
	return rc < 0 ? NULL : t;
}

static struct http_task *task_for(struct http_call *c, const struct http_job_ops *ops)
{
	struct ak_err err;
	struct http_task *t = task_new(c, c->body, &err);

	if (!t) {
		http_reply_error(c, 400, "%s", err.text);
		return NULL;
	}
	t->job = http_job_new(c->s, ops, t);
	if (!t->job) {
		task_free(t);
		http_reply_error(c, 429, "too busy: try again soon");
		return NULL;
	}
	c->ctx = t;
	c->gone = task_gone;
	return t;
}

void http_handle_run(struct http_call *c)
{
	static const struct http_job_ops ops = { HTTP_JOB, http_task_run, NULL, keep_output, whole_end };
	struct http_task *t = task_for(c, &ops);

	if (t)
		http_job_go(t->job);
}

static void exec_work(void *ctx, struct work *w)
{
	struct http_task *t = ctx;

	http_exec_work(t->s->paths, t->name, t->spec, w);
}

void http_handle_exec(struct http_call *c)
{
	static const struct http_job_ops ops = { HTTP_JOB, exec_work, NULL, keep_output, whole_end };
	struct http_task *t = task_for(c, &ops);

	if (t)
		http_job_go(t->job);
}

/* ---- streaming ---- */

static void say(struct http_task *t, const char *event, const char *key, const char *text, size_t len, const char *more)
{
	_cleanup_strbuf_ struct strbuf out = { 0 };

	strbuf_printf(&out, "{\"%s\":", key);
	strbuf_json_utf8(&out, text, len);
	strbuf_printf(&out, "%s}", more);
	if (!out.failed)
		http_stream_event(t->call, event, out.data, out.len);
}

static void stream_started(struct http_job *j)
{
	struct http_task *t = j->ctx;

	say(t, "started", "sandbox", t->name, strlen(t->name), "");
	say(t, "progress", "stage", "starting", 8, "");
}

static void stream_output(struct http_job *j, enum http_pipe pipe, const char *data, size_t len)
{
	struct http_task *t = j->ctx;
	const char *stream = pipe == HTTP_PIPE_OUT ? ",\"stream\":\"stdout\"" : ",\"stream\":\"stderr\"";

	while (len > 0) {
		size_t n = len < PIECE ? len : PIECE;

		while (n < len && n > PIECE - 4 && ((unsigned char)data[n] & 0xc0) == 0x80)
			n--;
		say(t, "output", "data", data, n, stream);
		data += n;
		len -= n;
	}
	if (http_stream_behind(t->call))
		http_job_pause(j, true);
}

static void stream_drained(struct http_call *c)
{
	struct http_task *t = c->ctx;

	http_job_pause(t->job, false);
}

static void stream_end(struct http_job *j, int rc, const char *payload, size_t len)
{
	struct http_task *t = j->ctx;
	_cleanup_strbuf_ struct strbuf out = { 0 };

	t->call->drained = NULL;
	if (take_report(t, rc, payload, len) == 0) {
		strbuf_puts(&out,
			"{\"success\":true,"); /* as in every answer: the request worked, the exit code tells of the command */
		run_report_put(&out, &t->report);
		strbuf_putc(&out, ',');
		run_report_put_network(&out, &t->report);
		strbuf_putc(&out, '}');
		if (!out.failed)
			http_stream_event(t->call, "done", out.data, out.len);
	} else {
		say(t, "error", "message", t->why.text, strlen(t->why.text), "");
	}
	http_stream_end(t->call);
	task_free(t);
}

void http_handle_run_stream(struct http_call *c)
{
	static const struct http_job_ops ops = { HTTP_JOB, http_task_run, stream_started, stream_output, stream_end };
	struct http_task *t = task_for(c, &ops);

	if (!t)
		return;
	c->drained = stream_drained;
	http_stream_begin(c);
	if (c->s->n_jobs >= HTTP_JOBS_MAX)
		say(t, "progress", "stage", "queued", 6, "");
	http_job_go(t->job);
}

/* ---- batches ---- */

static void put_batch_row(struct evbuffer *out, struct http_task *t)
{
	_cleanup_strbuf_ struct strbuf why = { 0 };

	if (t->rc < 0) {
		strbuf_json_utf8(&why, t->why.text, strlen(t->why.text));
		evbuffer_add_printf(
			out, "{\"output\":null,\"error\":%s,\"exit_code\":null}", why.failed ? "\"out of memory\"" : why.data);
		return;
	}
	evbuffer_add(out, "{", 1);
	put_kept(out, "output", &t->both);
	evbuffer_add_printf(out, "\"error\":null,");
	put_report(out, t);
	evbuffer_add(out, "}", 1);
}

static void batch_finish(struct http_batch *b)
{
	struct evbuffer *out;

	if (b->left || b->building)
		return;
	out = evbuffer_new();
	if (out)
		evbuffer_add_printf(out, "{\"results\":[");
	for (size_t i = 0; i < b->n; i++) {
		if (i && out)
			evbuffer_add(out, ",", 1);
		if (out)
			put_batch_row(out, b->tasks[i]);
		task_free(b->tasks[i]);
	}
	if (out)
		evbuffer_add(out, "]}", 2);
	http_reply_buffer(b->call, 200, out);
	free(b->tasks);
	free(b);
}

static void batch_end(struct http_job *j, int rc, const char *payload, size_t len)
{
	struct http_task *t = j->ctx;

	t->job = NULL;
	(void)take_report(t, rc, payload, len); /* kept in the task */
	t->batch->left--;
	batch_finish(t->batch);
}

static void batch_gone(struct http_call *c)
{
	struct http_batch *b = c->ctx;

	b->building = true; /* keep batch_finish from freeing the batch in this loop */
	for (size_t i = 0; i < b->n; i++) {
		if (b->tasks[i]->job)
			http_job_cancel(b->tasks[i]->job);
	}
	b->building = false;
	batch_finish(b);
}

static int batch_fill(struct http_batch *b, const cJSON *list, struct ak_err *err)
{
	const cJSON *spec;

	b->tasks = calloc((size_t)cJSON_GetArraySize(list), sizeof(*b->tasks));
	if (!b->tasks)
		return ak_fail(err, ENOMEM, "out of memory");
	cJSON_ArrayForEach(spec, list) {
		struct http_task *t = task_new(b->call, spec, err);

		if (!t)
			return ak_err_prefix(err, -EINVAL, "commands[%zu]", b->n);
		t->batch = b;
		b->tasks[b->n++] = t;
	}
	return 0;
}

static void batch_start(struct http_batch *b)
{
	static const struct http_job_ops ops = { HTTP_JOB, http_task_run, NULL, keep_output, batch_end };

	b->building = true;
	b->left = b->n;
	for (size_t i = 0; i < b->n; i++)
		b->tasks[i]->job = http_job_new(b->call->s, &ops, b->tasks[i]);
	for (size_t i = 0; i < b->n; i++) {
		struct http_task *t = b->tasks[i];

		if (t->job) {
			http_job_go(t->job);
			continue;
		}
		t->rc = ak_fail(&t->why, EAGAIN, "too busy: try again soon");
		b->left--;
	}
	b->building = false;
	batch_finish(b);
}

void http_handle_batch(struct http_call *c)
{
	struct http_batch *b = calloc(1, sizeof(*b));
	struct ak_err err;

	if (!b) {
		http_reply_error(c, 500, "out of memory");
		return;
	}
	b->call = c;
	if (batch_fill(b, cJSON_GetObjectItemCaseSensitive(c->body, "commands"), &err) < 0) {
		for (size_t i = 0; i < b->n; i++)
			task_free(b->tasks[i]);
		free(b->tasks);
		free(b);
		http_reply_error(c, 400, "%s", err.text);
		return;
	}
	c->ctx = b;
	c->gone = batch_gone;
	batch_start(b);
}
