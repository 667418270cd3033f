/*
 * A rig for the relay, all in this process: three private network namespaces below a private user namespace.
 *
 *   inside  where the relay's listeners are and where "the sandbox" connects from; all of 11/8 and 2a00::/16 is local
 *           there, so a connection to any such address reaches the listener, as it would through tproxy
 *   host    where the process lives and the relay dials from
 *   far     the Internet: 11/8 and 2a00::/16 again, where servers listen
 *
 * Nothing is waited for by time: rig_wait runs the event loop until a condition holds.
 */
#ifndef AK_TEST_RELAY_RIG_H
#define AK_TEST_RELAY_RIG_H

#include "gateway/base/addr.h"
#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/relay/relay.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#define RIG_SRC "100.64.0.2"
#define RIG_GW "100.64.0.1"
#define RIG_EVENTS 64

struct rig_event {
	enum relay_end end;
	bool allow;
	enum policy_reason reason;
	char seen[16], sni[256], name[256], detail[128], rule[64];
	uint64_t bytes_out, bytes_in, generation;
	uint16_t port;
	uint32_t dial_us;
	uint64_t again;
};

struct rig {
	int ns_inside, ns_host, ns_far;
	struct event_base *base;
	struct event *tick;
	struct relay *relay;
	struct relay_sandbox sb;
	struct policy *policy;
	int listener, udp;
	struct rig_event events[RIG_EVENTS];
	size_t n_events;
};

static struct rig rig;

static inline void rig_enter(int ns)
{
	if (setns(ns, CLONE_NEWNET) < 0)
		abort();
}

/* ---- namespaces ---- */

static inline int rig_new_netns(void)
{
	return unshare(CLONE_NEWNET) < 0 ? -1 : open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
}

static inline bool rig_userns(void)
{
	unsigned uid = getuid(), gid = getgid();
	char map[64];

	if (unshare(CLONE_NEWUSER) < 0)
		return false;
	ak_write_file("/proc/self/setgroups", "deny");
	snprintf(map, sizeof(map), "0 %u 1", uid);
	if (ak_write_file("/proc/self/uid_map", map) < 0)
		return false;
	snprintf(map, sizeof(map), "0 %u 1", gid);
	return ak_write_file("/proc/self/gid_map", map) == 0;
}

static inline bool rig_sh(int ns, const char *script)
{
	rig_enter(ns);
	if (system(script) != 0) /* fixed text of this file */
		return false;
	rig_enter(rig.ns_host);
	return true;
}

static inline bool rig_net(void)
{
	char move[128];

	if (!rig_userns())
		return false;
	rig.ns_inside = rig_new_netns();
	rig.ns_far = rig_new_netns();
	rig.ns_host = rig_new_netns();
	if (rig.ns_inside < 0 || rig.ns_far < 0 || rig.ns_host < 0)
		return false;
	snprintf(move, sizeof(move), "ip link set f0 netns /proc/%d/fd/%d", (int)getpid(), rig.ns_far);
	return rig_sh(rig.ns_inside,
		       "ip link set lo up && ip route add local 11.0.0.0/8 dev lo && ip route add local 100.64.0.0/10 dev lo && "
		       "{ ip -6 route add local 2a00::/16 dev lo && ip -6 route add local fd6b::/16 dev lo; } 2>/dev/null; true") &&
		rig_sh(rig.ns_host, "ip link set lo up && ip link add h0 type veth peer name f0") && rig_sh(rig.ns_host, move) &&
		rig_sh(rig.ns_far,
			"ip link set lo up && ip addr add 10.99.0.2/30 dev f0 && ip link set f0 up && ip route add local 11.0.0.0/8 dev lo && "
			"{ ip -6 addr add fd99::2/64 dev f0 nodad && ip -6 route add local 2a00::/16 dev lo; } 2>/dev/null; true") &&
		rig_sh(rig.ns_host,
			"ip addr add 10.99.0.1/30 dev h0 && ip link set h0 up && ip route add 11.0.0.0/8 via 10.99.0.2 && "
			"ip addr add 11.9.9.9/32 dev lo && ip addr add 11.9.9.8/32 dev lo && "
			"{ ip -6 addr add fd99::1/64 dev h0 nodad && ip -6 route add 2a00::/16 via fd99::2; } 2>/dev/null; true");
}

