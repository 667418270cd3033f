/*
 * Build-time tool: compile the system-call filter of each isolation profile with libseccomp and write it as a C table.
 *
 * Everything is allowed except the calls listed here and calls newer than this list, which return ENOSYS, so a future kernel
 * adds no attack surface. A refused call returns ENOSYS if programs then fall back to another one, and EPERM otherwise.
 */
#include "vmctl/gen/table.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <seccomp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/*
 * One past the newest call known to this table (lsm_list_modules and mseal, Linux 6.10). Later calls return ENOSYS, and so do
 * x32 calls, whose numbers are far higher.
 */
#define FIRST_UNKNOWN_CALL 463

/* NESTED is MODERATE with namespaces allowed. The profiles of images report set-id bits to a listener instead of refusing them. */
enum profile { MODERATE, STRICT, NESTED, MODERATE_IMAGE, NESTED_IMAGE, PROFILE_NUM };

static const char *const profile_names[PROFILE_NUM] = { [MODERATE] = "moderate",
	[STRICT] = "strict",
	[NESTED] = "nested",
	[MODERATE_IMAGE] = "moderate_image",
	[NESTED_IMAGE] = "nested_image" };

/* The profiles in which a call is refused, as bits. */
#define EVERYWHERE ((1u << PROFILE_NUM) - 1)
#define IN_STRICT (1u << STRICT)
#define NO_NESTING (EVERYWHERE & ~(1u << NESTED | 1u << NESTED_IMAGE))

struct deny {
	const char *name;
	int error;
	unsigned where;
};

static const struct deny denied[] = {
	/* mounts and roots */
	{ "mount", EPERM, EVERYWHERE },
	{ "umount", EPERM, EVERYWHERE },
	{ "umount2", EPERM, EVERYWHERE },
	{ "pivot_root", EPERM, EVERYWHERE },
	{ "open_tree", EPERM, EVERYWHERE },
	{ "move_mount", EPERM, EVERYWHERE },
	{ "fsopen", EPERM, EVERYWHERE },
	{ "fsconfig", EPERM, EVERYWHERE },
	{ "fsmount", EPERM, EVERYWHERE },
	{ "fspick", EPERM, EVERYWHERE },
	{ "mount_setattr", EPERM, EVERYWHERE },
	{ "quotactl", EPERM, EVERYWHERE },
	{ "quotactl_fd", EPERM, EVERYWHERE },
	{ "swapon", EPERM, EVERYWHERE },
	{ "swapoff", EPERM, EVERYWHERE },
	/* the machine and its kernel */
	{ "reboot", EPERM, EVERYWHERE },
	{ "kexec_load", EPERM, EVERYWHERE },
	{ "kexec_file_load", EPERM, EVERYWHERE },
	{ "init_module", EPERM, EVERYWHERE },
	{ "finit_module", EPERM, EVERYWHERE },
	{ "delete_module", EPERM, EVERYWHERE },
	{ "create_module", ENOSYS, EVERYWHERE },
	{ "query_module", ENOSYS, EVERYWHERE },
	{ "get_kernel_syms", ENOSYS, EVERYWHERE },
	{ "bpf", EPERM, EVERYWHERE },
	{ "perf_event_open", EPERM, EVERYWHERE },
	{ "userfaultfd", EPERM, EVERYWHERE },
	{ "acct", EPERM, EVERYWHERE },
	{ "nfsservctl", ENOSYS, EVERYWHERE },
	{ "lookup_dcookie", EPERM, EVERYWHERE },
	{ "syslog", EPERM, EVERYWHERE },
	{ "vhangup", EPERM, EVERYWHERE },
	{ "uselib", ENOSYS, EVERYWHERE },
	{ "ustat", ENOSYS, EVERYWHERE },
	{ "sysfs", ENOSYS, EVERYWHERE },
	{ "_sysctl", ENOSYS, EVERYWHERE },
	{ "modify_ldt", EPERM, IN_STRICT },
	{ "iopl", EPERM, EVERYWHERE },
	{ "ioperm", EPERM, EVERYWHERE },
	{ "vm86", ENOSYS, EVERYWHERE },
	{ "vm86old", ENOSYS, EVERYWHERE },
	/* the clock; adjtimex and clock_adjtime also read it, so they fail as on a host without the privilege */
	{ "settimeofday", EPERM, EVERYWHERE },
	{ "clock_settime", EPERM, EVERYWHERE },
	{ "adjtimex", EPERM, EVERYWHERE },
	{ "clock_adjtime", EPERM, EVERYWHERE },
	{ "stime", EPERM, EVERYWHERE },
	/* keyrings are not namespaced */
	{ "add_key", EPERM, EVERYWHERE },
	{ "request_key", EPERM, EVERYWHERE },
	{ "keyctl", EPERM, EVERYWHERE },
	/* a second way to make every other call */
	{ "io_uring_setup", ENOSYS, EVERYWHERE },
	{ "io_uring_enter", ENOSYS, EVERYWHERE },
	{ "io_uring_register", ENOSYS, EVERYWHERE },
	/* files by inode number instead of by path */
	{ "open_by_handle_at", EPERM, EVERYWHERE },
	{ "fanotify_init", EPERM, IN_STRICT },
	/* other processes */
	{ "ptrace", EPERM, IN_STRICT },
	{ "process_vm_readv", EPERM, IN_STRICT },
	{ "process_vm_writev", EPERM, IN_STRICT },
	{ "process_madvise", EPERM, IN_STRICT },
	{ "kcmp", EPERM, IN_STRICT },
	{ "pidfd_getfd", EPERM, IN_STRICT },
	/* NUMA placement of memory */
	{ "mbind", EPERM, IN_STRICT },
	{ "move_pages", EPERM, IN_STRICT },
	{ "migrate_pages", EPERM, IN_STRICT },
	{ "set_mempolicy", EPERM, IN_STRICT },
	{ "set_mempolicy_home_node", EPERM, IN_STRICT },
	/* namespaces; clone3 hides its flags behind a pointer, and libraries fall back to clone */
	{ "setns", EPERM, NO_NESTING },
	{ "unshare", EPERM, IN_STRICT },
	{ "clone3", ENOSYS, NO_NESTING },
	/* its mode is behind a pointer too and could contain a set-id bit; programs fall back to openat */
	{ "openat2", ENOSYS, EVERYWHERE },
	{ "chroot", EPERM, IN_STRICT },
};

