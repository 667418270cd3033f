/* Tables, chains, sets and counters, through libnftnl. Elements are in elem.c. */
#include "nft/object.h"

#include <errno.h>
#include <linux/netfilter.h>

#include <libnftnl/chain.h>
#include <libnftnl/object.h>
#include <libnftnl/set.h>
#include <libnftnl/table.h>
#include <libnftnl/udata.h>

/* The key type numbers of the nft tool: the kernel only stores them, and `nft list` reads them back. */
enum { NFT_TYPE_IPADDR = 7, NFT_TYPE_IP6ADDR = 8, NFT_TYPE_PROTOCOL = 12, NFT_TYPE_SERVICE = 13, NFT_TYPE_IFNAME = 41 };
#define NFT_TYPE_PAIR(a, b) (((a) << 6) | (b))
#define NFT_TYPE_VERDICT 0xffffff00u

const struct fw_set_type fw_set_learned4 = { "ipv4_addr . inet_service", NFT_TYPE_PAIR(NFT_TYPE_IPADDR, NFT_TYPE_SERVICE), 8,
	NFT_SET_TIMEOUT, FW_LEARNED_MAX };
const struct fw_set_type fw_set_learned6 = { "ipv6_addr . inet_service", NFT_TYPE_PAIR(NFT_TYPE_IP6ADDR, NFT_TYPE_SERVICE), 20,
	NFT_SET_TIMEOUT, FW_LEARNED_MAX };
const struct fw_set_type fw_set_range4 = { "ipv4_addr", NFT_TYPE_IPADDR, 4, NFT_SET_INTERVAL, 0 };
const struct fw_set_type fw_set_range6 = { "ipv6_addr", NFT_TYPE_IP6ADDR, 16, NFT_SET_INTERVAL, 0 };
const struct fw_set_type fw_set_protocol = { "inet_proto", NFT_TYPE_PROTOCOL, 1, 0, 0 };
const struct fw_set_type fw_set_links = { "ifname : verdict", NFT_TYPE_IFNAME, FW_IFNAME_MAX, NFT_SET_MAP, 0 };

static const char *family_text(uint16_t family)
{
	return family == NFPROTO_NETDEV ? "netdev" : "inet";
}

/* ---- tables ---- */

static void table_message(struct fw_batch *b, uint16_t type, uint16_t family, const char *table)
{
	uint16_t flags = type == NFT_MSG_NEWTABLE ? NLM_F_CREATE : 0;
	struct nlmsghdr *nlh = fw_batch_get(b, type, family, flags, "table", table);
	struct nftnl_table *t;

	if (!nlh)
		return;
	t = nftnl_table_alloc();
	if (!t) {
		fw_batch_fail(b, -ENOMEM);
		return;
	}
	nftnl_table_set_str(t, NFTNL_TABLE_NAME, table);
	nftnl_table_nlmsg_build_payload(nlh, t);
	nftnl_table_free(t);
	fw_batch_put(b, nlh);
	fw_batch_text(b, "%s table %s %s\n", type == NFT_MSG_NEWTABLE ? "add" : "delete", family_text(family), table);
}

void fw_table_remove(struct fw_batch *b, uint16_t family, const char *table)
{
	table_message(b, NFT_MSG_NEWTABLE, family, table);
	table_message(b, NFT_MSG_DELTABLE, family, table);
}

void fw_table_replace(struct fw_batch *b, uint16_t family, const char *table)
{
	if (!b->fresh)
		fw_table_remove(b, family, table);
	table_message(b, NFT_MSG_NEWTABLE, family, table);
}

/* ---- chains ---- */

static void chain_hook(struct nftnl_chain *c, const struct fw_hook *hook)
{
	nftnl_chain_set_str(c, NFTNL_CHAIN_TYPE, "filter");
	nftnl_chain_set_u32(c, NFTNL_CHAIN_HOOKNUM, hook->hook);
	nftnl_chain_set_s32(c, NFTNL_CHAIN_PRIO, hook->priority);
	nftnl_chain_set_u32(c, NFTNL_CHAIN_POLICY, hook->accept ? NF_ACCEPT : NF_DROP);
	if (hook->dev)
		nftnl_chain_set_str(c, NFTNL_CHAIN_DEV, hook->dev);
}

