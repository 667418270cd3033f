/* Rules that deny names where everything else is allowed, and addresses that become the host's: see relay_rig.h for the namespaces. */
#include "hello_build.h"
#include "relay_rig.h"

#define PLAIN "{\"version\":1,\"name\":\"t\",\"default\":\"allow\"}"
#define DENY "{\"version\":1,\"name\":\"t\",\"default\":\"allow\",\"deny\":[\"evil.test\"]}"
#define DENY_22 "{\"version\":1,\"name\":\"t\",\"default\":\"allow\",\"deny\":[\"evil.test:22\"]}"
#define DENY_OPEN                                                                                                                \
	"{\"version\":1,\"name\":\"t\",\"default\":\"deny\",\"allow\":[],\"deny\":[\"evil.test\"],\"allow_cidr\":[\"11.7.0.0/16\"]}"
#define DENY_BUT_QUIC                                                                                                            \
	"{\"version\":1,\"name\":\"t\",\"default\":\"allow\",\"deny\":[\"evil.test\"],\"allow\":[\"ok.test:443/udp\"]}"

#define FOLDED "GET / HTTP/1.1\r\nX: a\r\n b\r\nHost: evil.test\r\n\r\n"

static struct hello_buf hello;

static void denied_text(const char *dst, uint16_t port, const char *text, const char *detail)
{
	rig_denied(dst, port, text, strlen(text), detail);
}

static void unreadable_on_443_is_cut_while_a_name_is_denied(void **state)
{
	static const char *const policies[] = { DENY, DENY_OPEN };

	for (int i = 0; i < 2; i++) {
		rig_open(policies[i], 443, NULL);
		denied_text("11.7.0.1", 443, "not tls at all", "not TLS");
		denied_text("11.7.0.1", 443, "SSH-2.0-x\r\n", "not TLS");
		rig_denied("11.7.0.1", 443, "\x80\x2e\x01\x00\x02", 5, "SSLv2 hello");
		hello_build(&hello, &(struct hello_opts){ .sni = "evil.test", .second_sni = "ok.test" });
		rig_denied("11.7.0.1", 443, hello.data, hello.len, "several names in SNI");
		hello_build(&hello, &(struct hello_opts){ .sni = "evil.test\n" });
		rig_denied("11.7.0.1", 443, hello.data, hello.len, "malformed name");
		hello_build(&hello, &(struct hello_opts){ .sni = "evil.test", .key_share = 60000, .record_size = 16000 });
		rig_denied("11.7.0.1", 443, hello.data, hello.len, "name denied");
		rig_close(NULL);
	}
}

static void unreadable_on_80_is_cut_while_a_name_is_denied(void **state)
{
	rig_open(DENY, 80, NULL);
	denied_text("11.7.0.1", 80, FOLDED, "folded header line");
	denied_text("11.7.0.1", 80, "GET / HTTP/1.1\r\nHost : evil.test\r\n\r\n", "malformed header name");
	denied_text("11.7.0.1", 80, "GET / HTTP/1.1\r\nHost: evil.test..\r\n\r\n", "malformed name");
	denied_text("11.7.0.1", 80, "GET / HTTP/1.1\r\nHost: ok.test\r\nContent-Length: 9\r\n\r\n",
		"body of a request that should have none");
	hello_build(&hello, &(struct hello_opts){ .sni = "evil.test" });
	rig_denied("11.7.0.1", 80, hello.data, hello.len, "name denied");
}

static void readable_without_a_name_passes(void **state)
{
	static const char by_addr[] = "GET / HTTP/1.1\r\nHost: 11.7.0.1\r\n\r\n", bare[] = "GET / HTTP/1.0\r\n\r\n";
	struct rig_flow f;

	rig_open(DENY, 80, NULL);
	f = rig_flow_open("11.7.0.1", 80, by_addr, strlen(by_addr));
	rig_expect(f.peer, by_addr);
	rig_flow_end(&f);
	rig_flow_again(&f, "11.7.0.1", 80, bare, strlen(bare));
	rig_expect(f.peer, bare);
	rig_flow_close(&f);
	rig_wait_events(2);
}

static void unfinished_request_is_never_sent_on(void **state)
{
	static const char part[] = "GET / HTTP/1.1\r\nHost: evil.test\r\n";
	int far, fd;

	rig_open(DENY, 80, &(struct relay_conf){ .peek_timeout_ms = 400 });
	far = rig_listen(rig.ns_far, "11.7.0.1", 80);
	for (int half = 0; half < 2; half++) {
		fd = rig_connect("11.7.0.1", 80);
		rig_send(fd, part, strlen(part));
		if (half)
			shutdown(fd, SHUT_WR);
		assert_int_equal(rig_end_of(fd), ECONNRESET);
		close(fd);
		rig_wait_events((size_t)half + 1);
		assert_string_equal(rig.events[half].detail, half ? "ended before it gave a name" : "gave no name in time");
		assert_int_equal(rig.events[half].end, RELAY_END_DENIED);
		assert_false(rig.events[half].allow);
	}
	assert_true(rig_nobody_came(far));
	close(far);
}

static void odd_bytes_pass_where_no_rule_could_mean_them(void **state)
{
	struct rig_flow f;

	rig_open(DENY_22, 80, NULL);
	f = rig_flow_open("11.7.0.1", 80, FOLDED, strlen(FOLDED));
	rig_expect(f.peer, FOLDED);
	rig_flow_close(&f);
	rig_wait_events(1);
}

