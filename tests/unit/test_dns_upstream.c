/* Questions to the host's resolver: nothing of them can be guessed, and answers that are not its own are not believed. */
#include "tests/unit/dns_rig.h"

#define WITH_RIG(policy)                                                                                                         \
	static struct rig r;                                                                                                     \
	static struct packet p;                                                                                                  \
	rig_open(&r, policy, false)

static int cmp16(const void *a, const void *b)
{
	return *(const uint16_t *)a - *(const uint16_t *)b;
}

static unsigned distinct(uint16_t *v, unsigned n)
{
	unsigned out = n > 0;

	qsort(v, n, sizeof(*v), cmp16);
	for (unsigned i = 1; i < n; i++)
		out += v[i] != v[i - 1];
	return out;
}

/* How the letters of the last question's name were written, a bit each. */
static uint16_t case_of(const struct rig *r)
{
	uint16_t bits = 0;

	for (size_t i = DNS_WIRE_HEADER; r->last_asked.b[i]; i++)
		if ((r->last_asked.b[i] | 0x20) >= 'a')
			bits = (uint16_t)(bits << 1 | !(r->last_asked.b[i] & 0x20));
	return bits;
}

/* Silent for the slow ones. */
static void script_slow(struct rig *r, const struct dns_question *q, bool tcp, struct packet *out)
{
	if (strncmp(q->text, "slow", 4) != 0)
		script_plain(r, q, tcp, out);
}

#define ROUNDS 200

static void each_question_has_its_own_port_id_and_case(void **state)
{
	WITH_RIG(POLICY_ALLOW);
	static uint16_t ports[ROUNDS], ids[ROUNDS], cases[ROUNDS];
	char name[64];

	r.script = script_slow;
	for (unsigned i = 0; i < ROUNDS; i++) {
		if (i % 50 == 0) { /* always one in flight */
			snprintf(name, sizeof(name), "slow%u.test", i);
			make_query(&p, 1, name, 1, true);
			rig_send(&r, &p);
		}
		snprintf(name, sizeof(name), "abcdefghijkl%u.some.test", i);
		assert_int_equal(rig_ask(&r, name, 1, &p), 0);
		ports[i] = ntohs(r.last_from.sin_port);
		ids[i] = (uint16_t)get16(&r.last_asked, 0);
		cases[i] = case_of(&r);
	}
	/* drawn from 28,232 ports and 65,536 ids and cases: more than a few repeats in 200 do not happen */
	assert_true(distinct(ports, ROUNDS) > ROUNDS - 15);
	assert_true(distinct(ids, ROUNDS) > ROUNDS - 10);
	assert_true(distinct(cases, ROUNDS) > ROUNDS - 10);
	assert_true(ports[ROUNDS - 1] - ports[0] > 10000);
	rig_close(&r);
}

static void a_few_wrong_answers_do_not_keep_the_right_one_away(void **state)
{
	WITH_RIG(POLICY_DENY);

	r.forge = 7;
	assert_int_equal(rig_ask(&r, "ok.test", 1, &p), 0);
	assert_int_equal(get16(&p, 6), 1);
	assert_int_equal(r.asked_tcp, 0);
	assert_int_equal(r.events[DNS_OUTCOME_FORGED], 0);
	rig_close(&r);
}

static void many_wrong_answers_are_told_and_the_question_goes_by_tcp(void **state)
{
	WITH_RIG(POLICY_DENY);

	r.forge = 8;
	assert_int_equal(rig_ask(&r, "ok.test", 1, &p), 0);
	assert_int_equal(get16(&p, 6), 1);
	assert_int_equal(r.asked_tcp, 1);
	assert_int_equal(r.events[DNS_OUTCOME_FORGED], 1);
	assert_int_equal(r.events[DNS_OUTCOME_ANSWERED], 1);
	rig_close(&r);
}

/* The right answer but for the case; only TCP tells the truth. */
static void script_folding(struct rig *r, const struct dns_question *q, bool tcp, struct packet *out)
{
	struct dns_question other = *q;

	for (size_t i = 0; i < other.ask.raw.len; i++)
		if (other.ask.raw.wire[i] >= 'A')
			other.ask.raw.wire[i] ^= tcp ? 0 : 0x20;
	answer_begin(out, &other, 0);
	answer_a(out, q->text, 300, tcp ? "11.0.0.1" : "11.6.6.6");
}

