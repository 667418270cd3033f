/*
 * Workers: each job forks a process that calls blocking service verbs and exits. See http/http.h.
 *
 * The worker's stdout and stderr are pipes to us (a command's output passes through them unchanged); the result comes on a third pipe
 * (service/worker.h). A job ends when its process exits, not at end of file: another process may outlive the worker and keep writing to its
 * pipes. So after the exit we read only what the pipes hold at that moment. When the output of a job takes too much of the server's
 * time, we stop reading from it for a while: the job rests.
 */
#include "gateway/http/http.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define RESULT_MAX (25u << 20) /* enough for a file of 16 MiB as base64 and its frame, or for a log */
#define READ_SIZE 16384 /* small, because escaping control characters makes it six times as long while other clients wait */
#define WINDOW_US 1000
#define SHARE_US 200 /* time per window for the output of all jobs; the rest is for requests */
#define READ_COST_US 5 /* event loop overhead of each read */

static void start(struct http_job *j);
static void try_finish(struct http_job *j);

/* ---- reading ---- */

/* Pass complete UTF-8 characters to ops->output. Keep an incomplete one for the next read, unless AT_END. */
static void hand_on(struct http_job *j, int pipe, char *data, size_t len, bool at_end)
{
	size_t tail = 0;

	/* Find a lead byte among the last three whose sequence is incomplete. */
	for (size_t back = 1; !at_end && back <= 3 && back <= len; back++) {
		unsigned char c = (unsigned char)data[len - back];
		size_t need = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : c >= 0xc0 ? 2 : 1;

		if ((c & 0xc0) == 0x80)
			continue;
		tail = need > back ? back : 0;
		break;
	}
	memcpy(j->pipes[pipe].carry, data + len - tail, tail);
	j->pipes[pipe].n_carry = tail;
	if (len > tail)
		j->ops->output(j, (enum http_pipe)pipe, data, len - tail);
}

static void take(struct http_job *j, int pipe, const char *data, size_t len)
{
	char buf[READ_SIZE + 4];
	size_t kept = j->pipes[pipe].n_carry;

	if (pipe == HTTP_PIPE_RESULT) {
		j->s->held -= j->worker.frame.len;
		worker_take(&j->worker, data, len, RESULT_MAX);
		j->s->held += j->worker.frame.len;
		return;
	}
	if (!j->ops->output)
		return;
	memcpy(buf, j->pipes[pipe].carry, kept);
	memcpy(buf + kept, data, len);
	hand_on(j, pipe, buf, kept + len, false);
}

static void close_pipe(struct http_job *j, int pipe)
{
	if (j->pipes[pipe].on_read)
		event_free(j->pipes[pipe].on_read);
	j->pipes[pipe].on_read = NULL;
	j->pipes[pipe].fd = ak_close(j->pipes[pipe].fd);
}

/* Read once, at most MAX bytes. Returns the number of bytes, 0 when there are none now. */
static size_t read_once(struct http_job *j, int pipe, size_t max)
{
	char buf[READ_SIZE];
	ssize_t n = j->pipes[pipe].fd < 0 ? -1 : read(j->pipes[pipe].fd, buf, max < sizeof(buf) ? max : sizeof(buf));

	if (n > 0) {
		take(j, pipe, buf, (size_t)n);
		return (size_t)n;
	}
	if (j->pipes[pipe].fd >= 0 && !(n < 0 && (errno == EAGAIN || errno == EINTR)))
		close_pipe(j, pipe);
	return 0;
}

/* Enable or disable the read events, depending on the state of the job. */
static void watch_pipes(struct http_job *j)
{
	for (int i = 0; i < HTTP_PIPE_NUM; i++) {
		if (!j->pipes[i].on_read)
			continue;
		if (j->exited || j->resting || (j->paused && i != HTTP_PIPE_RESULT))
			event_del(j->pipes[i].on_read);
		else
			event_add(j->pipes[i].on_read, NULL);
	}
}

