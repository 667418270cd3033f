/*
 * This program once more, as a process of its own: nobody's child, with nothing of ours but the environment and one descriptor.
 *
 * Unlike a fork it shares no memory with us. A thousand forks of one process make every look at one of its pages, by whatever part of the kernel
 * watches or reclaims memory, a walk past a thousand address spaces.
 */
#ifndef AK_SPAWN_H
#define AK_SPAWN_H

#include "gateway/base/err.h"

#include <stddef.h>
#include <sys/types.h>

#define SPAWN_FD 3 /* where the new process finds its descriptor */

/* Early in a process that will hold many descriptors: what is copied then is only what came before. */
void spawn_prepare(void);

/* Start it with ARGV and FD (borrowed); its standard streams are the null device, its session is new. 0 once the program runs. */
int spawn_detached(char *const argv[], int fd, struct ak_err *err);

/* What the new process does first: default signals, no mask, private files, and SPAWN_FD closed on exec. */
void spawn_settle(void);

/* Run FN(CTX) in a fork that is nobody's child here and has no descriptor but the N of KEEP; 0 once it is on its way. */
int spawn_fork(void (*fn)(void *ctx), void *ctx, const int *keep, size_t n, struct ak_err *err);

/* The same, as a child that the caller must wait for: its pid, or -errno. */
pid_t spawn_child(void (*fn)(void *ctx), void *ctx, const int *keep, size_t n, struct ak_err *err);

#endif
