/*
 * Private to the relay: shared by its files. A flow of either protocol starts with struct relay_flow, is in its sandbox's
 * list, and ends exactly once, with one event.
 */
#ifndef AK_RELAY_FLOW_H
#define AK_RELAY_FLOW_H

#include "gateway/relay/host.h"
#include "gateway/relay/ports.h"
#include "gateway/relay/relay.h"
#include "gateway/wire/http_head.h"
#include "gateway/wire/tls_hello.h"

#include <event2/event.h>
#include <event2/event_struct.h>

/* ---- decisions (relay/judge.c): pure ---- */

/* Which rule set applies to a destination. */
enum relay_route {
	RELAY_ROUTE_NONE, /* blocked, whatever name the flow gives */
	RELAY_ROUTE_HOST, /* the gateway's end of the link: the host's loopback */
	RELAY_ROUTE_OPEN, /* allow_cidr: open unless the flow gives a name that a rule denies */
	RELAY_ROUTE_ANY, /* default allow: open unless the flow gives a denied name */
	RELAY_ROUTE_NAMED, /* default deny: needs an allowed name that was learned for this address */
	RELAY_ROUTE_PUBLISHED, /* from the host to a published port; the user opened it, and no policy applies */
	RELAY_ROUTE_NUM
};

struct relay_target {
	struct ak_addr dst;
	uint16_t port;
	enum policy_proto proto;
};

struct relay_verdict {
	bool allow;
	struct policy_decision decision;
	struct learned_name *name; /* borrowed; NULL without a binding */
	enum net_reason reason; /* of a denial; NONE: the decision's own */
};

/* Canonical form: lower case, one trailing dot removed. False if it is not a host name (an IP literal, for example). */
bool relay_name_canon(const char *raw, char ret[static POLICY_NAME_MAX]);

/* Return the route, and the verdict as far as it is known without a name from the flow itself. */
enum relay_route relay_judge_route(
	const struct relay_sandbox *sb, const struct relay_target *t, uint64_t now_ms, struct relay_verdict *ret);

/* The verdict for a flow that gave NAME (canonical). HELD is its current binding, or NULL. */
void relay_judge_named(const struct relay_sandbox *sb, enum relay_route route, const struct relay_target *t, const char *name,
	struct learned_name *held, uint64_t now_ms, struct relay_verdict *ret);

/* Is this a port whose flows must give a name if an allowlist is in force? */
bool relay_port_needs_name(const struct relay_target *t);

/* Must the relay be able to parse the flow? On ports 80 and 443 if an allowlist or a rule that denies names is in force. */
bool relay_must_read(const struct relay_sandbox *sb, enum relay_route route, const struct relay_target *t);

/* ---- flows of either protocol (relay/relay.c) ---- */

struct relay_flow {
	struct relay *relay; /* borrowed */
	struct relay_sandbox *sb; /* borrowed */
	struct relay_flow *next, **pprev; /* the sandbox's list */
	struct relay_target target;
	enum relay_route route;
	struct policy_decision decision; /* its strings belong to the sandbox's policy */
	struct learned_name *name; /* owned reference, or NULL */
	char *sni; /* owned: as sent by the flow, or NULL */
	const char *seen; /* "tls", "http" or "" */
	enum net_reason reason; /* see struct relay_event */
	const char *detail; /* static, or NULL */
	enum relay_end end; /* the reason, once the flow is to end */
	uint64_t bytes_out, bytes_in;
	uint64_t started_us, started_ms, active_ms;
	uint32_t dial_us; /* see struct relay_event */
	uint64_t again; /* see struct relay_event */
	struct event timer;
};

/* Initialise a new flow; does not add it to a list. */
void relay_flow_init(struct relay_flow *f, struct relay *r, struct relay_sandbox *sb, const struct relay_target *t);

/* Add the flow to its sandbox's list and count it. */
void relay_flow_link(struct relay_flow *f);

/* Report the event, leave the list and free what the flow owns; the caller frees the flow itself. */
void relay_flow_done(struct relay_flow *f);
void relay_flow_tell(struct relay_flow *f);

