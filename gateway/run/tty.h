/* The user's terminal while a command runs on a pty: raw mode, window size, and copying bytes in both directions. */
#ifndef AK_TTY_H
#define AK_TTY_H

#include "gateway/base/err.h"

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>

/*
 * Save the state of the standard streams, and restore it after a command that used them: file status flags and, for terminals, the mode, the line
 * discipline, exclusive use and stopped output. Leaves a terminal alone if we are in its background: another process uses it now.
 */
void tty_save(void);
void tty_restore(void);

/* The bytes in flight in one direction. We read only when it is empty, so a slow reader slows down the writer. */
struct tty_pipe {
	int from, to; /* borrowed; from is -1 after end of file */
	char buf[16384];
	size_t at, len;
};

struct tty {
	bool raw; /* the terminal is in raw mode and must be restored */
	bool keys; /* set it after tty_open: Ctrl-P Ctrl-Q detaches and does not reach the command */
	bool held; /* Ctrl-P was typed; it is held back until the next key */
	bool detach; /* Ctrl-P Ctrl-Q was typed */
	int master; /* borrowed */
	struct tty_pipe in, out;
};

/* Switch the terminal, if standard input is one, to raw mode and copy its size to the pty. */
int tty_open(struct tty *t, int master, struct ak_err *err);

/* Copy the window size to the pty; call it after SIGWINCH. */
void tty_resize(const struct tty *t);

/* Fill P with the descriptors to wait for; then handle their events. tty_pump returns false once the pty is closed and all its output written. */
void tty_poll(const struct tty *t, struct pollfd p[static 4]);
bool tty_pump(struct tty *t, const struct pollfd p[static 4]);

/* After the command has ended: copy what is left in the pty, then restore the terminal. */
void tty_close(struct tty *t);

#endif
