/* Past and running runs for `list -a`, and everything known about one sandbox or run for `inspect`. See service/service.h. */
#include "gateway/service/internal.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/store/info.h"
#include "gateway/store/rundir.h"
#include "gateway/store/runs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- runs ---- */

/* Members of run.jsonl that are shown, and the names that they have everywhere else. */
static const struct {
	const char *from, *to;
} shown[] = { { "backend", "backend" }, { "mode", "mode" }, { "profile", "profile" }, { "network", "network" },
	{ "project", "dir" }, { "command", "command" }, { "origin", "origin" }, { "exit_code", "exit_code" },
	{ "timed_out", "timed_out" }, { "out_of_memory", "out_of_memory" }, { "out_of_disk", "out_of_disk" },
	{ "duration_ms", "duration_ms" }, { "started", "created_at" }, { "ended", "ended_at" }, { "allowed", "allowed" },
	{ "denied", "denied" }, { "publish", "publish" } };

static bool copy_members(cJSON *to, const cJSON *record)
{
	for (size_t i = 0; i < ARRAY_SIZE(shown); i++) {
		const cJSON *item = cJSON_GetObjectItemCaseSensitive(record, shown[i].from);
		cJSON *copy = item ? cJSON_Duplicate(item, true) : NULL;

		if (item && (!copy || !cJSON_AddItemToObject(to, shown[i].to, copy))) {
			cJSON_Delete(copy);
			return false;
		}
	}
	return true;
}

/* "running", "exited", or "killed" for a run whose end nobody could record. */
static const char *status_of(const char *dir, const cJSON *record)
{
	if (runs_alive(dir))
		return "running";
	return cJSON_GetObjectItemCaseSensitive(record, "ended") ? "exited" : "killed";
}

static int run_info(const struct ak_paths *paths, const char *name, cJSON **ret, struct ak_err *err)
{
	_cleanup_json_ cJSON *record = NULL, *obj = cJSON_CreateObject();
	char runs[PATH_MAX], dir[PATH_MAX];
	int rc = ak_path_join(runs, paths->state, "runs", NULL);

	if (rc == 0)
		rc = ak_path_join(dir, runs, name, NULL);
	if (rc == 0)
		rc = runs_record(dir, &record);
	if (rc < 0)
		return ak_fail(err, -rc, "run '%s' has no record", name);
	if (!obj || !cJSON_AddStringToObject(obj, "name", name) ||
		!cJSON_AddStringToObject(obj, "status", status_of(dir, record)) || !copy_members(obj, record))
		return ak_fail(err, ENOMEM, "out of memory");
	*ret = TAKE(obj);
	return 0;
}

int service_list_runs(const struct ak_paths *paths, cJSON *list, struct ak_err *err)
{
	_cleanup_free_ struct run_entry *runs = NULL;
	size_t n = 0;
	int rc = runs_list(paths, &runs, &n, err);

	for (size_t i = 0; i < n && rc == 0; i++) {
		cJSON *info = NULL;

		rc = run_info(paths, runs[i].name, &info, err);
		if (rc == 0 && !cJSON_AddItemToArray(list, info)) {
			cJSON_Delete(info);
			return ak_fail(err, ENOMEM, "out of memory");
		}
		if (rc != -ENOMEM)
			rc = 0; /* starting, or pruned meanwhile */
	}
	return rc;
}

/* ---- inspect ---- */

static bool put_mounts(cJSON *obj, const struct run_plan *plan)
{
	cJSON *list = cJSON_AddArrayToObject(obj, "mounts");

	for (size_t i = 0; list && i < plan->n_mounts; i++) {
		const struct sandbox_mount *m = &plan->mounts[i];
		cJSON *item = cJSON_CreateObject();

		if (!item || !cJSON_AddItemToArray(list, item)) {
			cJSON_Delete(item);
			return false;
		}
		if (!cJSON_AddStringToObject(item, "source", m->source) || !cJSON_AddStringToObject(item, "target", m->target) ||
			!cJSON_AddStringToObject(item, "mode", m->readonly ? "ro" : "rw") ||
			!cJSON_AddStringToObject(item, "reason", plan->mounts_why[i]))
			return false;
	}
	return list != NULL;
}

/* Names only: values may be secrets. */
static bool put_variables(cJSON *obj, const struct run_plan *plan)
{
	cJSON *list = cJSON_AddArrayToObject(obj, "env");

	for (size_t i = 0; list && i < plan->n_env; i++) {
		_cleanup_free_ char *key = strndup(plan->env[i], strcspn(plan->env[i], "="));
		cJSON *item = key ? cJSON_CreateString(key) : NULL;

		if (!item || !cJSON_AddItemToArray(list, item)) {
			cJSON_Delete(item);
			return false;
		}
	}
	return list != NULL;
}

