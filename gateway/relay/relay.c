/*
 * The core of the relay: listeners, sandboxes, and the code that TCP and UDP flows share. See relay/relay.h.
 */
#include "gateway/relay/flow.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"

#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define ACCEPT_BUDGET 64
#define RESUME_MS 100
#define RUN_US 300 /* how long flows run before the event loop polls the sockets again */
#define CONNECTIONS_DEFAULT 512

/* ---- flows ---- */

void relay_flow_init(struct relay_flow *f, struct relay *r, struct relay_sandbox *sb, const struct relay_target *t)
{
	f->relay = r;
	f->sb = sb;
	f->target = *t;
	f->seen = "";
	f->started_us = ak_now_us();
	f->started_ms = f->active_ms = f->started_us / 1000;
}

void relay_flow_link(struct relay_flow *f)
{
	f->next = f->sb->flows;
	f->pprev = (struct relay_flow **)&f->sb->flows;
	if (f->next)
		f->next->pprev = &f->next;
	f->sb->flows = f;
	f->sb->n_flows++;
	f->sb->n_published += f->route == RELAY_ROUTE_PUBLISHED;
}

void relay_flow_tell(struct relay_flow *f)
{
	struct relay_event ev = {
		.end = f->end,
		.published = f->route == RELAY_ROUTE_PUBLISHED,
		.proto = f->target.proto,
		.dst = f->target.dst,
		.port = f->target.port,
		.seen = f->seen,
		.sni = f->sni,
		/* A flow that was admitted and cut later is reported with the name that admitted it. */
		.name = f->decision.allow || f->end != RELAY_END_DENIED ? f->name : NULL,
		.decision = f->decision,
		.reason = f->reason,
		.detail = f->detail,
		.bytes_out = f->bytes_out,
		.bytes_in = f->bytes_in,
		.duration_ms = ak_now_ms() - f->started_ms,
		.dial_us = f->dial_us,
		.generation = f->sb->generation,
		.again = f->again,
	};

	f->relay->hooks.event(f->relay->hooks.ctx, f->sb, &ev);
}

void relay_flow_done(struct relay_flow *f)
{
	if (f->pprev) {
		*f->pprev = f->next;
		if (f->next)
			f->next->pprev = f->pprev;
		f->sb->n_flows--;
		f->sb->n_published -= f->route == RELAY_ROUTE_PUBLISHED;
		f->pprev = NULL;
	}
	if (event_initialized(&f->timer))
		event_del(&f->timer);
	learned_name_unref(f->name);
	f->name = NULL;
	free(f->sni);
	f->sni = NULL;
	relay_resume(f->relay);
}

int relay_flow_fail(struct relay_flow *f, enum relay_end end, const char *detail)
{
	f->end = end;
	f->detail = detail;
	return -1;
}

int relay_flow_deny(struct relay_flow *f, enum net_reason reason, const char *why)
{
	relay_flow_fail(f, RELAY_END_DENIED, why);
	f->reason = reason;
	return -1;
}

void relay_flow_judged(struct relay_flow *f, const struct relay_verdict *v)
{
	f->decision = v->decision;
	f->reason = v->reason;
	f->detail = NULL;
	if (v->name == f->name)
		return;
	learned_name_unref(f->name);
	f->name = learned_name_ref(v->name);
}

/* Over a limit, the decision names the policy, and the limit as its rule. */
static bool over_limit(struct relay_flow *f, const char *rule, const char *detail)
{
	f->decision =
		(struct policy_decision){ .reason = POLICY_REASON_RULE, .policy = policy_name(f->sb->policy), .rule = rule };
	relay_flow_fail(f, RELAY_END_LIMIT, detail);
	return false;
}

/* A flow that cannot be recorded does not start (invariant 10). */
static bool recordable(struct relay_flow *f)
{
	const struct relay_hooks *hooks = &f->relay->hooks;

	if (!hooks->ready || hooks->ready(hooks->ctx, f->sb))
		return true;
	f->decision = (struct policy_decision){ .reason = POLICY_REASON_DEFAULT, .policy = "builtin", .rule = "log" };
	relay_flow_deny(f, NET_REASON_UNRECORDED, NULL);
	return false;
}

