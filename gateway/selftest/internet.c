/*
 * The far side of the self-test: one process in its own network namespace that owns every address. A packet socket on its only
 * link counts everything that arrives; small servers record which name was requested.
 */
#include "gateway/selftest/selftest.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "vmctl/labns.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#define CONNS_MAX 400
#define HELLO_MAX 16384

enum service { SERVE_DNS, SERVE_TLS, SERVE_HTTP, SERVE_ECHO, SERVE_BANNER };

static const struct {
	uint16_t port;
	enum service service;
} listening[] = {
	{ 53, SERVE_DNS },
	{ 443, SERVE_TLS },
	{ 8443, SERVE_TLS },
	{ 80, SERVE_HTTP },
	{ 22, SERVE_BANNER },
	{ 7, SERVE_ECHO },
	{ 853, SERVE_ECHO },
	{ 8080, SERVE_ECHO },
};
static const uint16_t datagram_ports[] = { 53, 7, 443, 853, 5000, 5353 };

struct conn {
	int fd; /* -1: free */
	enum service service;
	struct ak_addr dst;
	uint16_t port;
	bool recorded;
	uint8_t buf[HELLO_MAX];
	size_t len;
};

enum { N_LISTEN = ARRAY_SIZE(listening) * 2, N_UDP = ARRAY_SIZE(datagram_ports) * 2 };

struct far {
	struct st_events *events; /* borrowed: shared with the judge */
	int control;
	int packets;
	int listeners[N_LISTEN], datagrams[N_UDP];
	struct conn conns[CONNS_MAX];
};

/* ---- recording events ---- */

static bool same(const struct st_event *a, const struct st_event *b)
{
	return a->kind == b->kind && a->port == b->port && a->proto == b->proto && a->qtype == b->qtype && a->odd == b->odd &&
		ak_addr_eq(&a->dst, &b->dst) && !strcmp(a->name, b->name);
}

static void note(struct far *f, const struct st_event *event)
{
	struct st_events *all = f->events;

	for (size_t i = 0; i < all->n; i++) {
		if (same(&all->e[i], event)) {
			all->e[i].count++;
			return;
		}
	}
	if (all->n == ST_EVENTS_MAX) {
		all->overflow = true;
		return;
	}
	all->e[all->n] = *event;
	all->e[all->n++].count = 1;
}

/* ---- packets ---- */

/* Traffic that the two kernels exchange on their own: neighbour discovery, group reports. */
static bool chatter(const uint8_t *ip, size_t len, uint8_t proto)
{
	return proto == 0 || (proto == IPPROTO_ICMPV6 && len > 40 && ip[40] >= 130 && ip[40] <= 143);
}

static void count_packet(struct far *f, unsigned kind, const uint8_t *ip, size_t len)
{
	struct st_event e = { .kind = ST_EV_PACKET };
	size_t head;

	if (kind == ETH_P_ARP)
		return;
	if (kind == ETH_P_IP && len >= 20) {
		e.dst.family = AF_INET;
		memcpy(e.dst.bytes, ip + 16, 4);
		e.proto = ip[9];
		head = (ip[0] & 15u) * 4;
	} else if (kind == ETH_P_IPV6 && len >= 40) {
		e.dst.family = AF_INET6;
		memcpy(e.dst.bytes, ip + 24, 16);
		e.proto = ip[6];
		head = 40;
		if (chatter(ip, len, e.proto))
			return;
	} else {
		e.proto = 255;
		note(f, &e);
		return;
	}
	if ((e.proto == IPPROTO_TCP || e.proto == IPPROTO_UDP) && len >= head + 4)
		e.port = (uint16_t)(ip[head + 2] << 8 | ip[head + 3]);
	note(f, &e);
}

static bool read_packets(struct far *f)
{
	uint8_t buf[256];
	struct sockaddr_ll from;
	bool any = false;

	for (;;) {
		socklen_t size = sizeof(from);
		ssize_t n = recvfrom(f->packets, buf, sizeof(buf), MSG_DONTWAIT, (struct sockaddr *)&from, &size);

		if (n < 0)
			return any;
		any = true;
		if (from.sll_pkttype != PACKET_OUTGOING)
			count_packet(f, ntohs(from.sll_protocol), buf, (size_t)n);
	}
}

/* ---- datagrams ---- */

static void serve_question(struct far *f, const uint8_t *msg, size_t len, uint8_t *reply, size_t *ret_len)
{
	struct st_event e = { .kind = ST_EV_QUESTION };

	*ret_len = st_zone_answer(msg, len, reply, ST_DNS_MAX, &e);
	note(f, &e);
}

