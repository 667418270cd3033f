/* Rules: see rule.h. The helpers at the top append one expression each; the others combine them. */
#include "nft/rule.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/icmp.h>
#include <linux/icmpv6.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/netfilter.h>
#include <linux/tcp.h>
#include <net/if_arp.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <string.h>

#include <libnftnl/expr.h>
#include <libnftnl/rule.h>

#define LOG_RATE 100 /* records per second and rule */
#define LOG_BURST 200
#define LOG_SNAPLEN 96 /* enough for an IPv6 header without extensions and the ports */

/* ---- begin and end ---- */

struct fw_rule fw_rule_begin(struct fw_chain *chain)
{
	struct fw_rule r = { .batch = chain->batch, .family = chain->family, .chain = chain->name, .number = ++chain->n_rules };

	r.nlr = nftnl_rule_alloc();
	if (!r.nlr) {
		fw_batch_fail(r.batch, -ENOMEM);
		return r;
	}
	nftnl_rule_set_str(r.nlr, NFTNL_RULE_TABLE, chain->table);
	nftnl_rule_set_str(r.nlr, NFTNL_RULE_CHAIN, chain->name);
	fw_batch_text(
		r.batch, "add rule %s %s %s", chain->family == NFPROTO_NETDEV ? "netdev" : "inet", chain->table, chain->name);
	return r;
}

void fw_rule_end(struct fw_rule *r)
{
	struct nlmsghdr *nlh;

	if (!r->nlr)
		return;
	nlh = fw_batch_get(r->batch, NFT_MSG_NEWRULE, r->family, NLM_F_CREATE | NLM_F_APPEND, "rule", r->chain);
	if (nlh) {
		r->batch->entries[r->batch->n].rule = r->number;
		nftnl_rule_nlmsg_build_payload(nlh, r->nlr);
		fw_batch_put(r->batch, nlh);
	}
	nftnl_rule_free(r->nlr);
	r->nlr = NULL;
	fw_batch_text(r->batch, "\n");
}

/* ---- one helper per kind of expression ---- */

/* Append an expression of KIND; NULL if out of memory. */
static struct nftnl_expr *add(struct fw_rule *r, const char *kind)
{
	struct nftnl_expr *e = r->nlr ? nftnl_expr_alloc(kind) : NULL;

	if (e) {
		nftnl_rule_add_expr(r->nlr, e);
	} else if (r->nlr) {
		fw_batch_fail(r->batch, -ENOMEM);
		nftnl_rule_free(r->nlr);
		r->nlr = NULL;
	}
	return e;
}

static void add_meta(struct fw_rule *r, uint32_t key)
{
	struct nftnl_expr *e = add(r, "meta");

	if (!e)
		return;
	nftnl_expr_set_u32(e, NFTNL_EXPR_META_KEY, key);
	nftnl_expr_set_u32(e, NFTNL_EXPR_META_DREG, NFT_REG_1);
}

static void add_payload(struct fw_rule *r, uint32_t base, uint32_t offset, uint32_t len, uint32_t reg)
{
	struct nftnl_expr *e = add(r, "payload");

	if (!e)
		return;
	nftnl_expr_set_u32(e, NFTNL_EXPR_PAYLOAD_BASE, base);
	nftnl_expr_set_u32(e, NFTNL_EXPR_PAYLOAD_OFFSET, offset);
	nftnl_expr_set_u32(e, NFTNL_EXPR_PAYLOAD_LEN, len);
	nftnl_expr_set_u32(e, NFTNL_EXPR_PAYLOAD_DREG, reg);
}

static void add_cmp(struct fw_rule *r, enum fw_op op, const void *data, uint32_t len)
{
	struct nftnl_expr *e = add(r, "cmp");

	if (!e)
		return;
	nftnl_expr_set_u32(e, NFTNL_EXPR_CMP_SREG, NFT_REG_1);
	nftnl_expr_set_u32(e, NFTNL_EXPR_CMP_OP, op == FW_EQ ? NFT_CMP_EQ : NFT_CMP_NEQ);
	nftnl_expr_set_data(e, NFTNL_EXPR_CMP_DATA, data, len);
}

