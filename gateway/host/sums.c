/* Sums of repeated denials: see host/sums.h. A small hash table; on a collision, the older entry's sum is written and replaced. */
#include "gateway/host/sums.h"

#include <stdlib.h>
#include <string.h>

#define PLACES 32

struct sum {
	struct audit_kind kind;
	bool used;
	uint64_t count;
	struct strbuf members; /* the members of the JSON record */
};

struct gw_sums {
	struct sum places[PLACES];
};

static struct sum *place_of(struct gw_sums *sums, const struct audit_kind *kind)
{
	return &sums->places[kind->id[0] % PLACES];
}

static bool holds(const struct sum *s, const struct audit_kind *kind)
{
	return s->used && memcmp(&s->kind, kind, sizeof(*kind)) == 0;
}

bool gw_sums_count(struct gw_sums *sums, const struct audit_kind *kind, uint64_t n)
{
	struct sum *s = sums ? place_of(sums, kind) : NULL;

	if (!s || !holds(s, kind))
		return false;
	s->count += n;
	return true;
}

static void flush_one(struct sum *s, struct audit_writer *log, const char *sandbox)
{
	if (s->used && s->count)
		audit_write_again(log, sandbox, s->members.data, s->members.len, s->count);
	s->used = false;
	s->count = 0;
}

void gw_sums_begin(struct gw_sums **sums, const struct audit_kind *kind, struct audit_writer *log, const char *sandbox)
{
	size_t len = log->members_len;
	struct strbuf members = { 0 };
	struct sum *s;

	if (!*sums)
		*sums = calloc(1, sizeof(**sums));
	if (!*sums || !len)
		return;
	strbuf_add(&members, log->line.data + log->members_at, len); /* copy first: writing another sum reuses the line */
	s = place_of(*sums, kind);
	flush_one(s, log, sandbox);
	strbuf_done(&s->members);
	s->members = members;
	s->kind = *kind;
	s->used = !members.failed;
}

void gw_sums_flush(struct gw_sums *sums, struct audit_writer *log, const char *sandbox)
{
	for (size_t i = 0; sums && i < PLACES; i++)
		flush_one(&sums->places[i], log, sandbox);
}

void gw_sums_free(struct gw_sums *sums)
{
	for (size_t i = 0; sums && i < PLACES; i++)
		strbuf_done(&sums->places[i].members);
	free(sums);
}
