/* Mounts that protect files of a project: see project/guard.h. */
#include "gateway/project/guard_internal.h"

#include "gateway/base/cleanup.h"
#include "vmctl/source.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

const char *const guard_names[] = { ".gitmodules", ".mcp.json", "agentkernel.toml", ".envrc", ".vscode", ".idea", ".claude",
	".codex", ".gemini", ".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".profile", ".zshrc",
	".zshenv", ".zprofile", ".zlogin", ".zlogout", ".kshrc", ".cshrc", ".tcshrc", ".login", ".config/fish", ".gitconfig",
	".ssh", "opencode.json", "opencode.jsonc", ".opencode", ".husky", ".cursor", ".devcontainer", ".devcontainer.json",
	".hg/hgrc", ".cargo/config.toml", ".cargo/config", ".zed", ".windsurf", "mise.toml", ".mise.toml", ".aider.conf.yml",
	".exrc", ".vimrc", ".nvimrc", ".nvim.lua", ".dir-locals.el", "lefthook.yml", ".lefthook.yml", NULL };
const char *const guard_more_names[] = {
	/* editors */
	".dir-locals-2.el", ".helix", ".vim", ".lvimrc", ".ideavimrc", ".fleet", ".project", ".externalToolBuilders",
	/* agents, which start the servers that these name */
	".roo", ".kilocode", ".kiro", ".amazonq", ".qwen", ".junie", ".trae", ".factory", ".continue", "crush.json",
	".crush.json",
	/* tools that run commands of the folder in which they are started */
	"mise.local.toml", ".mise.local.toml", ".mise", ".config/mise.toml", ".config/mise", "lefthook.yaml", ".lefthook.yaml",
	"lefthook.toml", "lefthook.json", "lefthook-local.yml", ".lefthook", ".lefthook-local", ".overcommit.yml",
	".jj/repo/config.toml", ".Rprofile", ".octaverc", ".irbrc", ".pryrc", ".gdbinit", ".lldbinit",
	/* Mercurial's settings of a repository that shares those of another one, and what makes it share them */
	".hg/hgrc-not-shared", ".hg/sharedpath", ".hg/requires",
	/* interpreters and debuggers that read a file of the current folder when they start */
	".iex.exs", ".ghci", ".ocamlinit", ".Renviron", ".pdbrc", ".byebugrc", ".rdbgrc", ".perldb", NULL
};
const char *const guard_suffixes[] = { ".code-workspace", ".sublime-project", NULL }; /* workspaces of editors, with tasks */
/* Agents change these in ordinary work, so they stay writable, and changes are reported. */
const char *const guard_watched[] = { ".pre-commit-config.yaml", ".npmrc", ".yarnrc.yml", ".tool-versions", ".github/workflows",
	".yarnrc", ".yarn/releases", ".yarn/plugins", ".pnpmfile.cjs", "bunfig.toml", "rust-toolchain.toml", "rust-toolchain",
	/* instructions that an agent outside a sandbox follows */
	"AGENTS.md", "CLAUDE.md", "CLAUDE.local.md", "GEMINI.md", ".cursorrules", ".windsurfrules", ".clinerules",
	".github/copilot-instructions.md", NULL };
/* commondir and gitdir tell git where to find the rest. */
const char *const guard_git_names[] = { "hooks", "config", "config.worktree", "info", "commondir", "gitdir", NULL };
const char *const guard_git_watched[] = { "rebase-merge/git-rebase-todo", NULL }; /* its exec lines are commands */

#define MOUNTS_RESERVED 32 /* for one git folder, and for mounts added after the nested ones */

/* ---- opening ---- */

static int open_how(int fd, const char *rel, uint64_t flags, uint64_t resolve)
{
	struct open_how how = { .flags = flags | O_CLOEXEC, .resolve = resolve };
	long opened = syscall(SYS_openat2, fd, rel, &how, sizeof(how));

	return opened < 0 ? -errno : (int)opened;
}

int guard_open(const struct guard *g, size_t root, const char *rel, struct stat *ret)
{
	const uint64_t resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS;
	_cleanup_close_ int fd = root == GUARD_PROJECT && guard_top_lacks(g, rel)
		? -ENOENT
		: open_how(g->roots[root].fd, rel[0] ? rel : ".", O_PATH | O_NOFOLLOW, resolve);

	if (fd < 0)
		return fd;
	return fstat(fd, ret) < 0 ? -errno : TAKE_FD(fd);
}

int guard_open_beneath(int fd, const char *rel)
{
	return open_how(fd, rel, O_PATH, RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS);
}

