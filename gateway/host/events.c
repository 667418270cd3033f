/* Turns the events of the DNS proxy, the relay and the kernel into audit records. */
#include "gateway/host/internal.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RULE_TEXT 320
#define STUCK_TELL_MS 60000 /* limits the messages: a sandbox can fill and free a disk many times a second */

const char *gw_qtype_text(uint16_t qtype, char *buf, size_t size)
{
	static const struct {
		uint16_t type;
		const char *text;
	} known[] = {
		{ 1, "A" },
		{ 2, "NS" },
		{ 5, "CNAME" },
		{ 6, "SOA" },
		{ 10, "NULL" },
		{ 12, "PTR" },
		{ 13, "HINFO" },
		{ 15, "MX" },
		{ 16, "TXT" },
		{ 28, "AAAA" },
		{ 33, "SRV" },
		{ 35, "NAPTR" },
		{ 43, "DS" },
		{ 46, "RRSIG" },
		{ 48, "DNSKEY" },
		{ 64, "SVCB" },
		{ 65, "HTTPS" },
		{ 252, "AXFR" },
		{ 255, "ANY" },
		{ 257, "CAA" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(known); i++) {
		if (known[i].type == qtype)
			return known[i].text;
	}
	snprintf(buf, size, "TYPE%u", qtype);
	return buf;
}

/* A record of a denial must not use the space reserved for records of allowed flows. */
static void put_record(struct gw_sandbox *sb, const struct audit_net *rec)
{
	if (!rec->has_bytes && !audit_writer_spare(&sb->log, sb->relay.n_flows))
		audit_writer_lose(&sb->log, ENOSPC);
	else
		audit_write_net(&sb->log, rec);
}

/* Keep the first denial of each kind despite rotation: in the log's first file, or in the copies. */
static void keep_first(struct gw_sandbox *sb, const struct audit_net *rec, const struct audit_kind *kind)
{
	uint64_t written = sb->kept.written;

	if (!audit_kinds_first(&sb->kinds, rec, kind) || sb->kept.fd < 0 || sb->kept.size >= AUDIT_KEPT_BYTES)
		return;
	audit_write_kept(&sb->kept, rec, sb->log.seq);
	if (sb->kept.written == written)
		audit_kinds_forget(&sb->kinds, kind);
}

static void write_refusal(struct gw_sandbox *sb, const struct audit_net *rec, bool denied)
{
	struct audit_kind kind;
	bool one = rec->count == 1 && !rec->suppressed;
	uint64_t written = sb->log.written;

	audit_kind_of(rec, &kind);
	if (!rec->suppressed && gw_sums_count(sb->sums, &kind, rec->count)) {
		sb->noisy = true;
		return;
	}
	put_record(sb, rec);
	if (sb->log.written == written)
		return;
	if (denied)
		keep_first(sb, rec, &kind);
	if (one)
		gw_sums_begin(&sb->sums, &kind, &sb->log, sb->name);
}

static int lookup_type(const struct audit_net *rec)
{
	static const char *const types[GW_LOOKUP_TYPES] = { "A", "AAAA", "HTTPS" };

	for (int i = 0; rec->qtype && rec->name && i < GW_LOOKUP_TYPES; i++) {
		if (!strcmp(rec->qtype, types[i]))
			return i;
	}
	return -1;
}

/*
 * How often the sandbox tried, as a user would count. A program that wants a host asks for its A, AAAA and perhaps HTTPS records
 * at once: of each name the most frequent type counts. The table is small; a name that lost its place counts anew.
 */
static uint64_t attempts(struct gw_sandbox *sb, const struct audit_net *rec)
{
	uint64_t n = rec->count + rec->suppressed, most = 0, hash = 0xcbf29ce484222325u;
	int type = lookup_type(rec);
	struct gw_lookup *l;

	if (type < 0)
		return n;
	if (!sb->lookups)
		sb->lookups = calloc(GW_LOOKUPS, sizeof(*sb->lookups));
	if (!sb->lookups)
		return n;
	for (const char *p = rec->name; *p; p++)
		hash = (hash ^ (uint8_t)*p) * 0x100000001b3u;
	l = &sb->lookups[(hash ^ hash >> 32) % GW_LOOKUPS];
	if (l->hash != hash)
		*l = (struct gw_lookup){ .hash = hash };
	for (int i = 0; i < GW_LOOKUP_TYPES; i++)
		most = l->asked[i] > most ? l->asked[i] : most;
	l->asked[type] += n;
	return l->asked[type] > most ? l->asked[type] - most : 0;
}

static void write_record(struct gw_sandbox *sb, struct audit_net *rec)
{
	bool denied = !strcmp(rec->verdict, "deny");

	rec->sandbox = sb->name;
	rec->policy = policy_name(sb->policy);
	rec->generation = sb->generation;
	if (denied)
		sb->denied += attempts(sb, rec);
	if (rec->has_bytes || !strcmp(rec->verdict, "allow"))
		put_record(sb, rec);
	else
		write_refusal(sb, rec, denied);
}

/* A verdict on a name, a flow or a packet: counted, and recorded. */
static void write_verdict(struct gw_sandbox *sb, struct audit_net *rec)
{
	bool allow = !strcmp(rec->verdict, "allow");
	struct net_counts *c = &sb->counts;

	if (allow || !strcmp(rec->verdict, "deny"))
		c->verdicts[allow][rec->reason] += rec->count + rec->suppressed;
	if (rec->has_bytes) {
		c->bytes_out += rec->bytes_out;
		c->bytes_in += rec->bytes_in;
		net_histogram_add(&c->timings[NET_TIMING_FLOWS], rec->duration_ms * 1000);
	}
	write_record(sb, rec);
}

bool gw_log_ready(struct gw_sandbox *sb)
{
	struct gw_msg msg = { .type = GW_MSG_LOG_STUCK, .id = sb->link.id };
	uint64_t now_ms;

	if (audit_writer_ready(&sb->log, sb->name, sb->relay.n_flows))
		return true;
	now_ms = ak_now_ms();
	if (!sb->stuck_told_ms || now_ms - sb->stuck_told_ms >= STUCK_TELL_MS) {
		sb->stuck_told_ms = now_ms;
		gw_send(sb->gw, &msg);
	}
	return false;
}

static const struct {
	const char *verdict;
	enum net_reason reason; /* NONE: use the decision's own */
} dns_outcomes[DNS_OUTCOME_NUM] = {
	[DNS_OUTCOME_ANSWERED] = { "allow", NET_REASON_NONE },
	[DNS_OUTCOME_NODATA] = { "allow", NET_REASON_WITHHELD },
	[DNS_OUTCOME_DENIED] = { "deny", NET_REASON_NONE },
	[DNS_OUTCOME_BUDGET] = { "deny", NET_REASON_DNS_BUDGET },
	[DNS_OUTCOME_FILTERED] = { "deny", NET_REASON_FILTERED },
	[DNS_OUTCOME_MALFORMED] = { "deny", NET_REASON_BAD_QUERY },
	[DNS_OUTCOME_UPSTREAM] = { "error", NET_REASON_UPSTREAM },
	[DNS_OUTCOME_UNLEARNED] = { "error", NET_REASON_UNLEARNED },
	[DNS_OUTCOME_UNRECORDED] = { "deny", NET_REASON_UNRECORDED },
	[DNS_OUTCOME_FORGED] = { "error", NET_REASON_FORGED },
};

static void write_repeat(struct gw_sandbox *sb, struct gw_repeat *rep)
{
	char rule[RULE_TEXT], qtype[16];
	struct audit_net rec = {
		.event = "dns",
		.proto = "dns",
		.verdict = "allow",
		.name = rep->name,
		.qtype = gw_qtype_text(rep->qtype, qtype, sizeof(qtype)),
		.rule = policy_rule_label(&rep->decision, rule, sizeof(rule)),
		.detail = "from the cache",
		.count = rep->count,
	};

	rep->count = 0;
	write_verdict(sb, &rec);
}

void gw_record_repeats(struct gw_sandbox *sb)
{
	gw_sums_flush(sb->sums, &sb->log, sb->name);
	for (size_t i = 0; sb->repeats && i < GW_REPEATS; i++) {
		if (sb->repeats[i].count)
			write_repeat(sb, &sb->repeats[i]);
	}
}

/* Add to the sum of a cached answer; false if it needs a record of its own. */
static bool count_repeat(struct gw_sandbox *sb, const struct dns_event *event)
{
	struct gw_repeat *rep;
	uint32_t h = event->qtype;

	if (!event->cached || event->outcome != DNS_OUTCOME_ANSWERED || strlen(event->name) >= POLICY_NAME_MAX)
		return false;
	if (!sb->repeats)
		sb->repeats = calloc(GW_REPEATS, sizeof(*sb->repeats));
	if (!sb->repeats)
		return false;
	for (const char *p = event->name; *p; p++)
		h = (h ^ (uint8_t)*p) * 16777619u;
	rep = &sb->repeats[(h ^ h >> 16) % GW_REPEATS];
	if (rep->count && (rep->qtype != event->qtype || strcmp(rep->name, event->name) != 0))
		write_repeat(sb, rep);
	if (!rep->count) {
		memcpy(rep->name, event->name, strlen(event->name) + 1);
		rep->qtype = event->qtype;
		rep->decision = event->decision;
	}
	rep->count++;
	sb->noisy = true;
	return true;
}

void gw_record_dns(struct gw_sandbox *sb, const struct dns_event *event)
{
	char rule[RULE_TEXT], qtype[16];
	struct audit_net rec = {
		.event = "dns",
		.proto = "dns",
		.verdict = dns_outcomes[event->outcome].verdict,
		.reason = dns_outcomes[event->outcome].reason,
		.name = event->name,
		.qtype = gw_qtype_text(event->qtype, qtype, sizeof(qtype)),
		.cname = event->cname,
		.n_cname = event->n_cname,
		.answers = event->addrs,
		.n_answers = event->n_addrs,
		.ttl = event->ttl_s,
		.latency_us = event->latency_us,
		.detail = event->detail,
		.count = 1,
		.suppressed = event->count > 1 ? event->count - 1 : 0,
	};

	if (count_repeat(sb, event))
		return;
	if (event->outcome == DNS_OUTCOME_BUDGET)
		sb->noisy = true; /* more may follow that is counted only */
	if (event->latency_us)
		net_histogram_add(&sb->counts.timings[NET_TIMING_DNS], event->latency_us);
	if (event->outcome != DNS_OUTCOME_MALFORMED) {
		rec.rule = policy_rule_label(&event->decision, rule, sizeof(rule));
		if (!rec.reason)
			rec.reason = policy_reason_recorded(event->decision.reason, event->decision.allow);
	}
	write_verdict(sb, &rec);
}

static const struct {
	const char *verdict;
	enum net_reason reason;
} flow_ends[RELAY_END_NUM] = {
	[RELAY_END_CLOSED] = { "allow", NET_REASON_NONE },
	[RELAY_END_DENIED] = { "deny", NET_REASON_NONE },
	[RELAY_END_REVOKED] = { "deny", NET_REASON_REVOKED },
	[RELAY_END_LIMIT] = { "deny", NET_REASON_LIMIT },
	[RELAY_END_TIMEOUT] = { "allow", NET_REASON_TIMEOUT },
	[RELAY_END_UNREACHABLE] = { "error", NET_REASON_UNREACHABLE },
	[RELAY_END_RESET] = { "allow", NET_REASON_RESET },
	[RELAY_END_STOPPED] = { "allow", NET_REASON_STOPPED },
};

/* A refused connection to a published port has no bytes: repetitions are counted, because the host's clients may be many. */
static void explain_published(const struct relay_event *event, struct audit_net *rec)
{
	rec->event = "publish";
	rec->has_bytes = event->dial_us > 0;
	if (event->end == RELAY_END_UNREACHABLE && !event->detail)
		rec->reason = NET_REASON_PUBLISH_CLOSED;
	else if (event->end == RELAY_END_LIMIT && !rec->has_bytes)
		rec->reason = NET_REASON_PUBLISH_LIMIT;
	if (event->end == RELAY_END_REVOKED) {
		rec->verdict = "allow";
		rec->reason = NET_REASON_NONE;
	}
}

static const char *flow_proto(const struct relay_event *event)
{
	if (event->end == RELAY_END_DENIED && event->seen && event->seen[0])
		return event->seen;
	return event->proto == POLICY_UDP ? "udp" : "tcp";
}

void gw_record_flow(struct gw_sandbox *sb, const struct relay_event *event)
{
	char rule[RULE_TEXT];
	const struct learned_name *n = event->name;
	struct audit_net rec = {
		.event = "flow",
		.proto = flow_proto(event),
		.verdict = flow_ends[event->end].verdict,
		.reason = flow_ends[event->end].reason,
		.sni = event->sni,
		.dst = &event->dst,
		.port = event->port,
		.rule = policy_rule_label(&event->decision, rule, sizeof(rule)),
		.bytes_out = event->bytes_out,
		.bytes_in = event->bytes_in,
		.duration_ms = event->duration_ms,
		.latency_us = event->dial_us,
		.has_bytes = event->end != RELAY_END_DENIED,
		.count = event->again ? event->again : 1,
	};

	if (event->dial_us)
		net_histogram_add(&sb->counts.timings[NET_TIMING_DIAL], event->dial_us);
	if (n) {
		rec.name = n->name;
		rec.cname = (const char *const *)n->cname;
		rec.n_cname = n->n_cname;
		rec.answers = n->addrs;
		rec.n_answers = n->n_addrs;
		rec.ttl = n->ttl_s;
	} else if (ak_addr_eq(&event->dst, &sb->link.gw4) || ak_addr_eq(&event->dst, &sb->link.gw6)) {
		rec.name = POLICY_HOST_NAME;
	}
	if (event->published)
		explain_published(event, &rec);
	if (event->end == RELAY_END_DENIED) {
		rec.reason =
			event->reason ? event->reason : policy_reason_recorded(event->decision.reason, event->decision.allow);
		rec.why = event->detail;
	} else {
		rec.detail = event->detail;
		sb->allowed += !strcmp(rec.verdict, "allow") && !event->again && (!event->published || event->dial_us);
	}
	write_verdict(sb, &rec);
}

static const char *l4_text(uint8_t l4proto, char *buf, size_t size)
{
	switch (l4proto) {
	case IPPROTO_TCP:
		return "tcp";
	case IPPROTO_UDP:
		return "udp";
	case IPPROTO_ICMP:
		return "icmp";
	case IPPROTO_ICMPV6:
		return "icmp6";
	case IPPROTO_SCTP:
		return "sctp";
	case IPPROTO_GRE:
		return "gre";
	case IPPROTO_IPIP:
		return "ipip";
	case IPPROTO_IPV6:
		return "6in4";
	case IPPROTO_ESP:
		return "esp";
	case IPPROTO_UDPLITE:
		return "udplite";
	case IPPROTO_IGMP:
		return "igmp";
	default:
		break;
	}
	snprintf(buf, size, "proto%u", l4proto);
	return buf;
}

/* Explain why the kernel denied a packet, with the matcher's reason if the policy decided. */
static void explain_denial(struct gw_sandbox *sb, const struct fw_denial *d, struct audit_net *rec, char *rule, size_t size)
{
	enum policy_proto proto = d->l4proto == IPPROTO_UDP ? POLICY_UDP : POLICY_TCP;
	struct policy_decision decision;

	switch (d->reason) {
	case FW_REASON_SPOOF:
		rec->rule = "builtin: spoof";
		rec->reason = NET_REASON_SPOOF;
		return;
	case FW_REASON_DOT:
		rec->rule = "builtin: encrypted-dns";
		rec->reason = NET_REASON_DOT;
		return;
	case FW_REASON_PROTO:
		rec->rule = "builtin: protocol";
		rec->reason = d->l4proto == IPPROTO_TCP || d->l4proto == IPPROTO_UDP
			? NET_REASON_FRAGMENT /* most often a datagram larger than the MTU */
			: NET_REASON_PROTOCOL;
		return;
	case FW_REASON_RATE:
		rec->rule = "builtin: dns_qps";
		rec->reason = NET_REASON_FLOOD;
		return;
	case FW_REASON_DEFAULT:
	case FW_REASON_BLOCKED:
	case FW_REASON_NUM:
		break;
	}
	decision = policy_judge_addr(sb->policy, &d->dst, proto, d->dport);
	rec->rule = policy_rule_label(&decision, rule, size);
	rec->reason = policy_reason_recorded(decision.reason, decision.allow);
}

void gw_record_denial(struct gw_sandbox *sb, const struct fw_denial *d)
{
	char rule[RULE_TEXT], proto[16];
	struct learned_name *names[1];
	struct audit_net rec = { .event = "packet", .verdict = "deny", .dst = &d->dst, .port = d->dport, .count = 1 };

	sb->seen[d->reason]++;
	sb->noisy = true;
	rec.proto = l4_text(d->l4proto, proto, sizeof(proto));
	explain_denial(sb, d, &rec, rule, sizeof(rule));
	/* An address learned for a name, but not for this port: record the name, which the user knows. */
	if (learned_names(sb->learned, &d->dst, ak_now_ms(), names, 1) == 1) {
		struct policy_decision by_name = policy_judge_name(
			sb->policy, names[0]->name, d->l4proto == IPPROTO_UDP ? POLICY_UDP : POLICY_TCP, d->dport);

		rec.name = names[0]->name;
		if (!by_name.allow && d->reason == FW_REASON_DEFAULT) {
			rec.rule = policy_rule_label(&by_name, rule, sizeof(rule));
			rec.reason = policy_reason_recorded(by_name.reason, false);
		}
	}
	write_verdict(sb, &rec);
}

/* Dropped frames have no IP address: write one record for all since the last. */
static void record_frames(struct gw_sandbox *sb, uint64_t total)
{
	struct audit_net rec = { .event = "packet", .verdict = "deny", .proto = "link", .rule = "builtin: link" };

	if (total <= sb->seen_link)
		return;
	rec.reason = NET_REASON_FRAME;
	rec.count = 1;
	rec.suppressed = total - sb->seen_link - 1;
	sb->seen_link = total;
	write_verdict(sb, &rec);
}

void gw_record_suppressed(struct gw_sandbox *sb, const struct fw_counts *counts)
{
	record_frames(sb, counts->link);
	for (int i = 0; i < FW_REASON_NUM; i++) {
		struct audit_net rec = { .event = "packet", .verdict = "deny", .reason = NET_REASON_MORE, .count = 1 };
		char rule[64];

		if (counts->denied[i] <= sb->seen[i])
			continue;
		rec.suppressed = counts->denied[i] - sb->seen[i] - 1; /* the record itself stands for one */
		sb->seen[i] = counts->denied[i];
		snprintf(rule, sizeof(rule), "builtin: %s", fw_reason_name((enum fw_reason)i));
		rec.rule = rule;
		write_verdict(sb, &rec);
	}
}

void gw_record_evicted(struct gw_sandbox *sb)
{
	struct audit_net rec = { .event = "evict", .verdict = "error", .reason = NET_REASON_EVICTED, .count = sb->evicted };

	sb->evicted = 0;
	if (rec.count)
		write_record(sb, &rec);
}

void gw_record_edge(struct gw_sandbox *sb, const char *event)
{
	struct audit_net rec = { .event = event, .verdict = "allow", .count = 1 };

	write_record(sb, &rec);
}
