/*
 * Files and folders of the host that the user brings into a sandbox besides the project (--mount).
 *
 * Read-only folders come through an overlay, so that sockets in them lead nowhere. Writable folders get the protection of a
 * project: files that the user's own tools run later are read-only, and changes of others are reported.
 */
#ifndef AK_MOUNTS_H
#define AK_MOUNTS_H

#include "gateway/base/json.h"
#include "gateway/base/strbuf.h"
#include "gateway/store/plan.h"

/* Parse "SRC[:DST][:ro|rw]". Splits TEXT in place; RET borrows from it. -EINVAL. */
int run_mount_parse(char *text, struct run_mount *ret, struct ak_err *err);
int run_mount_mode(const char *text, bool *ret_writable, struct ak_err *err); /* "ro" or "rw" */
const char *run_mount_mode_name(bool writable);

/* A copy of LIST that owns its strings; NULL: out of memory. */
struct run_mount *run_mounts_copy(const struct run_mount *list, size_t n);
void run_mounts_free(struct run_mount *list, size_t n);

/* As JSON: the member "mounts", left out if there are none. RET borrows its strings from OBJ. */
bool run_mounts_put(cJSON *obj, const char *key, const struct run_mount *list, size_t n);
int run_mounts_get(
	const cJSON *obj, const char *key, struct run_mount ret[static RUN_MOUNTS_MAX], size_t *ret_n, struct ak_err *err);

/* Append LIST to an event as "SRC:DST:ro", after the N_FIRST other texts FIRST. */
void run_mounts_event(struct strbuf *out, char *const *first, size_t n_first, const struct run_mount *list, size_t n);

/* ---- parts of run_plan_init ---- */

/* Resolve and check the mounts of OPTS. Before anything else is mounted, so that a bad one changes nothing. */
int plan_mounts_name(struct run_plan *plan, const struct run_request *opts, const struct ak_paths *paths, struct owndir *own,
	struct ak_err *err);

/* Whether a sandbox with these mounts may write PATH. */
bool plan_mounts_writes(const struct run_plan *plan, const char *path);

/* Whether PATH inside is in one of them. */
bool plan_mounts_covers(const struct run_plan *plan, const char *path);

/* Add them to the plan: first those that the project is mounted on, then the others. */
enum plan_mounts_part { PLAN_MOUNTS_BELOW_PROJECT, PLAN_MOUNTS_OTHER };
int plan_mounts_add(struct run_plan *plan, const struct run_request *opts, const struct ak_paths *paths, struct owndir *own,
	const char *empty_dir, enum plan_mounts_part part, struct ak_err *err);

void plan_mounts_look(struct run_plan *plan); /* notes about sockets in writable folders */
void plan_mounts_free(struct plan_mounts *m);

#endif
