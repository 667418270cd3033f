/*
 * The proxy's own structures, shared by its files.
 *
 * proxy.c     the public face: making and freeing
 * client.c    one sandbox: policy, rate, cache, budget
 * udp.c/tcp.c bytes in, bytes out; who asks
 * nat64.c     how the host's network writes IPv4 addresses as IPv6 ones
 * probe.c     is a name internal?
 * query.c     the life of a question, up to the cache
 * flight.c    questions that wait for the upstream
 * reply.c     answers: learn, build, send, tell
 * upstream*.c questions to the host's resolvers
 */
#ifndef AK_DNS_INTERNAL_H
#define AK_DNS_INTERNAL_H

#include "dnsproxy/budget.h"
#include "dnsproxy/cache.h"
#include "dnsproxy/dnsproxy.h"
#include "dnsproxy/upstream.h"
#include "dnsproxy/wire.h"

#include <netinet/in.h>
#include <sys/queue.h>

struct event;
struct dns_udp;
struct dns_tcp;

#define DNS_QPS_DEFAULT 200
#define DNS_QPS_BURST_S 2 /* seconds' worth that may come at once: a package manager starts with a volley */
#define DNS_CLIENT_FLIGHTS_MAX 256
#define DNS_FLIGHTS_MAX 8192 /* all clients together */
#define DNS_WAITERS_MAX 64 /* identical questions that wait for one upstream answer */
#define DNS_NEGATIVE_TTL_MAX_S 300
#define DNS_FAILURE_TTL_S 5 /* RFC 9520 section 3.2 */
#define DNS_HOST_TTL_S 60
#define DNS_INTERNAL_TTL_S 30 /* for which a name counts as internal */
#define DNS_RELEARN_AFTER 4096 /* addresses learned since: the gateway's bounded tables may have let an older one go */

/* Where a reply goes. */
struct dns_origin {
	bool tcp;
	uint8_t sock; /* UDP: 0 is IPv4, 1 is IPv6 */
	uint64_t arrived_us; /* of ak_now_us */
	union {
		struct {
			struct sockaddr_in6 peer; /* or a sockaddr_in */
			struct ak_addr local; /* the address that was asked: the reply leaves from it */
			unsigned ifindex;
		} udp;
		struct {
			uint32_t slot, generation; /* the connection may be gone by then */
		} conn;
	};
};

struct dns_waiter {
	SLIST_ENTRY(dns_waiter) next;
	struct dns_origin origin;
	struct dns_ask ask;
};
SLIST_HEAD(dns_waiter_list, dns_waiter);

/* Whether a name is internal: the question about its addresses that is asked next. */
struct dns_probe {
	bool active;
	uint8_t off; /* of the name that is asked for in the flight's */
	uint8_t levels; /* above the first */
	uint16_t qtype;
};

/* One question under way. Found by id from the upstream's callback, by (client, name, type) from a second asker. */
struct dns_flight {
	LIST_ENTRY(dns_flight) of_client;
	struct dns_flight *next_key, *next_id; /* in their buckets */
	uint64_t id; /* never used twice */
	uint64_t hash;
	struct dns_client *client; /* borrowed: frees us before itself */
	struct dns_name name;
	uint16_t qtype;
	bool edns; /* asked with our OPT */
	struct dns_probe probe; /* comes before the question itself */
	uint32_t generation; /* the client's, for which the decision holds */
	struct policy_decision decision;
	struct dns_waiter_list waiters;
	unsigned n_waiters;
};
LIST_HEAD(dns_flight_list, dns_flight);

#define DNS_FLIGHT_BUCKETS 1024

struct dns_flights {
	struct dns_flight *by_key[DNS_FLIGHT_BUCKETS];
	struct dns_flight *by_id[DNS_FLIGHT_BUCKETS];
	uint64_t last_id;
	size_t count;
};

struct dns_client {
	LIST_ENTRY(dns_client) all;
	struct dns_proxy *proxy; /* borrowed: frees us before itself */
	uint32_t sandbox;
	struct policy *policy; /* a reference */
	uint32_t generation; /* grows when learned answers must be learned again */
	struct ak_addr host4, host6;
	struct dns_cache cache;
	struct dns_budget budget;
	struct dns_flight_list flights;
	unsigned n_flights;
	uint64_t learned_seq;
	/* rate */
	uint32_t qps;
	uint64_t tokens_milli;
	uint64_t tokens_ms;
	uint64_t refused; /* since the last event about it */
	uint64_t refused_told_ms;
	/* tcp.c */
	TAILQ_HEAD(dns_conn_list, dns_conn) conns; /* longest quiet first */
	unsigned n_conns;
};

struct dns_proxy {
	struct event_base *base; /* borrowed */
	struct dns_hooks hooks;
	struct dns_stats stats;
	uint64_t key[2]; /* of all hash tables */
	uint64_t now_us, now_ms; /* read once per event callback: dns_proxy_wake */
	bool ipv6;
	LIST_HEAD(, dns_client) clients;
	struct dns_flights flights;
	struct {
		bool asking;
		uint64_t again_ms; /* when to ask next */
	} nat64;
	struct dns_udp *udp; /* owned */
	struct dns_tcp *tcp; /* owned */
	struct dns_upstream *upstream; /* owned */
};

