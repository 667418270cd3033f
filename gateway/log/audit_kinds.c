/*
 * Kinds of denials: see log/audit_kinds.h. The sandbox chooses the names, so kinds are identified by a collision-resistant hash:
 * a denial cannot be hidden behind an earlier one that was crafted to look the same.
 */
#include "gateway/log/audit_kinds.h"

#include <stdlib.h>
#include <string.h>

static void add_text(struct sha256 *s, const char *text)
{
	sha256_add(s, text ? text : "", text ? strlen(text) + 1 : 1);
}

static void add_sort(struct sha256 *s, const struct audit_net *rec)
{
	add_text(s, rec->event);
	add_text(s, rec->verdict);
	add_text(s, audit_net_reason(rec));
	add_text(s, rec->rule);
	add_text(s, rec->proto);
}

static void finish(struct sha256 *s, struct audit_kind *ret)
{
	uint8_t digest[SHA256_SIZE];

	sha256_done(s, digest);
	memcpy(ret->id, digest, sizeof(ret->id));
}

void audit_kind_of(const struct audit_net *rec, struct audit_kind *ret)
{
	struct sha256 s;

	sha256_init(&s);
	add_sort(&s, rec);
	add_text(&s, rec->name);
	add_text(&s, rec->qtype);
	add_text(&s, rec->sni);
	add_text(&s, rec->detail);
	sha256_add(&s, &rec->port, sizeof(rec->port));
	if (rec->dst) {
		sha256_add(&s, &rec->dst->family, sizeof(rec->dst->family));
		sha256_add(&s, rec->dst->bytes, sizeof(rec->dst->bytes));
	}
	finish(&s, ret);
}

static struct audit_kind *slot_of(const struct audit_kinds *k, const struct audit_kind *kind)
{
	static const struct audit_kind none;
	size_t i;

	memcpy(&i, kind->id, sizeof(i));
	for (i &= k->cap - 1; memcmp(&k->slots[i], &none, sizeof(none)) != 0; i = (i + 1) & (k->cap - 1)) {
		if (memcmp(&k->slots[i], kind, sizeof(*kind)) == 0)
			break;
	}
	return &k->slots[i];
}

static bool grow(struct audit_kinds *k)
{
	struct audit_kinds bigger = { .cap = k->cap ? 2 * k->cap : 64, .used = k->used, .sorts = k->sorts };
	static const struct audit_kind none;

	bigger.slots = calloc(bigger.cap, sizeof(*bigger.slots));
	if (!bigger.slots)
		return false;
	for (size_t i = 0; i < k->cap; i++) {
		if (memcmp(&k->slots[i], &none, sizeof(none)) != 0)
			*slot_of(&bigger, &k->slots[i]) = k->slots[i];
	}
	free(k->slots);
	*k = bigger;
	return true;
}

/* Remember KIND; false if it was known, or if there is no room. */
static bool add(struct audit_kinds *k, const struct audit_kind *kind, bool room)
{
	struct audit_kind *slot;

	if (2 * k->used >= k->cap && !grow(k))
		return false;
	slot = slot_of(k, kind);
	if (memcmp(slot, kind, sizeof(*kind)) == 0 || !room)
		return false;
	*slot = *kind;
	k->used++;
	return true;
}

/* Kinds identified only by rule, reason and protocol have their own slots, which a flood of destinations cannot use up. */
static bool first_of_sort(struct audit_kinds *k, const struct audit_net *rec)
{
	struct audit_kind sort;
	struct sha256 s;
	bool first;

	sha256_init(&s);
	add_sort(&s, rec);
	finish(&s, &sort);
	first = add(k, &sort, k->sorts < AUDIT_SORTS_MAX);
	k->sorts += first;
	return first;
}

bool audit_kinds_first(struct audit_kinds *k, const struct audit_net *rec, const struct audit_kind *kind)
{
	bool sort = first_of_sort(k, rec);

	return add(k, kind, k->used - k->sorts < AUDIT_KINDS_MAX) || sort;
}

void audit_kinds_forget(struct audit_kinds *k, const struct audit_kind *kind)
{
	struct audit_kind *slot = k->cap ? slot_of(k, kind) : NULL;

	if (!slot || memcmp(slot, kind, sizeof(*kind)) != 0)
		return;
	*slot = (struct audit_kind){ { 0 } }; /* safe: nothing was inserted after it */
	k->used--;
}

void audit_kinds_done(struct audit_kinds *k)
{
	free(k->slots);
	*k = (struct audit_kinds){ 0 };
}
