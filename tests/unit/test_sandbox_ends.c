/* Signals for commands in a sandbox, what they leave running, and how they end. */
#include "test_sandbox_serve.h"

#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <linux/openat2.h>

/* ---- probes: run inside ---- */

static int probe_mark(int argc, char **argv)
{
	struct rlimit lim = { 0 }, none = { 0 };
	const unsigned long high = 1UL << 32, locks = RLIMIT_LOCKS;

	EXPECT(getrlimit(RLIMIT_LOCKS, &lim) == 0 && lim.rlim_max > 0 && lim.rlim_max < 1000 && lim.rlim_cur == lim.rlim_max);
	EXPECT(setrlimit(RLIMIT_LOCKS, &none) < 0 && errno == EPERM);
	EXPECT(syscall(SYS_setrlimit, locks, &none) < 0 && errno == EPERM);
	EXPECT(syscall(SYS_setrlimit, high | locks, &none) < 0 && errno == EPERM);
	EXPECT(syscall(SYS_prlimit64, 0, high | locks, &none, NULL) < 0 && errno == EPERM);
	EXPECT(syscall(SYS_prlimit64, high, locks, &none, &lim) < 0 && errno == EPERM);
	EXPECT(syscall(SYS_prlimit64, high, high | locks, &none, NULL) < 0 && errno == EPERM);
	EXPECT(syscall(SYS_prlimit64, (long)getpid(), locks, &none, NULL) < 0 && errno == EPERM);
	EXPECT(getrlimit(RLIMIT_LOCKS, &lim) == 0 && lim.rlim_max > 0);
	lim = (struct rlimit){ 100, 100 };
	EXPECT(setrlimit(RLIMIT_NOFILE, &lim) == 0);
	return probe_failures;
}

static int count_hops(int fd)
{
	unsigned n = 0;

	(void)!pread(fd, &n, sizeof(n), 0);
	n++;
	return pwrite(fd, &n, sizeof(n), 0) == sizeof(n) ? 0 : -1;
}

/*
 * A command that stays, and beside it as many as argv[1] says that fork, leave their session and end ("hop"), so that whoever looks for them finds a
 * process that is gone; or that go on as well ("storm"), up to the limit of processes.
 */
