/*
 * Git's configuration: see project/guard.h. Finds the files that it leads git to, and protects those in the project: files that it
 * includes, files that it runs, hooks folders, and the .git files of submodules and worktrees. All sources of settings are read
 * alike: the repository's, the user's and the system's, and what they include.
 */
#include "gateway/project/guard_internal.h"

#include "gateway/base/cleanup.h"
#include "gateway/project/gitconf.h"
#include "gateway/project/walk.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/syscall.h>
#include <unistd.h>

#define INCLUDE_DEPTH 10 /* git's own limit */
#define FOLLOWED_MAX 64 /* included files, read in all */
#define MOUNTS_LEFT 4 /* keep this many free */
#define COMMANDS_LEFT 8 /* and this many when a file is a command: hooks folders come first */

/* How git's configuration names a file. */
enum named {
	NAMED_COMMAND,
	NAMED_CONFIG,
	NAMED_FOLDER, /* everything in it counts: hooks */
	NAMED_OWN, /* the repository's configuration, which is protected by its name */
	NAMED_LINK, /* a link on the way to one of the others */
};

bool guard_resolve(const char *base, const char *path, char ret[static PATH_MAX])
{
	_cleanup_free_ char *full = path[0] == '/' ? strdup(path) : guard_join(base, path);

	return full && path[0] && realpath(full, ret);
}

/* ---- protecting ---- */

/* Make REL, a file or with NAMED_FOLDER also a folder, read-only while mounts are left. */
static int protect_file(struct guard *g, size_t root, const char *rel, enum named kind)
{
	size_t needed = 1 + (kind == NAMED_COMMAND ? COMMANDS_LEFT : MOUNTS_LEFT);
	struct stat st;
	int fd;

	for (const char *p = rel; *p; p++)
		needed += *p == '/';
	fd = guard_open(g, root, rel, &st);
	ak_close(fd);
	if (fd < 0 || g->n_mounts + needed > GUARD_MOUNTS_MAX)
		return fd == -ENOMEM ? fd : 0;
	if (!S_ISREG(st.st_mode) && !S_ISLNK(st.st_mode) && !(S_ISDIR(st.st_mode) && kind == NAMED_FOLDER))
		return 0;
	fd = guard_protect(g, root, rel);
	return fd == -E2BIG ? 0 : fd; /* a link that leads deep: reported, like those for which no mount is left */
}

/* ---- watching ---- */

static bool is_watched(const struct guard *g, size_t root, const char *rel)
{
	for (size_t i = 0; i < g->n_included; i++) {
		if (g->included[i].root == root && !strcmp(g->included[i].rel, rel))
			return true;
	}
	return false;
}

static void say_too_many(struct guard *g, const char *what, int max)
{
	if (!g->too_many)
		guard_say(g, "git's settings %s more than %d files%s; those after the first are not protected", what, max,
			max == GUARD_INCLUDED_MAX ? " of the project" : "");
	g->too_many = true;
}

/* Its changes are reported in any case. */
static int watch_file(struct guard *g, size_t root, const char *rel, enum named kind)
{
	size_t max = GUARD_INCLUDED_MAX + (kind == NAMED_FOLDER ? GUARD_FOLDERS_MAX : 0);
	struct stat st = { 0 };
	int fd = guard_open(g, root, rel, &st);

	ak_close(fd);
	if ((fd >= 0 && S_ISDIR(st.st_mode) && kind != NAMED_FOLDER) || is_watched(g, root, rel))
		return 0; /* git includes and runs no folders */
	if (g->n_included >= max) {
		say_too_many(g, "name", GUARD_INCLUDED_MAX);
		return 0;
	}
	g->included[g->n_included].root = root;
	g->included[g->n_included].link = kind == NAMED_LINK;
	g->included[g->n_included].rel = strdup(rel);
	if (!g->included[g->n_included++].rel)
		return -ENOMEM;
	return kind == NAMED_LINK ? 0 : protect_file(g, root, rel, kind);
}

