/* The DNS codec: names are claims about hostile bytes. */
#include "dnsproxy/wire.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

struct packet {
	uint8_t b[65535];
	size_t n;
};

static void put(struct packet *p, const void *data, size_t n)
{
	memcpy(p->b + p->n, data, n);
	p->n += n;
}

static void put16(struct packet *p, unsigned v)
{
	p->b[p->n++] = (uint8_t)(v >> 8);
	p->b[p->n++] = (uint8_t)v;
}

static void put32(struct packet *p, uint32_t v)
{
	put16(p, v >> 16);
	put16(p, v & 0xffff);
}

/* Dotted text as wire labels, case kept. */
static void put_name(struct packet *p, const char *text)
{
	struct dns_name name;

	assert_int_equal(dns_name_from_text(text, &name), 0);
	put(p, name.wire, name.len);
}

static void header(struct packet *p, unsigned flags, unsigned qd, unsigned an, unsigned ns, unsigned ar)
{
	p->n = 0;
	put16(p, 0xbeef);
	put16(p, flags);
	put16(p, qd);
	put16(p, an);
	put16(p, ns);
	put16(p, ar);
}

static void question(struct packet *p, const char *name, unsigned type, unsigned ar)
{
	header(p, 0x0100, 1, 0, 0, ar);
	put_name(p, name);
	put16(p, type);
	put16(p, 1);
}

static void answer_head(struct packet *p, const char *name, unsigned type, unsigned an)
{
	header(p, 0x8180, 1, an, 0, 0);
	put_name(p, name);
	put16(p, type);
	put16(p, 1);
}

static void record(struct packet *p, const char *owner, unsigned type, uint32_t ttl, const void *rdata, size_t n)
{
	put_name(p, owner);
	put16(p, type);
	put16(p, 1);
	put32(p, ttl);
	put16(p, (unsigned)n);
	put(p, rdata, n);
}

static void cname(struct packet *p, const char *owner, const char *target)
{
	struct dns_name name;

	assert_int_equal(dns_name_from_text(target, &name), 0);
	record(p, owner, DNS_TYPE_CNAME, 60, name.wire, name.len);
}

static void a_record(struct packet *p, const char *owner, uint32_t ttl, const char *last)
{
	record(p, owner, DNS_TYPE_A, ttl, last, 4);
}

static enum dns_parse parse(const struct packet *p, struct dns_question *q)
{
	const char *why = NULL;

	return dns_question_parse(p->b, p->n, q, &why);
}

static int parse_reply(const struct packet *p, const char *name, uint16_t type, struct dns_reply *r, const char **why)
{
	struct dns_name n;

	assert_int_equal(dns_name_from_text(name, &n), 0);
	return dns_reply_parse(p->b, p->n, &n, type, r, why);
}

static void question_is_lowered_and_its_case_kept(void **state)
{
	struct packet p;
	struct dns_question q;

	question(&p, "Api.OpenAI.com", 1, 0);
	assert_int_equal(parse(&p, &q), DNS_PARSE_OK);
	assert_string_equal(q.text, "api.openai.com");
	assert_memory_equal(q.ask.raw.wire, "\3Api\6OpenAI\3com", 16);
	assert_memory_equal(q.name.wire, "\3api\6openai\3com", 16);
	assert_int_equal(q.ask.id, 0xbeef);
	assert_true(q.ask.rd);
	assert_false(q.ask.edns);
	assert_int_equal(q.ask.udp_max, 512);
}

static void header_must_be_one_plain_question(void **state)
{
	static const struct {
		unsigned flags, qd, an, ns, ar;
		enum dns_parse want;
	} cases[] = {
		{ 0x8100, 1, 0, 0, 0, DNS_PARSE_FORMERR },
		{ 0x2900, 1, 0, 0, 0, DNS_PARSE_NOTIMP },
		{ 0x0100, 0, 0, 0, 0, DNS_PARSE_FORMERR },
		{ 0x0100, 2, 0, 0, 0, DNS_PARSE_FORMERR },
		{ 0x0100, 1, 1, 0, 0, DNS_PARSE_FORMERR },
		{ 0x0100, 1, 0, 1, 0, DNS_PARSE_FORMERR },
		{ 0x0100, 1, 0, 0, 2, DNS_PARSE_FORMERR },
		{ 0x0100, 65535, 0, 0, 0, DNS_PARSE_FORMERR },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct packet p;
		struct dns_question q;

		header(&p, cases[i].flags, cases[i].qd, cases[i].an, cases[i].ns, cases[i].ar);
		put_name(&p, "ok.test");
		put16(&p, 1);
		put16(&p, 1);
		assert_int_equal(parse(&p, &q), cases[i].want);
	}
}

