/* Create files in a sandbox's folder: see make.h. */
#include "gateway/base/make.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <unistd.h>

struct thing {
	int dir_fd;
	const char *name, *target; /* TARGET: of a link, or the old name of a rename */
	mode_t mode;
};

static int make_file(const struct thing *t)
{
	return openat(t->dir_fd, t->name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, t->mode);
}

static int make_folder(const struct thing *t)
{
	return mkdirat(t->dir_fd, t->name, t->mode);
}

static int make_link(const struct thing *t)
{
	return symlinkat(t->target, t->dir_fd, t->name);
}

static int make_renamed(const struct thing *t)
{
	return renameat(t->dir_fd, t->target, t->dir_fd, t->name);
}

static int make(int (*how)(const struct thing *t), const struct thing *t)
{
	int rc = how(t);
	struct stat st;

	if (rc >= 0 || errno != EOVERFLOW || geteuid() != 0 || fstat(t->dir_fd, &st) < 0)
		return rc < 0 ? -errno : rc;
	setfsgid(st.st_gid);
	setfsuid(st.st_uid);
	rc = how(t);
	if (rc < 0)
		rc = -errno;
	setfsuid(geteuid());
	setfsgid(getegid());
	return rc;
}

int ak_make_file(int dir_fd, const char *name, mode_t mode)
{
	return make(make_file, &(struct thing){ .dir_fd = dir_fd, .name = name, .mode = mode });
}

int ak_make_folder(int dir_fd, const char *name, mode_t mode)
{
	return make(make_folder, &(struct thing){ .dir_fd = dir_fd, .name = name, .mode = mode });
}

int ak_make_renamed(int dir_fd, const char *from, const char *to)
{
	return make(make_renamed, &(struct thing){ .dir_fd = dir_fd, .name = to, .target = from });
}

int ak_make_link(int dir_fd, const char *name, const char *target)
{
	return make(make_link, &(struct thing){ .dir_fd = dir_fd, .name = name, .target = target });
}
