/* The exfiltration budget: buckets for names and octets per wildcard, and the names already charged. */
#include "dnsproxy/budget.h"

#include "dnsproxy/hash.h"

#include <stdlib.h>
#include <string.h>

/* A set of name hashes: open addressing, doubles when it fills up. */
struct seen {
	uint64_t *slots; /* owned; 0: free slot */
	size_t n_slots;
	size_t count;
};

struct dns_budget_parent {
	uint64_t hash; /* of the wildcard, never 0 */
	uint64_t touched_ms;
	uint64_t names_milli; /* remaining, in thousandths, so that slow refills are not lost to rounding */
	uint64_t octets_milli;
	struct seen now, before;
};

#define SEEN_MIN 16
#define REFILL_STEP_MS 100 /* smaller steps would be lost to rounding */

static bool seen_has(const struct seen *s, uint64_t hash)
{
	if (s->n_slots == 0)
		return false;
	for (size_t i = hash & (s->n_slots - 1); s->slots[i]; i = (i + 1) & (s->n_slots - 1))
		if (s->slots[i] == hash)
			return true;
	return false;
}

static void seen_place(struct seen *s, uint64_t hash)
{
	size_t i = hash & (s->n_slots - 1);

	while (s->slots[i])
		i = (i + 1) & (s->n_slots - 1);
	s->slots[i] = hash;
	s->count++;
}

static bool seen_grow(struct seen *s)
{
	struct seen bigger = { .n_slots = s->n_slots ? s->n_slots * 2 : SEEN_MIN };

	bigger.slots = calloc(bigger.n_slots, sizeof(uint64_t));
	if (!bigger.slots)
		return false;
	for (size_t i = 0; i < s->n_slots; i++)
		if (s->slots[i])
			seen_place(&bigger, s->slots[i]);
	free(s->slots);
	*s = bigger;
	return true;
}

/* If out of memory, the name is charged again next time, which is safe. */
static void seen_add(struct dns_budget_parent *p, uint64_t hash)
{
	if (p->now.count >= DNS_BUDGET_SEEN) {
		free(p->before.slots);
		p->before = p->now;
		p->now = (struct seen){ 0 };
	}
	if (p->now.count * 2 >= p->now.n_slots && !seen_grow(&p->now))
		return;
	seen_place(&p->now, hash);
}

static void parent_free(struct dns_budget_parent *p)
{
	if (!p)
		return;
	free(p->now.slots);
	free(p->before.slots);
	free(p);
}

void dns_budget_init(struct dns_budget *b, const uint64_t key[2])
{
	memset(b, 0, sizeof(*b));
	memcpy(b->key, key, sizeof(b->key));
}

void dns_budget_done(struct dns_budget *b)
{
	for (size_t i = 0; i < DNS_BUDGET_PARENTS; i++)
		parent_free(b->parents[i]);
	memset(b->parents, 0, sizeof(b->parents));
	b->n_parents = 0;
}

/* Drop wildcards with full buckets: they hold no state worth keeping. Rehash the rest; open addressing allows no holes. */
static void recycle(struct dns_budget *b, uint64_t now_ms)
{
	struct dns_budget_parent *old[DNS_BUDGET_PARENTS];

	memcpy(old, b->parents, sizeof(old));
	memset(b->parents, 0, sizeof(b->parents));
	b->n_parents = 0;
	for (size_t i = 0; i < DNS_BUDGET_PARENTS; i++) {
		size_t at;

		if (!old[i])
			continue;
		if (now_ms - old[i]->touched_ms >= DNS_BUDGET_WINDOW_MS) {
			parent_free(old[i]);
			continue;
		}
		for (at = old[i]->hash % DNS_BUDGET_PARENTS; b->parents[at]; at = (at + 1) % DNS_BUDGET_PARENTS)
			;
		b->parents[at] = old[i];
		b->n_parents++;
	}
}

/* Find the slot of HASH: its parent, or a free slot. One slot always stays free, so the loop ends. */
static struct dns_budget_parent **slot_of(struct dns_budget *b, uint64_t hash)
{
	size_t i = hash % DNS_BUDGET_PARENTS;

	while (b->parents[i] && b->parents[i]->hash != hash)
		i = (i + 1) % DNS_BUDGET_PARENTS;
	return &b->parents[i];
}

static struct dns_budget_parent *parent_get(struct dns_budget *b, const char *rule, uint64_t now_ms)
{
	uint64_t hash = dns_hash(b->key, rule, strcspn(rule, ":/")) | 1; /* all ports of a wildcard share one budget */
	struct dns_budget_parent **slot = slot_of(b, hash);

