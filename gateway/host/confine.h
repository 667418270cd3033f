/*
 * Take every power from the process that parses what sandboxes send (invariant 6): no file system (Landlock), no
 * exec, no ptrace, no new kinds of sockets (system-call filter), no capability, no privilege to gain.
 *
 * The filter is written and compiled in host/gen/main.c, when the program is built.
 */
#ifndef AK_CONFINE_H
#define AK_CONFINE_H

#include "gateway/base/err.h"

/* Apply everything to this process, for good. */
int confine_apply(struct ak_err *err);

#endif
