/* What a client asks for in many words, a run, a new sandbox, changes of a policy: read whole, and nothing done. See daemon/internal.h. */
#include "gateway/daemon/internal.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define TIMEOUT_MAX_MS (366ull * 86400 * 1000)
#define FOR_MAX_MS TIMEOUT_MAX_MS

/* ---- a run ---- */

static int get_path(const cJSON *obj, const char *key, char ret[static PATH_MAX], struct ak_err *err)
{
	const char *text = "";
	int rc = json_get_string(obj, key, &text, err);

	if (rc < 0)
		return rc;
	if (strlen(text) >= PATH_MAX || (text[0] && text[0] != '/'))
		return ak_fail(err, EINVAL, "%s: must be an absolute path", key);
	memcpy(ret, text, strlen(text) + 1);
	return 0;
}

static int get_plan(struct run_ask *a, struct ak_err *err)
{
	const char *name = "", *mode = "native", *profile = "moderate";
	uint64_t isolation = 0, origin = RUN_ORIGIN_CLI;
	int readonly_root = 0, rc = json_get_string(a->obj, "name", &name, err);

	if (rc >= 0 && !ak_sandbox_name_ok(name))
		rc = ak_fail(err, EINVAL, "name: '%.100s' cannot be one", name);
	if (rc >= 0)
		rc = json_get_string(a->obj, "mode", &mode, err);
	if (rc >= 0)
		rc = ak_mode_parse(mode, &a->opts.mode, err);
	if (rc >= 0)
		rc = json_get_string(a->obj, "profile", &profile, err);
	if (rc >= 0)
		rc = ak_profile_parse(profile, &a->opts.profile, err);
	if (rc >= 0)
		rc = json_get_uint(a->obj, "origin", RUN_ORIGIN_NUM - 1, &origin, err);
	if (rc >= 0)
		rc = json_get_uint(a->obj, "isolation", SANDBOX_ISOLATION_NUM - 1, &isolation, err);
	if (rc >= 0)
		rc = json_get_bool(a->obj, "readonly_root", &readonly_root, err);
	if (rc < 0)
		return rc;
	memcpy(a->plan.name, name, strlen(name) + 1);
	a->opts.origin = (enum run_origin)origin;
	a->plan.network = true;
	a->plan.policy = ak_mode_name(a->opts.mode);
	a->plan.isolation = (enum sandbox_isolation)isolation;
	a->plan.readonly_root = readonly_root != 0;
	rc = get_path(a->obj, "home", a->plan.home, err);
	if (rc == 0)
		rc = get_path(a->obj, "project", a->plan.project, err);
	return rc < 0 ? rc : get_path(a->obj, "workdir", a->plan.workdir, err);
}

static int get_env(struct run_ask *a, struct ak_err *err)
{
	_cleanup_free_ char **env = NULL;
	int rc = json_get_strings(a->obj, "env", &env, err);
	size_t i = 0;

	for (; rc > 0 && env[i] && a->plan.n_env < PLAN_ENV_MAX; i++)
		a->plan.env[a->plan.n_env++] = env[i];
	if (rc <= 0 || !env[i])
		return rc < 0 ? rc : 0;
	for (; env[i]; i++)
		free(env[i]);
	return ak_fail(err, E2BIG, "env: more than %d variables", PLAN_ENV_MAX);
}

static int get_mount(const cJSON *m, struct sandbox_mount *ret, struct ak_err *err)
{
	struct project_id id = { .ino = 0 };
	const char *text = "";
	int readonly = 0, shielded = 0, rc = json_get_string(m, "source", &ret->source, err);

	if (rc >= 0)
		rc = json_get_string(m, "target", &ret->target, err);
	if (rc >= 0)
		rc = json_get_bool(m, "readonly", &readonly, err);
	if (rc >= 0)
		rc = json_get_bool(m, "shielded", &shielded, err);
	if (rc >= 0)
		rc = json_get_string(m, "id", &text, err);
	if (rc < 0)
		return rc;
	if (!ret->source || ret->source[0] != '/' || !ret->target || ret->target[0] != '/' || project_id_parse(text, &id) < 0)
		return ak_fail(err, EINVAL, "wants absolute paths, and what the source is");
	ret->readonly = readonly != 0;
	ret->shielded = shielded != 0;
	ret->dev = id.dev;
	ret->ino = id.ino;
	return 0;
}