static void class_must_be_in(void **state)
{
	struct packet p;
	struct dns_question q;

	question(&p, "ok.test", 1, 0);
	p.b[p.n - 1] = 3;
	assert_int_equal(parse(&p, &q), DNS_PARSE_FORMERR);
	p.b[p.n - 1] = 255;
	assert_int_equal(parse(&p, &q), DNS_PARSE_FORMERR);
}

static void every_truncation_is_refused(void **state)
{
	struct packet p;
	struct dns_question q;
	const char *why;

	question(&p, "www.ok.test", 1, 0);
	for (size_t n = 0; n < p.n; n++) {
		enum dns_parse rc = dns_question_parse(p.b, n, &q, &why);

		assert_int_equal(rc, n < 12 ? DNS_PARSE_SILENT : DNS_PARSE_FORMERR);
	}
}

static void trailing_bytes_are_refused(void **state)
{
	struct packet p;
	struct dns_question q;

	question(&p, "ok.test", 1, 0);
	p.b[p.n++] = 0;
	assert_int_equal(parse(&p, &q), DNS_PARSE_FORMERR);
}

static void pointer_in_the_question_is_refused(void **state)
{
	static const uint8_t pointers[][4] = { { 0xc0, 0x0c, 0, 0 }, { 0xc0, 0x00, 0, 0 }, { 0x40, 0x01, 0, 0 },
		{ 0x80, 0x01, 0, 0 } };

	for (size_t i = 0; i < 4; i++) {
		struct packet p;
		struct dns_question q;

		header(&p, 0x0100, 1, 0, 0, 0);
		put(&p, "\2ok", 3);
		put(&p, pointers[i], 2);
		put16(&p, 1);
		put16(&p, 1);
		assert_int_equal(parse(&p, &q), DNS_PARSE_FORMERR);
	}
}

static void name_of_255_octets_passes_and_256_does_not(void **state)
{
	struct packet p;
	struct dns_question q;
	uint8_t label[64];

	memset(label, 'a', sizeof(label));
	label[0] = 63;
	for (unsigned last = 61; last <= 62; last++) {
		header(&p, 0x0100, 1, 0, 0, 0);
		put(&p, label, 64);
		put(&p, label, 64);
		put(&p, label, 64);
		p.b[p.n++] = (uint8_t)last;
		put(&p, label + 1, last);
		p.b[p.n++] = 0;
		put16(&p, 1);
		put16(&p, 1);
		assert_int_equal(parse(&p, &q), last == 61 ? DNS_PARSE_OK : DNS_PARSE_FORMERR);
		if (last == 61)
			assert_int_equal(strlen(q.text), 253);
	}
}

static void odd_octets_in_a_label_are_bad_names_and_printable(void **state)
{
	static const uint8_t odd[] = { 0, '.', ' ', '\n', 0x7f, 0x80, 0xff, '/', '\\', '"', '*', '@' };

	for (size_t i = 0; i < sizeof(odd); i++) {
		struct packet p;
		struct dns_question q;

		question(&p, "okxtest.com", 1, 0);
		p.b[12 + 3] = odd[i];
		assert_int_equal(parse(&p, &q), DNS_PARSE_BADNAME);
		assert_null(strchr(q.text, odd[i] == '.' || odd[i] == '\\' || odd[i] == 0 ? '\n' : odd[i]));
		assert_non_null(strstr(q.text, "ok\\"));
		for (const char *c = q.text; *c; c++)
			assert_in_range(*c, 0x21, 0x7e);
	}
}

static void dot_inside_a_label_never_equals_a_dotted_name(void **state)
{
	struct packet p;
	struct dns_question q;
	struct dns_name plain;

	header(&p, 0x0100, 1, 0, 0, 0);
	put(&p, "\7ok.test", 9);
	put16(&p, 1);
	put16(&p, 1);
	assert_int_equal(parse(&p, &q), DNS_PARSE_BADNAME);
	assert_string_equal(q.text, "ok\\046test");
	assert_int_equal(dns_name_from_text("ok.test", &plain), 0);
	assert_false(dns_name_eq(&plain, &q.name));
}

