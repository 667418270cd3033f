/* Lists recorded runs: see store/runs.h. */
#include "gateway/store/runs.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/base/json.h"
#include "gateway/store/rundir.h"
#include "gateway/store/state.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAMED_IN_ERRORS 5
#define RUN_JSON_MAX (4u << 20) /* a command line may be long */
#define PREFIX "run-"

static int newest_first(const void *a, const void *b)
{
	const struct run_entry *x = a, *y = b;

	if (x->mtime_ns != y->mtime_ns)
		return x->mtime_ns > y->mtime_ns ? -1 : 1;
	return strcmp(x->name, y->name);
}

static int read_runs(DIR *dir, struct run_entry **ret, size_t *ret_n)
{
	_cleanup_free_ struct run_entry *runs = NULL;
	size_t n = 0, cap = 0;

	for (struct dirent *e; (e = readdir(dir));) {
		struct stat st;

		if (!ak_sandbox_name_ok(e->d_name) || fstatat(dirfd(dir), e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
			!S_ISDIR(st.st_mode))
			continue;
		if (n == cap) {
			struct run_entry *grown = realloc(runs, (cap ? cap * 2 : 32) * sizeof(*runs));

			if (!grown)
				return -ENOMEM;
			runs = grown;
			cap = cap ? cap * 2 : 32;
		}
		memcpy(runs[n].name, e->d_name, strlen(e->d_name) + 1);
		runs[n++].mtime_ns = (uint64_t)st.st_mtim.tv_sec * 1000000000u + (uint64_t)st.st_mtim.tv_nsec;
	}
	if (n > 0)
		qsort(runs, n, sizeof(*runs), newest_first);
	*ret = TAKE(runs);
	*ret_n = n;
	return 0;
}

static int list_folder(const struct ak_paths *p, const char *folder, struct run_entry **ret, size_t *ret_n, struct ak_err *err)
{
	char path[PATH_MAX];
	DIR *dir;
	int rc;

	if (ak_path_join(path, p->state, folder, NULL) < 0)
		return ak_fail(err, ENAMETOOLONG, "state folder: path too long");
	dir = opendir(path);
	if (!dir && errno == ENOENT) {
		*ret = NULL;
		*ret_n = 0;
		return 0;
	}
	if (!dir)
		return ak_fail_errno(err, errno, "cannot read '%s'", path);
	rc = read_runs(dir, ret, ret_n);
	closedir(dir);
	return rc < 0 ? ak_fail_errno(err, -rc, "cannot read '%s'", path) : 0;
}

int runs_list(const struct ak_paths *p, struct run_entry **ret, size_t *ret_n, struct ak_err *err)
{
	return list_folder(p, "runs", ret, ret_n, err);
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct run_entry *)a)->name, ((const struct run_entry *)b)->name);
}

int runs_persistent(const struct ak_paths *p, struct run_entry **ret, size_t *ret_n, struct ak_err *err)
{
	int rc = list_folder(p, "sandboxes", ret, ret_n, err);

	if (rc == 0 && *ret_n)
		qsort(*ret, *ret_n, sizeof(**ret), by_name);
	return rc;
}

int runs_last(const struct ak_paths *p, char ret[static AK_NAME_MAX], struct ak_err *err)
{
	_cleanup_free_ char *text = NULL;
	char path[PATH_MAX];
	int rc;

	if (ak_path_join(path, p->state, "last", NULL) < 0)
		return ak_fail(err, ENAMETOOLONG, "state folder: path too long");
	rc = ak_read_file(AT_FDCWD, path, 4096, &text, NULL);
	if (rc == -ENOENT)
		return ak_fail(err, ENOENT, "no run has been recorded yet");
	if (rc < 0)
		return ak_fail_errno(err, -rc, "cannot read '%s'", path);
	text[strcspn(text, "\n")] = '\0';
	if (!ak_sandbox_name_ok(text))
		return ak_fail(err, EBADMSG, "'%s' does not contain the name of a run", path);
	memcpy(ret, text, strlen(text) + 1);
	return 0;
}

static int unknown_name(const struct ak_paths *p, const char *name, struct ak_err *err)
{
	_cleanup_free_ struct run_entry *runs = NULL;
	struct ak_err ignored;
	char list[NAMED_IN_ERRORS * (AK_NAME_MAX + 2)] = "";
	size_t n = 0, used = 0;

	if (runs_list(p, &runs, &n, &ignored) < 0 || n == 0)
		return ak_fail(err, ENOENT, "no sandbox or run '%.64s': none is recorded yet", name);
	for (size_t i = 0; i < n && i < NAMED_IN_ERRORS; i++)
		used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%s", i ? ", " : "", runs[i].name);
	return ak_fail(err, ENOENT, "no sandbox or run '%.64s'; the newest are: %s", name, list);
}

