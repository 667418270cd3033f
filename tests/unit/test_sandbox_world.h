/*
 * What holds for every sandbox, started cold or prepared in advance: how commands run in it, what they see, what limits them. Each test program that
 * includes this runs all of it, its own way (trial_parks).
 */
#ifndef AK_TEST_SANDBOX_WORLD_H
#define AK_TEST_SANDBOX_WORLD_H

#include "test_sandbox_util.h"

#include <sys/ioctl.h>
#include <sys/resource.h>

/* ---- probes: run inside ---- */

static int probe_argv(int argc, char **argv)
{
	for (int i = 0; i < argc; i++)
		printf("%zu:%s;", strlen(argv[i]), argv[i]);
	return 0;
}

/* Processes in /proc that are neither init nor this. */
static int probe_pids(int argc, char **argv)
{
	DIR *dir = opendir("/proc");
	int others = 0;

	if (!dir)
		return 98;
	for (struct dirent *e; (e = readdir(dir));) {
		int pid = atoi(e->d_name);

		if (pid > 1 && pid != getpid())
			others++;
	}
	closedir(dir);
	return others;
}

/* Fork until the kernel says no; how many there were is printed. */
static int probe_forks(int argc, char **argv)
{
	int n = 0;

	for (;;) {
		pid_t pid = fork();

		if (pid == 0) {
			pause();
			_exit(0);
		}
		if (pid < 0)
			break;
		if (++n > 3000)
			return 97;
	}
	printf("%d", n);
	return errno == EAGAIN ? 0 : 98;
}

static int probe_memory(int argc, char **argv)
{
	size_t size = (size_t)256 << 20;
	char *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	for (size_t i = 0; p != MAP_FAILED && i < size; i += 4096)
		p[i] = 1;
	return 0;
}

/* A stream that was handed in opens again in its own direction only. */
static int probe_reopen(int argc, char **argv)
{
	EXPECT(open("/proc/self/fd/0", O_RDONLY) >= 0);
	EXPECT(open("/proc/self/fd/0", O_RDWR) < 0 && errno == EACCES);
	EXPECT(open("/proc/self/fd/0", O_WRONLY | O_TRUNC) < 0 && errno == EACCES);
	return probe_failures;
}

/* init holds a copy of the caller's memory: nothing inside may look at it or stop it. */
static int probe_init(int argc, char **argv)
{
	EXPECT(open("/proc/1/mem", O_RDONLY) < 0);
	EXPECT(open("/proc/1/environ", O_RDONLY) < 0 || read(3, argv, 0) < 0);
	for (int fd = 0; fd < 20; fd++) {
		char path[32], target[64];

		snprintf(path, sizeof(path), "/proc/1/fd/%d", fd);
		EXPECT(readlink(path, target, sizeof(target)) < 0 && open(path, O_RDONLY) < 0);
	}
	EXPECT(access("/proc/1/root/etc", F_OK) < 0);
	kill(1, SIGKILL);
	kill(1, SIGTERM);
	EXPECT(kill(1, 0) == 0);
	return probe_failures;
}

static int probe_limits(int argc, char **argv)
{
	struct rlimit lim;

	EXPECT(getrlimit(RLIMIT_NOFILE, &lim) == 0 && lim.rlim_max == 100);
	EXPECT(getrlimit(RLIMIT_CORE, &lim) == 0 && lim.rlim_max == 1); /* no file, and no program of the host */
	return probe_failures;
}

static const struct probe world_probes[] = {
	{ "argv", probe_argv },
	{ "fds", probe_fds },
	{ "pids", probe_pids },
	{ "forks", probe_forks },
	{ "memory", probe_memory },
	{ "reopen", probe_reopen },
	{ "init", probe_init },
	{ "limits", probe_limits },
	{ NULL, NULL },
};

/* ---- how commands run ---- */

static void exit_code_is_the_commands_own(void **state)
{
	_cleanup_trial_ struct trial t;

	trial_init(&t, SANDBOX_STRICT);
	assert_int_equal(RUN(&t, "true"), 0);
	assert_int_equal(SHELL(&t, "exit 7"), 7);
	assert_int_equal(SHELL(&t, "exit 125"), 125);
	assert_string_equal(t.result.err.text, "");
}

static void a_signal_is_128_plus_its_number(void **state)
{
	_cleanup_trial_ struct trial t;

	trial_init(&t, SANDBOX_STRICT);
	assert_int_equal(SHELL(&t, "kill -TERM $$"), 143);
	assert_int_equal(SHELL(&t, "kill -KILL $$"), 137);
}

