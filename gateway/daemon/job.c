/*
 * {"op":"run"}: a warm sandbox becomes one job. The gateway gets the job's policy and log, the sandbox the job's mounts, command and
 * streams, both at the same time; when both have said yes the command runs. Its end is the sandbox's. Whatever fails before the command runs is
 * told as EAGAIN, and the client takes the cold path; the sandbox is destroyed all the same.
 */
#include "gateway/daemon/internal.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/base/say.h"
#include "gateway/run/gw_log.h"
#include "gateway/store/policy_dirs.h"
#include "gateway/store/report.h"
#include "gateway/store/rundir.h"

#include <errno.h>
#include <event2/event.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define START_MAX_MS 10000

struct job {
	struct warm *w; /* borrowed: owns us */
	uint64_t peer_id; /* 0 once the client has left */
	struct run_ask ask;
	struct policy *policy; /* owned reference */
	struct rundir dir;
	int fds[IPC_FDS_MAX]; /* owned: 0, 1, 2 */
	size_t n_fds;
	bool assigned, running, recorded;
	bool unrecorded; /* its start could not be, and it was ended for that */
	struct event *on_time; /* owned */
	uint64_t began_ms, command_began_ms;
	struct run_outcome outcome;
};

static void close_fds(struct job *j)
{
	for (size_t i = 0; i < j->n_fds; i++)
		ak_close(j->fds[i]);
	j->n_fds = 0;
}

void job_free(struct job *j)
{
	if (!j)
		return;
	if (j->w)
		ipc_server_forget(j->w->d->clients, j->peer_id);
	if (j->on_time)
		event_free(j->on_time);
	close_fds(j);
	rundir_done(&j->dir);
	run_ask_done(&j->ask);
	policy_unref(j->policy);
	free(j);
}

static void job_freep(struct job **j)
{
	job_free(*j);
}

/* ---- telling the client ---- */

static struct ipc_peer *client_of(const struct job *j)
{
	return j->peer_id ? ipc_server_find(j->w->d->clients, j->peer_id) : NULL;
}

static void tell_started(struct job *j)
{
	struct ipc_peer *peer = client_of(j);
	_cleanup_json_ cJSON *obj = cJSON_CreateObject();
	bool ok = obj && cJSON_AddStringToObject(obj, "event", "started") &&
		cJSON_AddStringToObject(obj, "name", j->ask.plan.name) &&
		cJSON_AddNumberToObject(obj, "start_us", (double)j->outcome.start_us);
	int tty = sandbox_tty_fd(j->w->sandbox);

	if (peer)
		ipc_peer_send(peer, ok ? obj : NULL, &tty, j->ask.opts.tty && tty >= 0 ? 1 : 0);
}

static void tell_exit(struct job *j)
{
	struct run_report report = { .outcome = j->outcome, .notes = (char *)sandbox_notes(j->w->sandbox) };
	struct ipc_peer *peer = client_of(j);
	_cleanup_json_ cJSON *obj = NULL;

	memcpy(report.name, j->ask.plan.name, sizeof(report.name));
	obj = run_report_to_json(&report);
	ipc_server_forget(j->w->d->clients, j->peer_id);
	if (peer)
		ipc_peer_send(peer, obj && cJSON_AddStringToObject(obj, "event", "exit") ? obj : NULL, NULL, 0);
}

/* ---- its life ---- */

/* It never ran: the client goes the other way, and no trace of it is left. */
static void give_up(struct job *j, const char *reason)
{
	struct ipc_peer *peer = client_of(j);
	struct warm *w = j->w;

	ipc_server_forget(w->d->clients, j->peer_id);
	if (peer)
		ipc_peer_fail(peer, EAGAIN, reason);
	j->peer_id = 0;
	if (j->dir.dir_fd >= 0)
		rundir_discard(&j->dir);
	warm_destroy(w);
	pool_refill(w->d);
}

static void finish(struct job *j)
{
	struct ak_err err;

	if (!j->recorded && rundir_record_end(&j->dir, &j->ask.plan, &j->ask.opts, &j->outcome, &err) < 0)
		ak_say("%s", err.text);
	j->recorded = true;
	rundir_done(&j->dir);
	tell_exit(j);
	warm_destroy(j->w);
}

