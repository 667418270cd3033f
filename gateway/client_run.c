/*
 * `run` by a warm sandbox of the daemon. See client.h.
 *
 * Whatever goes wrong before the command was started is no reason to fail: the cold path does the same, only slower, and says what is
 * wrong in its own words. Once the command was started it is never started again.
 */
#include "gateway/client.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/base/strbuf.h"
#include "gateway/cmd.h"
#include "gateway/daemon.h"
#include "gateway/ipc.h"
#include "gateway/tty.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#define TERM_GRACE_MS 5000 /* from SIGTERM to our leaving, which ends the job */
#define DRAIN_MS 2000

enum { OUT, ERR, STREAMS };

struct capture {
	int fd; /* owned; -1 after its end */
	struct strbuf text;
	bool cut;
};

struct warm_run {
	const struct run_opts *opts; /* borrowed */
	int sock, signal_fd, tty_fd; /* owned */
	struct tty tty;
	bool tty_on, started, ended;
	struct capture capture[STREAMS];
	unsigned interrupts;
	uint64_t leave_at_ms;
	int left_by; /* the signal that made us leave */
	int early; /* a signal that came before the command was known to run */
	cJSON *end; /* owned; the last word */
	struct run_result *ret; /* borrowed */
};

/* ---- what the daemon says ---- */

static double number_of(const cJSON *obj, const char *key)
{
	const cJSON *n = cJSON_GetObjectItemCaseSensitive(obj, key);

	return cJSON_IsNumber(n) && n->valuedouble > 0 ? n->valuedouble : 0;
}

static const char *text_of(const cJSON *obj, const char *key)
{
	const cJSON *t = cJSON_GetObjectItemCaseSensitive(obj, key);

	return cJSON_IsString(t) ? t->valuestring : "";
}

static bool truth_of(const cJSON *obj, const char *key)
{
	return cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(obj, key));
}

