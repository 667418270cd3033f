/* Sockets between our own processes: listen, connect, and check the peer. See ipc/ipc.h. */
#include "gateway/ipc/ipc.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/capability.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#define BACKLOG 256

/* A socket address holds only 107 bytes. For longer paths, refer to the folder by its descriptor. */
struct place {
	int dir; /* owned */
	struct sockaddr_un sun;
};

static void place_done(struct place *p)
{
	p->dir = ak_close(p->dir);
}

static int place_open(const char *path, struct place *ret)
{
	const char *slash = strrchr(path, '/');
	char dir[PATH_MAX];
	int n;

	*ret = (struct place){ .dir = -1, .sun.sun_family = AF_UNIX };
	if (!slash || slash == path || strlen(path) >= sizeof(dir))
		return -EINVAL;
	memcpy(dir, path, (size_t)(slash - path));
	dir[slash - path] = '\0';
	ret->dir = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (ret->dir < 0)
		return -errno;
	n = snprintf(ret->sun.sun_path, sizeof(ret->sun.sun_path), "/proc/self/fd/%d/%s", ret->dir, slash + 1);
	if (n >= (int)sizeof(ret->sun.sun_path)) {
		place_done(ret);
		return -ENAMETOOLONG;
	}
	return 0;
}

static int connect_to(const struct sockaddr_un *sun, socklen_t len, int flags)
{
	_cleanup_close_ int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | flags, 0);

	if (fd < 0)
		return -errno;
	while (connect(fd, (const struct sockaddr *)sun, len) < 0) {
		if (errno != EINTR)
			return -errno;
	}
	return TAKE_FD(fd);
}

static int connect_place(const struct place *p, int flags)
{
	return connect_to(&p->sun, sizeof(p->sun), flags);
}

/* Returns 0 if a process listens; a full backlog proves that too. */
static int try_place(const struct place *p)
{
	_cleanup_close_ int fd = connect_place(p, SOCK_NONBLOCK);

	return fd >= 0 || fd == -EAGAIN ? 0 : fd;
}

/* Call with the folder locked: removes the file if nobody listens. */
static bool remove_stale(const struct place *p)
{
	int rc = try_place(p);

	if (rc == -ECONNREFUSED)
		return unlink(p->sun.sun_path) == 0 || errno == ENOENT;
	return rc == -ENOENT;
}

static int bind_place(const struct place *p, struct ak_err *err, const char *path)
{
	_cleanup_close_ int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return ak_fail_errno(err, errno, "socket");
	fchmod(fd, 0600); /* before bind, so that the file never has a wider mode */
	if (!remove_stale(p))
		return ak_fail(err, EADDRINUSE, "%s: another process is listening on it", path);
	if (bind(fd, (const struct sockaddr *)&p->sun, sizeof(p->sun)) < 0)
		return ak_fail_errno(err, errno, "%s", path);
	if (listen(fd, BACKLOG) < 0) {
		int rc = ak_fail_errno(err, errno, "%s", path);

		unlink(p->sun.sun_path);
		return rc;
	}
	return TAKE_FD(fd);
}

/* Check, remove and bind must be atomic: otherwise two processes that start at once would remove each other's socket. */
int ipc_listen(const char *path, struct ak_err *err)
{
	_cleanup_(place_done) struct place p;
	int rc = place_open(path, &p);

	if (rc < 0)
		return ak_fail_errno(err, -rc, "%s", path);
	if (flock(p.dir, LOCK_EX) < 0)
		return ak_fail_errno(err, errno, "%s", path);
	return bind_place(&p, err, path);
}

void ipc_listen_as_us(int listener)
{
	(void)listen(listener, BACKLOG); /* each listen() sets the credentials to the caller's */
}

bool ipc_remove_stale(const char *path)
{
	_cleanup_(place_done) struct place p;

	return place_open(path, &p) == 0 && flock(p.dir, LOCK_EX) == 0 && remove_stale(&p);
}

bool ipc_listens(const char *path)
{
	_cleanup_(place_done) struct place p;

	return place_open(path, &p) == 0 && try_place(&p) == 0;
}

/* The kernel looks for the socket before it refuses a connection from one of another type. */
bool ipc_is_bound(const char *path)
{
	_cleanup_close_ int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	_cleanup_(place_done) struct place p;

	if (place_open(path, &p) < 0 || fd < 0)
		return false;
	return connect(fd, (const struct sockaddr *)&p.sun, sizeof(p.sun)) < 0 && errno == EPROTOTYPE;
}

/*
 * The peer reads our namespaces in /proc, which the kernel permits only if we have no capability that the peer lacks. A login
 * shell can have one (CAP_WAKE_ALARM from pam_systemd) that the daemon does not have. We need none.
 */
static void drop_capabilities(void)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	const struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = { 0 };
	static bool done;

	if (!done && geteuid() != 0)
		(void)syscall(SYS_capset, &header, none);
	done = true;
}

/* Check who listens at the other end of SOCK, the result of a connect to NAME; takes it over. */
static int connected(int sock, const char *name, struct ak_err *err)
{
	_cleanup_close_ int fd = sock;
	int rc;

	if (fd < 0)
		return ak_fail_errno(err, -sock, "%s", name);
	rc = ipc_trust(fd, err);
	/* EACCES: a service manager with more privileges than ours opened the listener. A sandbox never has more. */
	if (rc < 0 && rc != -EACCES)
		return ak_err_prefix(err, rc == -EPERM ? rc : -EPERM, "%s", name);
	return TAKE_FD(fd);
}

int ipc_connect(const char *path, struct ak_err *err)
{
	_cleanup_(place_done) struct place p;
	int rc = place_open(path, &p);

	drop_capabilities();
	return connected(rc < 0 ? rc : connect_place(&p, 0), path, err);
}

/* ---- sockets without a file ---- */

/* An abstract address: a zero byte, then the name. */
static socklen_t abstract(const char *name, struct sockaddr_un *ret)
{
	*ret = (struct sockaddr_un){ .sun_family = AF_UNIX };
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
		(size_t)snprintf(ret->sun_path + 1, IPC_NAME_MAX, "%s", name));
}

int ipc_listen_name(const char *name)
{
	_cleanup_close_ int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct sockaddr_un sun;
	socklen_t len = abstract(name, &sun);

	if (fd < 0 || bind(fd, (const struct sockaddr *)&sun, len) < 0 || listen(fd, BACKLOG) < 0)
		return -errno;
	return TAKE_FD(fd);
}

int ipc_connect_name(const char *name, struct ak_err *err)
{
	struct sockaddr_un sun;
	socklen_t len = abstract(name, &sun);

	drop_capabilities();
	return connected(connect_to(&sun, len, 0), name, err);
}

int ipc_accept(int listener)
{
	_cleanup_close_ int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	struct ak_err err;

	if (fd < 0)
		return errno == EWOULDBLOCK || errno == ECONNABORTED || errno == EINTR ? -EAGAIN : -errno;
	if (ipc_trust(fd, &err) < 0) {
		(void)ipc_send_error(fd, EPERM, err.text);
		return -EPERM;
	}
	return TAKE_FD(fd);
}
