/*
 * The caller's side of one run: the plan, signals, streams and the terminal, for the loop of run/loop.h. It is the same for both backends: a sandbox and a
 * gateway of our own (run/run.c), or those of the daemon (service/run.c).
 */
#ifndef AK_RUN_FRONT_H
#define AK_RUN_FRONT_H

#include "gateway/run/loop.h"
#include "gateway/store/plan.h"
#include "gateway/store/report.h"

struct run_front {
	const struct run_request *opts; /* borrowed, like paths */
	const struct ak_paths *paths;
	struct run_plan plan;
	struct run_io io;
	struct run_request own; /* OPTS points here when ports are published: a copy with the ports of the host that are in use */
	int listeners[AK_PUBLISH_MAX]; /* owned: of each published port; valid are the first n_listeners */
	size_t n_listeners;
	int stdio[3]; /* for the command; ends of our pipes are valid until run_io_close_writers */
	uint64_t began_us;
	int live; /* owned, or negative: our entry among the running commands (store/live.h) */
	bool looked;
};

/* Plan the request, redirect signals and open the streams; the result serves every backend that is tried. Call run_front_done even after a failure. */
int run_front_init(struct run_front *f, const struct run_request *opts, const struct ak_paths *paths, struct ak_err *err);
void run_front_done(struct run_front *f);

/* The gateway has the listeners of published ports: close ours, so that the ports end with it. */
void run_front_close_ports(struct run_front *f);

/* Register the run among the running commands, and call run_plan_look; once, while the sandbox is being built. */
void run_front_look(struct run_front *f);

/*
 * The command ran, and R has its outcome and notes: fill in the rest, and print what the exit code alone does not tell. -EIO with a reason if its
 * exit code is AK_EXIT_FAILED: it was killed at once, or could not be executed.
 */
int run_front_report(struct run_front *f, struct run_report *r, struct ak_err *err);

#endif