static void a_missing_command_is_127_and_named(void **state)
{
	_cleanup_trial_ struct trial t;

	trial_init(&t, SANDBOX_STRICT);
	assert_int_equal(RUN(&t, "no-such-command", "x"), 127);
	assert_string_equal(t.result.err.text, "command not found: 'no-such-command'");
	assert_int_equal(RUN(&t, "/no/such/command"), 127);
	assert_int_equal(RUN(&t, ""), 127);
}

static void a_file_that_cannot_run_is_126(void **state)
{
	_cleanup_trial_ struct trial t;

	trial_init(&t, SANDBOX_STRICT);
	assert_int_equal(RUN(&t, "/etc/passwd"), 126);
	assert_non_null(strstr(t.result.err.text, "permission denied"));
	assert_int_equal(RUN(&t, "/usr"), 126);
	assert_non_null(strstr(t.result.err.text, "folder"));
}

static void argv_arrives_exactly_as_given(void **state)
{
	_cleanup_trial_ struct trial t;

	trial_init(&t, SANDBOX_MODERATE);
	RUN_OK(&t, "/probe", "argv", "a b", "", "\"q'", "$HOME", "*", "--", "-x", "new\nline", "\xff\x01");
	assert_string_equal(t.text, "3:a b;0:;3:\"q';5:$HOME;1:*;2:--;2:-x;8:new\nline;2:\xff\x01;");
}

static void environment_is_exactly_the_given_one(void **state)
{
	char *const env[] = { (char *)(uintptr_t) "PATH=/usr/bin", (char *)(uintptr_t) "A=1 2", NULL };
	_cleanup_trial_ struct trial t;

	setenv("AK_TEST_SECRET", "leaked", 1);
	trial_init(&t, SANDBOX_STRICT);
	t.spec.envp = env;
	RUN_OK(&t, "env");
	assert_string_equal(t.text, "PATH=/usr/bin\nA=1 2\n");
}

static void a_closed_stdin_reads_as_empty(void **state)
{
	_cleanup_trial_ struct trial t;

	trial_init(&t, SANDBOX_STRICT);
	RUN_OK(&t, "cat");
	assert_string_equal(t.text, "");
}

static void streams_may_have_any_numbers(void **state)
{
	_cleanup_trial_ struct trial t;
	_cleanup_close_ int in = memfd_create("in", MFD_CLOEXEC);

	trial_init(&t, SANDBOX_STRICT);
	assert_int_equal(write(in, "hello", 5), 5);
	lseek(in, 0, SEEK_SET);
	t.spec.stdio[0] = in;
	RUN_OK(&t, "sh", "-c", "cat; echo err >&2");
	assert_string_equal(t.text, "helloerr\n");
}

static void a_missing_workdir_is_125_and_named(void **state)
{
	_cleanup_trial_ struct trial t;

	trial_init(&t, SANDBOX_STRICT);
	t.spec.workdir = "/nowhere";
	assert_int_equal(RUN(&t, "true"), 125);
	assert_non_null(strstr(t.result.err.text, "/nowhere"));
	t.spec.workdir = "/usr/lib";
	RUN_OK(&t, "pwd");
	assert_string_equal(t.text, "/usr/lib\n");
}

/* ---- what they see ---- */

static void no_descriptor_is_inherited(void **state)
{
	int fds[3] = { open("/", O_RDONLY), open("/dev/null", O_RDWR), dup(2) };
	_cleanup_trial_ struct trial t;

	trial_init(&t, SANDBOX_MODERATE);
	assert_int_equal(dup2(fds[0], 200), 200);
	RUN_OK(&t, "/probe", "fds");
	for (int i = 0; i < 3; i++)
		close(fds[i]);
	close(200);
}

static void only_the_sandboxs_processes_exist(void **state)
{
	_cleanup_trial_ struct trial t;

	trial_init(&t, SANDBOX_MODERATE);
	RUN_OK(&t, "/probe", "pids");
}

static void init_is_out_of_reach(void **state)
{
	_cleanup_trial_ struct trial t;

	trial_init(&t, SANDBOX_MODERATE);
	RUN_OK(&t, "/probe", "init");
}

