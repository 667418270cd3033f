/*
 * The daemon's side of the gateway process: start it in namespaces that outlive it, send it messages without blocking, and restart it when it dies.
 *
 * Theory of operation. Messages wait in one queue and are sent while fewer than WINDOW are unanswered, so that neither side's socket fills.
 * The gateway handles them in order, so a reply belongs to the oldest unanswered message about the same sandbox. When the gateway dies,
 * all unanswered and all waiting messages fail. The new gateway joins the same namespaces, and the running sandboxes are added to it before
 * anything else. If there is no memory to queue a message, the gateway is restarted, too.
 */
#include "gateway/daemon/internal.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/base/say.h"
#include "gateway/log/events.h"
#include "gateway/log/stats.h"
#include "gateway/run/gw_log.h"

#include <errno.h>
#include <event2/event.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define WINDOW 32
#define ANSWER_MS 15000 /* a gateway that takes longer to reply is killed and restarted */
#define TICK_MS 2000 /* how often to check the resolver file and for overdue replies */
#define RETRY_FIRST_MS 100
#define RETRY_MAX_MS 5000
#define REHOST_FIRST_MS 250
#define LATER_MS 15000 /* how long to wait for the namespaces of running sandboxes */
#define MARK_EVERY_MS (10u * 60 * 1000)
#define STEADY_MS 10000 /* after this time up, earlier failures no longer count */

static void lost(struct daemon *d, const char *reason);

static void set_state(struct dgw *g, enum dgw_state state)
{
	g->state = state;
	g->since_ms = ak_now_ms();
}

/* ---- messages ---- */

bool dgw_answered(uint32_t type)
{
	return type != GW_MSG_UPSTREAM && type != GW_MSG_LOG_FD && type != GW_MSG_STOP;
}

int dgw_policy_file(const struct policy *p)
{
	_cleanup_strbuf_ struct strbuf out = { 0 };

	policy_print(p, &out);
	return out.failed ? -ENOMEM : ak_memory_file("policy", out.data, out.len);
}

static void request_close(struct dgw_request *q)
{
	for (size_t i = 0; i < q->n_fds; i++)
		ak_close(q->fds[i]);
	free(q);
}

static void kick(struct daemon *d)
{
	event_active(d->gw.on_kick, EV_TIMEOUT, 0);
}

/* True if it was sent, false if it must wait. If the gateway has ended, on_control notices and fails all messages. */
static bool send_one(struct dgw *g, struct dgw_request *q)
{
	if (ak_send_fds(g->control, &q->msg, sizeof(q->msg), q->fds, q->n_fds) < 0)
		return false;
	TAILQ_REMOVE(&g->waiting, q, link);
	if (!dgw_answered(q->msg.type)) {
		request_close(q);
		return true;
	}
	for (size_t i = 0; i < q->n_fds; i++)
		q->fds[i] = ak_close(q->fds[i]);
	q->n_fds = 0;
	q->sent_ms = ak_now_ms();
	TAILQ_INSERT_TAIL(&g->sent, q, link);
	g->n_sent++;
	return true;
}

static void flush_waiting(struct daemon *d)
{
	static const struct timeval soon = { 0, 2000 };
	struct dgw *g = &d->gw;

	while (g->state == DGW_UP && g->n_sent < WINDOW && !TAILQ_EMPTY(&g->waiting)) {
		if (!send_one(g, TAILQ_FIRST(&g->waiting))) {
			evtimer_add(g->on_kick, &soon);
			return;
		}
	}
}

/* The restart waits for the event loop: the caller still uses objects that it frees. */
static int miss(struct daemon *d, const int *fds, size_t n_fds)
{
	for (size_t i = 0; i < n_fds; i++)
		ak_close(fds[i]);
	d->gw.missed = true;
	kick(d);
	return -ENOMEM;
}

int dgw_send(struct daemon *d, const struct gw_msg *msg, const int *fds, size_t n_fds, dgw_done_fn done, void *ctx)
{
	struct dgw_request *q = calloc(1, sizeof(*q));

	if (!q)
		return miss(d, fds, n_fds);
	q->msg = *msg;
	q->n_fds = n_fds;
	memcpy(q->fds, fds ? fds : (const int[GW_FDS_MAX]){ -1, -1, -1, -1 }, n_fds * sizeof(*fds));
	q->done = done;
	q->ctx = ctx;
	TAILQ_INSERT_TAIL(&d->gw.waiting, q, link);
	if (d->gw.state == DGW_UP)
		flush_waiting(d);
	else
		kick(d);
	return 0;
}

static void finish(struct dgw_request *q, int rc, const struct gw_msg *answer, const struct ak_err *err)
{
	if (q->done)
		q->done(q->ctx, rc, answer, err);
	request_close(q);
}

