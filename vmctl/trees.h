/*
 * Detached mounts of the host's folders for the sandboxes of root.
 *
 * Such a sandbox runs under ids that own nothing on the host. So the host's root opens the folders to mount and maps
 * their owners: root's files belong to the sandbox's user inside, and files that the sandbox creates belong to root
 * on disk. Where root inside has many ids, as in an image, the owner of each mounted folder is mapped alone, so that no file of the
 * host can be given to another of its users. An ordinary user's sandbox has the user's own id and opens everything itself.
 */
#ifndef AK_VMCTL_TREES_H
#define AK_VMCTL_TREES_H

#include "gateway/base/err.h"
#include "vmctl/sandbox.h"

struct sb_ids;

#define SB_MOUNTS_MAX 288
#define SB_LINKS_MAX 64

struct sb_trees {
	int mounts[SB_MOUNTS_MAX]; /* owned; one for each mount of the spec */
	size_t n;
	int store; /* owned; upper_dir, -1 when nothing is kept */
	int image; /* owned; image_root, -1 when the root is the host's. Its owners are never mapped: see sandbox_mount.given */
};

/* Initialise with nothing open. */
void sb_trees_init(struct sb_trees *t);
void sb_trees_close(struct sb_trees *t);

/* Open M's source, checked, as a detached mount with everything mounted below it. */
int sb_tree_open(const struct sandbox_mount *m, struct ak_err *err);

/* Open all of them, as the host's root in the host's mount namespace. */
int sb_trees_open(struct sb_trees *t, const struct sandbox_spec *spec, struct ak_err *err);

/*
 * Map owners as USER_NS does: its id 0 is root on disk. CTL receives a note for each mount that cannot be mapped; -1:
 * no notes.
 */
void sb_trees_map(const struct sb_trees *t, const struct sandbox_spec *spec, const struct sb_ids *ids, int user_ns, int ctl);

#endif