static void secrets_of_the_host_are_absent(void **state)
{
	_cleanup_trial_ struct trial t;

	trial_init(&t, SANDBOX_MODERATE);
	RUN_OK(&t, "sh", "-c",
		"for f in /etc/shadow /etc/gshadow /etc/ssh /etc/sudoers /etc/ssl/private /old_root /boot; do [ ! -e $f ] || echo $f; done");
	assert_string_equal(t.text, "");
	RUN_OK(&t, "sh", "-c", "ls -A /sys /root; ls /home; cat /etc/resolv.conf; hostname; id -un");
	assert_string_equal(t.text, "/root:\n\n/sys:\nagent\nnameserver 100.64.0.1\ntest\nagent\n");
}

static void proc_is_masked(void **state)
{
	_cleanup_trial_ struct trial t;

	trial_init(&t, SANDBOX_MODERATE);
	assert_int_equal(SHELL(&t, "echo 1 > /proc/sys/vm/drop_caches"), 2);
	assert_int_equal(SHELL(&t, "echo 1 > /proc/sys/kernel/pid_max"), 2);
	RUN_OK(&t, "sh", "-c",
		"for f in kcore keys key-users timer_list sysrq-trigger kallsyms kmsg slabinfo vmallocinfo; do [ ! -e /proc/$f ] || head -c 9 /proc/$f 2>/dev/null; done; true");
	assert_string_equal(t.text, "");
	RUN_OK(&t, "sh", "-c", "for d in acpi bus irq scsi fs; do [ ! -e /proc/$d ] || ls -A /proc/$d; done");
	assert_string_equal(t.text, "");
}

static void a_strict_root_is_read_only(void **state)
{
	_cleanup_trial_ struct trial t;

	trial_init(&t, SANDBOX_STRICT);
	RUN_OK(&t, "sh", "-c",
		"for d in / /usr /etc /var /run /opt /dev /usr/local/bin /proc/sys; do touch $d/x 2>/dev/null && echo $d; done; true");
	assert_string_equal(t.text, "");
	RUN_OK(&t, "sh", "-c", "touch /tmp/x $HOME/x /dev/shm/x /var/tmp/y && chmod +x /tmp/x");
}

static void a_writable_root_is_private(void **state)
{
	_cleanup_trial_ struct trial t;

	trial_init(&t, SANDBOX_MODERATE);
	RUN_OK(&t, "sh", "-c", "touch /x /etc/x /var/lib/x /usr/local/bin/ak-test-private && ls /usr/local/bin/ak-test-private");
	if (!strstr(t.notes, "/usr is read-only"))
		assert_string_equal(t.text, "/usr/local/bin/ak-test-private\n");
	assert_int_equal(access("/usr/local/bin/ak-test-private", F_OK), -1);
	assert_int_equal(access("/x", F_OK), -1);
}

/* ---- mounts ---- */

/*
 * Old roots are stacked on the new one before they are taken off; "/.." would climb onto what is left of them. So: one mount on
 * "/", "/.." is "/", and its entries are ours.
 */
static void expect_one_root(struct trial *t)
{
	RUN_OK(t, "sh", "-c",
		"[ \"$(stat -c %d:%i /)\" = \"$(stat -c %d:%i /..)\" ] || echo above; [ ! -e /../etc/shadow ] || echo shadow; "
		"cd /.. && [ ! -e etc/shadow ] || echo shadow; awk '$5 == \"/\"' /proc/self/mountinfo | wc -l");
	assert_string_equal(t->text, "1\n");
}

static char work_dir[64];

static int make_work_dir(void **state)
{
	snprintf(work_dir, sizeof(work_dir), "/tmp/ak-test-XXXXXX");
	return tmp_dir(work_dir) ? 0 : -1;
}

static int remove_work_dir(void **state)
{
	return ak_remove_tree(AT_FDCWD, work_dir) < 0 ? -1 : 0;
}

static const char *work_path(const char *name)
{
	static char path[256];

	snprintf(path, sizeof(path), "%s/%s", work_dir, name);
	return path;
}

static void put_file(const char *name, const char *text)
{
	_cleanup_fclose_ FILE *f = fopen(work_path(name), "w");

	assert_non_null(f);
	fputs(text, f);
}

