/*
 * Shared libraries of programs outside the system folders: see project/tools_internal.h.
 *
 * A library is searched as the dynamic linker does it (ld.so(8)), in the search path of the file that needs it and, without DT_RUNPATH, in those of
 * the files that led to it. What is not found there is a library of the system. LD_LIBRARY_PATH is not passed on to a sandbox.
 */
#include "gateway/project/tools_internal.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/strbuf.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEPTH_MAX 12 /* libraries of libraries */
#define SINGLE_MAX 6 /* libraries of one folder, before all of it is mounted */

static int add_needs(struct finder *f, const char *real, const char *inherited, unsigned depth, char *ret_interpreter);

/* Whether this is the first visit of the file. */
static bool first_visit(struct finder *f, const struct stat *st)
{
	for (size_t i = 0; i < f->n_seen; i++) {
		if (f->seen[i].dev == st->st_dev && f->seen[i].ino == st->st_ino)
			return false;
	}
	if (f->n_seen == TOOLS_OBJECTS_MAX)
		return false;
	f->seen[f->n_seen].dev = st->st_dev;
	f->seen[f->n_seen++].ino = st->st_ino;
	return true;
}

/* ---- search paths ---- */

/* Append one entry of a search path of the file REAL, with $ORIGIN replaced. A relative entry depends on the current folder: skip it. */
static void put_entry(struct strbuf *out, const char *entry, size_t len, const char *real)
{
	static const char *const names[] = { "$ORIGIN", "${ORIGIN}" };
	int origin = (int)(strrchr(real, '/') - real);
	size_t skip = 0;

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		if (len >= strlen(names[i]) && !strncmp(entry, names[i], strlen(names[i])))
			skip = strlen(names[i]);
	}
	if (memchr(entry + skip, '$', len - skip) || (!skip && (len == 0 || entry[0] != '/')))
		return;
	strbuf_printf(out, "%s%.*s%.*s", out->len ? ":" : "", skip ? origin : 0, real, (int)(len - skip), entry + skip);
}

/* The folders to search for what REAL needs. */
static char *search_path(const struct elf_needs *n, const char *real, const char *inherited)
{
	const char *list = n->path[ELF_RUNPATH][0] ? n->path[ELF_RUNPATH] : n->path[ELF_RPATH];
	_cleanup_strbuf_ struct strbuf out = { 0 };

	while (*list) {
		size_t len = strcspn(list, ":");

		put_entry(&out, list, len, real);
		list += len + (list[len] == ':');
	}
	if (!n->path[ELF_RUNPATH][0] && inherited[0])
		strbuf_printf(&out, "%s%s", out.len ? ":" : "", inherited);
	return out.len || out.failed ? strbuf_take(&out) : strdup("");
}

static bool find_in(const char *path, const char *name, char ret[static PATH_MAX])
{
	if (strchr(name, '/'))
		return name[0] == '/' && snprintf(ret, PATH_MAX, "%s", name) < PATH_MAX && elf_is_library(ret);
	while (*path) {
		size_t len = strcspn(path, ":");

		if (snprintf(ret, PATH_MAX, "%.*s/%s", (int)len, path, name) < PATH_MAX && elf_is_library(ret))
			return true;
		path += len + (path[len] == ':');
	}
	return false;
}

/* ---- adding ---- */

/* The folder of a library, if several of its files are mounted already and it holds libraries; 0 if not. */
static size_t crowded(const struct finder *f, const char *real)
{
	size_t len = (size_t)(strrchr(real, '/') - real), n = 0, at = len;

	for (size_t i = 0; i < f->tools->n; i++) {
		const char *path = f->tools->list[i].path;

		n += f->tools->list[i].kind == TOOL_FILE && !strncmp(path, real, len) && path[len] == '/' &&
			!strchr(path + len + 1, '/');
	}
	while (at > 0 && real[at - 1] != '/')
		at--;
	return n >= SINGLE_MAX && !strncmp(real + at, "lib", 3) ? len : 0;
}

static int add_library(struct finder *f, const char *path, const char *user, const char *search, unsigned depth)
{
	_cleanup_(way_done) struct way w = { .n = 0 };
	char why[NAME_MAX + 64], unused[PATH_MAX];
	int rc = tools_walk(path, &w);
	size_t folder;

	if (rc < 0)
		return rc == -ENOMEM ? rc : 0;
	if (tools_in_system(w.real) || tools_laid_by_sandbox(f, &w))
		return 0;
	snprintf(why, sizeof(why), "library of %.200s", strrchr(user, '/') + 1);
	folder = crowded(f, w.real);
	rc = folder ? tools_add(f, TOOL_FOLDER, w.real, folder, NULL, "libraries") : 1;
	if (rc > 0)
		rc = tools_add_file(f, w.real, why, true);
	if (rc > 0)
		return tools_refuse(f, f->why.text);
	if (rc == 0)
		rc = tools_add_links(f, &w, why);
	return rc < 0 ? rc : add_needs(f, w.real, search, depth + 1, unused);
}

static int add_needs(struct finder *f, const char *real, const char *inherited, unsigned depth, char *ret_interpreter)
{
	_cleanup_close_ int fd = open(real, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	_cleanup_free_ struct elf_needs *n = NULL;
	_cleanup_free_ char *search = NULL;
	char found[PATH_MAX];
	struct stat st;
	int rc = 0;

	ret_interpreter[0] = '\0';
	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || depth > DEPTH_MAX || !first_visit(f, &st))
		return 0;
	n = malloc(sizeof(*n));
	if (!n)
		return -ENOMEM;
	if (!elf_needs_read(fd, n))
		return 0; /* a script, or nothing that runs */
	search = search_path(n, real, inherited);
	if (!search)
		return -ENOMEM;
	memcpy(ret_interpreter, n->interpreter, strlen(n->interpreter) + 1);
	for (size_t i = 0; i < n->n_needed && rc == 0; i++) {
		if (find_in(search, n->needed[i], found))
			rc = add_library(f, found, real, search, depth);
	}
	return rc;
}

int tools_add_libraries(struct finder *f, const char *real, char ret_interpreter[static PATH_MAX])
{
	return add_needs(f, real, "", 0, ret_interpreter);
}
