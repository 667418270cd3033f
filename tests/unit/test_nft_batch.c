/* Batches and their acknowledgements, without a kernel. */
#include "nft/batch.h"
#include "nft/fw.h"
#include "nft/ruleset.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>

static struct fw_elem elem(const char *addr, enum policy_proto proto, uint16_t port)
{
	struct fw_elem e = { .proto = proto, .port = port, .timeout_s = 60 };

	ak_addr_parse(addr, &e.addr);
	return e;
}

/* Three messages about sb7_tcp4 with numbers 101 to 103. */
static void build(struct fw_batch *b)
{
	struct fw_elem e = elem("11.0.0.1", POLICY_TCP, 443);

	fw_batch_begin(b, 100);
	fw_build_learn(b, 7, &e, 1, false);
	assert_int_equal(b->n, 3);
}

static size_t ack(void *buf, uint32_t seq, int code)
{
	struct nlmsghdr *nlh = mnl_nlmsg_put_header(buf);
	struct nlmsgerr *e = mnl_nlmsg_put_extra_header(nlh, sizeof(*e));

	nlh->nlmsg_type = NLMSG_ERROR;
	nlh->nlmsg_seq = seq;
	e->error = code;
	return nlh->nlmsg_len;
}

static int judge(struct fw_batch *b, const void *data, size_t len, struct ak_err *err)
{
	struct fw_acks acks = { 0 };

	fw_acks_parse(b, data, len, &acks);
	return fw_acks_result(b, &acks, err);
}

static void success_is_the_last_message_acknowledged(void **state)
{
	char buf[512] __attribute__((aligned(8)));
	struct fw_batch b = { 0 };
	struct ak_err err = { "" };

	build(&b);
	assert_int_equal(judge(&b, buf, ack(buf, 103, 0), &err), 0);
	assert_int_equal(judge(&b, buf, ack(buf, 102, 0), &err), -EIO);
	assert_int_equal(judge(&b, buf, ack(buf, 203, 0), &err), -EIO);
	assert_int_equal(judge(&b, buf, 0, &err), -EIO);
	fw_batch_done(&b);
}

static void failure_is_told_with_the_objects_name(void **state)
{
	char buf[512] __attribute__((aligned(8)));
	struct fw_batch b = { 0 };
	struct ak_err err = { "" };
	size_t len;

	build(&b);
	len = ack(buf, 102, -ENOENT);
	len += ack(buf + len, 103, 0);
	assert_int_equal(judge(&b, buf, len, &err), -ENOENT);
	assert_string_equal(err.text, "set sb7_tcp4: No such file or directory");
	assert_int_equal(judge(&b, buf, ack(buf, 100, -EBUSY), &err), -EBUSY);
	assert_string_equal(err.text, "nftables commit: Device or resource busy");
	fw_batch_done(&b);
}

static void torn_and_strange_answers_are_no_success(void **state)
{
	char buf[512] __attribute__((aligned(8)));
	struct fw_batch b = { 0 };
	struct ak_err err = { "" };
	size_t len;

	build(&b);
	len = ack(buf, 103, 0);
	for (size_t cut = 0; cut < len; cut++)
		assert_int_equal(judge(&b, buf, cut, &err), -EIO);
	assert_int_equal(judge(&b, buf, ack(buf, 103, 17), &err), -EIO);
	assert_int_equal(judge(&b, buf, ack(buf, 103, INT32_MIN), &err), -EIO);
	fw_batch_done(&b);
}

/* Attributes of the I-th message; its type in *RET_TYPE. */
static const struct nlmsghdr *message(const struct fw_batch *b, size_t i)
{
	const struct nlmsghdr *nlh = (const void *)b->buf;
	int left = (int)b->len;

	for (i++; i > 0; i--)
		nlh = mnl_nlmsg_next(nlh, &left);
	assert_true(mnl_nlmsg_ok(nlh, left));
	return nlh;
}

static void refresh_is_add_delete_add(void **state)
{
	static const uint16_t want[] = { NFT_MSG_NEWSETELEM, NFT_MSG_DELSETELEM, NFT_MSG_NEWSETELEM };
	struct fw_batch b = { 0 };

	build(&b);
	for (size_t i = 0; i < 3; i++) {
		assert_int_equal(message(&b, i)->nlmsg_type, (NFNL_SUBSYS_NFTABLES << 8) | want[i]);
		assert_int_equal(message(&b, i)->nlmsg_seq, 101 + i);
	}
	fw_batch_done(&b);
}

static void elements_go_to_their_own_sets(void **state)
{
	static const char *const want[] = { "sb7_tcp4", "sb7_udp4", "sb7_tcp6", "sb7_udp6" };
	struct fw_elem e[] = { elem("2a00::1", POLICY_UDP, 443), elem("11.0.0.1", POLICY_TCP, 443),
		elem("11.0.0.1", POLICY_UDP, 443), elem("2a00::1", POLICY_TCP, 80), elem("11.0.0.1", POLICY_TCP, 443) };
	struct fw_batch b = { 0 };

	fw_batch_begin(&b, 1);
	fw_build_learn(&b, 7, e, 5, false);
	assert_int_equal(b.n, 12);
	for (size_t i = 0; i < b.n; i++)
		assert_string_equal(b.entries[i].object, want[i / 3]);
	assert_int_equal(message(&b, 0)->nlmsg_len, message(&b, 3)->nlmsg_len); /* the repeated one counted once */
	fw_batch_done(&b);
}

static void many_elements_are_split_over_messages(void **state)
{
	static struct fw_elem e[3000];
	struct fw_batch b = { 0 };

	for (uint32_t i = 0; i < 3000; i++)
		e[i] = (struct fw_elem){ .addr = ak_addr_v4(0x0b000000 + i), .port = 443, .timeout_s = 1 };
	fw_batch_begin(&b, 1);
	fw_build_learn(&b, 7, e, 3000, false);
	assert_int_equal(b.failed, 0);
	assert_true(b.n > 3);
	for (size_t i = 0; i < b.n; i++)
		assert_true(message(&b, i)->nlmsg_len <= FW_BATCH_ROOM);
	fw_batch_done(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(success_is_the_last_message_acknowledged),
		cmocka_unit_test(failure_is_told_with_the_objects_name),
		cmocka_unit_test(torn_and_strange_answers_are_no_success),
		cmocka_unit_test(refresh_is_add_delete_add),
		cmocka_unit_test(elements_go_to_their_own_sets),
		cmocka_unit_test(many_elements_are_split_over_messages),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
