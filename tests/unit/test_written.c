/* The record of folders that sandboxes could write: what it covers, that it is bounded, and that a damaged one covers everything. */
#include "gateway/store/written.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/base/strbuf.h"
#include "gateway/store/plan.h"
#include "tests/unit/state_world.h"

#include <errno.h>
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

static const char *at(const struct world *w, const char *name)
{
	static char paths[16][PATH_MAX];
	static unsigned next;
	char *ret = paths[next++ % 16];

	assert_int_equal(ak_path_join(ret, w->paths.config, name, NULL), 0); /* any folder that is not the state folder */
	return ret;
}

static const char *make(const struct world *w, const char *name)
{
	const char *path = at(w, name);

	assert_int_equal(ak_mkdir_p(path, 0700), 0);
	return path;
}

static void add(const struct world *w, const char *path, bool readonly)
{
	static struct run_plan plan;
	struct ak_err err;

	plan.mounts[0] = (struct sandbox_mount){ .source = path, .target = path, .readonly = readonly };
	plan.n_mounts = 1;
	assert_int_equal(written_add_plan(&w->paths, &plan, &err), 0);
}

static bool has(const struct world *w, const char *path)
{
	_cleanup_(written_done) struct written r = { .paths = &w->paths };

	return written_has(&r, path);
}

static size_t count(const struct world *w)
{
	_cleanup_(written_done) struct written r = { .paths = &w->paths };

	(void)written_has(&r, "/");
	return r.n;
}

static void put(const struct world *w, const struct strbuf *text)
{
	_cleanup_close_ int dir = -1;

	assert_int_equal(ak_mkdir_p(w->paths.state, 0700), 0);
	dir = open(w->paths.state, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	assert_int_equal(ak_replace_file(dir, "written", text->data, text->len, false), 0);
}

static void what_was_writable_is_remembered_with_what_is_in_it(void **state)
{
	struct world *w = *state;
	const char *p = make(w, "p");

	assert_false(has(w, p));
	add(w, p, false);
	add(w, make(w, "r"), true);
	assert_true(has(w, p) && has(w, at(w, "p/bin/tool")));
	assert_false(has(w, at(w, "pp")) || has(w, at(w, "r")) || has(w, w->paths.config));
	add(w, p, false);
	assert_int_equal(count(w), 1);
}

static void a_folder_that_was_moved_is_recognised(void **state)
{
	struct world *w = *state;

	add(w, make(w, "old"), false);
	make(w, "old/bin");
	assert_int_equal(rename(at(w, "old"), at(w, "new")), 0);
	assert_true(has(w, at(w, "new")) && has(w, at(w, "new/bin")) && has(w, at(w, "old")));
	assert_false(has(w, make(w, "other")));
}

static void a_folder_that_was_moved_out_of_a_recorded_one_is_recognised(void **state)
{
	struct world *w = *state;

	add(w, make(w, "outer"), false);
	add(w, make(w, "outer/p"), false);
	add(w, at(w, "outer/p"), false);
	assert_int_equal(count(w), 2);
	make(w, "outer/p/bin");
	assert_int_equal(rename(at(w, "outer/p"), at(w, "moved")), 0);
	assert_true(has(w, at(w, "moved/bin")));
	assert_false(has(w, make(w, "other")));
}

static void a_name_may_hold_any_byte(void **state)
{
	struct world *w = *state;

	add(w, make(w, "a\nb c"), false);
	assert_true(has(w, at(w, "a\nb c/x")));
	assert_false(has(w, at(w, "a")));
}

static void a_damaged_record_covers_everything_and_no_sandbox_starts(void **state)
{
	static const char *const bad[] = { "x", "1:2:3", "1:2:3 relative", "1:2 /a", " /a" };
	struct world *w = *state;
	static struct run_plan plan;
	struct ak_err err;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		_cleanup_strbuf_ struct strbuf text = { 0 };

		strbuf_puts(&text, bad[i]);
		put(w, &text);
		assert_true(has(w, "/nothing"));
		plan.mounts[0] = (struct sandbox_mount){ .source = w->paths.config, .target = "/x" };
		plan.n_mounts = 1;
		assert_true(written_add_plan(&w->paths, &plan, &err) < 0);
	}
}

/* N entries of folders FMT, which need not exist. */
static void fill(const struct world *w, const char *folder, unsigned n, bool create)
{
	_cleanup_strbuf_ struct strbuf text = { 0 };
	char name[64];

	for (unsigned i = 0; i < n; i++) {
		snprintf(name, sizeof(name), "%s/%u", folder, i);
		strbuf_printf(&text, "1:%u:5 %s", i + 1, create ? make(w, name) : at(w, name));
		strbuf_putc(&text, '\0');
	}
	put(w, &text);
}

static void a_full_record_forgets_folders_that_are_gone(void **state)
{
	struct world *w = *state;

	fill(w, "gone", WRITTEN_MAX, false);
	add(w, make(w, "last"), false);
	assert_int_equal(count(w), 1);
	assert_true(has(w, at(w, "last")));
	assert_false(has(w, at(w, "gone")));
}

static void a_full_record_names_the_parent_of_most_and_never_too_little(void **state)
{
	struct world *w = *state;

	make(w, "many");
	fill(w, "many", WRITTEN_MAX, true);
	add(w, make(w, "apart/one"), false);
	assert_true(count(w) <= WRITTEN_MAX / 2);
	assert_true(
		has(w, at(w, "apart/one/x")) && has(w, at(w, "many/0")) && has(w, at(w, "many/1023/x")) && has(w, at(w, "many")));
	assert_false(has(w, at(w, "apart")) || has(w, at(w, "elsewhere")));
}