/*
 * Before the genuine reply, send one with another id, one to another question, and one from another server. The last address in
 * them is 11.66.9.1.
 */
static void send_forgeries(int fd, struct msghdr *h, struct in_pktinfo *info)
{
	struct iovec *iov = h->msg_iov;
	uint8_t forged[ST_DNS_MAX];
	struct iovec out = { forged, iov->iov_len };
	struct in_addr asked = info->ipi_spec_dst;

	h->msg_iov = &out;
	for (int i = 0; i < 3; i++) {
		memcpy(forged, iov->iov_base, iov->iov_len);
		memcpy(forged + iov->iov_len - 4, (uint8_t[]){ 11, 66, 9, 1 }, 4);
		forged[1] ^= i == 0;
		forged[13] ^= i == 1;
		info->ipi_spec_dst.s_addr = i == 2 ? htonl(0x0b000036) : asked.s_addr;
		(void)!sendmsg(fd, h, MSG_DONTWAIT);
	}
	info->ipi_spec_dst = asked;
	h->msg_iov = iov;
}

/* The reply is sent from the address that the query was sent to. */
static bool read_datagram(struct far *f, int fd, bool dns)
{
	union {
		char buf[256];
		struct cmsghdr align;
	} control;
	uint8_t msg[ST_DNS_MAX], reply[ST_DNS_MAX];
	struct sockaddr_storage from;
	struct iovec in = { msg, sizeof(msg) }, out = { msg, 0 };
	struct msghdr h = { &from, sizeof(from), &in, 1, &control, sizeof(control), 0 };
	struct in_pktinfo *info = NULL;
	ssize_t n = recvmsg(fd, &h, MSG_DONTWAIT);

	if (n < 0)
		return false;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&h); c; c = CMSG_NXTHDR(&h, c)) {
		if (c->cmsg_level == SOL_IP && c->cmsg_type == IP_PKTINFO) {
			info = (struct in_pktinfo *)(void *)CMSG_DATA(c);
			info->ipi_ifindex = 0;
			info->ipi_spec_dst = info->ipi_addr;
		} else if (c->cmsg_level == SOL_IPV6 && c->cmsg_type == IPV6_PKTINFO) {
			((struct in6_pktinfo *)(void *)CMSG_DATA(c))->ipi6_ifindex = 0;
		}
	}
	out.iov_len = (size_t)n;
	if (dns) {
		out.iov_base = reply;
		serve_question(f, msg, (size_t)n, reply, &out.iov_len);
	}
	h.msg_iov = &out;
	h.msg_flags = 0;
	if (dns && info && out.iov_len > 20 && !memcmp(reply + 12, "\2b9", 3))
		send_forgeries(fd, &h, info);
	if (out.iov_len)
		(void)!sendmsg(fd, &h, MSG_DONTWAIT);
	return true;
}

/* ---- connections ---- */

static void conn_close(struct conn *c)
{
	c->fd = ak_close(c->fd);
}

static void tell(struct far *f, struct conn *c, enum st_event_kind kind, const char *name)
{
	struct st_event e = { .kind = kind, .dst = c->dst, .port = c->port };

	snprintf(e.name, sizeof(e.name), "%s", name);
	note(f, &e);
	c->recorded = true;
}

/* Join the records of the handshake message. Returns its length, 0 if it is incomplete, -1 if it is not one. */
static ssize_t join_records(const struct conn *c, uint8_t *out)
{
	size_t at = 0, len = 0;

	while (at + 5 <= c->len) {
		size_t n = (size_t)c->buf[at + 3] << 8 | c->buf[at + 4];

		if (c->buf[at] != 22)
			return -1;
		if (at + 5 + n > c->len)
			break;
		memcpy(out + len, c->buf + at + 5, n);
		len += n;
		at += 5 + n;
		if (len >= 4 && len >= 4 + ((size_t)out[2] << 8 | out[3]))
			return (ssize_t)len;
	}
	return c->len && c->buf[0] != 22 ? -1 : 0;
}

static size_t get16(const uint8_t *p)
{
	return (size_t)p[0] << 8 | p[1];
}

/* The server name of a complete ClientHello; "" if there is none. */
static void find_sni(const uint8_t *h, size_t len, char name[static 256])
{
	size_t at = 4 + 2 + 32, end;

	name[0] = '\0';
	if (at + 1 > len || (at += 1u + h[at]) + 2 > len || (at += 2 + get16(h + at)) + 1 > len || (at += 1u + h[at]) + 2 > len)
		return;
	end = at + 2 + get16(h + at);
	for (at += 2; at + 4 <= end && end <= len; at += 4 + get16(h + at + 2)) {
		size_t n = get16(h + at + 2);

		if (get16(h + at) == 0 && n > 5 && n < 256 && at + 4 + n <= end) {
			memcpy(name, h + at + 9, n - 5);
			name[n - 5] = '\0';
			return;
		}
	}
}

