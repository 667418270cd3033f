/* Learned elements: builds the messages for fw_learn and fw_forget. */
#include "nft/ruleset.h"

#include "nft/object.h"

#include <linux/netfilter.h>

/* The key of a learned set: address, port, padded to 4 bytes. */
static size_t learned_key(const struct fw_elem *e, uint8_t key[static 20])
{
	size_t len = e->addr.family == AF_INET ? 4 : 16;

	for (size_t i = 0; i < len; i++)
		key[i] = e->addr.bytes[i];
	key[len] = (uint8_t)(e->port >> 8);
	key[len + 1] = (uint8_t)e->port;
	key[len + 2] = key[len + 3] = 0;
	return len + 4;
}

static bool same_key(const struct fw_elem *a, const struct fw_elem *b)
{
	return a->port == b->port && a->proto == b->proto && ak_addr_eq(&a->addr, &b->addr);
}

/*
 * True if elems[I] is a duplicate of another element that has a longer timeout or comes earlier. Deleting an element twice
 * would fail the batch.
 */
static bool repeated(const struct fw_elem *elems, size_t n, size_t i)
{
	for (size_t j = 0; j < n; j++)
		if (j != i && same_key(&elems[j], &elems[i]) &&
			(elems[j].timeout_s > elems[i].timeout_s || (elems[j].timeout_s == elems[i].timeout_s && j < i)))
			return true;
	return false;
}

/* Build one message of TYPE with those of ELEMS that belong to the set of PROTO and FAMILY. */
static void learned_message(struct fw_batch *b, uint16_t type, const char *set, int family, enum policy_proto proto,
	const struct fw_elem *elems, size_t n)
{
	struct fw_elems list = fw_elems_begin(b, type, NFPROTO_INET, b->table, set);
	uint8_t key[20];

	for (size_t i = 0; i < n; i++) {
		if (elems[i].addr.family != family || elems[i].proto != proto || repeated(elems, n, i))
			continue;
		fw_elems_add(&list, key, learned_key(&elems[i], key), 0,
			type == NFT_MSG_NEWSETELEM ? (uint64_t)elems[i].timeout_s * 1000 : 0);
	}
	fw_elems_end(&list);
}

/*
 * Adding an existing element does not extend its timeout, and deleting a missing one fails the batch. So add it (in case it
 * is missing), delete it, and add it again if KEEP. This is one transaction: no packet sees the set without the
 * element.
 */
static void build_elements(struct fw_batch *b, uint32_t id, const struct fw_elem *elems, size_t n, bool keep, bool fresh)
{
	static const struct {
		int family;
		enum policy_proto proto;
	} sets[] = { { AF_INET, POLICY_TCP }, { AF_INET, POLICY_UDP }, { AF_INET6, POLICY_TCP }, { AF_INET6, POLICY_UDP } };

	b->table = fw_shard_table(fw_shard(id));
	for (size_t i = 0; i < sizeof(sets) / sizeof(sets[0]); i++) {
		struct fw_name set = fw_name_learned(id, sets[i].proto, sets[i].family);

		learned_message(b, NFT_MSG_NEWSETELEM, set.text, sets[i].family, sets[i].proto, elems, n);
		if (fresh)
			continue;
		learned_message(b, NFT_MSG_DELSETELEM, set.text, sets[i].family, sets[i].proto, elems, n);
		if (keep)
			learned_message(b, NFT_MSG_NEWSETELEM, set.text, sets[i].family, sets[i].proto, elems, n);
	}
}

void fw_build_learn(struct fw_batch *b, uint32_t id, const struct fw_elem *elems, size_t n, bool fresh)
{
	build_elements(b, id, elems, n, true, fresh);
}

void fw_build_forget(struct fw_batch *b, uint32_t id, const struct fw_elem *elems, size_t n)
{
	build_elements(b, id, elems, n, false, false);
}
