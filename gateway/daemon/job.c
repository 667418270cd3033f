/*
 * {"op":"run"}: a warm sandbox runs one job. At the same time the gateway gets the job's policy and log, and the sandbox gets the job's mounts,
 * command and streams; run/life.h decides when the command runs and what its end means. If something fails before the command runs, the client gets EAGAIN and
 * takes the cold path. Either way the sandbox is destroyed.
 */
#include "gateway/daemon/internal.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/base/say.h"
#include "gateway/run/gw_log.h"
#include "gateway/run/life.h"
#include "gateway/run/ports.h"
#include "gateway/store/policy_dirs.h"
#include "gateway/store/report.h"
#include "gateway/store/rundir.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define START_MAX_MS 10000
#define STREAMS 3

struct job {
	struct warm *w; /* borrowed: owns us */
	uint64_t peer_id; /* 0 once the client has disconnected */
	struct run_ask ask;
	struct run_life life;
	int fds[IPC_FDS_MAX]; /* owned: 0, 1, 2, then the listeners of its published ports */
	size_t n_fds;
	struct event *on_time; /* owned */
};

static void close_fds(struct job *j, size_t from, size_t to)
{
	for (size_t i = from; i < to && i < j->n_fds; i++)
		j->fds[i] = ak_close(j->fds[i]);
}

void job_free(struct job *j)
{
	if (!j)
		return;
	if (j->w)
		ipc_server_forget(j->w->d->clients, j->peer_id);
	if (j->on_time)
		event_free(j->on_time);
	close_fds(j, 0, j->n_fds);
	life_done(&j->life);
	run_ask_done(&j->ask);
	free(j);
}

static void job_freep(struct job **j)
{
	job_free(*j);
}

/* ---- replies to the client ---- */

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
		cJSON_AddNumberToObject(obj, "start_us", (double)j->life.outcome.start_us);
	int tty = sandbox_tty_fd(j->w->sandbox);

	if (peer)
		ipc_peer_send(peer, ok ? obj : NULL, &tty, j->ask.opts.tty && tty >= 0 ? 1 : 0);
}

static void tell_exit(struct job *j)
{
	struct run_report report = { .outcome = j->life.outcome, .notes = (char *)sandbox_notes(j->w->sandbox) };
	struct ipc_peer *peer = client_of(j);
	_cleanup_json_ cJSON *obj = NULL;

	memcpy(report.name, j->ask.plan.name, sizeof(report.name));
	obj = run_report_to_json(&report);
	ipc_server_forget(j->w->d->clients, j->peer_id);
	if (peer)
		ipc_peer_send(peer, obj && cJSON_AddStringToObject(obj, "event", "exit") ? obj : NULL, NULL, 0);
}

/* The command never ran: EAGAIN makes the client take the cold path. */
static void tell_failed(struct job *j)
{
	struct ipc_peer *peer = client_of(j);

	pool_failed(j->w, j->life.failure.text);
	ipc_server_forget(j->w->d->clients, j->peer_id);
	if (peer)
		ipc_peer_fail(peer, EAGAIN, j->life.failure.text);
	j->peer_id = 0;
}

/* ---- callbacks of run/life.h ---- */

/* Set the timer for the next life_tick. */
static void arm(struct job *j)
{
	uint64_t due = life_due_ms(&j->life), now = ak_now_ms(), ms = due > now ? due - now : 0;
	struct timeval delay = { (time_t)(ms / 1000), (suseconds_t)(ms % 1000 * 1000) };

	evtimer_del(j->on_time);
	if (due)
		evtimer_add(j->on_time, &delay);
}

static void on_time(evutil_socket_t fd, short what, void *ctx)
{
	struct job *j = ctx;

	life_tick(&j->life);
	arm(j);
}

static int build(struct run_life *l, struct ak_err *err)
{
	struct job *j = l->ctx;
	char resolv[PLAN_RESOLV_MAX];
	struct sandbox_spec spec;
	int rc;

	run_plan_spec(&j->ask.plan, &j->w->net, resolv, &spec);
	spec.argv = j->ask.argv;
	spec.limits = j->ask.opts.limits;
	spec.tty = j->ask.opts.tty;
	memcpy(spec.stdio, j->fds, sizeof(spec.stdio));
	rc = sandbox_assign(j->w->sandbox, &spec, err);
	close_fds(j, 0, STREAMS); /* else the reader of a pipe sees no end of file when the command closes it */
	return rc;
}

