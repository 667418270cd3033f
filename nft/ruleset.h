/* The ruleset: builds the objects of the base table and of one sandbox. Pure: everything goes into the batch. */
#ifndef AK_FW_RULESET_H
#define AK_FW_RULESET_H

#include "nft/batch.h"
#include "nft/fw.h"

#include <stdbool.h>
#include <sys/socket.h>

/* The name of an object of one sandbox: "sb7" + SUFFIX. */
struct fw_name {
	char text[FW_OBJECT_MAX];
};
struct fw_name fw_name(uint32_t id, const char *suffix);

/*
 * The name of the inet table, and of the netdev table, that holds sandbox ID: FW_TABLE for the first FW_SHARD_SIZE ids, then
 * one further table for each FW_SHARD_SIZE ids (see ruleset.c).
 */
#define FW_SHARD_SIZE 64
#define FW_SHARDS 16
unsigned fw_shard(uint32_t id);
const char *fw_shard_table(unsigned shard);
struct fw_name fw_name_learned(uint32_t id, enum policy_proto proto, int family); /* sb7_tcp4 */
struct fw_name fw_name_denied(uint32_t id, enum fw_reason reason); /* sb7_denied_spoof */
struct fw_name fw_name_prefix(uint32_t id, enum fw_reason reason); /* ak:7:spoof, the prefix of log records */

static inline bool fw_link_has(const struct fw_link *link, int family)
{
	return (family == AF_INET ? link->addr4.family : link->addr6.family) != 0;
}

#define FW_LINK_DROPPED "_dropped" /* counters in the netdev table */
#define FW_LINK_ODD "_odd"

void fw_build_base(struct fw_batch *b);
void fw_build_shard(struct fw_batch *b, unsigned shard); /* from 1 up; replaces an existing one */
void fw_build_shard_remove(struct fw_batch *b, unsigned shard);
void fw_build_sandbox(struct fw_batch *b, const struct fw_link *link, const struct policy *p);
void fw_build_update(struct fw_batch *b, const struct fw_link *link, const struct policy *p);
void fw_build_remove(struct fw_batch *b, const struct fw_link *link);

/* ruleset_link.c: the objects shared by all links of a table, and those of one link. */
void fw_build_links(struct fw_batch *b, uint32_t mark);
void fw_build_link(struct fw_batch *b, const struct fw_link *link);
void fw_build_link_remove(struct fw_batch *b, uint32_t id);

/*
 * Add or refresh elements (FRESH: none of them is in its set), or delete those that exist. ELEMS are grouped by set; duplicates
 * count once.
 */
void fw_build_learn(struct fw_batch *b, uint32_t id, const struct fw_elem *elems, size_t n, bool fresh);
void fw_build_forget(struct fw_batch *b, uint32_t id, const struct fw_elem *elems, size_t n);

#endif
