/* An interactive command in a sandbox: see service/session.h. */
#include "gateway/service/session.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/ipc/ipc.h"
#include "gateway/ipc/spawn.h"
#include "gateway/run/tty.h"
#include "gateway/super/super.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#define SLOTS 16 /* detached commands per sandbox */
#define TAKE_TIMEOUT_MS 5000

struct front {
	struct session *s; /* borrowed */
	struct tty tty;
	bool tty_on;
	unsigned interrupts;
	int ended_by; /* the signal that made us end the command, or 0 */
};

/* ---- detached commands ---- */

/* RUNTIME/sb/NAME.attach.N; unambiguous, because a sandbox name has no dot. */
static int slot_path(const struct ak_paths *paths, const char *name, int slot, char ret[static PATH_MAX])
{
	char file[AK_NAME_MAX + 16];

	snprintf(file, sizeof(file), "%s.attach.%d", name, slot);
	return ak_path_join(ret, paths->runtime, "sb", file);
}

struct holder {
	int exec, tty, listener; /* owned by the holder process */
	char path[PATH_MAX];
};

/* Send both descriptors to the process that connects; true if that succeeded. */
static bool hand_over(struct holder *h)
{
	_cleanup_json_ cJSON *ask = NULL, *answer = cJSON_CreateObject();
	_cleanup_close_ int peer = ipc_accept(h->listener);
	struct pollfd p = { .fd = peer, .events = POLLIN };
	int fds[] = { h->exec, h->tty };
	size_t none = 0;

	if (peer < 0 || !answer || poll(&p, 1, TAKE_TIMEOUT_MS) <= 0 || ipc_recv(peer, &ask, NULL, &none) <= 0)
		return false;
	return ipc_send(peer, answer, fds, ARRAY_SIZE(fds)) == 0;
}

/* Read and drop output while detached; otherwise the command would block. False once the pty is closed. */
static bool drain(int fd)
{
	char buf[16384];
	ssize_t n = read(fd, buf, sizeof(buf));

	return n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
}

static void holder_main(void *ctx)
{
	struct holder *h = ctx;
	bool open = true;

	ipc_listen_as_us(h->listener);
	for (;;) {
		struct pollfd p[] = {
			{ .fd = h->exec, .events = POLLIN },
			{ .fd = h->listener, .events = POLLIN },
			{ .fd = open ? h->tty : -1, .events = POLLIN },
		};

		if (poll(p, ARRAY_SIZE(p), -1) < 0 && errno != EINTR)
			break;
		if (p[2].revents)
			open = drain(h->tty);
		if (p[1].revents && hand_over(h))
			break;
		if (p[0].revents) /* the command or the sandbox has ended */
			break;
	}
	unlink(h->path);
}

static int detach(struct session *s, struct ak_err *err)
{
	struct holder h = { .exec = s->exec.sock, .tty = s->exec.tty_fd, .listener = -1 };
	int keep[3], rc = -EADDRINUSE;

	for (int i = 0; i < SLOTS && rc == -EADDRINUSE; i++) {
		rc = slot_path(s->paths, s->name, i, h.path);
		if (rc == 0) {
			h.listener = ipc_listen(h.path, err);
			rc = h.listener < 0 ? h.listener : 0;
		}
	}
	if (rc == -EADDRINUSE)
		return ak_fail(err, EBUSY, "cannot detach: sandbox '%s' already has %d detached commands", s->name, SLOTS);
	if (rc < 0)
		return rc;
	keep[0] = h.exec;
	keep[1] = h.tty;
	keep[2] = h.listener;
	rc = spawn_fork(holder_main, &h, keep, ARRAY_SIZE(keep), err);
	ak_close(h.listener);
	if (rc < 0)
		unlink(h.path);
	return rc;
}

static int take_slot(struct session *s, const char *path, struct ak_err *err)
{
	_cleanup_json_ cJSON *ask = cJSON_CreateObject(), *answer = NULL;
	_cleanup_close_ int sock = ipc_connect(path, err);
	int fds[IPC_FDS_MAX], rc;
	size_t n = ARRAY_SIZE(fds);

	if (sock < 0)
		return sock;
	if (!ask || !cJSON_AddStringToObject(ask, "op", "take"))
		return ak_fail(err, ENOMEM, "out of memory");
	rc = ipc_call(sock, ask, NULL, 0, TAKE_TIMEOUT_MS, &answer, fds, &n, err);
	if (rc < 0)
		return rc;
	for (size_t i = 2; i < n; i++)
		ak_close(fds[i]);
	if (n < 2)
		return ak_fail(err, EPROTO, "cannot reattach to the detached command");
	s->exec = (struct service_exec){ .sock = fds[0], .tty_fd = fds[1] };
	s->tty = true;
	return 0;
}