static void on_assigned(void *ctx, int rc, const struct gw_msg *answer, const struct ak_err *err)
{
	struct warm *w = ctx;

	w->hosting = false;
	if (w->status == WARM_ENDING)
		warm_destroy(w);
	else if (rc < 0)
		life_refused(&w->job->life, err->text);
	else
		life_hosted(&w->job->life);
}

static int host(struct run_life *l, struct ak_err *err)
{
	struct job *j = l->ctx;
	struct gw_msg msg = { .type = GW_MSG_ASSIGN, .id = j->w->net.id, .generation = 1 };
	int fds[2] = { dgw_policy_file(l->policy), l->dir.log_fd };

	if (fds[0] < 0)
		return ak_fail_errno(err, -fds[0], "policy");
	if (gw_log_begin(l->paths, l->plan->name, &msg.log, err) < 0) {
		ak_close(fds[0]);
		return -EIO;
	}
	l->dir.log_fd = -1;
	memcpy(msg.name, l->plan->name, sizeof(msg.name));
	if (dgw_send(j->w->d, &msg, fds, 2, on_assigned, j->w) < 0)
		return ak_fail(err, ENOMEM, "out of memory");
	j->w->hosting = true;
	return 0;
}

static int open_port(void *ctx, const struct ak_publish *p, int listener, struct ak_err *err)
{
	const struct warm *w = ((const struct job *)ctx)->w;
	_cleanup_close_ int ours = -1, theirs = -1, fd = -1;
	int rc = ak_channel_open(&ours, &theirs, err);

	if (rc == 0)
		rc = sandbox_channel(w->sandbox, theirs, err);
	if (rc == 0 && (fd = fcntl(listener, F_DUPFD_CLOEXEC, 3)) < 0)
		rc = ak_fail_errno(err, errno, "published port");
	if (rc == 0)
		port_send(w->d, w->net.id, p, TAKE_FD(fd), TAKE_FD(ours));
	return rc;
}

static void close_port(void *ctx, const struct ak_publish *p)
{
	const struct warm *w = ((const struct job *)ctx)->w;
	struct gw_msg msg = { .type = GW_MSG_UNPUBLISH, .id = w->net.id, .publish = *p };

	(void)dgw_send(w->d, &msg, NULL, 0, NULL, NULL);
}

/* The command is about to run: hand its published ports to the gateway. */
static void going(struct run_life *l)
{
	struct job *j = l->ctx;

	for (size_t i = 0; i < j->ask.opts.n_publish; i++) {
		_cleanup_close_ int listener = TAKE_FD(j->fds[STREAMS + i]);
		struct ak_err err;

		if (open_port(j, &j->ask.opts.publish[i], listener, &err) < 0)
			ak_say("%s: %s", l->plan->name, err.text);
	}
}

static void started(struct run_life *l)
{
	struct job *j = l->ctx;

	arm(j);
	tell_started(j);
}

static void on_removed(void *ctx, int rc, const struct gw_msg *answer, const struct ak_err *err)
{
	struct warm *w = ctx;

	life_unhosted(&w->job->life, rc == 0 ? &answer->stats : NULL);
}

static void unhost(struct run_life *l)
{
	struct warm *w = ((struct job *)l->ctx)->w;
	struct gw_msg msg = { .type = GW_MSG_REMOVE, .id = w->net.id };

	event_del(w->on_sandbox); /* the descriptor of an ended sandbox stays readable */
	w->hosted = false;
	if (dgw_send(w->d, &msg, NULL, 0, on_removed, w) < 0)
		life_unhosted(l, NULL);
}

static void over(struct run_life *l)
{
	struct job *j = l->ctx;

	if (j->on_time)
		evtimer_del(j->on_time);
	if (l->ran)
		tell_exit(j);
	else
		tell_failed(j);
	warm_destroy(j->w);
	if (!l->ran)
		pool_refill(j->w->d);
}

static const struct life_ops life_ops = {
	.build = build,
	.host = host,
	.going = going,
	.started = started,
	.unhost = unhost,
	.over = over,
};