/* REAL is a path without links. Only what is in a root, but not the root itself, can be watched. */
static int watch_real(struct guard *g, const char *real, enum named kind)
{
	int rc = 0;

	for (size_t i = 0; i < g->n_roots && rc == 0; i++) {
		size_t len = strlen(g->roots[i].path);

		if (project_inside(real, g->roots[i].path) && real[len] == '/' && real[len + 1])
			rc = watch_file(g, i, real + len + 1, kind);
	}
	return rc;
}

/* ---- paths ---- */

static bool add_name(char path[static PATH_MAX], const char *name)
{
	size_t n = strlen(path);

	return snprintf(path + n, PATH_MAX - n, "/%s", name + strspn(name, "/")) < (int)(PATH_MAX - n);
}

/* Drop the last name of PATH. */
static void drop_name(char path[static PATH_MAX])
{
	char *slash = strrchr(path, '/');

	if (slash)
		*slash = '\0';
}

/* Go on to NAME; REAL is the path of W so far. Watches links. Returns 1 if NAME does not exist or leads nowhere. */
static int step(struct guard *g, struct walk *w, const char *name, char real[static PATH_MAX], struct stat *ret)
{
	_cleanup_close_ int next = openat(w->dir, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	int rc = 0;

	if (!strcmp(name, ".."))
		drop_name(real);
	else if (strcmp(name, ".") != 0 && !add_name(real, name))
		return -ENAMETOOLONG;
	if (next < 0 || fstat(next, ret) < 0)
		return 1;
	if (!S_ISLNK(ret->st_mode)) {
		ak_close(w->dir);
		w->dir = TAKE_FD(next);
		return 0;
	}
	rc = watch_real(g, real, NAMED_LINK);
	if (rc < 0 || walk_follow(w, next) < 0)
		return rc < 0 ? rc : 1;
	if (w->rest[0] == '/')
		real[0] = '\0';
	else
		drop_name(real);
	return 0;
}

/* Resolve PATH to REAL, also if only its beginning exists; the links on the way are watched. */
static int resolve_links(struct guard *g, const char *path, char real[static PATH_MAX], struct stat *ret)
{
	struct walk w = { .dir = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC) };
	char name[NAME_MAX + 1];
	int rc = w.dir < 0 ? -errno : 0, more = 1;

	real[0] = '\0';
	snprintf(w.rest, sizeof(w.rest), "%s", path);
	while (rc == 0 && (more = walk_next(&w, name)) > 0)
		rc = step(g, &w, name, real, ret);
	ak_close(w.dir);
	if (more < 0)
		return more;
	if (rc != 1)
		return rc;
	*ret = (struct stat){ 0 };
	return w.rest[0] && !add_name(real, w.rest) ? -ENAMETOOLONG : 0;
}

/* The same, by one call, if PATH has no links, as usual. False: it may have some. */
static bool is_real(const char *path, struct stat *ret)
{
	struct open_how how = { .flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_NO_SYMLINKS };
	bool dots = strstr(path, "/.") || strstr(path, "//");
	long fd = -1;

	for (const char *p = dots ? strchr(path, '/') : NULL; p; p = strchr(p + 1, '/')) {
		size_t len = strcspn(p + 1, "/");

		if (len == 0 || (p[1] == '.' && (len == 1 || (len == 2 && p[2] == '.'))))
			return false;
	}
	fd = syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof(how));
	*ret = (struct stat){ 0 };
	if (fd < 0)
		return errno == ENOENT || errno == ENOTDIR;
	if (fstat((int)fd, ret) < 0)
		*ret = (struct stat){ 0 };
	close((int)fd);
	return true;
}

/*
 * Watch PATH, which may not exist yet, and the links on the way to it. Returns 1 if it is a regular file: REAL is its path without
 * links.
 */
static int watch_path(struct guard *g, const char *path, enum named kind, char real[static PATH_MAX])
{
	struct stat st = { 0 };
	bool plain = is_real(path, &st);
	int rc = 0;

	if (plain)
		snprintf(real, PATH_MAX, "%s", path);
	else
		rc = resolve_links(g, path, real, &st);
	if (rc < 0)
		return rc == -ENOMEM ? rc : 0; /* no such path */
	if (!plain || kind != NAMED_OWN)
		rc = watch_real(g, real, kind);
	return rc < 0 ? rc : S_ISREG(st.st_mode);
}

