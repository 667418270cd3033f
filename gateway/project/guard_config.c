/*
 * Git's configuration: see project/guard.h. Finds the files that it leads git to, and protects those in the project: files that it
 * includes, and the .git files of submodules.
 */
#include "gateway/project/guard_internal.h"

#include "gateway/base/cleanup.h"
#include "gateway/project/gitconf.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define INCLUDE_DEPTH 4
#define MOUNTS_LEFT 4 /* keep this many free */

bool guard_resolve(const char *base, const char *path, char ret[static PATH_MAX])
{
	_cleanup_free_ char *full = path[0] == '/' ? strdup(path) : guard_join(base, path);

	return full && path[0] && realpath(full, ret);
}

/* ---- protecting ---- */

/* Make the file REL read-only while mounts are left. */
static int protect_file(struct guard *g, size_t root, const char *rel)
{
	size_t needed = 1;
	struct stat st;
	int fd;

	for (const char *p = rel; *p; p++)
		needed += *p == '/';
	fd = guard_open(g, root, rel, &st);
	ak_close(fd);
	if (fd < 0 || !S_ISREG(st.st_mode) || g->n_mounts + needed + MOUNTS_LEFT > GUARD_MOUNTS_MAX)
		return fd == -ENOMEM ? fd : 0;
	return guard_protect(g, root, rel);
}

/* ---- included files ---- */

/* Its changes are reported in any case. */
static int watch_file(struct guard *g, size_t root, const char *rel)
{
	struct stat st = { 0 };
	int fd = guard_open(g, root, rel, &st);

	ak_close(fd);
	if (g->n_included == GUARD_INCLUDED_MAX || (fd >= 0 && S_ISDIR(st.st_mode)))
		return 0; /* git includes no folders */
	g->included[g->n_included].root = root;
	g->included[g->n_included].rel = strdup(rel);
	return g->included[g->n_included++].rel ? protect_file(g, root, rel) : -ENOMEM;
}

static int add_includes(struct guard *g, const char *folder, int dir, const char *name, unsigned depth);

/* An included file that may not exist yet: its folder decides where it is. */
static int add_include(struct guard *g, const char *folder, const char *value, unsigned depth)
{
	_cleanup_free_ char *full = value[0] == '/' ? strdup(value) : guard_join(folder, value);
	char *slash = full ? strrchr(full, '/') : NULL;
	char real[PATH_MAX];
	_cleanup_close_ int dir = -1;
	int rc = 0;

	if (!full)
		return -ENOMEM;
	if (!slash || !slash[1] || value[0] == '~')
		return 0; /* the user's own files are not in the project */
	*slash = '\0';
	if (!realpath(full[0] ? full : "/", real) || strlen(real) + strlen(slash + 1) + 2 > PATH_MAX)
		return 0;
	dir = open(real, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	for (size_t i = 0; i < g->n_roots && rc == 0; i++) {
		size_t n = strlen(g->roots[i].path);
		_cleanup_free_ char *rel =
			project_inside(real, g->roots[i].path) ? guard_join(real[n] ? real + n + 1 : "", slash + 1) : NULL;

		if (rel)
			rc = watch_file(g, i, rel);
	}
	return rc < 0 || dir < 0 ? rc : add_includes(g, real, dir, slash + 1, depth + 1);
}

/* FOLDER is the path of DIR, which holds the configuration NAME. */
static int add_includes(struct guard *g, const char *folder, int dir, const char *name, unsigned depth)
{
	_cleanup_free_ char *text = depth < INCLUDE_DEPTH ? gitconf_read(dir, name, O_NOFOLLOW, GITCONF_MAX) : NULL;
	struct gitconf_scan c = { .text = text, .section = "include", .prefix = true, .key = "path" };
	int rc = 0;

	if (!text)
		return 0;
	for (const char *value; rc == 0 && (value = gitconf_next(&c));)
		rc = value[0] ? add_include(g, folder, value, depth) : 0;
	return rc;
}

static int includes_of(struct guard *g, size_t root, const char *rel)
{
	_cleanup_free_ char *folder = guard_join(g->roots[root].path, rel);
	struct stat st;
	_cleanup_close_ int fd = guard_open(g, root, rel, &st);
	int rc = 0;

	if (!folder)
		return -ENOMEM;
	if (fd < 0 || !S_ISDIR(st.st_mode))
		return fd == -ENOMEM ? fd : 0;
	rc = add_includes(g, folder, fd, "config", 0);
	return rc < 0 ? rc : add_includes(g, folder, fd, "config.worktree", 0);
}

/* ---- all of them ---- */

static int protect_nested(void *ctx, size_t root, const char *rel, enum guard_kind kind)
{
	struct guard *g = ctx;
	_cleanup_free_ char *file = kind == GUARD_GIT ? guard_module_file(g, root, rel) : NULL;
	int rc = file ? protect_file(g, GUARD_PROJECT, file) : 0;

	return rc < 0 || kind != GUARD_GIT ? rc : includes_of(g, root, rel);
}

int guard_protect_named(struct guard *g)
{
	int rc = 0;

	for (size_t i = 0; i < g->n_places && rc == 0; i++) {
		const struct guard_place *p = &g->places[i];

		rc = p->includes ? includes_of(g, p->root, p->rel) : 0;
		for (size_t k = 0; g->has_nested && p->nested && rc == 0 && guard_git_inner[k]; k++) {
			struct guard_walk walk = { .g = g, .root = p->root, .fn = protect_nested, .ctx = g };

			rc = guard_nested(&walk, p->rel, guard_git_inner[k]) == -ENOMEM ? -ENOMEM : 0;
		}
	}
	return rc;
}
