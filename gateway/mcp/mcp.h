/*
 * Model Context Protocol on stdio: JSON-RPC 2.0, one message per line.
 *
 * Three layers. mcp_session implements the protocol, without processes or I/O. mcp_tools lists the tools and checks their arguments.
 * mcp_server does the I/O and runs each call in its own process, which calls the service verbs of service/service.h. When a call is cancelled or
 * times out, its process and its sandbox end.
 *
 * The messages come from a model, which is not trusted. The options that the user started the server with limit what it may choose
 * (struct mcp_ceiling), and no tool changes a policy.
 */
#ifndef AK_MCP_H
#define AK_MCP_H

#include "gateway/base/err.h"
#include "gateway/base/json.h"
#include "gateway/base/paths.h"
#include "gateway/base/strbuf.h"
#include "gateway/field/field.h"
#include "gateway/store/plan.h"
#include "gateway/store/state_server.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MCP_LINE_MAX (16u << 20) /* longer messages are refused */
#define MCP_OUTPUT_MAX (64u << 10) /* longer output is cut in the middle; the limit as JSON is twice this */
#define MCP_WORKERS_MAX 16 /* concurrent calls; more wait */
#define MCP_WAITING_MAX 64 /* waiting calls; more are refused */
#define MCP_WAITING_BYTES (64u << 20) /* size of all waiting calls; more are refused */
#define MCP_TIMEOUT_MS 30000 /* default timeout of a command */
#define MCP_OWN_MAX 16
#define MCP_RUNS_MAX 256 /* past runs whose network log the tools still show */

enum mcp_rev { MCP_REV_2024_11_05, MCP_REV_2025_03_26, MCP_REV_2025_06_18, MCP_REV_2025_11_25, MCP_REV_NUM };

/* The limits of every call, from the options that the user started the server with. */
struct mcp_ceiling {
	enum ak_mode mode; /* the default mode */
	bool modes[AK_MODE_NUM]; /* the modes that a call may choose */
	const char *own[MCP_OWN_MAX]; /* and these installed policies, as modes; borrowed */
	size_t n_own;
	const char *own_default; /* if MODE is AK_MODE_OWN; borrowed */
	bool any_mode; /* the user named no mode: agentkernel.toml may choose the default among MODES */
	enum ak_profile profile; /* the widest profile that a call may choose, and the default */
	bool no_network;
	bool keep; /* sandboxes that calls create outlive the server */
	const char *dir; /* the project folder; NULL: the mode decides whether to mount the current folder; borrowed */
	struct policy_edit
		edits[PLAN_LIST_MAX]; /* rules added to the mode's policy in each sandbox of this server; texts borrowed */
	size_t n_edits;
};

/* Set the default when the user gave no modes (N_MODES is 0): claude, and calls may choose any mode except native. */
void mcp_ceiling_finish(struct mcp_ceiling *c, size_t n_modes);

/* What this server created, and may therefore use. Calls run in forks of the server and see a snapshot from their start. */
struct mcp_owner {
	char id[STATE_SERVER_MAX]; /* recorded in the state of each sandbox that the server creates */
	int lock_fd; /* owned; held while the server is alive; -1 until it creates its first sandbox */
	int guard_fd; /* owned; reads end of file when the guard exits */
	char runs[MCP_RUNS_MAX][AK_NAME_MAX]; /* ring buffer of the newest runs */
	size_t n_runs;
};

/* Serve until the input ends or a signal arrives. */
int mcp_serve(const struct mcp_ceiling *ceiling, const struct ak_paths *paths, int in, int out, struct ak_err *err);

/* ---- tools (mcp/tools.c) ---- */

struct mcp_request;

/* The result of a call. */
struct mcp_result {
	struct strbuf text; /* for the model */
	struct strbuf structured; /* members of the structured result ("\"a\":1,\"b\":2"); not sent on failure */
	bool failed;
};

struct mcp_tool {
	const char *name, *title, *help; /* NULL ends the table */
	enum field_verb verb; /* the verb whose fields are the arguments */
	const char *output; /* JSON schema of the structured result */
	bool read_only, destructive, idempotent, open_world;
	bool makes; /* the tool creates a persistent sandbox */
	void (*run)(const struct mcp_request *r, struct mcp_result *ret);
};
extern const struct mcp_tool mcp_tools[];

/* One call, in its own process. */
struct mcp_request {
	const struct mcp_ceiling *ceiling; /* all members are borrowed */
	const struct ak_paths *paths;
	const struct mcp_owner *owner;
	const struct mcp_tool *tool;
	const cJSON *args; /* checked by fields_check */
};

const struct mcp_tool *mcp_tool_find(const char *name);

/* Append the array of tools/list, with the members that protocol revision REV knows. */
void mcp_tools_print(enum mcp_rev rev, struct strbuf *out);

/* The timeout of a call, including the time to start and end a sandbox. */
uint64_t mcp_tool_limit_ms(const struct mcp_tool *tool, const cJSON *args);

/* Read a checked argument; OTHER when it is absent. */
const char *mcp_arg_text(const cJSON *args, const char *key, const char *other);
bool mcp_arg_bool(const cJSON *args, const char *key, bool other);
uint64_t mcp_arg_uint(const cJSON *args, const char *key, uint64_t other);

/* ---- results (mcp/text.c) ---- */

void mcp_fail(struct mcp_result *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void mcp_result_print(const struct mcp_result *r, bool structured, struct strbuf *out);
void mcp_result_done(struct mcp_result *r);

/* Output of a command; of long output only the beginning and the end are kept. */
struct mcp_capture {
	struct strbuf kept;
	uint64_t total;
	bool more; /* the output was already cut before it was added */
	size_t max; /* how much is shown; 0: MCP_OUTPUT_MAX, which is the most */
};
void mcp_capture_add(struct mcp_capture *c, const char *data, size_t len);
/* Print all of it, or both ends with a line between them that says how much is missing. True when it was cut. */
bool mcp_capture_print(const struct mcp_capture *c, struct strbuf *out);
void mcp_capture_done(struct mcp_capture *c);

/* Would DATA be longer than MAX as JSON? Escaping makes a control character six times as long. */
bool mcp_json_grows(const char *data, size_t len, size_t max);

/* The length of the valid UTF-8 prefix of DATA; less than LEN when DATA is not UTF-8 or ends within a character. */
size_t mcp_utf8_whole(const char *data, size_t len);

#endif
