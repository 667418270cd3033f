/*
 * A scope of the user's service manager for this process: see cgroup.h.
 *
 * In a login session nobody may make groups: the session's own belongs to root. The user's systemd makes a transient scope on request, and moves a process of
 * the same user into it. busctl sends that one message, so that nothing of D-Bus is in this program; it runs only when a limit is asked for and no group
 * could be made without it.
 */
#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "vmctl/cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define BUSCTL "/usr/bin/busctl" /* by its path: what is on PATH may be of a past run */
#define MOVED_MS 2000 /* the manager answers before it has moved the process */
#define LOOK_MS 2

extern char **environ;

static bool manager_runs(void)
{
	const char *runtime = getenv("XDG_RUNTIME_DIR");
	char path[4096];

	return runtime && snprintf(path, sizeof(path), "%s/bus", runtime) < (int)sizeof(path) && access(path, F_OK) == 0 &&
		access(BUSCTL, X_OK) == 0;
}

/* Start BUSCTL with ARGV and wait for its end; true if it succeeded. */
static bool call(char *const argv[])
{
	posix_spawn_file_actions_t files;
	int status = -1;
	pid_t pid;

	if (posix_spawn_file_actions_init(&files) != 0)
		return false;
	for (int fd = 0; fd <= 2; fd++)
		posix_spawn_file_actions_addopen(&files, fd, "/dev/null", fd ? O_WRONLY : O_RDONLY, 0);
	if (posix_spawn(&pid, BUSCTL, &files, NULL, argv, environ) == 0) {
		while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
			;
	}
	posix_spawn_file_actions_destroy(&files);
	return status == 0;
}

static bool is_in(const char *scope)
{
	_cleanup_free_ char *text = NULL;

	return ak_read_file(AT_FDCWD, "/proc/self/cgroup", 1 << 16, &text, NULL) == 0 && strstr(text, scope);
}

bool scope_enter(void)
{
	static bool tried;
	char scope[64], pid[16];
	char *argv[] = { "busctl", "--user", "--quiet", "--timeout=5", "call", "org.freedesktop.systemd1",
		"/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager", "StartTransientUnit", "ssa(sv)a(sa(sv))", scope,
		"fail", "3", "PIDs", "au", "1", pid, "Delegate", "b", "true", "CollectMode", "s", "inactive-or-failed", "0",
		NULL };

	if (tried || !manager_runs())
		return false;
	tried = true;
	snprintf(pid, sizeof(pid), "%d", (int)getpid());
	snprintf(scope, sizeof(scope), "agentkernel-%s.scope", pid);
	if (!call(argv))
		return false;
	for (uint64_t until = ak_now_ms() + MOVED_MS; !is_in(scope); poll(NULL, 0, LOOK_MS)) {
		if (ak_now_ms() >= until)
			return false;
	}
	return true;
}
