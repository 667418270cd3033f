/*
 * IP addresses and prefixes as values: compare, hash, parse, print.
 * Unused bytes of an address are always zero, so memcmp compares addresses.
 */
#ifndef AK_BASE_ADDR_H
#define AK_BASE_ADDR_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <netinet/in.h>

struct ak_addr {
	uint8_t family; /* AF_INET or AF_INET6; 0: no address */
	uint8_t bytes[16]; /* network order; IPv4 uses the first four */
};

/* Size of the longest text including the NUL: an IPv6 address and "/128". */
#define AK_ADDR_TEXT 64

struct ak_addr ak_addr_v4(uint32_t host_order);
struct ak_addr ak_addr_from_sockaddr(const struct sockaddr_storage *ss, uint16_t *ret_port);
socklen_t ak_addr_to_sockaddr(const struct ak_addr *a, uint16_t port, struct sockaddr_storage *ret_ss);

/* Strict: an IPv4 address of four decimal parts, or an IPv6 address without a scope. */
int ak_addr_parse(const char *text, struct ak_addr *ret);
const char *ak_addr_print(const struct ak_addr *a, char buf[static AK_ADDR_TEXT]);

bool ak_addr_eq(const struct ak_addr *a, const struct ak_addr *b);
int ak_addr_cmp(const struct ak_addr *a, const struct ak_addr *b);
uint32_t ak_addr_hash(const struct ak_addr *a);
unsigned ak_addr_bits(const struct ak_addr *a);

/* True if A and NET have the same family and the same first LEN bits. */
bool ak_addr_in_prefix(const struct ak_addr *a, const struct ak_addr *net, unsigned len);

/*
 * The IPv4 address embedded in an IPv6 address: mapped (::ffff:0:0/96), compatible (::/96), NAT64
 * (64:ff9b::/96), 6to4 (2002::/16) and the inverted Teredo client address (2001::/32). False if there is none.
 */
bool ak_addr_embedded_v4(const struct ak_addr *a, struct ak_addr *ret_v4);

#endif
