/* The plan of a run: it says the same whatever was in its memory before. */
#include "gateway/store/plan.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/store/request.h"
#include "tests/unit/tmp_dir.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static char dir[64];

static int setup(void **state)
{
	snprintf(dir, sizeof(dir), "/tmp/ak-plan-XXXXXX");
	return tmp_dir(dir) && setenv("HOME", dir, 1) == 0 && unsetenv("XDG_STATE_HOME") == 0 &&
			unsetenv("XDG_CONFIG_HOME") == 0 && setenv("XDG_RUNTIME_DIR", dir, 1) == 0
		? 0
		: -1;
}

static int teardown(void **state)
{
	return ak_remove_tree(AT_FDCWD, dir);
}

/* What is sent to the daemon, and what the sandbox is built from. The caller frees it. */
static char *plan_over(struct run_plan *plan, int octet)
{
	char *const argv[] = { "true", NULL };
	const struct run_request opts = { .name = "run-1", .mode = AK_MODE_NATIVE, .profile = AK_PROFILE_MODERATE, .argv = argv };
	_cleanup_json_ cJSON *obj = NULL;
	char resolv[PLAN_RESOLV_MAX], *text;
	struct sandbox_spec spec;
	struct ak_paths paths;
	struct ak_err err = { "" };

	memset(plan, octet, sizeof(*plan));
	if (ak_paths_init(&paths, &err) < 0 || run_plan_init(plan, &opts, &paths, "", &err) < 0)
		fail_msg("%s", err.text);
	run_plan_spec(plan, NULL, resolv, &spec);
	for (size_t i = 0; i < SANDBOX_FILES_MAX; i++)
		assert_true(i < plan->n_files || !spec.files[i].path);
	obj = run_ask_to_json(&opts, plan);
	text = cJSON_PrintUnformatted(obj);
	assert_non_null(text);
	run_plan_done(plan);
	return text;
}

static void a_plan_does_not_depend_on_what_was_in_its_memory(void **state)
{
	static struct run_plan plan;
	_cleanup_free_ char *clean = plan_over(&plan, 0), *dirty = plan_over(&plan, 0xa5);

	assert_string_equal(clean, dirty);
	assert_non_null(strstr(clean, "\"run-1\""));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_plan_does_not_depend_on_what_was_in_its_memory),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
