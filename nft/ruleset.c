/*
 * Builds the ruleset. For sandbox 7:
 *
 *   table netdev agentkernel: chain sb7 at the ingress of its link (ruleset_link.c)
 *   table inet agentkernel: chain pre → map links → chain sb7 → sb7_v4 | sb7_v6 → sb7_relay → judged
 *                                                            or → sb7_<reason> → refuse
 *
 * The kernel validates a whole table whenever one of its chains changes, and finds a set by walking all sets of the table.
 * Ids past the first FW_SHARD_SIZE are therefore in further tables, created with their first sandbox and removed with their
 * last. The mark that a packet gets at its link selects the table that judges it, so that each other table costs one
 * comparison; chain in accepts only judged packets. Tables and chains are kept few, because every message of a batch walks
 * all tables, and every batch walks all chains.
 *
 * No packet is ever forwarded: a packet is delivered to a gateway socket, with FW_MARK set by chain judged, or it is
 * refused. A policy change rewrites only the chains sb7_v4 and sb7_v6.
 *
 * For every expression, the kernel searches its list of expression types. Matches that several rules would repeat (the
 * family, the mark, the relay) are therefore in a chain of their own.
 */
#include "nft/ruleset.h"

#include "gateway/base/cleanup.h"
#include "nft/object.h"
#include "nft/rule.h"

#include <assert.h>
#include <linux/netfilter.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>

#define DOT_PORT 853
#define DNS_RATE_FACTOR 4 /* times dns_qps: programs reach the limit of the DNS proxy first */
#define REFUSE "refuse"
#define JUDGED "judged"
#define PRIORITY_MANGLE (-150)

static const int families[] = { AF_INET, AF_INET6 };
static const enum policy_proto protos[] = { POLICY_TCP, POLICY_UDP };
/* for (EACH(p, array)): P points to each entry of ARRAY in turn */
#define EACH(p, array)                                                                                                           \
	__typeof__(&(array)[0]) p = (array);                                                                                     \
	(p) < (array) + ARRAY_SIZE(array);                                                                                       \
	(p)++

/* ---- names ---- */

__attribute__((format(printf, 1, 2))) static struct fw_name name_of(const char *fmt, ...)
{
	struct fw_name name;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(name.text, sizeof(name.text), fmt, ap);
	va_end(ap);
	return name;
}

struct fw_name fw_name(uint32_t id, const char *suffix)
{
	return name_of("sb%u%s", id, suffix);
}

struct fw_name fw_name_learned(uint32_t id, enum policy_proto proto, int family)
{
	return name_of("sb%u_%s%c", id, proto == POLICY_TCP ? "tcp" : "udp", family == AF_INET ? '4' : '6');
}

struct fw_name fw_name_denied(uint32_t id, enum fw_reason reason)
{
	return name_of("sb%u_denied_%s", id, fw_reason_name(reason));
}

static struct fw_name name_reason(uint32_t id, enum fw_reason reason)
{
	return name_of("sb%u_%s", id, fw_reason_name(reason));
}

static struct fw_name name_range(uint32_t id, enum policy_addr_class class, int family)
{
	return name_of("sb%u_%s%c", id, class == POLICY_ADDR_BLOCKED ? "blk" : "open", family == AF_INET ? '4' : '6');
}

struct fw_name fw_name_prefix(uint32_t id, enum fw_reason reason)
{
	return name_of("ak:%u:%s", id, fw_reason_name(reason));
}

unsigned fw_shard(uint32_t id)
{
	return id / FW_SHARD_SIZE % FW_SHARDS;
}

const char *fw_shard_table(unsigned shard)
{
	static const char *const names[] = { FW_TABLE, FW_TABLE "_1", FW_TABLE "_2", FW_TABLE "_3", FW_TABLE "_4", FW_TABLE "_5",
		FW_TABLE "_6", FW_TABLE "_7", FW_TABLE "_8", FW_TABLE "_9", FW_TABLE "_10", FW_TABLE "_11", FW_TABLE "_12",
		FW_TABLE "_13", FW_TABLE "_14", FW_TABLE "_15" };

	static_assert(ARRAY_SIZE(names) == FW_SHARDS, "every table has a name");
	return names[shard];
}

/* ---- the base table ---- */

/*
 * chain refuse {
 *   1 meta pkttype != host drop                     broadcast and multicast get no reply
 *   2 tcp flags rst drop                            nor does a reset
 *   3 meta l4proto tcp reject with tcp reset
 *   4 reject with icmpx type admin-prohibited
 * }
 */
