/*
 * Versions that the caller chose with mise: see store/plan_parts.h.
 *
 * A shim of mise looks them up in mise's configuration, which may also hold variables with keys and thus stays outside. Of its [tools] we pass on the lines
 * that are plain versions (node = "22", go = ["1.24", "1.25"]) and nothing else.
 */
#include "gateway/store/plan_parts.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/base/strbuf.h"
#include "gateway/project/gitconf.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#define LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
#define FILE_MAX (64u << 10)

/* Whether LINE is NAME = "VERSION" or NAME = ["VERSION", …]; an address, which may hold a password, is neither. */
static bool is_version(const char *line)
{
	size_t name = strspn(line, LETTERS "_.:/@\"' \t-");
	const char *value = line + name + 1;

	return name && line[name] == '=' && !strstr(line, "://") && *value && !value[strspn(value, LETTERS "_.:+\"', \t[]-")];
}

static void put_tools(char *text, struct strbuf *out)
{
	bool tools = false;
	char *line, *save = NULL;

	for (line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		size_t len;

		line += strspn(line, " \t");
		len = strcspn(line, "#\r");
		while (len && strchr(" \t", line[len - 1]))
			len--;
		line[len] = '\0';
		if (line[0] == '[')
			tools = !strcmp(line, "[tools]");
		else if (tools && is_version(line))
			strbuf_printf(out, "%s\n", line);
	}
}

static char *read_config(void)
{
	const char *config = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
	char path[PATH_MAX];

	if (config && config[0] == '/' ? ak_path_join(path, config, "mise/config.toml", NULL) < 0
				       : !home || ak_path_join(path, home, ".config/mise/config.toml", NULL) < 0)
		return NULL;
	return gitconf_read(AT_FDCWD, path, 0, FILE_MAX);
}

int plan_mise(struct run_plan *plan)
{
	_cleanup_strbuf_ struct strbuf out = { 0 };
	_cleanup_free_ char *text = plan->tools.mise ? read_config() : NULL;

	if (!text)
		return 0;
	strbuf_puts(&out, "[tools]\n");
	put_tools(text, &out);
	if (out.failed)
		return -ENOMEM;
	if (out.len >= sizeof(plan->mise))
		return 0;
	memcpy(plan->mise, out.data, out.len + 1);
	plan_add_file(plan, "/etc/mise/config.toml", plan->mise,
		"the versions that you chose with mise, and nothing else of its configuration");
	return 0;
}
