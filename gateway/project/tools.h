/*
 * Find what a command needs from the host besides the system folders: the program found on the caller's PATH, the targets of
 * its links, its "#!" line and the "exec NAME" of a small shell script, the package or tool-chain folder around each, and the shared libraries and the dynamic linker that
 * they find outside the system folders. All of it is mounted read-only, at its own path.
 *
 * Nothing else is mounted: every file and folder passes mount_check_source, as what the user mounts does, so none lies in or contains
 * our own folders or a folder that holds keys, and none contains the home or holds the data of many tools. A sandbox may
 * have written files of the project, and of every folder that one could ever write, so their links and "#!" lines can only add a
 * well-known interpreter found on PATH.
 */
#ifndef AK_TOOLS_H
#define AK_TOOLS_H

#include "gateway/base/err.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define TOOLS_MAX 48
#define TOOLS_SYSTEM_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

enum tool_kind { TOOL_FILE, TOOL_FOLDER, TOOL_LINK, TOOL_KIND_NUM };

struct tool {
	enum tool_kind kind;
	char *path; /* owned; absolute; resolved for a FILE or FOLDER */
	char *target; /* owned; the target of a LINK, as written */
	dev_t dev; /* of a FILE or FOLDER */
	ino_t ino;
	char *why; /* owned; for --explain: "npm package of codex" */
};

struct tools {
	struct tool list[TOOLS_MAX];
	size_t n;
	char *path; /* owned; PATH inside: the caller's entries that exist inside, in order, then the system's */
	char *program; /* owned; path of the command on the host; NULL if it is not on the caller's PATH */
	bool mise; /* one of them is a shim of mise */
	bool own; /* the user's PATH gave the command by its name, and no sandbox may have written it */
	char *refused; /* owned; why the first program or library that was found and not mounted is not; NULL if all are */
	char *partly; /* owned; why the folder around a program is not mounted with it; NULL if all are */
	char *missing; /* owned; the first of the other programs that is not on the caller's PATH; NULL if all are */
};

struct owndir;

struct tools_ask {
	const char *command; /* argv[0]; "" if none */
	const char *const *more; /* other programs to bring in, NULL-terminated; NULL: none */
	const char *path; /* the caller's PATH; NULL if unset */
	const char *home; /* the caller's home; NULL if unknown */
	const char *project; /* "" if none is mounted */
	const char *shown; /* a host folder that is mounted as a whole; "" if none */
	struct owndir *own; /* borrowed */
	bool by_name; /* a command that is a path outside the project is not brought in: only the user's PATH says what is a tool */
	/* Whether a sandbox other than this one may have written PATH; true also if that is unknown. */
	bool (*written)(void *ctx, const char *path);
	void *written_ctx;
};

/* Find all of it. A command that is not found is no error here: the sandbox reports it. */
int tools_find(const struct tools_ask *ask, struct tools *ret, struct ak_err *err);
void tools_done(struct tools *t);

/*
 * The folder that REAL, a resolved program path, needs around it. Returns its length as a prefix of REAL and describes it in
 * RET_WHAT; 0 if it needs none.
 */
bool tools_look_up(const char *path, const char *name, char ret[static PATH_MAX]);
size_t tools_root(const char *real, const char **ret_what);
bool tools_marker(const char *real, size_t len, const char *what,
	char ret[static PATH_MAX]); /* the file that shows it; false: its name does */
size_t tools_package(const char *real, const char **ret_what); /* the same, by the folder's name only, for a library */

/* Folders of a tool chain, relative to it, that are enough where it shares a prefix with other programs; NULL if all of it is needed. */
const char *const *tools_parts(const char *what);

/* Whether PATH is in a host folder that every sandbox sees. */
bool tools_in_system(const char *path);

/* The same without folders in which a project may lie: no sandbox writes there. */
bool tools_only_of_system(const char *path);

#endif
