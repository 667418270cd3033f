/* The policy object: allocation, reference counting and accessors. */
#include "gateway/base/cleanup.h"
#include "policies/internal.h"

#include <stdlib.h>
#include <string.h>

struct arena_chunk {
	struct arena_chunk *next;
	size_t used, cap;
	char data[];
};

#define ARENA_CHUNK 8192

char *arena_copy(struct arena *a, const char *text, size_t len)
{
	struct arena_chunk *c = a->head;
	char *copy;

	if (!c || c->cap - c->used <= len) {
		size_t cap = len + 1 > ARENA_CHUNK ? len + 1 : ARENA_CHUNK;

		c = malloc(sizeof(*c) + cap);
		if (!c)
			return NULL;
		*c = (struct arena_chunk){ .next = a->head, .cap = cap };
		a->head = c;
	}
	copy = c->data + c->used;
	memcpy(copy, text, len);
	copy[len] = '\0';
	c->used += len + 1;
	return copy;
}

void arena_done(struct arena *a)
{
	for (struct arena_chunk *c = a->head, *next; c; c = next) {
		next = c->next;
		free(c);
	}
	a->head = NULL;
}

struct policy *policy_new(void)
{
	struct policy *p = calloc(1, sizeof(*p));

	if (p) {
		p->refs = 1;
		p->name = p->description = "";
	}
	return p;
}

static void seg_table_done(struct seg_table *t)
{
	free(t->segs);
	free(t->ranges);
}

struct policy *policy_ref(struct policy *p)
{
	__atomic_add_fetch(&p->refs, 1, __ATOMIC_RELAXED);
	return p;
}

void policy_unref(struct policy *p)
{
	if (!p || __atomic_sub_fetch(&p->refs, 1, __ATOMIC_ACQ_REL) > 0)
		return;
	seg_table_done(&p->v4);
	seg_table_done(&p->v6);
	free(p->slots);
	free(p->entries);
	free(p->cidrs);
	free(p->rules);
	arena_done(&p->arena);
	free(p);
}

void policy_unrefp(struct policy **p)
{
	policy_unref(*p);
}

bool policy_default_allow(const struct policy *p)
{
	return p->default_allow;
}

bool policy_denies_names(const struct policy *p, enum policy_proto proto, uint16_t port)
{
	return (port == 80 || port == 443) && p->denies_names[proto][port == 443];
}

const char *policy_name(const struct policy *p)
{
	return p->name;
}

const char *policy_description(const struct policy *p)
{
	return p->description;
}

const struct policy_limits *policy_limits(const struct policy *p)
{
	return &p->limits;
}

size_t policy_rule_count(const struct policy *p)
{
	return p->n_rules + p->n_cidrs;
}
