/* Answers: learn the addresses, then build and send the reply and report the event. */
#include "dnsproxy/internal.h"

#include "gateway/base/io.h"

#include <stdio.h>
#include <string.h>

struct chain_text {
	char text[DNS_CNAME_MAX][DNS_WIRE_TEXT_MAX];
	const char *ptr[DNS_CNAME_MAX];
};

static const char *const *chain_print(const struct dns_name *chain, size_t n, struct chain_text *ret)
{
	for (size_t i = 0; i < n; i++) {
		dns_name_text(&chain[i], ret->text[i]);
		ret->ptr[i] = ret->text[i];
	}
	return ret->ptr;
}

uint32_t dns_ttl_clamp(uint32_t ttl_s, uint32_t max_s)
{
	return ttl_s < DNS_TTL_MIN_S ? DNS_TTL_MIN_S : ttl_s > max_s ? max_s : ttl_s;
}

static void count(struct dns_stats *s, const struct dns_verdict *v)
{
	switch (v->outcome) {
	case DNS_OUTCOME_ANSWERED:
	case DNS_OUTCOME_NODATA:
		s->answered++;
		break;
	case DNS_OUTCOME_DENIED:
	case DNS_OUTCOME_BUDGET:
	case DNS_OUTCOME_FILTERED:
		s->denied++;
		break;
	case DNS_OUTCOME_MALFORMED:
	case DNS_OUTCOME_UPSTREAM:
	case DNS_OUTCOME_UNLEARNED:
	case DNS_OUTCOME_UNRECORDED:
	case DNS_OUTCOME_FORGED:
	case DNS_OUTCOME_NUM:
		break;
	}
	s->cached += v->cached;
}

static void tell(struct dns_client *c, const struct dns_origin *origin, const struct dns_ask *ask, const struct dns_verdict *v)
{
	struct chain_text chain;
	struct dns_event event = {
		.outcome = v->outcome,
		.name = v->name,
		.qtype = ask->qtype,
		.decision = v->decision,
		.detail = v->detail,
		.n_cname = v->n_cname,
		.addrs = v->content.addrs,
		.n_addrs = v->content.n_addrs,
		.ttl_s = v->content.ttl_s,
		.cached = v->cached,
		.latency_us = v->cached ? 0 : ak_since_us(origin->arrived_us),
	};

	event.cname = chain_print(v->cname, v->n_cname, &chain);
	c->proxy->hooks.event(c->proxy->hooks.ctx, c->sandbox, &event);
}

void dns_verdict_send(
	struct dns_client *c, const struct dns_origin *origin, const struct dns_ask *ask, const struct dns_verdict *v)
{
	struct dns_proxy *proxy = c->proxy;
	uint8_t buf[DNS_WIRE_REPLY_MAX];
	size_t len = dns_reply_build(buf, sizeof(buf), origin->tcp ? sizeof(buf) : ask->udp_max, ask, &v->content);

	count(&proxy->stats, v);
	if (len == 0)
		proxy->stats.dropped++;
	else if (origin->tcp)
		dns_tcp_send(proxy->tcp, origin, buf, len);
	else
		dns_udp_send(proxy->udp, origin, buf, len);
	tell(c, origin, ask, v);
}

void dns_verdict_deny(struct dns_verdict *v, const struct policy_decision *d, char text[static DNS_WIRE_EDE_TEXT])
{
	char label[DNS_WIRE_EDE_TEXT / 2];

	snprintf(text, DNS_WIRE_EDE_TEXT, "%s (%s)", policy_rule_label(d, label, sizeof(label)),
		policy_reason_text(d->reason, false));
	v->outcome = DNS_OUTCOME_DENIED;
	v->decision = *d;
	v->content = (struct dns_content){ .rcode = DNS_RCODE_NXDOMAIN, .ede = DNS_EDE_BLOCKED, .ede_text = text };
}

/* Is the kernel certain to hold E's addresses for another TTL_S seconds? */
static bool still_learned(const struct dns_client *c, const struct dns_cache_entry *e, uint32_t ttl_s)
{
	return e->learned_until_ms >= c->proxy->now_ms + ttl_s * 1000ull && e->learned_generation == c->generation &&
		c->learned_seq - e->learned_seq < DNS_RELEARN_AFTER;
}

