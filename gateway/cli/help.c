/* help and version. All help text comes from the command and field tables. */
#include "gateway/base/sabotage.h"
#include "gateway/cli/cmd.h"

#include "gateway/base/cleanup.h"

#include <stdio.h>
#include <string.h>
#include <sys/param.h>

/* The width of TEXT in columns: count characters, not bytes. */
static int text_width(const char *text)
{
	int n = 0;

	for (; *text; text++)
		n += (*text & 0xc0) != 0x80;
	return n;
}

/* Write "-e, --env K=V" to BUF and return its width. */
static int opt_text(const struct field *f, char *buf, size_t size)
{
	const char *arg = field_arg(f);
	char letter[8] = "    ";

	if (f->letter)
		snprintf(letter, sizeof(letter), "-%c, ", f->letter);
	snprintf(buf, size, "%s--%s%s%s", letter, f->option, arg ? " " : "", arg ? arg : "");
	return text_width(buf);
}

static void print_opt(const struct field *f, int width, FILE *out)
{
	_cleanup_strbuf_ struct strbuf words = { 0 };
	char text[160];
	int used = opt_text(f, text, sizeof(text));

	field_words(&words, f, FIELD_CLI);
	if (used > width)
		fprintf(out, "  %s\n  %*s", text, width, "");
	else
		fprintf(out, "  %s%*s", text, width - used, "");
	fprintf(out, "  %s%s\n", words.data ? words.data : "", field_repeats(f) ? "; may be repeated" : "");
}

void cmd_print_help(const struct cmd *cmd, FILE *out)
{
	static const struct field help = { .option = "help", .letter = 'h', .help = "print this" };
	char text[160];
	int width = opt_text(&help, text, sizeof(text));

	fprintf(out, "Usage: agentkernel %s [OPTIONS]%s%s\n\n%s\n\nOptions:\n", cmd->name, cmd->args[0] ? " " : "", cmd->args,
		cmd->help);
	field_each(u, cmd->verb, FIELD_CLI) {
		if (!field_absent(&field_table[u->id]))
			width = MAX(width, MIN(opt_text(&field_table[u->id], text, sizeof(text)), 32));
	}
	field_each(u, cmd->verb, FIELD_CLI) {
		if (!field_absent(&field_table[u->id]))
			print_opt(&field_table[u->id], width, out);
	}
	print_opt(&help, width, out);
}

void cmd_print_overview(const char *group, FILE *out)
{
	size_t len = group ? strlen(group) : 0;

	fprintf(out, "Usage: agentkernel %s%sCOMMAND [OPTIONS] [ARGS…]\n\n", group ? group : "", group ? " " : "");
	if (!group)
		fprintf(out, "Run a command in a sandbox whose whole network passes through a policy gateway.\n\n");
	fprintf(out, "Commands:\n");
	for (const struct cmd *c = cmd_table; c->name; c++) {
		/* The help of a group lists aliases; the overview does not. */
		if ((!c->alias_of || group) &&
			(!group || (!strncmp(c->name, group, len) && (c->name[len] == ' ' || !c->name[len]))))
			fprintf(out, "  %-16s  %s\n", c->name, c->help);
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
	struct cmd_args a;
	int rc = cmd_read(&a, "version", argc, argv, NULL, 0, NULL);
	bool json = a.seen[FIELD_JSON];

	if (rc)
		return rc - 1;
	if (sabotage_switches())
		printf(json ? "{\"version\":\"%s\",\"sabotaged\":\"%s\"}\n" : "agentkernel %s SABOTAGED (%s)\n", AK_VERSION,
			sabotage_switches());
	else
		printf(json ? "{\"version\":\"%s\"}\n" : "agentkernel %s\n", AK_VERSION);
	return 0;
}
