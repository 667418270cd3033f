/* A sandbox started cold: what every sandbox has (test_sandbox_world.h), kept roots, and how all of it ends. */
#include "test_sandbox_world.h"

#include <sys/prctl.h>
#include <time.h>

/* ---- kept roots ---- */

static void nothing_of_the_hosts_root_is_left_above(void **state)
{
	char upper[256];

	snprintf(upper, sizeof(upper), "%s", work_path("upper3"));
	assert_int_equal(mkdir(upper, 0700), 0);
	for (enum sandbox_isolation i = SANDBOX_MODERATE; i < SANDBOX_ISOLATION_NUM; i++) {
		for (int kept = 0; kept < 2; kept++) {
			_cleanup_trial_ struct trial t;

			trial_init(&t, i);
			t.spec.upper_dir = kept ? upper : NULL;
			expect_one_root(&t);
		}
	}
}

static void a_kept_sandbox_finds_its_files_again(void **state)
{
	_cleanup_trial_ struct trial t;
	char upper[256];

	snprintf(upper, sizeof(upper), "%s", work_path("upper"));
	assert_int_equal(mkdir(upper, 0700), 0);
	trial_init(&t, SANDBOX_MODERATE);
	t.spec.upper_dir = upper;
	RUN_OK(&t, "sh", "-c", "echo 1 > ~/a; echo 2 > /tmp/b; echo 3 > /etc/c; echo 4 > /usr/local/bin/d");
	RUN_OK(&t, "sh", "-c", "cat ~/a /tmp/b /etc/c /usr/local/bin/d");
	assert_string_equal(t.text, "1\n2\n3\n4\n");
}

static void a_kept_root_with_planted_links_reaches_nothing_outside(void **state)
{
	_cleanup_trial_ struct trial t;
	char upper[256];

	snprintf(upper, sizeof(upper), "%s", work_path("upper2"));
	assert_int_equal(mkdir(upper, 0700), 0);
	put_file("victim", "untouched");
	trial_init(&t, SANDBOX_MODERATE);
	t.spec.upper_dir = upper;
	RUN_OK(&t, "true");
	assert_int_equal(unlink(work_path("upper2/root/etc/passwd")), 0);
	snprintf(upper, sizeof(upper), "%s/victim", work_dir);
	assert_int_equal(symlink(upper, work_path("upper2/root/etc/passwd")), 0);
	snprintf(upper, sizeof(upper), "%s", work_path("upper2"));
	RUN_OK(&t, "grep", "-q", "agent", "/etc/passwd");
	assert_int_equal(rmdir(work_path("upper2/root/proc")), 0);
	assert_int_equal(symlink("/home", work_path("upper2/root/proc")), 0);
	/* Moved aside, not followed: it starts again, and nothing is lost. */
	RUN_OK(&t, "test", "-d", "/proc/self", "-a", "-L", "/proc.replaced");
}

/* ---- limits ---- */

static void the_process_limit_is_said_where_a_group_counts(void **state)
{
	_cleanup_trial_ struct trial t;

	trial_init(&t, SANDBOX_STRICT);
	t.spec.limits.pids = 50;
	t.spec.limits.memory_bytes = (uint64_t)1 << 30; /* tells whether groups can be made */
	RUN_OK(&t, "/probe", "forks");
	assert_null(strstr(t.notes, "pids limit off"));
	if (geteuid() == 0 && !strstr(t.notes, "memory limit off"))
		assert_true(t.result.pids_hit);
}

/* ---- ends ---- */

static void start_doomed(void *arg)
{
	const bool *go = arg;
	struct trial t;

	trial_init(&t, SANDBOX_STRICT);
	t.spec.limits.memory_bytes = *go ? (uint64_t)64 << 20 : 0;
	trial_start(&t, (const char *const[]){ "sleep", "1000", NULL });
	if (*go)
		trial_go(&t);
}

/* Whether a control group of caller PID is below our own, in any hierarchy. */
static bool has_cgroup(pid_t pid)
{
	_cleanup_fclose_ FILE *f = fopen("/proc/self/cgroup", "r");
	char line[PATH_MAX], path[3 * PATH_MAX];

	assert_non_null(f);
	while (fgets(line, sizeof(line), f)) {
		char *list = strchr(line, ':') + 1, *own = strchr(list, ':');

		line[strcspn(line, "\n")] = '\0';
		*own++ = '\0';
		snprintf(path, sizeof(path), "/sys/fs/cgroup/%s%s/agentkernel-test-%d", list, own, (int)pid);
		if (access(path, F_OK) == 0)
			return true;
	}
	return false;
}

static void kill_a_caller(bool go, int delay_us)
{
	pid_t pid = kill_caller(start_doomed, &go, delay_us);

	assert_false(has_cgroup(pid));
}

static void killing_the_caller_at_any_moment_leaves_nothing(void **state)
{
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	kill_a_caller(true, 0);
	for (int i = 0; i < 40; i++)
		kill_a_caller(false, i * 150);
	prctl(PR_SET_CHILD_SUBREAPER, 0);
}

