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
#include <sys/stat.h>
#include <unistd.h>

#define NAMED_IN_ERRORS 5

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