/* Separates words of a command. */
#define SEPARATORS " \t\n'\"`;|&()<>={}"
#define HOME_MARK '\1' /* stands for the home in a command */

/* The length of "~", "~USER", "$HOME" or "${HOME}" at TEXT; 0 if there is none. A tilde counts at the START of a word. */
static size_t home_len(const char *text, bool start)
{
	const char *user = getenv("USER");
	size_t n = strcspn(text, "/:" SEPARATORS);

	if (text[0] == HOME_MARK)
		return 1;
	if (text[0] == '~')
		return start && (n == 1 || (user && strlen(user) == n - 1 && !strncmp(text + 1, user, n - 1))) ? n : 0;
	if (!strncmp(text, "${HOME}", 7))
		return 7;
	return !strncmp(text, "$HOME", 5) && !isalnum((unsigned char)text[5]) && text[5] != '_' ? 5 : 0;
}

/* The path VALUE, relative to FOLDER ("": unknown) or to the home. False: that is unknown, or too long. */
static bool locate(const char *folder, const char *value, char ret[static PATH_MAX])
{
	size_t n = home_len(value, true);
	const char *before = n ? getenv("HOME") : value[0] == '/' ? "" : folder;

	if (!before || (before[0] != '/' && value[0] != '/'))
		return false;
	value += n;
	return snprintf(ret, PATH_MAX, "%s/%s", before, value + strspn(value, "/")) < PATH_MAX;
}

/* ---- files that git runs ---- */

/* Values that are commands. NULL: every key of the section. */
static const struct {
	const char *section, *key;
	bool marked; /* only if it begins with '!'; anything else is a word of git's own */
} commands[] = {
	{ "alias", NULL, true },
	{ "browser", "cmd", false },
	{ "browser", "path", false },
	{ "core", "alternateRefsCommand", false },
	{ "core", "askPass", false },
	{ "core", "editor", false },
	{ "core", "fsmonitor", false },
	{ "core", "gitProxy", false },
	{ "core", "pager", false },
	{ "core", "sshCommand", false },
	{ "credential", "helper", false },
	{ "diff", "command", false },
	{ "diff", "external", false },
	{ "diff", "textconv", false },
	{ "difftool", "cmd", false },
	{ "difftool", "path", false },
	{ "filter", "clean", false },
	{ "filter", "process", false },
	{ "filter", "smudge", false },
	{ "gc", "recentObjectsHook", false },
	{ "gpg", "defaultKeyCommand", false },
	{ "gpg", "program", false },
	{ "guitool", "cmd", false },
	{ "hook", "command", false },
	{ "imap", "tunnel", false },
	{ "instaweb", "httpd", false },
	{ "interactive", "diffFilter", false },
	{ "lfs", "clean", false },
	{ "lfs", "path", false },
	{ "lfs", "smudge", false },
	{ "man", "cmd", false },
	{ "man", "path", false },
	{ "merge", "driver", false },
	{ "mergetool", "cmd", false },
	{ "mergetool", "path", false },
	{ "pager", NULL, false },
	{ "remote", "receivepack", false },
	{ "remote", "uploadpack", false },
	{ "sendemail", NULL, false },
	{ "sequence", "editor", false },
	{ "submodule", "update", true },
	{ "svn", "authorsProg", false },
	{ "tar", "command", false },
	{ "trailer", "cmd", false },
	{ "trailer", "command", false },
	{ "uploadpack", "packObjectsHook", false },
};

static bool is_command(const struct gitconf_entry *e)
{
	for (size_t i = 0; i < ARRAY_SIZE(commands); i++) {
		if (!strcasecmp(e->section, commands[i].section) && (!commands[i].key || !strcasecmp(e->key, commands[i].key)))
			return !commands[i].marked || e->value[0] == '!';
	}
	return false;
}

/*
 * WORD, of a command that git runs in FOLDER ("": unknown), may name a file there. A program without a slash is looked up on PATH; an
 * argument without one counts if there is such a file.
 */
