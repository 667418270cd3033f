/*
 * Pipes between two sockets. A direction holds one only while bytes wait in it, so few are needed at once, and a small pool
 * of empty ones saves system calls.
 */
#include "gateway/relay/flow.h"

#include "gateway/base/cleanup.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#define POOL_MAX 8
#define PIPE_BYTES (1 << 20)

struct relay_pipe *relay_pipe_get(struct relay_pipe_pool *pool)
{
	struct relay_pipe *p = pool->free;
	int size;

	if (p) {
		pool->free = p->next;
		pool->n_free--;
		return p;
	}
	p = calloc(1, sizeof(*p));
	if (!p)
		return NULL;
	if (pipe2(p->fd, O_CLOEXEC | O_NONBLOCK) < 0) {
		free(p);
		return NULL;
	}
	/* The kernel limits the pipe pages of an ordinary user; beyond that the pipe keeps its default size. */
	for (size = PIPE_BYTES; size > 65536 && fcntl(p->fd[1], F_SETPIPE_SZ, size) < 0; size /= 4)
		;
	size = fcntl(p->fd[1], F_GETPIPE_SZ);
	p->size = size > 0 ? (size_t)size : 4096;
	return p;
}

static void pipe_free(struct relay_pipe *p)
{
	ak_close(p->fd[0]);
	ak_close(p->fd[1]);
	free(p);
}

void relay_pipe_put(struct relay_pipe_pool *pool, struct relay_pipe *p, bool empty)
{
	if (!p)
		return;
	/* Leftover bytes belong to one flow and must never reach another. */
	if (!empty || pool->n_free >= POOL_MAX) {
		pipe_free(p);
		return;
	}
	p->next = pool->free;
	pool->free = p;
	pool->n_free++;
}

void relay_pipe_pool_done(struct relay_pipe_pool *pool)
{
	while (pool->free) {
		struct relay_pipe *p = pool->free;

		pool->free = p->next;
		pipe_free(p);
	}
	pool->n_free = 0;
}