static bool put_plan(cJSON *obj, const struct run_plan *plan)
{
	return cJSON_AddStringToObject(obj, "isolation", plan->isolation == SANDBOX_STRICT ? "strict" : "moderate") &&
		cJSON_AddBoolToObject(obj, "read_only_root", plan->readonly_root) &&
		cJSON_AddStringToObject(obj, "home", plan->home) && cJSON_AddStringToObject(obj, "workdir", plan->workdir) &&
		put_mounts(obj, plan) && put_variables(obj, plan);
}

/* A sandbox that cannot be planned, for example because its project folder is gone, is shown all the same, with the reason. */
static int put_planned(const struct ak_paths *paths, const struct state_sandbox *s, cJSON *obj, struct ak_err *err)
{
	static struct run_plan plan; /* large */
	char empty[PATH_MAX];
	struct ak_err why;
	bool ok;
	int rc = rundir_empty(paths, empty, &why);

	if (rc == 0)
		rc = state_plan(paths, s, empty, &plan, &why);
	ok = rc == 0 ? put_plan(obj, &plan) : cJSON_AddStringToObject(obj, "error", why.text) != NULL;
	if (rc == 0)
		run_plan_done(&plan);
	return ok ? 0 : ak_fail(err, ENOMEM, "out of memory");
}

static int put_policy(const struct ak_paths *paths, const struct state_sandbox *s, cJSON *obj, struct ak_err *err)
{
	_cleanup_(policy_unrefp) struct policy *policy = NULL;
	struct ak_err why;
	cJSON *out;

	if (!state_network(s))
		return cJSON_AddNullToObject(obj, "policy") ? 0 : ak_fail(err, ENOMEM, "out of memory");
	out = state_policy(paths, s, ak_wall_us(), &policy, &why) < 0 ? cJSON_CreateObject()
								      : sandbox_policy_json(s, policy, ak_wall_us());
	if (!out || !cJSON_AddItemToObject(obj, "policy", out) || (!policy && !cJSON_AddStringToObject(out, "error", why.text)))
		return ak_fail(err, ENOMEM, "out of memory");
	cJSON_DeleteItemFromObjectCaseSensitive(out, "name");
	cJSON_DeleteItemFromObjectCaseSensitive(out, "mcp");
	return cJSON_AddStringToObject(out, "name", state_mode(s)) ? 0 : ak_fail(err, ENOMEM, "out of memory");
}

static int put_state(const struct ak_paths *paths, const char *name, cJSON *obj, struct ak_err *err)
{
	_cleanup_(state_done) struct state_sandbox s = { 0 };
	char dir[PATH_MAX];
	int rc = service_load(paths, name, &s, err);

	if (rc < 0)
		return rc;
	if (state_path(paths, name, NULL, dir) < 0 || !cJSON_AddStringToObject(obj, "folder", dir) ||
		!cJSON_AddBoolToObject(obj, "nested_namespaces", s.nested) ||
		!cJSON_AddBoolToObject(obj, "project_writable", s.project_writable) || !state_limits_put(obj, &s.limits))
		return ak_fail(err, ENOMEM, "out of memory");
	rc = put_planned(paths, &s, obj, err);
	return rc < 0 ? rc : put_policy(paths, &s, obj, err);
}

/* What is known of the run that a kept sandbox was. */
static int put_run(const struct ak_paths *paths, const char *name, cJSON *obj, struct ak_err *err)
{
	_cleanup_json_ cJSON *record = NULL;
	char dir[PATH_MAX];
	cJSON *run;

	if (state_path(paths, name, NULL, dir) < 0 || runs_record(dir, &record) < 0)
		return 0;
	run = cJSON_AddObjectToObject(obj, "run");
	return run && copy_members(run, record) ? 0 : ak_fail(err, ENOMEM, "out of memory");
}

int service_inspect(const struct ak_paths *paths, const char *name, cJSON **ret, struct ak_err *err)
{
	_cleanup_json_ cJSON *obj = NULL;
	struct ak_err first;
	int rc = service_get(paths, name, &obj, &first);

	if (rc == -ENOENT && run_info(paths, name, ret, err) == 0)
		return 0;
	if (rc < 0) {
		*err = first;
		return rc;
	}
	rc = put_state(paths, name, obj, err);
	if (rc == 0)
		rc = put_run(paths, name, obj, err);
	if (rc == 0)
		*ret = TAKE(obj);
	return rc;
}
