/*
 * One `run`: see run/run.h.
 *
 * Theory of operation. The supervisor (this process) forks two children at once: the sandbox's setup child, which makes the
 * namespaces and becomes the parent of nothing (the sandbox's init is ours), and the gateway, which waits for the sockets that the
 * setup child opens. While they work, the records on disk are made. When init says READY and the gateway says READY, in whichever order,
 * the command may run. From then on one poll loop serves signals, the terminal, captured output, the resolver file and the deadline.
 * Should the gateway die, the link is gone with it and the command goes on without a network.
 */
#include "gateway/run/run.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/base/sabotage.h"
#include "gateway/base/say.h"
#include "gateway/host/gw.h"
#include "gateway/host/resolv.h"
#include "gateway/run/gw_log.h"
#include "gateway/run/io.h"
#include "gateway/store/policy_dirs.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define LINK_ID 1
#define START_TIMEOUT_MS 30000 /* a sandbox that is not ready by then never will be */
#define STOP_TIMEOUT_MS 3000
#define RESOLV_EVERY_MS 2000
#define TERM_GRACE_MS 5000 /* from SIGTERM to SIGKILL */

struct run {
	const struct run_request *opts; /* borrowed */
	const struct ak_paths *paths; /* borrowed */
	struct run_plan plan;
	struct rundir dir;
	struct policy *policy; /* owned */
	struct gwns_link link;
	struct sandbox *sandbox; /* owned */
	pid_t gw_pid; /* 0 when there is none (any more) */
	int control; /* owned */
	struct resolv_stamp resolv;
	uint64_t look_at_ms; /* when to look at the resolver file again; 0 without a network */
	struct run_io io;
	bool tty_was_on, gw_ready, running;
	int stdio[3];
	uint64_t began_us, kill_at_ms, deadline_ms;
	uint64_t command_began_ms;
	unsigned interrupts;
	struct run_outcome outcome;
	struct ak_err failure;
	bool failed;
};

/* ---- before anything is forked ---- */

static int load_policy(struct run *r, struct ak_err *err)
{
	return r->plan.network ? ak_policy_load(r->paths, r->plan.policy, r->opts->edits, r->opts->n_edits, &r->policy, err) : 0;
}

/* The run's folder; a kept one is needed before the sandbox, which writes into it. */
static int make_records(struct run *r, struct ak_err *err)
{
	return r->dir.dir_fd >= 0 ? 0 : rundir_create(&r->dir, r->paths, r->plan.name, r->opts->keep, err);
}

/* ---- start ---- */

static int spawn_gateway(struct run *r, int net_sock, struct ak_err *err)
{
	char servers[GW_TEXT_MAX];
	int pair[2], rc;
	struct gw_first first = {
		.name = r->plan.name,
		.link = r->link,
		.policy = r->policy,
		.net_sock = net_sock,
		.log_fd = r->dir.log_fd,
	};
	struct gw_conf conf = { .servers = servers, .ipv6 = resolv_host_has_ipv6(), .first = &first };

	resolv_look(&r->resolv);
	rc = gw_log_begin(r->paths, r->plan.name, &first.log, err);
	if (rc == 0)
		rc = resolv_servers(servers, sizeof(servers), err);
	if (rc < 0)
		return rc;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return ak_fail_errno(err, errno, "socketpair");
	conf.control = pair[1];
	rc = gw_spawn(&conf, &r->gw_pid, err);
	ak_close(pair[1]);
	r->control = pair[0];
	ak_set_nonblock(r->control, true);
	r->look_at_ms = ak_now_ms() + RESOLV_EVERY_MS;
	return rc;
}

static void fill_spec(struct run *r, char resolv[static PLAN_RESOLV_MAX], struct sandbox_spec *spec)
{
	run_plan_spec(&r->plan, r->plan.network ? &r->link : NULL, resolv, spec);
	spec->argv = r->opts->argv;
	spec->upper_dir = r->dir.upper[0] ? r->dir.upper : NULL;
	spec->limits = r->opts->limits;
	spec->tty = r->opts->tty;
	memcpy(spec->stdio, r->stdio, sizeof(spec->stdio));
}

