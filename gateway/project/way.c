/* A path that the user typed: see project/way.h. */
#include "gateway/project/way.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/paths.h"
#include "gateway/project/project.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LINKS_MAX 40 /* as in the kernel */

struct way {
	int dir; /* owned: what has been reached */
	char rest[2 * PATH_MAX]; /* the rest of the path */
	char home[PATH_MAX]; /* resolved; "" if there is none */
	unsigned links;
	way_written_fn written;
	void *ctx;
};

/* ---- which links are followed ---- */

static int path_of(int fd, char ret[static PATH_MAX])
{
	char proc[64];
	ssize_t n;

	snprintf(proc, sizeof(proc), "/proc/self/fd/%d", fd);
	n = readlink(proc, ret, PATH_MAX - 1);
	if (n < 0)
		return -errno;
	ret[n] = '\0';
	return ret[0] == '/' ? 0 : -EINVAL;
}

/* Whether no sandbox can have written in FOLDER, which is open as FD. */
static bool out_of_reach(const struct way *w, int fd, const char *folder)
{
	struct stat st;

	if (fstat(fd, &st) < 0 || (w->written && w->written(w->ctx, folder)))
		return false;
	if (!strcmp(folder, "/") || project_is_system(folder))
		return true;
	/* Projects only after the user has confirmed it. Others can write in those with the sticky bit. */
	if (project_is_broad(folder, w->home) && !(st.st_mode & S_IWOTH))
		return true;
	return st.st_uid != geteuid() && access(folder, W_OK) < 0;
}

static int refuse(const char *path, const char *folder, const char *name, struct ak_err *err)
{
	char real[PATH_MAX];

	if (!realpath(path, real))
		snprintf(real, sizeof(real), "the path that it leads to");
	return ak_fail(err, ELOOP,
		"'%.60s' leads through the symbolic link '%.100s/%.40s', which a sandbox may have made; it leads to '%.200s': give that path if you mean it",
		path, folder, name, real);
}

/* ---- walking ---- */

static int follow(struct way *w, int link)
{
	char target[PATH_MAX], rest[sizeof(w->rest)];
	ssize_t n = readlinkat(link, "", target, sizeof(target) - 1);

	if (n < 0)
		return -errno;
	target[n] = '\0';
	if (++w->links > LINKS_MAX || n == 0)
		return -ENOENT;
	if (snprintf(rest, sizeof(rest), "%s/%s", target, w->rest) >= (int)sizeof(rest))
		return -ENAMETOOLONG;
	memcpy(w->rest, rest, strlen(rest) + 1);
	if (target[0] == '/') {
		ak_close(w->dir);
		w->dir = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	}
	return w->dir < 0 ? -errno : 0;
}

static int step(struct way *w, const char *path, const char *name, struct ak_err *err)
{
	_cleanup_close_ int next = openat(w->dir, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	char folder[PATH_MAX];
	struct stat st;
	int rc;

	if (next < 0 || fstat(next, &st) < 0)
		return ak_fail_errno(err, errno, "'%.200s'", path);
	if (S_ISLNK(st.st_mode)) {
		rc = path_of(w->dir, folder);
		if (rc == 0 && !out_of_reach(w, w->dir, folder))
			return refuse(path, folder, name, err);
		rc = rc < 0 ? rc : follow(w, next);
		return rc < 0 ? ak_fail_errno(err, -rc, "'%.200s'", path) : 0;
	}
	ak_close(w->dir);
	w->dir = TAKE_FD(next);
	return 0;
}

static int walk(struct way *w, const char *path, struct ak_err *err)
{
	for (;;) {
		char name[NAME_MAX + 1];
		size_t skip = strspn(w->rest, "/"), len = strcspn(w->rest + skip, "/");
		int rc;

		if (len == 0)
			return 0;
		if (len > NAME_MAX)
			return ak_fail_errno(err, ENAMETOOLONG, "'%.200s'", path);
		memcpy(name, w->rest + skip, len);
		name[len] = '\0';
		memmove(w->rest, w->rest + skip + len, strlen(w->rest + skip + len) + 1);
		rc = step(w, path, name, err);
		if (rc < 0)
			return rc;
	}
}

/* ---- the whole path ---- */

static int open_plain(const char *path)
{
	struct open_how how = { .flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_NO_SYMLINKS };
	long fd = syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof(how));

	return fd < 0 ? -errno : (int)fd;
}

/* Absolute, and with the home resolved: links on the way to it are the administrator's, or the user's own. */
static int begin(struct way *w, const char *path)
{
	const char *home = getenv("HOME");
	char cwd[PATH_MAX] = "";
	size_t len;
	int n;

	project_home(w->home);
	if (path[0] != '/' && !getcwd(cwd, sizeof(cwd)))
		return -errno;
	len = home && w->home[0] && home[0] == '/' && home[1] && project_inside(path, home) ? strlen(home) : 0;
	n = snprintf(w->rest, sizeof(w->rest), "%s/%s", len ? w->home : cwd, path + len);
	w->dir = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	return n >= PATH_MAX ? -ENAMETOOLONG : w->dir < 0 ? -errno : 0;
}

int way_open(const char *path, way_written_fn written, void *ctx, struct ak_err *err)
{
	struct way w = { .dir = -1, .written = written, .ctx = ctx };
	int fd = open_plain(path), rc;

	if (fd >= 0)
		return fd; /* usually there are no links, and one call tells */
	if (fd != -ELOOP)
		return ak_fail_errno(err, -fd, "'%.200s'", path);
	rc = begin(&w, path);
	rc = rc < 0 ? ak_fail_errno(err, -rc, "'%.200s'", path) : walk(&w, path, err);
	if (rc == 0)
		return w.dir;
	ak_close(w.dir);
	return rc;
}
