/*
 * Flatten built-in blocks and CIDR rules into disjoint address segments, one sorted array per family.
 *
 * All inputs are prefixes, and two prefixes either nest or are disjoint. One sweep in order of their first address, with a
 * stack of the prefixes that cover the current point, therefore visits every range with all prefixes that cover it; decide()
 * classifies the range. The kernel's sets and policy_addr_class read the same array, so they always agree.
 *
 * Addresses in 64:ff9b::/96 (NAT64) are judged by the embedded IPv4 address: the finished IPv4 segments are split into
 * prefixes and take part in the IPv6 sweep.
 */
#include "gateway/base/cleanup.h"
#include "policies/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum prefix_kind { PREFIX_BUILTIN, PREFIX_CIDR, PREFIX_NAT64 };

struct prefix {
	struct ak_addr net;
	uint8_t len;
	uint8_t kind; /* enum prefix_kind */
	uint32_t index; /* into the built-in networks, the CIDR rules or the IPv4 segments */
};

struct prefix_list {
	struct prefix *items; /* owned */
	size_t n, cap;
};

static void prefix_list_done(struct prefix_list *l)
{
	free(l->items);
}

static int prefix_add(struct prefix_list *l, const struct ak_addr *net, unsigned len, enum prefix_kind kind, size_t index)
{
	if (l->n == l->cap) {
		size_t cap = l->cap ? 2 * l->cap : 64;
		struct prefix *items = reallocarray(l->items, cap, sizeof(*items));

		if (!items)
			return -ENOMEM;
		l->items = items;
		l->cap = cap;
	}
	l->items[l->n++] = (struct prefix){ .net = *net, .len = (uint8_t)len, .kind = (uint8_t)kind, .index = (uint32_t)index };
	return 0;
}

static int cmp_prefix(const void *va, const void *vb)
{
	const struct prefix *a = va, *b = vb;
	int c = ak_addr_cmp(&a->net, &b->net);

	if (c == 0)
		c = (int)a->len - (int)b->len; /* the shorter prefix first */
	if (c == 0)
		c = (int)a->kind - (int)b->kind;
	return c ? c : (a->index > b->index) - (a->index < b->index);
}

/* ---- address arithmetic ---- */

static struct ak_addr last_of(const struct prefix *p)
{
	struct ak_addr a = p->net;
	unsigned bytes = ak_addr_bits(&a) / 8;

	for (unsigned i = 0; i < bytes; i++) {
		unsigned keep = p->len > 8 * i ? p->len - 8 * i : 0;

		if (keep < 8)
			a.bytes[i] |= (uint8_t)(0xff >> keep);
	}
	return a;
}

/* False if A is the last address. */
static bool step_up(struct ak_addr *a)
{
	for (int i = (int)ak_addr_bits(a) / 8 - 1; i >= 0; i--) {
		if (++a->bytes[i])
			return true;
	}
	return false;
}

static void step_down(struct ak_addr *a)
{
	for (int i = (int)ak_addr_bits(a) / 8 - 1; i >= 0; i--) {
		if (a->bytes[i]--)
			return;
	}
}

/* ---- classifying one range ---- */

/* One point can be covered by a prefix of each length, each from up to five sources. */
#define STACK_MAX (129 * 5)

struct sweep {
	const struct policy *p;
	const struct builtin_net *nets;
	const struct segment *v4; /* set when sweeping IPv6 */
	struct prefix stack[STACK_MAX];
	size_t depth;
	struct segment *segs;
	size_t n, cap;
};

struct cover {
	const struct prefix *never, *soft, *rule, *nat64; /* the longest prefix of each kind */
};

static struct cover cover_of(const struct sweep *s)
{
	struct cover c = { 0 };

	for (size_t i = 0; i < s->depth; i++) {
		const struct prefix *x = &s->stack[i];

		if (x->kind == PREFIX_NAT64) {
			c.nat64 = x;
		} else if (x->kind == PREFIX_CIDR) {
			/* At equal length, deny sorts first and is kept. */
			if (!c.rule || c.rule->len < x->len)
				c.rule = x;
		} else if (s->nets[x->index].kind == BUILTIN_NEVER || s->nets[x->index].kind == BUILTIN_EMBEDDED) {
			c.never = x;
		} else {
			c.soft = x;
		}
	}
	if (c.soft && s->nets[c.soft->index].kind == BUILTIN_PUBLIC)
		c.soft = NULL;
	return c;
}

