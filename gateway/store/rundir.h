/*
 * The folder of one run: STATE/runs/NAME with run.jsonl, policy.json and network.jsonl, and upper/ when it is kept.
 * A lock on the folder says that the run is alive; old ones that are neither alive nor kept are pruned.
 */
#ifndef AK_RUNDIR_H
#define AK_RUNDIR_H

#include "gateway/base/err.h"
#include "gateway/base/paths.h"
#include "gateway/store/plan.h"
#include "gateway/store/report.h"

#include <limits.h>
#include <stdint.h>

#define RUNDIR_FILE "run.jsonl" /* what is known of the run: one line at its start, one at its end */
#define RUNDIR_KEEP                                                                                                              \
	200 /* past runs whose logs stay readable: so many of each origin, and so many more that were denied something */
#define RUNDIR_CLEAN_MAX 400 /* runs of less than a day stay beyond that, up to this many … */
#define RUNDIR_DENIED_MAX 1000 /* … or this many that were denied something, … */
#define RUNDIR_BYTES_MAX (256u << 20) /* … for as long as their logs together are not larger */

struct rundir {
	char path[PATH_MAX];
	char log_path[PATH_MAX];
	char events_path[PATH_MAX];
	char upper[PATH_MAX]; /* "" unless kept */
	int dir_fd; /* owned, locked */
	int log_fd; /* owned until handed over */
	uint64_t started_us;
	enum run_origin origin; /* once its start was recorded */
	bool told; /* the events log has its start */
};

/* An empty folder for covering things up; made once a user. */
int rundir_empty(const struct ak_paths *paths, char ret[PATH_MAX], struct ak_err *err);

int rundir_create(struct rundir *d, const struct ak_paths *paths, const char *name, bool keep, struct ak_err *err);

/* run.jsonl, policy.json and the start event. POLICY may be NULL. */
int rundir_record_start(struct rundir *d, const struct run_plan *plan, const struct run_request *opts,
	const struct policy *policy, struct ak_err *err);

/* The command runs: from now on this is what `--last` means. */
void rundir_point_last(const struct ak_paths *paths, const char *name);

/* The second line of run.jsonl and the end event. */
int rundir_record_end(struct rundir *d, const struct run_plan *plan, const struct run_request *opts,
	const struct run_outcome *outcome, struct ak_err *err);

/* Forget a run that never ran: remove its folder. */
void rundir_discard(struct rundir *d);

/* Have N folders, and the audit key, ready for runs to come. Best effort; call when idle. What is missing is made on demand. */
void rundir_stock(const struct ak_paths *paths, unsigned n);

/*
 * Remove the oldest past runs of each origin beyond what RUNDIR_KEEP and its companions allow. Their names, and what they were denied, are put into the
 * events log before. It looks at all that are there, so of those who end a run only one in many does it.
 */
void rundir_prune(const struct ak_paths *paths);
void rundir_prune_sometimes(const struct ak_paths *paths);

void rundir_done(struct rundir *d);

#endif
