/*
 * Detects addresses of the host itself: see relay/host.h.
 *
 * Two rtnetlink sockets. ASK carries one request at a time; the reply is queued when send() returns. WATCH receives
 * notifications about new local, anycast and broadcast routes, addresses and rules. Replies are never cached; only the list
 * of addresses is, until WATCH reports a change.
 */
#include "gateway/relay/host.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/netlink.h"

#include <arpa/inet.h>
#include <errno.h>
#include <event2/event.h>
#include <linux/filter.h>
#include <linux/rtnetlink.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/socket.h>

#define ADDRS_MAX 65536
#define DUMP_READS_MAX 4096 /* datagrams of an address dump */
#define WATCH_BUDGET 64 /* notifications per event */
#define GROUP(g) (1u << ((g)-1))

struct relay_host {
	int ask, watch; /* owned */
	struct event *on_watch; /* owned */
	relay_host_moved moved;
	void *ctx; /* borrowed: outlives us */
	uint32_t seq;
	bool watching;
	bool lost; /* notifications were lost and this has not been reported yet */
	bool stale; /* the list below must be read again */
	struct ak_addr *addrs; /* owned, sorted */
	size_t n_addrs, cap_addrs;
	_Alignas(8) char buf[32768]; /* one datagram from the kernel */
};

/* ---- sockets ---- */

static int open_rtnetlink(void)
{
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE);

	return fd < 0 ? -errno : fd;
}

/*
 * Of the routes, pass only those that make an address local: a router changes thousands of other routes. Addresses and rules
 * pass. BPF loads convert to network order, but the message is in host order.
 */
static int watch_filter(int fd)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_H | BPF_ABS, offsetof(struct nlmsghdr, nlmsg_type)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, htons(RTM_DELROUTE), 6, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, htons(RTM_NEWROUTE), 0, 4),
		BPF_STMT(BPF_LD | BPF_B | BPF_ABS, NLMSG_HDRLEN + offsetof(struct rtmsg, rtm_type)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, RTN_LOCAL, 2, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, RTN_ANYCAST, 1, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, RTN_BROADCAST, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, UINT32_MAX),
		BPF_STMT(BPF_RET | BPF_K, 0),
	};
	const struct sock_fprog filter = { .len = ARRAY_SIZE(code), .filter = code };

	return setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof(filter)) < 0 ? -errno : 0;
}

/* Start with the first flow, so that a sandbox without flows does not pay for it. */
static int watch_start(struct relay_host *h)
{
	const struct sockaddr_nl groups = { .nl_family = AF_NETLINK,
		.nl_groups = GROUP(RTNLGRP_IPV4_IFADDR) | GROUP(RTNLGRP_IPV6_IFADDR) | GROUP(RTNLGRP_IPV4_ROUTE) |
			GROUP(RTNLGRP_IPV6_ROUTE) | GROUP(RTNLGRP_IPV4_RULE) | GROUP(RTNLGRP_IPV6_RULE) };
	int rc = watch_filter(h->watch);

	if (rc < 0)
		return rc;
	if (bind(h->watch, (const struct sockaddr *)&groups, sizeof(groups)) < 0)
		return -errno;
	if (event_add(h->on_watch, NULL) < 0)
		return -ENOMEM;
	h->watching = true;
	return 0;
}

/* ---- messages ---- */

/* A request: a netlink header, then HEADER, then attributes. */
struct request {
	struct nlmsghdr nlh;
	_Alignas(NLMSG_ALIGNTO) char data[64];
};

static void request_init(struct request *q, uint16_t type, uint16_t flags, uint32_t seq, const void *header, size_t len)
{
	*q = (struct request){ .nlh = { .nlmsg_len = (uint32_t)(NLMSG_HDRLEN + NLMSG_ALIGN(len)),
				       .nlmsg_type = type,
				       .nlmsg_flags = NLM_F_REQUEST | flags,
				       .nlmsg_seq = seq } };
	memcpy(q->data, header, len);
}

