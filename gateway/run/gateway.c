/* The gateway process of one run: see run/gateway.h. */
#include "gateway/run/gateway.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/base/say.h"
#include "gateway/run/gw_log.h"

#include <errno.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define STOP_TIMEOUT_MS 3000
#define RESOLV_EVERY_MS 2000

void run_gw_init(struct run_gw *g, struct run_life *life)
{
	*g = (struct run_gw){ .life = life, .control = -1 };
}

static void end_process(struct run_gw *g, bool kill_it)
{
	if (g->pid > 0 && kill_it)
		kill(g->pid, SIGKILL);
	if (g->pid > 0)
		waitpid(g->pid, NULL, 0);
	g->pid = 0;
}

void run_gw_done(struct run_gw *g)
{
	end_process(g, !g->life->outcome.has_net); /* after sending its final statistics it exits by itself */
	g->control = ak_close(g->control);
}

int run_gw_start(struct run_gw *g, const struct gwns_link *link, int net_sock, struct ak_err *err)
{
	const struct run_life *l = g->life;
	char servers[GW_TEXT_MAX];
	int pair[2], rc;
	struct gw_first first = {
		.name = l->plan->name,
		.link = *link,
		.policy = l->policy,
		.net_sock = net_sock,
		.log_fd = l->dir.log_fd,
	};
	struct gw_conf conf = { .servers = servers, .ipv6 = resolv_host_has_ipv6(), .first = &first };

	resolv_look(&g->resolv);
	rc = gw_log_begin(l->paths, l->plan->name, &first.log, err);
	if (rc == 0)
		rc = resolv_servers(servers, sizeof(servers), err);
	if (rc < 0)
		return rc;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return ak_fail_errno(err, errno, "socketpair");
	conf.control = pair[1];
	rc = gw_spawn(&conf, &g->pid, err);
	ak_close(pair[1]);
	g->control = pair[0];
	ak_set_nonblock(g->control, true);
	g->look_at_ms = ak_now_ms() + RESOLV_EVERY_MS;
	return rc;
}

int run_gw_publish(struct run_gw *g, const struct ak_publish *p, int fd, struct ak_err *err)
{
	struct gw_msg msg = { .type = GW_MSG_PUBLISH, .id = RUN_LINK_ID, .publish = *p };
	_cleanup_close_ int channel = -1, theirs = -1;
	int rc = ak_channel_open(&channel, &theirs, err);

	if (rc == 0)
		rc = sandbox_channel(g->life->sandbox, theirs, err);
	if (rc < 0)
		return rc;
	rc = ak_send_fds(g->control, &msg, sizeof(msg), (const int[]){ fd, channel }, 2);
	return rc < 0 ? ak_fail_errno(err, -rc, "gateway") : 0;
}

void run_gw_unpublish(struct run_gw *g, const struct ak_publish *p)
{
	struct gw_msg msg = { .type = GW_MSG_UNPUBLISH, .id = RUN_LINK_ID, .publish = *p };

	(void)ak_send_fds(g->control, &msg, sizeof(msg), NULL, 0);
}

/* ---- messages from it ---- */

static void hand_new_log(struct run_gw *g)
{
	const struct run_life *l = g->life;
	struct gw_msg msg = { .type = GW_MSG_LOG_FD, .id = RUN_LINK_ID };
	int fds[GW_LOG_FDS];
	struct ak_err err;

	if (gw_log_rotate(l->paths, l->plan->name, l->dir.log_path, &msg.log, fds, &err) < 0)
		return;
	(void)ak_send_fds(g->control, &msg, sizeof(msg), fds, fds[GW_LOG_KEPT] < 0 ? 1 : 2);
	ak_close(fds[GW_LOG_OWN]);
	ak_close(fds[GW_LOG_KEPT]);
}

static void on_gone(struct run_gw *g)
{
	g->control = ak_close(g->control);
	g->look_at_ms = 0;
	end_process(g, true);
	if (g->life->ran && !g->life->outcome.has_net)
		ak_say("the gateway ended unexpectedly: the sandbox continues without a network");
	life_host_lost(g->life, "the gateway process ended before it was ready");
	life_unhosted(g->life, NULL);
}

static void on_message(struct run_gw *g, const struct gw_msg *msg)
{
	struct run_life *l = g->life;

	switch (msg->type) {
	case GW_MSG_READY:
		life_hosted(l);
		break;
	case GW_MSG_FAILED:
		life_refused(l, msg->text);
		break;
	case GW_MSG_LOG_FULL:
		hand_new_log(g);
		break;
	case GW_MSG_LOG_STUCK:
		ak_say("%s cannot be written (is the disk full?): new connections are denied until it can", l->dir.log_path);
		break;
	case GW_MSG_REFUSED: /* to publish a port: nothing else is asked of it */
		ak_say("%s", msg->text);
		break;
	case GW_MSG_ANCHOR:
		gw_log_anchor(l->paths, l->plan->name, &msg->stats);
		break;
	case GW_MSG_STATS:
		life_unhosted(l, &msg->stats);
		break;
	default: /* other messages occur only in the daemon */
		break;
	}
}

void run_gw_read(struct run_gw *g)
{
	struct gw_msg msg;
	int rc;

	while ((rc = gw_reply_recv(g->control, &msg)) > 0)
		on_message(g, &msg);
	if (rc != -EAGAIN)
		on_gone(g);
}

void run_gw_stop(struct run_gw *g)
{
	struct gw_msg msg = { .type = GW_MSG_STOP };

	g->look_at_ms = 0;
	g->stop_by_ms = ak_now_ms() + STOP_TIMEOUT_MS;
	(void)ak_send_fds(g->control, &msg, sizeof(msg), NULL, 0);
}

/* ---- timers ---- */

/* Tell the gateway when the host's resolvers have changed: it cannot read the file itself. */
static void follow_resolvers(struct run_gw *g)
{
	struct gw_msg msg = { .type = GW_MSG_UPSTREAM, .ipv6 = resolv_host_has_ipv6() };
	struct resolv_stamp now;
	struct ak_err err;

	resolv_look(&now);
	if (resolv_same(&now, &g->resolv) || resolv_servers(msg.text, sizeof(msg.text), &err) < 0)
		return;
	g->resolv = now;
	(void)ak_send_fds(g->control, &msg, sizeof(msg), NULL, 0);
}

void run_gw_tick(struct run_gw *g)
{
	uint64_t now = ak_now_ms();

	if (g->look_at_ms && now >= g->look_at_ms) {
		follow_resolvers(g);
		g->look_at_ms = now + RESOLV_EVERY_MS;
	}
	if (g->stop_by_ms && now >= g->stop_by_ms)
		life_unhosted(g->life, NULL);
}

uint64_t run_gw_due_ms(const struct run_gw *g)
{
	return g->stop_by_ms ? g->stop_by_ms : g->look_at_ms;
}
