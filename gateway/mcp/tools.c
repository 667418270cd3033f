/*
 * The tools: one table row each, from which both the schemas that clients see and the checks that calls pass are made, so that the two cannot
 * differ. See mcp/mcp.h.
 */
#include "gateway/mcp/mcp.h"

#include "gateway/base/cleanup.h"
#include "gateway/mcp/run.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <string.h>

#define MODES "claude|codex|gemini|native"
#define PROFILES "permissive|moderate|restrictive"
#define CALL_MS 60000 /* for a tool that runs no command */
#define START_MS 40000 /* on top of a command's own time: what starting and ending a sandbox may take at worst */

/* ---- what they are given ---- */

#define P_NAME                                                                                                                   \
	{                                                                                                                        \
		"name", MCP_STRING, .required = true,                                                                            \
				    .help = "Name of the sandbox: 1 to 63 of A-Z a-z 0-9 _ -, a letter or digit at both ends."   \
	}
#define P_COMMAND                                                                                                                                 \
	{                                                                                                                                         \
		"command", MCP_STRINGS,                                                                                                           \
			.required = true,                                                                                                         \
			.help = "Program and arguments, one string each. No shell is involved: for pipes or globs use [\"sh\", \"-c\", \"...\"]." \
	}
#define P_ENV                                                                                                                    \
	{                                                                                                                        \
		"env", MCP_MAP, .help = "Environment variables to set."                                                          \
	}
#define P_TIMEOUT                                                                                                                \
	{                                                                                                                        \
		"timeout_ms", MCP_UINT, .min = 1, .max = MCP_TIMEOUT_MAX_MS,                                                     \
					.help = "End the command after this many milliseconds (30000)."                          \
	}
#define P_CWD                                                                                                                    \
	{                                                                                                                        \
		"cwd", MCP_STRING,                                                                                               \
			.help = "Absolute path inside the sandbox to start in; by default the project, or the home folder."      \
	}
#define P_MODE                                                                                                                                                 \
	{                                                                                                                                                      \
		"compatibility_mode", MCP_STRING,                                                                                                              \
			.choice = MODES,                                                                                                                       \
			.help = "Whose network policy applies. Only modes that the user started this server with can be chosen; leave it out for the default." \
	}
#define P_PROFILE                                                                                                                            \
	{                                                                                                                                    \
		"profile", MCP_STRING,                                                                                                       \
			.choice = PROFILES,                                                                                                  \
			.help = "How much of the host it may use; never more than this server was started with. restrictive has no network." \
	}
#define P_NETWORK                                                                                                                \
	{                                                                                                                        \
		"network", MCP_BOOL, .help = "false: no network at all. true changes nothing; the policy decides."               \
	}
#define P_IMAGE                                                                                                                  \
	{                                                                                                                        \
		"image", MCP_STRING,                                                                                             \
			.help = "Root file system from an image. Not available in this version; the host's own system is used."  \
	}

static const struct mcp_param run_params[] = { P_COMMAND, P_PROFILE, P_MODE, P_NETWORK, P_IMAGE, P_CWD, P_ENV, P_TIMEOUT, { 0 } };

static const struct mcp_param create_params[] = { P_NAME, P_PROFILE, P_MODE, P_NETWORK, P_IMAGE, P_ENV,
	{ "vcpus", MCP_UINT, .min = 1, .max = 1024, .help = "Processor limit." },
	{ "memory_mb", MCP_UINT, .min = 4, .max = 1u << 24, .help = "Memory limit in MiB." },
	{ "start", MCP_BOOL, .help = "Start it at once (true)." }, { 0 } };

static const struct mcp_param exec_params[] = { P_NAME, P_COMMAND, P_CWD, P_ENV, P_TIMEOUT, { 0 } };
static const struct mcp_param name_params[] = { P_NAME, { 0 } };
static const struct mcp_param no_params[] = { { 0 } };

static const struct mcp_param remove_params[] = { P_NAME, { "force", MCP_BOOL, .help = "Remove it even while it runs (false)." },
	{ 0 } };