static void opt(struct packet *p, unsigned size, unsigned version, size_t options)
{
	uint8_t zeros[1000] = { 0 };

	p->b[p->n++] = 0;
	put16(p, DNS_TYPE_OPT);
	put16(p, size);
	put16(p, version);
	put16(p, 0x8000);
	put16(p, (unsigned)options);
	put(p, zeros, options);
}

static void edns_size_is_bounded_both_ways(void **state)
{
	static const unsigned sizes[][2] = { { 0, 512 }, { 512, 512 }, { 1000, 1000 }, { 4096, 1232 }, { 65535, 1232 } };

	for (size_t i = 0; i < 5; i++) {
		struct packet p;
		struct dns_question q;

		question(&p, "ok.test", 1, 1);
		opt(&p, sizes[i][0], 0, 20);
		assert_int_equal(parse(&p, &q), DNS_PARSE_OK);
		assert_true(q.ask.edns);
		assert_int_equal(q.ask.udp_max, sizes[i][1]);
	}
}

static void edns_version_and_shape_are_checked(void **state)
{
	struct packet p;
	struct dns_question q;

	question(&p, "ok.test", 1, 1);
	opt(&p, 1232, 1, 0);
	assert_int_equal(parse(&p, &q), DNS_PARSE_BADVERS);
	question(&p, "ok.test", 1, 1);
	opt(&p, 1232, 0, 4);
	p.n--;
	assert_int_equal(parse(&p, &q), DNS_PARSE_FORMERR);
	question(&p, "ok.test", 1, 1);
	a_record(&p, "ok.test", 1, "abcd");
	assert_int_equal(parse(&p, &q), DNS_PARSE_FORMERR);
	question(&p, "ok.test", 1, 1);
	assert_int_equal(parse(&p, &q), DNS_PARSE_FORMERR);
}

static void upstream_question_carries_nothing_of_the_client(void **state)
{
	struct packet p;
	struct dns_question q, again;
	uint8_t out[DNS_WIRE_QUERY_MAX];
	const char *why;
	size_t n;

	question(&p, "MiXed.Ok.TEST", 28, 1);
	p.b[2] = 0x01; /* RD */
	p.b[3] = 0x70; /* Z, AD, CD */
	opt(&p, 4096, 0, 40);
	assert_int_equal(parse(&p, &q), DNS_PARSE_OK);
	n = dns_query_build(out, 0x1234, &q.name, q.ask.qtype, true);
	assert_int_equal(n, 12 + 15 + 4 + 11);
	assert_memory_equal(out, "\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x01", 12);
	assert_memory_equal(out + 12, "\5mixed\2ok\4test", 15);
	assert_memory_equal(out + n - 11, "\x00\x00\x29\x04\xd0\x00\x00\x00\x00\x00\x00", 11);
	assert_int_equal(dns_question_parse(out, n, &again, &why), DNS_PARSE_OK);
	assert_int_equal(dns_query_build(out, 1, &q.name, 1, false), 12 + 15 + 4);
}

static void chain_is_followed_from_the_question_only(void **state)
{
	struct packet p;
	struct dns_reply r;
	const char *why;

	answer_head(&p, "www.ok.test", 1, 6);
	a_record(&p, "evil.test", 9, "EEEE");
	cname(&p, "b.cdn.test", "c.cdn.test");
	cname(&p, "WWW.ok.test", "B.cdn.test");
	a_record(&p, "c.cdn.test", 30, "GOOD");
	a_record(&p, "www.ok.test", 30, "MIDL");
	cname(&p, "other.test", "www.ok.test");
	assert_int_equal(parse_reply(&p, "www.ok.test", 1, &r, &why), 0);
	assert_int_equal(r.n_cname, 2);
	assert_int_equal(r.n_addrs, 1);
	assert_memory_equal(r.addrs[0].bytes, "GOOD", 4);
	assert_int_equal(r.ttl_s, 30);
}

