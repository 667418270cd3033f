/*
 * --env-file: variables from a file, in the format of `docker run --env-file`. One K=V a line, with V taken as it is; K alone takes the caller's value, and
 * nothing if there is none; empty lines and lines that begin with # are skipped.
 */
#include "gateway/field/internal.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

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

static int add_line(struct run_request *o, const char *line, struct ak_err *err)
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
	if (!line[key] && !getenv(line))
		return 0;
	copy = strdup(line); /* lives as long as the request: until we end */
	return copy ? insert(o, copy, err) : ak_fail(err, ENOMEM, "out of memory");
}

int field_add_env_file(struct run_request *o, const struct field *f, const struct field_value *v, struct ak_err *err)
{
	_cleanup_free_ char *text = NULL;
	size_t len = 0;
	unsigned number = 0;
	int rc = ak_read_file(AT_FDCWD, v->text, FILE_MAX, &text, &len);

	if (rc < 0)
		return ak_fail(err, EINVAL, "'%.200s': %s", v->text, strerror(-rc));
	if (strlen(text) != len)
		return ak_fail(err, EINVAL, "'%.200s': contains a NUL byte", v->text);
	for (char *line = text, *end; line && *line && rc == 0; line = end ? end + 1 : NULL) {
		end = strchr(line, '\n');
		if (end)
			*end = '\0';
		line[strcspn(line, "\r")] = '\0';
		number++;
		rc = add_line(o, line, err);
	}
	return rc < 0 ? ak_err_prefix(err, rc, "'%.200s': line %u", v->text, number) : 0;
}
