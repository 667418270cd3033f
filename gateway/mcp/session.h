/*
 * The protocol of one client: parses lines into calls and prints their answers, without processes or descriptors.
 *
 * Life of a call: mcp_session_line finds tools/call and passes a struct mcp_call to ops->start. From then on the owner must end the call exactly
 * once, with mcp_call_done (sends the answer) or mcp_call_drop (sends none). When the client cancels, the session marks the call and calls
 * ops->cancel; the answer to a cancelled call is not sent.
 */
#ifndef AK_MCP_SESSION_H
#define AK_MCP_SESSION_H

#include "gateway/mcp/mcp.h"

struct mcp_session;
struct mcp_batch;

struct mcp_call {
	struct mcp_session *session; /* borrowed: outlives us */
	struct mcp_call *next; /* the next call in flight */
	struct mcp_batch *batch; /* the batch that the answer belongs to, or NULL */
	char *id; /* owned; JSON text */
	char *progress_token; /* owned; JSON text, NULL when the client wants no progress */
	double progress; /* the last progress sent */
	const struct mcp_tool *tool;
	cJSON *args; /* owned; checked */
	size_t size; /* of the message that contained the call */
	bool structured; /* this protocol revision has structured results */
	bool cancelled;
	void *owner_data; /* for the owner */
};

struct mcp_session_ops {
	void (*send)(void *ctx, const char *line, size_t len); /* LINE includes the newline */
	int (*start)(
		void *ctx, struct mcp_call *call, struct ak_err *err); /* negative: refused, and the session keeps the call */
	void (*cancel)(void *ctx, struct mcp_call *call);
};

struct mcp_session {
	const struct mcp_session_ops *ops; /* borrowed */
	void *ctx;
	const char *instructions; /* borrowed; sent in the reply to initialize */
	bool initialized;
	enum mcp_rev rev;
	struct mcp_call *calls; /* those in flight; owned by the user of OPS */
};

/* Handle one line, without its newline. Empty lines are ignored. */
void mcp_session_line(struct mcp_session *s, const char *line, size_t len);

/* Report that a line longer than MCP_LINE_MAX was skipped. */
void mcp_session_too_long(struct mcp_session *s);

/* RESULT is the whole result object as JSON; NULL: out of memory. */
void mcp_call_done(struct mcp_call *call, const char *result);
void mcp_call_drop(struct mcp_call *call);

/* Send a progress notification if the client asked for it and the value has increased. */
void mcp_call_progress(struct mcp_call *call, double progress, const char *message);

#endif
