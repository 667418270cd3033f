/*
 * `run` by a warm sandbox of the daemon. See service/service.h.
 *
 * Whatever goes wrong before the command was started is no reason to fail: the cold path does the same, only slower, and says what is
 * wrong in its own words. Once the command was started it is never started again.
 */
#include "gateway/service/service.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/base/say.h"
#include "gateway/base/strbuf.h"
#include "gateway/daemon/daemon.h"
#include "gateway/ipc/ipc.h"
#include "gateway/log/stats.h"
#include "gateway/run/io.h"
#include "gateway/store/report.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define TERM_GRACE_MS 5000 /* from SIGTERM to our leaving, which ends the job */
#define DRAIN_MS 2000

struct warm_run {
	const struct run_request *opts; /* borrowed */
	int sock, tty_fd; /* owned */
	struct run_io io;
	bool started, ended;
	unsigned interrupts;
	uint64_t leave_at_ms;
	int left_by; /* the signal that made us leave */
	int early; /* a signal that came before the command was known to run */
	cJSON *end; /* owned; the last word */
	struct guard *guard; /* owned */
	char notes[sizeof((struct run_plan *)0)->notes]; /* the plan's */
	struct run_report *ret; /* borrowed */
};

/* ---- what the daemon says ---- */

/* One message. -EAGAIN: it was not started, and will not be. */
static int on_message(struct warm_run *w)
{
	_cleanup_json_ cJSON *msg = NULL;
	int fds[IPC_FDS_MAX], rc;
	size_t n = ARRAY_SIZE(fds);

	rc = ipc_recv(w->sock, &msg, fds, &n);
	if (rc <= 0)
		return w->started ? -EPIPE : -EAGAIN;
	if (!strcmp(json_text(msg, "event", ""), "started")) {
		w->started = true;
		if (!w->opts->quiet)
			run_say_notes(w->notes);
		snprintf(w->ret->name, sizeof(w->ret->name), "%s", json_text(msg, "name", ""));
		if (n && w->tty_fd < 0)
			w->tty_fd = TAKE_FD(fds[0]);
		rc = 0;
	} else if (!strcmp(json_text(msg, "event", ""), "exit")) {
		w->ended = true;
		w->end = TAKE(msg);
		rc = 0;
	} else {
		rc = w->started ? -EPROTO : -EAGAIN;
	}
	for (size_t i = 0; i < n; i++)
		ak_close(fds[i]);
	return rc;
}

/* ---- signals ---- */

static void send_signal(struct warm_run *w, int sig)
{
	_cleanup_json_ cJSON *msg = cJSON_CreateObject();

	if (msg && cJSON_AddStringToObject(msg, "op", "signal") && cJSON_AddNumberToObject(msg, "sig", sig))
		(void)ipc_send(w->sock, msg, NULL, 0);
}

/* As on the cold path: the first Ctrl-C is the command's, the second ends it; SIGTERM and SIGHUP end it after a while. */
static void on_signal(struct warm_run *w, int sig)
{
	if (!w->started && !w->early) { /* there is no one to hand it to yet */
		w->early = sig;
		return;
	}
	if (!w->started) {
		w->left_by = sig;
		w->leave_at_ms = 1;
		return;
	}
	if (sig == SIGINT && w->interrupts++ > 0)
		sig = SIGKILL;
	if ((sig == SIGTERM || sig == SIGHUP) && !w->leave_at_ms) {
		w->leave_at_ms = ak_now_ms() + TERM_GRACE_MS;
		w->left_by = SIGKILL;
	}
	send_signal(w, sig);
}

static void read_signals(struct warm_run *w)
{
	if (w->started && w->early) {
		int sig = w->early;

		w->early = 0;
		on_signal(w, sig);
	}
	for (int sig; (sig = run_io_next_signal(&w->io)) > 0;)
		on_signal(w, sig);
}

/* ---- the loop ---- */

enum { P_SOCK, P_IO, P_NUM = P_IO + RUN_IO_NUM };

static void start_tty(struct warm_run *w)
{
	struct ak_err ignored;

	if (w->opts->tty && w->tty_fd >= 0 && w->io.tty.master < 0 && tty_open(&w->io.tty, w->tty_fd, &ignored) == 0)
		w->io.tty_on = true;
}

static int wait_ms(const struct warm_run *w)
{
	uint64_t now = ak_now_ms();

	if (!w->leave_at_ms)
		return -1;
	return w->leave_at_ms > now ? (int)(w->leave_at_ms - now) : 0;
}

/* Until the last word; -EAGAIN when the command was never started. */
static int loop(struct warm_run *w)
{
	struct pollfd p[P_NUM];
	int rc = 0;

	while (rc == 0 && !w->ended) {
		start_tty(w);
		p[P_SOCK] = (struct pollfd){ .fd = w->sock, .events = POLLIN };
		run_io_poll(&w->io, p + P_IO);
		if (poll(p, P_NUM, w->started && w->early ? 0 : wait_ms(w)) < 0 && errno != EINTR)
			return -errno;
		if (p[P_IO + RUN_IO_SIGNAL].revents || w->early)
			read_signals(w);
		run_io_pump(&w->io, p + P_IO);
		if (p[P_SOCK].revents)
			rc = on_message(w);
		if (w->leave_at_ms && ak_now_ms() >= w->leave_at_ms)
			return -EINTR;
	}
	return rc;
}

