/*
 * Looking at a log: which records are wanted, once or as they are written. `network log`, `audit`, HTTP and MCP all read through here.
 */
#ifndef AK_LOG_VIEW_H
#define AK_LOG_VIEW_H

#include "gateway/base/err.h"
#include "gateway/log/netlog.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct log_view {
	/* What is wanted. */
	bool events; /* the events of all sandboxes, not the network log of one */
	const char *sandbox; /* only events of this one; NULL: of all */
	enum netlog_only only;
	uint64_t since_us;
	size_t limit, max_bytes; /* of what is there at first, only the newest; 0: all */
	bool follow;

	/* What is done with it. A negative errno ends the look. */
	int (*record)(void *ctx, const char *line, size_t len, const struct netlog_rec *rec); /* REC is NULL where LIMIT is set */
	int (*pause)(void *ctx, bool ended, struct ak_err *err); /* all that is there for now was told; may be NULL */
	bool (*ended)(void *ctx); /* nothing more will be written; NULL: one never knows */
	void *ctx;

	uint64_t corrupt; /* lines that are no records, so far */
};

/* Look at the log in DIR: network.jsonl, or events.jsonl with EVENTS. One that is not there is empty. */
int log_view_run(struct log_view *v, const char *dir, struct ak_err *err);

#endif