int session_take(struct session *s, struct ak_err *err)
{
	char path[PATH_MAX];

	for (int i = 0; i < SLOTS; i++) {
		int rc = slot_path(s->paths, s->name, i, path);

		if (rc < 0)
			return ak_fail(err, -rc, "runtime folder: path too long");
		if (take_slot(s, path, err) == 0)
			return 0;
	}
	return ak_fail(err, ENOENT, "sandbox '%s' has no detached command", s->name);
}

/* ---- signals ---- */

int session_init(struct session *s, const struct ak_paths *paths, const char *name, bool tty, struct ak_err *err)
{
	static const int wanted[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGWINCH, SIGUSR1, SIGUSR2 };

	*s = (struct session){ .paths = paths, .name = name, .tty = tty, .exec = { -1, -1, 0 } };
	signal(SIGPIPE, SIG_IGN);
	s->signal_fd = ak_signal_fd(wanted, ARRAY_SIZE(wanted));
	return s->signal_fd < 0 ? ak_fail_errno(err, -s->signal_fd, "signalfd") : 0;
}

void session_done(struct session *s)
{
	service_exec_done(&s->exec);
	s->signal_fd = ak_close(s->signal_fd);
}

/* Forward the first Ctrl-C to the command. After the second, or when our terminal hangs up, disconnect, which ends the command. */
static void on_signal(struct front *f, int sig)
{
	if (sig == SIGWINCH) {
		if (f->tty_on)
			tty_resize(&f->tty);
		return;
	}
	if ((sig == SIGINT && f->interrupts++ > 0) || sig == SIGHUP)
		f->ended_by = sig;
	(void)service_exec_signal(&f->s->exec, sig);
}

static void read_signals(struct front *f)
{
	struct signalfd_siginfo info;

	while (read(f->s->signal_fd, &info, sizeof(info)) == sizeof(info))
		on_signal(f, (int)info.ssi_signo);
}

/* ---- the loop ---- */

enum { P_EXEC, P_SIGNAL, P_TTY, P_NUM = P_TTY + 4 };

static void fill_poll(const struct front *f, struct pollfd p[P_NUM])
{
	p[P_EXEC] = (struct pollfd){ .fd = f->s->exec.sock, .events = POLLIN };
	p[P_SIGNAL] = (struct pollfd){ .fd = f->s->signal_fd, .events = POLLIN };
	if (f->tty_on) {
		tty_poll(&f->tty, p + P_TTY);
		return;
	}
	for (int i = P_TTY; i < P_NUM; i++)
		p[i] = (struct pollfd){ .fd = -1 };
}

static int start_tty(struct front *f, struct ak_err *err)
{
	int rc;

	if (!f->s->tty || f->tty_on || f->tty.master >= 0 || f->s->exec.tty_fd < 0)
		return 0;
	rc = tty_open(&f->tty, f->s->exec.tty_fd, err);
	f->tty_on = rc == 0;
	f->tty.keys = f->tty.raw;
	return rc;
}

/* 1 if the session is over. */
static int serve(struct front *f, const struct pollfd p[P_NUM], struct ak_err *err)
{
	int rc = 0;

	if (p[P_SIGNAL].revents)
		read_signals(f);
	if (f->ended_by) {
		f->s->end = (struct service_exit){ .exit_code = 128 + f->ended_by };
		return 1;
	}
	if (f->tty_on && !tty_pump(&f->tty, p + P_TTY))
		f->tty_on = false;
	if (f->tty_on && f->tty.detach) {
		f->tty.detach = false;
		rc = detach(f->s, err);
		f->s->detached = rc == 0;
		return rc < 0 ? rc : 1;
	}
	if (p[P_EXEC].revents)
		rc = service_exec_poll(&f->s->exec, false, &f->s->end, err);
	return rc;
}

int session_run(struct session *s, struct ak_err *err)
{
	struct front f = { .s = s, .tty.master = -1 };
	struct pollfd p[P_NUM];
	int rc = 0;

	while (rc == 0) {
		rc = start_tty(&f, err);
		if (rc < 0)
			break;
		fill_poll(&f, p);
		if (poll(p, P_NUM, -1) < 0) {
			rc = errno == EINTR ? 0 : ak_fail_errno(err, errno, "poll");
			continue;
		}
		rc = serve(&f, p, err);
	}
	if (s->detached || f.ended_by) /* the command may keep printing: do not wait for its end */
		f.tty.master = -1;
	else if (rc > 0)
		(void)start_tty(&f, err); /* it started and ended in one turn: its output is still in the pty */
	tty_close(&f.tty);
	return rc < 0 ? rc : 0;
}