static void cname_loop_is_an_error(void **state)
{
	struct packet p;
	struct dns_reply r;
	const char *why;

	answer_head(&p, "a.test", 1, 2);
	cname(&p, "a.test", "b.test");
	cname(&p, "b.test", "a.test");
	assert_int_equal(parse_reply(&p, "a.test", 1, &r, &why), -EBADMSG);
	assert_string_equal(why, "CNAME loop");
	answer_head(&p, "a.test", 1, 1);
	cname(&p, "a.test", "a.test");
	assert_int_equal(parse_reply(&p, "a.test", 1, &r, &why), -EBADMSG);
}

static void eight_hops_pass_and_nine_do_not(void **state)
{
	for (unsigned hops = 8; hops <= 9; hops++) {
		struct packet p;
		struct dns_reply r;
		const char *why;
		char from[16] = "h0.test", to[16] = "h0.test";

		answer_head(&p, "h0.test", 1, hops + 1);
		for (unsigned i = 0; i < hops; i++) {
			from[1] = (char)('0' + i);
			to[1] = (char)('1' + i);
			cname(&p, from, to);
		}
		a_record(&p, to, 60, "LAST");
		assert_int_equal(parse_reply(&p, "h0.test", 1, &r, &why), hops == 8 ? 0 : -EBADMSG);
		if (hops == 8)
			assert_int_equal(r.n_addrs, 1);
	}
}

/* Offsets: 12 question name "ok.test" (9), type, class → 25 the first answer. */
static void compression_loops_and_forward_pointers_are_errors(void **state)
{
	static const unsigned targets[] = { 25, 26, 27, 40, 0x3fff, 0, 11 };

	for (size_t i = 0; i < sizeof(targets) / sizeof(targets[0]); i++) {
		struct packet p;
		struct dns_reply r;
		const char *why;

		answer_head(&p, "ok.test", 1, 2);
		assert_int_equal(p.n, 25);
		cname(&p, "ok.test", "x.test"); /* so that owners are compared at all */
		put16(&p, 0xc000 | (targets[i] >= 25 && targets[i] < 40 ? (unsigned)p.n + targets[i] - 25 : targets[i]));
		put16(&p, 1);
		put16(&p, 1);
		put32(&p, 60);
		put16(&p, 4);
		put(&p, "BAD!", 4);
		assert_int_equal(parse_reply(&p, "ok.test", 1, &r, &why), 0);
		assert_int_equal(r.n_addrs, 0);
	}
}

static void compressed_answers_are_read(void **state)
{
	struct packet p;
	struct dns_reply r;
	const char *why;

	answer_head(&p, "ok.test", 28, 1);
	put16(&p, 0xc00c);
	put16(&p, 28);
	put16(&p, 1);
	put32(&p, 60);
	put16(&p, 16);
	put(&p, "0123456789abcdef", 16);
	assert_int_equal(parse_reply(&p, "ok.test", 28, &r, &why), 0);
	assert_int_equal(r.n_addrs, 1);
	assert_int_equal(r.addrs[0].family, AF_INET6);
}

static void truncated_answers_are_errors_at_every_length(void **state)
{
	struct packet p;
	struct dns_reply r;
	const char *why;

	answer_head(&p, "www.ok.test", 1, 2);
	cname(&p, "www.ok.test", "x.test");
	a_record(&p, "x.test", 60, "ADDR");
	for (size_t n = 0; n < p.n; n++) {
		struct packet cut = p;

		cut.n = n;
		assert_int_equal(parse_reply(&cut, "www.ok.test", 1, &r, &why), -EBADMSG);
	}
}

static void answer_to_another_question_is_an_error(void **state)
{
	struct packet p;
	struct dns_reply r;
	const char *why;

	answer_head(&p, "other.test", 1, 0);
	assert_int_equal(parse_reply(&p, "ok.test", 1, &r, &why), -EBADMSG);
	answer_head(&p, "ok.test", 28, 0);
	assert_int_equal(parse_reply(&p, "ok.test", 1, &r, &why), -EBADMSG);
	answer_head(&p, "ok.test", 1, 0);
	p.b[2] &= 0x7f;
	assert_int_equal(parse_reply(&p, "ok.test", 1, &r, &why), -EBADMSG);
}

