/* The DNS proxy over UDP against a scripted upstream. Names are claims; "nothing upstream" is the upstream's own counter. */
#include "tests/unit/dns_rig.h"

#define WITH_RIG(policy)                                                                                                         \
	static struct rig r;                                                                                                     \
	static struct packet p;                                                                                                  \
	rig_open(&r, policy, false)

static bool upstream_asked(struct rig *r, void *arg)
{
	return r->asked_udp >= *(unsigned *)arg;
}

static void allowed_name_is_resolved_and_learned(void **state)
{
	WITH_RIG(POLICY_DENY);
	struct dns_reply reply;

	assert_int_equal(rig_ask(&r, "Ok.TEST", 1, &p), 0);
	assert_int_equal(get16(&p, 0), 0x4711);
	assert_memory_equal(p.b + 12, "\2Ok\4TEST", 9);
	rig_read(&p, "ok.test", 1, &reply);
	assert_int_equal(reply.n_addrs, 1);
	assert_int_equal(reply.ttl_s, 300);
	assert_int_equal(r.learned, 1);
	assert_int_equal(r.learned_ttl, 300);
	assert_string_equal(r.learned_name, "ok.test");
	assert_int_equal(r.last_asked.b[12], 2);
	assert_int_equal(strncasecmp((char *)r.last_asked.b + 13, "ok\4test", 8), 0);
	assert_memory_equal(r.last_asked.b + 2, "\x01\x00", 2);
	assert_int_equal(r.events[DNS_OUTCOME_ANSWERED], 1);
	rig_close(&r);
}

static void denied_names_never_reach_the_upstream(void **state)
{
	WITH_RIG(POLICY_DENY);
	static const char *const names[] = { "evil.test", "evilok.test", "ok.test.evil", "wild.test", "bad.wild.test",
		"localhost", "metadata.google.internal", "printer.local", "use-application-dns.net" };

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		assert_int_equal(rig_ask(&r, names[i], 1, &p), DNS_RCODE_NXDOMAIN);
		assert_int_equal(get16(&p, 6), 0);
		/* EDE 15 in the only option */
		assert_non_null(memmem(p.b, p.n, "\x00\x00\x29\x04\xd0", 5));
		assert_non_null(memmem(p.b + 12, p.n - 12, "\x00\x0f", 2));
		assert_int_equal(rig_ask(&r, names[i], 28, &p), DNS_RCODE_NXDOMAIN);
		assert_int_equal(r.last_outcome, DNS_OUTCOME_DENIED);
	}
	assert_int_equal(r.asked_udp + r.asked_tcp, 0);
	assert_int_equal(r.learned, 0);
	rig_close(&r);
}

static void malformed_questions_never_reach_the_upstream(void **state)
{
	WITH_RIG(POLICY_DENY);
	static const struct {
		size_t off;
		uint8_t value;
		unsigned rcode;
	} cases[] = { { 2, 0x81, 1 }, { 2, 0x29, 4 }, { 5, 0, 1 }, { 5, 2, 1 }, { 7, 1, 1 }, { 9, 1, 1 }, { 11, 2, 1 },
		{ 12, 0xc0, 1 }, { 12, 64, 1 }, { 14, 0, 3 }, { 14, '.', 3 }, { 14, ' ', 3 }, { 14, 0xe9, 3 }, { 24, 3, 1 },
		{ 26, 9, 1 } };

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		make_query(&p, 1, "ok.test", 1, true);
		p.b[cases[i].off] = cases[i].value;
		rig_send(&r, &p);
		assert_int_equal(rig_reply(&r, &p), cases[i].rcode);
		assert_int_equal(r.last_outcome, DNS_OUTCOME_MALFORMED);
		for (const char *c = r.last_name; *c; c++)
			assert_in_range(*c, 0x21, 0x7e);
	}
	assert_int_equal(r.asked_udp, 0);
	rig_close(&r);
}

static void other_types_of_an_allowed_name_are_withheld(void **state)
{
	WITH_RIG(POLICY_DENY);
	static const unsigned types[] = { 2, 5, 6, 10, 13, 15, 16, 28, 33, 35, 64, 65, 99, 252, 255, 257, 65280 };

	for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
		assert_int_equal(rig_ask(&r, "ok.test", types[i], &p), 0);
		assert_int_equal(get16(&p, 6), 0);
		assert_int_equal(r.last_outcome, DNS_OUTCOME_NODATA);
	}
	assert_int_equal(r.asked_udp, 0);
	rig_close(&r);
}

