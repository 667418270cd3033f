/*
 * This program once more: see ipc/spawn.h.
 *
 * Theory of operation. Two children in a row, both in our memory and with our table of descriptors until the second executes, while we wait: nothing is
 * copied, however much we hold. The second takes a table of its own that ends at a place reserved early, where the descriptor for it lies, and
 * executes; the first ends at once, so that the second is nobody's child. Between clone and exec there are only system calls.
 */
#include "gateway/ipc/spawn.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <sched.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define STACK_SIZE 65536
#define SHARED (CLONE_VM | CLONE_VFORK | CLONE_FILES | SIGCHLD)

struct birth {
	char *const *argv; /* borrowed */
	int error; /* what kept the program from running */
	_Alignas(16) char stack[2][STACK_SIZE];
};

static struct reserve {
	int null, place; /* owned, for the life of the process; PLACE is the highest descriptor that a child keeps */
} reserve = { -1, -1 };

static int prepare(void)
{
	if (reserve.null < 0)
		reserve.null = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (reserve.place < 0 && reserve.null >= 0)
		reserve.place = fcntl(reserve.null, F_DUPFD_CLOEXEC, SPAWN_FD);
	return reserve.place < 0 ? -errno : 0;
}

void spawn_prepare(void)
{
	(void)prepare(); /* what fails now is told by the first that needs it */
}

/* Descriptors below the place, but for what is already ours to keep, close themselves when the program is executed. */
static int execute(void *ctx)
{
	struct birth *b = ctx;

	if (close_range((unsigned)reserve.place + 1, ~0u, CLOSE_RANGE_UNSHARE) < 0)
		goto failed;
	for (int fd = 0; fd < SPAWN_FD; fd++) {
		if (dup2(reserve.null, fd) < 0)
			goto failed;
	}
	/* A descriptor that is in its place already needs its flag taken off; a copy has none. */
	if (reserve.place == SPAWN_FD ? fcntl(SPAWN_FD, F_SETFD, 0) < 0 : dup2(reserve.place, SPAWN_FD) < 0)
		goto failed;
	execve("/proc/self/exe", b->argv, environ);
failed:
	b->error = errno;
	return 1;
}

static int leave(void *ctx)
{
	struct birth *b = ctx;

	setsid();
	if (clone(execute, b->stack[1] + STACK_SIZE, SHARED, b) < 0)
		b->error = errno;
	return 0;
}

/* No handler may run in memory that is not its process's own. */
static pid_t clone_quietly(struct birth *b)
{
	sigset_t all, before;
	pid_t pid;
	int e;

	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, &before);
	pid = clone(leave, b->stack[0] + STACK_SIZE, SHARED, b);
	e = errno;
	sigprocmask(SIG_SETMASK, &before, NULL);
	return pid < 0 ? -e : pid;
}

int spawn_detached(char *const argv[], int fd, struct ak_err *err)
{
	static struct birth b; /* too large for a stack; one at a time */
	int rc = prepare();
	pid_t pid;

	if (rc < 0 || dup3(fd, reserve.place, O_CLOEXEC) < 0)
		return ak_fail_errno(err, rc < 0 ? -rc : errno, "descriptor for a new process");
	b.argv = argv;
	b.error = 0;
	pid = clone_quietly(&b);
	dup3(reserve.null, reserve.place, O_CLOEXEC); /* an end that stays open here would never be seen to close */
	if (pid < 0)
		return ak_fail_errno(err, -pid, "new process");
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	return b.error ? ak_fail_errno(err, b.error, "starting this program once more") : 0;
}

static void settle(void)
{
	sigset_t none;

	for (int sig = 1; sig < NSIG; sig++)
		signal(sig, SIG_DFL);
	signal(SIGPIPE, SIG_IGN);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	umask(077);
	(void)!chdir("/");
}

void spawn_settle(void)
{
	settle();
	fcntl(SPAWN_FD, F_SETFD, FD_CLOEXEC);
}

static _Noreturn void become(void (*fn)(void *ctx), void *ctx, const int *keep, size_t n)
{
	settle();
	ak_close_others(keep, n);
	fn(ctx);
	_exit(0);
}

pid_t spawn_child(void (*fn)(void *ctx), void *ctx, const int *keep, size_t n, struct ak_err *err)
{
	pid_t pid = fork();

	if (pid == 0)
		become(fn, ctx, keep, n);
	return pid < 0 ? ak_fail_errno(err, errno, "fork") : pid;
}

int spawn_fork(void (*fn)(void *ctx), void *ctx, const int *keep, size_t n, struct ak_err *err)
{
	pid_t pid = fork();
	int status = 0;

	if (pid < 0)
		return ak_fail_errno(err, errno, "fork");
	if (pid == 0) {
		setsid();
		pid = fork();
		if (pid != 0)
			_exit(pid < 0 ? 1 : 0);
		become(fn, ctx, keep, n);
	}
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return status == 0 ? 0 : ak_fail(err, EAGAIN, "fork: no more processes");
}
