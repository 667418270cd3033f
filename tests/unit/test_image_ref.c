/* Image references: what users write, and the canonical name of it. */
#include "gateway/base/cleanup.h"
#include "gateway/image/image.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define HEX64 "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static void a_reference_has_one_canonical_name(void **state)
{
	static const char *const rows[][2] = {
		{ "alpine", "docker.io/library/alpine:latest" },
		{ "alpine:3.20", "docker.io/library/alpine:3.20" },
		{ "nickblah/lua:5.4-alpine", "docker.io/nickblah/lua:5.4-alpine" },
		{ "docker.io/library/alpine:3.20", "docker.io/library/alpine:3.20" },
		{ "docker.io/alpine", "docker.io/library/alpine:latest" },
		{ "index.docker.io/library/alpine", "docker.io/library/alpine:latest" },
		{ "mcr.microsoft.com/dotnet/sdk:8.0", "mcr.microsoft.com/dotnet/sdk:8.0" },
		{ "localhost/box", "localhost/box:latest" },
		{ "localhost:5000/a/b_c/d__e/f-g.h:T_1", "localhost:5000/a/b_c/d__e/f-g.h:T_1" },
		{ "ghcr.io/o/n@sha256:" HEX64, "ghcr.io/o/n@sha256:" HEX64 },
		{ "ghcr.io/o/n:tag@sha256:" HEX64, "ghcr.io/o/n@sha256:" HEX64 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		char name[IMAGE_NAME_MAX], again[IMAGE_NAME_MAX];
		struct image_ref ref;
		struct ak_err err;

		assert_int_equal(image_ref_parse(rows[i][0], &ref, &err), 0);
		image_ref_print(&ref, name);
		assert_string_equal(name, rows[i][1]);
		assert_int_equal(image_ref_parse(name, &ref, &err), 0);
		image_ref_print(&ref, again);
		assert_string_equal(name, again);
	}
}

static void what_is_no_reference_is_refused(void **state)
{
	static const char *const rows[] = { "", "/", "a/", "/a", "A", "a//b", "a:", "a:-x", "a:x/y:", "a b", "-a", "a-", "a..b",
		"a._b", "a___b", "../a", "a/../b", "a@sha256:00", ("a@md5:" HEX64), "a@", "ho st.io/a", "host.io:/a",
		"host.io:123456/a", "-h.io/a", "h..io/a", "a\n", "a:b\n", "docker://alpine", "--help", "a:\xc3\xa4" };
	char longest[IMAGE_NAME_MAX];

	memset(longest, 'a', sizeof(longest) - 1);
	longest[sizeof(longest) - 1] = '\0';
	for (size_t i = 0; i <= ARRAY_SIZE(rows); i++) {
		struct image_ref ref;
		struct ak_err err = { "" };

		assert_int_equal(image_ref_parse(i < ARRAY_SIZE(rows) ? rows[i] : longest, &ref, &err), -EINVAL);
		assert_non_null(strstr(err.text, "is not the name of an image"));
	}
}

/* The name is kept in its full form, so whatever is accepted must be readable in that form. */
static void the_longest_names_are_read_again_in_full(void **state)
{
	size_t accepted = 0;

	(void)state;
	for (size_t len = 200; len < IMAGE_NAME_MAX; len++) {
		char name[IMAGE_NAME_MAX], full[IMAGE_NAME_MAX], again[IMAGE_NAME_MAX];
		struct image_ref ref;
		struct ak_err err;

		memset(name, 'a', len);
		name[len] = '\0';
		if (image_ref_parse(name, &ref, &err) < 0)
			continue;
		accepted = len;
		image_ref_print(&ref, full);
		assert_int_equal(image_ref_parse(full, &ref, &err), 0);
		image_ref_print(&ref, again);
		assert_string_equal(full, again);
	}
	assert_int_equal(accepted, IMAGE_NAME_MAX - 1 - strlen("docker.io/library/:latest"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_reference_has_one_canonical_name),
		cmocka_unit_test(what_is_no_reference_is_refused),
		cmocka_unit_test(the_longest_names_are_read_again_in_full),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
