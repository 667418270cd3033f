/*
 * Re-exec this program as a detached process that inherits only the environment and one descriptor.
 *
 * Unlike a fork, the new process shares no memory with us. With a thousand forks of one process, every kernel operation on one
 * of its pages (reclaim, for example) has to visit a thousand address spaces.
 */
#ifndef AK_SPAWN_H
#define AK_SPAWN_H

#include "gateway/base/err.h"

#include <stddef.h>
#include <sys/types.h>

#define SPAWN_FD 3 /* the descriptor number in the new process */

/* Call early in a process that will hold many descriptors: a child copies only those opened before this. */
void spawn_prepare(void);

/* Start it with ARGV and FD (borrowed), standard streams on /dev/null, in a new session. Returns 0 once exec has succeeded. */
int spawn_detached(char *const argv[], int fd, struct ak_err *err);

/* First steps of the new process: default signals (SIGPIPE ignored), empty mask, umask 077, cwd /, SPAWN_FD closed on exec. */
void spawn_settle(void);

/* Run FN(CTX) in a detached fork that keeps only the N descriptors in KEEP; 0 once it has started. */
int spawn_fork(void (*fn)(void *ctx), void *ctx, const int *keep, size_t n, struct ak_err *err);

/* The same in a child that the caller must wait for; returns its pid, or -errno. */
pid_t spawn_child(void (*fn)(void *ctx), void *ctx, const int *keep, size_t n, struct ak_err *err);

#endif
