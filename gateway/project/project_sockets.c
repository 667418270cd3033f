/* Find sockets in a project: a sandbox can connect to them. See project/project.h. */
#include "gateway/project/project.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/strbuf.h"
#include "vmctl/source.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define DIRS_MAX 64
#define ENTRIES_MAX 2048
#define NAMED_MAX 3

/* Breadth first: sockets near the top are found however large the project is. */
struct search {
	int root; /* borrowed */
	char *dirs[DIRS_MAX]; /* owned; folders still to search, as paths below the root */
	size_t n_dirs, at;
	size_t entries, found;
	struct strbuf names;
};

static bool is_kind(int dir, const struct dirent *e, unsigned char kind, mode_t mode)
{
	struct stat st;

	if (e->d_type != DT_UNKNOWN)
		return e->d_type == kind;
	return fstatat(dir, e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && (st.st_mode & S_IFMT) == mode;
}

static void take_entry(struct search *s, int dir, const char *path, const struct dirent *e)
{
	bool sock = is_kind(dir, e, DT_SOCK, S_IFSOCK);

	if (sock && s->found++ < NAMED_MAX)
		strbuf_printf(&s->names, "%s%s%s%s", s->names.len ? ", " : "", path, path[0] ? "/" : "", e->d_name);
	if (sock || s->n_dirs == DIRS_MAX || !is_kind(dir, e, DT_DIR, S_IFDIR))
		return;
	if (asprintf(&s->dirs[s->n_dirs], "%s%s%s", path, path[0] ? "/" : "", e->d_name) >= 0)
		s->n_dirs++;
}

static void look_into(struct search *s, const char *path)
{
	int fd = openat(s->root, path[0] ? path : ".", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);

	if (!dir) {
		ak_close(fd);
		return;
	}
	for (const struct dirent *e; s->entries < ENTRIES_MAX && (e = readdir(dir)); s->entries++) {
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
			take_entry(s, fd, path, e);
	}
	closedir(dir);
}

void project_sockets(const char *project, const char *what, char *ret, size_t size)
{
	struct ak_err ignored;
	_cleanup_close_ int root = mnt_source_open(&(struct sandbox_mount){ .source = project }, &ignored);
	struct search s = { .root = root };

	ret[0] = '\0';
	if (root < 0)
		return;
	look_into(&s, "");
	for (; s.at < s.n_dirs; s.at++)
		look_into(&s, s.dirs[s.at]);
	if (s.found && !s.names.failed)
		snprintf(ret, size,
			"%.200s holds %zu socket%s (%.200s%s): the sandbox can connect to the programs that listen there", what,
			s.found, s.found == 1 ? "" : "s", s.names.data, s.found > NAMED_MAX ? ", …" : "");
	for (size_t i = 0; i < s.n_dirs; i++)
		free(s.dirs[i]);
	strbuf_done(&s.names);
}
