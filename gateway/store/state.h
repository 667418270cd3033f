/*
 * Persistent sandboxes on disk: STATE/sandboxes/NAME/ with
 *   sandbox.json     the settings of `create`, and the edits and generation of the live policy; replaced atomically (tmp, fsync, rename)
 *   policy.json      the canonical effective policy, for `network check NAME`
 *   network.jsonl    the network log (rotated next to it)
 *   upper/           the files that the sandbox wrote
 *   snapshots/TAG/   copies of them (store/snapshot.h)
 *   run.jsonl        only of a kept run: how that run ended (store/rundir.h)
 * Every change holds an exclusive lock on the folder, so that concurrent commands and crashes never lose or half-write one.
 * A folder is created under a name that starts with a dot and renamed when it is complete; it is renamed again before it is removed.
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

#define STATE_VERSION 1 /* a file with a newer version is an error and stays untouched */
#define STATE_EDITS_MAX 1024
#define STATE_LINK_MAX 12287 /* persistent sandboxes use links 1 … this; higher ones belong to the pool */

/* One change to the policy of the policy file. */
struct state_edit {
	enum policy_edit_op op;
	char *text; /* owned */
	uint64_t until_us; /* wall clock; 0: permanent (`--for` sets it) */
};

#define STATE_MCP_MAX 16 /* sandboxes per MCP server, including those that other servers of its project kept */

/* Which MCP servers may use the sandbox, and with which policy. */
struct state_mcp {
	char project[PATH_MAX]; /* servers for this folder; "": none */
	char server
		[33]; /* the server that created it (store/state_server.h); "": a user did and allowed all servers of the project */
	bool keep; /* it outlives that server, for later servers of the project that could create it themselves */
	uint64_t generation; /* the policy generation for which this was decided; later ones may be wider */
};

struct state_sandbox {
	char name[AK_NAME_MAX];
	char uuid[37];
	enum ak_mode mode;
	char own[AK_NAME_MAX]; /* the policy of AK_MODE_OWN, else "" */
	enum ak_profile profile;
	char dir[PATH_MAX]; /* project folder, "" if none */
	struct project_id dir_id; /* its identity at create; unknown if an older version created it */
	bool no_network, project_writable;
	bool nested; /* nested namespaces are allowed */
	bool vm; /* its commands run in a virtual machine */
	bool podman; /* its commands run in a container of podman's */
	struct sandbox_limits limits;
	struct run_mount *mounts; /* owned; the user's mounts, resolved at create */
	size_t n_mounts;
	char **tools; /* owned, NULL-terminated: programs of the host to bring in at every start, besides the agent of the mode; NULL: none */
	char *path; /* owned: the creator's PATH, where they are found; NULL: bring none in */
	char **env; /* owned, NULL-terminated: result of run_plan_capture at create */
	char image[IMAGE_NAME_MAX]; /* name of its image at create, "" if its root is the host's */
	char image_id[SHA256_HEX]; /* the image itself: the name may stand for another one later */
	uint64_t created_us;
	uint32_t link_id; /* its link in the gateway's namespace; never changes, so logs and rules always use the same address */
	bool running; /* according to its last daemon; the next daemon checks whether the supervisor answers */
	uint64_t generation; /* of the live policy; 1 at create */
	uint64_t allowed, denied; /* counts up to the last stop; for `list` */
	struct state_edit *edits; /* owned */
	size_t n_edits;
	struct state_mcp mcp;
	struct ak_publish publish[AK_PUBLISH_MAX]; /* as asked for: with port 0, each start picks a free one */
	size_t n_publish;
};

/* Who created it, as far as known: "mcp" or "cli". */
const char *state_origin(const struct state_sandbox *s);

/*
 * Create a sandbox: -EEXIST if the name is taken, -EINVAL for a bad name, -EDQUOT if an MCP server has created STATE_MCP_MAX.
 * Sets uuid, created_us, link_id and generation.
 */
int state_create(const struct ak_paths *paths, struct state_sandbox *s, struct ak_err *err);

/* The same of a run that was kept: its folder DIR, with its files, log and record, becomes the folder of the sandbox. */
int state_keep(const struct ak_paths *paths, struct state_sandbox *s, const char *dir, struct ak_err *err);

