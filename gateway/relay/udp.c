/*
 * UDP flows: one connected socket on the host side for each pair of sandbox address and port and destination address and port.
 *
 * The sandbox's datagrams arrive on a transparent socket whose control message contains the intended destination. Replies must
 * have that destination as their source. They are sent through a raw socket with headers built here, because a bound socket
 * per destination would have to be opened inside the gateway's namespace, where this process is not. A refused flow leaves a
 * short-lived marker, so that each retry gets one reply and all retries together one event.
 */
#include "gateway/relay/flow.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/relay/packet.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define BUDGET 64
#define REFUSED_MS 5000
#define REFUSED_KEEP_BELOW 256 /* with more flows than this in the sandbox, refusals are not remembered */
#define DATAGRAM_MAX 65536
#define KEEP_EVERY_MS 10000 /* how often a live flow extends its element in the kernel's set */
#define KEEP_GRACE_S 30

#ifndef IPV6_ORIGDSTADDR
#define IPV6_ORIGDSTADDR 74
#endif

struct relay_udp {
	struct relay_flow flow; /* must be first */
	struct relay_udp *next, **pprev; /* the hash chain */
	struct ak_addr src;
	uint16_t sport;
	int fd; /* -1: a remembered refusal */
	uint64_t kept_ms; /* when its element in the kernel's set was last extended */
	struct event on_far;
};

static uint8_t datagram[DATAGRAM_MAX]; /* shared: one event loop handles one datagram at a time */

/* ---- table ---- */

static unsigned udp_bucket(const struct ak_addr *src, uint16_t sport, const struct relay_target *t)
{
	uint32_t h = ak_addr_hash(src) * 31 + sport;

	h = (h * 31 + ak_addr_hash(&t->dst)) * 31 + t->port;
	return (h ^ h >> 16) % RELAY_UDP_BUCKETS;
}

static struct relay_udp *udp_find(struct relay *r, const struct ak_addr *src, uint16_t sport, const struct relay_target *t)
{
	struct relay_udp *u = r->udp[udp_bucket(src, sport, t)];

	while (u &&
		!(u->sport == sport && u->flow.target.port == t->port && ak_addr_eq(&u->src, src) &&
			ak_addr_eq(&u->flow.target.dst, &t->dst)))
		u = u->next;
	return u;
}

static void udp_insert(struct relay_udp *u)
{
	struct relay_udp **bucket = &u->flow.relay->udp[udp_bucket(&u->src, u->sport, &u->flow.target)];

	u->next = *bucket;
	u->pprev = bucket;
	if (u->next)
		u->next->pprev = &u->next;
	*bucket = u;
}

/* ---- to the sandbox ---- */

struct raw_out {
	int fd;
	const struct ak_addr *to;
};

static int send_raw(void *ctx, const uint8_t *packet, size_t len)
{
	const struct raw_out *out = ctx;
	struct sockaddr_storage ss;
	socklen_t ss_len = ak_addr_to_sockaddr(out->to, 0, &ss);

	return sendto(out->fd, packet, len, MSG_NOSIGNAL | MSG_DONTWAIT, (struct sockaddr *)&ss, ss_len) < 0 ? -errno : 0;
}

static struct raw_out raw_out(struct relay_udp *u)
{
	const struct relay_sockets *s = &u->flow.relay->socks;

	return (struct raw_out){ u->src.family == AF_INET ? s->raw4 : s->raw6, &u->src };
}

/* A reply that cannot be sent now is dropped. */
static void udp_reply(struct relay_udp *u, size_t len)
{
	struct relay_endpoints e = { u->flow.target.dst, u->src, u->flow.target.port, u->sport };
	struct raw_out out = raw_out(u);

	if (relay_packet_udp(&e, u->flow.relay->packet_id++, datagram, len, send_raw, &out) == 0)
		relay_flow_count(&u->flow, false, len);
}

static void udp_icmp(struct relay_udp *u, enum relay_icmp kind, size_t len)
{
	struct relay_endpoints e = { u->src, u->flow.target.dst, u->sport, u->flow.target.port };
	struct raw_out out = raw_out(u);
	uint8_t packet[RELAY_ICMP_PACKET_MAX];
	size_t n = relay_packet_icmp(&e, kind, len, packet);

	send_raw(&out, packet, n);
}

/* ---- create and free ---- */

static void udp_release(struct relay_udp *u)
{
	if (u->pprev) {
		*u->pprev = u->next;
		if (u->next)
			u->next->pprev = u->pprev;
	}
	if (event_initialized(&u->on_far))
		event_del(&u->on_far);
	u->fd = ak_close(u->fd);
	relay_flow_done(&u->flow);
	free(u);
}