static void build_refuse(struct fw_batch *b)
{
	struct fw_chain c = fw_chain_add(b, NFPROTO_INET, b->table, REFUSE);
	struct fw_rule r = fw_rule_begin(&c);

	fw_rule_not_to_host(&r);
	fw_rule_drop(&r);
	fw_rule_end(&r);

	r = fw_rule_begin(&c);
	fw_rule_tcp_rst(&r);
	fw_rule_drop(&r);
	fw_rule_end(&r);

	r = fw_rule_begin(&c);
	fw_rule_l4proto(&r, FW_EQ, IPPROTO_TCP);
	fw_rule_reject_reset(&r);
	fw_rule_end(&r);

	r = fw_rule_begin(&c);
	fw_rule_reject_prohibited(&r);
	fw_rule_end(&r);
}

/* chain judged { 1 meta mark set FW_MARK accept } */
static void build_judged(struct fw_batch *b)
{
	struct fw_chain c = fw_chain_add(b, NFPROTO_INET, b->table, JUDGED);
	struct fw_rule r = fw_rule_begin(&c);

	fw_rule_set_mark(&r, FW_MARK);
	fw_rule_accept(&r);
	fw_rule_end(&r);
}

/* Build chain pre without its rules. */
static struct fw_chain build_entry(struct fw_batch *b, uint32_t mark, const struct fw_hook *pre)
{
	fw_build_links(b, mark);
	fw_table_replace(b, NFPROTO_INET, b->table);
	fw_set_add(b, NFPROTO_INET, b->table, "links", &fw_set_links);
	build_refuse(b);
	build_judged(b);
	return fw_chain_add_base(b, NFPROTO_INET, b->table, "pre", pre);
}

/* chain pre { hook prerouting, after the first table's; policy accept; meta mark FW_MARK_FURTHER + shard iifname vmap @links } */
void fw_build_shard(struct fw_batch *b, unsigned shard)
{
	static const struct fw_hook pre = { NF_INET_PRE_ROUTING, "prerouting", PRIORITY_MANGLE + 1, true, NULL };
	const uint32_t mark = FW_MARK_FURTHER + shard;
	struct fw_chain c;
	struct fw_rule r;

	b->table = fw_shard_table(shard);
	c = build_entry(b, mark, &pre);
	r = fw_rule_begin(&c);
	fw_rule_mark(&r, mark);
	fw_rule_vmap_link(&r, "links");
	fw_rule_end(&r);
}

void fw_build_shard_remove(struct fw_batch *b, unsigned shard)
{
	fw_table_remove(b, NFPROTO_INET, fw_shard_table(shard));
	fw_table_remove(b, NFPROTO_NETDEV, fw_shard_table(shard));
}

/*
 * chain pre  { hook prerouting; policy drop
 *   1 meta mark & FW_MARK_KIND == FW_MARK_FURTHER accept
 *   2 iifname vmap @links                           loopback is not in the map: none of our sockets uses it
 * }
 * chain in   { hook input; policy drop; meta mark FW_MARK accept }
 * chain out  { hook output; policy drop; oifname "ak*" accept }
 * chain fwd_ { hook forward; policy drop }
 */
void fw_build_base(struct fw_batch *b)
{
	static const struct fw_hook pre = { NF_INET_PRE_ROUTING, "prerouting", PRIORITY_MANGLE, false, NULL };
	static const struct fw_hook in = { NF_INET_LOCAL_IN, "input", 0, false, NULL };
	static const struct fw_hook out = { NF_INET_LOCAL_OUT, "output", 0, false, NULL };
	static const struct fw_hook fwd = { NF_INET_FORWARD, "forward", 0, false, NULL };
	struct fw_chain c;
	struct fw_rule r;

	b->table = fw_shard_table(0);
	c = build_entry(b, FW_MARK_FIRST, &pre);
	r = fw_rule_begin(&c);
	fw_rule_mark_kind(&r, FW_MARK_FURTHER);
	fw_rule_accept(&r);
	fw_rule_end(&r);
	r = fw_rule_begin(&c);
	fw_rule_vmap_link(&r, "links");
	fw_rule_end(&r);

	c = fw_chain_add_base(b, NFPROTO_INET, b->table, "in", &in);
	r = fw_rule_begin(&c);
	fw_rule_mark(&r, FW_MARK);
	fw_rule_accept(&r);
	fw_rule_end(&r);

	c = fw_chain_add_base(b, NFPROTO_INET, b->table, "out", &out);
	r = fw_rule_begin(&c);
	fw_rule_out_link(&r);
	fw_rule_accept(&r);
	fw_rule_end(&r);

	fw_chain_add_base(b, NFPROTO_INET, b->table, "fwd_", &fwd);
}