static void a_project_is_writable_and_owned_by_the_invoker(void **state)
{
	_cleanup_trial_ struct trial t;
	char project[256];
	struct stat st;

	snprintf(project, sizeof(project), "%s/home/project", work_dir);
	assert_int_equal(ak_mkdir_p(project, 0755), 0);
	put_file("home/secret", "secret");
	trial_init(&t, SANDBOX_STRICT);
	t.mounts[1] = (struct sandbox_mount){ .source = project, .target = project };
	t.spec.n_mounts = 2;
	t.spec.workdir = project;
	RUN_OK(&t, "sh", "-c", "echo hi > made && stat -c %U made && ls -A ..");
	assert_string_equal(t.text, "agent\nproject\n");
	assert_int_equal(stat(work_path("home/project/made"), &st), 0);
	assert_int_equal(st.st_uid, geteuid());
	assert_int_equal(st.st_gid, getegid());
}

static void a_read_only_mount_refuses_writing(void **state)
{
	_cleanup_trial_ struct trial t;

	trial_init(&t, SANDBOX_MODERATE);
	put_file("file", "text");
	t.mounts[1] = (struct sandbox_mount){ .source = work_dir, .target = "/data/deep/er", .readonly = true };
	t.spec.n_mounts = 2;
	assert_int_equal(SHELL(&t, "cat /data/deep/er/file; echo no > /data/deep/er/file"), 2);
	assert_int_equal(strncmp(t.text, "text", 4), 0);
	assert_int_equal(SHELL(&t, "rm -f /data/deep/er/file"), 1);
}

static void a_mount_on_the_sandboxs_own_folders_is_refused(void **state)
{
	static const char *const targets[] = { "/", "//", "/proc/x", "/dev", "relative", "/sys/a", "/a/../../b" };
	_cleanup_trial_ struct trial t;

	trial_init(&t, SANDBOX_MODERATE);
	for (size_t i = 0; i < ARRAY_SIZE(targets); i++) {
		t.mounts[1] = (struct sandbox_mount){ .source = work_dir, .target = targets[i] };
		t.spec.n_mounts = 2;
		assert_int_equal(RUN(&t, "true"), 125);
		assert_non_null(strstr(t.result.err.text, targets[i]));
	}
}

static void a_file_handed_in_cannot_be_reopened_wider(void **state)
{
	_cleanup_trial_ struct trial t;
	_cleanup_close_ int in = -1, out = -1;
	char text[16] = "";

	trial_init(&t, SANDBOX_MODERATE);
	put_file("in", "input");
	put_file("out", "");
	in = open(work_path("in"), O_RDONLY | O_CLOEXEC);
	out = open(work_path("out"), O_WRONLY | O_CLOEXEC);
	t.spec.stdio[0] = in;
	RUN_OK(&t, "/probe", "reopen");
	t.spec.stdio[1] = out;
	/* The sandbox of root is somebody else, and opens what everybody may. */
	assert_int_equal(fchmod(out, 0666), 0);
	RUN_OK(&t, "sh", "-c", "echo again > /dev/stdout");
	ak_close(in);
	in = open(work_path("out"), O_RDONLY | O_CLOEXEC);
	assert_int_equal(read(in, text, sizeof(text)), 6);
	assert_string_equal(text, "again\n");
}

/* ---- signals and terminals ---- */

static void a_signal_reaches_the_command(void **state)
{
	_cleanup_trial_ struct trial t;

	trial_init(&t, SANDBOX_STRICT);
	trial_start(&t, (const char *const[]){ "sleep", "1000", NULL });
	trial_go(&t);
	assert_int_equal(sandbox_signal(t.sb, SIGTERM), 0);
	assert_int_equal(trial_finish(&t), 143);
	trial_start(&t, (const char *const[]){ "sleep", "1000", NULL });
	trial_go(&t);
	assert_int_equal(sandbox_signal(t.sb, SIGKILL), 0);
	assert_int_equal(trial_finish(&t), 137);
}

static void what_runs_in_the_background_ends_with_the_command(void **state)
{
	_cleanup_trial_ struct trial t;
	uint64_t before = ak_now_ms();

	trial_init(&t, SANDBOX_STRICT);
	assert_int_equal(SHELL(&t, "sleep 1000 & setsid sleep 1000 & exit 3"), 3);
	assert_true(ak_now_ms() - before < TIMEOUT_MS / 2);
}

