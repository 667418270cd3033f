/* The history of runs and logs according to the events log, for comparison with the files that exist. */
#ifndef AK_EVENTS_STORY_H
#define AK_EVENTS_STORY_H

#include "gateway/base/err.h"
#include "gateway/base/paths.h"
#include "gateway/base/sha256.h"
#include "gateway/log/audit.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct run_story {
	char name[AK_NAME_MAX];
	size_t order; /* position of its newest event */
	bool started; /* by a version that also records the removal of a run */
	bool gone; /* pruned, never ran, or became a persistent sandbox */
	bool ended;
	bool keyless; /* its end has no MAC: it is older than the key */
	uint64_t records; /* number of records in its network log at the end, … */
	char hash[SHA256_HEX]; /* … and the hash of the last one */
};

/* A log was shorter than its anchor when a writer continued it. */
struct gap_story {
	char name[AK_NAME_MAX]; /* "" for the events log */
	uint64_t had, has;
	bool restarted; /* the machine had been restarted: a power failure explains it */
};

/* An event about the log of a persistent sandbox. */
enum log_story_what { LOG_STORY_CREATED, LOG_STORY_REMOVED, LOG_STORY_STARTED, LOG_STORY_MARK };
struct log_story {
	char name[AK_NAME_MAX];
	size_t order;
	enum log_story_what what;
	bool keyless; /* the event has no MAC: it is older than the key */
	struct audit_mark mark; /* for LOG_STORY_MARK: a record that the log had then */
};

struct events_story {
	struct log_story *logs; /* owned; sorted by name, then in order */
	size_t n_logs, cap_logs;
	struct run_story *runs; /* owned; sorted by name */
	size_t n_runs, cap_runs;
	struct gap_story *gaps; /* owned */
	size_t n_gaps, cap_gaps;
};

/* Read the events log at PATH. Lines that are not records, or were altered, are ignored. */
int events_story_read(const char *path, struct events_story *ret, struct ak_err *err);
void events_story_done(struct events_story *s);

/* The events about the log of NAME since it was last created, and their number. */
const struct log_story *events_story_log(const struct events_story *s, const char *name, size_t *ret_n);

const struct run_story *events_story_find(const struct events_story *s, const char *name);

#endif
