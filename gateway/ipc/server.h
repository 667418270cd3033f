/*
 * The serving side of ipc/ipc.h on an event loop: many peers, none of whom can make us wait.
 *
 * What a peer does not take at once is queued up to a bound; a peer that lets it fill is dropped. A peer is found again by its id, so that
 * an answer that comes late finds either it or nothing.
 */
#ifndef AK_IPC_SERVER_H
#define AK_IPC_SERVER_H

#include "gateway/ipc/ipc.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define IPC_QUEUE_MAX 64 /* messages a peer may leave unread beyond what its socket holds */

struct event_base;
struct ipc_server;
struct ipc_peer;

/* A message that arrived; the handler takes what it keeps (TAKE, TAKE_FD), the rest is released after it. */
struct ipc_message {
	cJSON *obj;
	int fds[IPC_FDS_MAX];
	size_t n_fds;
};

struct ipc_hooks {
	void *ctx; /* borrowed: outlives us */
	void (*on_message)(void *ctx, struct ipc_peer *peer, struct ipc_message *msg);
	void (*on_gone)(void *ctx, struct ipc_peer *peer); /* its last word; freed after it. May be NULL */
};

/* LISTENER is taken over; -1 serves only peers that ipc_server_adopt brings. */
int ipc_server_new(
	struct event_base *base, int listener, size_t max_peers, const struct ipc_hooks *hooks, struct ipc_server **ret);
void ipc_server_free(struct ipc_server *s); /* closes all peers without on_gone */

/* Serve a connection that was made elsewhere; takes FD over, also on failure. */
int ipc_server_adopt(struct ipc_server *s, int fd, void *data, struct ipc_peer **ret);

struct ipc_peer *ipc_server_find(const struct ipc_server *s, uint64_t id); /* NULL also for one that is on its way out */

/* What the peer's data points to is no more. Reaches one on its way out, too, which is not found any more but still has its on_gone. */
void ipc_server_forget(struct ipc_server *s, uint64_t id);
size_t ipc_server_count(const struct ipc_server *s);

uint64_t ipc_peer_id(const struct ipc_peer *p); /* never 0, never used twice */
pid_t ipc_peer_pid(const struct ipc_peer *p); /* when it connected */
int ipc_peer_pidfd(const struct ipc_peer *p); /* a descriptor of that process; -errno before Linux 6.5 */
void *ipc_peer_data(const struct ipc_peer *p);
void ipc_peer_set_data(struct ipc_peer *p, void *data);

/* Send or queue; a failure drops the peer (on_gone comes from the loop, not from in here). */
void ipc_peer_send(struct ipc_peer *p, const cJSON *obj, const int *fds, size_t n_fds);
void ipc_peer_fail(struct ipc_peer *p, int code, const char *text);

/* Stop or go on reading: a peer with a request in flight sends the next one into its own buffer. */
void ipc_peer_pause(struct ipc_peer *p, bool paused);

/* Close once what is queued has gone; on_gone comes from the loop. */
void ipc_peer_end(struct ipc_peer *p);

#endif
