/*
 * Trust: which content of which agentkernel.toml the user has agreed to.
 *
 * STATE/trust/HEX holds one record; HEX is the SHA-256 of the file's resolved path. A record has the hash of the content, and the content itself,
 * so that a later change can be shown, and the identity of the source of each mount: a sandbox may put another folder in its place. No sandbox
 * can see the state folder.
 */
#ifndef AK_TRUST_H
#define AK_TRUST_H

#include "gateway/base/err.h"
#include "gateway/base/paths.h"
#include "gateway/base/strbuf.h"
#include "gateway/config/config.h"

#include <stdint.h>

enum trust_state { TRUST_NONE, TRUST_SAME, TRUST_CHANGED };

struct trust_record {
	char *path; /* owned */
	char *text; /* owned */
	char *mounts; /* owned; identities of the sources of its mounts, in their order, each after a space */
	char sha256[65];
	uint64_t time_s;
};
void trust_record_done(struct trust_record *r);

/*
 * Is the content of C trusted? Then its mounts get the identities of the record. *RET, unless NULL, is the record of its path, if there is one. A
 * damaged record counts as none.
 */
int trust_check(const struct ak_paths *paths, struct config *c, enum trust_state *ret, struct trust_record *ret_record,
	struct ak_err *err);

/* Trust this content at this path, and no other, with what is now at the sources of its mounts. */
int trust_store(const struct ak_paths *paths, const struct config *c, struct ak_err *err);

/* Forget PATH; -ENOENT if it was not trusted. */
int trust_revoke(const struct ak_paths *paths, const char *path, struct ak_err *err);

/* Call FN for each record, in no order; returns the number of records. */
int trust_each(const struct ak_paths *paths, void (*fn)(void *ctx, const struct trust_record *r), void *ctx, struct ak_err *err);

/* Append the lines in which NEW differs from OLD, with "- " or "+ " before each; anything but printable ASCII is escaped. */
void trust_diff(const char *old, const char *new, struct strbuf *out);

#endif
