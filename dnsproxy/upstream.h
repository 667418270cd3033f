/*
 * The way to the host's resolvers: c-ares for transport, choice of server, TCP after truncation and time-outs.
 *
 * Two channels are made at the start, because c-ares reads files when it makes one and changes a channel's servers only while
 * nothing is in flight. A new resolv.conf goes to the idle one, which then takes over; the other drains.
 */
#ifndef AK_DNS_UPSTREAM_H
#define AK_DNS_UPSTREAM_H

#include "dnsproxy/wire.h"

struct dns_upstream;

struct dns_upstream_hooks {
	void *ctx; /* borrowed: outlives the upstream */
	/* The end of question ID. STATUS 0 with a message, or -errno without. */
	void (*answered)(void *ctx, uint64_t id, int status, const uint8_t *msg, size_t len);
	/* Before a round of answers, and after it. */
	void (*wake)(void *ctx);
	void (*rest)(void *ctx);
};

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
