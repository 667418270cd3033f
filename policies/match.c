/*
 * The matcher: pure functions without allocation. A name costs one pass over its octets and one hash probe for each suffix
 * that could be in the table; an address costs one binary search.
 *
 * Order for a name: built-in names, then the levels from the most specific host to "*". Within a level, rules with this port
 * come before rules without a port, and deny before allow. If no rule of a level matches the port, the next level decides.
 * The default comes last.
 */
#include "gateway/base/cleanup.h"
#include "policies/internal.h"

#include <string.h>

/* The levels of one name, least specific first. */
struct levels {
	struct {
		const struct host_rule *rules;
		uint32_t n;
	} at[2 * POLICY_LABELS_MAX];
	size_t n;
	const struct builtin_name *builtin; /* the most specific one, or NULL */
	const struct host_rule *exact; /* the exact rules, for names that only exact rules can open */
	uint32_t n_exact;
	bool bare; /* a single label */
	bool host; /* POLICY_HOST_NAME */
};

static void push_level(struct levels *l, const struct host_rule *rules, uint32_t n)
{
	l->at[l->n].rules = rules;
	l->at[l->n++].n = n;
}

static void visit(const struct policy *p, struct levels *l, uint32_t h, const char *suffix, size_t len, bool whole)
{
	const struct host_entry *e = policy_entry_find(p, host_hash_end(h), suffix, len);

	if (!e)
		return;
	if (e->builtin)
		l->builtin = e->builtin;
	if (whole && e->n_exact) {
		l->exact = p->rules + e->first;
		l->n_exact = e->n_exact;
		push_level(l, l->exact, l->n_exact);
	} else if (!whole && e->n_wild) {
		push_level(l, p->rules + e->first + e->n_exact, e->n_wild);
	}
}

static void find_levels(const struct policy *p, const char *name, struct levels *l)
{
	size_t len = strnlen(name, POLICY_NAME_MAX);
	uint32_t h = HOST_HASH_START;
	unsigned labels = 1;

	l->n = 0;
	l->builtin = NULL;
	l->exact = NULL;
	l->n_exact = 0;
	if (p->n_root)
		push_level(l, p->rules, p->n_root);
	for (size_t i = len; i > 0 && labels <= p->max_labels; i--) {
		if (name[i - 1] == '.') {
			visit(p, l, h, name + i, len - i, false);
			labels++;
		}
		h = host_hash_step(h, name[i - 1]);
		if (i == 1 && labels <= p->max_labels)
			visit(p, l, h, name, len, true);
	}
	l->bare = !memchr(name, '.', len);
	l->host = !strcmp(name, POLICY_HOST_NAME);
}

/* ---- decisions ---- */

static struct policy_decision by_rule(const struct host_rule *r)
{
	return (struct policy_decision){ .allow = r->allow, .reason = POLICY_REASON_RULE, .policy = r->from, .rule = r->text };
}

static struct policy_decision by_default(const struct policy *p)
{
	return (struct policy_decision){
		.allow = p->default_allow, .reason = POLICY_REASON_DEFAULT, .policy = "default", .rule = ""
	};
}

static struct policy_decision by_builtin(enum policy_reason reason)
{
	return (struct policy_decision){ .reason = reason, .policy = "builtin", .rule = builtin_rule_name(reason) };
}

static bool has_exact_allow(const struct levels *l)
{
	for (uint32_t i = 0; i < l->n_exact; i++) {
		if (l->exact[i].allow)
			return true;
	}
	return false;
}

/* True if a built-in denies the name whatever the rules say; sets RET to the reason. */
static bool builtin_denies(const struct policy *p, const struct levels *l, enum policy_reason *ret)
{
	const struct builtin_name *b = l->builtin;

	*ret = b ? b->reason : POLICY_REASON_INTERNAL;
	if (l->bare)
		return true;
	if (!b || l->host)
		return false;
	return b->always || (!p->default_allow && !has_exact_allow(l));
}

static bool is_web_port(enum policy_proto proto, uint16_t port)
{
	return proto == POLICY_TCP && (port == 443 || port == 80);
}

/* Index of the first rule with this port or a higher one. */
static uint32_t lower_bound(const struct host_rule *rules, uint32_t n, uint16_t port)
{
	uint32_t lo = 0;

	while (lo < n) {
		uint32_t mid = lo + (n - lo) / 2;

		if (rules[mid].port < port)
			lo = mid + 1;
		else
			n = mid;
	}
	return lo;
}