static void request_attr(struct request *q, uint16_t type, const void *data, size_t len)
{
	struct rtattr a = { .rta_len = (uint16_t)RTA_LENGTH(len), .rta_type = type };
	char *at = (char *)q + q->nlh.nlmsg_len;

	memcpy(at, &a, sizeof(a));
	memcpy(at + sizeof(a), data, len);
	q->nlh.nlmsg_len += (uint32_t)RTA_SPACE(len);
}

/* Get the attribute TYPE after a header of HEADER bytes if it is an address of FAMILY. */
static bool attr_addr(const struct nlmsghdr *nlh, size_t header, uint16_t type, uint8_t family, struct ak_addr *ret)
{
	size_t at = NLMSG_HDRLEN + NLMSG_ALIGN(header), size = family == AF_INET ? 4 : 16;
	struct rtattr a;

	while (at + sizeof(a) <= nlh->nlmsg_len) {
		memcpy(&a, (const char *)nlh + at, sizeof(a));
		if (a.rta_len < sizeof(a) || a.rta_len > nlh->nlmsg_len - at)
			return false;
		if (a.rta_type == type && a.rta_len == RTA_LENGTH(size)) {
			*ret = (struct ak_addr){ .family = family };
			memcpy(ret->bytes, (const char *)nlh + at + sizeof(a), size);
			return true;
		}
		at += RTA_ALIGN(a.rta_len);
	}
	return false;
}

static bool has_header(const struct nlmsghdr *nlh, size_t header)
{
	return nlh->nlmsg_len >= NLMSG_HDRLEN + header;
}

static bool is_inet(uint8_t family)
{
	return family == AF_INET || family == AF_INET6;
}

/* The local address in a message about an interface address (with a peer, IFA_ADDRESS is the peer). */
static bool message_addr(const struct nlmsghdr *nlh, struct ak_addr *ret)
{
	struct ifaddrmsg ifa;

	if (!has_header(nlh, sizeof(ifa)))
		return false;
	memcpy(&ifa, NLMSG_DATA(nlh), sizeof(ifa));
	return is_inet(ifa.ifa_family) &&
		(attr_addr(nlh, sizeof(ifa), IFA_LOCAL, ifa.ifa_family, ret) ||
			attr_addr(nlh, sizeof(ifa), IFA_ADDRESS, ifa.ifa_family, ret));
}

static ssize_t receive(struct relay_host *h, int fd)
{
	ssize_t n;

	do {
		n = recv(fd, h->buf, sizeof(h->buf), 0);
	} while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : n;
}

static int ask(struct relay_host *h, const struct request *q)
{
	return send(h->ask, q, q->nlh.nlmsg_len, 0) < 0 ? -errno : 0;
}

/* ---- addresses of interfaces ---- */

static int cmp_addr(const void *a, const void *b)
{
	return ak_addr_cmp(a, b);
}

static int keep_addr(struct relay_host *h, const struct ak_addr *addr)
{
	size_t cap = h->cap_addrs ? h->cap_addrs * 2 : 64;
	struct ak_addr *grown;

	if (h->n_addrs == ADDRS_MAX)
		return 0; /* absurdly many: the route lookup still works */
	if (h->n_addrs == h->cap_addrs) {
		grown = realloc(h->addrs, cap * sizeof(*grown));
		if (!grown)
			return -ENOMEM;
		h->addrs = grown;
		h->cap_addrs = cap;
	}
	h->addrs[h->n_addrs++] = *addr;
	return 0;
}

/* Handle one datagram of the dump: 1 if it was the last, -EAGAIN if the list changed during the dump. */
static int take_addrs(struct relay_host *h, size_t len)
{
	const struct nlmsghdr *nlh;
	struct ak_addr addr;
	size_t at = 0;
	int rc = 0, code;

	while (rc == 0 && (nlh = ak_nlmsg_next(h->buf, len, &at))) {
		if (nlh->nlmsg_seq != h->seq)
			continue;
		if (nlh->nlmsg_flags & NLM_F_DUMP_INTR)
			h->stale = true;
		if (nlh->nlmsg_type == NLMSG_DONE)
			return 1;
		if (ak_nlmsg_ack(nlh, &code))
			return code ? code : -EPROTO;
		if (nlh->nlmsg_type == RTM_NEWADDR && message_addr(nlh, &addr))
			rc = keep_addr(h, &addr);
	}
	return rc;
}

