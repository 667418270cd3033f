/*
 * Which names an address was learned for: see relay/learned.h.
 *
 * A host is one address with its bindings, newest first; hosts are in a hash table. All bindings of the sandbox are in
 * one binary heap ordered by expiry, so that the next to evict is at the top. Each binding knows its position there, so
 * that extending or removing it is O(log n).
 */
#include "gateway/relay/learned.h"

#include "gateway/base/cleanup.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NAMES_PER_ADDR 64
#define BUCKETS_MIN 64

struct binding {
	struct host *host; /* borrowed: exists while it has a binding */
	struct learned_name *name; /* owned reference */
	struct binding *next, **pprev;
	uint64_t expires_ms;
	size_t heap_at;
};

struct host {
	struct ak_addr addr;
	struct host *next;
	struct binding *newest;
	unsigned n;
};

struct learned {
	struct host **buckets; /* owned */
	size_t n_buckets; /* a power of two */
	size_t n_hosts;
	struct binding **heap; /* owned, with its bindings */
	size_t n, cap;
	void (*evict)(void *ctx, const struct learned_name *n, const struct ak_addr *a); /* or NULL */
	void *evict_ctx; /* borrowed */
};

/* ---- names ---- */

struct learned_name *learned_name_new(
	const char *name, const char *const *cname, size_t n_cname, const struct ak_addr *addrs, size_t n_addrs, uint32_t ttl_s)
{
	struct learned_name *n = calloc(1, sizeof(*n));

	if (!n)
		return NULL;
	n->refs = 1;
	n->ttl_s = ttl_s;
	n->name = strdup(name);
	if (!n->name)
		goto fail;
	for (size_t i = 0; i < n_cname && i < LEARNED_CNAMES; i++) {
		n->cname[i] = strdup(cname[i]);
		if (!n->cname[i])
			goto fail;
		n->n_cname++;
	}
	if (n_addrs) {
		n->addrs = calloc(n_addrs, sizeof(*n->addrs));
		if (!n->addrs)
			goto fail;
		memcpy(n->addrs, addrs, n_addrs * sizeof(*addrs));
		n->n_addrs = n_addrs;
	}
	return n;
fail:
	learned_name_unref(n);
	return NULL;
}

struct learned_name *learned_name_ref(struct learned_name *n)
{
	if (n)
		n->refs++;
	return n;
}

void learned_name_unref(struct learned_name *n)
{
	if (!n || --n->refs)
		return;
	for (size_t i = 0; i < n->n_cname; i++)
		free(n->cname[i]);
	free(n->addrs);
	free(n->name);
	free(n);
}

/* ---- heap ---- */

static void heap_put(struct learned *l, size_t at, struct binding *b)
{
	l->heap[at] = b;
	b->heap_at = at;
}

static void heap_up(struct learned *l, size_t at)
{
	struct binding *b = l->heap[at];

	while (at && l->heap[(at - 1) / 2]->expires_ms > b->expires_ms) {
		heap_put(l, at, l->heap[(at - 1) / 2]);
		at = (at - 1) / 2;
	}
	heap_put(l, at, b);
}

static void heap_down(struct learned *l, size_t at)
{
	struct binding *b = l->heap[at];

	for (size_t child; (child = 2 * at + 1) < l->n; at = child) {
		if (child + 1 < l->n && l->heap[child + 1]->expires_ms < l->heap[child]->expires_ms)
			child++;
		if (l->heap[child]->expires_ms >= b->expires_ms)
			break;
		heap_put(l, at, l->heap[child]);
	}
	heap_put(l, at, b);
}

static void heap_fix(struct learned *l, size_t at)
{
	heap_up(l, at);
	heap_down(l, l->heap[at]->heap_at);
}

static void heap_remove(struct learned *l, size_t at)
{
	struct binding *last = l->heap[--l->n];

	if (at == l->n)
		return;
	heap_put(l, at, last);
	heap_fix(l, at);
}