static void script_mx(struct rig *r, const struct dns_question *q, bool tcp, struct packet *out)
{
	answer_begin(out, q, 0);
	if (q->ask.qtype == DNS_TYPE_MX)
		answer_add(out, q->text, DNS_TYPE_MX, 60, "\x00\x0a\4mail\xc0\x0c", 9);
}

static void default_allow_forwards_plain_types_but_never_https(void **state)
{
	WITH_RIG(POLICY_ALLOW);
	struct dns_reply reply;

	r.script = script_mx;
	assert_int_equal(rig_ask(&r, "some.test", DNS_TYPE_MX, &p), 0);
	rig_read(&p, "some.test", DNS_TYPE_MX, &reply);
	assert_int_equal(reply.n_raw, 1);
	assert_int_equal(r.asked_udp, 3); /* with A and AAAA, which tell that the name is not internal */
	assert_int_equal(r.learned, 0);
	assert_int_equal(rig_ask(&r, "some.test", 65, &p), 0);
	assert_int_equal(rig_ask(&r, "some.test", 64, &p), 0);
	assert_int_equal(rig_ask(&r, "some.test", 255, &p), 0);
	assert_int_equal(rig_ask(&r, "some.test", 10, &p), 0);
	assert_int_equal(get16(&p, 6), 0);
	assert_int_equal(rig_ask(&r, "bad.test", 1, &p), 3);
	assert_int_equal(rig_ask(&r, "metadata.google.internal", 1, &p), 3);
	assert_int_equal(rig_ask(&r, "bare", 1, &p), 3);
	assert_int_equal(r.asked_udp, 3);
	rig_close(&r);
}

/* corp.test and what is below it without an address of its own. */
static void script_corp(struct rig *r, const struct dns_question *q, bool tcp, struct packet *out)
{
	answer_begin(out, q, 0);
	if (q->ask.qtype == 1 && strcmp(q->text, "corp.some.test") == 0)
		answer_a(out, q->text, 60, "10.1.2.3");
	if (q->ask.qtype == DNS_TYPE_TXT)
		answer_add(out, q->text, DNS_TYPE_TXT, 60, "\6secret", 7);
}

static void records_of_internal_names_are_not_asked_for(void **state)
{
	WITH_RIG(POLICY_ALLOW);
	static const char *const names[] = { "corp.some.test", "_a._b.corp.some.test", "x.y.corp.some.test" };
	static const unsigned questions[] = { 1, 1, 5 };

	r.script = script_corp;
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		r.asked_udp = 0;
		for (unsigned k = 0; k < 3; k++) { /* remembered */
			assert_int_equal(rig_ask(&r, names[i], DNS_TYPE_TXT, &p), 0);
			assert_int_equal(get16(&p, 6), 0);
			assert_int_equal(r.last_outcome, DNS_OUTCOME_FILTERED);
		}
		assert_int_equal(r.asked_udp, questions[i]);
	}
	assert_int_equal(rig_ask(&r, "public.test", DNS_TYPE_TXT, &p), 0);
	assert_int_equal(get16(&p, 6), 1);
	rig_close(&r);
}

static void script_extra(struct rig *r, const struct dns_question *q, bool tcp, struct packet *out)
{
	answer_begin(out, q, 0);
	answer_a(out, "evil.test", 300, "11.6.6.6");
	answer_cname(out, "www.ok.test", "a.cdn.test");
	answer_a(out, "www.ok.test", 300, "11.7.7.7");
	answer_a(out, "a.cdn.test", 20, "11.0.0.2");
	answer_a(out, "a.cdn.test", 20, "11.0.0.3");
}

static void records_of_other_owners_are_neither_learned_nor_passed_on(void **state)
{
	WITH_RIG(POLICY_DENY);
	struct dns_reply reply;

	r.script = script_extra;
	assert_int_equal(rig_ask(&r, "www.ok.test", 1, &p), 0);
	rig_read(&p, "www.ok.test", 1, &reply);
	assert_int_equal(get16(&p, 6), 3);
	assert_int_equal(reply.n_addrs, 2);
	assert_int_equal(reply.n_cname, 1);
	assert_int_equal(reply.ttl_s, 20);
	assert_int_equal(r.n_learned_addrs, 2);
	assert_int_equal(r.learned_addrs[0].bytes[3], 2);
	assert_int_equal(r.n_learned_cname, 1);
	assert_string_equal(r.learned_cname[0], "a.cdn.test");
	rig_close(&r);
}

