/* The project's git folders: see project/guard.h. */
#include "gateway/project/guard_internal.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/project/gitconf.h"
#include "gateway/project/owndir.h"
#include "vmctl/source.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define POINTER_MAX (PATH_MAX + 64)

static bool is_file(int dir, const char *name)
{
	struct stat st;

	return fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode);
}

static bool is_dir(int dir, const char *name)
{
	struct stat st;

	return fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);
}

static bool is_there(int dir, const char *name)
{
	return faccessat(dir, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static int add_place(struct guard *g, size_t root, const char *rel, bool nested)
{
	struct guard_place *p = &g->places[g->n_places];
	int rc;

	if (g->n_places == GUARD_PLACES_MAX)
		return -E2BIG;
	*p = (struct guard_place){ .root = root, .rel = strdup(rel), .nested = nested };
	if (!p->rel)
		return -ENOMEM;
	g->n_places++;
	rc = root == GUARD_PROJECT && g->protect ? guard_reach(g, root, rel) : 0;
	if (rc == 0)
		rc = guard_protect_folder(g, root, rel);
	return rc < 0 || !nested ? rc : guard_protect_nested(g, root, rel);
}

/* ---- a git folder outside ---- */

static bool is_repository(int dir)
{
	return is_file(dir, "HEAD") && is_dir(dir, "objects") && is_dir(dir, "refs") && is_file(dir, "config");
}

static int open_folder(const char *path)
{
	struct ak_err ignored;

	return mnt_source_open(&(struct sandbox_mount){ .source = path }, &ignored);
}

/* Whether PATH, which stands in a file of FOLDER, is WANT without any link: a sandbox could have made a link. */
static bool names(const char *folder, const char *path, const char *want)
{
	_cleanup_free_ char *full = path[0] == '/' ? strdup(path) : guard_join(folder, path);
	_cleanup_close_ int fd = full ? open_folder(full) : -1;
	char real[PATH_MAX];

	return fd >= 0 && realpath(full, real) && !strcmp(real, want);
}

/* Whether the path component of LEN bytes at NAME is a usual name of a git folder. */
static bool is_git_name(const char *name, size_t len)
{
	return (len >= 4 && !strncmp(name + len - 4, ".git", 4)) || (len == 5 && !strncmp(name, ".bare", 5));
}

/* A folder that contains a project is not a git folder, whatever files it has. */
static bool is_git_folder(int fd, const char *path)
{
	const char *base = strrchr(path, '/') + 1;

	return is_repository(fd) && is_git_name(base, strlen(base)) && faccessat(fd, ".git", F_OK, AT_SYMLINK_NOFOLLOW) < 0;
}

/* The same for PATH of a submodule, which has any name below "modules" of a git folder. */
static bool is_module_folder(int fd, const char *path)
{
	for (const char *part = path; *part; part += 1 + strcspn(part + 1, "/")) {
		if (is_git_name(part + 1, strcspn(part + 1, "/")) && strstr(part + 1, "/modules/"))
			return is_repository(fd) && faccessat(fd, ".git", F_OK, AT_SYMLINK_NOFOLLOW) < 0;
	}
	return false;
}

/* Whether FOLDER, of a submodule, has its own repository and names the project as its work tree. */
static bool submodule_points_back(const struct guard *g, int fd, const char *folder)
{
	_cleanup_free_ char *config = is_module_folder(fd, folder) ? gitconf_read(fd, "config", O_NOFOLLOW, GITCONF_MAX) : NULL;
	const char *value = config ? gitconf_value(config, "core", "worktree") : NULL;

	return value && value[0] && names(folder, value, g->roots[GUARD_PROJECT].path);
}

/*
 * Whether FOLDER is R/worktrees/NAME of a repository R and its file gitdir names the project's .git. RET is R. R is determined
 * only from files in R: nothing in the project is trusted.
 */
static bool worktree_points_back(const struct guard *g, int fd, const char *folder, char ret[static PATH_MAX])
{
	_cleanup_free_ char *back = gitconf_read(fd, "gitdir", O_NOFOLLOW, POINTER_MAX),
			    *common = gitconf_read(fd, "commondir", O_NOFOLLOW, POINTER_MAX);
	_cleanup_free_ char *dot_git = guard_join(g->roots[GUARD_PROJECT].path, ".git");
	_cleanup_close_ int repository = -1;
	size_t n;

	if (!back || !common || !dot_git || !guard_resolve(folder, common, ret) || !names(folder, back, dot_git))
		return false;
	n = strlen(ret);
	if (strncmp(folder, ret, n) != 0 || strncmp(folder + n, "/worktrees/", 11) != 0 || strchr(folder + n + 11, '/'))
		return false;
	repository = open_folder(ret);
	return repository >= 0 && is_git_folder(repository, ret);
}

/*
 * The folder is mounted writable, like the project. Refuse folders that cannot be a project, that contain the project or its
 * mounts, or that belong to another sandbox.
 */
static bool may_mount(const struct guard *g, const char *path, const struct ak_paths *paths)
{
	_cleanup_(owndir_freep) struct owndir *own = NULL;
	struct ak_err ignored;

	return owndir_new(paths, &own, &ignored) == 0 && project_check(path, PROJECT_NAMED, own, &ignored) == 0 &&
		!project_inside(g->roots[GUARD_PROJECT].path, path) && !g->claimed(paths, path);
}

char *guard_module_file(const struct guard *g, size_t root, const char *rel)
{
	struct stat st;
	const char *project = g->roots[GUARD_PROJECT].path;
	_cleanup_close_ int fd = guard_open(g, root, rel, &st);
	_cleanup_free_ char *folder = guard_join(g->roots[root].path, rel),
			    *config = fd < 0 ? NULL : gitconf_read(fd, "config", O_NOFOLLOW, GITCONF_MAX),
			    *back = fd < 0 ? NULL : gitconf_read(fd, "gitdir", O_NOFOLLOW, POINTER_MAX);
	const char *value = config ? gitconf_value(config, "core", "worktree") : NULL;
	char files[PATH_MAX];
	size_t n = strlen(project);

	if (!folder || !(value || back) || !guard_resolve(folder, value ? value : back, files) ||
		!project_inside(files, project) || files[n] != '/')
		return NULL;
	if (value)
		return guard_join(files + n + 1, ".git");
	/* "gitdir" of a worktree names its .git; the project's own is protected already. */
	return strlen(files) > n + 5 && !strcmp(files + strlen(files) - 5, "/.git") ? strdup(files + n + 1) : NULL;
}

static int add_root(struct guard *g, const char *path)
{
	struct guard_root *r = &g->roots[g->n_roots];

	r->fd = open_folder(path);
	if (r->fd < 0)
		return r->fd;
	r->path = strdup(path);
	g->n_roots++;
	guard_say(g, "the project's git folder '%.160s' is mounted as well, writable except for its hooks and settings", path);
	return r->path ? guard_pin(g, GUARD_OUTSIDE, "", false) : -ENOMEM;
}

/* A worktree uses all of the repository except what belongs to other worktrees. */
static int add_worktree(struct guard *g, const char *repository, const char *folder)
{
	const char *own = folder + strlen(repository) + 1; /* worktrees/NAME */
	int rc = add_root(g, repository);

	if (rc == 0)
		rc = add_place(g, GUARD_OUTSIDE, "", false);
	if (rc == 0)
		rc = guard_protect(g, GUARD_OUTSIDE, "modules");
	if (rc == 0)
		rc = guard_protect(g, GUARD_OUTSIDE, "worktrees");
	if (rc == 0)
		rc = guard_except(g, GUARD_OUTSIDE, own);
	return rc < 0 ? rc : add_place(g, GUARD_OUTSIDE, own, true);
}

static int add_submodule(struct guard *g, const char *folder)
{
	int rc = add_root(g, folder);

	return rc < 0 ? rc : add_place(g, GUARD_OUTSIDE, "", true);
}

static int refuse(struct guard *g, const char *folder)
{
	guard_say(g,
		"git will not work inside: '.git' leads to '%.120s', which does not name this project in return, or "
		"belongs to the project of another sandbox, and is not mounted",
		folder);
	return 0;
}

/* DOT_GIT is a file of the project that names its git folder. */
static int follow_file(struct guard *g, const struct stat *dot_git, const struct ak_paths *paths)
{
	const char *project = g->roots[GUARD_PROJECT].path;
	_cleanup_free_ char *text = gitconf_read(g->roots[GUARD_PROJECT].fd, ".git", O_NOFOLLOW, POINTER_MAX);
	char folder[PATH_MAX], repository[PATH_MAX];
	_cleanup_close_ int fd = -1;

	if (!text || strncmp(text, "gitdir:", 7) != 0 || !guard_resolve(project, text + 7 + strspn(text + 7, " \t"), folder))
		return 0;
	if (project_inside(folder, project)) /* whoever wrote the project wrote it */
		return folder[strlen(project)] == '/' ? add_place(g, GUARD_PROJECT, folder + strlen(project) + 1, true) : 0;
	fd = open_folder(folder);
	if (fd < 0 || dot_git->st_nlink > 1) /* a hard link: it may belong to another folder */
		return refuse(g, folder);
	if (worktree_points_back(g, fd, folder, repository))
		return may_mount(g, repository, paths) ? add_worktree(g, repository, folder) : refuse(g, folder);
	if (submodule_points_back(g, fd, folder) && may_mount(g, folder, paths))
		return add_submodule(g, folder);
	return refuse(g, folder);
}

/* ---- all git folders ---- */

/* The target of a .git that is a link, if that is a folder in the project. */
static int follow_link(struct guard *g)
{
	const char *project = g->roots[GUARD_PROJECT].path;
	char folder[PATH_MAX];
	size_t n = strlen(project);

	if (!guard_resolve(project, ".git", folder) || !project_inside(folder, project) || folder[n] != '/')
		return 0;
	return add_place(g, GUARD_PROJECT, folder + n + 1, true);
}

/* As git's own check, but whatever the types: what is missing now may be behind a link. */
bool guard_git_is_top(const struct guard *g)
{
	const int top = g->roots[GUARD_PROJECT].fd;

	return is_there(top, "HEAD") && (is_there(top, "commondir") || (is_there(top, "objects") && is_there(top, "refs")));
}

/* A bare repository, or what a sandbox made to look like one. */
static int add_top(struct guard *g)
{
	if (g->protect)
		guard_say(g, "the project folder is itself a git folder: its hooks and settings are read-only inside");
	return add_place(g, GUARD_PROJECT, "", true);
}

int guard_git(struct guard *g, const struct ak_paths *paths, struct ak_err *err)
{
	struct stat st;
	int fd = guard_open(g, GUARD_PROJECT, ".git", &st), rc;

	ak_close(fd);
	rc = add_place(g, GUARD_PROJECT, ".git", true); /* it may be created later */
	if (rc == 0 && fd >= 0 && S_ISLNK(st.st_mode))
		rc = follow_link(g);
	if (rc == 0 && fd >= 0 && S_ISREG(st.st_mode))
		rc = guard_protect(g, GUARD_PROJECT, ".git");
	if (rc == 0 && fd >= 0 && S_ISREG(st.st_mode))
		rc = follow_file(g, &st, paths);
	if (rc == 0 && guard_git_is_top(g))
		rc = add_top(g);
	if (rc == 0)
		rc = guard_protect_named(g);
	return rc < 0 ? guard_failed(g, rc, err) : 0;
}