static int probe_forks(int argc, char **argv)
{
	int fd = open("hops", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	bool hop = !strcmp(argv[0], "hop");
	pid_t pid = 1;

	for (int i = 0; i < atoi(argv[1]) && pid != 0; i++)
		pid = fork();
	if (pid != 0) {
		printf("forking\n");
		fflush(stdout);
		pause();
	}
	do {
		if (pid == 0)
			setsid();
		count_hops(fd);
		pid = fork();
	} while (pid <= 0 || !hop);
	return 0;
}
static const struct probe probes[] = {
	{ "forks", probe_forks },
	{ "mark", probe_mark },
	{ NULL, NULL },
};

/* ---- signals ---- */

static void a_signal_reaches_the_group(void **state)
{
	_cleanup_trial_ struct trial t;

	serve(&t, SANDBOX_STRICT);
	EXEC(&t, 1, NULL, "sh", "-c", "sleep 1000; exit 3");
	expect_started(&t, 1, NULL);
	EXEC(&t, 2, NULL, "sleep", "1000");
	expect_started(&t, 2, NULL);
	assert_int_equal(sandbox_exec_signal(t.sb, 1, SIGTERM), 0);
	expect_end(&t, 1, 143);
	assert_int_equal(sandbox_exec_signal(t.sb, 1, SIGTERM), -ESRCH);
	assert_int_equal(sandbox_exec_signal(t.sb, 2, SIGINT), 0);
	expect_end(&t, 2, 130);
	wait_until_gone(&t, "sleep");
}

static void sigkill_reaches_every_job_of_the_session(void **state)
{
	_cleanup_trial_ struct trial t;
	char buf[4096];
	struct sandbox_exec tty = { .tty = true };
	int fd;

	serve(&t, SANDBOX_STRICT);
	EXEC(&t, 1, &tty, "sh", "-c", "set -m; sleep 1001 & sleep 1002 & sh -c 'sleep 1003 & sleep 1004' & echo up; wait");
	expect_started(&t, 1, &fd);
	read_until(fd, "up", buf, sizeof(buf));
	assert_int_equal(sandbox_exec_signal(t.sb, 1, SIGKILL), 0);
	expect_end(&t, 1, 137);
	wait_until_gone(&t, "sleep");
	close(fd);
}

/* Nothing counts any more: two looks with other work in between see the same number. */
static void expect_still(struct trial *t)
{
	EXEC_OK(t, 9998, "sh", "-c",
		"a=$(cksum < hops); i=0; while [ $i -lt 100 ]; do /bin/true; i=$((i+1)); done; b=$(cksum < hops); [ \"$a\" = \"$b\" ]");
}

static void a_command_cannot_change_its_mark(void **state)
{
	_cleanup_trial_ struct trial t;

	for (enum sandbox_isolation i = SANDBOX_MODERATE; i < SANDBOX_ISOLATION_NUM; i++) {
		serve(&t, i);
		EXEC(&t, 1, NULL, "/probe", "mark");
		expect_started(&t, 1, NULL);
		expect_end(&t, 1, 0);
		if (i + 1 < SANDBOX_ISOLATION_NUM)
			trial_done(&t);
	}
}

static void sigkill_reaches_what_left_the_session(void **state)
{
	static const char *const scripts[] = {
		"setsid sleep 1000 & echo up; wait",
		"(setsid sh -c 'sleep 1001 & sleep 1002' &) ; echo up; sleep 1003",
		"setsid setsid sh -c 'trap \"\" HUP TERM INT; (setsid sleep 1004 &); exec sleep 1005' </dev/null >/dev/null 2>&1 & echo up; sleep 1006",
	};
	_cleanup_trial_ struct trial t;

	serve(&t, SANDBOX_STRICT);
	EXEC(&t, 7, NULL, "cat", "/dev/zero");
	expect_started(&t, 7, NULL);
	for (uint32_t i = 0; i < ARRAY_SIZE(scripts); i++) {
		_cleanup_close_ int out = -1;
		int pipes[2];
		char buf[256];

		assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
		out = pipes[0];
		EXEC(&t, i + 1, &((struct sandbox_exec){ .stdio = { -1, pipes[1], pipes[1] } }), "sh", "-c", scripts[i]);
		close(pipes[1]);
		expect_started(&t, i + 1, NULL);
		read_until(out, "up", buf, sizeof(buf));
		EXEC_OK(&t, 100, "sh", "-c", "until grep -qs '^sleep$' /proc/[0-9]*/comm; do :; done");
		assert_int_equal(sandbox_exec_signal(t.sb, i + 1, SIGKILL), 0);
		expect_end(&t, i + 1, 137);
		wait_until_gone(&t, "sleep");
	}
	EXEC_OK(&t, 8, "sh", "-c", "grep -qs '^cat$' /proc/[0-9]*/comm");
}

static void sigkill_reaches_what_forks_without_end(void **state)
{
	static const char *const how[][2] = { { "hop", "1" }, { "hop", "30" }, { "storm", "1" } };
	_cleanup_trial_ struct trial t;

	trial_init(&t, SANDBOX_STRICT);
	t.spec.limits.pids = 100;
	trial_start(&t, NULL);
	trial_go(&t);
	for (uint32_t i = 0; i < ARRAY_SIZE(how); i++) {
		_cleanup_close_ int out = -1;
		int pipes[2];
		char buf[4096];

		assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
		out = pipes[0];
		EXEC(&t, i + 1, &((struct sandbox_exec){ .stdio = { -1, pipes[1], -1 } }), "/probe", "forks", how[i][0],
			how[i][1]);
		close(pipes[1]);
		expect_started(&t, i + 1, NULL);
		read_until(out, "forking", buf, sizeof(buf));
		assert_int_equal(sandbox_exec_signal(t.sb, i + 1, SIGKILL), 0);
		expect_end(&t, i + 1, 137);
		expect_still(&t);
	}
}

/* Ending a storm stops all processes for a moment: the others go on afterwards, and those who were stopped stay so. */
static void ending_a_storm_leaves_the_others_as_they_were(void **state)
{
	_cleanup_trial_ struct trial t;

	trial_init(&t, SANDBOX_STRICT);
	t.spec.limits.pids = 100;
	trial_start(&t, NULL);
	trial_go(&t);
	EXEC_OK(&t, 1, "sh", "-c", "setsid cat /dev/zero > /dev/null & sleep 1000 & echo $! > stopped; kill -STOP $!");
	EXEC(&t, 2, NULL, "/probe", "forks", "hop", "30");
	expect_started(&t, 2, NULL);
	EXEC_OK(&t, 3, "sh", "-c", "until [ -s hops ]; do :; done");
	assert_int_equal(sandbox_exec_signal(t.sb, 2, SIGKILL), 0);
	expect_end(&t, 2, 137);
	expect_still(&t);
	EXEC_OK(&t, 4, "sh", "-c",
		"grep -q '^State:.T' /proc/$(cat stopped)/status && ! grep -qs '^State:.T' $(grep -ls '^cat$' /proc/[0-9]*/comm | sed s/comm/status/)");
}

static void what_is_left_running_is_told(void **state)
{
	_cleanup_trial_ struct trial t;
	struct sandbox_exec_event ev;

	serve(&t, SANDBOX_STRICT);
	EXEC(&t, 1, NULL, "sh", "-c",
		"sleep 1000 & setsid sleep 1001 & until [ $(grep -s '^sleep$' /proc/[0-9]*/comm | wc -l) = 2 ]; do :; done");
	expect_started(&t, 1, NULL);
	ev = next_event(&t);
	assert_int_equal(ev.state, SANDBOX_EXEC_ENDED);
	assert_int_equal(ev.exit_code, 0);
	assert_int_equal(ev.n_left, 2);
	assert_non_null(strstr(ev.left, " sleep, "));
	EXEC(&t, 2, NULL, "sh", "-c", "exit 3");
	expect_started(&t, 2, NULL);
	ev = next_event(&t);
	assert_int_equal(ev.exit_code, 3);
	assert_int_equal(ev.n_left, 0);
}

/* The command may not have begun when its first signal comes. */
static void an_early_signal_is_not_lost(void **state)
{
	_cleanup_trial_ struct trial t;

	serve(&t, SANDBOX_STRICT);
	for (uint32_t i = 1; i < 30; i++) {
		struct sandbox_exec_event ev;

		EXEC(&t, i, NULL, "sleep", "1000");
		assert_int_equal(sandbox_exec_signal(t.sb, i, SIGTERM), 0);
		do {
			ev = next_event(&t);
		} while (ev.state == SANDBOX_EXEC_STARTED);
		assert_int_equal(ev.exit_code, 143);
	}
}

static void a_signal_for_the_sandbox_reaches_all(void **state)
{
	_cleanup_trial_ struct trial t;

	serve(&t, SANDBOX_STRICT);
	EXEC(&t, 1, NULL, "sleep", "1000");
	expect_started(&t, 1, NULL);
	assert_int_equal(sandbox_signal(t.sb, SIGTERM), 0);
	expect_end(&t, 1, 143);
	EXEC_OK(&t, 1, "true");
}

static void orphans_are_reaped_and_outlive_their_command(void **state)
{
	_cleanup_trial_ struct trial t;

	serve(&t, SANDBOX_STRICT);
	EXEC_OK(&t, 1, "sh", "-c", "(sleep 1000 & (exit 0) & ) ; true");
	EXEC_OK(&t, 2, "sh", "-c",
		"until grep -qs '^sleep$' /proc/[0-9]*/comm; do :; done; while grep -qs '^State:.Z' /proc/[0-9]*/status; do :; done");
}

/* A program that cannot be opened for a while is waited for by its own command, and by nobody else. */
static void a_leased_program_blocks_only_its_own_command(void **state)
{
	char dir[] = "/tmp/ak-lease-XXXXXX", prog[64];
	_cleanup_trial_ struct trial t;
	int fd;

	assert_non_null(tmp_dir(dir));
	snprintf(prog, sizeof(prog), "%s/prog", dir);
	fd = open(prog, O_CREAT | O_RDWR | O_CLOEXEC, 0755);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, "#!/bin/sh\n", 10), 10);
	close(fd);
	fd = open(prog, O_RDONLY | O_CLOEXEC); /* one that is open for writing cannot be executed */
	assert_true(fd >= 0);
	assert_int_equal(chmod(dir, 0755), 0);
	trial_init(&t, SANDBOX_STRICT);
	t.mounts[t.spec.n_mounts++] = (struct sandbox_mount){ .source = dir, .target = "/shared", .readonly = true };
	trial_start(&t, NULL);
	trial_go(&t);
	signal(SIGIO, SIG_IGN);
	assert_int_equal(fcntl(fd, F_SETLEASE, F_WRLCK), 0);
	EXEC(&t, 1, NULL, "/shared/prog");
	for (uint32_t i = 2; i < 5; i++) {
		uint64_t began = ak_now_ms();

		EXEC_OK(&t, i, "true");
		assert_true(ak_now_ms() - began < 10000);
	}
	assert_int_equal(sandbox_exec_signal(t.sb, 1, SIGKILL), 0);
	expect_end(&t, 1, 137);
	EXEC(&t, 6, NULL, "/shared/prog");
	EXEC_OK(&t, 7, "true");
	assert_int_equal(fcntl(fd, F_SETLEASE, F_UNLCK), 0);
	close(fd);
	expect_started(&t, 6, NULL);
	expect_end(&t, 6, 0);
	unlink(prog);
	rmdir(dir);
	signal(SIGIO, SIG_DFL);
}