static void script_loop(struct rig *r, const struct dns_question *q, bool tcp, struct packet *out)
{
	answer_begin(out, q, 0);
	answer_cname(out, "ok.test", "b.test");
	answer_cname(out, "b.test", "ok.test");
	answer_a(out, "ok.test", 60, "11.0.0.1");
}

static void script_hops(struct rig *r, const struct dns_question *q, bool tcp, struct packet *out)
{
	char from[] = "h0.test", to[] = "h0.test";

	answer_begin(out, q, 0);
	answer_cname(out, "ok.test", "h0.test");
	for (unsigned i = 0; i < 8; i++) {
		from[1] = (char)('0' + i);
		to[1] = (char)('1' + i);
		answer_cname(out, from, to);
	}
	answer_a(out, to, 60, "11.0.0.1");
}

static void cname_loops_and_nine_hops_are_servfail(void **state)
{
	WITH_RIG(POLICY_DENY);

	r.script = script_loop;
	assert_int_equal(rig_ask(&r, "ok.test", 1, &p), DNS_RCODE_SERVFAIL);
	assert_string_equal(r.last_detail, "CNAME loop");
	r.script = script_hops;
	assert_int_equal(rig_ask(&r, "ok.test", 1, &p), DNS_RCODE_SERVFAIL);
	assert_int_equal(r.events[DNS_OUTCOME_UPSTREAM], 2);
	assert_int_equal(r.learned, 0);
	rig_close(&r);
}

static uint32_t script_ttl_value;

static void script_ttl(struct rig *r, const struct dns_question *q, bool tcp, struct packet *out)
{
	char addr[16];

	/* names below the wildcard have an address each */
	snprintf(addr, sizeof(addr), "11.0.0.%d", q->text[0] <= '9' ? q->text[0] : 1);
	answer_begin(out, q, 0);
	answer_a(out, q->text, script_ttl_value, addr);
}

static void ttl_is_bounded_and_never_longer_than_what_was_learned(void **state)
{
	static const uint32_t ttls[][2] = { { 0, DNS_TTL_MIN_S }, { 1, DNS_TTL_MIN_S }, { 60, 60 },
		{ 0x7fffffffu, DNS_TTL_MAX_S }, { 0x80000000u, DNS_TTL_MIN_S }, { 0xffffffffu, DNS_TTL_MIN_S } };
	WITH_RIG(POLICY_DENY);
	char name[] = "0.wild.test";

	r.script = script_ttl;
	for (size_t i = 0; i < ARRAY_SIZE(ttls); i++) {
		struct dns_reply reply;

		script_ttl_value = ttls[i][0];
		name[0] = (char)('0' + i);
		assert_int_equal(rig_ask(&r, name, 1, &p), 0);
		rig_read(&p, name, 1, &reply);
		assert_int_equal(reply.ttl_s, ttls[i][1]);
		assert_int_equal(r.learned_ttl, ttls[i][1]);
	}
	rig_close(&r);
}

static void short_ttl_of_one_name_does_not_cut_short_another_on_the_same_address(void **state)
{
	WITH_RIG(POLICY_DENY);
	struct dns_reply reply;

	r.script = script_ttl;
	script_ttl_value = 3000;
	assert_int_equal(rig_ask(&r, "ok.test", 1, &p), 0);
	script_ttl_value = 10;
	assert_int_equal(rig_ask(&r, "www.ok.test", 1, &p), 0);
	rig_read(&p, "www.ok.test", 1, &reply);
	assert_in_range(reply.ttl_s, 5, 10);
	assert_string_equal(r.learned_name, "www.ok.test");
	assert_in_range(r.learned_ttl, 2980, 3000);
	rig_close(&r);
}

static void script_mixed(struct rig *r, const struct dns_question *q, bool tcp, struct packet *out)
{
	answer_begin(out, q, 0);
	if (q->ask.qtype == 28) {
		static const char *const hidden[] = { "::ffff:169.254.169.254", "64:ff9b::a00:1", "2002:7f00:1::", "::1",
			"fe80::1", "fd00:ec2::254" };

		for (size_t i = 0; i < ARRAY_SIZE(hidden); i++)
			answer_a(out, q->text, 60, hidden[i]);
		if (strcmp(q->text, "ok.test") == 0)
			answer_a(out, q->text, 60, "2a00::1");
		return;
	}
	answer_a(out, q->text, 60, "10.0.0.1");
	answer_a(out, q->text, 60, "127.0.0.1");
	answer_a(out, q->text, 60, "169.254.169.254");
	answer_a(out, q->text, 60, "100.100.100.200");
	if (strcmp(q->text, "ok.test") == 0)
		answer_a(out, q->text, 60, "11.0.0.9");
}