static const struct mcp_param write_params[] = { P_NAME,
	{ "path", MCP_STRING, .required = true,
		.help = "Absolute path inside the sandbox. Missing folders are made; an existing file is replaced." },
	{ "content", MCP_STRING, .required = true, .help = "What the file will hold." },
	{ "encoding", MCP_STRING, .choice = "utf8|base64", .help = "How content is given (utf8). Use base64 for binary." },
	{ 0 } };

static const struct mcp_param read_params[] = { P_NAME,
	{ "path", MCP_STRING, .required = true, .help = "Absolute path inside the sandbox, of a regular file." },
	{ "offset", MCP_UINT, .max = 1ull << 50, .help = "Start at this byte (0)." },
	{ "limit", MCP_UINT, .min = 1, .max = MCP_FILE_MAX, .help = "Read at most this many bytes (65536)." }, { 0 } };

static const struct mcp_param log_params[] = { { "name", MCP_STRING, .required = true,
						       .help = "A sandbox, or the name that sandbox_run gave as \"sandbox\"." },
	{ "denied", MCP_BOOL, .help = "Only what was denied (false)." },
	{ "since", MCP_STRING, .help = "Only newer records: a duration such as 10m or 1h30m, or an RFC 3339 time." },
	{ "limit", MCP_UINT, .min = 1, .max = 1000, .help = "At most this many rows, the newest (100)." }, { 0 } };

static const struct mcp_param check_params[] = {
	{ "policy", MCP_STRING, .required = true,
		.help = "A mode (codex) or a sandbox that calls can get, or a .json file of the project." },
	{ "target", MCP_STRING, .required = true, .help = "host[:port][/proto], such as api.example.com:443/tcp." }, { 0 }
};

/* ---- what they give ---- */

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
	       ",\"duration_ms\":" WHOLE ",\"sandbox\":" TEXT ",\"network\":" OBJECT("\"denied\":" DENIED, "\"denied\""),        \
		"\"stdout\",\"stderr\",\"exit_code\",\"timed_out\",\"network\"")
#define SANDBOX_MEMBERS "\"name\":" TEXT ",\"uuid\":" TEXT ",\"status\":" TEXT ",\"mode\":" TEXT ",\"profile\":" TEXT
#define SANDBOX OBJECT(SANDBOX_MEMBERS, "\"name\",\"status\",\"mode\",\"profile\"")
#define LISTED OBJECT(SANDBOX_MEMBERS, "\"name\",\"status\"") /* of a damaged one there is nothing else to tell */
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
		"Run a command in a new sandbox that is gone when the command ends, and return its output. The whole network of the sandbox passes a "
		"policy: what was denied is listed, with the rule, and only the user can change that. The project folder is there where the mode mounts it.",
		run_params, OUT_COMMAND, .destructive = true, .open_world = true, .run = mcp_do_run },
	{ "sandbox_create", "Create a sandbox that stays",
		"Create a sandbox that keeps its files until it is removed or this server ends, for several commands with sandbox_exec. It is started at once "
		"unless start is false.",
		create_params, SANDBOX, .makes = true, .run = mcp_do_create },
	{ "sandbox_exec", "Run a command in a sandbox",
		"Run a command in a running sandbox that sandbox_create made or the user opened to this server, and return its output.",
		exec_params, OUT_COMMAND, .destructive = true, .open_world = true, .run = mcp_do_exec },
	{ "sandbox_list", "List the sandboxes", "The sandboxes that these tools may use, with state, mode and profile.",
		no_params, OUT_LIST, .read_only = true, .idempotent = true, .run = mcp_do_list },
	{ "sandbox_remove", "Remove a sandbox", "Remove a sandbox and its files for good.", remove_params, OUT_STATE,
		.destructive = true, .run = mcp_do_remove },
	{ "sandbox_file_write", "Write a file in a sandbox", "Write one file in a running sandbox, as a whole.", write_params,
		OUT_WRITE, .destructive = true, .idempotent = true, .run = mcp_do_file_write },
	{ "sandbox_file_read", "Read a file of a sandbox",
		"Read a file of a running sandbox: text as it is, anything else as base64. Of a long file a part is read; next_offset says where to go on.",
		read_params, OUT_READ, .read_only = true, .idempotent = true, .run = mcp_do_file_read },
	{ "sandbox_start", "Start a sandbox", "Start a stopped sandbox.", name_params, OUT_STATE, .run = mcp_do_start },
	{ "sandbox_stop", "Stop a sandbox", "Stop a sandbox: its processes end, its files stay.", name_params, OUT_STATE,
		.destructive = true, .run = mcp_do_stop },
	{ "network_log", "Show what the network was asked for",
		"What a sandbox tried to reach, what became of it, and the rule that decided. For sandboxes and past sandbox_run calls.",
		log_params, OUT_LOG, .read_only = true, .idempotent = true, .run = mcp_do_log },
	{ "network_check", "Ask a network policy",
		"Would this destination be allowed, and by which rule? Asks only: nothing is contacted and nothing is changed.",
		check_params, OUT_CHECK, .read_only = true, .idempotent = true, .run = mcp_do_check },
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

