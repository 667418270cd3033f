/* Build-time tool: compile the gateway's system-call filter (host/confine.h) with libseccomp and write it as a C table. */
#include "vmctl/gen/table.h"

#include <errno.h>
#include <linux/sockios.h>
#include <seccomp.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/socket.h>

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* The system calls that the event loop, the DNS proxy, the relay and malloc need; most used first. */
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

/* These kill the process instead of failing: only an attacker who controls it makes them, and without a gateway there is no network. */
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

		/* EDOM: the architecture does not have this call (fork on aarch64), so no rule is needed. */
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

/* Querying the state of a link also completes pending changes; without that, first packets can be lost (gwns_link_up). */
static int add_link_rule(scmp_filter_ctx f)
{
	return seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(ioctl), 1, SCMP_A1(SCMP_CMP_EQ, SIOCETHTOOL, 0));
}

/* Allow memory mappings, but never executable ones. */
static int add_memory_rules(scmp_filter_ctx f)
{
	int rc = seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(mmap), 1, SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0));

	return rc < 0 ? rc
		      : seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(mprotect), 1, SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0));
}

static int build_filter(scmp_filter_ctx f)
{
	int rc = add_calls(f, SCMP_ACT_ALLOW, allowed_calls, COUNT(allowed_calls));

	if (rc == 0)
		rc = add_calls(f, SCMP_ACT_KILL_PROCESS, deadly_calls, COUNT(deadly_calls));
	if (rc == 0)
		rc = add_socket_rules(f);
	if (rc == 0)
		rc = add_link_rule(f);
	if (rc == 0)
		rc = add_memory_rules(f);
	return rc;
}

int main(int argc, char **argv)
{
	FILE *out = argc == 2 ? fopen(argv[1], "w") : NULL;
	scmp_filter_ctx filter;

	if (!out) {
		fprintf(stderr, "usage: ak_confine_gen FILE\n");
		return 2;
	}
	/* Use API level 3, which has SCMP_ACT_KILL_PROCESS, whatever the kernel of the build machine supports. */
	if (table_check(seccomp_api_set(3), "level") < 0)
		return 1;
	filter = seccomp_init(SCMP_ACT_ERRNO(EPERM));
	if (!filter || table_check(build_filter(filter), "rules") < 0 || table_print(out, filter, "gateway", 0) < 0)
		return 1;
	seccomp_release(filter);
	return fclose(out) == 0 ? 0 : 1;
}
