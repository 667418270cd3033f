/*
 * The protocol of one client: from lines to calls and back, without any process or descriptor.
 *
 * Life of a call: mcp_session_line finds tools/call and hands a struct mcp_call to ops->start. From then on its owner ends it, exactly once:
 * with mcp_call_done (the answer is sent) or mcp_call_drop (none is). When the client cancels, ops->cancel is called and the call is marked;
 * an answer to it is swallowed.
 */
#ifndef AK_MCP_SESSION_H
#define AK_MCP_SESSION_H

#include "gateway/mcp/mcp.h"

struct mcp_session;
struct mcp_batch;

struct mcp_call {
	struct mcp_session *session; /* borrowed: outlives us */
	struct mcp_call *next; /* of all in flight */
	struct mcp_batch *batch; /* the answers go together; NULL: alone */
	char *id; /* owned; JSON text */
	char *progress_token; /* owned; JSON text, NULL when no progress is wanted */
	double progress; /* told last */
	const struct mcp_tool *tool;
	cJSON *args; /* owned; checked */
	size_t size; /* of the message it came in */
	bool structured; /* this revision has structured results */
	bool cancelled;
	void *owner_data; /* the owner's */
};

struct mcp_session_ops {
	void (*send)(void *ctx, const char *line, size_t len); /* with its newline */
	int (*start)(
		void *ctx, struct mcp_call *call, struct ak_err *err); /* negative: refused, and the call stays the session's */
	void (*cancel)(void *ctx, struct mcp_call *call);
};

struct mcp_session {
	const struct mcp_session_ops *ops; /* borrowed */
	void *ctx;
	const char *instructions; /* borrowed; told at the beginning */
	bool initialized;
	enum mcp_rev rev;
	struct mcp_call *calls; /* owned by whoever they were started by */
};

/* One line without its newline. Empty ones are ignored. */
void mcp_session_line(struct mcp_session *s, const char *line, size_t len);

/* A line past MCP_LINE_MAX was skipped. */
void mcp_session_too_long(struct mcp_session *s);

/* RESULT is the whole result object as JSON; NULL: out of memory. */
void mcp_call_done(struct mcp_call *call, const char *result);
void mcp_call_drop(struct mcp_call *call);

/* Tell how far it is, when that was asked for; only what grows is told. */
void mcp_call_progress(struct mcp_call *call, double progress, const char *message);

#endif
