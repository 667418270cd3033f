/*
 * For tests of the namespace backend: run something in a sandbox and look at what came of it.
 *
 * The test program is its own helper: it is mounted at /probe, and started there with the name of a probe it runs that
 * instead of the tests.
 */
#ifndef AK_TEST_SANDBOX_UTIL_H
#define AK_TEST_SANDBOX_UTIL_H

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "vmctl/sandbox.h"
#include "tests/unit/tmp_dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#define TIMEOUT_MS 20000

/* One run: a spec to change before it starts, and what came out. */
struct trial {
	struct sandbox_spec spec;
	struct sandbox_mount mounts[4];
	char exe[PATH_MAX];
	struct sandbox *sb;
	int out; /* memory file: the command's stdout and stderr */
	char *text; /* what is in it after the end */
	char notes[1024];
	struct sandbox_result result;
};

static char *const default_env[] = { (char *)(uintptr_t) "PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
	(char *)(uintptr_t) "HOME=/home/agent",
	(char *)(uintptr_t) "ASAN_OPTIONS=detect_leaks=0", /* the probe is this program, and leak checking needs ptrace */
	NULL };

static inline void trial_init(struct trial *t, enum sandbox_isolation isolation)
{
	ssize_t n;

	memset(t, 0, sizeof(*t));
	/* As main does: the kernel counts descriptors in flight for all processes of a user, and compares with the sender's limit. */
	ak_raise_descriptor_limit();
	n = readlink("/proc/self/exe", t->exe, sizeof(t->exe) - 1);
	assert_true(n > 0);
	t->out = memfd_create("out", MFD_CLOEXEC);
	assert_true(t->out >= 0);
	t->mounts[0] = (struct sandbox_mount){ .source = t->exe, .target = "/probe", .readonly = true };
	t->spec = (struct sandbox_spec){
		.name = "test",
		.envp = default_env,
		.isolation = isolation,
		.home = "/home/agent",
		.mounts = t->mounts,
		.n_mounts = 1,
		.stdio = { -1, t->out, t->out },
		.resolv_conf = "nameserver 100.64.0.1\n",
	};
}

static inline void trial_done(struct trial *t)
{
	sandbox_free(t->sb);
	t->sb = NULL;
	ak_close(t->out);
	free(t->text);
}

#define _cleanup_trial_ __attribute__((cleanup(trial_done)))

/* Whether sandboxes are prepared in advance and get their job afterwards. */
static bool trial_parks;

static inline enum sandbox_state trial_wait(struct trial *t, enum sandbox_state wanted);

/* A sandbox without a job, READY. */
static inline void trial_park(struct trial *t)
{
	struct sandbox_spec spec = { .isolation = t->spec.isolation,
		.readonly_root = t->spec.readonly_root,
		.root_inside = t->spec.root_inside,
		.resolv_conf = t->spec.resolv_conf,
		.parked = true };
	struct ak_err err = { "" };

	if (sandbox_start(&spec, -1, &t->sb, &err) < 0)
		fail_msg("sandbox_start: %s", err.text);
	if (trial_wait(t, SANDBOX_READY) != SANDBOX_READY)
		fail_msg("parking: %s", sandbox_result(t->sb)->err.text);
}

static inline int trial_assign(struct trial *t, struct ak_err *err)
{
	for (size_t i = 0; i < t->spec.n_mounts; i++) {
		struct stat st;

		if (stat(t->mounts[i].source, &st) == 0 && !t->mounts[i].ino) {
			t->mounts[i].dev = st.st_dev;
			t->mounts[i].ino = st.st_ino;
		}
	}
	return sandbox_assign(t->sb, &t->spec, err);
}

/* A mount anywhere on the host makes parked sandboxes stale; whoever gets -ESTALE parks another one. */
static inline void trial_start_parked(struct trial *t)
{
	struct ak_err err = { "" };
	int rc;

	for (int i = 0; i < 100; i++) {
		trial_park(t);
		rc = trial_assign(t, &err);
		if (rc != -ESTALE)
			break;
		sandbox_free(t->sb);
		t->sb = NULL;
	}
	if (rc < 0)
		fail_msg("sandbox_assign: %s", err.text);
}

static inline void trial_start(struct trial *t, const char *const *argv)
{
	struct ak_err err = { "" };

	t->spec.argv = (char *const *)(uintptr_t)argv;
	if (trial_parks) {
		trial_start_parked(t);
		return;
	}
	if (sandbox_start(&t->spec, -1, &t->sb, &err) < 0)
		fail_msg("sandbox_start: %s", err.text);
}

/* Wait until the state is at least WANTED. */
static inline enum sandbox_state trial_wait(struct trial *t, enum sandbox_state wanted)
{
	uint64_t deadline = ak_now_ms() + TIMEOUT_MS;

	for (;;) {
		enum sandbox_state now = sandbox_poll(t->sb);
		struct pollfd p = { .fd = sandbox_fd(t->sb), .events = POLLIN };

		if (now >= wanted)
			return now;
		if (ak_now_ms() >= deadline)
			fail_msg("sandbox still in state %d", (int)now);
		poll(&p, 1, 1000);
	}
}

static inline void trial_go(struct trial *t)
{
	struct ak_err err = { "" };

	if (trial_wait(t, SANDBOX_READY) == SANDBOX_READY && sandbox_go(t->sb, &err) < 0)
		fail_msg("sandbox_go: %s", err.text);
}

