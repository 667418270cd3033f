/*
 * Snapshots of persistent sandboxes: STATE/sandboxes/NAME/snapshots/TAG/ with
 *   snapshot.json    when it was made, and its size
 *   upper/           a copy of the files that the sandbox had written
 * A copy is made in a folder of its own, STATE/sandboxes/.copy-ID, and moved to its place when it is complete. That folder is locked while the copy is
 * being made; state_sweep removes what a crash left.
 */
#ifndef AK_SNAPSHOT_H
#define AK_SNAPSHOT_H

#include "gateway/base/clone.h"
#include "gateway/store/state.h"

#define SNAPSHOTS_MAX 64 /* of one sandbox */

struct snapshot {
	char tag[AK_NAME_MAX];
	bool damaged; /* its record cannot be read: it can only be removed */
	uint64_t created_us, bytes, files;
};

/* All snapshots of NAME, oldest first, in *RET (free it) or the one with TAG. -ENOENT: no such sandbox or tag. */
int snapshot_list(const struct ak_paths *paths, const char *name, struct snapshot **ret, size_t *ret_n, struct ak_err *err);
int snapshot_find(const struct ak_paths *paths, const char *name, const char *tag, struct snapshot *ret, struct ak_err *err);

/* -EEXIST: NAME has this tag already; -EINVAL: not a tag; -EBUSY: too many. */
int snapshot_check_new(const struct ak_paths *paths, const char *name, const char *tag, struct ak_err *err);

/* A tag made of the time: "20261117-221504". */
void snapshot_tag(uint64_t now_us, char ret[static AK_NAME_MAX]);

/* A copy that is being made. */
struct snapshot_work {
	char path[PATH_MAX];
	int dir; /* owned: the folder, locked */
};
int snapshot_work_begin(const struct ak_paths *paths, struct snapshot_work *ret, struct ak_err *err);
void snapshot_work_done(struct snapshot_work *w); /* closes it; the folder stays */

/* Fill it with the files of NAME: those of the snapshot TAG, or the present ones if TAG is "". May take long. */
int snapshot_copy(const struct ak_paths *paths, const char *name, const char *tag, const struct snapshot_work *w,
	struct ak_clone *ret, struct ak_err *err);

/* The copy becomes a snapshot of NAME. */
int snapshot_finish(const struct ak_paths *paths, const char *name, const struct snapshot *s, const struct snapshot_work *w,
	struct ak_err *err);

/* The copy and the files of NAME change places, atomically. The caller removes the old ones, which are in W then. */
int snapshot_swap(const struct ak_paths *paths, const char *name, const struct snapshot_work *w, struct ak_err *err);

/* The copy becomes the files of the new sandbox S, whose settings are those of FROM. Published ports and MCP servers stay with FROM. */
int snapshot_fork(const struct ak_paths *paths, const struct state_sandbox *from, const char *name, const struct snapshot_work *w,
	struct state_sandbox *ret, struct ak_err *err);

/* The snapshot is gone on return; its files are at *RET_GONE, which the caller removes later. */
int snapshot_remove(
	const struct ak_paths *paths, const char *name, const char *tag, char ret_gone[static PATH_MAX], struct ak_err *err);

#endif
