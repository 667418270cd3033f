/*
 * The exfiltration budget: how much a sandbox may say in names below one wildcard.
 *
 * Under "*.example.org" every new name is a message to whoever runs that zone's servers. So each wildcard has two buckets, of
 * distinct names and of their octets, that fill again with time. The parent is the wildcard itself: nobody can spread over parents
 * that the policy does not have. Only what leaves is charged: the cache's answers cost nothing.
 *
 * A name that was asked before still tells something when it leaves again: which one of those remembered it is. That is two octets
 * at most. Exact names are not the asker's to choose; all of them together share one more pair of buckets that bounds how
 * often they leave.
 */
#ifndef AK_DNS_BUDGET_H
#define AK_DNS_BUDGET_H

#include "dnsproxy/wire.h"

/*
 * The busiest honest users are continuous-integration runs against object stores and cloud APIs: some tens of names below
 * one wildcard. Package managers need fewer than ten. 300 leaves room; 16 KiB in ten minutes is 27 octets a second.
 */
#define DNS_BUDGET_WINDOW_MS 600000u /* an empty bucket is full again after this */
#define DNS_BUDGET_NAMES 300u
#define DNS_BUDGET_OCTETS 16384u
#define DNS_BUDGET_LONG_LABEL 32u /* longer than what people choose: counts double */
#define DNS_BUDGET_HUGE_LABEL 48u /* counts fourfold */
#define DNS_BUDGET_RANDOM_LABEL 20u /* from this length on a label can be told to look like encoded data: counts double */
#define DNS_BUDGET_REPEAT_MILLI 2000u /* thousandths of an octet: a name that was paid for leaves again */
#define DNS_BUDGET_EXACT_MILLI 125u /* an exact name leaves: 131,072 at once, and 218 a second */
#define DNS_BUDGET_PARENTS 256u /* wildcards that can be in use by one sandbox; past it unused ones are recycled, else refused */
#define DNS_BUDGET_SEEN 1024u /* distinct names remembered per wildcard and generation, two generations */

struct dns_budget_parent;

struct dns_budget {
	uint64_t key[2];
	struct dns_budget_parent *parents[DNS_BUDGET_PARENTS]; /* owned; open addressing by the wildcard's hash */
	size_t n_parents;
};

void dns_budget_init(struct dns_budget *b, const uint64_t key[2]);
void dns_budget_done(struct dns_budget *b);

/* May NAME, allowed by RULE ("*.example.org:443", "api.example.org"), leave now? True and charged, or false. */
bool dns_budget_take(struct dns_budget *b, const char *rule, const struct dns_name *name, uint64_t now_ms);

/* How many times its octets a label counts: 1 to 8. */
unsigned dns_budget_weight(const uint8_t *label, size_t len);

#endif
