/*
 * Repeated denials: the first is written immediately, further ones of the same kind are counted, and their sum is
 * written about a second later.
 */
#ifndef AK_GW_SUMS_H
#define AK_GW_SUMS_H

#include "gateway/log/audit_kinds.h"

struct gw_sums;

/* True if KIND was written recently; its count is then increased by N. */
bool gw_sums_count(struct gw_sums *sums, const struct audit_kind *kind, uint64_t n);

/* KIND has just been written to LOG as a record of SANDBOX: count repetitions from now on. Allocates *SUMS if it is NULL. */
void gw_sums_begin(struct gw_sums **sums, const struct audit_kind *kind, struct audit_writer *log, const char *sandbox);

/* Write all sums to LOG. SUMS may be NULL here, in gw_sums_count and in gw_sums_free. */
void gw_sums_flush(struct gw_sums *sums, struct audit_writer *log, const char *sandbox);
void gw_sums_free(struct gw_sums *sums);

#endif
