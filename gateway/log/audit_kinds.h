/* Kinds of refusals: which ones a sandbox has met before. Two records are of one kind when nothing but their time and their numbers differs. */
#ifndef AK_AUDIT_KINDS_H
#define AK_AUDIT_KINDS_H

#include "gateway/log/audit.h"

#define AUDIT_KIND_SIZE 16
#define AUDIT_KINDS_MAX 8192 /* that are told apart by where they went … */
#define AUDIT_SORTS_MAX 256 /* … and, past that, by rule, reason and protocol alone */

struct audit_kind {
	uint8_t id[AUDIT_KIND_SIZE];
};

struct audit_kinds {
	struct audit_kind *slots; /* owned; a power of two, at most half full; an id of zeroes is free */
	size_t cap, used;
	unsigned sorts; /* of these, those that are no destination's */
};

void audit_kind_of(const struct audit_net *rec, struct audit_kind *ret);

/* Whether REC is the first of its kind, KIND. Past the bounds the answer is no. */
bool audit_kinds_first(struct audit_kinds *k, const struct audit_net *rec, const struct audit_kind *kind);

/* Take back that KIND, the newest of all, is known: its copy could not be written, and the next one of it must be tried again. */
void audit_kinds_forget(struct audit_kinds *k, const struct audit_kind *kind);

void audit_kinds_done(struct audit_kinds *k);

#endif
