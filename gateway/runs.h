/* The runs that are recorded in STATE/runs. */
#ifndef AK_RUNS_H
#define AK_RUNS_H

#include "gateway/base/err.h"
#include "gateway/paths.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct run_entry {
	char name[AK_NAME_MAX];
	uint64_t mtime_ns;
};

/* All runs, newest first; *RET is the caller's to free. None at all is fine. */
int runs_list(const struct ak_paths *p, struct run_entry **ret, size_t *ret_n, struct ak_err *err);

/* The name in STATE/last. */
int runs_last(const struct ak_paths *p, char ret[static AK_NAME_MAX], struct ak_err *err);

/* The folder of NAME; -ENOENT with a reason that lists the newest names. */
int runs_dir(const struct ak_paths *p, const char *name, char ret[static PATH_MAX], struct ak_err *err);

/* True once the run in DIR ended: run.json says so, its process is gone, or its folder is. */
bool runs_ended(const char *dir);

#endif
