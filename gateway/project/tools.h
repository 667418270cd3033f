/*
 * What a command needs of the host besides its system folders: the program that the caller's PATH leads to, what its links and its "#!" line lead to, and the
 * package or tool-chain root around each. All of it goes in read-only and at its own path.
 *
 * Never more than that: not the home, not a folder of many tools' data, nothing that holds keys. What lies in the project was perhaps written by a sandbox,
 * so its links and "#!" lines bring nothing in but a well-known interpreter found on PATH.
 */
#ifndef AK_TOOLS_H
#define AK_TOOLS_H

#include "gateway/base/err.h"
#include "gateway/base/paths.h"
#include "gateway/project/guard.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define TOOLS_MAX 48

enum tool_kind { TOOL_FILE, TOOL_FOLDER, TOOL_LINK, TOOL_KIND_NUM };

struct tool {
	enum tool_kind kind;
	char *path; /* owned; absolute, and of a FILE or FOLDER without links */
	char *target; /* owned; what a LINK says */
	dev_t dev; /* of a FILE or FOLDER */
	ino_t ino;
	char *why; /* owned; for --explain: "npm package of codex" */
};

struct tools {
	struct tool list[TOOLS_MAX];
	size_t n;
	char *path; /* owned; PATH inside: the caller's entries that exist inside, in order, then the system's */
	char *program; /* owned; where the command lies on the host; NULL when the caller's PATH does not lead to it */
	char *refused; /* owned; why the program is not brought in although it was found; NULL when it is */
};

struct tools_ask {
	const char *command; /* argv[0] */
	const char *path; /* the caller's PATH; NULL when there is none */
	const char *home; /* the caller's home; NULL when there is none */
	const char *project; /* "" when none is mounted */
	const char *shown; /* a folder of the host that is mounted whole; "" when there is none */
	const struct ak_paths *paths;
	guard_claimed *claimed;
};

/* Look for all that. A command that is not found is no error here: the sandbox tells that itself. */
int tools_find(const struct tools_ask *ask, struct tools *ret, struct ak_err *err);
void tools_done(struct tools *t);

/* The folder that REAL, a program without links in its path, needs around it: its length as a prefix of REAL and its kind in words; 0 when it needs none. */
size_t tools_root(const char *real, const char **ret_what);

/* Is PATH in what every sandbox sees of the host? */
bool tools_in_system(const char *path);

#endif
