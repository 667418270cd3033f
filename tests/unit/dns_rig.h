/*
 * A rig for the DNS proxy: the real proxy on loopback sockets, a scripted upstream in the same event loop, and a client.
 * Included by the test programs; everything is static.
 */
#ifndef AK_TEST_DNS_RIG_H
#define AK_TEST_DNS_RIG_H

#include "dnsproxy/dnsproxy.h"
#include "dnsproxy/wire.h"
#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"

#include <arpa/inet.h>
#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <cmocka.h>

#define RIG_WAIT_MS 8000
#define SANDBOX 7

struct packet {
	uint8_t b[65535];
	size_t n;
};

struct rig;
/* Fill OUT with the answer to Q, or leave it empty for silence. */
typedef void (*rig_script)(struct rig *r, const struct dns_question *q, bool tcp, struct packet *out);

struct rig {
	struct event_base *base;
	struct dns_proxy *proxy;
	struct dns_client *client;
	struct policy *policy;
	uint16_t udp_port, tcp_port; /* the proxy's */
	/* upstream */
	int up_udp, up_tcp, up_conn;
	uint16_t up_port;
	struct event *up_udp_event, *up_tcp_event, *up_conn_event;
	rig_script script;
	unsigned asked_udp, asked_tcp;
	unsigned forge; /* wrong ids that are sent before each answer over UDP */
	struct packet last_asked;
	struct sockaddr_in last_from;
	/* gateway */
	int learn_rc;
	unsigned learned;
	struct ak_addr learned_addrs[DNS_ANSWER_MAX];
	size_t n_learned_addrs;
	uint32_t learned_ttl;
	char learned_name[DNS_WIRE_TEXT_MAX];
	char learned_cname[DNS_CNAME_MAX][256];
	size_t n_learned_cname;
	unsigned events[DNS_OUTCOME_NUM];
	unsigned events_cached;
	uint32_t last_latency_us;
	enum dns_outcome last_outcome;
	char last_name[DNS_WIRE_TEXT_MAX], last_detail[256];
	bool stranger; /* client_of knows nobody */
	int cli; /* the client's UDP socket */
};

/* ---- packets ---- */

static inline void put(struct packet *p, const void *data, size_t n)
{
	memcpy(p->b + p->n, data, n);
	p->n += n;
}

static inline void put16(struct packet *p, unsigned v)
{
	p->b[p->n++] = (uint8_t)(v >> 8);
	p->b[p->n++] = (uint8_t)v;
}

static inline unsigned get16(const struct packet *p, size_t off)
{
	return (unsigned)(p->b[off] << 8 | p->b[off + 1]);
}

static inline void put_name(struct packet *p, const char *text)
{
	struct dns_name name;

	assert_int_equal(dns_name_from_text(text, &name), 0);
	put(p, name.wire, name.len);
}

static inline void make_query(struct packet *p, unsigned id, const char *name, unsigned type, bool edns)
{
	p->n = 0;
	put16(p, id);
	put16(p, 0x0100);
	put16(p, 1);
	put16(p, 0);
	put16(p, 0);
	put16(p, edns);
	put_name(p, name);
	put16(p, type);
	put16(p, 1);
	if (edns)
		put(p, "\x00\x00\x29\x10\x00\x00\x00\x80\x00\x00\x00", 11);
}

/* The head of an upstream's answer to Q, then records. */
static inline void answer_begin(struct packet *p, const struct dns_question *q, unsigned rcode)
{
	p->n = 0;
	put16(p, q->ask.id);
	put16(p, 0x8180 | rcode);
	put16(p, 1);
	put16(p, 0);
	put16(p, 0);
	put16(p, 0);
	put(p, q->ask.raw.wire, q->ask.raw.len);
	put16(p, q->ask.qtype);
	put16(p, 1);
}

static inline void answer_add(struct packet *p, const char *owner, unsigned type, uint32_t ttl, const void *rdata, size_t n)
{
	put_name(p, owner);
	put16(p, type);
	put16(p, 1);
	put16(p, ttl >> 16);
	put16(p, ttl & 0xffff);
	put16(p, (unsigned)n);
	put(p, rdata, n);
	if (++p->b[7] == 0)
		p->b[6]++;
}

