/* Where things are kept: for users, for root, with and without the XDG variables; and which names a sandbox may have. */
#include "gateway/base/paths.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/store/policy_dirs.h"
#include "tests/unit/tmp_dir.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

static int clear(void **state)
{
	static const char *const names[] = { "XDG_STATE_HOME", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "AGENTKERNEL_DATA_DIR" };

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		unsetenv(names[i]);
	setenv("HOME", "/home/someone", 1);
	return 0;
}

static struct ak_paths paths(void)
{
	struct ak_paths p;
	struct ak_err err;

	if (ak_paths_init(&p, &err) < 0)
		fail_msg("%s", err.text);
	return p;
}

static void defaults_of_the_user_or_of_root(void **state)
{
	struct ak_paths p = paths();

	assert_string_equal(p.state, geteuid() ? "/home/someone/.local/state/agentkernel" : "/var/lib/agentkernel");
	if (geteuid() == 0)
		assert_string_equal(p.runtime, "/run/agentkernel");
	assert_string_equal(p.config, "/home/someone/.config/agentkernel");
}

static void variables_win_for_everyone(void **state)
{
	char dir[] = "/tmp/ak-paths-XXXXXX", want[64];
	struct ak_paths p;

	assert_non_null(tmp_dir(dir));
	setenv("XDG_STATE_HOME", "/s", 1);
	setenv("XDG_CONFIG_HOME", "/c", 1);
	setenv("XDG_RUNTIME_DIR", dir, 1);
	p = paths();
	assert_string_equal(p.state, "/s/agentkernel");
	assert_string_equal(p.config, "/c/agentkernel");
	snprintf(want, sizeof(want), "%s/agentkernel", dir);
	assert_string_equal(p.runtime, want);
	rmdir(dir);
}

static void a_runtime_folder_that_is_not_ours_is_not_used(void **state)
{
	char fallback[64];
	struct ak_paths p;
	struct stat st;

	setenv("XDG_STATE_HOME", "/s", 1);
	setenv("XDG_RUNTIME_DIR", "/proc/nonexistent", 1);
	p = paths();
	snprintf(fallback, sizeof(fallback), "/run/user/%u", (unsigned)geteuid());
	if (stat(fallback, &st) == 0 && st.st_uid == geteuid())
		assert_int_equal(strncmp(p.runtime, fallback, strlen(fallback)), 0);
	else
		assert_string_equal(p.runtime, "/s/agentkernel/run");
	if (geteuid() != 0) {
		setenv("XDG_RUNTIME_DIR", "/", 1); /* root's */
		p = paths();
		assert_string_not_equal(p.runtime, "//agentkernel");
	}
}

static void relative_variables_are_ignored(void **state)
{
	struct ak_paths p;

	setenv("XDG_STATE_HOME", "s", 1);
	setenv("XDG_CONFIG_HOME", "c", 1);
	p = paths();
	assert_string_not_equal(p.state, "s/agentkernel");
	assert_string_equal(p.config, "/home/someone/.config/agentkernel");
}

static void the_data_folder_can_be_set(void **state)
{
	struct ak_paths p;
	struct ak_err err;

	setenv("AGENTKERNEL_DATA_DIR", "/d", 1);
	assert_string_equal(paths().data, "/d");
	setenv("AGENTKERNEL_DATA_DIR", "d", 1);
	assert_int_equal(ak_paths_init(&p, &err), -EINVAL);
	assert_non_null(strstr(err.text, "AGENTKERNEL_DATA_DIR"));
	setenv("AGENTKERNEL_DATA_DIR", "", 1);
	assert_int_equal(paths().data[0], '/');
}

static void overlong_variables_are_errors(void **state)
{
	_cleanup_free_ char *longer = malloc(PATH_MAX + 2);
	struct ak_paths p;
	struct ak_err err;

	memset(longer, 'x', PATH_MAX + 1);
	longer[0] = '/';
	longer[PATH_MAX + 1] = '\0';
	setenv("XDG_STATE_HOME", longer, 1);
	assert_int_equal(ak_paths_init(&p, &err), -ENAMETOOLONG);
	unsetenv("XDG_STATE_HOME");
	setenv("XDG_CONFIG_HOME", longer, 1);
	assert_int_equal(ak_paths_init(&p, &err), -ENAMETOOLONG);
}

static void policies_of_the_user_come_first(void **state)
{
	struct ak_paths p = { .config = "/c", .data = "/d" };
	char storage[3][PATH_MAX];
	struct policy_dirs dirs;

	ak_paths_policy_dirs(&p, storage, &dirs);
	assert_string_equal(dirs.dirs[0], "/c/policies");
	assert_string_equal(dirs.dirs[1], "/etc/agentkernel/policies");
	assert_string_equal(dirs.dirs[2], "/d/policies");
	assert_null(dirs.dirs[3]);
}

static void names(void **state)
{
	static const char *const good[] = { "a", "A1", "run-0a1b2c3d", "a_b-c", "0",
		"abcdefghijabcdefghijabcdefghijabcdefghijabcdefghijabcdefghijabc" };
	static const char *const bad[] = { "", "-a", "a-", "_", "a.b", "a/b", "..", "a b", "a\n", "\xc3\xa9",
		"abcdefghijabcdefghijabcdefghijabcdefghijabcdefghijabcdefghijabcd" };

	for (size_t i = 0; i < ARRAY_SIZE(good); i++)
		assert_true(ak_sandbox_name_ok(good[i]));
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_false(ak_sandbox_name_ok(bad[i]));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(defaults_of_the_user_or_of_root, clear),
		cmocka_unit_test_setup(variables_win_for_everyone, clear),
		cmocka_unit_test_setup(a_runtime_folder_that_is_not_ours_is_not_used, clear),
		cmocka_unit_test_setup(relative_variables_are_ignored, clear),
		cmocka_unit_test_setup(the_data_folder_can_be_set, clear),
		cmocka_unit_test_setup(overlong_variables_are_errors, clear),
		cmocka_unit_test_setup(policies_of_the_user_come_first, clear),
		cmocka_unit_test_setup(names, clear),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
