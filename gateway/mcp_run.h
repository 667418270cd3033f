/* What the tools do, each in the process of its call. Internal to MCP; see mcp.h. */
#ifndef AK_MCP_RUN_H
#define AK_MCP_RUN_H

#include "gateway/mcp.h"
#include "gateway/netlog.h"

/* mcp_run.c: commands */
void mcp_do_run(const struct mcp_request *r, struct mcp_result *ret);
void mcp_do_exec(const struct mcp_request *r, struct mcp_result *ret);

/* mcp_sandbox.c: life and files */
void mcp_do_create(const struct mcp_request *r, struct mcp_result *ret);
void mcp_do_list(const struct mcp_request *r, struct mcp_result *ret);
void mcp_do_remove(const struct mcp_request *r, struct mcp_result *ret);
void mcp_do_start(const struct mcp_request *r, struct mcp_result *ret);
void mcp_do_stop(const struct mcp_request *r, struct mcp_result *ret);
void mcp_do_file_write(const struct mcp_request *r, struct mcp_result *ret);
void mcp_do_file_read(const struct mcp_request *r, struct mcp_result *ret);

/* mcp_network.c */
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

/* mcp_ceiling.c: what a call may have. OPTS is filled with mode, profile, network, project and rules; its other members are the caller's. */
int mcp_ceiling_apply(const struct mcp_ceiling *c, const cJSON *args, struct run_opts *opts, struct ak_err *err);

/* May this server's calls touch the sandbox NAME: could it have been made here? */
int mcp_ceiling_check(const struct mcp_ceiling *c, const struct ak_paths *paths, const char *name, struct ak_err *err);

/* A sentence or two for the model, told when a client connects. */
void mcp_ceiling_print(const struct mcp_ceiling *c, struct strbuf *out);

/* "K=V" of the argument env. */
struct mcp_env {
	char *pairs[PLAN_LIST_MAX]; /* owned */
	size_t n;
};
int mcp_env_take(const cJSON *args, struct mcp_env *ret, struct ak_err *err);
void mcp_env_done(struct mcp_env *e);

#endif