static void an_answer_in_another_case_is_not_believed(void **state)
{
	WITH_RIG(POLICY_DENY);

	r.script = script_folding;
	assert_int_equal(rig_ask(&r, "ok.test", 1, &p), 0);
	assert_int_equal(r.learned_addrs[0].bytes[1], 0);
	assert_int_equal(r.asked_tcp, 1);
	assert_int_equal(r.events[DNS_OUTCOME_FORGED], 0);
	rig_close(&r);
}

/* An upstream whose ports are closed, and one that lives. */
static void a_dead_server_is_passed_over_at_once(void **state)
{
	WITH_RIG(POLICY_DENY);
	uint16_t closed = 0;
	int fd = rig_socket(SOCK_DGRAM, &closed);
	char csv[96];
	struct dns_upstream_conf conf = { .servers_csv = csv };
	struct ak_err err = { "" };
	uint64_t before = ak_now_ms();

	close(fd);
	snprintf(csv, sizeof(csv), "127.0.0.1:%u,127.0.0.1:%u", closed, r.up_port);
	assert_int_equal(dns_proxy_set_upstream(r.proxy, &conf, &err), 0);
	for (unsigned i = 0; i < 20; i++) {
		char name[32];

		snprintf(name, sizeof(name), "n%u.wild.test", i);
		assert_int_equal(rig_ask(&r, name, 1, &p), 0);
	}
	assert_true(ak_now_ms() - before < 5000); /* waiting for each would take 6 s */
	rig_close(&r);
}

static void script_unwilling(struct rig *r, const struct dns_question *q, bool tcp, struct packet *out)
{
	answer_begin(out, q, DNS_RCODE_REFUSED);
}

static void an_unwilling_server_makes_way_for_the_next(void **state)
{
	WITH_RIG(POLICY_DENY);
	static struct rig other;
	char csv[96];
	struct dns_upstream_conf conf = { .servers_csv = csv };
	struct ak_err err = { "" };

	other.base = r.base;
	other.script = script_plain;
	rig_upstream(&other);
	r.script = script_unwilling;
	snprintf(csv, sizeof(csv), "127.0.0.1:%u,127.0.0.1:%u", r.up_port, other.up_port);
	assert_int_equal(dns_proxy_set_upstream(r.proxy, &conf, &err), 0);
	assert_int_equal(rig_ask(&r, "ok.test", 1, &p), 0);
	other.script = script_unwilling;
	assert_int_equal(rig_ask(&r, "www.ok.test", 1, &p), DNS_RCODE_SERVFAIL);
	assert_string_equal(r.last_detail, "upstream refused");
	event_free(other.up_udp_event);
	event_free(other.up_tcp_event);
	close(other.up_udp);
	close(other.up_tcp);
	rig_close(&r);
}

static void only_addresses_with_ports_are_servers(void **state)
{
	static const char *const bad[] = { "", "127.0.0.1", "127.0.0.1:", "127.0.0.1:0", "127.0.0.1:65536", "127.0.0.1:5x",
		"::1:53", "[::1]", "[::1", "[::1]53", "ok.test:53", "127.0.0.1:53,x", "[127.0.0.1%lo]:53", "1.2.3.4:-5" };
	static struct rig r;
	struct dns_upstream_conf conf = { 0 };
	struct ak_err err = { "" };

	rig_open(&r, POLICY_DENY, false);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		conf.servers_csv = bad[i];
		if (dns_proxy_set_upstream(r.proxy, &conf, &err) == 0)
			fail_msg("taken: '%s'", bad[i]);
	}
	conf.servers_csv = "127.0.0.1:53,[::1]:5353,[fe80::1%lo]:53";
	assert_int_equal(dns_proxy_set_upstream(r.proxy, &conf, &err), 0);
	rig_close(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_question_has_its_own_port_id_and_case),
		cmocka_unit_test(a_few_wrong_answers_do_not_keep_the_right_one_away),
		cmocka_unit_test(many_wrong_answers_are_told_and_the_question_goes_by_tcp),
		cmocka_unit_test(an_answer_in_another_case_is_not_believed),
		cmocka_unit_test(a_dead_server_is_passed_over_at_once),
		cmocka_unit_test(an_unwilling_server_makes_way_for_the_next),
		cmocka_unit_test(only_addresses_with_ports_are_servers),
	};

	return cmocka_run_group_tests_name("dns upstream", tests, NULL, NULL);
}
