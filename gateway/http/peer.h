/*
 * Find the user whose process is at the other end of a TCP connection on this machine, with sock_diag(7). A connection from another
 * machine or network namespace has no such user.
 */
#ifndef AK_HTTP_PEER_H
#define AK_HTTP_PEER_H

#include "gateway/base/addr.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define HTTP_PEER_NONE ((uid_t)-1) /* unknown */

/* The two ends of a connection, as seen from the socket to look up. */
struct http_ends {
	struct ak_addr local, remote;
	uint16_t local_port, remote_port;
};

/*
 * Parse the kernel's reply (LEN bytes of DATA, aligned to 4) and return the owner of the socket ENDS. -ENOENT: no such live, connected
 * socket; -EBADMSG: not a reply to this query.
 */
int http_peer_parse(const void *data, size_t len, const struct http_ends *ends, uid_t *ret);

/* Open a sock_diag socket: a descriptor, or -errno when the kernel does not support it. */
int http_peer_open(void);

/* The user at the other end of the connected socket FD, or HTTP_PEER_NONE. NL is from http_peer_open. Does not block. */
uid_t http_peer_uid(int nl, int fd);

#endif
