/* What a process in the sandbox may ask of the kernel: capabilities and system calls, by isolation profile. */
#include "test_sandbox_util.h"

#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>

/* ---- probes: run inside, argv[0] is the profile ---- */

struct call {
	const char *name;
	long nr;
	int moderate, strict; /* errno to expect; 0: let through (arguments are such that the kernel itself would refuse) */
};

static const struct call calls[] = {
	{ "mount", SYS_mount, EPERM, EPERM },
	{ "umount2", SYS_umount2, EPERM, EPERM },
	{ "pivot_root", SYS_pivot_root, EPERM, EPERM },
	{ "open_tree", SYS_open_tree, EPERM, EPERM },
	{ "move_mount", SYS_move_mount, EPERM, EPERM },
	{ "fsopen", SYS_fsopen, EPERM, EPERM },
	{ "fsconfig", SYS_fsconfig, EPERM, EPERM },
	{ "fsmount", SYS_fsmount, EPERM, EPERM },
	{ "fspick", SYS_fspick, EPERM, EPERM },
	{ "mount_setattr", SYS_mount_setattr, EPERM, EPERM },
	{ "swapon", SYS_swapon, EPERM, EPERM },
	{ "swapoff", SYS_swapoff, EPERM, EPERM },
	{ "reboot", SYS_reboot, EPERM, EPERM },
	{ "kexec_load", SYS_kexec_load, EPERM, EPERM },
	{ "init_module", SYS_init_module, EPERM, EPERM },
	{ "finit_module", SYS_finit_module, EPERM, EPERM },
	{ "delete_module", SYS_delete_module, EPERM, EPERM },
	{ "bpf", SYS_bpf, EPERM, EPERM },
	{ "perf_event_open", SYS_perf_event_open, EPERM, EPERM },
	{ "userfaultfd", SYS_userfaultfd, EPERM, EPERM },
	{ "keyctl", SYS_keyctl, EPERM, EPERM },
	{ "add_key", SYS_add_key, EPERM, EPERM },
	{ "request_key", SYS_request_key, EPERM, EPERM },
	{ "io_uring_setup", SYS_io_uring_setup, ENOSYS, ENOSYS },
	{ "io_uring_enter", SYS_io_uring_enter, ENOSYS, ENOSYS },
	{ "io_uring_register", SYS_io_uring_register, ENOSYS, ENOSYS },
	{ "open_by_handle_at", SYS_open_by_handle_at, EPERM, EPERM },
	{ "acct", SYS_acct, EPERM, EPERM },
	{ "quotactl", SYS_quotactl, EPERM, EPERM },
	{ "syslog", SYS_syslog, EPERM, EPERM },
	{ "settimeofday", SYS_settimeofday, EPERM, EPERM },
	{ "clock_settime", SYS_clock_settime, EPERM, EPERM },
	{ "adjtimex", SYS_adjtimex, EPERM, EPERM },
	{ "clock_adjtime", SYS_clock_adjtime, EPERM, EPERM },
	{ "setns", SYS_setns, EPERM, EPERM },
	{ "unshare", SYS_unshare, EPERM, EPERM },
	{ "chroot", SYS_chroot, 0, EPERM },
	{ "clone3", SYS_clone3, ENOSYS, ENOSYS },
	{ "ptrace", SYS_ptrace, 0, EPERM },
	{ "process_vm_readv", SYS_process_vm_readv, 0, EPERM },
	{ "process_vm_writev", SYS_process_vm_writev, 0, EPERM },
	{ "pidfd_getfd", SYS_pidfd_getfd, 0, EPERM },
	{ "openat2", SYS_openat2, ENOSYS, ENOSYS },
	{ "fchmod with set-id bits", SYS_fchmod, EPERM, EPERM },
	{ "fchmodat with set-id bits", SYS_fchmodat, EPERM, EPERM },
	{ "fchmodat2 with set-id bits", 452, EPERM, EPERM },
	{ "openat with set-id bits", SYS_openat, EPERM, EPERM },
	{ "mknodat with set-id bits", SYS_mknodat, EPERM, EPERM },
	{ "a call of the future", 463, ENOSYS, ENOSYS },
	{ "a call of the far future", 1000, ENOSYS, ENOSYS },
#ifdef __x86_64__
	{ "x32 getpid", 0x40000000 + 39, ENOSYS, ENOSYS },
#endif
};

