/* The argument strings on the stack, which /proc/PID/cmdline shows: see title.h. */
#include "gateway/base/title.h"

#include <stddef.h>
#include <string.h>

static char *area; /* the argument strings, one after the other */
static size_t area_len;

void ak_title_init(int argc, char **argv)
{
	char *end;

	if (argc < 1)
		return;
	area = argv[0];
	end = area;
	for (int i = 0; i < argc && argv[i] == end; i++)
		end += strlen(argv[i]) + 1;
	area_len = (size_t)(end - area);
}

void ak_title_set(const char *text)
{
	size_t len = strlen(text);

	if (area_len < 2)
		return;
	memset(area, 0, area_len);
	memcpy(area, text, len < area_len - 1 ? len : area_len - 2);
	/* If the last octet is 0, the kernel shows the whole area; otherwise only the text before the first NUL. */
	area[area_len - 1] = ' ';
}