static void fail_queue(struct dgw_queue *queue, const struct ak_err *err)
{
	struct dgw_queue all = TAILQ_HEAD_INITIALIZER(all);
	struct dgw_request *q;

	TAILQ_CONCAT(&all, queue, link); /* leaves out messages that the callbacks queue */
	while ((q = TAILQ_FIRST(&all))) {
		TAILQ_REMOVE(&all, q, link);
		finish(q, -EPIPE, NULL, err);
	}
}

static void on_kick(evutil_socket_t fd, short what, void *ctx)
{
	struct daemon *d = ctx;
	struct dgw *g = &d->gw;
	bool missed = g->missed;

	g->missed = false;
	if (missed && (g->state == DGW_UP || g->state == DGW_STARTING)) {
		lost(d, "out of memory for a message to the gateway process");
		return;
	}
	if ((g->state == DGW_DOWN && !g->expected) || g->state == DGW_STOPPING) {
		fail_queue(&g->waiting, &g->reason);
		return;
	}
	flush_waiting(d);
}

/* ---- replies ---- */

/* The sandbox whose log PATH is: the name of the folder. */
static const char *log_name(const char *path)
{
	static char name[AK_NAME_MAX];
	const char *end = strrchr(path, '/'), *start = end;

	while (start > path && start[-1] != '/')
		start--;
	snprintf(name, sizeof(name), "%.*s", (int)(end - start), start);
	return name;
}

/* Someone may restore an old copy of a log together with its anchor. The events log only grows, so a mark there exposes that. */
static void mark_log(struct dsb *sb, const struct gw_stats *stats)
{
	_cleanup_strbuf_ struct strbuf more = { 0 };
	uint64_t now_ms = ak_now_ms();

	if (sb->marked_ms && now_ms - sb->marked_ms < MARK_EVERY_MS)
		return;
	sb->marked_ms = now_ms;
	event_put_text(&more, "origin", state_origin(&sb->state));
	gw_log_put_mark(&more, stats);
	event_write(sb->d->paths, "log_mark", sb->state.name, &more);
}

static void anchor_log(struct daemon *d, const struct gw_msg *msg)
{
	struct dsb *sb = dsb_by_link(d, msg->id);
	char path[PATH_MAX];

	if ((sb ? dsb_log_path(sb, path) : job_log_path(d, msg->id, path)) == 0)
		gw_log_anchor(d->paths, log_name(path), &msg->stats);
	if (sb && msg->stats.records)
		mark_log(sb, &msg->stats);
}

static void hand_new_log(struct daemon *d, uint32_t id)
{
	struct gw_msg msg = { .type = GW_MSG_LOG_FD, .id = id };
	struct dsb *sb = dsb_by_link(d, id);
	char path[PATH_MAX];
	int fds[GW_LOG_FDS];
	struct ak_err err;

	if ((sb ? dsb_log_path(sb, path) : job_log_path(d, id, path)) < 0)
		return;
	if (gw_log_rotate(d->paths, log_name(path), path, &msg.log, fds, &err) < 0)
		ak_say("%s", err.text);
	else
		(void)dgw_send(d, &msg, fds, fds[GW_LOG_KEPT] < 0 ? 1 : 2, NULL, NULL); /* else the restart hands it a log */
}

static void tell_stuck(struct daemon *d, uint32_t id)
{
	struct dsb *sb = dsb_by_link(d, id);
	char path[PATH_MAX];

	if ((sb ? dsb_log_path(sb, path) : job_log_path(d, id, path)) == 0)
		ak_say("%s cannot be written (is the disk full?): new connections are denied until it can", path);
}

static void on_answer(struct daemon *d, const struct gw_msg *msg)
{
	struct dgw_request *q;
	struct ak_err err;
	int rc = 0;

	TAILQ_FOREACH(q, &d->gw.sent, link) {
		if (q->msg.id == msg->id)
			break;
	}
	if (!q)
		return;
	TAILQ_REMOVE(&d->gw.sent, q, link);
	d->gw.n_sent--;
	if (msg->type == GW_MSG_REFUSED)
		rc = ak_fail(&err, EPROTO, "%.500s", msg->text);
	finish(q, rc, msg, &err);
	if (!TAILQ_EMPTY(&d->gw.waiting))
		kick(d);
}

static void on_ready(struct daemon *d)
{
	set_state(&d->gw, DGW_UP);
	d->gw.rehosts = 0;
	dsb_rehost_all(d);
	kick(d);
	pool_refill(d);
}