/* CLONE_NEW…: mount, cgroup, uts, ipc, user, pid, net. */
static const uint64_t namespace_flags[] = {
	0x00020000,
	0x02000000,
	0x04000000,
	0x08000000,
	0x10000000,
	0x20000000,
	0x40000000,
};
#define CLONE_NEWTIME_BIT 0x80 /* only for unshare: part of clone's exit signal */

#define LOW32 UINT64_C(0xffffffff)

/*
 * Refuse the calls NR if MORE holds (when given) and the bits MASK of argument ARG are in FROM to TO. The range is split into
 * blocks whose size is a power of two: each needs one comparison.
 */
static int refuse_range(scmp_filter_ctx ctx, uint32_t action, int nr, unsigned arg, uint64_t mask, uint64_t from, uint64_t to,
	const struct scmp_arg_cmp *more)
{
	while (from <= to) {
		uint64_t wide = from ? from & -from : mask + 1;
		struct scmp_arg_cmp args[2];
		int rc;

		while (wide > to - from + 1)
			wide /= 2;
		args[0] = SCMP_CMP(arg, SCMP_CMP_MASKED_EQ, mask & ~(wide - 1), from);
		if (more)
			args[1] = *more;
		rc = seccomp_rule_add_array(ctx, action, nr, more ? 2 : 1, args);
		if (rc < 0)
			return rc;
		from += wide;
	}
	return 0;
}

/* The same for all values up to MOST that are not among the bits KNOWN. */
static int refuse_unknown(scmp_filter_ctx ctx, uint32_t action, int nr, unsigned arg, uint64_t mask, uint64_t known,
	uint64_t most, const struct scmp_arg_cmp *more)
{
	int rc = 0;

	for (uint64_t from = 0, to; rc >= 0 && from <= most; from = to + 1) {
		for (to = from; to <= most && !(known >> to & 1); to++)
			;
		if (to > from)
			rc = refuse_range(ctx, action, nr, arg, mask, from, to - 1, more);
	}
	return rc;
}

/*
 * Allow only unix, IPv4, IPv6 and netlink's route family (getaddrinfo and `ip` need it). The kernel reads the low half of an
 * argument and the comparisons see all of it, so "greater than" refuses values with high bits set.
 */
