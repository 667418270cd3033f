/*
 * Where things are kept (PRODUCT section 10), and the folders of one sandbox.
 *
 *   STATE/events.jsonl               life cycle, exec, file and policy events of all sandboxes
 *   STATE/runs/NAME/                 one past or kept `run`: run.json, network.jsonl, upper/ when kept
 *   STATE/last                       the name of the newest run
 *   RUNTIME/                         sockets and locks of what runs now
 */
#ifndef AK_PATHS_H
#define AK_PATHS_H

#include "gateway/base/err.h"
#include "policies/policy.h"

#include <limits.h>
#include <stdbool.h>

struct ak_paths {
	char state[PATH_MAX];
	char runtime[PATH_MAX];
	char config[PATH_MAX]; /* the user's; the system's is /etc/agentkernel */
	char data[PATH_MAX]; /* shipped policies live in DATA/policies */
};

/* From XDG variables and uid; AGENTKERNEL_DATA_DIR replaces the compiled-in data folder (used from a build tree). */
int ak_paths_init(struct ak_paths *ret, struct ak_err *err);

/* user config, system config, data: where NAME.json is looked up. Borrowed from P, which outlives it. */
void ak_paths_policy_dirs(const struct ak_paths *p, char storage[3][PATH_MAX], struct policy_dirs *ret);

/* 1–63 of [A-Za-z0-9_-], alphanumeric at both ends. */
bool ak_sandbox_name_ok(const char *name);

#endif
