/* The cache: one allocation per entry, chained buckets, an LRU list, and a small table from addresses to entries. */
#include "dnsproxy/cache.h"

#include "dnsproxy/hash.h"

#include <stdlib.h>
#include <string.h>

#define BUCKETS_MIN 64
#define BUCKETS_MAX DNS_CACHE_ENTRIES
#define REVERSE_SETS 1024
#define REVERSE_WAYS 4

/* Maps an address to an entry by the entry's hash, not by pointer: an evicted entry is simply not found. */
struct reverse_slot {
	uint64_t entry_hash;
	uint64_t promised_ms;
	struct ak_addr addr;
};

struct dns_cache_reverse {
	struct reverse_slot slots[REVERSE_SETS][REVERSE_WAYS]; /* most recent first */
};

void dns_cache_init(struct dns_cache *cache, const uint64_t key[2])
{
	memset(cache, 0, sizeof(*cache));
	memcpy(cache->key, key, sizeof(cache->key));
	TAILQ_INIT(&cache->lru);
}

static struct dns_cache_entry **bucket_of(const struct dns_cache *cache, uint64_t hash)
{
	return &cache->buckets[hash & (cache->n_buckets - 1)];
}

static void drop(struct dns_cache *cache, struct dns_cache_entry *e)
{
	struct dns_cache_entry **at = bucket_of(cache, e->hash);

	while (*at != e)
		at = &(*at)->next;
	*at = e->next;
	TAILQ_REMOVE(&cache->lru, e, lru);
	cache->n_entries--;
	cache->bytes -= e->size;
	free(e);
}

void dns_cache_done(struct dns_cache *cache)
{
	struct dns_cache_entry *e;

	while ((e = TAILQ_FIRST(&cache->lru)) != NULL)
		drop(cache, e);
	free(cache->buckets);
	free(cache->reverse);
	cache->buckets = NULL;
	cache->reverse = NULL;
	cache->n_buckets = 0;
}

static uint64_t key_hash(const struct dns_cache *cache, const struct dns_name *name, uint16_t qtype)
{
	uint64_t key[2] = { cache->key[0] ^ qtype, cache->key[1] };

	return dns_hash(key, name->wire, name->len);
}

static struct dns_cache_entry *lookup(const struct dns_cache *cache, uint64_t hash, const struct dns_name *name, uint16_t qtype)
{
	struct dns_cache_entry *e;

	if (cache->n_buckets == 0)
		return NULL;
	for (e = *bucket_of(cache, hash); e; e = e->next)
		if (e->hash == hash && e->qtype == qtype && e->name_len == name->len &&
			memcmp(e->name, name->wire, name->len) == 0)
			return e;
	return NULL;
}

struct dns_cache_entry *dns_cache_find(struct dns_cache *cache, const struct dns_name *name, uint16_t qtype, uint64_t now_ms)
{
	struct dns_cache_entry *e = lookup(cache, key_hash(cache, name, qtype), name, qtype);

	/* With less than a second left, the TTL would be 0. The entry stays: a PTR query may still use it. */
	if (!e || e->expires_ms < now_ms + 1000)
		return NULL;
	if (TAILQ_NEXT(e, lru)) {
		TAILQ_REMOVE(&cache->lru, e, lru);
		TAILQ_INSERT_TAIL(&cache->lru, e, lru);
	}
	return e;
}

/* Double the buckets to keep the chains short. A failure only costs speed. */
static bool grow(struct dns_cache *cache)
{
	size_t n = cache->n_buckets ? cache->n_buckets * 2 : BUCKETS_MIN;
	struct dns_cache_entry **old = cache->buckets, **buckets, *e;

	if (n > BUCKETS_MAX)
		return true;
	buckets = calloc(n, sizeof(struct dns_cache_entry *));
	if (!buckets)
		return cache->n_buckets > 0;
	cache->buckets = buckets;
	cache->n_buckets = n;
	TAILQ_FOREACH(e, &cache->lru, lru) {
		struct dns_cache_entry **at = bucket_of(cache, e->hash);

		e->next = *at;
		*at = e;
	}
	free(old);
	return true;
}

static struct dns_cache_entry *entry_new(const struct dns_cache_item *item)
{
	size_t size = sizeof(struct dns_cache_entry) + item->n_addrs * sizeof(struct ak_addr) + item->name->len;
	struct dns_cache_entry *e;
	uint8_t *at;

	for (size_t i = 0; i < item->n_cname; i++)
		size += 1u + item->cname[i].len;
	e = malloc(size);
	if (!e)
		return NULL;
	memset(e, 0, sizeof(*e));
	e->expires_ms = item->expires_ms;
	e->size = (uint32_t)size;
	e->qtype = item->qtype;
	e->kind = item->kind;
	e->why = item->why;
	e->n_cname = (uint8_t)item->n_cname;
	e->n_addrs = (uint8_t)item->n_addrs;
	e->name_len = item->name->len;
	at = (uint8_t *)e->data;
	if (item->n_addrs > 0)
		memcpy(at, item->addrs, item->n_addrs * sizeof(struct ak_addr));
	e->addrs = (const struct ak_addr *)at;
	at += item->n_addrs * sizeof(struct ak_addr);
	memcpy(at, item->name->wire, item->name->len);
	e->name = at;
	at += item->name->len;
	e->cname = at;
	for (size_t i = 0; i < item->n_cname; i++) {
		*at++ = item->cname[i].len;
		memcpy(at, item->cname[i].wire, item->cname[i].len);
		at += item->cname[i].len;
	}
	return e;
}

