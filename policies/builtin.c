/*
 * Built-in blocks that apply to every sandbox, whatever its policy.
 *
 * Addresses: the IANA special-purpose registries (RFC 6890 and its updates), everything outside 2000::/3, and the
 * addresses of cloud metadata services. Private and reserved ranges are SOFT: an allow_cidr with an equal or longer prefix
 * opens the addresses it covers; 0.0.0.0/0 opens none of them.
 *
 * The links between sandboxes and the gateway use addresses from 100.64.0.0/16 and fd61:6b67::/32. No rule opens these two, so
 * an allow_cidr can expose neither another sandbox nor the gateway's end of a link, through which host services are reachable.
 * The rest of 100.64.0.0/10 opens like any private range: overlay networks use it.
 */
#include "gateway/base/cleanup.h"
#include "policies/internal.h"

#include <assert.h>

#define V4(a, b, c, d, plen, how, why, label)                                                                                    \
	{                                                                                                                        \
		.net = { .family = AF_INET, .bytes = { a, b, c, d } }, .len = (plen), .kind = BUILTIN_##how,                     \
		.reason = POLICY_REASON_##why, .name = (label)                                                                   \
	}
#define V6(plen, how, why, label, ...)                                                                                           \
	{                                                                                                                        \
		.net = { .family = AF_INET6, .bytes = { __VA_ARGS__ } }, .len = (plen), .kind = BUILTIN_##how,                   \
		.reason = POLICY_REASON_##why, .name = (label)                                                                   \
	}

const uint8_t builtin_nat64[16] = { 0x00, 0x64, 0xff, 0x9b };

/* One range per line. */
/* clang-format off */
static const struct builtin_net nets[] = {
	V4(0, 0, 0, 0, 8, NEVER, RESERVED, "unspecified"),
	V4(10, 0, 0, 0, 8, SOFT, PRIVATE, "private"),
	V4(100, 64, 0, 0, 10, SOFT, PRIVATE, "private"), /* carrier NAT, RFC 6598 */
	V4(100, 64, 0, 0, 16, NEVER, PRIVATE, "sandbox links"),
	V4(127, 0, 0, 0, 8, NEVER, LOOPBACK, "loopback"),
	V4(169, 254, 0, 0, 16, NEVER, LINK_LOCAL, "link-local"),
	V4(172, 16, 0, 0, 12, SOFT, PRIVATE, "private"),
	V4(192, 0, 0, 0, 24, SOFT, RESERVED, "reserved"),
	V4(192, 0, 2, 0, 24, SOFT, RESERVED, "reserved"), /* documentation, like the next two /24 */
	V4(198, 51, 100, 0, 24, SOFT, RESERVED, "reserved"),
	V4(203, 0, 113, 0, 24, SOFT, RESERVED, "reserved"),
	V4(192, 88, 99, 0, 24, SOFT, RESERVED, "reserved"), /* 6to4 relays, RFC 7526 */
	V4(192, 168, 0, 0, 16, SOFT, PRIVATE, "private"),
	V4(198, 18, 0, 0, 15, SOFT, RESERVED, "reserved"), /* benchmarks */
	V4(224, 0, 0, 0, 4, NEVER, MULTICAST, "multicast"),
	V4(240, 0, 0, 0, 4, NEVER, RESERVED, "reserved"),
	V4(255, 255, 255, 255, 32, NEVER, MULTICAST, "broadcast"),

	V4(169, 254, 169, 254, 32, NEVER, METADATA, "metadata"), /* nearly all clouds */
	V4(169, 254, 170, 2, 32, NEVER, METADATA, "metadata"), /* AWS container credentials */
	V4(169, 254, 170, 23, 32, NEVER, METADATA, "metadata"), /* AWS pod identity */
	V4(169, 254, 0, 23, 32, NEVER, METADATA, "metadata"), /* Tencent */
	V4(168, 63, 129, 16, 32, NEVER, METADATA, "metadata"), /* Azure's host agent, in public space */
	V4(100, 100, 100, 200, 32, NEVER, METADATA, "metadata"), /* Alibaba */
	V4(192, 0, 0, 192, 32, NEVER, METADATA, "metadata"), /* Oracle */

	/* Only 2000::/3 is allocated as public unicast; these three blocks cover the rest. */
	V6(3, SOFT, RESERVED, "reserved", 0x00),
	V6(2, SOFT, RESERVED, "reserved", 0x40),
	V6(1, SOFT, RESERVED, "reserved", 0x80),
	V6(96, EMBEDDED, RESERVED, "embedded IPv4", 0x00), /* v4-compatible */
	V6(96, EMBEDDED, RESERVED, "embedded IPv4", [10] = 0xff, [11] = 0xff), /* v4-mapped */
	V6(128, NEVER, RESERVED, "unspecified", 0x00),
	V6(128, NEVER, LOOPBACK, "loopback", [15] = 0x01),
	V6(96, PUBLIC, RESERVED, "", 0x00, 0x64, 0xff, 0x9b), /* NAT64: judged as the IPv4 address inside */
	V6(23, SOFT, RESERVED, "reserved", 0x20, 0x01), /* protocol assignments */
	V6(32, EMBEDDED, RESERVED, "embedded IPv4", 0x20, 0x01), /* Teredo */
	V6(16, EMBEDDED, RESERVED, "embedded IPv4", 0x20, 0x02), /* 6to4 */
	V6(32, SOFT, RESERVED, "reserved", 0x20, 0x01, 0x0d, 0xb8), /* documentation, like the next one */
	V6(20, SOFT, RESERVED, "reserved", 0x3f, 0xff),
	V6(7, SOFT, PRIVATE, "private", 0xfc),
	V6(10, SOFT, PRIVATE, "private", 0xfe, 0xc0), /* deprecated site-local */
	V6(32, NEVER, PRIVATE, "sandbox links", 0xfd, 0x61, 0x6b, 0x67),
	V6(10, NEVER, LINK_LOCAL, "link-local", 0xfe, 0x80),
	V6(8, NEVER, MULTICAST, "multicast", 0xff),

	V6(32, NEVER, METADATA, "metadata", 0xfd, 0x00, 0x0e, 0xc2), /* AWS: ::254, ::23 and others */
	V6(128, NEVER, METADATA, "metadata", 0xfd, 0x20, 0x00, 0xce, [14] = 0x02, [15] = 0x54), /* Google */
	V6(128, NEVER, METADATA, "metadata", 0xfd, 0x00, 0x00, 0x42, [15] = 0x42), /* Scaleway */
	V6(128, NEVER, METADATA, "metadata", 0xfd, 0x00, 0x00, 0xc1, [12] = 0xa9, [13] = 0xfe, [14] = 0xa9, [15] = 0xfe), /* Oracle */
	V6(128, NEVER, METADATA, "metadata", 0xfe, 0x80, [12] = 0xa9, [13] = 0xfe, [14] = 0xa9, [15] = 0xfe), /* OpenStack */
};
/* clang-format on */

