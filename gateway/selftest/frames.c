/*
 * Raw frames on a sandbox's own link, as root in its network namespace could send them; the sandbox never has root there. A child
 * process enters the namespace from outside.
 */
#include "gateway/selftest/selftest.h"

#include "gateway/base/cleanup.h"
#include "vmctl/gwns.h"
#include "vmctl/labns.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define FRAME_MAX 1024

struct frame {
	uint8_t data[FRAME_MAX];
	size_t len;
};

struct wire {
	int fd;
	struct gwns_link link;
	unsigned sent;
};

/* ---- building ---- */

static void put(struct frame *f, const void *data, size_t n)
{
	memcpy(f->data + f->len, data, n);
	f->len += n;
}

static void put16(struct frame *f, unsigned v)
{
	put(f, (uint8_t[]){ (uint8_t)(v >> 8), (uint8_t)v }, 2);
}

static uint32_t sum(const uint8_t *p, size_t n, uint32_t start)
{
	for (size_t i = 0; i < n; i++)
		start += i & 1 ? p[i] : (uint32_t)p[i] << 8;
	return start;
}

static uint16_t fold(uint32_t s)
{
	while (s >> 16)
		s = (s & 0xffff) + (s >> 16);
	return (uint16_t)~s;
}

static void set16(uint8_t *at, uint16_t v)
{
	at[0] = (uint8_t)(v >> 8);
	at[1] = (uint8_t)v;
}

static struct ak_addr addr(const char *text)
{
	struct ak_addr a = { 0 };

	(void)ak_addr_parse(text, &a);
	return a;
}

static void put_ether(struct frame *f, const struct wire *w, const uint8_t *src_mac, unsigned kind)
{
	f->len = 0;
	put(f, w->link.gw_mac, 6);
	put(f, src_mac ? src_mac : w->link.peer_mac, 6);
	put16(f, kind);
}

/* Prepend the IPv4 or IPv6 header to PAYLOAD; OPTIONS and FRAG apply to IPv4 only. */
static void put_ip(struct frame *f, const struct ak_addr *src, const struct ak_addr *dst, unsigned proto,
	const struct frame *options, unsigned frag, const struct frame *payload)
{
	size_t at = f->len, head = 20 + options->len;

	if (src->family == AF_INET6) {
		put(f, "\x60\0\0\0", 4);
		put16(f, (unsigned)payload->len);
		put(f, (uint8_t[]){ (uint8_t)proto, 64 }, 2);
		put(f, src->bytes, 16);
		put(f, dst->bytes, 16);
	} else {
		put(f, (uint8_t[]){ (uint8_t)(0x40 | head / 4), 0 }, 2);
		put16(f, (unsigned)(head + payload->len));
		put16(f, 7);
		put16(f, frag);
		put(f, (uint8_t[]){ 64, (uint8_t)proto, 0, 0 }, 4);
		put(f, src->bytes, 4);
		put(f, dst->bytes, 4);
		put(f, options->data, options->len);
		set16(f->data + at + 10, fold(sum(f->data + at, head, 0)));
	}
	put(f, payload->data, payload->len);
}

static void build_udp(struct frame *p, const struct ak_addr *src, const struct ak_addr *dst, uint16_t port)
{
	size_t n = src->family == AF_INET ? 4 : 16;

	p->len = 0;
	put16(p, 4242);
	put16(p, port);
	put16(p, 8 + 12);
	put16(p, 0);
	put(p, "data to leak", 12);
	set16(p->data + 6, fold(sum(p->data, p->len, sum(src->bytes, n, sum(dst->bytes, n, 17 + 20)))));
}

static void build_syn(struct frame *p, const struct ak_addr *src, const struct ak_addr *dst, uint16_t port)
{
	size_t n = src->family == AF_INET ? 4 : 16;

	p->len = 0;
	put16(p, 4242);
	put16(p, port);
	put(p, "\0\0\0\1\0\0\0\0\x50\2\xfa\xf0\0\0\0\0", 16);
	set16(p->data + 16, fold(sum(p->data, p->len, sum(src->bytes, n, sum(dst->bytes, n, 6 + 20)))));
}

