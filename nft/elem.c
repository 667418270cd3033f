/*
 * Set elements, written attribute by attribute: every DNS answer takes this path, and libnftnl would allocate memory for
 * each element. Layout: list { elem { key { value }, data { verdict }, timeout, flags } … }.
 */
#include "nft/object.h"

#include <endian.h>
#include <errno.h>
#include <linux/netfilter.h>
#include <string.h>

/* Upper bound for the size of one element: a 20-byte key, a verdict with a chain name, timeout and flags. */
#define ELEM_ROOM 256

static void elems_open(struct fw_elems *e)
{
	uint16_t flags = e->type == NFT_MSG_NEWSETELEM ? NLM_F_CREATE : 0;

	e->nlh = fw_batch_get(e->batch, e->type, e->family, flags, "set", e->set);
	if (!e->nlh)
		return;
	mnl_attr_put_strz(e->nlh, NFTA_SET_ELEM_LIST_TABLE, e->table);
	mnl_attr_put_strz(e->nlh, NFTA_SET_ELEM_LIST_SET, e->set);
	e->list = mnl_attr_nest_start(e->nlh, NFTA_SET_ELEM_LIST_ELEMENTS);
}

struct fw_elems fw_elems_begin(struct fw_batch *b, uint16_t type, uint16_t family, const char *table, const char *set)
{
	return (struct fw_elems){ .batch = b, .type = type, .family = family, .table = table, .set = set };
}

void fw_elems_end(struct fw_elems *e)
{
	if (!e->nlh)
		return;
	mnl_attr_nest_end(e->nlh, e->list);
	fw_batch_put(e->batch, e->nlh);
	e->nlh = NULL;
}

/* Return the message for the next element; starts a new one if the current one is full. */
static struct nlmsghdr *elems_room(struct fw_elems *e)
{
	if (e->nlh && e->nlh->nlmsg_len > FW_BATCH_ROOM - ELEM_ROOM)
		fw_elems_end(e);
	if (!e->nlh)
		elems_open(e);
	return e->nlh;
}

static void put_key(struct nlmsghdr *nlh, const void *key, size_t len)
{
	struct nlattr *nest = mnl_attr_nest_start(nlh, NFTA_SET_ELEM_KEY);

	mnl_attr_put(nlh, NFTA_DATA_VALUE, len, key);
	mnl_attr_nest_end(nlh, nest);
}

void fw_elems_add(struct fw_elems *e, const void *key, size_t key_len, uint32_t flags, uint64_t timeout_ms)
{
	struct nlmsghdr *nlh = elems_room(e);
	struct nlattr *nest;

	if (!nlh)
		return;
	nest = mnl_attr_nest_start(nlh, NFTA_LIST_ELEM);
	put_key(nlh, key, key_len);
	if (timeout_ms)
		mnl_attr_put_u64(nlh, NFTA_SET_ELEM_TIMEOUT, htobe64(timeout_ms));
	if (flags)
		mnl_attr_put_u32(nlh, NFTA_SET_ELEM_FLAGS, htobe32(flags));
	mnl_attr_nest_end(nlh, nest);
}

/* ---- the link map ---- */

/* The verdict "jump CHAIN". */
static void put_verdict(struct nlmsghdr *nlh, const char *chain)
{
	struct nlattr *data = mnl_attr_nest_start(nlh, NFTA_SET_ELEM_DATA);
	struct nlattr *verdict = mnl_attr_nest_start(nlh, NFTA_DATA_VERDICT);

	mnl_attr_put_u32(nlh, NFTA_VERDICT_CODE, htobe32((uint32_t)NFT_JUMP));
	mnl_attr_put_strz(nlh, NFTA_VERDICT_CHAIN, chain);
	mnl_attr_nest_end(nlh, verdict);
	mnl_attr_nest_end(nlh, data);
}

