/*
 * `run` in a warm sandbox of the daemon, if one fits. See service/service.h.
 *
 * A failure before the command starts is not reported: the cold path does the same with the same plan, only slower, and reports what is
 * wrong. A command is never started twice.
 */
#include "gateway/service/internal.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/daemon/daemon.h"
#include "gateway/ipc/ipc.h"
#include "gateway/run/front.h"
#include "gateway/run/life.h"
#include "gateway/run/vm.h"
#include "gateway/store/policy_dirs.h"
#include "gateway/store/report.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

#define LEAVE_MS                                                                                                                 \
	(LIFE_TERM_GRACE_MS + 1000) /* from SIGTERM until we disconnect, if the daemon has not ended the command by then */
#define DRAIN_MS 2000

struct warm_run {
	struct run_front *front; /* borrowed */
	int sock, tty_fd; /* owned */
	bool started;
	int early; /* a signal that came before the command started, or 0 */
	int left_by; /* the signal that made us disconnect, or 0 */
	uint64_t leave_at_ms;
	int rc; /* 1: it ended; -EAGAIN: it was not started; other negative: we lost the daemon */
	struct run_report report; /* owned; from the daemon, once it ended */
	struct ak_err why;
};

/* ---- messages from the daemon ---- */

static void on_started(struct warm_run *w, int *fds, size_t n)
{
	w->started = true;
	run_io_close_writers(w->front->stdio); /* only the sandbox keeps them open */
	run_front_close_ports(w->front);
	if (!w->front->opts->quiet)
		run_say_notes(w->front->plan.notes);
	if (n && w->tty_fd < 0)
		w->tty_fd = TAKE_FD(fds[0]);
}

static int on_exit_event(struct warm_run *w, const cJSON *msg)
{
	int rc = run_report_from_json(msg, &w->report, &w->why);

	return rc < 0 ? ak_err_prefix(&w->why, rc, "the daemon's report") : 1;
}

static int on_message(struct warm_run *w)
{
	_cleanup_json_ cJSON *msg = NULL;
	int fds[IPC_FDS_MAX], rc;
	size_t n = ARRAY_SIZE(fds);

	rc = ipc_recv(w->sock, &msg, fds, &n);
	if (rc <= 0)
		return w->started ? -EPIPE : -EAGAIN;
	rc = 0;
	if (!strcmp(json_text(msg, "event", ""), "started"))
		on_started(w, fds, n);
	else if (!strcmp(json_text(msg, "event", ""), "exit"))
		rc = on_exit_event(w, msg);
	else
		rc = w->started ? -EPROTO : -EAGAIN;
	for (size_t i = 0; i < n; i++)
		ak_close(fds[i]);
	return rc;
}

/* ---- callbacks of run/loop.h ---- */

static void backend_poll(const void *ctx, struct pollfd p[static RUN_BACKEND_FDS])
{
	p[0] = (struct pollfd){ .fd = ((const struct warm_run *)ctx)->sock, .events = POLLIN };
	p[1] = p[2] = (struct pollfd){ .fd = -1 };
}

static void backend_serve(void *ctx, const struct pollfd p[static RUN_BACKEND_FDS])
{
	struct warm_run *w = ctx;

	if (p[0].revents)
		w->rc = on_message(w);
	if (w->rc == 0 && w->leave_at_ms && ak_now_ms() >= w->leave_at_ms)
		w->left_by = SIGKILL;
}

static uint64_t backend_due_ms(const void *ctx)
{
	return ((const struct warm_run *)ctx)->leave_at_ms;
}

/*
 * Forward the signal; the daemon handles it like the cold path (life_signal). After two signals before the start, or if the command still runs long after
 * SIGTERM, the daemon does not respond: disconnect, which ends the job.
 */
static void backend_signal(void *ctx, int sig)
{
	struct warm_run *w = ctx;
	_cleanup_json_ cJSON *msg = cJSON_CreateObject();

	if (!w->started && (sig == SIGSTOP || sig == SIGCONT))
		return;
	if (!w->started && w->early)
		w->left_by = sig;
	if (!w->started)
		w->early = sig;
	if ((sig == SIGTERM || sig == SIGHUP) && !w->leave_at_ms)
		w->leave_at_ms = ak_now_ms() + LEAVE_MS;
	if (msg && cJSON_AddStringToObject(msg, "op", "signal") && cJSON_AddNumberToObject(msg, "sig", sig))
		(void)ipc_send(w->sock, msg, NULL, 0);
}

static int backend_tty_fd(const void *ctx)
{
	return ((const struct warm_run *)ctx)->tty_fd;
}

static bool backend_over(const void *ctx)
{
	const struct warm_run *w = ctx;

	return w->rc != 0 || w->left_by;
}

static const struct run_backend backend = {
	.poll = backend_poll,
	.serve = backend_serve,
	.due_ms = backend_due_ms,
	.signal = backend_signal,
	.tty_fd = backend_tty_fd,
	.over = backend_over,
};

/* ---- start and end ---- */

/* The command was not started. After a signal we give up; in all other cases the cold path tries again. */
static int not_started(const struct warm_run *w, struct run_report *ret, struct ak_err *err)
{
	if (!w->early && run_plan_rename(&w->front->plan, w->front->opts) < 0)
		return ak_fail(err, ENOMEM, "out of memory");
	if (!w->early)
		return -EAGAIN;
	ret->outcome.exit_code = 128 + w->early;
	return ak_fail(err, EINTR, "interrupted before the command ran");
}

