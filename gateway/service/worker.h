/*
 * A process for one blocking verb: HTTP and MCP run every call in one. It is a fork that never executes another program; it works, says one
 * result and exits. It dies with its parent.
 *
 * The result is one frame on a pipe: 0 or a negative errno, and a payload, which is JSON or, for an error, the reason. A process that exits
 * without a whole frame has failed.
 */
#ifndef AK_WORKER_H
#define AK_WORKER_H

#include "gateway/base/err.h"
#include "gateway/base/json.h"
#include "gateway/base/strbuf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* ---- inside ---- */

struct work {
	int fd; /* borrowed: the result's pipe */
	bool said;
};

/* The one result. With a negative RC it is that and ERR; else JSON, a text that becomes JSON, or the JSON in a buffer. */
void work_fail(struct work *w, int rc, const struct ak_err *err);
void work_end_json(struct work *w, int rc, const cJSON *json, const struct ak_err *err); /* NULL: out of memory */
void work_end_text(struct work *w, int rc, const char *text, const struct ak_err *err);
void work_end_buf(struct work *w, int rc, const struct strbuf *json, const struct ak_err *err);

/* ---- outside ---- */

#define WORKER_HEAD 16 /* bytes of a frame before its payload */

struct worker {
	pid_t pid; /* 0 before its start and after its end */
	int fd; /* owned; its result, non-blocking; -1 at the end of file */
	struct strbuf frame; /* what it said so far */
	bool too_large;
	unsigned step; /* how hard it was asked to end; 0: not at all */
	uint64_t next_ms; /* when to ask harder */
};

struct worker_spec {
	void (*work)(void *ctx, struct work *w); /* in the worker */
	void *ctx;
	int out, err; /* its standard output and error, the caller's to close; -1: the null device */
	int keep; /* one more descriptor that it keeps; -1: none */
};

int worker_start(struct worker *w, const struct worker_spec *spec, struct ak_err *err);

/* Take in bytes of its result. Past MAX they are dropped, and the result is -EFBIG. */
void worker_take(struct worker *w, const char *data, size_t len, size_t max);

/* After its process has ended: 0 and the JSON, or a negative errno and the reason. Both belong to W or are static. */
int worker_result(const struct worker *w, const char **ret, size_t *ret_len);

/*
 * Ask it to end; call again at NEXT_MS until it has. A run passes SIGTERM on to its command; the second of two SIGINT makes it kill the command and
 * clean up, with its records whole. SIGKILL is the last resort: the kernel takes the sandbox down, and the record stays unfinished.
 */
void worker_end(struct worker *w, uint64_t now_ms);

/* Kills it when it still runs. */
void worker_done(struct worker *w);

#endif
