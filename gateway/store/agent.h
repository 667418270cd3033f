/*
 * The agents that we know: their commands, modes, keys, and where each keeps its sign-in, settings and sessions.
 *
 * That memory lives in STATE/agents/NAME, apart from the host's own, and is mounted writable at the usual places of the home. Two runs at once share it as two
 * terminals on one machine would: what an agent does to its files is as atomic inside as outside, as whole folders are mounted and never single files.
 */
#ifndef AK_AGENT_H
#define AK_AGENT_H

#include "gateway/base/err.h"
#include "gateway/base/paths.h"
#include "gateway/store/plan.h"

#include <limits.h>

#define AGENT_KEYS_MAX 4

struct agent_env {
	const char *pair; /* "KEY=VALUE"; "~/" in front of VALUE is the home inside */
	const char *why; /* for --explain */
};

#define AGENT_SIGNS_MAX 3

struct agent {
	const char *name; /* "codex": the command, and the word of the command line */
	const char *title; /* "Codex" */
	enum ak_mode mode;
	const char *keys[AGENT_KEYS_MAX + 1]; /* variables that hold an API key, the usual one first */
	const char *state[AGENT_STATE_MAX + 1]; /* folders of the home */
	const char *import[2]; /* a single file of the home that goes into one of those folders: from, to; or NULL */
	const char *signed_in[AGENT_SIGNS_MAX + 1]; /* files below those folders that a sign-in leaves; any of them suffices */
	const char *
		key_login; /* words that make it read an API key from stdin and keep it; NULL: it takes the key from its variable */
	const char *install; /* how to get it */
	const char *settle
		[2]; /* words that make it open its database and end; only for an agent whose first starts disturb each other */
	struct agent_env env[2]; /* that the agent needs in a sandbox */
	/* A settings file that the agent reads before the user's own, which thus wins; or NULL */
	const char *file, *file_text, *file_why;
};

#define AGENTS_NUM 4
extern const struct agent agents[AGENTS_NUM];

const struct agent *agent_named(const char *name); /* NULL when there is none */
const struct agent *agent_of_command(const char *argv0); /* by its last part */
const struct agent *agent_of_mode(enum ak_mode mode);

const char *agent_env_why(const char *pair); /* of a variable in one of the rows; only its key counts */

/* Where the memory of A is kept; PROJECT is NULL for the one that all projects share. */
int agent_state_dir(const struct ak_paths *paths, const struct agent *a, const char *project, char ret[static PATH_MAX]);

/*
 * Open FOLDER ("": DIR itself) in DIR, a result of agent_state_dir, and create what is missing. A link in STATE is not followed: it would put a folder of the
 * user's own into the sandbox, writable. Returns the descriptor or -errno.
 */
int agent_state_open(
	const struct ak_paths *paths, const struct agent *a, const char *dir, const char *folder, struct ak_err *err);

#endif
