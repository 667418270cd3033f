/* logs NAME: what the command of a run in the background printed. */
#include "gateway/cli/cmd.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/log/follow.h"
#include "gateway/service/service.h"
#include "gateway/store/rundir.h"
#include "gateway/store/runs.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define TICK_MS 250

static int copy(int fd, struct ak_err *err)
{
	char buf[65536];
	ssize_t n;

	while ((n = read(fd, buf, sizeof(buf))) > 0) {
		int rc = ak_write_all(STDOUT_FILENO, buf, (size_t)n);

		if (rc < 0)
			return rc == -EPIPE ? rc : ak_fail_errno(err, -rc, "output");
	}
	return n < 0 ? ak_fail_errno(err, errno, "output") : 0;
}

/* The file stays open while the sandbox's folder becomes that of a past run. */
static int print(const struct ak_paths *paths, const char *dir, bool follow, struct ak_err *err)
{
	_cleanup_close_ int folder = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), fd = -1;
	struct ak_follow f = { -1 };
	bool ended;
	int rc;

	fd = folder < 0 ? -1 : openat(folder, RUNDIR_OUTPUT, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 && errno == ENOENT)
		return ak_fail(err, ENOENT, "only a run with --detach stores its output");
	if (fd < 0)
		return ak_fail_errno(err, errno, "%s/" RUNDIR_OUTPUT, dir);
	if (follow)
		ak_follow_init(&f, dir);
	do {
		ended = !follow || service_ended(paths, dir);
		rc = copy(fd, err);
		if (rc == 0 && !ended)
			ak_follow_wait(&f, TICK_MS);
	} while (rc == 0 && !ended);
	ak_follow_done(&f);
	return rc;
}

int cmd_logs(int argc, char **argv)
{
	char whole[AK_NAME_MAX], dir[PATH_MAX];
	const char *name = NULL;
	struct ak_paths paths;
	struct cmd_args a;
	struct ak_err err;
	size_t n = 0;
	int rc = cmd_read(&a, "logs", argc, argv, &name, 1, &n);

	if (rc)
		return rc - 1;
	if (n == 0) {
		ak_say("logs: no run given; see 'agentkernel list -a'");
		return AK_EXIT_USAGE;
	}
	rc = ak_paths_init(&paths, &err);
	if (rc == 0)
		rc = runs_resolve(&paths, &name, whole, &err);
	if (rc == 0)
		rc = runs_dir(&paths, name, dir, &err);
	if (rc == 0)
		rc = print(&paths, dir, a.seen[FIELD_FOLLOW], &err);
	if (rc == 0 || rc == -EPIPE)
		return 0;
	ak_say("logs: %s", err.text);
	return AK_EXIT_ERROR;
}