/* ---- denying a packet ---- */

/* counter name "sb7_denied_blocked" limit rate … log prefix "ak:7:blocked" …: over the limit, packets are only counted */
static void end_with_record(struct fw_rule *r, uint32_t id, enum fw_reason reason)
{
	struct fw_name counter = fw_name_denied(id, reason), prefix = fw_name_prefix(id, reason);

	fw_rule_counter(r, counter.text);
	fw_rule_limit(r);
	fw_rule_log(r, prefix.text);
	fw_rule_end(r);
}

static void build_record(struct fw_chain *c, uint32_t id, enum fw_reason reason)
{
	struct fw_rule r = fw_rule_begin(c);

	end_with_record(&r, id, reason);
}

/* The last rule of a reason chain: goto refuse, or drop for spoofed sources and floods, which get no reply. */
static void build_refusal(struct fw_chain *c, enum fw_reason reason)
{
	struct fw_rule r = fw_rule_begin(c);

	if (reason == FW_REASON_SPOOF || reason == FW_REASON_RATE)
		fw_rule_drop(&r);
	else
		fw_rule_goto(&r, REFUSE);
	fw_rule_end(&r);
}

/*
 * chain sb7_proto first drops ICMP errors of the sandbox's kernel: "port unreachable" for a reply that came too late
 *   1 icmp type 3 counter name "sb7_late" drop
 *   2 icmpv6 type 1 counter name "sb7_late" drop
 */
static void build_icmp_errors(struct fw_chain *c, uint32_t id)
{
	struct fw_name late = fw_name(id, "_late");

	for (EACH(family, families)) {
		struct fw_rule r = fw_rule_begin(c);

		fw_rule_icmp_type(&r, *family, *family == AF_INET ? 3 : 1);
		fw_rule_counter(&r, late.text);
		fw_rule_drop(&r);
		fw_rule_end(&r);
	}
}

/* Reasons with a chain of their own: several rules use them, or they need state or more than one match. */
static const enum fw_reason chained[] = { FW_REASON_SPOOF, FW_REASON_PROTO, FW_REASON_RATE, FW_REASON_BLOCKED };

/* chain sb7_blocked { 1 count and log; 2 goto refuse }, and the same for each of them */
static void build_reason_chains(struct fw_batch *b, uint32_t id)
{
	for (EACH(reason, chained)) {
		struct fw_name name = name_reason(id, *reason);
		struct fw_chain c = fw_chain_add(b, NFPROTO_INET, b->table, name.text);

		if (*reason == FW_REASON_PROTO)
			build_icmp_errors(&c, id);
		build_record(&c, id, *reason);
		build_refusal(&c, *reason);
	}
}

/* ---- admitting a packet ---- */

static void end_with_goto(struct fw_rule *r, const char *chain)
{
	fw_rule_goto(r, chain);
	fw_rule_end(r);
}

static void end_with_reason(struct fw_rule *r, uint32_t id, enum fw_reason reason)
{
	struct fw_name name = name_reason(id, reason);

	end_with_goto(r, name.text);
}

/*
 * chain sb7_relay {
 *   1 meta l4proto tcp tproxy to :15001 counter name "sb7_admitted" goto judged
 *   2 meta l4proto udp tproxy to :15002 counter name "sb7_admitted" goto judged
 *   3 goto refuse                                   the relay is not listening
 * }
 */
static void build_relay(struct fw_batch *b, uint32_t id)
{
	struct fw_name name = fw_name(id, "_relay"), admitted = fw_name(id, "_admitted");
	struct fw_chain c = fw_chain_add(b, NFPROTO_INET, b->table, name.text);
	struct fw_rule r;

	for (EACH(proto, protos)) {
		r = fw_rule_begin(&c);
		fw_rule_l4proto(&r, FW_EQ, *proto == POLICY_TCP ? IPPROTO_TCP : IPPROTO_UDP);
		fw_rule_tproxy(&r, *proto == POLICY_TCP ? FW_RELAY_TCP_PORT : FW_RELAY_UDP_PORT);
		fw_rule_counter(&r, admitted.text);
		end_with_goto(&r, JUDGED);
	}
	r = fw_rule_begin(&c);
	end_with_goto(&r, REFUSE);
}

