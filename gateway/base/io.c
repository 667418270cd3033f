/* Files, sockets and file descriptors: see io.h. */
#include "gateway/base/io.h"

#include "gateway/base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

void ak_raise_descriptor_limit(void)
{
	struct rlimit lim;

	if (getrlimit(RLIMIT_NOFILE, &lim) == 0 && lim.rlim_cur < lim.rlim_max) {
		lim.rlim_cur = lim.rlim_max;
		setrlimit(RLIMIT_NOFILE, &lim);
	}
}

int ak_write_all(int fd, const void *data, size_t len)
{
	const char *p = data;

	while (len > 0) {
		ssize_t n = write(fd, p, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		p += n;
		len -= (size_t)n;
	}
	return 0;
}

static int read_fd(int fd, size_t max, char **ret_data, size_t *ret_len)
{
	size_t cap = 4096, len = 0;
	_cleanup_free_ char *data = malloc(cap);

	if (!data)
		return -ENOMEM;
	for (;;) {
		ssize_t n = read(fd, data + len, cap - len - 1);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		len += (size_t)n;
		if (len > max)
			return -EFBIG;
		if (len + 1 == cap) {
			char *grown = realloc(data, cap * 2);

			if (!grown)
				return -ENOMEM;
			data = grown;
			cap *= 2;
		}
	}
	data[len] = '\0';
	*ret_data = TAKE(data);
	if (ret_len)
		*ret_len = len;
	return 0;
}

int ak_read_file(int dirfd, const char *path, size_t max, char **ret_data, size_t *ret_len)
{
	_cleanup_close_ int fd = openat(dirfd, path, O_RDONLY | O_CLOEXEC | O_NOCTTY);

	if (fd < 0)
		return -errno;
	return read_fd(fd, max, ret_data, ret_len);
}

/* Read from offset *AT, or from the descriptor's own position if AT is NULL. */
static ssize_t read_until(int fd, char *data, size_t len, const uint64_t *at)
{
	size_t got = 0;

	while (got < len) {
		ssize_t n = at ? pread(fd, data + got, len - got, (off_t)(*at + got)) : read(fd, data + got, len - got);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		got += (size_t)n;
	}
	return (ssize_t)got;
}

ssize_t ak_read_all(int fd, void *data, size_t len)
{
	return read_until(fd, data, len, NULL);
}

ssize_t ak_pread_all(int fd, void *data, size_t len, uint64_t at)
{
	return read_until(fd, data, len, &at);
}

int ak_reopen(int pinned, int flags)
{
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", pinned);
	fd = open(path, flags | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

int ak_fresh_name(char ret[static 32])
{
	uint64_t id;

	if (getrandom(&id, sizeof(id), 0) != sizeof(id))
		return -EIO;
	snprintf(ret, 32, ".ak-%016llx", (unsigned long long)id);
	return 0;
}

int ak_write_file(const char *path, const char *text)
{
	_cleanup_close_ int fd = open(path, O_WRONLY | O_CLOEXEC);
	size_t len = strlen(text);
	ssize_t n;

	if (fd < 0)
		return -errno;
	n = write(fd, text, len);
	if (n < 0)
		return -errno;
	return (size_t)n == len ? 0 : -EIO;
}

int ak_mkdir_p(const char *path, mode_t mode)
{
	char part[PATH_MAX];
	size_t len = strlen(path);

	if (len == 0 || len >= sizeof(part))
		return -ENAMETOOLONG;
	if (mkdir(path, mode) == 0 || errno == EEXIST)
		return 0;
	memcpy(part, path, len + 1);
	for (char *p = part + 1; *p; p++) {
		if (*p != '/')
			continue;
		*p = '\0';
		if (mkdir(part, mode) < 0 && errno != EEXIST)
			return -errno;
		*p = '/';
	}
	return mkdir(part, mode) == 0 || errno == EEXIST ? 0 : -errno;
}

/* One part of a path; -ELOOP for a link. */
static int open_part(int dirfd, const char *name, mode_t mode)
{
	int fd;

	if (mkdirat(dirfd, name, mode) < 0 && errno != EEXIST)
		return -errno;
	fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 && errno == ENOTDIR) {
		struct stat st;

		return fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(st.st_mode) ? -ELOOP : -ENOTDIR;
	}
	return fd < 0 ? -errno : fd;
}

int ak_open_below(int dirfd, const char *path, mode_t mode)
{
	int fd = dirfd;

	for (const char *at = path + strspn(path, "/"); *at;) {
		size_t len = strcspn(at, "/");
		char name[NAME_MAX + 1];
		int next;

		if (len > NAME_MAX || (at[0] == '.' && (len == 1 || (len == 2 && at[1] == '.')))) {
			next = len > NAME_MAX ? -ENAMETOOLONG : -EINVAL;
		} else {
			memcpy(name, at, len);
			name[len] = '\0';
			next = open_part(fd, name, mode);
		}
		if (fd != dirfd)
			ak_close(fd);
		if (next < 0)
			return next;
		fd = next;
		at += len;
		at += strspn(at, "/");
	}
	return fd == dirfd ? -EINVAL : fd;
}

int ak_send_fds(int sock, const void *data, size_t len, const int *fds, size_t n_fds)
{
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(sizeof(int) * AK_FDS_MAX)];
	} control = { 0 };
	struct iovec iov = { (void *)(uintptr_t)data, len };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };

	if (n_fds > AK_FDS_MAX)
		return -E2BIG;
	if (n_fds > 0) {
		struct cmsghdr *c;

		msg.msg_control = control.buf;
		msg.msg_controllen = CMSG_SPACE(sizeof(int) * n_fds);
		c = CMSG_FIRSTHDR(&msg);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int) * n_fds);
		memcpy(CMSG_DATA(c), fds, sizeof(int) * n_fds);
	}
	while (sendmsg(sock, &msg, MSG_NOSIGNAL) < 0) {
		if (errno != EINTR)
			return -errno;
	}
	return 0;
}

