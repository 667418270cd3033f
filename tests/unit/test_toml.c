/* The TOML reader against the rules of TOML 1.0.0: what each document means, and where and why a wrong one is refused. */
#include "gateway/base/cleanup.h"
#include "gateway/base/strbuf.h"
#include "gateway/base/toml.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

/* ---- a document printed in one line: {a=1 b=[s"x" f1.5 true] c={}} ---- */

static void print(struct strbuf *out, const struct toml_value *v);

static void print_date(struct strbuf *out, const struct toml_date *d)
{
	if (d->has_date)
		strbuf_printf(out, "%04d-%02d-%02d", d->year, d->month, d->day);
	if (d->has_time)
		strbuf_printf(out, "T%02d:%02d:%02d.%09u", d->hour, d->minute, d->second, d->nanosecond);
	if (d->has_offset)
		strbuf_printf(out, "%+d", d->offset_minutes);
}

static void print_list(struct strbuf *out, const struct toml_value *list)
{
	for (const struct toml_value *v = list->list.first; v; v = v->next) {
		if (v->key) {
			strbuf_add(out, v->key, v->key_len);
			strbuf_putc(out, '=');
		}
		print(out, v);
		if (v->next)
			strbuf_putc(out, ' ');
	}
}

static void print(struct strbuf *out, const struct toml_value *v)
{
	switch (v->kind) {
	case TOML_STRING:
		strbuf_jsonn(out, v->string.text, v->string.len);
		break;
	case TOML_INTEGER:
		strbuf_printf(out, "%lld", (long long)v->integer);
		break;
	case TOML_FLOAT:
		strbuf_printf(out, "f%s%g", signbit(v->number) && isnan(v->number) ? "-" : "",
			isnan(v->number) ? (double)NAN : v->number);
		break;
	case TOML_BOOL:
		strbuf_puts(out, v->flag ? "true" : "false");
		break;
	case TOML_DATE:
		print_date(out, &v->date);
		break;
	case TOML_ARRAY:
		strbuf_putc(out, '[');
		print_list(out, v);
		strbuf_putc(out, ']');
		break;
	case TOML_TABLE:
	case TOML_KIND_NUM:
		strbuf_putc(out, '{');
		print_list(out, v);
		strbuf_putc(out, '}');
		break;
	}
}

static void means(const char *text, const char *want)
{
	_cleanup_(toml_freep) struct toml *doc = NULL;
	_cleanup_strbuf_ struct strbuf out = { 0 };
	struct ak_err err = { "" };

	if (toml_parse(text, strlen(text), &doc, &err) < 0)
		fail_msg("refused: %s\n%s", text, err.text);
	print(&out, toml_root(doc));
	if (strcmp(out.data, want) != 0)
		fail_msg("%s\nis   %s\nnot  %s", text, out.data, want);
}

static void refused_bytes(const char *text, size_t len, const char *why)
{
	struct toml *doc = NULL;
	struct ak_err err = { "" };

	if (toml_parse(text, len, &doc, &err) >= 0) {
		toml_free(doc);
		fail_msg("accepted: %s", text);
	}
	assert_null(doc);
	if (!strstr(err.text, why))
		fail_msg("%s\nis refused with  %s\nnot with         %s", text, err.text, why);
}

static void refused(const char *text, const char *why)
{
	refused_bytes(text, strlen(text), why);
}

/* ---- claims ---- */

static void lines_hold_one_pair_each_and_comments_end_with_them(void **state)
{
	means("", "{}");
	means("\n \t\n# only a comment", "{}");
	means("a = 1 # x\n# y\r\nb=2\r\n\tc\t=\t3", "{a=1 b=2 c=3}");
	means("\xef\xbb\xbf"
	      "a = 1",
		"{a=1}");
	means("# \xc3\xa4\tand a tab\na = \"# no comment\"", "{a=\"# no comment\"}");
	refused("a = 1 b = 2", "line 1, column 7: expected the end of the line");
	refused("a = 1\nb = ", "line 2, column 5: expected a value");
	refused("a = # x", "column 5: expected a value");
	refused("a\n= 1", "line 1, column 2: expected '=' after the key 'a'");
	refused("= 1", "line 1, column 1: expected a key");
	refused("\xc3\xa4 = 1", "expected a key");
	refused("a = \"\xc3\xa4\" x", "line 1, column 9: expected the end"); /* characters, not bytes */
}

