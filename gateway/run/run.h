/* One `run` with a sandbox and a gateway of its own: started, supervised and taken down. */
#ifndef AK_RUN_H
#define AK_RUN_H

#include "gateway/run/front.h"
#include "gateway/store/plan.h"
#include "gateway/store/rundir.h"

/*
 * Run to the end. 0 when the command ran (its code is in the outcome, also 126 and 127), negative with a reason when it
 * never did. Prints nothing but what `run` owes the user on stderr while it lasts.
 */
int run_execute(const struct run_request *opts, const struct ak_paths *paths, struct run_report *ret, struct ak_err *err);

/* The same for a request that is planned already. */
int run_cold(struct run_front *f, struct run_report *ret, struct ak_err *err);

#endif
