/*
 * The DNS proxy: the only resolver a sandbox has.
 *
 * The caller passes in the sockets (opened inside the gateway's namespace, bound to port 53 of every address, transparent).
 * Upstream queries leave from the host's namespace through the proxy's own sockets. The hooks below are its only other
 * connection to the gateway.
 *
 * Life of a query: read → parse → find the client by its link → built-in denies → policy → exfiltration budget →
 * cache → upstream → answer filter → learn (kernel acknowledges) → reply → event.
 */
#ifndef AK_DNSPROXY_H
#define AK_DNSPROXY_H

#include "gateway/base/addr.h"
#include "gateway/base/err.h"
#include "policies/policy.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct event_base;
struct dns_proxy;

#define DNS_CNAME_MAX 8
#define DNS_ANSWER_MAX 32
#define DNS_TTL_MIN_S 5 /* shorter TTLs are raised to this, so that a client can still connect after resolving */
#define DNS_TTL_MAX_S 3600

/*
 * An implementation of `learn` gives the kernel's elements a timeout of answer->ttl_s plus this. The proxy relies on
 * answer->ttl_s only, so a reply never outlives its element, and a client that resolved in the last second of a TTL can
 * still connect.
 */
#define DNS_LEARN_GRACE_S 30

/* One sandbox; owned by the proxy, created by dns_client_new. */
struct dns_client;

/* A resolved name, ready to be learned. Pointers are borrowed for the duration of the call. */
struct dns_answer {
	const char *name; /* the queried name in canonical form */
	uint16_t qtype; /* 1 A, 28 AAAA */
	const char *const *cname; /* the CNAME chain, in order */
	size_t n_cname;
	const struct ak_addr *addrs; /* without blocked addresses */
	size_t n_addrs;
	uint32_t ttl_s; /* clamped; the reply carries this, or less if another reply promised an address for longer */
	struct policy_decision decision; /* the rule that allowed the query */
};

enum dns_outcome {
	DNS_OUTCOME_ANSWERED, /* allowed, with addresses or with a genuinely empty answer */
	DNS_OUTCOME_NODATA, /* allowed name, but the type is withheld (HTTPS, TXT, AAAA without IPv6 …) */
	DNS_OUTCOME_DENIED, /* by the policy or a built-in: NXDOMAIN with EDE 15 */
	DNS_OUTCOME_BUDGET, /* exfiltration budget or rate limit: REFUSED/NXDOMAIN with EDE */
	DNS_OUTCOME_FILTERED, /* every address was in a blocked range */
	DNS_OUTCOME_MALFORMED, /* FORMERR, NOTIMP or no reply */
	DNS_OUTCOME_UPSTREAM, /* SERVFAIL, timeout, bad CNAME chain */
	DNS_OUTCOME_UNLEARNED, /* the kernel did not acknowledge the addresses: SERVFAIL */
	DNS_OUTCOME_UNRECORDED, /* the log cannot record it: SERVFAIL, no upstream query */
	DNS_OUTCOME_FORGED, /* forged upstream answers were ignored; the query continues */
	DNS_OUTCOME_NUM
};

/* The outcome of one query. Pointers are borrowed for the duration of the call. */
struct dns_event {
	enum dns_outcome outcome;
	const char *name; /* the part that could be parsed; printable, may be "" */
	uint16_t qtype;
	struct policy_decision decision; /* not set for MALFORMED */
	const char *detail; /* additional reason as text ("9 CNAME hops"), or NULL */
	const char *const *cname;
	size_t n_cname;
	const struct ak_addr *addrs;
	size_t n_addrs;
	uint32_t ttl_s;
	bool cached;
	uint32_t latency_us; /* from the query's arrival to the reply; 0 for cached answers and summary events */
	uint64_t count; /* number of queries in a summary event; 0 and 1 both mean one */
};

/* The proxy calls these hooks; none of them may free a client or the proxy. */
struct dns_hooks {
	void *ctx; /* borrowed: outlives the proxy */
	/* Find the client that sent a query. IFINDEX is 0 on TCP. NULL: unknown, drop the query. */
	struct dns_client *(*client_of)(void *ctx, unsigned ifindex, const struct ak_addr *src);
	/* Make the answer's addresses reachable. Returns 0 only after the kernel acknowledged. */
	int (*learn)(void *ctx, uint32_t sandbox, const struct dns_answer *answer);
	void (*event)(void *ctx, uint32_t sandbox, const struct dns_event *event);
	/* Can the log record another allowed query? May be NULL: always. */
	bool (*ready)(void *ctx, uint32_t sandbox);
};

struct dns_sockets {
	int udp4, tcp4, udp6,
		tcp6; /* ownership moves to the proxy; the IPv6 ones may be -1. UDP needs IP_PKTINFO/IPV6_RECVPKTINFO. */
};

struct dns_upstream_conf {
	const char *servers_csv; /* "1.2.3.4:53,[2001:db8::1]:53", borrowed for the duration of the call */
	bool ipv6; /* the host has IPv6: resolve AAAA in allowlist modes */
	/* Of the first try, doubled for the next; 0 means 1000: with two tries, clients get an error before they time out. */
	unsigned timeout_ms;
	unsigned tries; /* 0 means 2 */
};

int dns_proxy_new(struct event_base *base, const struct dns_sockets *socks, const struct dns_hooks *hooks,
	const struct dns_upstream_conf *conf, struct dns_proxy **ret, struct ak_err *err);
void dns_proxy_free(struct dns_proxy *proxy); /* frees its clients too */

/* Apply a changed resolv.conf (servers and ipv6; timeouts stay). Queries in flight finish with the old servers. */
int dns_proxy_set_upstream(struct dns_proxy *proxy, const struct dns_upstream_conf *conf, struct ak_err *err);

/* HOST4/HOST6 are the addresses of POLICY_HOST_NAME for this sandbox (the gateway's end of its link). */
int dns_client_new(struct dns_proxy *proxy, uint32_t sandbox, struct policy *p, const struct ak_addr *host4,
	const struct ak_addr *host6, struct dns_client **ret);
void dns_client_free(struct dns_client *client);
void dns_client_set_policy(struct dns_client *client, struct policy *p); /* drops cached names that are now denied */

/* The kernel lost elements (set full, rules rebuilt): learn every cached answer again before serving it. */
void dns_client_forget(struct dns_client *client);

/* Report rate-limited queries now instead of once per second. Call before freeing a client, and from time to time. */
void dns_client_flush(struct dns_client *client);

struct dns_stats {
	uint64_t queries, answered, denied, cached, upstream_sent, upstream_failed, dropped;
};
void dns_proxy_stats(const struct dns_proxy *proxy, struct dns_stats *ret);

#endif
