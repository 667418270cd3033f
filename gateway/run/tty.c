/* The user's terminal and the sandbox's pty: see run/tty.h. */
#include "gateway/run/tty.h"

#include "gateway/base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#define DRAIN_MS 100
#define DRAIN_MAX_MS 2000 /* a background process may still be printing */

/* ---- the standard streams ---- */

static struct stream {
	bool known, terminal;
	int flags, discipline, exclusive;
	struct termios mode;
} streams[3];

void tty_save(void)
{
	for (int fd = 0; fd < 3; fd++) {
		struct stream *s = &streams[fd];

		s->flags = fcntl(fd, F_GETFL);
		s->known = s->flags >= 0;
		s->terminal = s->known && tcgetattr(fd, &s->mode) == 0;
		if (!s->terminal)
			continue;
		if (ioctl(fd, TIOCGETD, &s->discipline) < 0)
			s->discipline = N_TTY;
		if (ioctl(fd, TIOCGEXCL, &s->exclusive) < 0)
			s->exclusive = 0;
	}
}

/* Changing a terminal from its background would stop us (SIGTTOU). If it is not our controlling terminal, tcgetpgrp fails and that cannot happen. */
static bool is_ours(int fd)
{
	pid_t group = tcgetpgrp(fd);

	return group < 0 || group == getpgrp();
}

static void restore_stream(int fd, const struct stream *s)
{
	struct termios mode;
	int discipline;

	if (fcntl(fd, F_GETFL) != s->flags)
		fcntl(fd, F_SETFL, s->flags);
	if (!s->terminal || !is_ours(fd))
		return;
	if (ioctl(fd, TIOCGETD, &discipline) == 0 && discipline != s->discipline)
		ioctl(fd, TIOCSETD, &s->discipline);
	if (!s->exclusive)
		ioctl(fd, TIOCNXCL);
	tcflow(fd, TCOON);
	if (tcgetattr(fd, &mode) == 0 && memcmp(&mode, &s->mode, sizeof(mode)) != 0)
		tcsetattr(fd, TCSANOW, &s->mode);
}

void tty_restore(void)
{
	for (int fd = 0; fd < 3; fd++) {
		if (streams[fd].known)
			restore_stream(fd, &streams[fd]);
		streams[fd].known = false;
	}
}

/* ---- raw mode ---- */

/* For the atexit handler. */
static struct termios saved_mode;
static bool saved;

static void restore_terminal(void)
{
	if (saved)
		tcsetattr(STDIN_FILENO, TCSAFLUSH, &saved_mode);
	saved = false;
}

static void set_raw(struct tty *t)
{
	struct termios raw;

	if (!isatty(STDIN_FILENO) || tcgetattr(STDIN_FILENO, &saved_mode) < 0)
		return;
	raw = saved_mode;
	cfmakeraw(&raw);
	if (tcsetattr(STDIN_FILENO, TCSAFLUSH, &raw) < 0)
		return;
	saved = t->raw = true;
	atexit(restore_terminal);
}

void tty_resize(const struct tty *t)
{
	struct winsize size;

	if (ioctl(STDIN_FILENO, TIOCGWINSZ, &size) == 0 || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0)
		ioctl(t->master, TIOCSWINSZ, &size);
}

int tty_open(struct tty *t, int master, struct ak_err *err)
{
	if (master < 0)
		return ak_fail(err, EBADF, "the sandbox sent no terminal");
	t->raw = t->keys = t->held = t->detach = false;
	t->master = master;
	t->in.from = STDIN_FILENO;
	t->in.to = master;
	t->out.from = master;
	t->out.to = STDOUT_FILENO;
	t->in.at = t->in.len = t->out.at = t->out.len = 0;
	tty_resize(t);
	set_raw(t);
	return 0;
}

void tty_poll(const struct tty *t, struct pollfd p[static 4])
{
	const struct tty_pipe *pipes[] = { &t->in, &t->out };

	for (int i = 0; i < 2; i++) {
		bool full = pipes[i]->len > 0;

		p[2 * i] = (struct pollfd){ .fd = full ? -1 : pipes[i]->from, .events = POLLIN };
		p[2 * i + 1] = (struct pollfd){ .fd = full ? pipes[i]->to : -1, .events = POLLOUT };
	}
}

/* A terminal's end of file reaches the pty as ^D, so that `cat` inside ends. */
static void end_input(struct tty_pipe *pipe)
{
	static const char eof = 4;

	pipe->from = -1;
	(void)!write(pipe->to, &eof, 1);
}

#define CTRL_P 16
#define CTRL_Q 17

/* Copy N typed bytes into the pipe, without the detach keys. The output can be one byte longer: the Ctrl-P that was held back. */
static void take_keys(struct tty *t, const char *typed, size_t n)
{
	struct tty_pipe *pipe = &t->in;

	pipe->at = pipe->len = 0;
	for (size_t i = 0; i < n && !t->detach; i++) {
		bool held = t->held;

		t->held = !held && typed[i] == CTRL_P;
		t->detach = held && typed[i] == CTRL_Q;
		if (t->held || t->detach)
			continue;
		if (held)
			pipe->buf[pipe->len++] = CTRL_P;
		pipe->buf[pipe->len++] = typed[i];
	}
}

static bool pump(struct tty *t, struct tty_pipe *pipe, const struct pollfd *readable, const struct pollfd *writable)
{
	bool input = pipe == &t->in;
	ssize_t n;

	if (pipe->from >= 0 && pipe->len == 0 && readable->revents) {
		char typed[sizeof(pipe->buf) - 1];
		bool keys = input && t->keys;

		n = keys ? read(pipe->from, typed, sizeof(typed)) : read(pipe->from, pipe->buf, sizeof(pipe->buf));
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return true;
		if (n <= 0 && input) {
			end_input(pipe);
			return true;
		}
		if (n <= 0) /* EIO: no process has the pty open any more */
			return false;
		pipe->at = 0;
		pipe->len = (size_t)n;
		if (keys)
			take_keys(t, typed, (size_t)n);
	}
	if (pipe->len > 0 && (writable->revents || readable->revents)) {
		n = write(pipe->to, pipe->buf + pipe->at, pipe->len);
		if (n < 0)
			return errno == EAGAIN || errno == EINTR;
		pipe->at += (size_t)n;
		pipe->len -= (size_t)n;
	}
	return true;
}

bool tty_pump(struct tty *t, const struct pollfd p[static 4])
{
	if (!pump(t, &t->in, &p[0], &p[1]))
		t->in.from = -1;
	return pump(t, &t->out, &p[2], &p[3]);
}

void tty_close(struct tty *t)
{
	struct pollfd p[4];
	bool more = t->master >= 0;
	uint64_t until = ak_now_ms() + DRAIN_MAX_MS;

	t->in.from = -1;
	t->in.len = 0;
	while (more && ak_now_ms() < until) {
		tty_poll(t, p);
		if (poll(p, 4, DRAIN_MS) <= 0)
			break;
		more = tty_pump(t, p);
	}
	restore_terminal();
}
