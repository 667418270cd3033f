/*
 * The netdev table: accepts only frames from the sandbox's MAC with plain IPv4 or IPv6. The rules of ruleset.c judge the
 * accepted packets.
 */
#include "nft/ruleset.h"

#include "gateway/base/cleanup.h"
#include "nft/object.h"
#include "nft/rule.h"

#include <linux/if_ether.h>
#include <linux/netfilter.h>
#include <netinet/in.h>

#define SIX "six"
#define ENTERED "entered"

/* Hop-by-hop, routing, fragment, AH, destination options, mobility, HIP, shim6. */
static const uint8_t ipv6_extensions[] = { 0, 43, 44, 51, 60, 135, 139, 140 };

/* chain entered { 1 meta mark set FW_MARK_FIRST accept }: the mark selects the table that judges the packet */
static void build_entered(struct fw_batch *b, uint32_t mark)
{
	struct fw_chain c = fw_chain_add(b, NFPROTO_NETDEV, b->table, ENTERED);
	struct fw_rule r = fw_rule_begin(&c);

	fw_rule_set_mark(&r, mark);
	fw_rule_accept(&r);
	fw_rule_end(&r);
}

/*
 * chain six {                                       goto entered for accepted IPv6; return for the rest
 *   1 ip6 saddr fe80::/10 ip6 daddr ff02::/16 drop
 *   2 ip6 saddr :: ip6 daddr ff02::/16 drop
 *        sent by every kernel when a link comes up (neighbour and router solicitation, group reports): not an attempt by
 *        a program, so not counted
 *   3 ip6 nexthdr @extensions return
 *   4 goto entered
 * }
 */
static void build_links_six(struct fw_batch *b)
{
	static const struct {
		struct ak_addr net;
		unsigned len;
	} chatter[] = { { { AF_INET6, { 0xfe, 0x80 } }, 10 }, { { AF_INET6, { 0 } }, 128 } };
	static const struct ak_addr link_group = { AF_INET6, { 0xff, 0x02 } };
	struct fw_chain c = fw_chain_add(b, NFPROTO_NETDEV, b->table, SIX);
	struct fw_rule r;

	for (size_t i = 0; i < ARRAY_SIZE(chatter); i++) {
		r = fw_rule_begin(&c);
		fw_rule_prefix6(&r, FW_SRC, &chatter[i].net, chatter[i].len);
		fw_rule_prefix6(&r, FW_DST, &link_group, 16);
		fw_rule_drop(&r);
		fw_rule_end(&r);
	}

	r = fw_rule_begin(&c);
	fw_rule_next_header_in(&r, "extensions");
	fw_rule_return(&r);
	fw_rule_end(&r);

	r = fw_rule_begin(&c);
	fw_rule_goto(&r, ENTERED);
	fw_rule_end(&r);
}

/* table netdev agentkernel: the objects that all links share */
void fw_build_links(struct fw_batch *b, uint32_t mark)
{
	fw_table_replace(b, NFPROTO_NETDEV, b->table);
	fw_set_add(b, NFPROTO_NETDEV, b->table, "extensions", &fw_set_protocol);
	fw_protocols_add(b, b->table, "extensions", ipv6_extensions, sizeof(ipv6_extensions));
	build_entered(b, mark);
	build_links_six(b);
}

/* chain sb7_odd { 1 counter name "sb7_odd" limit log prefix "ak:7:proto"; 2 drop }: IP in a form that is not accepted */
static void build_link_odd(struct fw_batch *b, uint32_t id)
{
	struct fw_name prefix = fw_name_prefix(id, FW_REASON_PROTO), odd = fw_name(id, FW_LINK_ODD);
	struct fw_chain c = fw_chain_add(b, NFPROTO_NETDEV, b->table, odd.text);
	struct fw_rule r = fw_rule_begin(&c);

	fw_rule_counter(&r, odd.text);
	fw_rule_limit(&r);
	fw_rule_log(&r, prefix.text);
	fw_rule_end(&r);

	r = fw_rule_begin(&c);
	fw_rule_drop(&r);
	fw_rule_end(&r);
}