char *guard_join(const char *dir, const char *name)
{
	char *path;

	if (!dir[0] || !name[0])
		return strdup(dir[0] ? dir : name);
	return asprintf(&path, "%s/%s", dir, name) < 0 ? NULL : path;
}

/* ---- mounts ---- */

static struct guard_mount *find_mount(struct guard *g, const char *path)
{
	for (size_t i = 0; i < g->n_mounts; i++) {
		if (!strcmp(g->mounts[i].path, path))
			return &g->mounts[i];
	}
	return NULL;
}

/* Whether PATH is below DIR. */
static bool is_below(const char *path, const char *dir)
{
	size_t n = strlen(dir);

	return !strncmp(path, dir, n) && path[n] == '/';
}

static void drop_below(struct guard *g, const char *path)
{
	size_t kept = 0;

	for (size_t i = 0; i < g->n_mounts; i++) {
		if (is_below(g->mounts[i].path, path))
			free(g->mounts[i].path);
		else
			g->mounts[kept++] = g->mounts[i];
	}
	g->n_mounts = kept;
}

/* Whether the mounts so far make PATH read-only. */
static bool is_closed(const struct guard *g, const char *path)
{
	const struct guard_mount *nearest = NULL;

	for (size_t i = 0; i < g->n_mounts; i++) {
		const struct guard_mount *m = &g->mounts[i];

		if ((!strcmp(m->path, path) || is_below(path, m->path)) && (!nearest || is_below(m->path, nearest->path)))
			nearest = m;
	}
	return nearest && nearest->readonly;
}

bool guard_closed(const struct guard *g, size_t root, const char *rel)
{
	_cleanup_free_ char *path = guard_join(g->roots[root].path, rel);

	return !path || is_closed(g, path);
}

bool guard_holds(const struct guard *g, size_t root, const char *rel)
{
	_cleanup_free_ char *path = guard_join(g->roots[root].path, rel);

	for (size_t i = 0; path && i < g->n_mounts; i++) {
		if (!strcmp(g->mounts[i].path, path) || is_below(g->mounts[i].path, path))
			return true;
	}
	return !path;
}

static int put_mount(struct guard *g, size_t root, const char *rel, bool readonly)
{
	_cleanup_free_ char *path = guard_join(g->roots[root].path, rel);
	struct stat st;
	_cleanup_close_ int fd = guard_open(g, root, rel, &st);

	if (!path)
		return -ENOMEM;
	if (fd < 0)
		return fd;
	if (!S_ISDIR(st.st_mode) && !S_ISREG(st.st_mode))
		return -EINVAL;
	if (g->n_mounts == GUARD_MOUNTS_MAX)
		return -E2BIG;
	g->mounts[g->n_mounts++] =
		(struct guard_mount){ .path = TAKE(path), .readonly = readonly, .dev = st.st_dev, .ino = st.st_ino };
	return 0;
}

int guard_pin(struct guard *g, size_t root, const char *rel, bool readonly)
{
	_cleanup_free_ char *path = guard_join(g->roots[root].path, rel);
	struct guard_mount *m = path ? find_mount(g, path) : NULL;

	if (!path)
		return -ENOMEM;
	if (is_closed(g, path)) /* nothing in it can be moved; a writable mount would open it */
		return 0;
	if (readonly)
		drop_below(g, path); /* otherwise writable mounts would stay on top */
	if (readonly && (m = find_mount(g, path)))
		m->readonly = true;
	return m ? 0 : put_mount(g, root, rel, readonly);
}

int guard_except(struct guard *g, size_t root, const char *rel)
{
	return g->n_mounts + MOUNTS_RESERVED > GUARD_MOUNTS_MAX ? -E2BIG : put_mount(g, root, rel, false);
}

int guard_reset(struct guard *g, size_t root, const char *rel, bool readonly)
{
	_cleanup_free_ char *path = guard_join(g->roots[root].path, rel);
	struct guard_mount *m = path ? find_mount(g, path) : NULL;

	if (!m)
		return path ? -ENOENT : -ENOMEM;
	if (readonly)
		drop_below(g, path);
	m = find_mount(g, path);
	m->readonly = readonly;
	return 0;
}

static int pin_parents(struct guard *g, size_t root, const char *rel)
{
	int rc = 0;

	for (const char *slash = strchr(rel, '/'); slash && rc == 0; slash = strchr(slash + 1, '/')) {
		_cleanup_free_ char *parent = strndup(rel, (size_t)(slash - rel));

		rc = parent ? guard_pin(g, root, parent, false) : -ENOMEM;
	}
	return rc;
}

