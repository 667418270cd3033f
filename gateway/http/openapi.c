/* /openapi.json: the OpenAPI 3.1 description, generated from the route table. */
#include "gateway/http/route.h"

#include "gateway/base/cleanup.h"

#include <string.h>

/* The members that run_report_put and run_report_put_network write, except the exit code. */
#define REPORT                                                                                                                                                    \
	"\"sandbox\":{\"type\":\"string\"},\"timed_out\":{\"type\":\"boolean\"},\"out_of_memory\":{\"type\":\"boolean\"},\"out_of_disk\":{\"type\":\"boolean\"}," \
	"\"start_us\":{\"type\":\"integer\",\"description\":\"time from the request to the start of the command\"},"                                              \
	"\"duration_ms\":{\"type\":\"integer\"},\"network\":{\"type\":\"object\",\"properties\":{\"allowed\":{\"type\":\"integer\"},"                             \
	"\"denied\":{\"type\":\"integer\"}}}"

/* Shared schemas. The tests check the answers of the handlers against them. */
static const struct {
	const char *name, *schema;
} schemas[] = {
	{ "RunResult",
		"{\"type\":\"object\",\"required\":[\"output\",\"stdout\",\"stderr\",\"exit_code\",\"duration_ms\",\"timed_out\",\"sandbox\"],"
		"\"properties\":{\"output\":{\"type\":\"string\",\"description\":\"both streams, interleaved as received\"},\"stdout\":{\"type\":\"string\"},"
		"\"stderr\":{\"type\":\"string\"},\"exit_code\":{\"type\":\"integer\"},"
		"\"truncated\":{\"type\":\"boolean\",\"description\":\"true: output, stdout or stderr was cut after output_limit_bytes of escaped JSON text, 8 MiB unless given\"}," REPORT
		"}}" },
	{ "BatchResult",
		"{\"type\":\"object\",\"required\":[\"results\"],\"properties\":{\"results\":{\"type\":\"array\",\"items\":{\"type\":\"object\","
		"\"required\":[\"output\",\"error\",\"exit_code\"],\"properties\":{\"output\":{\"type\":[\"string\",\"null\"]},"
		"\"error\":{\"type\":[\"string\",\"null\"]},\"exit_code\":{\"type\":[\"integer\",\"null\"]},"
		"\"truncated\":{\"type\":\"boolean\",\"description\":\"true: output was cut after output_limit_bytes, 1 MiB, or the command's share of 16 MiB\"}," REPORT
		"}}}}}" },
	{ "SandboxInfo",
		"{\"type\":\"object\",\"required\":[\"name\",\"uuid\",\"status\",\"backend\",\"mode\",\"profile\",\"created_at\"],\"properties\":{"
		"\"name\":{\"type\":\"string\"},\"uuid\":{\"type\":[\"string\",\"null\"]},"
		"\"status\":{\"type\":\"string\",\"enum\":[\"running\",\"stopped\",\"damaged\"]},\"error\":{\"type\":\"string\"},"
		"\"backend\":{\"type\":[\"string\",\"null\"],\"description\":\"ns, vm or podman\"},\"mode\":{\"type\":[\"string\",\"null\"]},\"profile\":{\"type\":[\"string\",\"null\"]},"
		"\"image\":{\"type\":[\"string\",\"null\"]},\"vcpus\":{\"type\":[\"number\",\"null\"]},\"memory_mb\":{\"type\":[\"integer\",\"null\"]},\"disk_mb\":{\"type\":\"integer\"},"
		"\"publish\":{\"type\":\"array\",\"items\":{\"type\":\"string\"},\"description\":\"published ports, ADDR:PORT:PORT\"},"
		"\"ip\":{\"type\":[\"string\",\"null\"]},\"created_at\":{\"type\":[\"string\",\"null\"]}}}" },
	{ "Snapshot",
		"{\"type\":\"object\",\"required\":[\"tag\"],\"properties\":{\"tag\":{\"type\":\"string\"},"
		"\"created_at\":{\"type\":\"string\"},\"files\":{\"type\":\"integer\"},"
		"\"bytes\":{\"type\":\"integer\",\"description\":\"disk space of the files\"},"
		"\"damaged\":{\"type\":\"boolean\",\"description\":\"true: it can only be removed\"}}}" },
	{ "Detached",
		"{\"type\":\"object\",\"required\":[\"id\",\"sandbox\",\"command\",\"pid\",\"status\",\"exit_code\",\"started_at\"],\"properties\":{"
		"\"id\":{\"type\":\"string\"},\"sandbox\":{\"type\":\"string\"},\"command\":{\"type\":\"array\",\"items\":{\"type\":\"string\"}},"
		"\"pid\":{\"type\":\"integer\"},\"status\":{\"type\":\"string\",\"enum\":[\"running\",\"completed\",\"failed\"]},"
		"\"exit_code\":{\"type\":[\"integer\",\"null\"]},\"started_at\":{\"type\":\"string\"},\"error\":{\"type\":\"string\"}}}" },
	{ "DetachedLogs",
		"{\"type\":\"object\",\"properties\":{\"stdout\":{\"type\":\"string\"},\"stderr\":{\"type\":\"string\"},"
		"\"truncated\":{\"type\":\"boolean\"}}}" },
	{ "File",
		"{\"type\":\"object\",\"required\":[\"content\",\"encoding\",\"size\"],\"properties\":{\"content\":{\"type\":\"string\"},"
		"\"encoding\":{\"type\":\"string\",\"enum\":[\"utf8\",\"base64\"],\"description\":\"base64 for binary files, and for text that would be longer as a JSON string\"},\"size\":{\"type\":\"integer\"}}}" },
	{ "Written", "{\"type\":\"object\",\"required\":[\"written\"],\"properties\":{\"written\":{\"type\":\"integer\"}}}" },
	{ "Verdict",
		"{\"type\":\"object\",\"required\":[\"verdict\",\"target\",\"policy\",\"rule\",\"reason\"],\"properties\":{"
		"\"verdict\":{\"type\":\"string\",\"enum\":[\"allow\",\"deny\"]},\"target\":{\"type\":\"string\"},\"policy\":{\"type\":\"string\"},"
		"\"rule\":{\"type\":\"string\"},\"reason\":{\"type\":\"string\"}}}" },
	{ "LivePolicy",
		"{\"type\":\"object\",\"required\":[\"name\",\"generation\",\"policy\",\"changes\"],\"properties\":{\"name\":{\"type\":\"string\"},"
		"\"generation\":{\"type\":\"integer\"},\"policy\":{\"type\":\"object\"},\"changes\":{\"type\":\"array\",\"items\":{\"type\":\"object\"}}}}" },
	{ "StreamEvent",
		"{\"type\":\"object\",\"description\":\"events started, progress, output {data,stream}, done {exit_code,success}, error {message}\"}" },
	{ "Error",
		"{\"type\":\"object\",\"required\":[\"success\",\"error\"],\"properties\":{\"success\":{\"const\":false},"
		"\"error\":{\"type\":\"string\"}}}" },
};

