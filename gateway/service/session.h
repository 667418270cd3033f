/*
 * A person at a command in a sandbox: signals, terminal, window size, and the way out that leaves it running.
 *
 * A command that was left with Ctrl-P Ctrl-Q is held by a small process of its own until someone attaches again, or it ends.
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
	bool detached; /* after session_run: it goes on without us */
	struct service_exit end; /* after session_run, unless detached */
};

/* Signals wait for us from here on; before the command is started, so that none is missed. */
int session_init(struct session *s, const struct ak_paths *paths, const char *name, bool tty, struct ak_err *err);
void session_done(struct session *s); /* ends the command, unless it was left */

/* See the command through to its end, or until it is left. */
int session_run(struct session *s, struct ak_err *err);

/* Take over a command that was left; -ENOENT when there is none. */
int session_take(struct session *s, struct ak_err *err);

#endif
