/*
 * The report of a finished run: one type for the engine that fills it, the record on disk, the messages between our processes and
 * every front end.
 */
#ifndef AK_REPORT_H
#define AK_REPORT_H

#include "gateway/base/err.h"
#include "gateway/base/json.h"
#include "gateway/base/paths.h"
#include "gateway/base/strbuf.h"
#include "gateway/log/stats.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How the command ended. */
struct run_outcome {
	int exit_code; /* of the command; 128+N for signal N, 124 after a timeout, 126 and 127 if it could not be run */
	bool timed_out, out_of_memory, pids_hit, out_of_disk;
	uint64_t memory_bytes, pids; /* the limits that it had; 0: none of its own */
	uint64_t disk_bytes; /* with out_of_disk: the limit */
	uint64_t start_us; /* from the request to the start of the command */
	uint64_t duration_ms; /* of the command */
	struct gw_stats net;
	bool has_net; /* NET is set */
	struct ak_err why; /* for 125 to 127; "" otherwise */
};

struct run_report {
	char name[AK_NAME_MAX];
	struct run_outcome outcome;
	bool kept; /* it is a stopped sandbox of that name now */
	struct ak_err keep_error; /* why it is not, although it was to be kept; "" otherwise */
	char *notes; /* owned; notes for the user, one per line; NULL if none */
	char *changed; /* owned; protected project files that changed, in the format of guard_tell; NULL if none */
	char *out, *err; /* owned; captured output, only if requested */
	size_t out_len, err_len;
	bool out_cut, err_cut; /* the output was truncated */
};

void run_report_done(struct run_report *r);

/* Add a line to its notes; without memory for it there is one note less. */
void run_report_note(struct run_report *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* The codec between our own processes, without captured output. Parsing checks every member; -EINVAL names the position. */
cJSON *run_report_to_json(const struct run_report *r);
int run_report_from_json(const cJSON *obj, struct run_report *ret, struct ak_err *err);

/*
 * The encoder for users: members of a JSON object that `run --json`, HTTP and MCP share, without a comma at either end; and what the network was
 * asked for, as a member of its own.
 */
void run_report_put(struct strbuf *out, const struct run_report *r);
void run_report_put_network(struct strbuf *out, const struct run_report *r);

/* The limits that a command reached, a line each. */
void run_outcome_tell(struct strbuf *out, const struct run_outcome *o);

/* What the exit code does not tell a person, a line each: why it did not run, which limits it reached, notes. Timeouts are left to the caller. */
void run_report_tell(struct strbuf *out, const struct run_report *r);

#endif
