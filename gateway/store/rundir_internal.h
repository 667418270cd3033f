/* What making and pruning the folders of runs share. */
#ifndef AK_RUNDIR_INTERNAL_H
#define AK_RUNDIR_INTERNAL_H

#include "gateway/store/rundir.h"

/* The end of a run's lines, told once more in a fixed place for those who have hundreds to look at. */
#define RUNDIR_CLASS ",\"class\":\"%s\",\"was_denied\":%s"
#define RUNDIR_UNFINISHED "null" /* in the first line, for what was denied is not known yet */

/* Another number each time, so that runs that begin at once seldom want the same. */
unsigned rundir_lot(void);

/* The folder NAME, open and locked as FD, goes: it becomes a spare one or is removed. */
void rundir_recycle(int runs, const char *name, int fd);

#endif