static void freeing_at_any_moment_leaves_no_process(void **state)
{
	for (int i = 0; i < 20; i++) {
		struct timespec delay = { .tv_nsec = i * 300000L };
		struct trial t;

		trial_init(&t, SANDBOX_STRICT);
		trial_start(&t, (const char *const[]){ "sleep", "1000", NULL });
		nanosleep(&delay, NULL);
		trial_done(&t);
		wait_for_no_children();
	}
}

static void a_kill_at_any_moment_of_the_start_ends_it(void **state)
{
	for (int i = 0; i < 60; i++) {
		struct timespec delay = { .tv_nsec = i * 40000L };
		_cleanup_trial_ struct trial t;

		trial_init(&t, SANDBOX_STRICT);
		trial_start(&t, (const char *const[]){ "sleep", "1000", NULL });
		nanosleep(&delay, NULL);
		assert_int_equal(sandbox_signal(t.sb, SIGKILL), 0);
		assert_int_equal(trial_finish(&t), 137);
		wait_for_no_children();
	}
}

static void killing_init_is_noticed(void **state)
{
	_cleanup_trial_ struct trial t;

	trial_init(&t, SANDBOX_STRICT);
	trial_start(&t, (const char *const[]){ "sleep", "1000", NULL });
	trial_go(&t);
	assert_int_equal(kill(sandbox_init_pid(t.sb), SIGKILL), 0);
	assert_int_equal(trial_finish(&t), 137);
}

static void a_bad_spec_is_refused(void **state)
{
	_cleanup_trial_ struct trial t;
	struct sandbox *sb = NULL;
	struct ak_err err;
	char *const argv[] = { (char *)(uintptr_t) "true", NULL };

	trial_init(&t, SANDBOX_STRICT);
	t.spec.argv = argv;
	t.spec.root_inside = true;
	assert_int_equal(sandbox_start(&t.spec, -1, &sb, &err), -EINVAL);
	t.spec.root_inside = false;
	t.spec.stdio[0] = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_int_equal(sandbox_start(&t.spec, -1, &sb, &err), -EISDIR);
	t.spec.stdio[0] = ak_close(t.spec.stdio[0]);
	t.spec.home = "relative";
	assert_int_equal(sandbox_start(&t.spec, -1, &sb, &err), -EINVAL);
	assert_null(sb);
}

/* In a user namespace of its own, a process may forbid itself further ones: the host as it is with that sysctl. */
static int without_user_namespaces(void)
{
	struct trial t;
	int rc;

	if (unshare(CLONE_NEWUSER) < 0 || ak_write_file("/proc/sys/user/max_user_namespaces", "0") < 0)
		return 77;
	trial_init(&t, SANDBOX_STRICT);
	rc = RUN(&t, "true");
	return rc == 125 && strstr(t.result.err.text, "max_user_namespaces") ? 0 : 1;
}

static void without_user_namespaces_the_setting_is_named(void **state)
{
	pid_t pid = fork();
	int status;

	assert_true(pid >= 0);
	if (pid == 0)
		_exit(without_user_namespaces());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static void start_takes_milliseconds(void **state)
{
	enum { RUNS = 20 };
	double total_ms = 0, best_ms = 1e9;

	for (int i = 0; i < RUNS; i++) {
		struct timespec a, b;
		struct trial t;
		double ms;

		trial_init(&t, SANDBOX_STRICT);
		clock_gettime(CLOCK_MONOTONIC, &a);
		assert_int_equal(RUN(&t, "true"), 0);
		clock_gettime(CLOCK_MONOTONIC, &b);
		trial_done(&t);
		ms = (double)(b.tv_sec - a.tv_sec) * 1e3 + (double)(b.tv_nsec - a.tv_nsec) / 1e6;
		total_ms += ms;
		best_ms = ms < best_ms ? ms : best_ms;
	}
	print_message("start, READY, `true`, gone: mean %.2f ms, best %.2f ms\n", total_ms / RUNS, best_ms);
	assert_true(best_ms < 200); /* only a guard: bench compares properly */
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		WORLD_TESTS,
		cmocka_unit_test(nothing_of_the_hosts_root_is_left_above),
		cmocka_unit_test(the_process_limit_is_said_where_a_group_counts),
		cmocka_unit_test(a_kept_sandbox_finds_its_files_again),
		cmocka_unit_test(a_kept_root_with_planted_links_reaches_nothing_outside),
		cmocka_unit_test(killing_the_caller_at_any_moment_leaves_nothing),
		cmocka_unit_test(freeing_at_any_moment_leaves_no_process),
		cmocka_unit_test(a_kill_at_any_moment_of_the_start_ends_it),
		cmocka_unit_test(killing_init_is_noticed),
		cmocka_unit_test(a_bad_spec_is_refused),
		cmocka_unit_test(without_user_namespaces_the_setting_is_named),
		cmocka_unit_test(start_takes_milliseconds),
	};
	int rc = run_probe(world_probes, argc, argv);

	if (rc >= 0)
		return rc;
	rc = namespaces_missing();
	return rc >= 0 ? rc : cmocka_run_group_tests(tests, make_work_dir, remove_work_dir);
}
