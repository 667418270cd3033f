/* UDP through a real relay: see relay_rig.h for the namespaces. */
#include "relay_rig.h"

#define PORT 5000
#define ALLOW_OK "{\"version\":1,\"name\":\"t\",\"default\":\"deny\",\"allow\":[\"ok.test:5000/udp\"]}"
#define ALLOW_NONE "{\"version\":1,\"name\":\"t\",\"default\":\"deny\",\"allow\":[]}"
#define ALLOW_ALL "{\"version\":1,\"name\":\"t\",\"default\":\"allow\",\"deny\":[\"evil.test:5000/udp\"]}"

static uint8_t big[65536], got[65536];

static int client(const char *src, const char *dst)
{
	int fd = rig_socket(rig.ns_inside, SOCK_DGRAM, src, 0);
	struct ak_addr a = rig_addr(dst);
	struct sockaddr_storage ss;
	socklen_t len = ak_addr_to_sockaddr(&a, PORT, &ss);

	/* Connected: a reply from any other address would not be delivered, and ICMP errors are. */
	assert_int_equal(connect(fd, (struct sockaddr *)&ss, len), 0);
	return fd;
}

/* The next datagram at FD and who sent it. */
static size_t expect_datagram(int fd, struct sockaddr_storage *from)
{
	socklen_t len = sizeof(*from);
	ssize_t n = -1;

	rig_wait((n = recvfrom(fd, got, sizeof(got), 0, (struct sockaddr *)from, &len)) >= 0 || errno != EAGAIN);
	assert_true(n >= 0);
	return (size_t)n;
}

static int expect_error(int fd)
{
	ssize_t n = -1;

	rig_wait((n = recv(fd, got, sizeof(got), 0)) >= 0 || errno != EAGAIN);
	assert_int_equal(n, -1);
	return errno;
}

static bool silent(int fd)
{
	return recv(fd, got, sizeof(got), 0) < 0 && errno == EAGAIN;
}

static void echo(const char *src, const char *dst, size_t len)
{
	int far = rig_socket(rig.ns_far, SOCK_DGRAM, dst, PORT), fd = client(src, dst);
	struct sockaddr_storage from;

	for (size_t i = 0; i < len; i++)
		big[i] = (uint8_t)(i * 7 + (i >> 8));
	assert_int_equal(send(fd, big, len, 0), len);
	assert_int_equal(expect_datagram(far, &from), len);
	assert_memory_equal(got, big, len);
	assert_int_equal(sendto(far, big, len, 0, (struct sockaddr *)&from,
				 strchr(dst, ':') ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in)),
		len);
	assert_int_equal(expect_datagram(fd, &from), len);
	assert_memory_equal(got, big, len);
	close(fd);
	close(far);
}

static void datagrams_of_every_size_come_back_from_where_they_were_sent(void **state)
{
	static const size_t sizes[] = { 0, 1, 2, 1471, 1472, 1473, 2952, 2953, 9001, 65507 };

	rig_open(ALLOW_OK, PORT, NULL);
	rig_learn("ok.test", "11.1.2.3");
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++)
		echo(RIG_SRC, "11.1.2.3", sizes[i]);
	assert_int_equal(rig.sb.n_flows, ARRAY_SIZE(sizes));
	relay_sandbox_close(rig.relay, &rig.sb);
	assert_int_equal(rig.n_events, ARRAY_SIZE(sizes));
	assert_int_equal(rig.events[0].end, RELAY_END_STOPPED);
	assert_string_equal(rig.events[1].name, "ok.test");
}

static void ipv6_datagrams_come_back_too(void **state)
{
	static const size_t sizes[] = { 0, 1, 1452, 1453, 4000, 65507 };

	rig_open(ALLOW_OK, PORT, NULL);
	rig_learn("ok.test", "2a00::5");
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++)
		echo("fd6b::2", "2a00::5", sizes[i]);
}