static void wrong_rdata_sizes_and_classes_are_left_out(void **state)
{
	struct packet p;
	struct dns_reply r;
	const char *why;

	answer_head(&p, "ok.test", 1, 3);
	record(&p, "ok.test", 1, 60, "abc", 3);
	record(&p, "ok.test", 1, 60, "abcde", 5);
	a_record(&p, "ok.test", 60, "ABCD");
	p.b[p.n - 4 - 2 - 4 - 1] = 3; /* class CH */
	assert_int_equal(parse_reply(&p, "ok.test", 1, &r, &why), 0);
	assert_int_equal(r.n_addrs, 0);
}

static void ttl_with_the_top_bit_counts_as_zero(void **state)
{
	static const uint32_t ttls[][2] = { { 0, 0 }, { 1, 1 }, { 0x7fffffff, 0x7fffffff }, { 0x80000000u, 0 },
		{ 0xffffffffu, 0 } };

	for (size_t i = 0; i < 5; i++) {
		struct packet p;
		struct dns_reply r;
		const char *why;

		answer_head(&p, "ok.test", 1, 1);
		a_record(&p, "ok.test", ttls[i][0], "ABCD");
		assert_int_equal(parse_reply(&p, "ok.test", 1, &r, &why), 0);
		assert_int_equal(r.ttl_s, ttls[i][1]);
	}
}

static void answers_past_the_cap_are_left_out(void **state)
{
	struct packet p;
	struct dns_reply r;
	const char *why;
	char addr[4] = { 11, 0, 0, 0 };

	answer_head(&p, "ok.test", 1, 400);
	for (unsigned i = 0; i < 400; i++) {
		addr[2] = (char)(i >> 8);
		addr[3] = (char)i;
		a_record(&p, "ok.test", 60, addr);
	}
	assert_int_equal(parse_reply(&p, "ok.test", 1, &r, &why), 0);
	assert_int_equal(r.n_addrs, DNS_ANSWER_MAX);
}

static void forwarded_rdata_is_rebuilt_without_compression(void **state)
{
	struct packet p;
	struct dns_reply r;
	const char *why;

	answer_head(&p, "ok.test", DNS_TYPE_MX, 2);
	record(&p, "ok.test", DNS_TYPE_MX, 60, "\x00\x0a\4mail\xc0\x0c", 9);
	record(&p, "ok.test", DNS_TYPE_MX, 60, "\x00\x0a\4mail\xc0\xff", 9); /* a pointer to nowhere: left out */
	assert_int_equal(parse_reply(&p, "ok.test", DNS_TYPE_MX, &r, &why), 0);
	assert_int_equal(r.n_raw, 1);
	assert_int_equal(r.raw_len, 18);
	assert_memory_equal(r.raw, "\x00\x10\x00\x0a\4mail\2ok\4test", 18);
	answer_head(&p, "ok.test", DNS_TYPE_TXT, 2);
	record(&p, "ok.test", DNS_TYPE_TXT, 60, "\5hello", 6);
	record(&p, "ok.test", DNS_TYPE_TXT, 60, "\6hello", 6); /* runs over its end */
	assert_int_equal(parse_reply(&p, "ok.test", DNS_TYPE_TXT, &r, &why), 0);
	assert_int_equal(r.n_raw, 1);
}

static void reply_echoes_and_truncates(void **state)
{
	struct packet p;
	struct dns_question q;
	struct ak_addr addrs[DNS_ANSWER_MAX];
	struct dns_content c = { .ttl_s = 77, .addrs = addrs, .n_addrs = DNS_ANSWER_MAX, .ede = DNS_EDE_NONE };
	uint8_t out[DNS_WIRE_REPLY_MAX];
	struct dns_reply r;
	const char *why;
	size_t n;

	for (uint32_t i = 0; i < DNS_ANSWER_MAX; i++)
		addrs[i] = ak_addr_v4(0x0b000000u + i);
	question(&p, "Ok.Test", 1, 0);
	assert_int_equal(parse(&p, &q), DNS_PARSE_OK);
	n = dns_reply_build(out, sizeof(out), sizeof(out), &q.ask, &c);
	assert_int_equal(n, 25 + 32 * 16);
	assert_memory_equal(out, "\xbe\xef\x81\x80\x00\x01\x00\x20\x00\x00\x00\x00\2Ok\4Test", 20);
	assert_int_equal(dns_reply_parse(out, n, &q.name, 1, &r, &why), 0);
	assert_int_equal(r.n_addrs, DNS_ANSWER_MAX);
	assert_int_equal(r.ttl_s, 77);
	n = dns_reply_build(out, sizeof(out), 512, &q.ask, &c);
	assert_int_equal(n, 25);
	assert_int_equal(out[2] & 2, 2);
	assert_int_equal(out[7], 0);
	assert_int_equal(dns_reply_build(out, 20, 512, &q.ask, &c), 0);
}

