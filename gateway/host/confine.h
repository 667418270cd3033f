/*
 * Drops all privileges of the process that parses sandbox traffic (invariant 6): no file system (Landlock), no exec,
 * no ptrace, no new kinds of sockets (system-call filter), no capabilities, no way to gain privileges.
 *
 * host/gen/main.c defines the filter and compiles it when the program is built.
 */
#ifndef AK_CONFINE_H
#define AK_CONFINE_H

#include "gateway/base/err.h"

/* Apply everything to this process, irrevocably. */
int confine_apply(struct ak_err *err);

#endif