static void text_is_utf8_without_control_characters(void **state)
{
	refused("a = \"\xff\"", "line 1, column 6: invalid UTF-8");
	refused("# \xed\xa0\x80", "invalid UTF-8");
	refused("# \xc0\xaf", "invalid UTF-8");
	refused("a = \"\x01\"", "control character 0x01");
	refused("# \x7f", "control character 0x7f");
	refused("a = 1\rb = 2", "control character 0x0d");
	refused("a = '''\r'''", "control character 0x0d");
	refused_bytes("a = 1\0", 6, "control character 0x00");
	refused("a = 1 \xef\xbb\xbf", "expected the end");
}

static void keys_are_bare_quoted_or_dotted(void **state)
{
	means("bare_key-1 = 1\n1234 = 2\n\"127.0.0.1\" = 3\n'q \"x\"' = 4\n\"\" = 5",
		"{bare_key-1=1 1234=2 127.0.0.1=3 q \"x\"=4 =5}");
	means("a . b.\"c.d\" = 1\na.b.e = 2", "{a={b={c.d=1 e=2}}}");
	means("3.14 = 1", "{3={14=1}}");
	means("\"\\u0061\" = 1\nb = 2", "{a=1 b=2}");
	refused("a = 1\na = 2", "line 2, column 1: 'a' is already defined at line 1, column 1");
	refused("a = 1\n\"a\" = 2", "already defined");
	refused("a = 1\na.b = 2", "line 2, column 1: 'a' is already defined");
	refused("a.b = 1\na = 2", "already defined");
	refused("a. = 1", "column 4: expected a key");
	refused("a..b = 1", "column 3: expected a key");
	refused(".a = 1", "expected a key");
	refused("a b = 1", "expected '='");
	refused("\"\"\"a\"\"\" = 1", "expected '='");
	refused("\"a\nb\" = 1", "no closing \"");
}

static void basic_strings_know_the_escapes_of_the_text_and_no_others(void **state)
{
	means("a = \"\\b\\t\\n\\f\\r\\\"\\\\\\u00e9\\U0001F600\"",
		"{a=\"\\u0008\\u0009\\u000a\\u000c\\u000d\\\"\\\\\\u00c3\\u00a9\\u00f0\\u009f\\u0098\\u0080\"}");
	means("a = \"x\\u0000y\"", "{a=\"x\\u0000y\"}");
	means("a = \"\\uD7FF\\uE000\\U0010FFFF\"",
		"{a=\"\\u00ed\\u009f\\u00bf\\u00ee\\u0080\\u0080\\u00f4\\u008f\\u00bf\\u00bf\"}");
	refused("a = \"\\x41\"", "column 6: unknown escape");
	refused("a = \"\\e\"", "unknown escape");
	refused("a = \"\\ \"", "unknown escape");
	refused("a = \"\\u12\"", "expected 4 hexadecimal digits");
	refused("a = \"\\U0011FFFF\"", "U+11FFFF is not a Unicode scalar value");
	refused("a = \"\\uD800\"", "not a Unicode scalar value");
	refused("a = \"x", "column 5: the string has no closing \"");
	refused("a = \"x\ny\"", "no closing");
	refused("a = \"x\\", "unknown escape");
}

static void literal_strings_mean_what_they_show(void **state)
{
	means("a = 'C:\\x\\n'", "{a=\"C:\\\\x\\\\n\"}");
	means("a = ''", "{a=\"\"}");
	refused("a = 'it''s'", "column 9: expected the end");
	refused("a = 'x\n'", "no closing '");
}

static void multi_line_strings_trim_the_first_newline_and_escaped_ones(void **state)
{
	means("a = \"\"\"\nx\ny\"\"\"", "{a=\"x\\u000ay\"}");
	means("a = \"\"\"\r\nx\r\ny\"\"\"", "{a=\"x\\u000ay\"}");
	means("a = \"\"\"x \\  \n\n \t y\"\"\"", "{a=\"x y\"}");
	means("a = \"\"\"x\\\r\n y\"\"\"", "{a=\"xy\"}");
	means("a = \"\"\"\"two\"\" \"\"\"\"\"", "{a=\"\\\"two\\\"\\\" \\\"\\\"\"}");
	means("a = '''\n\\x''y'''''", "{a=\"\\\\x''y''\"}");
	means("a = \"\"\"\"\"\"\nb = ''''''", "{a=\"\" b=\"\"}");
	refused("a = \"\"\"x\"\"\"\"\"\"", "column 14: expected the end");
	refused("a = '''x''''''", "column 14: expected the end");
	refused("a = \"\"\"x \\ y\"\"\"", "unknown escape");
	refused("a = \"\"\"x\"\"", "column 5: the string has no closing \"\"\"");
	refused("a = '''x''", "no closing '''");
}

