/* Tables on terminals of many widths and in pipes: what is cut, what wraps, what goes, and where colours are. */
#include "tests/unit/golden.h"

#include "gateway/base/table.h"

#include <pty.h>
#include <unistd.h>

static const struct table_column columns[] = {
	{ "NAME", TABLE_CUT, 20, 0, 20 },
	{ "STATUS", 0, 0, 0, 0 },
	{ "BACKEND", 0, 0, 1, 0 },
	{ "ADDRESS", 0, 0, 2, 0 },
	{ "ALLOWED", TABLE_RIGHT, 0, 3, 0 },
	{ "EMPTY", 0, 0, 0, 0 },
	{ "DETAIL", 0, 0, 0, 0 },
};

static const char *const rows[][ARRAY_SIZE(columns)] = {
	{ "web", "running", "ns", "100.64.0.10", "1204", "-", "short" },
	{ "a-name-that-is-much-longer-than-a-column-should-be-wide", "stopped", "ns", "-", "0", "",
		"a detail of many words that must never be cut, only wrapped to the lines below it, wherever the terminal ends" },
	{ "ümläute-count-as-one-each", "damaged", "ns", "-", "-", "-", "" },
};

static void fill(struct table *t)
{
	table_init(t, columns, ARRAY_SIZE(columns));
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		for (size_t c = 0; c < ARRAY_SIZE(columns); c++)
			table_put(t, c == 1 ? (i ? AK_BAD : AK_GOOD) : AK_PLAIN, rows[i][c]);
	}
}

static char *print(struct ak_look look)
{
	struct table t;
	char *text = NULL;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	fill(&t);
	table_look(&t, look);
	assert_int_equal(table_print(&t, out, false), 0);
	table_done(&t);
	fclose(out);
	return text;
}

static void a_table_at_every_width(void **state)
{
	for (size_t i = 0; i < ARRAY_SIZE(golden_widths); i++) {
		_cleanup_free_ char *got = print((struct ak_look){ .width = golden_widths[i] });

		golden_check("table", golden_widths[i], got);
	}
}

static void no_line_is_wider_than_the_terminal(void **state)
{
	for (int width = 36; width < 220; width++) {
		_cleanup_free_ char *got = print((struct ak_look){ .width = width });

		for (char *line = got, *end; *line; line = end + 1) {
			end = strchr(line, '\n');
			*end = '\0';
			if (ak_columns(line) > width)
				fail_msg("%d columns: '%s'", width, line);
			assert_true(end == line || end[-1] != ' ');
		}
	}
}

/* The words of the wrapped column, joined again. */
static void nothing_of_the_last_column_is_lost(void **state)
{
	for (int width = 36; width < 220; width += 4) {
		_cleanup_free_ char *got = print((struct ak_look){ .width = width });
		const char *at = got;

		for (const char *word = rows[1][6]; *word; word += strspn(word, " ")) {
			char text[32];
			size_t len = strcspn(word, " ");

			snprintf(text, sizeof(text), "%.*s", (int)len, word);
			at = strstr(at, text);
			assert_non_null(at);
			word += len;
		}
	}
}

static void colours_surround_the_text_and_not_the_padding(void **state)
{
	_cleanup_free_ char *got = print((struct ak_look){ .width = 200, .color = true }),
			    *plain = print((struct ak_look){ .width = 200 });

	assert_non_null(strstr(got, "\033[32mrunning\033[0m"));
	assert_non_null(strstr(got, "\033[31mstopped\033[0m"));
	assert_non_null(strstr(got, "\033[1mNAME\033[0m"));
	assert_null(strchr(plain, '\033'));
}