/*
 * chain sb7_dns {
 *   1 meta l4proto udp limit rate over 800/second burst 800 packets goto sb7_rate
 *   2 goto judged                                   delivered to the socket of the DNS proxy
 * }
 * The queries of all sandboxes share one socket queue. A sandbox that sends far more than its policy's dns_qps, which the
 * proxy would refuse anyway, must not fill it for the others.
 */
static void build_dns(struct fw_chain *c, uint32_t id, const struct policy *p)
{
	uint64_t rate = (uint64_t)policy_limits(p)->dns_qps * DNS_RATE_FACTOR;
	struct fw_rule r = fw_rule_begin(c);

	if (rate > UINT32_MAX)
		rate = UINT32_MAX;
	fw_rule_l4proto(&r, FW_EQ, IPPROTO_UDP);
	fw_rule_limit_over(&r, (uint32_t)rate, (uint32_t)rate);
	end_with_reason(&r, id, FW_REASON_RATE);

	r = fw_rule_begin(c);
	end_with_goto(&r, JUDGED);
}

#ifndef AK_SABOTAGE_NODOT
/* 5 th dport 853 count and log; 6 th dport 853 goto refuse */
static void build_dot(struct fw_chain *c, uint32_t id)
{
	struct fw_rule r = fw_rule_begin(c);

	fw_rule_dport(&r, DOT_PORT);
	end_with_record(&r, id, FW_REASON_DOT);

	r = fw_rule_begin(c);
	fw_rule_dport(&r, DOT_PORT);
	end_with_goto(&r, REFUSE);
}
#endif

/*
 * TCP packets that do not open a connection:
 * 7 tcp flags & (fin | syn | rst | ack) != syn socket transparent 1 goto judged      of an existing connection
 * 8 tcp flags & (fin | syn | rst | ack) != syn counter name "sb7_late" goto refuse   of a closed one: not a new attempt, so not logged
 */
static void build_flow(struct fw_chain *c, uint32_t id)
{
	struct fw_name late = fw_name(id, "_late");
	struct fw_rule r = fw_rule_begin(c);

	fw_rule_not_first_syn(&r);
	fw_rule_socket_transparent(&r);
	end_with_goto(&r, JUDGED);

	r = fw_rule_begin(c);
	fw_rule_not_first_syn(&r);
	fw_rule_counter(&r, late.text);
	end_with_goto(&r, REFUSE);
}

/* ---- chains sb7_v4 and sb7_v6: the policy ---- */

/* ip daddr 100.64.0.29 goto sb7_blocked */
static void build_gateway_blocked(struct fw_chain *c, uint32_t id, const struct ak_addr *gw)
{
	struct fw_rule r;

	if (!gw->family)
		return;
	r = fw_rule_begin(c);
	fw_rule_addr(&r, FW_DST, FW_EQ, gw);
	end_with_reason(&r, id, FW_REASON_BLOCKED);
}

/*
 * chain sb7_v4 {
 *   1 ip daddr != 100.64.0.29 ip daddr @sb7_blk4 goto sb7_blocked    the gateway's end is in a blocked range, but one of its
 *   2 ip daddr . tcp dport @sb7_tcp4 goto sb7_relay                  ports may have been learned;
 *   3 ip daddr . udp dport @sb7_udp4 goto sb7_relay
 *   4 ip daddr 100.64.0.29 goto sb7_blocked                          its other ports are blocked
 *   5 ip daddr @sb7_open4 goto sb7_relay                             allow_cidr
 *   6 goto sb7_relay                                                 if the policy's default is allow; otherwise
 *     count and log; 7 goto refuse
 * }
 */