static int add_families(scmp_filter_ctx ctx)
{
	const int nr = SCMP_SYS(socket);
	const uint64_t known = 1u << AF_UNIX | 1u << AF_INET | 1u << AF_INET6 | 1u << AF_NETLINK;
	uint32_t refuse = SCMP_ACT_ERRNO(EAFNOSUPPORT);
	int rc = seccomp_rule_add(ctx, refuse, nr, 1, SCMP_A0(SCMP_CMP_GT, AF_NETLINK, 0));

	if (rc >= 0)
		rc = refuse_unknown(ctx, refuse, nr, 0, LOW32, known, AF_NETLINK, NULL);
	if (rc >= 0)
		rc = seccomp_rule_add(ctx, refuse, nr, 2, SCMP_A0(SCMP_CMP_EQ, AF_NETLINK, 0), SCMP_A2(SCMP_CMP_NE, 0, 0));
	/* socketpair creates the sockets before it reports that a family has no pairs. */
	if (rc >= 0)
		rc = seccomp_rule_add(ctx, refuse, SCMP_SYS(socketpair), 1, SCMP_A0(SCMP_CMP_NE, AF_UNIX, 0));
	return table_check(rc, "socket families");
}

/*
 * Allow stream and datagram sockets, and seqpacket between processes. Other types lead to raw and packet sockets (SOCK_PACKET
 * is of the family AF_INET), or to transports whose modules the kernel would load on request. Netlink is always raw.
 */
static int add_types(scmp_filter_ctx ctx)
{
	static const struct {
		unsigned family;
		uint32_t types; /* allowed types, as bits */
	} known[] = {
		{ AF_UNIX, 1u << SOCK_STREAM | 1u << SOCK_DGRAM | 1u << SOCK_RAW | 1u << SOCK_SEQPACKET },
		{ AF_INET, 1u << SOCK_STREAM | 1u << SOCK_DGRAM },
		{ AF_INET6, 1u << SOCK_STREAM | 1u << SOCK_DGRAM },
	};
	const uint64_t type_mask = 0xf; /* SOCK_TYPE_MASK; above it are flags */
	int rc = 0;

	for (size_t i = 0; rc >= 0 && i < COUNT(known); i++) {
		struct scmp_arg_cmp family = SCMP_A0(SCMP_CMP_EQ, known[i].family, 0);

		rc = refuse_unknown(
			ctx, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(socket), 1, type_mask, known[i].types, type_mask, &family);
	}
	return table_check(rc, "socket type");
}

/*
 * Allow only TCP, UDP and the kernel's own echo sockets. SCTP, DCCP, SMC, L2TP and UDP-Lite are of no use here. MPTCP would
 * only add kernel code, because the gateway terminates every connection, and programs fall back to TCP.
 */
static int add_transports(scmp_filter_ctx ctx)
{
	const uint64_t most = IPPROTO_ICMPV6,
		       known = UINT64_C(1) << IPPROTO_IP | UINT64_C(1) << IPPROTO_ICMP | UINT64_C(1) << IPPROTO_TCP |
		UINT64_C(1) << IPPROTO_UDP | UINT64_C(1) << IPPROTO_ICMPV6;
	const uint32_t refuse = SCMP_ACT_ERRNO(EPROTONOSUPPORT);
	int rc = seccomp_rule_add(ctx, refuse, SCMP_SYS(socket), 1, SCMP_A2(SCMP_CMP_GT, most, 0));

	if (rc >= 0)
		rc = refuse_unknown(ctx, refuse, SCMP_SYS(socket), 2, LOW32, known, most, NULL);
	/* Refuse another protocol on top of a connected socket (kernel TLS, SMC). */
	if (rc >= 0)
		rc = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(ENOPROTOOPT), SCMP_SYS(setsockopt), 2,
			SCMP_A1(SCMP_CMP_MASKED_EQ, LOW32, IPPROTO_TCP), SCMP_A2(SCMP_CMP_MASKED_EQ, LOW32, TCP_ULP));
	return table_check(rc, "socket protocol");
}

/*
 * Calls that set a file's mode, and the index of the mode among the arguments. CREATES: only if the previous argument has this
 * flag.
 */
