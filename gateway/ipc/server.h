/*
 * The server side of ipc/ipc.h on an event loop: many peers, none of which can block us.
 *
 * Messages that a peer does not read immediately are queued up to a limit; a peer that exceeds it is dropped. Peers are found by
 * id, so that a late reply finds either its peer or nothing.
 */
#ifndef AK_IPC_SERVER_H
#define AK_IPC_SERVER_H

#include "gateway/ipc/ipc.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define IPC_QUEUE_MAX 64 /* unread messages per peer, in addition to its socket buffer */

struct event_base;
struct ipc_server;
struct ipc_peer;

/* A received message; the handler takes what it keeps (TAKE, TAKE_FD), the rest is freed afterwards. */
struct ipc_message {
	cJSON *obj;
	int fds[IPC_FDS_MAX];
	size_t n_fds;
};

struct ipc_hooks {
	void *ctx; /* borrowed: outlives us */
	void (*on_message)(void *ctx, struct ipc_peer *peer, struct ipc_message *msg);
	void (*on_gone)(void *ctx, struct ipc_peer *peer); /* called last, before the peer is freed. May be NULL */
};

/* Takes ownership of LISTENER; with -1, serves only peers added by ipc_server_adopt. */
int ipc_server_new(
	struct event_base *base, int listener, size_t max_peers, const struct ipc_hooks *hooks, struct ipc_server **ret);
void ipc_server_free(struct ipc_server *s); /* closes all peers without on_gone */

/* Serve an existing connection; takes ownership of FD, even on failure. */
int ipc_server_adopt(struct ipc_server *s, int fd, void *data, struct ipc_peer **ret);

struct ipc_peer *ipc_server_find(const struct ipc_server *s, uint64_t id); /* NULL also for a peer that is closing */

/* Clear the peer's data pointer. Also works for a closing peer, which ipc_server_find no longer finds but which still gets on_gone. */
void ipc_server_forget(struct ipc_server *s, uint64_t id);
size_t ipc_server_count(const struct ipc_server *s);

uint64_t ipc_peer_id(const struct ipc_peer *p); /* never 0, never reused */
pid_t ipc_peer_pid(const struct ipc_peer *p); /* at the time it connected */
int ipc_peer_pidfd(const struct ipc_peer *p); /* a pidfd of that process; -errno before Linux 6.5 */
void *ipc_peer_data(const struct ipc_peer *p);
void ipc_peer_set_data(struct ipc_peer *p, void *data);

/* Send or queue a message; a failure drops the peer (the event loop calls on_gone, not this function). */
void ipc_peer_send(struct ipc_peer *p, const cJSON *obj, const int *fds, size_t n_fds);
void ipc_peer_fail(struct ipc_peer *p, int code, const char *text);

/* Stop or resume reading. While paused, further requests stay in the peer's socket buffer. */
void ipc_peer_pause(struct ipc_peer *p, bool paused);

/* Close after the queue is sent; the event loop calls on_gone. */
void ipc_peer_end(struct ipc_peer *p);

#endif