static void serve_tls(struct far *f, struct conn *c)
{
	uint8_t hello[HELLO_MAX];
	char name[256] = "";
	ssize_t n = c->recorded ? 0 : join_records(c, hello);

	if (n == 0)
		return;
	if (n > 0)
		find_sni(hello, (size_t)n, name);
	tell(f, c, ST_EV_TLS, name);
	(void)!send(c->fd, "hello", 5, MSG_NOSIGNAL);
}

static void serve_http(struct far *f, struct conn *c)
{
	static const char ok[] = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
	char *end, *host, name[256] = "";

	while ((end = memmem(c->buf, c->len, "\r\n\r\n", 4))) {
		size_t used = (size_t)(end + 4 - (char *)c->buf);

		*end = '\0';
		host = strcasestr((char *)c->buf, "\nhost: ");
		if (host)
			snprintf(name, sizeof(name), "%.*s", (int)strcspn(host + 7, "\r\n"), host + 7);
		tell(f, c, ST_EV_HTTP, name);
		(void)!send(c->fd, ok, sizeof(ok) - 1, MSG_NOSIGNAL);
		memmove(c->buf, c->buf + used, c->len - used);
		c->len -= used;
	}
}

static void serve_dns(struct far *f, struct conn *c)
{
	uint8_t reply[ST_DNS_MAX + 2];
	size_t n, len;

	while (c->len >= 2 && c->len >= 2 + (n = get16(c->buf))) {
		serve_question(f, c->buf + 2, n, reply + 2, &len);
		reply[0] = (uint8_t)(len >> 8);
		reply[1] = (uint8_t)len;
		(void)!send(c->fd, reply, len + 2, MSG_NOSIGNAL);
		memmove(c->buf, c->buf + 2 + n, c->len - 2 - n);
		c->len -= 2 + n;
	}
}

static bool read_conn(struct far *f, struct conn *c)
{
	ssize_t n = recv(c->fd, c->buf + c->len, sizeof(c->buf) - 1 - c->len, MSG_DONTWAIT);

	if (n < 0 && errno == EAGAIN)
		return false;
	if (n <= 0) {
		conn_close(c);
		return true;
	}
	c->len += (size_t)n;
	switch (c->service) {
	case SERVE_DNS:
		serve_dns(f, c);
		break;
	case SERVE_TLS:
		serve_tls(f, c);
		break;
	case SERVE_HTTP:
		serve_http(f, c);
		break;
	case SERVE_ECHO:
	case SERVE_BANNER:
		(void)!send(c->fd, c->buf, c->len, MSG_NOSIGNAL);
		c->len = 0;
		break;
	}
	if (c->len >= sizeof(c->buf) - 1)
		conn_close(c);
	return true;
}