static void add_cmp8(struct fw_rule *r, enum fw_op op, uint8_t v)
{
	add_cmp(r, op, &v, sizeof(v));
}

static void add_and(struct fw_rule *r, const void *mask, uint32_t len)
{
	static const uint8_t zero[16];
	struct nftnl_expr *e = add(r, "bitwise");

	if (!e)
		return;
	nftnl_expr_set_u32(e, NFTNL_EXPR_BITWISE_SREG, NFT_REG_1);
	nftnl_expr_set_u32(e, NFTNL_EXPR_BITWISE_DREG, NFT_REG_1);
	nftnl_expr_set_u32(e, NFTNL_EXPR_BITWISE_LEN, len);
	nftnl_expr_set_data(e, NFTNL_EXPR_BITWISE_MASK, mask, len);
	nftnl_expr_set_data(e, NFTNL_EXPR_BITWISE_XOR, zero, len);
}

static void add_lookup(struct fw_rule *r, const char *set, bool verdict)
{
	struct nftnl_expr *e = add(r, "lookup");

	if (!e)
		return;
	nftnl_expr_set_u32(e, NFTNL_EXPR_LOOKUP_SREG, NFT_REG_1);
	nftnl_expr_set_str(e, NFTNL_EXPR_LOOKUP_SET, set);
	if (verdict)
		nftnl_expr_set_u32(e, NFTNL_EXPR_LOOKUP_DREG, NFT_REG_VERDICT);
}

static void add_immediate(struct fw_rule *r, const void *data, uint32_t len)
{
	struct nftnl_expr *e = add(r, "immediate");

	if (!e)
		return;
	nftnl_expr_set_u32(e, NFTNL_EXPR_IMM_DREG, NFT_REG_1);
	nftnl_expr_set_data(e, NFTNL_EXPR_IMM_DATA, data, len);
}

static void add_verdict(struct fw_rule *r, int verdict, const char *chain)
{
	struct nftnl_expr *e = add(r, "immediate");

	if (!e)
		return;
	nftnl_expr_set_u32(e, NFTNL_EXPR_IMM_DREG, NFT_REG_VERDICT);
	nftnl_expr_set_u32(e, NFTNL_EXPR_IMM_VERDICT, (uint32_t)verdict);
	if (chain)
		nftnl_expr_set_str(e, NFTNL_EXPR_IMM_CHAIN, chain);
}

static void add_reject(struct fw_rule *r, uint32_t type, uint8_t code)
{
	struct nftnl_expr *e = add(r, "reject");

	if (!e)
		return;
	nftnl_expr_set_u32(e, NFTNL_EXPR_REJECT_TYPE, type);
	nftnl_expr_set_u8(e, NFTNL_EXPR_REJECT_CODE, code);
}

/* ---- implicit dependencies of a match: not printed, as nft does not print them either ---- */

static void need_nfproto(struct fw_rule *r, int family)
{
	add_meta(r, NFT_META_NFPROTO);
	add_cmp8(r, FW_EQ, family == AF_INET ? NFPROTO_IPV4 : NFPROTO_IPV6);
}

static void need_l4proto(struct fw_rule *r, uint8_t proto)
{
	add_meta(r, NFT_META_L4PROTO);
	add_cmp8(r, FW_EQ, proto);
}

static void need_ethernet(struct fw_rule *r)
{
	uint16_t type = ARPHRD_ETHER;

	add_meta(r, NFT_META_IIFTYPE);
	add_cmp(r, FW_EQ, &type, sizeof(type));
}

static const char *op_text(enum fw_op op)
{
	return op == FW_EQ ? "" : "!= ";
}

static const char *proto_text(enum policy_proto proto)
{
	return proto == POLICY_TCP ? "tcp" : "udp";
}

static uint8_t proto_number(enum policy_proto proto)
{
	return proto == POLICY_TCP ? IPPROTO_TCP : IPPROTO_UDP;
}

