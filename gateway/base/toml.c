/*
 * TOML documents: see base/toml.h. This file holds the document and its tables: headers, keys, and the rules about who may define or extend a table
 * (TOML 1.0.0, "Table", "Array of Tables" and the part about dotted keys in "Keys").
 */
#include "gateway/base/toml_internal.h"

#include "gateway/base/cleanup.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK_BYTES 8192

const char *toml_kind_name(enum toml_kind kind)
{
	static const char *const names[] = {
		[TOML_STRING] = "a string",
		[TOML_INTEGER] = "a whole number",
		[TOML_FLOAT] = "a decimal number",
		[TOML_BOOL] = "true or false",
		[TOML_DATE] = "a date or time",
		[TOML_ARRAY] = "an array",
		[TOML_TABLE] = "a table",
	};

	_Static_assert(ARRAY_SIZE(names) == TOML_KIND_NUM, "a name for each kind");
	return names[kind];
}

/* ---- memory and errors ---- */

static void *take_memory(struct toml *doc, size_t size)
{
	struct toml_block *b = doc->blocks;
	void *at;

	size = (size + _Alignof(max_align_t) - 1) / _Alignof(max_align_t) * _Alignof(max_align_t);
	if (!b || b->size - b->used < size) {
		size_t room = size > BLOCK_BYTES ? size : BLOCK_BYTES;

		b = malloc(sizeof(*b) + room);
		if (!b)
			return NULL;
		*b = (struct toml_block){ .next = doc->blocks, .size = room };
		doc->blocks = b;
	}
	at = b->data + b->used;
	b->used += size;
	return at;
}

const char *toml_keep(struct toml *doc, const char *bytes, size_t len)
{
	char *copy = take_memory(doc, len + 1);

	if (copy) {
		memcpy(copy, bytes, len);
		copy[len] = '\0';
	}
	return copy;
}

void toml_free(struct toml *doc)
{
	if (!doc)
		return;
	for (struct toml_block *b = doc->blocks, *next; b; b = next) {
		next = b->next;
		free(b);
	}
	free(doc->text);
	free(doc);
}

void toml_freep(struct toml **doc)
{
	toml_free(*doc);
}

void toml_place(const struct toml *doc, size_t at, unsigned *ret_line, unsigned *ret_column)
{
	unsigned line = 1, column = 1;

	for (size_t i = 0; i < at && i < doc->len; i++) {
		if (doc->text[i] == '\n') {
			line++;
			column = 1;
		} else if (((unsigned char)doc->text[i] & 0xc0) != 0x80) {
			column++;
		}
	}
	*ret_line = line;
	*ret_column = column;
}

int toml_fail(struct toml_parser *p, size_t at, const char *fmt, ...)
{
	unsigned line, column;
	char what[AK_ERR_MAX];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(what, sizeof(what), fmt, ap);
	va_end(ap);
	toml_place(p->doc, at, &line, &column);
	return ak_fail(p->err, EINVAL, "line %u, column %u: %s", line, column, what);
}

int toml_no_memory(struct toml_parser *p)
{
	return ak_fail(p->err, ENOMEM, "out of memory");
}

/* ---- values ---- */

const struct toml_value *toml_root(const struct toml *doc)
{
	return doc->root;
}

static struct toml_value *find(const struct toml_value *table, const char *key, size_t len)
{
	for (struct toml_value *v = table->list.first; v; v = v->next) {
		if (v->key_len == len && !memcmp(v->key, key, len))
			return v;
	}
	return NULL;
}

const struct toml_value *toml_get(const struct toml_value *table, const char *key)
{
	return find(table, key, strlen(key));
}

int toml_add(struct toml_parser *p, struct toml_value *parent, const struct toml_part *part, enum toml_kind kind, size_t at,
	struct toml_value **ret)
{
	struct toml_value *v;

	if (parent->depth == TOML_DEPTH_MAX)
		return toml_fail(p, at, "more than %d levels of tables and arrays", TOML_DEPTH_MAX);
	if (part && parent->list.n == TOML_KEYS_MAX)
		return toml_fail(p, at, "more than %d keys in one table", TOML_KEYS_MAX);
	v = take_memory(p->doc, sizeof(*v));
	if (!v)
		return toml_no_memory(p);
	*v = (struct toml_value){ .kind = kind, .depth = parent->depth + 1, .at = at };
	if (part) {
		v->key = part->text;
		v->key_len = part->len;
		v->key_at = part->at;
	}
	if (parent->list.last)
		parent->list.last->next = v;
	else
		parent->list.first = v;
	parent->list.last = v;
	parent->list.n++;
	*ret = v;
	return 0;
}

