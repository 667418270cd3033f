/* The store of images: names, one copy of the same image, locks, and what a process that died leaves. */
#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/image/image.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#define A64 "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define B64 "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"

static struct ak_paths paths;

static int setup(void **state)
{
	char template[] = "/tmp/ak-image-XXXXXX";

	if (!mkdtemp(template))
		return -1;
	snprintf(paths.state, sizeof(paths.state), "%s", template);
	return 0;
}

static int teardown(void **state)
{
	return ak_remove_tree(AT_FDCWD, paths.state);
}

/* As if the unpacker had made it. */
static void keep(const char *id, const char *name)
{
	char env0[] = "A=b", *env[] = { env0, NULL };
	struct image_config conf = { .env = env };
	struct image_facts facts = { .uid = 7, .gid = 8, .home = "/home/seven", .size_bytes = 42 };
	struct image_work w;
	struct ak_err err;

	snprintf(conf.id, sizeof(conf.id), "%s", id);
	assert_int_equal(image_work_begin(&paths, &w, &err), 0);
	assert_int_equal(mkdirat(w.fd, "out/rootfs", 0755), 0);
	assert_int_equal(image_work_keep(&paths, &w, &conf, &facts, name, &err), 0);
	image_work_end(&w);
}

static bool exists(const char *name)
{
	char path[PATH_MAX];
	struct stat st;

	assert_int_equal(ak_path_join(path, paths.state, "images", name), 0);
	return lstat(path, &st) == 0;
}

static int count_row(void *ctx, const struct image_row *row)
{
	assert_int_equal(row->size_bytes, 42);
	++*(int *)ctx;
	return 0;
}

static void count_gone(void *ctx, const struct image_row *row)
{
	++*(int *)ctx;
}

static void an_image_is_found_as_it_was_kept(void **state)
{
	struct image img;
	struct ak_err err;

	keep(A64, "docker.io/library/box:1");
	assert_int_equal(image_find(&paths, "box:1", &img, &err), 0);
	assert_string_equal(img.id, A64);
	assert_string_equal(img.env[0], "A=b");
	assert_int_equal(img.uid, 7);
	assert_int_equal(img.gid, 8);
	assert_string_equal(img.home, "/home/seven");
	assert_null(img.entrypoint);
	image_done(&img);
	assert_int_equal(image_find(&paths, "box:2", &img, &err), -ENOENT);
	assert_non_null(strstr(err.text, "agentkernel image pull box:2"));
	assert_int_equal(image_find(&paths, "BOX", &img, &err), -EINVAL);
}

static void a_short_name_finds_an_import_unless_docker_has_it(void **state)
{
	struct image img;
	struct ak_err err;

	keep(B64, "localhost/box:1");
	assert_int_equal(image_find(&paths, "box:1", &img, &err), 0);
	assert_string_equal(img.id, B64);
	image_done(&img);
	keep(A64, "docker.io/library/box:1");
	assert_int_equal(image_find(&paths, "box:1", &img, &err), 0);
	assert_string_equal(img.id, A64);
	image_done(&img);
	assert_int_equal(image_find(&paths, "localhost/box:1", &img, &err), 0);
	assert_string_equal(img.id, B64);
	image_done(&img);
}

static bool used_a(void *ctx, const char *id)
{
	return !strcmp(id, A64);
}

static void files_go_with_the_last_name_and_only_when_unused(void **state)
{
	struct image img;
	struct ak_err err;
	int n = 0;

	keep(A64, "docker.io/library/one:1");
	keep(A64, "docker.io/library/two:1");
	assert_int_equal(image_each(&paths, count_row, &n, &err), 0);
	assert_int_equal(n, 2);
	assert_int_equal(image_remove(&paths, "one:1", used_a, NULL, &err), 0);
	assert_true(exists(A64));
	assert_int_equal(image_remove(&paths, "two:1", used_a, NULL, &err), -EBUSY);
	assert_int_equal(image_find(&paths, "two:1", &img, &err), 0);
	assert_int_equal(image_remove(&paths, "two:1", NULL, NULL, &err), -EBUSY);
	image_done(&img);
	assert_int_equal(image_remove(&paths, "two:1", NULL, NULL, &err), 0);
	assert_false(exists(A64));
	assert_int_equal(image_remove(&paths, "two:1", NULL, NULL, &err), -ENOENT);
}

static void prune_leaves_what_is_used(void **state)
{
	struct ak_err err;
	int n = 0;

	keep(A64, "docker.io/library/one:1");
	keep(B64, "docker.io/library/two:1");
	keep(A64, "docker.io/library/two:1"); /* B has no name now */
	assert_true(exists(B64));
	assert_int_equal(image_prune(&paths, used_a, NULL, count_gone, &n, &err), 0);
	assert_true(exists(A64));
	assert_false(exists(B64));
	assert_int_equal(n, 1); /* one of A's two names: the other keeps the files */
	assert_int_equal(image_prune(&paths, NULL, NULL, count_gone, &n, &err), 0);
	assert_false(exists(A64));
}

static void the_next_import_removes_what_a_dead_one_left(void **state)
{
	struct image_work dead, live;
	struct ak_err err;
	struct stat st;

	assert_int_equal(image_work_begin(&paths, &dead, &err), 0);
	assert_int_equal(image_work_begin(&paths, &live, &err), 0);
	assert_int_equal(stat(dead.path, &st), 0); /* it is alive: locked */
	close(dead.fd);
	image_work_end(&live);
	assert_int_equal(image_work_begin(&paths, &live, &err), 0);
	assert_int_not_equal(stat(dead.path, &st), 0);
	image_work_end(&live);
	assert_int_not_equal(stat(live.path, &st), 0);
}

static void a_damaged_record_is_an_error_that_says_what_to_do(void **state)
{
	struct image img;
	struct ak_err err;
	char dir[PATH_MAX];
	int fd;

	keep(A64, "docker.io/library/box:1");
	assert_int_equal(ak_path_join(dir, paths.state, "images", A64), 0);
	fd = open(dir, O_RDONLY | O_DIRECTORY);
	assert_int_equal(ak_replace_file(fd, "image.json", "{", 1, false), 0);
	close(fd);
	assert_true(image_find(&paths, "box:1", &img, &err) < 0);
	assert_non_null(strstr(err.text, "image remove"));
}

#define STORE_TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		STORE_TEST(an_image_is_found_as_it_was_kept),
		STORE_TEST(a_short_name_finds_an_import_unless_docker_has_it),
		STORE_TEST(files_go_with_the_last_name_and_only_when_unused),
		STORE_TEST(prune_leaves_what_is_used),
		STORE_TEST(the_next_import_removes_what_a_dead_one_left),
		STORE_TEST(a_damaged_record_is_an_error_that_says_what_to_do),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
