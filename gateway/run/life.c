/* The life of one run: see run/life.h. */
#include "gateway/run/life.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/base/say.h"
#include "gateway/store/policy_dirs.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

void life_init(struct run_life *l, const struct life_ops *ops, void *ctx)
{
	memset(l, 0, sizeof(*l));
	l->ops = ops;
	l->ctx = ctx;
	l->dir.dir_fd = l->dir.log_fd = -1;
}

void life_done(struct run_life *l)
{
	disk_watch_done(&l->disk);
	rundir_done(&l->dir);
	policy_unref(TAKE(l->policy));
}

/* ---- end ---- */

static void write_record(struct run_life *l)
{
	struct ak_err err;

	if (l->dir.dir_fd < 0)
		return;
	if (!l->ran)
		rundir_discard(&l->dir);
	else if (rundir_record_end(&l->dir, l->plan, l->opts, &l->outcome, &err) < 0)
		ak_say("%s", err.text);
	rundir_done(&l->dir);
}

/* Write the record first: a client that learns of the end can then read it, or reuse the name of a run that never ran. */
static void over(struct run_life *l)
{
	l->state = LIFE_OVER;
	write_record(l);
	if (l->ops->over)
		l->ops->over(l);
}

/* The command has not run, and will not. */
static void give_up(struct run_life *l, int rc, const struct ak_err *err)
{
	l->rc = rc;
	l->failure = *err;
	if (l->sandbox)
		(void)sandbox_signal(l->sandbox, SIGKILL);
	over(l);
}

static const struct sandbox_result *result_of(const struct run_life *l)
{
	return l->sandbox && sandbox_poll(l->sandbox) == SANDBOX_ENDED ? sandbox_result(l->sandbox) : NULL;
}

/* If the sandbox itself failed, report that: ERR is only a consequence. */
static void fail(struct run_life *l, const struct ak_err *err)
{
	const struct sandbox_result *res = result_of(l);

	give_up(l, -EIO, res && res->err.text[0] ? &res->err : err);
}

static void take_result(struct run_life *l, const struct sandbox_result *res)
{
	struct run_outcome *o = &l->outcome;

	disk_watch_done(&l->disk);
	o->duration_ms = ak_now_ms() - l->command_began_ms;
	o->out_of_memory = res->out_of_memory;
	o->pids_hit = res->pids_hit;
	if (l->opts) {
		o->memory_bytes = l->opts->limits.memory_bytes;
		o->pids = l->opts->limits.pids;
	}
	o->exit_code = l->unrecorded ? AK_EXIT_FAILED : o->timed_out ? AK_EXIT_TIMEOUT : res->exit_code;
	if (!l->unrecorded && o->exit_code >= AK_EXIT_FAILED && o->exit_code <= 127)
		o->why = res->err;
}

static void ended(struct run_life *l)
{
	struct ak_err err;

	if (l->state == LIFE_BUILDING) {
		ak_fail(&err, EIO, "the sandbox ended before the command ran");
		fail(l, &err);
		return;
	}
	take_result(l, sandbox_result(l->sandbox));
	l->state = LIFE_ENDING;
	if (l->hosted)
		l->ops->unhost(l);
	else
		over(l);
}

/* ---- start ---- */

static int make_records(struct run_life *l, struct ak_err *err)
{
	return l->dir.dir_fd >= 0 ? 0 : rundir_create(&l->dir, l->paths, l->plan->name, l->opts->keep, err);
}

static int load_policy(struct run_life *l, struct ak_err *err)
{
	if (l->policy || !l->plan->network)
		return 0;
	return ak_policy_load(l->paths, l->plan->policy, l->opts->edits, l->opts->n_edits, &l->policy, err);
}

static int ask_host(struct run_life *l, struct ak_err *err)
{
	if (!l->needs_host || l->hosting)
		return 0;
	l->hosting = true;
	return l->ops->host(l, err);
}

static int record_start(struct run_life *l, struct ak_err *err)
{
	return l->opts ? rundir_record_start(&l->dir, l->plan, l->opts, l->policy, err) : 0;
}

/* Building the sandbox takes longest, so it starts first. A kept sandbox writes into the run's folder, which must exist before. */
static int begin(struct run_life *l, struct ak_err *err)
{
	int rc = l->opts && l->opts->keep ? make_records(l, err) : 0;

	if (rc == 0)
		rc = l->ops->build(l, err);
	if (rc == 0 && l->opts)
		rc = load_policy(l, err);
	if (rc == 0 && l->opts)
		rc = make_records(l, err);
	if (rc == 0 && !l->host_when_ready)
		rc = ask_host(l, err);
	if (rc == 0 && !l->record_late)
		rc = record_start(l, err);
	return rc;
}

void life_begin(struct run_life *l)
{
	struct ak_err err;
	int rc;

	l->start_by_ms = ak_now_ms() + l->start_max_ms;
	rc = begin(l, &err);
	if (rc < 0)
		give_up(l, rc, &err);
}

/* ---- go ---- */

/* A command whose start cannot be recorded is killed. */
static void record_running(struct run_life *l)
{
	if (!l->opts)
		return;
	rundir_point_last(l->paths, l->plan->name);
	if (!l->record_late || record_start(l, &l->outcome.why) == 0)
		return;
	l->unrecorded = true;
	(void)sandbox_signal(l->sandbox, SIGKILL);
}