/* ---- hooks ---- */

static inline struct relay_sandbox *rig_sandbox_of(void *ctx, const struct ak_addr *src)
{
	return ak_addr_eq(src, &rig.sb.addr4) || ak_addr_eq(src, &rig.sb.addr6) ? &rig.sb : NULL;
}

static inline void rig_on_event(void *ctx, struct relay_sandbox *sb, const struct relay_event *ev)
{
	struct rig_event *e = &rig.events[rig.n_events++ % RIG_EVENTS];

	*e = (struct rig_event){ .end = ev->end,
		.allow = ev->decision.allow,
		.reason = ev->decision.reason,
		.bytes_out = ev->bytes_out,
		.bytes_in = ev->bytes_in,
		.generation = ev->generation,
		.port = ev->port,
		.dial_us = ev->dial_us,
		.again = ev->again };
	snprintf(e->seen, sizeof(e->seen), "%s", ev->seen);
	snprintf(e->sni, sizeof(e->sni), "%s", ev->sni ? ev->sni : "");
	snprintf(e->name, sizeof(e->name), "%s", ev->name ? ev->name->name : "");
	snprintf(e->detail, sizeof(e->detail), "%s",
		ev->detail			      ? ev->detail
			: ev->end == RELAY_END_DENIED ? net_reason_text(ev->reason)
						      : "");
	snprintf(e->rule, sizeof(e->rule), "%s", ev->decision.rule);
}

static inline void rig_on_tick(evutil_socket_t fd, short what, void *arg)
{
}

/* ---- waiting ---- */