static void put_choice(const char *choice, struct strbuf *out)
{
	strbuf_puts(out, ",\"enum\":[");
	for (const char *p = choice; p;) {
		size_t n = strcspn(p, "|");

		strbuf_printf(out, "%s\"%.*s\"", p == choice ? "" : ",", (int)n, p);
		p = p[n] ? p + n + 1 : NULL;
	}
	strbuf_putc(out, ']');
}

static void put_type(const struct mcp_param *p, struct strbuf *out)
{
	switch (p->type) {
	case MCP_STRING:
		strbuf_puts(out, "\"type\":\"string\"");
		if (p->choice)
			put_choice(p->choice, out);
		break;
	case MCP_STRINGS:
		strbuf_puts(out, "\"type\":\"array\",\"items\":" TEXT ",\"minItems\":1");
		break;
	case MCP_BOOL:
		strbuf_puts(out, "\"type\":\"boolean\"");
		break;
	case MCP_UINT:
		strbuf_printf(out, "\"type\":\"integer\",\"minimum\":%llu,\"maximum\":%llu", (unsigned long long)p->min,
			(unsigned long long)p->max);
		break;
	case MCP_MAP:
		strbuf_puts(out, "\"type\":\"object\",\"additionalProperties\":" TEXT);
		break;
	case MCP_TYPE_NUM:
		break;
	}
}

static void put_input(const struct mcp_param *params, struct strbuf *out)
{
	bool any = false;

	strbuf_puts(out, "{\"type\":\"object\",\"properties\":{");
	for (const struct mcp_param *p = params; p->name; p++) {
		strbuf_printf(out, "%s\"%s\":{", p == params ? "" : ",", p->name);
		put_type(p, out);
		strbuf_puts(out, ",\"description\":");
		strbuf_json(out, p->help);
		strbuf_putc(out, '}');
	}
	strbuf_putc(out, '}');
	for (const struct mcp_param *p = params; p->name; p++) {
		if (p->required)
			strbuf_printf(out, "%s\"%s\"", any ? "," : ",\"required\":[", p->name);
		any |= p->required;
	}
	strbuf_puts(out, any ? "],\"additionalProperties\":false}" : ",\"additionalProperties\":false}");
}

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
		put_input(t->params, out);
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

/* ---- checks ---- */

static bool in_choice(const char *choice, const char *word)
{
	size_t len = strlen(word);

	for (const char *p = choice; p;) {
		size_t n = strcspn(p, "|");

		if (n == len && !memcmp(p, word, n))
			return true;
		p = p[n] ? p + n + 1 : NULL;
	}
	return false;
}