/* ---- proxy.c ---- */
void dns_proxy_wake(struct dns_proxy *proxy); /* look at the clock */

/* ---- nat64.c ---- */
#define DNS_NAT64_ID 0 /* flights are counted from 1 */
void dns_nat64_reset(struct dns_proxy *proxy); /* nothing is known of the host's network */
void dns_nat64_want(struct dns_proxy *proxy); /* IPv6 addresses are about to matter: ask, if it is time */
void dns_nat64_answered(struct dns_proxy *proxy, int status, const uint8_t *msg, size_t len);

/* ---- client.c ---- */
void dns_client_sweep(struct dns_client *c); /* drop from the cache what would not come into it now */
bool dns_client_admit(struct dns_client *c); /* one token of the rate, or false */

/* ---- query.c ---- */

/* What becomes of an allowed question; pure. */
enum dns_plan {
	DNS_PLAN_RESOLVE, /* A, AAAA: upstream, learned, cached */
	DNS_PLAN_FORWARD, /* plain records of a default-allow policy: upstream, rebuilt */
	DNS_PLAN_HOST, /* POLICY_HOST_NAME: our end of the link */
	DNS_PLAN_WITHHOLD, /* NODATA, nothing upstream */
	DNS_PLAN_NUM
};
enum dns_plan dns_plan_of(bool default_allow, bool ipv6, const char *name, uint16_t qtype);

/* Pay for a question that is about to leave; false when the budget does not have it. */
bool dns_query_charge(struct dns_client *c, const struct dns_question *q, const struct policy_decision *d);
void dns_query_handle(struct dns_client *c, const struct dns_origin *origin, const uint8_t *msg, size_t len);

/* ---- flight.c ---- */
/* Wait for the upstream's answer, asking it if nobody has yet. -EBUSY, -ENOMEM when a bound is reached, -EDQUOT over the budget. */
int dns_flight_join(
	struct dns_client *c, const struct dns_origin *origin, const struct dns_question *q, const struct policy_decision *d);
void dns_flight_answered(struct dns_proxy *proxy, uint64_t id, int status, const uint8_t *msg, size_t len);
void dns_flight_forged(struct dns_proxy *proxy, uint64_t id, unsigned count); /* tell that somebody tried */
void dns_flights_drop(struct dns_client *c);

/* ---- probe.c ---- */
enum dns_probed {
	DNS_PROBED_ON, /* ask what the probe holds now */
	DNS_PROBED_PUBLIC,
	DNS_PROBED_INTERNAL,
	DNS_PROBED_NUM
};
void dns_probe_begin(struct dns_probe *p, const struct dns_name *name, uint16_t qtype);
void dns_probe_name(const struct dns_probe *p, const struct dns_name *name, struct dns_name *ret);
enum dns_probed dns_probe_answered(
	struct dns_probe *p, const struct dns_name *name, const struct policy *policy, const struct dns_reply *r);

/* ---- reply.c ---- */

/* What is known about a question when it is answered. */
struct dns_verdict {
	enum dns_outcome outcome;
	const char *name; /* text */
	struct policy_decision decision;
	const char *detail;
	bool cached;
	struct dns_content content;
	const struct dns_name *cname; /* the chain, for the record: the sandbox is told only one that leads to something */
	size_t n_cname;
};
void dns_verdict_send(
	struct dns_client *c, const struct dns_origin *origin, const struct dns_ask *ask, const struct dns_verdict *v);
void dns_verdict_deny(struct dns_verdict *v, const struct policy_decision *d, char text[static DNS_WIRE_EDE_TEXT]);
/* Serve from E, learning it first where needed. */
void dns_verdict_from_entry(
	struct dns_client *c, struct dns_cache_entry *e, struct dns_verdict *v, struct dns_name chain[static DNS_CNAME_MAX]);
uint32_t dns_ttl_clamp(uint32_t ttl_s, uint32_t max_s);

/* ---- udp.c ---- */
int dns_udp_new(struct dns_proxy *proxy, int fd4, int fd6, struct dns_udp **ret, struct ak_err *err);
void dns_udp_free(struct dns_udp *udp); /* closes the sockets */
void dns_udp_send(struct dns_udp *udp, const struct dns_origin *origin, const uint8_t *msg, size_t len); /* queued */
void dns_udp_flush(struct dns_udp *udp);

/* ---- tcp.c ---- */
int dns_tcp_new(struct dns_proxy *proxy, int fd4, int fd6, struct dns_tcp **ret, struct ak_err *err);
void dns_tcp_free(struct dns_tcp *tcp);
void dns_tcp_send(struct dns_tcp *tcp, const struct dns_origin *origin, const uint8_t *msg, size_t len);
void dns_tcp_drop(struct dns_client *c); /* close its connections */

#endif
