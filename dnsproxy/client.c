/* One sandbox as a client of the proxy. */
#include "dnsproxy/internal.h"

#include "gateway/base/cleanup.h"

#include <string.h>

static void rate_set(struct dns_client *c)
{
	uint32_t qps = policy_limits(c->policy)->dns_qps;

	c->qps = qps ? qps : DNS_QPS_DEFAULT;
	c->tokens_milli = 1000ull * c->qps * DNS_QPS_BURST_S;
}

/* Does the policy allow IPv6 addresses without a name? */
static bool opens_ipv6(const struct policy *p)
{
	size_t n;
	const struct policy_range *ranges = policy_ranges(p, AF_INET6, &n);

	for (size_t i = 0; i < n; i++)
		if (ranges[i].class == POLICY_ADDR_OPEN)
			return true;
	return policy_default_allow(p);
}

int dns_client_new(struct dns_proxy *proxy, uint32_t sandbox, struct policy *p, const struct ak_addr *host4,
	const struct ak_addr *host6, struct dns_client **ret)
{
	struct dns_client *c = calloc(1, sizeof(*c));

	if (!c)
		return -ENOMEM;
	c->proxy = proxy;
	c->sandbox = sandbox;
	c->policy = policy_ref(p);
	if (host4)
		c->host4 = *host4;
	if (host6)
		c->host6 = *host6;
	dns_cache_init(&c->cache, proxy->key);
	dns_budget_init(&c->budget, proxy->key);
	LIST_INIT(&c->flights);
	TAILQ_INIT(&c->conns);
	rate_set(c);
	LIST_INSERT_HEAD(&proxy->clients, c, all);
	if (opens_ipv6(p))
		dns_nat64_want(proxy);
	*ret = c;
	return 0;
}

void dns_client_free(struct dns_client *c)
{
	if (!c)
		return;
	dns_tcp_drop(c);
	dns_flights_drop(c);
	LIST_REMOVE(c, all);
	dns_cache_done(&c->cache);
	dns_budget_done(&c->budget);
	policy_unref(c->policy);
	free(c);
}

/* Would the new policy not have admitted this cache entry? */
static bool outdated(void *ctx, const struct dns_cache_entry *e)
{
	const struct dns_client *c = ctx;
	struct dns_name name;
	char text[DNS_WIRE_TEXT_MAX];

	/* a filtered address may be open now */
	if (e->kind == DNS_CACHE_FILTERED)
		return true;
	dns_cache_name(e, &name);
	dns_name_text(&name, text);
	if (!policy_judge_dns(c->policy, text).allow)
		return true;
	if (strcmp(text, POLICY_HOST_NAME) == 0)
		return false;
	for (size_t i = 0; i < e->n_addrs; i++)
		if (policy_addr_class(c->policy, &e->addrs[i], NULL) == POLICY_ADDR_BLOCKED)
			return true;
	return false;
}

void dns_client_sweep(struct dns_client *c)
{
	dns_cache_sweep(&c->cache, outdated, c);
}

void dns_client_set_policy(struct dns_client *c, struct policy *p)
{
	struct policy *old = c->policy;

	c->policy = policy_ref(p);
	policy_unref(old);
	rate_set(c);
	dns_client_sweep(c);
	dns_client_forget(c); /* the remaining names may open other ports now */
	if (opens_ipv6(p))
		dns_nat64_want(c->proxy);
}

void dns_client_forget(struct dns_client *c)
{
	c->generation++;
}

/* Token bucket in thousandths: QPS tokens per second are QPS thousandths per millisecond. */
bool dns_client_admit(struct dns_client *c)
{
	uint64_t now = c->proxy->now_ms, full = 1000ull * c->qps * DNS_QPS_BURST_S;
	uint64_t passed = now - c->tokens_ms;

	c->tokens_ms = now;
	c->tokens_milli = passed >= 1000 * DNS_QPS_BURST_S ? full : c->tokens_milli + passed * c->qps;
	if (c->tokens_milli > full)
		c->tokens_milli = full;
	if (c->tokens_milli < 1000)
		return false;
	c->tokens_milli -= 1000;
	return true;
}
