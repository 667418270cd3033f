/*
 * The loop of every command that a user waits for: signals, terminal, captured output, and suspending. What runs the command is a backend: a sandbox and
 * a gateway of our own (run/run.c), those of the daemon (service/run.c), or a running sandbox (service/session.c).
 */
#ifndef AK_RUN_LOOP_H
#define AK_RUN_LOOP_H

#include "gateway/run/io.h"

#define RUN_BACKEND_FDS 3

struct run_backend {
	void (*poll)(const void *ctx, struct pollfd p[static RUN_BACKEND_FDS]); /* fill in the descriptors to wait for */
	void (*serve)(void *ctx, const struct pollfd p[static RUN_BACKEND_FDS]); /* handle events and expired timers */
	uint64_t (*due_ms)(const void *ctx); /* call serve at this time (ak_now_ms) at the latest; 0: no timer */
	/* Forward SIG to the command's process group. SIGSTOP, SIGTSTP and SIGCONT have no effect before the command runs. */
	void (*signal)(void *ctx, int sig);
	int (*tty_fd)(const void *ctx); /* the pty's master while the command runs, borrowed; else -1 */
	bool (*over)(const void *ctx);
};

/*
 * Serve B until it is over; -errno if poll fails. When the user suspends the command (Ctrl-Z), this process stops, too, with its terminal restored,
 * and continues the command when it is continued.
 */
int run_loop(struct run_io *io, const struct run_backend *b, void *ctx);

/* The command has ended: read what is left in its pipes or pty, for at most TIMEOUT_MS (-1: until end of file), and restore the terminal. */
void run_drain(struct run_io *io, int timeout_ms);

#endif
