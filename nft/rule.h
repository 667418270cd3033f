/*
 * Builds one rule. Each helper appends one match or statement in two forms: as expressions for the kernel and as text in
 * nft syntax. The printed rules are therefore the rules that are sent.
 */
#ifndef AK_FW_RULE_H
#define AK_FW_RULE_H

#include "gateway/base/addr.h"
#include "nft/batch.h"
#include "nft/fw.h"

#include <linux/netfilter/nf_tables.h>

struct nftnl_rule;

struct fw_rule {
	struct fw_batch *batch; /* borrowed */
	struct nftnl_rule *nlr; /* owned; NULL after a failed allocation */
	uint16_t family;
	const char *chain; /* borrowed */
	unsigned number;
};

/* A chain under construction; numbers its rules. */
struct fw_chain {
	struct fw_batch *batch; /* borrowed */
	uint16_t family;
	const char *table, *name; /* borrowed */
	unsigned n_rules;
};

struct fw_rule fw_rule_begin(struct fw_chain *chain);
void fw_rule_end(struct fw_rule *r);

enum fw_op { FW_EQ, FW_NE };
enum fw_side { FW_SRC, FW_DST };

/* ---- matches ---- */
void fw_rule_nfproto(struct fw_rule *r, int family);
void fw_rule_l4proto(struct fw_rule *r, enum fw_op op, uint8_t proto);
void fw_rule_addr(struct fw_rule *r, enum fw_side side, enum fw_op op, const struct ak_addr *a);
void fw_rule_addr_in(struct fw_rule *r, int family, const char *set); /* destination */
void fw_rule_dport(struct fw_rule *r, uint16_t port);
void fw_rule_dst_port_in(struct fw_rule *r, int family, enum policy_proto proto, const char *set);
void fw_rule_not_first_syn(struct fw_rule *r);
void fw_rule_tcp_rst(struct fw_rule *r);
void fw_rule_icmp_type(struct fw_rule *r, int family, uint8_t type);
void fw_rule_not_to_host(struct fw_rule *r);
void fw_rule_mark(struct fw_rule *r, uint32_t mark);
void fw_rule_mark_kind(struct fw_rule *r, uint32_t mark);
void fw_rule_out_link(struct fw_rule *r); /* any sandbox link */
void fw_rule_socket_transparent(struct fw_rule *r);

/* ---- matches at the link ---- */
void fw_rule_mac_not(struct fw_rule *r, const uint8_t mac[static 6]);
void fw_rule_ethertype(struct fw_rule *r, uint16_t type);
void fw_rule_plain_ipv4(struct fw_rule *r);
void fw_rule_next_header_in(struct fw_rule *r, const char *set);
void fw_rule_prefix6(struct fw_rule *r, enum fw_side side, const struct ak_addr *net, unsigned len);

/* ---- statements ---- */
void fw_rule_counter(struct fw_rule *r, const char *name);
void fw_rule_limit(struct fw_rule *r);
void fw_rule_limit_over(struct fw_rule *r, uint32_t rate, uint32_t burst); /* matches packets over the limit */
void fw_rule_log(struct fw_rule *r, const char *prefix);
void fw_rule_tproxy(struct fw_rule *r, uint16_t port);
void fw_rule_set_mark(struct fw_rule *r, uint32_t mark);
void fw_rule_reject_reset(struct fw_rule *r);
void fw_rule_reject_prohibited(struct fw_rule *r);
void fw_rule_vmap_link(struct fw_rule *r, const char *map);
void fw_rule_accept(struct fw_rule *r);
void fw_rule_drop(struct fw_rule *r);
void fw_rule_return(struct fw_rule *r);
void fw_rule_jump(struct fw_rule *r, const char *chain);
void fw_rule_goto(struct fw_rule *r, const char *chain);

#endif
