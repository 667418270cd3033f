/*
 * Channels of published ports, in the sandbox's init: the gateway asks for sockets of this network namespace and connects them itself. With a virtual machine, a process for
 * each connection answers, once the guest has connected (vm_proxy.c).
 *
 * init holds no power over the host, so a request gives the gateway nothing that the sandbox does not have. Nothing here blocks: an answer that does
 * not fit into the socket ends its channel, and the gateway then resets the clients of that port.
 */
#include "vmctl/internal.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"

#include <errno.h>
#include <sys/socket.h>

#define BUDGET 64 /* answers per turn, so that commands and signals do not wait */

void sb_channel_add(struct sb_channels *c, int fd)
{
	if (c->n == ARRAY_SIZE(c->fds) || ak_set_nonblock(fd, true) < 0)
		ak_close(fd);
	else
		c->fds[c->n++] = fd;
}

size_t sb_channels_poll(const struct sb_channels *c, struct pollfd *p, size_t max)
{
	for (size_t i = 0; i < c->n && i < max; i++)
		p[i] = (struct pollfd){ .fd = c->fds[i], .events = POLLIN };
	return c->n;
}

/* 1 if a request was answered, 0 if there is none, negative if the channel is over. */
static int answer_one(const struct sb_ctx *ctx, int fd)
{
	struct ak_socket_answer answer = { .error = 0 };
	struct ak_socket_ask ask;
	_cleanup_close_ int sock = -1;
	ssize_t n = ak_recv_fds(fd, &ask, sizeof(ask), NULL, NULL);
	int rc;

	if (n == -EAGAIN)
		return 0;
	if (n != sizeof(ask) || (ask.family != AF_INET && ask.family != AF_INET6))
		return -EPROTO;
	if (ctx->dial)
		return vm_stream_start(ctx->dial, fd, &ask);
	answer.id = ask.id;
	sock = socket((int)ask.family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (sock < 0)
		answer.error = (uint32_t)errno;
	rc = ak_send_fds(fd, &answer, sizeof(answer), &sock, sock < 0 ? 0 : 1);
	return rc < 0 ? rc : 1;
}

void sb_channels_look(struct sb_channels *c, const struct sb_ctx *ctx)
{
	for (size_t i = 0; i < c->n;) {
		int rc = 1;

		for (int left = BUDGET; rc > 0 && left > 0; left--)
			rc = answer_one(ctx, c->fds[i]);
		if (rc >= 0) {
			i++;
			continue;
		}
		ak_close(c->fds[i]);
		c->fds[i] = c->fds[--c->n];
	}
}
