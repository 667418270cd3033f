/*
 * Inside the relay: what its files share. A flow of either protocol begins with struct relay_flow, hangs in its
 * sandbox's list, and ends exactly once, with one event.
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

/* ---- judging (relay/judge.c): pure ---- */

/* By which road a destination may be reached. */
enum relay_route {
	RELAY_ROUTE_NONE, /* blocked, whatever is said */
	RELAY_ROUTE_HOST, /* our end of the link: the host's loopback */
	RELAY_ROUTE_OPEN, /* allow_cidr: only an explicit deny of a name seen closes it */
	RELAY_ROUTE_ANY, /* default allow: a denied name seen closes it */
	RELAY_ROUTE_NAMED, /* default deny: an allowed name learned for this address opens it */
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
	struct learned_name *name; /* borrowed; NULL when no binding is behind it */
	const char *detail; /* static, or NULL */
};

/* Lower case, one trailing dot off, checked. False: not a host name (an IP literal, for one). */
bool relay_name_canon(const char *raw, char ret[static POLICY_NAME_MAX]);

/* The road, and the verdict as far as it can be given without a name from the flow itself. */
enum relay_route relay_judge_route(
	const struct relay_sandbox *sb, const struct relay_target *t, uint64_t now_ms, struct relay_verdict *ret);

/* The verdict once the flow has named NAME (canonical). HELD is the binding it already has, or NULL. */
void relay_judge_named(const struct relay_sandbox *sb, enum relay_route route, const struct relay_target *t, const char *name,
	struct learned_name *held, uint64_t now_ms, struct relay_verdict *ret);

/* Ports whose flows must name themselves where an allowlist is in force. */
bool relay_port_needs_name(const struct relay_target *t);

/* Must what the flow says be readable? On ports 80 and 443, where an allowlist or a rule that denies names is in force. */
bool relay_must_read(const struct relay_sandbox *sb, enum relay_route route, const struct relay_target *t);

/* ---- flows of either protocol (relay/relay.c) ---- */

struct relay_flow {
	struct relay *relay; /* borrowed */
	struct relay_sandbox *sb; /* borrowed */
	struct relay_flow *next, **pprev; /* the sandbox's list */
	struct relay_target target;
	enum relay_route route;
	struct policy_decision decision; /* its strings live as long as the sandbox's policy */
	struct learned_name *name; /* owned reference, or NULL */
	char *sni; /* owned: as the flow gave it, or NULL */
	const char *seen; /* "tls", "http" or "" */
	const char *detail; /* static, or NULL */
	enum relay_end end; /* why, once it is to end */
	uint64_t bytes_out, bytes_in;
	uint64_t started_us, started_ms, active_ms;
	uint32_t dial_us; /* see struct relay_event */
	uint64_t again; /* likewise */
	struct event timer;
};

/* Fill in a fresh flow; it is in no list yet. */
void relay_flow_init(struct relay_flow *f, struct relay *r, struct relay_sandbox *sb, const struct relay_target *t);

/* Into the sandbox's list, counted. */
void relay_flow_link(struct relay_flow *f);

/* Tell the event, leave the list, give back what is owned here; the memory is the caller's. */
void relay_flow_done(struct relay_flow *f);
void relay_flow_tell(struct relay_flow *f);

/* Note how it ends; -1, so that `return relay_flow_fail(…)` reads well. */
int relay_flow_fail(struct relay_flow *f, enum relay_end end, const char *detail);

/* Take over a verdict: its decision, binding and detail. */
void relay_flow_judged(struct relay_flow *f, const struct relay_verdict *v);

/* Judge under the sandbox's policy of now; false: to be cut. NAMED: it has had its chance to give a name. */
bool relay_flow_rejudge(struct relay_flow *f, bool named);

/* May one more flow to the target begin? Limits, the road, and that it is not an address of the host itself. */
bool relay_flow_admit(struct relay_flow *f);

/* Is its destination an address of the host itself? Then it is marked as denied. Asked of the kernel each time: addresses come and go. */
bool relay_flow_is_host(struct relay_flow *f);

/* Bytes the policy still lets out; counting them. */
uint64_t relay_egress_left(const struct relay_sandbox *sb);
void relay_flow_count(struct relay_flow *f, bool out, uint64_t n);

void relay_timer_arm(struct relay_flow *f, unsigned ms);

/* ---- pipes (relay/pipe.c) ---- */

struct relay_pipe {
	struct relay_pipe *next; /* in the pool */
	int fd[2];
	size_t size;
};

struct relay_pipe_pool {
	struct relay_pipe *free;
	unsigned n_free;
};

/* NULL when there are no descriptors left: bytes are then copied instead. */
struct relay_pipe *relay_pipe_get(struct relay_pipe_pool *pool);
void relay_pipe_put(struct relay_pipe_pool *pool, struct relay_pipe *p, bool empty);
void relay_pipe_pool_done(struct relay_pipe_pool *pool);

/* ---- TCP (relay/tcp.c, relay/inspect.c, relay/pump.c) ---- */

enum relay_state {
	RELAY_PEEK, /* nothing dialled: the first bytes decide */
	RELAY_DIAL,
	RELAY_SPLICE,
	RELAY_STATE_NUM
};

