/*
 * The relay: the only way out for TCP and UDP.
 *
 * Transparent listeners inside the gateway's namespace receive the connections that the kernel's sets admitted; the local
 * address of an accepted socket is the sandbox's intended destination. Each flow is judged again by the name it gives
 * (TLS SNI, HTTP Host), connected from the host's namespace to that same address, and spliced.
 *
 * States of a TCP flow: peek → (deny | dial) → splice → closed. See relay/tcp.c.
 *
 * Addresses of the host itself are refused whatever the policy's CIDRs say; the only way to the host is POLICY_HOST_NAME.
 */
#ifndef AK_RELAY_H
#define AK_RELAY_H

#include "gateway/base/addr.h"
#include "gateway/base/err.h"
#include "gateway/base/publish.h"
#include "gateway/relay/learned.h"
#include "policies/policy.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct event_base;
struct relay;
struct relay_publish;

/* One sandbox; embedded by the gateway, which fills it in before relay_sandbox_open. */
struct relay_sandbox {
	uint32_t id;
	struct policy *policy; /* borrowed: swapped by relay_sandbox_set_policy */
	uint64_t generation;
	struct learned *learned; /* borrowed: outlives us */
	struct ak_addr addr4, addr6; /* of the sandbox */
	struct ak_addr gw4, gw6; /* the gateway's end; flows to it are for POLICY_HOST_NAME: connect to the host's loopback */
	void *flows; /* private list of the relay; starts as NULL */
	struct relay_sandbox *next, **pprev; /* private to the relay: list of open sandboxes; start as NULL */
	struct relay_publish *published; /* private to the relay: owned list of published ports; starts as NULL */
	uint32_t n_flows; /* all, and those of published ports among them */
	uint32_t n_published;
	uint32_t n_large; /* private to the relay: number of flows with a large buffer */
	uint64_t bytes_out, bytes_in;
};

enum relay_end {
	RELAY_END_CLOSED, /* both sides finished */
	RELAY_END_DENIED, /* denied before a connection was made */
	RELAY_END_REVOKED, /* cut by a policy change */
	RELAY_END_LIMIT, /* connections or egress bytes of the policy */
	RELAY_END_TIMEOUT, /* idle, connect or peek timeout */
	RELAY_END_UNREACHABLE, /* the server refused or could not be reached */
	RELAY_END_RESET, /* one side reset */
	RELAY_END_STOPPED, /* the sandbox ended */
	RELAY_END_NUM
};

/*
 * The outcome of one flow, reported once, at its end. Datagrams that repeat a refused one are reported in a second event with their
 * number. Pointers are borrowed for the duration of the call, which must not call relay_ functions.
 */
struct relay_event {
	enum relay_end end;
	bool published; /* from the host to a published port: dst is a loopback address inside */
	enum policy_proto proto;
	struct ak_addr dst;
	uint16_t port;
	const char *seen; /* "tls", "http" or "": the detected protocol */
	const char *sni; /* the name that the flow gave, not escaped; NULL if none */
	/* The binding that admitted it, even if it was cut later; NULL for raw addresses and denials. */
	const struct learned_name *name;
	struct policy_decision decision;
	enum net_reason reason; /* of RELAY_END_DENIED; NONE: the decision's own */
	const char *detail; /* more about the end, or NULL; for NET_REASON_OTHER the words of the reason */
	uint64_t bytes_out, bytes_in; /* out: sandbox to far side */
	uint64_t duration_ms;
	/* From accept until the server was connected, including the peek; 0 if it never was, and for UDP. */
	uint32_t dial_us;
	uint64_t generation;
	uint64_t again; /* 0, or the number of repetitions of a reported refusal; nothing else is new */
};

struct relay_hooks {
	void *ctx; /* borrowed: outlives the relay */
	struct relay_sandbox *(*sandbox_of)(void *ctx, const struct ak_addr *src);
	void (*event)(void *ctx, struct relay_sandbox *sb, const struct relay_event *event);
	/*
	 * A UDP flow is alive and its element in the kernel's set is about to expire: extend it by LIFE_S. TCP does not need
	 * this, because the rules match a connection by its socket. May be NULL.
	 */
	void (*keep)(void *ctx, struct relay_sandbox *sb, const struct ak_addr *dst, uint16_t port, uint32_t life_s);
	/* Can the log record the end of a new flow? If not, the flow does not start. May be NULL: always. */
	bool (*ready)(void *ctx, struct relay_sandbox *sb);
};

struct relay_sockets {
	int tcp4, tcp6; /* transparent listeners; ownership moves to the relay; tcp6 may be -1 */
	int udp4, udp6; /* transparent datagram sockets with IP_RECVORIGDSTADDR; ownership moves to the relay */
	int raw4, raw6; /* raw sockets (header included) inside the namespace, for UDP replies; ownership moves to the relay */
};

struct relay_conf {
	unsigned peek_timeout_ms; /* 0 means 5000 */
	unsigned connect_timeout_ms; /* 0 means 10000 */
	unsigned tcp_idle_ms; /* 0 means 3600000 */
	unsigned udp_idle_ms; /* 0 means 60000 */
};

/* Also ignores SIGPIPE, because splice(2) has no flag against it. BASE must support edge-triggered events (epoll). */
int relay_new(struct event_base *base, const struct relay_sockets *socks, const struct relay_hooks *hooks,
	const struct relay_conf *conf, struct relay **ret, struct ak_err *err);
void relay_free(struct relay *r); /* closes the sandboxes that are still open; accepts NULL */

/* Flows of a sandbox that is not open are dropped without an event. */
void relay_sandbox_open(struct relay *r, struct relay_sandbox *sb);
void relay_sandbox_close(struct relay *r, struct relay_sandbox *sb); /* ends its flows as STOPPED */

/*
 * Judge live flows again under P: those no longer allowed end as REVOKED, the others continue. After it returns, the relay holds
 * no pointer into the previous policy.
 */
void relay_sandbox_set_policy(struct relay *r, struct relay_sandbox *sb, struct policy *p, uint64_t generation);

/* ---- published ports (relay/publish.c) ---- */

#define RELAY_PUBLISHED_FLOWS 256 /* at once, of all published ports of a sandbox; they do not count as its own connections */

/*
 * Connect what LISTENER accepts to AT's port inside, with sockets from CHANNEL (base/publish.h). Takes ownership of both, also on failure. The sandbox must
 * be open; closing it ends its ports.
 */
int relay_publish(struct relay *r, struct relay_sandbox *sb, const struct ak_publish *at, int listener, int channel);

/* Close the port with AT's address and port of the host, and cut its connections. -ENOENT if there is none. */
int relay_unpublish(struct relay_sandbox *sb, const struct ak_publish *at);

#endif
