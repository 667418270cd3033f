/*
 * Commands that come while the sandbox runs, as init sees them.
 *
 * Each is a session of its own, confined as init is: by the same Landlock domain too, so that commands can signal and trace one another. That
 * domain was closed before their streams arrived, so a file or terminal of the host that is handed in can be used but not opened again by a path
 * (/dev/stdout, /proc/self/fd/1); pipes, sockets and the sandbox's own pty can.
 */
#include "vmctl/internal.h"

#include "gateway/base/cleanup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define KILL_ROUNDS 64

struct sb_served {
	struct sb_served *next; /* owned */
	uint32_t id; /* the caller's */
	pid_t pid; /* also its session and first process group */
};

/* ---- start ---- */

static int open_terminal(const struct sb_command *cmd, int *ret_master, int *ret_slave, struct ak_err *err)
{
	struct winsize size = { .ws_row = cmd->rows, .ws_col = cmd->cols };
	int rc = sb_open_pty(ret_master, ret_slave, err);

	if (rc == 0 && (size.ws_row || size.ws_col))
		ioctl(*ret_master, TIOCSWINSZ, &size);
	return rc;
}

static int start(struct sb_served *s, const struct sb_ctx *ctx, const struct sb_msg *msg, const int *fds, size_t n_fds,
	struct sb_failure *failure)
{
	struct sb_command cmd = { .home = ctx->spec->home, .tty_slave = -1, .nofile = ctx->spec->limits.nofile };
	_cleanup_pack_ struct pack p = { .bad = true };
	_cleanup_close_ int master = -1, slave = -1;
	int rc = n_fds ? sb_command_read(msg, fds, n_fds, &p, &cmd) : -EMFILE; /* we had no room for them */

	failure->exit_code = 125;
	if (rc < 0)
		return ak_fail_errno(&failure->err, -rc, "receiving the command");
	if (cmd.tty) {
		rc = open_terminal(&cmd, &master, &slave, &failure->err);
		if (rc < 0)
			return rc;
		cmd.tty_slave = slave;
	}
	s->pid = sb_spawn(&cmd, failure);
	if (s->pid < 0)
		return s->pid;
	sb_send_fds(ctx->ctl, SB_MSG_EXEC_STARTED, msg->id, 0, NULL, &master, master < 0 ? 0 : 1);
	return 0;
}

void sb_serve_exec(struct sb_served **list, const struct sb_ctx *ctx, const struct sb_msg *msg, const int *fds, size_t n_fds)
{
	struct sb_served *s = calloc(1, sizeof(*s));
	struct sb_failure failure = { .exit_code = 125, .err = { "out of memory" } };

	if (!s || start(s, ctx, msg, fds, n_fds, &failure) < 0) {
		sb_send_fds(ctx->ctl, SB_MSG_EXEC_ENDED, msg->id, failure.exit_code, failure.err.text, NULL, 0);
		free(s);
		return;
	}
	s->id = msg->id;
	s->next = *list;
	*list = s;
}

/* ---- end ---- */

void sb_serve_reaped(struct sb_served **list, const struct sb_ctx *ctx, pid_t pid, int exit_code)
{
	struct sb_served *s;

	while (*list && (*list)->pid != pid)
		list = &(*list)->next;
	s = *list;
	if (!s)
		return; /* an orphan */
	sb_send_fds(ctx->ctl, SB_MSG_EXEC_ENDED, s->id, exit_code, NULL, NULL, 0);
	*list = s->next;
	free(s);
}

/* Session of a live process in /proc; -1 for one that is gone, or dead and not yet reaped. */
static pid_t session_of(int proc, const char *name)
{
	char path[32], text[512], *end;
	_cleanup_close_ int fd = -1;
	char state;
	int session;
	ssize_t n;

	snprintf(path, sizeof(path), "%.16s/stat", name);
	fd = openat(proc, path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	if (n <= 0)
		return -1;
	text[n] = '\0';
	end = strrchr(text, ')'); /* the name before it may hold anything */
	if (!end || sscanf(end + 1, " %c %*d %*d %d", &state, &session) != 2 || state == 'Z' || state == 'X')
		return -1;
	return session;
}

/* One pass over all processes; how many of the session there were. */
static unsigned kill_members(DIR *dir, pid_t session)
{
	unsigned n = 0;

	rewinddir(dir);
	for (struct dirent *e; (e = readdir(dir));) {
		pid_t pid = (pid_t)atol(e->d_name);

		if (pid <= 1 || session_of(dirfd(dir), e->d_name) != session)
			continue;
		kill(pid, SIGKILL);
		n++;
	}
	return n;
}

/* A shell with job control gives each job a group, so the groups of the session are looked up; again, while some are being born. */
static void kill_session(pid_t session)
{
	DIR *dir = opendir("/proc");

	for (int i = 0; dir && i < KILL_ROUNDS && kill_members(dir, session) > 0; i++)
		;
	if (dir)
		closedir(dir);
}

void sb_serve_signal(struct sb_served *list, uint32_t id, int sig)
{
	while (list && list->id != id)
		list = list->next;
	if (!list)
		return;
	kill(-list->pid, sig);
	if (sig == SIGKILL)
		kill_session(list->pid);
}