int runs_dir(const struct ak_paths *p, const char *name, char ret[static PATH_MAX], struct ak_err *err)
{
	static const char *const folders[] = { "sandboxes", "runs" };
	char dir[PATH_MAX];
	struct stat st;

	if (!ak_sandbox_name_ok(name))
		return ak_fail(err, EINVAL,
			"'%.64s' is not a valid name: 1 to 63 of A-Z a-z 0-9 _ -, a letter or digit at both ends", name);
	for (size_t i = 0; i < ARRAY_SIZE(folders); i++) {
		if (ak_path_join(dir, p->state, folders[i], name) < 0)
			return ak_fail(err, ENAMETOOLONG, "state folder: path too long");
		if (lstat(dir, &st) == 0) {
			memcpy(ret, dir, sizeof(dir));
			return 0;
		}
		if (errno != ENOENT)
			return ak_fail_errno(err, errno, "cannot read '%s'", dir);
	}
	return unknown_name(p, name, err);
}

/* ---- unique prefixes ---- */

struct matches {
	const char *text;
	char found[AK_NAME_MAX];
	char list[NAMED_IN_ERRORS * (AK_NAME_MAX + 2)];
	size_t n, used;
};

static void add_match(struct matches *m, const char *name)
{
	/* A kept run that was started may have both folders for a moment. */
	if (strncmp(name, m->text, strlen(m->text)) != 0 || !strcmp(name, m->found))
		return;
	if (m->n == NAMED_IN_ERRORS)
		m->used += (size_t)snprintf(m->list + m->used, sizeof(m->list) - m->used, ", …");
	else if (m->n < NAMED_IN_ERRORS)
		m->used += (size_t)snprintf(m->list + m->used, sizeof(m->list) - m->used, "%s%s", m->n ? ", " : "", name);
	memcpy(m->found, name, strlen(name) + 1);
	m->n++;
}

static int match_folder(const struct ak_paths *p, const char *folder, struct matches *m, bool *ret_exact, struct ak_err *err)
{
	_cleanup_free_ struct run_entry *list = NULL;
	size_t n = 0;
	int rc = list_folder(p, folder, &list, &n, err);

	for (size_t i = 0; i < n; i++) {
		*ret_exact |= !strcmp(list[i].name, m->text);
		add_match(m, list[i].name);
	}
	return rc;
}

int runs_resolve(const struct ak_paths *p, const char **name, char buf[static AK_NAME_MAX], struct ak_err *err)
{
	struct matches m = { .text = *name };
	bool exact = false;
	int rc;

	/* Other names are chosen by people: a shorter one is more likely a mistake than an abbreviation. */
	if (strncmp(*name, PREFIX, strlen(PREFIX)) != 0 || strlen(*name) <= strlen(PREFIX) || strlen(*name) >= AK_NAME_MAX)
		return 0;
	rc = match_folder(p, "sandboxes", &m, &exact, err);
	if (rc == 0)
		rc = match_folder(p, "runs", &m, &exact, err);
	if (rc < 0 || exact || m.n == 0)
		return rc;
	if (m.n > 1)
		return ak_fail(err, ENOTUNIQ, "'%.63s' is the beginning of %zu names: %s; give more of it", *name, m.n, m.list);
	memcpy(buf, m.found, sizeof(m.found));
	*name = buf;
	return 0;
}

/* ---- the record of a run ---- */

/* The last line of TEXT. *LEN is the length of TEXT on entry and the length of the line on return. */
static const char *last_line(const char *text, size_t *len)
{
	size_t end = *len, start;

	if (end && text[end - 1] == '\n')
		end--;
	for (start = end; start && text[start - 1] != '\n'; start--)
		continue;
	*len = end - start;
	return text + start;
}

int runs_record(const char *dir, cJSON **ret)
{
	_cleanup_free_ char *text = NULL;
	struct ak_err ignored;
	char path[PATH_MAX];
	const char *line;
	size_t len;
	int rc = ak_path_join(path, dir, RUNDIR_FILE, NULL);

	if (rc == 0)
		rc = ak_read_file(AT_FDCWD, path, RUN_JSON_MAX, &text, &len);
	if (rc < 0)
		return rc;
	line = last_line(text, &len);
	return json_parse(line, len, ret, &ignored) < 0 ? -EBADMSG : 0;
}

bool runs_alive(const char *dir)
{
	_cleanup_close_ int fd = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	return fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) < 0 && errno == EWOULDBLOCK;
}
