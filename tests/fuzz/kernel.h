/*
 * The kernel's end of netlink, made of the input: a harness that includes this is linked so that the program's own sendto, recv and poll end here. Each
 * datagram that it reads is a part of the input; a length past the last of them is an error of the call instead, and when there is nothing left
 * the program would have to wait.
 *
 * An obliging kernel acknowledges before that what it is asked to, as long as it has patience.
 */
#ifndef AK_FUZZ_KERNEL_H
#define AK_FUZZ_KERNEL_H

#include "tests/fuzz/fuzz.h"

#include "gateway/base/netlink.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>

#define KERNEL_ERRORS 0xfffb /* lengths from here on: the errors below */
#define KERNEL_ACKS 4096

static struct {
	struct input in;
	size_t lost; /* ENOBUFS was said this often */
	int send_error; /* of the next sendto; -1: it sends less */
	bool obliging;
	unsigned patience; /* 0: it never refuses; else it does so from that sendto on */
	struct {
		struct nlmsghdr h;
		struct nlmsgerr e;
	} acks[KERNEL_ACKS];
	size_t n_acks, at_ack;
} kernel;

ssize_t __wrap_sendto(int fd, const void *data, size_t len, int flags, const struct sockaddr *to, socklen_t to_len);
ssize_t __wrap_recv(int fd, void *data, size_t len, int flags);
int __wrap_poll(struct pollfd *fds, nfds_t n, int timeout_ms);

static inline void kernel_ack(const struct nlmsghdr *nlh)
{
	if (!(nlh->nlmsg_flags & NLM_F_ACK))
		return;
	must(kernel.n_acks < KERNEL_ACKS);
	kernel.acks[kernel.n_acks].h = (struct nlmsghdr){ sizeof(kernel.acks[0]), NLMSG_ERROR, 0, nlh->nlmsg_seq, 0 };
	kernel.acks[kernel.n_acks++].e.error = kernel.patience == 1 ? -EPERM : 0;
}

ssize_t __wrap_sendto(int fd, const void *data, size_t len, int flags, const struct sockaddr *to, socklen_t to_len)
{
	const struct nlmsghdr *nlh;
	size_t at = 0;
	int error = kernel.send_error;

	(void)fd;
	(void)flags;
	if (!to || to->sa_family != AF_NETLINK) /* a question to the resolver: nothing leaves a harness */
		return errno = ENETUNREACH, -1;
	must(to_len == sizeof(struct sockaddr_nl));
	kernel.send_error = 0;
	if (error > 0)
		return errno = error, -1;
	while ((nlh = ak_nlmsg_next(data, len, &at))) {
		if (kernel.obliging)
			kernel_ack(nlh);
	}
	must(at == len); /* whole messages, each padded */
	if (kernel.patience > 1)
		kernel.patience--;
	return error < 0 ? (ssize_t)len - 1 : (ssize_t)len;
}

ssize_t __wrap_recv(int fd, void *data, size_t len, int flags)
{
	static const int errors[] = { EAGAIN, EINTR, ENOBUFS, ENOMEM, EBADF };
	struct input part;
	size_t n;

	(void)fd;
	must(flags & MSG_DONTWAIT);
	if (kernel.at_ack < kernel.n_acks) {
		memcpy(data, &kernel.acks[kernel.at_ack++], sizeof(kernel.acks[0]));
		return sizeof(kernel.acks[0]);
	}
	kernel.at_ack = kernel.n_acks = 0;
	if (kernel.in.len < 2)
		return errno = EAGAIN, -1;
	n = kernel.in.data[0] | (size_t)kernel.in.data[1] << 8;
	part = n < KERNEL_ERRORS ? take_part(&kernel.in) : (struct input){ take(&kernel.in, 2), 2 };
	if (n >= KERNEL_ERRORS) {
		errno = errors[n - KERNEL_ERRORS];
		kernel.lost += errno == ENOBUFS;
		return -1;
	}
	n = part.len < len ? part.len : len;
	memcpy(data, part.data, n);
	return (ssize_t)n;
}

int __wrap_poll(struct pollfd *fds, nfds_t n, int timeout_ms)
{
	(void)fds;
	must(n == 1 && timeout_ms > 0);
	return kernel.in.len >= 2; /* else the time is up */
}

#endif