static void whole_numbers_fit_64_bits_in_four_bases(void **state)
{
	means("a=[+99,42,0,-17,+0,-0,1_000,5_3_4]", "{a=[99 42 0 -17 0 0 1000 534]}");
	means("a=[0xDEAD_beef,0o755,0b1101,0x0,0x00ff]", "{a=[3735928559 493 13 0 255]}");
	means("a=[9223372036854775807,-9223372036854775808,0x7fffffffffffffff]",
		"{a=[9223372036854775807 -9223372036854775808 9223372036854775807]}");
	refused("a = 9223372036854775808", "does not fit in 64 bits");
	refused("a = -9223372036854775809", "does not fit in 64 bits");
	refused("a = 0x8000000000000000", "does not fit in 64 bits");
	static const char *const wrong[] = { "01", "+01", "-0_1", "1__0", "_1", "1_", "+0x1", "-0b1", "0X1", "0x", "0x_1", "0x1_",
		"0o8", "0b2", "+", "-", "1a", "++1", "0xg", "1 000" };
	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
		char text[32];

		snprintf(text, sizeof(text), "a = %s", wrong[i]);
		refused(text, i + 1 < ARRAY_SIZE(wrong) ? "is not a value" : "expected the end");
	}
}

static void decimal_numbers_have_digits_on_both_sides_of_the_point(void **state)
{
	means("a=[+1.0,3.1415,-0.01,5e+22,1e06,-2E-2,6.626e-34,1_0.0_1,0e0,-0.0]",
		"{a=[f1 f3.1415 f-0.01 f5e+22 f1e+06 f-0.02 f6.626e-34 f10.01 f0 f-0]}");
	means("a=[inf,+inf,-inf,nan,+nan,-nan]", "{a=[finf finf f-inf fnan fnan f-nan]}");
	static const char *const wrong[] = { ".7", "7.", "3.e+20", "1e", "1e+", "1.0.0", "1_.0", "1._0", "1e_1", "03.14", "Inf",
		"NaN", "infinity", "1.e1", "1.5_", "--1.0", "0x1.8" };
	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
		char text[32];

		snprintf(text, sizeof(text), "a = %s", wrong[i]);
		refused(text, "is not a value");
	}
	means("a = [true, false]", "{a=[true false]}");
	refused("a = True", "'True' is not a value; text needs quotes");
	refused("a = truer", "is not a value");
}

static void dates_and_times_exist_in_the_calendar(void **state)
{
	means("a = 1979-05-27T07:32:00Z", "{a=1979-05-27T07:32:00.000000000+0}");
	means("a = 1979-05-27t00:32:00.999999-07:30", "{a=1979-05-27T00:32:00.999999000-450}");
	means("a = 1979-05-27 07:32:00z # x", "{a=1979-05-27T07:32:00.000000000+0}");
	means("a = 1979-05-27 # x", "{a=1979-05-27}");
	means("a = [07:32:00, 23:59:60.1234567891]", "{a=[T07:32:00.000000000 T23:59:60.123456789]}");
	means("a = [2000-02-29, 2024-02-29T01:02:03]", "{a=[2000-02-29 2024-02-29T01:02:03.000000000]}");
	static const char *const wrong[] = { "1900-02-29", "2023-02-29", "2023-04-31", "2023-00-01", "2023-13-01", "2023-01-00",
		"2023-01-1", "2023-1-01", "2023-01-01T", "2023-01-01T24:00:00", "2023-01-01T00:60:00", "2023-01-01T00:00:61",
		"2023-01-01T00:00", "2023-01-01T00:00:00.", "2023-01-01T00:00:00+24:00", "2023-01-01T00:00:00+01:60",
		"2023-01-01T00:00:00+1", "07:32", "7:32:00", "07:32:00Z", "07:32:00.", "2023-01-01Z", "2023-01-01T00:00:00ZZ",
		"2023-01-01_00:00:00" };
	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
		char text[64];

		snprintf(text, sizeof(text), "a = %s", wrong[i]);
		refused(text, "is not a ");
	}
}