static void rule_that_comes_later_cuts_what_passed_unread(void **state)
{
	static const char good[] = "GET / HTTP/1.1\r\nHost: ok.test\r\n\r\n";
	struct rig_flow odd, fine;

	rig_open(PLAIN, 80, NULL);
	odd = rig_flow_open("11.7.0.1", 80, FOLDED, strlen(FOLDED));
	rig_expect(odd.peer, FOLDED);
	fine = rig_flow_open("11.7.0.2", 80, good, strlen(good));
	rig_expect(fine.peer, good);
	rig_set_policy(DENY);
	assert_int_equal(rig_end_of(odd.peer), ECONNRESET);
	rig_wait_events(1);
	assert_int_equal(rig.events[0].end, RELAY_END_REVOKED);
	rig_send(fine.fd, good, strlen(good));
	rig_expect(fine.peer, good);
	rig_send(fine.fd, FOLDED, strlen(FOLDED));
	assert_int_equal(rig_end_of(fine.peer), ECONNRESET);
	rig_flow_close(&odd);
	rig_flow_close(&fine);
	rig_wait_events(2);
}

static void large_hellos_are_few_at_a_time(void **state)
{
	enum { FLOWS = 40 };
	int fds[FLOWS];

	rig_open(DENY, 443, NULL);
	hello_build(&hello, &(struct hello_opts){ .sni = "ok.test", .suites = 40000, .record_size = 16000 });
	for (int i = 0; i < FLOWS; i++) {
		fds[i] = rig_connect("11.7.0.1", 443);
		rig_send(fds[i], hello.data, 20000);
	}
	rig_wait_events(FLOWS - 32);
	for (int i = 0; i < FLOWS - 32; i++) {
		assert_int_equal(rig.events[i].end, RELAY_END_LIMIT);
		assert_string_equal(rig.events[i].detail, "too many large ClientHellos at once");
	}
	assert_int_equal(rig.sb.n_large, 32);
	for (int i = 0; i < FLOWS; i++)
		close(fds[i]);
	rig_wait_events(FLOWS);
	assert_int_equal(rig.sb.n_large, 0);
}

static int udp_to(const char *dst, uint16_t port)
{
	int fd = rig_socket(rig.ns_inside, SOCK_DGRAM, RIG_SRC, 0);
	struct ak_addr a = rig_addr(dst);
	struct sockaddr_storage ss;
	socklen_t len = ak_addr_to_sockaddr(&a, port, &ss);

	assert_int_equal(connect(fd, (struct sockaddr *)&ss, len), 0);
	return fd;
}

static void quic_is_refused_while_a_name_is_denied_but_for_a_rule_of_its_own(void **state)
{
	static const struct {
		const char *policy;
		bool passes;
	} cases[] = { { PLAIN, true }, { DENY, false }, { DENY_22, true }, { DENY_OPEN, false }, { DENY_BUT_QUIC, true } };

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		int fd;

		rig_open(cases[i].policy, 443, NULL);
		rig_learn("ok.test", "11.7.0.1");
		fd = udp_to("11.7.0.1", 443);
		rig_send(fd, "x", 1);
		rig_wait(rig.n_events || rig.sb.n_flows);
		assert_int_equal(rig.n_events == 0, cases[i].passes);
		if (cases[i].passes) {
			rig_set_policy(DENY);
			assert_int_equal(rig.n_events, 1);
			assert_int_equal(rig.events[0].end, RELAY_END_REVOKED);
		}
		close(fd);
		rig_close(NULL);
	}
}

static void flow_whose_destination_becomes_the_hosts_is_cut(void **state)
{
	int far = rig_socket(rig.ns_far, SOCK_DGRAM, "11.8.0.1", 5000), near, fd;
	char byte;

	rig_open(PLAIN, 5000, NULL);
	fd = udp_to("11.8.0.1", 5000);
	rig_send(fd, "x", 1);
	rig_wait(recv(far, &byte, 1, 0) == 1);
	assert_true(rig_sh(rig.ns_host, "ip addr add 11.8.0.1/32 dev lo"));
	near = rig_socket(rig.ns_host, SOCK_DGRAM, "11.8.0.1", 5000);
	rig_wait_events(1);
	assert_int_equal(rig.events[0].end, RELAY_END_REVOKED);
	assert_string_equal(rig.events[0].detail, "became an address of the host itself");
	assert_string_equal(rig.events[0].rule, "host");
	rig_send(fd, "x", 1);
	rig_wait_events(2);
	assert_int_equal(rig.events[1].end, RELAY_END_DENIED);
	assert_int_equal(recv(near, &byte, 1, 0), -1);
	assert_true(rig_sh(rig.ns_host, "ip addr del 11.8.0.1/32 dev lo"));
	close(near);
	close(far);
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		RIG_TEST(unreadable_on_443_is_cut_while_a_name_is_denied),
		RIG_TEST(unreadable_on_80_is_cut_while_a_name_is_denied),
		RIG_TEST(readable_without_a_name_passes),
		RIG_TEST(unfinished_request_is_never_sent_on),
		RIG_TEST(odd_bytes_pass_where_no_rule_could_mean_them),
		RIG_TEST(rule_that_comes_later_cuts_what_passed_unread),
		RIG_TEST(large_hellos_are_few_at_a_time),
		RIG_TEST(quic_is_refused_while_a_name_is_denied_but_for_a_rule_of_its_own),
		RIG_TEST(flow_whose_destination_becomes_the_hosts_is_cut),
	};

	return cmocka_run_group_tests(tests, rig_setup, rig_teardown);
}
