/* Commands in a sandbox that has none of its own: side by side, confined, on terminals. */
#include "test_sandbox_serve.h"

#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <linux/openat2.h>

/* ---- probes: run inside ---- */

/* Length of all arguments and of the environment. */
static int probe_lengths(int argc, char **argv)
{
	extern char **environ;
	size_t args = 0, env = 0;

	for (int i = 0; i < argc; i++)
		args += strlen(argv[i]);
	for (char **e = environ; *e; e++)
		env += strlen(*e);
	printf("%zu %zu\n", args, env);
	return 0;
}

/* A session leader of its own, confined: no new privileges, no capability, a filter. */
static int probe_confined(int argc, char **argv)
{
	char text[4096];
	int fd = open("/proc/self/status", O_RDONLY);
	ssize_t n = read(fd, text, sizeof(text) - 1);

	EXPECT(n > 0);
	text[n > 0 ? n : 0] = '\0';
	EXPECT(strstr(text, "NoNewPrivs:\t1"));
	EXPECT(strstr(text, "CapEff:\t0000000000000000"));
	EXPECT(strstr(text, "CapBnd:\t0000000000000000"));
	EXPECT(strstr(text, "Seccomp:\t2"));
	EXPECT(getsid(0) == getpid() && getpgrp() == getpid());
	EXPECT(getppid() == 1);
	EXPECT(syscall(SYS_mount, "none", "/tmp", "tmpfs", 0, NULL) < 0 && errno == EPERM);
	EXPECT(open("/proc/1/environ", O_RDONLY) < 0);
	EXPECT(kill(1, SIGKILL) < 0 || kill(1, 0) == 0);
	/* A file of the host that was handed in can be used, and not opened again. */
	EXPECT(write(2, "x", 1) == 1);
	EXPECT(open("/proc/self/fd/2", O_WRONLY) < 0 && errno == EACCES);
	return probe_failures;
}

/* Datagrams to the gateway's address until one is answered or the parent is tired of it. */
static int probe_ask(int argc, char **argv)
{
	struct ak_addr to = ak_addr_v4((uint32_t)strtoul(argv[0], NULL, 10));
	struct sockaddr_storage ss;
	socklen_t len = ak_addr_to_sockaddr(&to, 53, &ss);
	int fd = socket(AF_INET, SOCK_DGRAM, 0);

	return sendto(fd, "hello", 5, 0, (struct sockaddr *)&ss, len) == 5 ? 0 : errno;
}

/* The number by which init knows to which command we belong: to be read, and never changed. */ static const struct probe
	probes[] = {
		{ "fds", probe_fds },
		{ "lengths", probe_lengths },
		{ "confined", probe_confined },
		{ "ask", probe_ask },
		{ NULL, NULL },
	};

/* ---- how they run ---- */

static void commands_run_one_after_the_other(void **state)
{
	_cleanup_trial_ struct trial t;

	serve(&t, SANDBOX_STRICT);
	EXEC_OK(&t, 1, "sh", "-c", "echo one > ~/file; pwd");
	assert_string_equal(trial_output(&t), "/home/agent\n");
	EXEC_OK(&t, 1, "sh", "-c", "cat file");
	assert_string_equal(trial_output(&t), "one\n");
	EXEC(&t, 7, NULL, "sh", "-c", "exit 7");
	expect_started(&t, 7, NULL);
	expect_end(&t, 7, 7);
	EXEC(&t, 8, NULL, "sh", "-c", "kill -9 $$");
	expect_started(&t, 8, NULL);
	expect_end(&t, 8, 137);
}

/* Their descriptors exceed what may be in flight: a low limit of our own shows that, and leaves room for other tests of this user. */
static void many_commands_run_at_once(void **state)
{
	enum { N = 300 };
	bool started[N] = { 0 };
	struct rlimit was, low;
	_cleanup_trial_ struct trial t;
	int gate[2];

	assert_int_equal(pipe2(gate, O_CLOEXEC), 0);
	serve(&t, SANDBOX_STRICT);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
	low = (struct rlimit){ .rlim_cur = 256, .rlim_max = was.rlim_max };
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
	for (uint32_t i = 0; i < N; i++) {
		struct sandbox_exec ex = { .stdio = { gate[0], t.out, t.out } };
		char code[16];

		snprintf(code, sizeof(code), "%u", i % 100);
		EXEC(&t, i, &ex, "sh", "-c", "read x; exit $1", "sh", code);
	}
	for (uint32_t i = 0; i < N; i++) {
		struct sandbox_exec_event ev = next_event(&t);

		if (ev.state != SANDBOX_EXEC_STARTED || started[ev.id])
			fail_msg("command %u: %d %s", ev.id, ev.exit_code, ev.err.text);
		started[ev.id] = true;
	}
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
	ak_close(gate[0]);
	ak_close(gate[1]); /* the end of file lets them go */
	for (uint32_t i = 0; i < N; i++) {
		struct sandbox_exec_event ev = next_event(&t);

		assert_int_equal(ev.state, SANDBOX_EXEC_ENDED);
		if (ev.exit_code != (int)(ev.id % 100))
			fail_msg("command %u: %d %s", ev.id, ev.exit_code, ev.err.text);
	}
}