static void on_removed(void *ctx, int rc, const struct gw_msg *answer, const struct ak_err *err)
{
	struct warm *w = ctx;

	if (rc == 0) {
		w->job->outcome.net = answer->stats;
		w->job->outcome.has_net = true;
	}
	finish(w->job);
}

static void ended(struct job *j)
{
	struct gw_msg msg = { .type = GW_MSG_REMOVE, .id = j->w->net.id };
	const struct sandbox_result *res = sandbox_result(j->w->sandbox);

	event_del(j->w->on_sandbox);
	if (!j->running || (res->exit_code == AK_EXIT_FAILED && res->err.text[0])) {
		give_up(j, res->err.text[0] ? res->err.text : "the sandbox ended before the command ran");
		return;
	}
	evtimer_del(j->on_time);
	j->outcome.duration_ms = ak_now_ms() - j->command_began_ms;
	j->outcome.exit_code = j->unrecorded ? AK_EXIT_FAILED : j->outcome.timed_out ? AK_EXIT_TIMEOUT : res->exit_code;
	j->outcome.out_of_memory = res->out_of_memory;
	j->outcome.pids_hit = res->pids_hit;
	if (!j->unrecorded && (res->exit_code == 126 || res->exit_code == 127))
		j->outcome.why = res->err;
	if (!j->w->hosted) {
		finish(j);
		return;
	}
	j->w->hosted = false;
	dgw_send(j->w->d, &msg, NULL, 0, on_removed, j->w);
}

static void on_time(evutil_socket_t fd, short what, void *ctx)
{
	struct job *j = ctx;

	j->outcome.timed_out = j->running;
	(void)sandbox_signal(j->w->sandbox, SIGKILL);
}

static void arm(struct job *j, uint64_t ms)
{
	struct timeval delay = { (time_t)(ms / 1000), (suseconds_t)(ms % 1000 * 1000) };

	evtimer_del(j->on_time);
	if (ms)
		evtimer_add(j->on_time, &delay);
}

/* While the command begins, which need not wait for it. What cannot be recorded does not go on. */
static void record_start(struct job *j)
{
	if (rundir_record_start(&j->dir, &j->ask.plan, &j->ask.opts, j->policy, &j->outcome.why) == 0)
		return;
	j->unrecorded = true;
	(void)sandbox_signal(j->w->sandbox, SIGKILL);
}

static void maybe_go(struct job *j)
{
	struct ak_err err;

	if (j->running || !j->assigned || sandbox_poll(j->w->sandbox) != SANDBOX_READY)
		return;
	if (sandbox_go(j->w->sandbox, &err) < 0) {
		give_up(j, err.text);
		return;
	}
	j->running = true;
	j->command_began_ms = ak_now_ms();
	j->outcome.start_us = (j->command_began_ms - j->began_ms) * 1000;
	arm(j, j->ask.opts.timeout_ms);
	tell_started(j);
	rundir_point_last(j->w->d->paths, j->ask.plan.name);
	record_start(j);
}

void job_sandbox_event(struct warm *w)
{
	if (sandbox_poll(w->sandbox) == SANDBOX_ENDED)
		ended(w->job);
	else
		maybe_go(w->job);
}

static void on_assigned(void *ctx, int rc, const struct gw_msg *answer, const struct ak_err *err)
{
	struct warm *w = ctx;

	w->hosting = false;
	if (w->status == WARM_ENDING) {
		warm_destroy(w);
	} else if (rc < 0) {
		give_up(w->job, err->text);
	} else {
		w->job->assigned = true;
		maybe_go(w->job);
	}
}

void job_gateway_lost(struct warm *w)
{
	(void)w; /* what runs goes on without a network; what does not yet is told by its own answer */
}

/* ---- start ---- */

static int assign_gateway(struct job *j, struct ak_err *err)
{
	struct gw_msg msg = { .type = GW_MSG_ASSIGN, .id = j->w->net.id, .generation = 1 };
	int fds[2] = { dgw_policy_file(j->policy), j->dir.log_fd };

	if (fds[0] < 0)
		return ak_fail_errno(err, -fds[0], "policy");
	if (gw_log_begin(j->w->d->paths, j->ask.plan.name, &msg.log, err) < 0) {
		ak_close(fds[0]);
		return -EIO;
	}
	j->dir.log_fd = -1;
	memcpy(msg.name, j->ask.plan.name, sizeof(msg.name));
	j->w->hosting = true;
	dgw_send(j->w->d, &msg, fds, 2, on_assigned, j->w);
	return 0;
}