/* Take the descriptors of one control message; close those that exceed ROOM. */
static size_t take_fds(struct cmsghdr *c, int *fds, size_t room)
{
	size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int), kept = 0;

	for (size_t i = 0; i < n; i++) {
		int fd;

		memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
		if (kept < room)
			fds[kept++] = fd;
		else
			ak_close(fd);
	}
	return kept;
}

ssize_t ak_recv_fds(int sock, void *data, size_t len, int *fds, size_t *n_fds)
{
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(sizeof(int) * AK_FDS_MAX)];
	} control;
	struct iovec iov = { data, len };
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.buf, .msg_controllen = sizeof(control.buf)
	};
	size_t room = n_fds ? *n_fds : 0, got = 0;
	ssize_t n;

	do {
		n = recvmsg(sock, &msg, MSG_CMSG_CLOEXEC);
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&msg); c; c = CMSG_NXTHDR(&msg, c)) {
		if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
			got += take_fds(c, fds ? fds + got : NULL, room - got);
	}
	if (n_fds)
		*n_fds = got;
	/* An empty message looks like the end of file: close the descriptors that came with it. */
	if (n == 0 || (msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC))) {
		for (size_t i = 0; i < got; i++)
			ak_close(fds[i]);
		if (n_fds)
			*n_fds = 0;
	}
	return msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC) ? -EMSGSIZE : n;
}

int ak_set_nonblock(int fd, bool on)
{
	int flags = fcntl(fd, F_GETFL);

	if (flags < 0)
		return -errno;
	flags = on ? flags | O_NONBLOCK : flags & ~O_NONBLOCK;
	return fcntl(fd, F_SETFL, flags) < 0 ? -errno : 0;
}

void ak_close_others(const int *keep, size_t n)
{
	int null = open("/dev/null", O_RDWR);
	unsigned from = 3;

	/* Without /dev/null, in the root of a virtual machine's monitor, the standard streams are closed like the others. */
	for (int fd = 0; fd < 3; fd++) {
		if (null < 0)
			close(fd);
		else
			dup2(null, fd);
	}
	for (;;) {
		int next = -1;

		for (size_t i = 0; i < n; i++) {
			if (keep[i] >= (int)from && (next < 0 || keep[i] < next))
				next = keep[i];
		}
		if (next < 0)
			break;
		if ((unsigned)next > from)
			syscall(SYS_close_range, from, (unsigned)next - 1, 0);
		from = (unsigned)next + 1;
	}
	syscall(SYS_close_range, from, ~0u, 0);
}