static const struct {
	unsigned status;
	const char *name, *words;
} errors[] = {
	{ 400, "BadInput", "the request is malformed, or a field is missing, unknown or out of range" },
	{ 401, "NoKey", "the API key is missing or wrong; a server without a key answers only the user who started it" },
	{ 403, "Refused", "the Host header names another server, or the request is cross-origin" },
	{ 404, "NotFound", "no such sandbox, snapshot, command, file or policy" },
	{ 408, "Late", "the request did not arrive in time" },
	{ 409, "Conflict", "the sandbox is in the wrong state: the name is taken, or it is not running" },
	{ 413, "TooLarge", "the body or the answer is too large" },
	{ 429, "Busy", "too many requests at once; try again soon" },
	{ 500, "Failed", "the server failed to handle the request" },
};

static const struct {
	const char *name, *words;
} tags[HTTP_TAG_NUM] = {
	[HTTP_TAG_RUN] = { "run", "Commands in temporary sandboxes." },
	[HTTP_TAG_SANDBOXES] = { "sandboxes", "Persistent sandboxes." },
	[HTTP_TAG_EXEC] = { "exec", "Commands in persistent sandboxes." },
	[HTTP_TAG_FILES] = { "files", "Files of a running sandbox." },
	[HTTP_TAG_POLICIES] = { "policies", "Network policies: the installed ones, and the live policy of a sandbox." },
	[HTTP_TAG_LOGS] = { "logs", "Audit and network records." },
	[HTTP_TAG_SERVER] = { "server", "The server itself." },
};