bool relay_flow_admit(struct relay_flow *f)
{
	uint32_t cap = policy_limits(f->sb->policy)->connections;
	struct relay_verdict v;
	bool wait_for_name;

	if (f->sb->n_flows - f->sb->n_published >= (cap ? cap : CONNECTIONS_DEFAULT))
		return over_limit(f, "limits.connections", "too many connections at once");
	if (!relay_egress_left(f->sb))
		return over_limit(f, "limits.egress_bytes", "egress limit reached");
	if (!recordable(f))
		return false;
	f->route = relay_judge_route(f->sb, &f->target, f->started_ms, &v);
	relay_flow_judged(f, &v);
	f->end = RELAY_END_DENIED;
	/* This flow is denied without a name anyway, but reading its name shows in the log what it wanted. */
	wait_for_name = f->route == RELAY_ROUTE_NAMED && relay_port_needs_name(&f->target);
	if (!v.allow && !wait_for_name)
		return false;
	return !relay_flow_is_host(f);
}

bool relay_flow_admit_published(struct relay_flow *f)
{
	if (f->sb->n_published >= RELAY_PUBLISHED_FLOWS) {
		relay_flow_fail(f, RELAY_END_LIMIT, "too many connections to published ports at once");
		return false;
	}
	return recordable(f);
}

bool relay_flow_rejudge(struct relay_flow *f, bool named)
{
	uint64_t now_ms = ak_now_ms();
	char name[POLICY_NAME_MAX];
	struct relay_verdict v;
	bool has_name = f->sni && relay_name_canon(f->sni, name);

	f->route = relay_judge_route(f->sb, &f->target, now_ms, &v);
	if (f->route == RELAY_ROUTE_NAMED || f->route == RELAY_ROUTE_ANY || f->route == RELAY_ROUTE_OPEN) {
		if (has_name) {
			relay_judge_named(f->sb, f->route, &f->target, name, f->name, now_ms, &v);
		} else if (f->route == RELAY_ROUTE_NAMED && relay_port_needs_name(&f->target)) {
			v.allow = !named; /* a flow that is still peeking is judged under the new policy later */
		} else if (f->name && f->route != RELAY_ROUTE_OPEN) {
			struct policy_decision d =
				policy_judge_name(f->sb->policy, f->name->name, f->target.proto, f->target.port);

			/* The binding may have expired in the table; a flow that holds it continues. */
			if (d.allow)
				v = (struct relay_verdict){ .allow = true, .decision = d, .name = f->name };
		}
	}
	if (v.allow) {
		relay_flow_judged(f, &v);
		return true;
	}
	/* Keep the binding that admitted it: the record of the end names what the user had allowed. */
	f->decision = v.decision;
	f->decision.allow = false;
	f->detail = v.reason ? net_reason_text(v.reason) : NULL;
	return false;
}

uint64_t relay_egress_left(const struct relay_sandbox *sb)
{
	uint64_t limit = policy_limits(sb->policy)->egress_bytes;

	if (!limit)
		return UINT64_MAX;
	return sb->bytes_out < limit ? limit - sb->bytes_out : 0;
}

void relay_flow_count(struct relay_flow *f, bool out, uint64_t n)
{
	f->active_ms = ak_now_ms();
	if (out) {
		f->bytes_out += n;
		f->sb->bytes_out += n;
	} else {
		f->bytes_in += n;
		f->sb->bytes_in += n;
	}
}

void relay_timer_arm(struct relay_flow *f, unsigned ms)
{
	struct timeval tv = { .tv_sec = ms / 1000, .tv_usec = (suseconds_t)(ms % 1000) * 1000 };

	event_add(&f->timer, &tv);
}

static void flow_end(struct relay_flow *f, enum relay_end end)
{
	if (f->target.proto == POLICY_TCP)
		relay_tcp_end((struct relay_tcp *)f, end, f->detail);
	else
		relay_udp_end((struct relay_udp *)f, end, f->detail);
}

/* ---- addresses of the host ---- */

bool relay_flow_is_host(struct relay_flow *f)
{
	uint8_t proto = f->target.proto == POLICY_TCP ? IPPROTO_TCP : IPPROTO_UDP;

	if (f->route == RELAY_ROUTE_HOST || f->route == RELAY_ROUTE_PUBLISHED)
		return false;
	if (!relay_host_owns(f->relay->host, &f->target.dst, proto, f->target.port))
		return false;
	f->decision = (struct policy_decision){ .reason = POLICY_REASON_LOOPBACK, .policy = "builtin", .rule = "host" };
	relay_flow_deny(f, NET_REASON_HOST_ADDRESS, NULL);
	return true;
}

static bool wraps(const struct ak_addr *a, const struct ak_addr *net, unsigned bits)
{
	struct ak_addr v4;

	return ak_addr_embedded_v4(a, &v4) && ak_addr_in_prefix(&v4, net, bits);
}