static int add_word(struct guard *g, const char *folder, const char *word, bool first)
{
	char full[PATH_MAX], below[PATH_MAX], real[PATH_MAX];
	bool slash = strchr(word, '/') != NULL, found;
	int rc = 0;

	if (!word[0] || word[0] == '-' || word[0] == '%' || strchr(word, ':') || (first && !slash))
		return 0;
	/* after a variable that names the work tree */
	found = locate(folder, word + strspn(word, "/"), below) && access(below, F_OK) == 0;
	if ((slash || found) && locate(folder, word, full))
		rc = watch_path(g, full, NAMED_COMMAND, real);
	if (rc >= 0 && word[0] == '/' && found)
		rc = watch_path(g, below, NAMED_COMMAND, real);
	return rc < 0 ? rc : 0;
}

/* Replace what stands for the home: "${HOME}" would become several words. */
static void mark_home(char *text)
{
	bool start = true;
	char *to = text;

	for (const char *from = text; *from; to++) {
		size_t n = home_len(from, start);

		start = !n && strchr(SEPARATORS, *from);
		*to = n ? HOME_MARK : *from;
		from += n ? n : 1;
	}
	*to = '\0';
}

/* Shells have many ways to name a file: we look at every word. What a script runs in turn is not known. */
static int add_command(struct guard *g, const char *folder, const char *value)
{
	_cleanup_free_ char *copy = strdup(value + (value[0] == '!'));
	char *save = NULL;
	bool first = true;
	int rc = copy ? 0 : -ENOMEM;

	if (copy)
		mark_home(copy);
	for (char *word = copy ? strtok_r(copy, SEPARATORS, &save) : NULL; word && rc == 0;
		word = strtok_r(NULL, SEPARATORS, &save)) {
		const char *home = strrchr(word, HOME_MARK);

		if (word[0] == '$' && strchr(word, '/'))
			word = strchr(word, '/');
		rc = add_word(g, folder, home ? home : word, first);
		first = false;
	}
	return rc;
}

/* ---- settings ---- */

/* A configuration to read. */
struct source {
	const char *path;
	const char *files; /* the work tree, where git runs commands; "": unknown */
	enum named kind;
	unsigned depth;
};
static int read_source(struct guard *g, const struct source *s);

/* The conditions of includes are not evaluated: they can be true another time. */
static int add_include(struct guard *g, const struct source *s, const char *value)
{
	char folder[PATH_MAX], path[PATH_MAX];
	struct source next = { .path = path, .files = s->files, .kind = NAMED_CONFIG, .depth = s->depth + 1 };
	int rc;

	snprintf(folder, sizeof(folder), "%s", s->path);
	drop_name(folder);
	if (next.depth > INCLUDE_DEPTH || !value[0] || !locate(folder, value, path))
		return 0;
	if (g->n_followed == FOLLOWED_MAX) {
		say_too_many(g, "include", FOLLOWED_MAX);
		return 0;
	}
	g->n_followed++;
	rc = read_source(g, &next);
	return rc < 0 ? rc : 0;
}

/* A later value replaces an earlier one for git; we protect all, because conditions decide which one is later. */
static int add_folder(struct guard *g, const char *files, const char *value)
{
	char path[PATH_MAX], real[PATH_MAX];
	int rc = value[0] && locate(files, value, path) ? watch_path(g, path, NAMED_FOLDER, real) : 0;

	return rc < 0 ? rc : 0;
}

static bool is_setting(const struct gitconf_entry *e, const char *section, const char *key)
{
	return !strcasecmp(e->section, section) && !strcasecmp(e->key, key);
}

static int add_entry(struct guard *g, const struct source *s, const struct gitconf_entry *e)
{
	if (is_setting(e, "include", "path") || is_setting(e, "includeIf", "path"))
		return add_include(g, s, e->value);
	if (is_setting(e, "core", "hooksPath") || is_setting(e, "init", "templateDir")) /* templates have hooks */
		return add_folder(g, s->files, e->value);
	return is_command(e) ? add_command(g, s->files, e->value) : 0;
}