	if (*slot)
		return *slot;
	if (b->n_parents >= DNS_BUDGET_PARENTS - 1) {
		recycle(b, now_ms);
		if (b->n_parents >= DNS_BUDGET_PARENTS - 1)
			return NULL;
		slot = slot_of(b, hash);
	}
	*slot = calloc(1, sizeof(**slot));
	if (!*slot)
		return NULL;
	(*slot)->hash = hash;
	(*slot)->touched_ms = now_ms;
	(*slot)->names_milli = DNS_BUDGET_NAMES * 1000ull;
	(*slot)->octets_milli = DNS_BUDGET_OCTETS * 1000ull;
	b->n_parents++;
	return *slot;
}

static void refill(struct dns_budget_parent *p, uint64_t now_ms)
{
	uint64_t passed = now_ms - p->touched_ms;

	if (passed < REFILL_STEP_MS)
		return;
	if (passed > DNS_BUDGET_WINDOW_MS)
		passed = DNS_BUDGET_WINDOW_MS;
	p->names_milli += DNS_BUDGET_NAMES * 1000ull * passed / DNS_BUDGET_WINDOW_MS;
	p->octets_milli += DNS_BUDGET_OCTETS * 1000ull * passed / DNS_BUDGET_WINDOW_MS;
	if (p->names_milli > DNS_BUDGET_NAMES * 1000ull)
		p->names_milli = DNS_BUDGET_NAMES * 1000ull;
	if (p->octets_milli > DNS_BUDGET_OCTETS * 1000ull)
		p->octets_milli = DNS_BUDGET_OCTETS * 1000ull;
	p->touched_ms = now_ms;
}

/* Words have vowels and few digits; text in base 16, 32 or 36 does not. */
static bool looks_encoded(const uint8_t *label, size_t len)
{
	size_t digits = 0, vowels = 0;

	if (len < DNS_BUDGET_RANDOM_LABEL)
		return false;
	for (size_t i = 0; i < len; i++) {
		digits += label[i] >= '0' && label[i] <= '9';
		vowels += label[i] == 'a' || label[i] == 'e' || label[i] == 'i' || label[i] == 'o' || label[i] == 'u';
	}
	return digits * 6 >= len || vowels * 6 < len;
}

unsigned dns_budget_weight(const uint8_t *label, size_t len)
{
	unsigned weight = len > DNS_BUDGET_HUGE_LABEL ? 4 : len > DNS_BUDGET_LONG_LABEL ? 2 : 1;

	return looks_encoded(label, len) ? weight * 2 : weight;
}

/* Number of labels that are part of the rule; they carry no data. */
static size_t fixed_labels(const char *rule)
{
	size_t n = 0;

	for (const char *c = rule; *c && *c != ':' && *c != '/'; c++)
		n += *c == '.';
	return n;
}

static size_t count_labels(const struct dns_name *name)
{
	size_t n = 0;

	for (size_t off = 0; name->wire[off]; off += 1u + name->wire[off])
		n++;
	return n;
}

/* The cost of NAME beyond the labels of the rule. */
static void price(const char *rule, const struct dns_name *name, uint64_t *ret_names, uint64_t *ret_octets)
{
	size_t labels = count_labels(name), fixed = fixed_labels(rule), off = 0;
	unsigned heaviest = 1;

	*ret_octets = 0;
	for (size_t i = 0; i + fixed < labels; i++) {
		size_t len = name->wire[off];
		unsigned weight = dns_budget_weight(name->wire + off + 1, len);

		*ret_octets += len * weight;
		if (weight > heaviest)
			heaviest = weight;
		off += 1 + len;
	}
	*ret_names = heaviest;
}

static bool pay(struct dns_budget_parent *p, uint64_t names_milli, uint64_t octets_milli)
{
	if (p->names_milli < names_milli || p->octets_milli < octets_milli)
		return false;
	p->names_milli -= names_milli;
	p->octets_milli -= octets_milli;
	return true;
}

bool dns_budget_take(struct dns_budget *b, const char *rule, const struct dns_name *name, uint64_t now_ms)
{
	bool exact = rule[0] != '*';
	struct dns_budget_parent *p = parent_get(b, exact ? "" : rule, now_ms);
	uint64_t hash, names, octets;

	if (!p)
		return false;
	refill(p, now_ms);
	if (exact)
		return pay(p, 0, DNS_BUDGET_EXACT_MILLI);
	hash = dns_hash(b->key, name->wire, name->len) | 1;
	if (seen_has(&p->now, hash) || seen_has(&p->before, hash))
		return pay(p, 0, DNS_BUDGET_REPEAT_MILLI);
	price(rule, name, &names, &octets);
	if (!pay(p, names * 1000, octets * 1000))
		return false;
	seen_add(p, hash);
	return true;
}
