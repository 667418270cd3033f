/*
 * Find what a command needs from the host: see project/tools.h.
 *
 * Each program is resolved one link at a time, because the links must exist inside as well. A script's interpreter is resolved
 * the same way.
 */
#include "gateway/project/tools_internal.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/paths.h"
#include "gateway/base/strbuf.h"
#include "gateway/project/mount.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEPTH_MAX 6 /* interpreters of interpreters */
#define ENTRIES_MAX 128 /* entries of PATH */

void tools_done(struct tools *t)
{
	for (size_t i = 0; i < t->n; i++) {
		free(t->list[i].path);
		free(t->list[i].target);
		free(t->list[i].why);
	}
	free(t->path);
	free(t->program);
	free(t->refused);
	free(t->partly);
	free(t->missing);
	*t = (struct tools){ 0 };
}

/* ---- the list ---- */

static bool covered(const struct tools *t, const char *path)
{
	for (size_t i = 0; i < t->n; i++) {
		if (t->list[i].kind == TOOL_FOLDER ? project_inside(path, t->list[i].path) : !strcmp(path, t->list[i].path))
			return true;
	}
	return false;
}

static bool in_project(const struct finder *f, const char *path)
{
	return f->ask->project[0] && project_inside(path, f->ask->project);
}

/* Whether PATH exists inside without another mount. */
static bool shown(const struct finder *f, const char *path)
{
	return tools_in_system(path) || in_project(f, path) || (f->ask->shown[0] && project_inside(path, f->ask->shown));
}

/* Whether PATH may be mounted. If not, the reason is in F. */
static bool may_mount(struct finder *f, enum tool_kind kind, const char *path, mode_t mode)
{
	const struct mount_ask ask = { .source = path, .mode = mode, .word = PROJECT_NAMED, .tool = true };
	bool folder = kind == TOOL_FOLDER;
	int rc = 0;

	if (folder ? !S_ISDIR(mode) : !S_ISREG(mode))
		rc = ak_fail(&f->why, EINVAL, "'%s' is not a %s", path, folder ? "folder" : "regular file");
	else if (folder && !f->home[0])
		rc = ak_fail(&f->why, EINVAL, "'%s' might contain your home folder, which is unknown", path);
	return rc == 0 && mount_check_source(&ask, f->ask->own, &f->why) == 0;
}

int tools_add(struct finder *f, enum tool_kind kind, const char *path, size_t len, const char *target, const char *why)
{
	struct tool *t = &f->tools->list[f->tools->n];
	_cleanup_free_ char *copy = strndup(path, len);
	struct stat st = { 0 };

	if (!copy)
		return -ENOMEM;
	if (shown(f, copy) || covered(f->tools, copy))
		return 0;
	if (kind != TOOL_LINK && lstat(copy, &st) < 0)
		return -errno;
	if (kind != TOOL_LINK && !may_mount(f, kind, copy, st.st_mode))
		return 1;
	if (f->tools->n == TOOLS_MAX)
		return -E2BIG;
	*t = (struct tool){
		.kind = kind, .dev = st.st_dev, .ino = st.st_ino, .target = target ? strdup(target) : NULL, .why = strdup(why)
	};
	t->path = TAKE(copy);
	f->tools->n++;
	return t->why && (!target || t->target) ? 0 : -ENOMEM;
}

/* ---- links ---- */

void way_done(struct way *w)
{
	for (size_t i = 0; i < w->n; i++) {
		free(w->links[i].path);
		free(w->links[i].target);
	}
}

/* REAL is a link: record it, and continue with its target in front of REST. */
static int follow(struct way *w, char rest[static PATH_MAX])
{
	char target[PATH_MAX], joined[PATH_MAX];
	ssize_t n = readlink(w->real, target, sizeof(target) - 1);

	if (n < 0)
		return -errno;
	target[n] = '\0';
	if (w->n == TOOLS_LINKS_MAX)
		return -ELOOP;
	w->links[w->n].path = strdup(w->real);
	w->links[w->n++].target = strdup(target);
	if (!w->links[w->n - 1].path || !w->links[w->n - 1].target)
		return -ENOMEM;
	if (snprintf(joined, sizeof(joined), "%s/%s", target, rest) >= (int)sizeof(joined))
		return -ENAMETOOLONG;
	memcpy(rest, joined, sizeof(joined));
	*(target[0] == '/' ? w->real : strrchr(w->real, '/')) = '\0';
	return 0;
}