static void blocked_addresses_are_dropped_and_the_public_part_kept(void **state)
{
	static struct rig r;
	static struct packet p;
	struct dns_reply reply;

	rig_open(&r, POLICY_DENY, true);
	r.script = script_mixed;
	for (unsigned type = 1; type <= 28; type += 27) {
		assert_int_equal(rig_ask(&r, "ok.test", type, &p), 0);
		rig_read(&p, "ok.test", (uint16_t)type, &reply);
		assert_int_equal(reply.n_addrs, 1);
		assert_int_equal(r.n_learned_addrs, 1);
		assert_int_equal(rig_ask(&r, "www.ok.test", type, &p), 0);
		assert_int_equal(get16(&p, 6), 0);
		assert_int_equal(r.last_outcome, DNS_OUTCOME_FILTERED);
	}
	assert_int_equal(r.learned, 2);
	rig_close(&r);
}

static void answer_withheld_when_the_kernel_does_not_acknowledge(void **state)
{
	WITH_RIG(POLICY_DENY);

	r.learn_rc = -ENOSPC;
	assert_int_equal(rig_ask(&r, "ok.test", 1, &p), DNS_RCODE_SERVFAIL);
	assert_int_equal(get16(&p, 6), 0);
	assert_int_equal(r.last_outcome, DNS_OUTCOME_UNLEARNED);
	assert_int_equal(rig_ask(&r, "ok.test", 1, &p), DNS_RCODE_SERVFAIL);
	assert_int_equal(r.learned, 2);
	r.learn_rc = 0;
	assert_int_equal(rig_ask(&r, "ok.test", 1, &p), 0);
	assert_int_equal(get16(&p, 6), 1);
	assert_int_equal(r.learned, 3);
	assert_int_equal(r.asked_udp, 1);
	rig_close(&r);
}

static void cache_serves_and_learns_again_only_where_needed(void **state)
{
	WITH_RIG(POLICY_DENY);
	struct policy *same;

	assert_int_equal(rig_ask(&r, "ok.test", 1, &p), 0);
	assert_in_range(r.last_latency_us, 1, 60000000);
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(rig_ask(&r, "ok.test", 1, &p), 0);
	assert_int_equal(r.asked_udp, 1);
	assert_int_equal(r.learned, 1);
	assert_int_equal(r.events_cached, 4);
	dns_client_forget(r.client);
	assert_int_equal(rig_ask(&r, "ok.test", 1, &p), 0);
	assert_int_equal(rig_ask(&r, "ok.test", 1, &p), 0);
	assert_int_equal(r.learned, 2);
	same = rig_policy(POLICY_DENY);
	dns_client_set_policy(r.client, same);
	assert_int_equal(rig_ask(&r, "ok.test", 1, &p), 0);
	assert_int_equal(r.learned, 3);
	assert_int_equal(r.asked_udp, 1);
	policy_unref(same);
	rig_close(&r);
}

static void policy_change_empties_the_cache_of_what_is_denied_now(void **state)
{
	WITH_RIG(POLICY_DENY);
	struct policy *p2 = rig_policy("{\"version\":1,\"name\":\"t2\",\"default\":\"deny\",\"allow\":[\"www.ok.test\"]}");

	assert_int_equal(rig_ask(&r, "ok.test", 1, &p), 0);
	assert_int_equal(rig_ask(&r, "www.ok.test", 1, &p), 0);
	dns_client_set_policy(r.client, p2);
	assert_int_equal(rig_ask(&r, "ok.test", 1, &p), 3);
	assert_int_equal(rig_ask(&r, "www.ok.test", 1, &p), 0);
	assert_int_equal(r.asked_udp, 2);
	policy_unref(p2);
	rig_close(&r);
}

