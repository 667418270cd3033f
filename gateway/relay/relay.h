/*
 * The relay: the only way out for TCP and UDP.
 *
 * Transparent listeners inside the gateway's namespace deliver what the kernel's sets admitted; the accepted
 * socket's own address is the destination the sandbox wanted. Each flow is judged again with what it says of
 * itself (TLS SNI, HTTP Host), dialled from the host's namespace to that same address, and spliced.
 *
 * States of a TCP flow: peek → (deny | dial) → splice → closed. See relay/tcp.c.
 *
 * An address of the host itself is refused whatever the policy's CIDRs say; the one way to the host is POLICY_HOST_NAME.
 */
#ifndef AK_RELAY_H
#define AK_RELAY_H

#include "gateway/base/addr.h"
#include "gateway/base/err.h"
#include "gateway/relay/learned.h"
#include "policies/policy.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct event_base;
struct relay;

/* One sandbox as the relay sees it; embedded by the gateway, which fills it in before relay_sandbox_open. */
struct relay_sandbox {
	uint32_t id;
	struct policy *policy; /* borrowed: swapped by relay_sandbox_set_policy */
	uint64_t generation;
	struct learned *learned; /* borrowed: outlives us */
	struct ak_addr addr4, addr6; /* the sandbox's own */
	struct ak_addr gw4, gw6; /* our end; a flow to it is for POLICY_HOST_NAME: dial the host's loopback */
	void *flows; /* the relay's own list; starts NULL */
	struct relay_sandbox *next, **pprev; /* the relay's own: the open ones; start NULL */
	uint32_t n_flows;
	uint32_t n_large; /* the relay's own: flows with a large buffer */
	uint64_t bytes_out, bytes_in;
};

enum relay_end {
	RELAY_END_CLOSED, /* both sides finished */
	RELAY_END_DENIED, /* judged away: nothing was dialled */
	RELAY_END_REVOKED, /* a policy change cut it */
	RELAY_END_LIMIT, /* connections or egress bytes of the policy */
	RELAY_END_TIMEOUT, /* idle, connect or peek time-out */
	RELAY_END_UNREACHABLE, /* the far side refused or could not be reached */
	RELAY_END_RESET, /* one side reset */
	RELAY_END_STOPPED, /* the sandbox ended */
	RELAY_END_NUM
};

/* What became of one flow, told once, at its end; datagrams that follow a refused one are told a second time, in a sum. Pointers are borrowed during the call, from which no relay_ function may be called. */
struct relay_event {
	enum relay_end end;
	enum policy_proto proto;
	struct ak_addr dst;
	uint16_t port;
	const char *seen; /* "tls", "http" or "": what the peek found */
	const char *sni; /* the name the flow gave of itself, escaped for JSON by the writer; NULL when none */
	/* The binding that admitted it, also when it was cut later; NULL for raw addresses and denials. */
	const struct learned_name *name;
	struct policy_decision decision;
	const char *detail; /* "SNI not allowed here", "no SNI", "peek timed out" …, or NULL */
	uint64_t bytes_out, bytes_in; /* out: sandbox to far side */
	uint64_t duration_ms;
	uint32_t
		dial_us; /* from its acceptance until the far side was connected, the peek included; 0 when it never was, and for UDP */
	uint64_t generation;
	uint64_t again; /* 0, or so many more of a refusal that was told: nothing else is new */
};

struct relay_hooks {
	void *ctx; /* borrowed: outlives the relay */
	struct relay_sandbox *(*sandbox_of)(void *ctx, const struct ak_addr *src);
	void (*event)(void *ctx, struct relay_sandbox *sb, const struct relay_event *event);
	/*
	 * A datagram flow is alive and its destination about to leave the kernel's set: keep it there for LIFE_S. TCP needs none of this, because the
	 * rules find a connection by its socket. May be NULL.
	 */
	void (*keep)(void *ctx, struct relay_sandbox *sb, const struct ak_addr *dst, uint16_t port, uint32_t life_s);
	/* Whether the end of a new flow can be recorded; if not, it does not begin. May be NULL: always. */
	bool (*ready)(void *ctx, struct relay_sandbox *sb);
};

struct relay_sockets {
	int tcp4, tcp6; /* transparent listeners, taken over; 6 may be -1 */
	int udp4, udp6; /* transparent datagram sockets with IP_RECVORIGDSTADDR, taken over */
	int raw4, raw6; /* raw senders (header included) inside the namespace: UDP replies leave here, taken over */
};

struct relay_conf {
	unsigned peek_timeout_ms; /* 0 is 5000 */
	unsigned connect_timeout_ms; /* 0 is 10000 */
	unsigned tcp_idle_ms; /* 0 is 3600000 */
	unsigned udp_idle_ms; /* 0 is 60000 */
};

/* Also sets SIGPIPE to be ignored: splice(2) has no flag against it. BASE must be able to do edge-triggered events (epoll). */
int relay_new(struct event_base *base, const struct relay_sockets *socks, const struct relay_hooks *hooks,
	const struct relay_conf *conf, struct relay **ret, struct ak_err *err);
void relay_free(struct relay *r); /* closes the sandboxes that are still open; NULL is fine */

/* Flows of a sandbox that is not open are dropped without a word. */
void relay_sandbox_open(struct relay *r, struct relay_sandbox *sb);
void relay_sandbox_close(struct relay *r, struct relay_sandbox *sb); /* ends its flows as STOPPED */

/* Judge live flows again under P; those no longer allowed end as REVOKED, the others are not touched. After it returns nothing
 * here points into the policy of before. */
void relay_sandbox_set_policy(struct relay *r, struct relay_sandbox *sb, struct policy *p, uint64_t generation);

#endif
