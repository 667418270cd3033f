/*
 * Kinds of denials that a sandbox has seen before. Two records are of the same kind if they differ only in their time and their
 * numbers.
 */
#ifndef AK_AUDIT_KINDS_H
#define AK_AUDIT_KINDS_H

#include "gateway/log/audit.h"

#define AUDIT_KIND_SIZE 16
#define AUDIT_KINDS_MAX 8192 /* kinds distinguished by destination … */
#define AUDIT_SORTS_MAX 256 /* … and, beyond that, only by rule, reason and protocol */

struct audit_kind {
	uint8_t id[AUDIT_KIND_SIZE];
};

struct audit_kinds {
	struct audit_kind *slots; /* owned; a power of two, at most half full; an id of all zeros is free */
	size_t cap, used;
	unsigned sorts; /* how many of them have no destination */
};

void audit_kind_of(const struct audit_net *rec, struct audit_kind *ret);

/* Is REC the first record of its kind, KIND? False beyond the limits. */
bool audit_kinds_first(struct audit_kinds *k, const struct audit_net *rec, const struct audit_kind *kind);

/* Forget KIND, which must be the newest: its copy could not be written, so the next record of the kind tries again. */
void audit_kinds_forget(struct audit_kinds *k, const struct audit_kind *kind);

void audit_kinds_done(struct audit_kinds *k);

#endif
