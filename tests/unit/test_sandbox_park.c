/* A sandbox that was prepared before its job was known is like any other: the same world, and a few things of its own. */
#include "test_sandbox_world.h"

#include <sys/mount.h>
#include <sys/prctl.h>
#include <time.h>

static const char *const truth[] = { "true", NULL };

static void set_command(struct trial *t, const char *const *argv)
{
	t->spec.argv = (char *const *)(uintptr_t)argv;
}

/* Somebody else on this machine mounted something just now. */
static void skip_if_stale(struct trial *t, int rc)
{
	if (rc != -ESTALE)
		return;
	trial_done(t);
	skip();
}

static void a_parked_sandbox_waits_for_its_job(void **state)
{
	_cleanup_trial_ struct trial t;
	struct ak_err err;

	trial_init(&t, SANDBOX_STRICT);
	trial_park(&t);
	assert_int_equal(sandbox_go(t.sb, &err), -EBUSY);
	assert_int_equal(sandbox_root_fd(t.sb), -ENOENT);
	assert_int_equal(sandbox_signal(t.sb, SIGTERM), 0); /* for nobody */
	set_command(&t, truth);
	assert_int_equal(trial_assign(&t, &err), 0);
	assert_int_equal(trial_assign(&t, &err), -EBUSY);
	trial_go(&t);
	assert_int_equal(trial_finish(&t), 0);
}

static void it_is_only_what_it_was_prepared_for(void **state)
{
	_cleanup_trial_ struct trial t;
	struct ak_err err;

	trial_init(&t, SANDBOX_MODERATE);
	trial_park(&t);
	set_command(&t, truth);
	t.spec.isolation = SANDBOX_STRICT;
	assert_int_equal(trial_assign(&t, &err), -EINVAL);
	t.spec.isolation = SANDBOX_MODERATE;
	t.spec.readonly_root = true;
	assert_int_equal(trial_assign(&t, &err), -EINVAL);
	t.spec.readonly_root = false;
	t.spec.root_inside = true;
	assert_int_equal(trial_assign(&t, &err), -EINVAL);
	t.spec.root_inside = false;
	t.spec.upper_dir = "/tmp";
	assert_int_equal(trial_assign(&t, &err), -EINVAL);
	t.spec.upper_dir = NULL;
	t.spec.home = "relative";
	assert_int_equal(trial_assign(&t, &err), -EINVAL);
	t.spec.home = "/home/agent";
	assert_int_equal(trial_assign(&t, &err), 0);
}

static void a_folder_made_after_parking_is_mounted(void **state)
{
	_cleanup_trial_ struct trial t;
	struct ak_err err;
	char path[256];

	trial_init(&t, SANDBOX_STRICT);
	trial_park(&t);
	snprintf(path, sizeof(path), "%s", work_path("later"));
	assert_int_equal(mkdir(path, 0755), 0);
	put_file("later/file", "here");
	t.mounts[1] = (struct sandbox_mount){ .source = path, .target = path };
	t.spec.n_mounts = 2;
	t.spec.workdir = path;
	set_command(&t, (const char *const[]){ "cat", "file", NULL });
	skip_if_stale(&t, trial_assign(&t, &err));
	trial_go(&t);
	assert_int_equal(trial_finish(&t), 0);
	assert_string_equal(t.text, "here");
}

/* Another folder at the path than the one that the caller holds: what a mount made after parking looks like to init. */
static void a_source_that_is_another_folder_is_refused(void **state)
{
	_cleanup_trial_ struct trial t;
	struct ak_err err;
	struct stat st;

	trial_init(&t, SANDBOX_STRICT);
	trial_park(&t);
	assert_int_equal(stat("/tmp", &st), 0);
	t.mounts[1] = (struct sandbox_mount){ .source = work_dir, .target = work_dir, .dev = st.st_dev, .ino = st.st_ino };
	t.spec.n_mounts = 2;
	set_command(&t, truth);
	skip_if_stale(&t, trial_assign(&t, &err));
	assert_int_equal(trial_finish(&t), 125);
	assert_non_null(strstr(t.result.err.text, work_dir));
}

