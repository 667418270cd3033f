/* Starting a program whose output we read: see spawn.h. */
#include "gateway/base/spawn.h"

#include "gateway/base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern char **environ;

static const char *system_path(void)
{
#ifdef AK_SABOTAGE_NOSYSTEMPATH
	return getenv("PATH");
#endif
	return SPAWN_SYSTEM_PATH;
}

bool spawn_find(const char *name, char ret[static PATH_MAX])
{
	for (const char *at = system_path(); *at;) {
		int len = (int)strcspn(at, ":");

		if (snprintf(ret, PATH_MAX, "%.*s/%s", len, at, name) < PATH_MAX && access(ret, X_OK) == 0)
			return true;
		at += len + (at[len] == ':');
	}
	return false;
}

char **spawn_env(void)
{
	static char path[] = "PATH=" SPAWN_SYSTEM_PATH;
	size_t n = 0, kept = 0;
	char **list;

	while (environ && environ[n])
		n++;
	list = calloc(n + 2, sizeof(*list));
	for (size_t i = 0; list && i < n; i++) {
		if (strncmp(environ[i], "PATH=", 5) != 0)
			list[kept++] = environ[i];
	}
	if (list)
		list[kept] = path;
	return list;
}

int spawn_piped(const char *program, char *const argv[], const char *dir, char *const env[], enum spawn_read what, pid_t *ret_pid)
{
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attr;
	int fds[2], rc;

	if (pipe2(fds, O_CLOEXEC) < 0)
		return -errno;
	posix_spawn_file_actions_init(&actions);
	posix_spawnattr_init(&attr);
	posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETPGROUP);
	posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_adddup2(&actions, fds[1], 1);
	if (what == SPAWN_OUTPUT_AND_ERRORS)
		posix_spawn_file_actions_adddup2(&actions, fds[1], 2);
	else
		posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
	if (dir)
		posix_spawn_file_actions_addchdir_np(&actions, dir);
	rc = posix_spawn(ret_pid, program, &actions, &attr, argv, env ? env : environ);
	posix_spawn_file_actions_destroy(&actions);
	posix_spawnattr_destroy(&attr);
	ak_close(fds[1]);
	if (rc == 0)
		return fds[0];
	ak_close(fds[0]);
	return -rc;
}
