#include "gateway/wire/tls_hello.h"
#include "hello_build.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

static struct hello_buf buf;

static enum tls_hello_status parse(const struct hello_opts *o, struct tls_hello *h)
{
	hello_build(&buf, o);
	return tls_hello_parse(buf.data, buf.len, h);
}

static void plain_hello_gives_its_name(void **state)
{
	struct tls_hello h;

	assert_int_equal(parse(&(struct hello_opts){ .sni = "api.example.com" }, &h), TLS_HELLO_OK);
	assert_true(h.has_sni);
	assert_string_equal(h.sni, "api.example.com");
	assert_false(h.ech);
}

static void every_cut_of_a_large_hello_waits_for_the_rest(void **state)
{
	struct hello_opts o = { .sni = "pq.example.com", .grease = true, .ech = true, .key_share = 1700, .record_size = 700 };
	struct tls_hello h;

	hello_build(&buf, &o);
	assert_true(buf.len > 1460);
	for (size_t n = 0; n < buf.len; n++) {
		/* An exact copy, so that a sanitizer sees any byte read past the cut. */
		uint8_t *part = malloc(n ? n : 1);

		memcpy(part, buf.data, n);
		assert_int_equal(tls_hello_parse(part, n, &h), TLS_HELLO_MORE);
		free(part);
	}
	assert_int_equal(tls_hello_parse(buf.data, buf.len, &h), TLS_HELLO_OK);
	assert_string_equal(h.sni, "pq.example.com");
	assert_true(h.ech);
}

static void records_of_any_size_are_joined(void **state)
{
	for (size_t size = 1; size < 300; size++) {
		struct tls_hello h;

		assert_int_equal(parse(&(struct hello_opts){ .sni = "a.example", .record_size = size }, &h), TLS_HELLO_OK);
		assert_string_equal(h.sni, "a.example");
	}
}

static void bytes_after_the_hello_do_not_matter(void **state)
{
	struct tls_hello h;

	hello_build(&buf, &(struct hello_opts){ .sni = "a.example" });
	memset(buf.data + buf.len, 0x17, 100);
	assert_int_equal(tls_hello_parse(buf.data, buf.len + 100, &h), TLS_HELLO_OK);
	assert_string_equal(h.sni, "a.example");
}

static void hello_without_a_name_has_none(void **state)
{
	struct tls_hello h;

	assert_int_equal(parse(&(struct hello_opts){ .grease = true }, &h), TLS_HELLO_OK);
	assert_false(h.has_sni);
	assert_int_equal(parse(&(struct hello_opts){ .no_extensions = true }, &h), TLS_HELLO_OK);
	assert_false(h.has_sni);
	assert_int_equal(parse(&(struct hello_opts){ .ech = true }, &h), TLS_HELLO_OK);
	assert_true(h.ech && !h.has_sni);
}

static void doubtful_names_are_refused(void **state)
{
	const struct hello_opts bad[] = {
		{ .sni = "a.example", .second_sni = "b.example" },
		{ .sni = "a.example", .sni_twice = true },
		{ .sni = "a\0.example", .sni_len = 10 },
	};
	char longest[301] = { 0 };
	struct tls_hello h;

	for (size_t i = 0; i < 3; i++) {
		assert_int_equal(parse(&bad[i], &h), TLS_HELLO_BAD);
		assert_non_null(h.why);
		assert_false(h.has_sni);
	}
	memset(longest, 'a', 300);
	assert_int_equal(parse(&(struct hello_opts){ .sni = longest }, &h), TLS_HELLO_BAD);
	assert_int_equal(parse(&(struct hello_opts){ .sni = "" }, &h), TLS_HELLO_BAD);
}

static void other_protocols_are_told_by_their_first_bytes(void **state)
{
	static const uint8_t sslv2[] = { 0x80, 0x2e, 0x01, 0x00, 0x02 }, alert[] = { 21, 3, 1, 0, 2, 1, 0 };
	static const uint8_t server_hello[] = { 22, 3, 3, 0, 40, 2 };
	struct tls_hello h;

	assert_int_equal(tls_hello_parse(sslv2, 1, &h), TLS_HELLO_MORE);
	assert_int_equal(tls_hello_parse(sslv2, sizeof(sslv2), &h), TLS_HELLO_NOT_TLS);
	assert_string_equal(h.why, "SSLv2 hello");
	assert_int_equal(tls_hello_parse((const uint8_t *)"GET /", 1, &h), TLS_HELLO_NOT_TLS);
	assert_string_equal(h.why, "not TLS");
	assert_int_equal(tls_hello_parse(alert, sizeof(alert), &h), TLS_HELLO_NOT_TLS);
	assert_int_equal(tls_hello_parse(server_hello, sizeof(server_hello), &h), TLS_HELLO_NOT_TLS);
	assert_int_equal(tls_hello_parse((const uint8_t *)"\x16\x02", 2, &h), TLS_HELLO_NOT_TLS);
}