static void what_cannot_run_says_why(void **state)
{
	_cleanup_trial_ struct trial t;
	struct sandbox_exec ex = { .workdir = "/nowhere", .stdio = { -1, -1, -1 } };

	serve(&t, SANDBOX_STRICT);
	EXEC(&t, 1, NULL, "no-such-command");
	expect_end(&t, 1, 127);
	EXEC(&t, 1, NULL, "/etc/passwd");
	expect_end(&t, 1, 126);
	EXEC(&t, 1, &ex, "true");
	expect_end(&t, 1, 125);
	ex.workdir = "/usr/lib";
	ex.stdio[1] = t.out;
	EXEC(&t, 1, &ex, "pwd");
	expect_started(&t, 1, NULL);
	expect_end(&t, 1, 0);
	assert_string_equal(trial_output(&t), "/usr/lib\n");
}

static void what_is_wrong_is_refused_at_once(void **state)
{
	static const char *const argv[] = { "sleep", "1000", NULL };
	struct sandbox_exec folder = { .stdio = { open("/", O_RDONLY | O_CLOEXEC), -1, -1 } };
	_cleanup_trial_ struct trial t;
	struct ak_err err;

	trial_init(&t, SANDBOX_STRICT);
	trial_start(&t, NULL);
	trial_wait(&t, SANDBOX_READY);
	assert_int_equal(try_exec(&t, 1, NULL, argv, &err), -EBUSY);
	trial_go(&t);
	assert_int_equal(try_exec(&t, 1, &folder, argv, &err), -EISDIR);
	close(folder.stdio[0]);
	EXEC(&t, 1, NULL, "sleep", "1000");
	assert_int_equal(try_exec(&t, 1, NULL, argv, &err), -EEXIST);
	assert_int_equal(sandbox_exec_signal(t.sb, 2, SIGTERM), -ESRCH);
	assert_int_equal(sandbox_exec_signal(t.sb, 1, 1000), -EINVAL);
}

/* 1.5 MiB in a thousand words, within what the kernel takes. */
static void big_arguments_and_environment_arrive(void **state)
{
	enum { WORDS = 1000, LEN = 750 };
	static char word[LEN + 1];
	const char *argv[WORDS + 3] = { "/probe", "lengths" };
	char *env[WORDS + 1] = { 0 }, expected[64];
	struct sandbox_exec ex = { .envp = env, .stdio = { -1, -1, -1 } };
	_cleanup_trial_ struct trial t;
	struct ak_err err;

	memset(word, 'w', LEN);
	for (int i = 0; i < WORDS; i++)
		argv[2 + i] = env[i] = word;
	env[0] = default_env[2]; /* for a sanitized probe */
	snprintf(expected, sizeof(expected), "%d %zu\n", WORDS * LEN, (WORDS - 1) * LEN + strlen(env[0]));
	serve(&t, SANDBOX_STRICT);
	ex.stdio[1] = t.out;
	assert_int_equal(try_exec(&t, 1, &ex, argv, &err), 0);
	expect_started(&t, 1, NULL);
	expect_end(&t, 1, 0);
	assert_string_equal(trial_output(&t), expected);
}

static void more_than_the_kernel_takes_is_an_error(void **state)
{
	enum { LEN = 100000, WORDS = 50 };
	static char word[LEN + 1];
	const char *argv[WORDS + 2] = { "true" };
	_cleanup_trial_ struct trial t;
	struct ak_err err;

	memset(word, 'w', LEN);
	serve(&t, SANDBOX_STRICT);
	for (int i = 0; i < 30; i++) /* 3 MB: travels, but no program starts with it */
		argv[1 + i] = word;
	assert_int_equal(try_exec(&t, 1, NULL, argv, &err), 0);
	expect_end(&t, 1, 126);
	for (int i = 30; i < WORDS; i++)
		argv[1 + i] = word;
	assert_int_equal(try_exec(&t, 1, NULL, argv, &err), -E2BIG);
	EXEC_OK(&t, 1, "true");
}

