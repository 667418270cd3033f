/*
 * Messages between our own processes: JSON objects with file descriptors over a SEQPACKET unix socket, one object per packet.
 *
 * The socket file is 0600 in a 0700 folder; both sides also check the peer's uid and namespaces. An object that does not fit into
 * a packet is sent in a sealed memory file, whose descriptor comes first; callers do not notice. Paths may be longer than a
 * socket address.
 */
#ifndef AK_IPC_H
#define AK_IPC_H

#include "gateway/base/err.h"
#include "gateway/base/json.h"

#include <stdbool.h>
#include <stddef.h>

#define IPC_FDS_MAX 12
#define IPC_MESSAGE_MAX (4u << 20) /* both sides refuse larger objects */

/* Listen on PATH (mode 0600). Replaces the stale file of a dead listener; -EADDRINUSE if one is alive. Non-blocking, CLOEXEC. */
int ipc_listen(const char *path, struct ak_err *err);

/* For a listener that another process opened: listen again, so that clients see our credentials, which ipc_trust checks. */
void ipc_listen_as_us(int listener);

/* Accept one peer that passes ipc_trust; -EAGAIN if there is none, -EPERM if it fails (it gets the reason and is closed). */
int ipc_accept(int listener);

/* Connect to PATH; -ENOENT or -ECONNREFUSED if nobody listens, -EPERM if the listener fails ipc_trust. Blocking, CLOEXEC. */
int ipc_connect(const char *path, struct ak_err *err);

/*
 * The same without a file: NAME is a socket of this network namespace that any process may connect to, or take before us; so the checks of
 * ipc_accept and ipc_connect_name are all that protects it. _listen_name returns -errno.
 */
#define IPC_NAME_MAX 64
int ipc_listen_name(const char *name);
int ipc_connect_name(const char *name, struct ak_err *err);

/* Does any process listen on PATH? Never blocks, and does not check the listener. */
bool ipc_listens(const char *path);

/* The same without a connection, so that the listener is not woken: is PATH the socket of any process? It may be about to listen. */
bool ipc_is_bound(const char *path);

/* Require that the peer runs as our user or root, in our user and mount namespace. -errno also if this cannot be determined. */
int ipc_trust(int sock, struct ak_err *err);

/* A pidfd of the peer; -ENOPROTOOPT before Linux 6.5. */
int ipc_pidfd(int sock);

/* Remove the socket file PATH if nobody listens on it; true if no file is left. */
bool ipc_remove_stale(const char *path);

/* Send OBJ (borrowed) with N_FDS descriptors (borrowed, at most IPC_FDS_MAX). -EAGAIN on a full non-blocking socket. */
int ipc_send(int sock, const cJSON *obj, const int *fds, size_t n_fds);

/* Receive one object and its descriptors, owned by the caller (*N_FDS: capacity in, count out). 1, 0 at end of file, -errno. */
int ipc_recv(int sock, cJSON **ret, int *fds, size_t *n_fds);

/* Send REQUEST and wait up to TIMEOUT_MS (0: no limit) for the reply. A reply {"error":…,"code":N} becomes ERR and -N. */
int ipc_call(int sock, const cJSON *request, const int *fds, size_t n_fds, int timeout_ms, cJSON **ret, int *ret_fds,
	size_t *n_ret_fds, struct ak_err *err);

/* Send the reply that ipc_call turns into an error. */
int ipc_send_error(int sock, int code, const char *text);

/* The same as an object, and its parser: 0 if ANSWER is no error. */
cJSON *ipc_error(int code, const char *text);
int ipc_error_parse(const cJSON *answer, struct ak_err *err);

/* ---- queued messages, for processes that must not block ---- */

struct ipc_packet {
	struct ipc_packet *next; /* in the queue */
	char *data; /* owned */
	size_t len;
	int fds[IPC_FDS_MAX + 1]; /* owned */
	size_t n_fds;
};

/* Pack OBJ and duplicates of FDS. */
int ipc_packet_new(const cJSON *obj, const int *fds, size_t n_fds, struct ipc_packet **ret);
int ipc_packet_send(int sock, const struct ipc_packet *p);
void ipc_packet_free(struct ipc_packet *p);

#endif
