/*
 * Queries that wait for the upstream.
 *
 * Theory: the first query creates a flight, identical queries join it, and it ends exactly once: with an answer, with a
 * failure, or when its client is freed. The upstream knows only its id, so a late answer finds nothing.
 */
#include "dnsproxy/internal.h"

#include "dnsproxy/hash.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the two tables ---- */

static uint64_t key_hash(const struct dns_client *c, const struct dns_name *name, uint16_t qtype)
{
	uint64_t key[2] = { c->proxy->key[0] ^ qtype ^ (uint64_t)c->sandbox << 16, c->proxy->key[1] };

	return dns_hash(key, name->wire, name->len);
}

static struct dns_flight *find_key(const struct dns_client *c, uint64_t hash, const struct dns_name *name, uint16_t qtype)
{
	struct dns_flight *f = c->proxy->flights.by_key[hash % DNS_FLIGHT_BUCKETS];

	while (f && !(f->hash == hash && f->client == c && f->qtype == qtype && dns_name_eq(&f->name, name)))
		f = f->next_key;
	return f;
}

static struct dns_flight *find_id(const struct dns_proxy *proxy, uint64_t id)
{
	struct dns_flight *f = proxy->flights.by_id[id % DNS_FLIGHT_BUCKETS];

	while (f && f->id != id)
		f = f->next_id;
	return f;
}

static void insert(struct dns_proxy *proxy, struct dns_flight *f)
{
	struct dns_flight **key = &proxy->flights.by_key[f->hash % DNS_FLIGHT_BUCKETS];
	struct dns_flight **id = &proxy->flights.by_id[f->id % DNS_FLIGHT_BUCKETS];

	f->next_key = *key;
	*key = f;
	f->next_id = *id;
	*id = f;
	LIST_INSERT_HEAD(&f->client->flights, f, of_client);
	f->client->n_flights++;
	proxy->flights.count++;
}

static void detach(struct dns_proxy *proxy, struct dns_flight *f)
{
	struct dns_flight **at = &proxy->flights.by_key[f->hash % DNS_FLIGHT_BUCKETS];

	while (*at != f)
		at = &(*at)->next_key;
	*at = f->next_key;
	at = &proxy->flights.by_id[f->id % DNS_FLIGHT_BUCKETS];
	while (*at != f)
		at = &(*at)->next_id;
	*at = f->next_id;
	LIST_REMOVE(f, of_client);
	f->client->n_flights--;
	proxy->flights.count--;
}

static void flight_free(struct dns_flight *f)
{
	struct dns_waiter *w;

	while ((w = SLIST_FIRST(&f->waiters)) != NULL) {
		SLIST_REMOVE_HEAD(&f->waiters, next);
		free(w);
	}
	free(f);
}

void dns_flights_drop(struct dns_client *c)
{
	struct dns_flight *f;

	while ((f = LIST_FIRST(&c->flights)) != NULL) {
		detach(c->proxy, f);
		flight_free(f);
	}
}

/* ---- start ---- */

static int add_waiter(struct dns_flight *f, const struct dns_origin *origin, const struct dns_ask *ask)
{
	struct dns_waiter *w;

	if (f->n_waiters >= DNS_WAITERS_MAX)
		return -EBUSY;
	w = malloc(sizeof(*w));
	if (!w)
		return -ENOMEM;
	w->origin = *origin;
	w->ask = *ask;
	SLIST_INSERT_HEAD(&f->waiters, w, next);
	f->n_waiters++;
	return 0;
}

static int flight_new(struct dns_client *c, uint64_t hash, const struct dns_question *q, const struct policy_decision *d,
	struct dns_flight **ret)
{
	struct dns_proxy *proxy = c->proxy;
	struct dns_flight *f;

	if (c->n_flights >= DNS_CLIENT_FLIGHTS_MAX || proxy->flights.count >= DNS_FLIGHTS_MAX)
		return -EBUSY;
	f = malloc(sizeof(*f));
	if (!f)
		return -ENOMEM;
	f->id = ++proxy->flights.last_id;
	f->hash = hash;
	f->client = c;
	f->name = q->name;
	f->qtype = q->ask.qtype;
	f->edns = dns_upstream_edns(proxy->upstream);
	f->generation = c->generation;
	f->decision = *d;
	f->n_waiters = 0;
	dns_probe_begin(&f->probe, &f->name, f->qtype);
	SLIST_INIT(&f->waiters);
	*ret = f;
	return 0;
}

/* The name that F queries now: its own, or a probed name stored in SPARE. */
static const struct dns_name *asked_now(const struct dns_flight *f, struct dns_name *spare, uint16_t *ret_qtype)
{
	*ret_qtype = f->probe.active ? f->probe.qtype : f->qtype;
	if (!f->probe.active)
		return &f->name;
	dns_probe_name(&f->probe, &f->name, spare);
	return spare;
}

/* On success the flight may have ended already. */
static int ask(struct dns_proxy *proxy, const struct dns_flight *f)
{
	struct dns_name spare;
	uint16_t qtype;
	const struct dns_name *name = asked_now(f, &spare, &qtype);

	proxy->stats.upstream_sent++;
	return dns_upstream_ask(proxy->upstream, f->id, name, qtype, f->edns);
}

