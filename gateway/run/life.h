/*
 * The life of one run: build → host → go → end → record. Only this file decides when a command may run, when it is killed, what its exit code is
 * and what is recorded. It has three drivers: `run` with its own gateway, the daemon's warm pool, and the supervisor of a persistent sandbox.
 *
 * Theory of operation. It uses neither poll nor libevent. The driver reports events with the functions below and sets a timer for life_due_ms; the life
 * calls the driver through life_ops. A sandbox is built and a gateway hosts it, at the same time and in any order. When both are ready
 * the command runs. A failure before that ends the life at once and leaves no record. A command is never started twice: when it
 * ends, the life asks the gateway for the final statistics, writes the record, and is over.
 */
#ifndef AK_LIFE_H
#define AK_LIFE_H

#include "gateway/run/disk.h"
#include "gateway/store/plan.h"
#include "gateway/store/rundir.h"

#define LIFE_TERM_GRACE_MS 5000 /* from SIGTERM or SIGHUP to SIGKILL */

enum life_state {
	LIFE_BUILDING, /* sandbox and gateway are being prepared; the command has not run */
	LIFE_RUNNING,
	LIFE_ENDING, /* the command has ended; waiting for the gateway's final statistics */
	LIFE_OVER,
	LIFE_NUM
};

struct run_life;

/* Callbacks: called from the functions below; they must not free the life. */
struct life_ops {
	int (*build)(struct run_life *l, struct ak_err *err); /* start building the sandbox and set l->sandbox */
	int (*host)(struct run_life *l, struct ak_err *err); /* request a gateway; then call life_hosted or life_refused */
	void (*going)(struct run_life *l); /* the command is about to run; may be NULL */
	void (*started)(struct run_life *l); /* the command runs; may be NULL */
	void (*unhost)(struct run_life *l); /* release the gateway; then call life_unhosted, now or later */
	void (*over)(struct run_life *l); /* the record is written, or removed when l->ran is false; may be NULL */
};

struct run_life {
	/* Set by the driver. */
	const struct life_ops *ops;
	void *ctx; /* borrowed */
	const struct ak_paths *paths; /* borrowed, like the next two */
	const struct run_request *opts; /* NULL: nothing is recorded */
	const struct run_plan *plan;
	struct policy *policy; /* owned; life_begin loads it if NULL */
	struct sandbox *sandbox; /* borrowed: freed by the driver after the end */
	bool needs_host; /* the command waits for life_hosted */
	bool host_when_ready; /* request the gateway only once the sandbox is ready */
	bool record_late; /* start the command first, then record its start, so that it does not wait for the disk */
	uint64_t began_us; /* when the request was made, by ak_now_us */
	uint64_t start_max_ms; /* give up if the command is not running by then */

	/* Set by run/life.c. */
	enum life_state state;
	struct rundir dir;
	bool ran; /* the command was started */
	bool hosting; /* the gateway was requested */
	bool hosted;
	bool unrecorded; /* killed because its start could not be recorded */
	bool killed; /* by life_tick: no more timers, only its end is left */
	unsigned interrupts;
	struct disk_watch disk;
	uint64_t start_by_ms, command_began_ms, deadline_ms, kill_at_ms;
	struct run_outcome outcome;
	int rc; /* why it did not run; 0 if it did */
	struct ak_err failure;
};

void life_init(struct run_life *l, const struct life_ops *ops, void *ctx);
void life_done(struct run_life *l);

/* Start. The life may be over when this returns. */
void life_begin(struct run_life *l);

/* ---- events; late ones are ignored ---- */

void life_poll(struct run_life *l); /* sandbox_fd is readable */
void life_hosted(struct run_life *l);
void life_refused(struct run_life *l, const char *reason);
void life_host_lost(struct run_life *l, const char *reason); /* it has ended; a pending unhost still needs life_unhosted */
void life_unhosted(struct run_life *l, const struct gw_stats *last); /* NULL: the statistics are lost */
void life_signal(struct run_life *l, int sig); /* from the user */
void life_left(struct run_life *l); /* the client has disconnected */
void life_tick(struct run_life *l); /* the time of life_due_ms has come */

/* When to call life_tick, by ak_now_ms; 0: never. */
uint64_t life_due_ms(const struct run_life *l);

#endif