/* Set the reason of the end. Returns -1, for `return relay_flow_fail(…)`. */
int relay_flow_fail(struct relay_flow *f, enum relay_end end, const char *detail);

/* The same for RELAY_END_DENIED. WHY, unless NULL, has words for NET_REASON_OTHER. */
int relay_flow_deny(struct relay_flow *f, enum net_reason reason, const char *why);

/* Apply a verdict: its decision, binding and reason. */
void relay_flow_judged(struct relay_flow *f, const struct relay_verdict *v);

/* Judge again under the sandbox's current policy; false: cut the flow. NAMED: the flow has had its chance to give a name. */
bool relay_flow_rejudge(struct relay_flow *f, bool named);

/* May a new flow to the target start? Checks the limits, the route, and that the target is not an address of the host. */
bool relay_flow_admit(struct relay_flow *f);

/* The same for a connection to a published port. */
bool relay_flow_admit_published(struct relay_flow *f);

/* Is the destination an address of the host? If so, marks the flow as denied. Queries the kernel, because addresses change. */
bool relay_flow_is_host(struct relay_flow *f);

/* Number of bytes that the policy still allows out; and counting bytes. */
uint64_t relay_egress_left(const struct relay_sandbox *sb);
void relay_flow_count(struct relay_flow *f, bool out, uint64_t n);

void relay_timer_arm(struct relay_flow *f, unsigned ms);

/* ---- pipes (relay/pipe.c) ---- */

struct relay_pipe {
	struct relay_pipe *next; /* in the free pool */
	int fd[2];
	size_t size;
};

struct relay_pipe_pool {
	struct relay_pipe *free;
	unsigned n_free;
};

/* NULL if no descriptors are left: the caller then copies the bytes instead. */
struct relay_pipe *relay_pipe_get(struct relay_pipe_pool *pool);
void relay_pipe_put(struct relay_pipe_pool *pool, struct relay_pipe *p, bool empty);
void relay_pipe_pool_done(struct relay_pipe_pool *pool);

/* ---- TCP (relay/tcp.c, relay/inspect.c, relay/pump.c) ---- */

enum relay_state {
	RELAY_PEEK, /* not connected yet: the first bytes decide */
	RELAY_DIAL,
	RELAY_SPLICE,
	RELAY_STATE_NUM
};

/* How the sandbox's bytes are inspected before they are forwarded. */
enum relay_inspect {
	RELAY_INSPECT_OFF,
	RELAY_INSPECT_SNIFF, /* detect the protocol from the first byte */
	RELAY_INSPECT_TLS, /* collect a ClientHello */
	RELAY_INSPECT_HTTP, /* parse every request head; bodies pass */
	RELAY_INSPECT_NUM
};

/* One direction. Bytes wait either in BUF (read by us) or in the pipe, in this order; an idle direction has neither. */
struct relay_dir {
	uint8_t *buf; /* owned */
	size_t len, cap;
	size_t ready; /* the part of LEN that was judged and may be forwarded */
	struct relay_pipe *pipe; /* owned */
	size_t piped;
	bool readable, writable; /* last known state: edge-triggered */
	bool eof; /* the source has ended */
	bool shut; /* the destination was shut down after that */
};

/* Did the sandbox request an upgrade to WebSocket, and did the server accept? */
enum relay_upgrade { RELAY_UPGRADE_NONE, RELAY_UPGRADE_ASKED, RELAY_UPGRADE_DONE, RELAY_UPGRADE_NUM };

struct relay_tcp {
	struct relay_flow flow; /* must be first */
	enum relay_state state;
	int client, server;
	struct event on_client, on_server;
	struct relay_dir out, in;
	enum relay_inspect inspect;
	bool needs_name; /* deny the flow without a name */
	bool must_read; /* deny what cannot be parsed; a name is optional */
	bool unread; /* forwarded something that could not be parsed */
	bool large; /* holds one of its sandbox's large buffers */
	bool dialled_v6; /* the host's ::1 was tried too */
	struct tls_hello_reader hello;
	struct http_reader head; /* parser of the request after the ready part */
	struct http_body body;
	bool in_body;
	unsigned requests;
	struct relay_names *names; /* owned: other names from its requests; NULL until there is a second one */
	enum relay_upgrade upgrade;
	struct relay_tcp *run_next, **run_pprev; /* the run queue; pprev is NULL outside of it */
	struct relay_publish *published; /* borrowed: the port that accepted it; NULL for a flow of the sandbox */
	uint32_t asked; /* the request for a socket that was not answered yet; 0: none */
};