static inline void answer_a(struct packet *p, const char *owner, uint32_t ttl, const char *addr)
{
	struct ak_addr a;

	assert_int_equal(ak_addr_parse(addr, &a), 0);
	answer_add(p, owner, a.family == AF_INET ? 1 : 28, ttl, a.bytes, a.family == AF_INET ? 4 : 16);
}

static inline void answer_cname(struct packet *p, const char *owner, const char *target)
{
	struct dns_name name;

	assert_int_equal(dns_name_from_text(target, &name), 0);
	answer_add(p, owner, DNS_TYPE_CNAME, 300, name.wire, name.len);
}

/* One address for every name; AAAA is empty. */
static inline void script_plain(struct rig *r, const struct dns_question *q, bool tcp, struct packet *out)
{
	answer_begin(out, q, 0);
	if (q->ask.qtype == 1)
		answer_a(out, q->text, 300, "11.0.0.1");
}

static inline void script_silent(struct rig *r, const struct dns_question *q, bool tcp, struct packet *out)
{
}

/* ---- upstream ---- */

static inline void upstream_take(struct rig *r, const uint8_t *msg, size_t n, bool tcp, struct packet *out)
{
	struct dns_question q;
	const char *why;

	/* whatever the proxy sends must be a well-formed plain question */
	assert_int_equal(dns_question_parse(msg, n, &q, &why), DNS_PARSE_OK);
	memcpy(r->last_asked.b, msg, n);
	r->last_asked.n = n;
	out->n = 0;
	r->script(r, &q, tcp, out);
}

static inline void on_up_udp(evutil_socket_t fd, short what, void *arg)
{
	struct rig *r = arg;
	static struct packet out;
	uint8_t buf[2048];
	socklen_t len = sizeof(r->last_from);
	ssize_t n = recvfrom(fd, buf, sizeof(buf), 0, (struct sockaddr *)&r->last_from, &len);

	if (n < 0)
		return;
	r->asked_udp++;
	upstream_take(r, buf, (size_t)n, false, &out);
	for (unsigned i = 0; i < r->forge && out.n > 0; i++) {
		out.b[1] ^= (uint8_t)(i + 1);
		sendto(fd, out.b, out.n, 0, (struct sockaddr *)&r->last_from, len);
		out.b[1] ^= (uint8_t)(i + 1);
	}
	if (out.n > 0)
		assert_int_equal(sendto(fd, out.b, out.n, 0, (struct sockaddr *)&r->last_from, len), out.n);
}

static inline void on_up_conn(evutil_socket_t fd, short what, void *arg)
{
	struct rig *r = arg;
	static struct packet out;
	uint8_t buf[2048];
	ssize_t n = recv(fd, buf, sizeof(buf), 0);

	if (n <= 2) {
		event_free(r->up_conn_event);
		r->up_conn_event = NULL;
		r->up_conn = ak_close(r->up_conn);
		return;
	}
	r->asked_tcp++;
	upstream_take(r, buf + 2, (size_t)n - 2, true, &out);
	if (out.n > 0) {
		uint8_t head[2] = { (uint8_t)(out.n >> 8), (uint8_t)out.n };

		assert_int_equal(send(fd, head, 2, MSG_MORE), 2);
		assert_int_equal(send(fd, out.b, out.n, 0), out.n);
	}
}

static inline void on_up_tcp(evutil_socket_t fd, short what, void *arg)
{
	struct rig *r = arg;

	assert_null(r->up_conn_event);
	r->up_conn = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	assert_true(r->up_conn >= 0);
	r->up_conn_event = event_new(r->base, r->up_conn, EV_READ | EV_PERSIST, on_up_conn, r);
	event_add(r->up_conn_event, NULL);
}

/* ---- gateway ---- */

static inline struct dns_client *rig_client_of(void *ctx, unsigned ifindex, const struct ak_addr *src)
{
	struct rig *r = ctx;

	return r->stranger ? NULL : r->client;
}

