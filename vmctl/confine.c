/*
 * Restrictions that init puts on itself, and so on every process inside, before any command runs: limits, capabilities, files
 * outside the root (Landlock), system calls (seccomp).
 */
#include "vmctl/internal.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/keyctl.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "seccomp_table.inc"

#define MEMLOCK_BYTES (8u << 20)

/* ---- limits ---- */

/* Never exceed the current hard limit: raising it needs a privilege. */
static int set_limit(int resource, rlim_t value, const char *what, struct ak_err *err)
{
	struct rlimit lim;

	if (getrlimit(resource, &lim) < 0)
		return ak_fail_errno(err, errno, "limit of %s", what);
	if (lim.rlim_max != RLIM_INFINITY && value > lim.rlim_max)
		value = lim.rlim_max;
	lim.rlim_cur = lim.rlim_max = value;
	return setrlimit(resource, &lim) < 0 ? ak_fail_errno(err, errno, "limit of %s", what) : 0;
}

/* The kernel counts pending signals, including timers, per user over all their processes: a sandbox gets a quarter. */
static int limit_signals(struct ak_err *err)
{
	struct rlimit lim;

	if (getrlimit(RLIMIT_SIGPENDING, &lim) < 0)
		return ak_fail_errno(err, errno, "limit of pending signals");
	return lim.rlim_max == RLIM_INFINITY ? 0 : set_limit(RLIMIT_SIGPENDING, lim.rlim_max / 4, "pending signals", err);
}

int sb_confine_limits(const struct sb_ctx *ctx, struct ak_err *err)
{
	const rlim_t pids = ctx->spec->limits.pids ? ctx->spec->limits.pids : SANDBOX_PIDS_DEFAULT;
	const rlim_t ours = sb_removes_set_ids(ctx->spec) ? 1 : 0; /* the helper */
	bool counted = ctx->cgroup.dirs[CGROUP_PIDS] || ctx->spec->pids_counted;
	/*
	 * Too small for a core file, and the only value for which the kernel does not start a core_pattern program
	 * (fs/coredump.c).
	 */
	int rc = set_limit(RLIMIT_CORE, 1, "core files", err);

	if (rc == 0)
		rc = set_limit(RLIMIT_MEMLOCK, MEMLOCK_BYTES, "locked memory", err);
	if (rc == 0)
		rc = limit_signals(err);
	/*
	 * Counted per user namespace (Linux 5.14), so it covers the sandbox only. The kernel exempts the host's root, which no
	 * sandbox runs as. The kernel asks it before a control group, which alone can tell that the limit was reached.
	 */
	if (rc == 0)
		rc = set_limit(RLIMIT_NPROC, (counted ? 2 * pids : pids) + ours, "processes", err);
	return rc;
}

/* ---- capabilities ---- */

#define BIT(cap) (UINT64_C(1) << (cap))

/* Capabilities that root inside keeps: enough to install packages, nothing over network, mounts, devices or other processes. */
static const uint64_t root_caps = BIT(CAP_CHOWN) | BIT(CAP_DAC_OVERRIDE) | BIT(CAP_FOWNER) | BIT(CAP_FSETID) | BIT(CAP_SETUID) |
	BIT(CAP_SETGID) | BIT(CAP_KILL) | BIT(CAP_NET_BIND_SERVICE) | BIT(CAP_SYS_CHROOT);

static uint64_t caps_to_keep(const struct sb_ctx *ctx)
{
	return ctx->spec->root_inside && ctx->spec->isolation != SANDBOX_STRICT ? root_caps : 0;
}

static int set_caps(uint64_t keep)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2];

	for (unsigned i = 0; i < 2; i++)
		data[i] = (struct __user_cap_data_struct){ .effective = (uint32_t)(keep >> (32 * i)),
			.permitted = (uint32_t)(keep >> (32 * i)) };
	return syscall(SYS_capset, &head, data) < 0 ? -errno : 0;
}

static int drop_bounding(uint64_t keep, struct ak_err *err)
{
	for (unsigned cap = 0; cap < 64; cap++) {
		int held = prctl(PR_CAPBSET_READ, cap, 0, 0, 0);

		if (held < 0) /* past the kernel's last capability */
			break;
		if (held && !(keep & BIT(cap)) && prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0)
			return ak_fail_errno(err, errno, "dropping capability %u", cap);
	}
	return 0;
}

