/* Paths below a descriptor: see path.h. */
#include "vmctl/path.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

/* One part: open it, make it when it is missing. */
static int step(int dir_fd, const char *name, mode_t mode)
{
	const int flags = O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
	int fd;

	if (!strcmp(name, ".."))
		return -EINVAL;
	fd = openat(dir_fd, name, flags);
	if (fd >= 0)
		return fd;
	if (errno != ENOENT)
		return -errno;
	if (mkdirat(dir_fd, name, mode) < 0 && errno != EEXIST)
		return -errno;
	fd = openat(dir_fd, name, flags);
	return fd < 0 ? -errno : fd;
}

int path_make_dir(int root_fd, const char *path, mode_t mode, int *ret_fd)
{
	_cleanup_close_ int fd = openat(root_fd, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
	char copy[PATH_MAX], *save = NULL;
	size_t len = strlen(path);

	if (fd < 0)
		return -errno;
	if (len >= sizeof(copy))
		return -ENAMETOOLONG;
	memcpy(copy, path, len + 1);
	for (char *name = strtok_r(copy, "/", &save); name; name = strtok_r(NULL, "/", &save)) {
		int next = step(fd, name, mode);

		if (next < 0)
			return next;
		ak_close(fd);
		fd = next;
	}
	*ret_fd = TAKE_FD(fd);
	return 0;
}

int path_make_file(int root_fd, const char *path, int *ret_fd)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	_cleanup_close_ int dir_fd = -1, made = -1;
	char parent[PATH_MAX];
	size_t len = slash ? (size_t)(slash - path) : 0;
	int rc, fd;

	if (len >= sizeof(parent))
		return -ENAMETOOLONG;
	if (!name[0] || !strcmp(name, ".") || !strcmp(name, ".."))
		return -EINVAL;
	memcpy(parent, path, len);
	parent[len] = '\0';
	rc = path_make_dir(root_fd, parent, 0755, &dir_fd);
	if (rc < 0)
		return rc;
	fd = openat(dir_fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 && errno == ENOENT) {
		made = openat(dir_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
		fd = made < 0 ? -1 : openat(dir_fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	}
	if (fd < 0)
		return -errno;
	*ret_fd = fd;
	return 0;
}

int path_write(int root_fd, const char *path, const char *text)
{
	const int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
	_cleanup_close_ int fd = openat(root_fd, path, flags, 0644);

	if (fd < 0 && errno == EEXIST) { /* of an earlier start, and perhaps no longer a file */
		if (unlinkat(root_fd, path, 0) < 0)
			return -errno;
		fd = openat(root_fd, path, flags, 0644);
	}
	if (fd < 0)
		return -errno;
	return ak_write_all(fd, text, strlen(text));
}
