/*
 * The command's process, from fork to exec.
 *
 * Until exec the child shares init's memory, as after vfork, which saves copying it. Unlike vfork, init does not wait for
 * exec: a program's file can be leased, slow or gone, and the child can be stopped. So the child has a stack of its own, and
 * the command's memory is kept until a close-on-exec pipe reports that the program runs, or why it does not. The two processes
 * can disturb each other only through errno, and init does not depend on errno while a child is still starting.
 *
 * A command with a terminal starts from a copy of init's memory, because its session's leader stays: see leader.c.
 */
#include "vmctl/internal.h"

#include "gateway/base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEFAULT_NOFILE 4096u
#define STACK_SIZE 65536 /* room for paths and error messages */
#define PATIENCE_MS 20 /* longer than a program takes to start from a healthy disk */

enum { EXIT_FAILED = 125, EXIT_NOT_EXECUTABLE = 126, EXIT_NOT_FOUND = 127 };

static const char *path_variable(char *const *envp)
{
	for (; *envp; envp++) {
		if (!strncmp(*envp, "PATH=", 5))
			return *envp + 5;
	}
	return "/usr/local/bin:/usr/bin:/bin";
}

/* execve that treats a folder as not executable, as shells do. Returns -errno; does not return on success. */
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

/* Like execvpe, but never runs a shell. Returns EACCES from any PATH entry if no other entry works. */
static int exec_search(const char *file, char *const *argv, char *const *envp)
{
	const char *dir = path_variable(envp);
	int seen = -ENOENT;

	while (dir) {
		const char *end = strchrnul(dir, ':');
		char path[PATH_MAX];
		int rc = -ENAMETOOLONG;

		if (snprintf(path, sizeof(path), "%.*s%s%s", (int)(end - dir), dir, end == dir ? "" : "/", file) <
			(int)sizeof(path))
			rc = try_exec(path, argv, envp);
		if (rc == -EACCES || rc == -EISDIR)
			seen = -EACCES;
		else if (rc != -ENOENT && rc != -ENOTDIR && rc != -ENAMETOOLONG && rc != -ELOOP)
			return rc;
		dir = *end ? end + 1 : NULL;
	}
	return seen;
}

static void describe_failure(const char *file, int rc, struct sb_failure *ret)
{
	ret->exit_code = EXIT_NOT_EXECUTABLE;
	switch (rc) {
	case -ENOENT:
	case -ENOTDIR:
		ret->exit_code = EXIT_NOT_FOUND;
		if (strchr(file, '/') && access(file, F_OK) == 0)
			ak_fail(&ret->err, ENOENT, "cannot run '%s': its interpreter does not exist in the sandbox", file);
		else
			ak_fail(&ret->err, ENOENT, "command not found: '%s'", file);
		break;
	case -EACCES:
		ak_fail(&ret->err, EACCES, "permission denied: '%s' is not executable", file);
		break;
	case -EISDIR:
		ak_fail(&ret->err, EISDIR, "'%s' is a folder", file);
		break;
	case -ENOEXEC:
		ak_fail(&ret->err, ENOEXEC, "cannot run '%s': neither a program for this machine nor a script with a '#!' line",
			file);
		break;
	default:
		ak_fail_errno(&ret->err, -rc, "cannot run '%s'", file);
		break;
	}
}

/* Use the null device for a missing stream, so that no file opened later takes its number. */
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

