/* Signals as a descriptor, output that is kept for --json, the user's terminal, and the lines about how a run ended: what run/front.h serves. */
#ifndef AK_RUN_IO_H
#define AK_RUN_IO_H

#include "gateway/base/strbuf.h"
#include "gateway/run/tty.h"
#include "gateway/store/report.h"

#include <poll.h>

#define RUN_CAPTURE_MAX (16u << 20)

enum { RUN_OUT, RUN_ERR, RUN_STREAMS };

struct run_capture {
	int fd; /* owned; -1 after its end */
	struct strbuf text;
	bool cut;
};

struct run_io {
	int signal_fd; /* owned */
	struct run_capture capture[RUN_STREAMS];
	struct tty tty;
	bool tty_on;
};

void run_io_init(struct run_io *io);
void run_io_done(struct run_io *io);

/* Signals become a descriptor; the caller's children put the mask back. */
int run_io_signals(struct run_io *io, struct ak_err *err);

/* The next signal that is the command's; 0 when there is none. A new window size is seen to here. */
int run_io_next_signal(struct run_io *io);

/* What the command gets as its standard streams: ours, which are put back by run_io_done, or pipes with CAPTURE. The writing ends are the caller's, to be closed once handed on. */
int run_io_open(struct run_io *io, bool capture, int stdio[static 3], struct ak_err *err);
void run_io_close_writers(int stdio[static 3]);

/* Fill in what to wait for, and act on what came; the signals are the caller's to read. */
enum { RUN_IO_SIGNAL, RUN_IO_OUT, RUN_IO_ERR, RUN_IO_TTY, RUN_IO_NUM = RUN_IO_TTY + 4 };
void run_io_poll(const struct run_io *io, struct pollfd p[static RUN_IO_NUM]);
void run_io_pump(struct run_io *io, const struct pollfd p[static RUN_IO_NUM]);

/* Read once from a captured stream. */
void run_capture_read(struct run_capture *c);

/* Hand over what was captured. */
void run_io_take(struct run_io *io, struct run_report *ret);

/* Tell the user what the exit code alone does not. */
void run_say_ended(const struct run_outcome *o, uint64_t timeout_ms);

/* Limits that could not be set on this host, a line each. */
void run_say_notes(const char *notes);

#endif
