/* Shared by the code that creates and prunes the folders of runs. */
#ifndef AK_RUNDIR_INTERNAL_H
#define AK_RUNDIR_INTERNAL_H

#include "gateway/store/rundir.h"

/* The end of each line in run.jsonl: a summary at a fixed position, so that pruning can read hundreds of runs quickly. */
#define RUNDIR_CLASS ",\"class\":\"%s\",\"was_denied\":%s"
#define RUNDIR_UNFINISHED "null" /* in the first line, when it is not known yet whether anything was denied */

/* A different number for each call, so that concurrent runs rarely try the same name. */
unsigned rundir_lot(void);

/* Turn the folder NAME, open and locked as FD, into a spare one, or remove it. */
void rundir_recycle(int runs, const char *name, int fd);

#endif
