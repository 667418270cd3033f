/* The words of a command line, and the one table that help, completion and the man page must agree with. */
#include "gateway/cli/cmd.h"
#include "gateway/log/audit.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/base/number.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#define MAX_WORDS 16

/* Silence what a test makes the parser say. */
static int quiet_begin(int fd)
{
	int saved = dup(fd), null = open("/dev/null", O_WRONLY | O_CLOEXEC);

	fflush(stdout);
	dup2(null, fd);
	close(null);
	return saved;
}

static void quiet_end(int fd, int saved)
{
	fflush(stdout);
	dup2(saved, fd);
	close(saved);
}

/* Parse WORDS as `NAME` would and print what was found: "profile=moderate keep [ls] [-l]". */
static const char *parse(const char *name, const char *const *words)
{
	static char out[1024], given[1024]; /* words that can be written, as those of main */
	char *argv[MAX_WORDS] = { (char[]){ "x" } };
	int argc = 1, i, out_fd = quiet_begin(1), err_fd = quiet_begin(2);
	struct cmd_args a;
	const char *value;

	out[0] = '\0';
	for (char *at = given; *words; words++, at += strlen(at) + 1)
		argv[argc++] = strcpy(at, *words);
	cmd_args_init(&a, cmd_row(name), argc, argv);
	while ((i = cmd_next(&a, &value)) != CMD_END) {
		size_t used = strlen(out);

		if (i == CMD_BAD || i == CMD_HELP) {
			snprintf(out + used, sizeof(out) - used, "%s", i == CMD_BAD ? "BAD" : "HELP");
			break;
		}
		if (i == CMD_ARG)
			snprintf(out + used, sizeof(out) - used, "[%s] ", value);
		else
			snprintf(out + used, sizeof(out) - used, "%s%s%s ", field_table[i].option, value ? "=" : "",
				value ? value : "");
	}
	quiet_end(1, out_fd);
	quiet_end(2, err_fd);
	return out;
}

