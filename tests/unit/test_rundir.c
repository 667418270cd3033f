/* The folders of past runs: how many stay, which never go, and that a folder which is used again has nothing of the run before. */
#include "gateway/store/rundir.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/log/audit.h"
#include "tests/unit/tmp_dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

enum { MANY = RUNDIR_KEEP + RUNDIR_KEEP / 10 + 1 };

static struct ak_paths paths;

static int setup(void **state)
{
	snprintf(paths.state, sizeof(paths.state), "/tmp/ak-rundir-XXXXXX");
	return tmp_dir(paths.state) ? 0 : -1;
}

static int teardown(void **state)
{
	return ak_remove_tree(AT_FDCWD, paths.state);
}

static const char *path_of(const char *file)
{
	static char path[PATH_MAX];

	snprintf(path, sizeof(path), "%.100s/runs/%s", paths.state, file);
	return path;
}

static struct rundir make(const char *name, bool keep)
{
	struct ak_err err = { "" };
	struct rundir d;

	if (rundir_create(&d, &paths, name, keep, &err) < 0)
		fail_msg("%s", err.text);
	return d;
}

/* Past runs, the first the oldest. */
static void make_past(unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		char name[32];
		struct rundir d;
		struct timespec then[2] = { { .tv_sec = 1000 + i }, { .tv_sec = 1000 + i } };

		snprintf(name, sizeof(name), "run-%08x", i);
		d = make(name, false);
		assert_int_equal(write(d.log_fd, "secret\n", 7), 7);
		assert_int_equal(futimens(d.dir_fd, then), 0);
		rundir_done(&d);
	}
}

static unsigned count(const char *prefix)
{
	DIR *dir = opendir(path_of(""));
	unsigned n = 0;

	assert_non_null(dir);
	for (struct dirent *e; (e = readdir(dir));)
		n += !strncmp(e->d_name, prefix, strlen(prefix));
	closedir(dir);
	return n;
}

static void the_oldest_go_and_the_rest_stay(void **state)
{
	make_past(MANY);
	rundir_prune(&paths);
	assert_int_equal(count("run-"), RUNDIR_KEEP);
	assert_int_equal(access(path_of("run-00000000"), F_OK), -1);
	assert_int_equal(access(path_of("run-00000014"), F_OK), -1);
	assert_int_equal(access(path_of("run-00000015"), F_OK), 0);
}

static void what_lives_or_is_kept_stays_and_strangers_files_go(void **state)
{
	struct rundir alive;

	make_past(MANY);
	alive = make("run-alive", false);
	assert_int_equal(futimens(alive.dir_fd, (struct timespec[2]){ { .tv_sec = 1 }, { .tv_sec = 1 } }), 0);
	assert_int_equal(mkdir(path_of("run-00000000/upper"), 0700), 0);
	assert_int_equal(symlink("/etc/passwd", path_of("run-00000001/other")), 0);
	assert_int_equal(unlink(path_of("run-00000002/network.jsonl")), 0);
	assert_int_equal(symlink("../../outside", path_of("run-00000002/network.jsonl")), 0);
	assert_int_equal(ak_write_file(path_of("../outside"), ""), -ENOENT);
	assert_int_equal(close(open(path_of("../outside"), O_WRONLY | O_CREAT | O_CLOEXEC, 0600)), 0);
	assert_int_equal(ak_write_file(path_of("../outside"), "x"), 0);
	for (unsigned i = 0; i < 3; i++) { /* what was put into a folder made it look new */
		char name[32];

		snprintf(name, sizeof(name), "run-%08x", i);
		assert_int_equal(
			utimensat(AT_FDCWD, path_of(name), (struct timespec[2]){ { .tv_sec = 2 }, { .tv_sec = 2 } }, 0), 0);
	}
	rundir_prune(&paths);
	assert_int_equal(access(path_of("run-alive"), F_OK), 0);
	assert_int_equal(access(path_of("run-00000000/upper"), F_OK), 0);
	assert_int_equal(access(path_of("run-00000001"), F_OK), -1);
	assert_int_equal(access(path_of("run-00000002"), F_OK), -1);
	assert_int_equal(faccessat(AT_FDCWD, path_of("../outside"), F_OK, 0), 0);
	rundir_done(&alive);
}

