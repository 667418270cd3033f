/* The runs that are recorded: see runs.h. */
#include "gateway/runs.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/base/json.h"
#include "gateway/daemon.h"
#include "gateway/rundir.h"
#include "gateway/state.h"
#include "gateway/super.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAMED_IN_ERRORS 5
#define RUN_JSON_MAX (4u << 20) /* a command line may be long */

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
		return ak_fail(err, EBADMSG, "'%s' does not hold a name", path);
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
		return ak_fail(err, ENOENT, "no sandbox or run '%.64s': none is recorded", name);
	for (size_t i = 0; i < n && i < NAMED_IN_ERRORS; i++)
		used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%s", i ? ", " : "", runs[i].name);
	return ak_fail(err, ENOENT, "no sandbox or run '%.64s'; the newest: %s", name, list);
}

int runs_dir(const struct ak_paths *p, const char *name, char ret[static PATH_MAX], struct ak_err *err)
{
	static const char *const folders[] = { "sandboxes", "runs" };
	char dir[PATH_MAX];
	struct stat st;

	if (!ak_sandbox_name_ok(name))
		return ak_fail(
			err, EINVAL, "'%.64s' is not a name: 1 to 63 of A-Z a-z 0-9 _ -, a letter or digit at both ends", name);
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

static bool process_gone(const cJSON *run)
{
	struct ak_err ignored;
	uint64_t pid = 0;

	if (json_get_uint(run, "pid", 1u << 22, &pid, &ignored) <= 0 || pid == 0)
		return false;
	return kill((pid_t)pid, 0) < 0 && errno == ESRCH;
}

/* The last line of TEXT; *LEN is the length of all on entry, and its own on return. */
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

static bool run_ended(const char *dir)
{
	_cleanup_free_ char *text = NULL;
	_cleanup_json_ cJSON *run = NULL;
	const char *ended = "", *line;
	struct ak_err ignored;
	char path[PATH_MAX];
	size_t len;

	if (ak_path_join(path, dir, RUNDIR_FILE, NULL) < 0)
		return true;
	if (ak_read_file(AT_FDCWD, path, RUN_JSON_MAX, &text, &len) < 0)
		return access(dir, F_OK) < 0; /* not written yet: it has not even begun */
	line = last_line(text, &len);
	if (json_parse(line, len, &run, &ignored) < 0)
		return false; /* just being written */
	return (json_get_string(run, "ended", &ended, &ignored) > 0 && ended[0]) || process_gone(run);
}

/* A persistent sandbox ends when the daemon says so in its state, or when its supervisor is gone and no daemon is there to say it. */
static bool persistent_ended(const struct ak_paths *p, const char *name)
{
	struct state_sandbox s = { 0 };
	struct ak_err ignored;
	_cleanup_close_ int daemon = -1;
	bool running;

	if (state_load(p, name, &s, &ignored) < 0)
		return true;
	running = s.running;
	state_done(&s);
	if (!running)
		return true;
	_cleanup_close_ int sock = super_connect(p, name, &ignored);

	if (sock >= 0 || sock == -EPERM)
		return false;
	daemon = daemon_connect(p, false, &ignored);
	return daemon < 0;
}

bool runs_ended(const struct ak_paths *p, const char *dir)
{
	const char *name = strrchr(dir, '/'), *folder = "/sandboxes";
	size_t len = name ? (size_t)(name - dir) : 0;

	if (len > strlen(folder) && !strncmp(dir + len - strlen(folder), folder, strlen(folder)))
		return persistent_ended(p, name + 1);
	return run_ended(dir);
}
