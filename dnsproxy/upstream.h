/*
 * The way to the host's resolvers: every question by itself, from a socket and port of its own (RFC 5452), in random case, with the
 * servers tried in turn, TCP where a datagram will not do, and time-outs.
 */
#ifndef AK_DNS_UPSTREAM_H
#define AK_DNS_UPSTREAM_H

#include "dnsproxy/wire.h"

struct dns_upstream;

struct dns_upstream_hooks {
	void *ctx; /* borrowed: outlives the upstream */
	/* The end of question ID. STATUS 0 with a message, or -errno without. */
	void (*answered)(void *ctx, uint64_t id, int status, const uint8_t *msg, size_t len);
	/* COUNT answers to question ID were none of the server's: it is asked again by TCP. Before its end, at most once. */
	void (*forged)(void *ctx, uint64_t id, unsigned count);
	/* Before a round of answers, and after it. */
	void (*wake)(void *ctx);
	void (*rest)(void *ctx);
};

#define DNS_UPSTREAM_SERVERS_MAX 8
#define DNS_UPSTREAM_WRONG_MAX 8 /* answers with another id or question that are looked at before a question goes by TCP */

int dns_upstream_new(struct event_base *base, const struct dns_upstream_conf *conf, const struct dns_upstream_hooks *hooks,
	struct dns_upstream **ret, struct ak_err *err);
void dns_upstream_free(struct dns_upstream *up); /* questions in flight end without a call */
int dns_upstream_set(struct dns_upstream *up, const struct dns_upstream_conf *conf, struct ak_err *err);

/* Ask; `answered` may be called before this returns. */
int dns_upstream_ask(struct dns_upstream *up, uint64_t id, const struct dns_name *name, uint16_t qtype, bool edns);

/* False for a while after a server that does not know EDNS. */
bool dns_upstream_edns(const struct dns_upstream *up);
void dns_upstream_no_edns(struct dns_upstream *up);

#endif