static void nothing_but_the_streams_is_open(void **state)
{
	_cleanup_trial_ struct trial t;

	serve(&t, SANDBOX_MODERATE);
	EXEC(&t, 1, NULL, "sleep", "1000");
	expect_started(&t, 1, NULL);
	EXEC_OK(&t, 2, "/probe", "fds");
}

/* Number of open descriptors of this process. */
static int count_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	int n = 0;

	assert_non_null(dir);
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

static void nothing_is_left_open_outside(void **state)
{
	struct sandbox_exec tty = { .tty = true };
	_cleanup_trial_ struct trial t;
	int before, fd;

	serve(&t, SANDBOX_STRICT);
	EXEC_OK(&t, 1, "true");
	before = count_fds();
	for (uint32_t i = 0; i < 20; i++) {
		EXEC_OK(&t, i, "true");
		EXEC(&t, i, &tty, "true");
		expect_started(&t, i, &fd);
		expect_end(&t, i, 0);
		close(fd); /* not before: that would be a hang-up */
	}
	assert_int_equal(count_fds(), before);
}

static void commands_are_confined(void **state)
{
	_cleanup_close_ int file = open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	_cleanup_trial_ struct trial t;
	struct sandbox_exec ex = { .stdio = { -1, -1, file } };

	for (enum sandbox_isolation i = SANDBOX_MODERATE; i < SANDBOX_ISOLATION_NUM; i++) {
		serve(&t, i);
		ex.stdio[1] = t.out;
		EXEC(&t, 1, &ex, "/probe", "confined");
		expect_started(&t, 1, NULL);
		expect_end(&t, 1, 0);
		if (i + 1 < SANDBOX_ISOLATION_NUM)
			trial_done(&t);
	}
}

/* ---- terminals ---- */

static void a_command_gets_a_terminal_of_its_own(void **state)
{
	struct sandbox_exec tty = { .tty = true, .rows = 33, .cols = 77 };
	_cleanup_trial_ struct trial t;
	char buf[4096];
	int a, b;

	serve(&t, SANDBOX_STRICT);
	EXEC(&t, 1, &tty, "sh", "-c", "stty size; tty; echo ready > /dev/tty; exec cat");
	expect_started(&t, 1, &a);
	EXEC(&t, 2, &tty, "sh", "-c",
		"tty; echo other; exec sleep 1000"); /* a reader may see the end of its input before the signal */
	expect_started(&t, 2, &b);
	read_until(a, "ready", buf, sizeof(buf));
	assert_non_null(strstr(buf, "33 77"));
	assert_non_null(strstr(buf, "/dev/pts/0"));
	read_until(b, "other", buf, sizeof(buf));
	assert_non_null(strstr(buf, "/dev/pts/1"));
	assert_int_equal(write(a, "\x03", 1), 1);
	expect_end(&t, 1, 130);
	close(b); /* hang up */
	expect_end(&t, 2, 129);
	close(a);
}

/* ---- the root from outside ---- */

static int open_in_root(int root, const char *path, uint64_t flags)
{
	struct open_how how = { .flags = flags | O_CLOEXEC, .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS };

	return (int)syscall(SYS_openat2, root, path, &how, sizeof(how));
}

static void the_root_opens_from_outside(void **state)
{
	_cleanup_close_ int root = -1, file = -1, link = -1;
	_cleanup_trial_ struct trial t;
	char text[8] = "";

	serve(&t, SANDBOX_MODERATE);
	EXEC_OK(&t, 1, "sh", "-c", "echo hi > /home/agent/a; ln -s /home/agent/a /tmp/link; echo x > /tmp/b");
	root = sandbox_root_fd(t.sb);
	assert_true(root >= 0);
	file = open_in_root(root, "/home/agent/a", O_RDONLY);
	assert_int_equal(read(file, text, sizeof(text)), 3);
	link = open_in_root(root, "../../../tmp/link", O_RDWR);
	assert_true(link >= 0);
	assert_int_equal(write(link, "ho", 2), 2);
	EXEC_OK(&t, 1, "cat", "/home/agent/a");
	assert_string_equal(trial_output(&t), "ho\n");
	assert_int_equal(sandbox_signal(t.sb, SIGKILL), 0);
	trial_wait(&t, SANDBOX_ENDED);
	assert_int_equal(sandbox_root_fd(t.sb), -ENOENT);
}

/* ---- a gateway that is there already ---- */

static int receive_peer(int sock)
{
	int fds[GWNS_FD_NUM];
	size_t n = GWNS_FD_NUM;
	uint32_t mask = 0;

	assert_int_equal(ak_recv_fds(sock, &mask, sizeof(mask), fds, &n), sizeof(mask));
	assert_int_equal(mask, 1u << GWNS_PEER_RTNL);
	assert_int_equal(n, 1);
	return fds[0];
}

