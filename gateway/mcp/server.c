/*
 * The server's event loop: input, output, and the processes of the calls. See mcp/mcp.h.
 *
 * Nothing here blocks. Input is read as it arrives, but not while more than OUT_MAX bytes of output are unsent. Output is written in pieces that a
 * writable pipe takes at once, so the descriptor can stay in blocking mode (other processes may share it). At the end of the input, running
 * calls have a moment to finish; then we end them and exit.
 */
#include "gateway/mcp/run.h"
#include "gateway/mcp/session.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/service/worker.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#define OUT_MAX (8u << 20)
#define PIECE 4096 /* PIPE_BUF: a pipe that polls writable takes this much without blocking */
#define PROGRESS_MS 1000
#define FINISH_MS 700 /* time from the end of the input until running calls are ended */
#define LEAVE_MS 1900 /* time from the end of the input until we exit */
#define RESULT_MAX (64u << 20) /* more than any tool returns */
#define READS_MAX 16 /* consecutive reads of one pipe, enough to empty it, before others are served */

/* A call and the process that runs it. */
struct mcp_worker {
	struct mcp_worker *next;
	struct mcp_call *call; /* owned until it is answered */
	struct worker process; /* its pid is 0 while the call waits */
	uint64_t began_ms, deadline_ms, told_ms;
};

struct server {
	const struct mcp_ceiling *ceiling; /* borrowed */
	const struct ak_paths *paths; /* borrowed */
	struct mcp_owner owner;
	struct mcp_session session;
	int in, out, signal_fd;
	struct strbuf line; /* an incomplete line of input */
	bool skipping; /* inside a line that is too long */
	struct strbuf output;
	size_t written; /* bytes of the output buffer */
	struct mcp_worker *workers; /* owned; oldest first */
	size_t n_running, n_waiting, waiting_bytes;
	bool gone; /* the client has closed our output */
	uint64_t finish_ms, leave_ms; /* deadlines, set at the end of the input */
};

/* ---- output ---- */

static void on_send(void *ctx, const char *line, size_t len)
{
	struct server *s = ctx;

	if (!s->gone)
		strbuf_add(&s->output, line, len);
	if (s->output.failed)
		s->gone = true;
}

static void write_some(struct server *s)
{
	size_t left = s->output.len - s->written;
	ssize_t n = write(s->out, s->output.data + s->written, left < PIECE ? left : PIECE);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n < 0) {
		s->gone = true;
		s->written = s->output.len;
	} else {
		s->written += (size_t)n;
	}
	if (s->written == s->output.len) {
		strbuf_done(&s->output);
		s->written = 0;
	}
}

/* ---- calls ---- */

static void finish_call(struct server *s, struct mcp_worker *w, const char *failure)
{
	_cleanup_strbuf_ struct strbuf out = { 0 };
	struct mcp_result result = { 0 };
	const char *said;
	size_t len;

	if (!w->call)
		return;
	if (!failure && worker_result(&w->process, &said, &len) == 0) {
		mcp_call_done(TAKE(w->call), said);
		return;
	}
	mcp_fail(&result, "%s: %s", w->call->tool->name, failure ? failure : "the call ended without a result");
	mcp_result_print(&result, false, &out);
	mcp_call_done(TAKE(w->call), out.failed ? NULL : out.data);
	mcp_result_done(&result);
}

static void remove_worker(struct server *s, struct mcp_worker *w)
{
	struct mcp_worker **at = &s->workers;

	while (*at != w)
		at = &(*at)->next;
	*at = w->next;
	if (w->call)
		mcp_call_drop(w->call);
	worker_done(&w->process);
	free(w);
}

/* Prepare for what the call creates: it must be registered as ours before it exists. */
static int prepare(struct server *s, const struct mcp_tool *tool, struct ak_err *err)
{
	if (tool->run == mcp_do_run)
		return mcp_owner_new_run(&s->owner, err);
	return tool->makes && !s->ceiling->keep ? mcp_owner_guard(&s->owner, s->paths, err) : 0;
}