static const struct host_rule *judge_level(const struct host_rule *rules, uint32_t n, enum policy_proto proto, uint16_t port)
{
	const struct host_rule *found = NULL;

	for (uint32_t i = port ? lower_bound(rules, n, port) : n; i < n && rules[i].port == port; i++) {
		if (rules[i].proto != RULE_ANY && rules[i].proto != (uint8_t)proto)
			continue;
		if (!rules[i].allow)
			return &rules[i];
		found = &rules[i];
	}
	if (found)
		return found;
	for (uint32_t i = 0; i < n && rules[i].port == 0; i++) {
		if (!rules[i].allow)
			return &rules[i];
		if (is_web_port(proto, port))
			found = &rules[i];
	}
	return found;
}

/* Only exact rules with a port open the host machine; not even the default does. */
static struct policy_decision judge_host(const struct levels *l, enum policy_proto proto, uint16_t port)
{
	const struct host_rule *r = judge_level(l->exact, l->n_exact, proto, port);

	if (r && (r->port || !r->allow))
		return by_rule(r);
	return by_builtin(POLICY_REASON_INTERNAL);
}

static struct policy_decision judge(const struct policy *p, const struct levels *l, enum policy_proto proto, uint16_t port)
{
	enum policy_reason reason;

	if (builtin_denies(p, l, &reason))
		return by_builtin(reason);
	if (l->host)
		return judge_host(l, proto, port);
	for (size_t i = l->n; i > 0; i--) {
		const struct host_rule *r = judge_level(l->at[i - 1].rules, l->at[i - 1].n, proto, port);

		if (r)
			return by_rule(r);
	}
	return by_default(p);
}

/*
 * The gateway does not read the server name of QUIC. On a port where a rule denies names, QUIC therefore needs a rule with
 * exactly this host and port; clients fall back to TCP.
 */
static bool is_unread(const struct policy *p, enum policy_proto proto, uint16_t port)
{
	return proto == POLICY_UDP && policy_denies_names(p, proto, port);
}

static const struct policy_decision unread = { .reason = POLICY_REASON_UNREAD, .policy = "default", .rule = "" };

/* ---- all ports of a name ---- */

struct open_ports {
	struct policy_port *ports;
	size_t n, cap;
	struct policy_decision first; /* the decision that opened the first port */
};

static void try_port(const struct policy *p, const struct levels *l, enum policy_proto proto, uint16_t port, struct open_ports *o)
{
	struct policy_decision d = judge(p, l, proto, port);

	if (!d.allow || o->n == o->cap)
		return;
	for (size_t i = 0; i < o->n; i++) {
		if (o->ports[i].proto == proto && o->ports[i].port == port)
			return;
	}
	if (o->n == 0)
		o->first = d;
	o->ports[o->n++] = (struct policy_port){ .proto = proto, .port = port };
}

/* Collect the ports that allow rules open for the name. Returns the deny rule that closes all other ports, or NULL. */
static const struct host_rule *find_ports(const struct policy *p, const struct levels *l, struct open_ports *o)
{
	for (size_t i = l->n; i > 0; i--) {
		const struct host_rule *rules = l->at[i - 1].rules, *shut = NULL;

		for (uint32_t k = 0; k < l->at[i - 1].n && o->n < o->cap; k++) {
			if (rules[k].allow && rules[k].port) {
				try_port(p, l, (enum policy_proto)rules[k].proto, rules[k].port, o);
			} else if (rules[k].allow) {
				try_port(p, l, POLICY_TCP, 443, o);
				try_port(p, l, POLICY_TCP, 80, o);
			} else if (!rules[k].port) {
				shut = &rules[k];
			}
		}
		if (shut)
			return shut;
	}
	return NULL;
}

struct policy_decision policy_judge_name(const struct policy *p, const char *name, enum policy_proto proto, uint16_t port)
{
	struct policy_port one;
	struct open_ports o = { .ports = &one, .cap = 1 };
	struct policy_decision d;
	struct levels l;

	find_levels(p, name, &l);
	d = judge(p, &l, proto, port);
	if (!d.allow && d.reason == POLICY_REASON_DEFAULT) {
		find_ports(p, &l, &o);
		d.reason = o.n ? POLICY_REASON_PORT : d.reason;
	}
	return d.allow && d.reason != POLICY_REASON_RULE && is_unread(p, proto, port) ? unread : d;
}

