#include "gateway/base/cleanup.h"
#include "gateway/relay/packet.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static unsigned get16(const uint8_t *p)
{
	return (unsigned)p[0] << 8 | p[1];
}

/* Puts fragments together as a receiver would. */
struct joined {
	uint8_t data[70000];
	size_t len, total;
	unsigned packets, id;
};

static int join4(void *ctx, const uint8_t *p, size_t len)
{
	struct joined *j = ctx;
	unsigned frag = get16(p + 6);
	size_t at = (frag & 0x1fff) * 8, n = len - 20;

	assert_true(len <= RELAY_PACKET_MTU);
	assert_int_equal(p[0], 0x45);
	assert_int_equal(get16(p + 2), len);
	assert_int_equal(relay_checksum_fold(relay_checksum_add(0, p, 20)), 0);
	assert_int_equal(p[9], 17);
	if (frag & 0x2000)
		assert_int_equal(n % 8, 0);
	else
		j->total = at + n;
	memcpy(j->data + at, p + 20, n);
	j->len += n;
	j->id = get16(p + 4);
	j->packets++;
	return 0;
}

static int join6(void *ctx, const uint8_t *p, size_t len)
{
	struct joined *j = ctx;
	bool whole = p[6] == 17;
	size_t h = whole ? 40 : 48, n = len - h, at = whole ? 0 : get16(p + 42) & ~7u;

	assert_true(len <= RELAY_PACKET_MTU);
	assert_int_equal(p[0], 0x60);
	assert_int_equal(get16(p + 4), len - 40);
	if (!whole) {
		assert_int_equal(p[6], 44);
		assert_int_equal(p[40], 17);
	}
	if (!whole && get16(p + 42) & 1)
		assert_int_equal(n % 8, 0);
	else
		j->total = at + n;
	memcpy(j->data + at, p + h, n);
	j->len += n;
	j->packets++;
	return 0;
}

static struct relay_endpoints ends(const char *src, const char *dst)
{
	struct relay_endpoints e = { .sport = 5353, .dport = 40000 };

	assert_int_equal(ak_addr_parse(src, &e.src), 0);
	assert_int_equal(ak_addr_parse(dst, &e.dst), 0);
	return e;
}

static void check_udp(const struct joined *j, const struct relay_endpoints *e, const uint8_t *payload, size_t len)
{
	size_t n = e->src.family == AF_INET ? 4 : 16;
	uint32_t sum = relay_checksum_add(17 + (uint32_t)(len + 8), e->src.bytes, n);

	sum = relay_checksum_add(sum, e->dst.bytes, n);
	assert_int_equal(j->len, len + 8);
	assert_int_equal(j->total, len + 8);
	assert_int_equal(get16(j->data), e->sport);
	assert_int_equal(get16(j->data + 2), e->dport);
	assert_int_equal(get16(j->data + 4), len + 8);
	assert_int_equal(relay_checksum_fold(relay_checksum_add(sum, j->data, j->len)), 0);
	assert_int_not_equal(get16(j->data + 6), 0);
	assert_memory_equal(j->data + 8, payload, len);
}

static void fragments_join_to_the_datagram(void **state)
{
	static const size_t sizes[] = { 0, 1, 7, 1451, 1452, 1453, 1471, 1472, 1473, 1480, 3000, 65507 };
	const struct relay_endpoints v4 = ends("11.1.2.3", "100.64.0.2"), v6 = ends("2a00::5", "fd6b::2");
	uint8_t *payload = malloc(65507);
	struct joined *j = malloc(sizeof(*j));

	for (size_t i = 0; i < 65507; i++)
		payload[i] = (uint8_t)(i * 13 + (i >> 9));
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		memset(j, 0, sizeof(*j));
		assert_int_equal(relay_packet_udp(&v4, 77, payload, sizes[i], join4, j), 0);
		check_udp(j, &v4, payload, sizes[i]);
		assert_int_equal(j->id, 77);
		assert_int_equal(j->packets == 1, sizes[i] <= 1472);
		memset(j, 0, sizeof(*j));
		assert_int_equal(relay_packet_udp(&v6, 77, payload, sizes[i], join6, j), 0);
		check_udp(j, &v6, payload, sizes[i]);
		assert_int_equal(j->packets == 1, sizes[i] <= 1452);
	}
	assert_int_equal(relay_packet_udp(&v4, 1, payload, 65508, join4, j), -EMSGSIZE);
	free(payload);
	free(j);
}

static void known_sum_is_reproduced(void **state)
{
	/* The example of RFC 1071 section 3. */
	static const uint8_t bytes[] = { 0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7 };

	assert_int_equal(relay_checksum_fold(relay_checksum_add(0, bytes, 8)), (uint16_t)~0xddf2);
	assert_int_equal(relay_checksum_fold(relay_checksum_add(0, bytes, 7)), (uint16_t) ~(0xddf2 - 0xf7));
}

static void icmp_quotes_the_datagram(void **state)
{
	const struct relay_endpoints v4 = ends("100.64.0.2", "11.1.2.3"), v6 = ends("fd6b::2", "2a00::5");
	uint8_t p[RELAY_ICMP_PACKET_MAX];
	size_t n = relay_packet_icmp(&v4, RELAY_ICMP_PROHIBITED, 100, p);
	uint32_t sum;

	assert_int_equal(n, 56);
	assert_int_equal(relay_checksum_fold(relay_checksum_add(0, p, 20)), 0);
	assert_int_equal(relay_checksum_fold(relay_checksum_add(0, p + 20, n - 20)), 0);
	assert_int_equal(p[20], 3);
	assert_int_equal(p[21], 13);
	assert_memory_equal(p + 12, v4.dst.bytes, 4);
	assert_memory_equal(p + 28 + 12, v4.src.bytes, 4);
	assert_int_equal(get16(p + 48), v4.sport);
	n = relay_packet_icmp(&v6, RELAY_ICMP_PORT, 100, p);
	assert_int_equal(n, 96);
	sum = relay_checksum_add(58 + (uint32_t)(n - 40), p + 8, 32);
	assert_int_equal(relay_checksum_fold(relay_checksum_add(sum, p + 40, n - 40)), 0);
	assert_int_equal(p[40], 1);
	assert_int_equal(p[41], 4);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(fragments_join_to_the_datagram),
		cmocka_unit_test(known_sum_is_reproduced),
		cmocka_unit_test(icmp_quotes_the_datagram),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