int dns_flight_join(
	struct dns_client *c, const struct dns_origin *origin, const struct dns_question *q, const struct policy_decision *d)
{
	struct dns_proxy *proxy = c->proxy;
	uint64_t hash = key_hash(c, &q->name, q->ask.qtype);
	struct dns_flight *f = find_key(c, hash, &q->name, q->ask.qtype);
	int rc;

	if (f)
		return add_waiter(f, origin, &q->ask);
	if (!dns_query_charge(c, q, d))
		return -EDQUOT;
	rc = flight_new(c, hash, q, d, &f);
	if (rc < 0)
		return rc;
	rc = add_waiter(f, origin, &q->ask);
	if (rc < 0) {
		flight_free(f);
		return rc;
	}
	insert(proxy, f);
	if (q->ask.qtype == DNS_TYPE_AAAA)
		dns_nat64_want(proxy);
	rc = ask(proxy, f);
	if (rc < 0) {
		detach(proxy, f);
		flight_free(f);
	}
	return rc;
}

/* ---- end ---- */

/* Mark the answer as fresh for the first client query only; the others did not cause an upstream query. */
static void send_all(struct dns_flight *f, struct dns_verdict *v)
{
	struct dns_waiter *w;

	SLIST_FOREACH(w, &f->waiters, next) {
		dns_verdict_send(f->client, &w->origin, &w->ask, v);
		v->cached = true;
	}
}

static void fail(struct dns_flight *f, struct dns_verdict *v, const char *why)
{
	f->client->proxy->stats.upstream_failed++;
	v->outcome = DNS_OUTCOME_UPSTREAM;
	v->detail = why;
	v->content = (struct dns_content){ .rcode = DNS_RCODE_SERVFAIL, .ede = DNS_EDE_UNREACHABLE, .ede_text = why };
	send_all(f, v);
}

/* Cache the failure: without it, names that do not resolve could be queried repeatedly as a covert channel. */
static void fail_cached(struct dns_flight *f, struct dns_verdict *v, const char *why)
{
	struct dns_client *c = f->client;
	struct dns_cache_item item = {
		.kind = DNS_CACHE_FAILED,
		.qtype = f->qtype,
		.name = &f->name,
		.expires_ms = c->proxy->now_ms + DNS_FAILURE_TTL_S * 1000,
		.why = why,
	};

	dns_cache_put(&c->cache, &item);
	fail(f, v, why);
}

/* Remove blocked addresses. Returns true if there were addresses and all were removed. */
static bool filter(const struct dns_client *c, struct dns_reply *r)
{
	size_t kept = 0, had = r->n_addrs;

#ifdef AK_SABOTAGE_NOREBIND
	return false;
#endif
	for (size_t i = 0; i < r->n_addrs; i++)
		if (policy_addr_class(c->policy, &r->addrs[i], NULL) != POLICY_ADDR_BLOCKED)
			r->addrs[kept++] = r->addrs[i];
	r->n_addrs = kept;
	return had > 0 && kept == 0;
}

static enum dns_cache_kind kind_of(const struct dns_reply *r, bool filtered)
{
	if (filtered)
		return DNS_CACHE_FILTERED;
	if (r->n_addrs > 0)
		return DNS_CACHE_ADDRS;
	return r->rcode == DNS_RCODE_NXDOMAIN ? DNS_CACHE_NXDOMAIN : DNS_CACHE_EMPTY;
}

/* Store the answer in the cache, and send what the entry says to everyone who waits. */
static void answer(struct dns_flight *f, const struct dns_cache_item *item, struct dns_verdict *v)
{
	struct dns_cache_entry *e = dns_cache_put(&f->client->cache, item);
	struct dns_name chain[DNS_CNAME_MAX];

	if (!e) {
		fail(f, v, "out of memory");
		return;
	}
	dns_verdict_from_entry(f->client, e, v, chain);
	send_all(f, v);
}

static void finish_addrs(struct dns_flight *f, struct dns_reply *r, struct dns_verdict *v)
{
	struct dns_client *c = f->client;
	enum dns_cache_kind kind = kind_of(r, filter(c, r));
	uint32_t ttl_s = kind == DNS_CACHE_ADDRS ? dns_ttl_clamp(r->ttl_s, DNS_TTL_MAX_S)
						 : dns_ttl_clamp(r->negative_ttl_s, DNS_NEGATIVE_TTL_MAX_S);
	struct dns_cache_item item = {
		.kind = kind,
		.qtype = f->qtype,
		.name = &f->name,
		.cname = r->cname,
		.n_cname = r->n_cname,
		.addrs = r->addrs,
		.n_addrs = r->n_addrs,
		.expires_ms = c->proxy->now_ms + ttl_s * 1000ull,
	};

	answer(f, &item, v);
}

