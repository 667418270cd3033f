/* A real run of this program in folders of its own. See doctor/internal.h. */
#include "gateway/doctor/internal.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RUN_MS 20000
#define OPTIONS_MAX 12

extern char **environ;

static size_t count(char *const *list)
{
	size_t n = 0;

	while (list[n])
		n++;
	return n;
}

/* Our environment with other folders; free() the list. */
static char **environment(char *state, char *runtime)
{
	char **env = calloc(count(environ) + 3, sizeof(*env));
	size_t n = 0;

	if (!env)
		return NULL;
	env[n++] = state;
	env[n++] = runtime;
	for (char **e = environ; *e; e++) {
		if (strncmp(*e, "XDG_STATE_HOME=", 15) != 0 && strncmp(*e, "XDG_RUNTIME_DIR=", 16) != 0)
			env[n++] = *e;
	}
	return env;
}

/* Cut OUT to its first line, without the prefix that all our lines have. */
static void keep_first_line(char *out)
{
	static const char prefix[] = "agentkernel: ";

	out[strcspn(out, "\n")] = '\0';
	if (strncmp(out, prefix, sizeof(prefix) - 1) == 0)
		memmove(out, out + sizeof(prefix) - 1, strlen(out) - sizeof(prefix) + 2);
}

static int run(char *const options[], const char *dir, char *out)
{
	static char self[] = "/proc/self/exe", word[] = "run", end[] = "--", command[] = "true";
	char state[PATH_MAX + 32], runtime[PATH_MAX + 32], *argv[OPTIONS_MAX + 5] = { self, word };
	_cleanup_free_ char **env = NULL;
	size_t n = 2;

	snprintf(state, sizeof(state), "XDG_STATE_HOME=%s", dir);
	snprintf(runtime, sizeof(runtime), "XDG_RUNTIME_DIR=%s", dir);
	env = environment(state, runtime);
	if (!env)
		return -ENOMEM;
	while (*options && n < OPTIONS_MAX + 2)
		argv[n++] = *options++;
	argv[n++] = end;
	argv[n] = command;
	return doctor_capture(argv, dir, env, RUN_MS, out, DOCTOR_OUT_MAX);
}

bool doctor_try(char *const options[], char out[static DOCTOR_OUT_MAX])
{
	const char *tmp = getenv("TMPDIR");
	char dir[PATH_MAX];
	int rc;

	out[0] = '\0';
	if (snprintf(dir, sizeof(dir), "%s/agentkernel-doctor-XXXXXX", tmp && tmp[0] == '/' ? tmp : "/tmp") >= (int)sizeof(dir) ||
		!mkdtemp(dir)) {
		snprintf(out, DOCTOR_OUT_MAX, "cannot make a folder in '%s': %s", tmp ? tmp : "/tmp", strerror(errno));
		return false;
	}
	rc = run(options, dir, out);
	(void)ak_remove_tree(AT_FDCWD, dir);
	if (rc == -ETIME)
		snprintf(out, DOCTOR_OUT_MAX, "it did not end within %d s", RUN_MS / 1000);
	else if (rc < 0)
		snprintf(out, DOCTOR_OUT_MAX, "cannot start it: %s", strerror(-rc));
	keep_first_line(out);
	return rc == 0;
}
