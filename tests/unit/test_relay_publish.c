/* Published ports in the relay, and a sandbox's init that answers wrongly, late or not at all: see relay_rig.h for the namespaces. */
#include "relay_rig.h"

#define DENY_ALL "{\"version\":1,\"name\":\"t\",\"default\":\"deny\",\"allow\":[]}"
#define LIMITED "{\"version\":1,\"name\":\"t\",\"default\":\"deny\",\"allow\":[],\"limits\":{\"egress_bytes\":\"3\"}}"
#define INSIDE 5001

static struct ak_publish at;
static int channel; /* init's end */

/* A relay with one published port. */
static void publish_open(const char *policy, const struct relay_conf *conf)
{
	int ours, listener;
	struct ak_err err;

	rig_open(policy, 15001, conf);
	assert_int_equal(ak_publish_parse("0:5001", &at, &err), 0);
	listener = ak_publish_listen(&at, &err);
	assert_true(listener >= 0);
	assert_int_equal(ak_channel_open(&ours, &channel, &err), 0);
	assert_int_equal(relay_publish(rig.relay, &rig.sb, &at, listener, ours), 0);
}

static int publish_close(void **state)
{
	channel = ak_close(channel);
	return rig_close(state);
}

/* A client on the host. */
static int client(void)
{
	int fd = rig_socket(rig.ns_host, SOCK_STREAM, "127.0.0.1", 0);
	struct sockaddr_storage ss;
	socklen_t len = ak_addr_to_sockaddr(&at.addr, at.host_port, &ss);

	if (connect(fd, (struct sockaddr *)&ss, len) < 0)
		assert_int_equal(errno, EINPROGRESS);
	return fd;
}

static bool try_ask(struct ak_socket_ask *ret)
{
	return ak_recv_fds(channel, ret, sizeof(*ret), NULL, NULL) == sizeof(*ret);
}

static struct ak_socket_ask next_ask(void)
{
	struct ak_socket_ask ask = { 0 };

	rig_wait(try_ask(&ask));
	return ask;
}

/* Answer ASK with FD, or with an error if it is negative; closes FD. */
static void answer(const struct ak_socket_ask *ask, int fd)
{
	const struct ak_socket_answer msg = { .id = ask->id, .error = fd < 0 ? EMFILE : 0 };

	assert_int_equal(ak_send_fds(channel, &msg, sizeof(msg), &fd, fd < 0 ? 0 : 1), 0);
	ak_close(fd);
}

static int fresh(int family, int type)
{
	int fd;

	rig_enter(rig.ns_inside);
	fd = socket(family, type | SOCK_CLOEXEC, 0);
	rig_enter(rig.ns_host);
	assert_true(fd >= 0);
	return fd;
}

/* Be an honest init. */
static void serve(int family)
{
	struct ak_socket_ask ask = next_ask();

	assert_int_equal(ask.family, family);
	answer(&ask, fresh(family, SOCK_STREAM));
}

static const struct rig_event *only_event(void)
{
	rig_wait_events(1);
	assert_int_equal(rig.sb.n_flows, 0);
	assert_int_equal(rig.sb.n_published, 0);
	return &rig.events[0];
}

static void bytes_go_both_ways_and_half_close_is_kept(void **state)
{
	int far, fd, peer;

	publish_open(DENY_ALL, NULL);
	far = rig_listen(rig.ns_inside, "127.0.0.1", INSIDE);
	fd = client();
	serve(AF_INET);
	peer = rig_accept(far);
	rig_send(fd, "question", 8);
	shutdown(fd, SHUT_WR);
	rig_expect(peer, "question");
	assert_int_equal(rig_end_of(peer), 0);
	rig_send(peer, "answer", 6);
	close(peer);
	rig_expect(fd, "answer");
	assert_int_equal(rig_end_of(fd), 0);
	assert_int_equal(only_event()->end, RELAY_END_CLOSED);
	assert_int_equal(rig.events[0].bytes_in, 8);
	assert_int_equal(rig.events[0].bytes_out, 6);
	assert_true(rig.events[0].allow);
	close(fd);
	close(far);
}

