/* Builds IP, UDP and ICMP headers: see relay/packet.h. All fields are written as network-order bytes. */
#include "gateway/relay/packet.h"

#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>

#define TTL 64
#define IP4_HEADER 20
#define IP6_HEADER 40
#define FRAGMENT_HEADER 8
#define UDP_HEADER 8
#define DATAGRAM_MAX 65535 /* including the UDP header */

static void put16(uint8_t *at, unsigned v)
{
	at[0] = (uint8_t)(v >> 8);
	at[1] = (uint8_t)v;
}

static unsigned addr_len(const struct ak_addr *a)
{
	return a->family == AF_INET ? 4 : 16;
}

uint32_t relay_checksum_add(uint32_t sum, const void *data, size_t len)
{
	const uint8_t *p = data;
	uint64_t wide = sum;

	for (; len > 1; p += 2, len -= 2)
		wide += (uint32_t)(p[0] << 8 | p[1]);
	if (len)
		wide += (uint32_t)(p[0] << 8);
	while (wide >> 32)
		wide = (wide & 0xffffffff) + (wide >> 32);
	return (uint32_t)wide;
}

uint16_t relay_checksum_fold(uint32_t sum)
{
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)~sum;
}

/* The pseudo header of RFC 768 and RFC 8200 section 8.1; the sum is the same for both families. */
static uint32_t pseudo_sum(const struct ak_addr *src, const struct ak_addr *dst, unsigned proto, size_t len)
{
	uint32_t sum = proto + (uint32_t)len;

	sum = relay_checksum_add(sum, src->bytes, addr_len(src));
	return relay_checksum_add(sum, dst->bytes, addr_len(dst));
}

/* FRAG is the offset in bytes, plus 1 if more fragments follow. */
static size_t put_ip4(
	uint8_t *at, const struct ak_addr *src, const struct ak_addr *dst, unsigned proto, uint16_t id, size_t frag, size_t len)
{
	memset(at, 0, IP4_HEADER);
	at[0] = 0x45;
	put16(at + 2, (unsigned)(IP4_HEADER + len));
	put16(at + 4, id);
	put16(at + 6, (unsigned)(frag >> 3 | (frag & 1) << 13));
	at[8] = TTL;
	at[9] = (uint8_t)proto;
	memcpy(at + 12, src->bytes, 4);
	memcpy(at + 16, dst->bytes, 4);
	put16(at + 10, relay_checksum_fold(relay_checksum_add(0, at, IP4_HEADER)));
	return IP4_HEADER;
}

static size_t put_ip6(uint8_t *at, const struct ak_addr *src, const struct ak_addr *dst, unsigned proto, size_t len)
{
	memset(at, 0, IP6_HEADER);
	at[0] = 0x60;
	put16(at + 4, (unsigned)len);
	at[6] = (uint8_t)proto;
	at[7] = TTL;
	memcpy(at + 8, src->bytes, 16);
	memcpy(at + 24, dst->bytes, 16);
	return IP6_HEADER;
}

static size_t put_ip6_fragment(uint8_t *at, unsigned proto, uint16_t id, size_t frag)
{
	memset(at, 0, FRAGMENT_HEADER);
	at[0] = (uint8_t)proto;
	put16(at + 2, (unsigned)((frag & ~(size_t)7) | (frag & 1)));
	put16(at + 6, id);
	return FRAGMENT_HEADER;
}

static size_t put_headers(uint8_t *at, const struct relay_endpoints *e, uint16_t id, size_t frag, bool whole, size_t len)
{
	size_t n;

	if (e->src.family == AF_INET)
		return put_ip4(at, &e->src, &e->dst, IPPROTO_UDP, id, frag, len);
	if (whole)
		return put_ip6(at, &e->src, &e->dst, IPPROTO_UDP, len);
	n = put_ip6(at, &e->src, &e->dst, IPPROTO_FRAGMENT, len + FRAGMENT_HEADER);
	return n + put_ip6_fragment(at + n, IPPROTO_UDP, id, frag);
}

