/*
 * The folders of this program and of one sandbox.
 *
 *   STATE/events.jsonl               life cycle, exec, file and policy events of all sandboxes
 *   STATE/runs/NAME/                 one past or kept `run`: run.jsonl, network.jsonl, policy.json, upper/ if kept
 *   STATE/runs/.spare-N/             an empty folder for a later run
 *   STATE/last                       the name of the newest run
 *   STATE/written                    folders that a sandbox could ever write (store/written.h)
 *   STATE/mcp/ID                     locked by the MCP server with that id while it runs (store/state_server.h)
 *   RUNTIME/                         sockets and locks of running processes
 *   CONFIG/policies, /etc/agentkernel/policies, DATA/policies    NAME.json, the first that exists
 *
 * Root uses the system folders unless XDG_STATE_HOME is set; then root is treated like any user.
 */
#ifndef AK_PATHS_H
#define AK_PATHS_H

#include "gateway/base/err.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#define AK_SYSTEM_CONFIG "/etc/agentkernel"
#define AK_NAME_MAX 64 /* a sandbox name including the NUL */

struct ak_paths {
	char state[PATH_MAX];
	char runtime[PATH_MAX];
	char config[PATH_MAX]; /* of the user; the system's is /etc/agentkernel */
	char data[PATH_MAX]; /* the shipped policies are in DATA/policies */
};

/*
 * Set from the XDG variables and the uid; creates nothing. DATA is the first of: AGENTKERNEL_DATA_DIR; the source tree, if the
 * program is in a build folder directly below it; ../share/agentkernel next to the program; the compiled-in folder.
 */
int ak_paths_init(struct ak_paths *ret, struct ak_err *err);

/* DIR/A, or DIR/A/B if B is not NULL; -ENAMETOOLONG. */
int ak_path_join(char buf[static PATH_MAX], const char *dir, const char *a, const char *b);

/* True for 1 to 63 characters of [A-Za-z0-9_-] that start and end with a letter or digit. */
bool ak_sandbox_name_ok(const char *name);

#endif
