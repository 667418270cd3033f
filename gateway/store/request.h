/*
 * The JSON form of a planned run that our processes send to each other: the parts of a request and its plan that the daemon needs.
 * Writing and parsing use one table of members.
 */
#ifndef AK_REQUEST_H
#define AK_REQUEST_H

#include "gateway/base/err.h"
#include "gateway/base/json.h"
#include "gateway/store/plan.h"

#define RUN_TIMEOUT_MAX_MS (366ull * 86400 * 1000)

/* A parsed request. Its strings are borrowed from OBJ and ARGV. */
struct run_ask {
	cJSON *obj; /* owned */
	char **argv; /* owned */
	struct run_request opts;
	struct run_plan plan;
};

/* NULL: out of memory. */
cJSON *run_ask_to_json(const struct run_request *opts, const struct run_plan *plan);

/* Parse A->obj and check every member; -EINVAL or -E2BIG names the position. Free A even after a failure. */
int run_ask_from_json(struct run_ask *a, struct ak_err *err);
void run_ask_done(struct run_ask *a);

#endif