static struct reverse_slot *reverse_set(const struct dns_cache *cache, const struct ak_addr *addr)
{
	return cache->reverse->slots[dns_hash(cache->key, addr, sizeof(*addr)) % REVERSE_SETS];
}

static struct reverse_slot *reverse_find(const struct dns_cache *cache, const struct ak_addr *addr)
{
	struct reverse_slot *set;

	if (!cache->reverse)
		return NULL;
	set = reverse_set(cache, addr);
	for (size_t i = 0; i < REVERSE_WAYS; i++)
		if (ak_addr_eq(&set[i].addr, addr))
			return &set[i];
	return NULL;
}

static void remember_addr(struct dns_cache *cache, const struct ak_addr *addr, uint64_t hash)
{
	struct reverse_slot *set, slot = { .entry_hash = hash, .addr = *addr };
	size_t i = 0;

	if (!cache->reverse)
		cache->reverse = calloc(1, sizeof(struct dns_cache_reverse));
	if (!cache->reverse)
		return;
	set = reverse_set(cache, addr);
	while (i < REVERSE_WAYS - 1 && !ak_addr_eq(&set[i].addr, addr))
		i++;
	if (ak_addr_eq(&set[i].addr, addr))
		slot.promised_ms = set[i].promised_ms;
	memmove(set + 1, set, i * sizeof(*set));
	set[0] = slot;
}

uint64_t dns_cache_promised(const struct dns_cache *cache, const struct ak_addr *addr)
{
	const struct reverse_slot *slot = reverse_find(cache, addr);

	return slot ? slot->promised_ms : 0;
}

void dns_cache_promise(struct dns_cache *cache, const struct ak_addr *addr, uint64_t until_ms)
{
	struct reverse_slot *slot = reverse_find(cache, addr);

	if (slot && slot->promised_ms < until_ms)
		slot->promised_ms = until_ms;
}

struct dns_cache_entry *dns_cache_put(struct dns_cache *cache, const struct dns_cache_item *item)
{
	uint64_t hash = key_hash(cache, item->name, item->qtype);
	struct dns_cache_entry *e = lookup(cache, hash, item->name, item->qtype), **at;

	if (e)
		drop(cache, e);
	if (cache->n_entries >= cache->n_buckets && !grow(cache))
		return NULL;
	e = entry_new(item);
	if (!e)
		return NULL;
	while (cache->n_entries >= DNS_CACHE_ENTRIES || (cache->n_entries > 0 && cache->bytes + e->size > DNS_CACHE_BYTES))
		drop(cache, TAILQ_FIRST(&cache->lru));
	e->hash = hash;
	at = bucket_of(cache, hash);
	e->next = *at;
	*at = e;
	TAILQ_INSERT_TAIL(&cache->lru, e, lru);
	cache->n_entries++;
	cache->bytes += e->size;
	for (size_t i = 0; i < e->n_addrs; i++)
		remember_addr(cache, &e->addrs[i], hash);
	return e;
}

void dns_cache_name(const struct dns_cache_entry *e, struct dns_name *ret)
{
	ret->len = e->name_len;
	memcpy(ret->wire, e->name, e->name_len);
}

void dns_cache_chain(const struct dns_cache_entry *e, struct dns_name ret[static DNS_CNAME_MAX])
{
	const uint8_t *at = e->cname;

	for (size_t i = 0; i < e->n_cname; i++) {
		ret[i].len = *at++;
		memcpy(ret[i].wire, at, ret[i].len);
		at += ret[i].len;
	}
}

static bool has_addr(const struct dns_cache_entry *e, const struct ak_addr *addr)
{
	for (size_t i = 0; i < e->n_addrs; i++)
		if (ak_addr_eq(&e->addrs[i], addr))
			return true;
	return false;
}

const struct dns_cache_entry *dns_cache_by_addr(const struct dns_cache *cache, const struct ak_addr *addr)
{
	const struct reverse_slot *slot = reverse_find(cache, addr);
	const struct dns_cache_entry *e;

	if (!slot || cache->n_buckets == 0)
		return NULL;
	for (e = *bucket_of(cache, slot->entry_hash); e; e = e->next)
		if (e->hash == slot->entry_hash && has_addr(e, addr))
			return e;
	return NULL;
}

void dns_cache_sweep(struct dns_cache *cache, bool (*fn)(void *ctx, const struct dns_cache_entry *e), void *ctx)
{
	struct dns_cache_entry *e = TAILQ_FIRST(&cache->lru);

	while (e) {
		struct dns_cache_entry *next = TAILQ_NEXT(e, lru);

		if (fn(ctx, e))
			drop(cache, e);
		e = next;
	}
}
