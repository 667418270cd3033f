/* What the files of the TOML reader share: the parser's state, memory, and the parts of the grammar. */
#ifndef AK_BASE_TOML_INTERNAL_H
#define AK_BASE_TOML_INTERNAL_H

#include "gateway/base/strbuf.h"
#include "gateway/base/toml.h"

struct toml_block {
	struct toml_block *next;
	size_t used, size;
	_Alignas(max_align_t) char data[];
};

struct toml {
	char *text; /* owned */
	size_t len;
	struct toml_block *blocks; /* owned; everything the values point to */
	struct toml_value *root;
};

struct toml_parser {
	struct toml *doc;
	size_t at;
	struct toml_value *section; /* the table that a line "key = value" adds to */
	struct ak_err *err;
};

/* One part of a dotted key. */
struct toml_part {
	const char *text;
	size_t len;
	size_t at;
};

/* Fail at an offset: -EINVAL with "line L, column C: …". */
int toml_fail(struct toml_parser *p, size_t at, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
int toml_no_memory(struct toml_parser *p);

/* The next byte, or '\0' at the end: the text itself contains no NUL. */
static inline char toml_peek(const struct toml_parser *p)
{
	return p->doc->text[p->at];
}

static inline bool toml_is_digit(char c)
{
	return c >= '0' && c <= '9';
}

void toml_skip_blank(struct toml_parser *p); /* spaces and tabs */
void toml_skip_lines(struct toml_parser *p); /* and newlines and comments */
bool toml_take_newline(struct toml_parser *p);

/* Copy LEN bytes into the document, NUL-terminated; NULL when out of memory. */
const char *toml_keep(struct toml *doc, const char *bytes, size_t len);

/* Append a value to an array (PART is NULL) or a table that has no such key. */
int toml_add(struct toml_parser *p, struct toml_value *parent, const struct toml_part *part, enum toml_kind kind, size_t at,
	struct toml_value **ret);

/* Read "a.b.c = value" into TABLE. */
int toml_read_pair(struct toml_parser *p, struct toml_value *table);

/* Read the value at P into V, whose kind is not known yet. */
int toml_read_value(struct toml_parser *p, struct toml_value *v);

/* Read a string; with ONE_LINE the multi-line forms are not recognised, as in keys. */
int toml_read_string(struct toml_parser *p, bool one_line, const char **ret, size_t *ret_len);

/* Read a boolean, number, date or time. */
int toml_read_scalar(struct toml_parser *p, struct toml_value *v);

#endif