static void build_policy(struct fw_chain *c, const struct fw_link *link, int family, bool default_allow)
{
	const struct ak_addr *gw = family == AF_INET ? &link->gw4 : &link->gw6;
	struct fw_name blocked = name_range(link->id, POLICY_ADDR_BLOCKED, family);
	struct fw_name open = name_range(link->id, POLICY_ADDR_OPEN, family);
	struct fw_name relay = fw_name(link->id, "_relay");
	struct fw_rule r = fw_rule_begin(c);

	if (gw->family)
		fw_rule_addr(&r, FW_DST, FW_NE, gw);
	fw_rule_addr_in(&r, family, blocked.text);
	end_with_reason(&r, link->id, FW_REASON_BLOCKED);

	for (EACH(proto, protos)) {
		struct fw_name learned = fw_name_learned(link->id, *proto, family);

		r = fw_rule_begin(c);
		fw_rule_dst_port_in(&r, family, *proto, learned.text);
		end_with_goto(&r, relay.text);
	}
	build_gateway_blocked(c, link->id, gw);

	r = fw_rule_begin(c);
	fw_rule_addr_in(&r, family, open.text);
	end_with_goto(&r, relay.text);

#ifdef AK_SABOTAGE_NODEFAULTDENY
	default_allow = true;
#endif
	r = fw_rule_begin(c);
	if (default_allow) {
		end_with_goto(&r, relay.text);
		return;
	}
	end_with_record(&r, link->id, FW_REASON_DEFAULT);
	build_refusal(c, FW_REASON_DEFAULT);
}

static struct fw_name name_policy(uint32_t id, int family)
{
	return fw_name(id, family == AF_INET ? "_v4" : "_v6");
}

/* ---- chain sb7 ---- */

/* 1–2 ip saddr != 100.64.0.30 goto sb7_spoof; if a family is off, every source of that family is spoofed */
static void build_source(struct fw_chain *c, const struct fw_link *link)
{
#ifdef AK_SABOTAGE_NOSPOOF
	return;
#endif
	for (EACH(family, families)) {
		struct fw_rule r = fw_rule_begin(c);

		if (fw_link_has(link, *family))
			fw_rule_addr(&r, FW_SRC, FW_NE, *family == AF_INET ? &link->addr4 : &link->addr6);
		else
			fw_rule_nfproto(&r, *family);
		end_with_reason(&r, link->id, FW_REASON_SPOOF);
	}
}

/* 9–10 meta nfproto ipv4 goto sb7_v4 */
static void build_by_family(struct fw_chain *c, const struct fw_link *link)
{
	for (EACH(family, families)) {
		struct fw_name name = name_policy(link->id, *family);
		struct fw_rule r;

		if (!fw_link_has(link, *family))
			continue;
		r = fw_rule_begin(c);
		fw_rule_nfproto(&r, *family);
		end_with_goto(&r, name.text);
	}
}

/*
 * chain sb7 {
 *   1–2 source address
 *   3 meta l4proto != tcp meta l4proto != udp goto sb7_proto
 *   4 th dport 53 goto sb7_dns
 *   5–6 DNS over TLS
 *   7–8 TCP that does not open a connection
 *   9–10 the family's chain
 * }
 */
static void build_main(struct fw_batch *b, const struct fw_link *link)
{
	struct fw_name name = fw_name(link->id, ""), dns = fw_name(link->id, "_dns");
	struct fw_chain c = fw_chain_add(b, NFPROTO_INET, b->table, name.text);
	struct fw_rule r;

	build_source(&c, link);

	r = fw_rule_begin(&c);
	fw_rule_l4proto(&r, FW_NE, IPPROTO_TCP);
	fw_rule_l4proto(&r, FW_NE, IPPROTO_UDP);
	end_with_reason(&r, link->id, FW_REASON_PROTO);

	r = fw_rule_begin(&c);
	fw_rule_dport(&r, FW_DNS_PORT);
	end_with_goto(&r, dns.text);

#ifndef AK_SABOTAGE_NODOT
	build_dot(&c, link->id);
#endif

	build_flow(&c, link->id);
	build_by_family(&c, link);
}

/* ---- a sandbox's objects ---- */

static const enum policy_addr_class range_classes[] = { POLICY_ADDR_BLOCKED, POLICY_ADDR_OPEN };

static void build_counters(struct fw_batch *b, uint32_t id)
{
	struct fw_name admitted = fw_name(id, "_admitted"), late = fw_name(id, "_late");

	for (enum fw_reason reason = 0; reason < FW_REASON_NUM; reason++) {
		struct fw_name name = fw_name_denied(id, reason);

		fw_counter_add(b, NFPROTO_INET, b->table, name.text);
	}
	fw_counter_add(b, NFPROTO_INET, b->table, admitted.text);
	fw_counter_add(b, NFPROTO_INET, b->table, late.text);
}