static int assign_sandbox(struct job *j, struct ak_err *err)
{
	char resolv[PLAN_RESOLV_MAX];
	struct sandbox_spec spec;
	int rc;

	run_plan_spec(&j->ask.plan, &j->w->net, resolv, &spec);
	spec.argv = j->ask.argv;
	spec.limits = j->ask.opts.limits;
	spec.tty = j->ask.opts.tty;
	memcpy(spec.stdio, j->fds, sizeof(spec.stdio));
	rc = sandbox_assign(j->w->sandbox, &spec, err);
	close_fds(j); /* the reader of a pipe must see its end when the command closes it */
	return rc;
}

static int begin(struct job *j, struct ak_err *err)
{
	struct daemon *d = j->w->d;
	int rc;

	j->on_time = evtimer_new(d->base, on_time, j);
	/* The sandbox has most to do, so it comes first. */
	rc = j->on_time ? assign_sandbox(j, err) : ak_fail(err, ENOMEM, "out of memory");
	if (rc == 0)
		rc = rundir_create(&j->dir, d->paths, j->ask.plan.name, false, err);
	if (rc == 0)
		rc = assign_gateway(j, err);
	if (rc == 0)
		arm(j, START_MAX_MS);
	return rc;
}

static struct job *job_new(struct request *r)
{
	struct job *j = calloc(1, sizeof(*j));

	if (!j)
		return NULL;
	j->dir.dir_fd = j->dir.log_fd = -1;
	j->began_ms = ak_now_ms();
	j->peer_id = r->peer_id;
	j->ask.obj = TAKE(r->obj);
	memcpy(j->fds, r->fds, r->n_fds * sizeof(r->fds[0]));
	j->n_fds = r->n_fds;
	r->n_fds = 0;
	return j;
}

void op_run(struct request *r)
{
	struct daemon *d = r->d;
	_cleanup_(job_freep) struct job *j = job_new(r);
	struct ipc_peer *peer = ipc_server_find(d->clients, r->peer_id);
	struct warm *w = NULL;
	struct ak_err err;
	int rc = j ? run_ask_from_json(&j->ask, &err) : ak_fail(&err, ENOMEM, "out of memory");

	if (rc == 0 && j->n_fds != 3)
		rc = ak_fail(&err, EINVAL, "run wants its three streams");
	if (rc == 0)
		rc = ak_policy_load(d->paths, j->ask.plan.policy, j->ask.opts.edits, j->ask.opts.n_edits, &j->policy, &err);
	if (rc == 0) {
		w = pool_take(d, j->ask.opts.mode, &j->ask.plan);
		rc = w ? 0 : ak_fail(&err, EAGAIN, "no warm sandbox");
	}
	if (rc < 0) {
		request_fail(r, -rc, err.text);
		return;
	}
	request_free(r);
	j->w = w;
	w->status = WARM_JOB;
	w->job = j;
	if (peer)
		ipc_peer_set_data(peer, j);
	rc = begin(TAKE(j), &err);
	if (rc < 0)
		give_up(w->job, err.text);
	else
		pool_refill_later(d);
}

/* ---- the client's side of it ---- */

void job_peer_message(struct daemon *d, struct ipc_peer *peer, const cJSON *obj)
{
	struct job *j = ipc_peer_data(peer);
	const char *op = "";
	uint64_t sig = 0;
	struct ak_err err;

	if (json_get_string(obj, "op", &op, &err) > 0 && !strcmp(op, "signal") &&
		json_get_uint(obj, "sig", SIGRTMAX, &sig, &err) > 0 && sig > 0 && (j->running || sig == SIGKILL))
		(void)sandbox_signal(j->w->sandbox, (int)sig);
}

void job_peer_gone(struct daemon *d, struct ipc_peer *peer)
{
	struct job *j = ipc_peer_data(peer);

	if (!j)
		return;
	j->peer_id = 0;
	(void)sandbox_signal(j->w->sandbox, SIGKILL);
}

int job_log_path(struct daemon *d, uint32_t link_id, char ret[static PATH_MAX])
{
	const struct warm *w;

	TAILQ_FOREACH(w, &d->pool.all, link) {
		if (w->net.id == link_id && w->job) {
			memcpy(ret, w->job->dir.log_path, PATH_MAX);
			return 0;
		}
	}
	return -ENOENT;
}