static int get_mounts(struct run_ask *a, size_t n_fds, struct ak_err *err)
{
	const cJSON *list = NULL, *m;
	int rc = json_get_array(a->obj, "mounts", &list, err);

	if (rc < 0)
		return rc;
	cJSON_ArrayForEach(m, list) {
		if (a->plan.n_mounts == PLAN_MOUNTS_MAX)
			return ak_fail(err, E2BIG, "mounts: more than %d", PLAN_MOUNTS_MAX);
		rc = get_mount(m, &a->plan.mounts[a->plan.n_mounts], err);
		if (rc < 0)
			return ak_err_prefix(err, rc, "mounts[%zu]", a->plan.n_mounts);
		a->plan.n_mounts++;
	}
	return n_fds == 3 ? 0 : ak_fail(err, EINVAL, "run wants its three streams");
}

static int get_edits(struct run_ask *a, struct ak_err *err)
{
	const cJSON *list = NULL, *item;
	int rc = json_get_array(a->obj, "edits", &list, err);

	if (rc <= 0)
		return rc;
	cJSON_ArrayForEach(item, list) {
		if (a->opts.n_edits == PLAN_LIST_MAX)
			return ak_fail(err, E2BIG, "edits: more than %d", PLAN_LIST_MAX);
		rc = state_edit_get(item, NULL, 0, &a->opts.edits[a->opts.n_edits], NULL, err);
		if (rc < 0)
			return ak_err_prefix(err, rc, "edits[%zu]", a->opts.n_edits);
		a->opts.n_edits++;
	}
	return 0;
}

int run_ask_parse(struct run_ask *a, size_t n_fds, struct ak_err *err)
{
	int tty = 0, rc = json_get_strings(a->obj, "argv", &a->argv, err);

	if (rc >= 0 && (!a->argv || !a->argv[0]))
		rc = ak_fail(err, EINVAL, "argv: which command?");
	if (rc >= 0)
		rc = get_plan(a, err);
	if (rc >= 0)
		rc = get_env(a, err);
	if (rc >= 0)
		rc = get_mounts(a, n_fds, err);
	if (rc >= 0)
		rc = get_edits(a, err);
	if (rc >= 0)
		rc = state_limits_get(a->obj, &a->opts.limits, err);
	if (rc >= 0)
		rc = json_get_bool(a->obj, "tty", &tty, err);
	if (rc >= 0)
		rc = json_get_uint(a->obj, "timeout_ms", TIMEOUT_MAX_MS, &a->opts.timeout_ms, err);
	a->opts.tty = tty != 0;
	a->opts.argv = a->argv;
	return rc < 0 ? rc : 0;
}

void run_ask_done(struct run_ask *a)
{
	run_plan_done(&a->plan);
	json_strings_free(a->argv);
	cJSON_Delete(a->obj);
}

/* ---- changes of a policy ---- */

static int read_edit(const struct ak_paths *paths, const cJSON *item, struct state_sandbox *s, struct ak_err *err)
{
	struct policy_edit edit;
	uint64_t for_ms = 0;
	int rc = state_edit_get(item, "for_ms", FOR_MAX_MS, &edit, &for_ms, err);

	if (rc < 0)
		return rc;
	return state_edit_add(paths, s, edit.op, edit.text, for_ms ? ak_deadline_now_us() + for_ms * 1000 : 0, err);
}

int policy_edits_read(const struct ak_paths *paths, const cJSON *obj, struct state_sandbox *s, struct ak_err *err)
{
	const cJSON *list = NULL, *item;
	int rc = json_get_array(obj, "edits", &list, err);

	if (rc <= 0)
		return rc;
	cJSON_ArrayForEach(item, list) {
		rc = read_edit(paths, item, s, err);
		if (rc < 0)
			return rc;
	}
	return 0;
}