static void set_resting(struct http_job *j, bool resting)
{
	struct timeval tv = { 0, WINDOW_US };

	if (j->resting == resting)
		return;
	j->resting = resting;
	j->s->n_resting += resting ? 1 : -1;
	if (resting)
		event_add(j->on_rest, &tv);
	else
		event_del(j->on_rest);
	watch_pipes(j);
}

static void on_rest(evutil_socket_t fd, short what, void *arg)
{
	struct http_job *j = arg;

	set_resting(j, false);
	if (j->exited)
		try_finish(j);
}

/* Account the time since BEGAN_US; a job over its share rests. The more jobs rest, the smaller the share of each. */
static void spend(struct http_job *j, uint64_t began_us)
{
	uint64_t now = ak_now_us();

	if (began_us - j->window_us >= WINDOW_US) {
		j->window_us = began_us;
		j->spent_us = 0;
	}
	j->spent_us += now - began_us + READ_COST_US;
	if (j->spent_us * (j->s->n_resting + 1) > SHARE_US)
		set_resting(j, true);
}

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
	struct http_job *j = arg;
	uint64_t began = ak_now_us();

	for (int i = 0; i < HTTP_PIPE_NUM; i++) {
		if (j->pipes[i].fd == fd) {
			read_once(j, i, READ_SIZE);
			break;
		}
	}
	spend(j, began);
}

void http_job_pause(struct http_job *j, bool paused)
{
	if (j->paused == paused)
		return;
	j->paused = paused;
	watch_pipes(j);
	if (!paused && j->exited && !j->resting)
		try_finish(j);
}

/* ---- the queue ---- */

static size_t *counter_of(struct http_job *j)
{
	return j->ops->kind == HTTP_JOB ? &j->s->n_jobs : j->ops->kind == HTTP_JOB_FOLLOW ? &j->s->n_followers : NULL;
}

static void start_waiting(struct http_server *s)
{
	struct http_job *j;

	while (s->n_jobs < HTTP_JOBS_MAX && (j = TAILQ_FIRST(&s->waiting))) {
		TAILQ_REMOVE(&s->waiting, j, link);
		s->n_waiting--;
		start(j);
	}
}

static void free_job(struct http_job *j)
{
	for (int i = 0; i < HTTP_PIPE_NUM; i++)
		close_pipe(j, i);
	if (j->on_kill)
		event_free(j->on_kill);
	if (j->on_rest)
		event_free(j->on_rest);
	j->s->held -= j->worker.frame.len;
	strbuf_done(&j->worker.frame);
	free(j);
}

/* End the job with the worker's result, or with the reason why there is none. */
static void finish(struct http_job *j)
{
	struct http_server *s = j->s;
	const char *payload = "cancelled";
	size_t len = strlen(payload);
	int rc = j->cancelled ? -ECANCELED : worker_result(&j->worker, &payload, &len);

	TAILQ_REMOVE(&s->jobs, j, link);
	if (counter_of(j))
		--*counter_of(j);
	j->ops->end(j, rc, payload, len);
	free_job(j);
	start_waiting(s);
}

/* Count the bytes in the pipes now. Anything written later is ignored. */
static void count_rest(struct http_job *j)
{
	for (int i = 0; i < HTTP_PIPE_NUM; i++) {
		int n = 0;

		if (j->pipes[i].fd >= 0 && ioctl(j->pipes[i].fd, FIONREAD, &n) == 0 && n > 0)
			j->pipes[i].rest = (size_t)n;
	}
}

/* Read the counted bytes. False: the job is paused or rests, and continues later. */
static bool read_rest(struct http_job *j, int pipe)
{
	while (j->pipes[pipe].rest > 0 && !j->resting && (!j->paused || pipe == HTTP_PIPE_RESULT)) {
		uint64_t began = ak_now_us();
		size_t n = read_once(j, pipe, j->pipes[pipe].rest);

		j->pipes[pipe].rest = n ? j->pipes[pipe].rest - n : 0;
		spend(j, began);
	}
	return j->pipes[pipe].rest == 0;
}

