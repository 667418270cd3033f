/*
 * The folders that root's sandboxes get of the host, as detached mounts.
 *
 * Such a sandbox runs under ids that own nothing on the host. The host's root therefore opens what is to be mounted, and maps its owners: root's
 * files are the sandbox's inside, and what the sandbox makes is root's on disk. An ordinary user's sandbox has the user's own id and opens everything by itself.
 */
#ifndef AK_VMCTL_TREES_H
#define AK_VMCTL_TREES_H

#include "gateway/base/err.h"
#include "vmctl/sandbox.h"

struct sb_ids;

#define SB_MOUNTS_MAX 192
#define SB_LINKS_MAX 64

struct sb_trees {
	int mounts[SB_MOUNTS_MAX]; /* owned; one for each mount of the spec */
	size_t n;
	int store; /* owned; upper_dir, -1 when nothing is kept */
};

/* Nothing is open; sb_trees_close is fine. */
void sb_trees_init(struct sb_trees *t);
void sb_trees_close(struct sb_trees *t);

/* What M names, checked, as a detached mount with everything below it. */
int sb_tree_open(const struct sandbox_mount *m, struct ak_err *err);

/* All of them; by the host's root, in the host's mount namespace. */
int sb_trees_open(struct sb_trees *t, const struct sandbox_spec *spec, struct ak_err *err);

/* Map owners as USER_NS does: its 0 is root on disk. CTL gets a note of what cannot be mapped, -1 for none. */
void sb_trees_map(const struct sb_trees *t, const struct sandbox_spec *spec, const struct sb_ids *ids, int user_ns, int ctl);

#endif
