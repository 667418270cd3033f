/*
 * Workers: a fork a job, which calls blocking service verbs and ends. See http.h.
 *
 * Its standard output and error are pipes to us (a command's own output flows through them untouched); the answer comes on a third one:
 * "STATUS " and then JSON, or a reason. A job has ended when its process has: a pipe may be held open by something that outlives it, so what is
 * in the pipes by then is read and the rest is not waited for.
 */
#include "gateway/http.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"

#include <assert.h>
#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define RESULT_MAX (96u << 20) /* a file of 64 MiB as base64 and its frame */
#define READ_SIZE 65536
#define RESULT_HEAD 4 /* three digits and a blank */

static void start(struct http_job *j);
static void try_finish(struct http_job *j);

/* ---- in the worker ---- */

void http_work_data(struct http_work *w, unsigned status, const char *json, size_t len)
{
	char head[16];

	snprintf(head, sizeof(head), "%u ", status);
	if (ak_write_all(w->fd, head, strlen(head)) == 0)
		(void)ak_write_all(w->fd, json, len);
	w->said = true;
}

/* File names and the like may be any bytes; JSON may not. */
static void put_clean(struct strbuf *out, const char *text, size_t len)
{
	size_t start = 0;

	for (size_t i = 0, n; i < len; i += n ? n : 1) {
		n = ak_utf8_length((const unsigned char *)text + i, len - i);
		if (n)
			continue;
		strbuf_add(out, text + start, i - start);
		strbuf_puts(out, "\xef\xbf\xbd");
		start = i + 1;
	}
	strbuf_add(out, text + start, len - start);
}

void http_work_json(struct http_work *w, unsigned status, const cJSON *json)
{
	_cleanup_free_ char *text = json ? cJSON_PrintUnformatted(json) : NULL;
	_cleanup_strbuf_ struct strbuf clean = { 0 };

	if (text)
		put_clean(&clean, text, strlen(text));
	if (!text || clean.failed)
		http_work_data(w, 500, "out of memory", 13);
	else
		http_work_data(w, status, clean.data, clean.len);
}

void http_work_text(struct http_work *w, unsigned status, const char *text)
{
	_cleanup_strbuf_ struct strbuf out = { 0 };

	strbuf_json_utf8(&out, text, strlen(text));
	if (!out.failed)
		http_work_data(w, status, out.data, out.len);
}

unsigned http_status_of(int rc)
{
	switch (-rc) {
	case EINVAL:
	case ENOTSUP:
	case ENOTDIR:
	case EISDIR:
	case ELOOP:
	case E2BIG:
	case ENAMETOOLONG:
	case EXDEV:
	case EACCES:
	case EPERM:
	case ERANGE:
		return 400;
	case ENOENT:
		return 404;
	case EEXIST:
	case EALREADY:
	case ESRCH:
	case EBUSY:
	case ENOTEMPTY:
		return 409;
	case EFBIG:
		return 413;
	case EAGAIN:
		return 429;
	default:
		return 500;
	}
}

void http_work_fail(struct http_work *w, int rc, const struct ak_err *err)
{
	http_work_data(w, http_status_of(rc), err->text, strlen(err->text));
}

