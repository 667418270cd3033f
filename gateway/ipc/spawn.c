/*
 * Re-exec this program as a detached process: see ipc/spawn.h.
 *
 * Theory of operation. Two nested children share our memory and descriptor table until the second one calls exec, while we
 * wait: nothing is copied, however much we hold. The second child unshares a descriptor table that ends at a slot reserved
 * early, which holds its descriptor, and calls exec; the first exits at once, so that init adopts the second. Between clone
 * and exec there are only system calls.
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

struct spawn_state {
	char *const *argv; /* borrowed */
	int error; /* errno if exec failed */
	_Alignas(16) char stack[2][STACK_SIZE];
};

static struct reserve {
	int null, place; /* owned until the process ends; PLACE is the highest descriptor that a child keeps */
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
	(void)prepare(); /* the first caller that needs it reports a failure */
}

/* All descriptors below PLACE are close-on-exec, except those that the program keeps. */
static int run_second_child(void *ctx)
{
	struct spawn_state *b = ctx;

	if (close_range((unsigned)reserve.place + 1, ~0u, CLOSE_RANGE_UNSHARE) < 0)
		goto failed;
	for (int fd = 0; fd < SPAWN_FD; fd++) {
		if (dup2(reserve.null, fd) < 0)
			goto failed;
	}
	/* If the descriptor already has its number, clear its flag; a duplicate has none. */
	if (reserve.place == SPAWN_FD ? fcntl(SPAWN_FD, F_SETFD, 0) < 0 : dup2(reserve.place, SPAWN_FD) < 0)
		goto failed;
	execve("/proc/self/exe", b->argv, environ);
failed:
	b->error = errno;
	return 1;
}

static int run_first_child(void *ctx)
{
	struct spawn_state *b = ctx;

	setsid();
	if (clone(run_second_child, b->stack[1] + STACK_SIZE, SHARED, b) < 0)
		b->error = errno;
	return 0;
}

/* Block all signals: no handler may run in memory shared with another process. */
static pid_t clone_signals_blocked(struct spawn_state *b)
{
	sigset_t all, before;
	pid_t pid;
	int e;

	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, &before);
	pid = clone(run_first_child, b->stack[0] + STACK_SIZE, SHARED, b);
	e = errno;
	sigprocmask(SIG_SETMASK, &before, NULL);
	return pid < 0 ? -e : pid;
}

int spawn_detached(char *const argv[], int fd, struct ak_err *err)
{
	static struct spawn_state b; /* too large for the stack; used by one call at a time */
	int rc = prepare();
	pid_t pid;

	if (rc < 0 || dup3(fd, reserve.place, O_CLOEXEC) < 0)
		return ak_fail_errno(err, rc < 0 ? -rc : errno, "descriptor for a new process");
	b.argv = argv;
	b.error = 0;
	pid = clone_signals_blocked(&b);
	dup3(reserve.null, reserve.place, O_CLOEXEC); /* close our copy: otherwise the peer would never see the end of file */
	if (pid < 0)
		return ak_fail_errno(err, -pid, "cannot create a process");
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	return b.error ? ak_fail_errno(err, b.error, "cannot re-run_second_child this program") : 0;
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
	return status == 0 ? 0 : ak_fail(err, EAGAIN, "cannot fork: process limit reached");
}
