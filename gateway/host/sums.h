/*
 * Refusals that come again and again: the first is written at once, those of its kind that follow are counted, and their sum is
 * written about a second later.
 */
#ifndef AK_GW_SUMS_H
#define AK_GW_SUMS_H

#include "gateway/log/audit_kinds.h"

struct gw_sums;

/* Whether KIND was written a moment ago: N more of it have been counted, then. */
bool gw_sums_count(struct gw_sums *sums, const struct audit_kind *kind, uint64_t n);

/* KIND has just been written to LOG as a record of SANDBOX: count those that follow. Makes *SUMS when there is none. */
void gw_sums_begin(struct gw_sums **sums, const struct audit_kind *kind, struct audit_writer *log, const char *sandbox);

/* Write all sums to LOG. NULL is fine here and above. */
void gw_sums_flush(struct gw_sums *sums, struct audit_writer *log, const char *sandbox);
void gw_sums_free(struct gw_sums *sums);

#endif
