/* Signals, output and terminal of a `run`: see run/io.h. */
#include "gateway/run/io.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/base/say.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

void run_io_init(struct run_io *io)
{
	io->signal_fd = -1;
	io->want_tty = io->detachable = io->tty_on = false;
	tty_init(&io->tty);
	for (int i = 0; i < RUN_STREAMS; i++)
		io->capture[i] = (struct run_capture){ .fd = -1 };
}

void run_io_done(struct run_io *io)
{
	tty_restore();
	ak_close(io->signal_fd);
	for (int i = 0; i < RUN_STREAMS; i++) {
		ak_close(io->capture[i].fd);
		strbuf_done(&io->capture[i].text);
	}
}

/* ---- signals ---- */

int run_io_signals(struct run_io *io, struct ak_err *err)
{
	static const int wanted[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGWINCH, SIGUSR1, SIGUSR2, SIGCHLD, SIGTSTP, SIGCONT };

	io->signal_fd = ak_signal_fd(wanted, ARRAY_SIZE(wanted));
	return io->signal_fd < 0 ? ak_fail_errno(err, -io->signal_fd, "signalfd") : 0;
}

int run_io_next_signal(struct run_io *io)
{
	struct signalfd_siginfo info;

	while (read(io->signal_fd, &info, sizeof(info)) == sizeof(info)) {
		switch (info.ssi_signo) {
		case SIGWINCH:
			if (io->tty_on)
				tty_resize(&io->tty);
			break;
		case SIGCONT: /* we were stopped from outside: a shell may have changed the terminal's mode */
			if (io->tty_on)
				tty_enter(&io->tty);
			break;
		case SIGCHLD:
			break;
		default:
			return (int)info.ssi_signo;
		}
	}
	return 0;
}

/* ---- output ---- */

int run_io_open(struct run_io *io, uint64_t capture, int stdio[static 3], struct ak_err *err)
{
	tty_save();
	for (int i = 0; i < 3; i++)
		stdio[i] = i;
	for (int i = 0; capture && i < RUN_STREAMS; i++) {
		int fds[2];

		if (pipe2(fds, O_CLOEXEC) < 0)
			return ak_fail_errno(err, errno, "pipe");
		ak_set_nonblock(fds[0], true);
		io->capture[i].fd = fds[0];
		io->capture[i].max = capture;
		stdio[1 + i] = fds[1];
	}
	return 0;
}

void run_io_close_writers(int stdio[static 3])
{
	for (int i = 1; i < 3; i++) {
		if (stdio[i] > 2)
			stdio[i] = ak_close(stdio[i]);
	}
}

void run_capture_read(struct run_capture *c)
{
	char buf[65536];
	ssize_t n = read(c->fd, buf, sizeof(buf));

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		c->fd = ak_close(c->fd);
		return;
	}
	if (c->text.len + (size_t)n > c->max) {
		c->cut = true;
		n = (ssize_t)(c->max - c->text.len);
	}
	strbuf_add(&c->text, buf, (size_t)n);
}

void run_io_take(struct run_io *io, struct run_report *ret)
{
	struct run_capture *out = &io->capture[RUN_OUT], *err = &io->capture[RUN_ERR];

	ret->out_len = out->text.len;
	ret->err_len = err->text.len;
	ret->out = strbuf_take(&out->text);
	ret->err = strbuf_take(&err->text);
	ret->out_cut = out->cut;
	ret->err_cut = err->cut;
}

/* ---- waiting ---- */

void run_io_poll(const struct run_io *io, struct pollfd p[static RUN_IO_NUM])
{
	p[RUN_IO_SIGNAL] = (struct pollfd){ .fd = io->signal_fd, .events = POLLIN };
	for (int i = 0; i < RUN_STREAMS; i++)
		p[RUN_IO_OUT + i] = (struct pollfd){ .fd = io->capture[i].fd, .events = POLLIN };
	if (io->tty_on) {
		tty_poll(&io->tty, p + RUN_IO_TTY);
		return;
	}
	for (int i = RUN_IO_TTY; i < RUN_IO_NUM; i++)
		p[i] = (struct pollfd){ .fd = -1 };
}

void run_io_pump(struct run_io *io, const struct pollfd p[static RUN_IO_NUM])
{
	for (int i = 0; i < RUN_STREAMS; i++) {
		if (p[RUN_IO_OUT + i].revents)
			run_capture_read(&io->capture[i]);
	}
	if (io->tty_on && !tty_pump(&io->tty, p + RUN_IO_TTY))
		io->tty_on = false;
}

/* ---- end ---- */

void run_say_ended(const struct run_outcome *o, uint64_t timeout_ms)
{
	_cleanup_strbuf_ struct strbuf limits = { 0 };

	if ((o->exit_code == 126 || o->exit_code == 127) && o->why.text[0])
		ak_say("%s", o->why.text);
	if (o->timed_out)
		ak_say("timed out after %gs", (double)timeout_ms / 1000);
	run_outcome_tell(&limits, o);
	if (limits.data)
		run_say_notes(limits.data);
}

void run_say_notes(const char *notes)
{
	while (*notes) {
		size_t n = strcspn(notes, "\n");

		if (n)
			ak_say("%.*s", (int)n, notes);
		notes += n + (notes[n] == '\n');
	}
}
