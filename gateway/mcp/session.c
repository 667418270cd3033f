/*
 * The protocol of one client. See mcp/session.h.
 *
 * Differences between the revisions that matter here: only 2025-03-26 has batches, and it added annotations; 2025-06-18 added titles, output
 * schemas and structured results; since 2025-11-25, wrong tool arguments are a result that the model reads, not a protocol error.
 */
#include "gateway/mcp/session.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/jsonscan.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define ID_MAX 1024
#define BATCH_MAX 64
#define SAFE_INTEGER 9007199254740991.0 /* larger ids lose precision in clients that use doubles */

/* JSON-RPC 2.0, section 5.1; -32000 is in the range reserved for servers. */
enum {
	RPC_PARSE = -32700,
	RPC_REQUEST = -32600,
	RPC_METHOD = -32601,
	RPC_PARAMS = -32602,
	RPC_INTERNAL = -32603,
	RPC_BUSY = -32000
};

static const char *const revisions[] = {
	[MCP_REV_2024_11_05] = "2024-11-05",
	[MCP_REV_2025_03_26] = "2025-03-26",
	[MCP_REV_2025_06_18] = "2025-06-18",
	[MCP_REV_2025_11_25] = "2025-11-25",
};
static_assert(ARRAY_SIZE(revisions) == MCP_REV_NUM, "a name for each revision");

static const struct json_bounds bounds = { .depth = 64, .members = 1024, .values = 1u << 17 };

struct mcp_batch {
	struct strbuf out;
	unsigned pending; /* outstanding answers, plus one while the batch is being read */
};

/* A message that expects an answer. */
struct request {
	struct mcp_session *s; /* all members are borrowed */
	struct mcp_batch *batch;
	const char *id; /* JSON text */
	cJSON *params; /* an object, or NULL */
	size_t size;
};

/* ---- answers ---- */

static void batch_put(struct mcp_session *s, struct mcp_batch *b, const struct strbuf *answer)
{
	if (answer) {
		strbuf_putc(&b->out, b->out.len ? ',' : '[');
		strbuf_add(&b->out, answer->data, answer->len);
	}
	if (--b->pending > 0)
		return;
	if (b->out.len) {
		strbuf_puts(&b->out, "]\n");
		if (!b->out.failed)
			s->ops->send(s->ctx, b->out.data, b->out.len);
	}
	strbuf_done(&b->out);
	free(b);
}

static void answer(struct mcp_session *s, struct mcp_batch *batch, struct strbuf *text)
{
	if (batch) {
		batch_put(s, batch, text->failed ? NULL : text);
		return;
	}
	strbuf_putc(text, '\n');
	if (!text->failed)
		s->ops->send(s->ctx, text->data, text->len);
}

