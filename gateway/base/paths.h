/*
 * Where things are kept, and the folders of one sandbox.
 *
 *   STATE/events.jsonl               life cycle, exec, file and policy events of all sandboxes
 *   STATE/runs/NAME/                 one past or kept `run`: run.jsonl, network.jsonl, policy.json, upper/ when kept
 *   STATE/runs/.spare-N/             an empty folder for a run to come
 *   STATE/last                       the name of the newest run
 *   STATE/mcp/ID                     held by the MCP server of that id while it lives (store/state_server.h)
 *   RUNTIME/                         sockets and locks of what runs now
 *   CONFIG/policies, /etc/agentkernel/policies, DATA/policies    NAME.json, the first that exists
 *
 * Root keeps its state in the system's folders, unless XDG_STATE_HOME is set: then root is treated as any user.
 */
#ifndef AK_PATHS_H
#define AK_PATHS_H

#include "gateway/base/err.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#define AK_SYSTEM_CONFIG "/etc/agentkernel"
#define AK_NAME_MAX 64 /* a sandbox's name with its NUL */

struct ak_paths {
	char state[PATH_MAX];
	char runtime[PATH_MAX];
	char config[PATH_MAX]; /* the user's; the system's is /etc/agentkernel */
	char data[PATH_MAX]; /* shipped policies live in DATA/policies */
};

/*
 * From XDG variables and uid; makes nothing. Data is the first of: AGENTKERNEL_DATA_DIR; the source tree, when the program lies in a
 * build folder directly below it; ../share/agentkernel beside the program; the compiled-in folder.
 */
int ak_paths_init(struct ak_paths *ret, struct ak_err *err);

/* DIR/A, and DIR/A/B when B is not NULL; -ENAMETOOLONG. */
int ak_path_join(char buf[static PATH_MAX], const char *dir, const char *a, const char *b);

/* 1–63 of [A-Za-z0-9_-], alphanumeric at both ends. */
bool ak_sandbox_name_ok(const char *name);

#endif