static void set_builtin(struct segment *seg, const struct prefix *x)
{
	seg->class = POLICY_ADDR_BLOCKED;
	seg->source = SEG_BUILTIN;
	seg->index = x->index;
}

static void decide(const struct sweep *s, struct segment *seg)
{
	struct cover c = cover_of(s);
	const struct segment *inner = c.nat64 ? &s->v4[c.nat64->index] : NULL;

	seg->class = POLICY_ADDR_PLAIN;
	seg->source = SEG_PLAIN;
	seg->index = 0;
	if (c.never) {
		set_builtin(seg, c.never);
	} else if (inner && inner->class == POLICY_ADDR_BLOCKED) {
		seg->class = inner->class;
		seg->source = inner->source;
		seg->index = inner->index;
	} else if (c.rule && (!c.soft || c.rule->len >= c.soft->len)) {
		seg->class = s->p->cidrs[c.rule->index].allow ? POLICY_ADDR_OPEN : POLICY_ADDR_BLOCKED;
		seg->source = SEG_CIDR;
		seg->index = c.rule->index;
	} else if (c.soft) {
		set_builtin(seg, c.soft);
	} else if (inner) {
		seg->class = inner->class;
		seg->source = inner->source;
		seg->index = inner->index;
	}
}

/* ---- the sweep ---- */

static int emit(struct sweep *s, const struct ak_addr *lo, const struct ak_addr *hi)
{
	struct segment seg = { .lo = *lo, .hi = *hi };

	decide(s, &seg);
	if (s->n) {
		struct segment *last = &s->segs[s->n - 1];

		if (last->class == seg.class && last->source == seg.source && last->index == seg.index) {
			last->hi = *hi;
			return 0;
		}
	}
	if (s->n == s->cap) {
		size_t cap = s->cap ? 2 * s->cap : 64;
		struct segment *segs = reallocarray(s->segs, cap, sizeof(*segs));

		if (!segs)
			return -ENOMEM;
		s->segs = segs;
		s->cap = cap;
	}
	s->segs[s->n++] = seg;
	return 0;
}

/* Emit the segments before LIMIT and pop the prefixes that end before it. */
static int advance(struct sweep *s, struct ak_addr *at, const struct ak_addr *limit)
{
	struct ak_addr hi;
	int rc = 0;

	for (; rc >= 0 && s->depth; s->depth--) {
		hi = last_of(&s->stack[s->depth - 1]);
		if (ak_addr_cmp(&hi, limit) >= 0)
			break;
		if (ak_addr_cmp(at, &hi) > 0)
			continue;
		rc = emit(s, at, &hi);
		*at = hi;
		step_up(at);
	}
	if (rc >= 0 && ak_addr_cmp(at, limit) < 0) {
		hi = *limit;
		step_down(&hi);
		rc = emit(s, at, &hi);
		*at = *limit;
	}
	return rc;
}

/* Emit the remaining segments of the family. */
static int flush(struct sweep *s, struct ak_addr *at, const struct ak_addr *last)
{
	for (; s->depth; s->depth--) {
		struct ak_addr hi = last_of(&s->stack[s->depth - 1]);
		int rc;

		if (ak_addr_cmp(at, &hi) > 0)
			continue;
		rc = emit(s, at, &hi);
		if (rc < 0)
			return rc;
		*at = hi;
		if (!step_up(at))
			return 0;
	}
	return emit(s, at, last);
}

static int sweep_run(struct sweep *s, struct prefix_list *list, int family)
{
	struct prefix whole = { .net = { .family = (uint8_t)family } };
	struct ak_addr at = whole.net, last = last_of(&whole);

	if (list->n)
		qsort(list->items, list->n, sizeof(*list->items), cmp_prefix);
	for (size_t i = 0; i < list->n; i++) {
		int rc = advance(s, &at, &list->items[i].net);

		if (rc < 0)
			return rc;
		if (s->depth == STACK_MAX)
			return -ENOMEM;
		s->stack[s->depth++] = list->items[i];
	}
	return flush(s, &at, &last);
}

