/*
 * TCP flows.
 *
 * Theory of operation. A flow is in one of three states, and each callback runs it until it must wait:
 *
 *   PEEK    collect and inspect the client's first bytes; no connection yet. On ports 80 and 443 a name is required if an
 *           allowlist is in force; otherwise the flow waits for it only briefly.
 *   DIAL    connect() is in progress. On all other ports a flow starts here, because the server may send first; the
 *           client's first bytes are then inspected when they arrive, before they are forwarded.
 *   SPLICE  relay/pump.c moves bytes; every request on port 80 is still inspected.
 *
 * Functions below that return int never free the flow: -1 means "end the flow as flow.end says", and only relay_tcp_run
 * and the callbacks do so.
 */
#include "gateway/relay/flow.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define GRACE_MS 300 /* how long to wait for the name of a flow that does not need one */

/* ---- end ---- */

/* Closing with a zero linger sends a reset: the client fails immediately instead of seeing a false end of file. */
static int close_reset(int fd)
{
	const struct linger now = { .l_onoff = 1, .l_linger = 0 };

	if (fd >= 0)
		setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
	return ak_close(fd);
}

static void server_close(struct relay_tcp *t, bool reset)
{
	if (event_initialized(&t->on_server))
		event_del(&t->on_server);
	t->server = reset ? close_reset(t->server) : ak_close(t->server);
}

/* Report the end and free everything. */
static void tcp_finish(struct relay_tcp *t)
{
	bool reset = t->flow.end != RELAY_END_CLOSED;

	relay_flow_tell(&t->flow);
	relay_run_cancel(t);
	if (event_initialized(&t->on_client))
		event_del(&t->on_client);
	server_close(t, reset);
	relay_large_done(t);
	relay_names_forget(t);
	t->client = reset ? close_reset(t->client) : ak_close(t->client);
	relay_dir_done(t->flow.relay, &t->out);
	relay_dir_done(t->flow.relay, &t->in);
	relay_flow_done(&t->flow);
	free(t);
}

void relay_tcp_end(struct relay_tcp *t, enum relay_end end, const char *detail)
{
	relay_flow_fail(&t->flow, end, detail);
	tcp_finish(t);
}

/* ---- dial ---- */

static void on_server(evutil_socket_t fd, short what, void *arg);

static const char *dial_reason(int error)
{
	switch (error) {
	case ECONNREFUSED:
		return "connection refused";
	case ENETUNREACH:
	case EHOSTUNREACH:
	case EAFNOSUPPORT:
		return "no route";
	case EADDRNOTAVAIL:
		return "no local port is free";
	case ETIMEDOUT:
		return "connect timed out";
	case EACCES:
	case EPERM:
		return "refused by the host";
	default:
		return "connect failed";
	}
}

static struct ak_addr dial_addr(const struct relay_tcp *t)
{
	struct ak_addr a = ak_addr_v4(INADDR_LOOPBACK);

	if (t->flow.route != RELAY_ROUTE_HOST)
		return t->flow.target.dst;
	if (t->dialled_v6) {
		a = (struct ak_addr){ .family = AF_INET6 };
		a.bytes[15] = 1;
	}
	return a;
}

static int tcp_established(struct relay_tcp *t)
{
	t->state = RELAY_SPLICE;
	t->out.writable = t->in.writable = true;
	t->in.readable = true;
	t->flow.active_ms = ak_now_ms();
	t->flow.dial_us = ak_since_us(t->flow.started_us);
	relay_timer_arm(&t->flow, t->flow.relay->conf.tcp_idle_ms);
	return relay_pump(t);
}

static int tcp_dial(struct relay_tcp *t);

static int tcp_dial_failed(struct relay_tcp *t, int error)
{
	if (t->flow.route == RELAY_ROUTE_HOST && !t->dialled_v6 && error == ECONNREFUSED) {
		server_close(t, false);
		t->dialled_v6 = true;
		return tcp_dial(t);
	}
	return relay_flow_fail(&t->flow, error == ETIMEDOUT ? RELAY_END_TIMEOUT : RELAY_END_UNREACHABLE, dial_reason(error));
}