static void a_folder_that_is_used_again_is_empty_and_new(void **state)
{
	struct rundir d;
	unsigned spares;
	struct stat st;

	make_past(MANY);
	rundir_prune(&paths);
	spares = count(".spare-");
	assert_true(spares > 0);
	d = make("run-new", false);
	assert_int_equal(count(".spare-"), spares - 1);
	assert_int_equal(fstat(d.log_fd, &st), 0);
	assert_int_equal(st.st_size, 0);
	assert_int_equal(fstat(d.dir_fd, &st), 0);
	assert_true(st.st_mtim.tv_sec > 1000000);
	rundir_done(&d);
	rundir_prune(&paths);
	assert_int_equal(access(path_of("run-new"), F_OK), 0);
}

static void folders_are_made_in_advance_and_taken_first(void **state)
{
	struct rundir d;

	rundir_stock(&paths, 2);
	assert_int_equal(mkdir(path_of(".new"), 0700), 0); /* half made, by one who was killed */
	rundir_stock(&paths, 3);
	assert_int_equal(count(".spare-"), 3);
	rundir_stock(&paths, 1000);
	assert_int_equal(count(".spare-"), 32);
	assert_int_equal(count(".new"), 0);
	d = make("run-a", false);
	assert_int_equal(count(".spare-"), 31);
	rundir_done(&d);
	assert_int_equal(access(path_of("run-a/network.jsonl"), F_OK), 0);
}

/* Each begins and ends runs, and prunes after every one: whether all of them got their folders. */
static int run_and_prune(unsigned who)
{
	for (unsigned i = 0; i < 250; i++) {
		struct rundir d;
		struct ak_err err;
		char name[32];

		snprintf(name, sizeof(name), "run-%02x%06x", who, i);
		if (rundir_create(&d, &paths, name, false, &err) < 0) {
			fprintf(stderr, "%s\n", err.text);
			return 1;
		}
		rundir_done(&d);
		rundir_prune(&paths);
	}
	return 0;
}

static void folders_that_are_being_taken_are_not_pruned(void **state)
{
	int status, failed = 0;

	for (unsigned who = 0; who < 6; who++) {
		pid_t pid = fork();

		assert_true(pid >= 0);
		if (pid == 0)
			_exit(run_and_prune(who));
	}
	while (wait(&status) > 0)
		failed += status != 0;
	assert_int_equal(failed, 0);
}

static void a_name_that_is_taken_is_refused(void **state)
{
	struct ak_err err = { "" };
	struct rundir d;

	make_past(1);
	assert_true(rundir_create(&d, &paths, "run-00000000", false, &err) < 0);
	assert_int_equal(access(path_of("run-00000000/network.jsonl"), F_OK), 0);
}

/* A past run of ORIGIN, SECONDS ago, that was denied a name or not. */
static void make_run(const char *name, enum run_origin origin, bool denied, long seconds)
{
	char *argv[] = { (char[]){ "true" }, NULL };
	struct run_request opts = { .origin = origin, .argv = argv };
	struct run_outcome outcome = { .net.denied = denied };
	struct run_plan plan = { .network = true };
	struct timespec then[2] = { { .tv_sec = time(NULL) - seconds }, { .tv_sec = time(NULL) - seconds } };
	struct rundir d = make(name, false);
	struct audit_writer w;
	struct ak_err err;

	snprintf(plan.name, sizeof(plan.name), "%s", name);
	audit_writer_init(&w, dup(d.log_fd), 0, NULL, 0);
	if (denied)
		audit_write_net(&w,
			&(struct audit_net){
				.event = "dns", .verdict = "deny", .name = "evil.test", .qtype = "A", .rule = "default" });
	audit_writer_done(&w);
	if (rundir_record_end(&d, &plan, &opts, &outcome, &err) < 0)
		fail_msg("%s", err.text);
	assert_int_equal(futimens(d.dir_fd, then), 0);
	rundir_done(&d);
}

static void make_runs(const char *prefix, unsigned n, enum run_origin origin, bool denied, long seconds)
{
	char name[32];

	for (unsigned i = 0; i < n; i++) {
		snprintf(name, sizeof(name), "run-%s%04x", prefix, i);
		make_run(name, origin, denied, seconds);
	}
}

static const char *events_text(void)
{
	static char *text;

	free(text);
	assert_int_equal(ak_read_file(AT_FDCWD, path_of("../events.jsonl"), 64u << 20, &text, NULL), 0);
	return text;
}

