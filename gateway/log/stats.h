/* The counters of one sandbox that the gateway reports, records and shows. */
#ifndef AK_STATS_H
#define AK_STATS_H

#include "gateway/base/sha256.h"

#include <stdint.h>

#define GW_COUNT_MAX ((1ull << 53) - 1) /* the largest exact JSON number, larger than any real count */

struct gw_stats {
	uint64_t allowed, denied;
	uint64_t records, lost;
	uint64_t learned, flows; /* current numbers */
	char hash[SHA256_HEX]; /* of the last record */
};

#endif
