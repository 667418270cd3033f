/*
 * The life of a query up to the cache: parse, judge, charge the budget, then answer it or put it in flight.
 * No query goes upstream before the policy has allowed it.
 */
#include "dnsproxy/internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define RATE_REPORT_MS 1000 /* report rate-limited queries in one event per second, with their number */

/* Simple types without addresses. HTTPS and SVCB are excluded: they carry address hints and keys. */
static bool forwardable(uint16_t qtype)
{
	switch (qtype) {
	case DNS_TYPE_NS:
	case DNS_TYPE_SOA:
	case DNS_TYPE_MX:
	case DNS_TYPE_TXT:
	case DNS_TYPE_SRV:
	case DNS_TYPE_NAPTR:
	case DNS_TYPE_CAA:
		return true;
	default:
		return false;
	}
}

enum dns_plan dns_plan_of(bool default_allow, bool ipv6, const char *name, uint16_t qtype)
{
	bool address = qtype == DNS_TYPE_A || qtype == DNS_TYPE_AAAA;

#ifdef AK_SABOTAGE_NOTYPES
	if (!address)
		return DNS_PLAN_FORWARD;
#endif
	if (strcmp(name, POLICY_HOST_NAME) == 0)
		return address ? DNS_PLAN_HOST : DNS_PLAN_WITHHOLD;
	if (qtype == DNS_TYPE_A || (qtype == DNS_TYPE_AAAA && ipv6))
		return DNS_PLAN_RESOLVE;
	return default_allow && forwardable(qtype) ? DNS_PLAN_FORWARD : DNS_PLAN_WITHHOLD;
}

/* ---- refusals ---- */

static void refuse_malformed(
	struct dns_client *c, const struct dns_origin *origin, const struct dns_question *q, enum dns_parse how, const char *why)
{
	static const uint8_t rcodes[DNS_PARSE_NUM] = {
		[DNS_PARSE_FORMERR] = DNS_RCODE_FORMERR,
		[DNS_PARSE_NOTIMP] = DNS_RCODE_NOTIMP,
		[DNS_PARSE_BADVERS] = DNS_RCODE_BADVERS,
		/* a well-formed query for a name that cannot exist: resolvers stop at NXDOMAIN, but retry after FORMERR */
		[DNS_PARSE_BADNAME] = DNS_RCODE_NXDOMAIN,
	};
	struct dns_verdict v = {
		.outcome = DNS_OUTCOME_MALFORMED,
		.name = q->text,
		.detail = why,
		.content = { .rcode = rcodes[how],
			.ede = how == DNS_PARSE_BADNAME ? DNS_EDE_BLOCKED : DNS_EDE_NONE,
			.ede_text = why },
	};

	dns_verdict_send(c, origin, &q->ask, &v);
}

/* Report all queries that were over the rate limit since the last event, in one event. */
static void report_rate(struct dns_client *c, const char *name, uint16_t qtype)
{
	struct dns_proxy *proxy = c->proxy;
	char detail[96];
	struct dns_event event = {
		.outcome = DNS_OUTCOME_BUDGET,
		.name = name,
		.qtype = qtype,
		.detail = detail,
		.count = c->refused,
		.decision = { .reason = POLICY_REASON_RULE, .policy = policy_name(c->policy), .rule = "limits.dns_qps" },
	};

	snprintf(detail, sizeof(detail), "%llu over the limit of %u questions a second", (unsigned long long)c->refused, c->qps);
	c->refused = 0;
	c->refused_told_ms = proxy->now_ms;
	proxy->hooks.event(proxy->hooks.ctx, c->sandbox, &event);
}

void dns_client_flush(struct dns_client *c)
{
	if (c->refused)
		report_rate(c, "", 0);
}

/* Over the rate limit: reply REFUSED each time, but report only sums. */
static void refuse_rate(struct dns_client *c, const struct dns_origin *origin, const struct dns_question *q)
{
	struct dns_proxy *proxy = c->proxy;
	struct dns_content content = {
		.rcode = DNS_RCODE_REFUSED, .ede = DNS_EDE_PROHIBITED, .ede_text = "too many queries per second"
	};
	uint8_t buf[DNS_WIRE_UDP_PLAIN];
	size_t len = dns_reply_build(buf, sizeof(buf), sizeof(buf), &q->ask, &content);

	if (len > 0 && origin->tcp)
		dns_tcp_send(proxy->tcp, origin, buf, len);
	else if (len > 0)
		dns_udp_send(proxy->udp, origin, buf, len);
	proxy->stats.denied++;
	c->refused++;
	if (!c->refused_told_ms || proxy->now_ms - c->refused_told_ms >= RATE_REPORT_MS)
		report_rate(c, q->text, q->ask.qtype);
}