static inline int rig_learn(void *ctx, uint32_t sandbox, const struct dns_answer *a)
{
	struct rig *r = ctx;

	assert_int_equal(sandbox, SANDBOX);
	assert_in_range(a->ttl_s, 1, DNS_TTL_MAX_S);
	assert_true(a->decision.allow);
	r->learned++;
	memcpy(r->learned_addrs, a->addrs, a->n_addrs * sizeof(*a->addrs));
	r->n_learned_addrs = a->n_addrs;
	r->learned_ttl = a->ttl_s;
	snprintf(r->learned_name, sizeof(r->learned_name), "%s", a->name);
	r->n_learned_cname = a->n_cname;
	for (size_t i = 0; i < a->n_cname; i++)
		snprintf(r->learned_cname[i], sizeof(r->learned_cname[i]), "%s", a->cname[i]);
	return r->learn_rc;
}

static inline void rig_event(void *ctx, uint32_t sandbox, const struct dns_event *e)
{
	struct rig *r = ctx;

	assert_int_equal(sandbox, SANDBOX);
	r->events[e->outcome]++;
	r->events_cached += e->cached;
	assert_true(!e->cached || e->latency_us == 0);
	r->last_latency_us = e->latency_us;
	r->last_outcome = e->outcome;
	snprintf(r->last_name, sizeof(r->last_name), "%s", e->name);
	snprintf(r->last_detail, sizeof(r->last_detail), "%s", e->detail ? e->detail : "");
}

/* ---- building ---- */

static inline int rig_socket(int type, uint16_t *ret_port)
{
	struct sockaddr_in sin = {
		.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(*ret_port)
	};
	socklen_t len = sizeof(sin);
	int fd = socket(AF_INET, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), on = 1;

	assert_true(fd >= 0);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (bind(fd, (struct sockaddr *)&sin, sizeof(sin)) < 0) {
		close(fd);
		return -1;
	}
	assert_int_equal(getsockname(fd, (struct sockaddr *)&sin, &len), 0);
	if (type == SOCK_STREAM)
		assert_int_equal(listen(fd, 128), 0);
	else
		assert_int_equal(setsockopt(fd, IPPROTO_IP, IP_PKTINFO, &on, sizeof(on)), 0);
	*ret_port = ntohs(sin.sin_port);
	return fd;
}

/* UDP and TCP on one port, as a resolver has them. */
static inline void rig_upstream(struct rig *r)
{
	r->up_tcp = -1;
	for (unsigned i = 0; i < 50 && r->up_tcp < 0; i++) {
		r->up_port = 0;
		r->up_udp = rig_socket(SOCK_DGRAM, &r->up_port);
		r->up_tcp = rig_socket(SOCK_STREAM, &r->up_port);
		if (r->up_tcp < 0)
			close(r->up_udp);
	}
	assert_true(r->up_tcp >= 0);
	r->up_conn = -1;
	r->up_udp_event = event_new(r->base, r->up_udp, EV_READ | EV_PERSIST, on_up_udp, r);
	r->up_tcp_event = event_new(r->base, r->up_tcp, EV_READ | EV_PERSIST, on_up_tcp, r);
	event_add(r->up_udp_event, NULL);
	event_add(r->up_tcp_event, NULL);
}

static inline struct policy *rig_policy(const char *json)
{
	static const struct policy_dirs dirs;
	struct policy *p = NULL;
	struct ak_err err = { "" };

	if (policy_parse(json, strlen(json), "test", &dirs, NULL, 0, &p, &err) < 0)
		fail_msg("policy: %s", err.text);
	return p;
}

#define POLICY_DENY                                                                                                              \
	"{\"version\":1,\"name\":\"t\",\"default\":\"deny\",\"allow\":[\"ok.test:443\",\"*.wild.test:443\",\"www.ok.test:443\"," \
	"\"host.agentkernel.internal:8080\"],\"deny\":[\"bad.wild.test\"],\"limits\":{\"dns_qps\":100000}}"
