/* Commands for the model: sandbox_run and sandbox_exec. See mcp/run.h. */
#include "gateway/mcp/run.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/service/service.h"
#include "gateway/store/rundir.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OUT, ERR, STREAMS };

/* What a command left. */
struct outcome {
	struct mcp_capture stream[STREAMS];
	int exit_code;
	bool timed_out;
	bool whole; /* nothing that it started is left */
	uint64_t duration_ms;
};

static void outcome_done(struct outcome *o)
{
	for (int i = 0; i < STREAMS; i++)
		mcp_capture_done(&o->stream[i]);
}

/* ---- telling ---- */

/* Our own lines (what went wrong with limits, say) were written to standard error, which is a memory file in this process. */
static void tell_notes(struct strbuf *out)
{
	char buf[4096], *line = buf, *end;
	ssize_t n = pread(STDERR_FILENO, buf, sizeof(buf) - 1, 0);

	if (n <= 0)
		return;
	buf[n] = '\0';
	while ((end = strchr(line, '\n'))) {
		*end = '\0';
		if (!strstr(line, "timed out after")) /* told for exec as well, below */
			strbuf_printf(out, "[%s]\n", line);
		line = end + 1;
	}
}

static void new_line(struct strbuf *out)
{
	if (out->len && out->data[out->len - 1] != '\n')
		strbuf_putc(out, '\n');
}

static bool tell_stream(const struct mcp_capture *c, const char *head, const char *key, struct mcp_result *ret)
{
	_cleanup_strbuf_ struct strbuf text = { 0 };
	bool cut = mcp_capture_print(c, &text);

	if (text.len && head) {
		new_line(&ret->text);
		strbuf_puts(&ret->text, head);
	}
	strbuf_add(&ret->text, text.data ? text.data : "", text.len);
	strbuf_printf(&ret->structured, "\"%s\":", key);
	strbuf_json_utf8(&ret->structured, text.data ? text.data : "", text.len);
	strbuf_putc(&ret->structured, ',');
	if (text.failed)
		ret->text.failed = true;
	return cut;
}

static void tell_outcome(const struct outcome *o, const char *sandbox, struct mcp_result *ret)
{
	bool cut = tell_stream(&o->stream[OUT], NULL, "stdout", ret);

	cut |= tell_stream(&o->stream[ERR], "[stderr]\n", "stderr", ret);
	new_line(&ret->text);
	tell_notes(&ret->text);
	if (o->timed_out)
		strbuf_printf(&ret->text, "[timed out: the command was ended%s; give a larger timeout_ms if it needs longer]\n",
			o->whole ? "" : ", though processes that it detached may go on until sandbox_stop");
	strbuf_printf(&ret->text, "[exit code %d]\n", o->exit_code);
	strbuf_printf(&ret->structured,
		"\"exit_code\":%d,\"timed_out\":%s,\"truncated\":%s,\"duration_ms\":%llu,\"sandbox\":\"%s\",", o->exit_code,
		o->timed_out ? "true" : "false", cut ? "true" : "false", (unsigned long long)o->duration_ms, sandbox);
}

/* ---- sandbox_run ---- */

static void tell_run(const struct mcp_request *r, const struct run_report *res, struct mcp_result *ret)
{
	_cleanup_(outcome_done) struct outcome o = {
		.exit_code = res->outcome.exit_code,
		.timed_out = res->outcome.timed_out,
		.whole = true,
		.duration_ms = res->outcome.duration_ms,
	};

	mcp_capture_add(&o.stream[OUT], res->out ? res->out : "", res->out ? res->out_len : 0);
	mcp_capture_add(&o.stream[ERR], res->err ? res->err : "", res->err ? res->err_len : 0);
	o.stream[OUT].more = res->out_cut;
	o.stream[ERR].more = res->err_cut;
	tell_outcome(&o, res->name, ret);
	mcp_tell_denied(r->paths, res->name, false, 0, ret);
}

void mcp_do_run(const struct mcp_request *r, struct mcp_result *ret)
{
	_cleanup_(field_mem_done) struct field_mem mem = { 0 };
	struct run_request opts = { .name = mcp_owner_last_run(r->owner),
		.json = true,
		.quiet = true,
		.origin = RUN_ORIGIN_MCP,
		.timeout_ms = MCP_TIMEOUT_MS };
	struct run_report res = { .out = NULL };
	struct ak_err err;
	int rc = mcp_ceiling_apply(r, &opts, &mem, &err);

	if (rc == 0)
		rc = service_run(&opts, r->paths, &res, &err);
	if (rc < 0)
		mcp_fail(ret, "%s", err.text);
	else
		tell_run(r, &res, ret);
	run_report_done(&res);
	rundir_prune_sometimes(r->paths);
}

