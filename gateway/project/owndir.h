/*
 * Our own folders (state, configuration, runtime, policies) against what a sandbox sees of the host.
 *
 * Two folders are compared by where they lie in their file system, not by name: links and bind mounts lead to one place under several
 * names. Every mount that comes along with a shown folder counts as shown.
 */
#ifndef AK_OWNDIR_H
#define AK_OWNDIR_H

#include "gateway/base/err.h"
#include "gateway/base/paths.h"

#include <limits.h>
#include <stddef.h>

#define OWNDIR_COVERS_MAX 6

/*
 * One look at what is mounted and at where our folders lie, taken when it is first needed. For one plan: a mount that comes later is not in it, and a folder
 * on such a mount is an error. PATHS must outlive it.
 */
struct owndir;
int owndir_new(const struct ak_paths *paths, struct owndir **ret, struct ak_err *err);
void owndir_free(struct owndir *o);
void owndir_freep(struct owndir **o);

/*
 * Refuse the folder PROJECT (resolved), which a sandbox may write, when one of ours lies in it or around it, or when the way to one of ours
 * leads through it: what a sandbox can replace by a link must not decide where our sockets are. -EINVAL, with the fix in ERR.
 */
int owndir_check_writable(struct owndir *o, const char *project, struct ak_err *err);

/*
 * Where our folders appear below one of the N folders SHOWN, which a sandbox may read: the paths to cover, none inside another. How many, or
 * -errno. A folder of ours that does not exist yet is made, or it would be seen once it does.
 */
int owndir_covers(
	struct owndir *o, const char *const *shown, size_t n, char ret[static OWNDIR_COVERS_MAX][PATH_MAX], struct ak_err *err);

/*
 * Open the folder PATH for reading, following links, but none that lies in one of the N folders PROJECTS, which sandboxes may write: -ELOOP.
 */
int owndir_open(const char *path, char *const *projects, size_t n, struct ak_err *err);

#endif
