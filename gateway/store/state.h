/*
 * Persistent sandboxes on disk: STATE/sandboxes/NAME/ with
 *   sandbox.json     what `create` fixed, and the live policy's edits and generation; replaced as a whole (tmp, fsync, rename)
 *   policy.json      the canonical effective policy, for `network check NAME`
 *   network.jsonl    the network log (rotated beside it)
 *   upper/           what the sandbox wrote
 * Every change happens under an exclusive lock on the folder, so that concurrent commands and crashes never lose or half-write one.
 * A folder is made under a name that starts with a dot and renamed when it is whole; it is renamed away before it is taken apart.
 */
#ifndef AK_STATE_H
#define AK_STATE_H

#include "gateway/base/err.h"
#include "gateway/base/json.h"
#include "gateway/base/paths.h"
#include "gateway/store/plan.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define STATE_VERSION 1 /* a file of a newer version is an error that says so, and is left alone */
#define STATE_EDITS_MAX 1024
#define STATE_LINK_MAX 12287 /* links of persistent sandboxes are 1 … this; those above are the pool's */

/* One change on top of the policy file. */
struct state_edit {
	enum policy_edit_op op;
	char *text; /* owned */
	uint64_t until_us; /* wall clock; 0: for good (`--for` sets it) */
};

#define STATE_MCP_MAX 16 /* sandboxes that one MCP server makes, those that others of its project kept included */

/* Which MCP servers may use it, and with which policy. */
struct state_mcp {
	char project[PATH_MAX]; /* those that serve this folder; "": none */
	char server[33]; /* the one that made it (store/state_server.h); "": a user did, and opened it to all of the project */
	bool keep; /* it outlives that server, for later ones of the project that could make it themselves */
	uint64_t generation; /* the policy that this was said of; wider ones came later */
};

struct state_sandbox {
	char name[AK_NAME_MAX];
	char uuid[37];
	enum ak_mode mode;
	enum ak_profile profile;
	char dir[PATH_MAX]; /* project, "" when none */
	struct project_id dir_id; /* what it was at create; not known for those that an older version made */
	bool no_network, project_writable;
	bool nested; /* may make namespaces of its own */
	struct sandbox_limits limits;
	char **env; /* owned, NULL-terminated: run_plan_capture of create */
	uint64_t created_us;
	uint32_t link_id; /* its link in the gateway's namespace; fixed for life, so that logs and rules speak of one address */
	bool running; /* as its last daemon knew it; only a supervisor that answers makes it true for the next one */
	uint64_t generation; /* of the live policy; 1 at create */
	uint64_t allowed, denied; /* up to the last stop; for `list` */
	struct state_edit *edits; /* owned */
	size_t n_edits;
	struct state_mcp mcp;
};

/* Who made it, as far as that is known: "mcp" or "cli". */
const char *state_origin(const struct state_sandbox *s);

/* Make a new one: -EEXIST when the name is taken, -EINVAL for a bad name, -EDQUOT when an MCP server has made STATE_MCP_MAX. Fills uuid,
 * created_us, link_id and generation. */
int state_create(const struct ak_paths *paths, struct state_sandbox *s, struct ak_err *err);

/* -ENOENT: "no sandbox named 'x'"; -EBADMSG: sandbox.json is damaged; -EPROTONOSUPPORT: a newer version wrote it. */
int state_load(const struct ak_paths *paths, const char *name, struct state_sandbox *ret, struct ak_err *err);
bool state_damaged(int rc); /* one of the latter two: there is one, and all that can be done with it is to remove it */
int state_save(const struct ak_paths *paths, const struct state_sandbox *s, struct ak_err *err);

/* NAME is free when it returns; its files are in *RET_GONE (a path) for the caller to remove, at leisure. */
int state_remove(const struct ak_paths *paths, const char *name, char ret_gone[static PATH_MAX], struct ak_err *err);
void state_done(struct state_sandbox *s);

/* Call FN for each that can be read, in order of name; damaged ones are told through err_fn (may be NULL) and skipped. */
int state_each(const struct ak_paths *paths, int (*fn)(void *ctx, struct state_sandbox *s),
	void (*err_fn)(void *ctx, const char *name, const char *reason), void *ctx, struct ak_err *err);

/* Remove what a crash left behind of creating or removing; LEFT (may be NULL) is told what cannot be. For the daemon, at its start. */
void state_sweep(
	const struct ak_paths *paths, void (*left)(void *ctx, const char *name, const char *where, int error), void *ctx);

/* Lock NAME's folder; the descriptor is the lock. -ETIMEDOUT when another holds it for seconds. */
int state_lock(const struct ak_paths *paths, const char *name, struct ak_err *err);

/* STATE/sandboxes/NAME[/FILE]; -ENAMETOOLONG. */
int state_path(const struct ak_paths *paths, const char *name, const char *file, char ret[static PATH_MAX]);

/* ---- what it means ---- */

bool state_network(const struct state_sandbox *s);

/* The effective policy: the mode's file plus the edits that have not run out at NOW_US. */
int state_policy(
	const struct ak_paths *paths, const struct state_sandbox *s, uint64_t now_us, struct policy **ret, struct ak_err *err);

/* policy.json, for readers that do not ask the daemon. */
int state_write_policy(const struct ak_paths *paths, const char *name, const struct policy *p, struct ak_err *err);

/* How it runs, as `run` would plan it with the same mode, profile and flags. EMPTY_DIR as in run_plan_init. */
int state_plan(const struct ak_paths *paths, const struct state_sandbox *s, const char *empty_dir, struct run_plan *ret,
	struct ak_err *err);

/*
 * Edits. One that is already there only gets its new end. REMOVE takes back every edit that made the rule and, where the policy file
 * has the rule too, is kept as an edit. -ENOENT when there is no such rule.
 */
int state_edit_add(const struct ak_paths *paths, struct state_sandbox *s, enum policy_edit_op op, const char *text,
	uint64_t until_us, struct ak_err *err);
void state_edits_clear(struct state_sandbox *s);
size_t state_edits_expire(struct state_sandbox *s, uint64_t now_us); /* how many went */
uint64_t state_edits_next(const struct state_sandbox *s); /* the earliest end; 0 when none ends */
int state_edits_copy(const struct state_sandbox *from, struct state_sandbox *to); /* TO's own are freed */

/* {"op","text",TIME_KEY}: RET's text is ITEM's own; *RET_TIME is left as it is where the member is absent. TIME_KEY may be NULL. */
int state_edit_get(const cJSON *item, const char *time_key, uint64_t time_max, struct policy_edit *ret, uint64_t *ret_time,
	struct ak_err *err);

/* ---- as JSON ---- */

cJSON *state_to_json(const struct state_sandbox *s); /* NULL: out of memory */
bool state_limits_put(cJSON *obj, const struct sandbox_limits *l); /* as the member "limits" */
int state_limits_get(const cJSON *obj, struct sandbox_limits *ret, struct ak_err *err); /* untouched where absent */
int state_from_json(const cJSON *obj, struct state_sandbox *ret, struct ak_err *err);
int state_mcp_get(const cJSON *obj, struct state_mcp *ret, struct ak_err *err); /* the member "mcp"; untouched where absent */
bool state_mcp_put(cJSON *obj, const struct state_mcp *m); /* nothing when it is for none */

#endif
