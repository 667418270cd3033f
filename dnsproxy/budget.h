/*
 * The exfiltration budget: limits how much data a sandbox can send in names below one wildcard.
 *
 * Under "*.example.org" every new name is a message to whoever runs the zone's servers. Each wildcard therefore has two token
 * buckets, for distinct names and for their octets. The wildcard of the rule is the key, so a sandbox cannot spread names
 * over more buckets than its policy has wildcards. Only queries sent upstream are charged; cached answers are free.
 *
 * A repeated name still carries information when it is sent again: which of the remembered names it is, two octets at most.
 * The sandbox cannot choose the text of exact names; all of them share one more pair of buckets that limits how often they are
 * sent.
 */
#ifndef AK_DNS_BUDGET_H
#define AK_DNS_BUDGET_H

#include "dnsproxy/wire.h"

/*
 * The busiest legitimate users are CI jobs with object stores and cloud APIs: some tens of names below one wildcard. Package
 * managers need fewer than ten. 300 leaves room; 16 KiB in ten minutes is 27 octets per second.
 */
#define DNS_BUDGET_WINDOW_MS 600000u /* time to refill an empty bucket */
#define DNS_BUDGET_NAMES 300u
#define DNS_BUDGET_OCTETS 16384u
#define DNS_BUDGET_LONG_LABEL 32u /* longer than labels that people choose: counts double */
#define DNS_BUDGET_HUGE_LABEL 48u /* counts fourfold */
#define DNS_BUDGET_RANDOM_LABEL 20u /* minimum length to recognise encoded data: counts double */
#define DNS_BUDGET_REPEAT_MILLI 2000u /* cost of sending a known name again, in thousandths of an octet */
#define DNS_BUDGET_EXACT_MILLI 125u /* cost of an exact name: allows 131,072 at once and 218 per second */
#define DNS_BUDGET_PARENTS 256u /* wildcards in use per sandbox; beyond that, idle ones are recycled or the query is refused */
#define DNS_BUDGET_SEEN 1024u /* distinct names remembered per wildcard and generation; there are two generations */

struct dns_budget_parent;

struct dns_budget {
	uint64_t key[2];
	struct dns_budget_parent *parents[DNS_BUDGET_PARENTS]; /* owned; open addressing by the wildcard's hash */
	size_t n_parents;
};

void dns_budget_init(struct dns_budget *b, const uint64_t key[2]);
void dns_budget_done(struct dns_budget *b);

/* Charge for sending NAME, which RULE ("*.example.org:443", "api.example.org") allows. False if the budget is used up. */
bool dns_budget_take(struct dns_budget *b, const char *rule, const struct dns_name *name, uint64_t now_ms);

/* The factor for the octets of a label: 1 to 8. */
unsigned dns_budget_weight(const uint8_t *label, size_t len);

#endif