static void ipv6_is_tried_when_nothing_listens_on_ipv4(void **state)
{
	int far, fd, peer;

	publish_open(DENY_ALL, NULL);
	far = rig_listen(rig.ns_inside, "::1", INSIDE);
	fd = client();
	serve(AF_INET);
	serve(AF_INET6);
	peer = rig_accept(far);
	rig_send(peer, "six", 3);
	rig_expect(fd, "six");
	close(peer);
	close(fd);
	close(far);
}

static void nothing_that_listens_is_a_reset(void **state)
{
	int fd;

	publish_open(DENY_ALL, NULL);
	fd = client();
	serve(AF_INET);
	serve(AF_INET6);
	assert_int_equal(rig_end_of(fd), ECONNRESET);
	assert_int_equal(only_event()->end, RELAY_END_UNREACHABLE);
	close(fd);
}

static void what_is_no_socket_of_the_kind_is_not_used(void **state)
{
	int far, fd, others[4];

	publish_open(DENY_ALL, NULL);
	far = rig_listen(rig.ns_inside, "127.0.0.1", INSIDE);
	others[0] = open("/dev/null", O_RDWR | O_CLOEXEC);
	others[1] = fresh(AF_INET, SOCK_DGRAM);
	others[2] = fresh(AF_UNIX, SOCK_STREAM);
	others[3] = fresh(AF_INET6, SOCK_STREAM); /* for the question of an IPv4 one */
	for (int i = 0; i < 4; i++) {
		struct ak_socket_ask ask;

		rig.n_events = 0;
		fd = client();
		ask = next_ask();
		answer(&ask, others[i]);
		ask = next_ask();
		answer(&ask, -1);
		assert_int_equal(rig_end_of(fd), ECONNRESET);
		assert_int_equal(only_event()->end, RELAY_END_UNREACHABLE);
		close(fd);
	}
	assert_true(rig_nobody_came(far));
	close(far);
}

static void a_channel_that_breaks_the_protocol_ends_with_its_connections(void **state)
{
	static const char garbage[64] = "garbage";
	int fd[2], late;

	publish_open(DENY_ALL, NULL);
	fd[0] = client();
	fd[1] = client();
	next_ask();
	next_ask();
	assert_int_equal(ak_send_fds(channel, garbage, 3, NULL, 0), 0);
	assert_int_equal(rig_end_of(fd[0]), ECONNRESET);
	assert_int_equal(rig_end_of(fd[1]), ECONNRESET);
	late = client();
	assert_int_equal(rig_end_of(late), ECONNRESET);
	rig_wait_events(3);
	for (int i = 0; i < 3; i++)
		assert_int_equal(rig.events[i].end, RELAY_END_UNREACHABLE);
	close(fd[0]);
	close(fd[1]);
	close(late);
}

static void a_socket_that_init_makes_blocking_does_not_block_the_relay(void **state)
{
	static char much[1 << 20];
	struct ak_socket_ask ask;
	int far, fd, peer, sock, kept;
	ssize_t n;

	publish_open(DENY_ALL, NULL);
	far = rig_listen(rig.ns_inside, "127.0.0.1", INSIDE);
	fd = client();
	ask = next_ask();
	sock = fresh(AF_INET, SOCK_STREAM);
	kept = dup(sock);
	answer(&ask, sock);
	peer = rig_accept(far);
	rig_send(fd, "a", 1);
	rig_expect(peer, "a");
	assert_int_equal(ak_set_nonblock(kept, false), 0);
	rig_send(peer, "b", 1); /* the relay reads once more than there is */
	rig_expect(fd, "b");
	do { /* and writes more than there is room */
		n = send(fd, much, sizeof(much), MSG_NOSIGNAL);
		event_base_loop(rig.base, EVLOOP_ONCE);
	} while (n > 0);
	assert_int_equal(errno, EAGAIN);
	close(kept);
	close(peer);
	close(fd);
	close(far);
}

/* As from a virtual machine, whose init has no socket of the guest's. */
static void a_stream_that_is_connected_already_is_used_as_it_is(void **state)
{
	struct ak_socket_ask ask;
	int fd, pair[2];

	publish_open(DENY_ALL, NULL);
	fd = client();
	ask = next_ask();
	assert_int_equal(ask.port, INSIDE);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair), 0);
	answer(&ask, pair[0]);
	rig_send(fd, "question", 8);
	shutdown(fd, SHUT_WR);
	rig_expect(pair[1], "question");
	assert_int_equal(rig_end_of(pair[1]), 0);
	rig_send(pair[1], "answer", 6);
	close(pair[1]);
	rig_expect(fd, "answer");
	assert_int_equal(rig_end_of(fd), 0);
	assert_int_equal(only_event()->end, RELAY_END_CLOSED);
	close(fd);
}

