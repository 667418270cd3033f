/* The JSON Schema of agentkernel.toml for editors, made from the list of keys. See config/config.h. */
#include "gateway/config/config.h"

#include "gateway/base/cleanup.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define PATH_BYTES 128

static void put_choice(void *ctx, const char *word, size_t len)
{
	struct strbuf *out = ctx;

	strbuf_puts(out, out->data[out->len - 1] == '[' ? "" : ", ");
	strbuf_jsonn(out, word, len);
}

/* "enum": […], or nothing. */
static void put_choices(struct strbuf *out, const struct config_key *k)
{
	const struct field own = { .choices = k->choices }, *f = k->field < 0 ? &own : &field_table[k->field];

	if (!f->choices || k->kind != CONFIG_TEXT)
		return;
	strbuf_puts(out, f->kind == KIND_MODE ? ", \"examples\": [" : ", \"enum\": ["); /* any installed policy is a mode */
	field_choices(f, put_choice, out);
	strbuf_putc(out, ']');
}

static void put_range(struct strbuf *out, const struct config_key *k)
{
	const struct field *f = k->field < 0 ? NULL : &field_table[k->field];
	unsigned shift = k->unit && k->unit[0] == 'M' ? 20 : 0;

	strbuf_printf(out, ", \"minimum\": %" PRIu64 ", \"maximum\": %" PRIu64,
		f ? (f->min + (1u << shift) - 1) >> shift : k->min, f ? f->max >> shift : k->max);
}

static void put_key(struct strbuf *out, const struct config_key *k)
{
	strbuf_puts(out, "{ \"description\": ");
	strbuf_json(out, k->help);
	switch (k->kind) {
	case CONFIG_TEXT:
		strbuf_puts(out, ", \"type\": \"string\"");
		put_choices(out, k);
		break;
	case CONFIG_NUMBER:
		strbuf_puts(out, ", \"type\": \"integer\"");
		put_range(out, k);
		break;
	case CONFIG_DURATION:
		strbuf_puts(out, ", \"type\": [\"string\", \"integer\"]");
		break;
	case CONFIG_FLAG:
		strbuf_puts(out, ", \"type\": \"boolean\"");
		break;
	case CONFIG_LIST:
		strbuf_printf(out, ", \"type\": \"array\", \"items\": { \"type\": %s }",
			k->field == FIELD_PUBLISH ? "[\"string\", \"integer\"]" : "\"string\"");
		break;
	case CONFIG_MOUNTS:
		strbuf_puts(out,
			", \"type\": \"array\", \"items\": { \"type\": \"object\", \"additionalProperties\": false, \"required\": [\"source\"], \"properties\": {"
			" \"source\": { \"type\": \"string\" }, \"target\": { \"type\": \"string\" }, \"mode\": { \"enum\": [\"ro\", \"rw\"] } } }");
		break;
	case CONFIG_VARIABLE:
	case CONFIG_KIND_NUM:
		strbuf_puts(out, ", \"type\": [\"string\", \"boolean\"]");
		break;
	}
	strbuf_puts(out, " }");
}

static void indent(struct strbuf *out, int depth)
{
	strbuf_putc(out, '\n');
	for (int i = 0; i < 2 * depth; i++)
		strbuf_putc(out, ' ');
}

/* The next part of K's table below PATH ("agents" for "daemon"); false if K is not below it. */
static bool part_below(const struct config_key *k, const char *path, char ret[static PATH_BYTES])
{
	size_t n = strlen(path);

	if (!k->table[0] || strncmp(k->table, path, n) != 0 || (n && k->table[n] != '.'))
		return false;
	snprintf(ret, PATH_BYTES, "%.*s", (int)strcspn(k->table + n + (n > 0), "."), k->table + n + (n > 0));
	return true;
}

static bool seen_before(const struct config_key *k, const char *path, const char *part)
{
	char other[PATH_BYTES];

	for (const struct config_key *e = config_keys; e < k; e++) {
		if (part_below(e, path, other) && !strcmp(other, part))
			return true;
	}
	return false;
}

static void put_name(struct strbuf *out, const char *name, bool first, int depth)
{
	strbuf_puts(out, first ? "" : ",");
	indent(out, depth);
	strbuf_json(out, name);
	strbuf_puts(out, ": ");
}

/* One table with its keys and the tables in it; as deep as the list of keys. STARRED: names that are free. */
static void put_table(struct strbuf *out, const char *path, bool starred, int depth)
{
	bool any = false;

	for (const struct config_key *k = config_keys; k->table; k++) {
		char part[PATH_BYTES], below[2 * PATH_BYTES];

		if (!strcmp(k->table, path) && !strcmp(k->key, "*") == starred) {
			put_name(out, starred ? "^[A-Za-z_][A-Za-z0-9_]*$" : k->key, !any, depth);
			put_key(out, k);
			any = true;
		} else if (part_below(k, path, part) && !strcmp(part, "*") == starred && !seen_before(k, path, part)) {
			snprintf(below, sizeof(below), "%s%s%s", path, path[0] ? "." : "", part);
			put_name(out, starred ? "^[a-z][A-Za-z0-9_-]*$" : part, !any, depth);
			strbuf_puts(out, "{ \"type\": \"object\", \"additionalProperties\": false, \"properties\": {");
			put_table(out, below, false, depth + 1);
			strbuf_puts(out, "}, \"patternProperties\": {");
			put_table(out, below, true, depth + 1);
			strbuf_puts(out, "} }");
			any = true;
		}
	}
}

void config_schema(struct strbuf *out)
{
	strbuf_puts(out,
		"{\n  \"$schema\": \"https://json-schema.org/draft/2020-12/schema\",\n  \"title\": \"agentkernel.toml\",\n"
		"  \"description\": \"Settings of a project for agentkernel\",\n"
		"  \"type\": \"object\",\n  \"additionalProperties\": false,\n  \"properties\": {");
	put_table(out, "", false, 2);
	strbuf_puts(out, "\n  }\n}\n");
}
