/* Lists recorded runs in STATE/runs and persistent sandboxes: everything that has a network log. */
#ifndef AK_RUNS_H
#define AK_RUNS_H

#include "gateway/base/err.h"
#include "gateway/base/json.h"
#include "gateway/base/paths.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct run_entry {
	char name[AK_NAME_MAX];
	uint64_t mtime_ns;
};

/* All runs, newest first; the caller frees *RET. An empty list is no error. */
int runs_list(const struct ak_paths *p, struct run_entry **ret, size_t *ret_n, struct ak_err *err);

/* The name in STATE/last. */
int runs_last(const struct ak_paths *p, char ret[static AK_NAME_MAX], struct ak_err *err);

/* The persistent sandboxes, sorted by name; the caller frees *RET. */
int runs_persistent(const struct ak_paths *p, struct run_entry **ret, size_t *ret_n, struct ak_err *err);

/* The folder of NAME, a run or a persistent sandbox; -ENOENT with a message that lists the newest names. */
int runs_dir(const struct ak_paths *p, const char *name, char ret[static PATH_MAX], struct ak_err *err);

/*
 * If *NAME is the beginning of exactly one "run-<8 hex>" name, point *NAME to the whole name in BUF. A name that exists, or that nothing matches,
 * stays as it is: the caller's own lookup reports it. -ENOTUNIQ lists the matches.
 */
int runs_resolve(const struct ak_paths *p, const char **name, char buf[static AK_NAME_MAX], struct ak_err *err);

/* The last line of DIR's run.jsonl. -ENOENT: there is none; -EBADMSG: it is being written, or damaged. */
int runs_record(const char *dir, cJSON **ret);

/* Is the run in DIR still going: does a process hold the lock of its folder? */
bool runs_alive(const char *dir);

#endif
