/*
 * Internal structures of the proxy, shared by its files.
 *
 * proxy.c     public functions: create and free
 * client.c    one sandbox: policy, rate limit, cache, budget
 * udp.c/tcp.c transport: reads queries, finds the client, writes replies
 * nat64.c     discovers the NAT64 prefix of the host's network
 * probe.c     detects internal names
 * query.c     the life of a query, up to the cache
 * flight.c    queries that wait for the upstream
 * reply.c     answers: learn, build, send, report
 * upstream*.c queries to the host's resolvers
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
#define DNS_QPS_BURST_S 2 /* burst size in seconds of the rate: package managers start with many queries at once */
#define DNS_CLIENT_FLIGHTS_MAX 256
#define DNS_FLIGHTS_MAX 8192 /* for all clients together */
#define DNS_WAITERS_MAX 64 /* identical queries that wait for one upstream answer */
#define DNS_NEGATIVE_TTL_MAX_S 300
#define DNS_FAILURE_TTL_S 5 /* RFC 9520 section 3.2 */
#define DNS_HOST_TTL_S 60
#define DNS_INTERNAL_TTL_S 30 /* how long a name is remembered as internal */
#define DNS_RELEARN_AFTER 4096 /* learned addresses after which the gateway's bounded tables may have evicted an older one */

/* The destination of a reply. */
struct dns_origin {
	bool tcp;
	uint8_t sock; /* UDP: 0 is IPv4, 1 is IPv6 */
	uint64_t arrived_us; /* clock of ak_now_us */
	union {
		struct {
			struct sockaddr_in6 peer; /* or a sockaddr_in */
			struct ak_addr local; /* destination of the query; the reply uses it as source */
			unsigned ifindex;
		} udp;
		struct {
			uint32_t slot, generation; /* identify the connection, which may be closed by then */
		} conn;
	};
};

struct dns_waiter {
	SLIST_ENTRY(dns_waiter) next;
	struct dns_origin origin;
	struct dns_ask ask;
};
SLIST_HEAD(dns_waiter_list, dns_waiter);

/* The state of a check whether a name is internal: the next address query to send. */
struct dns_probe {
	bool active;
	uint8_t off; /* offset of the probed name in the flight's name */
	uint8_t levels; /* number of labels removed so far */
	uint16_t qtype;
};

/* One upstream query in progress. The upstream finds it by id; a second identical query finds it by (client, name, type). */
struct dns_flight {
	LIST_ENTRY(dns_flight) of_client;
	struct dns_flight *next_key, *next_id; /* hash chains */
	uint64_t id; /* never reused */
	uint64_t hash;
	struct dns_client *client; /* borrowed: frees us first */
	struct dns_name name;
	uint16_t qtype;
	bool edns; /* sent with our OPT record */
	struct dns_probe probe; /* runs before the query itself */
	uint32_t generation; /* the client's policy generation for which the decision holds */
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
	struct dns_proxy *proxy; /* borrowed: frees us first */
	uint32_t sandbox;
	struct policy *policy; /* a reference */
	uint32_t generation; /* incremented when cached answers must be learned again */
	struct ak_addr host4, host6;
	struct dns_cache cache;
	struct dns_budget budget;
	struct dns_flight_list flights;
	unsigned n_flights;
	uint64_t learned_seq;
	/* rate limit */
	uint32_t qps;
	uint64_t tokens_milli;
	uint64_t tokens_ms;
	uint64_t refused; /* queries refused since the last event about them */
	uint64_t refused_told_ms;
	/* tcp.c */
	TAILQ_HEAD(dns_conn_list, dns_conn) conns; /* longest idle first */
	unsigned n_conns;
};

struct dns_proxy {
	struct event_base *base; /* borrowed */
	struct dns_hooks hooks;
	struct dns_stats stats;
	uint64_t key[2]; /* for all hash tables */
	uint64_t now_us, now_ms; /* set once per event callback by dns_proxy_wake */
	bool ipv6;
	LIST_HEAD(, dns_client) clients;
	struct dns_flights flights;
	struct {
		bool asking;
		uint64_t again_ms; /* time of the next query */
	} nat64;
	struct dns_udp *udp; /* owned */
	struct dns_tcp *tcp; /* owned */
	struct dns_upstream *upstream; /* owned */
};

