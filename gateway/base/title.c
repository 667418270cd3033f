/*
 * The argument strings on the stack, which /proc/PID/cmdline shows: see title.h.
 *
 * The kernel shows the arguments as they are. If their last byte is not NUL, it shows the text from their beginning up to the first NUL, even where that
 * lies in the variables, which follow the arguments in memory (proc(5)). That needs no privilege.
 */
#include "gateway/base/title.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static char *area; /* the argument strings, one after the other */
static size_t area_len, room; /* the room includes the variables that were moved away */

void ak_title_init(int argc, char **argv)
{
	char *end;

	if (argc < 1)
		return;
	area = argv[0];
	end = area;
	for (int i = 0; i < argc && argv[i] == end; i++)
		end += strlen(argv[i]) + 1;
	area_len = room = (size_t)(end - area);
}

/* Move the variable that begins where our room ends to the heap. */
static bool move_variable(void)
{
	for (char **e = environ; e && *e; e++) {
		char *copy = *e == area + room ? strdup(*e) : NULL;

		if (!copy)
			continue;
		room += strlen(copy) + 1;
		*e = copy;
		return true;
	}
	return false;
}

void ak_title_set(const char *fmt, ...)
{
	char text[AK_TITLE_MAX];
	size_t len;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	len = strlen(text);
	if (area_len < 2)
		return;
	while (room < len + 1 && move_variable())
		;
	if (room < len + 1)
		len = area_len < len + 1 ? area_len - 2 : len;
	memset(area, 0, room);
	memcpy(area, text, len);
	if (len < area_len)
		area[area_len - 1] = ' '; /* not NUL: only the text before the first NUL is shown */
}
