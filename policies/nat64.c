/*
 * IPv4 addresses embedded in IPv6 addresses that no fixed range describes: ISATAP interfaces, possible in any network, and
 * the NAT64 prefix of the host's network, which must be discovered (RFC 7050).
 *
 * The prefixes belong to the host, not to a policy, so they are stored once per process. The kernel's sets do not contain
 * them: the relay judges connections and the DNS proxy judges answers, both with policy_addr_class.
 */
#include "policies/internal.h"

#include <string.h>

static struct {
	struct policy_prefix prefixes[POLICY_NAT64_MAX];
	size_t n;
	bool unknown;
} host;

/* RFC 6052 section 2.2. */
static const uint8_t lengths[] = { 32, 40, 48, 56, 64, 96 };

/* Read the IPv4 address after a prefix of LEN bits, skipping octet 8. False if that octet is not 0. */
static bool address_at(const struct ak_addr *a, unsigned len, struct ak_addr *ret)
{
	size_t at = len / 8;

	*ret = (struct ak_addr){ .family = AF_INET };
	if (len < 96 && a->bytes[8] != 0)
		return false;
	for (size_t i = 0; i < 4; i++) {
		at += at == 8;
		ret->bytes[i] = a->bytes[at++];
	}
	return true;
}

void policy_nat64_unknown(void)
{
	host.n = 0;
	host.unknown = true;
}

void policy_nat64_set(const struct policy_prefix *prefixes, size_t n)
{
	host.unknown = false;
	host.n = n < POLICY_NAT64_MAX ? n : POLICY_NAT64_MAX;
	if (host.n)
		memcpy(host.prefixes, prefixes, host.n * sizeof(*prefixes));
}

bool policy_nat64_prefix(const struct ak_addr *synthesized, struct policy_prefix *ret)
{
	/* 192.0.0.170 and .171 have no other use (RFC 7050 section 8). */
	static const uint8_t known[] = { 192, 0, 0 };

	for (size_t i = 0; i < sizeof(lengths); i++) {
		struct ak_addr v4;

		if (!address_at(synthesized, lengths[i], &v4) || memcmp(v4.bytes, known, sizeof(known)) != 0 ||
			(v4.bytes[3] & 0xfe) != 170)
			continue;
		*ret = (struct policy_prefix){ .net = *synthesized, .len = lengths[i] };
		memset(ret->net.bytes + lengths[i] / 8, 0, 16 - lengths[i] / 8);
		return true;
	}
	return false;
}

/* RFC 5214 section 6.1: the interface identifier is [00|02]00:5efe followed by the IPv4 address. */
static bool isatap(const struct ak_addr *a, struct ak_addr *ret)
{
	const uint8_t *b = a->bytes;

	*ret = (struct ak_addr){ .family = AF_INET };
	memcpy(ret->bytes, b + 12, 4);
	return (b[8] & 0xfd) == 0 && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe;
}

/* Reserved ranges do not count: most IPv6 addresses have small numbers and ones at these positions. */
static bool is_blocked_v4(const struct policy *p, const struct ak_addr *v4)
{
	struct policy_decision d;

	if (policy_addr_class(p, v4, &d) != POLICY_ADDR_BLOCKED)
		return false;
	return d.reason != POLICY_REASON_RESERVED && d.reason != POLICY_REASON_MULTICAST;
}

bool hidden_v4(const struct policy *p, const struct ak_addr *a, struct ak_addr *ret)
{
	if (isatap(a, ret))
		return true;
	for (size_t i = 0; i < host.n; i++) {
		if (ak_addr_in_prefix(a, &host.prefixes[i].net, host.prefixes[i].len))
			return address_at(a, host.prefixes[i].len, ret);
	}
	for (size_t i = 0; host.unknown && i < sizeof(lengths); i++) {
		if (address_at(a, lengths[i], ret) && is_blocked_v4(p, ret))
			return true;
	}
	return false;
}
