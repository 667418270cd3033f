/* The memory of agents: import the host's own, and reset it. See service/service.h. */
#include "gateway/service/service.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/project/owndir.h"
#include "gateway/project/project.h"
#include "gateway/project/way.h"
#include "gateway/store/agent.h"
#include "gateway/store/shared.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* One import: where from, where to, and what is told. */
struct import {
	const struct ak_paths *paths; /* borrowed, like all of these */
	const struct agent *agent;
	const char *home, *dir;
	const struct service_memory *how; /* NULL: copy; else only report */
	struct service_copy copy;
};

/* Refuse a folder around keys; mount_check_source would refuse the agent's own folders as well. */
static int check_around(const char *real, const char *home, struct ak_err *err)
{
	char path[PATH_MAX], keys[PATH_MAX];

	if (home[0] && project_inside(home, real))
		return ak_fail(err, EINVAL, "it contains your home");
	for (size_t i = 0; home[0] && project_private_names[i]; i++) {
		if (ak_path_join(path, home, project_private_names[i], NULL) == 0 && realpath(path, keys) &&
			project_inside(keys, real))
			return ak_fail(err, EINVAL, "it contains '%s', which holds keys or sessions", path);
	}
	return 0;
}

/* Refuse agentkernel's own folders, what is in them, and what contains them. */
static int check_ours(const struct ak_paths *paths, const char *real, mode_t mode, struct ak_err *err)
{
	_cleanup_(owndir_freep) struct owndir *own = NULL;
	char folder[PATH_MAX], ours[OWNDIR_COVERS_MAX][PATH_MAX];
	const char *shown = folder, *slash = S_ISDIR(mode) ? real + strlen(real) : strrchr(real, '/');
	int rc = owndir_new(paths, &own, err);

	if (rc < 0)
		return rc;
	snprintf(folder, sizeof(folder), "%.*s", slash == real ? 1 : (int)(slash - real), real);
	rc = owndir_check_outside(own, folder, real, false, err);
	if (rc == 0 && S_ISDIR(mode))
		rc = owndir_covers(own, &shown, 1, ours, err);
	return rc > 0 ? ak_fail(err, EINVAL, "it contains agentkernel's own folder '%s'", ours[0]) : rc;
}

/* The user may keep what PATH names elsewhere, but no link leads to keys or to our own records. */
static int check_source(
	const struct ak_paths *paths, const char *home, const char *path, const char *real, mode_t mode, struct ak_err *err)
{
	int rc;

	if (project_is_private(real, home))
		return ak_fail(err, EINVAL, "'%s' leads to '%s', which holds keys or sessions of other programs", path, real);
	rc = S_ISDIR(mode) ? check_around(real, home, err) : 0;
	if (rc == 0)
		rc = check_ours(paths, real, mode, err);
	return rc < 0 ? ak_err_prefix(err, rc, "'%s' leads to '%s'", path, real) : 0;
}

/*
 * Open PATH, in the home, with O_PATH: the user may keep it elsewhere, behind links. -ENOENT if there is none. A link in a folder that a
 * sandbox could write is not followed, and the copy starts from the descriptor, so that none is put in its place after the check.
 */
static int open_source(const struct import *im, const char *from, const char *path, char ret_real[static PATH_MAX],
	bool *ret_linked, struct ak_err *err)
{
	_cleanup_(shared_projects_done) struct shared_projects projects = { .paths = im->paths };
	_cleanup_close_ int fd = way_open_kept(path, shared_wrote, &projects, err);
	char home[PATH_MAX], expected[PATH_MAX];
	struct project_id id;
	mode_t mode = 0;
	int rc;

	if (fd < 0)
		return fd;
	project_home(home);
	rc = project_name_open(fd, "the agent's files", ret_real, &id, &mode, err);
	*ret_linked = ak_path_join(expected, home, from, NULL) < 0 || strcmp(ret_real, expected) != 0;
	if (rc == 0 && *ret_linked)
		rc = check_source(im->paths, home, path, ret_real, mode, err);
	return rc < 0 ? rc : TAKE_FD(fd);
}

/* The folder of PATH, open; its last part in *RET_NAME. */
static int open_parent(const char *path, const char **ret_name, struct ak_err *err)
{
	const char *slash = strrchr(path, '/');
	_cleanup_free_ char *dir = strndup(path, slash == path ? 1 : (size_t)(slash - path));
	int fd = dir ? open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;

	*ret_name = slash + 1;
	return fd < 0 ? ak_fail_errno(err, dir ? errno : ENOMEM, "%s", path) : fd;
}