static void reason_is_told_only_to_those_who_speak_edns(void **state)
{
	struct packet p;
	struct dns_question q;
	struct dns_content c = { .rcode = DNS_RCODE_NXDOMAIN, .ede = DNS_EDE_BLOCKED, .ede_text = "default" };
	uint8_t out[512];
	size_t n;

	question(&p, "no.test", 1, 0);
	parse(&p, &q);
	assert_int_equal(dns_reply_build(out, sizeof(out), 512, &q.ask, &c), 25);
	assert_int_equal(out[3] & 15, 3);
	question(&p, "no.test", 1, 1);
	opt(&p, 1232, 0, 0);
	parse(&p, &q);
	n = dns_reply_build(out, sizeof(out), 512, &q.ask, &c);
	assert_memory_equal(out + n - 13,
		"\x00\x0f\x00\x09\x00\x0f"
		"default",
		13);
}

static void reverse_names_are_read(void **state)
{
	struct dns_name n;
	struct ak_addr a;
	char text[AK_ADDR_TEXT];

	assert_int_equal(dns_name_from_text("4.3.2.11.in-addr.arpa", &n), 0);
	assert_true(dns_name_reverse(&n, &a));
	assert_string_equal(ak_addr_print(&a, text), "11.2.3.4");
	assert_int_equal(dns_name_from_text("1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.a.2.ip6.arpa", &n), 0);
	assert_true(dns_name_reverse(&n, &a));
	assert_string_equal(ak_addr_print(&a, text), "2a00::1");
	static const char *const wrong[] = { "3.2.11.in-addr.arpa", "256.3.2.11.in-addr.arpa", "04.3.2.11.in-addr.arpa",
		"5.4.3.2.11.in-addr.arpa", "4.3.2.11.in-addr.arpa.test", "in-addr.arpa", "1.ip6.arpa", "arpa" };
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		assert_int_equal(dns_name_from_text(wrong[i], &n), 0);
		assert_false(dns_name_reverse(&n, &a));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(question_is_lowered_and_its_case_kept),
		cmocka_unit_test(header_must_be_one_plain_question),
		cmocka_unit_test(class_must_be_in),
		cmocka_unit_test(every_truncation_is_refused),
		cmocka_unit_test(trailing_bytes_are_refused),
		cmocka_unit_test(pointer_in_the_question_is_refused),
		cmocka_unit_test(name_of_255_octets_passes_and_256_does_not),
		cmocka_unit_test(odd_octets_in_a_label_are_bad_names_and_printable),
		cmocka_unit_test(dot_inside_a_label_never_equals_a_dotted_name),
		cmocka_unit_test(edns_size_is_bounded_both_ways),
		cmocka_unit_test(edns_version_and_shape_are_checked),
		cmocka_unit_test(upstream_question_carries_nothing_of_the_client),
		cmocka_unit_test(chain_is_followed_from_the_question_only),
		cmocka_unit_test(cname_loop_is_an_error),
		cmocka_unit_test(eight_hops_pass_and_nine_do_not),
		cmocka_unit_test(compression_loops_and_forward_pointers_are_errors),
		cmocka_unit_test(compressed_answers_are_read),
		cmocka_unit_test(truncated_answers_are_errors_at_every_length),
		cmocka_unit_test(answer_to_another_question_is_an_error),
		cmocka_unit_test(wrong_rdata_sizes_and_classes_are_left_out),
		cmocka_unit_test(ttl_with_the_top_bit_counts_as_zero),
		cmocka_unit_test(answers_past_the_cap_are_left_out),
		cmocka_unit_test(forwarded_rdata_is_rebuilt_without_compression),
		cmocka_unit_test(reply_echoes_and_truncates),
		cmocka_unit_test(reason_is_told_only_to_those_who_speak_edns),
		cmocka_unit_test(reverse_names_are_read),
	};

	return cmocka_run_group_tests_name("dns wire", tests, NULL, NULL);
}