void relay_tcp_accept(struct relay *r, int fd);

/* A flow without sockets, in no list; NULL: out of memory. Ends with relay_tcp_end. */
struct relay_tcp *relay_tcp_new(struct relay *r, struct relay_sandbox *sb, const struct relay_target *target);

/* Client and server are connected: splice them. */
void relay_tcp_join(struct relay_tcp *t);
void relay_tcp_end(struct relay_tcp *t, enum relay_end end, const char *detail);
void relay_tcp_run(struct relay_tcp *t);
bool relay_tcp_rejudge(struct relay_tcp *t);

enum relay_look {
	RELAY_LOOK_MORE, /* wait for more bytes */
	RELAY_LOOK_PASS, /* forward the ready part */
	RELAY_LOOK_CUT, /* denied: the flow's decision and detail say why */
	RELAY_LOOK_NUM
};

/* Inspect the part of OUT's buffer after its ready part. */
enum relay_look relay_tcp_look(struct relay_tcp *t);

/* Forget all admitted names except the last: they are judged again when they reappear. */
void relay_names_forget(struct relay_tcp *t);

/*
 * Read once into OUT's buffer for inspection. Returns the count, 0 at the end, -EAGAIN or another -errno; -EDQUOT if the
 * sandbox already has too many large buffers.
 */
ssize_t relay_look_read(struct relay_tcp *t);
void relay_dir_done(struct relay *r, struct relay_dir *d);
void relay_large_done(struct relay_tcp *t);

#define RELAY_TOO_LARGE "too many large ClientHellos at once"

/* Move bytes in both directions; 0 if both wait, 1 if there is more to do, -1 if the flow is to end. */
int relay_pump(struct relay_tcp *t);

/* ---- UDP (relay/udp.c, relay/packet.c) ---- */

struct relay_udp;
void relay_udp_receive(struct relay *r, int fd, int family);
void relay_udp_end(struct relay_udp *u, enum relay_end end, const char *detail);
bool relay_udp_rejudge(struct relay_udp *u);

/* ---- published ports (relay/publish.c) ---- */

void relay_unpublish_all(struct relay_sandbox *sb);

/* ---- the relay itself ---- */

#define RELAY_UDP_BUCKETS 256

struct relay {
	struct event_base *base; /* borrowed */
	struct relay_hooks hooks;
	struct relay_conf conf;
	struct relay_sockets socks; /* owned */
	struct relay_sandbox *sandboxes; /* borrowed: the open ones */
	struct event *listeners[4]; /* owned: tcp4, tcp6, udp4, udp6; NULL if absent */
	struct event *resume; /* owned: resumes accepting after descriptors ran out */
	bool paused;
	struct event *kick; /* owned: runs the flows in the run queue */
	struct relay_tcp *run_queue, **run_tail; /* first in, first out */
	uint64_t ran_us; /* how long flows ran outside the queue since the last kick */
	struct relay_pipe_pool pipes;
	struct relay_udp *udp[RELAY_UDP_BUCKETS];
	struct relay_host *host; /* owned */
	uint16_t packet_id;
	struct relay_ports ports;
};

/* Find the sandbox of a source address; NULL if no open sandbox has it. */
struct relay_sandbox *relay_sandbox_of(struct relay *r, const struct ak_addr *src);

/* Append T to the run queue, to continue in a later iteration of the event loop. */
void relay_run_later(struct relay_tcp *t);

/* Run T now; false if flows have run long enough in this iteration and T must run later. */
bool relay_run_now(struct relay_tcp *t);
void relay_run_cancel(struct relay_tcp *t);

/* Stop accepting until a flow ends or a short time has passed. */
void relay_pause(struct relay *r);
void relay_resume(struct relay *r);

#endif
