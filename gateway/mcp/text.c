/* Results of tools, and output that is cut when too long. See mcp/mcp.h. */
#include "gateway/mcp/mcp.h"

#include "gateway/base/cleanup.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define KEEP_MAX (16 * MCP_OUTPUT_MAX) /* bytes collected before the middle is dropped */

/* ---- results ---- */

void mcp_fail(struct mcp_result *r, const char *fmt, ...)
{
	char text[2048];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	strbuf_reset(&r->text);
	strbuf_puts(&r->text, text);
	r->failed = true;
}

void mcp_result_print(const struct mcp_result *r, bool structured, struct strbuf *out)
{
	strbuf_puts(out, "{\"content\":[{\"type\":\"text\",\"text\":");
	strbuf_json_utf8(out, r->text.data ? r->text.data : "", r->text.len);
	strbuf_puts(out, "}]");
	if (r->text.failed || r->structured.failed) {
		out->failed = true;
		return;
	}
	/* Clients check structured content against the tool's output schema, which only describes success. */
	if (structured && !r->failed)
		strbuf_printf(out, ",\"structuredContent\":{%s}", r->structured.data ? r->structured.data : "");
	strbuf_puts(out, r->failed ? ",\"isError\":true}" : ",\"isError\":false}");
}

void mcp_result_done(struct mcp_result *r)
{
	strbuf_done(&r->text);
	strbuf_done(&r->structured);
}

/* ---- long output ---- */

static void add_piece(struct mcp_capture *c, const char *data, size_t len)
{
	strbuf_add(&c->kept, data, len);
	c->total += len;
	if (c->kept.failed || c->kept.len <= KEEP_MAX)
		return;
	memmove(c->kept.data + MCP_OUTPUT_MAX, c->kept.data + c->kept.len - MCP_OUTPUT_MAX, MCP_OUTPUT_MAX);
	c->kept.len = 2 * MCP_OUTPUT_MAX;
	c->kept.data[c->kept.len] = '\0';
}

void mcp_capture_add(struct mcp_capture *c, const char *data, size_t len)
{
	while (len > 0) {
		size_t n = len < MCP_OUTPUT_MAX ? len : MCP_OUTPUT_MAX;

		add_piece(c, data, n);
		data += n;
		len -= n;
	}
}

/* The length of a byte in JSON, as strbuf_json_utf8 writes it. An invalid byte becomes three bytes; it counts as one. */
static size_t json_cost(char c)
{
	if (strchr("\"\\\n\r\t", c) && c)
		return 2;
	return (unsigned char)c < 0x20 || c == 0x7f ? 6 : 1;
}

bool mcp_json_grows(const char *data, size_t len, size_t max)
{
	size_t cost = 0;

	for (size_t i = 0; i < len && cost <= max; i++)
		cost += json_cost(data[i]);
	return cost > max;
}

/* How much to show of the beginning, or of the END, of long output: up to half of MAX, and up to MAX as JSON. */
static size_t shown_length(const char *data, size_t len, bool end, size_t max)
{
	size_t n = 0, cost = 0;

	while (n < len && n < max / 2) {
		cost += json_cost(data[end ? len - 1 - n : n]);
		if (cost > max)
			break;
		n++;
	}
	return n;
}

static bool is_continuation(char c)
{
	return ((unsigned char)c & 0xc0) == 0x80;
}

bool mcp_capture_print(const struct mcp_capture *c, struct strbuf *out)
{
	const char *kept = c->kept.data ? c->kept.data : "";
	size_t max = c->max ? c->max : MCP_OUTPUT_MAX;
	bool fits = c->kept.len <= max && !mcp_json_grows(kept, c->kept.len, 2 * max);
	size_t head = shown_length(kept, c->kept.len, false, max),
	       tail = c->kept.len - shown_length(kept, c->kept.len, true, max);

	if (c->kept.failed) {
		out->failed = true;
		return false;
	}
	if (fits && c->total <= max && !c->more) {
		strbuf_add(out, kept, c->kept.len);
		return false;
	}
	if (fits) /* it was cut before, and what is left fits */
		head = tail = c->kept.len;
	/* Do not split a UTF-8 character. It has at most three continuation bytes; a longer sequence is not text. */
	for (int i = 0; i < 3 && head > 0 && head < c->kept.len && is_continuation(kept[head]); i++)
		head--;
	for (int i = 0; i < 3 && tail < c->kept.len && is_continuation(kept[tail]); i++)
		tail++;
	strbuf_add(out, kept, head);
	strbuf_printf(out, "\n[... %s%llu bytes left out in the middle; write long output to a file and read parts of it ...]\n",
		c->more ? "more than " : "", (unsigned long long)(c->total - head - (c->kept.len - tail)));
	strbuf_add(out, kept + tail, c->kept.len - tail);
	return true;
}

void mcp_capture_done(struct mcp_capture *c)
{
	strbuf_done(&c->kept);
}

size_t mcp_utf8_whole(const char *data, size_t len)
{
	size_t at = 0, n;

	while (at < len && (n = ak_utf8_length((const unsigned char *)data + at, len - at)) > 0)
		at += n;
	return at;
}