/*
 * 2 ether type ip @nh,0,8 0x45 ip frag-off & 0x3fff == 0 goto entered
 * 3 ether type ip goto sb7_odd                      options, fragments
 */
static void build_link_ipv4(struct fw_chain *c, const char *odd)
{
	struct fw_rule r = fw_rule_begin(c);

	fw_rule_ethertype(&r, ETH_P_IP);
	fw_rule_plain_ipv4(&r);
	fw_rule_goto(&r, ENTERED);
	fw_rule_end(&r);

	r = fw_rule_begin(c);
	fw_rule_ethertype(&r, ETH_P_IP);
	fw_rule_goto(&r, odd);
	fw_rule_end(&r);
}

/*
 * 4 ether type ip6 jump six
 * 5 ether type ip6 goto sb7_odd                     extension headers
 * With IPv6 off, drop it without counting: the sandbox's kernel sends solicitations anyway.
 */
static void build_link_ipv6(struct fw_chain *c, const char *odd, bool on)
{
	struct fw_rule r = fw_rule_begin(c);

	fw_rule_ethertype(&r, ETH_P_IPV6);
	if (on)
		fw_rule_jump(&r, SIX);
	else
		fw_rule_drop(&r);
	fw_rule_end(&r);
	if (!on)
		return;
	r = fw_rule_begin(c);
	fw_rule_ethertype(&r, ETH_P_IPV6);
	fw_rule_goto(&r, odd);
	fw_rule_end(&r);
}

/*
 * chain sb7 { hook ingress device ak7; policy drop
 *   1 ether saddr != 02:… counter name "sb7_dropped" drop
 *   2–3 IPv4, 4–5 IPv6
 *   6 counter name "sb7_dropped" drop               ARP, VLAN and others: neighbours are static
 * }
 */
void fw_build_link(struct fw_batch *b, const struct fw_link *link)
{
	struct fw_name name = fw_name(link->id, ""), dropped = fw_name(link->id, FW_LINK_DROPPED),
		       odd = fw_name(link->id, FW_LINK_ODD);
	struct fw_hook hook = { NF_NETDEV_INGRESS, "ingress", 0, false, link->ifname };
	struct fw_chain c;
	struct fw_rule r;

	fw_counter_add(b, NFPROTO_NETDEV, b->table, dropped.text);
	fw_counter_add(b, NFPROTO_NETDEV, b->table, odd.text);
	build_link_odd(b, link->id);

	c = fw_chain_add_base(b, NFPROTO_NETDEV, b->table, name.text, &hook);
#ifdef AK_SABOTAGE_NOINGRESS
	r = fw_rule_begin(&c);
	fw_rule_goto(&r, ENTERED);
	fw_rule_end(&r);
#endif
	r = fw_rule_begin(&c);
	fw_rule_mac_not(&r, link->peer_mac);
	fw_rule_counter(&r, dropped.text);
	fw_rule_drop(&r);
	fw_rule_end(&r);
	if (fw_link_has(link, AF_INET))
		build_link_ipv4(&c, odd.text);
	build_link_ipv6(&c, odd.text, fw_link_has(link, AF_INET6));
	r = fw_rule_begin(&c);
	fw_rule_counter(&r, dropped.text);
	fw_rule_drop(&r);
	fw_rule_end(&r);
}

/* If the link is already gone, older kernels have removed the chain with it. */
void fw_build_link_remove(struct fw_batch *b, uint32_t id)
{
	struct fw_name name = fw_name(id, ""), dropped = fw_name(id, FW_LINK_DROPPED), odd = fw_name(id, FW_LINK_ODD);

	fw_chain_ensure(b, NFPROTO_NETDEV, name.text);
	fw_chain_remove(b, NFPROTO_NETDEV, name.text);
	fw_chain_remove(b, NFPROTO_NETDEV, odd.text);
	fw_counter_remove(b, NFPROTO_NETDEV, dropped.text);
	fw_counter_remove(b, NFPROTO_NETDEV, odd.text);
}
