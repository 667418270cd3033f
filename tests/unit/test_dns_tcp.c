/* DNS over TCP: the same verdicts, whatever the framing, and bounded. */
#include "tests/unit/dns_rig.h"

struct stream {
	int fd;
	uint8_t b[1 << 20];
	size_t n;
	bool closed;
	unsigned want; /* whole replies */
};

static void stream_open(struct rig *r, struct stream *s)
{
	struct sockaddr_in sin = {
		.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(r->tcp_port)
	};
	int on = 1;

	s->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	s->n = 0;
	s->closed = false;
	assert_int_equal(connect(s->fd, (struct sockaddr *)&sin, sizeof(sin)), 0);
	setsockopt(s->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	assert_int_equal(ak_set_nonblock(s->fd, true), 0);
}

static unsigned count_replies(const struct stream *s)
{
	unsigned n = 0;

	for (size_t off = 0; off + 2 <= s->n;) {
		off += 2u + (unsigned)(s->b[off] << 8 | s->b[off + 1]);
		n += off <= s->n;
	}
	return n;
}

static void stream_read(struct stream *s)
{
	ssize_t n = recv(s->fd, s->b + s->n, sizeof(s->b) - s->n, MSG_DONTWAIT);

	if (n > 0)
		s->n += (size_t)n;
	if (n == 0 || (n < 0 && errno != EAGAIN))
		s->closed = true;
}

static bool has_replies(struct rig *r, void *arg)
{
	struct stream *s = arg;

	stream_read(s);
	return count_replies(s) >= s->want;
}

static bool is_closed(struct rig *r, void *arg)
{
	struct stream *s = arg;

	stream_read(s);
	return s->closed;
}

static size_t frame(uint8_t *out, unsigned id, const char *name, unsigned type)
{
	static struct packet p;

	make_query(&p, id, name, type, true);
	out[0] = (uint8_t)(p.n >> 8);
	out[1] = (uint8_t)p.n;
	memcpy(out + 2, p.b, p.n);
	return p.n + 2;
}

static void pipelined_questions_are_all_judged_and_answered(void **state)
{
	static struct rig r;
	static struct stream s;
	uint8_t buf[65536];
	size_t n = 0;

	rig_open(&r, POLICY_DENY, false);
	stream_open(&r, &s);
	for (unsigned i = 0; i < 200; i++) {
		char name[32];

		snprintf(name, sizeof(name), i % 2 ? "n%u.wild.test" : "n%u.evil.test", i);
		n += frame(buf + n, i, name, 1);
	}
	assert_int_equal(send(s.fd, buf, n, 0), n);
	s.want = 200;
	assert_true(rig_until(&r, has_replies, &s));
	assert_int_equal(r.asked_udp, 100);
	assert_int_equal(r.events[DNS_OUTCOME_DENIED], 100);
	assert_int_equal(r.events[DNS_OUTCOME_ANSWERED], 100);
	close(s.fd);
	rig_close(&r);
}

static void dripped_question_is_answered(void **state)
{
	static struct rig r;
	static struct stream s;
	uint8_t buf[512];
	size_t n;

	rig_open(&r, POLICY_DENY, false);
	stream_open(&r, &s);
	n = frame(buf, 9, "ok.test", 1);
	for (size_t i = 0; i < n; i++) {
		assert_int_equal(send(s.fd, buf + i, 1, 0), 1);
		event_base_loop(r.base, EVLOOP_NONBLOCK);
	}
	s.want = 1;
	assert_true(rig_until(&r, has_replies, &s));
	assert_int_equal(s.b[5] & 15, 0);
	close(s.fd);
	rig_close(&r);
}

static void huge_and_empty_frames_end_the_connection(void **state)
{
	static const uint8_t heads[][2] = { { 0xff, 0xff }, { 0x10, 0x01 }, { 0, 0 }, { 0, 11 } };
	static struct rig r;
	static struct stream s;

	rig_open(&r, POLICY_DENY, false);
	for (size_t i = 0; i < 4; i++) {
		stream_open(&r, &s);
		assert_int_equal(send(s.fd, heads[i], 2, 0), 2);
		assert_true(rig_until(&r, is_closed, &s));
		assert_int_equal(r.events[DNS_OUTCOME_MALFORMED], i + 1);
		close(s.fd);
	}
	assert_int_equal(r.asked_udp, 0);
	rig_close(&r);
}

static void script_many(struct rig *r, const struct dns_question *q, bool tcp, struct packet *out)
{
	answer_begin(out, q, 0);
	for (unsigned i = 1; i <= 32; i++) {
		char addr[16];

		snprintf(addr, sizeof(addr), "11.1.0.%u", i);
		answer_a(out, q->text, 60, addr);
	}
}

static void big_answers_fit(void **state)
{
	static struct rig r;
	static struct stream s;
	uint8_t buf[512];
	size_t n;

	rig_open(&r, POLICY_DENY, false);
	r.script = script_many;
	stream_open(&r, &s);
	n = frame(buf, 9, "ok.test", 1);
	assert_int_equal(send(s.fd, buf, n, 0), n);
	s.want = 1;
	assert_true(rig_until(&r, has_replies, &s));
	assert_int_equal(s.b[4] & 2, 0);
	assert_int_equal(s.b[9], 32);
	close(s.fd);
	rig_close(&r);
}

static void client_that_never_reads_is_bounded(void **state)
{
	static struct rig r;
	static struct stream s;
	static uint8_t buf[1 << 16];
	struct dns_stats stats;
	uint64_t before = 1;
	int small = 4096;
	size_t n = 0;

	rig_open(&r, POLICY_DENY, false);
	stream_open(&r, &s);
	setsockopt(s.fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
	while (n + 64 < sizeof(buf))
		n += frame(buf + n, 1, "ok.test", 1);
	/* push until neither side moves any more: the proxy has stopped reading */
	for (stats.queries = 0; stats.queries != before;) {
		before = stats.queries;
		for (unsigned i = 0; i < 50; i++) {
			send(s.fd, buf, n, MSG_DONTWAIT | MSG_NOSIGNAL);
			event_base_loop(r.base, EVLOOP_NONBLOCK);
		}
		dns_proxy_stats(r.proxy, &stats);
	}
	assert_true(stats.queries > 100);
	close(s.fd);
	rig_close(&r);
}

static void idle_connections_make_room_for_new_ones(void **state)
{
	static struct rig r;
	static struct stream s[40];
	uint8_t buf[512];
	size_t n = frame(buf, 9, "ok.test", 1);
	unsigned closed = 0;

	rig_open(&r, POLICY_DENY, false);
	for (unsigned i = 0; i < 40; i++) {
		stream_open(&r, &s[i]);
		event_base_loop(r.base, EVLOOP_NONBLOCK);
	}
	assert_int_equal(send(s[39].fd, buf, n, 0), n);
	s[39].want = 1;
	assert_true(rig_until(&r, has_replies, &s[39]));
	for (unsigned i = 0; i < 40; i++)
		closed += is_closed(&r, &s[i]);
	assert_int_equal(closed, 8);
	for (unsigned i = 0; i < 40; i++)
		close(s[i].fd);
	rig_close(&r);
}

static bool asked_once(struct rig *r, void *arg)
{
	return r->asked_udp >= 1;
}

static bool conn_gone(struct rig *r, void *arg)
{
	return r->events[DNS_OUTCOME_UPSTREAM] >= 1;
}

/* A connection on which one question was asked. */
static void open_and_ask(struct rig *r, struct stream *s)
{
	uint8_t buf[512];
	size_t n = frame(buf, 9, "ok.test", 1);

	stream_open(r, s);
	assert_int_equal(send(s->fd, buf, n, 0), n);
}

static void answers_for_a_closed_connection_go_nowhere(void **state)
{
	static struct rig r;
	static struct stream s, s2;
	static const struct linger reset = { .l_onoff = 1 };

	rig_open(&r, POLICY_DENY, false);
	r.script = script_silent;
	open_and_ask(&r, &s);
	assert_true(rig_until(&r, asked_once, NULL));
	setsockopt(s.fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
	close(s.fd);
	event_base_loop(r.base, EVLOOP_NONBLOCK);
	stream_open(&r, &s2); /* takes the same slot */
	assert_true(rig_until(&r, conn_gone, NULL));
	stream_read(&s2);
	assert_int_equal(s2.n, 0);
	close(s2.fd);
	rig_close(&r);
}

static void half_closed_client_gets_its_answers(void **state)
{
	static struct rig r;
	static struct stream s;

	rig_open(&r, POLICY_DENY, false);
	open_and_ask(&r, &s);
	shutdown(s.fd, SHUT_WR);
	assert_true(rig_until(&r, is_closed, &s));
	assert_int_equal(count_replies(&s), 1);
	close(s.fd);
	rig_close(&r);
}

/* One sends nothing, the other an octet now and then but never a whole question: both must go, and the third stays. */
static void idle_and_dripping_connections_are_closed_in_time(void **state)
{
	static struct rig r;
	static struct stream idle, drip, busy;
	uint8_t buf[512];
	size_t n = frame(buf, 9, "ok.test", 1), sent = 0;
	uint64_t end = ak_now_ms() + 20000, next = 0;

	rig_open(&r, POLICY_DENY, false);
	stream_open(&r, &idle);
	stream_open(&r, &drip);
	stream_open(&r, &busy);
	while (!(idle.closed && drip.closed) && ak_now_ms() < end) {
		static const struct timeval step = { .tv_usec = 50000 };

		if (ak_now_ms() >= next && sent + 1 < n) {
			send(drip.fd, buf + sent++, 1, MSG_NOSIGNAL);
			send(busy.fd, buf, n, MSG_NOSIGNAL);
			next = ak_now_ms() + 1000;
		}
		event_base_loopexit(r.base, &step);
		event_base_loop(r.base, 0);
		stream_read(&idle);
		stream_read(&drip);
		stream_read(&busy);
	}
	assert_true(idle.closed && drip.closed);
	assert_false(busy.closed);
	close(idle.fd);
	close(drip.fd);
	close(busy.fd);
	rig_close(&r);
}

static void freeing_the_proxy_with_connections_and_questions_is_safe(void **state)
{
	static struct rig r;
	static struct stream s;

	rig_open(&r, POLICY_DENY, false);
	r.script = script_silent;
	open_and_ask(&r, &s);
	assert_true(rig_until(&r, asked_once, NULL));
	rig_close(&r);
	close(s.fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pipelined_questions_are_all_judged_and_answered),
		cmocka_unit_test(dripped_question_is_answered),
		cmocka_unit_test(huge_and_empty_frames_end_the_connection),
		cmocka_unit_test(big_answers_fit),
		cmocka_unit_test(client_that_never_reads_is_bounded),
		cmocka_unit_test(idle_connections_make_room_for_new_ones),
		cmocka_unit_test(answers_for_a_closed_connection_go_nowhere),
		cmocka_unit_test(half_closed_client_gets_its_answers),
		cmocka_unit_test(idle_and_dripping_connections_are_closed_in_time),
		cmocka_unit_test(freeing_the_proxy_with_connections_and_questions_is_safe),
	};

	return cmocka_run_group_tests_name("dns tcp", tests, NULL, NULL);
}
