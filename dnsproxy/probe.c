/*
 * Detects internal names before records other than addresses are passed on.
 *
 * The host's resolver may know names that are not public, such as a company's own zones, and the sandbox must not learn about
 * them. Their addresses give them away: a name is internal if all its addresses are blocked, or, if it has none, if those of
 * the nearest parent name with addresses are. Service labels ("_ldap._tcp") are skipped.
 */
#include "dnsproxy/internal.h"

#include <string.h>

#define LEVELS_MAX 4

static size_t labels_from(const struct dns_name *name, size_t off)
{
	size_t n = 0;

	for (; name->wire[off]; off += 1u + name->wire[off])
		n++;
	return n;
}

void dns_probe_begin(struct dns_probe *p, const struct dns_name *name, uint16_t qtype)
{
	*p = (struct dns_probe){ .active = qtype != DNS_TYPE_A && qtype != DNS_TYPE_AAAA, .qtype = DNS_TYPE_A };
	for (size_t off = 0; name->wire[off]; off += 1u + name->wire[off])
		if (name->wire[off + 1] == '_' && labels_from(name, off) > 2)
			p->off = (uint8_t)(off + 1u + name->wire[off]);
}

void dns_probe_name(const struct dns_probe *p, const struct dns_name *name, struct dns_name *ret)
{
	ret->len = (uint8_t)(name->len - p->off);
	memcpy(ret->wire, name->wire + p->off, ret->len);
}

static bool all_blocked(const struct policy *policy, const struct dns_reply *r)
{
	for (size_t i = 0; i < r->n_addrs; i++)
		if (policy_addr_class(policy, &r->addrs[i], NULL) != POLICY_ADDR_BLOCKED)
			return false;
	return true;
}

enum dns_probed dns_probe_answered(
	struct dns_probe *p, const struct dns_name *name, const struct policy *policy, const struct dns_reply *r)
{
	if (r->n_addrs > 0)
		return all_blocked(policy, r) ? DNS_PROBED_INTERNAL : DNS_PROBED_PUBLIC;
	if (p->qtype == DNS_TYPE_A) {
		p->qtype = DNS_TYPE_AAAA;
		return DNS_PROBED_ON;
	}
	p->qtype = DNS_TYPE_A;
	p->off = (uint8_t)(p->off + 1u + name->wire[p->off]);
	return ++p->levels < LEVELS_MAX && labels_from(name, p->off) >= 2 ? DNS_PROBED_ON : DNS_PROBED_PUBLIC;
}
