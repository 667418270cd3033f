/*
 * Checks the peer: it must run as our user or root, in our user and mount namespace. A sandbox is in different namespaces, so a
 * socket that it reaches in some unforeseen way is of no use to it. See ipc/ipc.h.
 *
 * The kernel identifies the process that connected (or listens) by its pid. A pid can be reused by the time we check. So we hold
 * the process by a pidfd, read its namespaces, and then check that it is still alive. Before Linux 6.5 the pidfd is opened by
 * pid, which leaves a race: the pid would have to be reused between connect and accept.
 */
#include "gateway/ipc/ipc.h"

#include "gateway/base/cleanup.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

int ipc_pidfd(int sock)
{
	int fd = -1;
	socklen_t len = sizeof(fd);

	return getsockopt(sock, SOL_SOCKET, SO_PEERPIDFD, &fd, &len) == 0 ? fd : -errno;
}

static int hold(int sock, pid_t pid)
{
	int fd = ipc_pidfd(sock);

	if (fd != -ENOPROTOOPT)
		return fd;
	fd = (int)syscall(SYS_pidfd_open, pid, 0);
	return fd < 0 ? -errno : fd;
}

/* Is the pid still valid? The pidfd of a process that has ended, and may have been reaped, is readable. */
static bool alive(int pidfd)
{
	struct pollfd p = { .fd = pidfd, .events = POLLIN };

	return poll(&p, 1, 0) == 0;
}

/* 1: PID and we share the namespace NAME; 0: we do not; -errno if this cannot be determined. */
static int same_namespace(pid_t pid, const char *name)
{
	char path[64], self[32];
	struct stat ours, theirs;

	snprintf(path, sizeof(path), "/proc/%d/ns/%s", (int)pid, name);
	snprintf(self, sizeof(self), "/proc/self/ns/%s", name);
	if (stat(self, &ours) < 0 || stat(path, &theirs) < 0)
		return -errno;
	return ours.st_dev == theirs.st_dev && ours.st_ino == theirs.st_ino;
}

static int refuse(struct ak_err *err, pid_t pid, const char *name)
{
	return ak_fail(err, EPERM,
		"process %d is in another %s namespace than process %d of agentkernel, which serves only commands of the same session and "
		"no sandbox; run this outside of the container or service that it is in, or end the other process first",
		(int)pid, name, (int)getpid());
}

static int compare(pid_t pid, struct ak_err *err)
{
	static const struct {
		const char *file, *word;
	} kinds[] = { { "user", "user" }, { "mnt", "mount" } };

	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		int rc = same_namespace(pid, kinds[i].file);

		if (rc == 0)
			return refuse(err, pid, kinds[i].word);
		if (rc < 0)
			return ak_fail(err, -rc, "cannot determine whether process %d is in this %s namespace: %s", (int)pid,
				kinds[i].word, strerror(-rc));
	}
	return 0;
}

int ipc_trust(int sock, struct ak_err *err)
{
	_cleanup_close_ int pidfd = -1;
	struct ucred cred;
	socklen_t len = sizeof(cred);
	int rc;

	if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &cred, &len) < 0)
		return ak_fail_errno(err, errno, "peer");
	if (cred.uid != geteuid() && cred.uid != 0)
		return ak_fail(err, EPERM, "the other process belongs to another user");
	if (cred.pid <= 0)
		return ak_fail(err, EPERM,
			"the other process is in another pid namespace, so its user and mount namespace cannot be determined");
	pidfd = hold(sock, cred.pid);
	rc = pidfd < 0 ? ak_fail_errno(err, -pidfd, "process %d", (int)cred.pid) : compare(cred.pid, err);
	if (pidfd >= 0 && !alive(pidfd))
		return ak_fail(err, ESRCH, "process %d, which made the connection, has ended", (int)cred.pid);
	return rc;
}