static void try_finish(struct http_job *j)
{
	if (!read_rest(j, HTTP_PIPE_RESULT) || !read_rest(j, HTTP_PIPE_OUT) || !read_rest(j, HTTP_PIPE_ERR) || j->paused)
		return;
	set_resting(j, false);
	for (int i = 0; i < HTTP_PIPE_RESULT && j->ops->output; i++) {
		char rest[4];
		size_t n = j->pipes[i].n_carry;

		memcpy(rest, j->pipes[i].carry, n);
		if (n)
			hand_on(j, i, rest, n, true);
	}
	finish(j);
}

static void on_exit_of(struct http_job *j)
{
	j->exited = true;
	if (j->on_kill)
		event_del(j->on_kill);
	set_resting(j, false);
	watch_pipes(j);
	count_rest(j);
	try_finish(j);
}

void http_jobs_reap(struct http_server *s)
{
	for (;;) {
		struct http_job *j;
		pid_t pid = waitpid(-1, NULL, WNOHANG);

		if (pid <= 0)
			return;
		TAILQ_FOREACH(j, &s->jobs, link) {
			if (j->worker.pid == pid && !j->exited)
				break;
		}
		if (j)
			on_exit_of(j);
	}
}

/* ---- starting ---- */

static void give_up(struct http_job *j, const struct ak_err *why)
{
	TAILQ_REMOVE(&j->s->jobs, j, link);
	if (counter_of(j))
		--*counter_of(j);
	j->ops->end(j, -EIO, why->text, strlen(why->text));
	free_job(j);
}

/* Take over FD, the reading end. */
static int watch_pipe(struct http_job *j, int pipe, int fd)
{
	j->pipes[pipe].fd = fd;
	j->pipes[pipe].on_read = event_new(j->s->base, fd, EV_READ | EV_PERSIST, on_readable, j);
	return j->pipes[pipe].on_read && event_add(j->pipes[pipe].on_read, NULL) == 0 ? 0 : -ENOMEM;
}

static int open_pipe(struct http_job *j, int pipe, int *far)
{
	int fds[2];

	if (pipe2(fds, O_CLOEXEC) < 0)
		return -errno;
	*far = fds[1];
	ak_set_nonblock(fds[0], true);
	return watch_pipe(j, pipe, fds[0]);
}

static int start_worker(struct http_job *j, struct worker_spec *spec, struct ak_err *err)
{
	int rc = j->on_rest ? open_pipe(j, HTTP_PIPE_OUT, &spec->out) : -ENOMEM;

	if (rc == 0)
		rc = open_pipe(j, HTTP_PIPE_ERR, &spec->err);
	if (rc < 0)
		return ak_fail_errno(err, -rc, "cannot start a worker");
	rc = worker_start(&j->worker, spec, err);
	if (rc == 0 && watch_pipe(j, HTTP_PIPE_RESULT, TAKE_FD(j->worker.fd)) < 0) {
		worker_done(&j->worker);
		rc = ak_fail(err, ENOMEM, "out of memory");
	}
	return rc;
}

static void start(struct http_job *j)
{
	struct worker_spec spec = { .work = j->ops->work, .ctx = j->ctx, .out = -1, .err = -1, .keep = -1 };
	struct ak_err err;
	int rc;

	TAILQ_INSERT_TAIL(&j->s->jobs, j, link);
	if (counter_of(j))
		++*counter_of(j);
	j->on_rest = event_new(j->s->base, -1, 0, on_rest, j);
	rc = start_worker(j, &spec, &err);
	ak_close(spec.out);
	ak_close(spec.err);
	if (rc < 0)
		give_up(j, &err);
	else if (j->ops->started)
		j->ops->started(j);
}