static int check_strings(const struct mcp_param *p, const cJSON *list, struct ak_err *err)
{
	const cJSON *item;
	int i = 0;

	if (!cJSON_IsArray(list))
		return ak_fail(err, EINVAL, "%s: must be an array of strings", p->name);
	cJSON_ArrayForEach(item, list) {
		if (!cJSON_IsString(item))
			return ak_fail(err, EINVAL, "%s[%d]: must be a string", p->name, i);
		i++;
	}
	if (i == 0 || !list->child->valuestring[0])
		return ak_fail(err, EINVAL, "%s%s: must not be empty", p->name, i ? "[0]" : "");
	return 0;
}

static int check_map(const struct mcp_param *p, const cJSON *map, struct ak_err *err)
{
	const cJSON *item;

	if (!cJSON_IsObject(map))
		return ak_fail(err, EINVAL, "%s: must be an object of strings", p->name);
	cJSON_ArrayForEach(item, map) {
		if (!item->string[0] || strchr(item->string, '='))
			return ak_fail(err, EINVAL, "%s: '%.64s' is not the name of a variable", p->name, item->string);
		if (!cJSON_IsString(item))
			return ak_fail(err, EINVAL, "%s.%.64s: must be a string", p->name, item->string);
	}
	if (cJSON_GetArraySize(map) > PLAN_LIST_MAX)
		return ak_fail(err, EINVAL, "%s: more than %d variables", p->name, PLAN_LIST_MAX);
	return 0;
}

static int check_uint(const struct mcp_param *p, const cJSON *n, struct ak_err *err)
{
	if (!cJSON_IsNumber(n) || n->valuedouble != floor(n->valuedouble) || n->valuedouble < (double)p->min ||
		n->valuedouble > (double)p->max)
		return ak_fail(err, EINVAL, "%s: must be a whole number from %llu to %llu", p->name, (unsigned long long)p->min,
			(unsigned long long)p->max);
	return 0;
}

static int check_value(const struct mcp_param *p, const cJSON *value, struct ak_err *err)
{
	switch (p->type) {
	case MCP_STRING:
		if (!cJSON_IsString(value))
			return ak_fail(err, EINVAL, "%s: must be a string", p->name);
		if (p->choice && !in_choice(p->choice, value->valuestring))
			return ak_fail(err, EINVAL, "%s: '%.64s' is not one of %s", p->name, value->valuestring, p->choice);
		return 0;
	case MCP_STRINGS:
		return check_strings(p, value, err);
	case MCP_BOOL:
		return cJSON_IsBool(value) ? 0 : ak_fail(err, EINVAL, "%s: must be true or false", p->name);
	case MCP_UINT:
		return check_uint(p, value, err);
	case MCP_MAP:
		return check_map(p, value, err);
	case MCP_TYPE_NUM:
		break;
	}
	assert(false);
	return -EINVAL;
}

static const struct mcp_param *find_param(const struct mcp_tool *tool, const char *name)
{
	for (const struct mcp_param *p = tool->params; p->name; p++) {
		if (!strcmp(p->name, name))
			return p;
	}
	return NULL;
}

int mcp_tool_check(const struct mcp_tool *tool, const cJSON *args, struct ak_err *err)
{
	const cJSON *item;

	cJSON_ArrayForEach(item, args) {
		const struct mcp_param *p = find_param(tool, item->string);
		int rc;

		if (!p)
			return ak_fail(err, EINVAL, "%.64s: unknown argument", item->string);
		/* Null is read as absent: some clients send every field there is. */
		rc = cJSON_IsNull(item) ? 0 : check_value(p, item, err);
		if (rc < 0)
			return rc;
	}
	for (const struct mcp_param *p = tool->params; p->name; p++) {
		item = cJSON_GetObjectItemCaseSensitive(args, p->name);
		if (p->required && (!item || cJSON_IsNull(item)))
			return ak_fail(err, EINVAL, "%s: missing", p->name);
	}
	return 0;
}

/* ---- what they were given ---- */

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
	return find_param(tool, "timeout_ms") ? mcp_arg_uint(args, "timeout_ms", MCP_TIMEOUT_MS) + START_MS : CALL_MS;
}