static int heap_room(struct learned *l)
{
	size_t cap = l->cap ? l->cap * 2 : 64;
	struct binding **heap;

	if (l->n < l->cap)
		return 0;
	heap = reallocarray(l->heap, cap, sizeof(struct binding *));
	if (!heap)
		return -ENOMEM;
	l->heap = heap;
	l->cap = cap;
	return 0;
}

/* ---- hosts ---- */

static struct host **bucket_of(const struct learned *l, const struct ak_addr *addr)
{
	return &l->buckets[ak_addr_hash(addr) & (l->n_buckets - 1)];
}

static struct host *host_find(const struct learned *l, const struct ak_addr *addr)
{
	struct host *h = *bucket_of(l, addr);

	while (h && !ak_addr_eq(&h->addr, addr))
		h = h->next;
	return h;
}

/* A failure to grow is harmless: the chains only get longer. */
static void table_grow(struct learned *l)
{
	struct learned wide = { .n_buckets = l->n_buckets * 2 };

	wide.buckets = calloc(wide.n_buckets, sizeof(struct host *));
	if (!wide.buckets)
		return;
	for (size_t i = 0; i < l->n_buckets; i++) {
		for (struct host *h = l->buckets[i], *next; h; h = next) {
			struct host **to = bucket_of(&wide, &h->addr);

			next = h->next;
			h->next = *to;
			*to = h;
		}
	}
	free(l->buckets);
	l->buckets = wide.buckets;
	l->n_buckets = wide.n_buckets;
}

static struct host *host_get(struct learned *l, const struct ak_addr *addr)
{
	struct host *h = host_find(l, addr), **bucket;

	if (h)
		return h;
	h = calloc(1, sizeof(*h));
	if (!h)
		return NULL;
	if (l->n_hosts >= l->n_buckets)
		table_grow(l);
	bucket = bucket_of(l, addr);
	h->addr = *addr;
	h->next = *bucket;
	*bucket = h;
	l->n_hosts++;
	return h;
}

static void host_drop_if_empty(struct learned *l, struct host *h)
{
	struct host **at = bucket_of(l, &h->addr);

	if (h->newest)
		return;
	while (*at != h)
		at = &(*at)->next;
	*at = h->next;
	l->n_hosts--;
	free(h);
}

/* ---- bindings ---- */

static void binding_unlink(struct binding *b)
{
	*b->pprev = b->next;
	if (b->next)
		b->next->pprev = b->pprev;
	b->host->n--;
}

static void binding_link(struct host *h, struct binding *b)
{
	b->host = h;
	b->next = h->newest;
	b->pprev = &h->newest;
	if (b->next)
		b->next->pprev = &b->next;
	h->newest = b;
	h->n++;
}

/* May leave an empty host, which the caller must remove. */
static void binding_free(struct learned *l, struct binding *b)
{
	heap_remove(l, b->heap_at);
	binding_unlink(b);
	learned_name_unref(b->name);
	free(b);
}

static void binding_drop(struct learned *l, struct binding *b)
{
	struct host *h = b->host;

	binding_free(l, b);
	host_drop_if_empty(l, h);
}

static void expire(struct learned *l, uint64_t now_ms)
{
	while (l->n && l->heap[0]->expires_ms <= now_ms)
		binding_drop(l, l->heap[0]);
}

static struct binding *binding_find(const struct host *h, const char *name)
{
	struct binding *b = h->newest;

	while (b && strcmp(b->name->name, name) != 0)
		b = b->next;
	return b;
}

static struct binding *binding_soonest(const struct host *h)
{
	struct binding *soonest = h->newest;

	for (struct binding *b = h->newest; b; b = b->next)
		if (b->expires_ms < soonest->expires_ms)
			soonest = b;
	return soonest;
}