static void policy_change_while_in_flight_is_obeyed(void **state)
{
	WITH_RIG(POLICY_DENY);
	struct policy *p2 = rig_policy("{\"version\":1,\"name\":\"t2\",\"default\":\"deny\",\"allow\":[]}");
	unsigned one = 1, two = 2;

	r.script = script_silent;
	make_query(&p, 1, "ok.test", 1, true);
	rig_send(&r, &p);
	assert_true(rig_until(&r, upstream_asked, &one));
	dns_client_set_policy(r.client, p2);
	policy_unref(p2);
	r.script = script_plain; /* the second try is answered */
	assert_int_equal(rig_reply(&r, &p), 3);
	assert_true(rig_until(&r, upstream_asked, &two));
	assert_int_equal(r.learned, 0);
	assert_int_equal(r.last_outcome, DNS_OUTCOME_DENIED);
	rig_close(&r);
}

static void script_nxdomain(struct rig *r, const struct dns_question *q, bool tcp, struct packet *out)
{
	answer_begin(out, q, 3);
}

static void negative_answers_are_remembered(void **state)
{
	WITH_RIG(POLICY_DENY);

	r.script = script_nxdomain;
	assert_int_equal(rig_ask(&r, "ok.test", 1, &p), 3);
	assert_int_equal(rig_ask(&r, "ok.test", 1, &p), 3);
	assert_int_equal(r.asked_udp, 1);
	assert_int_equal(r.events[DNS_OUTCOME_ANSWERED], 2);
	rig_close(&r);
}

static void script_servfail(struct rig *r, const struct dns_question *q, bool tcp, struct packet *out)
{
	answer_begin(out, q, 2);
}

static void failures_are_remembered_until_the_servers_change(void **state)
{
	WITH_RIG(POLICY_DENY);
	char csv[64];
	struct dns_upstream_conf conf = { .servers_csv = csv };
	struct ak_err err = { "" };

	r.script = script_servfail;
	for (unsigned i = 0; i < 50; i++)
		assert_int_equal(rig_ask(&r, "a.wild.test", 1, &p), DNS_RCODE_SERVFAIL);
	assert_int_equal(r.asked_udp, 1);
	assert_int_equal(r.events[DNS_OUTCOME_UPSTREAM], 50);
	assert_string_equal(r.last_detail, "upstream refused");
	r.script = script_plain;
	snprintf(csv, sizeof(csv), "127.0.0.1:%u", r.up_port);
	assert_int_equal(dns_proxy_set_upstream(r.proxy, &conf, &err), 0);
	assert_int_equal(rig_ask(&r, "a.wild.test", 1, &p), 0);
	rig_close(&r);
}

static void v4_only_names_have_no_aaaa_and_exist(void **state)
{
	static struct rig r;
	static struct packet p;

	rig_open(&r, POLICY_DENY, true);
	assert_int_equal(rig_ask(&r, "ok.test", 28, &p), 0);
	assert_int_equal(get16(&p, 6), 0);
	assert_int_equal(r.last_outcome, DNS_OUTCOME_ANSWERED);
	rig_close(&r);
}

/* Wrong id, wrong question, wrong case of nothing else; then silence. */
static void script_forged(struct rig *r, const struct dns_question *q, bool tcp, struct packet *out)
{
	static struct packet forged;
	struct dns_question other = *q;
	struct sockaddr_in far = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd;

	answer_begin(&forged, q, 0);
	answer_a(&forged, q->text, 60, "11.6.6.6");
	forged.b[0] ^= 0xff;
	sendto(r->up_udp, forged.b, forged.n, 0, (struct sockaddr *)&r->last_from, sizeof(r->last_from));
	assert_int_equal(dns_name_from_text("other.test", &other.ask.raw), 0);
	answer_begin(&forged, &other, 0);
	answer_a(&forged, "ok.test", 60, "11.6.6.7");
	sendto(r->up_udp, forged.b, forged.n, 0, (struct sockaddr *)&r->last_from, sizeof(r->last_from));
	/* the right answer from another port */
	fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&far, sizeof(far)), 0);
	answer_begin(&forged, q, 0);
	answer_a(&forged, q->text, 60, "11.6.6.8");
	sendto(fd, forged.b, forged.n, 0, (struct sockaddr *)&r->last_from, sizeof(r->last_from));
	close(fd);
}

static void forged_answers_are_not_learned(void **state)
{
	WITH_RIG(POLICY_DENY);

	r.script = script_forged;
	assert_int_equal(rig_ask(&r, "ok.test", 1, &p), DNS_RCODE_SERVFAIL);
	assert_int_equal(r.learned, 0);
	assert_int_equal(r.last_outcome, DNS_OUTCOME_UPSTREAM);
	rig_close(&r);
}

