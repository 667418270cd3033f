/* A path that the user typed: see project/way.h. */
#include "gateway/project/way.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/paths.h"
#include "gateway/project/project.h"
#include "gateway/project/walk.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

struct way {
	struct walk walk;
	char home[PATH_MAX]; /* resolved; "" if there is none */
	bool kept; /* only what WRITTEN knows is not followed */
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
	if (w->kept || !strcmp(folder, "/") || project_is_system(folder))
		return true;
	/* Such a folder is a project only after the user has confirmed it. Others can write to one that has the sticky bit. */
	if (project_is_broad(folder, w->home) && !(st.st_mode & S_IWOTH))
		return true;
	return st.st_uid != geteuid() && access(folder, W_OK) < 0;
}

static int refuse(const struct way *w, const char *path, const char *folder, const char *name, struct ak_err *err)
{
	char real[PATH_MAX];

	if (!realpath(path, real))
		snprintf(real, sizeof(real), "the path that it leads to");
	return ak_fail(err, ELOOP,
		"'%.60s' leads through the symbolic link '%.100s/%.40s', which a sandbox may have made; it leads to '%.200s'%s",
		path, folder, name, real, w->kept ? "" : ": give that path if you mean it");
}

/* ---- walking ---- */

static int step(struct way *w, const char *path, const char *name, struct ak_err *err)
{
	_cleanup_close_ int next = openat(w->walk.dir, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	char folder[PATH_MAX];
	struct stat st;
	int rc;

	if (next < 0 || fstat(next, &st) < 0)
		return ak_fail_errno(err, errno, "'%.200s'", path);
	if (S_ISLNK(st.st_mode)) {
		rc = path_of(w->walk.dir, folder);
		if (rc == 0 && !out_of_reach(w, w->walk.dir, folder))
			return refuse(w, path, folder, name, err);
		rc = rc < 0 ? rc : walk_follow(&w->walk, next);
		return rc < 0 ? ak_fail_errno(err, -rc, "'%.200s'", path) : 0;
	}
	ak_close(w->walk.dir);
	w->walk.dir = TAKE_FD(next);
	return 0;
}

static int walk(struct way *w, const char *path, struct ak_err *err)
{
	char name[NAME_MAX + 1];
	int rc;

	while ((rc = walk_next(&w->walk, name)) > 0) {
		rc = step(w, path, name, err);
		if (rc < 0)
			return rc;
	}
	return rc < 0 ? ak_fail_errno(err, -rc, "'%.200s'", path) : 0;
}

/* ---- the whole path ---- */

static int open_plain(const char *path)
{
	struct open_how how = { .flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_NO_SYMLINKS };
	long fd = syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof(how));

	return fd < 0 ? -errno : (int)fd;
}

/* Fill RET with the outermost folder on the way to PATH in which a sandbox could have changed a name; false if there is none. */
static bool in_reach(const struct way *w, const char *path, char ret[static PATH_MAX])
{
	char part[PATH_MAX];

	snprintf(part, sizeof(part), "%.*s", PATH_MAX - 1, path);
	for (char *slash = part; w->written && (slash = strchr(slash + 1, '/')); *slash = '/') {
		*slash = '\0';
		if (!realpath(part, ret))
			return false;
		if (w->written(w->ctx, ret))
			return true;
	}
	return false;
}

/*
 * The kernel's path of the current folder, for a PWD that does not lead there. Usually another program changed the folder and not PWD. But a sandbox may also
 * have renamed the link by which the user came, which would hide it: refused if PWD leads into a folder that it could write, and we are outside.
 */
static int current_real(const struct way *w, char ret[static PATH_MAX], struct ak_err *err)
{
	const char *named = getenv("PWD");
	char folder[PATH_MAX];

	if (!getcwd(ret, PATH_MAX))
		return -errno;
	if (!named || named[0] != '/' || !in_reach(w, named, folder) || project_inside(ret, folder))
		return 0;
	return ak_fail(err, ELOOP,
		"PWD is '%.80s', and a sandbox may have changed symbolic links in '%.80s', but you are in '%.200s': give that path if you mean it",
		named, folder, ret);
}

/*
 * The current folder as the user came to it: PWD has the links that a shell followed. The kernel's own path has none, and is used if PWD
 * names another folder.
 */
static int current(const struct way *w, char ret[static PATH_MAX], struct ak_err *err)
{
	const char *named = getenv("PWD");
	struct stat here, there;

	if (named && named[0] == '/' && strlen(named) < PATH_MAX && stat(named, &there) == 0 && stat(".", &here) == 0 &&
		here.st_dev == there.st_dev && here.st_ino == there.st_ino) {
		memcpy(ret, named, strlen(named) + 1);
		return 0;
	}
	return current_real(w, ret, err);
}

/* ERR has a message only for -ELOOP. */
static int make_absolute(const struct way *w, const char *path, char ret[static PATH_MAX], struct ak_err *err)
{
	char cwd[PATH_MAX] = "";
	int rc = path[0] == '/' ? 0 : current(w, cwd, err), n;

	n = rc < 0 ? 0 : snprintf(ret, PATH_MAX, "%s%s%s", cwd, path[0] == '/' ? "" : "/", path);
	return n >= PATH_MAX ? -ENAMETOOLONG : rc;
}

/* With the home resolved: links on the way to it are the administrator's, or the user's own. */
static int begin(struct way *w, const char *path)
{
	const char *home = getenv("HOME");
	size_t len;
	int n;

	project_home(w->home);
	len = home && w->home[0] && home[0] == '/' && home[1] && project_inside(path, home) ? strlen(home) : 0;
	n = snprintf(w->walk.rest, sizeof(w->walk.rest), "%s/%s", len ? w->home : "", path + len);
	w->walk.dir = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	return n >= PATH_MAX ? -ENAMETOOLONG : w->walk.dir < 0 ? -errno : 0;
}

static int open_way(const char *path, bool kept, way_written_fn written, void *ctx, struct ak_err *err)
{
	struct way w = { .walk.dir = -1, .kept = kept, .written = written, .ctx = ctx };
	char whole[PATH_MAX], cwd[PATH_MAX];
	int rc = make_absolute(&w, path, whole, err), fd = rc < 0 ? rc : open_plain(whole);

	if (rc == -ELOOP)
		return rc;
	if (fd < 0 && fd != -ELOOP && path[0] != '/') { /* a folder above the current one may be closed to us */
		if (current_real(&w, cwd, err) == -ELOOP) /* or the link by which the user came was renamed just now */
			return -ELOOP;
		fd = open_plain(path);
	}
	if (fd >= 0)
		return fd; /* usually there are no links, and one call tells */
	if (fd != -ELOOP || rc < 0)
		return ak_fail_errno(err, -fd, "'%.200s'", path);
	rc = begin(&w, whole);
	rc = rc < 0 ? ak_fail_errno(err, -rc, "'%.200s'", path) : walk(&w, path, err);
	if (rc == 0)
		return w.walk.dir;
	ak_close(w.walk.dir);
	return rc;
}

int way_open(const char *path, way_written_fn written, void *ctx, struct ak_err *err)
{
	return open_way(path, false, written, ctx, err);
}

int way_open_kept(const char *path, way_written_fn written, void *ctx, struct ak_err *err)
{
	return open_way(path, true, written, ctx, err);
}
