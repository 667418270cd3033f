/* The command's own process, from fork to exec. */
#include "vmctl/internal.h"

#include "gateway/base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { EXIT_FAILED = 125, EXIT_NOT_EXECUTABLE = 126, EXIT_NOT_FOUND = 127 };

static const char *path_variable(char *const *envp)
{
	for (; *envp; envp++) {
		if (!strncmp(*envp, "PATH=", 5))
			return *envp + 5;
	}
	return "/usr/local/bin:/usr/bin:/bin";
}

/* execve that treats a folder as not executable, as shells do. -errno; does not return when it works. */
static int try_exec(const char *path, char *const *argv, char *const *envp)
{
	struct stat st;
	int rc;

	execve(path, argv, envp);
	rc = -errno;
	if (rc == -EACCES && stat(path, &st) == 0 && S_ISDIR(st.st_mode))
		rc = -EISDIR;
	return rc;
}

/* As execvpe, but never by way of a shell. EACCES anywhere on the path is remembered when nothing else is found. */
static int exec_search(const char *file, char *const *argv, char *const *envp)
{
	const char *dir = path_variable(envp);
	int seen = -ENOENT;

	while (dir) {
		const char *end = strchrnul(dir, ':');
		char path[PATH_MAX];
		int rc = -ENAMETOOLONG;

		if (snprintf(path, sizeof(path), "%.*s%s%s", (int)(end - dir), dir, end == dir ? "" : "/", file) < (int)sizeof(path))
			rc = try_exec(path, argv, envp);
		if (rc == -EACCES || rc == -EISDIR)
			seen = -EACCES;
		else if (rc != -ENOENT && rc != -ENOTDIR && rc != -ENAMETOOLONG && rc != -ELOOP)
			return rc;
		dir = *end ? end + 1 : NULL;
	}
	return seen;
}

static _Noreturn void exec_failed(int ctl, const char *file, int rc)
{
	struct ak_err err;

	switch (rc) {
	case -ENOENT:
	case -ENOTDIR:
		if (strchr(file, '/') && access(file, F_OK) == 0)
			ak_fail(&err, ENOENT, "cannot run '%s': its interpreter does not exist in the sandbox", file);
		else
			ak_fail(&err, ENOENT, "command not found: '%s'", file);
		sb_child_fail(ctl, EXIT_NOT_FOUND, &err);
	case -EACCES:
		ak_fail(&err, EACCES, "permission denied: '%s' is not executable", file);
		sb_child_fail(ctl, EXIT_NOT_EXECUTABLE, &err);
	case -EISDIR:
		ak_fail(&err, EISDIR, "'%s' is a folder", file);
		sb_child_fail(ctl, EXIT_NOT_EXECUTABLE, &err);
	case -ENOEXEC:
		ak_fail(&err, ENOEXEC, "cannot run '%s': neither a program for this machine nor a script with a '#!' line", file);
		sb_child_fail(ctl, EXIT_NOT_EXECUTABLE, &err);
	default:
		ak_fail_errno(&err, -rc, "cannot run '%s'", file);
		sb_child_fail(ctl, EXIT_NOT_EXECUTABLE, &err);
	}
}

/* A stream that the caller did not have is the null device, so that no file opened later takes its number. */
static int stream(int fd, int number)
{
	int copy = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 10);

	if (copy < 0)
		copy = open("/dev/null", (number == 0 ? O_RDONLY : O_WRONLY) | O_CLOEXEC);
	if (copy >= 0 && copy < 10) {
		int high = fcntl(copy, F_DUPFD_CLOEXEC, 10);

		ak_close(copy);
		copy = high;
	}
	return copy;
}

/* First out of the way, then into place: the given numbers may be 0, 1 and 2 in any order. */
static int place_streams(const struct sb_ctx *ctx, int tty_slave, int *ctl)
{
	int copies[3];

	for (int i = 0; i < 3; i++) {
		copies[i] = stream(ctx->spec->tty ? tty_slave : ctx->spec->stdio[i], i);
		if (copies[i] < 0)
			return -errno;
	}
	*ctl = fcntl(ctx->ctl, F_DUPFD_CLOEXEC, 10);
	if (*ctl < 0)
		return -errno;
	for (int i = 0; i < 3; i++) {
		if (dup2(copies[i], i) < 0)
			return -errno;
	}
	return 0;
}

static void default_signals(void)
{
	struct sigaction sa = { .sa_handler = SIG_DFL };
	sigset_t none;

	/* exec resets handlers by itself, but what the caller ignores would stay ignored. */
	for (int sig = 1; sig < 32; sig++)
		sigaction(sig, &sa, NULL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

/* A missing folder is an error when it was asked for, and "/" when it is only the home. */
static void enter_workdir(const struct sb_ctx *ctx, int ctl)
{
	const char *dir = ctx->spec->workdir ? ctx->spec->workdir : ctx->spec->home;
	struct ak_err err;

	if (!dir || chdir(dir) == 0)
		return;
	if (ctx->spec->workdir) {
		ak_fail_errno(&err, errno, "working folder '%s' in the sandbox", dir);
		sb_child_fail(ctl, EXIT_FAILED, &err);
	}
	(void)!chdir("/");
}

_Noreturn void sb_exec_command(const struct sb_ctx *ctx, int tty_slave)
{
	char *const *argv = ctx->spec->argv;
	struct ak_err err;
	int ctl = ctx->ctl, rc;

	setsid();
	if (ctx->spec->tty && ioctl(tty_slave, TIOCSCTTY, 0) < 0) {
		ak_fail_errno(&err, errno, "controlling terminal");
		sb_child_fail(ctl, EXIT_FAILED, &err);
	}
	rc = place_streams(ctx, tty_slave, &ctl);
	if (rc < 0) {
		ak_fail_errno(&err, -rc, "standard streams");
		sb_child_fail(ctl, EXIT_FAILED, &err);
	}
	enter_workdir(ctx, ctl);
	default_signals();
	if (!argv[0] || !argv[0][0])
		exec_failed(ctl, argv[0] ? argv[0] : "", -ENOENT);
	if (strchr(argv[0], '/'))
		rc = try_exec(argv[0], argv, ctx->spec->envp);
	else
		rc = exec_search(argv[0], argv, ctx->spec->envp);
	exec_failed(ctl, argv[0], rc);
}
