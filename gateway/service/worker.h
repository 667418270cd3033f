/*
 * A worker is a process for one blocking service call: HTTP and MCP run every call in one. It is a fork that does not exec. It makes the call, writes
 * one result and exits. It ends with its parent.
 *
 * The result is one frame on a pipe: 0 or a negative errno, and a payload, which is JSON or, for an error, the reason. A worker that exits
 * without a complete frame has failed.
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

/* ---- in the worker ---- */

struct work {
	int fd; /* borrowed: the pipe for the result */
	bool said;
};

/* Write the result; call one of these once. If RC is negative, the result is RC and ERR; else JSON, a text that is quoted as JSON, or JSON in a buffer. */
void work_fail(struct work *w, int rc, const struct ak_err *err);
void work_end_json(struct work *w, int rc, const cJSON *json, const struct ak_err *err); /* NULL: out of memory */
void work_end_text(struct work *w, int rc, const char *text, const struct ak_err *err);
void work_end_buf(struct work *w, int rc, const struct strbuf *json, const struct ak_err *err);

/* ---- in the parent ---- */

#define WORKER_HEAD 16 /* bytes of a frame before its payload */

struct worker {
	pid_t pid; /* 0 before its start and after its end */
	int fd; /* owned; its result, non-blocking; -1 after end of file */
	struct strbuf frame; /* received so far */
	bool too_large;
	unsigned step; /* how many signals worker_end has sent */
	uint64_t next_ms; /* when worker_end sends the next one */
};

struct worker_spec {
	void (*work)(void *ctx, struct work *w); /* runs in the worker */
	void *ctx;
	int out, err; /* its standard output and error, borrowed; -1: the null device */
	int keep; /* one more descriptor that stays open in the worker; -1: none */
};

int worker_start(struct worker *w, const struct worker_spec *spec, struct ak_err *err);

/* Add bytes of its result. Bytes beyond MAX are dropped, and the result is -EFBIG. */
void worker_take(struct worker *w, const char *data, size_t len, size_t max);

/* After the worker has ended: 0 and the JSON, or a negative errno and the reason. *RET belongs to W or is static. */
int worker_result(const struct worker *w, const char **ret, size_t *ret_len);

/*
 * Ask it to end; call again at next_ms until it has. A run forwards SIGTERM to its command; the second SIGINT makes it kill the command and
 * clean up, with complete records. SIGKILL is the last resort: the kernel tears the sandbox down, and the record stays incomplete.
 */
void worker_end(struct worker *w, uint64_t now_ms);

/* Kills it if it is still running. */
void worker_done(struct worker *w);

#endif