/* ---- ends ---- */

static void every_command_ends_with_the_sandbox(void **state)
{
	_cleanup_trial_ struct trial t;

	serve(&t, SANDBOX_STRICT);
	EXEC(&t, 1, NULL, "sleep", "1000");
	expect_started(&t, 1, NULL);
	EXEC(&t, 2, NULL, "sleep", "1000");
	assert_int_equal(sandbox_signal(t.sb, SIGKILL), 0);
	trial_wait(&t, SANDBOX_ENDED);
	for (bool one = false, two = false; !one || !two;) {
		struct sandbox_exec_event ev = next_event(&t);

		if (ev.state == SANDBOX_EXEC_STARTED)
			continue;
		assert_int_equal(ev.exit_code, 137);
		one |= ev.id == 1;
		two |= ev.id == 2;
	}
}

static void start_doomed(void *arg)
{
	struct sandbox_exec tty = { .tty = true };
	struct trial t;

	serve(&t, SANDBOX_STRICT);
	EXEC(&t, 1, NULL, "sh", "-c", "setsid sleep 1000 & sleep 1000");
	EXEC(&t, 2, &tty, "sleep", "1000");
	assert_int_equal(next_event(&t).state, SANDBOX_EXEC_STARTED);
	assert_int_equal(next_event(&t).state, SANDBOX_EXEC_STARTED);
}

