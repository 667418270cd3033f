/*
 * Protect files of a project that the user's own tools run on the host later: git hooks and configuration, editor and agent
 * settings, files that shells read. A sandbox must not change them unnoticed.
 *
 * Files that exist become read-only inside, by mounts on top of the project's. The mounts also pin the folders above them,
 * which could otherwise be moved away. Names that cannot be mounted over, because they are missing or are links, are checked
 * before and after: every file that was created or changed is reported to the user and recorded. A check follows no links and
 * takes a bounded time, whatever the sandbox left behind.
 *
 * A git folder outside the project, of a worktree or a submodule, is mounted as well. A sandbox may have written the file that
 * names it, so it is used only if that folder names the project in return.
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

/* Whether another sandbox may have written PATH. True if that is unknown. */
typedef bool guard_claimed(const struct ak_paths *paths, const char *path);

/*
 * Inspect PROJECT, whose identity is ID. Without PROTECT nothing is read-only and nothing is reported, but changes are still
 * recorded. A git folder outside the project is mounted only if CLAIMED returns false for it.
 */
int guard_new(const char *project, const struct project_id *id, const struct ak_paths *paths, guard_claimed *claimed,
	bool protect, struct guard **ret, struct ak_err *err);
void guard_free(struct guard *g);

/* The mounts on top of the project, in this order; at most GUARD_MOUNTS_MAX. The guard owns their strings. */
size_t guard_mounts(const struct guard *g, struct sandbox_mount ret[static GUARD_MOUNTS_MAX]);

/* The mounted git folder outside the project; "" if none. */
const char *guard_outside(const struct guard *g);

/* Lines to show to the user at the start; "" if none. */
const char *guard_note(const struct guard *g);

/*
 * Call after SANDBOX has ended. ORIGIN says who started it ("cli", "http", "mcp"). Compare with the first check, record the
 * files that were created or changed, and return the line that reports them; the caller frees it. NULL if there is nothing to
 * report. G may be NULL.
 */
char *guard_tell(struct guard *g, const struct ak_paths *paths, const char *sandbox, const char *origin);

#endif
