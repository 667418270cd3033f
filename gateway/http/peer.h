/*
 * Whose process is at the other end of a TCP connection on this machine: asked of the kernel by sock_diag(7). A connection from another
 * machine or network namespace has no such owner.
 */
#ifndef AK_HTTP_PEER_H
#define AK_HTTP_PEER_H

#include "gateway/base/addr.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define HTTP_PEER_NONE ((uid_t)-1) /* the kernel did not tell */

/* One end of a connection and the other, as seen from the socket that is looked for. */
struct http_ends {
	struct ak_addr local, remote;
	uint16_t local_port, remote_port;
};

/*
 * The owner that LEN bytes of DATA (aligned to 4), the kernel's answer, name for the socket ENDS. -ENOENT: none that is alive and
 * connected; -EBADMSG: no answer to this question.
 */
int http_peer_parse(const void *data, size_t len, const struct http_ends *ends, uid_t *ret);

/* What to ask the kernel by: a descriptor, or -errno where it cannot be asked. */
int http_peer_open(void);

/* The user at the other end of the connected socket FD, asked by NL, or HTTP_PEER_NONE. Does not block. */
uid_t http_peer_uid(int nl, int fd);

#endif
