/* help and version. All help text comes from the command and field tables. */
#include "gateway/base/sabotage.h"
#include "gateway/cli/cmd.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/table.h"

#include <stdio.h>
#include <string.h>
#include <sys/param.h>

#define HELP_WIDTH 80
#define OPTIONS_MAX 28 /* columns for the names of options; longer ones have a line of their own */

/* Write "-e, --env K=V" to BUF and return its width. */
static int opt_text(const struct field *f, char *buf, size_t size)
{
	const char *arg = field_arg(f);
	char letter[8] = "    ";

	if (f->letter)
		snprintf(letter, sizeof(letter), "-%c, ", f->letter);
	snprintf(buf, size, "%s--%s%s%s", letter, f->option, arg ? " " : "", arg ? arg : "");
	return ak_columns(buf);
}

/* Help wraps in a pipe too: people read it there, in a pager. */
static int help_width(FILE *out)
{
	int width = ak_look_at(out).width;

	return width ? width : HELP_WIDTH;
}

static void print_opt(const struct field *f, int width, FILE *out)
{
	_cleanup_strbuf_ struct strbuf words = { 0 };
	char text[160];
	int used = opt_text(f, text, sizeof(text)), at = width + 4;

	field_words(&words, f, FIELD_CLI);
	strbuf_puts(&words, field_repeats(f) ? "; may be repeated" : "");
	if (used > width)
		fprintf(out, "  %s\n%*s", text, at, "");
	else
		fprintf(out, "  %s%*s", text, width - used + 2, "");
	ak_wrap(out, words.data ? words.data : "", at, at, help_width(out));
	fputc('\n', out);
}

static void print_examples(const struct cmd *cmd, FILE *out)
{
	const char *const *lines = cmd_examples(cmd->alias_of ? cmd->alias_of : cmd->name);

	if (lines)
		fputs("\nExamples:\n", out);
	for (; lines && *lines; lines++)
		fprintf(out, "  agentkernel %s\n", *lines);
}

void cmd_print_help(const struct cmd *cmd, FILE *out)
{
	static const struct field help = { .option = "help", .letter = 'h', .help = "print this" };
	char text[160];
	int width = opt_text(&help, text, sizeof(text));

	fprintf(out, "Usage: agentkernel %s [OPTIONS]%s%s\n\n", cmd->name, cmd->args[0] ? " " : "", cmd->args);
	ak_wrap(out, cmd->help, 0, 0, help_width(out));
	fputs("\n\nOptions:\n", out);
	field_each(u, cmd->verb, FIELD_CLI) {
		if (!field_table[u->id].never)
			width = MAX(width, MIN(opt_text(&field_table[u->id], text, sizeof(text)), OPTIONS_MAX));
	}
	field_each(u, cmd->verb, FIELD_CLI) {
		if (!field_table[u->id].never)
			print_opt(&field_table[u->id], width, out);
	}
	print_opt(&help, width, out);
	print_examples(cmd, out);
}

static void print_command(const struct cmd *c, FILE *out)
{
	fprintf(out, "  %-16s  ", c->name);
	ak_wrap(out, c->help, 20, 20, help_width(out));
	fputc('\n', out);
}

void cmd_print_overview(const char *group, FILE *out)
{
	size_t len = group ? strlen(group) : 0;

	fprintf(out, "Usage: agentkernel %s%sCOMMAND [OPTIONS] [ARGS…]\n\n", group ? group : "", group ? " " : "");
	if (!group) {
		ak_wrap(out, "Run a command in a sandbox whose whole network passes through a policy gateway.", 0, 0,
			help_width(out));
		fputs("\n\n", out);
	}
	fprintf(out, "Commands:\n");
	for (const struct cmd *c = cmd_table; c->name; c++) {
		/* The help of a group lists aliases; the overview does not. */
		if ((!c->alias_of || group) &&
			(!group || (!strncmp(c->name, group, len) && (c->name[len] == ' ' || !c->name[len]))))
			print_command(c, out);
	}
	fprintf(out, "\n'agentkernel COMMAND --help' describes a command.\n");
}

int cmd_help(int argc, char **argv)
{
	struct cmd_args a;
	const char *value;
	char *words[3];
	int n = 0, rc, matched;
	const struct cmd *cmd;

	cmd_args_init(&a, cmd_row("help"), argc, argv);
	while ((rc = cmd_next(&a, &value)) != CMD_END) {
		if (rc == CMD_BAD)
			return AK_EXIT_USAGE;
		if (rc == CMD_HELP)
			return 0;
		if (n < (int)ARRAY_SIZE(words))
			words[n++] = argv[a.at - 1];
	}
	if (n == 0) {
		cmd_print_overview(NULL, stdout);
		return 0;
	}
	cmd = cmd_match(n, words, &matched);
	if (cmd && matched == n) {
		cmd_print_help(cmd, stdout);
	} else if (n == 1 && cmd_is_group(words[0])) {
		cmd_print_overview(words[0], stdout);
	} else {
		ak_say("help: unknown command '%s%s%s'", words[0], n > 1 ? " " : "", n > 1 ? words[1] : "");
		return AK_EXIT_USAGE;
	}
	return 0;
}

int cmd_version(int argc, char **argv)
{
	_cleanup_strbuf_ struct strbuf out = { 0 };
	const char *broken = sabotage_switches();
	struct cmd_args a;
	int rc = cmd_read(&a, "version", argc, argv, NULL, 0, NULL);

	if (rc)
		return rc - 1;
	if (a.seen[FIELD_JSON]) {
		strbuf_printf(&out, "{\"version\":\"%s\"", AK_VERSION);
		if (broken)
			strbuf_printf(&out, ",\"sabotaged\":\"%s\"", broken);
		strbuf_putc(&out, '}');
		return cmd_print_json_text(&out);
	}
	printf("agentkernel %s", AK_VERSION);
	if (broken)
		printf(" SABOTAGED (%s)", broken);
	putchar('\n');
	return 0;
}
