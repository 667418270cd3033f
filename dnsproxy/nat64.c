/*
 * Discovers the NAT64 prefix of the host's network (RFC 7050): queries AAAA of ipv4only.arpa. The name has no AAAA records, so
 * any answer is synthesized by the network. Sent when IPv6 addresses first matter, and again when the result is old or the
 * resolvers change.
 */
#include "dnsproxy/internal.h"

#include <errno.h>

#define NAMED "ipv4only.arpa"
#define AGAIN_MIN_S 60
#define AGAIN_MAX_S 3600
#define AFTER_FAILURE_MS 10000

void dns_nat64_reset(struct dns_proxy *proxy)
{
	proxy->nat64.again_ms = 0;
	if (proxy->ipv6)
		policy_nat64_unknown();
}

void dns_nat64_want(struct dns_proxy *proxy)
{
	struct dns_name name;

	if (!proxy->ipv6 || proxy->nat64.asking || proxy->now_ms < proxy->nat64.again_ms)
		return;
	if (dns_name_from_text(NAMED, &name) < 0)
		return;
	proxy->nat64.asking = true;
	if (dns_upstream_ask(proxy->upstream, DNS_NAT64_ID, &name, DNS_TYPE_AAAA, dns_upstream_edns(proxy->upstream)) < 0)
		proxy->nat64.asking = false;
}

/* Judge the cached addresses again: a blocked one may be open now, and the other way round. */
static void judge_again(struct dns_proxy *proxy)
{
	struct dns_client *c;

	LIST_FOREACH(c, &proxy->clients, all)
		dns_client_sweep(c);
}

static void learn(struct dns_proxy *proxy, const struct dns_reply *r)
{
	struct policy_prefix found[POLICY_NAT64_MAX];
	size_t n = 0;

	for (size_t i = 0; i < r->n_addrs && n < POLICY_NAT64_MAX; i++)
		n += policy_nat64_prefix(&r->addrs[i], &found[n]);
	policy_nat64_set(found, n);
	judge_again(proxy);
}

void dns_nat64_answered(struct dns_proxy *proxy, int status, const uint8_t *msg, size_t len)
{
	struct dns_reply r;
	struct dns_name name;
	const char *why;
	uint32_t ttl_s;

	proxy->nat64.asking = false;
	proxy->nat64.again_ms = proxy->now_ms + AFTER_FAILURE_MS;
	if (status < 0 || dns_name_from_text(NAMED, &name) < 0 || dns_reply_parse(msg, len, &name, DNS_TYPE_AAAA, &r, &why) < 0)
		return;
	if (r.rcode != DNS_RCODE_NOERROR && r.rcode != DNS_RCODE_NXDOMAIN)
		return;
	ttl_s = r.n_addrs ? r.ttl_s : r.negative_ttl_s;
	ttl_s = ttl_s < AGAIN_MIN_S ? AGAIN_MIN_S : ttl_s > AGAIN_MAX_S ? AGAIN_MAX_S : ttl_s;
	proxy->nat64.again_ms = proxy->now_ms + ttl_s * 1000ull;
	learn(proxy, &r);
}