static void start_linked(struct trial *t, const struct gwns *gw, const struct gwns_link *link, int *ret_peer)
{
	struct ak_err err = { "" };
	int pair[2];

	trial_init(t, SANDBOX_STRICT);
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	t->spec.link = link;
	t->spec.gw_user_ns = gw->user_ns;
	t->spec.gw_net_ns = gw->net_ns;
	if (sandbox_start(&t->spec, pair[0], &t->sb, &err) < 0)
		fail_msg("%s", err.text);
	if (trial_wait(t, SANDBOX_READY) == SANDBOX_ENDED)
		fail_msg("%s", sandbox_result(t->sb)->err.text);
	*ret_peer = receive_peer(pair[1]);
	close(pair[0]);
	close(pair[1]);
}

static void gwns_done(struct gwns *gw)
{
	ak_close(gw->user_ns);
	ak_close(gw->net_ns);
	for (int i = 0; i < GWNS_FD_NUM; i++)
		ak_close(gw->fds[i]);
}

static void sandboxes_share_a_gateway(void **state)
{
	__attribute__((cleanup(gwns_done))) struct gwns gw = { -1, -1, { 0 } };
	struct trial t[2];
	struct ak_err err = { "" };

	if (gwns_spawn(-1, -1, &gw, &err) < 0)
		fail_msg("%s", err.text);
	for (uint32_t i = 0; i < 2; i++) {
		_cleanup_close_ int peer = -1;
		struct gwns_link link;
		char address[16], byte[8];
		struct pollfd p = { .fd = gw.fds[GWNS_DNS_UDP4], .events = POLLIN };

		gwns_link_plan(5 + i, &link);
		start_linked(&t[i], &gw, &link, &peer);
		if (gwns_link_up(gw.fds[GWNS_RTNL], peer, &link, false, &err) < 0)
			fail_msg("%s", err.text);
		trial_go(&t[i]);
		snprintf(address, sizeof(address), "%u", 0x64400000u + 4 * (5 + i) + 1);
		EXEC_OK(&t[i], 1, "/probe", "ask", address);
		assert_int_equal(poll(&p, 1, TIMEOUT_MS), 1);
		assert_int_equal(recv(p.fd, byte, sizeof(byte), 0), 5);
		EXEC(&t[i], 2, NULL, "sh", "-c", "ip link set eth0 down 2>/dev/null || exit 9");
		expect_started(&t[i], 2, NULL);
		expect_end(&t[i], 2, 9);
	}
	trial_done(&t[0]);
	trial_done(&t[1]);
}

static void a_gateway_that_is_none_is_refused(void **state)
{
	_cleanup_close_ int null = open("/dev/null", O_RDONLY | O_CLOEXEC), a = fcntl(null, F_DUPFD_CLOEXEC, 3);
	_cleanup_trial_ struct trial t;
	struct gwns_link link;
	struct ak_err err;
	int pair[2];

	gwns_link_plan(1, &link);
	trial_init(&t, SANDBOX_STRICT);
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	t.spec.link = &link;
	t.spec.gw_user_ns = t.spec.gw_net_ns = a;
	assert_int_equal(sandbox_start(&t.spec, pair[0], &t.sb, &err), 0);
	assert_int_equal(trial_finish(&t), 125);
	assert_non_null(strstr(t.result.err.text, "gateway's user namespace"));
	close(pair[0]);
	close(pair[1]);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(commands_run_one_after_the_other),
		cmocka_unit_test(many_commands_run_at_once),
		cmocka_unit_test(what_cannot_run_says_why),
		cmocka_unit_test(what_is_wrong_is_refused_at_once),
		cmocka_unit_test(big_arguments_and_environment_arrive),
		cmocka_unit_test(more_than_the_kernel_takes_is_an_error),
		cmocka_unit_test(nothing_but_the_streams_is_open),
		cmocka_unit_test(nothing_is_left_open_outside),
		cmocka_unit_test(commands_are_confined),
		cmocka_unit_test(a_command_gets_a_terminal_of_its_own),
		cmocka_unit_test(the_root_opens_from_outside),
		cmocka_unit_test(sandboxes_share_a_gateway),
		cmocka_unit_test(a_gateway_that_is_none_is_refused),
	};
	int rc = run_probe(probes, argc, argv);

	if (rc >= 0)
		return rc;
	rc = namespaces_missing();
	return rc >= 0 ? rc : cmocka_run_group_tests(tests, NULL, NULL);
}