static void on_message(struct daemon *d, const struct gw_msg *msg)
{
	switch (msg->type) {
	case GW_MSG_READY:
		if (d->gw.state == DGW_STARTING)
			on_ready(d);
		break;
	case GW_MSG_FAILED:
		lost(d, msg->text);
		break;
	case GW_MSG_LOG_FULL:
		hand_new_log(d, msg->id);
		break;
	case GW_MSG_ANCHOR:
		anchor_log(d, msg);
		break;
	case GW_MSG_LOG_STUCK:
		tell_stuck(d, msg->id);
		break;
	case GW_MSG_DONE:
	case GW_MSG_REFUSED:
	case GW_MSG_STATS:
		on_answer(d, msg);
		break;
	default:
		break;
	}
}

static void on_control(evutil_socket_t fd, short what, void *ctx)
{
	struct daemon *d = ctx;
	struct gw_msg msg;

	for (int i = 0; i < WINDOW; i++) {
		int rc = gw_reply_recv(fd, &msg);

		if (rc == -EAGAIN)
			return;
		if (rc == -EPROTO) {
			lost(d, "the gateway process sent a malformed message");
			return;
		}
		if (rc <= 0) {
			lost(d,
				d->gw.state == DGW_STARTING ? "the gateway process ended before it was ready"
							    : "the gateway process ended");
			return;
		}
		on_message(d, &msg);
		if (d->gw.control != fd)
			return;
	}
}

/* ---- the process ---- */

static void end_process(struct dgw *g)
{
	if (g->on_control) {
		event_free(g->on_control);
		g->on_control = NULL;
	}
	g->control = ak_close(g->control);
	if (g->pid > 0) {
		kill(g->pid, SIGKILL);
		while (waitpid(g->pid, NULL, 0) < 0 && errno == EINTR)
			;
	}
	g->pid = 0;
}

static void retry_later(struct dgw *g)
{
	unsigned shift = g->failures < 7 ? g->failures : 7, ms = (RETRY_FIRST_MS << shift) / 2;
	struct timeval delay;

	ms = g->failures == 0 ? 0 : ms > RETRY_MAX_MS ? RETRY_MAX_MS : ms; /* retry at once after the first failure */
	delay = (struct timeval){ ms / 1000, (suseconds_t)(ms % 1000) * 1000 };
	g->failures++;
	evtimer_add(g->on_retry, &delay);
}

static void lost(struct daemon *d, const char *reason)
{
	struct dgw *g = &d->gw;
	bool stopping = g->state == DGW_STOPPING;
	struct ak_err err;

	end_process(g);
	if (g->state == DGW_UP && ak_now_ms() - g->since_ms >= STEADY_MS)
		g->failures = 0;
	g->expected = g->state == DGW_UP;
	set_state(g, stopping ? DGW_STOPPING : DGW_DOWN);
	ak_fail(&err, EPIPE, "%s", reason);
	g->reason = err;
	g->n_sent = 0;
	dsb_gateway_lost(d);
	pool_gateway_lost(d);
	fail_queue(&g->sent, &err);
	fail_queue(&g->waiting, &err);
	if (stopping) {
		event_base_loopbreak(d->base);
		return;
	}
	ak_say("gateway: %s", reason);
	retry_later(g);
}

void dgw_rehost_later(struct daemon *d)
{
	struct dgw *g = &d->gw;
	unsigned ms = REHOST_FIRST_MS << (g->rehosts < 7 ? g->rehosts : 7);
	const struct timeval delay = { ms / 1000, (suseconds_t)(ms % 1000) * 1000 };

	if (evtimer_pending(g->on_rehost, NULL))
		return;
	g->rehosts++;
	evtimer_add(g->on_rehost, &delay);
}

static void on_rehost(evutil_socket_t fd, short what, void *ctx)
{
	struct daemon *d = ctx;

	if (d->gw.state == DGW_UP)
		dsb_rehost_all(d);
}

/* Open the namespaces and the sockets in them, then start the process that uses the sockets. */
static int spawn(struct daemon *d, struct ak_err *err)
{
	struct dgw *g = &d->gw;
	char servers[GW_TEXT_MAX];
	struct gwns ns;
	struct gw_conf conf = { .servers = servers, .ipv6 = resolv_host_has_ipv6(), .fds = ns.fds };
	int pair[2], rc;

	resolv_look(&g->resolv);
	rc = resolv_servers(servers, sizeof(servers), err);
	if (rc < 0)
		return rc;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return ak_fail_errno(err, errno, "socketpair");
	rc = gwns_spawn(g->user_ns, g->net_ns, &ns, err);
	if (rc < 0) {
		ak_close(pair[0]);
		ak_close(pair[1]);
		return rc;
	}
	ak_close(g->user_ns);
	ak_close(g->net_ns);
	g->user_ns = ns.user_ns;
	g->net_ns = ns.net_ns;
	conf.control = pair[1];
	rc = gw_spawn(&conf, &g->pid, err);
	for (int i = 0; i < GWNS_FD_NUM; i++)
		ak_close(ns.fds[i]);
	ak_close(pair[1]);
	g->control = pair[0];
	ak_set_nonblock(g->control, true);
	g->on_control = event_new(d->base, g->control, EV_READ | EV_PERSIST, on_control, d);
	if (rc == 0 && (!g->on_control || event_add(g->on_control, NULL) < 0))
		rc = ak_fail(err, ENOMEM, "out of memory");
	return rc;
}