static const struct {
	const char *name;
	int number; /* used if this libseccomp does not know the name; the same on every architecture */
	unsigned mode;
	uint64_t creates;
} modes[] = {
	{ "chmod", -1, 1, 0 },
	{ "fchmod", -1, 1, 0 },
	{ "fchmodat", -1, 2, 0 },
	{ "fchmodat2", 452, 2, 0 },
	{ "creat", -1, 1, 0 },
	{ "open", -1, 2, O_CREAT },
	{ "open", -1, 2, O_TMPFILE & ~O_DIRECTORY },
	{ "openat", -1, 3, O_CREAT },
	{ "openat", -1, 3, O_TMPFILE & ~O_DIRECTORY },
	{ "mknod", -1, 1, 0 },
	{ "mknodat", -1, 2, 0 },
};

static int mode_call(size_t i)
{
	int nr = seccomp_syscall_resolve_name(modes[i].name);

	return nr == __NR_SCMP_ERROR ? modes[i].number : nr;
}

/*
 * Refuse set-id bits, or report them to the helper that removes them (setid.c). Nothing inside can use them (no_new_privs), but
 * the project lies on the host, where they would count. mkdir ignores these bits. openat2 and io_uring, which hide the mode from
 * a filter, are refused altogether.
 */
static int add_set_ids(scmp_filter_ctx ctx, enum profile profile)
{
	static const uint64_t bits[] = { S_ISUID, S_ISGID };
	const uint32_t action = profile == MODERATE_IMAGE || profile == NESTED_IMAGE ? SCMP_ACT_NOTIFY : SCMP_ACT_ERRNO(EPERM);

#ifdef AK_SABOTAGE_NOSETIDS
	return 0;
#endif
	for (size_t i = 0; i < COUNT(modes); i++) {
		int nr = mode_call(i);

		for (size_t j = 0; nr >= 0 && j < COUNT(bits); j++) {
			struct scmp_arg_cmp args[] = { SCMP_CMP(modes[i].mode, SCMP_CMP_MASKED_EQ, bits[j], bits[j]),
				SCMP_CMP(modes[i].mode - 1, SCMP_CMP_MASKED_EQ, modes[i].creates, modes[i].creates) };
			int rc = seccomp_rule_add_array(ctx, action, nr, modes[i].creates ? 2 : 1, args);

			if (rc < 0)
				return table_check(rc, modes[i].name);
		}
	}
	return 0;
}

/*
 * Refuse leases: one on a file of the project would make the host's programs wait up to 45 s to open it. Keep the core limit
 * of 1, which stops the kernel from starting the host's core_pattern program: programs that lower it to protect their secrets
 * are told that this succeeded.
 */
static int add_limits(scmp_filter_ctx ctx)
{
	int rc = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(fcntl), 1, SCMP_A1(SCMP_CMP_MASKED_EQ, LOW32, F_SETLEASE));

	if (rc >= 0)
		rc = seccomp_rule_add(
			ctx, SCMP_ACT_ERRNO(0), SCMP_SYS(setrlimit), 1, SCMP_A0(SCMP_CMP_MASKED_EQ, LOW32, RLIMIT_CORE));
	if (rc >= 0)
		rc = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(0), SCMP_SYS(prlimit64), 3,
			SCMP_A1(SCMP_CMP_MASKED_EQ, LOW32, RLIMIT_CORE), SCMP_A2(SCMP_CMP_NE, 0, 0), SCMP_A3(SCMP_CMP_EQ, 0, 0));
	if (rc >= 0)
		rc = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(prlimit64), 3,
			SCMP_A1(SCMP_CMP_MASKED_EQ, LOW32, RLIMIT_CORE), SCMP_A2(SCMP_CMP_NE, 0, 0), SCMP_A3(SCMP_CMP_NE, 0, 0));
	return table_check(rc, "limits");
}

/*
 * Refuse ioctls that change a terminal permanently or insert input: TIOCSTI, line disciplines, stealing the terminal,
 * redirecting the console, hanging up, locked modes, serial lines and their signals, and the whole ranges of consoles (KD,
 * VT).
 */