struct job {
	struct mcp_request request;
	bool structured;
};

/* Runs in the process of the call. */
static void work(void *ctx, struct work *w)
{
	const struct job *job = ctx;
	_cleanup_strbuf_ struct strbuf text = { 0 };
	struct mcp_result result = { 0 };

	job->request.tool->run(&job->request, &result);
	mcp_result_print(&result, job->structured, &text);
	mcp_result_done(&result);
	work_end_buf(w, 0, &text, NULL);
}

static int start_call(struct server *s, struct mcp_worker *w, struct ak_err *err)
{
	struct job job = {
		.request = { .ceiling = s->ceiling,
			.paths = s->paths,
			.owner = &s->owner,
			.tool = w->call->tool,
			.args = w->call->args },
		.structured = w->call->structured,
	};
	struct worker_spec spec = { .work = work, .ctx = &job, .out = -1, .err = -1, .keep = -1 };
	int rc = prepare(s, w->call->tool, err);

	/* A call that creates a sandbox keeps our lock open until it ends, so that the guard does not clean up too early. */
	if (w->call->tool->makes)
		spec.keep = s->owner.lock_fd;
	if (rc == 0)
		rc = worker_start(&w->process, &spec, err);
	if (rc < 0)
		return rc;
	w->began_ms = w->told_ms = ak_now_ms();
	w->deadline_ms = w->began_ms + mcp_tool_limit_ms(w->call->tool, w->call->args);
	return 0;
}

/* Start waiting calls, up to MCP_WORKERS_MAX. */
static void start_waiting(struct server *s)
{
	struct mcp_worker *next;

	for (struct mcp_worker *w = s->workers; w && s->n_running < MCP_WORKERS_MAX; w = next) {
		struct ak_err err;

		next = w->next;
		if (w->process.pid != 0 || !w->call)
			continue;
		s->n_waiting--;
		s->waiting_bytes -= w->call->size;
		if (start_call(s, w, &err) < 0) {
			finish_call(s, w, err.text);
			remove_worker(s, w);
			continue;
		}
		s->n_running++;
		mcp_call_progress(w->call, 0, "started");
	}
}

static int on_start(void *ctx, struct mcp_call *call, struct ak_err *err)
{
	struct server *s = ctx;
	struct mcp_worker *w, **at = &s->workers;

	if (s->n_running + s->n_waiting >= MCP_WORKERS_MAX + MCP_WAITING_MAX ||
		(s->n_waiting > 0 && s->waiting_bytes + call->size > MCP_WAITING_BYTES))
		return ak_fail(err, EAGAIN, "too many calls at once; try again when some have ended");
	w = calloc(1, sizeof(*w));
	if (!w)
		return ak_fail(err, ENOMEM, "out of memory");
	w->call = call;
	w->process.fd = -1;
	call->owner_data = w;
	while (*at)
		at = &(*at)->next;
	*at = w;
	s->n_waiting++;
	s->waiting_bytes += call->size;
	return 0; /* the loop calls start_waiting later, never from within the session */
}

static void on_cancel(void *ctx, struct mcp_call *call)
{
	struct server *s = ctx;
	struct mcp_worker *w = call->owner_data;

	if (w->process.pid > 0) {
		worker_end(&w->process, ak_now_ms());
		return;
	}
	s->n_waiting--;
	s->waiting_bytes -= call->size;
	remove_worker(s, w);
}

static void read_result(struct worker *w)
{
	char buf[65536];
	ssize_t n;

	for (int i = 0; w->fd >= 0 && i < READS_MAX; i++) {
		n = read(w->fd, buf, sizeof(buf));
		if (n > 0)
			worker_take(w, buf, (size_t)n, RESULT_MAX);
		else if (n == 0)
			w->fd = ak_close(w->fd);
		else if (errno != EINTR)
			return;
	}
}

