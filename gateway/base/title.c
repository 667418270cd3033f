/* The words on the stack that /proc/PID/cmdline reads: see title.h. */
#include "gateway/base/title.h"

#include <stddef.h>
#include <string.h>

static char *area; /* the words, one after the other */
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
	/* The kernel shows all of it when its last octet is 0, and else only what stands before the first. */
	area[area_len - 1] = ' ';
}