/* In a mount namespace of its own, a process may mount what it likes. */
/* A mount namespace of our own; root needs no user namespace for it. */
static int private_mounts(void)
{
	uid_t uid = geteuid();
	gid_t gid = getegid();
	char map[64];

	if (uid == 0)
		return unshare(CLONE_NEWNS);
	if (unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0)
		return -1;
	snprintf(map, sizeof(map), "%u %u 1\n", (unsigned)uid, (unsigned)uid);
	ak_write_file("/proc/self/setgroups", "deny");
	if (ak_write_file("/proc/self/uid_map", map) < 0)
		return -1;
	snprintf(map, sizeof(map), "%u %u 1\n", (unsigned)gid, (unsigned)gid);
	return ak_write_file("/proc/self/gid_map", map);
}

static int mount_after_parking(void)
{
	_cleanup_trial_ struct trial t;
	char before[256], after[256];
	struct ak_err err;

	if (private_mounts() < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return 77;
	trial_init(&t, SANDBOX_STRICT);
	set_command(&t, truth);
	trial_park(&t);
	if (sandbox_stale(t.sb))
		return 1;
	snprintf(before, sizeof(before), "%s", work_path("before"));
	snprintf(after, sizeof(after), "%s", work_path("before/sub"));
	if (mkdir(before, 0755) < 0 || mkdir(after, 0755) < 0 || mount("none", after, "tmpfs", 0, NULL) < 0)
		return 2;
	t.mounts[1] = (struct sandbox_mount){ .source = before, .target = before };
	t.spec.n_mounts = 2;
	return sandbox_stale(t.sb) && trial_assign(&t, &err) == -ESTALE ? 0 : 3;
}

static void a_mount_made_after_parking_is_noticed(void **state)
{
	pid_t pid = fork();
	int status;

	assert_true(pid >= 0);
	if (pid == 0)
		_exit(mount_after_parking());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

static void other_sandboxes_do_not_make_it_stale(void **state)
{
	_cleanup_trial_ struct trial t, other;

	trial_init(&other, SANDBOX_MODERATE);
	trial_init(&t, SANDBOX_MODERATE);
	for (int i = 0; i < 20; i++) {
		bool stale;

		trial_park(&t);
		RUN_OK(&other, "true");
		stale = sandbox_stale(t.sb);
		sandbox_free(t.sb);
		t.sb = NULL;
		if (!stale)
			return;
	}
	fail_msg("stale each time");
}

/* Whether the two print the same, name by name. */
static void it_looks_the_same_as_a_cold_one(void **state)
{
	static const char script[] =
		"cut -d' ' -f 5- /proc/self/mountinfo | sed 's/ [0-9]*:[0-9]* / /; s/subvol=[^ ]*//; s/fd.[0-9]*//g; s/size=[^,]*,//; s/shared:[0-9]*//' | sort; "
		"env | sort; id; pwd; hostname; cat /proc/self/cgroup /etc/passwd /etc/group /etc/hosts /etc/hostname /etc/resolv.conf; ulimit -a; "
		"grep -E '^(Cap|NoNew|Seccomp|Umask|Groups|Sig)' /proc/self/status; ls -laR /etc /dev /home /tmp /var /run | sed 's/ [A-Z][a-z][a-z] .* / /'; "
		"cat /proc/sys/kernel/pid_max; ls -l /proc/self/ns | wc -l";

	for (enum sandbox_isolation i = SANDBOX_MODERATE; i < SANDBOX_ISOLATION_NUM; i++) {
		_cleanup_trial_ struct trial cold, warm;

		trial_init(&cold, i);
		trial_init(&warm, i);
		cold.spec.limits.pids = warm.spec.limits.pids = 77;
		cold.spec.limits.memory_bytes = warm.spec.limits.memory_bytes = (uint64_t)256 << 20;
		trial_parks = false;
		SHELL(&cold, script);
		trial_parks = true;
		SHELL(&warm, script);
		assert_string_equal(cold.text, warm.text);
		assert_string_equal(cold.notes, warm.notes);
		assert_true(strlen(cold.text) > 2000);
	}
}

static void it_serves_commands_too(void **state)
{
	_cleanup_trial_ struct trial t;
	struct sandbox_exec_event ev;
	struct sandbox_exec ex = { .argv = (char *[]){ (char *)(uintptr_t) "pwd", NULL }, .envp = default_env };
	struct ak_err err;

	trial_init(&t, SANDBOX_STRICT);
	trial_start(&t, NULL);
	trial_go(&t);
	ex.stdio[0] = -1;
	ex.stdio[1] = ex.stdio[2] = t.out;
	assert_int_equal(sandbox_exec(t.sb, 1, &ex, &err), 0);
	for (ev.state = SANDBOX_EXEC_STARTED; ev.state != SANDBOX_EXEC_ENDED;) {
		struct pollfd p = { .fd = sandbox_fd(t.sb), .events = POLLIN };

		sandbox_poll(t.sb);
		if (!sandbox_exec_next(t.sb, &ev))
			assert_int_equal(poll(&p, 1, TIMEOUT_MS), 1);
	}
	assert_int_equal(ev.exit_code, 0);
}

/* ---- ends ---- */

static void freeing_one_leaves_no_process(void **state)
{
	for (int i = 0; i < 10; i++) {
		struct timespec delay = { .tv_nsec = i * 200000L };
		struct trial t;
		struct ak_err err;

		trial_init(&t, SANDBOX_STRICT);
		set_command(&t, truth);
		trial_park(&t);
		if (i % 2 && trial_assign(&t, &err) == 0)
			nanosleep(&delay, NULL); /* to hit another moment each time */
		trial_done(&t);
		wait_for_no_children();
	}
}

static void park_doomed(void *arg)
{
	struct trial t;

	trial_init(&t, SANDBOX_STRICT);
	trial_park(&t);
}

static void killing_the_caller_leaves_nothing(void **state)
{
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	kill_caller(park_doomed, NULL, 0);
	prctl(PR_SET_CHILD_SUBREAPER, 0);
}

static double fmin_ms(double best, const struct timespec *a, const struct timespec *b)
{
	double ms = (double)(b->tv_sec - a->tv_sec) * 1e3 + (double)(b->tv_nsec - a->tv_nsec) / 1e6;

	return ms < best ? ms : best;
}

static void a_job_starts_at_once(void **state)
{
	enum { RUNS = 30 };
	double best_ms = 1e9, best_gone_ms = 1e9;

	for (int i = 0; i < RUNS; i++) {
		struct timespec a, b, c;
		struct trial t;
		struct ak_err err;

		trial_init(&t, SANDBOX_STRICT);
		set_command(&t, truth);
		trial_park(&t);
		clock_gettime(CLOCK_MONOTONIC, &a);
		if (trial_assign(&t, &err) == 0) {
			trial_go(&t);
			trial_wait(&t, SANDBOX_ENDED);
			clock_gettime(CLOCK_MONOTONIC, &b);
			trial_done(&t);
			clock_gettime(CLOCK_MONOTONIC, &c);
			best_ms = fmin_ms(best_ms, &a, &b);
			best_gone_ms = fmin_ms(best_gone_ms, &a, &c);
		} else {
			trial_done(&t);
		}
	}
	print_message("job given, READY, `true` ended: best %.2f ms; gone: best %.2f ms\n", best_ms, best_gone_ms);
	assert_true(best_ms < 200); /* only a guard: bench compares properly */
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		WORLD_TESTS,
		cmocka_unit_test(a_parked_sandbox_waits_for_its_job),
		cmocka_unit_test(it_is_only_what_it_was_prepared_for),
		cmocka_unit_test(a_folder_made_after_parking_is_mounted),
		cmocka_unit_test(a_source_that_is_another_folder_is_refused),
		cmocka_unit_test(a_mount_made_after_parking_is_noticed),
		cmocka_unit_test(other_sandboxes_do_not_make_it_stale),
		cmocka_unit_test(it_looks_the_same_as_a_cold_one),
		cmocka_unit_test(it_serves_commands_too),
		cmocka_unit_test(freeing_one_leaves_no_process),
		cmocka_unit_test(killing_the_caller_leaves_nothing),
		cmocka_unit_test(a_job_starts_at_once),
	};
	int rc = run_probe(world_probes, argc, argv);

	if (rc >= 0)
		return rc;
	trial_parks = true;
	rc = namespaces_missing();
	return rc >= 0 ? rc : cmocka_run_group_tests(tests, make_work_dir, remove_work_dir);
}
