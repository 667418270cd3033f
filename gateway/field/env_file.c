/*
 * --env-file: variables from a file, in the format of `docker run --env-file`. One K=V a line, with V taken as it is; K alone takes the caller's value, and
 * nothing if there is none; empty lines and lines that begin with # are skipped.
 */
#include "gateway/field/internal.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/store/shared.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_MAX (1u << 20)

/* Insert before the variables of --env, which win because they come later. */
static int insert(struct run_request *o, const char *pair, struct ak_err *err)
{
	if (o->n_env == PLAN_LIST_MAX)
		return ak_fail(err, EINVAL, "more than %d variables", PLAN_LIST_MAX);
	memmove(&o->env[o->n_env_files + 1], &o->env[o->n_env_files], (o->n_env - o->n_env_files) * sizeof(o->env[0]));
	o->env[o->n_env_files++] = pair;
	o->n_env++;
	return 0;
}

static int add_line(struct run_request *o, const char *line, bool pass, struct ak_err *err)
{
	size_t key;
	char *copy;

	line += strspn(line, " \t");
	key = strcspn(line, "=");
	if (!line[0] || line[0] == '#')
		return 0;
	if (key == 0)
		return ak_fail(err, EINVAL, "no name before '='; write K=V");
	if (strcspn(line, " \t") < key)
		return ak_fail(err, EINVAL, "'%.*s' has a space; write K=V, without 'export'", (int)(key < 40 ? key : 40), line);
	if (!line[key] && !pass)
		return ak_fail(err, EINVAL,
			"'%.80s' would pass on your own value, but a sandbox can write this file, or could; use -e %.80s, or write K=V",
			line, line);
	if (!line[key] && !getenv(line))
		return 0;
	copy = strdup(line); /* lives as long as the request: until we end */
	return copy ? insert(o, copy, err) : ak_fail(err, ENOMEM, "out of memory");
}

/* What the shell has opened for us, as in --env-file <(command): there is no path to follow. */
static bool is_stream(const char *path)
{
	return !strcmp(path, "/dev/stdin") || !strncmp(path, "/dev/fd/", 8) || !strncmp(path, "/proc/self/fd/", 14);
}

/* Whether no sandbox could write REAL. One of the run that is being prepared can, if it is in the current folder. */
static bool is_own(const struct ak_paths *paths, const char *real)
{
	_cleanup_(shared_projects_done) struct shared_projects p = { .paths = paths };
	char cwd[PATH_MAX];

	return getcwd(cwd, sizeof(cwd)) && !project_inside(real, cwd) && !shared_wrote(&p, real);
}

/* A sandbox may have put a link or a FIFO in the place of the file. *RET_OWN: no sandbox could write it. */
static int read_named(const char *path, char **ret, size_t *ret_len, bool *ret_own, struct ak_err *err)
{
	char real[PATH_MAX], proc[64];
	struct project_id id;
	struct ak_paths paths;
	mode_t mode = 0;
	_cleanup_close_ int fd = ak_paths_init(&paths, err) < 0 ? -EINVAL : shared_open(&paths, path, err);
	int rc = fd < 0 ? fd : project_name_open(fd, "--env-file", real, &id, &mode, err);

	if (rc < 0)
		return -EINVAL;
	if (!S_ISREG(mode))
		return ak_fail(err, EINVAL, "'%.200s' is not a regular file", path);
	*ret_own = is_own(&paths, real);
	snprintf(proc, sizeof(proc), "/proc/self/fd/%d", fd);
	rc = ak_read_file(AT_FDCWD, proc, FILE_MAX, ret, ret_len);
	return rc < 0 ? ak_fail(err, EINVAL, "'%.200s': %s", path, strerror(-rc)) : 0;
}

int field_add_env_file(struct run_request *o, const struct field *f, const struct field_value *v, struct ak_err *err)
{
	_cleanup_free_ char *text = NULL;
	size_t len = 0;
	unsigned number = 0;
	bool stream = is_stream(v->text), pass = true;
	int rc = stream ? ak_read_file(AT_FDCWD, v->text, FILE_MAX, &text, &len) : read_named(v->text, &text, &len, &pass, err);

	if (rc < 0)
		return stream ? ak_fail(err, EINVAL, "'%.200s': %s", v->text, strerror(-rc)) : rc;
	if (strlen(text) != len)
		return ak_fail(err, EINVAL, "'%.200s': contains a NUL byte", v->text);
	for (char *line = text, *end; line && *line && rc == 0; line = end ? end + 1 : NULL) {
		end = strchr(line, '\n');
		if (end)
			*end = '\0';
		line[strcspn(line, "\r")] = '\0';
		number++;
		rc = add_line(o, line, pass, err);
	}
	return rc < 0 ? ak_err_prefix(err, rc, "'%.200s': line %u", v->text, number) : 0;
}