/* Returns 1 if there is such a file. */
static int read_source(struct guard *g, const struct source *s)
{
	char real[PATH_MAX];
	int rc = watch_path(g, s->path, s->kind, real);
	_cleanup_free_ char *text = rc > 0 ? gitconf_read(AT_FDCWD, real, O_NOFOLLOW, GITCONF_MAX) : NULL;
	struct gitconf_scan c = { .text = text };
	struct gitconf_entry e;

	while (rc >= 0 && text && gitconf_each(&c, &e)) {
		int added = add_entry(g, s, &e);

		rc = added < 0 ? added : rc;
	}
	return rc;
}

/* FILES is the work tree of the git folder REL. Returns 1 if it has a configuration. */
static int read_folder(struct guard *g, size_t root, const char *rel, const char *files)
{
	static const char *const names[] = { "config.worktree", "config" };
	_cleanup_free_ char *folder = guard_join(g->roots[root].path, rel);
	struct stat st;
	_cleanup_close_ int fd = guard_open(g, root, rel, &st);
	int rc = folder ? 0 : -ENOMEM;

	if (fd < 0 || !S_ISDIR(st.st_mode))
		return rc < 0 || fd == -ENOMEM ? -ENOMEM : 0;
	for (size_t i = 0; i < ARRAY_SIZE(names) && rc >= 0; i++) {
		char path[PATH_MAX];
		struct source s = { .path = path, .files = files, .kind = NAMED_OWN };

		rc = locate(folder, names[i], path) ? read_source(g, &s) : 0;
	}
	return rc;
}

/*
 * The user's and the system's settings. They may name files of the project whether it is a repository or not. Which of the user's files
 * git reads depends on its environment, which can differ from ours: we read all.
 */
static int read_global(struct guard *g, const char *files)
{
	const char *home = getenv("HOME"), *xdg = getenv("XDG_CONFIG_HOME"), *named = getenv("GIT_CONFIG_GLOBAL");
	const struct {
		const char *folder, *name;
	} sources[] = { { "/etc", "gitconfig" }, { home, ".config/git/config" }, { xdg, "git/config" }, { home, ".gitconfig" },
		{ "", named } };
	int rc = 0;

	for (size_t i = 0; i < ARRAY_SIZE(sources) && rc >= 0; i++) {
		char path[PATH_MAX];
		struct source s = { .path = path, .files = files, .kind = NAMED_CONFIG };

		if (sources[i].folder && sources[i].name && locate(sources[i].folder, sources[i].name, path))
			rc = read_source(g, &s);
	}
	return rc < 0 ? rc : 0;
}

/* ---- all of them ---- */

static int protect_nested(void *ctx, size_t root, const char *rel, enum guard_kind kind)
{
	struct guard *g = ctx;
	_cleanup_free_ char *file = kind == GUARD_GIT ? guard_module_file(g, root, rel) : NULL,
			    *files = file ? guard_join(g->roots[GUARD_PROJECT].path, file) : NULL;
	int rc = file ? protect_file(g, GUARD_PROJECT, file, NAMED_OWN) : 0;

	if (rc < 0 || kind != GUARD_GIT)
		return rc;
	if (files)
		*strrchr(files, '/') = '\0';
	rc = read_folder(g, root, rel, files ? files : "");
	return rc < 0 ? rc : 0;
}

int guard_protect_named(struct guard *g)
{
	bool configured = false;
	int rc = 0;

	for (size_t i = 0; i < g->n_places && rc == 0; i++) {
		const struct guard_place *p = &g->places[i];

		rc = read_folder(g, p->root, p->rel, g->roots[GUARD_PROJECT].path);
		configured |= rc > 0;
		rc = rc > 0 ? 0 : rc;
		for (size_t k = 0; g->has_nested && p->nested && rc == 0 && guard_git_inner[k]; k++) {
			struct guard_walk walk = { .g = g, .root = p->root, .fn = protect_nested, .ctx = g };

			rc = guard_nested(&walk, p->rel, guard_git_inner[k]) == -ENOMEM ? -ENOMEM : 0;
		}
	}
	return rc < 0 ? rc : read_global(g, configured ? g->roots[GUARD_PROJECT].path : "");
}
