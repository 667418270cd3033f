/* What the tools do, each in the process of its call. Internal to MCP; see mcp/mcp.h. */
#ifndef AK_MCP_RUN_H
#define AK_MCP_RUN_H

#include "gateway/log/netlog.h"
#include "gateway/mcp/mcp.h"

/* mcp/run.c: commands */
void mcp_do_run(const struct mcp_request *r, struct mcp_result *ret);
void mcp_do_exec(const struct mcp_request *r, struct mcp_result *ret);

/* mcp/sandbox.c: life and files */
void mcp_do_create(const struct mcp_request *r, struct mcp_result *ret);
void mcp_do_list(const struct mcp_request *r, struct mcp_result *ret);
void mcp_do_remove(const struct mcp_request *r, struct mcp_result *ret);
void mcp_do_start(const struct mcp_request *r, struct mcp_result *ret);
void mcp_do_stop(const struct mcp_request *r, struct mcp_result *ret);
void mcp_do_file_write(const struct mcp_request *r, struct mcp_result *ret);
void mcp_do_file_read(const struct mcp_request *r, struct mcp_result *ret);

/* mcp/network.c */
void mcp_do_log(const struct mcp_request *r, struct mcp_result *ret);
void mcp_do_check(const struct mcp_request *r, struct mcp_result *ret);

/* Rows of the log of NAME (a sandbox or a past run) since SINCE_US; *RET_LOG owns them. No log at all is no rows. */
struct mcp_rows {
	struct netlog *log; /* owned */
	struct netlog_row **rows; /* owned array, borrowed rows */
	size_t n;
};
int mcp_rows_read(const struct ak_paths *paths, const char *name, enum netlog_only only, uint64_t since_us, struct mcp_rows *ret,
	struct ak_err *err);
void mcp_rows_done(struct mcp_rows *r);

/* Denials since SINCE_US: "\"network\":{\"denied\":[…]}" into STRUCTURED, and into TEXT what the model can do about them. PERSISTENT: NAME is
 * a sandbox that stays, whose policy the user can change while it runs. */
void mcp_tell_denied(const struct ak_paths *paths, const char *name, bool persistent, uint64_t since_us, struct mcp_result *ret);

/* mcp/ceiling.c: what a call may have. OPTS is filled with the arguments of the call, the project and the rules; its other members are the caller's. */
int mcp_ceiling_apply(const struct mcp_request *r, struct run_request *opts, struct field_mem *mem, struct ak_err *err);

/* The policy of a sandbox of MODE that is made here; -EPERM for a mode that calls cannot choose. */
int mcp_ceiling_policy(const struct mcp_request *r, enum ak_mode mode, struct policy **ret, struct ak_err *err);

/* A sentence or two for the model, told when a client connects. */
void mcp_ceiling_print(const struct mcp_ceiling *c, struct strbuf *out);

/* mcp/enter.c: may this server's tools touch, read or tell of a sandbox? RET_UUID: which one NAME is, for the verbs that want the same one. */
int mcp_enter(const struct mcp_request *r, const char *name, char ret_uuid[static 37], struct ak_err *err);
int mcp_may_enter(const struct mcp_request *r, const struct state_sandbox *s, struct ak_err *err);

/* mcp/owner.c. Init removes what servers that are gone left behind; done lets go of all that this one made, and waits for its end until UNTIL_MS. */
int mcp_owner_init(struct mcp_owner *o, const struct ak_paths *paths, struct ak_err *err);
int mcp_owner_guard(struct mcp_owner *o, const struct ak_paths *paths, struct ak_err *err); /* before the first sandbox is made */
int mcp_owner_new_run(struct mcp_owner *o, struct ak_err *err); /* a name for a run to come */
const char *mcp_owner_last_run(const struct mcp_owner *o);
bool mcp_owner_has_run(const struct mcp_owner *o, const char *name);
void mcp_owner_done(struct mcp_owner *o, uint64_t until_ms);

#endif
