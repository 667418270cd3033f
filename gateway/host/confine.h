/*
 * Take every power from the process that parses what sandboxes send (invariant 6): no file system (Landlock), no
 * exec, no ptrace, no new kinds of sockets (system-call filter), no capability, no privilege to gain.
 *
 * In two steps, because compiling the filter takes a while and can be done before there is anything to read.
 */
#ifndef AK_CONFINE_H
#define AK_CONFINE_H

#include "gateway/base/err.h"

struct confine;

/* Compile the filter; needs no privilege and changes nothing. */
int confine_prepare(struct confine **ret, struct ak_err *err);

/* Apply everything to this process, for good. Consumes C, also on failure. */
int confine_apply(struct confine *c, struct ak_err *err);

#endif