char *guard_behind_link(const struct guard *g, size_t root, const char *rel)
{
	_cleanup_close_ int fd = guard_open_beneath(g->roots[root].fd, rel);
	size_t len = strlen(g->roots[root].path);
	char link[64], path[PATH_MAX];
	ssize_t n;

	if (fd < 0)
		return NULL;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, path, sizeof(path) - 1);
	if (n <= 0)
		return NULL;
	path[n] = '\0';
	return !strncmp(path, g->roots[root].path, len) && path[len] == '/' ? strdup(path + len + 1) : NULL;
}

static int close_path(struct guard *g, size_t root, const char *rel)
{
	int rc = pin_parents(g, root, rel);

	return rc < 0 ? rc : guard_pin(g, root, rel, true);
}

int guard_reach(struct guard *g, size_t root, const char *rel)
{
	_cleanup_free_ char *top = strndup(rel, strcspn(rel, "/"));
	size_t depth = 0;
	int rc;

	if (!top)
		return -ENOMEM;
	for (const char *p = rel; *p; p++)
		depth += *p == '/';
	if (guard_closed(g, root, top))
		return 0;
	if (g->n_far + depth <= GUARD_FAR_MAX) {
		g->n_far += depth;
		return 0;
	}
	if (!g->too_far)
		guard_say(g,
			"'%.120s' is read-only inside, because links or a .git file lead to protected files deep in it, or in other folders: remove those",
			top);
	g->too_far = true;
	rc = guard_pin(g, root, top, true);
	return rc == -ENOMEM || rc == -E2BIG ? rc : 0;
}

char *guard_seen_above(const struct guard *g, size_t root, const char *rel, struct stat *ret)
{
	_cleanup_free_ char *path = strdup(rel);

	while (path && path[0]) {
		char *slash = strrchr(path, '/');
		int fd;

		*(slash ? slash : path) = '\0';
		fd = guard_open(g, root, path, ret);
		ak_close(fd);
		if (fd >= 0)
			break;
	}
	return TAKE(path);
}

/* We cannot see whether REL exists: a sandbox could have hidden it, and could make the folder accessible again later. */
static int close_above(struct guard *g, size_t root, const char *rel)
{
	struct stat st;
	_cleanup_free_ char *dir = guard_seen_above(g, root, rel, &st);

	if (!dir)
		return -ENOMEM;
	if (!dir[0])
		return -EACCES;
	if (!guard_closed(g, root, dir))
		guard_say(g, "'%.120s' is read-only inside, because you have no permission to read it (fix: chmod u+rwx)", dir);
	return close_path(g, root, dir);
}

int guard_protect(struct guard *g, size_t root, const char *rel)
{
	_cleanup_free_ char *real = NULL;
	struct stat st;
	int rc = guard_open(g, root, rel, &st);

	if (rc == -EACCES)
		return g->protect ? close_above(g, root, rel) : 0;
	if (rc < 0 && rc != -ELOOP)
		return rc == -ENOMEM ? rc : 0; /* missing: checked at the end */
	ak_close(rc);
	if (rc == -ELOOP || S_ISLNK(st.st_mode)) {
		real = guard_behind_link(g, root, rel);
		rel = real;
	}
	if (!rel || !g->protect)
		return 0;
	rc = real ? guard_reach(g, root, real) : 0;
	if (rc == 0)
		rc = close_path(g, root, rel);
	return rc == -ENOMEM || rc == -E2BIG ? rc : 0;
}

size_t guard_mounts(const struct guard *g, struct sandbox_mount ret[static GUARD_MOUNTS_MAX])
{
	for (size_t i = 0; i < g->n_mounts; i++) {
		const struct guard_mount *m = &g->mounts[i];

		ret[i] = (struct sandbox_mount){
			.source = m->path, .target = m->path, .readonly = m->readonly, .dev = m->dev, .ino = m->ino
		};
	}
	return g->n_mounts;
}

/* ---- new and free ---- */

void guard_say(struct guard *g, const char *fmt, ...)
{
	size_t n = strlen(g->note);
	va_list args;

	if (n && n + 2 < sizeof(g->note))
		g->note[n++] = '\n';
	va_start(args, fmt);
	vsnprintf(g->note + n, sizeof(g->note) - n, fmt, args);
	va_end(args);
}

int guard_failed(const struct guard *g, int rc, struct ak_err *err)
{
	const char *project = g->roots[GUARD_PROJECT].path;

	if (rc == -E2BIG)
		return ak_fail(err, E2BIG,
			"project folder '%s': it has more files that your own tools run than can be made read-only; remove some of them",
			project);
	return ak_fail_errno(err, -rc, "project folder '%s' cannot be protected", project);
}