/* Move one component from REST to REAL. */
static int step(struct way *w, char rest[static PATH_MAX])
{
	size_t len = strcspn(rest, "/"), at = strlen(w->real);
	char part[NAME_MAX + 1];
	struct stat st;

	if (len > NAME_MAX || at + len + 2 > PATH_MAX)
		return -ENAMETOOLONG;
	memcpy(part, rest, len);
	part[len] = '\0';
	memmove(rest, rest + len, strlen(rest + len) + 1);
	if (!strcmp(part, "..")) {
		if (at)
			*strrchr(w->real, '/') = '\0';
		return 0;
	}
	if (!strcmp(part, "."))
		return 0;
	snprintf(w->real + at, PATH_MAX - at, "/%s", part);
	if (lstat(w->real, &st) < 0)
		return -errno;
	return S_ISLNK(st.st_mode) ? follow(w, rest) : 0;
}

int tools_walk(const char *path, struct way *w)
{
	char rest[PATH_MAX];
	int rc = 0;

	if (path[0] != '/' || snprintf(rest, sizeof(rest), "%s", path) >= (int)sizeof(rest))
		return -EINVAL;
	for (unsigned i = 0; rc == 0 && i < PATH_MAX; i++) {
		size_t slashes = strspn(rest, "/");

		memmove(rest, rest + slashes, strlen(rest + slashes) + 1);
		if (!rest[0])
			return w->real[0] ? 0 : -EISDIR;
		rc = step(w, rest);
	}
	return rc < 0 ? rc : -ELOOP;
}

/* ---- PATH ---- */

/*
 * Copy the next entry of *PATH to RET; false at the end. Relative entries are skipped, because they depend on the current
 * folder.
 */
static bool next_entry(const char **path, char ret[static PATH_MAX])
{
	while (*path && **path) {
		size_t len = strcspn(*path, ":");
		const char *entry = *path;

		*path += len + (entry[len] == ':');
		if (entry[0] != '/' || len >= PATH_MAX)
			continue;
		memcpy(ret, entry, len);
		ret[len] = '\0';
		while (len > 1 && ret[len - 1] == '/')
			ret[--len] = '\0';
		return true;
	}
	return false;
}

static bool is_program(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 && S_ISREG(st.st_mode) && access(path, X_OK) == 0;
}

bool tools_look_up(const char *path, const char *name, char ret[static PATH_MAX])
{
	char entry[PATH_MAX];

	while (next_entry(&path, entry)) {
		if (ak_path_join(ret, entry, name, NULL) == 0 && is_program(ret))
			return true;
	}
	return false;
}

/* ---- programs ---- */

/* Interpreters that a script of the project may name: the one on the caller's PATH is mounted. */
static bool well_known(const char *name)
{
	static const char *const names[] = { "sh", "bash", "zsh", "node", "deno", "bun", "python", "python3", "ruby", "perl",
		"php", "lua" };

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		if (!strcmp(name, names[i]))
			return true;
	}
	return false;
}

/* Read the first word of "#!…" into INTERPRETER and the program that env would run into NAME; "" where there is none. */
static void read_script(const char *path, char interpreter[static PATH_MAX], char name[static NAME_MAX + 1])
{
	char line[512], *word, *save = NULL;
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	ssize_t n = fd < 0 ? -1 : pread(fd, line, sizeof(line) - 1, 0);

	interpreter[0] = name[0] = '\0';
	if (n < 3 || line[0] != '#' || line[1] != '!')
		return;
	line[n] = '\0';
	line[strcspn(line, "\n")] = '\0';
	word = strtok_r(line + 2, " \t\r", &save);
	if (!word || word[0] != '/')
		return;
	snprintf(interpreter, PATH_MAX, "%s", word);
	if (strcmp(strrchr(word, '/'), "/env") != 0)
		return;
	while ((word = strtok_r(NULL, " \t\r", &save)) && (word[0] == '-' || strchr(word, '=')))
		continue;
	if (word && !strchr(word, '/') && strlen(word) <= NAME_MAX)
		memcpy(name, word, strlen(word) + 1);
}

