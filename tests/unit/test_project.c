/* The project folder as what it is, and not only where: links, other folders and other devices in its place. */
#include "gateway/project/project.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "tests/unit/tmp_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

struct world {
	char dir[PATH_MAX], project[PATH_MAX];
	struct project_id id;
};

static int setup(void **state)
{
	struct world *w = calloc(1, sizeof(*w));
	char template[] = "/tmp/ak-project-XXXXXX", path[PATH_MAX + 8];
	struct ak_err err;

	if (!w || !tmp_dir(template) || !realpath(template, w->dir))
		return -1;
	snprintf(path, sizeof(path), "%s/a", w->dir);
	if (mkdir(path, 0700) < 0 || strlen(path) + 2 >= PATH_MAX)
		return -1;
	strcat(path, "/b");
	if (mkdir(path, 0700) < 0)
		return -1;
	*state = w;
	return project_name(path, "project folder", w->project, &w->id, &err);
}

static int teardown(void **state)
{
	struct world *w = *state;

	ak_remove_tree(AT_FDCWD, w->dir);
	free(w);
	return 0;
}

static int again(const struct world *w, struct ak_err *err)
{
	struct project_id now;

	return project_again(w->project, &w->id, &now, err);
}

/* PATH below the world's folder; the buffer is reused every second time. */
static const char *at(const struct world *w, const char *path)
{
	static char buf[2][PATH_MAX + 64];
	static int turn;

	turn = !turn;
	snprintf(buf[turn], sizeof(buf[turn]), "%s/%s", w->dir, path);
	return buf[turn];
}

static void the_same_folder_is_found_again(void **state)
{
	struct world *w = *state;
	struct ak_err err;

	assert_int_equal(again(w, &err), 0);
	assert_int_equal(rename(at(w, "a"), at(w, "x")), 0);
	assert_int_equal(again(w, &err), -ENOENT);
	assert_int_equal(rename(at(w, "x"), at(w, "a")), 0);
	assert_int_equal(again(w, &err), 0);
}

static void a_link_in_any_part_is_an_error(void **state)
{
	struct world *w = *state;
	struct ak_err err;

	assert_int_equal(rename(at(w, "a/b"), at(w, "a/c")), 0);
	assert_int_equal(symlink("c", at(w, "a/b")), 0);
	assert_int_equal(again(w, &err), -ELOOP);
	assert_non_null(strstr(err.text, w->project));
	assert_non_null(strstr(err.text, "remove the sandbox"));
	assert_int_equal(unlink(at(w, "a/b")), 0);
	assert_int_equal(rename(at(w, "a/c"), at(w, "a/b")), 0);
	assert_int_equal(rename(at(w, "a"), at(w, "x")), 0);
	assert_int_equal(symlink("x", at(w, "a")), 0);
	assert_int_equal(again(w, &err), -ELOOP);
}

static void another_folder_or_a_file_is_an_error(void **state)
{
	struct world *w = *state;
	struct project_id unknown = { .ino = 0 }, now;
	struct ak_err err;

	assert_int_equal(rename(at(w, "a/b"), at(w, "a/c")), 0);
	assert_int_equal(mkdir(at(w, "a/b"), 0700), 0);
	assert_int_equal(again(w, &err), -ESTALE);
	assert_non_null(strstr(err.text, "--accept-dir"));
	assert_int_equal(project_again(w->project, &unknown, &now, &err), 0);
	assert_int_equal(rmdir(at(w, "a/b")), 0);
	assert_int_equal(mknod(at(w, "a/b"), S_IFREG | 0600, 0), 0);
	assert_int_equal(again(w, &err), -ENOTDIR);
}

/* File systems take the time from the clock's last tick. */
static void await_tick(uint64_t after_ns)
{
	struct timespec now;

	do
		clock_gettime(CLOCK_REALTIME_COARSE, &now);
	while ((uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec <= after_ns);
}

/* Made anew it may well get the number of the old one. */
static void a_folder_made_anew_is_another(void **state)
{
	struct world *w = *state;
	struct ak_err err;

	if (!w->id.born_ns)
		skip();
	await_tick(w->id.born_ns);
	for (int i = 0; i < 8; i++) {
		assert_int_equal(rmdir(w->project), 0);
		assert_int_equal(mkdir(w->project, 0700), 0);
		assert_int_equal(again(w, &err), -ESTALE);
	}
}

static void another_number_of_the_device_is_no_other_folder_where_births_are_known(void **state)
{
	struct world *w = *state;
	struct ak_err err;

	if (!w->id.born_ns)
		skip();
	w->id.dev ^= 1;
	assert_int_equal(again(w, &err), 0);
	w->id.born_ns = 0;
	assert_int_equal(again(w, &err), -ESTALE);
	w->id.dev ^= 1;
	assert_int_equal(again(w, &err), 0);
}

static void an_identity_is_three_numbers(void **state)
{
	static const char *const bad[] = { "", "1", "1:2", "1:2:", "1:2:3:", "1:2:3:4", ":2:3", "1::3", "-1:2:3", " 1:2:3",
		"1:2:3 ", "1:2:99999999999999999999", "a:2:3" };
	struct project_id id = { .dev = 1, .ino = UINT64_MAX, .born_ns = 3 }, back;
	char text[PROJECT_ID_TEXT];

	assert_int_equal(project_id_parse(project_id_print(&id, text), &back), 0);
	assert_memory_equal(&id, &back, sizeof(id));
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(project_id_parse(bad[i], &back), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(the_same_folder_is_found_again, setup, teardown),
		cmocka_unit_test_setup_teardown(a_link_in_any_part_is_an_error, setup, teardown),
		cmocka_unit_test_setup_teardown(another_folder_or_a_file_is_an_error, setup, teardown),
		cmocka_unit_test_setup_teardown(a_folder_made_anew_is_another, setup, teardown),
		cmocka_unit_test_setup_teardown(
			another_number_of_the_device_is_no_other_folder_where_births_are_known, setup, teardown),
		cmocka_unit_test(an_identity_is_three_numbers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