/* We disconnected or the daemon ended: the command was killed. */
static int lost(struct warm_run *w, struct run_report *ret, struct ak_err *err)
{
	w->sock = ak_close(w->sock); /* ends the job */
	run_drain(&w->front->io, w->left_by ? 0 : DRAIN_MS); /* after our disconnect the command may still print */
	ret->outcome.exit_code = 128 + SIGKILL;
	(void)run_front_report(w->front, ret, err);
	if (w->left_by)
		return 0;
	return w->why.text[0] ? ak_fail(err, EPROTO, "%s", w->why.text)
			      : ak_fail(err, EPIPE, "the daemon ended, which killed the command");
}

static int conclude(struct warm_run *w, struct run_report *ret, struct ak_err *err)
{
	if (!w->started)
		return not_started(w, ret, err);
	if (w->rc < 0 || w->left_by)
		return lost(w, ret, err);
	run_drain(&w->front->io, DRAIN_MS);
	*ret = w->report;
	w->report = (struct run_report){ 0 };
	return run_front_report(w->front, ret, err);
}

static void warm_done(struct warm_run *w)
{
	ak_close(w->sock);
	ak_close(w->tty_fd);
	run_report_done(&w->report);
}

/* The streams, then the listeners of published ports, in the order of the request. */
static int send_run(const struct run_front *f, int sock)
{
	int fds[IPC_FDS_MAX] = { f->stdio[0], f->stdio[1], f->stdio[2] };
	struct ak_err ignored;

	if (3 + f->n_listeners > IPC_FDS_MAX)
		return -E2BIG; /* the cold path can publish them all */
	memcpy(fds + 3, f->listeners, f->n_listeners * sizeof(*fds));
	return daemon_run_send(sock, f->opts, &f->plan, fds, 3 + f->n_listeners, &ignored);
}

/* -EAGAIN: the command was not started. */
static int run_warm(struct run_front *f, struct run_report *ret, struct ak_err *err)
{
	_cleanup_(warm_done) struct warm_run w = { .front = f, .sock = -1, .tty_fd = -1 };
	struct ak_err ignored;

	w.sock = daemon_connect(f->paths, false, &ignored);
	if (w.sock < 0 || send_run(f, w.sock) < 0)
		return -EAGAIN;
	memcpy(ret->name, f->plan.name, sizeof(ret->name));
	run_front_look(f);
	if (run_loop(&f->io, &backend, &w) < 0)
		w.rc = w.started ? -EIO : -EAGAIN;
	return conclude(&w, ret, err);
}

/* The run has ended. What fails now leaves its files in the run's folder, where `cp` still finds them. */
static void keep(const struct run_front *f, struct run_report *report)
{
	report->kept = service_keep(f->paths, f->opts, &f->plan, report, &report->keep_error) == 0;
}

/* If the command is not on this host, start over with the local image that fits. WITH is then the request in use. */
static int take_image(struct run_front *f, struct run_request **with, char hint[static AK_ERR_MAX], struct ak_err *err)
{
	const char *image = service_missing(f->opts, &f->plan, f->paths, hint);
	const struct ak_paths *paths = f->paths;
	int rc;

	if (!image)
		return 0;
	*with = malloc(sizeof(**with));
	if (!*with)
		return ak_fail(err, ENOMEM, "out of memory");
	**with = *f->opts;
	(*with)->image = image;
	run_front_done(f);
	rc = run_front_init(f, *with, paths, err);
	if (rc == 0)
		run_plan_note(&f->plan, hint);
	hint[0] = '\0';
	return rc;
}

/* A warm sandbox would be spent on a job that its virtual machine cannot take. */
static bool fits_machine(const struct run_front *f)
{
	char resolv[PLAN_RESOLV_MAX];
	struct sandbox_spec spec;

	run_plan_spec(&f->plan, NULL, resolv, &spec);
	spec.limits = f->opts->limits;
	return sandbox_warm_vm(&spec);
}

/* A limit in agentkernel.toml is for the sandboxes that have files on disk; an option for this run must mean something. */
static int check_disk(const struct run_request *opts, struct ak_err *err)
{
	if (!opts->limits.disk_bytes || opts->keep || !opts->given[FIELD_DISK])
		return 0;
	return ak_fail(err, EINVAL,
		"--disk: the files of this run are in memory and not on disk: add --keep, or limit /tmp with --tmp and memory with --memory");
}

int service_run(const struct run_request *opts, const struct ak_paths *paths, struct run_report *ret, struct ak_err *err)
{
	static struct run_front
		f; /* too large for the stack, which the gateway process inherits; a process runs one command at a time */
	_cleanup_(run_request_freep) struct run_request *own = NULL;
	_cleanup_free_ struct run_request *with = NULL;
	char hint[AK_ERR_MAX] = "";
	int rc = check_disk(opts, err);

	memset(ret, 0, sizeof(*ret));
	if (rc == 0 && opts->name)
		rc = service_claim_name(paths, opts->name, err);
	if (rc == 0)
		rc = run_request_pin(paths, &opts, &own, err);
	if (rc == 0)
		rc = service_image_from_podman(paths, opts, err);
	if (rc < 0)
		return rc;
	rc = run_front_init(&f, opts, paths, err);
	if (rc == 0)
		rc = take_image(&f, &with, hint, err);
	if (rc == 0)
		service_settle(&f);
	if (rc == 0)
		rc = f.plan.network && !f.plan.image && !opts->keep && !opts->cold && !opts->podman &&
				opts->mode != AK_MODE_OWN && !opts->vm_if_fast && (!opts->vm || fits_machine(&f))
			? run_warm(&f, ret, err)
			: -EAGAIN;
	if (rc == -EAGAIN)
		rc = run_cold(&f, ret, err);
	if (rc == 0 && hint[0] && ret->outcome.exit_code == 127) {
		run_report_note(ret, "%s", hint);
		if (!opts->quiet)
			run_say_notes(hint);
	}
	if (rc == 0 && opts->keep)
		keep(&f, ret);
	run_front_done(&f);
	return rc;
}