static int add_interpreter(struct finder *f, const char *script, bool trusted, unsigned depth)
{
	char interpreter[PATH_MAX], name[NAME_MAX + 1], found[PATH_MAX], why[NAME_MAX + 64];
	const char *base = strrchr(script, '/') + 1;
	int rc = 0;

	read_script(script, interpreter, name);
	snprintf(why, sizeof(why), "interpreter of %.200s", base);
	if (interpreter[0] && trusted)
		rc = tools_add_program(f, interpreter, why, depth + 1);
	if (rc == 0 && name[0] && (trusted || well_known(name)) && tools_look_up(f->ask->path, name, found))
		rc = tools_add_program(f, found, why, depth + 1);
	return rc == 0 && trusted ? tools_add_targets(f, script, name[0] ? name : interpreter, depth) : rc;
}

/* A folder that would be useful, but is not needed by every program. */
static int ignore_refused(int rc)
{
	return rc > 0 ? 0 : rc;
}

/* Most programs in ~/.cargo/bin are rustup's proxy, which chooses a tool chain. */
static int add_rustup(struct finder *f, const char *real)
{
	const char *slash = strrchr(real, '/');
	char rustup[PATH_MAX], folder[PATH_MAX];
	struct stat a, b;

	if (!f->home[0] || slash - real < 11 || strncmp(slash - 11, "/.cargo/bin", 11) != 0)
		return 0;
	snprintf(rustup, sizeof(rustup), "%.*s/rustup", (int)(slash - real), real);
	if (stat(real, &a) < 0 || stat(rustup, &b) < 0 || a.st_dev != b.st_dev || a.st_ino != b.st_ino)
		return 0;
	if (ak_path_join(folder, f->home, ".rustup", NULL) < 0 || !realpath(folder, rustup))
		return 0;
	return ignore_refused(tools_add(f, TOOL_FOLDER, rustup, strlen(rustup), NULL, "Rust tool chains"));
}

int tools_refuse(struct finder *f, const char *reason)
{
	if (!f->tools->refused)
		f->tools->refused = strdup(reason);
	return f->tools->refused ? 0 : -ENOMEM;
}

/* The tool chain around REAL, LEN bytes of it, was refused: add the parts that are enough, or report it. */
static int add_parts(struct finder *f, const char *real, size_t len, const char *what, const char *why)
{
	const char *const *parts = tools_parts(what);
	char path[PATH_MAX], resolved[PATH_MAX];
	int rc = 0;

	if (!parts && !f->tools->partly &&
		asprintf(&f->tools->partly,
			"%s; '%s' is brought in without the rest of its tool chain (%s): add what it needs with --mount",
			f->why.text, real, what) < 0)
		return -ENOMEM;
	for (; parts && *parts && rc == 0; parts++) {
		if (snprintf(path, sizeof(path), "%.*s/%s", (int)len, real, *parts) < (int)sizeof(path) &&
			realpath(path, resolved) && !strcmp(path, resolved))
			rc = ignore_refused(tools_add(f, TOOL_FOLDER, path, strlen(path), NULL, why));
	}
	return rc;
}

int tools_add_file(struct finder *f, const char *real, const char *why, bool library)
{
	const char *what = NULL;
	size_t len = library ? tools_package(real, &what) : tools_root(real, &what);
	char text[NAME_MAX + 128], marker[PATH_MAX];
	int rc = 0;

	/* A folder that a file marks as a tool chain does not count as one if a sandbox could write that file. */
	if (len && tools_marker(real, len, what, marker) && f->ask->written(f->ask->written_ctx, marker))
		len = 0;
	if (len) {
		snprintf(text, sizeof(text), "%s, for the %s", what, why);
		rc = tools_add(f, TOOL_FOLDER, real, len, NULL, text);
		if (rc <= 0)
			return rc;
		rc = add_parts(f, real, len, what, text);
	}
	if (rc == 0)
		rc = tools_add(f, TOOL_FILE, real, strlen(real), NULL, why);
	return rc ? rc : add_rustup(f, real);
}