static void a_table_that_grows_keeps_its_columns(void **state)
{
	struct table t;
	char *text = NULL;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	table_init(&t, columns, ARRAY_SIZE(columns));
	table_look(&t, (struct ak_look){ .width = 120 });
	assert_int_equal(table_print(&t, out, true), 0);
	for (size_t c = 0; c < ARRAY_SIZE(columns); c++)
		table_put(&t, AK_PLAIN, rows[1][c]);
	assert_int_equal(table_print(&t, out, true), 0);
	table_done(&t);
	fclose(out);
	assert_non_null(strstr(text, "EMPTY"));
	assert_non_null(strstr(text, "a-name-th…ld-be-wide  stopped"));
	free(text);
}

/* ---- the look ---- */

struct screen {
	int master;
	FILE *out;
};

static void screen_open(struct screen *s, unsigned short width)
{
	struct winsize size = { .ws_row = 24, .ws_col = width };
	int slave;

	assert_int_equal(openpty(&s->master, &slave, NULL, NULL, &size), 0);
	s->out = fdopen(slave, "w");
	assert_non_null(s->out);
}

static void screen_done(struct screen *s)
{
	fclose(s->out);
	close(s->master);
}

static void clear(void)
{
	static const char *const names[] = { "COLUMNS", "NO_COLOR", "CLICOLOR_FORCE", "TERM" };

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		unsetenv(names[i]);
	ak_color_choose(AK_COLOR_AUTO);
}

static void the_width_is_columns_then_the_window_then_80(void **state)
{
	struct screen s, unknown;

	clear();
	screen_open(&s, 97);
	screen_open(&unknown, 0);
	assert_int_equal(ak_look_at(s.out).width, 97);
	assert_int_equal(ak_look_at(unknown.out).width, 80);
	setenv("COLUMNS", "61", 1);
	assert_int_equal(ak_look_at(s.out).width, 61);
	setenv("COLUMNS", "many", 1);
	assert_int_equal(ak_look_at(s.out).width, 97);
	screen_done(&s);
	screen_done(&unknown);
}

static void a_pipe_has_neither_width_nor_colours(void **state)
{
	FILE *null = fopen("/dev/null", "w");

	clear();
	setenv("COLUMNS", "61", 1);
	assert_int_equal(ak_look_at(null).width, 0);
	assert_false(ak_look_at(null).color);
	setenv("CLICOLOR_FORCE", "1", 1);
	assert_true(ak_look_at(null).color);
	setenv("CLICOLOR_FORCE", "0", 1);
	assert_false(ak_look_at(null).color);
	ak_color_choose(AK_COLOR_ALWAYS);
	assert_true(ak_look_at(null).color);
	fclose(null);
}

static void colours_on_a_terminal_can_be_turned_off(void **state)
{
	struct screen s;

	clear();
	screen_open(&s, 80);
	assert_true(ak_look_at(s.out).color);
	setenv("TERM", "dumb", 1);
	assert_false(ak_look_at(s.out).color);
	unsetenv("TERM");
	setenv("NO_COLOR", "", 1); /* an empty one counts as not set */
	assert_true(ak_look_at(s.out).color);
	setenv("NO_COLOR", "1", 1);
	assert_false(ak_look_at(s.out).color);
	ak_color_choose(AK_COLOR_ALWAYS); /* an option beats the environment */
	assert_true(ak_look_at(s.out).color);
	ak_color_choose(AK_COLOR_NEVER);
	unsetenv("NO_COLOR");
	assert_false(ak_look_at(s.out).color);
	screen_done(&s);
	clear();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_table_at_every_width),
		cmocka_unit_test(no_line_is_wider_than_the_terminal),
		cmocka_unit_test(nothing_of_the_last_column_is_lost),
		cmocka_unit_test(colours_surround_the_text_and_not_the_padding),
		cmocka_unit_test(a_table_that_grows_keeps_its_columns),
		cmocka_unit_test(the_width_is_columns_then_the_window_then_80),
		cmocka_unit_test(a_pipe_has_neither_width_nor_colours),
		cmocka_unit_test(colours_on_a_terminal_can_be_turned_off),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
