/* I/O of a run for the loop of run/loop.h: signals as a descriptor, output captured for --json, the user's terminal, and messages about the run's end. */
#ifndef AK_RUN_IO_H
#define AK_RUN_IO_H

#include "gateway/base/strbuf.h"
#include "gateway/run/tty.h"
#include "gateway/store/report.h"

#include <poll.h>

#define RUN_CAPTURE_MAX (16u << 20) /* of each stream, unless the request has a limit of its own */

enum { RUN_OUT, RUN_ERR, RUN_STREAMS };

struct run_capture {
	int fd; /* owned; -1 after end of file */
	struct strbuf text;
	uint64_t max; /* bytes */
	bool cut;
};

struct run_io {
	int signal_fd; /* owned */
	struct run_capture capture[RUN_STREAMS];
	bool want_tty; /* set it after run_io_init: connect our terminal to the command's pty */
	bool detachable; /* the same: Ctrl-P Ctrl-Q detaches from the pty */
	struct tty tty;
	bool tty_on;
};

void run_io_init(struct run_io *io);
void run_io_done(struct run_io *io);

/* Block signals and read them from a descriptor. Child processes must restore the signal mask. */
int run_io_signals(struct run_io *io, struct ak_err *err);

/* The next signal to forward to the command; 0 if there is none. Handles SIGWINCH and SIGCONT itself. */
int run_io_next_signal(struct run_io *io);

/*
 * The standard streams of the command: our own, whose state run_io_done restores, or with CAPTURE, the limit of each stream in bytes, pipes. The caller closes the write ends
 * (run_io_close_writers) once the sandbox has them.
 */
int run_io_open(struct run_io *io, uint64_t capture, int stdio[static 3], struct ak_err *err);
void run_io_close_writers(int stdio[static 3]);

/* Fill in the descriptors to wait for; handle their events. The caller reads the signals. */
enum { RUN_IO_SIGNAL, RUN_IO_OUT, RUN_IO_ERR, RUN_IO_TTY, RUN_IO_NUM = RUN_IO_TTY + 4 };
void run_io_poll(const struct run_io *io, struct pollfd p[static RUN_IO_NUM]);
void run_io_pump(struct run_io *io, const struct pollfd p[static RUN_IO_NUM]);

/* Read once from a captured stream. */
void run_capture_read(struct run_capture *c);

/* Move the captured output to RET. */
void run_io_take(struct run_io *io, struct run_report *ret);

/* Print what the exit code alone does not tell. */
void run_say_ended(const struct run_outcome *o, uint64_t timeout_ms);

/* Print notes such as limits that could not be set on this host, one per line. */
void run_say_notes(const char *notes);

#endif