/* Answer like a name whose addresses are all blocked, which they are. */
static void finish_internal(struct dns_flight *f, struct dns_verdict *v)
{
	struct dns_cache_item item = {
		.kind = DNS_CACHE_FILTERED,
		.qtype = f->qtype,
		.name = &f->name,
		.expires_ms = f->client->proxy->now_ms + DNS_INTERNAL_TTL_S * 1000,
	};

	answer(f, &item, v);
}

/* Pass on other records rebuilt and uncached: they are rare, and no address is learned from them. */
static void finish_raw(struct dns_flight *f, const struct dns_reply *r, struct dns_verdict *v)
{
	v->outcome = DNS_OUTCOME_ANSWERED;
	v->content = (struct dns_content){
		.rcode = r->rcode,
		.ttl_s = dns_ttl_clamp(r->ttl_s, DNS_TTL_MAX_S),
		.cname = r->cname,
		.n_cname = r->n_cname,
		.raw = r->raw,
		.n_raw = r->n_raw,
		.ede = DNS_EDE_NONE,
	};
	v->cname = r->cname;
	v->n_cname = r->n_cname;
	send_all(f, v);
}

/* The policy may have changed since the query was sent: judge it again, which also renews the borrowed strings. */
static void finish(struct dns_flight *f, struct dns_reply *r, const char *why)
{
	struct dns_client *c = f->client;
	char text[DNS_WIRE_TEXT_MAX], reason[DNS_WIRE_EDE_TEXT];
	struct dns_verdict v = { .name = text };

	dns_name_text(&f->name, text);
	v.decision = f->generation == c->generation ? f->decision : policy_judge_dns(c->policy, text);
	if (!v.decision.allow) {
		struct policy_decision d = v.decision;

		dns_verdict_deny(&v, &d, reason);
		send_all(f, &v);
	} else if (why) {
		fail_cached(f, &v, why);
	} else if (f->qtype == DNS_TYPE_A || f->qtype == DNS_TYPE_AAAA) {
		finish_addrs(f, r, &v);
	} else if (!policy_default_allow(c->policy)) {
		fail(f, &v, "policy changed meanwhile");
	} else if (f->probe.active) {
		finish_internal(f, &v);
	} else if (r->n_raw == 0) {
		finish_addrs(f, r, &v); /* an empty answer, which is cached */
	} else {
		finish_raw(f, r, &v);
	}
}

/* RFC 6891 section 7: old servers that do not support EDNS reply FORMERR without OPT. */
static bool ask_plainly(struct dns_proxy *proxy, struct dns_flight *f, const struct dns_reply *r)
{
	if (r->rcode != DNS_RCODE_FORMERR || r->has_opt || !f->edns)
		return false;
	f->edns = false;
	dns_upstream_no_edns(proxy->upstream);
	return ask(proxy, f) == 0;
}

/* 1 if the flight continues with another query, 0 if the name is internal. */
static int probe_on(struct dns_proxy *proxy, struct dns_flight *f, const struct dns_reply *r)
{
	enum dns_probed probed = dns_probe_answered(&f->probe, &f->name, f->client->policy, r);
	int rc;

	if (probed == DNS_PROBED_INTERNAL)
		return 0;
	f->probe.active = probed == DNS_PROBED_ON;
	rc = ask(proxy, f);
	return rc < 0 ? rc : 1;
}

void dns_flight_forged(struct dns_proxy *proxy, uint64_t id, unsigned count)
{
	const struct dns_flight *f = find_id(proxy, id);
	char text[DNS_WIRE_TEXT_MAX], detail[96];
	struct dns_event event = { .outcome = DNS_OUTCOME_FORGED, .name = text, .detail = detail };

	if (!f)
		return;
	dns_name_text(&f->name, text);
	snprintf(detail, sizeof(detail), "%u answers with a wrong id or question; asked again over TCP", count);
	event.qtype = f->qtype;
	event.decision = policy_judge_dns(f->client->policy, text);
	proxy->hooks.event(proxy->hooks.ctx, f->client->sandbox, &event);
}

void dns_flight_answered(struct dns_proxy *proxy, uint64_t id, int status, const uint8_t *msg, size_t len)
{
	struct dns_flight *f = find_id(proxy, id);
	struct dns_reply r;
	struct dns_name spare;
	const struct dns_name *name;
	uint16_t qtype;
	const char *why = NULL;

	if (!f)
		return;
	name = asked_now(f, &spare, &qtype);
	if (status == -ETIMEDOUT) {
		why = "upstream timed out";
	} else if (status < 0) {
		why = "upstream failed";
	} else if (dns_reply_parse(msg, len, name, qtype, &r, &why) == 0) {
		if (ask_plainly(proxy, f, &r))
			return;
		why = r.rcode == DNS_RCODE_NOERROR || r.rcode == DNS_RCODE_NXDOMAIN ? NULL : "upstream refused";
	}
	if (!why && f->probe.active) {
		int rc = probe_on(proxy, f, &r);

		if (rc > 0)
			return;
		why = rc < 0 ? "out of memory" : NULL;
	}
	detach(proxy, f);
	finish(f, &r, why);
	flight_free(f);
}
