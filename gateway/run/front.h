/*
 * The caller's side of one run, whoever has the sandbox: the plan, signals, streams, the terminal, and the one loop that serves them. What differs is
 * behind run_backend: a sandbox and a gateway of our own (run/run.c), or those of the daemon (service/run.c).
 */
#ifndef AK_RUN_FRONT_H
#define AK_RUN_FRONT_H

#include "gateway/run/io.h"
#include "gateway/store/plan.h"
#include "gateway/store/report.h"

struct run_front {
	const struct run_request *opts; /* borrowed, like the paths */
	const struct ak_paths *paths;
	struct run_plan plan;
	struct run_io io;
	int stdio[3]; /* what the command gets; pipes of ours until run_io_close_writers */
	uint64_t began_us;
	bool looked;
};

#define RUN_BACKEND_FDS 2

struct run_backend {
	void (*poll)(const void *ctx, struct pollfd p[static RUN_BACKEND_FDS]); /* what to wait for */
	void (*serve)(void *ctx, const struct pollfd p[static RUN_BACKEND_FDS]); /* act on what came and on what is due */
	uint64_t (*due_ms)(const void *ctx); /* when SERVE is called at the latest, by ak_now_ms; 0: whenever something comes */
	void (*signal)(void *ctx, int sig);
	int (*tty_fd)(const void *ctx); /* the pty's master once the command runs, borrowed; else -1 */
	bool (*over)(const void *ctx);
};

/* Plan the request, once for every backend that is tried; take signals and open the streams. To be freed also after a failure. */
int run_front_init(struct run_front *f, const struct run_request *opts, const struct ak_paths *paths, struct ak_err *err);
void run_front_done(struct run_front *f);

/* run_plan_look, once; while the sandbox is being made. */
void run_front_look(struct run_front *f);

/* Serve B until it is over; -errno when we cannot wait. */
int run_front_loop(struct run_front *f, const struct run_backend *b, void *ctx);

/* Take what the command, which has ended, left in its pipes or pty, for at most TIMEOUT_MS; -1: until their end. The terminal
 * is the user's again. */
void run_front_drain(struct run_front *f, int timeout_ms);

/*
 * The command ran, and R has its outcome and notes: add the rest, and tell the user what the exit code alone does not. -EIO with a reason when it ran in
 * name only.
 */
int run_front_report(struct run_front *f, struct run_report *r, struct ak_err *err);

#endif
