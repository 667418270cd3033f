/* The base library: reasons, addresses, strings, JSON, SHA-256, files. */
#include "gateway/base/addr.h"
#include "gateway/base/cleanup.h"
#include "gateway/base/err.h"
#include "gateway/base/io.h"
#include "gateway/base/json.h"
#include "gateway/base/sha256.h"
#include "gateway/base/strbuf.h"
#include "gateway/host/resolv.h"
#include "tests/unit/tmp_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static void context_is_prepended_to_a_reason(void **state)
{
	struct ak_err err;

	(void)state;
	assert_int_equal(ak_fail(&err, EINVAL, "port %d out of range", 70000), -EINVAL);
	assert_int_equal(ak_err_prefix(&err, -EINVAL, "allow[%d]", 3), -EINVAL);
	assert_string_equal(err.text, "allow[3]: port 70000 out of range");
}

static void addresses_parse_strictly(void **state)
{
	static const char *const bad[] = { "", "1", "1.2.3", "01.2.3.4", "0x7f.0.0.1", "1.2.3.4 ", "256.1.1.1", "::g",
		"fe80::1%eth0" };
	struct ak_addr a;
	char buf[AK_ADDR_TEXT];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(ak_addr_parse(bad[i], &a), -EINVAL);
	assert_int_equal(ak_addr_parse("11.1.2.3", &a), 0);
	assert_string_equal(ak_addr_print(&a, buf), "11.1.2.3");
	assert_int_equal(ak_addr_parse("2a00:0:0::1", &a), 0);
	assert_string_equal(ak_addr_print(&a, buf), "2a00::1");
}

static void prefixes_compare_bit_by_bit(void **state)
{
	struct ak_addr a, net;

	(void)state;
	ak_addr_parse("10.127.255.255", &a);
	ak_addr_parse("10.0.0.0", &net);
	assert_true(ak_addr_in_prefix(&a, &net, 8));
	assert_true(ak_addr_in_prefix(&a, &net, 9));
	assert_false(ak_addr_in_prefix(&a, &net, 10));
	assert_true(ak_addr_in_prefix(&a, &net, 0));
}

static void hidden_ipv4_addresses_are_found(void **state)
{
	static const char *const forms[] = { "::ffff:10.0.0.1", "::10.0.0.1", "64:ff9b::10.0.0.1",
		"2002:a00:1::", "2001:0:1:2:3:4:f5ff:fffe" };
	struct ak_addr a, v4;
	char buf[AK_ADDR_TEXT];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(forms); i++) {
		assert_int_equal(ak_addr_parse(forms[i], &a), 0);
		assert_true(ak_addr_embedded_v4(&a, &v4));
		assert_string_equal(ak_addr_print(&v4, buf), "10.0.0.1");
	}
	ak_addr_parse("2a00::1", &a);
	assert_false(ak_addr_embedded_v4(&a, &v4));
}

static void json_strings_are_valid_whatever_the_bytes(void **state)
{
	_cleanup_strbuf_ struct strbuf sb = { 0 };

	(void)state;
	strbuf_jsonn(&sb, "a\"\\\n\0\xff", 6);
	assert_string_equal(sb.data, "\"a\\\"\\\\\\u000a\\u0000\\u00ff\"");
	strbuf_reset(&sb);
	strbuf_json_utf8(&sb, "\xc3\xa9\xff\xed\xa0\x80\x1b", 7);
	assert_string_equal(sb.data, "\"\xc3\xa9\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\\u001b\"");
	strbuf_reset(&sb);
	strbuf_json_utf8(&sb, "a\n\r\t\"\\\x7f\0", 8);
	assert_string_equal(sb.data, "\"a\\n\\r\\t\\\"\\\\\\u007f\\u0000\"");
}

static void json_text_is_cut_between_characters(void **state)
{
	static const char text[] = "ab\n\x01\xe2\x82\xac\xff";
	/* what fits into so many bytes: of the text, and escaped */
	static const struct {
		size_t max, used, len;
	} rows[] = { { 0, 0, 0 }, { 1, 1, 1 }, { 2, 2, 2 }, { 3, 2, 2 }, { 4, 3, 4 }, { 9, 3, 4 }, { 10, 4, 10 }, { 12, 4, 10 },
		{ 13, 7, 13 }, { 15, 7, 13 }, { 16, 8, 16 }, { 99, 8, 16 } };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		_cleanup_strbuf_ struct strbuf sb = { 0 };

		assert_int_equal(strbuf_json_part(&sb, text, 8, rows[i].max), rows[i].used);
		assert_int_equal(sb.len, rows[i].len);
	}
}

