/*
 * The leader of the session of a command with a terminal.
 *
 * The kernel does not let the suspend key stop an orphaned process group, that is one without a parent in its own session, because no shell could
 * continue it. init is in another session than the command, so a small process stands between them: it leads the session, and the command has a
 * process group of its own in the terminal's foreground, as under a shell. It forwards signals, ends as the command ends, and passes a stop on.
 */
#include "vmctl/internal.h"

#include "gateway/base/cleanup.h"

#include <errno.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

/*
 * The holder of the pty's master sees the flush in packet mode, and then that the leader has the foreground. All signals are blocked, so changing
 * the terminal from its background does not stop us.
 */
static void tell_stopped(int tty)
{
	tcsetpgrp(tty, getpid());
	tcflush(tty, TCIFLUSH);
}

/* The command's own process has changed its state. */
static void look(pid_t command, int tty)
{
	int status;

	while (waitpid(command, &status, WNOHANG | WUNTRACED) > 0) {
		if (WIFSTOPPED(status))
			tell_stopped(tty);
		else
			_exit(WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status));
	}
}

static _Noreturn void lead(pid_t command, int tty)
{
	sigset_t all;
	int sig;

	sigfillset(&all);
	setpgid(command, command); /* the command does the same: whoever is first */
	for (;;) {
		if (sigwait(&all, &sig) != 0)
			continue;
		if (sig == SIGCONT && tcgetpgrp(tty) == getpid())
			tcsetpgrp(tty, command);
		if (sig == SIGCHLD)
			look(command, tty);
		else
			kill(-command, sig);
	}
}

int sb_lead_session(int tty, struct ak_err *err)
{
	pid_t leader, command;

	setsid();
	if (ioctl(tty, TIOCSCTTY, 0) < 0)
		return ak_fail_errno(err, errno, "controlling terminal");
	leader = getpid();
	command = fork();
	if (command < 0)
		return ak_fail_errno(err, errno, "process of the command");
	if (command > 0) {
		if (sb_keep_fds(&tty, 1) < 0)
			_exit(1);
		lead(command, tty);
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != leader)
		_exit(1);
	setpgid(0, 0);
	tcsetpgrp(tty, getpid());
	return 0;
}