static void refuse_denied(
	struct dns_client *c, const struct dns_origin *origin, const struct dns_question *q, const struct policy_decision *d)
{
	char text[DNS_WIRE_EDE_TEXT];
	struct dns_verdict v = { .name = q->text };

	dns_verdict_deny(&v, d, text);
	dns_verdict_send(c, origin, &q->ask, &v);
}

static void refuse_budget(
	struct dns_client *c, const struct dns_origin *origin, const struct dns_question *q, const struct policy_decision *d)
{
	const char *text = d->rule[0] == '*' ? "too many different names under one wildcard" : "too many questions that leave";
	struct dns_verdict v = {
		.outcome = DNS_OUTCOME_BUDGET,
		.name = q->text,
		.decision = *d,
		.detail = text,
		/* musl waits for its timeout after REFUSED, so reply NXDOMAIN */
		.content = { .rcode = DNS_RCODE_NXDOMAIN, .ede = DNS_EDE_BLOCKED, .ede_text = text },
	};

	dns_verdict_send(c, origin, &q->ask, &v);
}

static void refuse_busy(struct dns_client *c, const struct dns_origin *origin, const struct dns_question *q,
	const struct policy_decision *d, int rc)
{
	struct dns_verdict v = {
		.outcome = DNS_OUTCOME_UPSTREAM,
		.name = q->text,
		.decision = *d,
		.detail = rc == -EBUSY ? "too many questions under way" : "out of resources",
		.content = { .rcode = DNS_RCODE_SERVFAIL, .ede = DNS_EDE_OTHER, .ede_text = "too many queries in flight" },
	};

	dns_verdict_send(c, origin, &q->ask, &v);
}

/* If it cannot be recorded, it is not answered: the client retries later, when the log may have room. */
static void refuse_unrecorded(
	struct dns_client *c, const struct dns_origin *origin, const struct dns_question *q, const struct policy_decision *d)
{
	struct dns_verdict v = {
		.outcome = DNS_OUTCOME_UNRECORDED,
		.name = q->text,
		.decision = *d,
		.content = { .rcode = DNS_RCODE_SERVFAIL, .ede = DNS_EDE_OTHER, .ede_text = "log cannot be written" },
	};

	dns_verdict_send(c, origin, &q->ask, &v);
}

static void withhold(
	struct dns_client *c, const struct dns_origin *origin, const struct dns_question *q, const struct policy_decision *d)
{
	struct dns_verdict v = {
		.outcome = DNS_OUTCOME_NODATA,
		.name = q->text,
		.decision = *d,
		.detail = q->ask.qtype == DNS_TYPE_AAAA ? "no IPv6" : "record type withheld",
		.content = { .rcode = DNS_RCODE_NOERROR, .ede = DNS_EDE_NONE },
	};

	dns_verdict_send(c, origin, &q->ask, &v);
}

/* ---- answers without upstream ---- */

static void serve_entry(struct dns_client *c, const struct dns_origin *origin, const struct dns_question *q,
	struct dns_cache_entry *e, const struct policy_decision *d, bool cached)
{
	struct dns_name chain[DNS_CNAME_MAX];
	struct dns_verdict v = { .name = q->text, .decision = *d, .cached = cached };

	dns_verdict_from_entry(c, e, &v, chain);
	dns_verdict_send(c, origin, &q->ask, &v);
}

/* The host machine is the gateway's end of this sandbox's link. That address is blocked, but a rule allows this name. */
static void serve_host(
	struct dns_client *c, const struct dns_origin *origin, const struct dns_question *q, const struct policy_decision *d)
{
	const struct ak_addr *addr = q->ask.qtype == DNS_TYPE_A ? &c->host4 : &c->host6;
	struct dns_cache_item item = {
		.kind = DNS_CACHE_ADDRS,
		.qtype = q->ask.qtype,
		.name = &q->name,
		.addrs = addr,
		.n_addrs = 1,
		.expires_ms = c->proxy->now_ms + DNS_HOST_TTL_S * 1000,
	};
	struct dns_cache_entry *e;

	if (addr->family == 0) {
		withhold(c, origin, q, d);
		return;
	}
	e = dns_cache_put(&c->cache, &item);
	if (e)
		serve_entry(c, origin, q, e, d, false);
	else
		refuse_busy(c, origin, q, d, -ENOMEM);
}