static void arrays_mix_kinds_and_span_lines(void **state)
{
	means("a = []\nb = [1, 'x', [2.5, []], {c = 1}]", "{a=[] b=[1 \"x\" [f2.5 []] {c=1}]}");
	means("a = [ # x\n 1, # y\n\n 2,\n# z\n]", "{a=[1 2]}");
	refused("a = [1 2]", "column 8: expected ',' or ']'");
	refused("a = [,]", "expected a value");
	refused("a = [1,,2]", "expected a value");
	refused("a = [1", "column 5: the array has no closing ']'");
	refused("a = [", "expected a value");
	refused("a = [1]]", "expected the end");
}

static void inline_tables_stay_on_one_line_and_are_complete(void **state)
{
	means("a = {}\nb = { c = 1, d.e = 2, d.f = { } }", "{a={} b={c=1 d={e=2 f={}}}}");
	means("a = {b = [\n1,\n2]}", "{a={b=[1 2]}}");
	refused("a = {b = 1,}", "expected a key");
	refused("a = {b = 1\n}", "on the same line");
	refused("a = {\nb = 1}", "expected a key");
	refused("a = {b = 1 c = 2}", "expected ',' or '}'");
	refused("a = {b = 1, b = 2}", "already defined");
	refused("a = {b = 1}\na.c = 2", "is already complete");
	refused("a = {b = 1}\n[a]", "already defined");
	refused("a = {b = 1}\n[a.c]", "already defined");
	refused("a = {b.c = 1, b = 2}", "already defined");
	refused("a = {b = {c = 1}, b.d = 2}", "already complete");
	refused("a = [{b = 1}]\n[[a]]", "already defined");
	refused("a = [{b = 1}]\n[a.c]", "already defined");
}

static void a_table_is_defined_once(void **state)
{
	means("x=1\n[a]\nb=2\n[ c . 'd e' ]\nf=3\n[g] # x", "{x=1 a={b=2} c={d e={f=3}} g={}}");
	means("[a.b]\nx=1\n[a]\ny=2", "{a={b={x=1} y=2}}"); /* a parent after its child */
	means("[a]\n[b]\n[a.c]", "{a={c={}} b={}}");
	refused("[a]\n[a]", "line 2, column 2: 'a' is already defined at line 1, column 2");
	refused("[a]\nb=1\n[a.b]", "already defined");
	refused("[a.b]\n[a]\n[a]", "already defined");
	refused("a=1\n[a.b]", "already defined");
	refused("[]", "expected a key");
	refused("[a", "expected ']'");
	refused("[a]]", "expected the end");
	refused("[a] b = 1", "expected the end");
	refused("[a\n]", "expected ']'");
	refused("[a.]", "expected a key");
}

static void dotted_keys_define_their_tables_in_one_section(void **state)
{
	means("[f]\na.c = 1\na.t.s = true\n[f.a.x]\nn=1", "{f={a={c=1 t={s=true} x={n=1}}}}");
	means("[a.b.c]\nz=1\n[a]\nb.y=2", "{a={b={c={z=1} y=2}}}");
	refused("[f]\na.c = 1\n[f.a]", "already defined");
	refused("[f]\na.c.d = 1\n[f.a.c]", "already defined");
	refused("a.b = 1\n[a]", "already defined");
	refused("[a.b.c]\nz=9\n[a]\nb.c.t=1", "line 4, column 3: the table 'c' is already complete");
	refused("[a.b]\nx=1\n[a]\nb.y=1", "already complete");
	refused("[[a.b]]\n[a]\nb.y=2", "already defined");
	refused("a.b = 1\na.b.c = 2", "already defined");
}

static void arrays_of_tables_grow_at_their_headers(void **state)
{
	means("[[p]]\nn=1\n[[p]]\n[[p]]\nn=3", "{p=[{n=1} {} {n=3}]}");
	means("[[f]]\nn=1\n[f.p]\nc=1\n[[f.v]]\nn=2\n[[f.v]]\nn=3\n[[f]]\n[[f.v]]\nn=4",
		"{f=[{n=1 p={c=1} v=[{n=2} {n=3}]} {v=[{n=4}]}]}");
	means("[[a.b]]\n[a]\nx=1", "{a={b=[{}] x=1}}");
	refused("[f.p]\n[[f]]", "already defined");
	refused("f = []\n[[f]]", "already defined");
	refused("[[f]]\n[f]", "already defined");
	refused("[f]\n[[f]]", "already defined");
	refused("[[f]]\n[[f.v]]\n[f.v]", "already defined");
	refused("[[f]]\n[f.p]\n[[f.p]]", "already defined");
	refused("[[a]", "expected ']]'");
	refused("[ [a]]", "expected a key");
	refused("[[a] ]", "expected ']]'");
	refused("[[]]", "expected a key");
}

