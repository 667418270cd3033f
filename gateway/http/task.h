/* One requested command. Shared by http/run.c (server side) and http/task.c (decoding the body, worker side). */
#ifndef AK_HTTP_TASK_H
#define AK_HTTP_TASK_H

#include "gateway/http/http.h"

struct http_batch;

struct http_task {
	struct http_server *s; /* borrowed: outlives us */
	struct http_call *call; /* borrowed; we end it */
	const cJSON *spec; /* borrowed from the call: a body of /run or exec */
	struct http_job *job; /* borrowed, until it ends */
	char name[64]; /* the sandbox */
	enum ak_mode mode;
	size_t output_max; /* of OUT, ERR and BOTH each */
	struct http_kept {
		struct evbuffer *text; /* owned: JSON-escaped; NULL until there is output */
		bool cut;
	} out, err, both; /* both: interleaved as received */
	struct http_batch *batch; /* borrowed; NULL: not part of a batch */
	int rc; /* 0: REPORT is set; negative: WHY says why the command did not run */
	struct run_report report;
	struct ak_err why;
};

/* Check what the field types cannot express; -EINVAL on failure. Sets the mode. */
int http_task_check(struct http_task *t, struct ak_err *err);

/* The worker function that runs a temporary sandbox. */
void http_task_run(void *ctx, struct work *w);

/* Apply agentkernel.toml of the project (service_config); content that only the user can trust is -EINVAL. */
struct config;
int http_settings(struct run_request *o, const struct ak_paths *paths, struct config **ret, struct ak_err *err);

#endif
