/* Tables, their widths and colours: see base/table.h. */
#include "gateway/base/table.h"

#include "gateway/base/cleanup.h"

#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define GAP 2
#define WRAP_MIN 20 /* a last column that would be narrower begins on a line of its own … */
#define WRAP_INDENT 4 /* … this far in */
#define CUT_FLOOR 8
#define WIDTH_MIN 20
#define WIDTH_MAX 4096
#define WIDTH_UNKNOWN 80

/* ---- how the output looks ---- */

static enum ak_color chosen;

void ak_color_choose(enum ak_color color)
{
	chosen = color;
}

static bool is_set(const char *name)
{
	const char *value = getenv(name);

	return value && value[0];
}

static bool wants_color(bool terminal)
{
	const char *force = getenv("CLICOLOR_FORCE"), *term = getenv("TERM");

	if (chosen != AK_COLOR_AUTO)
		return chosen == AK_COLOR_ALWAYS;
	if (is_set("NO_COLOR"))
		return false;
	if (force && force[0] && strcmp(force, "0") != 0)
		return true;
	return terminal && (!term || strcmp(term, "dumb") != 0);
}

static int width_of(FILE *out)
{
	const char *columns = getenv("COLUMNS");
	long n = columns ? strtol(columns, NULL, 10) : 0;
	struct winsize ws;

	if (n >= WIDTH_MIN && n <= WIDTH_MAX)
		return (int)n;
	if (ioctl(fileno(out), TIOCGWINSZ, &ws) == 0 && ws.ws_col >= WIDTH_MIN)
		return ws.ws_col;
	return WIDTH_UNKNOWN;
}

struct ak_look ak_look_at(FILE *out)
{
	bool terminal = isatty(fileno(out));

	return (struct ak_look){ terminal ? width_of(out) : 0, wants_color(terminal) };
}

static const char *const styles[AK_STYLE_NUM] = {
	[AK_PLAIN] = "",
	[AK_GOOD] = "\033[32m",
	[AK_BAD] = "\033[31m",
	[AK_DIM] = "\033[2m",
	[AK_BOLD] = "\033[1m",
};

const char *ak_style_on(const struct ak_look *look, enum ak_style style)
{
	return look->color ? styles[style] : "";
}

const char *ak_style_off(const struct ak_look *look, enum ak_style style)
{
	return look->color && style != AK_PLAIN ? "\033[0m" : "";
}

int ak_columns(const char *text)
{
	int n = 0;

	for (; *text; text++)
		n += (*text & 0xc0) != 0x80;
	return n;
}

/* The end of the first COLUMNS characters of TEXT. */
static const char *skip(const char *text, int columns)
{
	for (; *text; text++) {
		if ((*text & 0xc0) != 0x80 && columns-- == 0)
			break;
	}
	return text;
}

/* How much of TEXT goes into ROOM columns: up to the last space that fits, or a word cut where the room ends. */
static const char *line_end(const char *text, int room)
{
	const char *end = skip(text, room), *space = end;

	if (!*end || *end == ' ')
		return end;
	while (space > text && *space != ' ')
		space--;
	return space > text ? space : end;
}

void ak_wrap(FILE *out, const char *text, int at, int indent, int width)
{
	for (bool first = true; *text; first = false) {
		int from = first ? at : indent;
		const char *end = width > from ? line_end(text, width - from) : text + strlen(text);

		fprintf(out, "%s%*s%.*s", first ? "" : "\n", first ? 0 : indent, "", (int)(end - text), text);
		text = end + strspn(end, " ");
	}
}

/* ---- cells ---- */

void table_init(struct table *t, const struct table_column *columns, size_t n)
{
	*t = (struct table){ .columns = columns, .n_columns = n };
}

void table_look(struct table *t, struct ak_look look)
{
	t->look = look;
	t->looked = true;
}

static void forget_rows(struct table *t)
{
	for (size_t i = 0; i < t->n; i++)
		free(t->cells[i].text);
	t->n = 0;
}

void table_done(struct table *t)
{
	forget_rows(t);
	free(t->cells);
	*t = (struct table){ 0 };
}

void table_put(struct table *t, enum ak_style style, const char *text)
{
	if (t->n == t->cap) {
		size_t cap = t->cap ? 2 * t->cap : 64;
		struct table_cell *grown = realloc(t->cells, cap * sizeof(*grown));

		t->failed |= !grown;
		if (!grown)
			return;
		t->cells = grown;
		t->cap = cap;
	}
	t->cells[t->n] = (struct table_cell){ strdup(text ? text : ""), style };
	t->failed |= !t->cells[t->n].text;
	t->n += t->cells[t->n].text != NULL;
}

void table_putf(struct table *t, enum ak_style style, const char *fmt, ...)
{
	_cleanup_free_ char *text = NULL;
	va_list ap;

	va_start(ap, fmt);
	if (vasprintf(&text, fmt, ap) < 0) {
		text = NULL;
		t->failed = true;
	}
	va_end(ap);
	table_put(t, style, text);
}

/* ---- widths ---- */

static bool is_empty(const char *text)
{
	return !text[0] || !strcmp(text, "-");
}

/* The natural width of each column: its widest cell. On a terminal, a column without content gets none, unless more rows follow. */
static void measure(struct table *t, bool grows)
{
	for (size_t c = 0; c < t->n_columns; c++) {
		int width = ak_columns(t->columns[c].title);
		bool used = grows || !t->look.width || t->n == 0;

		for (size_t i = c; i < t->n; i += t->n_columns) {
			int n = ak_columns(t->cells[i].text);

			width = n > width ? n : width;
			used |= !is_empty(t->cells[i].text);
		}
		if (grows && width < t->columns[c].begin)
			width = t->columns[c].begin;
		t->widths[c] = used ? width : 0;
	}
}