/* One message. -EAGAIN: it was not started, and will not be. */
static int on_message(struct warm_run *w)
{
	_cleanup_json_ cJSON *msg = NULL;
	int fds[IPC_FDS_MAX], rc;
	size_t n = ARRAY_SIZE(fds);

	rc = ipc_recv(w->sock, &msg, fds, &n);
	if (rc <= 0)
		return w->started ? -EPIPE : -EAGAIN;
	if (!strcmp(text_of(msg, "event"), "started")) {
		w->started = true;
		snprintf(w->ret->name, sizeof(w->ret->name), "%s", text_of(msg, "name"));
		if (n && w->tty_fd < 0)
			w->tty_fd = TAKE_FD(fds[0]);
		rc = 0;
	} else if (!strcmp(text_of(msg, "event"), "exit")) {
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

/* ---- signals, output ---- */

static int take_signals(struct warm_run *w)
{
	static const int wanted[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGWINCH, SIGUSR1, SIGUSR2 };
	sigset_t set;

	sigemptyset(&set);
	for (size_t i = 0; i < ARRAY_SIZE(wanted); i++)
		sigaddset(&set, wanted[i]);
	sigprocmask(SIG_BLOCK, &set, NULL);
	w->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return w->signal_fd < 0 ? -errno : 0;
}

static void send_signal(struct warm_run *w, int sig)
{
	_cleanup_json_ cJSON *msg = cJSON_CreateObject();

	if (msg && cJSON_AddStringToObject(msg, "op", "signal") && cJSON_AddNumberToObject(msg, "sig", sig))
		(void)ipc_send(w->sock, msg, NULL, 0);
}

/* As on the cold path: the first Ctrl-C is the command's, the second ends it; SIGTERM and SIGHUP end it after a while. */
static void on_signal(struct warm_run *w, int sig)
{
	if (sig == SIGWINCH) {
		if (w->tty_on)
			tty_resize(&w->tty);
		return;
	}
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
	struct signalfd_siginfo info;

	if (w->started && w->early) {
		int sig = w->early;

		w->early = 0;
		on_signal(w, sig);
	}
	while (read(w->signal_fd, &info, sizeof(info)) == sizeof(info))
		on_signal(w, (int)info.ssi_signo);
}

static void read_capture(struct capture *c)
{
	char buf[65536];
	ssize_t n = read(c->fd, buf, sizeof(buf));

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		c->fd = ak_close(c->fd);
		return;
	}
	if (c->text.len + (size_t)n > RUN_CAPTURE_MAX) {
		c->cut = true;
		n = (ssize_t)(RUN_CAPTURE_MAX - c->text.len);
	}
	strbuf_add(&c->text, buf, (size_t)n);
}

/* ---- the loop ---- */

enum { P_SOCK, P_SIGNAL, P_OUT, P_ERR, P_TTY, P_NUM = P_TTY + 4 };

static void fill_poll(const struct warm_run *w, struct pollfd p[P_NUM])
{
	p[P_SOCK] = (struct pollfd){ .fd = w->sock, .events = POLLIN };
	p[P_SIGNAL] = (struct pollfd){ .fd = w->signal_fd, .events = POLLIN };
	p[P_OUT] = (struct pollfd){ .fd = w->capture[OUT].fd, .events = POLLIN };
	p[P_ERR] = (struct pollfd){ .fd = w->capture[ERR].fd, .events = POLLIN };
	if (w->tty_on) {
		tty_poll(&w->tty, p + P_TTY);
		return;
	}
	for (int i = P_TTY; i < P_NUM; i++)
		p[i] = (struct pollfd){ .fd = -1 };
}

static void start_tty(struct warm_run *w)
{
	struct ak_err ignored;

	if (w->opts->tty && w->tty_fd >= 0 && w->tty.master < 0 && tty_open(&w->tty, w->tty_fd, &ignored) == 0)
		w->tty_on = true;
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
		fill_poll(w, p);
		if (poll(p, P_NUM, w->started && w->early ? 0 : wait_ms(w)) < 0 && errno != EINTR)
			return -errno;
		if (p[P_SIGNAL].revents || w->early)
			read_signals(w);
		for (int i = 0; i < STREAMS; i++) {
			if (p[P_OUT + i].revents)
				read_capture(&w->capture[i]);
		}
		if (w->tty_on && !tty_pump(&w->tty, p + P_TTY))
			w->tty_on = false;
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

	if (w->tty.master >= 0)
		tty_close(&w->tty);
	while ((w->capture[OUT].fd >= 0 || w->capture[ERR].fd >= 0) && ak_now_ms() < until) {
		struct pollfd p[STREAMS];

		for (int i = 0; i < STREAMS; i++)
			p[i] = (struct pollfd){ .fd = w->capture[i].fd, .events = POLLIN };
		if (poll(p, STREAMS, DRAIN_MS) <= 0)
			break;
		for (int i = 0; i < STREAMS; i++) {
			if (p[i].revents)
				read_capture(&w->capture[i]);
		}
	}
}

/* ---- start and end ---- */

static int open_streams(struct warm_run *w, int stdio[3])
{
	for (int i = 0; i < 3; i++)
		stdio[i] = i;
	for (int i = 0; w->opts->json && i < STREAMS; i++) {
		int fds[2];

		if (pipe2(fds, O_CLOEXEC) < 0)
			return -errno;
		ak_set_nonblock(fds[0], true);
		w->capture[i].fd = fds[0];
		stdio[1 + i] = fds[1];
	}
	return 0;
}

/* Ask the daemon; -EAGAIN when it has nothing for us. */
static int ask(struct warm_run *w, const struct ak_paths *paths, const struct run_opts *opts)
{
	static struct run_plan plan; /* large */
	int stdio[3] = { 0, 1, 2 }, rc;
	char empty[PATH_MAX];
	struct ak_err ignored;

	if (rundir_empty(paths, empty, &ignored) < 0 || run_plan_init(&plan, opts, paths, empty, &ignored) < 0)
		return -EAGAIN;
	rc = open_streams(w, stdio);
	if (rc == 0)
		rc = take_signals(w);
	if (rc == 0)
		rc = daemon_run_send(w->sock, opts, &plan, stdio, &ignored);
	for (int i = 1; i < 3; i++) {
		if (stdio[i] > 2)
			ak_close(stdio[i]);
	}
	run_plan_done(&plan);
	return rc < 0 ? -EAGAIN : 0;
}

static void say_how_it_ended(const struct warm_run *w, const struct run_outcome *o)
{
	const char *reason = text_of(w->end, "error");

	if ((o->exit_code == 126 || o->exit_code == 127) && reason[0])
		ak_say("%s", reason);
	if (o->timed_out)
		ak_say("timed out after %llu.%03llus", (unsigned long long)w->opts->timeout_ms / 1000,
			(unsigned long long)w->opts->timeout_ms % 1000);
	if (o->out_of_memory)
		ak_say("out of memory: the sandbox reached its memory limit");
	if (truth_of(w->end, "pids_hit"))
		ak_say("the sandbox reached its process limit");
	if (!w->opts->quiet && text_of(w->end, "notes")[0])
		ak_say("%s", text_of(w->end, "notes"));
}

static int conclude(struct warm_run *w, struct ak_err *err)
{
	struct run_outcome *o = &w->ret->outcome;

	o->exit_code = (int)number_of(w->end, "exit_code");
	o->timed_out = truth_of(w->end, "timed_out");
	o->out_of_memory = truth_of(w->end, "out_of_memory");
	o->start_us = (uint64_t)number_of(w->end, "start_us");
	o->duration_ms = (uint64_t)number_of(w->end, "duration_ms");
	o->net.allowed = (uint64_t)number_of(w->end, "allowed");
	o->net.denied = (uint64_t)number_of(w->end, "denied");
	o->has_net = true;
	if (o->timed_out)
		o->exit_code = AK_EXIT_TIMEOUT;
	if (o->exit_code == AK_EXIT_FAILED && text_of(w->end, "error")[0])
		return ak_fail(err, EIO, "%s", text_of(w->end, "error"));
	say_how_it_ended(w, o);
	return 0;
}

static void take_output(struct warm_run *w)
{
	if (!w->opts->json)
		return;
	w->ret->out_len = w->capture[OUT].text.len;
	w->ret->err_len = w->capture[ERR].text.len;
	w->ret->out = strbuf_take(&w->capture[OUT].text);
	w->ret->err = strbuf_take(&w->capture[ERR].text);
	w->ret->out_cut = w->capture[OUT].cut;
	w->ret->err_cut = w->capture[ERR].cut;
}

static void warm_done(struct warm_run *w)
{
	ak_close(w->sock);
	ak_close(w->signal_fd);
	ak_close(w->tty_fd);
	for (int i = 0; i < STREAMS; i++) {
		ak_close(w->capture[i].fd);
		strbuf_done(&w->capture[i].text);
	}
	cJSON_Delete(w->end);
}

/* -EAGAIN: nothing was started. */
static int run_warm(const struct run_opts *opts, const struct ak_paths *paths, struct run_result *ret, struct ak_err *err)
{
	_cleanup_(warm_done) struct warm_run w = { .opts = opts, .sock = -1, .signal_fd = -1, .tty_fd = -1, .ret = ret };
	struct ak_err ignored;
	int rc;

	w.capture[OUT].fd = w.capture[ERR].fd = w.tty.master = -1;
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
		w.tty.master = -1;
		tty_close(&w.tty);
		ret->outcome.exit_code = 128 + w.left_by;
		return 0;
	}
	drain(&w);
	take_output(&w);
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

int client_run(const struct run_opts *opts, const struct ak_paths *paths, struct run_result *ret, struct ak_err *err)
{
	sigset_t before;
	int rc;

	if (opts->keep || opts->no_network || !ak_profile_network(opts->profile))
		return run_execute(opts, paths, ret, err);
	sigprocmask(SIG_SETMASK, NULL, &before);
	rc = run_warm(opts, paths, ret, err);
	if (rc != -EAGAIN)
		return rc;
	run_result_done(ret);
	release_signals(&before);
	return run_execute(opts, paths, ret, err);
}