static void script_truncated(struct rig *r, const struct dns_question *q, bool tcp, struct packet *out)
{
	answer_begin(out, q, 0);
	if (!tcp) {
		out->b[2] |= 2;
		return;
	}
	for (unsigned i = 1; i <= 60; i++) {
		char addr[16];

		snprintf(addr, sizeof(addr), "11.1.0.%u", i);
		answer_a(out, q->text, 60, addr);
	}
}

static void truncated_answers_are_fetched_over_tcp(void **state)
{
	WITH_RIG(POLICY_DENY);
	struct dns_reply reply;

	r.script = script_truncated;
	assert_int_equal(rig_ask(&r, "ok.test", 1, &p), 0);
	rig_read(&p, "ok.test", 1, &reply);
	assert_int_equal(reply.n_addrs, DNS_ANSWER_MAX);
	assert_int_equal(r.asked_tcp, 1);
	/* a client without EDNS takes 512 octets: TC, and nothing half */
	make_query(&p, 2, "ok.test", 1, false);
	rig_send(&r, &p);
	assert_int_equal(rig_reply(&r, &p), 0);
	assert_int_equal(p.b[2] & 2, 2);
	assert_int_equal(get16(&p, 6), 0);
	assert_true(p.n <= 512);
	rig_close(&r);
}

static void silent_upstream_is_servfail(void **state)
{
	WITH_RIG(POLICY_DENY);

	r.script = script_silent;
	assert_int_equal(rig_ask(&r, "ok.test", 1, &p), DNS_RCODE_SERVFAIL);
	assert_string_equal(r.last_detail, "upstream timed out");
	assert_true(r.asked_udp >= 2);
	rig_close(&r);
}

static void script_old(struct rig *r, const struct dns_question *q, bool tcp, struct packet *out)
{
	answer_begin(out, q, q->ask.edns ? 1 : 0);
	if (!q->ask.edns)
		answer_a(out, q->text, 60, "11.0.0.1");
}

static void servers_without_edns_are_asked_plainly(void **state)
{
	WITH_RIG(POLICY_DENY);

	r.script = script_old;
	assert_int_equal(rig_ask(&r, "ok.test", 1, &p), 0);
	assert_int_equal(rig_ask(&r, "a.wild.test", 1, &p), 0);
	assert_int_equal(rig_ask(&r, "b.wild.test", 1, &p), 0);
	assert_int_equal(get16(&p, 6), 1);
	rig_close(&r);
}

static void same_question_in_flight_is_asked_once(void **state)
{
	WITH_RIG(POLICY_DENY);
	unsigned one = 1;

	r.script = script_silent;
	for (unsigned i = 0; i < 10; i++) {
		make_query(&p, 100 + i, "ok.test", 1, true);
		rig_send(&r, &p);
	}
	assert_true(rig_until(&r, upstream_asked, &one));
	r.script = script_plain;
	for (unsigned i = 0; i < 10; i++)
		assert_int_equal(rig_reply(&r, &p), 0);
	assert_int_equal(r.asked_udp, 2); /* the try that was lost and the one that was not */
	assert_int_equal(r.learned, 1);
	rig_close(&r);
}

static void in_flight_is_bounded(void **state)
{
	WITH_RIG(POLICY_ALLOW);
	unsigned refused = 0;
	char name[32];

	r.script = script_silent;
	for (unsigned i = 0; i < 300; i++) {
		snprintf(name, sizeof(name), "n%u.some.test", i);
		make_query(&p, i, name, 1, true);
		rig_send(&r, &p);
		event_base_loop(r.base, EVLOOP_NONBLOCK);
		while (got_reply(&r, &p))
			refused++;
	}
	assert_true(refused >= 44);
	rig_close(&r); /* with 256 under way */
}

static void freeing_a_client_in_flight_is_safe(void **state)
{
	WITH_RIG(POLICY_DENY);
	unsigned one = 1, three = 3;

	r.script = script_silent;
	make_query(&p, 1, "ok.test", 1, true);
	rig_send(&r, &p);
	assert_true(rig_until(&r, upstream_asked, &one));
	dns_client_free(r.client);
	r.client = NULL;
	r.script = script_plain;
	r.stranger = true;
	assert_int_equal(dns_client_new(r.proxy, SANDBOX, r.policy, NULL, NULL, &r.client), 0);
	r.stranger = false;
	/* the late answer comes and finds nobody; the new client asks anew */
	assert_int_equal(rig_ask(&r, "ok.test", 1, &p), 0);
	assert_true(rig_until(&r, upstream_asked, &three));
	assert_int_equal(r.learned, 1);
	rig_close(&r);
}