static void go(struct run_life *l)
{
	struct ak_err err;

	if (l->ops->going)
		l->ops->going(l);
	if (sandbox_go(l->sandbox, &err) < 0) {
		fail(l, &err);
		return;
	}
	l->state = LIFE_RUNNING;
	l->ran = true;
	l->outcome.start_us = ak_now_us() - l->began_us;
	l->command_began_ms = ak_now_ms();
	l->deadline_ms = l->opts && l->opts->timeout_ms ? l->command_began_ms + l->opts->timeout_ms : 0;
	if (l->ops->started)
		l->ops->started(l);
	if (l->opts)
		disk_watch_begin(&l->disk, l->dir.upper[0] ? l->dir.upper : NULL, l->opts->limits.disk_bytes,
			sandbox_init_pid(l->sandbox));
	record_running(l);
}

/* The sandbox is ready: start the command if the gateway is, too. */
static void ready(struct run_life *l)
{
	struct ak_err err;

	if (ask_host(l, &err) < 0)
		fail(l, &err);
	else if (l->state == LIFE_BUILDING && (l->hosted || !l->needs_host))
		go(l);
}

/* ---- events ---- */

void life_poll(struct run_life *l)
{
	enum sandbox_state state;

	if (l->state > LIFE_RUNNING)
		return;
	state = sandbox_poll(l->sandbox);
	if (state == SANDBOX_ENDED)
		ended(l);
	else if (state == SANDBOX_READY && l->state == LIFE_BUILDING)
		ready(l);
}

void life_hosted(struct run_life *l)
{
	if (l->state != LIFE_BUILDING)
		return;
	l->hosted = true;
	life_poll(l);
}

void life_refused(struct run_life *l, const char *reason)
{
	struct ak_err err;

	if (l->state != LIFE_BUILDING)
		return;
	ak_fail(&err, EPROTO, "%.500s", reason); /* the text may come from another process */
	fail(l, &err);
}

void life_host_lost(struct run_life *l, const char *reason)
{
	life_refused(l, reason);
	l->hosted = false; /* a running command continues without a network */
}

void life_unhosted(struct run_life *l, const struct gw_stats *last)
{
	if (l->state != LIFE_ENDING)
		return;
	if (last)
		l->outcome.net = *last;
	l->outcome.has_net = last != NULL;
	over(l);
}

static bool stops_or_continues(int sig)
{
	return sig == SIGSTOP || sig == SIGTSTP || sig == SIGCONT;
}

/* The first Ctrl-C is forwarded to the command, the second kills it. */
void life_signal(struct run_life *l, int sig)
{
	struct ak_err err;

	if (l->state == LIFE_BUILDING && !stops_or_continues(sig)) {
		l->outcome.exit_code = 128 + sig;
		ak_fail(&err, EINTR, "interrupted before the command ran");
		fail(l, &err);
	}
	if (l->state != LIFE_RUNNING)
		return;
	if (sig == SIGINT && l->interrupts++ > 0)
		sig = SIGKILL;
	if ((sig == SIGTERM || sig == SIGHUP) && !l->kill_at_ms)
		l->kill_at_ms = ak_now_ms() + LIFE_TERM_GRACE_MS;
	(void)sandbox_signal(l->sandbox, sig);
}

void life_left(struct run_life *l)
{
	struct ak_err err;

	if (l->state == LIFE_BUILDING) {
		ak_fail(&err, EPIPE, "the client disconnected before the command ran");
		fail(l, &err);
	} else if (l->state == LIFE_RUNNING) {
		(void)sandbox_signal(l->sandbox, SIGKILL);
	}
}

/* ---- timers ---- */

static uint64_t earlier(uint64_t a, uint64_t b)
{
	return !a || (b && b < a) ? b : a;
}

static uint64_t timer_due_ms(const struct run_life *l)
{
	if (l->state == LIFE_BUILDING)
		return l->start_by_ms;
	return l->state == LIFE_RUNNING && !l->killed ? earlier(l->deadline_ms, l->kill_at_ms) : 0;
}

void life_tick(struct run_life *l)
{
	uint64_t now = ak_now_ms(), due;
	struct ak_err err;

	if (l->state == LIFE_RUNNING && !l->killed && disk_watch_tick(&l->disk, now, &l->outcome)) {
		l->killed = true;
		(void)sandbox_signal(l->sandbox, SIGKILL);
		return;
	}
	due = timer_due_ms(l);
	if (!due || now < due)
		return;
	if (l->state == LIFE_BUILDING) {
		ak_fail(&err, ETIMEDOUT, "the sandbox was not ready after %u s", (unsigned)(l->start_max_ms / 1000));
		fail(l, &err);
		return;
	}
	l->outcome.timed_out = l->deadline_ms && now >= l->deadline_ms;
	l->killed = true;
	(void)sandbox_signal(l->sandbox, SIGKILL);
}

uint64_t life_due_ms(const struct run_life *l)
{
	bool watched = l->state == LIFE_RUNNING && !l->killed;

	return earlier(timer_due_ms(l), watched ? disk_watch_due_ms(&l->disk) : 0);
}
