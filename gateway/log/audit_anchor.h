/*
 * Anchors: record how long a log was, in another place than the log (STATE/anchors/NAME), so that a truncated or deleted log
 * is detected.
 *
 * The record is written before its anchor: an anchor may lag by about a second, but is never ahead. That holds if processes are
 * killed. After a power failure, a log may lose more of its end than its anchor. An anchor therefore has two entries: the
 * newest, which counts only if the machine has not been restarted since; and one that was a minute old when the newest was
 * written, which always counts.
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
	uint64_t wall_us, boot_us; /* when the newest entry was written, by both clocks */
};

/* Record that the log NAME of the state folder DIR is at SEQ and HASH. KEY may be NULL. */
int audit_anchor_set(const char *dir, const char *name, const struct audit_key *key, uint64_t seq, const char *hash);

/* The same for a caller that has just read the anchor as BEFORE, all zero if there was none, and holds the lock of the log since. */
int audit_anchor_move(const char *dir, const char *name, const struct audit_key *key, const struct audit_anchor *before,
	uint64_t seq, const char *hash);

/* -ENOENT if there is none; -EBADMSG if it was altered, or not made with KEY (if not NULL). */
int audit_anchor_get(const char *dir, const char *name, const struct audit_key *key, struct audit_anchor *ret);

void audit_anchor_drop(const char *dir, const char *name);

/* May the machine have been restarted since A was written? */
bool audit_anchor_restarted(const struct audit_anchor *a);

#endif