/* The rest of the process's life. Descriptors of other clients must not be held open by this one. */
_Noreturn static void be_worker(struct http_job *j, const int fds[HTTP_PIPE_NUM], pid_t parent)
{
	struct http_work w = { .fd = fds[HTTP_PIPE_RESULT], .paths = j->s->paths };
	struct sigaction dfl = { .sa_handler = SIG_DFL };
	sigset_t none;

	prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (getppid() != parent)
		_exit(1);
	ak_close_others(fds, HTTP_PIPE_NUM);
	if (dup2(fds[HTTP_PIPE_OUT], 1) < 0 || dup2(fds[HTTP_PIPE_ERR], 2) < 0)
		_exit(1);
	ak_close(fds[HTTP_PIPE_OUT]);
	ak_close(fds[HTTP_PIPE_ERR]);
	sigaction(SIGPIPE, &dfl, NULL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	j->ops->work(j->ctx, &w);
	_exit(w.said ? 0 : 1);
}

/* ---- reading ---- */

/* Hand on whole characters; keep the start of one that is cut, unless AT_END. */
static void hand_on(struct http_job *j, int pipe, char *data, size_t len, bool at_end)
{
	size_t tail = 0;

	/* A lead byte in the last three whose sequence is not complete yet. */
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
		if (j->result.len + len <= RESULT_MAX)
			strbuf_add(&j->result, data, len);
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

/* One read; false when there is nothing more for now. */
static bool read_once(struct http_job *j, int pipe)
{
	char buf[READ_SIZE];
	ssize_t n = j->pipes[pipe].fd < 0 ? -1 : read(j->pipes[pipe].fd, buf, sizeof(buf));

	if (n > 0) {
		take(j, pipe, buf, (size_t)n);
		return true;
	}
	if (j->pipes[pipe].fd >= 0 && !(n < 0 && (errno == EAGAIN || errno == EINTR)))
		close_pipe(j, pipe);
	return false;
}

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
	struct http_job *j = arg;

	(void)what;
	for (int i = 0; i < HTTP_PIPE_NUM; i++) {
		if (j->pipes[i].fd == fd) {
			read_once(j, i);
			return;
		}
	}
}

void http_job_pause(struct http_job *j, bool paused)
{
	if (j->paused == paused)
		return;
	j->paused = paused;
	for (int i = 0; i < HTTP_PIPE_RESULT; i++) {
		if (!j->pipes[i].on_read)
			continue;
		if (paused)
			event_del(j->pipes[i].on_read);
		else
			event_add(j->pipes[i].on_read, NULL);
	}
	if (!paused && j->exited)
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
	strbuf_done(&j->result);
	free(j);
}

/* "STATUS " and the answer; 0 when it is none. */
static unsigned status_of(const struct strbuf *result)
{
	unsigned status = 0;

	if (result->failed || result->len < RESULT_HEAD || result->data[RESULT_HEAD - 1] != ' ')
		return 0;
	for (int i = 0; i < RESULT_HEAD - 1; i++) {
		if (result->data[i] < '0' || result->data[i] > '9')
			return 0;
		status = status * 10 + (unsigned)(result->data[i] - '0');
	}
	return status >= 200 ? status : 0;
}

/* The last word: what the worker said, or what became of it. */
static void finish(struct http_job *j)
{
	struct http_server *s = j->s;
	unsigned status = status_of(&j->result);

	TAILQ_REMOVE(&s->jobs, j, link);
	if (counter_of(j))
		--*counter_of(j);
	if (j->cancelled)
		j->ops->end(j, 499, "cancelled", 9);
	else if (!status)
		j->ops->end(j, 500, "the worker ended without an answer", 34);
	else
		j->ops->end(j, status, j->result.data + RESULT_HEAD, j->result.len - RESULT_HEAD);
	free_job(j);
	start_waiting(s);
}

static void try_finish(struct http_job *j)
{
	while (read_once(j, HTTP_PIPE_RESULT))
		continue;
	for (int i = 0; i < HTTP_PIPE_RESULT; i++) {
		while (!j->paused && read_once(j, i))
			continue;
		if (j->paused)
			return; /* its reader is behind: go on when it has caught up */
	}
	for (int i = 0; i < HTTP_PIPE_RESULT && j->ops->output; i++) {
		char rest[4];
		size_t n = j->pipes[i].n_carry;

		memcpy(rest, j->pipes[i].carry, n);
		if (n)
			hand_on(j, i, rest, n, true);
	}
	finish(j);
}

void http_jobs_reap(struct http_server *s)
{
	for (;;) {
		struct http_job *j;
		pid_t pid = waitpid(-1, NULL, WNOHANG);

		if (pid <= 0)
			return;
		TAILQ_FOREACH(j, &s->jobs, link) {
			if (j->pid == pid)
				break;
		}
		if (!j)
			continue;
		j->exited = true;
		if (j->on_kill)
			event_del(j->on_kill);
		try_finish(j);
	}
}

/* ---- starting ---- */

static void give_up(struct http_job *j, const char *why)
{
	TAILQ_REMOVE(&j->s->jobs, j, link);
	if (counter_of(j))
		--*counter_of(j);
	j->ops->end(j, 500, why, strlen(why));
	free_job(j);
}

static int open_pipes(struct http_job *j, int far[HTTP_PIPE_NUM])
{
	for (int i = 0; i < HTTP_PIPE_NUM; i++) {
		int fds[2];

		if (pipe2(fds, O_CLOEXEC) < 0)
			return -errno;
		j->pipes[i].fd = fds[0];
		far[i] = fds[1];
		ak_set_nonblock(fds[0], true);
		j->pipes[i].on_read = event_new(j->s->base, fds[0], EV_READ | EV_PERSIST, on_readable, j);
		if (!j->pipes[i].on_read)
			return -ENOMEM;
		event_add(j->pipes[i].on_read, NULL);
	}
	return 0;
}

static void start(struct http_job *j)
{
	int far[HTTP_PIPE_NUM] = { -1, -1, -1 };
	pid_t parent = getpid();
	int rc;

	TAILQ_INSERT_TAIL(&j->s->jobs, j, link);
	if (counter_of(j))
		++*counter_of(j);
	rc = open_pipes(j, far);
	if (rc == 0) {
		j->pid = fork();
		if (j->pid == 0)
			be_worker(j, far, parent);
		rc = j->pid < 0 ? -errno : 0;
	}
	for (int i = 0; i < HTTP_PIPE_NUM; i++)
		ak_close(far[i]);
	if (rc < 0)
		give_up(j, strerror(-rc));
	else if (j->ops->started)
		j->ops->started(j);
}

/* Too many of its kind? What waits is refused only when too many wait. */
static bool too_many(const struct http_server *s, enum http_job_kind kind)
{
	switch (kind) {
	case HTTP_JOB:
		return s->n_jobs >= HTTP_JOBS_MAX && s->n_waiting >= HTTP_QUEUE_MAX;
	case HTTP_JOB_FOLLOW:
		return s->n_followers >= HTTP_FOLLOWERS_MAX;
	case HTTP_JOB_DETACHED:
		return false; /* counted by whoever keeps them */
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

/*
 * A run passes SIGTERM on and waits for its command to obey; the second SIGINT makes it kill the command and clean up. A worker that is
 * killed takes its sandbox along, but leaves its record unfinished: that is the last resort.
 */
static void on_kill(evutil_socket_t fd, short what, void *arg)
{
	static const struct {
		int sig;
		unsigned then_ms;
	} steps[] = { { SIGTERM, 250 }, { SIGINT, 50 }, { SIGINT, 500 }, { SIGKILL, 1000 } };
	struct http_job *j = arg;
	struct timeval tv = { 0 };

	(void)fd;
	(void)what;
	if (j->exited)
		return;
	kill(j->pid, steps[j->kill_step].sig);
	tv.tv_sec = steps[j->kill_step].then_ms / 1000;
	tv.tv_usec = steps[j->kill_step].then_ms % 1000 * 1000;
	if (j->kill_step + 1 < ARRAY_SIZE(steps))
		j->kill_step++;
	event_add(j->on_kill, &tv);
}

void http_job_cancel(struct http_job *j)
{
	struct http_server *s = j->s;

	bool exited = j->exited;

	if (j->cancelled)
		return;
	j->cancelled = true;
	if (!j->pid) {
		TAILQ_REMOVE(&s->waiting, j, link);
		s->n_waiting--;
		j->ops->end(j, 499, "cancelled", 9);
		free_job(j);
		return;
	}
	http_job_pause(j, false); /* nothing is kept for a reader any more; one that has exited ends here */
	if (exited)
		return;
	j->on_kill = event_new(s->base, -1, 0, on_kill, j);
	if (j->on_kill)
		on_kill(-1, 0, j);
	else
		kill(j->pid, SIGKILL);
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

/* ---- a route's own work ---- */

static void call_work(void *ctx, struct http_work *w)
{
	struct http_call *c = ctx;

	c->route->work(c, w);
}

static void call_end(struct http_job *j, unsigned status, const char *payload, size_t len)
{
	struct http_call *c = j->ctx;

	if (status < 400 && c->route->work == http_work_remove)
		http_detached_forget(c->s, c->params.name);
	if (status < 400)
		http_reply_data(c, status, payload, len);
	else
		http_reply_error(c, status == 499 ? 500 : status, "%.*s", (int)len, payload);
}

void http_call_work(struct http_call *c)
{
	static const struct http_job_ops ops = { .kind = HTTP_JOB, .work = call_work, .end = call_end };
	struct http_job *j = http_job_new(c->s, &ops, c);

	if (j)
		http_job_go(j);
	else
		http_reply_error(c, 429, "too busy: try again soon");
}
