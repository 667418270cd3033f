/* Mounts of the user's: their text, where they may be inside, and how they are kept. */
#include "gateway/project/mount.h"
#include "gateway/store/mounts.h"

#include "gateway/base/cleanup.h"
#include "gateway/store/request.h"
#include "gateway/store/state.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void a_mount_is_a_source_a_target_and_a_mode(void **state)
{
	static const struct {
		const char *text, *source, *target;
		bool writable;
	} rows[] = {
		{ "/a", "/a", NULL, false },
		{ "a/b", "a/b", NULL, false },
		{ "/a:rw", "/a", NULL, true },
		{ "/a:ro", "/a", NULL, false },
		{ "/a:/b", "/a", "/b", false },
		{ "/a:/b:rw", "/a", "/b", true },
		{ "/a:/b:ro", "/a", "/b", false },
		{ "/a:/rw", "/a", "/rw", false },
	};
	struct ak_err err;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		_cleanup_free_ char *text = strdup(rows[i].text);
		struct run_mount m;

		assert_int_equal(run_mount_parse(text, &m, &err), 0);
		assert_string_equal(m.source, rows[i].source);
		assert_true(rows[i].target ? !strcmp(m.target, rows[i].target) : !m.target);
		assert_int_equal(m.writable, rows[i].writable);
	}
}

static void a_mount_that_cannot_be_understood_is_an_error(void **state)
{
	static const char *const bad[] = { "", ":", ":/b", ":rw", "/a:", "/a:b", "/a::rw", "/a:/b:/c", "/a:/b:x", "/a:RO",
		"/a:rw:rw" };
	struct ak_err err;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		_cleanup_free_ char *text = strdup(bad[i]);
		struct run_mount m;

		assert_int_equal(run_mount_parse(text, &m, &err), -EINVAL);
		assert_non_null(strstr(err.text, "SRC[:DST][:ro|rw]"));
	}
}

static void a_target_is_made_plain_or_refused(void **state)
{
	static const char *const good[][2] = { { "/a", "/a" }, { "//a///b/", "/a/b" }, { "/procx", "/procx" },
		{ "/usr/local/x", "/usr/local/x" }, { "/tmp/x", "/tmp/x" }, { "/etc/x.conf", "/etc/x.conf" },
		{ "/a/..b/.c", "/a/..b/.c" } };
	static const char *const bad[] = { "", "a", "/", "//", "/.", "/..", "/a/../proc", "/a/.", "/proc", "/proc/1", "//proc",
		"/sys/x", "/dev", "/bin/sh", "/lib", "/lib64/x", "/usr", "/usr/", "/usr/lib", "/etc", "/tmp", "/home",
		"/var/run/x", "/etc/resolv.conf" };
	char ret[PATH_MAX];
	struct ak_err err;

	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		assert_int_equal(mount_check_target(good[i][0], ret, &err), 0);
		assert_string_equal(ret, good[i][1]);
	}
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(mount_check_target(bad[i], ret, &err), -EINVAL);
}

static const struct run_mount two[] = { { "/a", "/b", false, { 1, 2, 3 } }, { "/c d", "/e", true, { 4, 5, 0 } } };

static void check_two(const struct run_mount *list, size_t n)
{
	assert_int_equal(n, ARRAY_SIZE(two));
	for (size_t i = 0; i < n; i++) {
		assert_string_equal(list[i].source, two[i].source);
		assert_string_equal(list[i].target, two[i].target);
		assert_int_equal(list[i].writable, two[i].writable);
		assert_memory_equal(&list[i].id, &two[i].id, sizeof(two[i].id));
	}
}

static void a_sandbox_keeps_its_mounts(void **state)
{
	_cleanup_(state_done) struct state_sandbox again = { 0 };
	struct state_sandbox s = { .name = "x", .mounts = (struct run_mount *)two, .n_mounts = ARRAY_SIZE(two) };
	_cleanup_json_ cJSON *obj = state_to_json(&s);
	struct ak_err err;

	assert_int_equal(state_from_json(obj, &again, &err), 0);
	check_two(again.mounts, again.n_mounts);
	cJSON_ReplaceItemInObject(
		cJSON_GetArrayItem(cJSON_GetObjectItem(obj, "mounts"), 1), "source", cJSON_CreateString("relative"));
	assert_int_equal(state_from_json(obj, &s, &err), -EINVAL);
	assert_non_null(strstr(err.text, "mounts[1]"));
}

static void a_request_to_the_daemon_names_the_mounts(void **state)
{
	static struct run_plan plan;
	static struct run_ask ask;
	char *const argv[] = { "true", NULL };
	const struct run_request opts = { .argv = argv };
	struct ak_err err;

	snprintf(plan.name, sizeof(plan.name), "run-1");
	plan.asked = two;
	plan.n_asked = ARRAY_SIZE(two);
	ask.obj = run_ask_to_json(&opts, &plan);
	assert_int_equal(run_ask_from_json(&ask, &err), 0);
	check_two(ask.plan.asked, ask.plan.n_asked);
	run_ask_done(&ask);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_mount_is_a_source_a_target_and_a_mode),
		cmocka_unit_test(a_mount_that_cannot_be_understood_is_an_error),
		cmocka_unit_test(a_target_is_made_plain_or_refused),
		cmocka_unit_test(a_sandbox_keeps_its_mounts),
		cmocka_unit_test(a_request_to_the_daemon_names_the_mounts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
