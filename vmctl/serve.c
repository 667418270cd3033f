/*
 * Commands that arrive while the sandbox runs, in init.
 *
 * Each has its own session, is confined like init, is marked so that all its descendants can be found (mark.c), and has its
 * own Landlock domain (confine.c): commands can signal each other, but cannot trace each other or read each other's
 * environment. init's own Landlock rules were fixed before their streams arrived, so a command can use a file or terminal of
 * the host that was passed in, but cannot reopen it by a path (/dev/stdout, /proc/self/fd/1). Pipes, sockets and the sandbox's
 * own pty can be reopened.
 */
#include "vmctl/internal.h"

#include "gateway/base/cleanup.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

struct sb_served {
	struct sb_served *next; /* owned */
	uint32_t id; /* chosen by the caller */
	uint32_t mark;
	pid_t pid; /* also its session and first process group */
	int failure; /* owned; end of file when the program runs, or the reason why it does not; -1 afterwards */
	struct sb_birth *birth; /* owned; until the program runs */
	int master; /* owned; the pty's master, until the program runs; -1 if none */
	bool told; /* its end was reported to the caller */
};

static void served_free(struct sb_served *s)
{
	if (!s)
		return;
	ak_close(s->failure);
	ak_close(s->master);
	sb_birth_free(s->birth);
	free(s);
}

static void tell_end(struct sb_served *s, const struct sb_ctx *ctx, int exit_code, const char *reason)
{
	if (!s->told)
		sb_send_fds(ctx->ctl, SB_MSG_EXEC_ENDED, s->id, exit_code, reason, NULL, 0);
	s->told = true;
}

/* ---- start ---- */

static int open_terminal(const struct sb_command *cmd, int *ret_master, int *ret_slave, struct ak_err *err)
{
	struct winsize size = { .ws_row = cmd->rows, .ws_col = cmd->cols };
	int rc = sb_open_pty(ret_master, ret_slave, err);

	if (rc == 0 && (size.ws_row || size.ws_col))
		ioctl(*ret_master, TIOCSWINSZ, &size);
	return rc;
}

static int start(
	struct sb_served *s, const struct sb_ctx *ctx, const struct sb_msg *msg, const int *fds, size_t n_fds, struct ak_err *err)
{
	struct sb_command cmd = { .home = ctx->spec->home,
		.tty_slave = -1,
		.nofile = ctx->spec->limits.nofile,
		.fence = ctx->exec_fence,
		.mark = s->mark,
		.dial = ctx->dial };
	_cleanup_pack_ struct pack p = { .bad = true };
	_cleanup_close_ int slave = -1;
	int rc = n_fds ? sb_command_read(msg, fds, n_fds, &p, &cmd) : -EMFILE; /* no room for its descriptors */

	if (rc < 0)
		return ak_fail_errno(err, -rc, "receiving the command");
	if (cmd.tty) {
		rc = open_terminal(&cmd, &s->master, &slave, err);
		if (rc < 0)
			return rc;
		cmd.tty_slave = slave;
	}
	s->pid = sb_spawn(&cmd, &p, &s->failure, &s->birth, err);
	return s->pid < 0 ? s->pid : 0;
}

void sb_serve_exec(struct sb_served **list, const struct sb_ctx *ctx, const struct sb_msg *msg, const int *fds, size_t n_fds)
{
	struct sb_served *s = calloc(1, sizeof(*s));
	struct ak_err err = { "out of memory" };

	if (s)
		*s = (struct sb_served){ .id = msg->id, .mark = sb_mark_next(), .failure = -1, .master = -1 };
	if (!s || start(s, ctx, msg, fds, n_fds, &err) < 0) {
		sb_send_fds(ctx->ctl, SB_MSG_EXEC_ENDED, msg->id, 125, err.text, NULL, 0);
		served_free(s);
		return;
	}
	s->next = *list;
	*list = s;
}

size_t sb_serve_poll(const struct sb_served *list, struct pollfd *p, size_t max)
{
	size_t n = 0;

	for (; list; list = list->next) {
		if (list->failure < 0)
			continue;
		if (n < max)
			p[n] = (struct pollfd){ .fd = list->failure, .events = POLLIN };
		n++;
	}
	return n;
}

/* The program runs when its end of the pipe is closed. A failure is reported with the command's end, which follows soon. */
static void look_at(struct sb_served *s, const struct sb_ctx *ctx)
{
	struct sb_failure failure;
	ssize_t n = s->failure < 0 ? -1 : read(s->failure, &failure, sizeof(failure));

	if (n < 0) /* not yet, or already handled */
		return;
	s->failure = ak_close(s->failure);
	if (n == sizeof(failure))
		tell_end(s, ctx, failure.exit_code, failure.err.text);
	else if (!s->told)
		sb_send_fds(ctx->ctl, SB_MSG_EXEC_STARTED, s->id, 0, NULL, &s->master, s->master < 0 ? 0 : 1);
	s->master = ak_close(s->master);
	if (n == 0) { /* otherwise the process is about to exit and still uses the stack in there */
		sb_birth_free(s->birth);
		s->birth = NULL;
	}
}

void sb_serve_look(struct sb_served *list, const struct sb_ctx *ctx)
{
	for (; list; list = list->next)
		look_at(list, ctx);
}

/* ---- end ---- */

static void tell_left(const struct sb_served *s, const struct sb_ctx *ctx)
{
	char text[AK_ERR_MAX];
	unsigned n = s->told ? 0 : sb_mark_left(s->mark, text, sizeof(text));

	if (n)
		sb_send_fds(ctx->ctl, SB_MSG_EXEC_LEFT, s->id, (int)n, text, NULL, 0);
}

void sb_serve_reaped(struct sb_served **list, const struct sb_ctx *ctx, pid_t pid, int exit_code)
{
	struct sb_served *s;
	struct ak_err why;
	bool noticed;

	while (*list && (*list)->pid != pid)
		list = &(*list)->next;
	s = *list;
	if (!s)
		return; /* an orphan of some command */
	look_at(s, ctx);
	tell_left(s, ctx);
	noticed = sb_vm_reason(ctx, &why);
	tell_end(s, ctx, exit_code, noticed && exit_code ? why.text : NULL);
	*list = s->next;
	served_free(s);
}

void sb_serve_signal(struct sb_served *list, const struct sb_ctx *ctx, uint32_t id, int sig)
{
	struct sb_served *s = list;

	while (s && s->id != id)
		s = s->next;
	if (!s)
		return;
	sb_signal(s->pid, sig);
	if (sig != SIGKILL)
		return;
	sb_mark_end(s->mark);
	tell_end(s, ctx, 128 + SIGKILL, NULL);
}