/* Shims of mise are links to mise itself, which then needs its installed tools. */
static int add_mise(struct finder *f, const char *link)
{
	const char *at = strstr(link, "/mise/shims/");

	if (!at)
		return 0;
	f->tools->mise = true;
	return ignore_refused(tools_add(f, TOOL_FOLDER, link, (size_t)(at - link) + 5, NULL, "tool chains of mise"));
}

int tools_add_links(struct finder *f, const struct way *w, const char *why)
{
	int rc = 0;

	for (size_t i = 0; i < w->n && rc == 0; i++) {
		rc = add_mise(f, w->links[i].path);
		if (rc == 0)
			rc = tools_add(f, TOOL_LINK, w->links[i].path, strlen(w->links[i].path), w->links[i].target, why);
	}
	return rc;
}

static bool may_be_written(const struct finder *f, const char *path)
{
#ifdef AK_SABOTAGE_NOTOOLTRUST
	return false;
#endif
	return !tools_only_of_system(path) && (in_project(f, path) || f->ask->written(f->ask->written_ctx, path));
}

const char *tools_laid_by_sandbox(const struct finder *f, const struct way *w)
{
	if (may_be_written(f, w->real))
		return w->real;
	for (size_t i = 0; i < w->n; i++) {
		if (may_be_written(f, w->links[i].path))
			return w->links[i].path;
	}
	return NULL;
}

/* A sandbox may have written PATH. */
static int refuse_written(struct finder *f, const char *path)
{
	char text[PATH_MAX + 320];

	snprintf(text, sizeof(text),
		"'%s' is in a folder that a sandbox could write (STATE/written): nothing is brought in for it; show it with --mount, make the folder the project with --dir, or, after you have looked at what is in the folder, let 'agentkernel trust --forget' forget it (--written lists such folders)",
		path);
	return tools_refuse(f, text);
}

/* The dynamic linker and the libraries of a program outside the system folders. */
static int add_elf(struct finder *f, const char *real, unsigned depth)
{
	char interpreter[PATH_MAX], why[NAME_MAX + 64];
	int rc = tools_add_libraries(f, real, interpreter);

	if (rc < 0 || !interpreter[0])
		return rc;
	snprintf(why, sizeof(why), "dynamic linker of %.200s", strrchr(real, '/') + 1);
	return tools_add_program(f, interpreter, why, depth + 1);
}

/* Whether the user's PATH leads to REAL. */
static bool on_path(const struct finder *f, const char *path, const char *real)
{
	char found[PATH_MAX], resolved[PATH_MAX];

	return tools_look_up(f->ask->path, strrchr(path, '/') + 1, found) && realpath(found, resolved) && !strcmp(resolved, real);
}

int tools_add_program(struct finder *f, const char *path, const char *why, unsigned depth)
{
	_cleanup_(way_done) struct way w = { .n = 0 };
	const char *laid;
	int rc = depth > DEPTH_MAX ? -ELOOP : tools_walk(path, &w);

	if (rc == -ENOMEM)
		return rc;
	if (rc < 0 || !is_program(w.real))
		return 0; /* missing on the host means missing inside; the sandbox reports it */
	laid = tools_laid_by_sandbox(f, &w);
	if (!laid && !tools_in_system(w.real)) {
		/* A script may name any program: a folder that only looks like a tool chain must be on PATH. */
		rc = tools_add_file(f, w.real, why, depth > 0 && !on_path(f, path, w.real));
		if (rc > 0)
			return tools_refuse(f, f->why.text);
		if (rc == 0)
			rc = add_elf(f, w.real, depth);
	}
	if (rc == 0 && !laid)
		rc = tools_add_links(f, &w, why);
	if (rc == 0 && depth == 0 && laid && !in_project(f, w.real))
		rc = refuse_written(f, laid);
	return rc < 0 ? rc : add_interpreter(f, w.real, !laid, depth);
}