static void refused_at_once_and_told_once(void **state)
{
	int far, fd;

	rig_open(ALLOW_OK, PORT, NULL);
	rig_learn("other.test", "11.1.2.4");
	far = rig_socket(rig.ns_far, SOCK_DGRAM, "0.0.0.0", PORT);
	fd = client(RIG_SRC, "11.1.2.4");
	for (int i = 0; i < 3; i++) {
		assert_int_equal(send(fd, "x", 1, 0), 1);
		assert_int_equal(expect_error(fd), EHOSTUNREACH); /* administratively prohibited */
	}
	assert_int_equal(rig.n_events, 1);
	assert_int_equal(rig.events[0].end, RELAY_END_DENIED);
	assert_int_equal(rig.events[0].again, 0);
	close(fd);
	fd = client(RIG_SRC, "11.1.2.5"); /* never learned */
	assert_int_equal(send(fd, "x", 1, 0), 1);
	expect_error(fd);
	assert_int_equal(rig.n_events, 2);
	assert_int_equal(rig.events[1].reason, POLICY_REASON_ADDRESS);
	close(fd);
	fd = client(RIG_SRC, "100.64.9.9"); /* blocked */
	assert_int_equal(send(fd, "x", 1, 0), 1);
	expect_error(fd);
	assert_int_equal(rig.n_events, 3);
	assert_true(silent(far));
	close(fd);
	close(far);
}

static void datagrams_after_a_refused_one_are_told_in_a_sum(void **state)
{
	int fd;

	rig_open(ALLOW_OK, PORT, NULL);
	rig_learn("other.test", "11.1.2.4");
	fd = client(RIG_SRC, "11.1.2.4");
	for (int i = 0; i < 50; i++) {
		assert_int_equal(send(fd, "x", 1, 0), 1);
		expect_error(fd);
	}
	assert_int_equal(rig.n_events, 1);
	rig_set_policy(ALLOW_OK); /* forgets what was refused */
	assert_int_equal(rig.n_events, 2);
	assert_int_equal(rig.events[1].end, RELAY_END_DENIED);
	assert_int_equal(rig.events[1].again, 49);
	assert_int_equal(rig.events[1].reason, rig.events[0].reason);
	assert_int_equal(rig.sb.n_flows, 0);
	close(fd);
}

static void refusal_over_ipv6_is_an_error_too(void **state)
{
	int fd;

	rig_open(ALLOW_OK, PORT, NULL);
	fd = client("fd6b::2", "2a00::6");
	assert_int_equal(send(fd, "x", 1, 0), 1);
	assert_int_equal(expect_error(fd), EACCES); /* administratively prohibited */
	close(fd);
}

static void native_passes_addresses_but_denied_names(void **state)
{
	int fd;

	rig_open(ALLOW_ALL, PORT, NULL);
	echo(RIG_SRC, "11.5.5.5", 10);
	rig_learn("evil.test", "11.5.5.6");
	fd = client(RIG_SRC, "11.5.5.6");
	assert_int_equal(send(fd, "x", 1, 0), 1);
	expect_error(fd);
	assert_int_equal(rig.events[0].reason, POLICY_REASON_RULE);
	close(fd);
}

static void host_addresses_and_strangers_get_nothing(void **state)
{
	int near, fd;

	rig_open(ALLOW_ALL, PORT, NULL);
	near = rig_socket(rig.ns_host, SOCK_DGRAM, "0.0.0.0", PORT);
	fd = client(RIG_SRC, "11.9.9.9");
	assert_int_equal(send(fd, "x", 1, 0), 1);
	expect_error(fd);
	assert_string_equal(rig.events[0].rule, "host");
	close(fd);
	fd = client("100.64.0.6", "11.5.5.5");
	assert_int_equal(send(fd, "x", 1, 0), 1);
	for (int i = 0; i < 5; i++)
		event_base_loop(rig.base, EVLOOP_ONCE);
	assert_int_equal(rig.n_events, 1);
	assert_int_equal(rig.sb.n_flows, 1); /* the remembered refusal */
	assert_true(silent(near));
	close(fd);
	close(near);
}