static int add_ioctls(scmp_filter_ctx ctx)
{
	static const uint64_t requests[] = { TIOCSTI, TIOCLINUX, TIOCSETD, TIOCEXCL, TIOCCONS, TIOCVHANGUP, TIOCSLCKTRMIOS,
		TIOCSSERIAL, TIOCSERCONFIG, TIOCSERSWILD, TIOCSERSETMULTI, TIOCSRS485, TIOCMSET, TIOCMBIS, TIOCMBIC };
	static const uint64_t ranges[] = { 0x4b00, 0x5600 };
	int rc = 0;

	for (size_t i = 0; i < COUNT(requests) && rc >= 0; i++)
		rc = seccomp_rule_add(
			ctx, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(ioctl), 1, SCMP_A1(SCMP_CMP_MASKED_EQ, LOW32, requests[i]));
	for (size_t i = 0; i < COUNT(ranges) && rc >= 0; i++)
		rc = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(ioctl), 1,
			SCMP_A1(SCMP_CMP_MASKED_EQ, LOW32 & ~UINT64_C(0xff), ranges[i]));
	return rc < 0 ? table_check(rc, "ioctl") : add_limits(ctx);
}

static int refuse_flag(scmp_filter_ctx ctx, int nr, uint64_t flag)
{
	return table_check(
		seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EPERM), nr, 1, SCMP_A0(SCMP_CMP_MASKED_EQ, flag, flag)), "namespaces");
}

/* Refuse to create namespaces. */
static int add_namespaces(scmp_filter_ctx ctx, enum profile profile)
{
	int rc = 0;

	for (size_t i = 0; rc >= 0 && i < COUNT(namespace_flags); i++) {
		rc = refuse_flag(ctx, SCMP_SYS(clone), namespace_flags[i]);
		if (rc >= 0 && profile != STRICT) /* which refuses unshare altogether */
			rc = refuse_flag(ctx, SCMP_SYS(unshare), namespace_flags[i]);
	}
	return rc >= 0 && profile != STRICT ? refuse_flag(ctx, SCMP_SYS(unshare), CLONE_NEWTIME_BIT) : rc;
}

/* 0xffffffff queries; every other value changes the address space layout. */
static int add_personality(scmp_filter_ctx ctx)
{
	int rc = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(personality), 1, SCMP_A0(SCMP_CMP_NE, LOW32, 0));

	return table_check(rc, "personality");
}

static int add_denied(scmp_filter_ctx ctx, enum profile profile)
{
	for (size_t i = 0; i < COUNT(denied); i++) {
		int nr = seccomp_syscall_resolve_name(denied[i].name), rc;

		/* Negative: this architecture has no such call. */
		if (nr < 0 || !(denied[i].where & 1u << profile))
			continue;
		rc = seccomp_rule_add(ctx, SCMP_ACT_ERRNO((unsigned)denied[i].error), nr, 0);
		if (rc < 0)
			return table_check(rc, denied[i].name);
	}
	return 0;
}

/* Calls of another architecture, including 32-bit and x32, return ENOSYS. */
static int refuse_foreign(scmp_filter_ctx ctx)
{
	return table_check(seccomp_attr_set(ctx, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_ERRNO(ENOSYS)), "bad architecture");
}

/*
 * Refuse a second listener, as the kernel does while there is one. A sandbox can kill the helper. A filter of its own would then be asked instead of this one, the older one, about
 * each call that both report, and could let it through.
 */
static int add_listeners(scmp_filter_ctx ctx)
{
	const uint64_t flag = SECCOMP_FILTER_FLAG_NEW_LISTENER;

	return table_check(
		seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EBUSY), SCMP_SYS(seccomp), 1, SCMP_A1(SCMP_CMP_MASKED_EQ, flag, flag)),
		"listeners");
}

static int build(scmp_filter_ctx ctx, enum profile profile)
{
	if (refuse_foreign(ctx) < 0)
		return -1;
	if (table_check(seccomp_attr_set(ctx, SCMP_FLTATR_CTL_OPTIMIZE, 2), "optimize") < 0)
		return -1;
	if (add_denied(ctx, profile) < 0 || add_families(ctx) < 0)
		return -1;
	if (add_types(ctx) < 0 || add_transports(ctx) < 0 || add_ioctls(ctx) < 0 || add_set_ids(ctx, profile) < 0)
		return -1;
	if ((profile == MODERATE_IMAGE || profile == NESTED_IMAGE) && add_listeners(ctx) < 0)
		return -1;
	if (profile != NESTED && profile != NESTED_IMAGE && add_namespaces(ctx, profile) < 0)
		return -1;
	return profile == STRICT ? add_personality(ctx) : 0;
}

