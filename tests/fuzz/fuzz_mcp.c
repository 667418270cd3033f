/*
 * Lines from anywhere: whatever a client sends, each answer is one line of JSON, no call is lost, and cancelling finds only what runs. A first byte
 * below a blank picks the revision and what becomes of calls: answered at once, refused, or left until they are cancelled; any other input
 * greets the server itself.
 */
#include "gateway/base/cleanup.h"
#include "gateway/base/jsonscan.h"
#include "gateway/mcp/session.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool ok)
{
	if (!ok)
		abort();
}

static void on_send(void *ctx, const char *line, size_t len)
{
	const struct json_bounds bounds = { .depth = 256, .members = 1 << 20, .values = 1 << 20 };
	struct ak_err err;
	bool nul;

	(void)ctx;
	must(len > 1 && line[len - 1] == '\n' && !memchr(line, '\n', len - 1));
	must(json_scan(line, len - 1, &bounds, &nul, &err) == 0);
}

static int on_start(void *ctx, struct mcp_call *call, struct ak_err *err)
{
	uint8_t how = *(uint8_t *)ctx >> 2 & 3;
	struct ak_err ignored;

	must(fields_check(call->tool->verb, FIELD_MCP, call->args, &ignored) == 0);
	must(mcp_tool_limit_ms(call->tool, call->args) < 2 * field_table[FIELD_TIMEOUT].max);
	if (how == 0)
		return ak_fail(err, EAGAIN, "busy");
	mcp_call_progress(call, 0, "started");
	return 0;
}

static void on_cancel(void *ctx, struct mcp_call *call)
{
	(void)ctx;
	must(call->cancelled);
	mcp_call_drop(call);
}

static void answer_all(struct mcp_session *s)
{
	while (s->calls)
		mcp_call_done(s->calls, "{}");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const revisions[] = { "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25" };
	static const struct mcp_session_ops ops = { on_send, on_start, on_cancel };
	bool picks = size && data[0] < ' ';
	uint8_t first = picks ? data[0] : 1 << 2;
	struct mcp_session s = { .ops = &ops, .ctx = &first, .instructions = "x" };
	char greeting[160];

	if (size == 0)
		return 0;
	if (first & 16) {
		snprintf(greeting, sizeof(greeting),
			"{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"initialize\",\"params\":{\"protocolVersion\":\"%s\"}}",
			revisions[first & 3]);
		mcp_session_line(&s, greeting, strlen(greeting));
	}
	for (size_t at = picks; at < size;) {
		const uint8_t *end = memchr(data + at, '\n', size - at);
		size_t n = end ? (size_t)(end - data) - at : size - at;

		mcp_session_line(&s, (const char *)data + at, n);
		if ((first >> 2 & 3) == 1)
			answer_all(&s);
		at += n + 1;
	}
	answer_all(&s);
	return 0;
}
