/*
 * Programs that a small script of the user hands over to, by a line "exec NAME …": see project/tools_internal.h.
 *
 * Tool managers and package managers leave such scripts on PATH (asdf, deno, pnpm). Only plain names and absolute paths count: what a variable would say is not
 * known here.
 */
#include "gateway/project/tools_internal.h"

#include "gateway/base/cleanup.h"
#include "gateway/project/gitconf.h"
#include "gateway/project/project.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SCRIPT_MAX 4096 /* bytes; a longer one is a program of its own */
#define TARGETS_MAX 2 /* for each script */

static bool is_shell(const char *interpreter)
{
	static const char *const names[] = { "sh", "bash", "dash", "ksh", "zsh" };
	const char *slash = strrchr(interpreter, '/');

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		if (!strcmp(slash ? slash + 1 : interpreter, names[i]))
			return true;
	}
	return false;
}

/* The word after "exec" at the start of LINE, which it ends with a NUL; NULL if there is none, or if the shell would change it. */
static const char *target_of(char *line)
{
	char *word = line + strspn(line, " \t");
	char quote;

	if (strncmp(word, "exec", 4) != 0 || !word[4] || !strchr(" \t", word[4]))
		return NULL;
	word += 4 + strspn(word + 4, " \t");
	quote = *word == '"' || *word == '\'' ? *word++ : '\0';
	word[strcspn(word, quote ? (char[]){ quote, '\0' } : " \t;&|<>")] = '\0';
	if (!*word || *word == '-' || strpbrk(word, "$`\\*?[~\"'"))
		return NULL;
	return word[0] == '/' || !strchr(word, '/') ? word : NULL;
}

static int add_target(struct finder *f, const char *script, const char *target, unsigned depth)
{
	char found[PATH_MAX], real[PATH_MAX], why[NAME_MAX + 64];

	if (target[0] == '/' ? snprintf(found, sizeof(found), "%s", target) >= (int)sizeof(found)
			     : !tools_look_up(f->ask->path, target, found))
		return 0;
	if (!realpath(found, real) || !strcmp(real, script))
		return 0;
	snprintf(why, sizeof(why), "program that %.200s runs", strrchr(script, '/') + 1);
	return tools_add_program(f, found, why, depth + 1);
}

/* asdf chooses the version by this file if the project has none. */
static int add_versions(struct finder *f, const char *script)
{
	char path[PATH_MAX], real[PATH_MAX];
	int rc;

	if (!strstr(script, "/.asdf/shims/") || !f->home[0] ||
		snprintf(path, sizeof(path), "%s/.tool-versions", f->home) >= (int)sizeof(path) || !realpath(path, real) ||
		strcmp(path, real) != 0)
		return 0;
	rc = tools_add(f, TOOL_FILE, path, strlen(path), NULL, "the versions that you chose with asdf");
	return rc > 0 ? 0 : rc;
}

int tools_add_targets(struct finder *f, const char *script, const char *interpreter, unsigned depth)
{
	bool read = is_shell(interpreter) && !tools_in_system(script); /* a script of the system runs what the system has */
	_cleanup_free_ char *text = read ? gitconf_read(AT_FDCWD, script, O_NOFOLLOW, SCRIPT_MAX) : NULL;
	char *line, *save = NULL;
	unsigned n = 0;
	int rc = text ? add_versions(f, script) : 0;

	for (line = text ? strtok_r(text, "\n", &save) : NULL; line && rc == 0 && n < TARGETS_MAX;
		line = strtok_r(NULL, "\n", &save)) {
		const char *target = target_of(line);

		if (target) {
			rc = add_target(f, script, target, depth);
			n++;
		}
	}
	return rc;
}