static void chain_message(struct fw_batch *b, uint16_t type, uint16_t flags, uint16_t family, const char *table, const char *name,
	const struct fw_hook *hook)
{
	struct nlmsghdr *nlh = fw_batch_get(b, type, family, flags, "chain", name);
	struct nftnl_chain *c;

	if (!nlh)
		return;
	c = nftnl_chain_alloc();
	if (!c) {
		fw_batch_fail(b, -ENOMEM);
		return;
	}
	nftnl_chain_set_str(c, NFTNL_CHAIN_TABLE, table);
	nftnl_chain_set_str(c, NFTNL_CHAIN_NAME, name);
	if (hook)
		chain_hook(c, hook);
	nftnl_chain_nlmsg_build_payload(nlh, c);
	nftnl_chain_free(c);
	fw_batch_put(b, nlh);
	fw_batch_text(b, "%s chain %s %s %s", type == NFT_MSG_NEWCHAIN ? "add" : "delete", family_text(family), table, name);
	if (hook)
		fw_batch_text(b, " { type filter hook %s%s%s priority %d; policy %s; }", hook->hook_text,
			hook->dev ? " device " : "", hook->dev ? hook->dev : "", hook->priority,
			hook->accept ? "accept" : "drop");
	fw_batch_text(b, "\n");
}

struct fw_chain fw_chain_add_base(
	struct fw_batch *b, uint16_t family, const char *table, const char *name, const struct fw_hook *hook)
{
	chain_message(b, NFT_MSG_NEWCHAIN, NLM_F_CREATE | NLM_F_EXCL, family, table, name, hook);
	return (struct fw_chain){ .batch = b, .family = family, .table = table, .name = name };
}

struct fw_chain fw_chain_add(struct fw_batch *b, uint16_t family, const char *table, const char *name)
{
	return fw_chain_add_base(b, family, table, name, NULL);
}

void fw_chain_ensure(struct fw_batch *b, uint16_t family, const char *chain)
{
	chain_message(b, NFT_MSG_NEWCHAIN, NLM_F_CREATE, family, b->table, chain, NULL);
}

void fw_chain_remove(struct fw_batch *b, uint16_t family, const char *chain)
{
	chain_message(b, NFT_MSG_DELCHAIN, 0, family, b->table, chain, NULL);
}

/* A delete request without a rule handle deletes all rules of the chain. */
void fw_chain_flush(struct fw_batch *b, const char *chain)
{
	struct nlmsghdr *nlh = fw_batch_get(b, NFT_MSG_DELRULE, NFPROTO_INET, 0, "chain", chain);

	if (!nlh)
		return;
	mnl_attr_put_strz(nlh, NFTA_RULE_TABLE, b->table);
	mnl_attr_put_strz(nlh, NFTA_RULE_CHAIN, chain);
	fw_batch_put(b, nlh);
	fw_batch_text(b, "flush chain inet %s %s\n", b->table, chain);
}

/* ---- counters ---- */

static void counter_message(struct fw_batch *b, uint16_t type, uint16_t family, const char *table, const char *name)
{
	uint16_t flags = type == NFT_MSG_NEWOBJ ? NLM_F_CREATE | NLM_F_EXCL : 0;
	struct nlmsghdr *nlh = fw_batch_get(b, type, family, flags, "counter", name);
	struct nftnl_obj *o;

	if (!nlh)
		return;
	o = nftnl_obj_alloc();
	if (!o) {
		fw_batch_fail(b, -ENOMEM);
		return;
	}
	nftnl_obj_set_str(o, NFTNL_OBJ_TABLE, table);
	nftnl_obj_set_str(o, NFTNL_OBJ_NAME, name);
	nftnl_obj_set_u32(o, NFTNL_OBJ_TYPE, NFT_OBJECT_COUNTER);
	if (type == NFT_MSG_NEWOBJ)
		nftnl_obj_set_u64(o, NFTNL_OBJ_CTR_PKTS, 0);
	nftnl_obj_nlmsg_build_payload(nlh, o);
	nftnl_obj_free(o);
	fw_batch_put(b, nlh);
	fw_batch_text(b, "%s counter %s %s %s\n", type == NFT_MSG_NEWOBJ ? "add" : "delete", family_text(family), table, name);
}

void fw_counter_add(struct fw_batch *b, uint16_t family, const char *table, const char *name)
{
	counter_message(b, NFT_MSG_NEWOBJ, family, table, name);
}