/* Duplicate the streams to high numbers first: the given numbers may be 0, 1 and 2 in any order. */
static int place_streams(const struct sb_command *cmd)
{
	int copies[3];

	for (int i = 0; i < 3; i++) {
		copies[i] = stream(cmd->tty_slave >= 0 ? cmd->tty_slave : cmd->streams[i], i);
		if (copies[i] < 0)
			return -errno;
	}
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

	/* exec resets handlers, but signals that the caller ignores would stay ignored. */
	for (int sig = 1; sig < 32; sig++)
		sigaction(sig, &sa, NULL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

/* A missing folder is an error if the user asked for it. A missing home means "/". */
static int enter_workdir(const struct sb_command *cmd, struct ak_err *err)
{
	const char *dir = cmd->workdir ? cmd->workdir : cmd->home;

	if (!dir || chdir(dir) == 0)
		return 0;
	if (cmd->workdir)
		return ak_fail_errno(err, errno, "working folder '%s' in the sandbox", dir);
	return chdir("/") < 0 ? ak_fail_errno(err, errno, "/") : 0;
}

/*
 * At most half of init's limit. The kernel counts descriptors in flight through sockets per user, over all sandboxes, and
 * compares them with the sender's limit. A sandbox must not be able to stop init and outside processes from sending theirs.
 */
static int limit_files(uint32_t nofile)
{
	rlim_t value = nofile ? nofile : DEFAULT_NOFILE;
	struct rlimit lim;

	if (getrlimit(RLIMIT_NOFILE, &lim) < 0)
		return -errno;
	if (lim.rlim_max != RLIM_INFINITY && value > lim.rlim_max / 2)
		value = lim.rlim_max / 2;
	lim.rlim_cur = lim.rlim_max = value;
	return setrlimit(RLIMIT_NOFILE, &lim) < 0 ? -errno : 0;
}

/* Close descriptors that init holds for other commands, before exec, because exec can take long. */
static int close_others(const struct sb_command *cmd, int failure)
{
	const int *s = cmd->streams;
	const int fds[] = { failure, cmd->tty_slave, s[0], s[1], s[2], cmd->dial ? cmd->dial : -1 };

	return sb_keep_fds(fds, ARRAY_SIZE(fds));
}

static int mark_and_fence(const struct sb_command *cmd, struct ak_err *err)
{
	int rc = sb_mark_set(cmd->mark);

	if (rc < 0)
		return ak_fail_errno(err, -rc, "marking the command");
	rc = sb_enter_fence(cmd->fence);
	return rc < 0 ? ak_fail_errno(err, -rc, "Landlock") : 0;
}

static int prepare(const struct sb_command *cmd, int failure, struct ak_err *err)
{
	int rc = mark_and_fence(cmd, err);

	if (rc < 0)
		return rc;
	rc = close_others(cmd, failure);
	if (rc < 0)
		return ak_fail_errno(err, -rc, "closing inherited descriptors");
	if (cmd->tty_slave < 0)
		setsid();
	else if ((rc = sb_lead_session(cmd->tty_slave, err)) < 0)
		return rc;
	rc = place_streams(cmd);
	if (rc < 0)
		return ak_fail_errno(err, -rc, "standard streams");
	rc = enter_workdir(cmd, err);
	if (rc < 0)
		return rc;
	rc = limit_files(cmd->nofile);
	if (rc < 0)
		return ak_fail_errno(err, -rc, "limit of open files");
	default_signals();
	return 0;
}

/* A command that is being started. */
struct sb_birth {
	struct sb_command cmd;
	struct pack pack; /* owned; the command's strings */
	int failure;
	_Alignas(16) char stack[STACK_SIZE];
};

static int child(void *ctx)
{
	const struct sb_birth *b = ctx;
	const struct sb_command *cmd = &b->cmd;
	struct sb_failure f = { .exit_code = EXIT_FAILED };
	char *const *argv = cmd->argv;
	int rc = prepare(cmd, b->failure, &f.err);

	if (rc == 0 && cmd->dial)
		vm_proxy_main(cmd, cmd->dial, b->failure);
	if (rc == 0) {
		if (!argv[0] || !argv[0][0])
			rc = -ENOENT;
		else if (strchr(argv[0], '/'))
			rc = try_exec(argv[0], argv, cmd->envp);
		else
			rc = exec_search(argv[0], argv, cmd->envp);
		describe_failure(argv[0] ? argv[0] : "", rc, &f);
	}
	(void)!write(b->failure, &f, sizeof(f));
	_exit(f.exit_code);
}

/* Use numbers above the standard streams, which are put in place later. */
static int open_pipe(int ret[static 2])
{
	int fds[2];

	if (pipe2(fds, O_CLOEXEC | O_NONBLOCK) < 0)
		return -errno;
	ret[0] = fds[0];
	ret[1] = fcntl(fds[1], F_DUPFD_CLOEXEC, 3);
	ak_close(fds[1]);
	if (ret[1] >= 0)
		return 0;
	ak_close(ret[0]);
	return -EMFILE;
}

void sb_signal(pid_t pid, int sig)
{
	if (kill(-pid, sig) < 0)
		kill(pid, sig);
}

void sb_birth_free(struct sb_birth *b)
{
	if (!b)
		return;
	pack_done(&b->pack);
	munmap(b, sizeof(*b));
}

/* Fresh pages; only those that are touched cost memory. */
static struct sb_birth *birth_new(const struct sb_command *cmd, struct pack *p)
{
	struct sb_birth *b = mmap(NULL, sizeof(*b), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (b == MAP_FAILED)
		return NULL;
	b->cmd = *cmd;
	b->pack = (struct pack){ .bad = true };
	if (p) {
		b->pack = *p;
		*p = (struct pack){ .bad = true };
	}
	return b;
}

pid_t sb_spawn(const struct sb_command *cmd, struct pack *p, int *ret_failure, struct sb_birth **ret_birth, struct ak_err *err)
{
	struct sb_birth *b = birth_new(cmd, p);
	int fds[2] = { -1, -1 }, rc = b ? open_pipe(fds) : -ENOMEM;
	struct pollfd ready = { .fd = fds[0], .events = POLLIN };
	pid_t pid = rc;

	if (rc == 0) {
		b->failure = fds[1];
		/* The leader of a terminal's session stays, and so does what stands for a command in a virtual machine: with memory of their own. */
		pid = clone(
			child, b->stack + sizeof(b->stack), cmd->tty_slave < 0 && !cmd->dial ? CLONE_VM | SIGCHLD : SIGCHLD, b);
		rc = pid < 0 ? -errno : 0;
	}
	ak_close(fds[1]);
	if (rc < 0) {
		ak_close(fds[0]);
		sb_birth_free(b);
		return ak_fail_errno(err, -rc, "starting the command");
	}
	poll(&ready, 1, PATIENCE_MS);
	*ret_failure = fds[0];
	*ret_birth = b;
	return pid;
}