/* ---- PATH inside ---- */

static bool kept(const struct finder *f, const char *entry)
{
	if (shown(f, entry))
		return true;
	for (size_t i = 0; i < f->tools->n; i++) {
		if (project_inside(f->tools->list[i].path, entry) || project_inside(entry, f->tools->list[i].path))
			return true;
	}
	return false;
}

static bool in_list(const struct strbuf *list, const char *entry)
{
	size_t len = strlen(entry);

	for (const char *at = list->data; at && (at = strstr(at, entry)); at += len) {
		if ((at == list->data || at[-1] == ':') && (at[len] == '\0' || at[len] == ':'))
			return true;
	}
	return false;
}

static int make_path(struct finder *f)
{
	_cleanup_strbuf_ struct strbuf list = { 0 };
	const char *const sources[] = { f->ask->path, TOOLS_SYSTEM_PATH };
	char entry[PATH_MAX];
	unsigned n = 0;

	for (size_t i = 0; i < ARRAY_SIZE(sources); i++) {
		for (const char *path = sources[i]; n < ENTRIES_MAX && next_entry(&path, entry); n++) {
			if ((i == 1 || kept(f, entry)) && !in_list(&list, entry))
				strbuf_printf(&list, "%s%s", list.len ? ":" : "", entry);
		}
	}
	f->tools->path = strbuf_take(&list);
	return f->tools->path ? 0 : -ENOMEM;
}

/* Whether PATH leads to a program that the sandbox sees anyway. */
static bool leads_inside(const struct tools_ask *ask, const char *path)
{
	char real[PATH_MAX];

	return realpath(path, real) && (tools_in_system(real) || (ask->project[0] && project_inside(real, ask->project)));
}

/* Where NAME, a program as it was given, is; false if nowhere, or if it is relative to the current folder. */
static bool locate(const struct tools_ask *ask, const char *name, bool by_name, char ret[static PATH_MAX])
{
#ifdef AK_SABOTAGE_NOTOOLTRUST
	by_name = false;
#endif
	if (name[0] == '/')
		return snprintf(ret, PATH_MAX, "%s", name) < PATH_MAX && is_program(ret) && (!by_name || leads_inside(ask, ret));
	return !strchr(name, '/') && tools_look_up(ask->path, name, ret);
}

/* Whether no sandbox can have written the program PATH or one of the links to it. */
static bool is_own(const struct finder *f, const char *path)
{
	_cleanup_(way_done) struct way w = { .n = 0 };

	return tools_walk(path, &w) == 0 && !tools_laid_by_sandbox(f, &w);
}

/* Programs besides the command. */
static int add_more(struct finder *f)
{
	char found[PATH_MAX];
	int rc = 0;

	for (const char *const *name = f->ask->more; name && *name && rc == 0; name++) {
		if (locate(f->ask, *name, false, found))
			rc = tools_add_program(f, found, "tool", 0);
		else if (!f->tools->missing)
			rc = (f->tools->missing = strdup(*name)) ? 0 : -ENOMEM;
	}
	return rc;
}

int tools_find(const struct tools_ask *ask, struct tools *ret, struct ak_err *err)
{
	_cleanup_free_ struct finder *f = calloc(1, sizeof(*f));
	char found[PATH_MAX];
	int rc = f ? 0 : -ENOMEM;

	*ret = (struct tools){ 0 };
	if (f) {
		f->ask = ask;
		f->tools = ret;
		if (!ask->home || !realpath(ask->home, f->home))
			f->home[0] = '\0';
	}
	if (rc == 0 && locate(ask, ask->command, ask->by_name, found)) {
		ret->program = strdup(found);
		rc = ret->program ? tools_add_program(f, found, "command", 0) : -ENOMEM;
		ret->own = rc == 0 && !strchr(ask->command, '/') && !ret->refused && is_own(f, found);
	}
	if (rc == 0)
		rc = add_more(f);
	if (rc == 0)
		rc = make_path(f);
	if (rc < 0) {
		tools_done(ret);
		return ak_fail_errno(err, -rc, "looking for '%.200s' on your PATH", ask->command);
	}
	return 0;
}