static int twice(struct toml_parser *p, const struct toml_part *part, const struct toml_value *first)
{
	unsigned line, column;

	toml_place(p->doc, first->key_at, &line, &column);
	return toml_fail(p, part->at, "'%.64s' is already defined at line %u, column %u", part->text, line, column);
}

/* ---- keys ---- */

static bool is_bare(char c)
{
	return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || toml_is_digit(c) || c == '_' || c == '-';
}

static int read_part(struct toml_parser *p, struct toml_part *ret)
{
	size_t n = 0;

	ret->at = p->at;
	if (toml_peek(p) == '"' || toml_peek(p) == '\'')
		return toml_read_string(p, true, &ret->text, &ret->len);
	while (is_bare(p->doc->text[p->at + n]))
		n++;
	if (!n)
		return toml_fail(p, p->at, "expected a key: letters, digits, '_' and '-', or a quoted string");
	ret->text = toml_keep(p->doc, p->doc->text + p->at, n);
	ret->len = n;
	p->at += n;
	return ret->text ? 0 : toml_no_memory(p);
}

/* Read a dotted key; returns the number of its parts. */
static int read_key(struct toml_parser *p, struct toml_part parts[static TOML_DEPTH_MAX])
{
	int n = 0, rc;

	for (;;) {
		toml_skip_blank(p);
		if (n == TOML_DEPTH_MAX)
			return toml_fail(p, p->at, "more than %d parts in one key", TOML_DEPTH_MAX);
		rc = read_part(p, &parts[n++]);
		if (rc < 0)
			return rc;
		toml_skip_blank(p);
		if (toml_peek(p) != '.')
			return n;
		p->at++;
	}
}

/* One part before the last of "a.b.c = 1": a table of this section, made on first use. */
static int enter_dotted(
	struct toml_parser *p, const struct toml_part *part, const struct toml_value *section, struct toml_value **table)
{
	struct toml_value *v = find(*table, part->text, part->len);
	int rc;

	if (!v) {
		rc = toml_add(p, *table, part, TOML_TABLE, part->at, &v);
		if (rc < 0)
			return rc;
	} else if (v->kind != TOML_TABLE) {
		return twice(p, part, v);
	} else if (v->list.origin == TOML_DOTTED ? v->list.section != section : v->list.origin != TOML_IMPLIED) {
		return toml_fail(
			p, part->at, "the table '%.64s' is already complete; write its keys where it is defined", part->text);
	}
	v->list.origin = TOML_DOTTED;
	v->list.section = section;
	*table = v;
	return 0;
}

int toml_read_pair(struct toml_parser *p, struct toml_value *table)
{
	const struct toml_value *section = table, *first;
	struct toml_part parts[TOML_DEPTH_MAX];
	struct toml_value *v;
	int n = read_key(p, parts), rc = n < 0 ? n : 0;

	for (int i = 0; i < n - 1 && rc == 0; i++)
		rc = enter_dotted(p, &parts[i], section, &table);
	if (rc < 0)
		return rc;
	first = find(table, parts[n - 1].text, parts[n - 1].len);
	if (first)
		return twice(p, &parts[n - 1], first);
	if (toml_peek(p) != '=')
		return toml_fail(p, p->at, "expected '=' after the key '%.64s'", parts[n - 1].text);
	p->at++;
	toml_skip_blank(p);
	rc = toml_add(p, table, &parts[n - 1], TOML_BOOL, p->at, &v);
	return rc < 0 ? rc : toml_read_value(p, v);
}

/* ---- headers ---- */

/* One part before the last of [a.b.c]: a table, or the newest element of an array of tables. */
static int enter_header(struct toml_parser *p, const struct toml_part *part, struct toml_value **table)
{
	struct toml_value *v = find(*table, part->text, part->len);
	int rc = 0;

	if (!v)
		rc = toml_add(p, *table, part, TOML_TABLE, part->at, &v);
	else if ((v->kind != TOML_TABLE && v->kind != TOML_ARRAY) || v->list.origin == TOML_INLINE)
		return twice(p, part, v);
	if (rc == 0)
		*table = v->kind == TOML_ARRAY ? v->list.last : v;
	return rc;
}

static int define_table(struct toml_parser *p, struct toml_value *parent, const struct toml_part *part, size_t at)
{
	struct toml_value *v = find(parent, part->text, part->len);
	int rc;

	if (!v) {
		rc = toml_add(p, parent, part, TOML_TABLE, at, &v);
		if (rc < 0)
			return rc;
	} else if (v->kind != TOML_TABLE || v->list.origin != TOML_IMPLIED) {
		return twice(p, part, v);
	}
	v->at = at;
	v->key_at = part->at;
	v->list.origin = TOML_HEADER;
	p->section = v;
	return 0;
}