/* Are there too many jobs of this kind? Ordinary jobs queue, and are refused only when the queue is full. */
static bool too_many(const struct http_server *s, enum http_job_kind kind)
{
	switch (kind) {
	case HTTP_JOB:
		return s->n_jobs >= HTTP_JOBS_MAX && s->n_waiting >= HTTP_QUEUE_MAX;
	case HTTP_JOB_FOLLOW:
		return s->n_followers >= HTTP_FOLLOWERS_MAX;
	case HTTP_JOB_DETACHED:
		return false; /* http/detach.c counts them */
	}
	return true;
}

struct http_job *http_job_new(struct http_server *s, const struct http_job_ops *ops, void *ctx)
{
	struct http_job *j = too_many(s, ops->kind) || s->stopping ? NULL : calloc(1, sizeof(*j));

	if (!j) {
		s->stats.refused_busy++;
		return NULL;
	}
	j->s = s;
	j->ops = ops;
	j->ctx = ctx;
	j->worker.fd = -1;
	for (int i = 0; i < HTTP_PIPE_NUM; i++)
		j->pipes[i].fd = -1;
	TAILQ_INSERT_TAIL(&s->waiting, j, link);
	s->n_waiting++;
	return j;
}

void http_job_go(struct http_job *j)
{
	if (j->ops->kind == HTTP_JOB) {
		start_waiting(j->s);
		return;
	}
	TAILQ_REMOVE(&j->s->waiting, j, link);
	j->s->n_waiting--;
	start(j);
}

/* ---- ending early ---- */

static void on_kill(evutil_socket_t fd, short what, void *arg)
{
	struct http_job *j = arg;
	uint64_t now = ak_now_ms();
	struct timeval tv = { 0 };

	if (j->exited)
		return;
	worker_end(&j->worker, now);
	tv.tv_sec = (time_t)(j->worker.next_ms - now) / 1000;
	tv.tv_usec = (suseconds_t)(j->worker.next_ms - now) % 1000 * 1000;
	event_add(j->on_kill, &tv);
}

void http_job_cancel(struct http_job *j)
{
	struct http_server *s = j->s;

	bool exited = j->exited;

	if (j->cancelled)
		return;
	j->cancelled = true;
	if (!j->worker.pid) {
		TAILQ_REMOVE(&s->waiting, j, link);
		s->n_waiting--;
		j->ops->end(j, -ECANCELED, "cancelled", 9);
		free_job(j);
		return;
	}
	http_job_pause(j, false); /* nobody reads the output any more; a job whose worker has exited ends here */
	if (exited)
		return;
	j->on_kill = event_new(s->base, -1, 0, on_kill, j);
	if (j->on_kill)
		on_kill(-1, 0, j);
	else
		kill(j->worker.pid, SIGKILL);
}

void http_jobs_kill(struct http_server *s)
{
	struct http_job *j, *next;

	for (j = TAILQ_FIRST(&s->waiting); j; j = next) {
		next = TAILQ_NEXT(j, link);
		http_job_cancel(j);
	}
	for (j = TAILQ_FIRST(&s->jobs); j; j = next) {
		next = TAILQ_NEXT(j, link);
		http_job_cancel(j);
	}
}

/* ---- http_call_work ---- */

static void call_work(void *ctx, struct work *w)
{
	struct http_call *c = ctx;

	c->route->work(c, w);
}

static void call_end(struct http_job *j, int rc, const char *payload, size_t len)
{
	struct http_call *c = j->ctx;

	if (rc == 0 && c->route->work == http_work_remove)
		http_detached_forget(c->s, c->params.name);
	http_reply_result(c, rc, payload, len, j);
}

void http_call_job(struct http_call *c, const struct http_job_ops *ops)
{
	struct http_job *j = http_job_new(c->s, ops, c);

	if (j)
		http_job_go(j);
	else
		http_reply_error(c, 429, "too busy: try again soon");
}

void http_call_work(struct http_call *c)
{
	static const struct http_job_ops ops = { .kind = HTTP_JOB, .work = call_work, .end = call_end };

	http_call_job(c, &ops);
}
