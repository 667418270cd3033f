/* Tables, chains, sets, counters and set elements: each call appends one message (elements: one or more) to a batch. */
#ifndef AK_FW_OBJECT_H
#define AK_FW_OBJECT_H

#include "gateway/base/addr.h"
#include "nft/batch.h"
#include "nft/rule.h"
#include "policies/policy.h"

#define FW_TABLE "agentkernel"

/* ---- objects ---- */

/* Create an empty table, replacing any old one: add, delete, add, because deleting a missing table would fail the batch. */
void fw_table_replace(struct fw_batch *b, uint16_t family, const char *table);
/* Remove the table if it exists. */
void fw_table_remove(struct fw_batch *b, uint16_t family, const char *table);

/* A chain without a hook. */
struct fw_chain fw_chain_add(struct fw_batch *b, uint16_t family, const char *table, const char *name);

struct fw_hook {
	uint32_t hook;
	const char *hook_text;
	int priority;
	bool accept; /* chain policy: accept or drop */
	const char *dev; /* only for netdev */
};
struct fw_chain fw_chain_add_base(
	struct fw_batch *b, uint16_t family, const char *table, const char *name, const struct fw_hook *hook);

void fw_chain_flush(struct fw_batch *b, const char *chain);
void fw_chain_remove(struct fw_batch *b, uint16_t family, const char *chain); /* including its rules */
void fw_chain_ensure(struct fw_batch *b, uint16_t family, const char *chain); /* create if missing, so that it can be removed */

void fw_counter_add(struct fw_batch *b, uint16_t family, const char *table, const char *name);
void fw_counter_remove(struct fw_batch *b, uint16_t family, const char *name);

struct fw_set_type {
	const char *text; /* "ipv4_addr . inet_service" */
	uint32_t key_type, key_len;
	uint32_t flags;
	uint32_t size; /* capacity; 0: unlimited */
};
extern const struct fw_set_type fw_set_learned4, fw_set_learned6; /* address and port, with timeout and capacity */
extern const struct fw_set_type fw_set_range4, fw_set_range6; /* address intervals */
extern const struct fw_set_type fw_set_protocol, fw_set_links;

void fw_set_add(struct fw_batch *b, uint16_t family, const char *table, const char *name, const struct fw_set_type *type);
void fw_set_flush(struct fw_batch *b, const char *set);
void fw_set_remove(struct fw_batch *b, const char *set);

/* ---- elements ---- */

void fw_links_add(struct fw_batch *b, const char *ifname, const char *chain);
void fw_links_remove(struct fw_batch *b, const char *ifname);

/* Add the ranges of one class; adjacent ranges are merged. */
void fw_ranges_add(
	struct fw_batch *b, const char *set, const struct policy_range *ranges, size_t n, enum policy_addr_class class);
void fw_protocols_add(struct fw_batch *b, const char *table, const char *set, const uint8_t *protos, size_t n);

/* Writer for elements of a learned set: splits them into messages. */
struct fw_elems {
	struct fw_batch *batch; /* borrowed */
	struct nlmsghdr *nlh; /* NULL between messages and after an error */
	struct nlattr *list;
	uint16_t type, family;
	const char *table, *set; /* borrowed */
};
struct fw_elems fw_elems_begin(struct fw_batch *b, uint16_t type, uint16_t family, const char *table, const char *set);
void fw_elems_add(struct fw_elems *e, const void *key, size_t key_len, uint32_t flags, uint64_t timeout_ms);
void fw_elems_end(struct fw_elems *e);

#endif