int sb_confine_early(const struct sb_ctx *ctx, struct ak_err *err)
{
	syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL);
	return drop_bounding(caps_to_keep(ctx), err);
}

int sb_confine_caps(const struct sb_ctx *ctx, struct ak_err *err)
{
	const uint64_t keep = caps_to_keep(ctx);
	int rc = ctx->was_parked ? drop_bounding(keep, err) : sb_confine_early(ctx, err);

	if (rc < 0)
		return rc;
	prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
	rc = set_caps(keep | (sb_removes_set_ids(ctx->spec) ? BIT(CAP_SYS_PTRACE) : 0));
	if (rc < 0)
		return ak_fail_errno(err, -rc, "dropping capabilities");
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return ak_fail_errno(err, errno, "no_new_privs");
	return 0;
}

int sb_confine_last(const struct sb_ctx *ctx, struct ak_err *err)
{
	int rc = sb_removes_set_ids(ctx->spec) ? set_caps(caps_to_keep(ctx)) : 0;

	return rc < 0 ? ak_fail_errno(err, -rc, "dropping capabilities") : 0;
}

/* ---- Landlock ---- */

/* The kernel's layout, repeated here because the header on an older build host lacks the newest fields. */
struct ruleset_attr {
	uint64_t fs, net, scoped;
};
#define FS_RIGHTS_V1 UINT64_C(0x1fff)
#define FS_REFER UINT64_C(0x2000) /* ABI 2 */
#define FS_TRUNCATE UINT64_C(0x4000) /* ABI 3 */
#define FS_IOCTL_DEV UINT64_C(0x8000) /* ABI 5 */
#define SCOPE_BOTH UINT64_C(3) /* ABI 6: abstract unix sockets, signals */

static uint64_t fs_rights(long abi)
{
	uint64_t rights = FS_RIGHTS_V1;

	if (abi >= 2)
		rights |= FS_REFER;
	if (abi >= 3)
		rights |= FS_TRUNCATE;
	if (abi >= 5)
		rights |= FS_IOCTL_DEV;
	return rights;
}

static int add_rule(int ruleset, int fd, uint64_t rights)
{
	struct landlock_path_beneath_attr rule = { .allowed_access = rights, .parent_fd = fd };

	return syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) < 0 ? -errno : 0;
}

/*
 * Standard streams may be files outside the root. They can be reopened through /proc/self/fd (`> /dev/stderr`), but only in
 * the direction in which they were opened. Landlock does not treat pipes and sockets as files.
 */
static void allow_stream(int ruleset, int fd, uint64_t known)
{
	int mode = fd < 0 ? -1 : fcntl(fd, F_GETFL);
	uint64_t rights = 0;
	struct stat st;

	if (mode < 0 || fstat(fd, &st) < 0 || (!S_ISREG(st.st_mode) && !S_ISCHR(st.st_mode)))
		return;
	mode &= O_ACCMODE;
	if (mode == O_RDONLY || mode == O_RDWR)
		rights |= LANDLOCK_ACCESS_FS_READ_FILE;
	if (mode == O_WRONLY || mode == O_RDWR)
		rights |= LANDLOCK_ACCESS_FS_WRITE_FILE | FS_TRUNCATE;
	if (S_ISCHR(st.st_mode))
		rights |= FS_IOCTL_DEV;
	add_rule(ruleset, fd, rights & known);
}

int sb_confine_landlock(const int stdio[3], struct ak_err *err)
{
	long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
	struct ruleset_attr attr = { .fs = fs_rights(abi), .scoped = abi >= 6 ? SCOPE_BOTH : 0 };
	size_t size = abi >= 6 ? sizeof(attr) : offsetof(struct ruleset_attr, net);
	_cleanup_close_ int ruleset = -1, root = -1;
	int rc;

	if (abi < 1) /* not built in or disabled: only the mount namespace restricts files */
		return 0;
	ruleset = (int)syscall(SYS_landlock_create_ruleset, &attr, size, 0);
	if (ruleset < 0)
		return ak_fail_errno(err, errno, "Landlock ruleset");
	root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	rc = root < 0 ? -errno : add_rule(ruleset, root, attr.fs);
	if (rc < 0)
		return ak_fail_errno(err, -rc, "Landlock rule");
	for (unsigned i = 0; i < 3; i++)
		allow_stream(ruleset, stdio[i], attr.fs);
	if (syscall(SYS_landlock_restrict_self, ruleset, 0) < 0)
		return ak_fail_errno(err, errno, "Landlock");
	return 0;
}

