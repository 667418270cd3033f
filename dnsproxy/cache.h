/*
 * What one sandbox's names resolved to: bounded, least recently used goes first, negative answers included.
 *
 * An entry also knows until when the kernel surely holds its addresses, so that a hit after that time is learned again before it
 * is served. Addresses lead back to the name they were last seen for, which is all that PTR questions are answered from.
 */
#ifndef AK_DNS_CACHE_H
#define AK_DNS_CACHE_H

#include "dnsproxy/wire.h"

#include <sys/queue.h>

#define DNS_CACHE_ENTRIES 4096 /* per sandbox: with typical entries under 1 MiB */
#define DNS_CACHE_BYTES (2u << 20) /* and for names with long chains and many addresses this bound comes first */

enum dns_cache_kind {
	DNS_CACHE_ADDRS,
	DNS_CACHE_EMPTY, /* NOERROR without addresses */
	DNS_CACHE_NXDOMAIN,
	DNS_CACHE_FILTERED, /* there were addresses, all in blocked ranges */
	DNS_CACHE_FAILED, /* no answer, or none that could be used */
	DNS_CACHE_KIND_NUM
};

struct dns_cache_entry {
	TAILQ_ENTRY(dns_cache_entry) lru;
	struct dns_cache_entry *next; /* in its bucket */
	uint64_t hash;
	uint64_t expires_ms;
	uint64_t learned_until_ms; /* 0: not learned */
	uint64_t learned_seq; /* the client's count of learned addresses at that time */
	uint32_t learned_generation; /* of the policy it was learned under */
	uint32_t size;
	uint16_t qtype;
	enum dns_cache_kind kind;
	uint8_t n_cname;
	uint8_t n_addrs;
	const struct ak_addr *addrs; /* this, the name and the chain point into the same allocation */
	const uint8_t *name;
	const char *why; /* FAILED: a static text */
	const uint8_t *cname; /* one after the other: length octet, wire form */
	uint8_t name_len;
	max_align_t data[];
};

TAILQ_HEAD(dns_cache_list, dns_cache_entry);

struct dns_cache_reverse;

struct dns_cache {
	uint64_t key[2];
	struct dns_cache_entry **buckets; /* owned */
	size_t n_buckets; /* a power of two, or 0 before the first insertion */
	size_t n_entries;
	size_t bytes;
	struct dns_cache_list lru; /* oldest first */
	struct dns_cache_reverse *reverse; /* owned; made with the first address */
};

void dns_cache_init(struct dns_cache *cache, const uint64_t key[2]);
void dns_cache_done(struct dns_cache *cache);

/* A live entry, moved to the young end; NULL when absent or expired. Valid until the next insertion. */
struct dns_cache_entry *dns_cache_find(struct dns_cache *cache, const struct dns_name *name, uint16_t qtype, uint64_t now_ms);

/* What to remember. */
struct dns_cache_item {
	enum dns_cache_kind kind;
	uint16_t qtype;
	const struct dns_name *name;
	const struct dns_name *cname;
	size_t n_cname;
	const struct ak_addr *addrs;
	size_t n_addrs;
	uint64_t expires_ms;
	const char *why;
};

/* Replaces an older entry. NULL when there is no memory. */
struct dns_cache_entry *dns_cache_put(struct dns_cache *cache, const struct dns_cache_item *item);

/* Unpack the chain. */
void dns_cache_chain(const struct dns_cache_entry *e, struct dns_name ret[static DNS_CNAME_MAX]);
void dns_cache_name(const struct dns_cache_entry *e, struct dns_name *ret);

/* The entry that last brought ADDR, expired or not; NULL when none is left. */
const struct dns_cache_entry *dns_cache_by_addr(const struct dns_cache *cache, const struct ak_addr *addr);

/*
 * Until when replies have promised that ADDR is reachable, whatever name they were for; 0 when none did. Names share addresses,
 * and learning one with a short TTL must not cut short what another was promised.
 */
uint64_t dns_cache_promised(const struct dns_cache *cache, const struct ak_addr *addr);
void dns_cache_promise(struct dns_cache *cache, const struct ak_addr *addr, uint64_t until_ms);

/* Drop the entries for which FN is true. */
void dns_cache_sweep(struct dns_cache *cache, bool (*fn)(void *ctx, const struct dns_cache_entry *e), void *ctx);

#endif