/* ---- sending ---- */

static void transmit(struct wire *w, const struct frame *f)
{
	w->sent += send(w->fd, f->data, f->len, 0) == (ssize_t)f->len;
}

static const struct frame nothing;

static void send_ip(struct wire *w, const struct ak_addr *src, const struct ak_addr *dst, unsigned proto,
	const struct frame *options, unsigned frag, const struct frame *payload)
{
	struct frame f;

	put_ether(&f, w, NULL, src->family == AF_INET ? ETH_P_IP : ETH_P_IPV6);
	put_ip(&f, src, dst, proto, options, frag, payload);
	transmit(w, &f);
}

static void send_udp(struct wire *w, const struct ak_addr *src, const struct ak_addr *dst, uint16_t port)
{
	struct frame p;

	build_udp(&p, src, dst, port);
	send_ip(w, src, dst, IPPROTO_UDP, &nothing, 0, &p);
}

static void send_syn(struct wire *w, const struct ak_addr *src, const struct ak_addr *dst, uint16_t port)
{
	struct frame p;

	build_syn(&p, src, dst, port);
	send_ip(w, src, dst, IPPROTO_TCP, &nothing, 0, &p);
}

/* ---- the frame sets ---- */

static void send_spoofs(struct wire *w, const struct ak_addr *dst, const char *const *sources)
{
	const struct ak_addr *gw = dst->family == AF_INET ? &w->link.gw4 : &w->link.gw6;

	for (; *sources; sources++) {
		struct ak_addr src = addr(*sources);

		send_udp(w, &src, dst, 5000);
		send_syn(w, &src, dst, 7);
		send_udp(w, &src, gw, 53);
	}
}

static void send_wrong_macs(struct wire *w, const struct ak_addr *dst)
{
	static const uint8_t macs[][6] = { { 2, 0, 0, 0, 0, 1 }, { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff },
		{ 1, 0, 0x5e, 0, 0, 1 } };
	struct frame f, p;

	for (size_t i = 0; i < ARRAY_SIZE(macs); i++) {
		build_udp(&p, &w->link.addr4, dst, 5000);
		put_ether(&f, w, macs[i], ETH_P_IP);
		put_ip(&f, &w->link.addr4, dst, IPPROTO_UDP, &nothing, 0, &p);
		transmit(w, &f);
	}
}

/* A broadcast ARP announcement of the gateway's address at our MAC, and an ARP request that the gateway would answer. */
static void send_arp(struct wire *w)
{
	struct frame f;

	for (uint8_t op = 1; op <= 2; op++) {
		put_ether(&f, w, NULL, ETH_P_ARP);
		memset(f.data, 0xff, 6);
		put(&f, (uint8_t[]){ 0, 1, 8, 0, 6, 4, 0, op }, 8);
		put(&f, w->link.peer_mac, 6);
		put(&f, w->link.gw4.bytes, 4);
		put(&f, w->link.gw_mac, 6);
		put(&f, w->link.addr4.bytes, 4);
		transmit(w, &f);
	}
}

static void send_icmp6(
	struct wire *w, const struct ak_addr *src, const struct ak_addr *dst, uint8_t type, const void *body, size_t n)
{
	struct frame p = { .data = { type }, .len = 4 };

	put(&p, body, n);
	set16(p.data + 2, fold(sum(p.data, p.len, sum(src->bytes, 16, sum(dst->bytes, 16, 58 + (uint32_t)p.len)))));
	send_ip(w, src, dst, IPPROTO_ICMPV6, &nothing, 0, &p);
}