struct policy_decision policy_judge_dns(const struct policy *p, const char *name)
{
	struct policy_port one;
	struct open_ports o = { .ports = &one, .cap = 1 };
	const struct host_rule *shut;
	enum policy_reason reason;
	struct levels l;

	find_levels(p, name, &l);
	if (builtin_denies(p, &l, &reason))
		return by_builtin(reason);
	shut = find_ports(p, &l, &o);
	if (o.n)
		return o.first;
	if (shut)
		return by_rule(shut);
	return l.host ? by_builtin(POLICY_REASON_INTERNAL) : by_default(p);
}

size_t policy_name_ports(const struct policy *p, const char *name, struct policy_port *ret, size_t cap)
{
	struct open_ports o = { .ports = ret, .cap = cap };
	struct levels l;

	find_levels(p, name, &l);
	if (!p->default_allow || l.host)
		find_ports(p, &l, &o);
	return o.n;
}

/* ---- addresses ---- */

static const struct segment *find_segment(const struct seg_table *t, const struct ak_addr *a)
{
	size_t lo = 0, hi = t->n - 1;

	/* The segments cover the whole family without gaps. */
	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (ak_addr_cmp(a, &t->segs[mid].hi) > 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return &t->segs[lo];
}

static struct policy_decision by_segment(const struct policy *p, const struct segment *seg)
{
	size_t n;

	switch ((enum seg_source)seg->source) {
	case SEG_BUILTIN: {
		const struct builtin_net *net = &builtin_nets(&n)[seg->index];

		return (struct policy_decision){ .reason = net->reason, .policy = "builtin", .rule = net->name };
	}
	case SEG_CIDR: {
		const struct cidr_rule *r = &p->cidrs[seg->index];

		return (struct policy_decision){
			.allow = r->allow, .reason = POLICY_REASON_RULE, .policy = r->from, .rule = r->text
		};
	}
	case SEG_PLAIN:
		break;
	}
	return by_default(p);
}

static bool wraps_v4(const struct policy *p, const struct segment *seg, const struct ak_addr *a, struct ak_addr *ret)
{
	size_t n;

	if (seg->class != POLICY_ADDR_BLOCKED)
		return hidden_v4(p, a, ret);
	return seg->source == SEG_BUILTIN && builtin_nets(&n)[seg->index].kind == BUILTIN_EMBEDDED && ak_addr_embedded_v4(a, ret);
}

/* For an address that embeds a blocked IPv4 address, report the segment of the IPv4 address. */
static const struct segment *look_inside(const struct policy *p, const struct segment *seg, const struct ak_addr *a)
{
	const struct segment *inner;
	struct ak_addr v4;

	if (!wraps_v4(p, seg, a, &v4))
		return seg;
	inner = find_segment(&p->v4, &v4);
	return inner->class == POLICY_ADDR_BLOCKED ? inner : seg;
}

static const struct segment unknown_family = { .class = POLICY_ADDR_BLOCKED, .source = SEG_PLAIN };

static const struct segment *segment_of(const struct policy *p, const struct ak_addr *a)
{
	if (a->family == AF_INET)
		return find_segment(&p->v4, a);
	if (a->family == AF_INET6)
		return look_inside(p, find_segment(&p->v6, a), a);
	return &unknown_family;
}

enum policy_addr_class policy_addr_class(const struct policy *p, const struct ak_addr *a, struct policy_decision *ret)
{
	const struct segment *seg = segment_of(p, a);

	if (ret)
		*ret = seg == &unknown_family ? by_builtin(POLICY_REASON_RESERVED) : by_segment(p, seg);
	return (enum policy_addr_class)seg->class;
}

struct policy_decision policy_judge_addr(const struct policy *p, const struct ak_addr *a, enum policy_proto proto, uint16_t port)
{
	struct policy_decision d;
	const struct host_rule *r;

	if (policy_addr_class(p, a, &d) != POLICY_ADDR_PLAIN)
		return d.allow && is_unread(p, proto, port) ? unread : d;
	if (!p->default_allow)
		return (struct policy_decision){ .reason = POLICY_REASON_ADDRESS, .policy = "default", .rule = "" };
	/* "*" in deny means every host, named or not. */
	r = judge_level(p->rules, p->n_root, proto, port);
	d = r ? by_rule(r) : d;
	return d.allow && is_unread(p, proto, port) ? unread : d;
}
