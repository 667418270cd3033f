/* /openapi.json: the OpenAPI 3.1 description, made from the table of routes. */
#include "gateway/http/route.h"

#include "gateway/base/cleanup.h"

#include <string.h>

/* Shared shapes; what a handler answers is checked against these by the tests. */
static const struct {
	const char *name, *schema;
} schemas[] = {
	{ "RunResult",
		"{\"type\":\"object\",\"required\":[\"output\",\"stdout\",\"stderr\",\"exit_code\",\"duration_ms\",\"timed_out\",\"sandbox\"],"
		"\"properties\":{\"output\":{\"type\":\"string\",\"description\":\"both streams as they came\"},\"stdout\":{\"type\":\"string\"},"
		"\"stderr\":{\"type\":\"string\"},\"exit_code\":{\"type\":\"integer\"},\"duration_ms\":{\"type\":\"integer\"},"
		"\"timed_out\":{\"type\":\"boolean\"},\"out_of_memory\":{\"type\":\"boolean\"},"
		"\"truncated\":{\"type\":\"boolean\",\"description\":\"true: of output, stdout or stderr only the first 8 MiB, as JSON has them, are here\"},"
		"\"sandbox\":{\"type\":\"string\"},\"network\":{\"type\":\"object\",\"properties\":{\"allowed\":{\"type\":\"integer\"},"
		"\"denied\":{\"type\":\"integer\"}}}}}" },
	{ "BatchResult",
		"{\"type\":\"object\",\"required\":[\"results\"],\"properties\":{\"results\":{\"type\":\"array\",\"items\":{\"type\":\"object\","
		"\"required\":[\"output\",\"error\",\"exit_code\"],\"properties\":{\"output\":{\"type\":[\"string\",\"null\"]},"
		"\"error\":{\"type\":[\"string\",\"null\"]},\"exit_code\":{\"type\":[\"integer\",\"null\"]},"
		"\"truncated\":{\"type\":\"boolean\",\"description\":\"true: only the beginning of output is here, the command's share of 16 MiB or 1 MiB\"}}}}}}" },
	{ "SandboxInfo",
		"{\"type\":\"object\",\"required\":[\"name\",\"uuid\",\"status\",\"backend\",\"mode\",\"profile\",\"created_at\"],\"properties\":{"
		"\"name\":{\"type\":\"string\"},\"uuid\":{\"type\":[\"string\",\"null\"]},"
		"\"status\":{\"type\":\"string\",\"enum\":[\"running\",\"stopped\",\"damaged\"]},\"error\":{\"type\":\"string\"},"
		"\"backend\":{\"type\":\"string\"},\"mode\":{\"type\":[\"string\",\"null\"]},\"profile\":{\"type\":[\"string\",\"null\"]},"
		"\"image\":{\"type\":[\"string\",\"null\"]},\"vcpus\":{\"type\":[\"number\",\"null\"]},\"memory_mb\":{\"type\":[\"integer\",\"null\"]},"
		"\"ip\":{\"type\":[\"string\",\"null\"]},\"created_at\":{\"type\":[\"string\",\"null\"]}}}" },
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
		"\"encoding\":{\"type\":\"string\",\"enum\":[\"utf8\",\"base64\"],\"description\":\"base64 for what is not text, or is longer as JSON than so\"},\"size\":{\"type\":\"integer\"}}}" },
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

static void put_bounds(struct strbuf *out, const struct http_field *f, const char *low, const char *high)
{
	if (f->min)
		strbuf_printf(out, ",\"%s\":%llu", low, (unsigned long long)f->min);
	if (f->max)
		strbuf_printf(out, ",\"%s\":%llu", high, (unsigned long long)f->max);
}

static void put_choices(struct strbuf *out, const char *choices)
{
	strbuf_puts(out, ",\"enum\":[");
	for (const char *p = choices; *p;) {
		size_t len = strcspn(p, "|");

		strbuf_jsonn(out, p, len);
		p += len + (p[len] == '|');
		if (*p)
			strbuf_putc(out, ',');
	}
	strbuf_putc(out, ']');
}

static void put_fields(struct strbuf *out, const struct http_field *fields);

