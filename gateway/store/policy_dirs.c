/* The folders in which policies are looked up: see store/policy_dirs.h. */
#include "gateway/store/policy_dirs.h"

#include "gateway/base/cleanup.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void ak_paths_policy_dirs(const struct ak_paths *p, char storage[3][PATH_MAX], struct policy_dirs *ret)
{
	const char *const from[3] = { p->config, AK_SYSTEM_CONFIG, p->data };
	size_t n = 0;

	*ret = (struct policy_dirs){ 0 };
	for (size_t i = 0; i < 3; i++) {
		if (ak_path_join(storage[i], from[i], "policies", NULL) == 0)
			ret->dirs[n++] = storage[i];
	}
}

int ak_policy_load(const struct ak_paths *p, const char *name, const struct policy_edit *edits, size_t n_edits,
	struct policy **ret, struct ak_err *err)
{
	char storage[3][PATH_MAX];
	struct policy_dirs dirs;

	ak_paths_policy_dirs(p, storage, &dirs);
	return policy_load(name, &dirs, edits, n_edits, ret, err);
}

int ak_policy_check_mode(const struct ak_paths *p, const char *name, struct ak_err *err)
{
	char storage[3][PATH_MAX], path[PATH_MAX], file[AK_NAME_MAX + 8];
	struct policy_dirs dirs;

	ak_paths_policy_dirs(p, storage, &dirs);
	snprintf(file, sizeof(file), "%s.json", name);
	for (size_t i = 0; i < ARRAY_SIZE(dirs.dirs) && dirs.dirs[i]; i++) {
		if (ak_path_join(path, dirs.dirs[i], file, NULL) == 0 && access(path, F_OK) == 0)
			return 0;
	}
	return ak_fail(err, EINVAL,
		"compatibility mode '%.64s' is neither claude, codex, gemini, native or opencode nor an installed policy; see 'agentkernel policy list'",
		name);
}

/* ---- policy files of a request ---- */

void run_request_freep(struct run_request **o)
{
	for (size_t i = 0; *o && i < (*o)->n_edits; i++) {
		if ((*o)->edits[i].op == POLICY_EDIT_ADD_POLICY)
			free((char *)(uintptr_t)(*o)->edits[i].text);
	}
	free(*o);
}

static bool has_files(const struct run_request *o)
{
	for (size_t i = 0; i < o->n_edits; i++) {
		if (o->edits[i].op == POLICY_EDIT_ADD_POLICY && policy_is_file(o->edits[i].text))
			return true;
	}
	return false;
}

/* Replace the text of an ADD_POLICY edit by one that we own. */
static int own_text(const struct policy_dirs *dirs, struct policy_edit *e, struct ak_err *err)
{
	const char *given = e->text;
	char *text = NULL;
	int rc = 0;

	e->text = NULL;
	if (policy_is_file(given)) {
		rc = policy_pin(given, dirs, &text, err);
		if (rc < 0)
			return ak_err_prefix(err, rc == -ENOMEM ? rc : -EINVAL, "--policy");
	} else {
		text = strdup(given);
	}
	e->text = text;
	return text ? 0 : ak_fail(err, ENOMEM, "out of memory");
}

int run_request_pin(const struct ak_paths *p, const struct run_request **o, struct run_request **ret_own, struct ak_err *err)
{
	_cleanup_(run_request_freep) struct run_request *copy = NULL;
	char storage[3][PATH_MAX];
	struct policy_dirs dirs;
	size_t n;

	if (!has_files(*o))
		return 0;
	copy = malloc(sizeof(*copy));
	if (!copy)
		return ak_fail(err, ENOMEM, "out of memory");
	*copy = **o;
	n = copy->n_edits;
	ak_paths_policy_dirs(p, storage, &dirs);
	for (size_t i = copy->n_edits = 0; i < n; i++) { /* those before n_edits are ours to free */
		int rc = copy->edits[i].op == POLICY_EDIT_ADD_POLICY ? own_text(&dirs, &copy->edits[i], err) : 0;

		copy->n_edits = i + 1;
		if (rc < 0)
			return rc;
	}
	*o = *ret_own = TAKE(copy);
	return 0;
}