#define POLICY_ALLOW                                                                                                             \
	"{\"version\":1,\"name\":\"n\",\"default\":\"allow\",\"deny\":[\"bad.test\"],\"limits\":{\"dns_qps\":100000}}"

static inline void rig_open(struct rig *r, const char *policy, bool ipv6)
{
	struct dns_sockets socks = { .udp6 = -1, .tcp6 = -1 };
	struct dns_hooks hooks = { .ctx = r, .client_of = rig_client_of, .learn = rig_learn, .event = rig_event };
	struct ak_addr host4 = ak_addr_v4(0x6440001du);
	char csv[64];
	struct dns_upstream_conf conf = { .servers_csv = csv, .ipv6 = ipv6, .timeout_ms = 300, .tries = 2 };
	struct sockaddr_in sin = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct ak_err err = { "" };

	memset(r, 0, sizeof(*r));
	r->base = event_base_new();
	r->script = script_plain;
	rig_upstream(r);
	socks.udp4 = rig_socket(SOCK_DGRAM, &r->udp_port);
	socks.tcp4 = rig_socket(SOCK_STREAM, &r->tcp_port);
	snprintf(csv, sizeof(csv), "127.0.0.1:%u", r->up_port);
	if (dns_proxy_new(r->base, &socks, &hooks, &conf, &r->proxy, &err) < 0)
		fail_msg("%s", err.text);
	r->policy = rig_policy(policy);
	assert_int_equal(dns_client_new(r->proxy, SANDBOX, r->policy, &host4, NULL, &r->client), 0);
	r->cli = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	sin.sin_port = htons(r->udp_port);
	assert_int_equal(connect(r->cli, (struct sockaddr *)&sin, sizeof(sin)), 0);
}

static inline void rig_close(struct rig *r)
{
	dns_proxy_free(r->proxy);
	policy_unref(r->policy);
	event_free(r->up_udp_event);
	event_free(r->up_tcp_event);
	if (r->up_conn_event)
		event_free(r->up_conn_event);
	ak_close(r->up_conn);
	close(r->up_udp);
	close(r->up_tcp);
	close(r->cli);
	event_base_free(r->base);
}

/* ---- running ---- */

/* Run the loop until COND(r, arg) or the time is over. */
static inline bool rig_until(struct rig *r, bool (*cond)(struct rig *r, void *arg), void *arg)
{
	uint64_t end = ak_now_ms() + RIG_WAIT_MS;
	static const struct timeval step = { .tv_usec = 20000 };

	while (!cond(r, arg)) {
		if (ak_now_ms() > end)
			return false;
		event_base_loopexit(r->base, &step);
		event_base_loop(r->base, EVLOOP_ONCE);
	}
	return true;
}

static inline bool got_reply(struct rig *r, void *arg)
{
	struct packet *p = arg;
	ssize_t n = recv(r->cli, p->b, sizeof(p->b), MSG_DONTWAIT);

	if (n > 0)
		p->n = (size_t)n;
	return n > 0;
}

static inline void rig_send(struct rig *r, const struct packet *p)
{
	assert_int_equal(send(r->cli, p->b, p->n, 0), p->n);
}

/* Wait for a reply; the rcode. */
static inline unsigned rig_reply(struct rig *r, struct packet *p)
{
	if (!rig_until(r, got_reply, p))
		fail_msg("no reply");
	return p->b[3] & 15;
}

/* Ask over UDP and wait; the rcode. */
static inline unsigned rig_ask(struct rig *r, const char *name, unsigned type, struct packet *p)
{
	make_query(p, 0x4711, name, type, true);
	rig_send(r, p);
	return rig_reply(r, p);
}

/* Parse the reply with the codec under test's other half: addresses and TTL. */
static inline void rig_read(const struct packet *p, const char *name, uint16_t type, struct dns_reply *ret)
{
	struct dns_name n;
	const char *why;

	assert_int_equal(dns_name_from_text(name, &n), 0);
	assert_int_equal(dns_reply_parse(p->b, p->n, &n, type, ret, &why), 0);
}

#endif
