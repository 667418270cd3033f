/* JSON Schemas of fields, for the OpenAPI description and for MCP. See field/field.h. */
#include "gateway/field/field.h"

#include <string.h>

#define TEXT "{\"type\":\"string\"}"
#define PLACE "{\"type\":\"string\",\"pattern\":\"^/\"}"
#define MOUNT                                                                                                                    \
	"{\"type\":\"object\",\"additionalProperties\":false,\"required\":[\"source\"],\"properties\":{\"source\":" PLACE        \
	",\"target\":" PLACE ",\"mode\":{\"type\":\"string\",\"enum\":[\"ro\",\"rw\"]}}}"

static void put_bounds(struct strbuf *out, const struct field *f, const char *low, const char *high)
{
	uint64_t unit = f->kind == KIND_SIZE ? 1u << 20 : 1;

	if (f->min)
		strbuf_printf(out, ",\"%s\":%llu", low, (unsigned long long)(f->min / unit));
	if (f->max)
		strbuf_printf(out, ",\"%s\":%llu", high, (unsigned long long)(f->max / unit));
}

static void put_choice(void *ctx, const char *word, size_t len)
{
	struct strbuf *out = ctx;

	strbuf_printf(out, "%s\"%.*s\"", out->len && out->data[out->len - 1] == '[' ? "" : ",", (int)len, word);
}

static void put_string(struct strbuf *out, const struct field *f)
{
	strbuf_puts(out, "\"type\":\"string\"");
	if (f->kind == KIND_CHOICE) {
		strbuf_puts(out, ",\"enum\":[");
		field_choices(f, put_choice, out);
		strbuf_putc(out, ']');
	} else if (f->kind == KIND_NAME || f->kind == KIND_MODE) {
		strbuf_puts(out, ",\"pattern\":\"^[A-Za-z0-9]([A-Za-z0-9_-]{0,61}[A-Za-z0-9])?$\"");
	} else {
		put_bounds(out, f, "minLength", "maxLength");
	}
	if (f->kind == KIND_PATH || f->kind == KIND_DIR)
		strbuf_puts(out, ",\"pattern\":\"^/\"");
}

static void put_map(struct strbuf *out, const struct field *f)
{
	strbuf_puts(out, "\"type\":\"object\",\"additionalProperties\":" TEXT);
	put_bounds(out, f, "minProperties", "maxProperties");
}

static void put_array(struct strbuf *out, const struct field *f, enum field_front front)
{
	strbuf_puts(out, "\"type\":\"array\",\"items\":");
	if (f->kind == KIND_RUNS)
		fields_schema(out, VERB_RUN, front);
	else if (f->kind == KIND_MOUNTS)
		strbuf_puts(out, MOUNT);
	else
		strbuf_puts(out, TEXT);
	put_bounds(out, f, "minItems", "maxItems");
}

static void put_type(struct strbuf *out, const struct field *f, enum field_front front)
{
	switch (f->kind) {
	case KIND_BOOL:
		strbuf_puts(out, f->never ? "\"type\":\"boolean\",\"enum\":[false]" : "\"type\":\"boolean\"");
		break;
	case KIND_COUNT:
	case KIND_SIZE:
	case KIND_DURATION:
		strbuf_puts(out, f->min ? "\"type\":\"integer\"" : "\"type\":\"integer\",\"minimum\":0");
		put_bounds(out, f, "minimum", "maximum");
		break;
	case KIND_STRINGS:
	case KIND_RULES:
	case KIND_MOUNTS:
	case KIND_POLICIES:
	case KIND_RUNS:
		put_array(out, f, front);
		break;
	case KIND_VARIABLES:
		strbuf_puts(out, front == FIELD_HTTP ? "\"oneOf\":[{" : "");
		put_map(out, f);
		strbuf_puts(out, front == FIELD_HTTP ? "},{" : "");
		if (front == FIELD_HTTP)
			put_array(out, f, front);
		strbuf_puts(out, front == FIELD_HTTP ? "}]" : "");
		break;
	case KIND_TEXTS:
		put_map(out, f);
		break;
	case KIND_TEXT:
	case KIND_CHOICE:
	case KIND_MODE:
	case KIND_NAME:
	case KIND_PATH:
	case KIND_DIR:
	case KIND_TIME:
	case KIND_NUM:
		put_string(out, f);
		break;
	}
}

void field_schema(struct strbuf *out, const struct field *f, enum field_front front)
{
	_cleanup_strbuf_ struct strbuf words = { 0 };

	field_words(&words, f, front);
	strbuf_putc(out, '{');
	put_type(out, f, front);
	strbuf_puts(out, ",\"description\":");
	strbuf_json_utf8(out, words.data ? words.data : "", words.len);
	strbuf_putc(out, '}');
}

void fields_schema(struct strbuf *out, enum field_verb verb, enum field_front front)
{
	const char *gap = "";

	strbuf_puts(out, "{\"type\":\"object\",\"additionalProperties\":false,\"required\":[");
	field_each(u, verb, front) {
		if (!(u->fronts & FIELD_REQUIRED))
			continue;
		strbuf_printf(out, "%s\"%s\"", gap, field_table[u->id].name);
		gap = ",";
	}
	gap = "";
	strbuf_puts(out, "],\"properties\":{");
	field_each(u, verb, front) {
		strbuf_printf(out, "%s\"%s\":", gap, field_table[u->id].name);
		field_schema(out, &field_table[u->id], front);
		gap = ",";
	}
	strbuf_puts(out, "}}");
}
