/* The gateway process without power: see host/confine.h. */
#include "gateway/host/confine.h"

#include "gateway/base/cleanup.h"

#include <errno.h>
#include <linux/capability.h>
#include <linux/landlock.h>
#include <linux/sockios.h>
#include <seccomp.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

struct confine {
	scmp_filter_ctx filter;
};

/* What the loop, the DNS proxy, the relay and malloc need; most used first. */
static const int allowed_calls[] = {
	SCMP_SYS(epoll_wait),
	SCMP_SYS(epoll_pwait),
	SCMP_SYS(epoll_ctl),
	SCMP_SYS(splice),
	SCMP_SYS(recvmsg),
	SCMP_SYS(sendmsg),
	SCMP_SYS(recvmmsg),
	SCMP_SYS(sendmmsg),
	SCMP_SYS(recvfrom),
	SCMP_SYS(sendto),
	SCMP_SYS(read),
	SCMP_SYS(write),
	SCMP_SYS(readv),
	SCMP_SYS(writev),
	SCMP_SYS(accept4),
	SCMP_SYS(connect),
	SCMP_SYS(getsockname),
	SCMP_SYS(getpeername),
	SCMP_SYS(getsockopt),
	SCMP_SYS(setsockopt),
	SCMP_SYS(bind),
	SCMP_SYS(shutdown),
	SCMP_SYS(close),
	SCMP_SYS(pipe2),
	SCMP_SYS(fcntl),
	SCMP_SYS(poll),
	SCMP_SYS(ppoll),
	SCMP_SYS(clock_gettime),
	SCMP_SYS(gettimeofday),
	SCMP_SYS(getrandom),
	SCMP_SYS(futex),
	SCMP_SYS(brk),
	SCMP_SYS(munmap),
	SCMP_SYS(mremap),
	SCMP_SYS(madvise),
	SCMP_SYS(fstat),
	SCMP_SYS(lseek),
	SCMP_SYS(ftruncate),
	SCMP_SYS(fallocate),
	SCMP_SYS(fsync),
	SCMP_SYS(fdatasync),
	SCMP_SYS(rt_sigreturn),
	SCMP_SYS(rt_sigprocmask),
	SCMP_SYS(rt_sigaction),
	SCMP_SYS(restart_syscall),
	SCMP_SYS(getpid),
	SCMP_SYS(gettid),
	SCMP_SYS(getuid),
	SCMP_SYS(geteuid),
	SCMP_SYS(clock_nanosleep),
	SCMP_SYS(exit),
	SCMP_SYS(exit_group),
	SCMP_SYS(rseq),
	SCMP_SYS(sched_yield),
	SCMP_SYS(uname),
};

/* Never, not even as an error: whoever tries has taken the process over, and a dead gateway is a closed network. */
static const int deadly_calls[] = {
	SCMP_SYS(execve),
	SCMP_SYS(execveat),
	SCMP_SYS(ptrace),
	SCMP_SYS(process_vm_readv),
	SCMP_SYS(process_vm_writev),
	SCMP_SYS(fork),
	SCMP_SYS(vfork),
	SCMP_SYS(setns),
	SCMP_SYS(unshare),
	SCMP_SYS(mount),
	SCMP_SYS(init_module),
	SCMP_SYS(bpf),
};

static int add_calls(scmp_filter_ctx f, uint32_t action, const int *calls, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		int rc = seccomp_rule_add(f, action, calls[i], 0);

		/* EDOM: this architecture has no such call (fork on aarch64), so there is nothing to rule on. */
		if (rc < 0 && rc != -EDOM)
			return rc;
	}
	return 0;
}

static int add_socket_rules(scmp_filter_ctx f)
{
	int rc = seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(socket), 1, SCMP_A0(SCMP_CMP_EQ, AF_INET, 0));

	return rc < 0 ? rc : seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(socket), 1, SCMP_A0(SCMP_CMP_EQ, AF_INET6, 0));
}

/* Asking a link for its state, which also settles it: without that the first packets of a new sandbox can be lost (gwns_link_up). */
static int add_link_rule(scmp_filter_ctx f)
{
	return seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(ioctl), 1, SCMP_A1(SCMP_CMP_EQ, SIOCETHTOOL, 0));
}

/* Memory, but never executable. */
static int add_memory_rules(scmp_filter_ctx f)
{
	int rc = seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(mmap), 1, SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0));

	return rc < 0 ? rc
		      : seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(mprotect), 1, SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0));
}

static int build_filter(scmp_filter_ctx f)
{
	int rc = add_calls(f, SCMP_ACT_ALLOW, allowed_calls, ARRAY_SIZE(allowed_calls));

	if (rc == 0)
		rc = add_calls(f, SCMP_ACT_KILL_PROCESS, deadly_calls, ARRAY_SIZE(deadly_calls));
	if (rc == 0)
		rc = add_socket_rules(f);
	if (rc == 0)
		rc = add_link_rule(f);
	if (rc == 0)
		rc = add_memory_rules(f);
	return rc;
}

int confine_prepare(struct confine **ret, struct ak_err *err)
{
	struct confine *c = calloc(1, sizeof(*c));
	int rc;

	if (!c)
		return ak_fail(err, ENOMEM, "out of memory");
	c->filter = seccomp_init(SCMP_ACT_ERRNO(EPERM));
	rc = c->filter ? build_filter(c->filter) : -ENOMEM;
	if (rc < 0) {
		seccomp_release(c->filter);
		free(c);
		return ak_fail_errno(err, -rc, "system-call filter");
	}
	*ret = c;
	return 0;
}

/* No rule is added: every access to a path is refused. What is open stays usable. */
static int close_file_system(struct ak_err *err)
{
	struct landlock_ruleset_attr attr = { .handled_access_fs = (1ull << 13) - 1 }; /* the rights of ABI 1 */
	_cleanup_close_ int fd = (int)syscall(SYS_landlock_create_ruleset, &attr, sizeof(attr.handled_access_fs), 0);

	/* Kernels without Landlock: the filter still has no call that opens a path. */
	if (fd < 0)
		return errno == ENOSYS || errno == EOPNOTSUPP ? 0 : ak_fail_errno(err, errno, "landlock");
	if (syscall(SYS_landlock_restrict_self, fd, 0) < 0)
		return ak_fail_errno(err, errno, "landlock");
	return 0;
}

/*
 * Capabilities on the host go; those over the gateway's own namespace stay, because its user namespace belongs to our user:
 * the kernel grants them to its owner without a capability.
 */
static int drop_capabilities(struct ak_err *err)
{
	struct __user_cap_header_struct h = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct none[2] = { 0 };

	prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
	return syscall(SYS_capset, &h, none) < 0 ? ak_fail_errno(err, errno, "dropping capabilities") : 0;
}

static int apply(scmp_filter_ctx filter, struct ak_err *err)
{
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
	rc = seccomp_load(filter);
	return rc < 0 ? ak_fail_errno(err, -rc, "system-call filter") : 0;
}

int confine_apply(struct confine *c, struct ak_err *err)
{
	int rc = apply(c->filter, err);

	seccomp_release(c->filter);
	free(c);
	return rc < 0 ? ak_err_prefix(err, rc, "confining the gateway") : 0;
}