static void new_upstream_takes_over(void **state)
{
	WITH_RIG(POLICY_DENY);
	static struct rig other;
	char csv[64];
	struct dns_upstream_conf conf = { .servers_csv = csv };
	struct ak_err err = { "" };
	unsigned one = 1;

	other.base = r.base;
	other.script = script_plain;
	rig_upstream(&other);
	r.script = script_silent;
	make_query(&p, 1, "ok.test", 1, true);
	rig_send(&r, &p);
	assert_true(rig_until(&r, upstream_asked, &one));
	snprintf(csv, sizeof(csv), "127.0.0.1:%u", other.up_port);
	assert_int_equal(dns_proxy_set_upstream(r.proxy, &conf, &err), 0);
	assert_int_equal(rig_ask(&r, "www.ok.test", 1, &p), 0);
	assert_int_equal(other.asked_udp, 1);
	r.script = script_plain;
	assert_int_equal(rig_reply(&r, &p), 0); /* the one in flight ends with the old server */
	assert_int_equal(other.asked_udp, 1);
	conf.servers_csv = "not an address";
	assert_true(dns_proxy_set_upstream(r.proxy, &conf, &err) < 0);
	assert_int_equal(rig_ask(&r, "a.wild.test", 1, &p), 0);
	event_free(other.up_udp_event);
	event_free(other.up_tcp_event);
	close(other.up_udp);
	close(other.up_tcp);
	rig_close(&r);
}

static void budget_trips_under_a_wildcard_and_other_names_still_work(void **state)
{
	WITH_RIG(POLICY_DENY);
	unsigned n;
	char name[128];

	for (n = 0; n < 2000 && r.events[DNS_OUTCOME_BUDGET] == 0; n++) {
		snprintf(name, sizeof(name), "x%u.wild.test", n);
		rig_ask(&r, name, 1, &p);
	}
	assert_in_range(n, 250, 400);
	assert_int_equal(p.b[3] & 15, 3);
	assert_true(r.asked_udp <= 310);
	assert_int_equal(rig_ask(&r, "x1.wild.test", 1, &p), 0); /* known before */
	assert_int_equal(rig_ask(&r, "ok.test", 1, &p), 0);
	rig_close(&r);
}

static void long_random_labels_trip_the_budget_sooner(void **state)
{
	WITH_RIG(POLICY_DENY);
	unsigned n;
	char name[128];

	for (n = 0; n < 2000 && r.events[DNS_OUTCOME_BUDGET] == 0; n++) {
		snprintf(name, sizeof(name), "%08x7f3k9q2mzx8v4b7n1c5t0hjw6p3s9d2g8r%08x.wild.test", n * 2654435761u, n);
		rig_ask(&r, name, 1, &p);
	}
	assert_in_range(n, 10, 100);
	rig_close(&r);
}

static void rate_over_the_limit_is_refused_and_told_in_sums(void **state)
{
	WITH_RIG("{\"version\":1,\"name\":\"t\",\"default\":\"deny\",\"allow\":[\"ok.test\"],\"limits\":{\"dns_qps\":50}}");
	unsigned refused = 0;

	for (unsigned i = 0; i < 1000; i++)
		refused += rig_ask(&r, "ok.test", 1, &p) == DNS_RCODE_REFUSED;
	assert_in_range(refused, 500, 900);
	assert_in_range(r.events[DNS_OUTCOME_BUDGET], 1, 5);
	rig_close(&r);
}

static void strangers_get_no_answer(void **state)
{
	WITH_RIG(POLICY_DENY);
	struct dns_stats stats;

	r.stranger = true;
	make_query(&p, 1, "ok.test", 1, true);
	rig_send(&r, &p);
	event_base_loop(r.base, EVLOOP_ONCE);
	dns_proxy_stats(r.proxy, &stats);
	assert_int_equal(stats.dropped, 1);
	assert_int_equal(r.asked_udp, 0);
	assert_false(got_reply(&r, &p));
	rig_close(&r);
}

