/* What the events log tells of runs and logs, for those who compare it with what is there. */
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
	size_t order; /* of its newest event */
	bool started; /* by a version that also tells when a run goes */
	bool gone; /* pruned, or it never ran */
	bool ended;
	bool keyless; /* its end has no MAC: it is from before there was a key */
	uint64_t records; /* of its network log at the end, … */
	char hash[SHA256_HEX]; /* … and the last one's hash */
};

/* A log was shorter than its anchor when someone went on with it. */
struct gap_story {
	char name[AK_NAME_MAX]; /* "" for the events log */
	uint64_t had, has;
	bool restarted; /* the machine had been restarted: losing power explains it */
};

/* What happened to the log of a persistent sandbox. */
enum log_story_what { LOG_STORY_CREATED, LOG_STORY_REMOVED, LOG_STORY_STARTED, LOG_STORY_MARK };
struct log_story {
	char name[AK_NAME_MAX];
	size_t order;
	enum log_story_what what;
	bool keyless; /* the event has no MAC: it is from before there was a key */
	struct audit_mark mark; /* of the latter: a record that the log had then */
};

struct events_story {
	struct log_story *logs; /* owned; by name, then in order */
	size_t n_logs, cap_logs;
	struct run_story *runs; /* owned; by name */
	size_t n_runs, cap_runs;
	struct gap_story *gaps; /* owned */
	size_t n_gaps, cap_gaps;
};

/* Read the events log at PATH. Lines that are no records, or were altered, tell nothing. */
int events_story_read(const char *path, struct events_story *ret, struct ak_err *err);
void events_story_done(struct events_story *s);

/* What is told of the log of NAME since it was created last: the events, and how many they are. */
const struct log_story *events_story_log(const struct events_story *s, const char *name, size_t *ret_n);

const struct run_story *events_story_find(const struct events_story *s, const char *name);

#endif