/*
 * For root inside where only one id is mapped: pretend that changing owners and users works, so that package managers do. Every file
 * belongs to that one id anyway, and a process that "changes" its user keeps the id it has.
 */
static int build_one_id(scmp_filter_ctx ctx)
{
	static const char *const calls[] = { "chown", "fchown", "lchown", "fchownat", "setuid", "setgid", "setreuid", "setregid",
		"setresuid", "setresgid", "setgroups" };

	for (size_t i = 0; i < COUNT(calls); i++) {
		int nr = seccomp_syscall_resolve_name(calls[i]),
		    rc = nr < 0 ? 0 : seccomp_rule_add(ctx, SCMP_ACT_ERRNO(0), nr, 0);

		if (rc < 0)
			return table_check(rc, calls[i]);
	}
	return 0;
}

static int write_one_id(FILE *out)
{
	scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ALLOW);
	int rc = !ctx || refuse_foreign(ctx) < 0 || build_one_id(ctx) < 0 ||
			table_print(out, ctx, "one_id", FIRST_UNKNOWN_CALL) < 0
		? -1
		: 0;

	seccomp_release(ctx);
	return rc;
}

/* The helper that removes set-id bits needs only these calls (setid.c). */
static int build_helper(scmp_filter_ctx ctx)
{
	static const uint64_t requests[] = { SECCOMP_IOCTL_NOTIF_RECV, SECCOMP_IOCTL_NOTIF_SEND };
	static const uint64_t traces[] = { PTRACE_SEIZE, PTRACE_INTERRUPT, PTRACE_GETREGSET, PTRACE_SETREGSET, PTRACE_DETACH };
	int rc = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(wait4), 0);

	if (rc >= 0)
		rc = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(exit_group), 0);
	/* Only to read. */
	if (rc >= 0)
		rc = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(prlimit64), 1, SCMP_A2(SCMP_CMP_EQ, 0, 0));
	/* Some C libraries extend the sign of a request; the kernel reads the low half. */
	for (size_t i = 0; i < COUNT(requests) && rc >= 0; i++)
		rc = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(ioctl), 1, SCMP_A1(SCMP_CMP_MASKED_EQ, LOW32, requests[i]));
	for (size_t i = 0; i < COUNT(traces) && rc >= 0; i++)
		rc = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(ptrace), 1, SCMP_A0(SCMP_CMP_EQ, traces[i], 0));
	return table_check(rc, "helper");
}

static int write_helper(FILE *out)
{
	scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ERRNO(EPERM));
	int rc =
		!ctx || refuse_foreign(ctx) < 0 || build_helper(ctx) < 0 || table_print(out, ctx, "setid_helper", 0) < 0 ? -1 : 0;

	seccomp_release(ctx);
	return rc;
}

/* The number of each call that sets a mode, and the index of the mode among its arguments. */
static void write_modes(FILE *out)
{
	fprintf(out, "static const struct { int nr; unsigned mode; } seccomp_modes[] = {\n");
	for (size_t i = 0; i < COUNT(modes); i++) {
		if (mode_call(i) >= 0)
			fprintf(out, "\t{ %d, %u },\n", mode_call(i), modes[i].mode);
	}
	fprintf(out, "};\n");
}

int main(int argc, char **argv)
{
	FILE *out = argc == 2 ? fopen(argv[1], "w") : NULL;

	if (!out) {
		fprintf(stderr, "usage: ak_seccomp_gen FILE\n");
		return 2;
	}
	/* Whatever the build host's kernel can do: level 5 has SCMP_ACT_NOTIFY. */
	if (table_check(seccomp_api_set(5), "level") < 0)
		return 1;
	for (enum profile p = MODERATE; p < PROFILE_NUM; p++) {
		scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ALLOW);

		if (!ctx || build(ctx, p) < 0 || table_print(out, ctx, profile_names[p], FIRST_UNKNOWN_CALL) < 0)
			return 1;
		seccomp_release(ctx);
	}
	if (write_one_id(out) < 0 || write_helper(out) < 0)
		return 1;
	write_modes(out);
	return fclose(out) == 0 ? 0 : 1;
}
