/*
 * The sandbox's init from the moment on when it has its root: it confines itself, reports READY and waits. After GO it runs the command, forwards
 * signals, reaps orphans and reports the command's exit. When it exits, the kernel kills everything in the namespace. It exits when the
 * command ends, the control socket closes, or the caller dies.
 *
 * This file is also part of the static program that is the first process of podman's containers: it uses nothing but the C library.
 */
#include "vmctl/internal.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/base/title.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#define END_WAIT_MS 2000

struct init {
	struct sb_ctx *ctx;
	int children; /* signalfd for SIGCHLD */
	int tty_slave;
	pid_t command; /* 0 until it runs; also its process group */
	int failure; /* reports why the command could not be executed; -1 if none */
	bool going; /* GO was received */
	struct sb_served *served; /* commands that arrived later */
	struct sb_channels channels; /* of published ports */
};

/* ---- confinement ---- */

int sb_confine(const struct sb_ctx *ctx, int *ret_listener, struct ak_err *err)
{
	static const int none[3] = { -1, -1, -1 };
	int rc = sb_confine_limits(ctx, err);

	if (rc == 0)
		rc = sb_confine_caps(ctx, err);
	if (rc == 0)
		rc = sb_confine_landlock(ctx->spec->tty || !ctx->spec->argv ? none : ctx->spec->stdio, err);
	if (rc == 0)
		rc = sb_confine_seccomp(ctx, ret_listener, err);
	return rc;
}

/* Start the helper while we have the capability that it needs, and give that up. */
static int start_helper(struct sb_ctx *ctx, int listener, struct ak_err *err)
{
	pid_t pid = listener < 0 ? 0 : sb_setid_start(listener);

	if (pid < 0)
		return ak_fail_errno(err, -pid, "starting a process in the sandbox");
	ctx->setid_helper = pid;
	return sb_confine_last(ctx, err);
}

/* Prepare for later commands: marks to find their processes, and a fence to isolate them. */
static int confine_later(struct sb_ctx *ctx, struct ak_err *err)
{
	int rc = sb_mark_protect();

	ctx->exec_fence = sb_make_fence();
	return rc < 0 ? ak_fail_errno(err, -rc, "system-call filter") : 0;
}

int sb_init_confine(struct sb_ctx *ctx, struct ak_err *err)
{
	int listener, rc = sb_confine(ctx, &listener, err);

	/* Forbid tracing and access through /proc: our memory is a copy of the caller's. The helper inherits this. */
	prctl(PR_SET_NAME, "agentkernel");
	prctl(PR_SET_DUMPABLE, 0);
	if (rc == 0)
		rc = start_helper(ctx, listener, err);
	if (rc == 0 && !ctx->spec->argv)
		rc = confine_later(ctx, err);
	return rc;
}

