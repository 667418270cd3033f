/* The implementations of the tools, which run in the process of a call. Internal to MCP; see mcp/mcp.h. */
#ifndef AK_MCP_RUN_H
#define AK_MCP_RUN_H

#include "gateway/log/netlog.h"
#include "gateway/mcp/mcp.h"

/* mcp/run.c: commands */
void mcp_do_run(const struct mcp_request *r, struct mcp_result *ret);
void mcp_do_exec(const struct mcp_request *r, struct mcp_result *ret);

/* mcp/sandbox.c: sandboxes and their files */
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

/* Read the rows of the network log of NAME (a sandbox or a past run) since SINCE_US. A missing log has no rows. */
struct mcp_rows {
	struct netlog *log; /* owned */
	struct netlog_row **rows; /* owned array, borrowed rows */
	size_t n;
};
int mcp_rows_read(const struct ak_paths *paths, const char *name, enum netlog_only only, uint64_t since_us, struct mcp_rows *ret,
	struct ak_err *err);
void mcp_rows_done(struct mcp_rows *r);

/* Append the denials since SINCE_US to the result: "\"network\":{\"denied\":[…]}" to STRUCTURED, and to TEXT what the model can do about them.
 * PERSISTENT: NAME is a persistent sandbox, whose policy the user can change while it runs. */
void mcp_tell_denied(const struct ak_paths *paths, const char *name, bool persistent, uint64_t since_us, struct mcp_result *ret);

/* mcp/ceiling.c: apply the server's limits to a call. Sets the arguments, the project folder and the rules in OPTS; leaves its other members unchanged. */
int mcp_ceiling_apply(const struct mcp_request *r, struct run_request *opts, struct field_mem *mem, struct ak_err *err);

/* Then apply agentkernel.toml of the project (service_config), within the same limits. */
struct config;
int mcp_settings(const struct mcp_request *r, struct run_request *opts, struct config **ret, struct ak_err *err);

/* The policy that this server gives to a sandbox of MODE; -EPERM for a mode that calls cannot choose. */
int mcp_ceiling_policy(const struct mcp_request *r, enum ak_mode mode, const char *own, struct policy **ret, struct ak_err *err);

/* May calls choose this mode? OWN is the policy of AK_MODE_OWN. */
bool mcp_ceiling_has(const struct mcp_ceiling *c, enum ak_mode mode, const char *own);

/* Append the instructions for the model that initialize returns. */
void mcp_ceiling_print(const struct mcp_ceiling *c, struct strbuf *out);

/* mcp/enter.c: may the tools of this server use, read or show a sandbox? RET_UUID identifies the sandbox, so that a later verb uses the same one. */
int mcp_enter(const struct mcp_request *r, const char *name, char ret_uuid[static 37], struct ak_err *err);
int mcp_may_enter(const struct mcp_request *r, const struct state_sandbox *s, struct ak_err *err);

/* mcp/owner.c. Init removes the sandboxes that dead servers left behind. Done releases those of this server, and waits until UNTIL_MS for their removal. */
int mcp_owner_init(struct mcp_owner *o, const struct ak_paths *paths, struct ak_err *err);
int mcp_owner_guard(
	struct mcp_owner *o, const struct ak_paths *paths, struct ak_err *err); /* call before creating the first sandbox */
int mcp_owner_new_run(struct mcp_owner *o, struct ak_err *err); /* choose the name of the next run */
const char *mcp_owner_last_run(const struct mcp_owner *o);
bool mcp_owner_has_run(const struct mcp_owner *o, const char *name);
void mcp_owner_done(struct mcp_owner *o, uint64_t until_ms);

#endif
