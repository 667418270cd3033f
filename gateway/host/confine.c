/* Drops the privileges of the gateway process: see host/confine.h. */
#include "gateway/host/confine.h"

#include "gateway/base/cleanup.h"

#include <errno.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "seccomp_gateway.inc"

/* Without any rule, Landlock refuses every access to a path. Open files stay usable. */
static int close_file_system(struct ak_err *err)
{
	struct landlock_ruleset_attr attr = { .handled_access_fs = (1ull << 13) - 1 }; /* the rights of ABI 1 */
	_cleanup_close_ int fd = (int)syscall(SYS_landlock_create_ruleset, &attr, sizeof(attr.handled_access_fs), 0);

	/* On kernels without Landlock, the filter still has no call that opens a path. */
	if (fd < 0)
		return errno == ENOSYS || errno == EOPNOTSUPP ? 0 : ak_fail_errno(err, errno, "landlock");
	if (syscall(SYS_landlock_restrict_self, fd, 0) < 0)
		return ak_fail_errno(err, errno, "landlock");
	return 0;
}

/*
 * Drop the capabilities on the host. Those over the gateway's own namespace remain: its user namespace belongs to our user, and
 * the kernel grants the owner all capabilities in it.
 */
static int drop_capabilities(struct ak_err *err)
{
	struct __user_cap_header_struct h = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct none[2] = { 0 };

	prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
	return syscall(SYS_capset, &h, none) < 0 ? ak_fail_errno(err, errno, "dropping capabilities") : 0;
}

static int apply(struct ak_err *err)
{
	const struct sock_fprog filter = { ARRAY_SIZE(seccomp_gateway), (struct sock_filter *)(uintptr_t)seccomp_gateway };
	struct rlimit no_core = { 0, 0 };
	int rc;

#ifdef AK_SABOTAGE_NOCONFINE
	return 0;
#endif
	setrlimit(RLIMIT_CORE, &no_core);
	prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return ak_fail_errno(err, errno, "no_new_privs");
	rc = drop_capabilities(err);
	if (rc < 0)
		return rc;
	rc = close_file_system(err);
	if (rc < 0)
		return rc;
	if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &filter) < 0)
		return ak_fail_errno(err, errno, "system-call filter");
	return 0;
}

int confine_apply(struct ak_err *err)
{
	int rc = apply(err);

	return rc < 0 ? ak_err_prefix(err, rc, "confining the gateway") : 0;
}