/* What was written to the memory file since the last look, as text; the trial's own. */
static inline const char *trial_output(struct trial *t)
{
	off_t size = lseek(t->out, 0, SEEK_END);

	free(t->text);
	t->text = calloc(1, (size_t)size + 1);
	assert_non_null(t->text);
	assert_int_equal(pread(t->out, t->text, (size_t)size, 0), size);
	assert_int_equal(ftruncate(t->out, 0), 0);
	lseek(t->out, 0, SEEK_SET);
	return t->text;
}

/* Until its end; everything of interest is copied out and the sandbox freed. */
static inline int trial_finish(struct trial *t)
{
	trial_wait(t, SANDBOX_ENDED);
	t->result = *sandbox_result(t->sb);
	snprintf(t->notes, sizeof(t->notes), "%s", sandbox_notes(t->sb));
	sandbox_free(t->sb);
	t->sb = NULL;
	(void)trial_output(t);
	return t->result.exit_code;
}

static inline int trial_run(struct trial *t, const char *const *argv)
{
	trial_start(t, argv);
	trial_go(t);
	return trial_finish(t);
}

#define RUN(t, ...) trial_run(t, (const char *const[]){ __VA_ARGS__, NULL })
#define SHELL(t, script) RUN(t, "/bin/sh", "-c", script)

/* The command must end with 0; its output is shown when it does not. */
#define RUN_OK(t, ...)                                                                                                           \
	do {                                                                                                                     \
		int code_ = RUN(t, __VA_ARGS__);                                                                                 \
		if (code_ != 0)                                                                                                  \
			fail_msg("exit %d, %s\n%s", code_, (t)->result.err.text, (t)->text);                                     \
	} while (0)

/* ---- waiting ---- */

/* Read from the pty until WANTED was seen. */
static inline void read_until(int fd, const char *wanted, char *buf, size_t size)
{
	size_t len = 0;

	buf[0] = '\0';
	while (!strstr(buf, wanted)) {
		struct pollfd p = { .fd = fd, .events = POLLIN };
		ssize_t n;

		if (poll(&p, 1, TIMEOUT_MS) <= 0)
			fail_msg("waited for '%s', have '%s'", wanted, buf);
		n = read(fd, buf + len, size - len - 1);
		if (n <= 0)
			fail_msg("end before '%s', have '%s'", wanted, buf);
		len += (size_t)n;
		buf[len] = '\0';
	}
}

/* All orphans come to us: wait until there are none. */
static inline void wait_for_no_children(void)
{
	uint64_t deadline = ak_now_ms() + TIMEOUT_MS;
	pid_t pid;

	while ((pid = waitpid(-1, NULL, __WALL | WNOHANG)) >= 0) {
		if (ak_now_ms() > deadline)
			fail_msg("a process is left");
		if (pid == 0)
			poll(NULL, 0, 1);
	}
	assert_int_equal(errno, ECHILD);
}

/*
 * A caller that starts what CALL starts, and dies DELAY_US after it is up: nothing of it may stay. For a caller that is a subreaper. Who it was.
 */
static inline pid_t kill_caller(void (*call)(void *arg), void *arg, int delay_us)
{
	struct timespec delay = { .tv_nsec = (long)delay_us * 1000 };
	int up[2];
	char byte;
	pid_t pid;

	assert_int_equal(pipe2(up, O_CLOEXEC), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		call(arg);
		(void)!write(up[1], "s", 1);
		for (;;)
			pause();
	}
	assert_int_equal(read(up[0], &byte, 1), 1);
	nanosleep(&delay, NULL); /* not to wait for anything: to hit another moment each time */
	kill(pid, SIGKILL);
	wait_for_no_children();
	close(up[0]);
	close(up[1]);
	return pid;
}

/* ---- probes ---- */

/* Descriptors other than 0 to 2 and the one that lists them. */
static inline int probe_fds(int argc, char **argv)
{
	DIR *dir = opendir("/proc/self/fd");
	int others = 0;

	if (!dir)
		return 98;
	for (struct dirent *e; (e = readdir(dir));) {
		int fd = atoi(e->d_name);

		if (e->d_name[0] != '.' && fd > 2 && fd != dirfd(dir))
			others++;
	}
	closedir(dir);
	return others;
}

struct probe {
	const char *name;
	int (*run)(int argc, char **argv);
};

/* When started as a probe: its exit code. Else -1. */
static inline int run_probe(const struct probe *probes, int argc, char **argv)
{
	if (argc < 2 || strcmp(argv[0], "/probe"))
		return -1;
	for (; probes->name; probes++) {
		if (!strcmp(probes->name, argv[1]))
			return probes->run(argc - 2, argv + 2);
	}
	return 99;
}

/* In a probe: count what is not as it should be. */
static int probe_failures;
#define EXPECT(cond)                                                                                                             \
	do {                                                                                                                     \
		if (!(cond)) {                                                                                                   \
			printf("line %d: %s (errno %s)\n", __LINE__, #cond, strerror(errno));                                    \
			probe_failures++;                                                                                        \
		}                                                                                                                \
	} while (0)

/* ---- may we at all? ---- */

static inline bool namespaces_work(void)
{
	int status = 0;
	pid_t pid = fork();

	if (pid == 0)
		_exit(unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0 ? 0 : 1);
	return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
}

/* Skips on a laptop, fails where AK_MUST_WORK is set. */
static inline int namespaces_missing(void)
{
	const char *must = getenv("AK_MUST_WORK");

	if (namespaces_work())
		return -1;
	fprintf(stderr, "no user namespaces here\n");
	return must && !strcmp(must, "1") ? 1 : 0;
}

#endif