/* Let through where nested namespaces were asked for. */
static bool makes_namespaces(long nr)
{
	return nr == SYS_setns || nr == SYS_unshare || nr == SYS_clone3;
}

/* Every argument is an impossible pointer or number: a call that is let through fails in the kernel, with another errno. */
static int probe_calls(int argc, char **argv)
{
	bool strict = argc > 0 && !strcmp(argv[0], "strict"), nested = argc > 0 && !strcmp(argv[0], "nested");
	const long bad = -1;

	for (size_t i = 0; i < ARRAY_SIZE(calls); i++) {
		int wanted = strict ? calls[i].strict : nested && makes_namespaces(calls[i].nr) ? 0 : calls[i].moderate;
		long rc;

		errno = 0;
		rc = syscall(calls[i].nr, bad, bad, bad, bad, bad, bad);
		if (wanted && (rc != -1 || errno != wanted)) {
			printf("%s: %ld, %s\n", calls[i].name, rc, strerror(errno));
			probe_failures++;
		}
		if (!wanted && rc == -1 && errno == ENOSYS) {
			printf("%s: not let through\n", calls[i].name);
			probe_failures++;
		}
	}
	return probe_failures;
}

static int socket_errno(int family, int type, int protocol)
{
	int fd = socket(family, type, protocol);

	if (fd < 0)
		return errno;
	close(fd);
	return 0;
}

static int probe_sockets(int argc, char **argv)
{
	EXPECT(socket_errno(AF_UNIX, SOCK_STREAM, 0) == 0);
	EXPECT(socket_errno(AF_INET, SOCK_STREAM, 0) == 0);
	EXPECT(socket_errno(AF_INET6, SOCK_DGRAM, 0) == 0);
	EXPECT(socket_errno(AF_NETLINK, SOCK_RAW, 0) == 0);
	for (int protocol = 1; protocol < 32; protocol++) {
		int e = socket_errno(AF_NETLINK, SOCK_RAW, protocol);

		EXPECT(e == EAFNOSUPPORT || e == EPROTONOSUPPORT);
	}
	for (int family = 0; family < 64; family++) {
		if (family == AF_UNIX || family == AF_INET || family == AF_INET6 || family == AF_NETLINK)
			continue;
		EXPECT(socket_errno(family, SOCK_RAW, 0) == EAFNOSUPPORT);
		EXPECT(socket_errno(family, SOCK_DGRAM, 0) == EAFNOSUPPORT);
	}
	EXPECT(socket_errno(AF_INET, SOCK_RAW, IPPROTO_ICMP) == EPERM);
	EXPECT(socket_errno(AF_INET, SOCK_STREAM, IPPROTO_SCTP) == EPROTONOSUPPORT);
	/* The kernel reads the low half only; the high half must not hide a family from the filter. */
	errno = 0;
	EXPECT(syscall(SYS_socket, (1UL << 32) | AF_PACKET, SOCK_RAW, 0) == -1 && errno == EAFNOSUPPORT);
	EXPECT(syscall(SYS_socket, AF_NETLINK, SOCK_RAW, (1UL << 32) | 12) == -1);
	return probe_failures;
}

