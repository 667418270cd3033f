/*
 * The tool table. The arguments, their schemas and their checks come from field/table.c. See mcp/mcp.h.
 */
#include "gateway/mcp/mcp.h"

#include "gateway/base/cleanup.h"
#include "gateway/mcp/run.h"

#include <string.h>

#define CALL_MS 60000 /* timeout of a tool that runs no command */
#define START_MS 40000 /* added to a command's timeout: the most that starting and ending a sandbox may take */

/* ---- output schemas ---- */

#define TEXT "{\"type\":\"string\"}"
#define WHOLE "{\"type\":\"integer\"}"
#define FLAG "{\"type\":\"boolean\"}"
#define OBJECT(properties, required) "{\"type\":\"object\",\"properties\":{" properties "},\"required\":[" required "]}"
#define ARRAY(items) "{\"type\":\"array\",\"items\":" items "}"

#define DENIED                                                                                                                   \
	ARRAY(OBJECT("\"destination\":" TEXT ",\"proto\":" TEXT ",\"rule\":" TEXT ",\"reason\":" TEXT ",\"count\":" WHOLE,       \
		"\"destination\",\"proto\",\"rule\",\"reason\",\"count\""))
#define OUT_COMMAND                                                                                                              \
	OBJECT("\"stdout\":" TEXT ",\"stderr\":" TEXT ",\"exit_code\":" WHOLE ",\"timed_out\":" FLAG ",\"truncated\":" FLAG      \
	       ",\"out_of_memory\":" FLAG ",\"out_of_disk\":" FLAG ",\"start_us\":" WHOLE ",\"duration_ms\":" WHOLE              \
	       ",\"sandbox\":" TEXT ",\"network\":" OBJECT("\"denied\":" DENIED, "\"denied\""),                                  \
		"\"stdout\",\"stderr\",\"exit_code\",\"timed_out\",\"network\"")
#define SANDBOX_MEMBERS "\"name\":" TEXT ",\"uuid\":" TEXT ",\"status\":" TEXT ",\"mode\":" TEXT ",\"profile\":" TEXT
#define SANDBOX OBJECT(SANDBOX_MEMBERS, "\"name\",\"status\",\"mode\",\"profile\"")
#define LISTED OBJECT(SANDBOX_MEMBERS, "\"name\",\"status\"") /* a damaged sandbox has only these members */
#define OUT_STATE OBJECT("\"name\":" TEXT ",\"status\":" TEXT, "\"name\",\"status\"")
#define OUT_LIST OBJECT("\"sandboxes\":" ARRAY(LISTED), "\"sandboxes\"")
#define OUT_WRITE OBJECT("\"path\":" TEXT ",\"size\":" WHOLE, "\"path\",\"size\"")
#define OUT_READ                                                                                                                 \
	OBJECT("\"path\":" TEXT ",\"content\":" TEXT                                                                             \
	       ",\"encoding\":{\"type\":\"string\",\"enum\":[\"utf8\",\"base64\"]},\"size\":" WHOLE ",\"offset\":" WHOLE         \
	       ",\"next_offset\":" WHOLE ",\"truncated\":" FLAG,                                                                 \
		"\"path\",\"content\",\"encoding\",\"size\",\"truncated\"")
#define OUT_LOG                                                                                                                  \
	OBJECT("\"name\":" TEXT ",\"total\":" WHOLE ",\"rows\":" ARRAY(                                                          \
		       OBJECT("\"time\":" TEXT ",\"verdict\":" TEXT ",\"proto\":" TEXT ",\"destination\":" TEXT                  \
			      ",\"addresses\":" ARRAY(TEXT) ",\"rule\":" TEXT ",\"reason\":" TEXT ",\"bytes_out\":" WHOLE        \
							    ",\"bytes_in\":" WHOLE ",\"count\":" WHOLE,                          \
			       "\"time\",\"verdict\",\"proto\",\"destination\",\"rule\",\"reason\",\"count\"")),                 \
		"\"name\",\"total\",\"rows\"")
#define OUT_CHECK                                                                                                                \
	OBJECT("\"verdict\":{\"type\":\"string\",\"enum\":[\"allow\",\"deny\"]},\"target\":" TEXT ",\"policy\":" TEXT            \
	       ",\"rule\":" TEXT ",\"reason\":" TEXT,                                                                            \
		"\"verdict\",\"target\",\"policy\",\"rule\",\"reason\"")

