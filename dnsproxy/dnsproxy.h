/*
 * The DNS proxy: the only resolver a sandbox has.
 *
 * Sockets are handed in (opened inside the gateway's namespace, bound to port 53 of every address,
 * transparent). Upstream queries leave from the host's namespace by sockets of its own. Everything else the
 * proxy needs from the gateway comes by the hooks below.
 *
 * Life of a query: read → codec → who asks (link) → built-in denies → policy → exfiltration budget →
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
#define DNS_TTL_MIN_S 5 /* a shorter TTL is raised to this, so that a client can connect after resolving */
#define DNS_TTL_MAX_S 3600

/*
 * The relation of the two lives, in this one place: whoever implements `learn` gives the kernel's elements answer->ttl_s plus
 * this. The proxy itself counts on answer->ttl_s only, so a reply never outlives its element, and a client that resolved in the
 * last second of a TTL can still connect.
 */
#define DNS_LEARN_GRACE_S 30

/* One sandbox as the proxy sees it; owned by the proxy, made by dns_client_new. */
struct dns_client;

/* A resolved name, ready to be learned. Pointers are borrowed during the call. */
struct dns_answer {
	const char *name; /* the question, canonical */
	uint16_t qtype; /* 1 A, 28 AAAA */
	const char *const *cname; /* the chain followed, in order */
	size_t n_cname;
	const struct ak_addr *addrs; /* filtered: nothing blocked is in here */
	size_t n_addrs;
	uint32_t ttl_s; /* clamped; the reply carries this, or less where another name's reply promised an address for longer */
	struct policy_decision decision; /* the rule that allowed the question */
};

enum dns_outcome {
	DNS_OUTCOME_ANSWERED, /* allowed, with addresses or truly empty */
	DNS_OUTCOME_NODATA, /* allowed name, type withheld (HTTPS, TXT, AAAA without IPv6 …) */
	DNS_OUTCOME_DENIED, /* policy or built-in: NXDOMAIN with EDE 15 */
	DNS_OUTCOME_BUDGET, /* exfiltration budget or rate: REFUSED/NXDOMAIN with EDE */
	DNS_OUTCOME_FILTERED, /* every address was in a blocked range */
	DNS_OUTCOME_MALFORMED, /* FORMERR, NOTIMP or silence */
	DNS_OUTCOME_UPSTREAM, /* SERVFAIL, time-out, bad chain */
	DNS_OUTCOME_UNLEARNED, /* the kernel did not acknowledge: SERVFAIL */
	DNS_OUTCOME_UNRECORDED, /* what comes of it could not be recorded: SERVFAIL, nothing asked upstream */
	DNS_OUTCOME_FORGED, /* answers were not the resolver's: not believed, and the question goes on */
	DNS_OUTCOME_NUM
};

/* What happened to one question. Pointers are borrowed during the call. */
struct dns_event {
	enum dns_outcome outcome;
	const char *name; /* as far as it could be read; printable, may be "" */
	uint16_t qtype;
	struct policy_decision decision; /* meaningful unless MALFORMED */
	const char *detail; /* human reason beyond the decision ("9 CNAME hops"), or NULL */
	const char *const *cname;
	size_t n_cname;
	const struct ak_addr *addrs;
	size_t n_addrs;
	uint32_t ttl_s;
	bool cached;
	uint32_t latency_us; /* from the question's arrival to its reply; 0 for what the cache had, and for sums */
	uint64_t count; /* questions that this event stands for: 0 and 1 are one, more where they are told in sums */
};

/* Hooks are called from inside the proxy: none of them may free a client or the proxy. */
struct dns_hooks {
	void *ctx; /* borrowed: outlives the proxy */
	/* Which client sent this? IFINDEX is 0 on TCP. NULL: not one of ours, drop. */
	struct dns_client *(*client_of)(void *ctx, unsigned ifindex, const struct ak_addr *src);
	/* Make the answer's addresses reachable; 0 only after the kernel acknowledged. */
	int (*learn)(void *ctx, uint32_t sandbox, const struct dns_answer *answer);
	void (*event)(void *ctx, uint32_t sandbox, const struct dns_event *event);
	/* Whether a question that is allowed can be recorded, too. May be NULL: always. */
	bool (*ready)(void *ctx, uint32_t sandbox);
};

struct dns_sockets {
	int udp4, tcp4, udp6, tcp6; /* taken over; 6 may be -1. UDP ones have IP_PKTINFO/IPV6_RECVPKTINFO on. */
};

struct dns_upstream_conf {
	const char *servers_csv; /* "1.2.3.4:53,[2001:db8::1]:53", borrowed during the call */
	bool ipv6; /* the host can reach IPv6: resolve AAAA in allowlist modes */
	unsigned
		timeout_ms; /* of the first try, doubled for the next; 0 is 1000: with two tries a client hears of a dead resolver before it gives up itself */
	unsigned tries; /* 0 is 2 */
};

int dns_proxy_new(struct event_base *base, const struct dns_sockets *socks, const struct dns_hooks *hooks,
	const struct dns_upstream_conf *conf, struct dns_proxy **ret, struct ak_err *err);
void dns_proxy_free(struct dns_proxy *proxy); /* frees its clients too */

/* Follow a changed resolv.conf (servers and ipv6; time-outs stay); queries in flight finish with the old servers. */
int dns_proxy_set_upstream(struct dns_proxy *proxy, const struct dns_upstream_conf *conf, struct ak_err *err);

/* HOST4/HOST6 are what POLICY_HOST_NAME resolves to for this sandbox (our end of its link). */
int dns_client_new(struct dns_proxy *proxy, uint32_t sandbox, struct policy *p, const struct ak_addr *host4,
	const struct ak_addr *host6, struct dns_client **ret);
void dns_client_free(struct dns_client *client);
void dns_client_set_policy(struct dns_client *client, struct policy *p); /* drops what the cache holds of names now denied */

/* The kernel lost elements (set full, rules rebuilt): every cached answer is learned again before it is served. */
void dns_client_forget(struct dns_client *client);

/* Tell now what is otherwise told once a second: questions over the rate. Before a client is freed, and now and then. */
void dns_client_flush(struct dns_client *client);

struct dns_stats {
	uint64_t queries, answered, denied, cached, upstream_sent, upstream_failed, dropped;
};
void dns_proxy_stats(const struct dns_proxy *proxy, struct dns_stats *ret);

#endif