static void load_addr(struct fw_rule *r, int family, enum fw_side side)
{
	if (family == AF_INET)
		add_payload(r, NFT_PAYLOAD_NETWORK_HEADER, side == FW_SRC ? 12 : 16, 4, NFT_REG_1);
	else
		add_payload(r, NFT_PAYLOAD_NETWORK_HEADER, side == FW_SRC ? 8 : 24, 16, NFT_REG_1);
}

/* ---- matches ---- */

/* meta nfproto ipv6 */
void fw_rule_nfproto(struct fw_rule *r, int family)
{
	need_nfproto(r, family);
	fw_batch_text(r->batch, " meta nfproto %s", family == AF_INET ? "ipv4" : "ipv6");
}

/* meta l4proto != tcp */
void fw_rule_l4proto(struct fw_rule *r, enum fw_op op, uint8_t proto)
{
	add_meta(r, NFT_META_L4PROTO);
	add_cmp8(r, op, proto);
	fw_batch_text(r->batch, " meta l4proto %s%s", op_text(op), proto == IPPROTO_TCP ? "tcp" : "udp");
}

/* ip saddr != 100.64.0.30 */
void fw_rule_addr(struct fw_rule *r, enum fw_side side, enum fw_op op, const struct ak_addr *a)
{
	char text[AK_ADDR_TEXT];

	need_nfproto(r, a->family);
	load_addr(r, a->family, side);
	add_cmp(r, op, a->bytes, a->family == AF_INET ? 4 : 16);
	fw_batch_text(r->batch, " %s %s %s%s", a->family == AF_INET ? "ip" : "ip6", side == FW_SRC ? "saddr" : "daddr",
		op_text(op), ak_addr_print(a, text));
}

/* ip daddr @sb7_blk4 */
void fw_rule_addr_in(struct fw_rule *r, int family, const char *set)
{
	need_nfproto(r, family);
	load_addr(r, family, FW_DST);
	add_lookup(r, set, false);
	fw_batch_text(r->batch, " %s daddr @%s", family == AF_INET ? "ip" : "ip6", set);
}

/* th dport 53: only after a match on TCP or UDP */
void fw_rule_dport(struct fw_rule *r, uint16_t port)
{
	uint16_t be = htons(port);

	add_payload(r, NFT_PAYLOAD_TRANSPORT_HEADER, 2, 2, NFT_REG_1);
	add_cmp(r, FW_EQ, &be, sizeof(be));
	fw_batch_text(r->batch, " th dport %u", port);
}

/* ip daddr . tcp dport @sb7_tcp4: the port is in the first 32-bit register after the address */
void fw_rule_dst_port_in(struct fw_rule *r, int family, enum policy_proto proto, const char *set)
{
	need_nfproto(r, family);
	need_l4proto(r, proto_number(proto));
	load_addr(r, family, FW_DST);
	add_payload(r, NFT_PAYLOAD_TRANSPORT_HEADER, 2, 2, family == AF_INET ? NFT_REG32_01 : NFT_REG32_04);
	add_lookup(r, set, false);
	fw_batch_text(r->batch, " %s daddr . %s dport @%s", family == AF_INET ? "ip" : "ip6", proto_text(proto), set);
}

#define TCP_FLAGS_OFFSET 13
#define TCP_FIN 0x01
#define TCP_SYN 0x02
#define TCP_RST 0x04
#define TCP_ACK 0x10

/* tcp flags & (fin | syn | rst | ack) != syn: any TCP packet that does not open a connection */
void fw_rule_not_first_syn(struct fw_rule *r)
{
	uint8_t mask = TCP_FIN | TCP_SYN | TCP_RST | TCP_ACK;

	need_l4proto(r, IPPROTO_TCP);
	add_payload(r, NFT_PAYLOAD_TRANSPORT_HEADER, TCP_FLAGS_OFFSET, 1, NFT_REG_1);
	add_and(r, &mask, sizeof(mask));
	add_cmp8(r, FW_NE, TCP_SYN);
	fw_batch_text(r->batch, " tcp flags & (fin | syn | rst | ack) != syn");
}