/* Router advertisement, neighbour advertisement, redirect, and a DHCP offer. */
static void send_rogue(struct wire *w, const struct ak_addr *everyone)
{
	struct ak_addr near = addr("fe80::66"), all = addr("ff02::1");
	uint8_t body[36] = { 0x60, 0, 0, 0 };

	send_icmp6(w, &near, &all, 134, "\x40\x80\x07\x08\0\0\0\0\0\0\0\0", 12);
	memcpy(body + 4, w->link.gw6.bytes, 16);
	send_icmp6(w, &near, &all, 136, body, 20);
	send_icmp6(w, &w->link.addr6, &w->link.gw6, 136, body, 20);
	memcpy(body + 20, w->link.addr6.bytes, 16);
	send_icmp6(w, &near, &w->link.gw6, 137, body, 36);
	send_udp(w, &w->link.addr4, everyone, 68);
}

/* The same datagram in one VLAN tag, in two, and with ethertypes that are not IP. */
static void send_ethertypes(struct wire *w, const struct ak_addr *dst)
{
	static const unsigned kinds[] = { 0x8100, 0x88a8, 0x88b5, 0x8847, 0x8864, 0x0842 };
	struct frame f, p;

	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		build_udp(&p, &w->link.addr4, dst, 5000);
		put_ether(&f, w, NULL, kinds[i]);
		put(&f, "\0\1\x08\0", 4);
		put_ip(&f, &w->link.addr4, dst, IPPROTO_UDP, &nothing, 0, &p);
		transmit(w, &f);
	}
}

/* A complete datagram with "more fragments" set, a later fragment alone, and a first fragment too small for the ports. */
static void send_fragments(struct wire *w, const struct ak_addr *dst)
{
	struct frame p, tiny = { .len = 8 };

	build_udp(&p, &w->link.addr4, dst, 5000);
	memcpy(tiny.data, p.data, 8);
	send_ip(w, &w->link.addr4, dst, IPPROTO_UDP, &nothing, 0x2000, &p);
	send_ip(w, &w->link.addr4, dst, IPPROTO_UDP, &nothing, 2, &p);
	send_ip(w, &w->link.addr4, dst, IPPROTO_UDP, &nothing, 0x2000, &tiny);
	send_ip(w, &w->link.addr4, dst, IPPROTO_UDP, &nothing, 0x2001, &p);
}

static void send_options(struct wire *w, const struct ak_addr *dst)
{
	static const struct frame options[] = {
		{ .data = "\1\1\1\1", .len = 4 }, /* padding */
		{ .data = "\7\7\4\0\0\0\0\0", .len = 8 }, /* record route */
		{ .data = "\x83\7\4\x0b\x42\x1b\1\0", .len = 8 }, /* loose source route */
		{ .data = "\x94\4\0\0", .len = 4 }, /* router alert */
	};
	struct frame p;

	for (size_t i = 0; i < ARRAY_SIZE(options); i++) {
		build_udp(&p, &w->link.addr4, dst, 5000);
		send_ip(w, &w->link.addr4, dst, IPPROTO_UDP, &options[i], 0, &p);
	}
}

/* Hop-by-hop, routing, fragment and destination options before the datagram. */
static void send_extensions(struct wire *w, const struct ak_addr *dst)
{
	static const uint8_t kinds[] = { 0, 43, 44, 60 };

	for (size_t i = 0; i < sizeof(kinds); i++) {
		struct frame p = { .data = { IPPROTO_UDP, 0, 1, 4 }, .len = 8 }, udp;

		if (kinds[i] == 44)
			memset(p.data + 1, 0, 7);
		build_udp(&udp, &w->link.addr6, dst, 5000);
		put(&p, udp.data, udp.len);
		send_ip(w, &w->link.addr6, dst, kinds[i], &nothing, 0, &p);
	}
}

