/* What the gateway counts for one sandbox: the numbers that it reports, records and shows. */
#ifndef AK_STATS_H
#define AK_STATS_H

#include "gateway/base/sha256.h"

#include <stdint.h>

#define GW_COUNT_MAX ((1ull << 53) - 1) /* what a JSON number holds exactly, and more than anyone will ever count */

struct gw_stats {
	uint64_t allowed, denied;
	uint64_t records, lost;
	uint64_t learned, flows; /* at this moment */
	char hash[SHA256_HEX]; /* of the last record */
};

#endif
