/* The user's terminal while a command runs on a pty: raw mode, window size, and the bytes between the two. */
#ifndef AK_TTY_H
#define AK_TTY_H

#include "gateway/base/err.h"

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>

/*
 * The standard streams as they are now, to be put back after a command that has had them: flags, and of terminals the mode, the line discipline, whether they
 * are exclusive or stopped. Not those of a terminal on which we are in the background: it is another's now.
 */
void tty_save(void);
void tty_restore(void);

/* One direction's bytes in flight: read only when empty, so that a slow side slows the other down. */
struct tty_pipe {
	int from, to; /* borrowed; from is -1 after its end of file */
	char buf[16384];
	size_t at, len;
};

struct tty {
	bool raw; /* the terminal is in raw mode and must be restored */
	bool keys; /* set after tty_open: Ctrl-P Ctrl-Q is ours and not the command's */
	bool held; /* a Ctrl-P that waits for what follows it */
	bool detach; /* the two were typed */
	int master; /* borrowed */
	struct tty_pipe in, out;
};

/* Start: raw mode when standard input is a terminal, and its size on the pty. */
int tty_open(struct tty *t, int master, struct ak_err *err);

/* Copy the window size; after SIGWINCH. */
void tty_resize(const struct tty *t);

/* Fill P[2] with what to wait for; then act on what came. False when the pty has ended and all is written. */
void tty_poll(const struct tty *t, struct pollfd p[static 4]);
bool tty_pump(struct tty *t, const struct pollfd p[static 4]);

/* After the command ended: what is still in the pty, then restore the terminal. */
void tty_close(struct tty *t);

#endif