const char *guard_note(const struct guard *g)
{
	return g->note;
}

const char *guard_outside(const struct guard *g)
{
	return g && g->n_roots > GUARD_OUTSIDE ? g->roots[GUARD_OUTSIDE].path : "";
}

void guard_free(struct guard *g)
{
	if (!g)
		return;
	for (size_t i = 0; i < g->n_roots; i++) {
		free(g->roots[i].path);
		ak_close(g->roots[i].fd);
	}
	for (size_t i = 0; i < g->n_mounts; i++)
		free(g->mounts[i].path);
	for (size_t i = 0; i < g->n_places; i++)
		free(g->places[i].rel);
	for (size_t i = 0; i < g->n_included; i++)
		free(g->included[i].rel);
	guard_look_done(&g->before);
	guard_top_forget(g);
	free(g);
}

static void guard_freep(struct guard **g)
{
	guard_free(*g);
}

/* Protect NAMES as long as mounts are left; those are counted that are not. */
static int protect_some(struct guard *g, const char *const *names, size_t n, size_t *left_out)
{
	int rc = 0;

	for (size_t i = 0; i < n && rc == 0; i++) {
		struct stat st;
		int fd = guard_open(g, GUARD_PROJECT, names[i], &st);

		ak_close(fd);
		if (fd == -ENOENT || fd == -ENOTDIR)
			continue;
		if (g->n_mounts + MOUNTS_RESERVED < GUARD_MOUNTS_MAX)
			rc = guard_protect(g, GUARD_PROJECT, names[i]);
		else
			++*left_out;
	}
	return rc;
}

/* A sandbox can make all of these names, and any number of workspaces: the next one must start all the same. */
static int protect_more(struct guard *g)
{
	const char *const *workspaces = (const char *const *)g->top.matches;
	size_t left_out = 0, n = 0;
	int rc;

	while (guard_more_names[n])
		n++;
	rc = protect_some(g, guard_more_names, n, &left_out);
	if (rc == 0)
		rc = protect_some(g, workspaces, g->top.n_matches, &left_out);
	if (g->protect && left_out)
		guard_say(g, "%zu files that your own tools may run later are writable inside: there are too many of them",
			left_out);
	if (g->protect && g->top.cut)
		guard_say(g, "not every *%s was found: the project has too many files, or its folder cannot be read",
			guard_suffixes[0]);
	return rc;
}

static int protect_names(struct guard *g)
{
	int rc = 0;

	for (size_t i = 0; guard_names[i] && rc == 0; i++)
		rc = guard_protect(g, GUARD_PROJECT, guard_names[i]);
	return rc < 0 ? rc : protect_more(g);
}

/* A mount makes one name of a file read-only. A sandbox could have made another one, which stays writable: changes are reported at the end. */
static void say_linked(struct guard *g)
{
	const char *first = NULL;
	size_t n = 0;

	for (size_t i = 0; i < g->before.n; i++) {
		const struct guard_row *r = &g->before.rows[i];

		if (!S_ISREG(r->mode) || r->nlink < 2 || !guard_closed(g, r->root, r->rel))
			continue;
		first = first ? first : r->rel;
		n++;
	}
	if (n)
		guard_say(g,
			"'%.120s'%s also known by other names (hard links), by which it may be changed inside: replace it by a copy",
			first, n > 1 ? " and other files are" : " is");
}

int guard_new(const char *project, const struct project_id *id, const struct ak_paths *paths, guard_claimed *claimed,
	bool protect, struct guard **ret, struct ak_err *err)
{
	_cleanup_(guard_freep) struct guard *g = calloc(1, sizeof(*g));
	struct sandbox_mount m = { .source = project, .dev = id->dev, .ino = id->ino };
	int rc;

	if (!g)
		return ak_fail(err, ENOMEM, "out of memory");
	g->protect = protect;
	g->claimed = claimed;
	rc = g->roots[0].fd = mnt_source_open(&m, err);
	g->n_roots = 1;
	if (rc < 0)
		return rc;
	g->roots[0].path = strdup(project);
	guard_top_look(g);
	rc = g->roots[0].path ? protect_names(g) : -ENOMEM;
	if (rc < 0)
		return g->roots[0].path ? guard_failed(g, rc, err) : ak_fail(err, ENOMEM, "out of memory");
	rc = guard_git(g, paths, err);
	if (rc < 0)
		return rc;
	guard_look(g, &g->before);
	say_linked(g);
	guard_top_forget(g);
	if (g->before.failed)
		return ak_fail(err, ENOMEM, "out of memory");
	*ret = TAKE(g);
	return 0;
}