/* The host's addresses or routes changed: cut the flows whose destination is now the host itself. */
static void on_host_moved(void *ctx, const struct ak_addr *net, unsigned bits)
{
	struct relay *r = ctx;

	for (struct relay_sandbox *sb = r->sandboxes; sb; sb = sb->next) {
		for (struct relay_flow *f = sb->flows, *next; f; f = next) {
			next = f->next;
			if (net->family && !ak_addr_in_prefix(&f->target.dst, net, bits) && !wraps(&f->target.dst, net, bits))
				continue;
			if (relay_flow_is_host(f)) {
				f->detail = "became an address of the host itself";
				flow_end(f, RELAY_END_REVOKED);
			}
		}
	}
}

/* ---- accepting ---- */

static const struct timeval resume_after = { .tv_usec = RESUME_MS * 1000 };

void relay_pause(struct relay *r)
{
	if (!r->paused) {
		for (int i = 0; i < 2; i++)
			if (r->listeners[i])
				event_del(r->listeners[i]);
		r->paused = true;
	}
	/* Other processes may free descriptors too, so also resume after a timeout. */
	event_add(r->resume, &resume_after);
}

void relay_resume(struct relay *r)
{
	if (!r->paused)
		return;
	for (int i = 0; i < 2; i++)
		if (r->listeners[i])
			event_add(r->listeners[i], NULL);
	r->paused = false;
	event_del(r->resume);
}

static void on_resume(evutil_socket_t fd, short what, void *arg)
{
	relay_resume(arg);
}

static void on_accept(evutil_socket_t listener, short what, void *arg)
{
	struct relay *r = arg;

	for (int i = 0; i < ACCEPT_BUDGET; i++) {
		int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd >= 0) {
			relay_tcp_accept(r, fd);
			continue;
		}
		if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
			relay_pause(r);
		if (errno != ECONNABORTED && errno != EINTR)
			return;
	}
}

static void on_datagram(evutil_socket_t fd, short what, void *arg)
{
	struct relay *r = arg;

	relay_udp_receive(r, fd, fd == r->socks.udp4 ? AF_INET : AF_INET6);
}

/* ---- scheduling flows ---- */

void relay_run_later(struct relay_tcp *t)
{
	static const struct timeval now = { 0 };
	struct relay *r = t->flow.relay;

	if (t->run_pprev)
		return;
	t->run_next = NULL;
	t->run_pprev = r->run_tail;
	*r->run_tail = t;
	r->run_tail = &t->run_next;
	/* A timer of zero runs after the sockets are polled; event_active would run before and starve them. */
	event_add(r->kick, &now);
}

void relay_run_cancel(struct relay_tcp *t)
{
	if (!t->run_pprev)
		return;
	*t->run_pprev = t->run_next;
	if (t->run_next)
		t->run_next->run_pprev = t->run_pprev;
	else
		t->flow.relay->run_tail = t->run_pprev;
	t->run_pprev = NULL;
}

/*
 * Other work waits meanwhile, including the DNS proxy, so flows run only briefly before the sockets are polled again. The limit
 * is a time, not a number of flows, because the sandbox controls how expensive a flow is.
 */
bool relay_run_now(struct relay_tcp *t)
{
	struct relay *r = t->flow.relay;
	uint64_t began_us = ak_now_us();

	if (r->ran_us >= RUN_US)
		return false;
	relay_tcp_run(t);
	r->ran_us += ak_since_us(began_us);
	return true;
}

static void on_kick(evutil_socket_t fd, short what, void *arg)
{
	static const struct timeval now = { 0 };
	struct relay *r = arg;
	uint64_t began_us = ak_now_us();

	r->ran_us = 0;
	do {
		struct relay_tcp *t = r->run_queue;

		if (!t)
			return;
		relay_run_cancel(t);
		relay_tcp_run(t);
	} while (ak_now_us() - began_us < RUN_US);
	if (r->run_queue)
		event_add(r->kick, &now);
}

/* ---- the relay ---- */

static void conf_defaults(struct relay_conf *c)
{
	c->peek_timeout_ms = c->peek_timeout_ms ? c->peek_timeout_ms : 5000;
	c->connect_timeout_ms = c->connect_timeout_ms ? c->connect_timeout_ms : 10000;
	c->tcp_idle_ms = c->tcp_idle_ms ? c->tcp_idle_ms : 3600000;
	c->udp_idle_ms = c->udp_idle_ms ? c->udp_idle_ms : 60000;
}

static void ignore_sigpipe(void)
{
	struct sigaction sa;

	if (sigaction(SIGPIPE, NULL, &sa) == 0 && sa.sa_handler == SIG_DFL)
		signal(SIGPIPE, SIG_IGN);
}