static void links_message(struct fw_batch *b, uint16_t type, const char *ifname, const char *chain)
{
	struct fw_elems e = fw_elems_begin(b, type, NFPROTO_INET, b->table, "links");
	char key[FW_IFNAME_MAX] = "";
	struct nlmsghdr *nlh = elems_room(&e);
	struct nlattr *nest;

	if (!nlh)
		return;
	memccpy(key, ifname, '\0', sizeof(key) - 1);
	nest = mnl_attr_nest_start(nlh, NFTA_LIST_ELEM);
	put_key(nlh, key, sizeof(key));
	if (type == NFT_MSG_NEWSETELEM)
		put_verdict(nlh, chain);
	mnl_attr_nest_end(nlh, nest);
	fw_elems_end(&e);
}

void fw_links_add(struct fw_batch *b, const char *ifname, const char *chain)
{
	links_message(b, NFT_MSG_NEWSETELEM, ifname, chain);
	fw_batch_text(b, "add element inet %s links { \"%s\" : jump %s }\n", b->table, ifname, chain);
}

void fw_links_remove(struct fw_batch *b, const char *ifname)
{
	links_message(b, NFT_MSG_DELSETELEM, ifname, NULL);
	fw_batch_text(b, "delete element inet %s links { \"%s\" }\n", b->table, ifname);
}

/* ---- intervals ---- */

/* The address after A; false if A is the last one. */
static bool addr_next(const struct ak_addr *a, struct ak_addr *ret)
{
	*ret = *a;
	for (unsigned i = ak_addr_bits(a) / 8; i-- > 0;)
		if (++ret->bytes[i])
			return true;
	return false;
}

/* Add one interval: its first address, and the address after its last with the end flag. The last address needs no end. */
static void range_put(struct fw_elems *e, const struct ak_addr *lo, const struct ak_addr *hi, bool first)
{
	char from[AK_ADDR_TEXT], to[AK_ADDR_TEXT];
	size_t len = ak_addr_bits(lo) / 8;
	struct ak_addr next;

	fw_elems_add(e, lo->bytes, len, 0, 0);
	if (addr_next(hi, &next))
		fw_elems_add(e, next.bytes, len, NFT_SET_ELEM_INTERVAL_END, 0);
	if (!e->batch->text)
		return;
	fw_batch_text(e->batch, first ? "add element inet %s %s { " : ", ", e->table, e->set);
	fw_batch_text(e->batch, "%s", ak_addr_print(lo, from));
	if (!ak_addr_eq(lo, hi))
		fw_batch_text(e->batch, "-%s", ak_addr_print(hi, to));
}

void fw_ranges_add(struct fw_batch *b, const char *set, const struct policy_range *ranges, size_t n, enum policy_addr_class class)
{
	struct fw_elems e = fw_elems_begin(b, NFT_MSG_NEWSETELEM, NFPROTO_INET, b->table, set);
	bool first = true;

	for (size_t i = 0; i < n; i++) {
		struct ak_addr hi = ranges[i].hi, next;
		size_t start = i;

		if (ranges[i].class != class)
			continue;
		while (i + 1 < n && ranges[i + 1].class == class && addr_next(&hi, &next) && ak_addr_eq(&next, &ranges[i + 1].lo))
			hi = ranges[++i].hi;
		range_put(&e, &ranges[start].lo, &hi, first);
		first = false;
	}
	fw_elems_end(&e);
	if (!first)
		fw_batch_text(b, " }\n");
}

/* ---- protocols ---- */

void fw_protocols_add(struct fw_batch *b, const char *table, const char *set, const uint8_t *protos, size_t n)
{
	struct fw_elems e = fw_elems_begin(b, NFT_MSG_NEWSETELEM, NFPROTO_NETDEV, table, set);

	fw_batch_text(b, "add element netdev %s %s {", table, set);
	for (size_t i = 0; i < n; i++) {
		fw_elems_add(&e, &protos[i], sizeof(protos[i]), 0, 0);
		fw_batch_text(b, "%s %u", i ? "," : "", protos[i]);
	}
	fw_elems_end(&e);
	fw_batch_text(b, " }\n");
}