static size_t last_column(const struct table *t)
{
	size_t last = 0;

	for (size_t c = 0; c < t->n_columns; c++)
		last = t->widths[c] ? c : last;
	return last;
}

/* What all columns but the last take, with their gaps. */
static int taken(const struct table *t)
{
	size_t last = last_column(t);
	int sum = 0;

	for (size_t c = 0; c < last; c++)
		sum += t->widths[c] ? t->widths[c] + GAP : 0;
	return sum;
}

static int floor_of(const struct table *t, size_t c, bool narrow)
{
	int title = ak_columns(t->columns[c].title), floor = narrow ? CUT_FLOOR : t->columns[c].floor;

	return title > floor ? title : floor;
}

/* Take one column from the widest cell that may be cut. NARROW: below the comfortable width too. */
static bool cut_widest(struct table *t, bool narrow)
{
	size_t best = SIZE_MAX;

	for (size_t c = 0; c < t->n_columns; c++) {
		if ((t->columns[c].flags & TABLE_CUT) && t->widths[c] > floor_of(t, c, narrow) &&
			(best == SIZE_MAX || t->widths[c] > t->widths[best]))
			best = c;
	}
	if (best != SIZE_MAX)
		t->widths[best]--;
	return best != SIZE_MAX;
}

static bool drop_spare(struct table *t)
{
	size_t first = SIZE_MAX;

	for (size_t c = 0; c < t->n_columns; c++) {
		if (t->columns[c].spare && t->widths[c] && (first == SIZE_MAX || t->columns[c].spare < t->columns[first].spare))
			first = c;
	}
	if (first != SIZE_MAX)
		t->widths[first] = 0;
	return first != SIZE_MAX;
}

/* The least room that the last column needs to stand on the same line. It may wrap, unless it is cut or is a number. */
static int least_last(const struct table *t)
{
	size_t last = last_column(t);

	if ((t->columns[last].flags & (TABLE_CUT | TABLE_RIGHT)) || t->widths[last] < WRAP_MIN)
		return t->widths[last];
	return WRAP_MIN;
}

static void fit(struct table *t)
{
	while (taken(t) + least_last(t) > t->look.width) {
		if (!cut_widest(t, false) && !drop_spare(t) && !cut_widest(t, true))
			return; /* a last column that wraps begins on a line of its own */
	}
}

/* ---- printing ---- */

static void print_cut(FILE *out, const char *text, int width)
{
	int have = ak_columns(text), head = (width - 1) / 2, tail = width - 1 - head;

	if (have <= width) {
		fputs(text, out);
		return;
	}
	fprintf(out, "%.*s…%s", (int)(skip(text, head) - text), text, skip(text, have - tail));
}

/* GAP is the space to the cell before; without room for the text here, it begins on a line of its own instead. */
static void print_last(const struct table *t, const struct table_cell *cell, int at, int gap, FILE *out)
{
	int width = t->look.width;

	if (width && ak_columns(cell->text) > width - at && width - at < WRAP_MIN) {
		putc('\n', out);
		at = gap = WRAP_INDENT;
	}
	fprintf(out, "%*s%s", gap, "", ak_style_on(&t->look, cell->style));
	ak_wrap(out, cell->text, at, at, width);
	fputs(ak_style_off(&t->look, cell->style), out);
}

static void print_row(const struct table *t, const struct table_cell *row, FILE *out)
{
	size_t last = last_column(t), end = last;
	int at = 0, gap = 0;

	while (end > 0 && (!t->widths[end] || !row[end].text[0]))
		end--; /* no spaces at the end of a line */
	for (size_t c = 0; c <= end; c++) {
		int width = t->widths[c], have = ak_columns(row[c].text), pad = have < width ? width - have : 0;
		unsigned flags = t->columns[c].flags;

		if (!width)
			continue;
		if (c == last && !(flags & (TABLE_RIGHT | TABLE_CUT))) {
			print_last(t, &row[c], at, gap, out);
			break;
		}
		fprintf(out, "%*s%s", gap + (flags & TABLE_RIGHT ? pad : 0), "", ak_style_on(&t->look, row[c].style));
		print_cut(out, row[c].text, t->look.width && (flags & TABLE_CUT) ? width : have);
		fputs(ak_style_off(&t->look, row[c].style), out);
		gap = GAP + (flags & TABLE_RIGHT ? 0 : pad);
		at += width + GAP;
	}
	putc('\n', out);
}

static void print_titles(const struct table *t, FILE *out)
{
	struct table_cell row[TABLE_COLUMNS_MAX];

	for (size_t c = 0; c < t->n_columns; c++)
		row[c] = (struct table_cell){ (char *)t->columns[c].title, AK_BOLD };
	print_row(t, row, out);
}

int table_print(struct table *t, FILE *out, bool grows)
{
	if (t->failed)
		return -ENOMEM;
	if (!t->fitted) {
		if (!t->looked)
			t->look = ak_look_at(out);
		measure(t, grows);
		if (t->look.width)
			fit(t);
		print_titles(t, out);
		t->fitted = true;
	}
	for (size_t i = 0; i + t->n_columns <= t->n; i += t->n_columns)
		print_row(t, t->cells + i, out);
	forget_rows(t);
	return 0;
}