static void put_text(struct strbuf *out, const char *key, const char *text)
{
	strbuf_printf(out, "\"%s\":", key);
	strbuf_json_utf8(out, text, strlen(text));
}

static const char *path_of(const struct http_route *r)
{
	return r->described ? r->described : r->path;
}

/*
 * A parameter in the braces of a path. {by} is always "by-uuid": by OpenAPI's rules, /sandboxes/by-uuid/{uuid} would be ambiguous with
 * /sandboxes/{name}/start.
 */
static void put_path_parameter(struct strbuf *out, const struct http_route *r, const char *name, size_t len)
{
	static const struct {
		const char *name, *schema, *words;
	} known[] = {
		{ "by", "{\"type\":\"string\",\"enum\":[\"by-uuid\"]}", "always by-uuid" },
		{ "uuid", "{\"type\":\"string\",\"format\":\"uuid\"}", "the uuid that createSandbox returned" },
		{ "tag", "{\"type\":\"string\"}", "the tag of a snapshot" },
		{ "id", "{\"type\":\"string\"}", "the id that execDetach returned" },
		{ "path", "{\"type\":\"string\"}",
			"an absolute path in the sandbox, without the leading slash; may contain slashes" },
	};

	strbuf_printf(out, "{\"name\":\"%.*s\",\"in\":\"path\",\"required\":true,", (int)len, name);
	for (size_t i = 0; i < ARRAY_SIZE(known); i++) {
		if (strlen(known[i].name) != len || strncmp(known[i].name, name, len) != 0)
			continue;
		put_text(out, "description", known[i].words);
		strbuf_printf(out, ",\"schema\":%s}", known[i].schema);
		return;
	}
	strbuf_puts(out, "\"schema\":");
	if (!strncmp(r->path, "/policies", 9))
		strbuf_puts(out, "{\"type\":\"string\",\"description\":\"name of a policy\"}");
	else
		field_schema(out, &field_table[FIELD_NAME], FIELD_HTTP);
	strbuf_putc(out, '}');
}

static void put_parameters(struct strbuf *out, const struct http_route *r)
{
	const char *sep = "";

	strbuf_puts(out, ",\"parameters\":[");
	for (const char *p = strchr(path_of(r), '{'); p; p = strchr(p + 1, '{')) {
		strbuf_puts(out, sep);
		put_path_parameter(out, r, p + 1, strcspn(p + 1, "}"));
		sep = ",";
	}
	field_each(u, r->query, FIELD_QUERY) {
		strbuf_printf(
			out, "%s{\"name\":\"%s\",\"in\":\"query\",\"required\":false,\"schema\":", sep, field_table[u->id].name);
		field_schema(out, &field_table[u->id], FIELD_QUERY);
		strbuf_putc(out, '}');
		sep = ",";
	}
	strbuf_putc(out, ']');
}

static void put_answer(struct strbuf *out, const struct http_route *r)
{
	strbuf_printf(out, ",\"responses\":{\"%d\":{\"description\":\"done\",\"content\":{", r->created ? 201 : 200);
	if (r->answer == HTTP_JSON)
		strbuf_printf(out,
			"\"application/json\":{\"schema\":{\"type\":\"object\",\"required\":[\"success\",\"data\"],"
			"\"properties\":{\"success\":{\"const\":true},\"data\":%s}}}%s",
			r->data, r->follows ? "," : "");
	if (r->answer == HTTP_SSE || r->follows)
		strbuf_printf(
			out, "\"text/event-stream\":{\"schema\":%s}", r->answer == HTTP_SSE ? r->data : "{\"type\":\"object\"}");
	if (r->answer == HTTP_TEXT)
		strbuf_printf(
			out, "\"%s\":{\"schema\":%s}", strstr(r->path, "json") ? "application/json" : "text/plain", r->data);
	strbuf_puts(out, "}}");
	for (size_t i = 0; i < ARRAY_SIZE(errors); i++) {
		if (http_route_answers(r, errors[i].status))
			strbuf_printf(out, ",\"%u\":{\"$ref\":\"#/components/responses/%s\"}", errors[i].status, errors[i].name);
	}
	strbuf_putc(out, '}');
}