static int list_addrs(struct relay_host *h)
{
	const struct ifaddrmsg any = { .ifa_family = AF_UNSPEC };
	struct request q;
	int rc;

	h->n_addrs = 0;
	h->stale = false;
	request_init(&q, RTM_GETADDR, NLM_F_DUMP, ++h->seq, &any, sizeof(any));
	rc = ask(h, &q);
	for (int i = 0; rc == 0 && i < DUMP_READS_MAX; i++) {
		ssize_t n = receive(h, h->ask);

		rc = n < 0 ? (int)n : take_addrs(h, (size_t)n);
	}
	if (rc != 1)
		h->stale = true;
	else if (h->n_addrs)
		qsort(h->addrs, h->n_addrs, sizeof(*h->addrs), cmp_addr);
	return rc == 1 ? 0 : -EIO;
}

/* The list is also stale if notifications are queued that the event loop has not read yet. */
static bool watch_waits(struct relay_host *h)
{
	char byte;

	if (recv(h->watch, &byte, 1, MSG_PEEK) >= 0)
		return true;
	if (errno == EAGAIN)
		return false;
	/* The kernel reports the error only once, and it was read here: the event loop would miss it. */
	h->lost = true;
	event_active(h->on_watch, EV_READ, 0);
	return true;
}

static bool has_interface(struct relay_host *h, const struct ak_addr *addr)
{
	if ((h->stale || watch_waits(h)) && list_addrs(h) < 0)
		return true;
	return h->n_addrs && bsearch(addr, h->addrs, h->n_addrs, sizeof(*addr), cmp_addr);
}

/* ---- routes ---- */

static bool type_is_host(uint8_t type)
{
	return type == RTN_LOCAL || type == RTN_ANYCAST || type == RTN_BROADCAST || type == RTN_MULTICAST;
}

/* Handle the reply about one route: 1 if it is local, 0 if not, else -errno. */
static int take_route(struct relay_host *h, size_t len)
{
	const struct nlmsghdr *nlh;
	struct rtmsg rt;
	size_t at = 0;
	int code;

	while ((nlh = ak_nlmsg_next(h->buf, len, &at))) {
		if (nlh->nlmsg_seq != h->seq)
			continue;
		if (ak_nlmsg_ack(nlh, &code))
			return code ? code : -EPROTO;
		if (nlh->nlmsg_type != RTM_NEWROUTE || !has_header(nlh, sizeof(rt)))
			return -EPROTO;
		memcpy(&rt, NLMSG_DATA(nlh), sizeof(rt));
		return type_is_host(rt.rtm_type);
	}
	return -EAGAIN; /* reply to an earlier request */
}

static int route_is_host(struct relay_host *h, const struct ak_addr *addr, uint8_t proto, uint16_t port)
{
	const struct rtmsg rt = { .rtm_family = addr->family, .rtm_dst_len = (uint8_t)ak_addr_bits(addr) };
	uint16_t dport = htons(port);
	struct request q;
	int rc;

	request_init(&q, RTM_GETROUTE, 0, ++h->seq, &rt, sizeof(rt));
	request_attr(&q, RTA_DST, addr->bytes, ak_addr_bits(addr) / 8);
	/* Routing rules may match these. */
	request_attr(&q, RTA_IP_PROTO, &proto, sizeof(proto));
	request_attr(&q, RTA_DPORT, &dport, sizeof(dport));
	rc = ask(h, &q);
	if (rc < 0)
		return rc;
	do {
		ssize_t n = receive(h, h->ask);

		if (n < 0)
			return (int)n;
		rc = take_route(h, (size_t)n);
	} while (rc == -EAGAIN);
	return rc;
}

/* An unroutable address cannot be connected to either, and connect() reports why; the same holds if the kernel lacks IPv6. */
static bool leads_nowhere(int rc, uint8_t family)
{
	if (family == AF_INET6 && (rc == -EOPNOTSUPP || rc == -EAFNOSUPPORT))
		return true;
	return rc == -ENETUNREACH || rc == -EHOSTUNREACH || rc == -EACCES;
}

