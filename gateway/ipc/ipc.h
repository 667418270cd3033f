/*
 * Talk between our own processes: JSON objects with file descriptors over a SEQPACKET unix socket, one object a packet.
 *
 * The socket file is 0600 in a 0700 folder; the peer's uid and namespaces are checked all the same, on both sides. An object that does not fit a packet travels in a
 * memory file (sealed by its sender) whose descriptor comes first; callers do not notice. Paths may be longer than a socket address.
 */
#ifndef AK_IPC_H
#define AK_IPC_H

#include "gateway/base/err.h"
#include "gateway/base/json.h"

#include <stdbool.h>
#include <stddef.h>

#define IPC_FDS_MAX 12
#define IPC_MESSAGE_MAX (4u << 20) /* a larger object is refused by both sides */

/* Listen on PATH (made 0600; a stale file of a dead listener is replaced, a live one is -EADDRINUSE). Non-blocking, CLOEXEC. */
int ipc_listen(const char *path, struct ak_err *err);

/* A listener that another process opened for us: to those who connect from now on we are the other side, which ipc_trust looks at. */
void ipc_listen_as_us(int listener);

/* Accept one peer that ipc_trust agrees to; -EAGAIN when there is none, -EPERM (told why, connection closed) for anyone else. */
int ipc_accept(int listener);

/* Connect to PATH; -ENOENT or -ECONNREFUSED when no one is there, -EPERM when it is no one that ipc_trust agrees to. Blocking, CLOEXEC. */
int ipc_connect(const char *path, struct ak_err *err);

/* Does anyone listen on PATH? Never waits, and does not look at who it is. */
bool ipc_listens(const char *path);

/* The process at the other end is of our own user, or root, and in our own user and mount namespace. -errno also when that cannot be told. */
int ipc_trust(int sock, struct ak_err *err);

/* The process at the other end as a descriptor; -ENOPROTOOPT before Linux 6.5. */
int ipc_pidfd(int sock);

/* Remove the socket file PATH when no one listens on it; true when none is there afterwards. */
bool ipc_remove_stale(const char *path);

/* Send OBJ (borrowed) with N_FDS descriptors (borrowed, at most IPC_FDS_MAX). -EAGAIN on a full non-blocking socket. */
int ipc_send(int sock, const cJSON *obj, const int *fds, size_t n_fds);

/* Receive one object and its descriptors (owned by the caller; *N_FDS: room in, count out). 1, 0 at end of file, -errno. */
int ipc_recv(int sock, cJSON **ret, int *fds, size_t *n_fds);

/* Send REQUEST and wait for one answer of at most TIMEOUT_MS (0: no limit): an answer {"error":…,"code":N} becomes ERR and -N. */
int ipc_call(int sock, const cJSON *request, const int *fds, size_t n_fds, int timeout_ms, cJSON **ret, int *ret_fds,
	size_t *n_ret_fds, struct ak_err *err);

/* The answer that ipc_call turns back into an error. */
int ipc_send_error(int sock, int code, const char *text);

/* The same as an object, and back: 0 when ANSWER is no error. */
cJSON *ipc_error(int code, const char *text);
int ipc_error_parse(const cJSON *answer, struct ak_err *err);

/* ---- a message on its way, for those who must not wait ---- */

struct ipc_packet {
	struct ipc_packet *next; /* the queue's */
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