static int spawn(struct run *r, struct ak_err *err)
{
	char resolv[PLAN_RESOLV_MAX];
	struct sandbox_spec spec;
	int pair[2] = { -1, -1 }, rc;

	gwns_link_plan(LINK_ID, &r->link);
	if (r->plan.network && socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return ak_fail_errno(err, errno, "socketpair");
	fill_spec(r, resolv, &spec);
	/* The namespaces take longest, so they are begun before the policy is read and the records are made. */
	rc = sandbox_start(&spec, pair[0], &r->sandbox, err);
	if (rc == 0)
		rc = load_policy(r, err);
	if (rc == 0)
		rc = make_records(r, err);
	if (rc == 0 && r->plan.network)
		rc = spawn_gateway(r, pair[1], err);
	ak_close(pair[0]);
	ak_close(pair[1]);
	run_io_close_writers(r->stdio); /* they belong to the sandbox alone */
	return rc;
}

static void fail(struct run *r, const struct ak_err *err)
{
	const struct sandbox_result *res;

	if (r->failed)
		return;
	r->failed = true;
	r->failure = *err;
	if (!r->sandbox)
		return;
	/* When the sandbox failed first, what others say of it is only the echo. */
	res = sandbox_poll(r->sandbox) == SANDBOX_ENDED ? sandbox_result(r->sandbox) : NULL;
	if (res && res->err.text[0])
		r->failure = res->err;
	sandbox_signal(r->sandbox, SIGKILL);
}

/* Both halves are ready: let the command run. */
static void maybe_go(struct run *r)
{
	struct ak_err err;

	if (r->running || r->failed || sandbox_poll(r->sandbox) != SANDBOX_READY || (r->plan.network && !r->gw_ready))
		return;
	if (!r->opts->quiet)
		run_say_notes(r->plan.notes);
	if (sandbox_go(r->sandbox, &err) < 0) {
		fail(r, &err);
		return;
	}
	r->running = true;
	r->outcome.start_us = ak_now_us() - r->began_us;
	r->command_began_ms = ak_now_ms();
	r->deadline_ms = r->opts->timeout_ms ? r->command_began_ms + r->opts->timeout_ms : 0;
	rundir_point_last(r->paths, r->plan.name);
}

/* ---- the gateway's messages ---- */

static void hand_new_log(struct run *r)
{
	struct gw_msg msg = { .type = GW_MSG_LOG_FD, .id = LINK_ID };
	int fds[GW_LOG_FDS];
	struct ak_err err;

	if (gw_log_rotate(r->paths, r->plan.name, r->dir.log_path, &msg.log, fds, &err) < 0)
		return;
	(void)ak_send_fds(r->control, &msg, sizeof(msg), fds, fds[GW_LOG_KEPT] < 0 ? 1 : 2);
	ak_close(fds[GW_LOG_OWN]);
	ak_close(fds[GW_LOG_KEPT]);
}

static void gateway_gone(struct run *r)
{
	struct ak_err err;

	r->control = ak_close(r->control);
	if (r->gw_pid > 0) {
		kill(r->gw_pid, SIGKILL);
		waitpid(r->gw_pid, NULL, 0);
	}
	r->gw_pid = 0;
	if (!r->running) {
		ak_fail(&err, EPIPE, "the gateway process ended before it was ready");
		fail(r, &err);
	} else if (!r->outcome.has_net) {
		ak_say("the gateway ended unexpectedly: the sandbox goes on without a network");
	}
}

static void on_gateway(struct run *r)
{
	struct gw_msg msg;
	struct ak_err err;
	int rc;

	while ((rc = gw_reply_recv(r->control, &msg)) > 0) {
		switch (msg.type) {
		case GW_MSG_READY:
			r->gw_ready = true;
			break;
		case GW_MSG_FAILED:
			ak_fail(&err, EPROTO, "%.500s", msg.text);
			fail(r, &err);
			break;
		case GW_MSG_LOG_FULL:
			hand_new_log(r);
			break;
		case GW_MSG_LOG_STUCK:
			ak_say("%s cannot be written (is the disk full?): no new connection is allowed until it can",
				r->dir.log_path);
			break;
		case GW_MSG_ANCHOR:
			gw_log_anchor(r->paths, r->plan.name, &msg.stats);
			break;
		case GW_MSG_STATS:
			r->outcome.net = msg.stats;
			r->outcome.has_net = true;
			break;
		default: /* the rest is the daemon's */
			break;
		}
	}
	if (rc != -EAGAIN)
		gateway_gone(r);
}

/* Tell the gateway when the host's resolvers have changed: it cannot read the file itself. */
static void follow_resolvers(struct run *r)
{
	struct gw_msg msg = { .type = GW_MSG_UPSTREAM, .ipv6 = resolv_host_has_ipv6() };
	struct resolv_stamp now;
	struct ak_err err;

	resolv_look(&now);
	if (resolv_same(&now, &r->resolv) || r->control < 0 || resolv_servers(msg.text, sizeof(msg.text), &err) < 0)
		return;
	r->resolv = now;
	(void)ak_send_fds(r->control, &msg, sizeof(msg), NULL, 0);
}

/* ---- signals, output, time ---- */

/* The first Ctrl-C is the command's to handle, the second ends it. */
static void on_signal(struct run *r, int sig)
{
	if (!r->running) {
		struct ak_err err;

		ak_fail(&err, EINTR, "interrupted before the command ran");
		r->outcome.exit_code = 128 + sig;
		fail(r, &err);
		return;
	}
	if (sig == SIGINT && r->interrupts++ > 0)
		sig = SIGKILL;
	if ((sig == SIGTERM || sig == SIGHUP) && !r->kill_at_ms)
		r->kill_at_ms = ak_now_ms() + TERM_GRACE_MS;
	sandbox_signal(r->sandbox, sig);
}

static void read_signals(struct run *r)
{
	for (int sig; (sig = run_io_next_signal(&r->io)) > 0;)
		on_signal(r, sig);
}

static void check_time(struct run *r)
{
	uint64_t now = ak_now_ms();

	if (!r->running && now > r->began_us / 1000 + START_TIMEOUT_MS) {
		struct ak_err err;

		ak_fail(&err, ETIMEDOUT, "the sandbox was not ready after %d s", START_TIMEOUT_MS / 1000);
		fail(r, &err);
	}
	if (r->deadline_ms && now >= r->deadline_ms && !r->outcome.timed_out) {
		r->outcome.timed_out = true;
		sandbox_signal(r->sandbox, SIGKILL);
	}
	if (r->kill_at_ms && now >= r->kill_at_ms)
		sandbox_signal(r->sandbox, SIGKILL);
	if (r->look_at_ms && now >= r->look_at_ms) {
		follow_resolvers(r);
		r->look_at_ms = now + RESOLV_EVERY_MS;
	}
}

static int wait_ms(const struct run *r)
{
	const uint64_t times[] = {
		r->running ? 0 : r->began_us / 1000 + START_TIMEOUT_MS + 1,
		r->outcome.timed_out ? 0 : r->deadline_ms,
		r->kill_at_ms,
		r->look_at_ms,
	};
	uint64_t now = ak_now_ms(), until = UINT64_MAX;

	for (size_t i = 0; i < ARRAY_SIZE(times); i++) {
		if (times[i] && times[i] < until)
			until = times[i];
	}
	if (until == UINT64_MAX)
		return -1;
	return until > now ? (int)(until - now) : 0;
}

/* ---- the loop ---- */

enum { P_SANDBOX, P_CONTROL, P_IO, P_NUM = P_IO + RUN_IO_NUM };

static void fill_poll(const struct run *r, struct pollfd p[P_NUM])
{
	p[P_SANDBOX] = (struct pollfd){ .fd = sandbox_fd(r->sandbox), .events = POLLIN };
	p[P_CONTROL] = (struct pollfd){ .fd = r->control, .events = POLLIN };
	run_io_poll(&r->io, p + P_IO);
}

static void start_tty(struct run *r)
{
	struct ak_err err;

	if (!r->opts->tty || r->tty_was_on || !r->running || sandbox_tty_fd(r->sandbox) < 0)
		return;
	if (tty_open(&r->io.tty, sandbox_tty_fd(r->sandbox), &err) < 0)
		fail(r, &err);
	else
		r->io.tty_on = r->tty_was_on = true;
}

static void serve(struct run *r, const struct pollfd p[P_NUM])
{
	if (p[P_IO + RUN_IO_SIGNAL].revents)
		read_signals(r);
	if (p[P_CONTROL].revents)
		on_gateway(r);
	run_io_pump(&r->io, p + P_IO);
}

static void loop(struct run *r)
{
	struct pollfd p[P_NUM];

	while (sandbox_poll(r->sandbox) != SANDBOX_ENDED) {
		maybe_go(r);
		start_tty(r);
		fill_poll(r, p);
		if (poll(p, P_NUM, wait_ms(r)) < 0 && errno != EINTR)
			break;
		serve(r, p);
		check_time(r);
	}
}

/* ---- end ---- */

static void drain_output(struct run *r)
{
	if (r->tty_was_on)
		tty_close(&r->io.tty);
	for (int i = 0; i < RUN_STREAMS; i++) {
		struct run_capture *c = &r->io.capture[i];

		/* Everything in the sandbox is dead, so the end of file is there. */
		ak_set_nonblock(c->fd, false);
		while (c->fd >= 0)
			run_capture_read(c);
	}
}

static void stop_gateway(struct run *r)
{
	struct gw_msg msg = { .type = GW_MSG_STOP };
	uint64_t until = ak_now_ms() + STOP_TIMEOUT_MS;

	if (r->control < 0)
		return;
	if (r->gw_ready)
		(void)ak_send_fds(r->control, &msg, sizeof(msg), NULL, 0);
	while (r->gw_ready && r->control >= 0 && !r->outcome.has_net && ak_now_ms() < until) {
		struct pollfd p = { .fd = r->control, .events = POLLIN };

		if (poll(&p, 1, (int)(until - ak_now_ms())) > 0)
			on_gateway(r);
	}
	/* Without a word from it there is nothing to wait for. */
	if (r->gw_pid > 0 && !r->outcome.has_net)
		kill(r->gw_pid, SIGKILL);
}

/* What the command's end means, once everyone has stopped. */
static int conclude(struct run *r, struct ak_err *err)
{
	const struct sandbox_result *res = sandbox_result(r->sandbox);

	r->outcome.duration_ms = r->running ? ak_now_ms() - r->command_began_ms : 0;
	r->outcome.out_of_memory = res->out_of_memory;
	if (r->failed) {
		*err = r->failure;
		return -EIO;
	}
	if (!r->running || res->exit_code == AK_EXIT_FAILED) {
		if (res->err.text[0]) {
			*err = res->err;
			return -EIO;
		}
		if (!r->running)
			return ak_fail(err, EIO, "the sandbox ended before the command ran");
	}
	r->outcome.exit_code = r->outcome.timed_out ? AK_EXIT_TIMEOUT : res->exit_code;
	r->outcome.pids_hit = res->pids_hit;
	r->outcome.why = res->err;
	run_say_ended(&r->outcome, r->opts->timeout_ms);
	return 0;
}

static void init(struct run *r, const struct run_request *opts, const struct ak_paths *paths)
{
	memset(r, 0, sizeof(*r));
	r->opts = opts;
	r->paths = paths;
	r->began_us = ak_now_us();
	r->control = -1;
	r->dir.dir_fd = r->dir.log_fd = -1;
	run_io_init(&r->io);
}

static int prepare(struct run *r, struct ak_err *err)
{
	char empty[PATH_MAX];
	int rc = rundir_empty(r->paths, empty, err);

	if (rc == 0)
		rc = run_plan_init(&r->plan, r->opts, r->paths, empty, err);
	if (rc == 0 && r->opts->keep)
		rc = make_records(r, err);
	if (rc == 0)
		rc = run_io_signals(&r->io, err);
	if (rc == 0)
		rc = run_io_open(&r->io, r->opts->json, r->stdio, err);
	return rc;
}

static int execute(struct run *r, struct ak_err *err)
{
	int rc = prepare(r, err);

	if (rc < 0)
		return rc;
	rc = spawn(r, err);
	if (rc == 0)
		rc = rundir_record_start(&r->dir, &r->plan, r->opts, r->policy, err);
	if (rc < 0)
		return rc;
	if (!r->opts->quiet)
		run_plan_look(&r->plan, r->opts, r->paths);
	loop(r);
	drain_output(r);
	stop_gateway(r);
	return conclude(r, err);
}

static void finish(struct run *r, int rc)
{
	struct ak_err err;

	if (rc < 0 && !r->running) {
		rundir_discard(&r->dir);
	} else if (rundir_record_end(&r->dir, &r->plan, r->opts, &r->outcome, &err) < 0) {
		ak_say("%s", err.text);
	}
	rundir_done(&r->dir);
}

static void take_result(struct run *r, struct run_report *ret)
{
	if (r->running)
		ret->changed = guard_tell(r->plan.guard, r->paths, r->plan.name, run_origin_name(r->opts->origin));
	ret->outcome = r->outcome;
	memcpy(ret->name, r->plan.name, sizeof(ret->name));
	if (r->opts->json)
		run_io_take(&r->io, ret);
}

int run_execute(const struct run_request *opts, const struct ak_paths *paths, struct run_report *ret, struct ak_err *err)
{
	struct run r;
	int rc;

	memset(ret, 0, sizeof(*ret));
	init(&r, opts, paths);
	rc = sabotage_check(err);
	if (rc == 0)
		rc = execute(&r, err);
	if (r.gw_pid > 0 && !r.outcome.has_net) /* a failed start */
		kill(r.gw_pid, SIGKILL);
	if (r.sandbox && !opts->quiet)
		run_say_notes(sandbox_notes(r.sandbox));
	/* The last records are written while the others go. */
	if (r.dir.dir_fd >= 0)
		finish(&r, rc);
	sandbox_free(r.sandbox);
	if (r.gw_pid > 0)
		waitpid(r.gw_pid, NULL, 0);
	take_result(&r, ret);
	run_io_done(&r.io);
	ak_close(r.control);
	policy_unref(r.policy);
	run_plan_done(&r.plan);
	return rc;
}
