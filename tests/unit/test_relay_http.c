/* HTTP on port 80 through a real relay: see relay_rig.h for the namespaces. */
#include "relay_rig.h"

#define ALLOW_OK "{\"version\":1,\"name\":\"t\",\"default\":\"deny\",\"allow\":[\"ok.test\"]}"

#define ALLOW_TWO "{\"version\":1,\"name\":\"t\",\"default\":\"deny\",\"allow\":[\"ok.test\",\"two.test\"]}"

#define REQ(host) "GET / HTTP/1.1\r\nHost: " host "\r\n\r\n"

/* ok.test at 11.1.2.3 is asked for something. */
static struct rig_flow open_http(const char *first, size_t len)
{
	rig_open(ALLOW_OK, 80, NULL);
	rig_learn("ok.test", "11.1.2.3");
	return rig_flow_open("11.1.2.3", 80, first, len);
}

static void each_request_is_judged(void **state)
{
	static const char post[] = "POST / HTTP/1.1\r\nHost: ok.test\r\nContent-Length: 3\r\n\r\nabc" REQ("ok.test:80");
	struct rig_flow f = open_http(REQ("ok.test"), strlen(REQ("ok.test")));

	rig_learn("evil.test", "11.1.2.3");
	rig_expect(f.peer, REQ("ok.test"));
	rig_send(f.peer, "HTTP/1.1 200 OK\r\n\r\n", 19);
	rig_expect(f.fd, "HTTP/1.1 200 OK\r\n\r\n");
	rig_send(f.fd, post, strlen(post));
	rig_expect(f.peer, post);
	rig_send(f.fd, REQ("evil.test"), strlen(REQ("evil.test")));
	assert_int_equal(rig_end_of(f.fd), ECONNRESET);
	assert_int_equal(rig_end_of(f.peer), ECONNRESET);
	rig_wait_events(1);
	assert_int_equal(rig.events[0].end, RELAY_END_DENIED);
	assert_string_equal(rig.events[0].sni, "evil.test");
	assert_string_equal(rig.events[0].seen, "http");
	assert_int_equal(rig.events[0].bytes_out, strlen(REQ("ok.test")) + strlen(post));
	rig_flow_close(&f);
}

