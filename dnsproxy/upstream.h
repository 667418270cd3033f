/*
 * Queries to the host's resolvers: each from its own socket and port (RFC 5452), with random letter case, trying the servers
 * in turn, with timeouts, over TCP where UDP is not enough.
 */
#ifndef AK_DNS_UPSTREAM_H
#define AK_DNS_UPSTREAM_H

#include "dnsproxy/wire.h"

struct dns_upstream;

struct dns_upstream_hooks {
	void *ctx; /* borrowed: outlives the upstream */
	/* Query ID has ended: STATUS 0 with a message, or -errno without one. */
	void (*answered)(void *ctx, uint64_t id, int status, const uint8_t *msg, size_t len);
	/* COUNT answers to query ID were forged; it is sent again over TCP. Called at most once, before `answered`. */
	void (*forged)(void *ctx, uint64_t id, unsigned count);
	/* Called before and after a round of answers. */
	void (*wake)(void *ctx);
	void (*rest)(void *ctx);
};

#define DNS_UPSTREAM_SERVERS_MAX 8
#define DNS_UPSTREAM_WRONG_MAX 8 /* answers with a wrong id or question that are tolerated before switching to TCP */

int dns_upstream_new(struct event_base *base, const struct dns_upstream_conf *conf, const struct dns_upstream_hooks *hooks,
	struct dns_upstream **ret, struct ak_err *err);
void dns_upstream_free(struct dns_upstream *up); /* does not call `answered` for queries in flight */
int dns_upstream_set(struct dns_upstream *up, const struct dns_upstream_conf *conf, struct ak_err *err);

/* Send a query; may call `answered` before it returns. */
int dns_upstream_ask(struct dns_upstream *up, uint64_t id, const struct dns_name *name, uint16_t qtype, bool edns);

/* False for a while after a server turned out not to support EDNS. */
bool dns_upstream_edns(const struct dns_upstream *up);
void dns_upstream_no_edns(struct dns_upstream *up);

#endif
