/*
 * Folders of the host that a sandbox could ever write, in STATE/written.
 *
 * A sandbox that has ended may have left links, programs and settings in its project. Whoever would follow one of them asks here. The
 * record is bounded: when it is full, folders that no longer exist are dropped, and then the folders of one parent are replaced by
 * that parent, so that it may name too much but never too little.
 */
#ifndef AK_WRITTEN_H
#define AK_WRITTEN_H

#include "gateway/base/paths.h"
#include "gateway/project/project.h"

#include <stdbool.h>
#include <stddef.h>

#define WRITTEN_MAX 1024 /* folders */

/* The record, read on first use. */
struct written {
	const struct ak_paths *paths; /* borrowed; set by the caller, the rest is zero */
	struct written_folder {
		char *path; /* owned; resolved */
		struct project_id id; /* so that a folder that was moved is recognised */
	} * list; /* owned */
	size_t n;
	bool loaded;
};
void written_done(struct written *w);

/* Whether PATH, which is resolved, is or lies in such a folder; true also if the record cannot be read. */
bool written_has(struct written *w, const char *path);

/* The same, or whether such a folder lies in it. */
bool written_touches(struct written *w, const char *path);

struct run_plan;
/* Record what PLAN mounts writable. Call it before the sandbox is created, which must not be if this fails. */
int written_add_plan(const struct ak_paths *paths, const struct run_plan *plan, struct ak_err *err);

/* The whole record, to be listed. */
int written_list(const struct ak_paths *paths, struct written *ret, struct ak_err *err);

/*
 * Forget the folder PATH, which is resolved, and what is recorded in it and still there: -ENOENT if nothing is, -EINVAL if it is recorded as a part of
 * another one. IN_USE fails, with a message, if a sandbox can write it now; then nothing is forgotten. See shared_forget.
 */
int written_forget(const struct ak_paths *paths, const char *path, int (*in_use)(void *ctx, struct ak_err *err), void *ctx,
	struct ak_err *err);

#endif