static void options_in_every_spelling(void **state)
{
	static const struct {
		const char *name;
		const char *words[10];
		const char *result;
	} vectors[] = {
		{ "run", { "ls" }, "[ls] " },
		{ "run", { "--profile", "moderate", "ls" }, "profile=moderate [ls] " },
		{ "run", { "--profile=moderate", "ls" }, "profile=moderate [ls] " },
		{ "run", { "--keep", "ls", "-l", "--keep", "--", "-x" }, "keep [ls] [-l] [--keep] [--] [-x] " },
		{ "run", { "--", "--keep" }, "[--keep] " },
		{ "run", { "--", "ls", "--" }, "[ls] [--] " },
		{ "run", { "--" }, "" },
		{ "run", { "-e", "A=B", "-eC=D", "--env=E=F", "x" }, "env=A=B env=C=D env=E=F [x] " },
		{ "run", { "-it", "sh" }, "interactive tty [sh] " },
		{ "run", { "-ite", "A=1", "sh" }, "interactive tty env=A=1 [sh] " },
		{ "run", { "-iteA=1", "sh" }, "interactive tty env=A=1 [sh] " },
		{ "run", { "-w=/x", "sh" }, "workdir=/x [sh] " },
		{ "run", { "--dir=x", "sh" }, "dir=x [sh] " },
		{ "run", { "--env", "--keep", "sh" }, "env=--keep [sh] " },
		{ "run", { "-", "x" }, "[-] [x] " },
		{ "run", { "", "x" }, "[] [x] " },
		{ "run", { "--allow-host", "a.example", "--allow-host", "b.example", "x" },
			"allow-host=a.example allow-host=b.example [x] " },
		{ "run", { "--keep", "--keep", "x" }, "keep keep [x] " },
		{ "run", { "--backend", "ns", "x" }, "backend=ns [x] " },
		{ "run", { "--image", "alpine", "x" }, "image=alpine [x] " },
		{ "run", { "--help", "x" }, "HELP" },
		{ "run", { "-h" }, "HELP" },
		{ "run", { "x", "--help" }, "[x] [--help] " },
		{ "network log", { "name", "--json", "-n", "3", "-f" }, "[name] json limit=3 follow " },
		{ "network log", { "--", "--last" }, "[--last] " },
		/* wrong */
		{ "run", { "--profil", "x" }, "BAD" },
		{ "run", { "--profile", "loose", "x" }, "BAD" },
		{ "run", { "--profile=", "x" }, "BAD" },
		{ "run", { "--profile", "moderate|permissive", "x" }, "BAD" },
		{ "run", { "--profile" }, "BAD" },
		{ "run", { "--profile", "moderate", "--profile", "moderate" }, "profile=moderate BAD" },
		{ "run", { "--keep=yes", "x" }, "BAD" },
		{ "run", { "-x" }, "BAD" },
		{ "run", { "-ix" }, "interactive BAD" },
		{ "run", { "-e" }, "BAD" },
		{ "run", { "--image", "", "x" }, "BAD" },
		{ "run", { "--config=f.toml", "x" }, "config=f.toml [x] " },
		{ "run", { "--backend", "vm", "x" }, "backend=vm [x] " },
		{ "run", { "--backend=podman", "x" }, "backend=podman [x] " },
		{ "run", { "--dir=", "sh" }, "BAD" },
		{ "run", { "--workdir", "here", "sh" }, "BAD" },
		{ "run", { "--memory", "3M", "sh" }, "BAD" },
		{ "run", { "--timeout", "0", "sh" }, "BAD" },
		{ "run", { "-e", "=x", "sh" }, "BAD" },
		{ "network log", { "--last", "--limit", "0" }, "last BAD" },
		{ "network log", { "--last", "--since", "never" }, "last BAD" },
		{ "run", { "---", "x" }, "BAD" },
		{ "run", { "--=", "x" }, "BAD" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(vectors); i++) {
		const char *got = parse(vectors[i].name, vectors[i].words);

		if (strcmp(got, vectors[i].result) != 0)
			fail_msg("vector %zu (%s): '%s', not '%s'", i, vectors[i].words[0], got, vectors[i].result);
	}
}

static void the_command_follows_untouched(void **state)
{
	char *argv[] = { (char[]){ "run" }, (char[]){ "--keep" }, (char[]){ "sh" }, (char[]){ "-c" }, (char[]){ "--profile" },
		NULL };
	struct cmd_args a;
	const char *value;

	cmd_args_init(&a, cmd_row("run"), 5, argv);
	assert_true(cmd_next(&a, &value) >= 0);
	assert_int_equal(cmd_next(&a, &value), CMD_ARG);
	assert_ptr_equal(value, argv[2]);
	assert_ptr_equal(argv[a.at - 1], argv[2]);
	assert_int_equal(a.argc - (a.at - 1), 3);
}

static void the_value_of_a_variable_leaves_the_process_list(void **state)
{
	char *argv[] = { (char[]){ "run" }, (char[]){ "-eKEY=se=cret" }, (char[]){ "--env" }, (char[]){ "K=" }, (char[]){ "-e" },
		(char[]){ "HOME" }, (char[]){ "env" }, (char[]){ "A=B" }, NULL };
	static const char *const values[] = { "KEY=se=cret", "K=", "HOME" };
	struct cmd_args a;
	const char *value;

	cmd_args_init(&a, cmd_row("run"), 8, argv);
	for (size_t i = 0; i < ARRAY_SIZE(values); i++) {
		assert_true(cmd_next(&a, &value) >= 0);
		assert_string_equal(value, values[i]);
	}
	assert_string_equal(argv[1], "-eKEY=*******");
	assert_string_equal(argv[5], "HOME");
	assert_string_equal(argv[7], "A=B"); /* the command's own */
}

static void durations(void **state)
{
	static const struct {
		const char *text;
		long long ms; /* -1: refused */
	} vectors[] = {
		{ "0", 0 },
		{ "5", 5000 },
		{ "30s", 30000 },
		{ "10m", 600000 },
		{ "1h30m", 5400000 },
		{ "500ms", 500 },
		{ "1d", 86400000 },
		{ "1m500ms", 60500 },
		{ "1h0m1s", 3601000 },
		{ "", -1 },
		{ "s", -1 },
		{ "5x", -1 },
		{ "-5", -1 },
		{ "1m1h", -1 },
		{ "1m1m", -1 },
		{ "5 s", -1 },
		{ "1h30", -1 },
		{ "1.5h", -1 },
		{ "99999999999999999999s", -1 },
		{ "18446744073709551615h", -1 },
		{ "5S", -1 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(vectors); i++) {
		unsigned long long ms = 0;
		struct ak_err err = { "" };
		int rc = ak_parse_duration(vectors[i].text, &ms, &err);

		if ((rc < 0) != (vectors[i].ms < 0) || (rc == 0 && ms != (unsigned long long)vectors[i].ms))
			fail_msg("'%s': rc %d, %llu ms", vectors[i].text, rc, ms);
		assert_int_equal(rc < 0, err.text[0] != '\0');
	}
}

static void sizes(void **state)
{
	static const struct {
		const char *text;
		long long bytes; /* -1: refused */
	} vectors[] = {
		{ "0", 0 },
		{ "1", 1 },
		{ "512M", 512ll << 20 },
		{ "2G", 2ll << 30 },
		{ "1k", 1024 },
		{ "1KiB", 1024 },
		{ "1MB", 1 << 20 },
		{ "1T", 1ll << 40 },
		{ "7b", 7 },
		{ "", -1 },
		{ "M", -1 },
		{ "5X", -1 },
		{ "-1", -1 },
		{ "1.5G", -1 },
		{ "5 M", -1 },
		{ "5ib", -1 },
		{ "5MM", -1 },
		{ "99999999999T", -1 },
		{ "0x10", -1 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(vectors); i++) {
		unsigned long long bytes = 0;
		struct ak_err err;
		int rc = ak_parse_size(vectors[i].text, &bytes, &err);

		if ((rc < 0) != (vectors[i].bytes < 0) || (rc == 0 && bytes != (unsigned long long)vectors[i].bytes))
			fail_msg("'%s': rc %d, %llu bytes", vectors[i].text, rc, bytes);
	}
}

static void counts_and_points_in_time(void **state)
{
	unsigned long long n = 0;
	uint64_t us = 0;
	struct ak_err err;

	assert_int_equal(ak_parse_count("7", 1, 10, &n, &err), 0);
	assert_int_equal(n, 7);
	assert_int_equal(ak_parse_count("0", 1, 10, &n, &err), -ERANGE);
	assert_int_equal(ak_parse_count("11", 1, 10, &n, &err), -ERANGE);
	assert_int_equal(ak_parse_count("7x", 1, 10, &n, &err), -EINVAL);
	assert_int_equal(ak_parse_count("", 0, 10, &n, &err), -EINVAL);
	assert_int_equal(audit_parse_since("10m", 3600000000u, &us, &err), 0);
	assert_int_equal(us, 3000000000u);
	assert_int_equal(audit_parse_since("100d", 3600000000u, &us, &err), 0);
	assert_int_equal(us, 0);
	assert_int_equal(audit_parse_since("1970-01-01T00:00:07Z", 0, &us, &err), 0);
	assert_int_equal(us, 7000000);
	assert_int_equal(audit_parse_since("yesterday", 0, &us, &err), -EINVAL);
}

static void the_longest_name_wins(void **state)
{
	char *argv[] = { (char[]){ "audit" }, (char[]){ "verify" }, (char[]){ "x" } };
	int words = 0;

	assert_string_equal(cmd_match(3, argv, &words)->name, "audit verify");
	assert_int_equal(words, 2);
	assert_string_equal(cmd_match(1, argv, &words)->name, "audit");
	assert_int_equal(words, 1);
	assert_null(cmd_match(1, argv + 1, &words));
	assert_null(cmd_row("audit verif"));
	assert_true(cmd_is_group("network"));
	assert_false(cmd_is_group("net"));
	assert_false(cmd_is_group("run"));
}

static void what_was_mistyped_is_guessed(void **state)
{
	assert_string_equal(cmd_suggest("rnu"), "run");
	assert_string_equal(cmd_suggest("netwrk log"), "network log");
	assert_string_equal(cmd_suggest("verify"), "audit verify");
	assert_null(cmd_suggest("xyzzy"));
	assert_string_equal(cmd_suggest_opt(cmd_row("run"), "profil"), "profile");
	assert_string_equal(cmd_suggest_opt(cmd_row("run"), "compatability-mode"), "compatibility-mode");
	assert_string_equal(cmd_suggest_opt(cmd_row("run"), "imagee"), "image");
	assert_null(cmd_suggest_opt(cmd_row("run"), "xyzzy"));
}

/* ---- the table against what is made from it ---- */

static void every_row_is_well_formed(void **state)
{
	for (const struct cmd *c = cmd_table; c->name; c++) {
		assert_true(c->args && c->help && c->verb < VERB_NUM && c->run);
		field_each(u, c->verb, FIELD_CLI) {
			field_each(v, c->verb, FIELD_CLI) {
				if (v == u)
					break;
				assert_string_not_equal(field_table[v->id].option, field_table[u->id].option);
				assert_true(!field_table[u->id].letter || field_table[u->id].letter != field_table[v->id].letter);
			}
		}
	}
}

/* The man page writes "-" as "\-". */
static void man_form(const char *text, char *out, size_t size)
{
	size_t n = 0;

	for (; *text && n + 3 < size; text++) {
		if (*text == '-')
			out[n++] = '\\';
		out[n++] = *text;
	}
	out[n] = '\0';
}

static void the_man_page_names_every_command_and_option(void **state)
{
	_cleanup_free_ char *page = NULL;
	char want[128], text[160];

	assert_int_equal(ak_read_file(AT_FDCWD, AK_SOURCE_DIR "/gateway/agentkernel.1", 1 << 20, &page, NULL), 0);
	for (const struct cmd *c = cmd_table; c->name; c++) {
		/* A second spelling is named; the section is the first one's. */
		man_form(c->name, want, sizeof(want));
		snprintf(text, sizeof(text), "%s%s", c->alias_of ? "" : ".SS ", want);
		if (!strstr(page, text))
			fail_msg("no section '%s'", text);
		field_each(u, c->verb, FIELD_CLI) {
			if (field_table[u->id].never)
				continue;
			snprintf(text, sizeof(text), "--%s", field_table[u->id].option);
			man_form(text, want, sizeof(want));
			if (!strstr(page, want))
				fail_msg("%s: no %s", c->name, want);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(options_in_every_spelling),
		cmocka_unit_test(the_command_follows_untouched),
		cmocka_unit_test(the_value_of_a_variable_leaves_the_process_list),
		cmocka_unit_test(durations),
		cmocka_unit_test(sizes),
		cmocka_unit_test(counts_and_points_in_time),
		cmocka_unit_test(the_longest_name_wins),
		cmocka_unit_test(what_was_mistyped_is_guessed),
		cmocka_unit_test(every_row_is_well_formed),
		cmocka_unit_test(the_man_page_names_every_command_and_option),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
