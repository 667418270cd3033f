/*
 * A command in a running sandbox that the user waits for: a backend of run/loop.h, and detaching.
 *
 * After Ctrl-P Ctrl-Q a small separate process, the holder, keeps the command running until someone attaches again or the command ends.
 */
#ifndef AK_SESSION_H
#define AK_SESSION_H

#include "gateway/run/io.h"
#include "gateway/service/service.h"

struct session {
	const struct ak_paths *paths; /* borrowed */
	const char *name; /* borrowed; of the sandbox */
	struct service_exec exec; /* owned; ended by session_run unless detached */
	unsigned interrupts;
	int left_by; /* the signal that made us disconnect, or 0 */
	uint64_t leave_at_ms; /* disconnect then; 0: no such time */
	int rc; /* 1: it ended; negative: we lost it, for the reason in WHY */
	struct ak_err why;
	bool detached; /* after session_run: the command continues without us */
	struct service_exit end; /* after session_run, unless detached */
	struct run_io io; /* large */
};

/*
 * Redirects signals to a descriptor and remembers the state of the terminal, which session_done restores. Call it before starting the command, so that
 * no signal is missed.
 */
int session_init(struct session *s, const struct ak_paths *paths, const char *name, bool tty, struct ak_err *err);
void session_done(struct session *s); /* ends the command unless detached */

/* Serve the command until it ends or the user detaches. */
int session_run(struct session *s, struct ak_err *err);

/* Reattach to a detached command; -ENOENT if there is none. */
int session_take(struct session *s, struct ak_err *err);

#endif