/* Refreshing an element can also shorten its timeout, so use the longest time that any reply promised for these addresses. */
static uint32_t learn_ttl(const struct dns_client *c, const struct dns_cache_entry *e, uint32_t ttl_s)
{
	uint64_t now = c->proxy->now_ms, until = now + ttl_s * 1000ull;

	for (size_t i = 0; i < e->n_addrs; i++) {
		uint64_t promised = dns_cache_promised(&c->cache, &e->addrs[i]);

		if (promised > until)
			until = promised;
	}
	return (uint32_t)((until - now + 999) / 1000);
}

static int learn(struct dns_client *c, struct dns_cache_entry *e, const struct dns_verdict *v, const struct dns_name *chain)
{
	struct dns_proxy *proxy = c->proxy;
	struct chain_text text;
	struct dns_answer answer = {
		.name = v->name,
		.qtype = e->qtype,
		.n_cname = e->n_cname,
		.addrs = e->addrs,
		.n_addrs = e->n_addrs,
		.ttl_s = learn_ttl(c, e, v->content.ttl_s),
		.decision = v->decision,
	};
	int rc;

	answer.cname = chain_print(chain, e->n_cname, &text);
	rc = proxy->hooks.learn(proxy->hooks.ctx, c->sandbox, &answer);
	if (rc < 0) {
		e->learned_until_ms = 0;
		return rc;
	}
	c->learned_seq += e->n_addrs;
	e->learned_until_ms = proxy->now_ms + answer.ttl_s * 1000ull;
	e->learned_generation = c->generation;
	e->learned_seq = c->learned_seq;
	for (size_t i = 0; i < e->n_addrs; i++)
		dns_cache_promise(&c->cache, &e->addrs[i], e->learned_until_ms);
	return 0;
}

static void unlearned(struct dns_verdict *v)
{
	v->outcome = DNS_OUTCOME_UNLEARNED;
	v->detail = "the kernel did not take the addresses";
	v->content = (struct dns_content){
		.rcode = DNS_RCODE_SERVFAIL, .ede = DNS_EDE_OTHER, .ede_text = "addresses could not be opened"
	};
}

void dns_verdict_from_entry(
	struct dns_client *c, struct dns_cache_entry *e, struct dns_verdict *v, struct dns_name chain[static DNS_CNAME_MAX])
{
	v->outcome = DNS_OUTCOME_ANSWERED;
	v->content = (struct dns_content){
		.rcode = e->kind == DNS_CACHE_NXDOMAIN ? DNS_RCODE_NXDOMAIN : DNS_RCODE_NOERROR,
		.ttl_s = (uint32_t)((e->expires_ms - c->proxy->now_ms) / 1000),
		.cname = chain,
		.n_cname = e->kind == DNS_CACHE_ADDRS ? e->n_cname : 0,
		.addrs = e->addrs,
		.n_addrs = e->n_addrs,
		.ede = DNS_EDE_NONE,
	};
	dns_cache_chain(e, chain);
	v->cname = chain;
	v->n_cname = e->n_cname;
	switch (e->kind) {
	case DNS_CACHE_ADDRS:
		if (!still_learned(c, e, v->content.ttl_s) && learn(c, e, v, chain) < 0)
			unlearned(v);
		break;
	case DNS_CACHE_FILTERED:
		/* NODATA, not NXDOMAIN: the other address family may have public addresses */
		v->outcome = DNS_OUTCOME_FILTERED;
		v->detail = "every address is in a blocked range";
		v->content.ede = DNS_EDE_FILTERED;
		v->content.ede_text = v->detail;
		break;
	case DNS_CACHE_FAILED:
		v->outcome = DNS_OUTCOME_UPSTREAM;
		v->detail = e->why;
		v->content.rcode = DNS_RCODE_SERVFAIL;
		v->content.ede = DNS_EDE_UNREACHABLE;
		v->content.ede_text = e->why;
		break;
	case DNS_CACHE_EMPTY:
	case DNS_CACHE_NXDOMAIN:
	case DNS_CACHE_KIND_NUM:
		break;
	}
}
