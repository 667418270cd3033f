/*
 * Build-time tool: compile the system-call filter of each isolation profile with libseccomp and write it as a C table.
 *
 * Everything is allowed but what is listed, and nothing newer than the list is: a call whose number this table does not
 * know is ENOSYS (confine.c installs that gate), so a future kernel adds no surface. What a program would take for
 * "this kernel cannot" is ENOSYS, so that it falls back; what is forbidden is EPERM.
 */
#include <errno.h>
#include <seccomp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

enum profile { MODERATE, STRICT, PROFILE_NUM };

static const char *const profile_names[PROFILE_NUM] = { [MODERATE] = "moderate", [STRICT] = "strict" };

struct deny {
	const char *name;
	int error;
	bool strict_only;
};

static const struct deny denied[] = {
	/* mounts and roots */
	{ "mount", EPERM, false },
	{ "umount", EPERM, false },
	{ "umount2", EPERM, false },
	{ "pivot_root", EPERM, false },
	{ "open_tree", EPERM, false },
	{ "move_mount", EPERM, false },
	{ "fsopen", EPERM, false },
	{ "fsconfig", EPERM, false },
	{ "fsmount", EPERM, false },
	{ "fspick", EPERM, false },
	{ "mount_setattr", EPERM, false },
	{ "quotactl", EPERM, false },
	{ "quotactl_fd", EPERM, false },
	{ "swapon", EPERM, false },
	{ "swapoff", EPERM, false },
	/* the machine and its kernel */
	{ "reboot", EPERM, false },
	{ "kexec_load", EPERM, false },
	{ "kexec_file_load", EPERM, false },
	{ "init_module", EPERM, false },
	{ "finit_module", EPERM, false },
	{ "delete_module", EPERM, false },
	{ "create_module", ENOSYS, false },
	{ "query_module", ENOSYS, false },
	{ "get_kernel_syms", ENOSYS, false },
	{ "bpf", EPERM, false },
	{ "perf_event_open", EPERM, false },
	{ "userfaultfd", EPERM, false },
	{ "acct", EPERM, false },
	{ "nfsservctl", ENOSYS, false },
	{ "lookup_dcookie", EPERM, false },
	{ "syslog", EPERM, false },
	{ "vhangup", EPERM, false },
	{ "uselib", ENOSYS, false },
	{ "ustat", ENOSYS, false },
	{ "sysfs", ENOSYS, false },
	{ "_sysctl", ENOSYS, false },
	{ "modify_ldt", EPERM, true },
	{ "iopl", EPERM, false },
	{ "ioperm", EPERM, false },
	{ "vm86", ENOSYS, false },
	{ "vm86old", ENOSYS, false },
	/* the clock; adjtimex and clock_adjtime also read it, so they fail like on a host without the privilege */
	{ "settimeofday", EPERM, false },
	{ "clock_settime", EPERM, false },
	{ "adjtimex", EPERM, false },
	{ "clock_adjtime", EPERM, false },
	{ "stime", EPERM, false },
	/* keyrings are not namespaced */
	{ "add_key", EPERM, false },
	{ "request_key", EPERM, false },
	{ "keyctl", EPERM, false },
	/* a second way to make every other call */
	{ "io_uring_setup", ENOSYS, false },
	{ "io_uring_enter", ENOSYS, false },
	{ "io_uring_register", ENOSYS, false },
	/* files by number instead of by path */
	{ "open_by_handle_at", EPERM, false },
	{ "fanotify_init", EPERM, true },
	/* other processes */
	{ "ptrace", EPERM, true },
	{ "process_vm_readv", EPERM, true },
	{ "process_vm_writev", EPERM, true },
	{ "process_madvise", EPERM, true },
	{ "kcmp", EPERM, true },
	{ "pidfd_getfd", EPERM, true },
	/* where memory lies in the machine */
	{ "mbind", EPERM, true },
	{ "move_pages", EPERM, true },
	{ "migrate_pages", EPERM, true },
	{ "set_mempolicy", EPERM, true },
	{ "set_mempolicy_home_node", EPERM, true },
	/* namespaces; clone3 hides its flags behind a pointer, and libraries fall back to clone */
	{ "setns", EPERM, true },
	{ "unshare", EPERM, true },
	{ "clone3", ENOSYS, true },
	{ "chroot", EPERM, true },
};

/* CLONE_NEW…: mount, cgroup, uts, ipc, user, pid, net. (The time namespace's bit is part of clone's exit signal.) */
static const uint64_t namespace_flags[] = {
	0x00020000,
	0x02000000,
	0x04000000,
	0x08000000,
	0x10000000,
	0x20000000,
	0x40000000,
};

#define LOW32 UINT64_C(0xffffffff)

static int check(int rc, const char *what)
{
	if (rc < 0)
		fprintf(stderr, "seccomp_gen: %s: error %d\n", what, -rc);
	return rc;
}

/*
 * Only unix, IPv4, IPv6 and netlink's route family (getaddrinfo and `ip` need it). The kernel reads the low half of an
 * argument and the comparisons see all of it, so a value with high bits set is refused by "greater than".
 */
