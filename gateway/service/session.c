/* An interactive command in a sandbox: see service/session.h. */
#include "gateway/service/session.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/ipc/ipc.h"
#include "gateway/ipc/spawn.h"
#include "gateway/run/life.h"
#include "gateway/run/loop.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define SLOTS 16 /* detached commands per sandbox */
#define TAKE_TIMEOUT_MS 5000

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
	(void)service_exec_signal(&s->exec, SIGCONT); /* it may have stopped meanwhile */
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

/* ---- callbacks of run/loop.h ---- */

static void backend_poll(const void *ctx, struct pollfd p[static RUN_BACKEND_FDS])
{
	p[0] = (struct pollfd){ .fd = ((const struct session *)ctx)->exec.sock, .events = POLLIN };
	p[1] = p[2] = (struct pollfd){ .fd = -1 };
}

static void backend_serve(void *ctx, const struct pollfd p[static RUN_BACKEND_FDS])
{
	struct session *s = ctx;

	if (s->io.tty.detach) {
		s->io.tty.detach = false;
		s->rc = detach(s, &s->why);
		s->detached = s->rc == 0;
	} else if (p[0].revents) {
		s->rc = service_exec_poll(&s->exec, false, &s->end, &s->why);
	}
	if (s->leave_at_ms && ak_now_ms() >= s->leave_at_ms)
		s->left_by = SIGKILL;
}

static uint64_t backend_due_ms(const void *ctx)
{
	return ((const struct session *)ctx)->leave_at_ms;
}

/*
 * Forward the first Ctrl-C to the command. After the second, or when our terminal hangs up, disconnect, which ends the command; also if it still runs
 * long after SIGTERM, which an interactive shell ignores.
 */
static void backend_signal(void *ctx, int sig)
{
	struct session *s = ctx;

	if ((sig == SIGINT && s->interrupts++ > 0) || sig == SIGHUP)
		s->left_by = sig;
	if (sig == SIGTERM && !s->leave_at_ms)
		s->leave_at_ms = ak_now_ms() + LIFE_TERM_GRACE_MS;
	(void)service_exec_signal(&s->exec, sig);
}

static int backend_tty_fd(const void *ctx)
{
	return ((const struct session *)ctx)->exec.tty_fd;
}

static bool backend_over(const void *ctx)
{
	const struct session *s = ctx;

	return s->rc != 0 || s->left_by || s->detached;
}

static const struct run_backend backend = {
	.poll = backend_poll,
	.serve = backend_serve,
	.due_ms = backend_due_ms,
	.signal = backend_signal,
	.tty_fd = backend_tty_fd,
	.over = backend_over,
};

/* ---- start and end ---- */

int session_init(struct session *s, const struct ak_paths *paths, const char *name, bool tty, struct ak_err *err)
{
	memset(s, 0, offsetof(struct session, io));
	s->paths = paths;
	s->name = name;
	s->exec = (struct service_exec){ .sock = -1, .tty_fd = -1 };
	run_io_init(&s->io);
	s->io.want_tty = s->io.detachable = tty;
	tty_save();
	signal(SIGPIPE, SIG_IGN);
	return run_io_signals(&s->io, err);
}

void session_done(struct session *s)
{
	service_exec_done(&s->exec);
	run_io_done(&s->io);
}

int session_run(struct session *s, struct ak_err *err)
{
	int rc;

	s->rc = 0;
	s->io.tty.master = -1; /* a session runs a second command if the first could not be executed */
	s->io.tty_on = false;
	rc = run_loop(&s->io, &backend, s);
	if (rc < 0)
		s->rc = ak_fail_errno(&s->why, -rc, "poll");
	run_drain(&s->io, s->detached || s->left_by ? 0 : -1); /* the command may keep printing: do not wait for its end */
	if (s->left_by)
		s->end = (struct service_exit){ .exit_code = 128 + s->left_by };
	service_exec_done(&s->exec);
	if (s->rc < 0)
		*err = s->why;
	return s->rc < 0 ? s->rc : 0;
}
