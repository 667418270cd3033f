/*
 * Model Context Protocol on stdio: JSON-RPC 2.0, one message a line.
 *
 * Three layers. mcp_session speaks the protocol and knows no process; mcp_tools says which tools there are and checks what they are given;
 * mcp_server moves bytes and runs each call in a process of its own, which calls the service verbs of service/service.h. A call that is cancelled
 * or late dies with its process, and its sandbox with it.
 *
 * Whoever sends the messages is a model, and is not trusted: what it may choose is bounded by what the user started the server with
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

#define MCP_LINE_MAX (16u << 20) /* a longer message is refused */
#define MCP_OUTPUT_MAX (64u << 10) /* a longer output is cut in the middle; twice that much as JSON */
#define MCP_WORKERS_MAX 16 /* calls that run at once; more wait */
#define MCP_WAITING_MAX 64 /* calls that wait; more are refused */
#define MCP_WAITING_BYTES (64u << 20) /* and so they are when the arguments of those that wait are larger */
#define MCP_TIMEOUT_MS 30000 /* of a command, when the call names none */
#define MCP_RUNS_MAX 256 /* past runs whose records a server's tools still show */

enum mcp_rev { MCP_REV_2024_11_05, MCP_REV_2025_03_26, MCP_REV_2025_06_18, MCP_REV_2025_11_25, MCP_REV_NUM };

/* What the user started the server with: the most that a call can get. */
struct mcp_ceiling {
	enum ak_mode mode; /* when a call names none */
	bool modes[AK_MODE_NUM]; /* those a call may name */
	enum ak_profile profile; /* the widest, and the one when a call names none */
	bool no_network;
	bool keep; /* what calls create outlives the server */
	const char *dir; /* the project, or NULL: the mode decides about the current folder; borrowed */
	struct policy_edit edits[PLAN_LIST_MAX]; /* on top of the mode's policy, in each sandbox made here; texts borrowed */
	size_t n_edits;
};

/* N_MODES modes were named, the first of which is in MODE. When none was: claude, and any but native may be chosen. */
void mcp_ceiling_finish(struct mcp_ceiling *c, size_t n_modes);

/* What a server made, and may therefore touch. Calls are forks of the server and see it as it was when they began. */
struct mcp_owner {
	char id[STATE_SERVER_MAX]; /* in the state of each sandbox that it makes */
	int lock_fd; /* owned; says that it lives; -1 until it makes the first */
	int guard_fd; /* owned; closed by its guard's end */
	char runs[MCP_RUNS_MAX][AK_NAME_MAX]; /* the newest, in a ring */
	size_t n_runs;
};

/* Serve until the input ends or a signal says so. */
int mcp_serve(const struct mcp_ceiling *ceiling, const struct ak_paths *paths, int in, int out, struct ak_err *err);

/* ---- tools (mcp/tools.c) ---- */

struct mcp_request;

/* What a call says: text for the model, members of the structured result, and whether it failed. */
struct mcp_result {
	struct strbuf text;
	struct strbuf structured; /* "\"a\":1,\"b\":2"; left out of a failure */
	bool failed;
};

struct mcp_tool {
	const char *name, *title, *help; /* NULL ends the table */
	enum field_verb verb; /* whose fields are its arguments */
	const char *output; /* JSON schema of the structured result */
	bool read_only, destructive, idempotent, open_world;
	bool makes; /* a sandbox that stays */
	void (*run)(const struct mcp_request *r, struct mcp_result *ret);
};
extern const struct mcp_tool mcp_tools[];

/* One call, in its own process. */
struct mcp_request {
	const struct mcp_ceiling *ceiling; /* borrowed, all of them */
	const struct ak_paths *paths;
	const struct mcp_owner *owner;
	const struct mcp_tool *tool;
	const cJSON *args; /* checked by fields_check */
};

const struct mcp_tool *mcp_tool_find(const char *name);

/* The array of tools/list, as far as REV knows its parts. */
void mcp_tools_print(enum mcp_rev rev, struct strbuf *out);

/* The longest that a call may take, with what it takes to start and end it. */
uint64_t mcp_tool_limit_ms(const struct mcp_tool *tool, const cJSON *args);

/* Arguments that were checked; the other value when absent. */
const char *mcp_arg_text(const cJSON *args, const char *key, const char *other);
bool mcp_arg_bool(const cJSON *args, const char *key, bool other);
uint64_t mcp_arg_uint(const cJSON *args, const char *key, uint64_t other);

/* ---- results (mcp/text.c) ---- */

void mcp_fail(struct mcp_result *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void mcp_result_print(const struct mcp_result *r, bool structured, struct strbuf *out);
void mcp_result_done(struct mcp_result *r);

/* Output of which only the beginning and the end are kept. */
struct mcp_capture {
	struct strbuf kept;
	uint64_t total;
	bool more; /* some of it never arrived here */
};
void mcp_capture_add(struct mcp_capture *c, const char *data, size_t len);
/* All of it, or both ends with a line between them that says how much is missing; true when it was cut. */
bool mcp_capture_print(const struct mcp_capture *c, struct strbuf *out);
void mcp_capture_done(struct mcp_capture *c);

/* Would it be longer than MAX as JSON? Control characters become six times what they were. */
bool mcp_json_grows(const char *data, size_t len, size_t max);

/* How many of the first LEN bytes are whole UTF-8; less than LEN when the text is broken or ends within a character. */
size_t mcp_utf8_whole(const char *data, size_t len);

#endif