static void chosen_host_service_is_reached(void **state)
{
	struct sockaddr_storage from;
	int near, fd;

	rig_open("{\"version\":1,\"name\":\"t\",\"default\":\"deny\",\"allow\":[\"host.agentkernel.internal:5000/udp\"]}", PORT,
		NULL);
	near = rig_socket(rig.ns_host, SOCK_DGRAM, "127.0.0.1", PORT);
	fd = client(RIG_SRC, RIG_GW);
	assert_int_equal(send(fd, "ping", 4, 0), 4);
	assert_int_equal(expect_datagram(near, &from), 4);
	sendto(near, "pong", 4, 0, (struct sockaddr *)&from, sizeof(struct sockaddr_in));
	assert_int_equal(expect_datagram(fd, &from), 4);
	close(fd);
	close(near);
}

static void closed_far_port_is_told(void **state)
{
	int fd;

	rig_open(ALLOW_ALL, PORT, NULL);
	fd = client(RIG_SRC, "11.5.5.5");
	assert_int_equal(send(fd, "x", 1, 0), 1);
	assert_int_equal(expect_error(fd), ECONNREFUSED);
	rig_wait_events(1);
	assert_int_equal(rig.events[0].end, RELAY_END_UNREACHABLE);
	assert_int_equal(rig.events[0].bytes_out, 1);
	assert_int_equal(rig.sb.n_flows, 0);
	close(fd);
}

static void silence_ends_a_flow(void **state)
{
	rig_open(ALLOW_OK, PORT, &(struct relay_conf){ .udp_idle_ms = 80 });
	rig_learn("ok.test", "11.1.2.3");
	echo(RIG_SRC, "11.1.2.3", 100);
	rig_wait_events(1);
	assert_int_equal(rig.events[0].end, RELAY_END_CLOSED);
	assert_int_equal(rig.events[0].bytes_out, 100);
	assert_int_equal(rig.events[0].bytes_in, 100);
}

static void policy_change_cuts_and_opens(void **state)
{
	rig_open(ALLOW_OK, PORT, NULL);
	rig_learn("ok.test", "11.1.2.3");
	echo(RIG_SRC, "11.1.2.3", 10);
	rig_set_policy(ALLOW_OK);
	assert_int_equal(rig.n_events, 0);
	rig_set_policy(ALLOW_NONE);
	assert_int_equal(rig.n_events, 1);
	assert_int_equal(rig.events[0].end, RELAY_END_REVOKED);
	assert_string_equal(rig.events[0].name, "ok.test");
	assert_int_equal(rig.sb.n_flows, 0);
	rig_set_policy(ALLOW_OK);
	echo(RIG_SRC, "11.1.2.3", 10);
}

static void limits_of_the_policy_hold(void **state)
{
	int fd, far;
	struct sockaddr_storage from;

	rig_open("{\"version\":1,\"name\":\"t\",\"default\":\"allow\",\"limits\":{\"connections\":1,\"egress_bytes\":\"10\"}}",
		PORT, NULL);
	far = rig_socket(rig.ns_far, SOCK_DGRAM, "0.0.0.0", PORT);
	fd = client(RIG_SRC, "11.5.5.5");
	assert_int_equal(send(fd, "12345678", 8, 0), 8);
	assert_int_equal(expect_datagram(far, &from), 8);
	close(client(RIG_SRC, "11.5.5.6"));
	assert_int_equal(send(fd, "12345678", 8, 0), 8);
	expect_error(fd);
	rig_wait_events(1);
	assert_int_equal(rig.events[0].end, RELAY_END_LIMIT);
	assert_int_equal(rig.events[0].bytes_out, 8);
	assert_true(silent(far));
	close(fd);
	close(far);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		RIG_TEST(datagrams_of_every_size_come_back_from_where_they_were_sent),
		RIG_TEST(ipv6_datagrams_come_back_too),
		RIG_TEST(refused_at_once_and_told_once),
		RIG_TEST(datagrams_after_a_refused_one_are_told_in_a_sum),
		RIG_TEST(refusal_over_ipv6_is_an_error_too),
		RIG_TEST(native_passes_addresses_but_denied_names),
		RIG_TEST(host_addresses_and_strangers_get_nothing),
		RIG_TEST(chosen_host_service_is_reached),
		RIG_TEST(closed_far_port_is_told),
		RIG_TEST(silence_ends_a_flow),
		RIG_TEST(policy_change_cuts_and_opens),
		RIG_TEST(limits_of_the_policy_hold),
	};

	return cmocka_run_group_tests(tests, rig_setup, rig_teardown);
}
