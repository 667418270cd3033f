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

const char *gitconf_value(char *text, const char *section, const char *key)
{
	const char *found = NULL;
	size_t len = strlen(key), n = strlen(section);
	bool here = false;
	char *save = NULL;

	join_lines(text);
	for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		line += strspn(line, " \t");
		if (line[0] == '[') {
			here = !strncasecmp(line + 1, section, n) && line[1 + n] == ']';
			line += strcspn(line, "]");
			line += strspn(line, "] \t");
		}
		if (!here || strncasecmp(line, key, len) != 0)
			continue;
		line += len + strspn(line + len, " \t");
		if (line[0] == '=')
			found = plain_value(line + 1 + strspn(line + 1, " \t"));
	}
	return found;
}