/* A call ends when its process exits. End of file on its pipe means nothing, because other processes may hold the pipe open. */
static void reap(struct server *s)
{
	struct mcp_worker *next;

	for (struct mcp_worker *w = s->workers; w; w = next) {
		next = w->next;
		if (w->process.pid <= 0 || waitpid(w->process.pid, NULL, WNOHANG) != w->process.pid)
			continue;
		w->process.pid = 0;
		read_result(&w->process);
		s->n_running--;
		finish_call(s, w, NULL);
		remove_worker(s, w);
	}
}

/* Send progress, end calls that timed out, and kill those that do not end. */
static void look_at_time(struct server *s, uint64_t now)
{
	for (struct mcp_worker *w = s->workers; w; w = w->next) {
		if (w->process.pid <= 0)
			continue;
		if (w->call && now >= w->told_ms + PROGRESS_MS) {
			char text[64];

			w->told_ms = now;
			snprintf(text, sizeof(text), "running for %llu s", (unsigned long long)(now - w->began_ms) / 1000);
			mcp_call_progress(w->call, (double)(now - w->began_ms) / 1000, text);
		}
		if (now >= w->deadline_ms && w->process.step == 0)
			finish_call(s, w, "timed out");
		if (w->process.step > 0 || now >= w->deadline_ms || (s->finish_ms && now >= s->finish_ms))
			worker_end(&w->process, now);
	}
}

/* ---- input ---- */

static void take_input(struct server *s, const char *data, size_t len)
{
	while (len > 0) {
		const char *end = memchr(data, '\n', len);
		size_t n = end ? (size_t)(end - data) : len;

		if (!s->skipping && s->line.len + n > MCP_LINE_MAX) {
			s->skipping = true;
			strbuf_done(&s->line);
		}
		if (!s->skipping)
			strbuf_add(&s->line, data, n);
		if (!end)
			return;
		if (s->skipping || s->line.failed)
			mcp_session_too_long(&s->session);
		else if (s->line.len)
			mcp_session_line(&s->session, s->line.data, s->line.len);
		s->skipping = false;
		if (s->line.cap > 1u << 20 || s->line.failed)
			strbuf_done(&s->line);
		else
			strbuf_reset(&s->line);
		data += n + 1;
		len -= n + 1;
	}
}

static void end_input(struct server *s, unsigned finish_ms)
{
	uint64_t now = ak_now_ms();

	s->in = -1;
	if (s->leave_ms)
		return;
	s->finish_ms = now + finish_ms;
	s->leave_ms = now + LEAVE_MS;
}

static void read_input(struct server *s)
{
	char buf[65536];
	ssize_t n = read(s->in, buf, sizeof(buf));

	if (n > 0) {
		take_input(s, buf, (size_t)n);
	} else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
		if (s->line.len)
			take_input(s, "\n", 1); /* complete a last line without a newline */
		end_input(s, FINISH_MS);
	}
}

static void read_signals(struct server *s)
{
	struct signalfd_siginfo info;

	while (read(s->signal_fd, &info, sizeof(info)) == sizeof(info)) {
		if (info.ssi_signo != SIGCHLD)
			end_input(s, 0);
	}
}

/* ---- the loop ---- */

enum { P_IN, P_OUT, P_SIGNAL, P_WORKERS, P_NUM = P_WORKERS + MCP_WORKERS_MAX };

static nfds_t fill_poll(const struct server *s, struct pollfd p[static P_NUM])
{
	bool full = s->output.len - s->written > OUT_MAX;
	nfds_t n = P_WORKERS;

	p[P_IN] = (struct pollfd){ .fd = full ? -1 : s->in, .events = POLLIN };
	p[P_OUT] = (struct pollfd){ .fd = s->output.len > s->written ? s->out : -1, .events = POLLOUT };
	p[P_SIGNAL] = (struct pollfd){ .fd = s->signal_fd, .events = POLLIN };
	for (const struct mcp_worker *w = s->workers; w && n < P_NUM; w = w->next) {
		if (w->process.fd >= 0)
			p[n++] = (struct pollfd){ .fd = w->process.fd, .events = POLLIN };
	}
	return n;
}

