/* Shared by all commands: exit codes, messages for the user, and flushing standard output. */
#ifndef AK_SAY_H
#define AK_SAY_H

#include "gateway/base/err.h"

enum {
	AK_EXIT_ERROR = 1,
	AK_EXIT_USAGE = 2,
	AK_EXIT_DENY = 3,
	AK_EXIT_TIMEOUT = 124,
	AK_EXIT_FAILED = 125,
};

/* Print "agentkernel: …" on stderr in one write; control characters are escaped. */
void ak_say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/*
 * A program that is not trusted has used the terminal. It may have hidden what is printed from now on (concealed or cut off by an unfinished control
 * sequence): the next message starts with sequences that make it visible, if standard error is a terminal.
 */
void ak_say_after_program(void);

/* Flush stdout. On failure the rest is dropped, so that the error is reported once; -EPIPE if the reader closed the pipe. */
int ak_flush(struct ak_err *err);

#endif