void relay_udp_end(struct relay_udp *u, enum relay_end end, const char *detail)
{
	/* Refusals were reported immediately: only the number of repetitions is new. */
	if (u->fd >= 0)
		relay_flow_fail(&u->flow, end, detail);
	if (u->fd >= 0 || u->flow.again)
		relay_flow_tell(&u->flow);
	udp_release(u);
}

static void on_expiry(evutil_socket_t fd, short what, void *arg)
{
	struct relay_udp *u = arg;
	uint64_t idle_ms = ak_now_ms() - u->flow.active_ms, limit_ms = u->flow.relay->conf.udp_idle_ms;

	if (u->fd >= 0 && idle_ms < limit_ms)
		relay_timer_arm(&u->flow, (unsigned)(limit_ms - idle_ms));
	else
		relay_udp_end(u, RELAY_END_CLOSED, NULL); /* a UDP flow ends normally by being idle */
}

static void udp_far_failed(struct relay_udp *u, int error)
{
	udp_icmp(u, RELAY_ICMP_PORT, 0);
	relay_udp_end(u, RELAY_END_UNREACHABLE, error == ECONNREFUSED ? "connection refused" : "no route");
}

static void on_far(evutil_socket_t fd, short what, void *arg)
{
	struct relay_udp *u = arg;

	for (int i = 0; i < BUDGET; i++) {
		ssize_t n = recv(fd, datagram, sizeof(datagram), 0);

		if (n >= 0) {
			udp_reply(u, (size_t)n);
			continue;
		}
		if (errno == EAGAIN)
			return;
		/* "Packet too big" from a router: the kernel now knows the path MTU and fragments. The flow continues. */
		if (errno != EINTR && errno != EMSGSIZE) {
			udp_far_failed(u, errno);
			return;
		}
	}
}