static void build_sets(struct fw_batch *b, uint32_t id)
{
	for (EACH(family, families)) {
		bool v4 = *family == AF_INET;

		for (EACH(proto, protos)) {
			struct fw_name name = fw_name_learned(id, *proto, *family);

			fw_set_add(b, NFPROTO_INET, b->table, name.text, v4 ? &fw_set_learned4 : &fw_set_learned6);
		}
		for (EACH(class, range_classes)) {
			struct fw_name name = name_range(id, *class, *family);

			fw_set_add(b, NFPROTO_INET, b->table, name.text, v4 ? &fw_set_range4 : &fw_set_range6);
		}
	}
}

static void build_ranges(struct fw_batch *b, uint32_t id, const struct policy *p, bool flush)
{
	for (EACH(family, families)) {
		size_t n = 0;
		const struct policy_range *ranges = policy_ranges(p, *family, &n);

		for (EACH(class, range_classes)) {
			struct fw_name name = name_range(id, *class, *family);

			if (flush)
				fw_set_flush(b, name.text);
			fw_ranges_add(b, name.text, ranges, n, *class);
		}
	}
}

void fw_build_sandbox(struct fw_batch *b, const struct fw_link *link, const struct policy *p)
{
	struct fw_name name = fw_name(link->id, ""), dns_name = fw_name(link->id, "_dns");
	struct fw_chain dns;

	b->table = fw_shard_table(fw_shard(link->id));
	fw_build_link(b, link);
	build_counters(b, link->id);
	build_sets(b, link->id);
	build_ranges(b, link->id, p, false);
	build_reason_chains(b, link->id);
	build_relay(b, link->id);
	dns = fw_chain_add(b, NFPROTO_INET, b->table, dns_name.text);
	build_dns(&dns, link->id, p);
	for (EACH(family, families)) {
		struct fw_name chain = name_policy(link->id, *family);
		struct fw_chain c = fw_chain_add(b, NFPROTO_INET, b->table, chain.text);

		build_policy(&c, link, *family, policy_default_allow(p));
	}
	build_main(b, link);
	fw_links_add(b, link->ifname, name.text);
}

void fw_build_update(struct fw_batch *b, const struct fw_link *link, const struct policy *p)
{
	struct fw_name dns_name = fw_name(link->id, "_dns");
	struct fw_chain dns = { .batch = b, .family = NFPROTO_INET, .name = dns_name.text };

	b->table = dns.table = fw_shard_table(fw_shard(link->id));
	build_ranges(b, link->id, p, true);
	fw_chain_flush(b, dns_name.text);
	build_dns(&dns, link->id, p);
	for (EACH(family, families)) {
		struct fw_name chain = name_policy(link->id, *family);
		struct fw_chain c = { .batch = b, .family = NFPROTO_INET, .table = b->table, .name = chain.text };

		fw_chain_flush(b, chain.text);
		build_policy(&c, link, *family, policy_default_allow(p));
	}
}

/* Remove a chain before the chains it jumps to. */
static void remove_chains(struct fw_batch *b, uint32_t id)
{
	static const char *const suffixes[] = { "", "_v4", "_v6", "_dns", "_relay" };
	struct fw_name name;

	for (EACH(suffix, suffixes)) {
		name = fw_name(id, *suffix);
		fw_chain_remove(b, NFPROTO_INET, name.text);
	}
	for (EACH(reason, chained)) {
		name = name_reason(id, *reason);
		fw_chain_remove(b, NFPROTO_INET, name.text);
	}
}

static void remove_sets(struct fw_batch *b, uint32_t id)
{
	struct fw_name name;

	for (EACH(family, families)) {
		for (EACH(proto, protos)) {
			name = fw_name_learned(id, *proto, *family);
			fw_set_remove(b, name.text);
		}
		for (EACH(class, range_classes)) {
			name = name_range(id, *class, *family);
			fw_set_remove(b, name.text);
		}
	}
}

void fw_build_remove(struct fw_batch *b, const struct fw_link *link)
{
	struct fw_name name;

	b->table = fw_shard_table(fw_shard(link->id));
	fw_links_remove(b, link->ifname);
	remove_chains(b, link->id);
	remove_sets(b, link->id);
	for (enum fw_reason reason = 0; reason < FW_REASON_NUM; reason++) {
		name = fw_name_denied(link->id, reason);
		fw_counter_remove(b, NFPROTO_INET, name.text);
	}
	name = fw_name(link->id, "_admitted");
	fw_counter_remove(b, NFPROTO_INET, name.text);
	name = fw_name(link->id, "_late");
	fw_counter_remove(b, NFPROTO_INET, name.text);
	fw_build_link_remove(b, link->id);
}