static void send_protocols(struct wire *w, const struct ak_addr *dst)
{
	/* IGMP, IPIP, 6in4, GRE, ESP, AH, OSPF, SCTP, UDP-Lite, an unassigned one */
	static const uint8_t protos[] = { 2, 4, 41, 47, 50, 51, 89, 132, 136, 253 };
	struct frame p;

	for (size_t i = 0; i < sizeof(protos); i++) {
		build_udp(&p, &w->link.addr4, dst, 5000);
		send_ip(w, &w->link.addr4, dst, protos[i], &nothing, 0, &p);
	}
}

/* Echo with a payload, redirect, timestamp request, router advertisement. */
static void send_icmp(struct wire *w, const struct ak_addr *dst)
{
	static const uint8_t types[] = { 8, 5, 13, 9 };

	for (size_t i = 0; i < sizeof(types); i++) {
		struct frame p = { .data = { types[i] }, .len = 8 };

		put(&p, "data to leak", 12);
		set16(p.data + 2, fold(sum(p.data, p.len, 0)));
		send_ip(w, &w->link.addr4, dst, IPPROTO_ICMP, &nothing, 0, &p);
	}
}

static void send_set(struct wire *w, const struct st_vector *v)
{
	static const char *const sources4[] = { "11.9.9.9", "100.64.0.10", "255.255.255.255", "0.0.0.0", "127.0.0.1", "11.1.0.5",
		"169.254.169.254", NULL };
	static const char *const sources6[] = { "2a00:9::9", "::1", "fd61:6b67::a", "2a00:1::5", NULL };
	struct ak_addr dst = addr(v->host);

	switch (v->type) {
	case ST_FRAMES_SPOOF4:
		send_spoofs(w, &dst, sources4);
		break;
	case ST_FRAMES_SPOOF6:
		send_spoofs(w, &dst, sources6);
		break;
	case ST_FRAMES_MAC:
		send_wrong_macs(w, &dst);
		break;
	case ST_FRAMES_ARP:
		send_arp(w);
		break;
	case ST_FRAMES_ROGUE:
		send_rogue(w, &dst);
		break;
	case ST_FRAMES_ETHER:
		send_ethertypes(w, &dst);
		break;
	case ST_FRAMES_FRAGMENTS:
		send_fragments(w, &dst);
		break;
	case ST_FRAMES_OPTIONS:
		send_options(w, &dst);
		break;
	case ST_FRAMES_EXTENSIONS:
		send_extensions(w, &dst);
		break;
	case ST_FRAMES_PROTOCOLS:
		send_protocols(w, &dst);
		break;
	case ST_FRAMES_ICMP:
		send_icmp(w, &dst);
		break;
	}
}

/* ---- in the sandbox's network namespace ---- */

/* The link is identified by its address. */
static int open_wire(struct wire *w)
{
	struct sockaddr_ll ll = { .sll_family = AF_PACKET, .sll_ifindex = (int)if_nametoindex("eth0") };
	struct ifreq ifr = { .ifr_name = "eth0" };
	struct sockaddr_in in;
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), rc = ioctl(fd, SIOCGIFADDR, &ifr);

	ak_close(fd);
	memcpy(&in, &ifr.ifr_addr, sizeof(in));
	gwns_link_plan((ntohl(in.sin_addr.s_addr) & 0x3fffff) / 4, &w->link);
	w->fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);
	return rc < 0 || w->fd < 0 || bind(w->fd, (struct sockaddr *)&ll, sizeof(ll)) < 0 ? -errno : 0;
}

int st_frames_send(pid_t inside, const struct st_vector *v, struct ak_err *err)
{
	struct wire w = { .fd = -1 };
	struct ak_err why;
	pid_t pid = fork();
	int status = 0;

	if (pid == 0) {
		if (labns_join_net(inside, &why) < 0 || open_wire(&w) < 0)
			_exit(2);
		send_set(&w, v);
		_exit(w.sent ? 0 : 3);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid || status)
		return ak_fail(err, EIO, "cannot send frames (exit status %d)", WEXITSTATUS(status));
	return 0;
}