static int lease_errno(void)
{
	int fd = open("/tmp/leased", O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	return fcntl(fd, F_SETLEASE, F_WRLCK) == 0 ? 0 : errno;
}

/* A core limit of 1 stays, and a program that lowers it does not notice. */
static int probe_limits(int argc, char **argv)
{
	struct rlimit lim = { 0 };

	EXPECT(lease_errno() == EPERM);
	EXPECT(syscall(SYS_fcntl, 0, (1UL << 32) | F_SETLEASE, F_UNLCK) == -1 && errno == EPERM);
	EXPECT(setrlimit(RLIMIT_CORE, &lim) == 0);
	EXPECT(syscall(SYS_setrlimit, RLIMIT_CORE, &lim) == 0);
	EXPECT(syscall(SYS_setrlimit, (1UL << 32) | RLIMIT_CORE, &lim) == 0);
	EXPECT(syscall(SYS_prlimit64, 0, (1UL << 32) | RLIMIT_CORE, &lim, NULL) == 0);
	EXPECT(syscall(SYS_prlimit64, 0, RLIMIT_CORE, &lim, &lim) == -1 && errno == EPERM);
	EXPECT(getrlimit(RLIMIT_CORE, &lim) == 0 && lim.rlim_cur == 1 && lim.rlim_max == 1);
	return probe_failures;
}

static int probe_terminal(int argc, char **argv)
{
	static const unsigned long requests[] = { TIOCSETD, TIOCEXCL, TIOCCONS, TIOCVHANGUP, TIOCSLCKTRMIOS, TIOCSSERIAL,
		TIOCSERCONFIG, TIOCMSET, TIOCMBIS, TIOCMBIC, 0x4b3a /* KDSETMODE */, 0x4b67 /* KDFONTOP's neighbour */,
		0x5605 /* VT_RELDISP */, 0x5606 /* VT_ACTIVATE */ };
	int master = open("/dev/ptmx", O_RDWR | O_NOCTTY);

	EXPECT(master >= 0);
	EXPECT(ioctl(master, TIOCSTI, "x") == -1 && errno == EPERM);
	EXPECT(ioctl(master, TIOCLINUX, "\1") == -1 && errno == EPERM);
	EXPECT(syscall(SYS_ioctl, master, (1UL << 32) | TIOCSTI, "x") == -1 && errno == EPERM);
	for (size_t i = 0; i < ARRAY_SIZE(requests); i++) {
		EXPECT(ioctl(master, requests[i], 0) == -1 && errno == EPERM);
		EXPECT(syscall(SYS_ioctl, master, (1UL << 32) | requests[i], 0) == -1 && errno == EPERM);
	}
	return probe_failures;
}

static int clone_errno(unsigned long flags)
{
	long pid = syscall(SYS_clone, flags | SIGCHLD, 0, 0, 0, 0);

	if (pid == 0)
		_exit(0);
	if (pid < 0)
		return errno;
	waitpid((pid_t)pid, NULL, 0);
	return 0;
}

static int probe_namespaces(int argc, char **argv)
{
	bool nested = argc > 0 && !strcmp(argv[0], "nested");
	static const unsigned long flags[] = { CLONE_NEWUSER, CLONE_NEWNS, CLONE_NEWPID, CLONE_NEWNET, CLONE_NEWIPC, CLONE_NEWUTS,
		CLONE_NEWCGROUP };

	EXPECT(clone_errno(0) == 0);
	for (size_t i = 0; i < ARRAY_SIZE(flags); i++) {
		/* Where it was asked for, a new user namespace works, and the others only in one. */
		if (!nested || flags[i] != CLONE_NEWUSER)
			EXPECT(clone_errno(flags[i]) == EPERM);
		else
			EXPECT(clone_errno(flags[i]) == 0);
	}
	EXPECT(clone_errno(CLONE_NEWUSER | CLONE_NEWNET) == (nested ? 0 : EPERM));
	return probe_failures;
}

/* A number in hexadecimal after KEY in /proc/self/status. */
static unsigned long long status_hex(const char *key)
{
	FILE *f = fopen("/proc/self/status", "r");
	unsigned long long value = ~0ULL;
	char line[256];

	while (f && fgets(line, sizeof(line), f)) {
		if (!strncmp(line, key, strlen(key)))
			value = strtoull(line + strlen(key), NULL, 16);
	}
	if (f)
		fclose(f);
	return value;
}

static int probe_powers(int argc, char **argv)
{
	/* chown, dac_override, fowner, fsetid, kill, setgid, setuid, net_bind_service, sys_chroot */
	const unsigned long long root = 0x1 | 0x2 | 0x8 | 0x10 | 0x20 | 0x40 | 0x80 | 0x400 | 0x40000;
	bool is_root = argc > 0 && !strcmp(argv[0], "root");

	EXPECT(status_hex("CapEff:") == (is_root ? root : 0));
	EXPECT(status_hex("CapPrm:") == (is_root ? root : 0));
	EXPECT(status_hex("CapBnd:") == (is_root ? root : 0));
	EXPECT(status_hex("CapInh:") == 0);
	EXPECT(status_hex("CapAmb:") == 0);
	EXPECT(status_hex("NoNewPrivs:") == 1);
	EXPECT(status_hex("Seccomp:") == 2);
	EXPECT((geteuid() == 0) == is_root);
	return probe_failures;
}

#ifdef __x86_64__
/* getpid by the 32-bit door: the number is another call's there. */
static int probe_foreign(int argc, char **argv)
{
	long rc;

	__asm__ volatile("int $0x80" : "=a"(rc) : "a"(20L) : "memory", "r8", "r9", "r10", "r11");
	EXPECT(rc == -ENOSYS);
	return probe_failures;
}
#endif

static const struct probe probes[] = {
	{ "calls", probe_calls },
	{ "sockets", probe_sockets },
	{ "terminal", probe_terminal },
	{ "limits", probe_limits },
	{ "namespaces", probe_namespaces },
	{ "powers", probe_powers },
#ifdef __x86_64__
	{ "foreign", probe_foreign },
#endif
	{ NULL, NULL },
};

/* ---- tests ---- */

static void run_in_all(const char *probe)
{
	static const char *const names[] = {
		[SANDBOX_MODERATE] = "moderate", [SANDBOX_STRICT] = "strict", [SANDBOX_NESTED] = "nested"
	};

	for (enum sandbox_isolation i = SANDBOX_MODERATE; i < SANDBOX_ISOLATION_NUM; i++) {
		_cleanup_trial_ struct trial t;

		trial_init(&t, i);
		RUN_OK(&t, "/probe", probe, names[i]);
	}
}

static void dangerous_calls_are_refused(void **state)
{
	run_in_all("calls");
}

static void only_the_useful_socket_families_exist(void **state)
{
	run_in_all("sockets");
}

static void nothing_can_type_into_a_terminal_or_change_it_for_good(void **state)
{
	run_in_all("terminal");
}

static void leases_are_refused_and_the_core_limit_stays(void **state)
{
	run_in_all("limits");
}

static void nested_namespaces_only_where_asked_for(void **state)
{
	run_in_all("namespaces");
}

static void no_capability_is_left(void **state)
{
	run_in_all("powers");
}

#ifdef __x86_64__
static void calls_of_another_architecture_do_not_exist(void **state)
{
	run_in_all("foreign");
}
#endif

static void root_inside_keeps_only_what_installing_needs(void **state)
{
	_cleanup_trial_ struct trial t;

	trial_init(&t, SANDBOX_MODERATE);
	t.spec.root_inside = true;
	RUN_OK(&t, "/probe", "powers", "root");
	RUN_OK(&t, "sh", "-c", "id -u; id -un");
	assert_string_equal(t.text, "0\nroot\n");
	RUN_OK(&t, "sh", "-c", "touch /etc/new && chmod 600 /etc/new && chown 0:0 /etc/new");
	/* No power over its own network, whatever it is called inside. */
	assert_int_not_equal(SHELL(&t, "PATH=$PATH:/usr/sbin ip link set lo down 2>/dev/null"), 0);
	assert_int_not_equal(SHELL(&t, "echo 0 > /proc/sys/kernel/hostname"), 0);
}

/* Where subordinate ids are to be had, package managers can give files to other users. */
static void root_inside_may_have_other_users(void **state)
{
	_cleanup_trial_ struct trial t;

	trial_init(&t, SANDBOX_MODERATE);
	t.spec.root_inside = true;
	RUN_OK(&t, "cat", "/proc/self/uid_map");
	if (!strchr(t.text, '\n') || strtoul(strrchr(t.text, ' '), NULL, 10) < 100) {
		skip();
		return;
	}
	RUN_OK(&t, "sh", "-c", "touch /tmp/f && chown 33:44 /tmp/f && stat -c %u:%g /tmp/f");
	assert_string_equal(t.text, "33:44\n");
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(dangerous_calls_are_refused),
		cmocka_unit_test(only_the_useful_socket_families_exist),
		cmocka_unit_test(nothing_can_type_into_a_terminal_or_change_it_for_good),
		cmocka_unit_test(leases_are_refused_and_the_core_limit_stays),
		cmocka_unit_test(nested_namespaces_only_where_asked_for),
		cmocka_unit_test(no_capability_is_left),
#ifdef __x86_64__
		cmocka_unit_test(calls_of_another_architecture_do_not_exist),
#endif
		cmocka_unit_test(root_inside_keeps_only_what_installing_needs),
		cmocka_unit_test(root_inside_may_have_other_users),
	};
	int rc = run_probe(probes, argc, argv);

	if (rc >= 0)
		return rc;
	rc = namespaces_missing();
	return rc >= 0 ? rc : cmocka_run_group_tests(tests, NULL, NULL);
}