static void killing_the_caller_leaves_nothing(void **state)
{
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	kill_caller(start_doomed, NULL, 0);
	prctl(PR_SET_CHILD_SUBREAPER, 0);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_signal_reaches_the_group),
		cmocka_unit_test(sigkill_reaches_every_job_of_the_session),
		cmocka_unit_test(a_command_cannot_change_its_mark),
		cmocka_unit_test(sigkill_reaches_what_left_the_session),
		cmocka_unit_test(sigkill_reaches_what_forks_without_end),
		cmocka_unit_test(ending_a_storm_leaves_the_others_as_they_were),
		cmocka_unit_test(what_is_left_running_is_told),
		cmocka_unit_test(an_early_signal_is_not_lost),
		cmocka_unit_test(a_signal_for_the_sandbox_reaches_all),
		cmocka_unit_test(orphans_are_reaped_and_outlive_their_command),
		cmocka_unit_test(a_leased_program_blocks_only_its_own_command),
		cmocka_unit_test(every_command_ends_with_the_sandbox),
		cmocka_unit_test(killing_the_caller_leaves_nothing),
	};
	int rc = run_probe(probes, argc, argv);

	if (rc >= 0)
		return rc;
	rc = namespaces_missing();
	return rc >= 0 ? rc : cmocka_run_group_tests(tests, NULL, NULL);
}