/* tcp flags rst */
void fw_rule_tcp_rst(struct fw_rule *r)
{
	uint8_t mask = TCP_RST;

	need_l4proto(r, IPPROTO_TCP);
	add_payload(r, NFT_PAYLOAD_TRANSPORT_HEADER, TCP_FLAGS_OFFSET, 1, NFT_REG_1);
	add_and(r, &mask, sizeof(mask));
	add_cmp8(r, FW_NE, 0);
	fw_batch_text(r->batch, " tcp flags rst");
}

/* icmp type 3 */
void fw_rule_icmp_type(struct fw_rule *r, int family, uint8_t type)
{
	need_nfproto(r, family);
	need_l4proto(r, family == AF_INET ? IPPROTO_ICMP : IPPROTO_ICMPV6);
	add_payload(r, NFT_PAYLOAD_TRANSPORT_HEADER, 0, 1, NFT_REG_1);
	add_cmp8(r, FW_EQ, type);
	fw_batch_text(r->batch, " %s type %u", family == AF_INET ? "icmp" : "icmpv6", type);
}

/* meta pkttype != host */
void fw_rule_not_to_host(struct fw_rule *r)
{
	add_meta(r, NFT_META_PKTTYPE);
	add_cmp8(r, FW_NE, PACKET_HOST);
	fw_batch_text(r->batch, " meta pkttype != 0");
}

/* meta mark 0x616b0001 */
void fw_rule_mark(struct fw_rule *r, uint32_t mark)
{
	add_meta(r, NFT_META_MARK);
	add_cmp(r, FW_EQ, &mark, sizeof(mark));
	fw_batch_text(r->batch, " meta mark 0x%08x", mark);
}

/* meta mark & 0xffffff00 == 0x616b0200 */
void fw_rule_mark_kind(struct fw_rule *r, uint32_t mark)
{
	static const uint32_t mask = FW_MARK_KIND;

	add_meta(r, NFT_META_MARK);
	add_and(r, &mask, sizeof(mask));
	add_cmp(r, FW_EQ, &mark, sizeof(mark));
	fw_batch_text(r->batch, " meta mark & 0x%08x == 0x%08x", mask, mark);
}

/* oifname "ak*": a comparison shorter than the register is a prefix match */
void fw_rule_out_link(struct fw_rule *r)
{
	add_meta(r, NFT_META_OIFNAME);
	add_cmp(r, FW_EQ, "ak", 2);
	fw_batch_text(r->batch, " oifname \"ak*\"");
}

/* socket transparent 1 */
void fw_rule_socket_transparent(struct fw_rule *r)
{
	struct nftnl_expr *e = add(r, "socket");

	if (!e)
		return;
	nftnl_expr_set_u32(e, NFTNL_EXPR_SOCKET_KEY, NFT_SOCKET_TRANSPARENT);
	nftnl_expr_set_u32(e, NFTNL_EXPR_SOCKET_DREG, NFT_REG_1);
	add_cmp8(r, FW_EQ, 1);
	fw_batch_text(r->batch, " socket transparent 1");
}

/* ---- matches at the link ---- */

/* ether saddr != 02:00:00:00:00:02 */
void fw_rule_mac_not(struct fw_rule *r, const uint8_t mac[static 6])
{
	need_ethernet(r);
	add_payload(r, NFT_PAYLOAD_LL_HEADER, ETH_ALEN, ETH_ALEN, NFT_REG_1);
	add_cmp(r, FW_NE, mac, ETH_ALEN);
	fw_batch_text(r->batch, " ether saddr != %02x:%02x:%02x:%02x:%02x:%02x", mac[0], mac[1], mac[2], mac[3], mac[4], mac[5]);
}

