/* The source of a mount: see source.h. */
#include "vmctl/source.h"

#include "gateway/base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static int open_without_links(const char *path)
{
	struct open_how how = { .flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS };
	long fd = syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof(how));

	return fd < 0 ? -errno : (int)fd;
}

int mnt_source_open(const struct sandbox_mount *m, struct ak_err *err)
{
	_cleanup_close_ int fd = open_without_links(m->source);
	struct stat st;

	if (fd == -ELOOP)
		return ak_fail(err, ELOOP, "mounting '%s': it, or a folder above it, is now a symbolic link", m->source);
	if (fd < 0)
		return ak_fail_errno(err, -fd, "mounting '%s'", m->source);
	if (!m->ino)
		return TAKE_FD(fd);
	if (fstat(fd, &st) < 0)
		return ak_fail_errno(err, errno, "mounting '%s'", m->source);
	if (st.st_dev != m->dev || st.st_ino != m->ino)
		return ak_fail(err, ESTALE, "mounting '%s': it was replaced by something else since it was named", m->source);
	return TAKE_FD(fd);
}