static void put_udp(uint8_t *at, const struct relay_endpoints *e, const void *payload, size_t len)
{
	uint32_t sum = pseudo_sum(&e->src, &e->dst, IPPROTO_UDP, UDP_HEADER + len);
	uint16_t folded;

	put16(at, e->sport);
	put16(at + 2, e->dport);
	put16(at + 4, (unsigned)(UDP_HEADER + len));
	put16(at + 6, 0);
	sum = relay_checksum_add(sum, at, UDP_HEADER);
	folded = relay_checksum_fold(relay_checksum_add(sum, payload, len));
	put16(at + 6, folded ? folded : 0xffff); /* 0 would mean "no checksum" */
}

int relay_packet_udp(const struct relay_endpoints *e, uint16_t id, const void *payload, size_t len,
	int (*emit)(void *ctx, const uint8_t *packet, size_t len), void *ctx)
{
	uint8_t packet[RELAY_PACKET_MTU], udp[UDP_HEADER];
	size_t total = UDP_HEADER + len, header = e->src.family == AF_INET ? IP4_HEADER : IP6_HEADER;
	bool whole = header + total <= RELAY_PACKET_MTU;
	size_t room;

	if (total > DATAGRAM_MAX - (e->src.family == AF_INET ? IP4_HEADER : 0))
		return -EMSGSIZE;
	if (!whole && e->src.family == AF_INET6)
		header += FRAGMENT_HEADER;
	room = whole ? RELAY_PACKET_MTU - header : (RELAY_PACKET_MTU - header) & ~(size_t)7;
	put_udp(udp, e, payload, len);
	for (size_t at = 0; at < total;) {
		size_t n = total - at < room ? total - at : room;
		size_t frag = at | (at + n < total ? 1 : 0);
		size_t h = put_headers(packet, e, id, frag, whole, n), lead = at ? 0 : UDP_HEADER;
		int rc;

		memcpy(packet + h, udp, lead);
		if (n > lead)
			memcpy(packet + h + lead, (const uint8_t *)payload + at + lead - UDP_HEADER, n - lead);
		rc = emit(ctx, packet, h + n);
		if (rc < 0)
			return rc;
		at += n;
	}
	return 0;
}

size_t relay_packet_icmp(
	const struct relay_endpoints *e, enum relay_icmp kind, size_t len, uint8_t ret[static RELAY_ICMP_PACKET_MAX])
{
	static const uint8_t v4[RELAY_ICMP_NUM][2] = { [RELAY_ICMP_PROHIBITED] = { 3, 13 }, [RELAY_ICMP_PORT] = { 3, 3 } };
	static const uint8_t v6[RELAY_ICMP_NUM][2] = { [RELAY_ICMP_PROHIBITED] = { 1, 1 }, [RELAY_ICMP_PORT] = { 1, 4 } };
	bool is4 = e->src.family == AF_INET;
	size_t ip = is4 ? IP4_HEADER : IP6_HEADER, body = 8 + ip + UDP_HEADER;
	uint8_t *icmp = ret + ip, *quote = icmp + 8;
	uint32_t sum = is4 ? 0 : pseudo_sum(&e->dst, &e->src, IPPROTO_ICMPV6, body);

	static_assert(2 * IP6_HEADER + 8 + UDP_HEADER <= RELAY_ICMP_PACKET_MAX, "quoted header fits");
	memset(ret, 0, RELAY_ICMP_PACKET_MAX);
	memcpy(icmp, is4 ? v4[kind] : v6[kind], 2);
	if (is4)
		put_ip4(quote, &e->src, &e->dst, IPPROTO_UDP, 0, 0, UDP_HEADER + len);
	else
		put_ip6(quote, &e->src, &e->dst, IPPROTO_UDP, UDP_HEADER + len);
	put16(quote + ip, e->sport);
	put16(quote + ip + 2, e->dport);
	put16(quote + ip + 4, (unsigned)(UDP_HEADER + len));
	put16(icmp + 2, relay_checksum_fold(relay_checksum_add(sum, icmp, body)));
	if (is4)
		put_ip4(ret, &e->dst, &e->src, IPPROTO_ICMP, 0, 0, body);
	else
		put_ip6(ret, &e->dst, &e->src, IPPROTO_ICMPV6, body);
	return ip + body;
}
