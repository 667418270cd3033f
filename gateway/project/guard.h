/*
 * Files of a project that the user's own tools run on the host later: git's hooks and configuration, settings of editors and agents, files that shells
 * read. A sandbox must not write them unseen.
 *
 * Those that are there become read-only inside, by mounts on top of the project's. Mounts also pin the folders above them, which could be moved away
 * otherwise. What cannot be mounted over, because it is not there or is a link, is looked at before and after: what was created or changed is told to
 * the user and recorded. No look follows a link or goes on for long, whatever the sandbox left behind.
 *
 * A git folder outside the project, of a worktree or a submodule, is mounted as well. Which one it is stands in a file that a sandbox may have written, so
 * it counts only when that folder names the project in return.
 */
#ifndef AK_GUARD_H
#define AK_GUARD_H

#include "gateway/base/err.h"
#include "gateway/base/paths.h"
#include "gateway/project/project.h"
#include "vmctl/sandbox.h"

#include <stdbool.h>
#include <stddef.h>

struct guard;

#define GUARD_MOUNTS_MAX 96

/* May PATH have been written by another sandbox? True also when that cannot be told. */
typedef bool guard_claimed(const struct ak_paths *paths, const char *path);

/*
 * Look at PROJECT, which is ID. Without PROTECT nothing is read-only and nothing is told, but changes are still recorded. A git folder outside the
 * project is mounted only where CLAIMED says no.
 */
int guard_new(const char *project, const struct project_id *id, const struct ak_paths *paths, guard_claimed *claimed,
	bool protect, struct guard **ret, struct ak_err *err);
void guard_free(struct guard *g);

/* What goes on top of the project, in this order: at most GUARD_MOUNTS_MAX, with strings that are the guard's. */
size_t guard_mounts(const struct guard *g, struct sandbox_mount ret[static GUARD_MOUNTS_MAX]);

/* The git folder outside the project that is mounted as well; "" when there is none. */
const char *guard_outside(const struct guard *g);

/* What the user should know at the start, a line or several; "" when nothing. */
const char *guard_note(const struct guard *g);

/*
 * After SANDBOX, which ORIGIN ("cli", "http", "mcp") began, has ended: compare, record what was created or changed, and return the line that tells it, which the caller frees; NULL when there is
 * nothing to tell. G may be NULL.
 */
char *guard_tell(struct guard *g, const struct ak_paths *paths, const char *sandbox, const char *origin);

#endif
