/* The memory of agents: import the host's own, and reset it. See service/service.h. */
#include "gateway/service/service.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/store/agent.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Split PATH at its last slash; open the folder, which exists or is made if MAKE. *RET_NAME is the rest. */
static int open_parent(const char *path, bool make, const char **ret_name, struct ak_err *err)
{
	const char *slash = strrchr(path, '/');
	_cleanup_free_ char *dir = strndup(path, (size_t)(slash - path));
	int rc = !dir ? -ENOMEM : make ? ak_mkdir_p(dir, 0700) : 0, fd;

	if (rc < 0)
		return ak_fail_errno(err, -rc, "%s", path);
	fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	*ret_name = slash + 1;
	return fd < 0 ? ak_fail_errno(err, errno, "%s", dir) : fd;
}

/* HOME/FROM to DIR/TO; 0 also if the home has no such file. */
static int import_one(const char *home, const char *from, const char *dir, const char *to, void (*each)(const char *path),
	struct service_copy *copy, struct ak_err *err)
{
	char source[PATH_MAX], target[PATH_MAX];
	const char *source_name, *target_name;
	_cleanup_close_ int source_dir = -1, target_dir = -1;

	if (ak_path_join(source, home, from, NULL) < 0 || ak_path_join(target, dir, to, NULL) < 0)
		return ak_fail(err, ENAMETOOLONG, "%s: path too long", from);
	if (access(source, F_OK) < 0)
		return 0;
	each(source);
	source_dir = open_parent(source, false, &source_name, err);
	if (source_dir < 0)
		return source_dir;
	target_dir = open_parent(target, true, &target_name, err);
	return target_dir < 0 ? target_dir : service_copy_tree(source_dir, source_name, target_dir, target_name, copy, err);
}

/* True if one of the agent's folders has anything in it. */
static bool has_memory(const struct agent *a, const char *dir)
{
	for (size_t i = 0; a->state[i]; i++) {
		char path[PATH_MAX];

		if (ak_path_join(path, dir, a->state[i], NULL) == 0 && rmdir(path) < 0 && errno != ENOENT)
			return true;
	}
	return false;
}

int service_agent_import(const struct ak_paths *paths, const struct agent *a, void (*each)(const char *path), uint64_t *ret_files,
	struct ak_err *err)
{
	struct service_copy copy = { .files = 0 };
	const char *home = getenv("HOME");
	char dir[PATH_MAX];
	int rc = agent_state_dir(paths, a, NULL, dir);

	if (rc < 0 || !home || home[0] != '/')
		return ak_fail(err, EINVAL, "HOME is not set to a folder");
	if (has_memory(a, dir))
		return ak_fail(
			err, EEXIST, "%s has a memory already: 'agentkernel agents reset %s' empties it", a->title, a->name);
	for (size_t i = 0; a->state[i] && rc == 0; i++)
		rc = import_one(home, a->state[i], dir, a->state[i], each, &copy, err);
	if (rc == 0 && a->import[0])
		rc = import_one(home, a->import[0], dir, a->import[1], each, &copy, err);
	if (rc < 0)
		return rc;
	*ret_files = copy.files;
	return copy.files ? 0 : ak_fail(err, ENOENT, "no files of %s in your home", a->title);
}

int service_agent_reset(const struct ak_paths *paths, const struct agent *a, struct ak_err *err)
{
	char dir[PATH_MAX];
	_cleanup_close_ int fd = -1;
	int rc = ak_path_join(dir, paths->state, "agents", NULL);

	if (rc < 0)
		return ak_fail_errno(err, -rc, "%s", paths->state);
	fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 || faccessat(fd, a->name, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
		return ak_fail(err, ENOENT, "%s has no memory yet", a->title);
	rc = ak_remove_tree(fd, a->name);
	return rc < 0 ? ak_fail_errno(err, -rc, "%s/%s", dir, a->name) : 0;
}