static void json_errors_name_the_place(void **state)
{
	static const struct {
		const char *text, *reason;
	} cases[] = {
		{ "{\n  \"a\": ]", "line 2, column 8: invalid JSON" },
		{ "{} x", "line 1, column 4: text after the end of the JSON value" },
		{ "{\"a\":{\"b\":1,\"b\":2}}", "b: key given twice" },
	};
	cJSON *obj = NULL;
	struct ak_err err;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		assert_int_equal(json_parse(cases[i].text, strlen(cases[i].text), &obj, &err), -EINVAL);
		assert_string_equal(err.text, cases[i].reason);
	}
	assert_null(obj);
}

static void sha256_of_known_texts(void **state)
{
	static const struct {
		const char *text, *hex;
	} cases[] = {
		{ "", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" },
		{ "abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" },
		{ "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
			"248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1" },
	};
	uint8_t digest[SHA256_SIZE];
	char hex[SHA256_HEX];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct sha256 s;

		sha256_init(&s);
		for (const char *p = cases[i].text; *p; p++) /* byte by byte: the buffering is what could be wrong */
			sha256_add(&s, p, 1);
		sha256_done(&s, digest);
		sha256_hex(digest, hex);
		assert_string_equal(hex, cases[i].hex);
	}
}

static int open_descriptors(void)
{
	int n = 0;

	for (int fd = 0; fd < 1024; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static void descriptors_travel_and_excess_is_closed(void **state)
{
	int pair[2], fds[3], got[2], before;
	size_t room = 2;
	char byte = 0;

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
	for (int i = 0; i < 3; i++)
		fds[i] = open("/dev/null", O_RDONLY);
	before = open_descriptors();
	assert_int_equal(ak_send_fds(pair[0], "x", 1, fds, 3), 0);
	assert_int_equal(ak_recv_fds(pair[1], &byte, 1, got, &room), 1);
	assert_int_equal(room, 2);
	assert_int_equal(byte, 'x');
	assert_true(fcntl(got[0], F_GETFD) & FD_CLOEXEC);
	assert_int_equal(open_descriptors(), before + 2); /* the third was closed, not leaked */
	for (int i = 0; i < 3; i++)
		close(fds[i]);
	close(got[0]);
	close(got[1]);
	close(pair[0]);
	close(pair[1]);
}

static void a_message_without_a_byte_leaves_no_descriptor_behind(void **state)
{
	int pair[2], fd = open("/dev/null", O_RDONLY), got[2], before = open_descriptors();
	size_t room = 2;
	char byte;

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
	assert_int_equal(ak_send_fds(pair[0], "", 0, &fd, 1), 0);
	assert_int_equal(ak_recv_fds(pair[1], &byte, 1, got, &room), 0);
	assert_int_equal(room, 0);
	close(pair[0]);
	close(pair[1]);
	assert_int_equal(open_descriptors(), before);
	close(fd);
}

static void trees_are_removed_without_following_links(void **state)
{
	char root[] = "/tmp/ak-test-XXXXXX", path[256], outside[] = "/tmp/ak-outside-XXXXXX";
	struct stat st;

	(void)state;
	assert_non_null(tmp_dir(root));
	assert_non_null(tmp_dir(outside));
	snprintf(path, sizeof(path), "%s/a/b/c", root);
	assert_int_equal(ak_mkdir_p(path, 0700), 0);
	snprintf(path, sizeof(path), "%s/a/link", root);
	assert_int_equal(symlink(outside, path), 0);
	snprintf(path, sizeof(path), "%s/a/b", root);
	assert_int_equal(chmod(path, 0), 0);
	assert_int_equal(ak_remove_tree(AT_FDCWD, root), 0);
	assert_int_equal(stat(root, &st), -1);
	assert_int_equal(stat(outside, &st), 0);
	rmdir(outside);
}

static void resolvers_are_read_from_resolv_conf(void **state)
{
	char csv[256];

	(void)state;
	assert_int_equal(resolv_parse("# x\nsearch a\nnameserver 127.0.0.53\nnameserver\t2a00::1 # c\nnameserver nonsense\n", csv,
				 sizeof(csv)),
		0);
	assert_string_equal(csv, "127.0.0.53:53,[2a00::1]:53");
	assert_int_equal(resolv_parse("search a\n#nameserver 1.1.1.1\nnameserverx 1.1.1.1\n", csv, sizeof(csv)), -ENOENT);
	assert_int_equal(resolv_parse("nameserver 11.0.0.1", csv, sizeof(csv)), 0);
	assert_string_equal(csv, "11.0.0.1:53");
}

static void what_is_there_of_a_part_is_read(void **state)
{
	_cleanup_close_ int fd = ak_memory_file("part", "0123456789", 10), back = -1;
	_cleanup_close_ int pinned = open("/dev/null", O_PATH | O_CLOEXEC);
	char buf[16], one[32], two[32];

	(void)state;
	assert_int_equal(ak_pread_all(fd, buf, 4, 3), 4);
	assert_memory_equal(buf, "3456", 4);
	assert_int_equal(ak_pread_all(fd, buf, sizeof(buf), 8), 2);
	assert_int_equal(ak_pread_all(fd, buf, sizeof(buf), 10), 0);
	assert_int_equal(ak_pread_all(-1, buf, 1, 0), -EBADF);
	assert_int_equal(ak_pread_all(pinned, buf, 1, 0), -EBADF);
	back = ak_reopen(pinned, O_RDONLY);
	assert_int_equal(ak_pread_all(back, buf, 1, 0), 0);
	assert_int_equal(ak_fresh_name(one), 0);
	assert_int_equal(ak_fresh_name(two), 0);
	assert_string_not_equal(one, two);
}

static void text_is_shown_or_what_stands_for_it(void **state)
{
	_cleanup_json_ cJSON *obj = cJSON_Parse("{\"a\":\"x\",\"n\":1,\"z\":null}");

	(void)state;
	assert_string_equal(json_text(obj, "a", "-"), "x");
	assert_string_equal(json_text(obj, "n", "-"), "-");
	assert_string_equal(json_text(obj, "z", "-"), "-");
	assert_null(json_text(obj, "b", NULL));
	assert_null(json_text(NULL, "a", NULL));
}

static void what_controls_a_terminal_is_escaped(void **state)
{
	static const char *const rows[][2] = { { "plain ä€", "plain ä€" }, { "a\x1b[2J", "a\\x1b[2J" },
		{ "a\nb\tc", "a\\x0ab\\x09c" }, { "\x7f", "\\x7f" }, { "\xc2\x9b", "\\xc2\\x9b" }, { "\xff", "\\xff" },
		{ "\xc2", "\\xc2" } };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		_cleanup_strbuf_ struct strbuf out = { 0 };

		strbuf_shown(&out, rows[i][0], strlen(rows[i][0]));
		assert_string_equal(out.data, rows[i][1]);
		assert_int_equal(ak_is_shown(rows[i][0], strlen(rows[i][0])), i == 0);
	}
}

static void folders_below_are_opened_without_following_links(void **state)
{
	char dir[] = "/tmp/ak-below-XXXXXX";
	_cleanup_close_ int top = -1, fd = -1;

	(void)state;
	assert_non_null(mkdtemp(dir));
	top = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	fd = ak_open_below(top, "a/b//c", 0700);
	assert_true(fd >= 0 && faccessat(top, "a/b/c", F_OK, 0) == 0);
	assert_int_equal(symlinkat("a", top, "link"), 0);
	assert_int_equal(symlinkat("/", top, "a/out"), 0);
	assert_int_equal(ak_open_below(top, "link", 0700), -ELOOP);
	assert_int_equal(ak_open_below(top, "link/b", 0700), -ELOOP);
	assert_int_equal(ak_open_below(top, "a/out", 0700), -ELOOP);
	assert_int_equal(ak_open_below(top, "a/../..", 0700), -EINVAL);
	assert_int_equal(ak_open_below(top, "", 0700), -EINVAL);
	assert_int_equal(ak_remove_tree(AT_FDCWD, dir), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(context_is_prepended_to_a_reason),
		cmocka_unit_test(addresses_parse_strictly),
		cmocka_unit_test(prefixes_compare_bit_by_bit),
		cmocka_unit_test(hidden_ipv4_addresses_are_found),
		cmocka_unit_test(json_strings_are_valid_whatever_the_bytes),
		cmocka_unit_test(json_text_is_cut_between_characters),
		cmocka_unit_test(json_errors_name_the_place),
		cmocka_unit_test(sha256_of_known_texts),
		cmocka_unit_test(descriptors_travel_and_excess_is_closed),
		cmocka_unit_test(a_message_without_a_byte_leaves_no_descriptor_behind),
		cmocka_unit_test(trees_are_removed_without_following_links),
		cmocka_unit_test(resolvers_are_read_from_resolv_conf),
		cmocka_unit_test(what_is_there_of_a_part_is_read),
		cmocka_unit_test(text_is_shown_or_what_stands_for_it),
		cmocka_unit_test(what_controls_a_terminal_is_escaped),
		cmocka_unit_test(folders_below_are_opened_without_following_links),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
