/* Published ports: their text form, and the host's listening socket. */
#include "gateway/base/publish.h"

#include "gateway/base/cleanup.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const char *round_trip(const char *text)
{
	static char out[AK_PUBLISH_TEXT];
	struct ak_publish p;
	struct ak_err err;

	return ak_publish_parse(text, &p, &err) == 0 ? ak_publish_print(&p, out) : NULL;
}

static void a_port_has_loopback_and_itself_as_defaults(void **state)
{
	assert_string_equal(round_trip("8080"), "127.0.0.1:8080:8080");
	assert_string_equal(round_trip("8080:80"), "127.0.0.1:8080:80");
	assert_string_equal(round_trip("0:80"), "127.0.0.1:0:80");
	assert_string_equal(round_trip("0.0.0.0:8080"), "0.0.0.0:8080:8080");
	assert_string_equal(round_trip("10.1.2.3:8080:80"), "10.1.2.3:8080:80");
	assert_string_equal(round_trip("[::1]:8080:80"), "[::1]:8080:80");
	assert_string_equal(round_trip("[2001:db8:0:0:0:0:0:1]:1"), "[2001:db8::1]:1:1");
}

static void everything_else_is_refused(void **state)
{
	static const char *const bad[] = { "", ":", "0", "80:0", "-1", "+80", " 80", "80 ", "8o", "65536", "99999999999",
		"80:80:80", "80:", ":80", "1.2.3.4", "1.2.3.4:", "1.2.3.4:80:", "1.2.3:80", "1.2.3.4.5:80", "01.2.3.4:80",
		"localhost:80", "::1:80", "[::1]", "[::1]80", "[::1:80", "[1.2.3.4]:80", "[]:80", "[fe80::1%eth0]:80", "80/udp",
		"0x50", "*:80" };
	struct ak_publish p = { .port = 7 };
	struct ak_err err;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		err.text[0] = '\0';
		if (ak_publish_parse(bad[i], &p, &err) != -EINVAL || !err.text[0] || p.port != 7)
			fail_msg("'%s' was read as a port", bad[i]);
	}
}

static void a_list_takes_each_port_of_the_host_once_and_is_bounded(void **state)
{
	struct ak_publish list[AK_PUBLISH_MAX], p;
	struct ak_err err;
	size_t n = 0;

	assert_int_equal(ak_publish_parse("8080:80", &p, &err), 0);
	assert_int_equal(ak_publish_add(list, &n, &p, &err), 0);
	assert_int_equal(ak_publish_parse("127.0.0.1:8080:81", &p, &err), 0);
	assert_int_equal(ak_publish_add(list, &n, &p, &err), -EEXIST);
	assert_int_equal(ak_publish_parse("[::1]:8080:80", &p, &err), 0);
	assert_int_equal(ak_publish_add(list, &n, &p, &err), 0);
	assert_int_equal(ak_publish_parse("0:80", &p, &err), 0);
	while (n < AK_PUBLISH_MAX)
		assert_int_equal(ak_publish_add(list, &n, &p, &err), 0);
	assert_int_equal(ak_publish_add(list, &n, &p, &err), -E2BIG);
}

static void only_loopback_is_local(void **state)
{
	static const struct {
		const char *text;
		bool local;
	} rows[] = { { "1", true }, { "127.9.9.9:1", true }, { "[::1]:1", true }, { "0.0.0.0:1", false }, { "[::]:1", false },
		{ "128.0.0.1:1", false }, { "[::ffff:127.0.0.1]:1", false } };
	struct ak_publish p;
	struct ak_err err;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		assert_int_equal(ak_publish_parse(rows[i].text, &p, &err), 0);
		assert_int_equal(ak_publish_is_local(&p), rows[i].local);
	}
}

static void port_0_becomes_a_free_one_that_is_then_in_use(void **state)
{
	struct ak_publish p, again;
	struct ak_err err;
	_cleanup_close_ int fd = -1;
	char port[8];

	assert_int_equal(ak_publish_parse("0:80", &p, &err), 0);
	fd = ak_publish_listen(&p, &err);
	assert_true(fd >= 0 && p.host_port > 0);
	again = p;
	assert_int_equal(ak_publish_listen(&again, &err), -EADDRINUSE);
	snprintf(port, sizeof(port), ":%u", p.host_port);
	assert_non_null(strstr(err.text, port));
	assert_non_null(strstr(err.text, "0:80"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_port_has_loopback_and_itself_as_defaults),
		cmocka_unit_test(everything_else_is_refused),
		cmocka_unit_test(a_list_takes_each_port_of_the_host_once_and_is_bounded),
		cmocka_unit_test(only_loopback_is_local),
		cmocka_unit_test(port_0_becomes_a_free_one_that_is_then_in_use),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
