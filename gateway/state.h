/*
 * Persistent sandboxes on disk: STATE/sandboxes/NAME/ with
 *   sandbox.json     what `create` fixed, and the live policy's edits and generation; replaced as a whole (tmp, fsync, rename)
 *   policy.json      the canonical effective policy, for `network check NAME`
 *   network.jsonl    the network log (rotated beside it)
 *   upper/           what the sandbox wrote
 * Every change happens under an exclusive lock on the folder, so that concurrent commands and crashes never lose or half-write one.
 */
#ifndef AK_STATE_H
#define AK_STATE_H

#include "gateway/base/err.h"
#include "gateway/base/json.h"
#include "gateway/paths.h"
#include "gateway/plan.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define STATE_VERSION 1 /* a file of a newer version is an error that says so, and is left alone */
#define STATE_EDITS_MAX 1024

/* One change on top of the policy file. */
struct state_edit {
	enum policy_edit_op op;
	char *text; /* owned */
	uint64_t until_us; /* wall clock; 0: for good (`--for` sets it) */
};

struct state_sandbox {
	char name[AK_NAME_MAX];
	char uuid[37];
	enum ak_mode mode;
	enum ak_profile profile;
	char dir[PATH_MAX]; /* project, "" when none */
	bool no_network;
	struct sandbox_limits limits;
	char **env; /* owned, NULL-terminated: -e of create */
	uint64_t created_us;
	uint32_t link_id; /* its link in the gateway's namespace; fixed for life, so that logs and rules speak of one address */
	bool running; /* wanted state: a daemon that starts brings it back if its supervisor is gone? no: only adopts. For `list`. */
	uint64_t generation; /* of the live policy; 1 at create */
	struct state_edit *edits; /* owned */
	size_t n_edits;
};

/* Make a new one: -EEXIST when the name is taken, -EINVAL for a bad name. Fills uuid, created_us and link_id. */
int state_create(const struct ak_paths *paths, struct state_sandbox *s, struct ak_err *err);
int state_load(const struct ak_paths *paths, const char *name, struct state_sandbox *ret, struct ak_err *err); /* -ENOENT: "no sandbox named 'x'" */
int state_save(const struct ak_paths *paths, const struct state_sandbox *s, struct ak_err *err);
int state_remove(const struct ak_paths *paths, const char *name, struct ak_err *err);
void state_done(struct state_sandbox *s);

/* Call FN for each that can be read, in order of name; unreadable ones are told through err_fn (may be NULL) and skipped. */
int state_each(const struct ak_paths *paths, int (*fn)(void *ctx, struct state_sandbox *s), void (*err_fn)(void *ctx, const char *name, const char *reason),
	void *ctx, struct ak_err *err);

/* The effective policy: the mode's file plus the edits that have not run out at NOW_US. */
int state_policy(const struct ak_paths *paths, const struct state_sandbox *s, uint64_t now_us, struct policy **ret, struct ak_err *err);

/* Lock NAME's folder; the descriptor is the lock. */
int state_lock(const struct ak_paths *paths, const char *name, struct ak_err *err);

#endif