static void put_type(struct strbuf *out, const struct http_field *f)
{
	static const char text[] = "{\"type\":\"string\"}";

	switch (f->type) {
	case HTTP_STRING:
		strbuf_puts(out, "\"type\":\"string\"");
		if (f->choices)
			put_choices(out, f->choices);
		else
			put_bounds(out, f, "minLength", "maxLength");
		break;
	case HTTP_BOOL:
		strbuf_puts(out, "\"type\":\"boolean\"");
		break;
	case HTTP_UINT:
		strbuf_puts(out, "\"type\":\"integer\"");
		put_bounds(out, f, "minimum", "maximum");
		break;
	case HTTP_STRINGS:
		strbuf_printf(out, "\"type\":\"array\",\"items\":%s", text);
		put_bounds(out, f, "minItems", "maxItems");
		break;
	case HTTP_ENV:
		strbuf_printf(out,
			"\"oneOf\":[{\"type\":\"object\",\"additionalProperties\":%s},{\"type\":\"array\",\"items\":%s}]", text,
			text);
		break;
	case HTTP_TEXTS:
		strbuf_printf(out, "\"type\":\"object\",\"additionalProperties\":%s", text);
		put_bounds(out, f, "minProperties", "maxProperties");
		break;
	case HTTP_RUNS:
		strbuf_puts(out, "\"type\":\"array\",\"items\":");
		put_fields(out, http_run_fields);
		put_bounds(out, f, "minItems", "maxItems");
		break;
	case HTTP_TYPE_NUM:
		break;
	}
}

static void put_field(struct strbuf *out, const struct http_field *f)
{
	strbuf_putc(out, '{');
	put_type(out, f);
	strbuf_puts(out, ",\"description\":");
	strbuf_json_utf8(out, f->help, strlen(f->help));
	strbuf_putc(out, '}');
}

static void put_fields(struct strbuf *out, const struct http_field *fields)
{
	const char *sep = "";

	strbuf_puts(out, "{\"type\":\"object\",\"additionalProperties\":false,\"required\":[");
	for (const struct http_field *f = fields; f->name; f++) {
		if (!f->required)
			continue;
		strbuf_printf(out, "%s\"%s\"", sep, f->name);
		sep = ",";
	}
	strbuf_puts(out, "],\"properties\":{");
	for (const struct http_field *f = fields; f->name; f++) {
		strbuf_printf(out, "%s\"%s\":", f == fields ? "" : ",", f->name);
		put_field(out, f);
	}
	strbuf_puts(out, "}}");
}

static void put_parameters(struct strbuf *out, const struct http_route *r)
{
	const char *sep = "";

	strbuf_puts(out, ",\"parameters\":[");
	for (const char *p = strchr(r->path, '{'); p; p = strchr(p + 1, '{')) {
		strbuf_printf(out, "%s{\"name\":\"%.*s\",\"in\":\"path\",\"required\":true,\"schema\":{\"type\":\"string\"}}",
			sep, (int)strcspn(p + 1, "}"), p + 1);
		sep = ",";
	}
	for (const struct http_field *f = r->query; f && f->name; f++) {
		strbuf_printf(out, "%s{\"name\":\"%s\",\"in\":\"query\",\"required\":false,\"schema\":", sep, f->name);
		put_field(out, f);
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
	strbuf_puts(out,
		"}},\"default\":{\"description\":\"400 bad input, 401 no key or another user, 404 not there, 409 wrong state, 413 too large, 429 too busy, "
		"500 failed\",\"content\":{\"application/json\":{\"schema\":{\"$ref\":\"#/components/schemas/Error\"}}}}}");
}

static void put_operation(struct strbuf *out, const struct http_route *r)
{
	static const char *const verbs[] = { "get", "head", "post", "put", "patch", "delete", "other" };

	strbuf_printf(out, "\"%s\":{\"operationId\":\"%s\",\"summary\":", verbs[r->method], r->id);
	strbuf_json_utf8(out, r->summary, strlen(r->summary));
	if (r->open)
		strbuf_puts(out, ",\"security\":[]");
	put_parameters(out, r);
	if (r->body) {
		strbuf_puts(out, ",\"requestBody\":{\"required\":true,\"content\":{\"application/json\":{\"schema\":");
		put_fields(out, r->body);
		strbuf_puts(out, "}}}");
	}
	put_answer(out, r);
	strbuf_putc(out, '}');
}

/* The first row of a path puts them all. */
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
		strbuf_printf(out, "%s\"%s\":{", sep, http_routes[i].path);
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

void http_openapi(struct strbuf *out)
{
	strbuf_puts(out,
		"{\"openapi\":\"3.1.0\",\"info\":{\"title\":\"agentkernel\",\"version\":\"" AK_VERSION
		"\",\"license\":{\"name\":\"Apache-2.0\",\"identifier\":\"Apache-2.0\"},"
		"\"description\":\"Commands in sandboxes whose whole network passes through a policy gateway.\"},"
		"\"security\":[{},{\"key\":[]}],\"paths\":{");
	put_paths(out);
	strbuf_puts(
		out, "},\"components\":{\"securitySchemes\":{\"key\":{\"type\":\"http\",\"scheme\":\"bearer\"}},\"schemas\":{");
	for (size_t i = 0; i < ARRAY_SIZE(schemas); i++)
		strbuf_printf(out, "%s\"%s\":%s", i ? "," : "", schemas[i].name, schemas[i].schema);
	strbuf_puts(out, "}}}");
}