/* What is still in the pipes: their writers are dead or dying. */
static void drain(struct warm_run *w)
{
	uint64_t until = ak_now_ms() + DRAIN_MS;
	struct run_capture *c = w->io.capture;

	if (w->io.tty.master >= 0)
		tty_close(&w->io.tty);
	while ((c[RUN_OUT].fd >= 0 || c[RUN_ERR].fd >= 0) && ak_now_ms() < until) {
		struct pollfd p[RUN_STREAMS];

		for (int i = 0; i < RUN_STREAMS; i++)
			p[i] = (struct pollfd){ .fd = c[i].fd, .events = POLLIN };
		if (poll(p, RUN_STREAMS, DRAIN_MS) <= 0)
			break;
		for (int i = 0; i < RUN_STREAMS; i++) {
			if (p[i].revents)
				run_capture_read(&c[i]);
		}
	}
}

/* ---- start and end ---- */

/* Ask the daemon; -EAGAIN when it has nothing for us. */
static int ask(struct warm_run *w, const struct ak_paths *paths, const struct run_request *opts)
{
	static struct run_plan plan; /* large */
	int stdio[3] = { 0, 1, 2 }, rc;
	char empty[PATH_MAX];
	struct ak_err ignored;

	if (rundir_empty(paths, empty, &ignored) < 0 || run_plan_init(&plan, opts, paths, empty, &ignored) < 0)
		return -EAGAIN;
	rc = run_io_open(&w->io, opts->json, stdio, &ignored);
	if (rc == 0)
		rc = run_io_signals(&w->io, &ignored);
	if (rc == 0)
		rc = daemon_run_send(w->sock, opts, &plan, stdio, &ignored);
	run_io_close_writers(stdio);
	if (rc == 0 && !opts->quiet)
		run_plan_look(&plan, opts, paths);
	w->guard = TAKE(plan.guard);
	memcpy(w->notes, plan.notes, sizeof(w->notes));
	run_plan_done(&plan);
	return rc < 0 ? -EAGAIN : 0;
}

static int conclude(struct warm_run *w, struct ak_err *err)
{
	_cleanup_(run_report_done) struct run_report told = { 0 };
	struct run_outcome *o = &w->ret->outcome;
	int rc = run_report_from_json(w->end, &told, err);

	if (rc < 0)
		return ak_err_prefix(err, rc, "the daemon's report");
	*o = told.outcome;
	if (o->exit_code == AK_EXIT_FAILED && o->why.text[0])
		return ak_fail(err, EIO, "%s", o->why.text);
	run_say_ended(o, w->opts->timeout_ms);
	if (told.notes && !w->opts->quiet)
		run_say_notes(told.notes);
	return 0;
}

static void warm_done(struct warm_run *w)
{
	ak_close(w->sock);
	ak_close(w->tty_fd);
	run_io_done(&w->io);
	cJSON_Delete(w->end);
	guard_free(w->guard);
}

/* -EAGAIN: nothing was started. */
static int run_warm(const struct run_request *opts, const struct ak_paths *paths, struct run_report *ret, struct ak_err *err)
{
	_cleanup_(warm_done) struct warm_run w = { .opts = opts, .sock = -1, .tty_fd = -1, .ret = ret };
	struct ak_err ignored;
	int rc;

	run_io_init(&w.io);
	memset(ret, 0, sizeof(*ret));
	w.sock = daemon_connect(paths, false, &ignored);
	if (w.sock < 0)
		return -EAGAIN;
	rc = ask(&w, paths, opts);
	if (rc == 0)
		rc = loop(&w);
	if (rc < 0 && !w.started) { /* only signals end that, everything else is tried again */
		if (rc != -EINTR && !w.early)
			return -EAGAIN;
		ret->outcome.exit_code = 128 + (w.left_by ? w.left_by : w.early);
		return ak_fail(err, EINTR, "interrupted before the command ran");
	}
	if (rc == -EINTR) {
		w.sock = ak_close(w.sock); /* ends the job */
		w.io.tty.master = -1;
		tty_close(&w.io.tty);
		ret->changed = guard_tell(w.guard, paths, ret->name, run_origin_name(opts->origin));
		ret->outcome.exit_code = 128 + w.left_by;
		return 0;
	}
	drain(&w);
	ret->changed = guard_tell(w.guard, paths, ret->name, run_origin_name(opts->origin));
	if (opts->json)
		run_io_take(&w.io, ret);
	if (rc < 0) {
		ret->outcome.exit_code = 128 + SIGKILL;
		return ak_fail(err, EPIPE, "the daemon ended while the command ran, and the command with it");
	}
	return conclude(&w, err);
}

/* The cold path takes signals itself, and must find them as they were. */
static void release_signals(const sigset_t *before)
{
	sigprocmask(SIG_SETMASK, before, NULL);
}

int service_run(const struct run_request *opts, const struct ak_paths *paths, struct run_report *ret, struct ak_err *err)
{
	sigset_t before;
	int rc;

	if (opts->keep || opts->no_network || !ak_profile_network(opts->profile))
		return run_execute(opts, paths, ret, err);
	sigprocmask(SIG_SETMASK, NULL, &before);
	rc = run_warm(opts, paths, ret, err);
	if (rc != -EAGAIN)
		return rc;
	run_report_done(ret);
	release_signals(&before);
	return run_execute(opts, paths, ret, err);
}
