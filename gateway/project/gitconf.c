/* Values of git's configuration files: see project/gitconf.h. */
#include "gateway/project/gitconf.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"

#include <ctype.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
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
	text = calloc(1, (size_t)st.st_size + 1);
	n = text ? ak_pread_all(fd, text, (size_t)st.st_size, 0) : -1;
	if (n <= 0 || memchr(text, '\0', (size_t)n))
		return NULL;
	while (n > 0 && isspace((unsigned char)text[n - 1]))
		text[--n] = '\0';
	return TAKE(text);
}

/* The length of the line break at TEXT; 0 if there is none. */
static size_t break_len(const char *text)
{
	return text[0] == '\n' ? 1 : text[0] == '\r' && text[1] == '\n' ? 2 : 0;
}

/* Join lines that end with a backslash with the next one. Comments, up to the end of their line, have no such lines. */
static void join_lines(char *text)
{
	const char *from = text + (!strncmp(text, "\xef\xbb\xbf", 3) ? 3 : 0); /* the byte order mark, which git skips */
	bool quoted = false, comment = false;
	char *to = text;

	while (*from) {
		bool escape = *from == '\\' && from[1] && !comment;

		if (escape && break_len(from + 1)) {
			from += 1 + break_len(from + 1);
			continue;
		}
		if (escape)
			*to++ = *from++;
		else if (*from == '\n')
			quoted = comment = false;
		else if (*from == '"' && !comment)
			quoted = !quoted;
		else if (strchr("#;", *from) && !quoted)
			comment = true;
		*to++ = *from++;
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

bool gitconf_each(struct gitconf_scan *c, struct gitconf_entry *ret)
{
	if (!c->started)
		join_lines(c->text);
	for (char *line; (line = strtok_r(c->started ? NULL : c->text, "\n", &c->save));) {
		size_t n = 0;
		char *at;

		c->started = true;
		line += strspn(line, " \t\r");
		while (line[0] == '[') { /* a line may have several headers */
			size_t len = strcspn(line + 1, " \t\".]");

			snprintf(c->name, sizeof(c->name), "%.*s", (int)len, line + 1);
			c->plain = line[1 + len] == ']';
			line = skip_header(line);
		}
		while (isalnum((unsigned char)line[n]) || line[n] == '-')
			n++;
		at = line + n + strspn(line + n, " \t");
		if (n == 0 || *at != '=')
			continue;
		*ret = (struct gitconf_entry){ c->name, line, plain_value(at + 1 + strspn(at + 1, " \t")), c->plain };
		line[n] = '\0';
		return true;
	}
	c->started = true;
	return false;
}

const char *gitconf_value(char *text, const char *section, const char *key)
{
	struct gitconf_scan c = { .text = text };
	struct gitconf_entry e;
	const char *found = NULL;

	while (gitconf_each(&c, &e)) {
		if (e.plain && !strcasecmp(e.section, section) && !strcasecmp(e.key, key))
			found = e.value;
	}
	return found;
}