/* PTR: answered only from addresses that this sandbox has resolved before; never sent upstream. */
static void serve_reverse(struct dns_client *c, const struct dns_origin *origin, const struct dns_question *q)
{
	struct ak_addr addr;
	const struct dns_cache_entry *e = dns_name_reverse(&q->name, &addr) ? dns_cache_by_addr(&c->cache, &addr) : NULL;
	uint8_t raw[2 + DNS_WIRE_NAME_MAX];
	struct dns_verdict v = {
		.outcome = DNS_OUTCOME_NODATA,
		.name = q->text,
		.decision = policy_judge_dns(c->policy, q->text),
		.detail = "address not learned from a name",
		.content = { .rcode = DNS_RCODE_NXDOMAIN, .ede = DNS_EDE_NONE },
	};

	if (e) {
		struct dns_name name;
		char text[DNS_WIRE_TEXT_MAX];

		dns_cache_name(e, &name);
		dns_name_text(&name, text);
		raw[0] = 0;
		raw[1] = name.len;
		memcpy(raw + 2, name.wire, name.len);
		v.outcome = DNS_OUTCOME_ANSWERED;
		v.decision = policy_judge_dns(c->policy, text);
		v.detail = NULL;
		v.cached = true;
		v.content = (struct dns_content){ .ttl_s = DNS_HOST_TTL_S, .raw = raw, .n_raw = 1, .ede = DNS_EDE_NONE };
	}
	dns_verdict_send(c, origin, &q->ask, &v);
}

/* ---- handling a query ---- */

bool dns_query_charge(struct dns_client *c, const struct dns_question *q, const struct policy_decision *d)
{
#ifdef AK_SABOTAGE_NOBUDGET
	return true;
#endif
	if (d->reason != POLICY_REASON_RULE || !d->rule)
		return true; /* default-allow: the sandbox can send data in easier ways */
	return dns_budget_take(&c->budget, d->rule, &q->name, c->proxy->now_ms);
}

static void resolve(struct dns_client *c, const struct dns_origin *origin, const struct dns_question *q,
	const struct policy_decision *d, enum dns_plan plan)
{
	const struct dns_hooks *hooks = &c->proxy->hooks;
	struct dns_cache_entry *e;
	int rc;

	if (hooks->ready && !hooks->ready(hooks->ctx, c->sandbox)) {
		refuse_unrecorded(c, origin, q, d);
		return;
	}
	e = dns_cache_find(&c->cache, &q->name, q->ask.qtype, c->proxy->now_ms);
	if (e) {
		serve_entry(c, origin, q, e, d, true);
		return;
	}
	if (plan == DNS_PLAN_HOST) {
		serve_host(c, origin, q, d);
		return;
	}
	rc = dns_flight_join(c, origin, q, d);
	if (rc == -EDQUOT)
		refuse_budget(c, origin, q, d);
	else if (rc < 0)
		refuse_busy(c, origin, q, d, rc);
}

static void judge(struct dns_client *c, const struct dns_origin *origin, const struct dns_question *q)
{
	struct policy_decision d;
	enum dns_plan plan;

	if (!policy_name_ok(q->text)) {
		refuse_malformed(c, origin, q, DNS_PARSE_BADNAME, "not a host name");
		return;
	}
	if (q->ask.qtype == DNS_TYPE_PTR) {
		serve_reverse(c, origin, q);
		return;
	}
	d = policy_judge_dns(c->policy, q->text);
	if (!d.allow) {
		refuse_denied(c, origin, q, &d);
		return;
	}
	plan = dns_plan_of(policy_default_allow(c->policy), c->proxy->ipv6, q->text, q->ask.qtype);
	if (plan == DNS_PLAN_WITHHOLD)
		withhold(c, origin, q, &d);
	else
		resolve(c, origin, q, &d, plan);
}

void dns_query_handle(struct dns_client *c, const struct dns_origin *origin, const uint8_t *msg, size_t len)
{
	struct dns_proxy *proxy = c->proxy;
	struct dns_question q;
	const char *why = NULL;
	enum dns_parse rc = dns_question_parse(msg, len, &q, &why);

	proxy->stats.queries++;
	if (rc == DNS_PARSE_SILENT) {
		proxy->stats.dropped++;
		return;
	}
	if (!dns_client_admit(c)) {
		refuse_rate(c, origin, &q);
		return;
	}
	if (rc != DNS_PARSE_OK)
		refuse_malformed(c, origin, &q, rc, why);
	else
		judge(c, origin, &q);
}