/* How the sandbox's bytes are looked at before they go on. */
enum relay_inspect {
	RELAY_INSPECT_OFF,
	RELAY_INSPECT_SNIFF, /* find out what it is from the first byte */
	RELAY_INSPECT_TLS, /* collect a ClientHello */
	RELAY_INSPECT_HTTP, /* every request head; bodies pass */
	RELAY_INSPECT_NUM
};

/* One direction. Bytes wait either in BUF (read by us) or in the pipe, in this order; idle, it holds neither. */
struct relay_dir {
	uint8_t *buf; /* owned */
	size_t len, cap;
	size_t ready; /* of LEN: judged, may go on */
	struct relay_pipe *pipe; /* owned */
	size_t piped;
	bool readable, writable; /* as far as we know: edge-triggered */
	bool eof; /* the source has ended */
	bool shut; /* and the destination was told */
};

/* Has the sandbox asked to speak WebSocket, and did the far side agree? */
enum relay_upgrade { RELAY_UPGRADE_NONE, RELAY_UPGRADE_ASKED, RELAY_UPGRADE_DONE, RELAY_UPGRADE_NUM };

struct relay_tcp {
	struct relay_flow flow; /* first */
	enum relay_state state;
	int client, server;
	struct event on_client, on_server;
	struct relay_dir out, in;
	enum relay_inspect inspect;
	bool needs_name; /* no name, no way */
	bool must_read; /* what cannot be read does not pass; it may be without a name */
	bool unread; /* something passed that could not be read */
	bool large; /* holds one of its sandbox's large buffers */
	bool dialled_v6; /* the host's ::1 was tried too */
	struct tls_hello_reader hello;
	struct http_reader head; /* of the request that begins after what is ready */
	struct http_body body;
	bool in_body;
	unsigned requests;
	struct relay_names *names; /* owned: other names that its requests gave; NULL until there is a second */
	enum relay_upgrade upgrade;
	struct relay_tcp *run_next, **run_pprev; /* the run queue; pprev NULL when not in it */
};

void relay_tcp_accept(struct relay *r, int fd);
void relay_tcp_end(struct relay_tcp *t, enum relay_end end, const char *detail);
void relay_tcp_run(struct relay_tcp *t);
bool relay_tcp_rejudge(struct relay_tcp *t);

enum relay_look {
	RELAY_LOOK_MORE, /* wait for more bytes */
	RELAY_LOOK_PASS, /* what is ready may go on */
	RELAY_LOOK_CUT, /* denied: the flow's decision and detail say why */
	RELAY_LOOK_NUM
};

/* Look at what OUT's buffer holds past its ready part. */
enum relay_look relay_tcp_look(struct relay_tcp *t);

/* Forget the names that were let in, all but the last: they are judged afresh when they come again. */
void relay_names_forget(struct relay_tcp *t);

/*
 * Read once into OUT's buffer, to be looked at: the count, 0 at the end, -EAGAIN, or another -errno; -EDQUOT when the sandbox has too many large
 * buffers already.
 */
ssize_t relay_look_read(struct relay_tcp *t);
void relay_dir_done(struct relay *r, struct relay_dir *d);
void relay_large_done(struct relay_tcp *t);

#define RELAY_TOO_LARGE "too many large ClientHellos at once"

/* Move bytes both ways; 0 when both directions wait, 1 when there is more to do, -1 when the flow is to end. */
int relay_pump(struct relay_tcp *t);

/* ---- UDP (relay/udp.c, relay/packet.c) ---- */

struct relay_udp;
void relay_udp_receive(struct relay *r, int fd, int family);
void relay_udp_end(struct relay_udp *u, enum relay_end end, const char *detail);
bool relay_udp_rejudge(struct relay_udp *u);

/* ---- the relay itself ---- */

#define RELAY_UDP_BUCKETS 256

struct relay {
	struct event_base *base; /* borrowed */
	struct relay_hooks hooks;
	struct relay_conf conf;
	struct relay_sockets socks; /* owned */
	struct relay_sandbox *sandboxes; /* borrowed: the open ones */
	struct event *listeners[4]; /* owned: tcp4, tcp6, udp4, udp6; NULL where absent */
	struct event *resume; /* owned: accept again after descriptors ran out */
	bool paused;
	struct event *kick; /* owned: flows that used up their turn */
	struct relay_tcp *run_queue, **run_tail; /* first in, first out */
	uint64_t ran_us; /* how long flows ran since the last kick, out of turn */
	struct relay_pipe_pool pipes;
	struct relay_udp *udp[RELAY_UDP_BUCKETS];
	struct relay_host *host; /* owned */
	uint16_t packet_id;
	struct relay_ports ports;
};

/* Whose flow is it? NULL: nobody's that is open. */
struct relay_sandbox *relay_sandbox_of(struct relay *r, const struct ak_addr *src);

/* Let T go on in a later turn of the loop, after those that wait already. */
void relay_run_later(struct relay_tcp *t);

/* Run T at once; false when others have run long enough already, and it is to run later. */
bool relay_run_now(struct relay_tcp *t);
void relay_run_cancel(struct relay_tcp *t);

/* Stop accepting until a flow ends or a moment has passed. */
void relay_pause(struct relay *r);
void relay_resume(struct relay *r);

#endif