static int binding_new(struct learned *l, struct host *h, struct learned_name *n, uint64_t expires_ms)
{
	struct binding *b;

	if (h->n >= NAMES_PER_ADDR)
		binding_free(l, binding_soonest(h));
	/* The new binding is not in the heap yet, so the top is another one, and its host is not removed. */
	if (l->n >= LEARNED_CAP) {
		struct binding *top = l->heap[0];

		if (l->evict)
			l->evict(l->evict_ctx, top->name, &top->host->addr);
		if (top->host == h)
			binding_free(l, top);
		else
			binding_drop(l, top);
	}
	b = heap_room(l) < 0 ? NULL : calloc(1, sizeof(*b));
	if (!b)
		return -ENOMEM;
	b->name = learned_name_ref(n);
	b->expires_ms = expires_ms;
	binding_link(h, b);
	heap_put(l, l->n, b);
	heap_up(l, l->n++);
	return 0;
}

static int bind_one(struct learned *l, const struct ak_addr *addr, struct learned_name *n, uint64_t expires_ms)
{
	struct host *h = host_get(l, addr);
	struct binding *b;
	int rc;

	if (!h)
		return -ENOMEM;
	b = binding_find(h, n->name);
	if (!b) {
		rc = binding_new(l, h, n, expires_ms);
		host_drop_if_empty(l, h);
		return rc;
	}
	/* Seen again: use the newer answer, and never shorten the life. */
	learned_name_ref(n);
	learned_name_unref(b->name);
	b->name = n;
	binding_unlink(b);
	binding_link(h, b);
	if (expires_ms > b->expires_ms) {
		b->expires_ms = expires_ms;
		heap_fix(l, b->heap_at);
	}
	return 0;
}

/* ---- the table ---- */

void learned_on_evict(struct learned *l, void (*fn)(void *ctx, const struct learned_name *n, const struct ak_addr *a), void *ctx)
{
	l->evict = fn;
	l->evict_ctx = ctx;
}

int learned_new(struct learned **ret)
{
	struct learned *l = calloc(1, sizeof(*l));

	if (!l)
		return -ENOMEM;
	l->n_buckets = BUCKETS_MIN;
	l->buckets = calloc(l->n_buckets, sizeof(struct host *));
	if (!l->buckets) {
		free(l);
		return -ENOMEM;
	}
	*ret = l;
	return 0;
}

void learned_free(struct learned *l)
{
	if (!l)
		return;
	expire(l, UINT64_MAX);
	free(l->heap);
	free(l->buckets);
	free(l);
}

int learned_add(struct learned *l, struct learned_name *n, uint64_t now_ms, uint64_t life_ms)
{
	/* Clamp the expiry: UINT64_MAX itself means "always expired". */
	uint64_t expires_ms = life_ms < UINT64_MAX - 1 - now_ms ? now_ms + life_ms : UINT64_MAX - 1;
	int rc = 0;

	expire(l, now_ms);
	for (size_t i = 0; i < n->n_addrs && rc == 0; i++)
		rc = bind_one(l, &n->addrs[i], n, expires_ms);
	return rc;
}

struct learned_name *learned_find(struct learned *l, const struct ak_addr *addr, const char *name, uint64_t now_ms)
{
	struct host *h = host_find(l, addr);
	struct binding *b = h ? binding_find(h, name) : NULL;

	return b && b->expires_ms > now_ms ? b->name : NULL;
}

size_t learned_names(struct learned *l, const struct ak_addr *addr, uint64_t now_ms, struct learned_name **ret, size_t cap)
{
	struct host *h = host_find(l, addr);
	size_t n = 0;

	if (!h)
		return 0;
	for (struct binding *b = h->newest; b && n < cap; b = b->next)
		if (b->expires_ms > now_ms)
			ret[n++] = b->name;
	return n;
}

size_t learned_count(const struct learned *l)
{
	return l->n;
}

void learned_sweep(struct learned *l, uint64_t now_ms,
	bool (*fn)(void *ctx, const struct learned_name *n, const struct ak_addr *a), void *ctx)
{
	expire(l, now_ms);
	for (size_t i = 0; i < l->n_buckets; i++) {
		for (struct host *h = l->buckets[i], *next_host; h; h = next_host) {
			next_host = h->next;
			for (struct binding *b = h->newest, *next; b; b = next) {
				next = b->next;
				if (fn(ctx, b->name, &h->addr))
					binding_free(l, b);
			}
			host_drop_if_empty(l, h);
		}
	}
}