/* ---- proxy.c ---- */
void dns_proxy_wake(struct dns_proxy *proxy); /* update the clock */

/* ---- nat64.c ---- */
#define DNS_NAT64_ID 0 /* flight ids start at 1 */
void dns_nat64_reset(struct dns_proxy *proxy); /* forget the prefixes of the host's network */
void dns_nat64_want(struct dns_proxy *proxy); /* call before judging IPv6 addresses: queries the prefix if it is due */
void dns_nat64_answered(struct dns_proxy *proxy, int status, const uint8_t *msg, size_t len);

/* ---- client.c ---- */
void dns_client_sweep(struct dns_client *c); /* drop cached entries that the current policy would not admit */
bool dns_client_admit(struct dns_client *c); /* take one token of the rate limit; false if there is none */

/* ---- query.c ---- */

/* How to answer an allowed query; pure. */
enum dns_plan {
	DNS_PLAN_RESOLVE, /* A, AAAA: query upstream, learn, cache */
	DNS_PLAN_FORWARD, /* simple record types in a default-allow policy: query upstream, rebuild the reply */
	DNS_PLAN_HOST, /* POLICY_HOST_NAME: the gateway's end of the link */
	DNS_PLAN_WITHHOLD, /* NODATA without an upstream query */
	DNS_PLAN_NUM
};
enum dns_plan dns_plan_of(bool default_allow, bool ipv6, const char *name, uint16_t qtype);

/* Charge the budget for an upstream query; false if the budget is used up. */
bool dns_query_charge(struct dns_client *c, const struct dns_question *q, const struct policy_decision *d);
void dns_query_handle(struct dns_client *c, const struct dns_origin *origin, const uint8_t *msg, size_t len);

/* ---- flight.c ---- */
/*
 * Wait for the upstream answer; sends the query unless an identical one is in flight. Returns -EBUSY or -ENOMEM if a limit is
 * reached, -EDQUOT over the budget.
 */
int dns_flight_join(
	struct dns_client *c, const struct dns_origin *origin, const struct dns_question *q, const struct policy_decision *d);
void dns_flight_answered(struct dns_proxy *proxy, uint64_t id, int status, const uint8_t *msg, size_t len);
void dns_flight_forged(struct dns_proxy *proxy, uint64_t id, unsigned count); /* report forged answers */
void dns_flights_drop(struct dns_client *c);

/* ---- probe.c ---- */
enum dns_probed {
	DNS_PROBED_ON, /* send the query that the probe holds now */
	DNS_PROBED_PUBLIC,
	DNS_PROBED_INTERNAL,
	DNS_PROBED_NUM
};
void dns_probe_begin(struct dns_probe *p, const struct dns_name *name, uint16_t qtype);
void dns_probe_name(const struct dns_probe *p, const struct dns_name *name, struct dns_name *ret);
enum dns_probed dns_probe_answered(
	struct dns_probe *p, const struct dns_name *name, const struct policy *policy, const struct dns_reply *r);

/* ---- reply.c ---- */

/* The result for one query, from which the reply and the event are made. */
struct dns_verdict {
	enum dns_outcome outcome;
	const char *name; /* as text */
	struct policy_decision decision;
	const char *detail;
	bool cached;
	struct dns_content content;
	const struct dns_name *cname; /* the chain, for the record; the reply contains it only if it leads to addresses */
	size_t n_cname;
};
void dns_verdict_send(
	struct dns_client *c, const struct dns_origin *origin, const struct dns_ask *ask, const struct dns_verdict *v);
void dns_verdict_deny(struct dns_verdict *v, const struct policy_decision *d, char text[static DNS_WIRE_EDE_TEXT]);
/* Serve from E; learns its addresses first if needed. */
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
