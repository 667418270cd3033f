/*
 * Prints all tables. On a terminal a table fits its width: cells of TABLE_CUT columns are cut in the middle, the last column wraps, spare columns are
 * left out if needed, and columns with nothing but "" and "-" always are. In a pipe or a file every column stays, and nothing is cut or wrapped.
 *
 * Cells come from sandboxes too: the caller passes only text that is safe on a terminal (netlog_safe).
 */
#ifndef AK_TABLE_H
#define AK_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* ---- how the output looks ---- */

enum ak_color { AK_COLOR_AUTO, AK_COLOR_ALWAYS, AK_COLOR_NEVER };
void ak_color_choose(enum ak_color color); /* --color; before that, AUTO */

struct ak_look {
	int width; /* of the terminal; 0: not a terminal, do not cut */
	bool color;
};

/* Width: COLUMNS, then the terminal's size, then 80. Colours: --color, then CLICOLOR_FORCE, NO_COLOR and TERM=dumb, then whether OUT is a terminal. */
struct ak_look ak_look_at(FILE *out);

enum ak_style { AK_PLAIN, AK_GOOD, AK_BAD, AK_DIM, AK_BOLD, AK_STYLE_NUM };

/* The escape sequences around a styled text; "" without colours. */
const char *ak_style_on(const struct ak_look *look, enum ak_style style);
const char *ak_style_off(const struct ak_look *look, enum ak_style style);

/* The number of columns that TEXT takes: characters, not bytes. */
int ak_columns(const char *text);

/* Print TEXT wrapped at WIDTH columns (0: not at all), continued at INDENT. AT is the column where it begins. */
void ak_wrap(FILE *out, const char *text, int at, int indent, int width);

/* ---- tables ---- */

enum {
	TABLE_RIGHT = 1, /* numbers */
	TABLE_CUT = 2, /* may be cut in the middle */
};

struct table_column {
	const char *title;
	unsigned flags;
	int floor; /* with TABLE_CUT: cut below this only when nothing else helps */
	int spare; /* where the terminal is too narrow, the column is left out: 1 first, then 2, …; 0: never */
	int begin; /* in a table that grows: at least this wide, for the rows to come */
};

#define TABLE_COLUMNS_MAX 16

struct table_cell {
	char *text; /* owned */
	enum ak_style style;
};

struct table {
	const struct table_column *columns; /* borrowed */
	size_t n_columns;
	struct table_cell *cells; /* owned; row by row */
	size_t n, cap;
	bool failed; /* out of memory */
	bool fitted, looked;
	struct ak_look look;
	int widths[TABLE_COLUMNS_MAX]; /* 0: left out */
};

void table_init(struct table *t, const struct table_column *columns, size_t n);
void table_done(struct table *t);

/* Print for this look, whatever the output is. */
void table_look(struct table *t, struct ak_look look);

/* Add the next cell, left to right, row after row. NULL and "" are empty. */
void table_put(struct table *t, enum ak_style style, const char *text);
void table_putf(struct table *t, enum ak_style style, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/*
 * Print the rows that were added, and forget them. The first call decides the widths and prints the titles; with GROWS, more rows follow and columns
 * that are empty now stay. -ENOMEM.
 */
int table_print(struct table *t, FILE *out, bool grows);

#endif