static void wrong_or_doubtful_requests_are_cut(void **state)
{
	static const struct {
		const char *text, *detail;
	} bad[] = {
		{ REQ("evil.test"), "Host not allowed here" },
		{ REQ("11.1.2.3"), "an address in place of a name" },
		{ "GET / HTTP/1.0\r\n\r\n", "HTTP without a Host header" },
		{ "CONNECT ok.test:443 HTTP/1.1\r\nHost: ok.test\r\n\r\n", "CONNECT" },
		{ "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "HTTP/2 without TLS" },
		{ "GET http://evil.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n", "Host not allowed here" },
		{ "\x16\x03\x01\x02\x03", "not HTTP" },
		{ "POST / HTTP/1.1\r\nHost: ok.test\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
			"ambiguous body length" },
		{ "GET / HTTP/1.1\r\nHost: ok.test\r\nContent-Length: 39\r\n\r\n" REQ("evil.test"),
			"body of a request that should have none" },
	};

	rig_open(ALLOW_OK, 80, NULL);
	rig_learn("ok.test", "11.1.2.3");
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		rig_denied("11.1.2.3", 80, bad[i].text, strlen(bad[i].text), bad[i].detail);
	rig_denied("11.1.2.4", 80, REQ("ok.test"), strlen(REQ("ok.test")), "Host is not a name of this address");
}

static void smuggled_request_never_arrives(void **state)
{
	static const char text[] =
		"POST / HTTP/1.1\r\nHost: ok.test\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" REQ("evil.test");
	static struct rig_in in;
	int far, fd, peer;

	rig_open(ALLOW_OK, 80, NULL);
	rig_learn("ok.test", "11.1.2.3");
	far = rig_listen(rig.ns_far, "11.1.2.3", 80);
	fd = rig_connect("11.1.2.3", 80);
	rig_send(fd, text, strlen(text));
	assert_int_equal(rig_end_of(fd), ECONNRESET);
	in = (struct rig_in){ 0 };
	if (rig_try_accept(far, &peer)) {
		rig_wait(rig_try_read(peer, &in, sizeof(in.buf)));
		assert_null(memmem(in.buf, in.len, "evil", 4));
		close(peer);
	}
	close(fd);
	close(far);
}

#define UPGRADE "GET /chat HTTP/1.1\r\nHost: ok.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"

static void websocket_is_opaque_once_the_far_side_agrees(void **state)
{
	struct rig_flow f = open_http(UPGRADE "\x81\x03", strlen(UPGRADE) + 2);

	rig_expect(f.peer, UPGRADE);
	rig_send(f.peer, "HTTP/1.1 10", 11);
	event_base_loop(rig.base, EVLOOP_NONBLOCK);
	rig_send(f.peer, "1 Switching\r\n\r\n", 15);
	rig_expect(f.fd, "HTTP/1.1 101 Switching\r\n\r\n");
	rig_expect(f.peer, "\x81\x03");
	rig_send(f.fd, "\x00\x01\xff", 3);
	rig_wait(rig.sb.bytes_out == strlen(UPGRADE) + 5);
	rig_flow_close(&f);
	rig_wait_events(1);
}

static void refused_upgrade_stays_http(void **state)
{
	struct rig_flow f = open_http(UPGRADE REQ("evil.test"), strlen(UPGRADE REQ("evil.test")));

	rig_expect(f.peer, UPGRADE);
	rig_send(f.peer, "HTTP/1.1 200 OK\r\n\r\n", 19);
	assert_int_equal(rig_end_of(f.peer), ECONNRESET);
	rig_wait_events(1);
	assert_string_equal(rig.events[0].sni, "evil.test");
	assert_int_equal(rig.events[0].bytes_out, strlen(UPGRADE));
	rig_flow_close(&f);
}

static void body_of_known_length_passes_and_the_next_request_is_seen(void **state)
{
	static char body[300000];
	static char got[400000];
	char head[128];
	size_t sent = 0, n_got = 0, total;
	struct rig_flow f;

	memset(body, 'b', sizeof(body));
	snprintf(head, sizeof(head), "PUT / HTTP/1.1\r\nHost: ok.test\r\nContent-Length: %zu\r\n\r\n", sizeof(body));
	f = open_http(head, strlen(head));
	total = strlen(head) + sizeof(body);
	rig_wait(({
		ssize_t n = send(f.fd, body + sent, sizeof(body) - sent, MSG_NOSIGNAL);
		ssize_t m = recv(f.peer, got + n_got, sizeof(got) - n_got, 0);
		sent += n > 0 ? (size_t)n : 0;
		n_got += m > 0 ? (size_t)m : 0;
		n_got == total;
	}));
	rig_send(f.fd, REQ("evil.test"), strlen(REQ("evil.test")));
	assert_int_equal(rig_end_of(f.peer), ECONNRESET);
	rig_wait_events(1);
	assert_int_equal(rig.events[0].bytes_out, total);
	rig_flow_close(&f);
}

static void names_let_in_before_are_judged_anew_after_a_change_of_policy(void **state)
{
	static const char both[] = REQ("ok.test") REQ("two.test") REQ("ok.test") REQ("two.test") REQ("ok.test");
	struct rig_flow f;

	rig_open(ALLOW_TWO, 80, NULL);
	rig_learn("ok.test", "11.1.2.3");
	rig_learn("two.test", "11.1.2.3");
	f = rig_flow_open("11.1.2.3", 80, both, strlen(both));
	rig_expect(f.peer, both);
	rig_set_policy(ALLOW_OK);
	rig_send(f.fd, REQ("ok.test"), strlen(REQ("ok.test")));
	rig_expect(f.peer, REQ("ok.test"));
	rig_send(f.fd, REQ("two.test"), strlen(REQ("two.test")));
	assert_int_equal(rig_end_of(f.peer), ECONNRESET);
	rig_wait_events(1);
	assert_int_equal(rig.events[0].end, RELAY_END_DENIED);
	assert_string_equal(rig.events[0].sni, "two.test");
	rig_flow_close(&f);
}

/* ---- how long others wait ---- */

#define CROWD 48
#define CHUNKED "POST / HTTP/1.1\r\nHost: ok.test\r\nTransfer-Encoding: chunked\r\n\r\n"

static uint64_t cpu_us(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * 1000000 + (uint64_t)ts.tv_nsec / 1000;
}

/* The longest turn of the loop while N flows have much to say, all of it made of TEXT. */
static uint64_t longest_turn(size_t n, const char *first, const char *text)
{
	struct rig_flow flows[CROWD] = { { .far = rig_listen(rig.ns_far, "11.1.2.3", 80) } };
	static char bulk[128 * 1024];
	size_t len = strlen(text), whole = sizeof(bulk) / len * len;
	uint64_t longest = 0;

	for (size_t at = 0; at < whole; at += len)
		memcpy(bulk + at, text, len);
	for (size_t i = 0; i < n; i++) {
		flows[i].far = flows[0].far;
		rig_flow_again(&flows[i], "11.1.2.3", 80, first, strlen(first));
	}
	for (size_t i = 0; i < n; i++)
		assert_true(send(flows[i].fd, bulk, whole, MSG_NOSIGNAL) > 0);
	for (int i = 0; i < 50; i++) {
		uint64_t began_us = cpu_us(), took_us;

		event_base_loop(rig.base, EVLOOP_ONCE | EVLOOP_NONBLOCK);
		took_us = cpu_us() - began_us;
		longest = took_us > longest ? took_us : longest;
	}
	for (size_t i = 0; i < n; i++)
		rig_flow_end(&flows[i]);
	close(flows[0].far);
	return longest;
}

static void a_turn_is_no_longer_for_a_crowd(void **state)
{
	static const char *const shapes[][2] = { { CHUNKED, "1\r\nX\r\n" }, { REQ("ok.test"), REQ("ok.test") REQ("two.test") } };

	for (size_t i = 0; i < ARRAY_SIZE(shapes); i++) {
		uint64_t few = UINT64_MAX, many = UINT64_MAX;

		for (int j = 0; j < 3; j++) {
			uint64_t us;

			rig_open(ALLOW_TWO, 80, NULL);
			rig_learn("ok.test", "11.1.2.3");
			rig_learn("two.test", "11.1.2.3");
			us = longest_turn(3, shapes[i][0], shapes[i][1]);
			few = us < few ? us : few;
			us = longest_turn(CROWD, shapes[i][0], shapes[i][1]);
			many = us < many ? us : many;
			rig_close(NULL);
		}
		print_message("longest turn: %llu us with 3 flows, %llu us with %d\n", (unsigned long long)few,
			(unsigned long long)many, CROWD);
		assert_true(many < 4 * few);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		RIG_TEST(each_request_is_judged),
		RIG_TEST(wrong_or_doubtful_requests_are_cut),
		RIG_TEST(smuggled_request_never_arrives),
		RIG_TEST(websocket_is_opaque_once_the_far_side_agrees),
		RIG_TEST(refused_upgrade_stays_http),
		RIG_TEST(names_let_in_before_are_judged_anew_after_a_change_of_policy),
		RIG_TEST(a_turn_is_no_longer_for_a_crowd),
		RIG_TEST(body_of_known_length_passes_and_the_next_request_is_seen),
	};

	return cmocka_run_group_tests(tests, rig_setup, rig_teardown);
}
