/* IP addresses as values: see addr.h. */
#include "gateway/base/addr.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

struct ak_addr ak_addr_v4(uint32_t host_order)
{
	struct ak_addr a = { .family = AF_INET };
	uint32_t be = htonl(host_order);

	memcpy(a.bytes, &be, 4);
	return a;
}

struct ak_addr ak_addr_from_sockaddr(const struct sockaddr_storage *ss, uint16_t *ret_port)
{
	struct ak_addr a = { 0 };
	uint16_t port = 0;

	if (ss->ss_family == AF_INET) {
		const struct sockaddr_in *sin = (const void *)ss;

		a.family = AF_INET;
		memcpy(a.bytes, &sin->sin_addr, 4);
		port = ntohs(sin->sin_port);
	} else if (ss->ss_family == AF_INET6) {
		const struct sockaddr_in6 *sin6 = (const void *)ss;

		a.family = AF_INET6;
		memcpy(a.bytes, &sin6->sin6_addr, 16);
		port = ntohs(sin6->sin6_port);
	}
	if (ret_port)
		*ret_port = port;
	return a;
}

socklen_t ak_addr_to_sockaddr(const struct ak_addr *a, uint16_t port, struct sockaddr_storage *ret_ss)
{
	memset(ret_ss, 0, sizeof(*ret_ss));
	if (a->family == AF_INET) {
		struct sockaddr_in *sin = (void *)ret_ss;

		sin->sin_family = AF_INET;
		sin->sin_port = htons(port);
		memcpy(&sin->sin_addr, a->bytes, 4);
		return sizeof(*sin);
	}

	struct sockaddr_in6 *sin6 = (void *)ret_ss;

	sin6->sin6_family = AF_INET6;
	sin6->sin6_port = htons(port);
	memcpy(&sin6->sin6_addr, a->bytes, 16);
	return sizeof(*sin6);
}

int ak_addr_parse(const char *text, struct ak_addr *ret)
{
	struct ak_addr a = { 0 };

	/* inet_pton accepts no short, octal or hexadecimal forms. */
	if (inet_pton(AF_INET, text, a.bytes) == 1)
		a.family = AF_INET;
	else if (inet_pton(AF_INET6, text, a.bytes) == 1)
		a.family = AF_INET6;
	else
		return -EINVAL;
	*ret = a;
	return 0;
}

const char *ak_addr_print(const struct ak_addr *a, char buf[static AK_ADDR_TEXT])
{
	if (!a->family || !inet_ntop(a->family, a->bytes, buf, AK_ADDR_TEXT))
		snprintf(buf, AK_ADDR_TEXT, "-");
	return buf;
}

int ak_addr_cmp(const struct ak_addr *a, const struct ak_addr *b)
{
	if (a->family != b->family)
		return a->family < b->family ? -1 : 1;
	return memcmp(a->bytes, b->bytes, sizeof(a->bytes));
}

bool ak_addr_eq(const struct ak_addr *a, const struct ak_addr *b)
{
	return ak_addr_cmp(a, b) == 0;
}

uint32_t ak_addr_hash(const struct ak_addr *a)
{
	uint32_t h = 2166136261u ^ a->family; /* FNV-1a */

	for (size_t i = 0; i < sizeof(a->bytes); i++)
		h = (h ^ a->bytes[i]) * 16777619u;
	return h ^ (h >> 15);
}

unsigned ak_addr_bits(const struct ak_addr *a)
{
	return a->family == AF_INET ? 32 : 128;
}

bool ak_addr_in_prefix(const struct ak_addr *a, const struct ak_addr *net, unsigned len)
{
	unsigned whole = len / 8, rest = len % 8;

	if (a->family != net->family || memcmp(a->bytes, net->bytes, whole) != 0)
		return false;
	return rest == 0 || ((a->bytes[whole] ^ net->bytes[whole]) >> (8 - rest)) == 0;
}

bool ak_addr_embedded_v4(const struct ak_addr *a, struct ak_addr *ret_v4)
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };
	static const uint8_t compat[12];
	static const uint8_t nat64[12] = { 0x00, 0x64, 0xff, 0x9b };
	struct ak_addr v4 = { .family = AF_INET };
	const uint8_t *b = a->bytes;

	if (a->family != AF_INET6)
		return false;
	if (!memcmp(b, mapped, 12) || !memcmp(b, compat, 12) || !memcmp(b, nat64, 12)) {
		memcpy(v4.bytes, b + 12, 4);
	} else if (b[0] == 0x20 && b[1] == 0x02) {
		memcpy(v4.bytes, b + 2, 4);
	} else if (b[0] == 0x20 && b[1] == 0x01 && b[2] == 0 && b[3] == 0) {
		for (int i = 0; i < 4; i++) /* RFC 4380 section 4: bits inverted */
			v4.bytes[i] = b[12 + i] ^ 0xff;
	} else {
		return false;
	}
	*ret_v4 = v4;
	return true;
}