static void a_full_record_keeps_the_identity_of_the_parent(void **state)
{
	struct world *w = *state;

	make(w, "many");
	fill(w, "many", WRITTEN_MAX - 1, true);
	add(w, at(w, "many"), false);
	add(w, make(w, "many/last"), false);
	assert_int_equal(count(w), 1);
	assert_int_equal(rename(at(w, "many"), at(w, "moved")), 0);
	assert_true(has(w, at(w, "moved/0")) && has(w, at(w, "many")));
}

static void a_folder_in_one_that_stands_for_many_is_not_recorded(void **state)
{
	struct world *w = *state;
	size_t before;

	make(w, "many");
	fill(w, "many", WRITTEN_MAX, true);
	add(w, make(w, "many/last"), false);
	before = count(w);
	add(w, make(w, "many/next"), false);
	assert_int_equal(count(w), before);
}

/* In use from the N-th question on. */
static int in_use_from(void *ctx, struct ak_err *err)
{
	int *n = ctx;

	return --*n > 0 ? 0 : ak_fail(err, EBUSY, "in use");
}

static int forget(const struct world *w, const char *path, int from)
{
	struct ak_err err;

	return written_forget(&w->paths, path, in_use_from, &from, &err);
}

static void a_folder_that_is_forgotten_goes_with_what_is_in_it(void **state)
{
	struct world *w = *state;

	add(w, make(w, "a"), false);
	add(w, make(w, "b/c"), false);
	add(w, make(w, "b/d"), false);
	assert_int_equal(forget(w, at(w, "a/x"), 9), -EINVAL);
	assert_int_equal(forget(w, at(w, "x"), 9), -ENOENT);
	assert_int_equal(forget(w, at(w, "b"), 9), 0);
	assert_int_equal(count(w), 1);
	assert_true(has(w, at(w, "a")) && !has(w, at(w, "b/c")) && !has(w, at(w, "b/d")));
	assert_int_equal(forget(w, at(w, "b"), 9), -ENOENT);
	assert_int_equal(rename(at(w, "a"), at(w, "moved")), 0);
	assert_int_equal(forget(w, at(w, "moved"), 9), 0);
	assert_int_equal(count(w), 0);
}

static void a_folder_that_was_moved_away_is_forgotten_only_by_itself(void **state)
{
	struct world *w = *state;

	add(w, make(w, "a"), false);
	add(w, make(w, "a/p"), false);
	add(w, make(w, "a/q"), false);
	add(w, make(w, "a/r"), false);
	assert_int_equal(rename(at(w, "a/p"), at(w, "p")), 0);
	assert_int_equal(rename(at(w, "a/q"), at(w, "q")), 0);
	make(w, "a/q"); /* another folder in its place */
	assert_int_equal(rename(at(w, "a/r"), at(w, "r")), 0);
	assert_int_equal(symlink("../r", at(w, "a/r")), 0);
	assert_int_equal(forget(w, at(w, "a"), 9), 0);
	assert_true(has(w, at(w, "p")) && has(w, at(w, "q")) && has(w, at(w, "r")) && !has(w, at(w, "a")));
	assert_int_equal(forget(w, at(w, "p"), 9), 0); /* where it is now */
	assert_int_equal(forget(w, at(w, "r"), 9), 0);
	assert_int_equal(forget(w, at(w, "a/q"), 9), 0); /* where it was */
	assert_int_equal(count(w), 0);
}

static void what_came_into_use_meanwhile_is_not_forgotten(void **state)
{
	struct world *w = *state;

	add(w, make(w, "a"), false);
	assert_int_equal(forget(w, at(w, "a"), 1), -EBUSY);
	assert_true(has(w, at(w, "a")));
	assert_int_equal(forget(w, at(w, "a"), 2), -EBUSY); /* after the record was changed */
	assert_true(has(w, at(w, "a")));
	assert_int_equal(forget(w, at(w, "a"), 3), 0);
	assert_false(has(w, at(w, "a")));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(what_was_writable_is_remembered_with_what_is_in_it, setup, teardown),
		cmocka_unit_test_setup_teardown(a_folder_that_was_moved_is_recognised, setup, teardown),
		cmocka_unit_test_setup_teardown(a_folder_that_was_moved_out_of_a_recorded_one_is_recognised, setup, teardown),
		cmocka_unit_test_setup_teardown(a_name_may_hold_any_byte, setup, teardown),
		cmocka_unit_test_setup_teardown(a_damaged_record_covers_everything_and_no_sandbox_starts, setup, teardown),
		cmocka_unit_test_setup_teardown(a_full_record_forgets_folders_that_are_gone, setup, teardown),
		cmocka_unit_test_setup_teardown(a_full_record_names_the_parent_of_most_and_never_too_little, setup, teardown),
		cmocka_unit_test_setup_teardown(a_full_record_keeps_the_identity_of_the_parent, setup, teardown),
		cmocka_unit_test_setup_teardown(a_folder_in_one_that_stands_for_many_is_not_recorded, setup, teardown),
		cmocka_unit_test_setup_teardown(a_folder_that_is_forgotten_goes_with_what_is_in_it, setup, teardown),
		cmocka_unit_test_setup_teardown(a_folder_that_was_moved_away_is_forgotten_only_by_itself, setup, teardown),
		cmocka_unit_test_setup_teardown(what_came_into_use_meanwhile_is_not_forgotten, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
