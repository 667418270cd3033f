/*
 * UDP transport: reads and writes in batches; each reply is sent from the address that the query was sent to.
 *
 * Replies are queued until the end of the event callback, so a burst of queries costs two system calls.
 */
#include "dnsproxy/internal.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"

#include <event2/event.h>
#include <string.h>
#include <sys/socket.h>

#define BATCH 64
#define ROUNDS 4 /* batches per callback, so that other events get their turn */
#define QUESTION_MAX 1536 /* fits a padded query; longer ones are truncated and refused as malformed */
#define RCVBUF (4 << 20) /* requested; the kernel may grant less */

union control {
	struct cmsghdr align;
	char bytes[CMSG_SPACE(sizeof(struct in6_pktinfo))];
};

struct batch {
	struct mmsghdr msgs[BATCH];
	struct iovec iov[BATCH];
	struct sockaddr_in6 peers[BATCH];
	union control control[BATCH];
	uint8_t bufs[BATCH][QUESTION_MAX];
};

struct dns_udp {
	struct dns_proxy *proxy; /* borrowed: frees us first */
	int fds[2]; /* owned; [1] may be -1 */
	struct event *events[2]; /* owned */
	struct batch in, out;
	unsigned n_out;
	uint8_t out_sock; /* the socket for all queued replies */
};

/* ---- output ---- */

void dns_udp_flush(struct dns_udp *udp)
{
	unsigned done = 0;

	while (done < udp->n_out) {
		int n = sendmmsg(udp->fds[udp->out_sock], udp->out.msgs + done, udp->n_out - done, MSG_DONTWAIT);

		if (n > 0) {
			done += (unsigned)n;
			continue;
		}
		/* drop a datagram that cannot be sent now; the client retries */
		udp->proxy->stats.dropped++;
		done++;
	}
	udp->n_out = 0;
}

static size_t put_source4(struct cmsghdr *c, const struct dns_origin *o)
{
	struct in_pktinfo info = { .ipi_ifindex = (int)o->udp.ifindex };

	memcpy(&info.ipi_spec_dst, o->udp.local.bytes, sizeof(info.ipi_spec_dst));
	c->cmsg_level = IPPROTO_IP;
	c->cmsg_type = IP_PKTINFO;
	c->cmsg_len = CMSG_LEN(sizeof(info));
	memcpy(CMSG_DATA(c), &info, sizeof(info));
	return CMSG_SPACE(sizeof(info));
}

static size_t put_source6(struct cmsghdr *c, const struct dns_origin *o)
{
	struct in6_pktinfo info = { .ipi6_ifindex = o->udp.ifindex };

	memcpy(&info.ipi6_addr, o->udp.local.bytes, sizeof(info.ipi6_addr));
	c->cmsg_level = IPPROTO_IPV6;
	c->cmsg_type = IPV6_PKTINFO;
	c->cmsg_len = CMSG_LEN(sizeof(info));
	memcpy(CMSG_DATA(c), &info, sizeof(info));
	return CMSG_SPACE(sizeof(info));
}

void dns_udp_send(struct dns_udp *udp, const struct dns_origin *origin, const uint8_t *msg, size_t len)
{
	struct batch *b = &udp->out;
	unsigned i;

	if (len > QUESTION_MAX) {
		udp->proxy->stats.dropped++;
		return;
	}
	if (udp->n_out == BATCH || (udp->n_out > 0 && udp->out_sock != origin->sock))
		dns_udp_flush(udp);
	i = udp->n_out++;
	udp->out_sock = origin->sock;
	memcpy(b->bufs[i], msg, len);
	b->iov[i] = (struct iovec){ .iov_base = b->bufs[i], .iov_len = len };
	b->peers[i] = origin->udp.peer;
	b->msgs[i].msg_hdr = (struct msghdr){
		.msg_name = &b->peers[i],
		.msg_namelen = origin->sock ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in),
		.msg_iov = &b->iov[i],
		.msg_iovlen = 1,
		.msg_control = &b->control[i],
	};
	b->msgs[i].msg_hdr.msg_controllen =
		origin->sock ? put_source6(&b->control[i].align, origin) : put_source4(&b->control[i].align, origin);
}

/* ---- input ---- */