const struct builtin_net *builtin_nets(size_t *ret_n)
{
	*ret_n = ARRAY_SIZE(nets);
#ifdef AK_SABOTAGE_NOBLOCKS
	*ret_n = 0;
#endif
	return nets;
}

/* Each entry covers the name and its subdomains. */
static const struct builtin_name names[] = {
	{ "metadata", POLICY_REASON_METADATA, true },
	{ "instance-data", POLICY_REASON_METADATA, true },
	{ "metadata.google.internal", POLICY_REASON_METADATA, true },
	{ "metadata.goog", POLICY_REASON_METADATA, true },
	{ "instance-data.ec2.internal", POLICY_REASON_METADATA, true },
	{ "metadata.azure.internal", POLICY_REASON_METADATA, true },
	{ "metadata.tencentyun.com", POLICY_REASON_METADATA, true },
	{ "metadata.packet.net", POLICY_REASON_METADATA, true },
	{ "metadata.platformequinix.com", POLICY_REASON_METADATA, true },
	{ "api.metadata.cloud.ibm.com", POLICY_REASON_METADATA, true },

	{ "internal", POLICY_REASON_INTERNAL, true },
	{ "local", POLICY_REASON_INTERNAL, true },
	{ "localhost", POLICY_REASON_INTERNAL, true },
	{ "localdomain", POLICY_REASON_INTERNAL, true },
	{ "home.arpa", POLICY_REASON_INTERNAL, true },

	/* Browsers query this name to decide whether to bypass the configured resolver. */
	{ "use-application-dns.net", POLICY_REASON_RESOLVER, true },
	/* Clients query this name to discover an encrypted resolver (RFC 9462 section 6.4). */
	{ "resolver.arpa", POLICY_REASON_RESOLVER, true },

	{ "8888.google", POLICY_REASON_RESOLVER, false },
	{ "adguard-dns.com", POLICY_REASON_RESOLVER, false },
	{ "canadianshield.cira.ca", POLICY_REASON_RESOLVER, false },
	{ "cloudflare-dns.com", POLICY_REASON_RESOLVER, false },
	{ "dns.aa.net.uk", POLICY_REASON_RESOLVER, false },
	{ "dns.adguard.com", POLICY_REASON_RESOLVER, false },
	{ "dns.alidns.com", POLICY_REASON_RESOLVER, false },
	{ "dns.controld.com", POLICY_REASON_RESOLVER, false },
	{ "dns.digitale-gesellschaft.ch", POLICY_REASON_RESOLVER, false },
	{ "dns.google", POLICY_REASON_RESOLVER, false },
	{ "dns.google.com", POLICY_REASON_RESOLVER, false },
	{ "dns.mullvad.net", POLICY_REASON_RESOLVER, false },
	{ "dns.nextdns.io", POLICY_REASON_RESOLVER, false },
	{ "dns.njal.la", POLICY_REASON_RESOLVER, false },
	{ "dns.opendns.com", POLICY_REASON_RESOLVER, false },
	{ "dns.quad9.net", POLICY_REASON_RESOLVER, false },
	{ "dns.sb", POLICY_REASON_RESOLVER, false },
	{ "dns.switch.ch", POLICY_REASON_RESOLVER, false },
	{ "dns.twnic.tw", POLICY_REASON_RESOLVER, false },
	{ "dns.umbrella.com", POLICY_REASON_RESOLVER, false },
	{ "dns0.eu", POLICY_REASON_RESOLVER, false },
	{ "dns10.quad9.net", POLICY_REASON_RESOLVER, false },
	{ "dns11.quad9.net", POLICY_REASON_RESOLVER, false },
	{ "dns12.quad9.net", POLICY_REASON_RESOLVER, false },
	{ "dns9.quad9.net", POLICY_REASON_RESOLVER, false },
	{ "doh.360.cn", POLICY_REASON_RESOLVER, false },
	{ "doh.applied-privacy.net", POLICY_REASON_RESOLVER, false },
	{ "doh.cleanbrowsing.org", POLICY_REASON_RESOLVER, false },
	{ "doh.familyshield.opendns.com", POLICY_REASON_RESOLVER, false },
	{ "doh.libredns.gr", POLICY_REASON_RESOLVER, false },
	{ "doh.mullvad.net", POLICY_REASON_RESOLVER, false },
	{ "doh.opendns.com", POLICY_REASON_RESOLVER, false },
	{ "doh.pub", POLICY_REASON_RESOLVER, false },
	{ "doh.sb", POLICY_REASON_RESOLVER, false },
	{ "doh.umbrella.com", POLICY_REASON_RESOLVER, false },
	{ "doh.xfinity.com", POLICY_REASON_RESOLVER, false },
	{ "dot.libredns.gr", POLICY_REASON_RESOLVER, false },
	{ "dot.pub", POLICY_REASON_RESOLVER, false },
	{ "freedns.controld.com", POLICY_REASON_RESOLVER, false },
	{ "joindns4.eu", POLICY_REASON_RESOLVER, false },
	{ "one.one.one.one", POLICY_REASON_RESOLVER, false },
	{ "ordns.he.net", POLICY_REASON_RESOLVER, false },
};

const struct builtin_name *builtin_names(size_t *ret_n)
{
	*ret_n = ARRAY_SIZE(names);
	return names;
}

static const char *const rule_names[] = {
	[POLICY_REASON_RULE] = "",
	[POLICY_REASON_DEFAULT] = "",
	[POLICY_REASON_METADATA] = "metadata",
	[POLICY_REASON_LOOPBACK] = "loopback",
	[POLICY_REASON_LINK_LOCAL] = "link-local",
	[POLICY_REASON_PRIVATE] = "private",
	[POLICY_REASON_MULTICAST] = "multicast",
	[POLICY_REASON_RESERVED] = "reserved",
	[POLICY_REASON_INTERNAL] = "internal",
	[POLICY_REASON_RESOLVER] = "resolver",
	[POLICY_REASON_ADDRESS] = "",
	[POLICY_REASON_UNREAD] = "",
};
static_assert(ARRAY_SIZE(rule_names) == POLICY_REASON_NUM, "a name for each reason");

const char *builtin_rule_name(enum policy_reason reason)
{
	return rule_names[reason];
}