static void lengths_that_do_not_add_up_are_refused(void **state)
{
	struct tls_hello h;

	hello_build(&buf, &(struct hello_opts){ .sni = "a.example" });
	/* One byte of the message at a time made larger: never a crash, never another name. */
	for (size_t i = 5; i < buf.len; i++) {
		buf.data[i] ^= 0xff;
		if (tls_hello_parse(buf.data, buf.len, &h) == TLS_HELLO_OK && h.has_sni)
			assert_int_equal(strlen(h.sni), strlen("a.example"));
		buf.data[i] ^= 0xff;
	}
	hello_build(&buf, &(struct hello_opts){ .sni = "a.example", .record_size = 20 });
	buf.data[25] = 23; /* application data inside the handshake */
	assert_int_equal(tls_hello_parse(buf.data, buf.len, &h), TLS_HELLO_BAD);
	buf.data[25] = 22;
	buf.data[28] = buf.data[29] = 0; /* an empty record */
	assert_int_equal(tls_hello_parse(buf.data, buf.len, &h), TLS_HELLO_BAD);
}

static void endless_hello_is_bounded(void **state)
{
	struct tls_hello h;

	/* All that the vectors can hold, in the smallest records for which there is room. */
	assert_int_equal(
		parse(&(struct hello_opts){ .sni = "a.example", .suites = 65534, .key_share = 65500, .record_size = 64 }, &h),
		TLS_HELLO_OK);
	assert_string_equal(h.sni, "a.example");
	assert_true(buf.len < TLS_HELLO_MAX);
	/* Records of one byte: six bytes of the stream for each of the message. */
	assert_int_equal(
		parse(&(struct hello_opts){ .sni = "a.example", .key_share = 40000, .record_size = 1 }, &h), TLS_HELLO_BAD);
	assert_string_equal(h.why, "ClientHello too long");
	assert_int_equal(tls_hello_parse(buf.data, TLS_HELLO_MAX - 1, &h), TLS_HELLO_MORE);
	/* A message longer than its vectors can be is told by its header. */
	hello_build(&buf, &(struct hello_opts){ .sni = "a.example" });
	buf.data[6] = 0x03;
	assert_int_equal(tls_hello_parse(buf.data, 9, &h), TLS_HELLO_BAD);
}

static enum tls_hello_status drip(size_t n, struct tls_hello_reader *r, struct tls_hello *h)
{
	enum tls_hello_status st = TLS_HELLO_MORE;

	*r = (struct tls_hello_reader){ 0 };
	for (size_t i = 1; i <= n && st == TLS_HELLO_MORE; i++)
		st = tls_hello_read(r, buf.data, i, h);
	return st;
}

static void dripped_hello_is_read_as_the_whole_one(void **state)
{
	for (size_t size = 1; size < 300; size += 7) {
		struct tls_hello_reader r;
		struct tls_hello h;

		hello_build(&buf, &(struct hello_opts){ .sni = "a.example", .ech = true, .record_size = size });
		assert_int_equal(drip(buf.len, &r, &h), TLS_HELLO_OK);
		assert_string_equal(h.sni, "a.example");
		assert_true(h.ech);
		buf.data[buf.len - 1 < 40 ? buf.len - 1 : 40] ^= 0xff; /* whatever that breaks, both see it alike */
		assert_int_equal(drip(buf.len, &r, &h), tls_hello_parse(buf.data, buf.len, &h));
	}
}

/* Make the pages of DATA before the last of its N pages unreadable, except the first one and that of the record header at AT. */
static void hide_old(uint8_t *data, size_t n, size_t at)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE), size = 5;

	for (size_t i = 1; i + 1 < n; i++) {
		bool header = i == at / page || i == (at + size - 1) / page;

		assert_int_equal(mprotect(data + i * page, page, header ? PROT_READ : PROT_NONE), 0);
	}
}

/*
 * Until the hello is complete, only its newest bytes, its start and the header of the current record are read: every byte costs the same, however
 * many came before it. Joining the records each time would touch a hidden page.
 */
static void dripped_hello_costs_its_length(void **state)
{
	static const size_t sizes[] = { 1, 100, 16000 };
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);

	for (size_t k = 0; k < sizeof(sizes) / sizeof(sizes[0]); k++) {
		struct tls_hello_reader r = { 0 };
		size_t pages, n;
		uint8_t *data;
		struct tls_hello h;

		hello_build(&buf, &(struct hello_opts){ .sni = "a.example", .suites = 20000, .record_size = sizes[k] });
		if (buf.len < 4 * page)
			skip(); /* a machine with large pages */
		n = buf.len - 10;
		pages = n / page + 1;
		data = mmap(NULL, pages * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		assert_ptr_not_equal(data, MAP_FAILED);
		memcpy(data, buf.data, n);
		for (size_t i = 1; i <= n; i++) {
			if (i % page == 1)
				hide_old(data, i / page + 1, r.record);
			assert_int_equal(tls_hello_read(&r, data, i, &h), TLS_HELLO_MORE);
		}
		munmap(data, pages * page);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(plain_hello_gives_its_name),
		cmocka_unit_test(every_cut_of_a_large_hello_waits_for_the_rest),
		cmocka_unit_test(records_of_any_size_are_joined),
		cmocka_unit_test(bytes_after_the_hello_do_not_matter),
		cmocka_unit_test(hello_without_a_name_has_none),
		cmocka_unit_test(doubtful_names_are_refused),
		cmocka_unit_test(other_protocols_are_told_by_their_first_bytes),
		cmocka_unit_test(lengths_that_do_not_add_up_are_refused),
		cmocka_unit_test(endless_hello_is_bounded),
		cmocka_unit_test(dripped_hello_is_read_as_the_whole_one),
		cmocka_unit_test(dripped_hello_costs_its_length),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