void dgw_start(struct daemon *d)
{
	struct ak_err err;

	evtimer_del(d->gw.on_retry);
	if (d->gw.restarts++ > 0)
		d->gw.n_sent = 0;
	if (spawn(d, &err) < 0) {
		lost(d, err.text);
		return;
	}
	set_state(&d->gw, DGW_STARTING);
}

void dgw_start_later(struct daemon *d)
{
	static const struct timeval delay = { LATER_MS / 1000, LATER_MS % 1000 * 1000 };

	evtimer_add(d->gw.on_retry, &delay);
}

static void on_retry(evutil_socket_t fd, short what, void *ctx)
{
	dgw_start(ctx);
}

int dgw_usable(struct daemon *d, struct ak_err *err)
{
	struct dgw *g = &d->gw;

	if (g->state == DGW_DOWN && !g->expected && ak_now_ms() - g->since_ms >= RETRY_FIRST_MS)
		dgw_start(d);
	if (g->state == DGW_STARTING || g->state == DGW_UP || g->expected)
		return 0;
	*err = g->reason;
	return -ENETDOWN;
}

/* ---- periodic checks ---- */

static void follow_resolvers(struct daemon *d)
{
	struct gw_msg msg = { .type = GW_MSG_UPSTREAM, .ipv6 = resolv_host_has_ipv6() };
	struct resolv_stamp now;
	struct ak_err err;

	resolv_look(&now);
	if (resolv_same(&now, &d->gw.resolv) || resolv_servers(msg.text, sizeof(msg.text), &err) < 0)
		return;
	if (dgw_send(d, &msg, NULL, 0, NULL, NULL) == 0)
		d->gw.resolv = now;
}

static void on_tick(evutil_socket_t fd, short what, void *ctx)
{
	struct daemon *d = ctx;
	struct dgw *g = &d->gw;
	const struct dgw_request *oldest = TAILQ_FIRST(&g->sent);
	uint64_t now = ak_now_ms();

	if (g->state == DGW_UP)
		follow_resolvers(d);
	if ((g->state == DGW_UP && oldest && now - oldest->sent_ms > ANSWER_MS) ||
		(g->state == DGW_STARTING && now - g->since_ms > ANSWER_MS))
		lost(d, "the gateway process does not answer");
}

int dgw_init(struct daemon *d, struct ak_err *err)
{
	static const struct timeval every = { TICK_MS / 1000, TICK_MS % 1000 * 1000 };
	struct dgw *g = &d->gw;

	g->user_ns = g->net_ns = g->control = -1;
	TAILQ_INIT(&g->waiting);
	TAILQ_INIT(&g->sent);
	g->on_kick = evtimer_new(d->base, on_kick, d);
	g->on_retry = evtimer_new(d->base, on_retry, d);
	g->on_tick = event_new(d->base, -1, EV_PERSIST, on_tick, d);
	g->on_rehost = evtimer_new(d->base, on_rehost, d);
	if (!g->on_kick || !g->on_retry || !g->on_rehost || !g->on_tick || event_add(g->on_tick, &every) < 0)
		return ak_fail(err, ENOMEM, "out of memory");
	ak_fail(&g->reason, ENETDOWN, "the gateway has not been started yet");
	return 0;
}

void dgw_stop(struct daemon *d)
{
	struct gw_msg msg = { .type = GW_MSG_STOP };
	struct dgw *g = &d->gw;

	evtimer_del(g->on_retry);
	evtimer_del(g->on_rehost);
	if (g->state == DGW_UP && ak_send_fds(g->control, &msg, sizeof(msg), NULL, 0) == 0) {
		set_state(g, DGW_STOPPING);
		return;
	}
	set_state(g, DGW_STOPPING);
	end_process(g);
	event_base_loopbreak(d->base);
}

void dgw_done(struct daemon *d)
{
	struct dgw *g = &d->gw;
	struct event **events[] = { &g->on_kick, &g->on_retry, &g->on_tick, &g->on_rehost };

	end_process(g);
	ak_close(g->user_ns);
	ak_close(g->net_ns);
	for (size_t i = 0; i < ARRAY_SIZE(events); i++) {
		if (*events[i])
			event_free(*events[i]);
	}
}
