/* One `run`: gateway and sandbox started, supervised and taken down. */
#ifndef AK_RUN_H
#define AK_RUN_H

#include "gateway/store/plan.h"
#include "gateway/store/rundir.h"

#include <stddef.h>

#define RUN_CAPTURE_MAX (16u << 20)

/*
 * Run to the end. 0 when the command ran (its code is in the outcome, also 126 and 127), negative with a reason when it
 * never did. Prints nothing but what `run` owes the user on stderr while it lasts.
 */
int run_execute(const struct run_request *opts, const struct ak_paths *paths, struct run_report *ret, struct ak_err *err);

#endif
