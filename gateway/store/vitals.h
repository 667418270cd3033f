/*
 * How the last daemon ended, and who may start the next one.
 *
 *   RUNTIME/daemon.json   the record: whether the daemon serves, was stopped by a user, or died; how often in a row, why, and when to retry
 *   RUNTIME/daemon.heal   the lock of the one process that restarts a dead daemon (daemon/heal.c)
 *
 * The record outlives every daemon, so a new daemon that dies as well does not reset the count. It only controls restarts: a missing or
 * unreadable record counts as empty, and a daemon serves even if its record cannot be written.
 */
#ifndef AK_VITALS_H
#define AK_VITALS_H

#include "gateway/base/err.h"
#include "gateway/base/paths.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define VITALS_STEADY_MS 10000 /* a daemon that lived this long resets the count of failures */
#define VITALS_RETRY_FIRST_MS                                                                                                    \
	500 /* the first restart is immediate, the second waits this long, each further one twice as long, … */
#define VITALS_RETRY_MAX_MS 60000 /* … up to this */
#define VITALS_REASON_MAX 320

enum vitals_state { VITALS_UNKNOWN, VITALS_SERVES, VITALS_ENDED, VITALS_STOPPED, VITALS_STATE_NUM };

struct vitals {
	enum vitals_state state; /* ENDED: died, and that was counted. A daemon that is killed leaves SERVES behind */
	pid_t pid; /* of the last one that started */
	unsigned failures; /* deaths in a row */
	uint64_t began_ms, retry_ms; /* of ak_now_ms: when it started; no restart before this time */
	uint64_t log_bytes; /* length of the log when it started: the rest is its own */
	char reason[VITALS_REASON_MAX]; /* of the last death */
};

void vitals_read(const struct ak_paths *paths, struct vitals *ret);

/* A daemon starts. HEALING: it restarts a dead one, no user asked for it; -ECANCELED if a user has stopped the daemon meanwhile. */
int vitals_begin(const struct ak_paths *paths, bool healing, uint64_t log_bytes, struct ak_err *err);

/* A user stops it: from now on only a user's command starts the next one. False if it was stopped already, or never started. */
bool vitals_stop(const struct ak_paths *paths);

/*
 * The daemon PID died, or failed before it could record its start. Counted unless a user stopped it, or another daemon has started since; RET is the
 * record afterwards, which is ENDED only if it was counted.
 */
void vitals_end(const struct ak_paths *paths, pid_t pid, const char *reason, struct vitals *ret);

/* The delay before a restart after FAILURES deaths in a row; and how much of it is left, 0 if the restart is due. */
uint64_t vitals_delay_ms(unsigned failures);
uint64_t vitals_wait_ms(const struct vitals *l, uint64_t now_ms);

/* Take the healer's lock: its descriptor, -EWOULDBLOCK if another process has it, -errno. */
int vitals_lock(const struct ak_paths *paths);

/* "it ended 3 times in a row, the last time …; next attempt in 2 s" */
void vitals_tell(const struct vitals *l, uint64_t now_ms, struct ak_err *ret);

#endif