static void reverse_names_are_answered_from_what_was_learned(void **state)
{
	WITH_RIG(POLICY_ALLOW);
	struct dns_name host;

	assert_int_equal(rig_ask(&r, "1.0.0.11.in-addr.arpa", DNS_TYPE_PTR, &p), 3);
	assert_int_equal(rig_ask(&r, "some.test", 1, &p), 0);
	assert_int_equal(rig_ask(&r, "1.0.0.11.in-addr.arpa", DNS_TYPE_PTR, &p), 0);
	assert_int_equal(get16(&p, 6), 1);
	assert_int_equal(dns_name_from_text("some.test", &host), 0);
	assert_non_null(memmem(p.b, p.n, host.wire, host.len));
	assert_int_equal(rig_ask(&r, "1.0.0.10.in-addr.arpa", DNS_TYPE_PTR, &p), 3);
	assert_int_equal(r.asked_udp, 1);
	rig_close(&r);
}

static void host_name_is_answered_locally_where_a_rule_names_it(void **state)
{
	WITH_RIG(POLICY_DENY);
	struct dns_reply reply;
	struct policy *p2 = rig_policy("{\"version\":1,\"name\":\"t2\",\"default\":\"allow\"}");

	assert_int_equal(rig_ask(&r, POLICY_HOST_NAME, 1, &p), 0);
	rig_read(&p, POLICY_HOST_NAME, 1, &reply);
	assert_int_equal(reply.n_addrs, 1);
	assert_int_equal(reply.addrs[0].bytes[0], 100);
	assert_int_equal(r.learned, 1);
	assert_int_equal(rig_ask(&r, POLICY_HOST_NAME, 28, &p), 0);
	assert_int_equal(get16(&p, 6), 0);
	dns_client_set_policy(r.client, p2);
	assert_int_equal(rig_ask(&r, POLICY_HOST_NAME, 1, &p), 3);
	assert_int_equal(r.asked_udp, 0);
	policy_unref(p2);
	rig_close(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(allowed_name_is_resolved_and_learned),
		cmocka_unit_test(denied_names_never_reach_the_upstream),
		cmocka_unit_test(malformed_questions_never_reach_the_upstream),
		cmocka_unit_test(other_types_of_an_allowed_name_are_withheld),
		cmocka_unit_test(default_allow_forwards_plain_types_but_never_https),
		cmocka_unit_test(records_of_internal_names_are_not_asked_for),
		cmocka_unit_test(records_of_other_owners_are_neither_learned_nor_passed_on),
		cmocka_unit_test(cname_loops_and_nine_hops_are_servfail),
		cmocka_unit_test(ttl_is_bounded_and_never_longer_than_what_was_learned),
		cmocka_unit_test(short_ttl_of_one_name_does_not_cut_short_another_on_the_same_address),
		cmocka_unit_test(blocked_addresses_are_dropped_and_the_public_part_kept),
		cmocka_unit_test(answer_withheld_when_the_kernel_does_not_acknowledge),
		cmocka_unit_test(cache_serves_and_learns_again_only_where_needed),
		cmocka_unit_test(policy_change_empties_the_cache_of_what_is_denied_now),
		cmocka_unit_test(policy_change_while_in_flight_is_obeyed),
		cmocka_unit_test(negative_answers_are_remembered),
		cmocka_unit_test(failures_are_remembered_until_the_servers_change),
		cmocka_unit_test(v4_only_names_have_no_aaaa_and_exist),
		cmocka_unit_test(forged_answers_are_not_learned),
		cmocka_unit_test(truncated_answers_are_fetched_over_tcp),
		cmocka_unit_test(silent_upstream_is_servfail),
		cmocka_unit_test(servers_without_edns_are_asked_plainly),
		cmocka_unit_test(same_question_in_flight_is_asked_once),
		cmocka_unit_test(in_flight_is_bounded),
		cmocka_unit_test(freeing_a_client_in_flight_is_safe),
		cmocka_unit_test(new_upstream_takes_over),
		cmocka_unit_test(budget_trips_under_a_wildcard_and_other_names_still_work),
		cmocka_unit_test(long_random_labels_trip_the_budget_sooner),
		cmocka_unit_test(rate_over_the_limit_is_refused_and_told_in_sums),
		cmocka_unit_test(strangers_get_no_answer),
		cmocka_unit_test(reverse_names_are_answered_from_what_was_learned),
		cmocka_unit_test(host_name_is_answered_locally_where_a_rule_names_it),
	};

	return cmocka_run_group_tests_name("dns proxy", tests, NULL, NULL);
}
