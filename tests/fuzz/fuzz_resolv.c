/* resolv.conf is the host's, yet anyone may have written it: what is taken from it are addresses of servers, each of which reads back. */
#include "gateway/base/addr.h"
#include "gateway/base/cleanup.h"
#include "gateway/host/resolv.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_server(char *text)
{
	char *end = text[0] == '[' ? strchr(text, ']') : strrchr(text, ':');
	char *host = text[0] == '[' ? text + 1 : text, *zone;
	struct ak_addr addr;

	if (!end)
		abort();
	*end = '\0';
	zone = strchr(host, '%');
	if (zone)
		*zone = '\0';
	if (ak_addr_parse(host, &addr) < 0)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_free_ char *text = strndup((const char *)data, size);
	char csv[512], small[24];

	if (!text)
		return 0;
	(void)resolv_parse(text, small, sizeof(small));
	if (resolv_parse(text, csv, sizeof(csv)) < 0)
		return 0;
	for (char *save = NULL, *word = strtok_r(csv, ",", &save); word; word = strtok_r(NULL, ",", &save))
		check_server(word);
	return 0;
}
