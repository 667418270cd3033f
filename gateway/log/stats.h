/*
 * What the gateway counts for one sandbox: the numbers that it reports, that are recorded, and that /metrics shows.
 *
 * Reasons of verdicts are counted by number, so that what the gateway tells its supervisor is nothing but numbers.
 */
#ifndef AK_STATS_H
#define AK_STATS_H

#include "gateway/base/err.h"
#include "gateway/base/json.h"
#include "gateway/base/reason.h"
#include "gateway/base/sha256.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GW_COUNT_MAX ((1ull << 53) - 1) /* the largest exact JSON number, larger than any real count */

/* ---- times ---- */

#define NET_BUCKETS 12
extern const uint64_t net_bucket_us[NET_BUCKETS]; /* upper bounds; what is longer goes into one more bucket */

struct net_histogram {
	uint64_t buckets[NET_BUCKETS + 1], sum_us;
};
void net_histogram_add(struct net_histogram *h, uint64_t us);

enum net_timing {
	NET_TIMING_FLOWS, /* how long the flows lasted that have ended */
	NET_TIMING_DNS, /* from a query to its reply, where the cache had none */
	NET_TIMING_DIAL, /* from a flow's beginning until its far side was connected */
	NET_TIMING_NUM
};

/* ---- verdicts ---- */

#define NET_REASONS 64 /* room for NET_REASON_NUM */

struct net_counts {
	uint64_t verdicts[2][NET_REASONS]; /* on names, flows and packets: denied, allowed */
	uint64_t bytes_out, bytes_in; /* of flows that have ended */
	struct net_histogram timings[NET_TIMING_NUM];
};
void net_counts_add(struct net_counts *sum, const struct net_counts *more);
void net_counts_max(struct net_counts *to, const struct net_counts *other); /* the larger of each */
bool net_counts_ok(const struct net_counts *c); /* no number past GW_COUNT_MAX */

/* {"deny":{"not in allowlist":2},"allow":{"":7},"bytes":[…],"flows":[…],"dns":[…],"dial":[…]}; -EINVAL with the place. */
cJSON *net_counts_to_json(const struct net_counts *c);
int net_counts_from_json(const cJSON *obj, struct net_counts *ret, struct ak_err *err);

struct gw_stats {
	uint64_t allowed, denied;
	uint64_t records, lost;
	uint64_t learned, flows; /* current numbers */
	char hash[SHA256_HEX]; /* of the last record */
	struct net_counts counts;
};

#endif
