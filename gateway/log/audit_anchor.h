/*
 * Anchors: how far a log had come, kept in another place than the log (STATE/anchors/NAME), so that a log that is shorter than it was, or
 * not there at all, is noticed.
 *
 * The record comes first and its anchor after it: an anchor may lag, by the records of about a second, and never leads. That holds for killed
 * processes. Losing power may cost a log more of its end than its anchor, so an anchor has two entries: the newest, which counts while the machine has
 * not been restarted since; and one that was a minute old when the newest was written, which counts always.
 */
#ifndef AK_AUDIT_ANCHOR_H
#define AK_AUDIT_ANCHOR_H

#include "gateway/base/err.h"
#include "gateway/base/sha256.h"
#include "gateway/log/audit_mac.h"

#include <stdbool.h>
#include <stdint.h>

#define AUDIT_ANCHORS "anchors"

struct audit_point {
	uint64_t seq; /* 0: none */
	char hash[SHA256_HEX];
};

struct audit_anchor {
	struct audit_point newest, settled;
	uint64_t wall_us, boot_us; /* when the newest was written, by both clocks */
};

/* The log NAME of the state folder DIR stands at SEQ and HASH. KEY may be NULL. */
int audit_anchor_set(const char *dir, const char *name, const struct audit_key *key, uint64_t seq, const char *hash);

/* -ENOENT when there is none; -EBADMSG when it was altered, or KEY (not NULL) did not make it. */
int audit_anchor_get(const char *dir, const char *name, const struct audit_key *key, struct audit_anchor *ret);

void audit_anchor_drop(const char *dir, const char *name);

/* Whether the machine may have been restarted since A was written. */
bool audit_anchor_restarted(const struct audit_anchor *a);

#endif