/* ---- inputs ---- */

static int collect(const struct policy *p, int family, struct prefix_list *list)
{
	size_t n;
	const struct builtin_net *nets = builtin_nets(&n);
	int rc = 0;

	for (size_t i = 0; rc >= 0 && i < n; i++) {
		if (nets[i].net.family == family)
			rc = prefix_add(list, &nets[i].net, nets[i].len, PREFIX_BUILTIN, i);
	}
	for (size_t i = 0; rc >= 0 && i < p->n_cidrs; i++) {
		if (p->cidrs[i].net.family == family)
			rc = prefix_add(list, &p->cidrs[i].net, p->cidrs[i].len, PREFIX_CIDR, i);
	}
	return rc;
}

static uint32_t v4_number(const struct ak_addr *a)
{
	return (uint32_t)a->bytes[0] << 24 | (uint32_t)a->bytes[1] << 16 | (uint32_t)a->bytes[2] << 8 | a->bytes[3];
}

/* Add the prefixes that make up [LO, HI], each mapped into 64:ff9b::/96. */
static int collect_nat64(struct prefix_list *list, const struct segment *seg, size_t index)
{
	uint64_t lo = v4_number(&seg->lo), end = (uint64_t)v4_number(&seg->hi) + 1;

	while (lo < end) {
		struct ak_addr net = { .family = AF_INET6 };
		struct ak_addr v4 = ak_addr_v4((uint32_t)lo);
		unsigned bits = 0;

		while (bits < 32 && !(lo & ((uint64_t)1 << bits)) && lo + ((uint64_t)2 << bits) <= end)
			bits++;
		memcpy(net.bytes, builtin_nat64, 12);
		memcpy(net.bytes + 12, v4.bytes, 4);
		if (prefix_add(list, &net, 128 - bits, PREFIX_NAT64, index) < 0)
			return -ENOMEM;
		lo += (uint64_t)1 << bits;
	}
	return 0;
}

/* ---- outputs ---- */

/* Merge adjacent segments of the same class into one range. */
static int build_ranges(struct seg_table *t)
{
	t->ranges = calloc(t->n ? t->n : 1, sizeof(*t->ranges));
	if (!t->ranges)
		return -ENOMEM;
	for (size_t i = 0; i < t->n; i++) {
		const struct segment *seg = &t->segs[i];

		if (seg->class == POLICY_ADDR_PLAIN)
			continue;
		if (i && t->segs[i - 1].class == seg->class)
			t->ranges[t->n_ranges - 1].hi = seg->hi;
		else
			t->ranges[t->n_ranges++] = (struct policy_range){ .lo = seg->lo,
				.hi = seg->hi,
				.class = (enum policy_addr_class)seg->class };
	}
	return 0;
}

static int build_family(struct policy *p, int family, struct seg_table *t)
{
	_cleanup_(prefix_list_done) struct prefix_list list = { 0 };
	size_t n_nets;
	struct sweep s = { .p = p, .nets = builtin_nets(&n_nets), .v4 = p->v4.segs };
	int rc = collect(p, family, &list);

	for (size_t i = 0; family == AF_INET6 && rc >= 0 && i < p->v4.n; i++) {
		if (p->v4.segs[i].class != POLICY_ADDR_PLAIN)
			rc = collect_nat64(&list, &p->v4.segs[i], i);
	}
	if (rc >= 0)
		rc = sweep_run(&s, &list, family);
	t->segs = s.segs; /* the policy frees it, even on error */
	t->n = s.n;
	return rc < 0 ? rc : build_ranges(t);
}

int policy_build_segments(struct policy *p)
{
	int rc = build_family(p, AF_INET, &p->v4);

	return rc < 0 ? rc : build_family(p, AF_INET6, &p->v6);
}

const struct policy_range *policy_ranges(const struct policy *p, int family, size_t *ret_n)
{
	const struct seg_table *t = family == AF_INET ? &p->v4 : &p->v6;

	*ret_n = t->n_ranges;
	return t->ranges;
}
