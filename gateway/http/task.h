/* One command that a request asked for: shared by http/run.c (in the server) and http/task.c (what a body means, and the worker's side). */
#ifndef AK_HTTP_TASK_H
#define AK_HTTP_TASK_H

#include "gateway/http/http.h"

struct http_batch;

struct http_task {
	struct http_server *s; /* borrowed: outlives us */
	struct http_call *call; /* borrowed: ended by us */
	const cJSON *spec; /* borrowed from the call: a body of /run or exec */
	struct http_job *job; /* borrowed: until its end */
	char name[64]; /* of the sandbox */
	enum ak_mode mode;
	struct http_kept {
		struct evbuffer *text; /* owned: as JSON has it; NULL until there is some */
		bool cut;
	} out, err, both; /* both: as they came */
	struct http_batch *batch; /* borrowed; NULL: on its own */
	int rc; /* of a batch: 0 and the report, or why it never ran */
	struct run_report report;
	struct ak_err why;
};

/* What the fields' own types do not tell: -EINVAL with a reason. Sets the mode. */
int http_task_check(struct http_task *t, struct ak_err *err);

/* The worker of a temporary sandbox. */
void http_task_run(void *ctx, struct work *w);

#endif