/*
 * Landlock stops a process from inspecting processes outside its own domain and its descendants: their environment, memory,
 * descriptors and folders in /proc. So a domain for each command isolates the commands from each other. The ruleset allows
 * every right that it handles: without a rule, moving files between folders would fail.
 */
int sb_make_fence(void)
{
	long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
	struct ruleset_attr attr = { .fs = abi >= 2 ? FS_REFER : LANDLOCK_ACCESS_FS_MAKE_BLOCK };
	_cleanup_close_ int ruleset = -1, root = -1;

	if (abi < 1)
		return -1;
	ruleset = (int)syscall(SYS_landlock_create_ruleset, &attr, offsetof(struct ruleset_attr, net), 0);
	root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (ruleset < 0 || root < 0 || add_rule(ruleset, root, attr.fs) < 0)
		return -1;
	return TAKE_FD(ruleset);
}

int sb_enter_fence(int fence)
{
	return fence >= 0 && syscall(SYS_landlock_restrict_self, fence, 0) < 0 ? -errno : 0;
}

/* ---- system calls ---- */

/* Returns 0, with FLAGS for a listener its descriptor, or -errno. */
static int load(const struct sock_filter *insns, size_t n, unsigned flags)
{
	struct sock_fprog prog = { .len = (unsigned short)n, .filter = (struct sock_filter *)(uintptr_t)insns };
	long rc = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &prog);

	return rc < 0 ? -errno : (int)rc;
}

static int install(const struct sock_filter *insns, size_t n, struct ak_err *err)
{
	int rc = load(insns, n, 0);

	return rc < 0 ? ak_fail_errno(err, -rc, "system-call filter") : 0;
}

static int filter_calls(const struct sb_ctx *ctx, struct ak_err *err)
{
	switch (ctx->spec->isolation) {
	case SANDBOX_STRICT:
		return install(seccomp_strict, ARRAY_SIZE(seccomp_strict), err);
	case SANDBOX_NESTED:
		return install(seccomp_nested, ARRAY_SIZE(seccomp_nested), err);
	case SANDBOX_MODERATE:
	case SANDBOX_ISOLATION_NUM:
		break;
	}
	return install(seccomp_moderate, ARRAY_SIZE(seccomp_moderate), err);
}

/* The same filter with a listener. Returns its descriptor, or -errno on a kernel that has none. */
static int filter_with_listener(const struct sandbox_spec *spec)
{
	const unsigned flags = SECCOMP_FILTER_FLAG_NEW_LISTENER;

	if (!sb_removes_set_ids(spec))
		return -EOPNOTSUPP;
	return spec->isolation == SANDBOX_NESTED ? load(seccomp_nested_image, ARRAY_SIZE(seccomp_nested_image), flags)
						 : load(seccomp_moderate_image, ARRAY_SIZE(seccomp_moderate_image), flags);
}

int sb_confine_seccomp(const struct sb_ctx *ctx, int *ret_listener, struct ak_err *err)
{
	int rc = sb_one_id(ctx) ? install(seccomp_one_id, ARRAY_SIZE(seccomp_one_id), err) : 0;

	*ret_listener = -1;
#ifdef AK_SABOTAGE_NOSECCOMP
	return rc;
#endif
	if (rc < 0)
		return rc;
	*ret_listener = filter_with_listener(ctx->spec);
	return *ret_listener >= 0 ? 0 : filter_calls(ctx, err);
}

int sb_confine_helper(void)
{
	int rc = set_caps(BIT(CAP_SYS_PTRACE));

	return rc < 0 ? rc : load(seccomp_setid_helper, ARRAY_SIZE(seccomp_setid_helper), 0);
}

int sb_mode_argument(int nr)
{
	for (size_t i = 0; i < ARRAY_SIZE(seccomp_modes); i++) {
		if (seccomp_modes[i].nr == nr)
			return (int)seccomp_modes[i].mode;
	}
	return -1;
}