static int wait_ms(const struct server *s, uint64_t now)
{
	uint64_t until = s->leave_ms ? s->leave_ms : UINT64_MAX;

	for (const struct mcp_worker *w = s->workers; w; w = w->next) {
		uint64_t due = w->process.step ? w->process.next_ms : w->deadline_ms;

		if (w->process.pid <= 0)
			continue;
		if (w->call && w->call->progress_token && w->told_ms + PROGRESS_MS < due)
			due = w->told_ms + PROGRESS_MS;
		if (s->finish_ms && !w->process.step && s->finish_ms < due)
			due = s->finish_ms;
		if (due < until)
			until = due;
	}
	if (until == UINT64_MAX)
		return -1;
	return until > now ? until - now < 3600000 ? (int)(until - now) : 3600000 : 0;
}

/* Are we finished? True at the end of the input when no call runs and all output is written, or when the deadline has passed. */
static bool over(const struct server *s)
{
	if (s->in >= 0)
		return false;
	return (!s->workers && (s->gone || s->output.len == s->written)) || ak_now_ms() >= s->leave_ms;
}

static int loop(struct server *s, struct ak_err *err)
{
	struct pollfd p[P_NUM];

	while (!over(s)) {
		nfds_t n = fill_poll(s, p);

		if (poll(p, n, wait_ms(s, ak_now_ms())) < 0 && errno != EINTR)
			return ak_fail_errno(err, errno, "poll");
		if (p[P_OUT].revents)
			write_some(s);
		if (p[P_SIGNAL].revents)
			read_signals(s);
		for (struct mcp_worker *w = s->workers; w; w = w->next)
			read_result(&w->process);
		reap(s);
		if (p[P_IN].revents && s->in >= 0)
			read_input(s);
		start_waiting(s);
		look_at_time(s, ak_now_ms());
		if (s->gone && s->in >= 0)
			end_input(s, 0);
	}
	return 0;
}

static int take_signals(struct server *s, struct ak_err *err)
{
	static const int wanted[] = { SIGCHLD, SIGTERM, SIGINT, SIGHUP };

	signal(SIGPIPE, SIG_IGN);
	s->signal_fd = ak_signal_fd(wanted, ARRAY_SIZE(wanted));
	return s->signal_fd < 0 ? ak_fail_errno(err, -s->signal_fd, "signalfd") : 0;
}

int mcp_serve(const struct mcp_ceiling *ceiling, const struct ak_paths *paths, int in, int out, struct ak_err *err)
{
	static const struct mcp_session_ops ops = { on_send, on_start, on_cancel };
	_cleanup_strbuf_ struct strbuf instructions = { 0 };
	struct server s = { .ceiling = ceiling, .paths = paths, .in = in, .out = out, .signal_fd = -1 };
	int rc = mcp_owner_init(&s.owner, paths, err);

	if (rc < 0)
		return rc;
	mcp_ceiling_print(ceiling, &instructions);
	if (instructions.failed)
		return ak_fail(err, ENOMEM, "out of memory");
	s.session = (struct mcp_session){ .ops = &ops, .ctx = &s, .instructions = instructions.data };
	rc = take_signals(&s, err);
	if (rc == 0)
		rc = loop(&s, err);
	s.gone = true;
	while (s.workers)
		remove_worker(&s, s.workers);
	strbuf_done(&s.line);
	strbuf_done(&s.output);
	mcp_owner_done(&s.owner, s.leave_ms);
	ak_close(s.signal_fd);
	return rc;
}
