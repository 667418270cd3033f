/*
 * Published ports: a port of the host that leads to a port on a sandbox's own loopback. Their text form, the host's listening socket, and the
 * messages by which the gateway gets sockets that belong to the sandbox's network namespace.
 */
#ifndef AK_PUBLISH_H
#define AK_PUBLISH_H

#include "gateway/base/addr.h"
#include "gateway/base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define AK_PUBLISH_MAX 16 /* ports per sandbox */
#define AK_PUBLISH_TEXT (AK_ADDR_TEXT + 16)

struct ak_publish {
	struct ak_addr addr; /* of the host */
	uint16_t host_port; /* 0: any free one */
	uint16_t port; /* inside */
};

/* [ADDR:]PORT[:PORT]: the host's address (127.0.0.1 unless given; IPv6 in brackets), the host's port, the port inside (the same unless given). */
int ak_publish_parse(const char *text, struct ak_publish *ret, struct ak_err *err);

/* "127.0.0.1:8080", "[::1]:8080": the host's side. And the whole, as ak_publish_parse reads it. */
const char *ak_publish_host(const struct ak_publish *p, char buf[static AK_PUBLISH_TEXT]);
const char *ak_publish_print(const struct ak_publish *p, char buf[static AK_PUBLISH_TEXT]);

/* Whether only processes of this host can connect. */
bool ak_publish_is_local(const struct ak_publish *p);

/* Whether A and B would listen on the same address and port. Two that ask for any free port never do. */
bool ak_publish_clash(const struct ak_publish *a, const struct ak_publish *b);

/* Append P to the LIST of *N; fails when it is full or the host's side is in it already. */
int ak_publish_add(struct ak_publish *list, size_t *n, const struct ak_publish *p, struct ak_err *err);

/* Open the host's listening socket (non-blocking, CLOEXEC) and set host_port if it was 0. Returns it, or -errno with what to do in ERR. */
int ak_publish_listen(struct ak_publish *p, struct ak_err *err);

/*
 * What the user should be told about P, which was asked for as ASKED: the port that was chosen, and that other machines can connect. Empty if there is
 * nothing to tell.
 */
#define AK_PUBLISH_NOTE (AK_PUBLISH_TEXT + 128)
const char *ak_publish_note(const struct ak_publish *asked, const struct ak_publish *p, char buf[static AK_PUBLISH_NOTE]);

/*
 * A channel (SEQPACKET): the gateway asks, the sandbox's init answers with a new, unconnected, non-blocking TCP socket of its own network namespace,
 * or with an error and none. Where the loopback is that of a virtual machine, the answer is a stream (AF_UNIX) that is connected to the port already. Each answer repeats the
 * id.
 */
int ak_channel_open(int *ret_gateway, int *ret_init, struct ak_err *err);

struct ak_socket_ask {
	uint32_t id;
	uint32_t family; /* AF_INET or AF_INET6 */
	uint32_t port; /* of the loopback of that family */
};
struct ak_socket_answer {
	uint32_t id;
	uint32_t error; /* errno, or 0 */
};

#endif
