/*
 * A reader of TOML 1.0.0 for documents that others may have written: bounded in size and depth, UTF-8 checked, and every key and value knows its
 * place in the text. Errors read "line 3, column 7: …"; columns count characters.
 *
 * A document is a tree of values. Members of a table and items of an array form a list in the order of the text.
 */
#ifndef AK_BASE_TOML_H
#define AK_BASE_TOML_H

#include "gateway/base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TOML_TEXT_MAX (256u << 10) /* bytes of a document */
#define TOML_DEPTH_MAX 64 /* levels of tables and arrays */
#define TOML_KEYS_MAX 4096 /* keys of one table */

enum toml_kind { TOML_STRING, TOML_INTEGER, TOML_FLOAT, TOML_BOOL, TOML_DATE, TOML_ARRAY, TOML_TABLE, TOML_KIND_NUM };
const char *toml_kind_name(enum toml_kind kind); /* "a string" */

/* A date, a time or both. Without an offset it is a local one. */
struct toml_date {
	bool has_date, has_time, has_offset;
	int year, month, day, hour, minute, second;
	uint32_t nanosecond; /* further digits are dropped */
	int offset_minutes;
};

/* How a table came to be, which decides who may add to it later. */
enum toml_origin {
	TOML_IMPLIED, /* a parent of [a.b]; a header of its own may still follow */
	TOML_HEADER, /* [a], an element of [[a]], or the document itself */
	TOML_DOTTED, /* a.b = 1 */
	TOML_INLINE, /* { … }, or a literal array; complete as written */
};

struct toml_value {
	enum toml_kind kind;
	unsigned depth;
	size_t at; /* offset of the value; for a table with a header, of that header */
	const char *key; /* NUL-terminated; may also contain NUL bytes. NULL for items of an array and the document */
	size_t key_len;
	size_t key_at;
	struct toml_value *next; /* in the same table or array */
	union {
		struct {
			const char *text; /* NUL-terminated; may also contain NUL bytes */
			size_t len;
		} string;
		int64_t integer;
		double number;
		bool flag;
		struct toml_date date;
		struct {
			struct toml_value *first, *last;
			size_t n;
			enum toml_origin origin;
			const struct toml_value *section; /* of a dotted table: the only table whose keys may add to it */
		} list; /* arrays and tables */
	};
};

struct toml; /* owns a copy of the text and all values */

int toml_parse(const char *text, size_t len, struct toml **ret, struct ak_err *err);
void toml_free(struct toml *doc);
void toml_freep(struct toml **doc);

const struct toml_value *toml_root(const struct toml *doc);

/* The member KEY of TABLE; NULL if there is none. */
const struct toml_value *toml_get(const struct toml_value *table, const char *key);

/* Line and column, both from 1, of an offset in the text. */
void toml_place(const struct toml *doc, size_t at, unsigned *ret_line, unsigned *ret_column);

#endif
