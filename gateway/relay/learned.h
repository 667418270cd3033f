/*
 * Which names an address was learned for, per sandbox: the relay checks flows against this table, in addition to the kernel's
 * sets. Bounded: at the limit, the entry that expires first is evicted. Entries live as long as their set element
 * in the kernel, and while a flow holds them.
 */
#ifndef AK_LEARNED_H
#define AK_LEARNED_H

#include "gateway/base/addr.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LEARNED_CAP 16384
#define LEARNED_CNAMES 8

struct learned;

/* One DNS answer, shared by the addresses in it; immutable, reference-counted. */
struct learned_name {
	unsigned refs;
	char *name; /* owned */
	char *cname[LEARNED_CNAMES]; /* owned */
	size_t n_cname;
	struct ak_addr *addrs; /* owned: all addresses of the answer */
	size_t n_addrs;
	uint32_t ttl_s;
};
struct learned_name *learned_name_new(
	const char *name, const char *const *cname, size_t n_cname, const struct ak_addr *addrs, size_t n_addrs, uint32_t ttl_s);
struct learned_name *learned_name_ref(struct learned_name *n);
void learned_name_unref(struct learned_name *n);

int learned_new(struct learned **ret);

/* FN is called for each binding evicted early because the table is full; the binding still exists during the call. */
void learned_on_evict(struct learned *l, void (*fn)(void *ctx, const struct learned_name *n, const struct ak_addr *a), void *ctx);

void learned_free(struct learned *l);

/* Bind every address of N to it until NOW_MS + LIFE_MS. */
int learned_add(struct learned *l, struct learned_name *n, uint64_t now_ms, uint64_t life_ms);

/* The binding of ADDR to NAME, or NULL. Borrowed. */
struct learned_name *learned_find(struct learned *l, const struct ak_addr *addr, const char *name, uint64_t now_ms);

/* Store the names of ADDR, newest first, at most CAP; returns the count. Borrowed. */
size_t learned_names(struct learned *l, const struct ak_addr *addr, uint64_t now_ms, struct learned_name **ret, size_t cap);

size_t learned_count(const struct learned *l);

/* Call FN for each live (name, address); if FN returns true, the entry is removed. */
void learned_sweep(struct learned *l, uint64_t now_ms,
	bool (*fn)(void *ctx, const struct learned_name *n, const struct ak_addr *a), void *ctx);

#endif
