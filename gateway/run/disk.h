/*
 * The limit of what a sandbox writes to its own files on the disk (--disk). The kernel has no quota that an ordinary user may set, so whoever runs the sandbox measures, and
 * ends it when it is over.
 *
 * Theory of operation. statfs costs nothing: it is asked up to twenty times a second, the more often the closer the limit may be. Only when the file system has lost a part of what the
 * sandbox may still write, or has changed and the last measurement is old, a child measures the files (sandbox_measure). So a sandbox can exceed its limit by what it writes between two
 * looks and during a measurement.
 */
#ifndef AK_RUN_DISK_H
#define AK_RUN_DISK_H

#include "gateway/base/err.h"
#include "gateway/store/report.h"

#include <sys/types.h>

struct disk_watch {
	const char *dir; /* borrowed; NULL: nothing to watch */
	uint64_t limit; /* bytes */
	pid_t init;
	uint64_t next_ms; /* when to look again, by ak_now_ms */
	uint64_t headroom; /* what it might write without exceeding the limit, when it was measured */
	uint64_t left_then; /* free space of the file system at that time */
	uint64_t measured_ms, took_ms; /* when that began, and its duration */
	pid_t child; /* measures now; 0: none */
	int fd; /* owned; of the child */
};

/* DIR must outlive the watch. LIMIT 0: no watch. */
void disk_watch_begin(struct disk_watch *w, const char *dir, uint64_t limit, pid_t init);
void disk_watch_done(struct disk_watch *w);

/* When to call disk_watch_tick; 0: never. */
uint64_t disk_watch_due_ms(const struct disk_watch *w);

/* True once, with the members of *RET that tell it, when the sandbox must end. */
bool disk_watch_tick(struct disk_watch *w, uint64_t now_ms, struct run_outcome *ret);

/* Whether the sandbox NAME, which is not running, may start with the files that are in DIR. -EDQUOT if not, with the ways out. */
int disk_check_start(const char *name, const char *dir, uint64_t limit, struct ak_err *err);

#endif