/* ether type ip: read from the frame, which shows a VLAN tag even after the kernel removed it */
void fw_rule_ethertype(struct fw_rule *r, uint16_t type)
{
	uint16_t be = htons(type);

	need_ethernet(r);
	add_payload(r, NFT_PAYLOAD_LL_HEADER, 2 * ETH_ALEN, 2, NFT_REG_1);
	add_cmp(r, FW_EQ, &be, sizeof(be));
	fw_batch_text(r->batch, " ether type %s", type == ETH_P_IP ? "ip" : "ip6");
}

/* @nh,0,8 0x45 ip frag-off & 0x3fff == 0: version 4, no options, not a fragment */
void fw_rule_plain_ipv4(struct fw_rule *r)
{
	uint16_t mask = htons(0x3fff), zero = 0;

	add_payload(r, NFT_PAYLOAD_NETWORK_HEADER, 0, 1, NFT_REG_1);
	add_cmp8(r, FW_EQ, 0x45);
	add_payload(r, NFT_PAYLOAD_NETWORK_HEADER, 6, 2, NFT_REG_1);
	add_and(r, &mask, sizeof(mask));
	add_cmp(r, FW_EQ, &zero, sizeof(zero));
	fw_batch_text(r->batch, " @nh,0,8 0x45 ip frag-off & 0x3fff == 0");
}

/* ip6 nexthdr @extensions */
void fw_rule_next_header_in(struct fw_rule *r, const char *set)
{
	add_payload(r, NFT_PAYLOAD_NETWORK_HEADER, 6, 1, NFT_REG_1);
	add_lookup(r, set, false);
	fw_batch_text(r->batch, " ip6 nexthdr @%s", set);
}

/* ip6 saddr fe80::/10 */
void fw_rule_prefix6(struct fw_rule *r, enum fw_side side, const struct ak_addr *net, unsigned len)
{
	uint8_t mask[16] = { 0 };
	char text[AK_ADDR_TEXT];

	for (unsigned i = 0; i < len && i < 128; i++)
		mask[i / 8] |= (uint8_t)(0x80 >> (i % 8));
	load_addr(r, AF_INET6, side);
	if (len < 128)
		add_and(r, mask, sizeof(mask));
	add_cmp(r, FW_EQ, net->bytes, sizeof(mask));
	fw_batch_text(r->batch, " ip6 %s %s", side == FW_SRC ? "saddr" : "daddr", ak_addr_print(net, text));
	if (len < 128)
		fw_batch_text(r->batch, "/%u", len);
}

/* ---- statements ---- */

/* counter name "sb7_admitted" */
void fw_rule_counter(struct fw_rule *r, const char *name)
{
	struct nftnl_expr *e = add(r, "objref");

	if (!e)
		return;
	nftnl_expr_set_u32(e, NFTNL_EXPR_OBJREF_IMM_TYPE, NFT_OBJECT_COUNTER);
	nftnl_expr_set_str(e, NFTNL_EXPR_OBJREF_IMM_NAME, name);
	fw_batch_text(r->batch, " counter name \"%s\"", name);
}

static void rule_limit(struct fw_rule *r, uint32_t rate, uint32_t burst, bool over)
{
	struct nftnl_expr *e = add(r, "limit");

	if (!e)
		return;
	nftnl_expr_set_u64(e, NFTNL_EXPR_LIMIT_RATE, rate);
	nftnl_expr_set_u64(e, NFTNL_EXPR_LIMIT_UNIT, 1);
	nftnl_expr_set_u32(e, NFTNL_EXPR_LIMIT_BURST, burst);
	nftnl_expr_set_u32(e, NFTNL_EXPR_LIMIT_TYPE, NFT_LIMIT_PKTS);
	if (over)
		nftnl_expr_set_u32(e, NFTNL_EXPR_LIMIT_FLAGS, NFT_LIMIT_F_INV);
	fw_batch_text(r->batch, " limit rate %s%u/second burst %u packets", over ? "over " : "", rate, burst);
}

/* limit rate 100/second burst 200 packets */
void fw_rule_limit(struct fw_rule *r)
{
	rule_limit(r, LOG_RATE, LOG_BURST, false);
}

/* limit rate over 800/second burst 800 packets */
void fw_rule_limit_over(struct fw_rule *r, uint32_t rate, uint32_t burst)
{
	rule_limit(r, rate, burst, true);
}