static int define_element(struct toml_parser *p, struct toml_value *parent, const struct toml_part *part, size_t at)
{
	struct toml_value *array = find(parent, part->text, part->len);
	int rc = 0;

	if (!array) {
		rc = toml_add(p, parent, part, TOML_ARRAY, at, &array);
		if (rc == 0)
			array->list.origin = TOML_HEADER;
	} else if (array->kind != TOML_ARRAY || array->list.origin != TOML_HEADER) {
		return twice(p, part, array);
	}
	if (rc == 0)
		rc = toml_add(p, array, NULL, TOML_TABLE, at, &p->section);
	if (rc == 0)
		p->section->list.origin = TOML_HEADER;
	return rc;
}

static int read_header(struct toml_parser *p)
{
	struct toml_part parts[TOML_DEPTH_MAX];
	struct toml_value *table = p->doc->root;
	size_t at = p->at, brackets = p->doc->text[at + 1] == '[' ? 2 : 1;
	int n, rc = 0;

	p->at += brackets;
	n = read_key(p, parts);
	if (n < 0)
		return n;
	if (strncmp(p->doc->text + p->at, "]]", brackets) != 0)
		return toml_fail(p, p->at, "expected '%s' after the name of the table", &"]]"[2 - brackets]);
	p->at += brackets;
	for (int i = 0; i < n - 1 && rc == 0; i++)
		rc = enter_header(p, &parts[i], &table);
	if (rc < 0)
		return rc;
	return brackets == 2 ? define_element(p, table, &parts[n - 1], at) : define_table(p, table, &parts[n - 1], at);
}

/* ---- lines ---- */

void toml_skip_blank(struct toml_parser *p)
{
	while (toml_peek(p) == ' ' || toml_peek(p) == '\t')
		p->at++;
}

bool toml_take_newline(struct toml_parser *p)
{
	if (toml_peek(p) == '\r')
		p->at++; /* always followed by a newline, see check_bytes */
	if (toml_peek(p) != '\n')
		return false;
	p->at++;
	return true;
}

/* Skip blanks and a comment, up to the end of the line. */
static void skip_comment(struct toml_parser *p)
{
	toml_skip_blank(p);
	if (toml_peek(p) == '#')
		p->at += strcspn(p->doc->text + p->at, "\r\n");
}

void toml_skip_lines(struct toml_parser *p)
{
	do
		skip_comment(p);
	while (toml_take_newline(p));
}

static int read_line(struct toml_parser *p)
{
	char c = toml_peek(p);
	int rc = c == '[' ? read_header(p) : toml_read_pair(p, p->section);

	if (rc < 0)
		return rc;
	skip_comment(p);
	if (p->at < p->doc->len && !toml_take_newline(p))
		return toml_fail(p, p->at, "expected the end of the line");
	return 0;
}

/* What no part of a document may contain: invalid UTF-8, and control characters other than tab, LF and CR LF. */
static int check_bytes(struct toml_parser *p)
{
	const unsigned char *text = (const unsigned char *)p->doc->text;

	for (size_t i = 0, n; i < p->doc->len; i += n) {
		n = ak_utf8_length(text + i, p->doc->len - i);
		if (!n)
			return toml_fail(p, i, "invalid UTF-8");
		if (text[i] == '\r' && text[i + 1] == '\n')
			continue;
		if ((text[i] < 0x20 && text[i] != '\t' && text[i] != '\n') || text[i] == 0x7f)
			return toml_fail(p, i, "control character 0x%02x is not allowed", text[i]);
	}
	return 0;
}

int toml_parse(const char *text, size_t len, struct toml **ret, struct ak_err *err)
{
	_cleanup_(toml_freep) struct toml *doc = calloc(1, sizeof(*doc));
	struct toml_parser p = { .doc = doc, .err = err };
	int rc;

	if (len > TOML_TEXT_MAX)
		return ak_fail(err, EFBIG, "larger than %u KiB", TOML_TEXT_MAX >> 10);
	if (!doc || !(doc->text = malloc(len + 1)) || !(doc->root = take_memory(doc, sizeof(*doc->root))))
		return toml_no_memory(&p);
	memcpy(doc->text, text, len);
	doc->text[len] = '\0';
	doc->len = len;
	*doc->root = (struct toml_value){ .kind = TOML_TABLE, .list.origin = TOML_HEADER };
	p.section = doc->root;
	rc = check_bytes(&p);
	if (rc == 0 && !strncmp(doc->text, "\xef\xbb\xbf", 3))
		p.at = 3;
	if (rc == 0)
		toml_skip_lines(&p);
	while (rc == 0 && p.at < len) {
		rc = read_line(&p);
		toml_skip_lines(&p);
	}
	if (rc == 0)
		*ret = TAKE(doc);
	return rc;
}
