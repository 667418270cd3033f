/* Values of git's configuration files: see project/gitconf.h. */
#include "gateway/project/gitconf.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"

#include <ctype.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

char *gitconf_read(int dir, const char *name, int flags, size_t max)
{
	_cleanup_free_ char *text = NULL;
	_cleanup_close_ int fd = openat(dir, name, O_RDONLY | O_NONBLOCK | O_CLOEXEC | flags);
	struct stat st;
	ssize_t n;

	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size <= 0 || (uint64_t)st.st_size > max)
		return NULL;
	text = calloc(1, max + 1);
	n = text ? ak_pread_all(fd, text, max, 0) : -1;
	if (n <= 0 || memchr(text, '\0', (size_t)n))
		return NULL;
	while (n > 0 && isspace((unsigned char)text[n - 1]))
		text[--n] = '\0';
	return TAKE(text);
}

/* Join lines that end with a backslash with the next one. */
static void join_lines(char *text)
{
	char *to = text;

	for (const char *from = text; *from; from++) {
		if (from[0] == '\\' && from[1] == '\n')
			from++;
		else
			*to++ = *from;
	}
	*to = '\0';
}

/* What a backslash and C stand for. */
static char unescape(char c)
{
	return c == 'n' ? '\n' : c == 't' ? '\t' : c == 'b' ? '\b' : c;
}

/* Extract a value from the rest of its line TEXT: remove quotes, comment and trailing white space. */
static char *plain_value(char *text)
{
	char *to = text, *end = text; /* END: after the last character that is not white space */
	bool quoted = false;

	for (const char *from = text; *from && (quoted || !strchr("#;", *from)); from++) {
		if (*from == '"') {
			quoted = !quoted;
			continue;
		}
		if (*from == '\\' && from[1])
			*to++ = unescape(*++from);
		else
			*to++ = *from;
		if (quoted || !strchr(" \t\r", *from))
			end = to;
	}
	*end = '\0';
	return text;
}

/* The rest of the line after a section header; a quoted name in the header may contain brackets. */
static char *skip_header(char *line)
{
	bool quoted = false;

	for (; *line && (quoted || *line != ']'); line++) {
		if (*line == '\\' && line[1])
			line++;
		else if (*line == '"')
			quoted = !quoted;
	}
	return line + strspn(line, "] \t");
}

const char *gitconf_next(struct gitconf_scan *c)
{
	size_t len = strlen(c->key), n = strlen(c->section);

	if (!c->started)
		join_lines(c->text);
	for (char *line; (line = strtok_r(c->started ? NULL : c->text, "\n", &c->save));) {
		c->started = true;
		line += strspn(line, " \t");
		if (line[0] == '[') {
			c->here = !strncasecmp(line + 1, c->section, n) && (c->prefix || line[1 + n] == ']');
			line = skip_header(line);
		}
		if (!c->here || strncasecmp(line, c->key, len) != 0)
			continue;
		line += len + strspn(line + len, " \t");
		if (line[0] == '=')
			return plain_value(line + 1 + strspn(line + 1, " \t"));
	}
	c->started = true;
	return NULL;
}

const char *gitconf_value(char *text, const char *section, const char *key)
{
	struct gitconf_scan c = { .text = text, .section = section, .key = key };
	const char *found = NULL;

	for (const char *value; (value = gitconf_next(&c));)
		found = value;
	return found;
}