const struct mcp_tool mcp_tools[] = {
	{ "sandbox_run", "Run a command in a temporary sandbox",
		"Run a command in a new sandbox that is removed when the command ends, and return its output. A policy controls the whole network of the "
		"sandbox; the result lists denied requests with their rules, and only the user can change them. Some modes mount the project folder.",
		VERB_RUN, OUT_COMMAND, .destructive = true, .open_world = true, .run = mcp_do_run },
	{ "sandbox_create", "Create a persistent sandbox",
		"Create a sandbox that keeps its files until it is removed or this server ends, for several commands with sandbox_exec. Starts it at once "
		"unless start is false.",
		VERB_CREATE, SANDBOX, .makes = true, .run = mcp_do_create },
	{ "sandbox_exec", "Run a command in a sandbox",
		"Run a command in a running sandbox that sandbox_create made or the user opened to this server, and return its output.",
		VERB_EXEC, OUT_COMMAND, .destructive = true, .open_world = true, .run = mcp_do_exec },
	{ "sandbox_list", "List the sandboxes", "List the sandboxes that these tools may use, with status, mode and profile.",
		VERB_LIST, OUT_LIST, .read_only = true, .idempotent = true, .run = mcp_do_list },
	{ "sandbox_remove", "Remove a sandbox", "Remove a sandbox and its files permanently.", VERB_REMOVE, OUT_STATE,
		.destructive = true, .run = mcp_do_remove },
	{ "sandbox_file_write", "Write a file in a sandbox", "Write one complete file in a running sandbox.", VERB_FILE_WRITE,
		OUT_WRITE, .destructive = true, .idempotent = true, .run = mcp_do_file_write },
	{ "sandbox_file_read", "Read a file of a sandbox",
		"Read a file of a running sandbox: text as it is, anything else as base64. Reads a part of a long file; next_offset is where to continue.",
		VERB_FILE_READ, OUT_READ, .read_only = true, .idempotent = true, .run = mcp_do_file_read },
	{ "sandbox_start", "Start a sandbox", "Start a stopped sandbox.", VERB_START, OUT_STATE, .run = mcp_do_start },
	{ "sandbox_stop", "Stop a sandbox", "Stop a sandbox: its processes end, its files stay.", VERB_STOP, OUT_STATE,
		.destructive = true, .run = mcp_do_stop },
	{ "network_log", "Show the network log",
		"Show what a sandbox tried to reach, the verdicts, and the rules that decided. For sandboxes and past sandbox_run calls.",
		VERB_NETWORK_LOG, OUT_LOG, .read_only = true, .idempotent = true, .run = mcp_do_log },
	{ "network_check", "Check a destination against a policy",
		"Tell whether a policy allows a destination, and by which rule. Contacts nothing and changes nothing.",
		VERB_CHECK, OUT_CHECK, .read_only = true, .idempotent = true, .run = mcp_do_check },
	{ 0 },
};

const struct mcp_tool *mcp_tool_find(const char *name)
{
	for (const struct mcp_tool *t = mcp_tools; t->name; t++) {
		if (!strcmp(t->name, name))
			return t;
	}
	return NULL;
}

/* ---- schemas ---- */

static void put_annotations(const struct mcp_tool *t, struct strbuf *out)
{
	strbuf_puts(out, ",\"annotations\":{\"title\":");
	strbuf_json(out, t->title);
	strbuf_printf(out, ",\"readOnlyHint\":%s,\"destructiveHint\":%s,\"idempotentHint\":%s,\"openWorldHint\":%s}",
		t->read_only ? "true" : "false", t->destructive ? "true" : "false", t->idempotent ? "true" : "false",
		t->open_world ? "true" : "false");
}

void mcp_tools_print(enum mcp_rev rev, struct strbuf *out)
{
	for (const struct mcp_tool *t = mcp_tools; t->name; t++) {
		strbuf_printf(out, "%s{\"name\":\"%s\"", t == mcp_tools ? "[" : ",", t->name);
		if (rev >= MCP_REV_2025_06_18) {
			strbuf_puts(out, ",\"title\":");
			strbuf_json(out, t->title);
		}
		strbuf_puts(out, ",\"description\":");
		strbuf_json(out, t->help);
		strbuf_puts(out, ",\"inputSchema\":");
		fields_schema(out, t->verb, FIELD_MCP);
		if (rev >= MCP_REV_2025_06_18) {
			strbuf_puts(out, ",\"outputSchema\":");
			strbuf_puts(out, t->output);
		}
		if (rev >= MCP_REV_2025_03_26)
			put_annotations(t, out);
		strbuf_putc(out, '}');
	}
	strbuf_putc(out, ']');
}

/* ---- arguments ---- */

const char *mcp_arg_text(const cJSON *args, const char *key, const char *other)
{
	return json_text(args, key, other);
}

bool mcp_arg_bool(const cJSON *args, const char *key, bool other)
{
	const cJSON *item = cJSON_GetObjectItemCaseSensitive(args, key);

	return cJSON_IsBool(item) ? cJSON_IsTrue(item) : other;
}

uint64_t mcp_arg_uint(const cJSON *args, const char *key, uint64_t other)
{
	const cJSON *item = cJSON_GetObjectItemCaseSensitive(args, key);

	return cJSON_IsNumber(item) ? (uint64_t)item->valuedouble : other;
}

uint64_t mcp_tool_limit_ms(const struct mcp_tool *tool, const cJSON *args)
{
	return field_find(tool->verb, FIELD_MCP, "timeout_ms", 10) ? mcp_arg_uint(args, "timeout_ms", MCP_TIMEOUT_MS) + START_MS
								   : CALL_MS;
}