/* Read the destination address and the link of the query; both are needed for a reply. */
static bool read_pktinfo(struct msghdr *h, struct dns_origin *o)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(h); c; c = CMSG_NXTHDR(h, c)) {
		if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_PKTINFO) {
			struct in_pktinfo info;

			memcpy(&info, CMSG_DATA(c), sizeof(info));
			o->udp.local.family = AF_INET;
			memcpy(o->udp.local.bytes, &info.ipi_addr, sizeof(info.ipi_addr));
			o->udp.ifindex = (unsigned)info.ipi_ifindex;
			return true;
		}
		if (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_PKTINFO) {
			struct in6_pktinfo info;

			memcpy(&info, CMSG_DATA(c), sizeof(info));
			o->udp.local.family = AF_INET6;
			memcpy(o->udp.local.bytes, &info.ipi6_addr, sizeof(info.ipi6_addr));
			o->udp.ifindex = info.ipi6_ifindex;
			return true;
		}
	}
	return false;
}

static void take_one(struct dns_udp *udp, uint8_t sock, unsigned i)
{
	struct dns_proxy *proxy = udp->proxy;
	struct msghdr *h = &udp->in.msgs[i].msg_hdr;
	struct dns_origin origin = { .sock = sock, .arrived_us = proxy->now_us, .udp.peer = udp->in.peers[i] };
	struct sockaddr_storage ss = { 0 };
	struct dns_client *c = NULL;
	struct ak_addr src;
	uint16_t port = 0;

	memcpy(&ss, &udp->in.peers[i], h->msg_namelen < sizeof(udp->in.peers[i]) ? h->msg_namelen : sizeof(udp->in.peers[i]));
	src = ak_addr_from_sockaddr(&ss, &port);
	if (port != 0 && read_pktinfo(h, &origin))
		c = proxy->hooks.client_of(proxy->hooks.ctx, origin.udp.ifindex, &src);
	if (!c) {
		proxy->stats.dropped++;
		return;
	}
	dns_query_handle(c, &origin, udp->in.bufs[i], udp->in.msgs[i].msg_len);
}

static void arm(struct batch *b, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		b->iov[i] = (struct iovec){ .iov_base = b->bufs[i], .iov_len = QUESTION_MAX };
		b->msgs[i].msg_hdr = (struct msghdr){
			.msg_name = &b->peers[i],
			.msg_namelen = sizeof(b->peers[i]),
			.msg_iov = &b->iov[i],
			.msg_iovlen = 1,
			.msg_control = &b->control[i],
			.msg_controllen = sizeof(b->control[i]),
		};
	}
}

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
	struct dns_udp *udp = arg;
	uint8_t sock = fd == udp->fds[1];

	dns_proxy_wake(udp->proxy);
	for (unsigned round = 0; round < ROUNDS; round++) {
		int n = recvmmsg(fd, udp->in.msgs, BATCH, MSG_DONTWAIT, NULL);

		if (n <= 0)
			break;
		for (unsigned i = 0; i < (unsigned)n; i++)
			take_one(udp, sock, i);
		arm(&udp->in, (unsigned)n);
		dns_udp_flush(udp);
		if (n < BATCH)
			break;
	}
}

/* ---- create and free ---- */

static int watch(struct dns_udp *udp, unsigned sock)
{
	static const int size = RCVBUF;
	int fd = udp->fds[sock], rc;

	if (fd < 0)
		return 0;
	rc = ak_set_nonblock(fd, true);
	if (rc < 0)
		return rc;
	setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size));
	udp->events[sock] = event_new(udp->proxy->base, fd, EV_READ | EV_PERSIST, on_readable, udp);
	if (!udp->events[sock] || event_add(udp->events[sock], NULL) < 0)
		return -ENOMEM;
	return 0;
}

int dns_udp_new(struct dns_proxy *proxy, int fd4, int fd6, struct dns_udp **ret, struct ak_err *err)
{
	struct dns_udp *udp = calloc(1, sizeof(*udp));
	int rc;

	if (!udp) {
		ak_close(fd4);
		ak_close(fd6);
		return ak_fail(err, ENOMEM, "out of memory");
	}
	udp->proxy = proxy;
	udp->fds[0] = fd4;
	udp->fds[1] = fd6;
	arm(&udp->in, BATCH);
	rc = watch(udp, 0);
	if (rc == 0)
		rc = watch(udp, 1);
	if (rc < 0) {
		dns_udp_free(udp);
		return ak_fail_errno(err, -rc, "cannot watch the DNS sockets");
	}
	*ret = udp;
	return 0;
}

void dns_udp_free(struct dns_udp *udp)
{
	if (!udp)
		return;
	for (size_t i = 0; i < 2; i++) {
		if (udp->events[i])
			event_free(udp->events[i]);
		ak_close(udp->fds[i]);
	}
	free(udp);
}
