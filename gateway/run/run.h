/* One `run`: gateway and sandbox started, supervised and taken down. */
#ifndef AK_RUN_H
#define AK_RUN_H

#include "gateway/store/plan.h"
#include "gateway/store/rundir.h"

#include <stddef.h>

/* What is left of a run when it is over. */
struct run_report {
	struct run_outcome outcome;
	char name[64];
	char *out, *err; /* owned; only with opts.json */
	size_t out_len, err_len;
	bool out_cut, err_cut; /* past RUN_CAPTURE_MAX */
	char *changed; /* owned; what guard_tell says, NULL when nothing */
};
#define RUN_CAPTURE_MAX (16u << 20)

/*
 * Run to the end. 0 when the command ran (its code is in the outcome, also 126 and 127), negative with a reason when it
 * never did. Prints nothing but what `run` owes the user on stderr while it lasts.
 */
int run_execute(const struct run_request *opts, const struct ak_paths *paths, struct run_report *ret, struct ak_err *err);
void run_report_done(struct run_report *r);

#endif
