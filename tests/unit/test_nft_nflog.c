/* What the kernel logs, parsed: prefixes, packets and whole messages, whole and torn. */
#include "nft/counts.h"
#include "nft/nflog.h"

#include <endian.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>
#include <libmnl/libmnl.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nfnetlink_log.h>
#include <netinet/in.h>

static bool prefix(const char *text, uint32_t *id, enum fw_reason *reason)
{
	return fw_nflog_prefix_parse(text, strlen(text), id, reason);
}

static void prefixes_are_taken_exactly_or_not_at_all(void **state)
{
	static const char *const bad[] = { "", "ak", "ak:", "ak:7", "ak:7:", "ak::default", "ak:x:default", "ak:7:defaul",
		"ak:7:defaultx", "ak:7:default ", "ak:-7:default", "ak:4294967296:default", "ak:00000000007:default",
		"AK:7:default", "xak:7:default" };
	enum fw_reason reason;
	uint32_t id;

	for (enum fw_reason want = 0; want < FW_REASON_NUM; want++) {
		char text[64];

		snprintf(text, sizeof(text), "ak:4294967295:%s", fw_reason_name(want));
		assert_true(prefix(text, &id, &reason));
		assert_int_equal(id, UINT32_MAX);
		assert_int_equal(reason, want);
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_false(prefix(bad[i], &id, &reason));
}

static const uint8_t tcp4[] = { 0x45, 0, 0, 40, 0, 0, 0, 0, 64, IPPROTO_TCP, 0, 0, 100, 64, 0, 30, 11, 0, 0, 9, /* ports */ 0x30,
	0x39, 0x01, 0xbb, 0, 0, 0, 0 };

static void ipv4_addresses_and_ports(void **state)
{
	struct fw_denial d = { 0 };
	char text[AK_ADDR_TEXT];

	assert_true(fw_nflog_packet_parse(tcp4, sizeof(tcp4), &d));
	assert_int_equal(d.l4proto, IPPROTO_TCP);
	assert_string_equal(ak_addr_print(&d.src, text), "100.64.0.30");
	assert_string_equal(ak_addr_print(&d.dst, text), "11.0.0.9");
	assert_int_equal(d.sport, 12345);
	assert_int_equal(d.dport, 443);
}

static void ports_are_absent_where_there_are_none(void **state)
{
	uint8_t p[sizeof(tcp4)];
	struct fw_denial d = { 0 };

	memcpy(p, tcp4, sizeof(p));
	p[9] = IPPROTO_ICMP;
	assert_true(fw_nflog_packet_parse(p, sizeof(p), &d));
	assert_int_equal(d.dport, 0);
	p[9] = IPPROTO_UDP;
	p[7] = 1; /* not the first fragment */
	assert_true(fw_nflog_packet_parse(p, sizeof(p), &d));
	assert_int_equal(d.dport, 0);
	memcpy(p, tcp4, sizeof(p));
	p[0] = 0x4f; /* options that reach past what was copied */
	assert_true(fw_nflog_packet_parse(p, sizeof(p), &d));
	assert_int_equal(d.dport, 0);
	p[0] = 0x44;
	assert_false(fw_nflog_packet_parse(p, sizeof(p), &d));
}

static void ipv6_extension_headers_are_walked(void **state)
{
	uint8_t p[40 + 8 + 8 + 4] = { 0x60 };
	struct fw_denial d = { 0 };

	p[6] = IPPROTO_DSTOPTS;
	p[8] = 0x2a;
	p[24] = 0x2a;
	p[40] = IPPROTO_FRAGMENT;
	p[48] = IPPROTO_UDP;
	memcpy(p + 56, (const uint8_t[]){ 0, 1, 0, 53 }, 4);
	assert_true(fw_nflog_packet_parse(p, sizeof(p), &d));
	assert_int_equal(d.l4proto, IPPROTO_UDP);
	assert_int_equal(d.dport, 53);
	p[51] = 8; /* a later fragment */
	assert_true(fw_nflog_packet_parse(p, sizeof(p), &d));
	assert_int_equal(d.dport, 0);
	p[41] = 255; /* a header that reaches far past the copy */
	assert_true(fw_nflog_packet_parse(p, sizeof(p), &d));
	assert_int_equal(d.dport, 0);
}

static void torn_packets_never_read_past_their_end(void **state)
{
	struct fw_denial d = { 0 };

	for (size_t len = 0; len < sizeof(tcp4); len++) {
		uint8_t *p = test_malloc(len ? len : 1);

		memcpy(p, tcp4, len);
		assert_int_equal(fw_nflog_packet_parse(p, len, &d), len >= 20);
		test_free(p);
	}
}

static size_t build_message(char *buf, uint16_t type, const char *text, const void *payload, size_t len)
{
	struct nlmsghdr *nlh = mnl_nlmsg_put_header(buf);

	nlh->nlmsg_type = type;
	mnl_nlmsg_put_extra_header(nlh, sizeof(struct nfgenmsg));
	if (text)
		mnl_attr_put_strz(nlh, NFULA_PREFIX, text);
	if (payload)
		mnl_attr_put(nlh, NFULA_PAYLOAD, len, payload);
	return nlh->nlmsg_len;
}

#define PACKET ((NFNL_SUBSYS_ULOG << 8) | NFULNL_MSG_PACKET)

static void whole_messages_become_denials(void **state)
{
	char buf[512] __attribute__((aligned(8)));
	struct fw_denial d;

	build_message(buf, PACKET, "ak:7:blocked", tcp4, sizeof(tcp4));
	assert_true(fw_nflog_parse((void *)buf, &d));
	assert_int_equal(d.id, 7);
	assert_int_equal(d.reason, FW_REASON_BLOCKED);
	assert_int_equal(d.dport, 443);
}

static void foreign_messages_are_skipped(void **state)
{
	char buf[512] __attribute__((aligned(8)));
	struct fw_denial d;

	build_message(buf, PACKET, "other", tcp4, sizeof(tcp4));
	assert_false(fw_nflog_parse((void *)buf, &d));
	build_message(buf, PACKET, NULL, tcp4, sizeof(tcp4));
	assert_false(fw_nflog_parse((void *)buf, &d));
	build_message(buf, PACKET, "ak:7:blocked", NULL, 0);
	assert_false(fw_nflog_parse((void *)buf, &d));
	build_message(buf, NLMSG_ERROR, "ak:7:blocked", tcp4, sizeof(tcp4));
	assert_false(fw_nflog_parse((void *)buf, &d));
	((struct nlmsghdr *)(void *)buf)->nlmsg_type = PACKET;
	((struct nlmsghdr *)(void *)buf)->nlmsg_len = sizeof(struct nlmsghdr) + 1;
	assert_false(fw_nflog_parse((void *)buf, &d));
}

static void counters_are_read_from_their_message(void **state)
{
	char buf[512] __attribute__((aligned(8)));
	struct nlmsghdr *nlh = mnl_nlmsg_put_header(buf);
	struct nlattr *nest;
	uint64_t packets = 0;

	mnl_nlmsg_put_extra_header(nlh, sizeof(struct nfgenmsg));
	assert_false(fw_counter_parse(nlh, &packets));
	mnl_attr_put_strz(nlh, NFTA_OBJ_NAME, "sb7_late");
	nest = mnl_attr_nest_start(nlh, NFTA_OBJ_DATA);
	mnl_attr_put_u64(nlh, NFTA_COUNTER_BYTES, htobe64(1));
	mnl_attr_put_u64(nlh, NFTA_COUNTER_PACKETS, htobe64(0x123456789aULL));
	mnl_attr_nest_end(nlh, nest);
	assert_true(fw_counter_parse(nlh, &packets));
	assert_true(packets == 0x123456789aULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(prefixes_are_taken_exactly_or_not_at_all),
		cmocka_unit_test(ipv4_addresses_and_ports),
		cmocka_unit_test(ports_are_absent_where_there_are_none),
		cmocka_unit_test(ipv6_extension_headers_are_walked),
		cmocka_unit_test(torn_packets_never_read_past_their_end),
		cmocka_unit_test(whole_messages_become_denials),
		cmocka_unit_test(foreign_messages_are_skipped),
		cmocka_unit_test(counters_are_read_from_their_message),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
