/*
 * What is left of a run when it is over: the one type that the engine fills, the record on disk is written from, our processes send each other,
 * and every front end shows.
 */
#ifndef AK_REPORT_H
#define AK_REPORT_H

#include "gateway/base/err.h"
#include "gateway/base/json.h"
#include "gateway/base/paths.h"
#include "gateway/log/stats.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How the command ended. */
struct run_outcome {
	int exit_code; /* the command's own, 128+N for a signal, 124 when timed out, 126 and 127 when it could not be run */
	bool timed_out, out_of_memory, pids_hit;
	uint64_t start_us; /* from the request to the command's start */
	uint64_t duration_ms; /* of the command */
	struct gw_stats net;
	bool has_net; /* NET is known */
	struct ak_err why; /* of 125 to 127; "" otherwise */
};

struct run_report {
	char name[AK_NAME_MAX];
	struct run_outcome outcome;
	char *notes; /* owned; what the user should know, a line each; NULL when nothing */
	char *changed; /* owned; protected project files that changed, as guard_tell says; NULL when none */
	char *out, *err; /* owned; captured output, only when the request asked for it */
	size_t out_len, err_len;
	bool out_cut, err_cut; /* longer than what is captured */
};

void run_report_done(struct run_report *r);

/* The codec between our own processes: everything but captured output. From JSON every member is checked; -EINVAL with the place. */
cJSON *run_report_to_json(const struct run_report *r);
int run_report_from_json(const cJSON *obj, struct run_report *ret, struct ak_err *err);

#endif