static void a_terminal_is_the_sandboxs_own(void **state)
{
	struct winsize size = { .ws_row = 33, .ws_col = 77 };
	_cleanup_trial_ struct trial t;
	char buf[4096];

	trial_init(&t, SANDBOX_STRICT);
	t.spec.tty = true;
	trial_start(&t, (const char *const[]){ "sh", "-c", "tty; stty size; echo ready >/dev/tty; exec cat", NULL });
	trial_wait(&t, SANDBOX_READY);
	assert_true(sandbox_tty_fd(t.sb) >= 0);
	assert_int_equal(ioctl(sandbox_tty_fd(t.sb), TIOCSWINSZ, &size), 0);
	trial_go(&t);
	read_until(sandbox_tty_fd(t.sb), "ready", buf, sizeof(buf));
	assert_non_null(strstr(buf, "/dev/pts/0"));
	assert_non_null(strstr(buf, "33 77"));
	assert_int_equal(write(sandbox_tty_fd(t.sb), "\x03", 1), 1);
	assert_int_equal(trial_finish(&t), 130);
}

/* ---- limits ---- */

static void a_fork_bomb_is_limited(void **state)
{
	_cleanup_trial_ struct trial t;
	int n;

	trial_init(&t, SANDBOX_STRICT);
	t.spec.limits.pids = 50;
	RUN_OK(&t, "/probe", "forks");
	n = atoi(t.text);
	assert_true(n >= 40);
	assert_true(n <= 350); /* by pid numbers the limit is less exact: the first 300 are not given out twice */
}

static void other_limits_hold(void **state)
{
	_cleanup_trial_ struct trial t;

	trial_init(&t, SANDBOX_STRICT);
	t.spec.limits.nofile = 100;
	t.spec.limits.tmp_bytes = 1 << 20;
	RUN_OK(&t, "/probe", "limits");
	assert_int_equal(SHELL(&t, "head -c 3000000 /dev/zero > /tmp/big"), 1);
}

static void out_of_memory_is_said_or_its_absence_noted(void **state)
{
	_cleanup_trial_ struct trial t;

	trial_init(&t, SANDBOX_STRICT);
	t.spec.limits.memory_bytes = (uint64_t)64 << 20;
	RUN(&t, "/probe", "memory");
	if (strstr(t.notes, "memory limit off"))
		return;
	assert_int_equal(t.result.exit_code, 137);
	assert_true(t.result.out_of_memory);
}

/* One root, and nothing above it. */
static void nothing_of_the_host_is_left_above(void **state)
{
	for (enum sandbox_isolation i = SANDBOX_MODERATE; i < SANDBOX_ISOLATION_NUM; i++) {
		_cleanup_trial_ struct trial t;

		trial_init(&t, i);
		expect_one_root(&t);
	}
}

#define WORLD_TESTS                                                                                                              \
	cmocka_unit_test(exit_code_is_the_commands_own), cmocka_unit_test(a_signal_is_128_plus_its_number),                      \
		cmocka_unit_test(a_missing_command_is_127_and_named), cmocka_unit_test(a_file_that_cannot_run_is_126),           \
		cmocka_unit_test(argv_arrives_exactly_as_given), cmocka_unit_test(environment_is_exactly_the_given_one),         \
		cmocka_unit_test(a_closed_stdin_reads_as_empty), cmocka_unit_test(streams_may_have_any_numbers),                 \
		cmocka_unit_test(a_missing_workdir_is_125_and_named), cmocka_unit_test(no_descriptor_is_inherited),              \
		cmocka_unit_test(only_the_sandboxs_processes_exist), cmocka_unit_test(init_is_out_of_reach),                     \
		cmocka_unit_test(secrets_of_the_host_are_absent), cmocka_unit_test(proc_is_masked),                              \
		cmocka_unit_test(a_strict_root_is_read_only), cmocka_unit_test(a_writable_root_is_private),                      \
		cmocka_unit_test(a_project_is_writable_and_owned_by_the_invoker),                                                \
		cmocka_unit_test(a_read_only_mount_refuses_writing),                                                             \
		cmocka_unit_test(a_mount_on_the_sandboxs_own_folders_is_refused),                                                \
		cmocka_unit_test(a_file_handed_in_cannot_be_reopened_wider), cmocka_unit_test(a_signal_reaches_the_command),     \
		cmocka_unit_test(what_runs_in_the_background_ends_with_the_command),                                             \
		cmocka_unit_test(a_terminal_is_the_sandboxs_own), cmocka_unit_test(a_fork_bomb_is_limited),                      \
		cmocka_unit_test(other_limits_hold), cmocka_unit_test(out_of_memory_is_said_or_its_absence_noted),               \
		cmocka_unit_test(nothing_of_the_host_is_left_above)

#endif
