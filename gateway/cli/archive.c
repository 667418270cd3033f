/* Archives for `cp`: see cli/archive.h. */
#include "gateway/cli/archive.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/base/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

int archive_open(struct archive *a, const struct ak_paths *paths, struct ak_err *err)
{
	int rc = ak_mkdir_p(paths->state, 0700);

	a->dir = -1;
	if (rc == 0)
		rc = ak_path_join(a->path, paths->state, "cp-XXXXXX", NULL);
	if (rc < 0 || !mkdtemp(a->path)) {
		rc = rc < 0 ? rc : -errno;
		a->path[0] = '\0';
		return ak_fail_errno(err, -rc, "%s", paths->state);
	}
	a->dir = open(a->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return a->dir < 0 ? ak_fail_errno(err, errno, "%s", a->path) : 0;
}

void archive_done(struct archive *a)
{
	a->dir = ak_close(a->dir);
	if (a->path[0])
		(void)ak_remove_tree(AT_FDCWD, a->path);
}

/* A signal that ends us ends tar as well: it is in our process group, or we forward the signal. */
static int wait_for(pid_t pid, struct ak_err *err)
{
	int status;

	while (waitpid(pid, &status, 0) < 0) {
		if (errno != EINTR)
			return ak_fail_errno(err, errno, "tar");
		kill(pid, SIGTERM);
	}
	if (WIFSIGNALED(status))
		return ak_fail(err, WTERMSIG(status) == SIGPIPE ? EPIPE : EINTR, "tar was ended by signal %d", WTERMSIG(status));
	if (WEXITSTATUS(status))
		return ak_fail(err, EIO, "tar failed with exit code %d", WEXITSTATUS(status));
	return 0;
}

static int run_tar(char *const argv[], struct ak_err *err)
{
	_cleanup_free_ char **env = spawn_env();
	char program[PATH_MAX];
	pid_t pid;
	int rc;

	if (!spawn_find(argv[0], program))
		return ak_fail(err, ENOENT, "%s was not found in the system's folders of programs; install it", argv[0]);
	rc = env ? posix_spawn(&pid, program, NULL, NULL, argv, env) : ENOMEM;
	if (rc)
		return ak_fail(err, rc, "cannot run tar: %s", strerror(rc));
	return wait_for(pid, err);
}

int archive_unpack(const struct archive *a, struct ak_err *err)
{
	static char tar[] = "tar", how[] = "-xpof", in[] = "-", at[] = "-C";
	char *const argv[] = { tar, how, in, at, (char *)a->path, NULL };

	if (isatty(STDIN_FILENO))
		return ak_fail(err, EINVAL,
			"stdin is a terminal; pipe a tar archive into it: tar c FOLDER | agentkernel cp - NAME:/path");
	return run_tar(argv, err);
}

int archive_pack(const struct archive *a, const char *name, struct ak_err *err)
{
	static char tar[] = "tar", how[] = "-cf", out[] = "-", at[] = "-C", end[] = "--";
	char *const argv[] = { tar, how, out, at, (char *)a->path, end, (char *)name, NULL };

	return run_tar(argv, err);
}
