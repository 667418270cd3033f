/* The user's terminal and the sandbox's pty: see run/tty.h. */
#include "gateway/run/tty.h"

#include "gateway/base/io.h"
#include "gateway/base/say.h"

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

bool tty_in_front(void)
{
	return isatty(STDIN_FILENO) && isatty(STDOUT_FILENO) && isatty(STDERR_FILENO) && is_ours(STDIN_FILENO);
}

/* Member by member: the structure has padding. */
static bool same_mode(const struct termios *a, const struct termios *b)
{
	return a->c_iflag == b->c_iflag && a->c_oflag == b->c_oflag && a->c_cflag == b->c_cflag && a->c_lflag == b->c_lflag &&
		a->c_line == b->c_line && !memcmp(a->c_cc, b->c_cc, sizeof(a->c_cc)) && a->c_ispeed == b->c_ispeed &&
		a->c_ospeed == b->c_ospeed;
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
	if (tcgetattr(fd, &mode) == 0 && !same_mode(&mode, &s->mode))
		tcsetattr(fd, TCSANOW, &s->mode);
}

void tty_restore(void)
{
	for (int fd = 0; fd < 3; fd++) {
		if (streams[fd].known)
			restore_stream(fd, &streams[fd]);
		streams[fd].known = false;
	}
	ak_say_after_program();
}

/* ---- raw mode ---- */

/* For the atexit handler. */
static struct termios saved_mode;
static bool saved;

static void restore_terminal(void)
{
	if (saved && is_ours(STDIN_FILENO))
		tcsetattr(STDIN_FILENO, TCSAFLUSH, &saved_mode);
	saved = false;
}

/* Also sets raw mode again after a shell has replaced it, which shells do when they continue a job that stopped behind their back. */
static bool set_raw(void)
{
	static bool registered;
	struct termios raw;

	if (!saved && tcgetattr(STDIN_FILENO, &saved_mode) < 0)
		return false;
	raw = saved_mode;
	cfmakeraw(&raw);
	if (tcsetattr(STDIN_FILENO, TCSADRAIN, &raw) < 0)
		return false;
	saved = true;
	if (!registered)
		registered = atexit(restore_terminal) == 0;
	return true;
}

void tty_resize(const struct tty *t)
{
	struct winsize size;

	if (ioctl(STDIN_FILENO, TIOCGWINSZ, &size) == 0 || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0)
		ioctl(t->master, TIOCSWINSZ, &size);
}

void tty_enter(struct tty *t)
{
	bool terminal = isatty(STDIN_FILENO);

	t->away = terminal && !is_ours(STDIN_FILENO);
	if (t->away)
		return;
	t->keys = terminal && set_raw() && t->detachable;
	tty_resize(t);
}

/* The buffers are left as they are: clearing them would touch eight pages that a command without a terminal never uses. */
void tty_init(struct tty *t)
{
	memset(t, 0, offsetof(struct tty, in));
	t->master = -1;
	t->in.from = t->in.to = t->out.from = t->out.to = -1;
	t->in.at = t->in.len = t->out.at = t->out.len = 0;
}

int tty_open(struct tty *t, int master, bool detachable, struct ak_err *err)
{
	int on = 1;

	if (master < 0)
		return ak_fail(err, EBADF, "the sandbox sent no terminal");
	tty_init(t);
	t->master = master;
	t->detachable = detachable;
	t->in.from = STDIN_FILENO;
	t->in.to = master;
	t->out.from = master;
	t->out.to = STDOUT_FILENO;
	ak_set_nonblock(master, true); /* a program that does not read must not keep us from writing what it prints */
	t->packets = ioctl(master, TIOCPKT, &on) == 0;
	tty_enter(t);
	return 0;
}

void tty_poll(const struct tty *t, struct pollfd p[static 4])
{
	const struct tty_pipe *pipes[] = { &t->in, &t->out };

	for (int i = 0; i < 2; i++) {
		bool full = pipes[i]->len > 0, closed = full || (i == 0 && t->away);

		p[2 * i] = (struct pollfd){ .fd = closed ? -1 : pipes[i]->from, .events = POLLIN };
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

/*
 * In packet mode the first octet of what we read from the pty is 0 before output, or tells of an event. When the command stops, the session's leader
 * (vmctl/leader.c) takes the foreground of the pty and flushes its input, which is such an event.
 */
static void take_packet(struct tty *t, size_t n)
{
	if (n == 0 || !t->packets)
		return;
	if (t->out.buf[0] & TIOCPKT_FLUSHREAD)
		t->stopped = tcgetpgrp(t->master) > 0 && tcgetpgrp(t->master) == tcgetsid(t->master);
	t->out.at = 1;
	t->out.len = t->out.buf[0] == TIOCPKT_DATA ? n - 1 : 0;
}

/* False at end of file, or when the descriptor is of no use any more. */
static bool fill(struct tty *t, struct tty_pipe *pipe)
{
	char typed[sizeof(pipe->buf) - 1];
	bool input = pipe == &t->in, keys = input && t->keys;
	ssize_t n = keys ? read(pipe->from, typed, sizeof(typed)) : read(pipe->from, pipe->buf, sizeof(pipe->buf));

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
	else if (!input)
		take_packet(t, (size_t)n);
	return true;
}

static bool pump(struct tty *t, struct tty_pipe *pipe, const struct pollfd *readable, const struct pollfd *writable)
{
	ssize_t n;

	if (pipe->from >= 0 && pipe->len == 0 && readable->revents && !fill(t, pipe))
		return false;
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

/* Copy what is in the pty, until nothing has come for IDLE_MS. */
static void drain(struct tty *t, int idle_ms)
{
	uint64_t until = ak_now_ms() + DRAIN_MAX_MS;
	bool more = t->master >= 0;
	struct pollfd p[4];

	while (more && ak_now_ms() < until) {
		tty_poll(t, p);
		if (poll(p, 4, idle_ms) <= 0)
			break;
		more = tty_pump(t, p);
	}
}

void tty_leave(struct tty *t)
{
	t->away = true;
	drain(t, 0);
	restore_terminal();
}

void tty_close(struct tty *t)
{
	t->in.from = -1;
	t->in.len = 0;
	drain(t, DRAIN_MS);
	restore_terminal();
}