static void every_value_knows_its_place(void **state)
{
	static const char text[] = "# \xc3\xa4\n'\xc3\xa4' = [ 1,\n  \"x\" ]\n[ t ]\nk.l = 1\n";
	_cleanup_(toml_freep) struct toml *doc = NULL;
	const struct toml_value *v;
	unsigned line, column;
	struct ak_err err;

	assert_int_equal(toml_parse(text, sizeof(text) - 1, &doc, &err), 0);
	v = toml_get(toml_root(doc), "\xc3\xa4");
	toml_place(doc, v->key_at, &line, &column);
	assert_true(line == 2 && column == 1);
	toml_place(doc, v->at, &line, &column);
	assert_true(line == 2 && column == 7);
	toml_place(doc, v->list.last->at, &line, &column);
	assert_true(line == 3 && column == 3);
	v = toml_get(toml_root(doc), "t");
	toml_place(doc, v->at, &line, &column);
	assert_true(line == 4 && column == 1);
	v = toml_get(toml_get(v, "k"), "l");
	toml_place(doc, v->key_at, &line, &column);
	assert_true(line == 5 && column == 3);
	assert_null(toml_get(toml_root(doc), "absent"));
}

static void fill(char *text, size_t n, const char *piece)
{
	for (size_t i = 0; i < n; i++)
		memcpy(text + i * strlen(piece), piece, strlen(piece) + 1);
}

static void size_depth_and_width_are_bounded(void **state)
{
	static char text[TOML_TEXT_MAX + 2];
	struct toml *doc = NULL;
	struct ak_err err;
	size_t at = 0;

	memset(text, '\n', sizeof(text));
	assert_int_equal(toml_parse(text, TOML_TEXT_MAX, &doc, &err), 0);
	toml_free(TAKE(doc));
	assert_int_equal(toml_parse(text, TOML_TEXT_MAX + 1, &doc, &err), -EFBIG);
	strcpy(text, "a=");
	fill(text + 2, 100000, "[");
	refused(text, "more than 64 levels");
	fill(text + 2, 30000, "{a=");
	refused(text, "more than 64 levels");
	fill(text + 2, 30000, "{a.b=");
	refused(text, "more than 64 levels");
	fill(text, 60000, "a.");
	refused(text, "more than 64 parts");
	fill(text, 20000, "[[a]]\n");
	assert_int_equal(toml_parse(text, strlen(text), &doc, &err), 0);
	toml_free(TAKE(doc));
	for (int i = 0; i <= TOML_KEYS_MAX; i++)
		at += (size_t)sprintf(text + at, "k%d=1\n", i);
	refused(text, "more than 4096 keys in one table");
	strcpy(text, "a=");
	fill(text + 2, 2000, "1");
	refused(text, "longer than 1023 characters");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lines_hold_one_pair_each_and_comments_end_with_them),
		cmocka_unit_test(text_is_utf8_without_control_characters),
		cmocka_unit_test(keys_are_bare_quoted_or_dotted),
		cmocka_unit_test(basic_strings_know_the_escapes_of_the_text_and_no_others),
		cmocka_unit_test(literal_strings_mean_what_they_show),
		cmocka_unit_test(multi_line_strings_trim_the_first_newline_and_escaped_ones),
		cmocka_unit_test(whole_numbers_fit_64_bits_in_four_bases),
		cmocka_unit_test(decimal_numbers_have_digits_on_both_sides_of_the_point),
		cmocka_unit_test(dates_and_times_exist_in_the_calendar),
		cmocka_unit_test(arrays_mix_kinds_and_span_lines),
		cmocka_unit_test(inline_tables_stay_on_one_line_and_are_complete),
		cmocka_unit_test(a_table_is_defined_once),
		cmocka_unit_test(dotted_keys_define_their_tables_in_one_section),
		cmocka_unit_test(arrays_of_tables_grow_at_their_headers),
		cmocka_unit_test(every_value_knows_its_place),
		cmocka_unit_test(size_depth_and_width_are_bounded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
