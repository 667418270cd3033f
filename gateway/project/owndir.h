/*
 * Keep our own folders (state, configuration, runtime, policies) away from sandboxes.
 *
 * Two folders are compared by their position in the file system, not by name: links and bind mounts give one folder several
 * names. A mount below a visible folder counts as visible.
 */
#ifndef AK_OWNDIR_H
#define AK_OWNDIR_H

#include "gateway/base/err.h"
#include "gateway/base/paths.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#define OWNDIR_COVERS_MAX 6

/*
 * A snapshot of the mount table and of the positions of our folders, taken on first use. Use it for one plan: a folder on a
 * mount that was made later is an error. PATHS must outlive it.
 */
struct owndir;
int owndir_new(const struct ak_paths *paths, struct owndir **ret, struct ak_err *err);
void owndir_free(struct owndir *o);
void owndir_freep(struct owndir **o);

/*
 * Refuse PROJECT (resolved), which a sandbox may write, if it contains or lies in one of our folders, or if the path to one of
 * ours leads through it: a sandbox must not be able to redirect our sockets with a link. -EINVAL, with the fix in ERR. WHAT
 * and INSTEAD name the folder and the fix: "the project folder", "name another project with --dir".
 */
int owndir_check_writable(struct owndir *o, const char *project, const char *what, const char *instead, struct ak_err *err);

/* Refuse a file in FOLDER, or FOLDER itself, if FOLDER lies in one of ours. NAMED is the path that the user named. */
int owndir_check_outside(struct owndir *o, const char *folder, const char *named, bool writable, struct ak_err *err);

/*
 * How two folders of the host, which exist, lie to each other. Compared by position, so that bind mounts are seen through: a mask
 * of these, 0 if they have nothing in common.
 */
enum { OWNDIR_INSIDE = 1 /* A is B or in it */, OWNDIR_AROUND = 2 /* B is in A, or a part of it is mounted there */ };
int owndir_relation(struct owndir *o, const char *a, const char *b, struct ak_err *err);

/*
 * Find where our folders are visible below the N folders SHOWN, which a sandbox may read. Returns the number of paths to
 * cover, none inside another, or -errno. Creates those of our folders that do not exist, because they would become visible
 * later.
 */
int owndir_covers(
	struct owndir *o, const char *const *shown, size_t n, char ret[static OWNDIR_COVERS_MAX][PATH_MAX], struct ak_err *err);

#endif