static int tcp_dial(struct relay_tcp *t)
{
	struct ak_addr addr = dial_addr(t);
	struct sockaddr_storage ss;
	socklen_t len = ak_addr_to_sockaddr(&addr, t->flow.target.port, &ss);
	int one = 1, rc;

	t->state = RELAY_DIAL;
	t->server = socket(addr.family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (t->server < 0 && (errno == EMFILE || errno == ENFILE)) {
		relay_pause(t->flow.relay);
		return relay_flow_fail(&t->flow, RELAY_END_LIMIT, "out of file descriptors");
	}
	if (t->server < 0)
		return tcp_dial_failed(t, errno);
	setsockopt(t->server, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	rc = relay_ports_connect(&t->flow.relay->ports, t->flow.sb->id, t->server, &ss, len);
	if (rc < 0)
		return tcp_dial_failed(t, -rc);
	/* Watch only after connect: an unconnected socket would report a hang-up. */
	event_assign(&t->on_server, t->flow.relay->base, t->server, EV_READ | EV_WRITE | EV_ET | EV_PERSIST, on_server, t);
	if (event_add(&t->on_server, NULL) < 0)
		return relay_flow_fail(&t->flow, RELAY_END_LIMIT, "out of memory");
	relay_timer_arm(&t->flow, t->flow.relay->conf.connect_timeout_ms);
	return 0;
}

static int tcp_dialled(struct relay_tcp *t)
{
	int error = 0;
	socklen_t len = sizeof(error);

	if (getsockopt(t->server, SOL_SOCKET, SO_ERROR, &error, &len) < 0)
		error = errno;
	return error ? tcp_dial_failed(t, error) : tcp_established(t);
}

/* ---- peek ---- */

/* Check again whether the destination is the host, because time has passed since the flow was admitted. */
static int peek_passed(struct relay_tcp *t)
{
	return relay_flow_is_host(&t->flow) ? -1 : tcp_dial(t);
}

/* The flow did not send a required name, in time or completely. */
static int peek_denied(struct relay_tcp *t, enum net_reason reason)
{
	t->flow.decision = (struct policy_decision){ .reason = POLICY_REASON_DEFAULT, .policy = "default", .rule = "" };
	return relay_flow_deny(&t->flow, reason, NULL);
}

/* The client has closed its side. */
static int peek_ended(struct relay_tcp *t)
{
	if (!t->needs_name && !(t->must_read && t->out.len))
		return peek_passed(t);
	if (t->out.len)
		return peek_denied(t, NET_REASON_ENDED_NAMELESS);
	/* A client that tries two addresses in parallel drops the slower one unused: not a violation. */
	if (!t->flow.decision.allow)
		return relay_flow_deny(&t->flow, NET_REASON_CLOSED_NAMELESS, NULL);
	return relay_flow_fail(&t->flow, RELAY_END_CLOSED, net_reason_text(NET_REASON_CLOSED_NAMELESS));
}

static int tcp_peek(struct relay_tcp *t)
{
	struct relay_dir *d = &t->out;

	while (d->readable) {
		ssize_t n = relay_look_read(t);

		if (n == -EINTR)
			continue;
		if (n == -EAGAIN) {
			d->readable = false;
			break;
		}
		if (n == -EDQUOT)
			return relay_flow_fail(&t->flow, RELAY_END_LIMIT, RELAY_TOO_LARGE);
		if (n < 0)
			return relay_flow_fail(&t->flow, RELAY_END_RESET, "reset by the sandbox");
		if (n == 0) {
			d->eof = true;
			return peek_ended(t);
		}
		switch (relay_tcp_look(t)) {
		case RELAY_LOOK_PASS:
			return peek_passed(t);
		case RELAY_LOOK_CUT:
			return -1;
		case RELAY_LOOK_MORE:
		case RELAY_LOOK_NUM:
			break;
		}
	}
	return 0;
}

/* ---- callbacks ---- */

static int tcp_step(struct relay_tcp *t)
{
	switch (t->state) {
	case RELAY_PEEK:
		return tcp_peek(t);
	case RELAY_SPLICE:
		return relay_pump(t);
	case RELAY_DIAL: /* only the server side makes progress */
	case RELAY_STATE_NUM:
		break;
	}
	return 0;
}

static void tcp_after(struct relay_tcp *t, int rc)
{
	if (rc < 0)
		tcp_finish(t);
	else if (rc > 0)
		relay_run_later(t);
}

void relay_tcp_run(struct relay_tcp *t)
{
	tcp_after(t, tcp_step(t));
}

/* A socket is ready: run the flow. A flow under inspection, which costs more, stays in the run queue if it is already there. */
static void tcp_ready(struct relay_tcp *t)
{
	if (t->run_pprev && t->inspect != RELAY_INSPECT_OFF)
		return;
	if (!relay_run_now(t))
		relay_run_later(t);
}

/* After end of file, the only event left is a reset. */
static bool was_reset(const struct relay_dir *d, int fd, short what)
{
	int error = 0;
	socklen_t len = sizeof(error);

	return d->eof && what & EV_READ && getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) == 0 && error;
}

static void on_client(evutil_socket_t fd, short what, void *arg)
{
	struct relay_tcp *t = arg;

	if (was_reset(&t->out, fd, what)) {
		relay_tcp_end(t, RELAY_END_RESET, "reset by the sandbox");
		return;
	}
	if (what & EV_READ)
		t->out.readable = !t->out.eof;
	if (what & EV_WRITE)
		t->in.writable = true;
	tcp_ready(t);
}

static void on_server(evutil_socket_t fd, short what, void *arg)
{
	struct relay_tcp *t = arg;

	if (t->state == RELAY_DIAL) {
		tcp_after(t, tcp_dialled(t));
		return;
	}
	if (was_reset(&t->in, fd, what)) {
		relay_tcp_end(t, RELAY_END_RESET, "reset by the far side");
		return;
	}
	if (what & EV_READ)
		t->in.readable = !t->in.eof;
	if (what & EV_WRITE)
		t->out.writable = true;
	tcp_ready(t);
}

static int tcp_timed_out(struct relay_tcp *t)
{
	uint64_t idle_ms = ak_now_ms() - t->flow.active_ms, limit_ms = t->flow.relay->conf.tcp_idle_ms;
	unsigned peek_ms = t->flow.relay->conf.peek_timeout_ms;

	if (t->state == RELAY_PEEK && !t->needs_name && !(t->must_read && t->out.len))
		return peek_passed(t);
	/* The client has started to send: wait for its name before connecting. */
	if (t->state == RELAY_PEEK && !t->needs_name && idle_ms < peek_ms) {
		relay_timer_arm(&t->flow, (unsigned)(peek_ms - idle_ms));
		return 0;
	}
	if (t->state == RELAY_PEEK)
		return peek_denied(t, NET_REASON_PEEK_TIMEOUT);
	if (t->state == RELAY_DIAL)
		return relay_flow_fail(&t->flow, RELAY_END_TIMEOUT, "connect timed out");
	if (idle_ms >= limit_ms)
		return relay_flow_fail(&t->flow, RELAY_END_TIMEOUT, "idle");
	/* The timer is not restarted with every byte; when it fires, it checks the idle time. */
	relay_timer_arm(&t->flow, (unsigned)(limit_ms - idle_ms));
	return 0;
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
	struct relay_tcp *t = arg;

	tcp_after(t, tcp_timed_out(t));
}

/* ---- begin ---- */

/* The local address of the accepted socket is the sandbox's intended destination. */
static int tcp_endpoints(int fd, struct ak_addr *ret_src, struct relay_target *ret)
{
	struct sockaddr_storage ss = { 0 };
	socklen_t len = sizeof(ss);

	if (getpeername(fd, (struct sockaddr *)&ss, &len) < 0)
		return -errno;
	*ret_src = ak_addr_from_sockaddr(&ss, NULL);
	len = sizeof(ss);
	if (getsockname(fd, (struct sockaddr *)&ss, &len) < 0)
		return -errno;
	ret->dst = ak_addr_from_sockaddr(&ss, &ret->port);
	ret->proto = POLICY_TCP;
	return 0;
}

static int tcp_begin(struct relay_tcp *t)
{
	struct relay *r = t->flow.relay;
	int one = 1;

	setsockopt(t->client, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	event_assign(&t->on_client, r->base, t->client, EV_READ | EV_WRITE | EV_ET | EV_PERSIST, on_client, t);
	if (event_add(&t->on_client, NULL) < 0)
		return relay_flow_fail(&t->flow, RELAY_END_LIMIT, "out of memory");
	t->out.readable = true;
	if (t->flow.route == RELAY_ROUTE_HOST || !relay_port_needs_name(&t->flow.target))
		return tcp_dial(t);
	relay_timer_arm(&t->flow, t->needs_name ? r->conf.peek_timeout_ms : GRACE_MS);
	return tcp_peek(t);
}

/* Set what the route requires of the flow's first bytes. */
static void tcp_set_demands(struct relay_tcp *t)
{
	t->needs_name = t->flow.route == RELAY_ROUTE_NAMED && relay_port_needs_name(&t->flow.target);
	t->must_read = relay_must_read(t->flow.sb, t->flow.route, &t->flow.target);
}

struct relay_tcp *relay_tcp_new(struct relay *r, struct relay_sandbox *sb, const struct relay_target *target)
{
	struct relay_tcp *t = calloc(1, sizeof(*t));

	if (!t)
		return NULL;
	t->client = t->server = -1;
	relay_flow_init(&t->flow, r, sb, target);
	event_assign(&t->flow.timer, r->base, -1, 0, on_timer, t);
	return t;
}

void relay_tcp_join(struct relay_tcp *t)
{
	struct event_base *base = t->flow.relay->base;

	event_assign(&t->on_client, base, t->client, EV_READ | EV_WRITE | EV_ET | EV_PERSIST, on_client, t);
	event_assign(&t->on_server, base, t->server, EV_READ | EV_WRITE | EV_ET | EV_PERSIST, on_server, t);
	if (event_add(&t->on_client, NULL) < 0 || event_add(&t->on_server, NULL) < 0) {
		relay_tcp_end(t, RELAY_END_LIMIT, "out of memory");
		return;
	}
	t->out.readable = true;
	tcp_after(t, tcp_established(t));
}

void relay_tcp_accept(struct relay *r, int fd)
{
	struct relay_target target;
	struct relay_sandbox *sb;
	struct relay_tcp *t;
	struct ak_addr src;

	sb = tcp_endpoints(fd, &src, &target) < 0 ? NULL : relay_sandbox_of(r, &src);
	t = sb ? relay_tcp_new(r, sb, &target) : NULL;
	if (!t) {
		close_reset(fd);
		return;
	}
	t->client = fd;
	if (!relay_flow_admit(&t->flow)) {
		tcp_finish(t);
		return;
	}
	relay_flow_link(&t->flow);
	tcp_set_demands(t);
	t->inspect = t->flow.route == RELAY_ROUTE_HOST ? RELAY_INSPECT_OFF : RELAY_INSPECT_SNIFF;
	tcp_after(t, tcp_begin(t));
}

bool relay_tcp_rejudge(struct relay_tcp *t)
{
	bool stays;

	if (t->published)
		return true;
	stays = relay_flow_rejudge(&t->flow, t->state != RELAY_PEEK);
	relay_names_forget(t);
	/* A flow whose name was optional may now need one. */
	tcp_set_demands(t);
	/* Data that was forwarded unread, while no name was required, can no longer be judged. */
	if (t->must_read && t->unread)
		stays = t->flow.decision.allow = false;
	if (t->needs_name && t->state != RELAY_PEEK && t->flow.target.port == 80 && t->inspect == RELAY_INSPECT_OFF &&
		t->upgrade != RELAY_UPGRADE_DONE)
		stays = t->flow.decision.allow = false;
	if (t->state == RELAY_PEEK && t->needs_name)
		relay_timer_arm(&t->flow, t->flow.relay->conf.peek_timeout_ms);
	if (!stays)
		t->flow.detail = "the policy changed";
	return stays;
}
