/*
 * The life of one run: build → host → go → end → record. The one place that decides when a command may run, when it is killed, what its exit code is
 * and what is recorded of it. `run` with its own gateway, the daemon's warm pool and the supervisor of a persistent sandbox all drive it.
 *
 * Theory of operation. It knows neither poll nor libevent. The driver reports events with the functions below and sets a timer for life_due_ms; what has
 * to be done outside comes back through life_ops. A sandbox is built and a gateway hosts it, at the same time and in any order. When both are ready
 * the command runs. Whatever fails before that ends the life at once and leaves no record. Once the command was started it is never started
 * again: its end asks the gateway for the last numbers, writes the record, and then the life is over.
 */
#ifndef AK_LIFE_H
#define AK_LIFE_H

#include "gateway/store/plan.h"
#include "gateway/store/rundir.h"

#define LIFE_TERM_GRACE_MS 5000 /* from SIGTERM or SIGHUP to SIGKILL */

enum life_state {
	LIFE_BUILDING, /* sandbox and gateway get ready; the command has not run */
	LIFE_RUNNING,
	LIFE_ENDING, /* the command has ended, the gateway is asked for the last numbers */
	LIFE_OVER,
	LIFE_NUM
};

struct run_life;

/* All run inside one of the functions below and may not free the life. */
struct life_ops {
	int (*build)(struct run_life *l, struct ak_err *err); /* begin to make the sandbox and set l->sandbox */
	int (*host)(struct run_life *l, struct ak_err *err); /* ask for a gateway; life_hosted or life_refused answers */
	void (*going)(struct run_life *l); /* the command runs next; may be NULL */
	void (*started)(struct run_life *l); /* it runs; may be NULL */
	void (*unhost)(struct run_life *l); /* give the gateway back; life_unhosted answers, now or later */
	void (*over)(struct run_life *l); /* the record is written, or removed when l->ran is false; may be NULL */
};

struct run_life {
	/* The driver's part. */
	const struct life_ops *ops;
	void *ctx; /* borrowed */
	const struct ak_paths *paths; /* borrowed, like the next two */
	const struct run_request *opts; /* NULL: nothing is recorded */
	const struct run_plan *plan;
	struct policy *policy; /* owned; loaded by life_begin when it is missing */
	struct sandbox *sandbox; /* borrowed: freed by the driver after the end */
	bool needs_host; /* the command waits for life_hosted */
	bool host_when_ready; /* ask for the gateway only once the sandbox is ready */
	bool record_late; /* record the start after the command was let go, which need not wait for it */
	uint64_t began_us; /* of the request, by ak_now_us */
	uint64_t start_max_ms; /* what is not running by then never will be */

	/* Its own. */
	enum life_state state;
	struct rundir dir;
	bool ran; /* the command was let go */
	bool hosting; /* the gateway was asked for */
	bool hosted;
	bool unrecorded; /* its start could not be recorded, and it was ended for that */
	bool killed; /* by life_tick: there is nothing left to wait for but its end */
	unsigned interrupts;
	uint64_t start_by_ms, command_began_ms, deadline_ms, kill_at_ms;
	struct run_outcome outcome;
	int rc; /* unless it ran: why not */
	struct ak_err failure;
};

void life_init(struct run_life *l, const struct life_ops *ops, void *ctx);
void life_done(struct run_life *l);

/* Start. The life may be over when this returns. */
void life_begin(struct run_life *l);

/* ---- events; those that come too late are ignored ---- */

void life_poll(struct run_life *l); /* sandbox_fd is readable */
void life_hosted(struct run_life *l);
void life_refused(struct run_life *l, const char *reason);
void life_host_lost(struct run_life *l, const char *reason); /* the gateway is gone; does not answer for life_unhosted */
void life_unhosted(struct run_life *l, const struct gw_stats *last); /* NULL: the numbers are lost */
void life_signal(struct run_life *l, int sig); /* from the user */
void life_left(struct run_life *l); /* whoever asked for the run is gone */
void life_tick(struct run_life *l); /* life_due_ms has come */

/* When life_tick has something to do, by ak_now_ms; 0: never. */
uint64_t life_due_ms(const struct run_life *l);

#endif