/* HOME/FROM to DIR/TO; 0 also if the home has no such file. */
static int import_one(struct import *im, const char *from, const char *to, struct ak_err *err)
{
	const char *slash = strrchr(to, '/');
	_cleanup_free_ char *parent = strndup(to, slash ? (size_t)(slash - to) : 0);
	_cleanup_close_ int source = -1, target = -1;
	char path[PATH_MAX], real[PATH_MAX];
	bool linked = false;

	if (!parent || ak_path_join(path, im->home, from, NULL) < 0)
		return ak_fail(err, parent ? ENAMETOOLONG : ENOMEM, "%s: path too long", from);
	source = open_source(im, from, path, real, &linked, err);
	if (source < 0)
		return source == -ENOENT ? 0 : source;
	if (im->how) {
		im->how->source(im->how->ctx, from, linked ? real : NULL);
		return service_copy_pinned(source, strrchr(real, '/') + 1, -1, "", &im->copy, err);
	}
	target = agent_state_open(im->paths, im->agent, im->dir, parent, err);
	return target < 0 ? target
			  : service_copy_pinned(source, strrchr(real, '/') + 1, target, slash ? slash + 1 : to, &im->copy, err);
}

static int import_all(struct import *im, struct ak_err *err)
{
	const struct agent *a = im->agent;
	int rc = 0;

	for (size_t i = 0; a->state[i] && rc == 0; i++)
		rc = import_one(im, a->state[i], a->state[i], err);
	if (rc == 0 && a->import[0])
		rc = import_one(im, a->import[0], a->import[1], err);
	if (rc == 0 && !im->copy.files && !im->copy.links)
		rc = ak_fail(err, ENOENT, "no files of %s in your home", a->title);
	return rc;
}

/* Remove what a failed import has copied: the folders were empty before. */
static void undo(const struct import *im)
{
	const char *name;
	struct ak_err ignored;
	_cleanup_close_ int fd = open_parent(im->dir, &name, &ignored);

	if (fd >= 0)
		(void)ak_remove_tree(fd, name);
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

/* Check that A has no memory yet. HOW is NULL: copy; else only report what would be copied. */
static int import_begin(const struct ak_paths *paths, const struct agent *a, const struct service_memory *how, struct import *im,
	char dir[static PATH_MAX], struct ak_err *err)
{
	int rc = agent_state_dir(paths, a, NULL, dir);

	*im = (struct import){ .paths = paths, .agent = a, .home = getenv("HOME"), .dir = dir, .how = how };
	im->copy.inner_links = true;
	if (how) {
		im->copy.look = true;
		im->copy.found = how->found;
		im->copy.skipped = how->skipped;
		im->copy.ctx = how->ctx;
	}
	if (rc < 0 || !im->home || im->home[0] != '/')
		return ak_fail(err, EINVAL, "HOME is not set to a folder");
	if (has_memory(a, dir))
		return ak_fail(
			err, EEXIST, "%s has a memory already: 'agentkernel agents reset %s' empties it", a->title, a->name);
	return 0;
}

int service_agent_look(const struct ak_paths *paths, const struct agent *a, const struct service_memory *how, struct ak_err *err)
{
	char dir[PATH_MAX];
	struct import im;
	int rc = import_begin(paths, a, how, &im, dir, err);

	return rc < 0 ? rc : import_all(&im, err);
}

int service_agent_import(const struct ak_paths *paths, const struct agent *a, uint64_t *ret_files, struct ak_err *err)
{
	char dir[PATH_MAX];
	struct import im;
	int rc = import_begin(paths, a, NULL, &im, dir, err);

	if (rc < 0)
		return rc;
	rc = import_all(&im, err);
	if (rc < 0)
		undo(&im);
	else
		*ret_files = im.copy.files + im.copy.links;
	return rc;
}

/* The folder that holds the memory of all agents, open; -ENOENT if A has none. */
static int open_memory(const struct ak_paths *paths, const struct agent *a, struct ak_err *err)
{
	char dir[PATH_MAX];
	int rc = ak_path_join(dir, paths->state, "agents", NULL), fd;

	if (rc < 0)
		return ak_fail_errno(err, -rc, "%s", paths->state);
	fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd >= 0 && faccessat(fd, a->name, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
		return fd;
	ak_close(fd);
	return ak_fail(err, ENOENT, "%s has no memory yet", a->title);
}

int service_agent_memory(
	const struct ak_paths *paths, const struct agent *a, const struct service_memory *how, struct ak_err *err)
{
	struct service_copy copy = { .look = true, .found = how->found, .skipped = how->skipped, .ctx = how->ctx };
	_cleanup_close_ int fd = open_memory(paths, a, err);

	return fd < 0 ? fd : service_copy_tree(fd, a->name, -1, "", &copy, err);
}

int service_agent_reset(const struct ak_paths *paths, const struct agent *a, struct ak_err *err)
{
	_cleanup_close_ int fd = open_memory(paths, a, err);
	int rc = fd < 0 ? fd : ak_remove_tree(fd, a->name);

	return fd < 0 || rc == 0 ? rc : ak_fail_errno(err, -rc, "%s/agents/%s", paths->state, a->name);
}