static int udp_dial(struct relay_udp *u)
{
	struct ak_addr addr = u->flow.route == RELAY_ROUTE_HOST ? ak_addr_v4(INADDR_LOOPBACK) : u->flow.target.dst;
	struct sockaddr_storage ss;
	socklen_t len = ak_addr_to_sockaddr(&addr, u->flow.target.port, &ss);

	u->fd = socket(addr.family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (u->fd < 0)
		return relay_flow_fail(&u->flow, errno == EMFILE || errno == ENFILE ? RELAY_END_LIMIT : RELAY_END_UNREACHABLE,
			errno == EMFILE || errno == ENFILE ? "out of file descriptors" : "no route");
	if (connect(u->fd, (struct sockaddr *)&ss, len) < 0)
		goto fail;
	event_assign(&u->on_far, u->flow.relay->base, u->fd, EV_READ | EV_PERSIST, on_far, u);
	if (event_add(&u->on_far, NULL) < 0)
		goto fail;
	return 0;
fail:
	u->fd = ak_close(u->fd);
	return relay_flow_fail(&u->flow, RELAY_END_UNREACHABLE, "no route");
}

/* Report the refusal once, reply to it, and remember it for a while. */
static void udp_refuse(struct relay_udp *u, size_t len)
{
	enum relay_icmp kind = u->flow.end == RELAY_END_UNREACHABLE ? RELAY_ICMP_PORT : RELAY_ICMP_PROHIBITED;

	relay_flow_tell(&u->flow);
	udp_icmp(u, kind, len);
	if (u->flow.sb->n_flows >= REFUSED_KEEP_BELOW || u->flow.end == RELAY_END_LIMIT) {
		udp_release(u);
		return;
	}
	udp_insert(u);
	relay_flow_link(&u->flow);
	relay_timer_arm(&u->flow, REFUSED_MS);
}

static struct relay_udp *udp_begin(
	struct relay *r, const struct ak_addr *src, uint16_t sport, const struct relay_target *t, size_t len)
{
	struct relay_sandbox *sb = relay_sandbox_of(r, src);
	struct relay_udp *u = sb && t->port ? calloc(1, sizeof(*u)) : NULL;

	if (!u)
		return NULL;
	u->fd = -1;
	u->src = *src;
	u->sport = sport;
	relay_flow_init(&u->flow, r, sb, t);
	event_assign(&u->flow.timer, r->base, -1, 0, on_expiry, u);
	if (!relay_flow_admit(&u->flow) || udp_dial(u) < 0) {
		udp_refuse(u, len);
		return NULL;
	}
	udp_insert(u);
	relay_flow_link(&u->flow);
	relay_timer_arm(&u->flow, r->conf.udp_idle_ms);
	return u;
}

/* ---- to the server ---- */

/* The TTL of an answer limits when a flow may start, not how long it may last. */
static void udp_keep(struct relay_udp *u)
{
	struct relay_flow *f = &u->flow;
	const struct relay_hooks *hooks = &f->relay->hooks;

	if (!f->name || !hooks->keep || f->active_ms - u->kept_ms < KEEP_EVERY_MS)
		return;
	u->kept_ms = f->active_ms;
	if (!learned_find(f->sb->learned, &f->target.dst, f->name->name, f->active_ms + 2 * KEEP_EVERY_MS))
		hooks->keep(hooks->ctx, f->sb, &f->target.dst, f->target.port, f->relay->conf.udp_idle_ms / 1000 + KEEP_GRACE_S);
}

/* send() reports a pending socket error first; after "packet too big", sending again succeeds with fragments. */
static ssize_t send_far(int fd, size_t len)
{
	ssize_t n = send(fd, datagram, len, MSG_NOSIGNAL);

	return n < 0 && errno == EMSGSIZE ? send(fd, datagram, len, MSG_NOSIGNAL) : n;
}

static void udp_forward(struct relay_udp *u, size_t len)
{
	if (u->fd < 0) {
		u->flow.again++;
		udp_icmp(u, RELAY_ICMP_PROHIBITED, len);
		return;
	}
	if (relay_egress_left(u->flow.sb) < len) {
		u->flow.decision = (struct policy_decision){
			.reason = POLICY_REASON_RULE, .policy = policy_name(u->flow.sb->policy), .rule = "limits.egress_bytes"
		};
		udp_icmp(u, RELAY_ICMP_PROHIBITED, len);
		relay_udp_end(u, RELAY_END_LIMIT, "egress limit reached");
		return;
	}
	if (send_far(u->fd, len) >= 0) {
		relay_flow_count(&u->flow, true, len);
		udp_keep(u);
	} else if (errno == ECONNREFUSED || errno == EHOSTUNREACH || errno == ENETUNREACH) {
		udp_far_failed(u, errno);
	}
	/* Any other error (no room, too long for any path) only drops the datagram. */
}

/* The intended destination of the datagram. */
static bool wanted_dst(struct msghdr *msg, struct relay_target *ret)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
		struct sockaddr_storage ss = { 0 };
		size_t len = 0;

		if (c->cmsg_level == SOL_IP && c->cmsg_type == IP_ORIGDSTADDR)
			len = sizeof(struct sockaddr_in);
		else if (c->cmsg_level == SOL_IPV6 && c->cmsg_type == IPV6_ORIGDSTADDR)
			len = sizeof(struct sockaddr_in6);
		if (!len || c->cmsg_len < CMSG_LEN(len))
			continue;
		memcpy(&ss, CMSG_DATA(c), len);
		ret->dst = ak_addr_from_sockaddr(&ss, &ret->port);
		return ret->dst.family != 0;
	}
	return false;
}

void relay_udp_receive(struct relay *r, int fd, int family)
{
	for (int i = 0; i < BUDGET; i++) {
		union {
			char buf[CMSG_SPACE(sizeof(struct sockaddr_in6)) + 64];
			struct cmsghdr align;
		} control;
		struct sockaddr_storage from;
		struct iovec iov = { datagram, sizeof(datagram) };
		struct msghdr msg = { .msg_name = &from,
			.msg_namelen = sizeof(from),
			.msg_iov = &iov,
			.msg_iovlen = 1,
			.msg_control = &control,
			.msg_controllen = sizeof(control) };
		struct relay_target target = { .proto = POLICY_UDP };
		ssize_t n = recvmsg(fd, &msg, 0);
		struct relay_udp *u;
		struct ak_addr src;
		uint16_t sport;

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return;
		src = ak_addr_from_sockaddr(&from, &sport);
		if (src.family != family || !wanted_dst(&msg, &target) || target.dst.family != family)
			continue;
		u = udp_find(r, &src, sport, &target);
		if (!u)
			u = udp_begin(r, &src, sport, &target, (size_t)n);
		if (u)
			udp_forward(u, (size_t)n);
	}
}

bool relay_udp_rejudge(struct relay_udp *u)
{
	bool stays;

	if (u->fd < 0)
		return false; /* forget a refusal: a retry is judged under the new policy */
	stays = relay_flow_rejudge(&u->flow, true);
	if (!stays)
		u->flow.detail = "the policy changed";
	return stays;
}
