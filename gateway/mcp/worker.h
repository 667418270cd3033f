/* Processes that run calls, and how they are ended. Internal to MCP. */
#ifndef AK_MCP_WORKER_H
#define AK_MCP_WORKER_H

#include "gateway/mcp/session.h"

#include <sys/types.h>

struct mcp_worker {
	struct mcp_worker *next;
	struct mcp_call *call; /* owned until it is answered */
	pid_t pid; /* 0: it waits for its turn, or it has ended */
	int fd; /* owned; what it says; -1 after its end */
	struct strbuf said;
	uint64_t began_ms, deadline_ms, told_ms;
	unsigned step; /* how hard its end was asked for; 0: not at all */
	uint64_t step_ms; /* when to ask harder */
};

/* Run CALL in a process of its own. */
int mcp_worker_spawn(struct mcp_worker *w, const struct mcp_request *request, struct ak_err *err);

/* Ask it to end, harder when it is due. */
void mcp_worker_end(struct mcp_worker *w, uint64_t now_ms);

/* Take in what it says. */
void mcp_worker_read(struct mcp_worker *w);

/* True once its process has ended; all that it said was taken in then. Others may still hold its pipe, so that its end says nothing. */
bool mcp_worker_ended(struct mcp_worker *w);

void mcp_worker_free(struct mcp_worker *w);

#endif
