/*
 * A person at a command in a sandbox: signals, terminal, window size, and the way out that leaves it running.
 *
 * A command that was left with Ctrl-P Ctrl-Q is held by a small process of its own until someone attaches again, or it ends.
 */
#ifndef AK_SESSION_H
#define AK_SESSION_H

#include "gateway/client.h"

struct session {
	const struct ak_paths *paths; /* borrowed */
	const char *name; /* borrowed; of the sandbox */
	struct client_exec exec;
	bool tty;
	bool detached; /* after session_run: it goes on without us */
	struct client_exit end; /* after session_run, unless detached */
};

/* See the command through to its end, or until it is left. */
int session_run(struct session *s, struct ak_err *err);

/* Take over a command that was left; -ENOENT when there is none. */
int session_take(struct session *s, struct ak_err *err);

#endif
