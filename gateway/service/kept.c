/*
 * The files that a stopped sandbox has written: see service/service.h. They are in its upper folder, which has a subfolder for each path that was mounted
 * separately. Nothing is mounted here, so this works even if the sandbox no longer starts.
 */
#include "gateway/service/service.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/store/state.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

static const struct {
	const char *path, *part;
} places[] = { { "/tmp", "tmp" }, { "/var/tmp", "tmp" }, { "/usr", "usr" }, { "/opt", "opt" } };

/* The rest of PATH after the leading components PREFIX; NULL if PATH does not begin with them. Repeated slashes count as one. */
static const char *beyond(const char *path, const char *prefix)
{
	while (*prefix) {
		size_t len = strcspn(prefix + 1, "/");

		path += strspn(path, "/");
		if (strncmp(path, prefix + 1, len) != 0 || (path[len] && path[len] != '/'))
			return NULL;
		path += len;
		prefix += 1 + len;
	}
	return path;
}

/* Open STATE/sandboxes/NAME/upper or, for a kept run, STATE/runs/NAME/upper. */
static int open_upper(const struct ak_paths *paths, const char *name)
{
	const int flags = O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
	char dir[PATH_MAX], path[PATH_MAX];
	int fd = -1, rc = state_path(paths, name, "upper", path);

	if (rc == 0)
		fd = open(path, flags);
	if (rc == 0 && fd < 0 && errno == ENOENT) {
		rc = ak_path_join(dir, paths->state, "runs", name);
		if (rc == 0)
			rc = ak_path_join(path, dir, "upper", NULL);
		fd = rc < 0 ? -1 : open(path, flags);
	}
	return rc < 0 ? rc : fd < 0 ? -errno : fd;
}

int service_kept(const struct ak_paths *paths, const char *name, const char **path, struct ak_err *err)
{
	_cleanup_close_ int upper = ak_sandbox_name_ok(name) ? open_upper(paths, name) : -ENOENT;
	const char *part = "root", *rest = *path;
	int fd;

	if (upper < 0)
		return ak_fail(err, -upper, "no sandbox named '%.63s'", name);
	for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
		const char *more = beyond(*path, places[i].path);

		if (more) {
			part = places[i].part;
			rest = *more ? more : "/";
		}
	}
	fd = openat(upper, part, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return ak_fail_errno(err, errno, "'%.200s'", *path);
	*path = rest;
	return fd;
}
