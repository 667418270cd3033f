/* Parse the options of a command line, and print what a command answers. See cli/cmd.h. */
#include "gateway/cli/cmd.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/base/strbuf.h"
#include "gateway/log/audit.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <string.h>
#include <strings.h>

/* ---- output ---- */

int ak_log_end(uint64_t corrupt, int rc, const struct ak_err *err)
{
	if (corrupt > 0)
		ak_say("%llu damaged lines were left out; see 'agentkernel audit verify'", (unsigned long long)corrupt);
	if (rc >= 0 || rc == -EPIPE)
		return 0;
	ak_say("%s", err->text);
	return AK_EXIT_ERROR;
}

int cmd_print_json(const cJSON *obj)
{
	char *text = cJSON_Print(obj);

	if (!text) {
		ak_say("out of memory");
		return AK_EXIT_ERROR;
	}
	puts(text);
	cJSON_free(text);
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

/* Is the LEN letters at WORD one of "a|b|c"? */
static bool in_choice(const char *choice, const char *word, size_t len)
{
	while (len && choice) {
		size_t n = strcspn(choice, "|");

		if (n == len && !memcmp(choice, word, n))
			return true;
		choice = choice[n] ? choice + n + 1 : NULL;
	}
	return false;
}

/* "a|b|c" without the words of MISSING, for people: "a, b, c". */
static const char *choice_text(const struct cmd_opt *o, char *buf, size_t size)
{
	size_t used = 0;

	buf[0] = '\0';
	for (const char *p = o->arg; p && used < size;) {
		size_t n = strcspn(p, "|");

		if (!in_choice(o->missing, p, n))
			used += (size_t)snprintf(buf + used, size - used, "%s%.*s", used ? ", " : "", (int)n, p);
		p = p[n] ? p + n + 1 : NULL;
	}
	return buf;
}

static int check_value(const struct cmd_args *a, const struct cmd_opt *o, const char *value)
{
	char words[256];

	if (!strchr(o->arg, '|'))
		return 0;
	if (!in_choice(o->arg, value, strlen(value)))
		return bad(a, "--%s: '%s' is not one of: %s", o->name, value, choice_text(o, words, sizeof(words)));
	if (in_choice(o->missing, value, strlen(value)))
		return bad(a, "--%s %s is not available in this version; available: %s", o->name, value,
			choice_text(o, words, sizeof(words)));
	return 0;
}

/*
 * "K=V" as a copy that lives as long as the process, and asterisks in its place: any user of the host can read the words of every process. There is a
 * moment before this, so the better way is K alone.
 */
static const char *hide_value(const char *value)
{
	const char *at = strchr(value, '=');
	char *copy = at ? strdup(value) : NULL;

	if (copy)
		memset((char *)(uintptr_t)at + 1, '*', strlen(at + 1)); /* the words are ours to write */
	return copy ? copy : value;
}

/* Option I was found, VALUE stands behind '=' (or in the rest of a group) or is NULL. */
static int take_option(struct cmd_args *a, int i, const char *value, const char **ret)
{
	const struct cmd_opt *o = &a->cmd->opts[i];
	int rc;

	if (o->missing && !strcmp(o->missing, "*"))
		return bad(a, "--%s is not available in this version", o->name);
	if (!o->arg && value)
		return bad(a, "--%s takes no value", o->name);
	if (o->arg && !value) {
		if (a->at >= a->argc)
			return bad(a, "--%s needs a value: %s", o->name, o->arg);
		value = a->argv[a->at++];
	}
	assert((size_t)i < sizeof(a->seen));
	if (a->seen[i] && o->arg && !o->repeat)
		return bad(a, "--%s given twice", o->name);
	if (a->seen[i] < 255)
		a->seen[i]++;
	rc = o->arg ? check_value(a, o, value) : 0;
	if (rc < 0)
		return rc;
	*ret = o->secret ? hide_value(value) : value;
	return i;
}

static int give_help(const struct cmd_args *a)
{
	cmd_print_help(a->cmd, stdout);
	return CMD_HELP;
}

static int next_long(struct cmd_args *a, const char *word, const char **ret)
{
	size_t len = strcspn(word, "=");
	const char *value = word[len] ? word + len + 1 : NULL, *near;
	char name[64];

	for (int i = 0; a->cmd->opts[i].name; i++) {
		if (strlen(a->cmd->opts[i].name) == len && !memcmp(a->cmd->opts[i].name, word, len))
			return take_option(a, i, value, ret);
	}
	if (!strcmp(word, "help"))
		return give_help(a);
	snprintf(name, sizeof(name), "%.*s", (int)(len < sizeof(name) ? len : sizeof(name) - 1), word);
	near = cmd_suggest_opt(a->cmd, name);
	if (near)
		return bad(a, "unknown option '--%s'; did you mean '--%s'?", name, near);
	return bad(a, "unknown option '--%s'", name);
}

/* One letter of a->group; what follows it is its value or more letters. */
static int next_letter(struct cmd_args *a, const char **ret)
{
	char c = *a->group++;

	for (int i = 0; a->cmd->opts[i].name; i++) {
		const struct cmd_opt *o = &a->cmd->opts[i];
		const char *value = NULL;

		if (o->letter != c)
			continue;
		if (o->arg && *a->group) {
			value = a->group + (*a->group == '=');
			a->group = NULL;
		}
		return take_option(a, i, value, ret);
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
	if (a->cmd->command_follows)
		a->only_operands = true;
	*value = word;
	return CMD_ARG;
}