void fw_counter_remove(struct fw_batch *b, uint16_t family, const char *name)
{
	counter_message(b, NFT_MSG_DELOBJ, family, b->table, name);
}

/* ---- sets ---- */

static void set_text(struct fw_batch *b, uint16_t family, const char *table, const char *name, const struct fw_set_type *type)
{
	fw_batch_text(b, "add %s %s %s %s { type %s;", type->flags & NFT_SET_MAP ? "map" : "set", family_text(family), table,
		name, type->text);
	if (type->flags & NFT_SET_TIMEOUT)
		fw_batch_text(b, " flags timeout;");
	if (type->flags & NFT_SET_INTERVAL)
		fw_batch_text(b, " flags interval;");
	if (type->size)
		fw_batch_text(b, " size %u;", type->size);
	fw_batch_text(b, " }\n");
}

/* Marks the keys of the link map as host byte order; without it `nft list` prints the names reversed. */
static void set_host_order(struct nftnl_set *s)
{
	struct nftnl_udata_buf *u = nftnl_udata_buf_alloc(16);

	if (!u)
		return; /* only affects `nft list` */
	nftnl_udata_put_u32(u, NFTNL_UDATA_SET_KEYBYTEORDER, 1);
	nftnl_set_set_data(s, NFTNL_SET_USERDATA, nftnl_udata_buf_data(u), nftnl_udata_buf_len(u));
	nftnl_udata_buf_free(u);
}

static void set_fill(struct nftnl_set *s, const struct fw_set_type *type, uint32_t id)
{
	nftnl_set_set_u32(s, NFTNL_SET_FLAGS, type->flags);
	nftnl_set_set_u32(s, NFTNL_SET_KEY_TYPE, type->key_type);
	nftnl_set_set_u32(s, NFTNL_SET_KEY_LEN, type->key_len);
	nftnl_set_set_u32(s, NFTNL_SET_ID, id);
	if (type->size)
		nftnl_set_set_u32(s, NFTNL_SET_DESC_SIZE, type->size);
	if (type->flags & NFT_SET_MAP) {
		nftnl_set_set_u32(s, NFTNL_SET_DATA_TYPE, NFT_TYPE_VERDICT);
		set_host_order(s);
	}
}

void fw_set_add(struct fw_batch *b, uint16_t family, const char *table, const char *name, const struct fw_set_type *type)
{
	struct nlmsghdr *nlh = fw_batch_get(b, NFT_MSG_NEWSET, family, NLM_F_CREATE | NLM_F_EXCL, "set", name);
	struct nftnl_set *s;

	if (!nlh)
		return;
	s = nftnl_set_alloc();
	if (!s) {
		fw_batch_fail(b, -ENOMEM);
		return;
	}
	nftnl_set_set_str(s, NFTNL_SET_TABLE, table);
	nftnl_set_set_str(s, NFTNL_SET_NAME, name);
	set_fill(s, type, (uint32_t)b->n + 1); /* the id only has to be unique in its batch */
	nftnl_set_nlmsg_build_payload(nlh, s);
	nftnl_set_free(s);
	fw_batch_put(b, nlh);
	set_text(b, family, table, name, type);
}

void fw_set_remove(struct fw_batch *b, const char *set)
{
	struct nlmsghdr *nlh = fw_batch_get(b, NFT_MSG_DELSET, NFPROTO_INET, 0, "set", set);

	if (!nlh)
		return;
	mnl_attr_put_strz(nlh, NFTA_SET_TABLE, b->table);
	mnl_attr_put_strz(nlh, NFTA_SET_NAME, set);
	fw_batch_put(b, nlh);
	fw_batch_text(b, "delete set inet %s %s\n", b->table, set);
}

/* A delete request without a key deletes all elements of the set. */
void fw_set_flush(struct fw_batch *b, const char *set)
{
	struct nlmsghdr *nlh = fw_batch_get(b, NFT_MSG_DELSETELEM, NFPROTO_INET, 0, "set", set);

	if (!nlh)
		return;
	mnl_attr_put_strz(nlh, NFTA_SET_ELEM_LIST_TABLE, b->table);
	mnl_attr_put_strz(nlh, NFTA_SET_ELEM_LIST_SET, set);
	fw_batch_put(b, nlh);
	fw_batch_text(b, "flush set inet %s %s\n", b->table, set);
}