void job_sandbox_event(struct warm *w)
{
	life_poll(&w->job->life);
}

/* A running command continues without a network. */
void job_gateway_lost(struct warm *w)
{
	life_host_lost(&w->job->life, w->d->gw.reason.text);
}

/* ---- start ---- */

static void begin(struct job *j)
{
	struct daemon *d = j->w->d;
	struct run_life *l = &j->life;

	l->paths = d->paths;
	l->opts = &j->ask.opts;
	l->plan = &j->ask.plan;
	l->sandbox = j->w->sandbox;
	l->needs_host = l->record_late = true;
	l->start_max_ms = START_MAX_MS;
	life_begin(l);
	if (l->state == LIFE_OVER)
		return;
	arm(j);
	pool_refill_later(d);
}

static struct job *job_new(struct request *r)
{
	struct job *j = calloc(1, sizeof(*j));

	if (!j)
		return NULL;
	life_init(&j->life, &life_ops, j);
	j->life.began_us = ak_now_us();
	j->peer_id = r->peer_id;
	j->ask.obj = TAKE(r->obj);
	memcpy(j->fds, r->fds, r->n_fds * sizeof(r->fds[0]));
	j->n_fds = r->n_fds;
	r->n_fds = 0;
	j->on_time = evtimer_new(r->d->base, on_time, j);
	return j;
}

void op_run(struct request *r)
{
	struct daemon *d = r->d;
	_cleanup_(job_freep) struct job *j = job_new(r);
	struct ipc_peer *peer = ipc_server_find(d->clients, r->peer_id);
	struct warm *w = NULL;
	struct ak_err err;
	int rc = j && j->on_time ? run_ask_from_json(&j->ask, &err) : ak_fail(&err, ENOMEM, "out of memory");

	if (rc == 0 && j->n_fds != STREAMS + j->ask.opts.n_publish)
		rc = ak_fail(&err, EINVAL, "run needs stdin, stdout, stderr and a listener for each published port");
	/* The policy is read while the sandbox is being prepared (life_begin); if it cannot be used, the sandbox was prepared in vain. */
	if (rc == 0) {
		w = pool_take(d, j->ask.opts.mode, j->ask.opts.vm, &j->ask.plan);
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
	begin(TAKE(j));
}

/* ---- ports that are published later ---- */

bool job_publish(struct request *r, const char *name)
{
	static const struct run_ports_ops ops = { .open = open_port, .close = close_port };
	struct job *j = NULL;
	cJSON *answer = NULL;
	struct ak_err err;
	struct warm *w;
	int rc;

	TAILQ_FOREACH(w, &r->d->pool.all, link) {
		if (w->job && !strcmp(w->job->ask.plan.name, name))
			j = w->job;
	}
	if (!j)
		return false;
	rc = run_ports_change(&j->life, &j->ask.opts, r->obj, &ops, &answer, &err);
	if (rc < 0)
		request_fail(r, -rc, err.text);
	else
		request_answer(r, answer);
	return true;
}

/* ---- messages from the client ---- */

void job_peer_message(struct daemon *d, struct ipc_peer *peer, const cJSON *obj)
{
	struct job *j = ipc_peer_data(peer);
	const char *op = "";
	uint64_t sig = 0;
	struct ak_err err;

	if (json_get_string(obj, "op", &op, &err) > 0 && !strcmp(op, "signal") &&
		json_get_uint(obj, "sig", SIGRTMAX, &sig, &err) > 0 && sig > 0) {
		life_signal(&j->life, (int)sig);
		arm(j);
	}
}

void job_peer_gone(struct daemon *d, struct ipc_peer *peer)
{
	struct job *j = ipc_peer_data(peer);

	if (!j)
		return;
	j->peer_id = 0;
	life_left(&j->life);
}

int job_log_path(struct daemon *d, uint32_t link_id, char ret[static PATH_MAX])
{
	const struct warm *w;

	TAILQ_FOREACH(w, &d->pool.all, link) {
		if (w->net.id == link_id && w->job) {
			memcpy(ret, w->job->life.dir.log_path, PATH_MAX);
			return 0;
		}
	}
	return -ENOENT;
}
