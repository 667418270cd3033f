/* TOML values: strings, arrays and inline tables. See base/toml.h. */
#include "gateway/base/toml_internal.h"

#include <string.h>

/* ---- strings ---- */

static void put_utf8(struct strbuf *out, uint32_t c)
{
	if (c < 0x80) {
		strbuf_putc(out, (char)c);
		return;
	}
	if (c < 0x800) {
		strbuf_putc(out, (char)(0xc0 | c >> 6));
	} else {
		if (c < 0x10000) {
			strbuf_putc(out, (char)(0xe0 | c >> 12));
		} else {
			strbuf_putc(out, (char)(0xf0 | c >> 18));
			strbuf_putc(out, (char)(0x80 | (c >> 12 & 0x3f)));
		}
		strbuf_putc(out, (char)(0x80 | (c >> 6 & 0x3f)));
	}
	strbuf_putc(out, (char)(0x80 | (c & 0x3f)));
}

/* \uXXXX or \UXXXXXXXX; P is after the letter. */
static int read_unicode(struct toml_parser *p, int digits, struct strbuf *out)
{
	size_t at = p->at;
	uint32_t c = 0;

	for (int i = 0; i < digits; i++, p->at++) {
		static const char hex[] = "0123456789abcdef";
		char d = toml_peek(p);
		const char *found = d ? strchr(hex, d >= 'A' && d <= 'F' ? d - 'A' + 'a' : d) : NULL;

		if (!found)
			return toml_fail(p, p->at, "expected %d hexadecimal digits", digits);
		c = c << 4 | (uint32_t)(found - hex);
	}
	if (c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff))
		return toml_fail(p, at, "U+%04X is not a Unicode scalar value", c);
	put_utf8(out, c);
	return 0;
}

/* A backslash at the end of a line drops everything up to the next visible character. */
static bool take_line_end(struct toml_parser *p)
{
	size_t start = p->at;

	toml_skip_blank(p);
	if (!toml_take_newline(p)) {
		p->at = start;
		return false;
	}
	do
		toml_skip_blank(p);
	while (toml_take_newline(p));
	return true;
}

static int read_escape(struct toml_parser *p, bool multi, struct strbuf *out)
{
	static const char letters[] = "btnfr\"\\", bytes[] = "\b\t\n\f\r\"\\";
	size_t at = p->at++;
	char c = toml_peek(p);
	const char *found = c ? strchr(letters, c) : NULL;

	if (multi && take_line_end(p))
		return 0;
	if (found) {
		p->at++;
		strbuf_putc(out, bytes[found - letters]);
		return 0;
	}
	if (c != 'u' && c != 'U')
		return toml_fail(p, at, "unknown escape; a backslash itself is written \\\\, or use a '…' string");
	p->at++;
	return read_unicode(p, c == 'u' ? 4 : 8, out);
}

/* A run of quotes in a multi-line string: three end it, and up to two more before them belong to it. Returns true at the end. */
static bool take_quotes(struct toml_parser *p, char quote, struct strbuf *out)
{
	size_t n = 0, own;

	while (n < 5 && p->doc->text[p->at + n] == quote)
		n++;
	own = n < 3 ? n : n - 3;
	p->at += n;
	while (own-- > 0)
		strbuf_putc(out, quote);
	return n >= 3;
}

static int read_text(struct toml_parser *p, char quote, bool multi, struct strbuf *out)
{
	size_t start = p->at - (multi ? 3 : 1);
	int rc;

	if (multi)
		toml_take_newline(p);
	for (;;) {
		char c = toml_peek(p);

		if (p->at == p->doc->len || (!multi && (c == '\n' || c == '\r')))
			return toml_fail(p, start, "the string has no closing %s",
				multi		       ? (quote == '"' ? "\"\"\"" : "'''")
					: quote == '"' ? "\""
						       : "'");
		if (c == quote) {
			if (multi && !take_quotes(p, quote, out))
				continue;
			p->at += !multi;
			return 0;
		}
		if (c == '\\' && quote == '"') {
			rc = read_escape(p, multi, out);
			if (rc < 0)
				return rc;
			continue;
		}
		p->at++;
		if (c != '\r') /* a line ends in one character, whatever the file uses */
			strbuf_putc(out, c);
	}
}

int toml_read_string(struct toml_parser *p, bool one_line, const char **ret, size_t *ret_len)
{
	_cleanup_strbuf_ struct strbuf out = { 0 };
	const char *at = p->doc->text + p->at;
	bool multi = !one_line && at[1] == at[0] && at[2] == at[0];
	int rc;

	p->at += multi ? 3 : 1;
	rc = read_text(p, at[0], multi, &out);
	if (rc < 0)
		return rc;
	*ret = out.failed ? NULL : toml_keep(p->doc, out.len ? out.data : "", out.len);
	*ret_len = out.len;
	return *ret ? 0 : toml_no_memory(p);
}

/* ---- arrays and inline tables; each level is one of the document's depth, which toml_add limits ---- */

static int read_array(struct toml_parser *p, struct toml_value *array)
{
	struct toml_value *item;
	size_t start = p->at++;
	int rc;

	array->kind = TOML_ARRAY;
	array->list.origin = TOML_INLINE;
	for (;;) {
		toml_skip_lines(p);
		if (toml_peek(p) == ']')
			break;
		rc = toml_add(p, array, NULL, TOML_BOOL, p->at, &item);
		if (rc == 0)
			rc = toml_read_value(p, item);
		if (rc < 0)
			return rc;
		toml_skip_lines(p);
		if (toml_peek(p) == ',')
			p->at++;
		else if (p->at == p->doc->len)
			return toml_fail(p, start, "the array has no closing ']'");
		else if (toml_peek(p) != ']')
			return toml_fail(p, p->at, "expected ',' or ']' in the array");
	}
	p->at++;
	return 0;
}

static int read_inline_table(struct toml_parser *p, struct toml_value *table)
{
	int rc;

	p->at++;
	table->kind = TOML_TABLE;
	table->list.origin = TOML_INLINE;
	toml_skip_blank(p);
	if (toml_peek(p) == '}') {
		p->at++;
		return 0;
	}
	for (;;) {
		rc = toml_read_pair(p, table);
		if (rc < 0)
			return rc;
		toml_skip_blank(p);
		if (toml_peek(p) == '}')
			break;
		if (toml_peek(p) != ',')
			return toml_fail(p, p->at, "expected ',' or '}' on the same line of the inline table");
		p->at++;
	}
	p->at++;
	return 0;
}

int toml_read_value(struct toml_parser *p, struct toml_value *v)
{
	char c = toml_peek(p);

	if (c == '"' || c == '\'') {
		v->kind = TOML_STRING;
		return toml_read_string(p, false, &v->string.text, &v->string.len);
	}
	return c == '[' ? read_array(p, v) : c == '{' ? read_inline_table(p, v) : toml_read_scalar(p, v);
}