static int add_families(scmp_filter_ctx ctx, const char *name)
{
	int nr = seccomp_syscall_resolve_name(name), rc;
	uint32_t refuse = SCMP_ACT_ERRNO(EAFNOSUPPORT);

	rc = seccomp_rule_add(ctx, refuse, nr, 1, SCMP_A0(SCMP_CMP_GT, AF_NETLINK, 0));
	for (unsigned family = 0; rc >= 0 && family < AF_NETLINK; family++) {
		if (family == AF_UNIX || family == AF_INET || family == AF_INET6)
			continue;
		rc = seccomp_rule_add(ctx, refuse, nr, 1, SCMP_A0(SCMP_CMP_EQ, family, 0));
	}
	if (rc >= 0)
		rc = seccomp_rule_add(ctx, refuse, nr, 2, SCMP_A0(SCMP_CMP_EQ, AF_NETLINK, 0), SCMP_A2(SCMP_CMP_NE, 0, 0));
	return check(rc, name);
}

/* Transports nothing here uses, but whose modules the kernel would load on request: SCTP, DCCP, L2TP, UDP-Lite. */
static int add_transports(scmp_filter_ctx ctx)
{
	static const uint64_t protocols[] = { 132, 33, 115, 136 };

	for (size_t i = 0; i < COUNT(protocols); i++) {
		int rc = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EPROTONOSUPPORT), SCMP_SYS(socket), 1,
			SCMP_A2(SCMP_CMP_MASKED_EQ, LOW32, protocols[i]));

		if (rc < 0)
			return check(rc, "socket protocol");
	}
	return 0;
}

/* Typing into, or pasting from, a terminal that was handed in. */
static int add_ioctls(scmp_filter_ctx ctx)
{
	static const uint64_t requests[] = { TIOCSTI, TIOCLINUX };

	for (size_t i = 0; i < COUNT(requests); i++) {
		int rc = seccomp_rule_add(
			ctx, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(ioctl), 1, SCMP_A1(SCMP_CMP_MASKED_EQ, LOW32, requests[i]));

		if (rc < 0)
			return check(rc, "ioctl");
	}
	return 0;
}

static int add_strict_arguments(scmp_filter_ctx ctx)
{
	int rc;

	for (size_t i = 0; i < COUNT(namespace_flags); i++) {
		rc = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(clone), 1,
			SCMP_A0(SCMP_CMP_MASKED_EQ, namespace_flags[i], namespace_flags[i]));
		if (rc < 0)
			return check(rc, "clone");
	}
	/* 0xffffffff asks, everything else changes how addresses are laid out. */
	rc = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(personality), 1, SCMP_A0(SCMP_CMP_NE, LOW32, 0));
	return check(rc, "personality");
}

static int add_denied(scmp_filter_ctx ctx, enum profile profile)
{
	for (size_t i = 0; i < COUNT(denied); i++) {
		int nr = seccomp_syscall_resolve_name(denied[i].name), rc;

		/* Below zero: this architecture has no such call. */
		if (nr < 0 || (denied[i].strict_only && profile != STRICT))
			continue;
		rc = seccomp_rule_add(ctx, SCMP_ACT_ERRNO((unsigned)denied[i].error), nr, 0);
		if (rc < 0)
			return check(rc, denied[i].name);
	}
	return 0;
}

static int build(scmp_filter_ctx ctx, enum profile profile)
{
	/* A call of another architecture, 32-bit and x32 included, is as if the kernel had none. */
	if (check(seccomp_attr_set(ctx, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_ERRNO(ENOSYS)), "bad architecture") < 0)
		return -1;
	if (check(seccomp_attr_set(ctx, SCMP_FLTATR_CTL_OPTIMIZE, 2), "optimize") < 0)
		return -1;
	if (add_denied(ctx, profile) < 0 || add_families(ctx, "socket") < 0 || add_families(ctx, "socketpair") < 0)
		return -1;
	if (add_transports(ctx) < 0 || add_ioctls(ctx) < 0)
		return -1;
	return profile == STRICT ? add_strict_arguments(ctx) : 0;
}

/* The BPF program as { code, jt, jf, k } rows. */
static int print(FILE *out, scmp_filter_ctx ctx, enum profile profile)
{
	struct {
		uint16_t code;
		uint8_t jt, jf;
		uint32_t k;
	} insn;
	FILE *raw = tmpfile();

	if (!raw || check(seccomp_export_bpf(ctx, fileno(raw)), "export") < 0)
		return -1;
	rewind(raw);
	fprintf(out, "static const struct sock_filter seccomp_%s[] = {\n", profile_names[profile]);
	while (fread(&insn, sizeof(insn), 1, raw) == 1)
		fprintf(out, "\t{ 0x%02x, %u, %u, 0x%08x },\n", insn.code, insn.jt, insn.jf, insn.k);
	fprintf(out, "};\n");
	fclose(raw);
	return 0;
}

int main(int argc, char **argv)
{
	FILE *out = argc == 2 ? fopen(argv[1], "w") : NULL;

	if (!out) {
		fprintf(stderr, "usage: ak_seccomp_gen FILE\n");
		return 2;
	}
	for (enum profile p = MODERATE; p < PROFILE_NUM; p++) {
		scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ALLOW);

		if (!ctx || build(ctx, p) < 0 || print(out, ctx, p) < 0)
			return 1;
		seccomp_release(ctx);
	}
	return fclose(out) == 0 ? 0 : 1;
}