/* log prefix "ak:7:default" group 7 snaplen 96 queue-threshold 1 */
void fw_rule_log(struct fw_rule *r, const char *prefix)
{
	struct nftnl_expr *e = add(r, "log");

	if (!e)
		return;
	nftnl_expr_set_str(e, NFTNL_EXPR_LOG_PREFIX, prefix);
	nftnl_expr_set_u16(e, NFTNL_EXPR_LOG_GROUP, FW_LOG_GROUP);
	nftnl_expr_set_u32(e, NFTNL_EXPR_LOG_SNAPLEN, LOG_SNAPLEN);
	nftnl_expr_set_u16(e, NFTNL_EXPR_LOG_QTHRESHOLD, 1);
	fw_batch_text(r->batch, " log prefix \"%s\" group %u snaplen %u queue-threshold 1", prefix, FW_LOG_GROUP, LOG_SNAPLEN);
}

/* tproxy to :15001, either family. Without a listener the rule does not match, and a later rule refuses the packet. */
void fw_rule_tproxy(struct fw_rule *r, uint16_t port)
{
	uint16_t be = htons(port);
	struct nftnl_expr *e;

	add_immediate(r, &be, sizeof(be));
	e = add(r, "tproxy");
	if (!e)
		return;
	nftnl_expr_set_u32(e, NFTNL_EXPR_TPROXY_FAMILY, NFPROTO_UNSPEC);
	nftnl_expr_set_u32(e, NFTNL_EXPR_TPROXY_REG_PORT, NFT_REG_1);
	fw_batch_text(r->batch, " tproxy to :%u", port);
}

/* meta mark set 0x616b0001 */
void fw_rule_set_mark(struct fw_rule *r, uint32_t mark)
{
	struct nftnl_expr *e;

	add_immediate(r, &mark, sizeof(mark));
	e = add(r, "meta");
	if (!e)
		return;
	nftnl_expr_set_u32(e, NFTNL_EXPR_META_KEY, NFT_META_MARK);
	nftnl_expr_set_u32(e, NFTNL_EXPR_META_SREG, NFT_REG_1);
	fw_batch_text(r->batch, " meta mark set 0x%08x", mark);
}

/* reject with tcp reset */
void fw_rule_reject_reset(struct fw_rule *r)
{
	add_reject(r, NFT_REJECT_TCP_RST, 0);
	fw_batch_text(r->batch, " reject with tcp reset");
}

/* reject with icmpx type admin-prohibited */
void fw_rule_reject_prohibited(struct fw_rule *r)
{
	add_reject(r, NFT_REJECT_ICMPX_UNREACH, NFT_REJECT_ICMPX_ADMIN_PROHIBITED);
	fw_batch_text(r->batch, " reject with icmpx type admin-prohibited");
}

/* iifname vmap @links */
void fw_rule_vmap_link(struct fw_rule *r, const char *map)
{
	add_meta(r, NFT_META_IIFNAME);
	add_lookup(r, map, true);
	fw_batch_text(r->batch, " iifname vmap @%s", map);
}

void fw_rule_accept(struct fw_rule *r)
{
	add_verdict(r, NF_ACCEPT, NULL);
	fw_batch_text(r->batch, " accept");
}

void fw_rule_drop(struct fw_rule *r)
{
	add_verdict(r, NF_DROP, NULL);
	fw_batch_text(r->batch, " drop");
}

void fw_rule_return(struct fw_rule *r)
{
	add_verdict(r, NFT_RETURN, NULL);
	fw_batch_text(r->batch, " return");
}

void fw_rule_jump(struct fw_rule *r, const char *chain)
{
	add_verdict(r, NFT_JUMP, chain);
	fw_batch_text(r->batch, " jump %s", chain);
}

void fw_rule_goto(struct fw_rule *r, const char *chain)
{
	add_verdict(r, NFT_GOTO, chain);
	fw_batch_text(r->batch, " goto %s", chain);
}
