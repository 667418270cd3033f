/* Words of a command line: options, sizes, durations, counts, and our own lines on stderr. See cmd.h. */
#include "gateway/cmd.h"

#include "gateway/audit.h"
#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/base/strbuf.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <string.h>
#include <strings.h>

/* ---- our own lines ---- */

void ak_say(const char *fmt, ...)
{
	_cleanup_strbuf_ struct strbuf out = { 0 };
	char text[2048];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	strbuf_puts(&out, "agentkernel: ");
	for (const unsigned char *p = (const unsigned char *)text; *p; p++) {
		/* C0, DEL, and C1 in its UTF-8 form: what could steer a terminal. */
		if (*p < 0x20 || *p == 0x7f)
			strbuf_printf(&out, "\\x%02x", *p);
		else if (*p == 0xc2 && p[1] >= 0x80 && p[1] < 0xa0)
			strbuf_printf(&out, "\\x%02x", *++p);
		else
			strbuf_putc(&out, (char)*p);
	}
	strbuf_putc(&out, '\n');
	if (!out.failed)
		ak_write_all(STDERR_FILENO, out.data, out.len);
}

int ak_flush(struct ak_err *err)
{
	int code;

	if (fflush(stdout) == 0 && !ferror(stdout))
		return 0;
	code = errno ? errno : EIO;
	__fpurge(stdout);
	clearerr(stdout);
	return ak_fail_errno(err, code, "cannot write the output");
}

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

/* ---- numbers ---- */

/* Digits at *P; false when there are none or they are too many. */
static bool take_digits(const char **p, unsigned long long *ret)
{
	const char *at = *p;
	unsigned long long value = 0;

	for (; *at >= '0' && *at <= '9'; at++) {
		if (__builtin_mul_overflow(value, 10ull, &value) ||
			__builtin_add_overflow(value, (unsigned long long)(*at - '0'), &value))
			return false;
	}
	if (at == *p)
		return false;
	*p = at;
	*ret = value;
	return true;
}

int ak_parse_count(const char *text, unsigned long long min, unsigned long long max, unsigned long long *ret, struct ak_err *err)
{
	const char *p = text;
	unsigned long long value;

	if (!take_digits(&p, &value) || *p)
		return ak_fail(err, EINVAL, "'%.100s' is not a whole number", text);
	if (value < min || value > max)
		return ak_fail(err, ERANGE, "%llu is not within %llu and %llu", value, min, max);
	*ret = value;
	return 0;
}

int ak_parse_size(const char *text, unsigned long long *ret_bytes, struct ak_err *err)
{
	static const char *const units[] = { "", "k", "m", "g", "t" };
	const char *p = text;
	unsigned long long value;

	if (!take_digits(&p, &value))
		return ak_fail(err, EINVAL, "'%.100s' is not a size (512M, 2G)", text);
	for (unsigned i = 0; i < ARRAY_SIZE(units); i++) {
		size_t len = strlen(units[i]);
		const char *rest = p + len;

		if (strncasecmp(p, units[i], len) != 0)
			continue;
		/* "M", "MB" and "MiB" mean the same here: 1024 times 1024. */
		if (*rest && strcasecmp(rest, "b") != 0 && !(len && !strcasecmp(rest, "ib")))
			continue;
		if (value > ~0ull >> (10 * i))
			return ak_fail(err, ERANGE, "'%.100s' is too large", text);
		*ret_bytes = value << (10 * i);
		return 0;
	}
	return ak_fail(err, EINVAL, "'%.100s' is not a size (512M, 2G)", text);
}

/* The milliseconds of the unit at *P, which is stepped over; 0 when there is none. */
static unsigned long long take_unit(const char **p)
{
	static const struct {
		const char *name;
		unsigned long long ms;
	} units[] = { { "ms", 1 }, { "s", 1000 }, { "m", 60000 }, { "h", 3600000 }, { "d", 86400000 } };

	for (size_t i = 0; i < ARRAY_SIZE(units); i++) {
		size_t len = strlen(units[i].name);

		if (!strncmp(*p, units[i].name, len)) {
			*p += len;
			return units[i].ms;
		}
	}
	return 0;
}

int ak_parse_duration(const char *text, unsigned long long *ret_ms, struct ak_err *err)
{
	unsigned long long total = 0, value, unit, last = ~0ull;
	const char *p = text;

	do {
		if (!take_digits(&p, &value))
			return ak_fail(err, EINVAL, "'%.100s' is not a duration (30s, 10m, 1h30m)", text);
		unit = total == 0 && last == ~0ull && !*p ? 1000 : take_unit(&p);
		if (unit == 0 || unit >= last)
			return ak_fail(err, EINVAL, "'%.100s' is not a duration (30s, 10m, 1h30m)", text);
		if (__builtin_mul_overflow(value, unit, &value) || __builtin_add_overflow(total, value, &total))
			return ak_fail(err, ERANGE, "'%.100s' is too long", text);
		last = unit;
	} while (*p);
	*ret_ms = total;
	return 0;
}

int ak_parse_since(const char *text, uint64_t now_us, uint64_t *ret_us, struct ak_err *err)
{
	unsigned long long ms;
	struct ak_err ignored;

	if (audit_time_parse(text, ret_us) == 0)
		return 0;
	if (ak_parse_duration(text, &ms, &ignored) < 0)
		return ak_fail(err, EINVAL, "'%.100s' is neither a duration (10m) nor a time (2026-01-02T03:04:05Z)", text);
	*ret_us = ms < now_us / 1000 ? now_us - ms * 1000 : 0;
	return 0;
}
