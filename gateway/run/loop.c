/* The loop of every command that a user waits for: see run/loop.h. */
#include "gateway/run/loop.h"

#include "gateway/base/io.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <unistd.h>

#define AWAY_MS 250 /* no event tells a background job that it has come to the foreground */

enum { P_BACKEND, P_IO = P_BACKEND + RUN_BACKEND_FDS, P_NUM = P_IO + RUN_IO_NUM };

static void start_tty(struct run_io *io, int master)
{
	struct ak_err ignored;

	if (io->want_tty && master >= 0 && io->tty.master < 0 && tty_open(&io->tty, master, io->detachable, &ignored) == 0)
		io->tty_on = true;
}

static int wait_ms(const struct run_io *io, uint64_t due_ms)
{
	uint64_t now = ak_now_ms();

	if (io->tty_on && io->tty.away && (!due_ms || due_ms > now + AWAY_MS))
		return AWAY_MS;
	if (!due_ms)
		return -1;
	return due_ms <= now ? 0 : due_ms - now > INT_MAX ? INT_MAX : (int)(due_ms - now);
}

/* ---- suspending ---- */

/* Stop until SIGCONT comes. The kernel ignores SIGTSTP where no shell could continue us (an orphaned process group): then return at once. */
static void stop_here(pid_t whom)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTSTP);
	kill(whom, SIGTSTP);
	sigprocmask(SIG_UNBLOCK, &set, NULL);
	sigprocmask(SIG_BLOCK, &set, NULL);
}

/* The command on the pty has stopped. Stop our whole job, as the kernel does when the suspend key is typed. */
static void suspend_tty(struct run_io *io, const struct run_backend *b, void *ctx)
{
	tty_leave(&io->tty);
	io->tty.stopped = false;
	stop_here(0);
	tty_enter(&io->tty);
	b->signal(ctx, SIGCONT);
}

static void on_signal(struct run_io *io, const struct run_backend *b, void *ctx, int sig)
{
	if (sig != SIGTSTP || io->tty_on) {
		b->signal(ctx, sig); /* a command on a pty reports when SIGTSTP has stopped it */
		return;
	}
	b->signal(ctx, SIGSTOP); /* its process group is orphaned, so SIGTSTP would not stop it */
	stop_here(getpid());
	b->signal(ctx, SIGCONT);
}

/* ---- the loop ---- */

static void serve(struct run_io *io, const struct pollfd p[static P_NUM], const struct run_backend *b, void *ctx)
{
	if (p[P_IO + RUN_IO_SIGNAL].revents) {
		for (int sig; (sig = run_io_next_signal(io)) > 0;)
			on_signal(io, b, ctx, sig);
	}
	if (io->tty_on && io->tty.away)
		tty_enter(&io->tty);
	run_io_pump(io, p + P_IO);
	if (io->tty_on && io->tty.stopped)
		suspend_tty(io, b, ctx);
	b->serve(ctx, p + P_BACKEND);
}

int run_loop(struct run_io *io, const struct run_backend *b, void *ctx)
{
	struct pollfd p[P_NUM];

	while (!b->over(ctx)) {
		start_tty(io, b->tty_fd(ctx));
		b->poll(ctx, p + P_BACKEND);
		run_io_poll(io, p + P_IO);
		if (poll(p, P_NUM, wait_ms(io, b->due_ms(ctx))) >= 0)
			serve(io, p, b, ctx);
		else if (errno != EINTR)
			return -errno;
	}
	start_tty(io, b->tty_fd(ctx)); /* it started and ended in one turn: its output is still in the pty */
	return 0;
}

void run_drain(struct run_io *io, int timeout_ms)
{
	uint64_t now = ak_now_ms(), until = timeout_ms < 0 ? UINT64_MAX : now + (uint64_t)timeout_ms;
	struct run_capture *c = io->capture;

	if (timeout_ms == 0)
		io->tty.master = -1;
	tty_close(&io->tty);
	for (; (c[RUN_OUT].fd >= 0 || c[RUN_ERR].fd >= 0) && now < until; now = ak_now_ms()) {
		struct pollfd p[RUN_STREAMS];

		for (int i = 0; i < RUN_STREAMS; i++)
			p[i] = (struct pollfd){ .fd = c[i].fd, .events = POLLIN };
		if (poll(p, RUN_STREAMS, timeout_ms < 0 ? -1 : (int)(until - now)) < 0 && errno != EINTR)
			break;
		for (int i = 0; i < RUN_STREAMS; i++) {
			if (p[i].revents)
				run_capture_read(&c[i]);
		}
	}
}
