/*
 * The DNS cache of one sandbox: bounded, least recently used entries are evicted first, includes negative answers.
 *
 * An entry records until when the kernel is certain to hold its addresses. A later hit learns them again before it is served.
 * Each address maps back to the last name it was seen for; PTR queries are answered only from this map.
 */
#ifndef AK_DNS_CACHE_H
#define AK_DNS_CACHE_H

#include "dnsproxy/wire.h"

#include <sys/queue.h>

#define DNS_CACHE_ENTRIES 4096 /* per sandbox: under 1 MiB with typical entries */
#define DNS_CACHE_BYTES (2u << 20) /* reached first with long CNAME chains and many addresses */

enum dns_cache_kind {
	DNS_CACHE_ADDRS,
	DNS_CACHE_EMPTY, /* NOERROR without addresses */
	DNS_CACHE_NXDOMAIN,
	DNS_CACHE_FILTERED, /* there were addresses, all in blocked ranges */
	DNS_CACHE_FAILED, /* no answer, or no usable one */
	DNS_CACHE_KIND_NUM
};

struct dns_cache_entry {
	TAILQ_ENTRY(dns_cache_entry) lru;
	struct dns_cache_entry *next; /* in the same bucket */
	uint64_t hash;
	uint64_t expires_ms;
	uint64_t learned_until_ms; /* 0: not learned */
	uint64_t learned_seq; /* the client's counter of learned addresses at that time */
	uint32_t learned_generation; /* the policy generation at that time */
	uint32_t size;
	uint16_t qtype;
	enum dns_cache_kind kind;
	uint8_t n_cname;
	uint8_t n_addrs;
	const struct ak_addr *addrs; /* addresses, name and chain are in the same allocation as the entry */
	const uint8_t *name;
	const char *why; /* FAILED: a static text */
	const uint8_t *cname; /* the chain: for each name a length octet and the wire form */
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
	struct dns_cache_reverse *reverse; /* owned; allocated with the first address */
};

void dns_cache_init(struct dns_cache *cache, const uint64_t key[2]);
void dns_cache_done(struct dns_cache *cache);

/* Find a live entry and mark it as recently used; NULL if absent or expired. Valid until the next insertion. */
struct dns_cache_entry *dns_cache_find(struct dns_cache *cache, const struct dns_name *name, uint16_t qtype, uint64_t now_ms);

/* The values of a new entry. */
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

/* Replaces an existing entry. NULL if out of memory. */
struct dns_cache_entry *dns_cache_put(struct dns_cache *cache, const struct dns_cache_item *item);

/* Copy the chain, or the name, out of the packed form. */
void dns_cache_chain(const struct dns_cache_entry *e, struct dns_name ret[static DNS_CNAME_MAX]);
void dns_cache_name(const struct dns_cache_entry *e, struct dns_name *ret);

/* The entry that last contained ADDR, expired or not; NULL if it was evicted. */
const struct dns_cache_entry *dns_cache_by_addr(const struct dns_cache *cache, const struct ak_addr *addr);

/*
 * The latest time until which replies promised that ADDR is reachable, for any name; 0 if none did. Names share addresses,
 * and learning one with a short TTL must not shorten what another reply promised.
 */
uint64_t dns_cache_promised(const struct dns_cache *cache, const struct ak_addr *addr);
void dns_cache_promise(struct dns_cache *cache, const struct ak_addr *addr, uint64_t until_ms);

/* Drop the entries for which FN returns true. */
void dns_cache_sweep(struct dns_cache *cache, bool (*fn)(void *ctx, const struct dns_cache_entry *e), void *ctx);

#endif
