/* One `run` with its own sandbox and gateway, from start to teardown. */
#ifndef AK_RUN_H
#define AK_RUN_H

#include "gateway/run/front.h"
#include "gateway/store/plan.h"
#include "gateway/store/rundir.h"

/*
 * Run the planned request F to the end. 0 if the command ran (the outcome has its exit code, including 126 and 127), negative with a reason if it
 * never did. Prints only the messages of `run` to stderr.
 */
int run_cold(struct run_front *f, struct run_report *ret, struct ak_err *err);

#endif