/* Run the loop until COND is true; fails the test after ten seconds. */
#define rig_wait(cond)                                                                                                           \
	do {                                                                                                                     \
		uint64_t until_ = ak_now_ms() + 10000;                                                                           \
		while (!(cond)) {                                                                                                \
			if (ak_now_ms() > until_)                                                                                \
				fail_msg("never came true: %s", #cond);                                                          \
			event_base_loop(rig.base, EVLOOP_ONCE);                                                                  \
		}                                                                                                                \
	} while (0)

static inline void rig_wait_events(size_t n)
{
	rig_wait(rig.n_events >= n);
	assert_int_equal(rig.n_events, n);
}

/* ---- sockets ---- */

static inline struct ak_addr rig_addr(const char *text)
{
	struct ak_addr a = { 0 };

	assert_int_equal(ak_addr_parse(text, &a), 0);
	return a;
}

static inline int rig_socket(int ns, int type, const char *addr, uint16_t port)
{
	struct ak_addr a = rig_addr(addr);
	struct sockaddr_storage ss;
	socklen_t len = ak_addr_to_sockaddr(&a, port, &ss);
	int one = 1, fd;

	rig_enter(ns);
	fd = socket(a.family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	rig_enter(rig.ns_host);
	assert_true(fd >= 0);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (a.family == AF_INET6) {
		setsockopt(fd, SOL_IPV6, IPV6_V6ONLY, &one, sizeof(one));
		/* Unlike IPv4, a local route alone does not make an address one that can be bound. */
		setsockopt(fd, SOL_IPV6, 78 /* IPV6_FREEBIND */, &one, sizeof(one));
	}
	if (bind(fd, (struct sockaddr *)&ss, len) < 0) {
		close(fd);
		return -1;
	}
	return fd;
}

static inline int rig_listen(int ns, const char *addr, uint16_t port)
{
	int fd = rig_socket(ns, SOCK_STREAM, addr, port);

	assert_true(fd >= 0);
	assert_int_equal(listen(fd, 128), 0);
	return fd;
}

static inline int rig_connect_from(const char *src, const char *dst, uint16_t port)
{
	int fd = rig_socket(rig.ns_inside, SOCK_STREAM, src, 0);
	struct ak_addr a = rig_addr(dst);
	struct sockaddr_storage ss;
	socklen_t len = ak_addr_to_sockaddr(&a, port, &ss);

	assert_true(fd >= 0);
	if (connect(fd, (struct sockaddr *)&ss, len) < 0)
		assert_int_equal(errno, EINPROGRESS);
	return fd;
}

/* The sandbox connects to DST. */
static inline int rig_connect(const char *dst, uint16_t port)
{
	return rig_connect_from(RIG_SRC, dst, port);
}

static inline bool rig_try_accept(int listener, int *ret)
{
	*ret = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	return *ret >= 0;
}

static inline int rig_accept(int listener)
{
	int fd;

	rig_wait(rig_try_accept(listener, &fd));
	return fd;
}

static inline bool rig_nobody_came(int listener)
{
	int fd;

	if (!rig_try_accept(listener, &fd))
		return true;
	close(fd);
	return false;
}

static inline void rig_send(int fd, const void *data, size_t len)
{
	assert_int_equal(send(fd, data, len, MSG_NOSIGNAL), len);
}

/* Collect into BUF until WANT bytes are there; true then. */
struct rig_in {
	char buf[65536];
	size_t len;
	bool eof;
	int error;
};

static inline bool rig_try_read(int fd, struct rig_in *in, size_t want)
{
	while (in->len < want) {
		ssize_t n = recv(fd, in->buf + in->len, want - in->len, 0);

		if (n < 0 && errno == EAGAIN)
			return false;
		if (n < 0)
			in->error = errno;
		if (n == 0)
			in->eof = true;
		if (n <= 0)
			return true;
		in->len += (size_t)n;
	}
	return true;
}

static inline void rig_expect(int fd, const char *text)
{
	static struct rig_in in;

	in = (struct rig_in){ 0 };
	rig_wait(rig_try_read(fd, &in, strlen(text)));
	assert_int_equal(in.len, strlen(text));
	assert_memory_equal(in.buf, text, in.len);
}

/* How the connection ends for its reader: 0 for an orderly end, else the errno. Bytes before it are dropped. */
static inline int rig_end_of(int fd)
{
	static struct rig_in in;

	in = (struct rig_in){ 0 };
	rig_wait(rig_try_read(fd, &in, sizeof(in.buf)));
	assert_true(in.eof || in.error);
	return in.error;
}

/* ---- policy and relay ---- */

static inline struct policy *rig_policy(const char *json)
{
	const struct policy_dirs dirs = { { NULL } };
	struct policy *p = NULL;
	struct ak_err err;

	if (policy_parse(json, strlen(json), "test", &dirs, NULL, 0, &p, &err) < 0)
		fail_msg("%s", err.text);
	return p;
}

static inline void rig_learn(const char *name, const char *addr)
{
	struct ak_addr a = rig_addr(addr);
	struct learned_name *n = learned_name_new(name, NULL, 0, &a, 1, 60);

	assert_int_equal(learned_add(rig.sb.learned, n, ak_now_ms(), 60000), 0);
	learned_name_unref(n);
}

static inline int rig_udp_listener(const char *addr, uint16_t port)
{
	int fd = rig_socket(rig.ns_inside, SOCK_DGRAM, addr, port), one = 1;

	if (strchr(addr, ':'))
		setsockopt(fd, SOL_IPV6, 74 /* IPV6_RECVORIGDSTADDR */, &one, sizeof(one));
	else
		setsockopt(fd, SOL_IP, IP_RECVORIGDSTADDR, &one, sizeof(one));
	return fd;
}

static inline int rig_raw(int family)
{
	int fd;

	rig_enter(rig.ns_inside);
	fd = socket(family, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_RAW);
	rig_enter(rig.ns_host);
	return fd;
}

/* A relay for one port (in place of tproxy, which brings all ports to one) under the policy JSON. */
static inline void rig_open(const char *json, uint16_t port, const struct relay_conf *conf)
{
	struct relay_hooks hooks = { .sandbox_of = rig_sandbox_of, .event = rig_on_event };
	struct relay_sockets socks = { .raw4 = rig_raw(AF_INET), .raw6 = rig_raw(AF_INET6) };
	struct ak_err err;

	socks.tcp4 = rig_listen(rig.ns_inside, "0.0.0.0", port);
	socks.tcp6 = rig_listen(rig.ns_inside, "::", port);
	socks.udp4 = rig_udp_listener("0.0.0.0", port);
	socks.udp6 = rig_udp_listener("::", port);
	rig.n_events = 0;
	rig.policy = rig_policy(json);
	rig.sb = (struct relay_sandbox){ .id = 7,
		.policy = rig.policy,
		.generation = 1,
		.addr4 = rig_addr(RIG_SRC),
		.addr6 = rig_addr("fd6b::2"),
		.gw4 = rig_addr(RIG_GW),
		.gw6 = rig_addr("fd6b::1") };
	assert_int_equal(learned_new(&rig.sb.learned), 0);
	assert_int_equal(relay_new(rig.base, &socks, &hooks, conf, &rig.relay, &err), 0);
	relay_sandbox_open(rig.relay, &rig.sb);
}

static inline void rig_set_policy(const char *json)
{
	struct policy *p = rig_policy(json);

	relay_sandbox_set_policy(rig.relay, &rig.sb, p, rig.sb.generation + 1);
	policy_unref(rig.policy);
	rig.policy = p;
}

/* ---- flows ---- */

/* A connection through the relay, from both ends. */
struct rig_flow {
	int far; /* who listens at the far side */
	int fd, peer; /* the sandbox's end, and the far side's */
};

/* One more to the same listener: the sandbox connects to DST and says FIRST (LEN may be 0), the far side takes it. */
static inline void rig_flow_again(struct rig_flow *f, const char *dst, uint16_t port, const void *first, size_t len)
{
	f->fd = rig_connect(dst, port);
	if (len)
		rig_send(f->fd, first, len);
	f->peer = rig_accept(f->far);
}

static inline struct rig_flow rig_flow_open(const char *dst, uint16_t port, const void *first, size_t len)
{
	struct rig_flow f = { .far = rig_listen(rig.ns_far, dst, port) };

	rig_flow_again(&f, dst, port, first, len);
	return f;
}

static inline void rig_flow_end(struct rig_flow *f)
{
	close(f->fd);
	close(f->peer);
}

static inline void rig_flow_close(struct rig_flow *f)
{
	rig_flow_end(f);
	close(f->far);
}

/* ---- refusals ---- */

/* Connect to DST, say BYTES: refused with DETAIL and nobody was dialled. */
static inline void rig_denied(const char *dst, uint16_t port, const void *bytes, size_t len, const char *detail)
{
	int far = rig_listen(rig.ns_far, "0.0.0.0", port), fd;
	size_t before = rig.n_events;
	struct rig_event *e = &rig.events[before % RIG_EVENTS];

	fd = rig_connect(dst, port);
	if (len)
		rig_send(fd, bytes, len);
	assert_int_equal(rig_end_of(fd), ECONNRESET);
	rig_wait_events(before + 1);
	assert_int_equal(e->end, RELAY_END_DENIED);
	assert_false(e->allow);
	assert_string_equal(e->name, "");
	if (detail)
		assert_string_equal(e->detail, detail);
	assert_true(rig_nobody_came(far));
	assert_int_equal(rig.sb.n_flows, 0);
	close(fd);
	close(far);
}

/* Also run after a failed test, so that the next begins afresh. */
static inline int rig_close(void **state)
{
	relay_free(rig.relay);
	rig.relay = NULL;
	learned_free(rig.sb.learned);
	rig.sb.learned = NULL;
	policy_unref(rig.policy);
	rig.policy = NULL;
	return 0;
}

static inline int rig_setup(void **state)
{
	static const struct timeval often = { .tv_usec = 5000 };

	if (!rig_net()) {
		if (getenv("AK_MUST_WORK"))
			return -1;
		printf("skipped: no user or network namespaces here\n");
		exit(0);
	}
	rig.base = event_base_new();
	rig.tick = event_new(rig.base, -1, EV_PERSIST, rig_on_tick, NULL);
	event_add(rig.tick, &often);
	return 0;
}

static inline int rig_teardown(void **state)
{
	event_free(rig.tick);
	event_base_free(rig.base);
	close(rig.ns_inside);
	close(rig.ns_far);
	close(rig.ns_host);
	return 0;
}

#define RIG_TEST(fn) cmocka_unit_test_teardown(fn, rig_close)

#endif
