/* Messages between the gateway and its supervisor: what one side may believe of the other. */
#include "gateway/host/gw.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#define HASH "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static int s[2];

static int setup(void **state)
{
	(void)state;
	return socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, s);
}

static int teardown(void **state)
{
	(void)state;
	close(s[0]);
	close(s[1]);
	return 0;
}

static int reply(const struct gw_msg *msg, struct gw_msg *ret)
{
	assert_int_equal(ak_send_fds(s[0], msg, sizeof(*msg), NULL, 0), 0);
	return gw_reply_recv(s[1], ret);
}

static void a_text_ends_whatever_the_gateway_sent(void **state)
{
	struct gw_msg msg = { .type = GW_MSG_REFUSED, .id = 7 }, got;

	(void)state;
	memset(msg.text, 'x', sizeof(msg.text));
	assert_int_equal(reply(&msg, &got), 1);
	assert_int_equal(got.id, 7);
	assert_int_equal(strlen(got.text), sizeof(got.text) - 1);
}

static void a_hash_is_one_or_nothing(void **state)
{
	static const char *const bad[] = { "\",\"exit_code\":0,\"x\":\"", HASH "0", "0123",
		"G123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef" };
	struct gw_msg msg = { .type = GW_MSG_STATS, .stats = { .allowed = 3, .hash = HASH } }, got;

	(void)state;
	assert_int_equal(reply(&msg, &got), 1);
	assert_string_equal(got.stats.hash, HASH);
	assert_int_equal(got.stats.allowed, 3);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		memset(msg.stats.hash, 0, sizeof(msg.stats.hash));
		memcpy(msg.stats.hash, bad[i], strnlen(bad[i], sizeof(msg.stats.hash)));
		assert_int_equal(reply(&msg, &got), -EPROTO);
	}
}

static void counts_that_no_state_file_holds_are_refused(void **state)
{
	struct gw_msg msg = { .type = GW_MSG_STATS, .stats = { .denied = GW_COUNT_MAX, .records = UINT64_MAX } }, got;

	(void)state;
	assert_int_equal(reply(&msg, &got), 1);
	msg.stats.denied++;
	assert_int_equal(reply(&msg, &got), -EPROTO);
}

static void an_answer_carries_only_what_belongs_to_it(void **state)
{
	struct gw_msg msg = { .type = GW_MSG_DONE, .stats = { .allowed = 1, .hash = "no hash" } }, got;

	(void)state;
	assert_int_equal(reply(&msg, &got), 1);
	assert_int_equal(got.stats.allowed, 0);
	assert_int_equal(got.stats.hash[0], 0);
}

static void each_side_hears_only_what_the_other_may_say(void **state)
{
	struct gw_msg msg = { .publish = { .addr.family = AF_INET, .host_port = 1, .port = 1 } }, got;
	int fds[GW_FDS_MAX], answers = 0, requests = 0;

	(void)state;
	for (msg.type = 0; msg.type <= GW_MSG_NUM; msg.type++) {
		int rc = reply(&msg, &got);

		answers += rc == 1;
		assert_true(rc == 1 || rc == -EPROTO);
		assert_int_equal(ak_send_fds(s[0], &msg, sizeof(msg), NULL, 0), 0);
		assert_int_equal(gw_request_recv(s[1], &got, fds), rc == 1 || msg.type == GW_MSG_NUM ? -EPROTO : 1);
		requests += rc != 1 && msg.type != GW_MSG_NUM;
	}
	assert_int_equal(answers, 8);
	assert_int_equal(requests, 11);
}

static void a_published_port_is_whole(void **state)
{
	const struct ak_publish bad[] = { { .addr.family = AF_UNIX, .host_port = 1, .port = 1 },
		{ .addr.family = AF_INET, .port = 1 }, { .addr.family = AF_INET6, .host_port = 1 } };
	struct gw_msg msg = { .type = GW_MSG_PUBLISH }, got;
	int fds[GW_FDS_MAX];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		msg.publish = bad[i];
		assert_int_equal(ak_send_fds(s[0], &msg, sizeof(msg), NULL, 0), 0);
		assert_int_equal(gw_request_recv(s[1], &got, fds), -EPROTO);
	}
}

static void descriptors_are_the_requests_or_closed(void **state)
{
	struct gw_msg msg = { .type = GW_MSG_LOG_FD }, got;
	int fds[GW_FDS_MAX], null = open("/dev/null", O_RDONLY | O_CLOEXEC), next = dup(null);

	(void)state;
	close(next);
	assert_int_equal(ak_send_fds(s[0], &msg, sizeof(msg), &null, 1), 0);
	assert_int_equal(gw_request_recv(s[1], &got, fds), 1);
	assert_true(fds[0] >= 0);
	assert_int_equal(fds[1], -1);
	close(fds[0]);
	assert_int_equal(ak_send_fds(s[0], &msg, sizeof(msg) - 1, (int[]){ null, null }, 2), 0);
	assert_int_equal(gw_request_recv(s[1], &got, fds), -EPROTO);
	assert_int_equal(fds[0], -1);
	assert_int_equal(ak_send_fds(s[0], &(struct gw_msg){ .type = GW_MSG_DONE }, sizeof(msg), &null, 1), 0);
	assert_int_equal(gw_reply_recv(s[1], &got), 1);
	assert_int_equal(gw_reply_recv(s[1], &got), -EAGAIN);
	fds[0] = dup(null);
	assert_int_equal(fds[0], next); /* nothing was left open */
	close(fds[0]);
	close(null);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_text_ends_whatever_the_gateway_sent, setup, teardown),
		cmocka_unit_test_setup_teardown(a_hash_is_one_or_nothing, setup, teardown),
		cmocka_unit_test_setup_teardown(counts_that_no_state_file_holds_are_refused, setup, teardown),
		cmocka_unit_test_setup_teardown(an_answer_carries_only_what_belongs_to_it, setup, teardown),
		cmocka_unit_test_setup_teardown(each_side_hears_only_what_the_other_may_say, setup, teardown),
		cmocka_unit_test_setup_teardown(a_published_port_is_whole, setup, teardown),
		cmocka_unit_test_setup_teardown(descriptors_are_the_requests_or_closed, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