/* -ENOENT: "no sandbox named 'x'"; -EBADMSG: sandbox.json is damaged; -EPROTONOSUPPORT: a newer version wrote it. */
int state_load(const struct ak_paths *paths, const char *name, struct state_sandbox *ret, struct ak_err *err);
bool state_damaged(int rc); /* one of the last two errors: the sandbox exists, but can only be removed */
int state_save(const struct ak_paths *paths, const struct state_sandbox *s, struct ak_err *err);

/* NAME is free on return; its files are at the path *RET_GONE, which the caller removes later. */
int state_remove(const struct ak_paths *paths, const char *name, char ret_gone[static PATH_MAX], struct ak_err *err);
void state_done(struct state_sandbox *s);

/* Call FN for each readable sandbox, sorted by name; damaged ones are passed to err_fn (may be NULL) and skipped. */
int state_each(const struct ak_paths *paths, int (*fn)(void *ctx, struct state_sandbox *s),
	void (*err_fn)(void *ctx, const char *name, const char *reason), void *ctx, struct ak_err *err);

/* Remove leftovers of creations and removals after a crash; LEFT (may be NULL) receives failures. Called when the daemon starts. */
void state_sweep(
	const struct ak_paths *paths, void (*left)(void *ctx, const char *name, const char *where, int error), void *ctx);

/* Lock NAME's folder; the descriptor is the lock. -ETIMEDOUT if another process holds it for seconds. */
int state_lock(const struct ak_paths *paths, const char *name, struct ak_err *err);

/* STATE/sandboxes/NAME[/FILE]; -ENAMETOOLONG. */
int state_path(const struct ak_paths *paths, const char *name, const char *file, char ret[static PATH_MAX]);

/* ---- policy and plan ---- */

bool state_network(const struct state_sandbox *s);

const char *state_mode(const struct state_sandbox *s); /* the name of the mode, which is that of its policy */
int state_set_mode(struct state_sandbox *s, const char *text, struct ak_err *err);

/* The effective policy: the mode's policy file plus the edits that have not expired at NOW_US. */
int state_policy(
	const struct ak_paths *paths, const struct state_sandbox *s, uint64_t now_us, struct policy **ret, struct ak_err *err);

/* Write policy.json, for commands that read it without the daemon. */
int state_write_policy(const struct ak_paths *paths, const char *name, const struct policy *p, struct ak_err *err);

/* The same plan that `run` would make with this mode, profile and flags. EMPTY_DIR as in run_plan_init. */
int state_plan(const struct ak_paths *paths, const struct state_sandbox *s, const char *empty_dir, struct run_plan *ret,
	struct ak_err *err);

/*
 * Add an edit. If it exists already, only its end time changes. REMOVE deletes every edit that added the rule; if the policy file
 * has the rule too, the removal itself is kept as an edit. -ENOENT if there is no such rule.
 */
int state_edit_add(const struct ak_paths *paths, struct state_sandbox *s, enum policy_edit_op op, const char *text,
	uint64_t until_us, struct ak_err *err);
void state_edits_clear(struct state_sandbox *s);
size_t state_edits_expire(struct state_sandbox *s, uint64_t now_us); /* returns how many expired */
uint64_t state_edits_next(const struct state_sandbox *s); /* the earliest end; 0 if none ends */
int state_edits_copy(const struct state_sandbox *from, struct state_sandbox *to); /* frees the old edits of TO */

/* Parse {"op","text",TIME_KEY}: RET borrows its text from ITEM; *RET_TIME is untouched if absent. TIME_KEY may be NULL. */
int state_edit_get(const cJSON *item, const char *time_key, uint64_t time_max, struct policy_edit *ret, uint64_t *ret_time,
	struct ak_err *err);

/* ---- as JSON ---- */

cJSON *state_to_json(const struct state_sandbox *s); /* NULL: out of memory */
bool state_limits_put(cJSON *obj, const struct sandbox_limits *l); /* adds the member "limits" */
int state_limits_get(const cJSON *obj, struct sandbox_limits *ret, struct ak_err *err); /* RET is untouched if absent */
int state_from_json(const cJSON *obj, struct state_sandbox *ret, struct ak_err *err);
int state_mcp_get(const cJSON *obj, struct state_mcp *ret, struct ak_err *err); /* the member "mcp"; RET is untouched if absent */
bool state_mcp_put(cJSON *obj, const struct state_mcp *m); /* adds nothing if no server may use it */

#endif