/* ---- sandbox_exec ---- */

/*
 * What was written before now; the descriptor is closed at its end. That is at most what fits into the pipe, which who writes can enlarge: those who
 * write faster than we read would hold us for ever.
 */
static void drain(int *fd, struct mcp_capture *c)
{
	int left = *fd < 0 ? 0 : fcntl(*fd, F_GETPIPE_SZ);
	char buf[65536];
	ssize_t n = -1;

	while (left > 0 && (n = read(*fd, buf, sizeof(buf))) != 0) {
		if (n > 0)
			mcp_capture_add(c, buf, (size_t)n);
		else if (errno != EINTR)
			break;
		left -= n > 0 ? (int)n : 1;
	}
	if (*fd >= 0 && n == 0)
		*fd = ak_close(*fd);
}

/* Until the command ended; a background process that still holds a pipe is not waited for. */
static int wait_exec(struct service_exec *x, int pipes[static STREAMS], struct outcome *o, struct ak_err *err)
{
	struct service_exit end = { .exit_code = 0 };
	uint64_t began = ak_now_ms();
	int rc;

	for (;;) {
		struct pollfd p[1 + STREAMS] = { { .fd = x->sock, .events = POLLIN }, { .fd = pipes[OUT], .events = POLLIN },
			{ .fd = pipes[ERR], .events = POLLIN } };

		if (poll(p, ARRAY_SIZE(p), -1) < 0 && errno != EINTR)
			return ak_fail_errno(err, errno, "poll");
		rc = p[0].revents ? service_exec_poll(x, false, &end, err) : 0;
		for (int i = 0; i < STREAMS; i++)
			drain(&pipes[i], &o->stream[i]);
		if (rc != 0)
			break;
	}
	if (rc < 0)
		return rc;
	o->exit_code = end.exit_code;
	o->timed_out = end.timed_out;
	o->whole = end.n_left == 0;
	o->duration_ms = ak_now_ms() - began;
	if (end.why.text[0]) {
		char note[AK_ERR_MAX + 16];

		mcp_capture_add(&o->stream[ERR], note, (size_t)snprintf(note, sizeof(note), "agentkernel: %s\n", end.why.text));
	}
	return 0;
}

static int exec_in(
	const struct mcp_request *r, const char *name, struct service_exec_opts *opts, struct outcome *o, struct ak_err *err)
{
	struct service_exec x = { .sock = -1, .tty_fd = -1 };
	int pipes[STREAMS] = { -1, -1 }, ends[STREAMS] = { -1, -1 }, rc = 0;

	for (int i = 0; i < STREAMS && rc == 0; i++) {
		int fds[2];

		if (pipe2(fds, O_CLOEXEC) < 0) {
			rc = ak_fail_errno(err, errno, "pipe");
			break;
		}
		pipes[i] = fds[0];
		ends[i] = opts->stdio[1 + i] = fds[1];
		ak_set_nonblock(pipes[i], true);
	}
	if (rc == 0)
		rc = service_exec_start(r->paths, name, opts, &x, err);
	for (int i = 0; i < STREAMS; i++)
		ak_close(ends[i]);
	if (rc == 0)
		rc = wait_exec(&x, pipes, o, err);
	for (int i = 0; i < STREAMS; i++)
		ak_close(pipes[i]);
	service_exec_done(&x);
	return rc;
}

void mcp_do_exec(const struct mcp_request *r, struct mcp_result *ret)
{
	const char *name = mcp_arg_text(r->args, "name", "");
	_cleanup_(field_mem_done) struct field_mem mem = { 0 };
	_cleanup_(outcome_done) struct outcome o = { .exit_code = 0 };
	struct run_request q = { .timeout_ms = MCP_TIMEOUT_MS };
	uint64_t began_us = ak_wall_us();
	char uuid[37];
	struct ak_err err;
	int rc = fields_decode(VERB_EXEC, FIELD_MCP, r->args, &q, &mem, &err);

	if (rc == 0)
		rc = mcp_enter(r, name, uuid, &err);
	if (rc == 0) {
		struct service_exec_opts opts = { .argv = q.argv,
			.env = q.env,
			.n_env = q.n_env,
			.workdir = q.workdir,
			.timeout_ms = q.timeout_ms,
			.stdio = { -1, -1, -1 },
			.uuid = uuid };

		rc = exec_in(r, name, &opts, &o, &err);
	}
	if (rc < 0) {
		mcp_fail(ret, "%s%s", err.text, rc == -ESRCH ? " (the tool sandbox_start does)" : "");
		return;
	}
	tell_outcome(&o, name, ret);
	mcp_tell_denied(r->paths, name, true, began_us, ret);
}