void ak_fill_standard_streams(void)
{
	int fd;

	do {
		fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	} while (fd >= 0 && fd < 3 && fcntl(fd, F_SETFD, 0) == 0);
	if (fd >= 3)
		ak_close(fd);
}

int ak_replace_file(int dirfd, const char *name, const void *data, size_t len, bool sync)
{
	char tmp[NAME_MAX + 1];
	int fd, rc;

	if (snprintf(tmp, sizeof(tmp), ".%s.tmp", name) >= (int)sizeof(tmp))
		return -ENAMETOOLONG;
	fd = openat(dirfd, tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return -errno;
	rc = ak_write_all(fd, data, len);
	if (rc == 0 && sync && fsync(fd) < 0)
		rc = -errno;
	if (close(fd) < 0 && rc == 0)
		rc = -errno;
	if (rc == 0 && renameat(dirfd, tmp, dirfd, name) < 0)
		rc = -errno;
	if (rc < 0) {
		unlinkat(dirfd, tmp, 0);
		return rc;
	}
	/* The rename has succeeded; if only the sync fails, that is not reported. */
	if (sync)
		(void)fsync(dirfd);
	return 0;
}

#define MEMORY_SEALS (F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE)

int ak_memory_file(const char *name, const void *data, size_t len)
{
	_cleanup_close_ int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	int rc;

	if (fd < 0)
		return -errno;
	rc = ak_write_all(fd, data, len);
	if (rc < 0)
		return rc;
	if (fcntl(fd, F_ADD_SEALS, MEMORY_SEALS) < 0)
		return -errno;
	return TAKE_FD(fd);
}

/* Uses only lseek and read: the gateway calls this under a strict seccomp filter. */
int ak_memory_read(int fd, size_t max, char **ret_data, size_t *ret_len)
{
	_cleanup_free_ char *data = NULL;
	int seals = fcntl(fd, F_GET_SEALS);
	off_t size;
	ssize_t got;

	if (seals < 0 || (seals & MEMORY_SEALS) != MEMORY_SEALS)
		return -EBADMSG;
	size = lseek(fd, 0, SEEK_END);
	if (size < 0 || lseek(fd, 0, SEEK_SET) < 0)
		return -errno;
	if ((uint64_t)size > max)
		return -EFBIG;
	data = malloc((size_t)size + 1);
	if (!data)
		return -ENOMEM;
	got = ak_read_all(fd, data, (size_t)size);
	if (got != size)
		return got < 0 ? (int)got : -EIO;
	data[size] = '\0';
	*ret_data = TAKE(data);
	*ret_len = (size_t)size;
	return 0;
}

int ak_signal_fd(const int *sigs, size_t n)
{
	sigset_t set;
	int fd;

	sigemptyset(&set);
	for (size_t i = 0; i < n; i++)
		sigaddset(&set, sigs[i]);
	sigprocmask(SIG_BLOCK, &set, NULL);
	fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return fd < 0 ? -errno : fd;
}

uint64_t ak_now_us(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000 + (uint64_t)ts.tv_nsec / 1000;
}

uint64_t ak_now_ms(void)
{
	return ak_now_us() / 1000;
}

uint32_t ak_since_us(uint64_t began_us)
{
	uint64_t us = ak_now_us() - began_us;

	return us == 0 ? 1 : us > UINT32_MAX ? UINT32_MAX : (uint32_t)us;
}

static uint64_t clock_us(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return (uint64_t)ts.tv_sec * 1000000 + (uint64_t)ts.tv_nsec / 1000;
}

uint64_t ak_wall_us(void)
{
	return clock_us(CLOCK_REALTIME);
}

uint64_t ak_deadline_now_us(void)
{
	static uint64_t last, last_boot;
	uint64_t wall = ak_wall_us(), boot = clock_us(CLOCK_BOOTTIME), passed = last ? last + (boot - last_boot) : 0;

	last = wall > passed ? wall : passed;
	last_boot = boot;
	return last;
}
