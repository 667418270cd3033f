/*
 * An interactive command in a sandbox: signals, terminal, window size, and detaching.
 *
 * After Ctrl-P Ctrl-Q a small separate process, the holder, keeps the command running until someone attaches again or the command ends.
 */
#ifndef AK_SESSION_H
#define AK_SESSION_H

#include "gateway/service/service.h"

struct session {
	const struct ak_paths *paths; /* borrowed */
	const char *name; /* borrowed; of the sandbox */
	struct service_exec exec;
	bool tty;
	int signal_fd; /* owned */
	bool detached; /* after session_run: the command continues without us */
	struct service_exit end; /* after session_run, unless detached */
};

/* Redirects signals to a descriptor. Call it before starting the command, so that no signal is missed. */
int session_init(struct session *s, const struct ak_paths *paths, const char *name, bool tty, struct ak_err *err);
void session_done(struct session *s); /* ends the command unless detached */

/* Serve the command until it ends or the user detaches. */
int session_run(struct session *s, struct ak_err *err);

/* Reattach to a detached command; -ENOENT if there is none. */
int session_take(struct session *s, struct ak_err *err);

#endif
