/* Builds IP packets for raw sockets: UDP replies (fragmented if needed) and ICMP errors. Pure. */
#ifndef AK_RELAY_PACKET_H
#define AK_RELAY_PACKET_H

#include "gateway/base/addr.h"

#include <stddef.h>
#include <stdint.h>

#define RELAY_PACKET_MTU 1500

struct relay_endpoints {
	struct ak_addr src, dst; /* of the same family */
	uint16_t sport, dport;
};

/*
 * Split the UDP datagram into IP packets no longer than the MTU and pass each to EMIT; fragments get the identification ID.
 * -EMSGSIZE if it is too long for a datagram; else 0 or the first error of EMIT.
 */
int relay_packet_udp(const struct relay_endpoints *e, uint16_t id, const void *payload, size_t len,
	int (*emit)(void *ctx, const uint8_t *packet, size_t len), void *ctx);

enum relay_icmp { RELAY_ICMP_PROHIBITED, RELAY_ICMP_PORT, RELAY_ICMP_NUM };

#define RELAY_ICMP_PACKET_MAX 128

/* Build "destination unreachable" from E->dst about a datagram of LEN bytes from E->src to E->dst; returns the packet length. */
size_t relay_packet_icmp(
	const struct relay_endpoints *e, enum relay_icmp kind, size_t len, uint8_t ret[static RELAY_ICMP_PACKET_MAX]);

/* Add LEN bytes to the Internet checksum (RFC 1071) SUM, without folding. */
uint32_t relay_checksum_add(uint32_t sum, const void *data, size_t len);
uint16_t relay_checksum_fold(uint32_t sum);

#endif