static void answer_result(struct mcp_session *s, struct mcp_batch *batch, const char *id, const char *result)
{
	_cleanup_strbuf_ struct strbuf out = { 0 };

	strbuf_printf(&out, "{\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":", id);
	strbuf_puts(&out, result);
	strbuf_putc(&out, '}');
	answer(s, batch, &out);
}

static void answer_error(struct mcp_session *s, struct mcp_batch *batch, const char *id, int code, const char *text)
{
	_cleanup_strbuf_ struct strbuf out = { 0 };

	strbuf_printf(&out, "{\"jsonrpc\":\"2.0\",\"id\":%s,\"error\":{\"code\":%d,\"message\":", id ? id : "null", code);
	strbuf_json_utf8(&out, text, strlen(text));
	strbuf_puts(&out, "}}");
	answer(s, batch, &out);
}

static void refuse(const struct request *r, int code, const char *text)
{
	answer_error(r->s, r->batch, r->id, code, text);
}

static void refuse_params(const struct request *r, const struct ak_err *why)
{
	char text[AK_ERR_MAX + 16];

	snprintf(text, sizeof(text), "params.%s", why->text);
	refuse(r, RPC_PARAMS, text);
}

/* ---- ids ---- */

/* Format an id or progress token as JSON text; NULL when it is neither a string nor a whole number. */
static char *scalar_text(const cJSON *item)
{
	_cleanup_strbuf_ struct strbuf out = { 0 };

	if (cJSON_IsString(item) && strlen(item->valuestring) <= ID_MAX)
		strbuf_json_utf8(&out, item->valuestring, strlen(item->valuestring));
	else if (cJSON_IsNumber(item) && item->valuedouble >= -SAFE_INTEGER && item->valuedouble <= SAFE_INTEGER &&
		item->valuedouble == (double)(long long)item->valuedouble)
		strbuf_printf(&out, "%lld", (long long)item->valuedouble);
	else
		return NULL;
	return strbuf_take(&out);
}

static struct mcp_call *find_call(struct mcp_session *s, const char *id)
{
	for (struct mcp_call *c = s->calls; c; c = c->next) {
		if (!c->cancelled && !strcmp(c->id, id))
			return c;
	}
	return NULL;
}

/* ---- calls ---- */

static void call_free(struct mcp_call *call)
{
	struct mcp_call **at = &call->session->calls;

	while (*at && *at != call)
		at = &(*at)->next;
	if (*at)
		*at = call->next;
	free(call->id);
	free(call->progress_token);
	cJSON_Delete(call->args);
	free(call);
}

void mcp_call_done(struct mcp_call *call, const char *result)
{
	if (call->cancelled) {
		mcp_call_drop(call);
		return;
	}
	if (result)
		answer_result(call->session, call->batch, call->id, result);
	else
		answer_error(call->session, call->batch, call->id, RPC_INTERNAL, "out of memory");
	call_free(call);
}

void mcp_call_drop(struct mcp_call *call)
{
	if (call->batch)
		batch_put(call->session, call->batch, NULL);
	call_free(call);
}

void mcp_call_progress(struct mcp_call *call, double progress, const char *message)
{
	_cleanup_strbuf_ struct strbuf out = { 0 };

	if (!call->progress_token || call->cancelled || progress <= call->progress)
		return;
	call->progress = progress;
	strbuf_printf(&out,
		"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":%s,\"progress\":%.3f",
		call->progress_token, progress);
	if (call->session->rev >= MCP_REV_2025_03_26) {
		strbuf_puts(&out, ",\"message\":");
		strbuf_json_utf8(&out, message, strlen(message));
	}
	strbuf_puts(&out, "}}\n");
	if (!out.failed)
		call->session->ops->send(call->session->ctx, out.data, out.len);
}

/* ---- methods ---- */

static void on_ping(const struct request *r)
{
	answer_result(r->s, r->batch, r->id, "{}");
}

static void put_welcome(const struct mcp_session *s, struct strbuf *out)
{
	strbuf_printf(out,
		"{\"protocolVersion\":\"%s\",\"capabilities\":{\"tools\":{\"listChanged\":false}},\"serverInfo\":{\"name\":\"agentkernel\",",
		revisions[s->rev]);
	if (s->rev >= MCP_REV_2025_06_18)
		strbuf_puts(out, "\"title\":\"agentkernel sandboxes\",");
	strbuf_puts(out, "\"version\":\"" AK_VERSION "\"},\"instructions\":");
	strbuf_json_utf8(out, s->instructions, strlen(s->instructions));
	strbuf_putc(out, '}');
}

/* Use the client's revision if we know it, else our newest; the client then decides whether to continue. */
static enum mcp_rev choose_revision(const char *wanted)
{
	for (int i = 0; i < MCP_REV_NUM; i++) {
		if (!strcmp(revisions[i], wanted))
			return (enum mcp_rev)i;
	}
	return MCP_REV_NUM - 1;
}

static void on_initialize(const struct request *r)
{
	_cleanup_strbuf_ struct strbuf out = { 0 };
	const char *version = NULL;
	const cJSON *ignored;
	struct ak_err err;
	int rc = json_get_string(r->params, "protocolVersion", &version, &err);

	if (r->batch) {
		refuse(r, RPC_REQUEST, "initialize must not be part of a batch");
		return;
	}
	if (r->s->initialized) {
		refuse(r, RPC_REQUEST, "already initialized");
		return;
	}
	if (rc == 0)
		rc = ak_fail(&err, EINVAL, "protocolVersion: missing");
	if (rc > 0)
		rc = json_get_object(r->params, "capabilities", &ignored, &err);
	if (rc >= 0)
		rc = json_get_object(r->params, "clientInfo", &ignored, &err);
	if (rc < 0) {
		refuse_params(r, &err);
		return;
	}
	r->s->rev = choose_revision(version);
	r->s->initialized = true;
	put_welcome(r->s, &out);
	answer_result(r->s, NULL, r->id, out.failed ? "{}" : out.data);
}

static void on_tools_list(const struct request *r)
{
	const cJSON *cursor = cJSON_GetObjectItemCaseSensitive(r->params, "cursor");
	_cleanup_strbuf_ struct strbuf out = { 0 };

	/* All tools fit on one page, so we never send a cursor. */
	if (cursor && !cJSON_IsNull(cursor)) {
		refuse(r, RPC_PARAMS, "params.cursor: unknown cursor");
		return;
	}
	strbuf_puts(&out, "{\"tools\":");
	mcp_tools_print(r->s->rev, &out);
	strbuf_putc(&out, '}');
	if (out.failed)
		refuse(r, RPC_INTERNAL, "out of memory");
	else
		answer_result(r->s, r->batch, r->id, out.data);
}

/* Report wrong arguments to the model, as a result, if the revision allows it; else to the client, as an error. */
static void refuse_arguments(const struct request *r, const struct mcp_tool *tool, const struct ak_err *why)
{
	_cleanup_strbuf_ struct strbuf out = { 0 };
	struct mcp_result result = { 0 };

	if (r->s->rev < MCP_REV_2025_11_25) {
		char text[AK_ERR_MAX + 32];

		snprintf(text, sizeof(text), "params.arguments.%s", why->text);
		refuse(r, RPC_PARAMS, text);
		return;
	}
	mcp_fail(&result, "%s: wrong arguments: %s", tool->name, why->text);
	mcp_result_print(&result, false, &out);
	if (out.failed)
		refuse(r, RPC_INTERNAL, "out of memory");
	else
		answer_result(r->s, r->batch, r->id, out.data);
	mcp_result_done(&result);
}

static int take_progress_token(const struct request *r, char **ret, struct ak_err *err)
{
	const cJSON *meta = NULL, *token;
	int rc = json_get_object(r->params, "_meta", &meta, err);

	if (rc <= 0)
		return rc;
	token = cJSON_GetObjectItemCaseSensitive(meta, "progressToken");
	if (!token)
		return 0;
	*ret = scalar_text(token);
	return *ret ? 0 : ak_fail(err, EINVAL, "_meta.progressToken: must be a string or a whole number");
}

/* Create a call. Returns NULL after sending an error. */
static struct mcp_call *make_call(const struct request *r, const struct mcp_tool *tool, cJSON *args, char *token)
{
	struct mcp_call *call = calloc(1, sizeof(*call));

	if (call)
		*call = (struct mcp_call){ .session = r->s,
			.batch = r->batch,
			.id = strdup(r->id),
			.progress_token = token,
			.progress = -1,
			.tool = tool,
			.args = args,
			.size = r->size,
			.structured = r->s->rev >= MCP_REV_2025_06_18 };
	if (call && call->id)
		return call;
	free(call);
	free(token);
	cJSON_Delete(args);
	refuse(r, RPC_INTERNAL, "out of memory");
	return NULL;
}

static void start_call(const struct request *r, const struct mcp_tool *tool, cJSON *args, char *token)
{
	struct mcp_call *call = make_call(r, tool, args, token);
	struct ak_err err;

	if (!call)
		return;
	call->next = r->s->calls;
	r->s->calls = call;
	if (r->s->ops->start(r->s->ctx, call, &err) < 0) {
		refuse(r, RPC_BUSY, err.text);
		call_free(call);
	}
}

static void on_tools_call(const struct request *r)
{
	const struct mcp_tool *tool;
	const cJSON *given = NULL;
	const char *name = NULL;
	char *token = NULL;
	struct ak_err err;
	cJSON *args;
	int rc = json_get_string(r->params, "name", &name, &err);

	if (rc == 0)
		rc = ak_fail(&err, EINVAL, "name: missing");
	if (rc > 0)
		rc = json_get_object(r->params, "arguments", &given, &err);
	if (rc >= 0 && !(tool = mcp_tool_find(name)))
		rc = ak_fail(&err, EINVAL, "name: unknown tool '%.64s'", name);
	if (rc >= 0)
		rc = take_progress_token(r, &token, &err);
	if (rc < 0) {
		refuse_params(r, &err);
		return;
	}
	args = given ? cJSON_DetachItemFromObjectCaseSensitive(r->params, "arguments") : cJSON_CreateObject();
	if (!args || fields_check(tool->verb, FIELD_MCP, args, &err) < 0) {
		if (args)
			refuse_arguments(r, tool, &err);
		else
			refuse(r, RPC_INTERNAL, "out of memory");
		cJSON_Delete(args);
		free(token);
		return;
	}
	start_call(r, tool, args, token);
}

static const struct {
	const char *method;
	bool before; /* allowed before initialize */
	void (*run)(const struct request *r);
} methods[] = {
	{ "initialize", true, on_initialize },
	{ "ping", true, on_ping },
	{ "tools/list", false, on_tools_list },
	{ "tools/call", false, on_tools_call },
};

/* ---- messages ---- */

static void on_cancelled(struct mcp_session *s, const cJSON *params)
{
	_cleanup_free_ char *id = scalar_text(cJSON_GetObjectItemCaseSensitive(params, "requestId"));
	struct mcp_call *call = id ? find_call(s, id) : NULL;

	/* Ignore unknown and finished calls: the cancellation may cross the answer. */
	if (!call)
		return;
	call->cancelled = true;
	s->ops->cancel(s->ctx, call);
}

static void on_request(struct request *r, const char *method, const cJSON *params)
{
	if (!strncmp(method, "notifications/", 14)) {
		refuse(r, RPC_REQUEST, "a notification has no id");
		return;
	}
	if (find_call(r->s, r->id)) {
		refuse(r, RPC_REQUEST, "a request with this id is still running");
		return;
	}
	for (size_t i = 0; i < ARRAY_SIZE(methods); i++) {
		if (strcmp(methods[i].method, method) != 0)
			continue;
		if (!methods[i].before && !r->s->initialized)
			refuse(r, RPC_REQUEST, "not initialized: send initialize first");
		else if (params && !cJSON_IsObject(params))
			refuse(r, RPC_PARAMS, "params: must be an object");
		else
			methods[i].run(r);
		return;
	}
	refuse(r, RPC_METHOD, "unknown method");
}

/* Check the JSON-RPC members of a message. Returns NULL, or an error text. */
static const char *frame_error(const cJSON *obj, const cJSON *id, const char *id_text)
{
	const cJSON *version = cJSON_GetObjectItemCaseSensitive(obj, "jsonrpc");

	if (!cJSON_IsObject(obj))
		return "a message must be an object";
	if (!cJSON_IsString(version) || strcmp(version->valuestring, "2.0") != 0)
		return "jsonrpc: must be \"2.0\"";
	if (id && !id_text)
		return "id: must be a string (of at most 1024 bytes) or a whole number";
	return NULL;
}

static bool is_answer(const cJSON *obj)
{
	return !cJSON_GetObjectItemCaseSensitive(obj, "method") &&
		(cJSON_GetObjectItemCaseSensitive(obj, "result") || cJSON_GetObjectItemCaseSensitive(obj, "error"));
}

/* The caller keeps OBJ, except the arguments of a call, which are moved out of it. */
static void on_message(struct mcp_session *s, struct mcp_batch *batch, cJSON *obj, size_t size, bool has_nul)
{
	const cJSON *id = cJSON_GetObjectItemCaseSensitive(obj, "id"), *method = cJSON_GetObjectItemCaseSensitive(obj, "method");
	_cleanup_free_ char *id_text = id ? scalar_text(id) : NULL;
	const char *wrong = frame_error(obj, id, id_text);
	struct request r = {
		.s = s, .batch = batch, .id = id_text, .params = cJSON_GetObjectItemCaseSensitive(obj, "params"), .size = size
	};

	if (batch && (wrong || id || (!cJSON_IsString(method) && !is_answer(obj))))
		batch->pending++; /* this message gets an answer */
	if (!wrong && is_answer(obj)) {
		if (batch && id)
			batch->pending--; /* no answer: the message is itself a response, and we sent no request */
		return;
	}
	if (!wrong && !cJSON_IsString(method))
		wrong = "method: must be a string";
	if (wrong)
		refuse(&r, RPC_REQUEST, wrong);
	else if (id && has_nul)
		refuse(&r, RPC_PARAMS,
			"params: a string contains \\u0000, which commands, paths and names cannot; send binary content as base64");
	else if (id)
		on_request(&r, method->valuestring, r.params);
	else if (!has_nul && !strcmp(method->valuestring, "notifications/cancelled"))
		on_cancelled(s, r.params);
}

static void on_batch(struct mcp_session *s, cJSON *list, size_t size, bool has_nul)
{
	struct mcp_batch *batch;
	int n = cJSON_GetArraySize(list);

	if (!s->initialized || s->rev != MCP_REV_2025_03_26) {
		answer_error(s, NULL, NULL, RPC_REQUEST, "batches are not part of this protocol revision");
		return;
	}
	if (n == 0 || n > BATCH_MAX) {
		answer_error(s, NULL, NULL, RPC_REQUEST, n ? "the batch has more than 64 messages" : "the batch is empty");
		return;
	}
	batch = calloc(1, sizeof(*batch));
	if (!batch) {
		answer_error(s, NULL, NULL, RPC_INTERNAL, "out of memory");
		return;
	}
	batch->pending = 1;
	for (cJSON *item = list->child; item; item = item->next)
		on_message(s, batch, item, size / (size_t)n, has_nul);
	batch_put(s, batch, NULL);
}

void mcp_session_line(struct mcp_session *s, const char *line, size_t len)
{
	_cleanup_json_ cJSON *root = NULL;
	bool has_nul = false;
	struct ak_err err;
	int rc;

	while (len > 0 && strchr(" \t\r", line[len - 1]) && line[len - 1])
		len--;
	if (len == 0)
		return;
	rc = json_scan(line, len, &bounds, &has_nul, &err);
	if (rc < 0) {
		answer_error(s, NULL, NULL, rc == -E2BIG ? RPC_REQUEST : RPC_PARSE, err.text);
		return;
	}
	/* The syntax is valid by now; the only remaining error is a duplicate key. */
	if (json_parse(line, len, &root, &err) < 0) {
		answer_error(s, NULL, NULL, RPC_REQUEST, err.text);
		return;
	}
	if (cJSON_IsArray(root))
		on_batch(s, root, len, has_nul);
	else
		on_message(s, NULL, root, len, has_nul);
}

void mcp_session_too_long(struct mcp_session *s)
{
	answer_error(s, NULL, NULL, RPC_REQUEST, "the message is longer than 16 MiB");
}