static bool owns(struct relay_host *h, const struct ak_addr *addr, uint8_t proto, uint16_t port)
{
	int rc = route_is_host(h, addr, proto, port);

	if (rc == 1 || (rc < 0 && !leads_nowhere(rc, addr->family)))
		return true;
	return has_interface(h, addr);
}

bool relay_host_owns(struct relay_host *h, const struct ak_addr *addr, uint8_t proto, uint16_t port)
{
	struct ak_addr v4;

#ifdef AK_SABOTAGE_NOHOSTGUARD
	return false;
#endif
	if ((!h->watching && watch_start(h) < 0) || owns(h, addr, proto, port))
		return true;
	/* A translator or tunnel outside may route it back to the host. */
	return ak_addr_embedded_v4(addr, &v4) && owns(h, &v4, proto, port);
}

/* ---- changes ---- */

static void take_change(struct relay_host *h, const struct nlmsghdr *nlh)
{
	struct ak_addr net = { 0 };
	struct rtmsg rt = { 0 };

	if (nlh->nlmsg_type == RTM_NEWADDR && message_addr(nlh, &net)) {
		h->moved(h->ctx, &net, ak_addr_bits(&net));
		return;
	}
	if (nlh->nlmsg_type == RTM_DELADDR)
		return;
	if (nlh->nlmsg_type == RTM_NEWROUTE && has_header(nlh, sizeof(rt))) {
		memcpy(&rt, NLMSG_DATA(nlh), sizeof(rt));
		if (is_inet(rt.rtm_family))
			attr_addr(nlh, sizeof(rt), RTA_DST, rt.rtm_family, &net);
	}
	h->moved(h->ctx, &net, rt.rtm_dst_len);
}

/* MOVED may send requests, whose replies overwrite h->buf: copy each notification first. They are short. */
static void take_changes(struct relay_host *h, size_t len)
{
	_Alignas(8) char copy[4096];
	const struct nlmsghdr *nlh;
	size_t at = 0;

	h->stale = true;
	if (len > sizeof(copy)) {
		h->moved(h->ctx, &(struct ak_addr){ 0 }, 0);
		return;
	}
	memcpy(copy, h->buf, len);
	while ((nlh = ak_nlmsg_next(copy, len, &at)))
		take_change(h, nlh);
}

static void on_watch(evutil_socket_t fd, short what, void *arg)
{
	struct relay_host *h = arg;

	for (int i = 0; i < WATCH_BUDGET; i++) {
		ssize_t n = receive(h, (int)fd);

		if (n == -EAGAIN)
			break;
		if (n < 0) /* ENOBUFS: notifications arrived faster than we read */
			h->lost = h->stale = true;
		else
			take_changes(h, (size_t)n);
	}
	if (h->lost) {
		h->lost = false;
		h->moved(h->ctx, &(struct ak_addr){ 0 }, 0);
	}
}

/* ---- create and free ---- */

int relay_host_new(struct event_base *base, relay_host_moved moved, void *ctx, struct relay_host **ret, struct ak_err *err)
{
	struct relay_host *h = calloc(1, sizeof(*h));
	int rc;

	if (!h)
		return ak_fail(err, ENOMEM, "out of memory");
	h->moved = moved;
	h->ctx = ctx;
	h->stale = true;
	h->ask = open_rtnetlink();
	h->watch = open_rtnetlink();
	rc = h->ask < 0 ? h->ask : h->watch;
	h->on_watch = rc < 0 ? NULL : event_new(base, h->watch, EV_READ | EV_PERSIST, on_watch, h);
	if (rc >= 0 && !h->on_watch)
		rc = -ENOMEM;
	if (rc < 0) {
		relay_host_free(h);
		return ak_fail_errno(err, -rc, "rtnetlink");
	}
	*ret = h;
	return 0;
}

void relay_host_free(struct relay_host *h)
{
	if (!h)
		return;
	if (h->on_watch)
		event_free(h->on_watch);
	ak_close(h->ask);
	ak_close(h->watch);
	free(h->addrs);
	free(h);
}