static bool accept_conn(struct far *f, size_t i)
{
	struct sockaddr_storage ss = { 0 };
	socklen_t len = sizeof(ss);
	int fd = accept4(f->listeners[i], NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	struct conn *c = f->conns;

	if (fd < 0)
		return false;
	while (c < f->conns + CONNS_MAX && c->fd >= 0)
		c++;
	if (c == f->conns + CONNS_MAX) {
		ak_close(fd);
		return true;
	}
	getsockname(fd, (struct sockaddr *)&ss, &len);
	c->fd = fd;
	c->service = listening[i / 2].service;
	c->dst = ak_addr_from_sockaddr(&ss, &c->port);
	c->recorded = false;
	c->len = 0;
	if (c->service == SERVE_BANNER)
		(void)!send(fd, "SSH-2.0-selftest\r\n", 18, MSG_NOSIGNAL);
	return true;
}

/* ---- the loop ---- */

/* Handle everything that is pending, once; true if there was anything. */
static bool serve_all(struct far *f)
{
	bool any = read_packets(f);

	for (size_t i = 0; i < N_UDP; i++) {
		while (f->datagrams[i] >= 0 && read_datagram(f, f->datagrams[i], datagram_ports[i / 2] == 53))
			any = true;
	}
	for (size_t i = 0; i < N_LISTEN; i++) {
		while (f->listeners[i] >= 0 && accept_conn(f, i))
			any = true;
	}
	for (size_t i = 0; i < CONNS_MAX; i++) {
		if (f->conns[i].fd >= 0)
			any |= read_conn(f, &f->conns[i]);
	}
	return any;
}

static void add_poll(struct pollfd *p, nfds_t *n, int fd)
{
	if (fd >= 0)
		p[(*n)++] = (struct pollfd){ .fd = fd, .events = POLLIN };
}

static void loop(struct far *f)
{
	static struct pollfd p[2 + N_LISTEN + N_UDP + CONNS_MAX];
	char byte;

	for (;;) {
		nfds_t n = 0;

		add_poll(p, &n, f->control);
		add_poll(p, &n, f->packets);
		for (size_t i = 0; i < N_LISTEN; i++)
			add_poll(p, &n, f->listeners[i]);
		for (size_t i = 0; i < N_UDP; i++)
			add_poll(p, &n, f->datagrams[i]);
		for (size_t i = 0; i < CONNS_MAX; i++)
			add_poll(p, &n, f->conns[i].fd);
		if (poll(p, n, -1) < 0 && errno != EINTR)
			return;
		while (serve_all(f))
			continue;
		if (!p[0].revents)
			continue;
		if (recv(f->control, &byte, 1, MSG_DONTWAIT) != 1)
			return;
		(void)!send(f->control, &byte, 1, MSG_NOSIGNAL);
	}
}

/* ---- start ---- */

static int open_socket(int family, int type, uint16_t port, struct ak_err *err)
{
	struct ak_addr any = { .family = (uint8_t)family };
	struct sockaddr_storage ss;
	socklen_t len = ak_addr_to_sockaddr(&any, port, &ss);
	_cleanup_close_ int fd = socket(family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int on = 1;

	if (fd < 0)
		return ak_fail_errno(err, errno, "socket");
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (family == AF_INET6) {
		setsockopt(fd, SOL_IPV6, IPV6_V6ONLY, &on, sizeof(on));
		setsockopt(fd, SOL_IPV6, IPV6_RECVPKTINFO, &on, sizeof(on));
		setsockopt(fd, SOL_IPV6, IPV6_FREEBIND, &on, sizeof(on));
	} else {
		setsockopt(fd, SOL_IP, IP_PKTINFO, &on, sizeof(on));
	}
	if (bind(fd, (struct sockaddr *)&ss, len) < 0 || (type == SOCK_STREAM && listen(fd, 256) < 0))
		return ak_fail_errno(err, errno, "cannot open port %u of the private Internet", port);
	return TAKE_FD(fd);
}

static int open_counter(struct ak_err *err)
{
	struct sockaddr_ll ll = { .sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL) };
	_cleanup_close_ int fd = socket(AF_PACKET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, htons(ETH_P_ALL));
	int size = 8 << 20;

	ll.sll_ifindex = (int)if_nametoindex(LABNS_INET_IF);
	if (fd < 0 || bind(fd, (struct sockaddr *)&ll, sizeof(ll)) < 0)
		return ak_fail_errno(err, errno, "cannot open the packet counter");
	setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof(size));
	return TAKE_FD(fd);
}

static int open_all(struct far *f, struct ak_err *err)
{
	const int families[] = { AF_INET, AF_INET6 };
	int n_families = labns_has_ipv6() ? 2 : 1, rc;

	for (size_t i = 0; i < N_LISTEN; i++)
		f->listeners[i] = -1;
	for (size_t i = 0; i < N_UDP; i++)
		f->datagrams[i] = -1;
	for (int k = 0; k < n_families; k++) {
		for (size_t i = 0; i < ARRAY_SIZE(listening); i++) {
			rc = f->listeners[2 * i + (size_t)k] = open_socket(families[k], SOCK_STREAM, listening[i].port, err);
			if (rc < 0)
				return rc;
		}
		for (size_t i = 0; i < ARRAY_SIZE(datagram_ports); i++) {
			rc = f->datagrams[2 * i + (size_t)k] = open_socket(families[k], SOCK_DGRAM, datagram_ports[i], err);
			if (rc < 0)
				return rc;
		}
	}
	rc = f->packets = open_counter(err);
	return rc < 0 ? rc : 0;
}

int st_internet(struct st_events *events, int control, struct ak_err *err)
{
	static struct far f;
	int rc;

	f.events = events;
	f.control = control;
	for (size_t i = 0; i < CONNS_MAX; i++)
		f.conns[i].fd = -1;
	rc = labns_internet_link(err);
	if (rc == 0)
		rc = open_all(&f, err);
	if (rc < 0)
		return rc;
	(void)!send(control, "r", 1, MSG_NOSIGNAL);
	loop(&f);
	return 0;
}