static int add_listener(struct relay *r, int at, int fd, event_callback_fn fn)
{
	if (fd < 0)
		return 0;
	r->listeners[at] = event_new(r->base, fd, EV_READ | EV_PERSIST, fn, r);
	return r->listeners[at] && event_add(r->listeners[at], NULL) == 0 ? 0 : -ENOMEM;
}

static int relay_listen(struct relay *r)
{
	int rc = add_listener(r, 0, r->socks.tcp4, on_accept);

	rc = rc < 0 ? rc : add_listener(r, 1, r->socks.tcp6, on_accept);
	rc = rc < 0 ? rc : add_listener(r, 2, r->socks.udp4, on_datagram);
	rc = rc < 0 ? rc : add_listener(r, 3, r->socks.udp6, on_datagram);
	r->resume = evtimer_new(r->base, on_resume, r);
	r->kick = evtimer_new(r->base, on_kick, r);
	return r->resume && r->kick ? rc : -ENOMEM;
}

int relay_new(struct event_base *base, const struct relay_sockets *socks, const struct relay_hooks *hooks,
	const struct relay_conf *conf, struct relay **ret, struct ak_err *err)
{
	struct relay *r = calloc(1, sizeof(*r));
	int rc;

	if (!r)
		return ak_fail(err, ENOMEM, "relay: out of memory");
	r->base = base;
	r->run_tail = &r->run_queue;
	r->hooks = *hooks;
	r->conf = conf ? *conf : (struct relay_conf){ 0 };
	r->socks = (struct relay_sockets){ -1, -1, -1, -1, -1, -1 }; /* owned by the caller until we succeed */
	conf_defaults(&r->conf);
	if (!(event_base_get_features(base) & EV_FEATURE_ET)) {
		relay_free(r);
		return ak_fail(err, ENOTSUP, "relay: the event loop has no edge-triggered events");
	}
	ignore_sigpipe();
	rc = relay_host_new(base, on_host_moved, r, &r->host, err);
	if (rc < 0) {
		relay_free(r);
		return ak_err_prefix(err, rc, "relay");
	}
	r->packet_id = (uint16_t)ak_wall_us();
	relay_ports_init(&r->ports);
	r->socks = *socks;
	if (relay_listen(r) < 0) {
		r->socks = (struct relay_sockets){ -1, -1, -1, -1, -1, -1 };
		relay_free(r);
		return ak_fail(err, ENOMEM, "relay: out of memory");
	}
	*ret = r;
	return 0;
}

void relay_free(struct relay *r)
{
	if (!r)
		return;
	while (r->sandboxes)
		relay_sandbox_close(r, r->sandboxes);
	for (size_t i = 0; i < ARRAY_SIZE(r->listeners); i++)
		if (r->listeners[i])
			event_free(r->listeners[i]);
	if (r->resume)
		event_free(r->resume);
	if (r->kick)
		event_free(r->kick);
	relay_pipe_pool_done(&r->pipes);
	relay_host_free(r->host);
	ak_close(r->socks.tcp4);
	ak_close(r->socks.tcp6);
	ak_close(r->socks.udp4);
	ak_close(r->socks.udp6);
	ak_close(r->socks.raw4);
	ak_close(r->socks.raw6);
	free(r);
}

/* ---- sandboxes ---- */

struct relay_sandbox *relay_sandbox_of(struct relay *r, const struct ak_addr *src)
{
	struct relay_sandbox *sb = r->hooks.sandbox_of(r->hooks.ctx, src);

	return sb && sb->pprev ? sb : NULL;
}

void relay_sandbox_open(struct relay *r, struct relay_sandbox *sb)
{
	sb->next = r->sandboxes;
	sb->pprev = &r->sandboxes;
	if (sb->next)
		sb->next->pprev = &sb->next;
	r->sandboxes = sb;
}

void relay_sandbox_close(struct relay *r, struct relay_sandbox *sb)
{
	if (!sb->pprev)
		return;
	*sb->pprev = sb->next;
	if (sb->next)
		sb->next->pprev = sb->pprev;
	sb->pprev = NULL;
	relay_unpublish_all(sb);
	while (sb->flows)
		flow_end(sb->flows, RELAY_END_STOPPED);
}

void relay_sandbox_set_policy(struct relay *r, struct relay_sandbox *sb, struct policy *p, uint64_t generation)
{
	sb->policy = p;
	sb->generation = generation;
	for (struct relay_flow *f = sb->flows, *next; f; f = next) {
		bool stays = f->target.proto == POLICY_TCP ? relay_tcp_rejudge((struct relay_tcp *)f)
							   : relay_udp_rejudge((struct relay_udp *)f);

		next = f->next;
		if (!stays)
			flow_end(f, RELAY_END_REVOKED);
	}
}