int sb_open_pty(int *ret_master, int *ret_slave, struct ak_err *err)
{
	_cleanup_close_ int master = open("/dev/pts/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);
	int unlock = 0, slave;

	if (master < 0)
		return ak_fail_errno(err, errno, "terminal");
	if (ioctl(master, TIOCSPTLCK, &unlock) < 0)
		return ak_fail_errno(err, errno, "terminal");
	slave = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (slave < 0)
		return ak_fail_errno(err, errno, "terminal");
	*ret_slave = slave;
	*ret_master = TAKE_FD(master);
	return 0;
}

/* ---- main loop ---- */

static int exit_code(int status)
{
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/*
 * The command has ended: kill the rest now, so that nothing inside writes to the project after the caller hears of it.
 * Processes that the kernel cannot kill in time die when init exits, which waits for them.
 */
static void end_rest(const struct init *in)
{
	struct pollfd children = { .fd = in->children, .events = POLLIN };
	uint64_t until = ak_now_ms() + END_WAIT_MS, now;
	struct signalfd_siginfo info;
	pid_t pid;

	if (in->ctx->vm_run.end)
		in->ctx->vm_run.end(in->ctx->vm_run.monitor[0]);
	for (;;) {
		while ((pid = waitpid(-1, NULL, WNOHANG)) > 0)
			;
		now = ak_now_ms();
		if (pid < 0 || now >= until)
			return;
		kill(-1, SIGKILL);
		(void)poll(&children, 1, (int)(until - now));
		(void)!read(in->children, &info, sizeof(info));
	}
}

/* Exit after the command; this ends every process in the sandbox. */
static _Noreturn void end_with_command(const struct init *in, int status)
{
	struct sb_failure failure;

	end_rest(in);
	sb_vm_notes(in->ctx);
	if (read(in->failure, &failure, sizeof(failure)) == sizeof(failure))
		sb_child_fail(in->ctx->ctl, failure.exit_code, &failure.err);
	sb_send(in->ctx->ctl, SB_MSG_EXITED, exit_code(status), NULL, -1);
	_exit(0);
}

/* The virtual machine has ended, and so has everything in it. */
static _Noreturn void end_with_machine(const struct init *in)
{
	struct ak_err err;

	end_rest(in);
	if (!sb_vm_notes(in->ctx))
		sb_send(in->ctx->ctl, SB_MSG_NOTE, 0, "the virtual machine has ended", -1);
	if (!in->going) {
		ak_fail(&err, EIO, "the virtual machine has ended");
		sb_child_fail(in->ctx->ctl, 125, &err);
	}
	sb_send(in->ctx->ctl, SB_MSG_EXITED, 128 + SIGKILL, "the virtual machine has ended", -1);
	_exit(0);
}

static void reap(struct init *in)
{
	struct signalfd_siginfo info;
	int status;
	pid_t pid;

	(void)!read(in->children, &info, sizeof(info));
	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		if (pid == in->command)
			end_with_command(in, status);
		if (in->ctx->dial && pid == in->ctx->vm_run.mux)
			end_with_machine(in);
		sb_serve_reaped(&in->served, in->ctx, pid, exit_code(status));
	}
}

/* Copy the strings of LIST to memory that is never freed. */
static char **copy_words(char *const *list)
{
	size_t n = 0;
	char **copy;

	while (list[n])
		n++;
	copy = calloc(n + 1, sizeof(*copy));
	for (size_t i = 0; copy && i < n; i++) {
		copy[i] = strdup(list[i]);
		if (!copy[i])
			return NULL;
	}
	return copy;
}

/*
 * Our memory is a copy of the caller's, and /proc shows the caller's command line. Hide it from processes inside; copy the
 * command first, because it may be part of it.
 */
static void hide_words(struct sb_command *cmd, const char *name)
{
	if (cmd->argv)
		cmd->argv = copy_words(cmd->argv);
	if (cmd->workdir)
		cmd->workdir = strdup(cmd->workdir);
	ak_title_set("agentkernel init %s", name);
}

static void run_command(struct init *in)
{
	const struct sandbox_spec *spec = in->ctx->spec;
	struct sb_command cmd = { .argv = spec->argv,
		.envp = spec->envp,
		.workdir = spec->workdir,
		.home = spec->home,
		.tty_slave = in->tty_slave,
		.streams = { spec->stdio[0], spec->stdio[1], spec->stdio[2] },
		.nofile = spec->limits.nofile,
		.fence = -1,
		.dial = in->ctx->dial };
	struct sb_birth *birth;
	struct ak_err err;

	if (in->going)
		return;
	in->going = true;
	hide_words(&cmd, spec->name);
	if (!spec->argv)
		return;
	if (!cmd.argv)
		_exit(1);
	in->command = sb_spawn(&cmd, NULL, &in->failure, &birth, &err);
	if (in->command < 0)
		sb_child_fail(in->ctx->ctl, 125, &err);
	/* Close our copies: readers of the sandbox's output must see end of file when the command closes its side. */
	for (int i = 0; i < 3 && !spec->tty; i++) {
		if (spec->stdio[i] != in->ctx->ctl)
			ak_close(spec->stdio[i]);
	}
	in->tty_slave = ak_close(in->tty_slave);
}

/* Signal the command's process group, or without a command every process in here. */
static void pass_signal(const struct init *in, int sig)
{
	if (in->command > 0)
		sb_signal(in->command, sig);
	else if (!in->ctx->spec->argv)
		kill(-1, sig);
}

static void on_message(struct init *in)
{
	int fds[SB_FDS_MAX], rc;
	struct sb_msg msg;
	size_t n_fds;

	rc = sb_recv(in->ctx->ctl, &msg, fds, &n_fds);
	if (rc == -EAGAIN)
		return;
	if (rc == 0 || (rc < 0 && rc != -EMSGSIZE))
		_exit(0);
	switch (msg.type) {
	case SB_MSG_GO:
		run_command(in);
		break;
	case SB_MSG_SIGNAL:
		pass_signal(in, msg.value);
		break;
	case SB_MSG_EXEC:
		sb_serve_exec(&in->served, in->ctx, &msg, fds, n_fds);
		break;
	case SB_MSG_EXEC_SIGNAL:
		sb_serve_signal(in->served, in->ctx, msg.id, msg.value);
		break;
	case SB_MSG_CHANNEL:
		if (n_fds)
			sb_channel_add(&in->channels, TAKE_FD(fds[0]));
		break;
	}
	for (size_t i = 0; i < n_fds; i++)
		ak_close(fds[i]);
}

enum { P_CTL, P_CHILDREN, P_STARTING };

/* All descriptors to poll, in memory that grows and is never freed. */
static struct pollfd *fill_poll(const struct init *in, size_t *ret_n)
{
	static struct pollfd *p;
	static size_t cap;
	size_t starting = sb_serve_poll(in->served, NULL, 0);
	size_t n = P_STARTING + starting + in->channels.n;

	if (n > cap) {
		p = realloc(p, 2 * n * sizeof(*p));
		cap = 2 * n;
	}
	if (!p)
		_exit(1);
	p[P_CTL] = (struct pollfd){ .fd = in->ctx->ctl, .events = POLLIN };
	p[P_CHILDREN] = (struct pollfd){ .fd = in->children, .events = POLLIN };
	sb_serve_poll(in->served, p + P_STARTING, starting);
	sb_channels_poll(&in->channels, p + P_STARTING + starting, in->channels.n);
	*ret_n = n;
	return p;
}

static _Noreturn void loop(struct init *in)
{
	for (;;) {
		size_t n;
		struct pollfd *p = fill_poll(in, &n);
		int ready = poll(p, n, -1);

		if (ready < 0 && errno != EINTR)
			_exit(1);
		ready -= (p[P_CTL].revents != 0) + (p[P_CHILDREN].revents != 0);
		if (ready > 0) {
			sb_serve_look(in->served, in->ctx);
			sb_channels_look(&in->channels, in->ctx);
		}
		if (p[P_CHILDREN].revents)
			reap(in);
		if (p[P_CTL].revents)
			on_message(in);
	}
}

/* Send our root along, which the caller cannot open from outside, because this process is not dumpable; and the list of our children, which it cannot always find there. */
static int report_ready(const struct init *in, int master)
{
	_cleanup_close_ int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	_cleanup_close_ int children = open("/proc/thread-self/children", O_RDONLY | O_CLOEXEC);
	int fds[3] = { root }, what = 0;
	size_t n = 1;

	if (root < 0)
		return -errno;
	if (master >= 0) {
		what |= SB_READY_TTY;
		fds[n++] = master;
	}
	if (children >= 0) { /* not in every kernel */
		what |= SB_READY_CHILDREN;
		fds[n++] = children;
	}
	return sb_send_fds(in->ctx->ctl, SB_MSG_READY, (uint32_t)in->ctx->setid_helper, what, NULL, fds, n);
}

_Noreturn void sb_init_serve(struct sb_ctx *ctx)
{
	struct init in = { .ctx = ctx, .children = -1, .tty_slave = -1, .failure = -1 };
	struct ak_err err;
	int master = -1;
	sigset_t chld;

	if (ctx->spec->tty && sb_open_pty(&master, &in.tty_slave, &err) < 0)
		sb_child_fail(ctx->ctl, 125, &err);
	/* All signals have been blocked since the start; SIGCHLD is read from a signalfd. */
	sigemptyset(&chld);
	sigaddset(&chld, SIGCHLD);
	in.children = signalfd(-1, &chld, SFD_CLOEXEC | SFD_NONBLOCK);
	if (in.children < 0 || report_ready(&in, master) < 0)
		_exit(1);
	ak_close(master);
	loop(&in);
}
