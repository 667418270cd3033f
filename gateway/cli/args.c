/* Option parsing and shared output helpers. See cli/cmd.h. */
#include "gateway/cli/cmd.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/base/strbuf.h"
#include "gateway/base/table.h"
#include "gateway/log/audit.h"
#include "gateway/run/tty.h"
#include "gateway/store/plan.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

/* ---- output ---- */

int ak_log_end(uint64_t corrupt, int rc, const struct ak_err *err)
{
	if (corrupt > 0)
		ak_say("skipped %llu damaged lines; run 'agentkernel audit verify' to check the logs",
			(unsigned long long)corrupt);
	if (rc >= 0 || rc == -EPIPE)
		return 0;
	ak_say("%s", err->text);
	return AK_EXIT_ERROR;
}

int cmd_print_json(const cJSON *obj)
{
	char *text = isatty(STDOUT_FILENO) ? cJSON_Print(obj) : cJSON_PrintUnformatted(obj);

	if (!text) {
		ak_say("out of memory");
		return AK_EXIT_ERROR;
	}
	puts(text);
	cJSON_free(text);
	return 0;
}

bool cmd_ask(const char *question)
{
	char answer[16] = "";

	fflush(stdout);
	fprintf(stderr, "agentkernel: %s [y/N] ", question);
	fflush(stderr);
	if (!fgets(answer, sizeof(answer), stdin))
		return false;
	answer[strcspn(answer, "\r\n")] = '\0';
	return !strcmp(answer, "y") || !strcmp(answer, "yes") || !strcmp(answer, "Y");
}

bool cmd_on_terminal(void)
{
	return isatty(STDIN_FILENO) && isatty(STDERR_FILENO);
}

int cmd_agree(const char *command, bool yes, const char *question, const char *does)
{
	if (yes)
		return 0;
	if (cmd_on_terminal())
		return cmd_ask(question) ? 0 : AK_EXIT_ERROR;
	ak_say("%s: there is no terminal to ask on; --yes %s", command, does);
	return AK_EXIT_USAGE;
}

void cmd_print_lines(const char *text)
{
	_cleanup_strbuf_ struct strbuf out = { 0 };

	while (*text) {
		size_t len = strcspn(text, "\n\t");

		strbuf_shown(&out, text, len);
		text += len;
		if (*text)
			strbuf_putc(&out, *text++);
	}
	if (!out.failed && out.len)
		fwrite(out.data, 1, out.len, stdout);
}

int cmd_print_json_text(const struct strbuf *text)
{
	_cleanup_json_ cJSON *obj = NULL;
	struct ak_err err;

	if (text->failed) {
		ak_say("out of memory");
		return AK_EXIT_ERROR;
	}
	if (isatty(STDOUT_FILENO) && json_parse(text->data, text->len, &obj, &err) == 0)
		return cmd_print_json(obj);
	fwrite(text->data, 1, text->len, stdout);
	putchar('\n');
	return 0;
}

int cmd_print_table(struct table *t, const char *hint)
{
	bool none = t->n == 0;
	int rc = none && ak_look_at(stdout).width ? 0 : table_print(t, stdout, false);

	table_done(t);
	if (rc < 0) {
		ak_say("out of memory");
		return AK_EXIT_ERROR;
	}
	if (none) {
		fflush(stdout);
		ak_say("%s", hint);
	}
	return 0;
}

/* ---- options ---- */

int cmd_parsed(int rc, const struct ak_err *err)
{
	if (rc == CMD_HELP)
		return 1;
	if (rc >= 0)
		return 0;
	if (err->text[0])
		ak_say("%s", err->text);
	return 1 + AK_EXIT_USAGE;
}

void cmd_args_init(struct cmd_args *a, const struct cmd *cmd, int argc, char **argv)
{
	*a = (struct cmd_args){ .cmd = cmd, .argc = argc, .argv = argv, .at = 1 };
}

