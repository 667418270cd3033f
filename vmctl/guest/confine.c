/*
 * Restrictions of commands in the guest: the process limit, user namespaces and system calls of a sandbox without a virtual machine, and its fence between commands. They protect the
 * guest's kernel from commands of an ordinary user, and these from each other. Root of an image may use all of that kernel: a kernel of one's own is what such a guest is for.
 */
#include "agent.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Of linux/filter.h and linux/seccomp.h, which a C library without the kernel's headers does not have. */
struct sock_filter {
	uint16_t code;
	uint8_t jt, jf;
	uint32_t k;
};

struct program {
	unsigned short len;
	const struct sock_filter *filter;
};

#define SET_MODE_FILTER 1

/* Of linux/landlock.h. */
struct landlock_rule {
	uint64_t access;
	int32_t folder;
} __attribute__((packed));

#define LANDLOCK_VERSION 1
#define LANDLOCK_BENEATH 1
#define LANDLOCK_MAKE_BLOCK (UINT64_C(1) << 11)
#define LANDLOCK_REFER (UINT64_C(1) << 13) /* ABI 2 */

#include "seccomp_table.inc"

static int put(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC), rc;

	if (fd < 0)
		return -errno;
	rc = write(fd, text, strlen(text)) < 0 ? -errno : 0;
	close(fd);
	return rc;
}

int guest_limits(const struct vm_config *c)
{
	char pids[16];
	int rc = put("/proc/sys/user/max_user_namespaces", "0");

	snprintf(pids, sizeof(pids), "%u", c->pids);
	if (rc == 0)
		rc = put("/sys/fs/cgroup/cgroup.subtree_control", "+pids");
	if (rc == 0 && mkdir(GUEST_GROUP, 0755) < 0)
		rc = -errno;
	return rc < 0 ? rc : put(GUEST_GROUP "/pids.max", pids);
}

/*
 * Landlock stops a process from looking into processes of other domains: their variables, memory and descriptors. As vmctl/confine.c does for each command of a sandbox without a
 * virtual machine. A guest's kernel without it has commands that see each other, as a host's.
 */
static int enter_fence(void)
{
	long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_VERSION);
	uint64_t handled = abi >= 2 ? LANDLOCK_REFER : LANDLOCK_MAKE_BLOCK;
	struct landlock_rule rule = { .access = handled };
	int ruleset, rc = 0;

	if (abi < 1)
		return 0;
	ruleset = (int)syscall(SYS_landlock_create_ruleset, &handled, sizeof(handled), 0);
	rule.folder = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (ruleset < 0 || rule.folder < 0 || syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_BENEATH, &rule, 0) < 0 ||
		syscall(SYS_landlock_restrict_self, ruleset, 0) < 0)
		rc = -errno;
	close(ruleset);
	close(rule.folder);
	return rc;
}

int guest_filter(void)
{
	const struct program strict = { sizeof(seccomp_strict) / sizeof(seccomp_strict[0]), seccomp_strict },
			     moderate = { sizeof(seccomp_moderate) / sizeof(seccomp_moderate[0]), seccomp_moderate };
	int rc;

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return -errno;
	if (guest_config.uid == 0)
		return 0;
	rc = enter_fence();
	if (rc < 0)
		return rc;
	return syscall(SYS_seccomp, SET_MODE_FILTER, 0, guest_config.strict ? &strict : &moderate) < 0 ? -errno : 0;
}