static void a_flood_of_one_origin_takes_nothing_from_another(void **state)
{
	make_run("run-mine", RUN_ORIGIN_CLI, false, 5 * 86400);
	make_run("run-guilty", RUN_ORIGIN_MCP, true, 5 * 86400);
	make_runs("m", RUNDIR_CLEAN_MAX + 60, RUN_ORIGIN_MCP, false, 60);
	rundir_prune(&paths);
	assert_int_equal(access(path_of("run-mine"), F_OK), 0);
	assert_int_equal(access(path_of("run-guilty"), F_OK), 0);
	assert_int_equal(count("run-m0"), RUNDIR_CLEAN_MAX);
	assert_null(strstr(events_text(), "\"event\":\"run_prune\",\"sandbox\":\"run-guilty\""));
	assert_non_null(strstr(events_text(), "\"event\":\"run_prune\",\"origin\":\"mcp\",\"runs\":[\"run-m"));
}

/* A run that was killed before it could write its end. */
static void make_unfinished(const char *name, enum run_origin origin)
{
	char *argv[] = { (char[]){ "true" }, NULL };
	struct run_request opts = { .origin = origin, .argv = argv };
	struct run_plan plan = { .network = true };
	struct rundir d = make(name, false);
	struct ak_err err;

	snprintf(plan.name, sizeof(plan.name), "%s", name);
	if (rundir_record_start(&d, &plan, &opts, NULL, &err) < 0)
		fail_msg("%s", err.text);
	rundir_done(&d);
}

static void unfinished_runs_count_for_their_own_origin(void **state)
{
	char name[32];

	make_run("run-guilty", RUN_ORIGIN_CLI, true, 5 * 86400);
	for (unsigned i = 0; i < RUNDIR_DENIED_MAX + 60; i++) {
		snprintf(name, sizeof(name), "run-u%04x", i);
		make_unfinished(name, RUN_ORIGIN_MCP);
	}
	rundir_prune(&paths);
	assert_int_equal(access(path_of("run-guilty"), F_OK), 0);
	assert_int_equal(count("run-u"), RUNDIR_DENIED_MAX);
}

static void runs_of_today_outlive_the_count(void **state)
{
	make_runs("a", MANY, RUN_ORIGIN_HTTP, false, 3600);
	rundir_prune(&paths);
	assert_int_equal(count("run-a"), MANY);
}

static void what_a_run_was_denied_is_told_before_it_goes(void **state)
{
	make_run("run-guilty", RUN_ORIGIN_CLI, true, 9 * 86400);
	make_runs("d", MANY, RUN_ORIGIN_CLI, true, 2 * 86400);
	rundir_prune(&paths);
	assert_int_equal(access(path_of("run-guilty"), F_OK), -1);
	assert_non_null(strstr(events_text(),
		"\"event\":\"run_prune\",\"sandbox\":\"run-guilty\",\"origin\":\"cli\",\"denials\":[{\"count\":1,\"dest\":\"evil.test A\""));
}

static void what_cannot_be_told_stays(void **state)
{
	make_past(MANY);
	assert_int_equal(mkdir(path_of("../events.jsonl"), 0700), 0);
	rundir_prune(&paths);
	assert_int_equal(count("run-"), MANY);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_flood_of_one_origin_takes_nothing_from_another, setup, teardown),
		cmocka_unit_test_setup_teardown(runs_of_today_outlive_the_count, setup, teardown),
		cmocka_unit_test_setup_teardown(unfinished_runs_count_for_their_own_origin, setup, teardown),
		cmocka_unit_test_setup_teardown(what_a_run_was_denied_is_told_before_it_goes, setup, teardown),
		cmocka_unit_test_setup_teardown(what_cannot_be_told_stays, setup, teardown),
		cmocka_unit_test_setup_teardown(the_oldest_go_and_the_rest_stay, setup, teardown),
		cmocka_unit_test_setup_teardown(what_lives_or_is_kept_stays_and_strangers_files_go, setup, teardown),
		cmocka_unit_test_setup_teardown(a_folder_that_is_used_again_is_empty_and_new, setup, teardown),
		cmocka_unit_test_setup_teardown(folders_are_made_in_advance_and_taken_first, setup, teardown),
		cmocka_unit_test_setup_teardown(folders_that_are_being_taken_are_not_pruned, setup, teardown),
		cmocka_unit_test_setup_teardown(a_name_that_is_taken_is_refused, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