static int bad(const struct cmd_args *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static int bad(const struct cmd_args *a, const char *fmt, ...)
{
	char text[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	ak_say("%s: %s", a->cmd->name, text);
	ak_say("see 'agentkernel %s --help'", a->cmd->name);
	return CMD_BAD;
}

/*
 * Return a copy of "K=V" and overwrite the value in argv with asterisks, because every user of the host can read the arguments of a process. The copy
 * is never freed. The value is visible for a moment before this runs; giving K alone avoids that.
 */
static const char *hide_value(const char *value)
{
	const char *at = strchr(value, '=');
	char *copy = at ? strdup(value) : NULL;

	if (copy)
		memset((char *)(uintptr_t)at + 1, '*', strlen(at + 1)); /* argv is writable */
	return copy ? copy : value;
}

/* How output looks is the same for every command: --color and --utc take effect here. */
static void apply_look(enum field_id id, const char *value)
{
	if (id == FIELD_COLOR)
		ak_color_choose(!strcmp(value, "always")  ? AK_COLOR_ALWAYS
				: !strcmp(value, "never") ? AK_COLOR_NEVER
							  : AK_COLOR_AUTO);
	if (id == FIELD_UTC && setenv("TZ", "UTC0", 1) == 0)
		tzset();
}

/* Read the option U. VALUE is the text after '=' or after the letter, or NULL when there is none. */
static int take_option(struct cmd_args *a, const struct field_use *u, const char *value, const char **ret)
{
	const struct field *f = &field_table[u->id];
	struct ak_err err;

	if (!field_arg(f) && value)
		return bad(a, "--%s takes no value", f->option);
	if (field_arg(f) && !value) {
		if (a->at >= a->argc)
			return bad(a, "--%s needs a value: %s", f->option, field_arg(f));
		value = a->argv[a->at++];
	}
	if (a->seen[u->id] && field_arg(f) && !field_repeats(f))
		return bad(a, "--%s given twice", f->option);
	a->seen[u->id] = true;
	if (f->secret)
		value = hide_value(value);
	if (field_parse(f, FIELD_CLI, value, &a->given[u->id], &err) < 0)
		return bad(a, "%s", err.text);
	apply_look(u->id, value);
	*ret = value;
	return (int)u->id;
}

static int give_help(const struct cmd_args *a)
{
	cmd_print_help(a->cmd, stdout);
	return CMD_HELP;
}

static int next_long(struct cmd_args *a, const char *word, const char **ret)
{
	size_t len = strcspn(word, "=");
	const struct field_use *u = field_find(a->cmd->verb, FIELD_CLI, word, len);
	const char *value = word[len] ? word + len + 1 : NULL, *near;
	char name[64];

	if (u)
		return take_option(a, u, value, ret);
	if (!strcmp(word, "help"))
		return give_help(a);
	snprintf(name, sizeof(name), "%.*s", (int)(len < sizeof(name) ? len : sizeof(name) - 1), word);
	near = cmd_suggest_opt(a->cmd, name);
	if (near)
		return bad(a, "unknown option '--%s'; did you mean '--%s'?", name, near);
	return bad(a, "unknown option '--%s'", name);
}

/* Read one letter of a->group. The rest of the group is its value, or more letters. */
static int next_letter(struct cmd_args *a, const char **ret)
{
	char c = *a->group++;

	field_each(u, a->cmd->verb, FIELD_CLI) {
		const struct field *f = &field_table[u->id];
		const char *value = NULL;

		if (f->letter != c)
			continue;
		if (field_arg(f) && *a->group) {
			value = a->group + (*a->group == '=');
			a->group = NULL;
		}
		return take_option(a, u, value, ret);
	}
	if (c == 'h')
		return give_help(a);
	return bad(a, "unknown option '-%c'", c);
}

int cmd_next(struct cmd_args *a, const char **value)
{
	const char *word;

	*value = NULL;
	if (a->group && *a->group)
		return next_letter(a, value);
	a->group = NULL;
	if (a->at >= a->argc)
		return CMD_END;
	word = a->argv[a->at++];
	if (!a->only_operands && !strcmp(word, "--")) {
		a->only_operands = true;
		if (a->at >= a->argc)
			return CMD_END;
		word = a->argv[a->at++];
	} else if (!a->only_operands && word[0] == '-' && word[1] == '-') {
		return next_long(a, word + 2, value);
	} else if (!a->only_operands && word[0] == '-' && word[1]) {
		a->group = word + 1;
		return next_letter(a, value);
	}
	if (++a->n_operands == a->cmd->command_follows)
		a->only_operands = true;
	*value = word;
	return CMD_ARG;
}

int cmd_read_into(struct cmd_args *a, const char *command, int argc, char **argv, struct run_request *o, const char **ret,
	size_t max, size_t *ret_n)
{
	struct ak_err err;
	const char *value;
	size_t n = 0;
	int rc;

	cmd_args_init(a, cmd_row(command), argc, argv);
	while ((!n || n != a->cmd->command_follows) && (rc = cmd_next(a, &value)) != CMD_END) {
		if (rc == CMD_ARG && n == max)
			rc = max ? bad(a, "unexpected '%.100s'", value) : bad(a, "takes no arguments: '%.100s'", value);
		else if (rc >= 0 && o && field_set(o, &field_table[rc], FIELD_CLI, &a->given[rc], &err) < 0)
			rc = bad(a, "%s", err.text);
		if (rc == CMD_BAD || rc == CMD_HELP)
			return 1 + (rc == CMD_BAD ? AK_EXIT_USAGE : 0);
		if (rc == CMD_ARG)
			ret[n++] = value;
	}
	if (ret_n)
		*ret_n = n;
	return 0;
}

int cmd_read(struct cmd_args *a, const char *command, int argc, char **argv, const char **ret, size_t max, size_t *ret_n)
{
	return cmd_read_into(a, command, argc, argv, NULL, ret, max, ret_n);
}

int cmd_choose_tty(const char *command, const struct run_request *o, bool *ret_tty)
{
	if (o->tty && (o->no_tty || o->json)) {
		ak_say("%s: --tty and --%s exclude each other", command, o->json ? "json" : "no-tty");
		return 1 + AK_EXIT_USAGE;
	}
	*ret_tty = o->tty || (!o->no_tty && !o->json && tty_in_front());
	return 0;
}
