/* Start a daemon: open its log, fork its process, wait until it serves or fails. See daemon/daemon.h. */
#include "gateway/daemon/internal.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/base/title.h"
#include "gateway/ipc/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOG_MAX (1 << 20)

struct start {
	const struct ak_paths *paths;
	const struct daemon_conf *conf;
	int ready; /* write end of a pipe: READY_FD of daemon_serve */
};

int daemon_log_path(const struct ak_paths *paths, char ret[static PATH_MAX])
{
	return ak_path_join(ret, paths->runtime, "daemon.log", NULL);
}

void daemon_log_open(const struct ak_paths *paths)
{
	char path[PATH_MAX];
	struct stat st;
	int fd;

	if (ak_mkdir_p(paths->runtime, 0700) < 0 || daemon_log_path(paths, path) < 0)
		return;
	fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return;
	if (fstat(fd, &st) == 0 && st.st_size > LOG_MAX)
		(void)!ftruncate(fd, 0);
	dup2(fd, STDERR_FILENO);
	ak_close(fd);
}

uint64_t daemon_log_bytes(void)
{
	struct stat st;

	return fstat(STDERR_FILENO, &st) == 0 && S_ISREG(st.st_mode) ? (uint64_t)st.st_size : 0;
}

static void daemon_process(void *ctx)
{
	const struct start *s = ctx;
	struct ak_err err;
	int rc;

	prctl(PR_SET_NAME, "ak-daemon");
	ak_title_set("agentkernel daemon");
	daemon_log_open(s->paths);
	rc = daemon_serve(s->paths, s->conf, -1, s->ready, &err);
	if (rc < 0) {
		(void)!write(s->ready, &rc, sizeof(rc));
		(void)!write(s->ready, err.text, strlen(err.text));
		_exit(1);
	}
}

static int read_outcome(int fd, struct ak_err *err)
{
	char text[AK_ERR_MAX];
	int code = 0;
	ssize_t n = read(fd, &code, sizeof(code));

	if (n != sizeof(code))
		return ak_fail(err, EPIPE, "it ended before it was ready");
	if (code == 0)
		return 0;
	n = read(fd, text, sizeof(text) - 1);
	text[n > 0 ? n : 0] = '\0';
	return ak_fail(err, -code, "%s", text);
}

/* With RET_PID the daemon is our child, otherwise it is detached. */
static int start(const struct ak_paths *paths, const struct daemon_conf *conf, pid_t *ret_pid, struct ak_err *err)
{
	struct start s = { .paths = paths, .conf = conf };
	int fds[2], rc;

	if (pipe2(fds, O_CLOEXEC) < 0)
		return ak_fail_errno(err, errno, "pipe");
	s.ready = fds[1];
	if (ret_pid)
		rc = *ret_pid = spawn_child(daemon_process, &s, &s.ready, 1, err);
	else
		rc = spawn_fork(daemon_process, &s, &s.ready, 1, err);
	ak_close(fds[1]);
	if (rc >= 0)
		rc = read_outcome(fds[0], err);
	ak_close(fds[0]);
	return rc;
}

int daemon_spawn(const struct ak_paths *paths, const struct daemon_conf *conf, struct ak_err *err)
{
	return start(paths, conf, NULL, err);
}

int daemon_spawn_child(const struct ak_paths *paths, const struct daemon_conf *conf, pid_t *ret_pid, struct ak_err *err)
{
	return start(paths, conf, ret_pid, err);
}
