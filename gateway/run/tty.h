/* The user's terminal while a command runs on a pty: raw mode, window size, suspending, and copying bytes in both directions. */
#ifndef AK_TTY_H
#define AK_TTY_H

#include "gateway/base/err.h"

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>

/* Are all standard streams terminals, and are we in the foreground there? Then a command gets a pty without being asked. */
bool tty_in_front(void);

/*
 * Save the state of the standard streams, and restore it after a command that used them: file status flags and, for terminals, the mode, the line
 * discipline, exclusive use and stopped output. Leaves a terminal alone if we are in its background: another process uses it now.
 */
void tty_save(void);
void tty_restore(void);

/* The bytes in flight in one direction. We read only when it is empty, so a slow reader slows down the writer. */
struct tty_pipe {
	int from, to; /* borrowed; from is -1 after end of file */
	size_t at, len; /* what is to be written, in BUF */
	char buf[16384];
};

struct tty {
	bool detachable; /* Ctrl-P Ctrl-Q detaches and does not reach the command */
	bool keys; /* look for these keys now */
	bool held; /* Ctrl-P was typed; it is held back until the next key */
	bool detach; /* Ctrl-P Ctrl-Q was typed */
	bool packets; /* the pty is in packet mode (TIOCPKT) */
	bool stopped; /* the command has stopped; the caller clears it */
	bool away; /* we are in the background of our terminal: do not read or change it; try tty_enter again later */
	int master; /* borrowed */
	struct tty_pipe in, out;
};

/* A terminal that is not connected: its master is -1. */
void tty_init(struct tty *t);

/* Connect the standard streams to the pty, and call tty_enter. */
int tty_open(struct tty *t, int master, bool detachable, struct ak_err *err);

/* Switch our terminal, if standard input is one and we are in its foreground, to raw mode, and copy its size to the pty. */
void tty_enter(struct tty *t);

/* Print what the command has written so far, and restore our terminal. The connection stays; tty_enter takes the terminal again. */
void tty_leave(struct tty *t);

/* Copy the window size to the pty; call it after SIGWINCH. */
void tty_resize(const struct tty *t);

/* Fill P with the descriptors to wait for; then handle their events. tty_pump returns false once the pty is closed and all its output written. */
void tty_poll(const struct tty *t, struct pollfd p[static 4]);
bool tty_pump(struct tty *t, const struct pollfd p[static 4]);

/* After the command has ended: copy what is left in the pty, then restore the terminal. */
void tty_close(struct tty *t);

#endif