static void put_operation(struct strbuf *out, const struct http_route *r)
{
	static const char *const verbs[] = { "get", "head", "post", "put", "patch", "delete", "other" };

	strbuf_printf(out, "\"%s\":{\"operationId\":\"%s\",\"tags\":[\"%s\"],", verbs[r->method], r->id, tags[r->tag].name);
	put_text(out, "summary", r->summary);
	if (r->open)
		strbuf_puts(out, ",\"security\":[]");
	put_parameters(out, r);
	if (r->body) {
		strbuf_puts(out, ",\"requestBody\":{\"required\":true,\"content\":{\"application/json\":{\"schema\":");
		fields_schema(out, r->body, FIELD_HTTP);
		strbuf_puts(out, "}}}");
	}
	put_answer(out, r);
	strbuf_putc(out, '}');
}

/* Is row I the first of its path? The first row prints all methods of the path. */
static bool is_first(size_t i)
{
	for (size_t j = 0; j < i; j++) {
		if (!strcmp(http_routes[j].path, http_routes[i].path))
			return false;
	}
	return true;
}

static void put_paths(struct strbuf *out)
{
	const char *sep = "";

	for (size_t i = 0; i < http_n_routes; i++) {
		const char *inner = "";

		if (!is_first(i))
			continue;
		strbuf_printf(out, "%s\"%s\":{", sep, path_of(&http_routes[i]));
		for (size_t j = i; j < http_n_routes; j++) {
			if (strcmp(http_routes[i].path, http_routes[j].path) != 0)
				continue;
			strbuf_puts(out, inner);
			put_operation(out, &http_routes[j]);
			inner = ",";
		}
		strbuf_putc(out, '}');
		sep = ",";
	}
}

static void put_components(struct strbuf *out)
{
	strbuf_puts(out,
		"\"components\":{\"securitySchemes\":{\"key\":{\"type\":\"http\",\"scheme\":\"bearer\","
		"\"description\":\"AGENTKERNEL_API_KEY or a line of --api-key-file; a server on loopback may have none\"}},\"responses\":{");
	for (size_t i = 0; i < ARRAY_SIZE(errors); i++) {
		strbuf_printf(out, "%s\"%s\":{", i ? "," : "", errors[i].name);
		put_text(out, "description", errors[i].words);
		strbuf_puts(out, ",\"content\":{\"application/json\":{\"schema\":{\"$ref\":\"#/components/schemas/Error\"}}}}");
	}
	strbuf_puts(out, "},\"schemas\":{");
	for (size_t i = 0; i < ARRAY_SIZE(schemas); i++)
		strbuf_printf(out, "%s\"%s\":%s", i ? "," : "", schemas[i].name, schemas[i].schema);
	strbuf_puts(out, "}}");
}

void http_openapi(struct strbuf *out)
{
	strbuf_puts(out,
		"{\"openapi\":\"3.1.0\",\"info\":{\"title\":\"agentkernel\",\"version\":\"" AK_VERSION
		"\",\"license\":{\"name\":\"Apache-2.0\",\"identifier\":\"Apache-2.0\"},"
		"\"description\":\"Run commands in sandboxes whose whole network passes through a policy gateway. An unknown path is answered with 404, an "
		"unsupported method with 405, too large a request head with 431, an unknown HTTP version with 505.\"},"
		"\"servers\":[{\"url\":\"/\",\"description\":\"the server that sent this description\"}],"
		"\"security\":[{},{\"key\":[]}],\"tags\":[");
	for (size_t i = 0; i < HTTP_TAG_NUM; i++) {
		strbuf_printf(out, "%s{\"name\":\"%s\",", i ? "," : "", tags[i].name);
		put_text(out, "description", tags[i].words);
		strbuf_putc(out, '}');
	}
	strbuf_puts(out, "],\"paths\":{");
	put_paths(out);
	strbuf_puts(out, "},");
	put_components(out);
	strbuf_putc(out, '}');
}
