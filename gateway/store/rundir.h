/*
 * The folder of one run: STATE/runs/NAME with run.jsonl, policy.json and network.jsonl, and upper/ if it is kept.
 * A lock on the folder marks the run as alive; old runs that are neither alive nor kept are pruned.
 */
#ifndef AK_RUNDIR_H
#define AK_RUNDIR_H

#include "gateway/base/err.h"
#include "gateway/base/paths.h"
#include "gateway/store/plan.h"
#include "gateway/store/report.h"

#include <limits.h>
#include <stdint.h>

#define RUNDIR_FILE "run.jsonl" /* one line at the start of the run, one for each change of its ports, one at its end */
#define RUNDIR_KEEP 200 /* past runs whose logs are kept: this many per origin, and as many again that had denials */
#define RUNDIR_CLEAN_MAX 400 /* runs younger than a day are kept beyond that, up to this many … */
#define RUNDIR_DENIED_MAX 1000 /* … or this many with denials, … */
#define RUNDIR_BYTES_MAX (256u << 20) /* … as long as their logs have at most this total size */

struct rundir {
	char path[PATH_MAX];
	char log_path[PATH_MAX];
	char events_path[PATH_MAX];
	char upper[PATH_MAX]; /* "" unless kept */
	int dir_fd; /* owned, locked */
	int log_fd; /* owned until passed on */
	uint64_t started_us;
	enum run_origin origin; /* set once the start is recorded */
	bool recorded; /* the start is in the events log */
};

/* An empty folder to cover other folders with; created once per user. */
int rundir_empty(const struct ak_paths *paths, char ret[PATH_MAX], struct ak_err *err);

int rundir_create(struct rundir *d, const struct ak_paths *paths, const char *name, bool keep, struct ak_err *err);

/* Write run.jsonl, policy.json and the start event. POLICY may be NULL. */
int rundir_record_start(struct rundir *d, const struct run_plan *plan, const struct run_request *opts,
	const struct policy *policy, struct ak_err *err);

#define RUNDIR_OUTPUT "output.log" /* of a detached run: what its command printed */

/* The lines of run.jsonl alone, for a run in the background, whose folder is that of a persistent sandbox: one now, and a second with OUTCOME at its end. */
int rundir_write(const char *dir, uint64_t started_us, const struct run_plan *plan, const struct run_request *opts,
	const struct run_outcome *outcome);

/*
 * Move what remains of a run in the background, its record, log, policy and output, from FROM to STATE/runs/NAME. The log of a past run of that name
 * was pruned when the name was taken.
 */
int rundir_archive(const struct ak_paths *paths, const char *from, const char *name, struct ak_err *err);

/*
 * The published ports of the running command are now those in OPTS: write another line of run.jsonl, and an event with the N ports of LIST that were
 * changed, under KEY ("publish" or "remove"). A failure is told on stderr: the change has happened.
 */
void rundir_record_ports(struct rundir *d, const struct run_plan *plan, const struct run_request *opts, const char *key,
	const struct ak_publish *list, size_t n);

/* The command is running: `--last` refers to this run from now on. */
void rundir_point_last(const struct ak_paths *paths, const char *name);

/* Write the second line of run.jsonl and the end event. */
int rundir_record_end(struct rundir *d, const struct run_plan *plan, const struct run_request *opts,
	const struct run_outcome *outcome, struct ak_err *err);

/* Remove the folder of a run that never started. */
void rundir_discard(struct rundir *d);

/* Prepare N folders, and the audit key, for later runs. Best effort; call when idle. Missing folders are created on demand. */
void rundir_stock(const struct ak_paths *paths, unsigned n);

/*
 * Remove the oldest past runs of each origin beyond RUNDIR_KEEP and the limits after it. Their names and denials are written to
 * the events log first. This reads all runs, so _sometimes does it only for one in many calls.
 */
void rundir_prune(const struct ak_paths *paths);
void rundir_prune_sometimes(const struct ak_paths *paths);

/*
 * Free the name of a past run that a user chose: prune that run now. False if the run is alive, was kept or cannot be recorded as pruned. NAME is valid.
 */
bool rundir_forget(const struct ak_paths *paths, const char *name);

/* Append the denials in the network log of the folder DIR, of a run or a sandbox, as members of an event: the first kinds, and how many. Returns the number of kinds. */
int rundir_put_denials(const char *dir, uint64_t now_us, struct strbuf *out);

void rundir_done(struct rundir *d);

#endif