static void an_answer_that_never_comes_times_out_and_a_late_one_is_dropped(void **state)
{
	struct ak_socket_ask ask;
	int fd, sock, peer, far;

	publish_open(DENY_ALL, &(struct relay_conf){ .connect_timeout_ms = 50 });
	far = rig_listen(rig.ns_inside, "127.0.0.1", INSIDE);
	fd = client();
	ask = next_ask();
	assert_int_equal(rig_end_of(fd), ECONNRESET);
	assert_int_equal(only_event()->end, RELAY_END_TIMEOUT);
	close(fd);
	sock = fresh(AF_INET, SOCK_STREAM);
	answer(&ask, sock);
	answer(&(struct ak_socket_ask){ .id = 4711 }, fresh(AF_INET, SOCK_STREAM));
	fd = client();
	serve(AF_INET);
	peer = rig_accept(far);
	assert_true(rig_nobody_came(far));
	close(peer);
	close(fd);
	close(far);
}

static void a_policy_change_leaves_it_alone_and_removing_the_port_cuts_it(void **state)
{
	int far, fd, peer;

	publish_open(DENY_ALL, NULL);
	far = rig_listen(rig.ns_inside, "127.0.0.1", INSIDE);
	fd = client();
	serve(AF_INET);
	peer = rig_accept(far);
	rig_set_policy(DENY_ALL);
	rig_send(fd, "still", 5);
	rig_expect(peer, "still");
	assert_int_equal(rig.n_events, 0);
	assert_int_equal(relay_unpublish(&rig.sb, &at), 0);
	assert_int_equal(relay_unpublish(&rig.sb, &at), -ENOENT);
	assert_int_equal(rig_end_of(fd), ECONNRESET);
	assert_int_equal(only_event()->end, RELAY_END_REVOKED);
	close(fd);
	fd = client();
	assert_int_equal(rig_end_of(fd), ECONNREFUSED);
	close(fd);
	close(peer);
	close(far);
}

static void what_leaves_counts_towards_the_egress_limit(void **state)
{
	int far, fd, peer;

	publish_open(LIMITED, NULL);
	far = rig_listen(rig.ns_inside, "127.0.0.1", INSIDE);
	fd = client();
	serve(AF_INET);
	peer = rig_accept(far);
	rig_send(fd, "as much as it likes", 19);
	rig_expect(peer, "as much as it likes");
	rig_send(peer, "four", 4);
	assert_int_equal(only_event()->end, RELAY_END_LIMIT);
	assert_int_equal(rig.events[0].bytes_out, 3);
	close(peer);
	close(fd);
	close(far);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(bytes_go_both_ways_and_half_close_is_kept, publish_close),
		cmocka_unit_test_teardown(ipv6_is_tried_when_nothing_listens_on_ipv4, publish_close),
		cmocka_unit_test_teardown(nothing_that_listens_is_a_reset, publish_close),
		cmocka_unit_test_teardown(what_is_no_socket_of_the_kind_is_not_used, publish_close),
		cmocka_unit_test_teardown(a_channel_that_breaks_the_protocol_ends_with_its_connections, publish_close),
		cmocka_unit_test_teardown(a_socket_that_init_makes_blocking_does_not_block_the_relay, publish_close),
		cmocka_unit_test_teardown(a_stream_that_is_connected_already_is_used_as_it_is, publish_close),
		cmocka_unit_test_teardown(an_answer_that_never_comes_times_out_and_a_late_one_is_dropped, publish_close),
		cmocka_unit_test_teardown(a_policy_change_leaves_it_alone_and_removing_the_port_cuts_it, publish_close),
		cmocka_unit_test_teardown(what_leaves_counts_towards_the_egress_limit, publish_close),
	};

	return cmocka_run_group_tests(tests, rig_setup, rig_teardown);
}
